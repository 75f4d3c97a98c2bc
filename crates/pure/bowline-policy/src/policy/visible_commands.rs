//! A command as seen by rules that deny or ask: everything it runs, and apparent words where that is hidden.

use std::collections::HashMap;

use super::shell::{self, ShellWord};
use super::wrappers::{InnerCommand, base_name, inner_command};

/// The maximum nesting of commands in commands; deeper ones count as hidden.
pub(super) const MAX_DEPTH: usize = 4;
/// The maximum number of other words skipped between the words of a rule that denies or asks.
const MAX_SKIPPED: usize = 64;

/// Everything that a command visibly runs.
#[derive(Default)]
pub(super) struct VisibleCommands {
    pub(super) commands: Vec<Vec<ShellWord>>,
    // Texts in which any word may be a program.
    pub(super) opaque_texts: Vec<LooseTokens>,
    // Whether git is given aliases, so that a subcommand may mean another.
    pub(super) has_git_alias: bool,
}

impl VisibleCommands {
    pub(super) fn collect(&mut self, words: &[ShellWord], depth: usize) {
        if words.is_empty() {
            return;
        }
        self.commands.push(words.to_vec());
        self.has_git_alias |= sets_git_alias(words);
        let may_look = depth < MAX_DEPTH;
        match inner_command(words) {
            InnerCommand::None => {}
            InnerCommand::Words { at, .. } if may_look => self.collect(&words[at..], depth + 1),
            InnerCommand::Text { text, .. } if may_look => match shell::parse(&text) {
                Ok(line) => line.commands.iter().for_each(|command| self.collect(&command.words, depth + 1)),
                Err(_) => self.opaque_texts.push(LooseTokens::from_text(&text)),
            },
            _ => self.opaque_texts.push(LooseTokens::from_text(&word_texts(&words[1..]).join(" "))),
        }
    }

    pub(super) fn matches_prefix(&self, prefix: &[String]) -> bool {
        self.commands.iter().any(|words| starts_with_prefix(words, prefix, false))
            || self.opaque_texts.iter().any(|loose| loose.mention_prefix(prefix))
    }

    /// Returns whether it may run a program that satisfies a predicate on its lower-case name.
    pub(super) fn runs_program(&self, is_match: impl Fn(&str) -> bool) -> bool {
        let programs = self.commands.iter().filter_map(|words| words.first());
        programs.into_iter().any(|program| is_match(&base_name(&program.text)))
            || self.opaque_texts.iter().any(|loose| loose.may_run_program(&is_match))
    }

    /// Returns whether it may run a command that starts with these words, after a shell's expansion or a git alias.
    pub(super) fn may_match_prefix(&self, prefix: &[String]) -> bool {
        let is_git = || prefix.first().is_some_and(|program| base_name(program) == "git");
        let mut globbed = self.commands.iter().filter(|words| words.iter().any(|word| !word.is_literal));
        (self.has_git_alias && is_git()) || globbed.any(|words| starts_with_prefix(words, prefix, true))
    }
}

/// Apparent words in a text that cannot be parsed.
pub(super) struct LooseTokens {
    words: Vec<ShellWord>,
    // The indices of the words, by the name of the program that each may be.
    programs: HashMap<String, Vec<usize>>,
}

impl LooseTokens {
    pub(super) fn from_text(text: &str) -> Self {
        let text = strip_quotes(text);
        let words = text.split(is_word_boundary).filter(|word| !word.is_empty());
        let words: Vec<ShellWord> =
            words.map(|word| ShellWord { text: word.to_owned(), is_literal: true }).collect();
        let mut programs: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, word) in words.iter().enumerate() {
            programs.entry(base_name(&word.text)).or_default().push(at);
        }
        Self { words, programs }
    }

    /// Returns whether there may be a program that satisfies a predicate on its lower-case name.
    pub(super) fn may_run_program(&self, is_match: impl Fn(&str) -> bool) -> bool {
        self.programs.keys().any(|program| is_match(program))
    }

    /// Returns whether there may be a command that starts with these words.
    pub(super) fn mention_prefix(&self, prefix: &[String]) -> bool {
        let Some(program) = prefix.first() else { return false };
        let positions = self.programs.get(&base_name(program));
        positions.is_some_and(|positions| {
            positions.iter().any(|at| starts_with_prefix(&self.words[*at..], prefix, false))
        })
    }
}

pub(super) fn word_texts(words: &[ShellWord]) -> Vec<String> {
    words.iter().map(|word| word.text.clone()).collect()
}

/// Returns whether git is given settings by which a later word may mean another subcommand, or run a program.
fn sets_git_alias(words: &[ShellWord]) -> bool {
    if words.first().is_none_or(|program| base_name(&program.text) != "git") {
        return false;
    }
    let mut is_setting = false;
    for word in &words[1..] {
        let text = word.text.to_ascii_lowercase();
        let joined = ["--config-env=", "-c"].iter().find_map(|option| text.strip_prefix(option));
        let setting = if is_setting { Some(text.as_str()) } else { joined.filter(|value| !value.is_empty()) };
        let names = ["alias.", "core.", "include.", "includeif."];
        if setting
            .is_some_and(|setting| !word.is_literal || names.iter().any(|name| setting.starts_with(name)))
        {
            return true;
        }
        // Values of other options may stand between, and are not subcommands.
        is_setting = matches!(text.as_str(), "-c" | "--config-env");
    }
    false
}

/// Returns whether a pattern may expand to a word. A bracket expression matches any letter.
pub(super) fn glob_matches(pattern: &str, word: &str) -> bool {
    let mut letters: Vec<Option<char>> = Vec::new();
    let mut rest = pattern.chars();
    while let Some(letter) = rest.next() {
        letters.push(match letter {
            '*' => None,
            '[' => {
                let bracket = rest.clone().skip(1).position(|character| character == ']');
                if let Some(length) = bracket {
                    // The first letter in brackets does not close them.
                    rest.nth(length + 1);
                }
                Some('?')
            }
            letter => Some(letter),
        });
    }
    // The positions of the pattern that the letters so far can reach: one row per letter, however many stars there
    // are.
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

/// Returns whether a command starts with these words, as a rule that denies or asks sees it: in any directory of the
/// program, and with options between the words. `expands` tells whether a pattern counts as the words that a shell may
/// expand it to.
fn starts_with_prefix(words: &[ShellWord], prefix: &[String], expands: bool) -> bool {
    let (Some(program), Some((expected, rest))) = (words.first(), prefix.split_first()) else { return false };
    let may_expand = |word: &ShellWord| expands && !word.is_literal;
    let may_be = |word: &ShellWord, text: &str, expected: &str| {
        text == expected || may_expand(word) && glob_matches(text, expected)
    };
    let may_be_option = |word: &ShellWord| {
        word.text.starts_with('-') || may_expand(word) && word.text.starts_with(['*', '?', '['])
    };
    let is_program = match expected.contains('/') {
        true => may_be(program, &program.text, expected),
        false => may_be(program, &base_name(&program.text), &base_name(expected)),
    };
    if !is_program {
        return false;
    }
    let mut at = 1;
    let mut skipped = 0;
    let mut after_option = false;
    for argument in rest {
        loop {
            let Some(word) = words.get(at) else { return false };
            at += 1;
            if may_be(word, &word.text, argument) {
                after_option = word.text.starts_with('-');
                break;
            }
            // An option may stand between, followed by its value.
            if !may_be_option(word) && !after_option {
                return false;
            }
            after_option = may_be_option(word);
            skipped += 1;
            // No ordinary command has this many, so what follows is assumed to match.
            if skipped > MAX_SKIPPED {
                return true;
            }
        }
    }
    true
}

pub(super) fn strip_quotes(text: &str) -> String {
    text.replace("\\\n", "").chars().filter(|character| !matches!(character, '\'' | '"' | '\\')).collect()
}

pub(super) fn is_word_boundary(character: char) -> bool {
    character.is_whitespace() || character.is_control() || ";&|()<>`${},".contains(character)
}

/// Returns whether a command starts with exactly these words.
pub(super) fn has_literal_prefix(prefix: &[String], words: &[ShellWord]) -> bool {
    prefix.len() <= words.len()
        && prefix.iter().zip(words).all(|(expected, word)| word.is_literal && *expected == word.text)
}
