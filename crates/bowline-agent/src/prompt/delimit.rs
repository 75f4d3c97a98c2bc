//! Delimiters around untrusted text.

use bowline_text::display::{self, is_hidden};
use bowline_text::hash::ContentHash;

/// Returns the text between markers that name its origin. The end marker contains a word that is not in the text, so
/// that the text cannot fake its end.
///
/// Invisible characters stay, because edits need the exact text; the marker warns of them.
#[must_use]
pub fn delimit(kind: &str, attributes: &[(&str, &str)], text: &str) -> String {
    let marker = end_marker_for(text);
    let mut header = format!("<{kind}");
    for (name, value) in attributes {
        header.push_str(&format!(" {name}=\"{}\"", escape_attribute(value)));
    }
    if text.chars().any(is_hidden) {
        header.push_str(" warning=\"has invisible characters\"");
    }
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{header} until=\"{marker}\">\n{text}{end}</{kind} {marker}>")
}

/// Returns the whole lines from the start of a text that fit in `cap` bytes; if the first line is longer, as much of it
/// as fits.
#[must_use]
pub fn truncate_at_line(text: &str, cap: usize) -> &str {
    if text.len() <= cap {
        return text;
    }
    let prefix = &text[..text.floor_char_boundary(cap)];
    match prefix.rfind('\n') {
        Some(end) => &prefix[..=end],
        None => prefix,
    }
}

fn end_marker_for(text: &str) -> String {
    let mut hash = ContentHash::digest(text.as_bytes());
    loop {
        let marker = hash.to_string()[..16].to_owned();
        if !text.contains(&marker) {
            return marker;
        }
        // Terminates, since a text contains finitely many words; an author cannot predict even the first hash.
        hash = ContentHash::digest(marker.as_bytes());
    }
}

fn escape_attribute(value: &str) -> String {
    display::escape_line(value, 1000).replace('"', "\\\"").replace('<', "\\u{3c}").replace('>', "\\u{3e}")
}
