//! What rules that deny or ask can see of a command: all that it runs, and what looks like words where that is hidden.

use std::collections::HashMap;

use super::shell::{self, Word};
use super::wrappers::{Runs, base_name, runs};

/// Commands in commands are looked into so deep; below that they are taken as hidden.
pub(super) const MAX_DEPTH: usize = 4;
/// Between the words of a rule that denies or asks, at most this many others are looked over.
const MAX_SKIPPED: usize = 64;

/// All that a command runs, as far as it can be seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) commands: Vec<Vec<String>>,
    // Where nobody knows which of the words is a program, so any may be.
    pub(super) loose: Vec<Tokens>,
    // Those of the commands in which a shell puts other words in place of some.
    pub(super) patterns: Vec<Vec<Word>>,
    // Whether git is told what its subcommands mean.
    pub(super) is_renamed: bool,
}

impl Seen {
    pub(super) fn collect(&mut self, words: &[Word], depth: usize) {
        if words.is_empty() {
            return;
        }
        self.commands.push(texts(words));
        if words.iter().any(|word| !word.is_literal) {
            self.patterns.push(words.to_vec());
        }
        self.is_renamed |= renames(words);
        let may_look = depth < MAX_DEPTH;
        match runs(words) {
            Runs::Itself => {}
            Runs::Words { at, .. } if may_look => self.collect(&words[at..], depth + 1),
            Runs::Text { text, .. } if may_look => match shell::parse(&text) {
                Ok(line) => line.commands.iter().for_each(|command| self.collect(&command.words, depth + 1)),
                Err(_) => self.loose.push(Tokens::of(&text)),
            },
            _ => self.loose.push(Tokens::of(&texts(&words[1..]).join(" "))),
        }
    }

    pub(super) fn has(&self, prefix: &[String]) -> bool {
        self.commands.iter().any(|words| begins(words, prefix))
            || self.loose.iter().any(|loose| loose.mention(prefix))
    }

    /// Says whether it may run a program of which this is true, given its name in lower case.
    pub(super) fn runs(&self, is_it: impl Fn(&str) -> bool) -> bool {
        let programs = self.commands.iter().filter_map(|words| words.first());
        programs.into_iter().any(|program| is_it(&base_name(program)))
            || self.loose.iter().any(|loose| loose.runs(&is_it))
    }

    /// Says whether it may run a command that starts with words, by what a shell or git puts in their place.
    pub(super) fn may_have(&self, prefix: &[String]) -> bool {
        let is_git = || prefix.first().is_some_and(|program| base_name(program) == "git");
        (self.is_renamed && is_git()) || self.patterns.iter().any(|words| begins(words, prefix))
    }
}

/// What looks like words in a text that cannot be taken apart.
pub(super) struct Tokens {
    words: Vec<String>,
    // Where each word stands, by the name of the program that it may be.
    programs: HashMap<String, Vec<usize>>,
}

impl Tokens {
    pub(super) fn of(text: &str) -> Self {
        let text = without_quotes(text);
        let words: Vec<String> =
            text.split(is_boundary).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect();
        let mut programs: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, word) in words.iter().enumerate() {
            programs.entry(base_name(word)).or_default().push(at);
        }
        Self { words, programs }
    }

    /// Says whether there may be a program of which this is true, given its name in lower case.
    pub(super) fn runs(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.programs.keys().any(|program| is_it(program))
    }

    /// Says whether there may be a command that starts with words.
    pub(super) fn mention(&self, prefix: &[String]) -> bool {
        let Some(program) = prefix.first() else { return false };
        let places = self.programs.get(&base_name(program));
        places.is_some_and(|places| places.iter().any(|at| begins(&self.words[*at..], prefix)))
    }
}

pub(super) fn texts(words: &[Word]) -> Vec<String> {
    words.iter().map(|word| word.text.clone()).collect()
}

/// Says whether git is given settings by which a word after them may mean another subcommand, or run a program.
fn renames(words: &[Word]) -> bool {
    if words.first().is_none_or(|program| base_name(&program.text) != "git") {
        return false;
    }
    let mut is_setting = false;
    for word in &words[1..] {
        let text = word.text.to_ascii_lowercase();
        let joined = ["--config-env=", "-c"].iter().find_map(|option| text.strip_prefix(option));
        let setting = if is_setting { Some(text.as_str()) } else { joined.filter(|value| !value.is_empty()) };
        let names = ["alias.", "core.", "include.", "includeif."];
        if setting.is_some_and(|it| !word.is_literal || names.iter().any(|name| it.starts_with(name))) {
            return true;
        }
        // Values of other options stand between, and are no subcommand.
        is_setting = matches!(text.as_str(), "-c" | "--config-env");
    }
    false
}

/// A word of a command, as a rule against it sees it.
trait Seeable {
    fn text(&self) -> &str;
    /// Says whether it is this word, or may become it.
    fn may_be(&self, wanted: &str) -> bool;
    /// Says whether it is the name of this program in any directory, or may become it.
    fn may_name(&self, wanted: &str) -> bool;
    /// Says whether it is an option, or may become some.
    fn may_be_option(&self) -> bool;
}

impl Seeable for String {
    fn text(&self) -> &str {
        self
    }

    fn may_be(&self, wanted: &str) -> bool {
        self == wanted
    }

    fn may_name(&self, wanted: &str) -> bool {
        base_name(self) == base_name(wanted)
    }

    fn may_be_option(&self) -> bool {
        self.starts_with('-')
    }
}

impl Seeable for Word {
    fn text(&self) -> &str {
        &self.text
    }

    fn may_be(&self, wanted: &str) -> bool {
        self.text == wanted || (!self.is_literal && fits(&self.text, wanted))
    }

    fn may_name(&self, wanted: &str) -> bool {
        let (own, wanted) = (base_name(&self.text), base_name(wanted));
        own == wanted || (!self.is_literal && fits(&own, &wanted))
    }

    fn may_be_option(&self) -> bool {
        self.text.starts_with('-') || (!self.is_literal && self.text.starts_with(['*', '?', '[']))
    }
}

/// Says whether a shell may put a word in place of a pattern. What stands in brackets may be any letter.
pub(super) fn fits(pattern: &str, word: &str) -> bool {
    let mut letters: Vec<Option<char>> = Vec::new();
    let mut rest = pattern.chars();
    while let Some(letter) = rest.next() {
        letters.push(match letter {
            '*' => None,
            '[' => {
                let bracket = rest.clone().skip(1).position(|it| it == ']');
                if let Some(length) = bracket {
                    // The first letter in brackets does not close them.
                    rest.nth(length + 1);
                }
                Some('?')
            }
            letter => Some(letter),
        });
    }
    // Which places of the pattern can be reached by the letters so far: one row for each letter, however many stars there are.
    let mut row = vec![false; letters.len() + 1];
    row[0] = true;
    let skip_stars = |row: &mut Vec<bool>| {
        for (at, letter) in letters.iter().enumerate() {
            if row[at] && letter.is_none() {
                row[at + 1] = true;
            }
        }
    };
    skip_stars(&mut row);
    for character in word.chars() {
        let mut next = vec![false; row.len()];
        for (at, letter) in letters.iter().enumerate().filter(|(at, _)| row[*at]) {
            match letter {
                None => next[at] = true,
                Some('?') => next[at + 1] = true,
                Some(letter) => next[at + 1] |= *letter == character,
            }
        }
        row = next;
        skip_stars(&mut row);
    }
    row.last().copied().unwrap_or_default()
}

/// Says whether a command starts with words, as a rule against it sees that: whatever directory the program is in, and
/// with options between the words.
fn begins<W: Seeable>(words: &[W], prefix: &[String]) -> bool {
    let (Some(program), Some((wanted, rest))) = (words.first(), prefix.split_first()) else { return false };
    let is_program = if wanted.contains('/') { program.may_be(wanted) } else { program.may_name(wanted) };
    if !is_program {
        return false;
    }
    let mut at = 1;
    let mut skipped = 0;
    let mut after_option = false;
    for want in rest {
        loop {
            let Some(word) = words.get(at) else { return false };
            at += 1;
            if word.may_be(want) {
                after_option = word.text().starts_with('-');
                break;
            }
            // An option may stand between, and its value after it.
            if !word.may_be_option() && !after_option {
                return false;
            }
            after_option = word.may_be_option();
            skipped += 1;
            // Nobody writes so many; what hides behind them is taken for what it may be.
            if skipped > MAX_SKIPPED {
                return true;
            }
        }
    }
    true
}

pub(super) fn without_quotes(text: &str) -> String {
    text.replace("\\\n", "").chars().filter(|character| !matches!(character, '\'' | '"' | '\\')).collect()
}

pub(super) fn is_boundary(character: char) -> bool {
    character.is_whitespace() || character.is_control() || ";&|()<>`${},".contains(character)
}

/// Says whether a command starts with words, exactly.
pub(super) fn is_prefix(prefix: &[String], words: &[Word]) -> bool {
    prefix.len() <= words.len()
        && prefix.iter().zip(words).all(|(want, word)| word.is_literal && *want == word.text)
}
