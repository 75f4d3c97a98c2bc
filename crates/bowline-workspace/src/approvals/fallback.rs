//! What holds where no rule matches: what the user's file says, and what a session says.

use bowline_state::policy::Preset;

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
}

impl Fallback {
    /// Returns the preset that holds, given the one that the file states, if it states any.
    #[must_use]
    pub fn preset(self, stated: Option<Preset>) -> Preset {
        match self {
            Self::File => stated.unwrap_or_default(),
            Self::Instead(preset) => preset,
            Self::Within(preset) => stated.map_or(preset, |stated| stated.stricter(preset)),
        }
    }
}
