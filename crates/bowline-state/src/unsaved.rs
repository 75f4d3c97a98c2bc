//! Text that a user has typed and not saved, where an agent that never saw it wants to write the file.

use crate::merge::{Conflict, merge};

/// What is to be written so that nothing typed is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What the agent wants: nothing was typed that it does not have.
    AsWanted,
    /// The user's text with the agent's changes in it.
    Merged(String),
}

impl Outcome {
    /// Returns the text, given what the agent wants.
    #[must_use]
    pub fn text(self, wants: String) -> String {
        match self {
            Self::AsWanted => wants,
            Self::Merged(text) => text,
        }
    }
}

/// Decides a write by an agent that knows a file as `base`, most often what the disk has, while the editor had other text
/// in it.
///
/// # Errors
/// Returns [`Conflict`] if both changed the same lines: then nothing may be written. `ours` in it is the user's side.
pub fn merged(base: &str, had: &str, wants: &str) -> Result<Outcome, Conflict> {
    if had == base || had == wants {
        return Ok(Outcome::AsWanted);
    }
    merge(base, had, wants).map(|merged| Outcome::Merged(merged.text))
}

#[cfg(test)]
mod tests;
