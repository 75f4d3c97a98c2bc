//! Confusable letters: words that mix scripts, and non-ASCII names of programs and hosts.

use std::fmt;

use super::escape_line;

/// The maximum number of characters of a word in a warning.
const MAX_WARNED_WORD: usize = 80;

/// A warning about the appearance of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfusableWarning {
    /// A word mixes letters of several scripts.
    MixedScripts {
        /// The word, escaped for display, with the foreign letters annotated.
        word: String,
        /// The script besides Latin.
        script: &'static str,
    },
    /// A name contains non-ASCII characters.
    NonAscii {
        /// The name, escaped for display, with those letters annotated.
        word: String,
    },
}

impl fmt::Display for ConfusableWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfusableWarning::MixedScripts { word, script } => {
                write!(f, "{word} mixes Latin and {script} letters that look alike")
            }
            ConfusableWarning::NonAscii { word } => write!(f, "{word} has letters that may look like others"),
        }
    }
}

/// Returns a warning about the first word that mixes Latin letters with lookalikes from another script.
#[must_use]
pub fn check_mixed_scripts(text: &str) -> Option<ConfusableWarning> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_' && character != '-')
        .filter(|word| !word.is_ascii())
        .find_map(|word| {
            let latin = word.chars().any(|character| character.is_ascii_alphabetic());
            let script = word.chars().find_map(lookalike_script)?;
            (latin || script == FULL_WIDTH || script == MATHEMATICAL)
                .then(|| ConfusableWarning::MixedScripts { word: annotate_letters(word), script })
        })
}

/// Returns a warning if the name of a program or a host is not ASCII.
#[must_use]
pub fn check_non_ascii(name: &str) -> Option<ConfusableWarning> {
    (!name.is_ascii()).then(|| ConfusableWarning::NonAscii { word: annotate_letters(name) })
}

const FULL_WIDTH: &str = "full-width";
const MATHEMATICAL: &str = "mathematical";

/// Returns the script of a letter, if that script has lookalikes of Latin letters.
fn lookalike_script(character: char) -> Option<&'static str> {
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

/// Returns a word with each lookalike letter followed by its code point.
fn annotate_letters(word: &str) -> String {
    let mut named = String::new();
    for character in word.chars().take(MAX_WARNED_WORD) {
        named.push(character);
        if lookalike_script(character).is_some() {
            named.push_str(&format!("[U+{:04X}]", u32::from(character)));
        }
    }
    escape_line(&named, MAX_WARNED_WORD * 2)
}
