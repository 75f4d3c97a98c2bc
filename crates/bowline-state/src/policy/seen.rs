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
}

impl Seen {
    pub(super) fn collect(&mut self, words: &[Word], depth: usize) {
        if words.is_empty() {
            return;
        }
        self.commands.push(texts(words));
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

/// Says whether a command starts with words, as a rule against it sees that: whatever directory the program is in, and
/// with options between the words.
fn begins(words: &[String], prefix: &[String]) -> bool {
    let (Some(program), Some((wanted, rest))) = (words.first(), prefix.split_first()) else { return false };
    let is_program =
        if wanted.contains('/') { program == wanted } else { base_name(program) == base_name(wanted) };
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
            if word == want {
                after_option = word.starts_with('-');
                break;
            }
            // An option may stand between, and its value after it.
            if !word.starts_with('-') && !after_option {
                return false;
            }
            after_option = word.starts_with('-');
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
