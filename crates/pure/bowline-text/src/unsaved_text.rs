//! Unsaved text of a user in a file that an agent writes without having seen it.

use crate::merge::{MergeConflict, merge};

/// The text to write so that no unsaved text is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnsavedMerge {
    /// The agent's text: there is no unsaved text that it lacks.
    AsRequested,
    /// The user's text with the agent's changes.
    Merged(String),
}

impl UnsavedMerge {
    /// Returns the text to write, given the agent's.
    #[must_use]
    pub fn into_text(self, requested: String) -> String {
        match self {
            Self::AsRequested => requested,
            Self::Merged(text) => text,
        }
    }
}

/// Decides a write by an agent that knows a file as `base`, usually the text on disk, while the editor holds the text
/// `unsaved`.
///
/// # Errors
/// Returns [`MergeConflict`] if both changed the same lines: then nothing may be written. Its `ours` is the user's
/// side.
pub fn merge_unsaved(base: &str, unsaved: &str, requested: &str) -> Result<UnsavedMerge, MergeConflict> {
    if unsaved == base || unsaved == requested {
        return Ok(UnsavedMerge::AsRequested);
    }
    merge(base, unsaved, requested).map(|merged| UnsavedMerge::Merged(merged.text))
}

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
