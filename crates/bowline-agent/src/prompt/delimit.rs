//! Delimiters around untrusted text.

use bowline_text::display::{self, is_hidden};
use bowline_text::hash::ContentHash;

/// Returns the text between markers that name its origin. The end marker contains a word that is not in the text, so
/// that the text cannot fake its end.
///
/// Invisible characters stay, because edits need the exact text; the marker warns of them.
#[must_use]
pub fn delimit(kind: &str, attributes: &[(&str, &str)], text: &str) -> String {
    let word = end_marker_for(text);
    let mut head = format!("<{kind}");
    for (name, value) in attributes {
        head.push_str(&format!(" {name}=\"{}\"", escape_attribute(value)));
    }
    if text.chars().any(is_hidden) {
        head.push_str(" warning=\"has invisible characters\"");
    }
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{head} until=\"{word}\">\n{text}{end}</{kind} {word}>")
}

/// Returns the whole lines from the start of a text that fit in `cap` bytes; if the first line is longer, as much of it
/// as fits.
#[must_use]
pub fn truncate_at_line(text: &str, cap: usize) -> &str {
    if text.len() <= cap {
        return text;
    }
    let fits = &text[..text.floor_char_boundary(cap)];
    match fits.rfind('\n') {
        Some(end) => &fits[..=end],
        None => fits,
    }
}

fn end_marker_for(text: &str) -> String {
    let mut hash = ContentHash::digest(text.as_bytes());
    loop {
        let word = hash.to_string()[..16].to_owned();
        if !text.contains(&word) {
            return word;
        }
        // Terminates, since a text contains finitely many words; an author cannot predict even the first hash.
        hash = ContentHash::digest(word.as_bytes());
    }
}

fn escape_attribute(value: &str) -> String {
    display::escape_line(value, 1000).replace('"', "\\\"").replace('<', "\\u{3c}").replace('>', "\\u{3e}")
}
