//! Marks around text that others wrote.

use bowline_state::changes::ContentHash;
use bowline_state::display::{self, is_hidden};

/// Returns the text between marks that say where it comes from. The end is marked by a word that is not in the text, so
/// that the text cannot pretend to end before it does.
///
/// Characters that nobody sees stay, because whoever edits the text needs it as it is; the mark warns of them.
#[must_use]
pub fn delimited(kind: &str, attributes: &[(&str, &str)], text: &str) -> String {
    let word = word_for(text);
    let mut head = format!("<{kind}");
    for (name, value) in attributes {
        head.push_str(&format!(" {name}=\"{}\"", attribute(value)));
    }
    if text.chars().any(is_hidden) {
        head.push_str(" warning=\"has characters that nobody sees\"");
    }
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{head} until=\"{word}\">\n{text}{end}</{kind} {word}>")
}

/// Returns as many whole lines from the start of a text as have at most `cap` bytes; of a first line that is longer, as
/// much as fits.
#[must_use]
pub fn cut(text: &str, cap: usize) -> &str {
    if text.len() <= cap {
        return text;
    }
    let fits = &text[..text.floor_char_boundary(cap)];
    match fits.rfind('\n') {
        Some(end) => &fits[..=end],
        None => fits,
    }
}

fn word_for(text: &str) -> String {
    let mut hash = ContentHash::of(text.as_bytes());
    loop {
        let word = hash.to_string()[..16].to_owned();
        if !text.contains(&word) {
            return word;
        }
        // A text can hold so many of these words at most as it is long, and nobody can make it hold the first.
        hash = ContentHash::of(word.as_bytes());
    }
}

fn attribute(value: &str) -> String {
    display::line(value, 1000).replace('"', "\\\"").replace('<', "\\u{3c}").replace('>', "\\u{3e}")
}
