//! The differences between a text in an editor and on disk that are no edits.

/// Returns whether two texts are equal except for what editors change on their own: the byte order mark, the kind of
/// line endings, and the newline at the end.
#[must_use]
pub fn is_equivalent_text(one: &str, other: &str) -> bool {
    let lines = |text: &'_ str| {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let text = text.replace("\r\n", "\n");
        text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
    };
    one == other || lines(one) == lines(other)
}

#[cfg(test)]
mod tests;
