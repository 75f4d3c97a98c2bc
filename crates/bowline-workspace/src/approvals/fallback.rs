//! What holds where no rule matches: what the user's file says, and what a session says.

use bowline_state::grants::Holder;
use bowline_state::operation::Operation;
use bowline_state::policy::{Policy, Preset, Ruling};

use super::{Approvals, context};
use crate::policy::{PolicyError, PolicyFile};

/// What holds where no rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fallback {
    /// What the user's file says.
    #[default]
    File,
    /// This, whatever the file says.
    Instead(Preset),
    /// This, unless the file says something stricter.
    Within(Preset),
    /// This, unless the file says that nothing is changed, or nothing done: who wrote that meant every session.
    Unless(Preset),
}

impl Fallback {
    /// Returns the preset that holds, given the one that the file states, if it states any.
    #[must_use]
    pub fn preset(self, stated: Option<Preset>) -> Preset {
        match self {
            Self::File => stated.unwrap_or_default(),
            Self::Instead(preset) => preset,
            Self::Unless(preset) => match stated {
                Some(stated @ (Preset::ReadOnly | Preset::Deny)) => stated.stricter(preset),
                _ => preset,
            },
            Self::Within(preset) => stated.map_or(preset, |stated| stated.stricter(preset)),
        }
    }
}

impl Approvals {
    /// Says what the rules would come to for an operation if this held where none of them matches, and does nothing.
    ///
    /// # Errors
    /// Returns why the rules cannot be used.
    pub fn judge_under(
        &self,
        preset: Preset,
        holder: &Holder,
        operation: &Operation,
    ) -> Result<Ruling, PolicyError> {
        let policy = Policy { preset, ..Policy::clone(&*self.policy()?) };
        Ok(policy.judge(operation, &context(holder)))
    }

    /// Returns the rules as they would be if something else held where none matches.
    ///
    /// # Errors
    /// Returns why they cannot be used.
    pub fn policy_with(&self, fallback: Fallback) -> Result<Policy, PolicyError> {
        let stated = self.inner.file.as_ref().map(PolicyFile::stated).transpose()?;
        let preset = fallback.preset(stated.and_then(|(_, stated)| stated));
        Ok(Policy { preset, ..Policy::clone(&*self.policy()?) })
    }
}
