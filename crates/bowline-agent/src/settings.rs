//! How an agent works: values, decided by whoever starts it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::mode::Mode;
use bowline_state::quirks::QuirkMode;
use bowline_workspace::{terminals, workspace};

/// Where an agent keeps what is the user's own. None of it may lie inside a workspace.
#[derive(Debug, Clone)]
pub struct Places {
    /// The user's directory for Bowline's state: sessions, journals and audit logs.
    pub state: PathBuf,
    /// The file of rules.
    pub policy: PathBuf,
    /// The directory for the anchors of audit logs.
    pub anchors: PathBuf,
    /// The file of stored keys.
    pub keys: PathBuf,
}

/// Which tools a model is offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolSet {
    /// One set, served by the client where it can and else by this machine.
    #[default]
    Transparent,
    /// Two sets: `ide_…` for the user's machine, and the plain ones for the agent's own.
    Dual,
}

/// How an agent works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the user's own things are.
    pub places: Places,
    /// Which tools a model is offered.
    pub tools: ToolSet,
    /// Whether commands may be run at all.
    pub shell: bool,
    /// The mode that new sessions begin in.
    pub mode: Mode,
    /// The widest mode that there is to choose from.
    pub widest: Mode,
    /// The model that new sessions begin with; if none is named, the first that has a key, and else the offline one.
    pub model: Option<String>,
    /// Texts that every model is told, each with the name of the file that it comes from.
    pub instructions: Vec<(String, Arc<str>)>,
    /// How local terminals work.
    pub terminals: terminals::Settings,
    /// What the local engine may do.
    pub workspace: workspace::Settings,
    /// How long one request to the client may take; asking a person for permission has no limit.
    pub client_timeout: Duration,
    /// How long a request may take that the client may put to its user first: writing a file, starting a command.
    pub review_timeout: Duration,
    /// How long a command may take if the model says nothing else.
    pub command_timeout: Duration,
    /// How many requests to the model one turn may make.
    pub max_requests: u32,
    /// Where relative directories of sessions start from, for clients that send `.`; without it they are refused.
    pub relative_to: Option<PathBuf>,
    /// Whether known faults of clients are worked around.
    pub quirks: QuirkMode,
    /// Where lines for people who look for a fault go.
    pub log: Log,
}

/// Where lines for people who look for a fault go. Clones are the same one.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Returns a log that gives every line to `write`.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// Returns a log that keeps nothing.
    #[must_use]
    pub fn nowhere() -> Self {
        Self::new(|_| ())
    }

    /// Writes a line.
    pub fn line(&self, line: impl AsRef<str>) {
        (self.0)(line.as_ref());
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

impl Settings {
    /// Returns the settings that hold if nothing is said.
    #[must_use]
    pub fn new(places: Places, terminals: terminals::Settings) -> Self {
        Self {
            places,
            tools: ToolSet::default(),
            shell: false,
            mode: Mode::default(),
            widest: Mode::Full,
            model: None,
            instructions: Vec::new(),
            terminals,
            workspace: workspace::Settings::default(),
            client_timeout: Duration::from_secs(60),
            review_timeout: Duration::from_secs(15 * 60),
            command_timeout: Duration::from_secs(120),
            max_requests: 200,
            relative_to: None,
            quirks: QuirkMode::On,
            log: Log::nowhere(),
        }
    }
}
