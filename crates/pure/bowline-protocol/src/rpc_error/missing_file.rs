//! Phrases by which peers without an error code report a missing file.

/// The phrases of operating systems and runtimes.
const SYSTEM_PHRASES: &[&str] = &["enoent", "no such file", "file not found", "os error 2)"];

/// Other, less specific phrases.
const OTHER_PHRASES: &[&str] = &["not found", "does not exist", "doesn't exist"];

/// The position of a phrase in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhrasePosition {
    /// The text begins with it.
    Start,
    /// It follows something else.
    Within,
}

/// Returns whether a text reports that something does not exist.
#[must_use]
pub fn mentions_missing_file(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    SYSTEM_PHRASES.iter().chain(OTHER_PHRASES).any(|phrase| lower.contains(phrase))
}

/// Returns the position of a system's phrase for a missing file in a text, if it has one.
#[must_use]
pub fn system_phrase_position(text: &str) -> Option<PhrasePosition> {
    let lower = text.to_ascii_lowercase();
    if SYSTEM_PHRASES.iter().any(|phrase| lower.starts_with(phrase)) {
        return Some(PhrasePosition::Start);
    }
    SYSTEM_PHRASES.iter().any(|phrase| lower.contains(phrase)).then_some(PhrasePosition::Within)
}

#[cfg(test)]
mod tests {
    use super::{PhrasePosition, mentions_missing_file, system_phrase_position};

    #[test]
    fn phrases_of_systems_have_a_position() {
        let texts =
            ["ENOENT: no such file", "cannot open a: No such file", "a does not exist", "access denied"];
        let actual = texts.map(|text| (mentions_missing_file(text), system_phrase_position(text)));
        let expected = [
            (true, Some(PhrasePosition::Start)),
            (true, Some(PhrasePosition::Within)),
            (true, None),
            (false, None),
        ];
        assert_eq!(actual, expected);
    }
}
