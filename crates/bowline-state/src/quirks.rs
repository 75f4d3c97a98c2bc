//! Faults of other programs that Bowline works around: one table, by the name and version that a peer gives of itself.
//!
//! An entry says whom it is for, what is done and why. The code that applies one writes [`Quirk::log_line`] to its log. The
//! variable [`OFF_SWITCH`] turns all of them off.

use agent_client_protocol_schema::v1::Implementation;
use serde::Deserialize;

use crate::display;

/// The environment variable that turns the table off, if it is set and not empty.
pub const OFF_SWITCH: &str = "BOWLINE_NO_QUIRKS";

/// The longest path, in characters, that a log line quotes.
const MAX_QUOTED: usize = 240;

/// Whether known faults are worked around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuirkMode {
    /// They are.
    #[default]
    On,
    /// Every peer is taken at its word.
    Off,
}

impl QuirkMode {
    /// Returns what the value of [`OFF_SWITCH`] says; none if it is not set.
    #[must_use]
    pub fn from_variable(value: Option<&std::ffi::OsStr>) -> Self {
        if value.is_some_and(|value| !value.is_empty()) { Self::Off } else { Self::On }
    }
}

/// Which end of a connection a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRole {
    /// It names itself in `agentInfo`.
    Agent,
    /// It names itself in `clientInfo`.
    Client,
}

/// What is done about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workaround {
    /// `fs/read_text_file` of a missing file is answered with empty content. That the file is missing stays recorded.
    EmptyTextForMissingFile,
    /// An answer to `fs/read_text_file` without content is understood as a missing file, if the disk agrees.
    MissingFileForNoContent,
}

impl Workaround {
    fn describe(self) -> &'static str {
        match self {
            Self::EmptyTextForMissingFile => "a missing file is read as empty text",
            Self::MissingFileForNoContent => "an answer without content is taken for a missing file",
        }
    }
}

/// The versions that have a fault: from `first` on, and before `fixed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionRange {
    /// The first version that has it; none if every old one does.
    pub first: Option<[u64; 3]>,
    /// The first version without it; none if there is none yet.
    pub fixed: Option<[u64; 3]>,
}

impl VersionRange {
    /// Every version.
    pub const ALL: Self = Self { first: None, fixed: None };

    /// Returns whether a version is in the range. One that is not numbers is in [`VersionRange::ALL`] only.
    #[must_use]
    pub fn contains(self, version: &str) -> bool {
        if self == Self::ALL {
            return true;
        }
        let Some(version) = parse_version(version) else { return false };
        self.first.is_none_or(|first| first <= version) && self.fixed.is_none_or(|fixed| version < fixed)
    }
}

/// Reads `MAJOR.MINOR.PATCH`, of which the last two may be missing; what follows the numbers is left out.
fn parse_version(text: &str) -> Option<[u64; 3]> {
    let numbers = text.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
    let mut version = [0; 3];
    for (index, number) in numbers.split('.').take(3).enumerate() {
        version[index] = number.parse().ok()?;
    }
    Some(version)
}

/// A known fault of a peer, and what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quirk {
    /// Which end the peer is.
    pub role: PeerRole,
    /// The name that it gives of itself.
    pub name: &'static str,
    /// Its versions that have the fault.
    pub versions: VersionRange,
    /// What is done.
    pub workaround: Workaround,
    /// Why, in a clause.
    pub reason: &'static str,
}

/// Every known fault.
pub const QUIRKS: [Quirk; 2] = [
    Quirk {
        role: PeerRole::Agent,
        name: "gemini-cli",
        // It looks for "Resource not found" in an error that its SDK gives it as an object, whose text it never sees.
        versions: VersionRange::ALL,
        workaround: Workaround::EmptyTextForMissingFile,
        reason: "it reads a file before it creates it, and gives up on any error",
    },
    Quirk {
        role: PeerRole::Client,
        name: "Agentic.nvim",
        // Its version never changed; those that do not have the fault do not serve files.
        versions: VersionRange::ALL,
        workaround: Workaround::MissingFileForNoContent,
        reason: "it answers with a result that has no content where it cannot open a file",
    },
];

impl Quirk {
    /// Returns the entry of the table by which a peer is to be treated so, if there is one.
    #[must_use]
    pub fn find(
        mode: QuirkMode,
        role: PeerRole,
        peer: Option<&Implementation>,
        workaround: Workaround,
    ) -> Option<&'static Self> {
        let peer = peer.filter(|_| mode == QuirkMode::On)?;
        QUIRKS.iter().find(|quirk| {
            (quirk.role, quirk.workaround) == (role, workaround)
                && quirk.name == peer.name
                && quirk.versions.contains(&peer.version)
        })
    }

    /// Returns what a log says each time that it is applied to something.
    #[must_use]
    pub fn log_line(&self, subject: &str) -> String {
        let Self { name, workaround, reason, .. } = self;
        let subject = display::line(subject, MAX_QUOTED);
        let done = workaround.describe();
        format!("{subject}: {done} for {name}: {reason} ({OFF_SWITCH}=1 turns this off)")
    }
}

/// Reads the name that a client gives of itself among its capabilities, where Agentic.nvim had it at first, out of the params
/// of `initialize`.
#[must_use]
pub fn misplaced_client_info(params: &str) -> Option<Implementation> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        client_capabilities: Capabilities,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Capabilities {
        client_info: Implementation,
    }
    serde_json::from_str::<Params>(params).ok().map(|params| params.client_capabilities.client_info)
}

#[cfg(test)]
mod tests;
