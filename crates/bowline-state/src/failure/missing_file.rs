//! How peers say in words that a file does not exist, where they have no code for it.

/// The phrases of operating systems and runtimes.
const SYSTEM_PHRASES: &[&str] = &["enoent", "no such file", "file not found", "os error 2)"];

/// Other phrases, which say less.
const OTHER_PHRASES: &[&str] = &["not found", "does not exist", "doesn't exist"];

/// Where in a text something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The text begins with it.
    Start,
    /// It follows something else.
    Within,
}

/// Returns whether a text says that something does not exist.
#[must_use]
pub fn says_missing(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    SYSTEM_PHRASES.iter().chain(OTHER_PHRASES).any(|sign| lower.contains(sign))
}

/// Returns where a text has the words by which systems say that a file does not exist, if it has them.
#[must_use]
pub fn system_phrase_position(text: &str) -> Option<Position> {
    let lower = text.to_ascii_lowercase();
    if SYSTEM_PHRASES.iter().any(|sign| lower.starts_with(sign)) {
        return Some(Position::Start);
    }
    SYSTEM_PHRASES.iter().any(|sign| lower.contains(sign)).then_some(Position::Within)
}

#[cfg(test)]
mod tests {
    use super::{Position, says_missing, system_phrase_position};

    #[test]
    fn phrases_of_systems_have_a_position() {
        let texts =
            ["ENOENT: no such file", "cannot open a: No such file", "a does not exist", "access denied"];
        let said = texts.map(|text| (says_missing(text), system_phrase_position(text)));
        let expected =
            [(true, Some(Position::Start)), (true, Some(Position::Within)), (true, None), (false, None)];
        assert_eq!(said, expected);
    }
}
