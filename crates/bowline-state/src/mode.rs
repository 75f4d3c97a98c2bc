//! How much an agent may do before it has to ask.

use serde::{Deserialize, Serialize};

use crate::policy::Preset;

/// A mode of an agent, the careful ones less than the free ones. It decides what holds where no rule of the user's matches, and which tools a model is offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing is changed and nothing is run; tools that would are not offered.
    ReadOnly,
    /// Whatever changes something is asked about.
    #[default]
    Ask,
    /// Edits of the project's files are made without asking; the rest is asked about.
    AcceptEdits,
    /// Everything is done without asking. Protected files are still asked about.
    Full,
}

impl Mode {
    /// Every mode, from careful to free, in the order that clients list them.
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

    /// Returns the mode of an id.
    #[must_use]
    pub fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.id() == id)
    }

    /// Returns what a client calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "Read only",
            Self::Ask => "Ask",
            Self::AcceptEdits => "Accept edits",
            Self::Full => "Full access",
        }
    }

    /// Returns what it means, for a person who chooses.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::ReadOnly => "Reads and searches; changes nothing and runs nothing",
            Self::Ask => "Asks before every change and every command",
            Self::AcceptEdits => "Edits files of the project without asking; asks before commands",
            Self::Full => "Edits and runs commands without asking; still asks about secrets and hooks",
        }
    }

    /// Returns what holds where no rule matches.
    #[must_use]
    pub fn preset(self) -> Preset {
        match self {
            Self::ReadOnly => Preset::ReadOnly,
            Self::Ask => Preset::Ask,
            Self::AcceptEdits => Preset::AcceptEdits,
            Self::Full => Preset::Full,
        }
    }

    /// Says whether tools that change or run something are offered to the model.
    #[must_use]
    pub fn may_change(self) -> bool {
        self != Self::ReadOnly
    }
}
