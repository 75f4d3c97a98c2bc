//! Agent modes: how much an agent may do without asking.

use serde::{Deserialize, Serialize};

use crate::policy::Preset;

/// An agent's mode, ordered from restrictive to permissive. It determines the preset that applies where no rule of the
/// user's matches, and which tools the model is offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentMode {
    /// Nothing is changed or run; tools that would do so are not offered.
    ReadOnly,
    /// Every change and every command requires approval.
    #[default]
    Ask,
    /// Edits of project files need no approval; everything else does.
    AcceptEdits,
    /// Nothing requires approval except access to protected files.
    Full,
}

impl AgentMode {
    /// Every mode, from restrictive to permissive, in the order that clients list them.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Ask, Self::AcceptEdits, Self::Full];

    /// Returns its id on the wire and on command lines.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Ask => "ask",
            Self::AcceptEdits => "accept-edits",
            Self::Full => "full",
        }
    }

    /// Returns the mode with the given id.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.id() == id)
    }

    /// Returns its display name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "Read only",
            Self::Ask => "Ask",
            Self::AcceptEdits => "Accept edits",
            Self::Full => "Full access",
        }
    }

    /// Returns its description, for the user who chooses.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::ReadOnly => "Reads and searches; changes nothing and runs nothing",
            Self::Ask => "Asks before every change and every command",
            Self::AcceptEdits => "Edits files of the project without asking; asks before commands",
            Self::Full => "Edits and runs commands without asking; still asks about secrets and hooks",
        }
    }

    /// Returns the preset that applies where no rule matches.
    #[must_use]
    pub fn preset(self) -> Preset {
        match self {
            Self::ReadOnly => Preset::ReadOnly,
            Self::Ask => Preset::Ask,
            Self::AcceptEdits => Preset::AcceptEdits,
            Self::Full => Preset::Full,
        }
    }

    /// Returns whether the model is offered tools that change or run something.
    #[must_use]
    pub fn can_change(self) -> bool {
        self != Self::ReadOnly
    }
}
