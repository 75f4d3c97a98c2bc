//! Workarounds for faults of other programs: one table, keyed by the name that a peer reports.
//!
//! An entry names the peer, the workaround and the reason. The code that applies one logs [`Quirk::log_line`]. The
//! variable [`DISABLE_VARIABLE`] turns all of them off.

use agent_client_protocol_schema::v1::Implementation;
use serde::Deserialize;

use bowline_text::display;

/// The environment variable that disables the table, if it is set and not empty.
pub const DISABLE_VARIABLE: &str = "BOWLINE_NO_QUIRKS";

/// The longest path, in characters, that a log line quotes.
const MAX_QUOTED_CHARS: usize = 240;

/// Whether known faults are worked around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuirkMode {
    /// They are worked around.
    #[default]
    On,
    /// Every peer is taken literally.
    Off,
}

impl QuirkMode {
    /// Returns the mode that the value of [`DISABLE_VARIABLE`] selects; `None` means that it is not set.
    #[must_use]
    pub fn from_variable(value: Option<&std::ffi::OsStr>) -> Self {
        if value.is_some_and(|value| !value.is_empty()) { Self::Off } else { Self::On }
    }
}

/// The role of a peer in a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRole {
    /// It names itself in `agentInfo`.
    Agent,
    /// It names itself in `clientInfo`.
    Client,
}

/// The workaround for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workaround {
    /// `fs/read_text_file` of a missing file is answered with empty content. The file is still recorded as missing.
    EmptyTextForMissingFile,
    /// An answer to `fs/read_text_file` without content is read as a missing file, if the disk agrees.
    MissingFileForNoContent,
    /// Empty content in an answer to `fs/read_text_file` is read as a missing file, if the disk agrees.
    MissingFileForEmptyText,
}

impl Workaround {
    fn describe(self) -> &'static str {
        match self {
            Self::EmptyTextForMissingFile => "a missing file is read as empty text",
            Self::MissingFileForNoContent => "an answer without content is taken for a missing file",
            Self::MissingFileForEmptyText => "empty text is taken for a missing file",
        }
    }
}

/// A known fault of a peer, and its workaround.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quirk {
    /// The peer's role.
    pub role: PeerRole,
    /// The name that it reports.
    pub name: &'static str,
    /// The workaround.
    pub workaround: Workaround,
    /// The reason, as a clause.
    pub reason: &'static str,
}

/// Every known fault.
pub const QUIRKS: [Quirk; 4] = [
    Quirk {
        role: PeerRole::Agent,
        name: "gemini-cli",
        // It looks for "Resource not found" in an error that its SDK passes as an object, so it never sees the text.
        workaround: Workaround::EmptyTextForMissingFile,
        reason: "it reads a file before it creates it, and gives up on any error",
    },
    Quirk {
        role: PeerRole::Client,
        name: "Agentic.nvim",
        // Builds without the fault do not serve files.
        workaround: Workaround::MissingFileForNoContent,
        reason: "it answers with a result that has no content where it cannot open a file",
    },
    Quirk {
        role: PeerRole::Client,
        name: "toad",
        workaround: Workaround::MissingFileForEmptyText,
        reason: "it answers with empty text where it cannot open a file",
    },
    Quirk {
        role: PeerRole::Client,
        name: "CodeCompanion.nvim",
        workaround: Workaround::MissingFileForEmptyText,
        reason: "it answers with empty text where there is no file",
    },
];

impl Quirk {
    /// Returns the table entry that applies to a peer, if there is one.
    #[must_use]
    pub fn find(
        mode: QuirkMode,
        role: PeerRole,
        peer: Option<&Implementation>,
        workaround: Workaround,
    ) -> Option<&'static Self> {
        let peer = peer.filter(|_| mode == QuirkMode::On)?;
        QUIRKS
            .iter()
            .find(|quirk| (quirk.role, quirk.workaround) == (role, workaround) && quirk.name == peer.name)
    }

    /// Returns the log line for each application of the workaround.
    #[must_use]
    pub fn log_line(&self, subject: &str) -> String {
        let Self { name, workaround, reason, .. } = self;
        let subject = display::escape_line(subject, MAX_QUOTED_CHARS);
        let done = workaround.describe();
        format!("{subject}: {done} for {name}: {reason} ({DISABLE_VARIABLE}=1 turns this off)")
    }
}

/// Extracts, from the params of `initialize`, the client info that early versions of Agentic.nvim placed among the
/// capabilities.
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
