//! The options of an agent, chosen by the program that starts it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_policy::mode::AgentMode;
pub use bowline_postgres::{PostgresUrl, PostgresUrlError};
use bowline_protocol::quirks::QuirkMode;
use bowline_workspace::{terminals, workspace};

/// The paths of the user's own files. None of them may lie inside a workspace.
#[derive(Debug, Clone)]
pub struct AgentPaths {
    /// The user's directory for Bowline's state: sessions, journals and audit logs.
    pub state_dir: PathBuf,
    /// The policy file.
    pub policy_file: PathBuf,
    /// The directory for the anchors of audit logs.
    pub anchors_dir: PathBuf,
    /// The file of stored keys.
    pub keys_file: PathBuf,
}

/// Which tools a model is offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolSet {
    /// One set, served by the client where it can, otherwise by this machine.
    #[default]
    Transparent,
    /// Two sets: `ide_…` for the user's machine, and the plain ones for the agent's own.
    Dual,
}

/// The options of an agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The paths of the user's own files.
    pub paths: AgentPaths,
    /// The database of the stored sessions; without one, they are in the state directory.
    pub session_database: Option<PostgresUrl>,
    /// The remote user for whom the agent works, named in the audit log.
    pub principal: Option<String>,
    /// Which tools a model is offered.
    pub tool_set: ToolSet,
    /// Whether commands may be run at all.
    pub is_shell_enabled: bool,
    /// The initial mode of new sessions.
    pub mode: AgentMode,
    /// The widest mode that users can choose.
    pub widest_mode: AgentMode,
    /// The initial model of new sessions; by default the first one with an API key, or else the offline model.
    pub model: Option<String>,
    /// Instructions for every model, each with the name of its file.
    pub instructions: Vec<(String, Arc<str>)>,
    /// The options of local terminals.
    pub terminals: terminals::TerminalOptions,
    /// The options of the local workspace engine.
    pub workspace: workspace::WorkspaceOptions,
    /// The timeout of a request to the client; permission requests have none.
    pub client_timeout: Duration,
    /// The timeout of a request that the client may first show to its user: writing a file, starting a command.
    pub review_timeout: Duration,
    /// The timeout of a command, unless the model sets one.
    pub command_timeout: Duration,
    /// The most requests to the model in one turn.
    pub max_requests: u32,
    /// The base of relative session directories, for clients that send `.`; without it they are refused.
    pub relative_cwd_base: Option<PathBuf>,
    /// Whether to work around known faults of clients.
    pub quirks: QuirkMode,
    /// The destination of diagnostic lines.
    pub log: LogSink,
}

/// The destination of diagnostic lines. Clones share it.
#[derive(Clone)]
pub struct LogSink(Arc<dyn Fn(&str) + Send + Sync>);

impl LogSink {
    /// Returns a log that passes every line to `write`.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// Returns a log that discards every line.
    #[must_use]
    pub fn disabled() -> Self {
        Self::new(|_| ())
    }

    /// Writes a line.
    pub fn write_line(&self, line: impl AsRef<str>) {
        (self.0)(line.as_ref());
    }
}

impl std::fmt::Debug for LogSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

impl AgentOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new(paths: AgentPaths, terminals: terminals::TerminalOptions) -> Self {
        Self {
            paths,
            session_database: None,
            principal: None,
            tool_set: ToolSet::default(),
            is_shell_enabled: false,
            mode: AgentMode::default(),
            widest_mode: AgentMode::Full,
            model: None,
            instructions: Vec::new(),
            terminals,
            workspace: workspace::WorkspaceOptions::default(),
            client_timeout: Duration::from_secs(60),
            review_timeout: Duration::from_secs(15 * 60),
            command_timeout: Duration::from_secs(120),
            max_requests: 200,
            relative_cwd_base: None,
            quirks: QuirkMode::On,
            log: LogSink::disabled(),
        }
    }
}
