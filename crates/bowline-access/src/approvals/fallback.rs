//! The preset that applies where no rule matches: from the user's policy file and from the session.

use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::Operation;
use bowline_policy::policy::{Policy, PolicyDecision, Preset};

use super::{Approvals, policy_context};
use crate::policy::{PolicyError, PolicyFile};

/// The source of the preset that applies where no rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyFallback {
    /// The preset of the user's policy file.
    #[default]
    File,
    /// This preset, overriding the file's.
    Override(Preset),
    /// This preset, unless the file's is stricter.
    AtMost(Preset),
    /// This preset, unless the file states read-only or deny, which its author meant for every session.
    UnlessRestricted(Preset),
}

impl PolicyFallback {
    /// Returns the preset that applies, given the preset of the file, if it states one.
    #[must_use]
    pub fn preset(self, stated: Option<Preset>) -> Preset {
        match self {
            Self::File => stated.unwrap_or_default(),
            Self::Override(preset) => preset,
            Self::UnlessRestricted(preset) => match stated {
                Some(stated @ (Preset::ReadOnly | Preset::Deny)) => stated.stricter(preset),
                _ => preset,
            },
            Self::AtMost(preset) => stated.map_or(preset, |stated| stated.stricter(preset)),
        }
    }
}

impl Approvals {
    /// Returns the decision on an operation if `preset` applied where no rule matches, without side effects.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used.
    pub fn judge_with_preset(
        &self,
        preset: Preset,
        holder: &GrantHolder,
        operation: &Operation,
    ) -> Result<PolicyDecision, PolicyError> {
        let policy = Policy { preset, ..Policy::clone(&*self.policy()?) };
        Ok(policy.evaluate(operation, &policy_context(holder)))
    }

    /// Returns the policy as it would be with another fallback.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used.
    pub fn policy_with_fallback(&self, fallback: PolicyFallback) -> Result<Policy, PolicyError> {
        let stated = self.inner.file.as_ref().map(PolicyFile::policy_and_preset).transpose()?;
        let preset = fallback.preset(stated.and_then(|(_, stated)| stated));
        Ok(Policy { preset, ..Policy::clone(&*self.policy()?) })
    }
}
