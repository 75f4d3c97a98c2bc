//! Letters that look like others: words that mix scripts, and names of programs and hosts beyond ASCII.

use std::fmt;

use super::line;

/// The longest word that a warning shows, in bytes.
const MAX_WORD: usize = 80;

/// What a person should know about how a text looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A word has letters of several scripts.
    Mixed {
        /// The word, fit to be shown, with the odd letters named.
        word: String,
        /// The other script beside Latin.
        script: &'static str,
    },
    /// A name has letters beyond ASCII.
    Foreign {
        /// The name, fit to be shown, with those letters named.
        word: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Mixed { word, script } => {
                write!(f, "{word} mixes Latin and {script} letters that look alike")
            }
            Warning::Foreign { word } => write!(f, "{word} has letters that may look like others"),
        }
    }
}

/// Returns a warning about the first word of a text that mixes Latin letters with ones that look like them.
#[must_use]
pub fn confusables(text: &str) -> Option<Warning> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_' && character != '-')
        .filter(|word| !word.is_ascii())
        .find_map(|word| {
            let latin = word.chars().any(|character| character.is_ascii_alphabetic());
            let script = word.chars().find_map(script)?;
            (latin || script == FULL_WIDTH || script == MATHEMATICAL)
                .then(|| Warning::Mixed { word: named(word), script })
        })
}

/// Returns a warning if the name of a program or a host has anything beyond ASCII.
#[must_use]
pub fn foreign_letters(name: &str) -> Option<Warning> {
    (!name.is_ascii()).then(|| Warning::Foreign { word: named(name) })
}

const FULL_WIDTH: &str = "full-width";
const MATHEMATICAL: &str = "mathematical";

/// Returns the script of a letter, of those with letters that look like Latin ones.
fn script(character: char) -> Option<&'static str> {
    Some(match character {
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => "Greek",
        '\u{400}'..='\u{52f}'
        | '\u{1c80}'..='\u{1c8f}'
        | '\u{2de0}'..='\u{2dff}'
        | '\u{a640}'..='\u{a69f}' => "Cyrillic",
        '\u{530}'..='\u{58f}' => "Armenian",
        '\u{13a0}'..='\u{13ff}' | '\u{ab70}'..='\u{abbf}' => "Cherokee",
        '\u{2c80}'..='\u{2cff}' => "Coptic",
        '\u{a4d0}'..='\u{a4ff}' => "Lisu",
        '\u{ff01}'..='\u{ff5e}' => FULL_WIDTH,
        '\u{1d400}'..='\u{1d7ff}' | '\u{2100}'..='\u{214f}' => MATHEMATICAL,
        _ => return None,
    })
}

/// Returns a word with each letter that is not Latin followed by its number.
fn named(word: &str) -> String {
    let mut named = String::new();
    for character in word.chars().take(MAX_WORD) {
        named.push(character);
        if script(character).is_some() {
            named.push_str(&format!("[U+{:04X}]", u32::from(character)));
        }
    }
    line(&named, MAX_WORD * 2)
}
