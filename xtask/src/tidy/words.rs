//! Word search: finds a piece of code as a word, not as the tail of a longer name.

/// Returns the first of `needles` that occurs in `code` without a letter, digit or `_` right before it.
pub(super) fn first_word<'n>(code: &str, needles: &[&'n str]) -> Option<&'n str> {
    needles.iter().copied().find(|needle| code.match_indices(needle).any(|(at, _)| starts_word(code, at)))
}

fn starts_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}
