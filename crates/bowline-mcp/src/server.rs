//! A workspace as an MCP server: its files, terminals and changes, as tools and resources.
//!
//! ```text
//!  MCP client ─► stdio, or HTTP on loopback ─► SessionHandler ─► McpSession ─► files and terminals of a backend
//!                                                │                └ ledger: what the model has seen of each file
//!                                                └ resources ─► ResourceProvider of the backend, with its changes
//! ```
//!
//! A [`WorkspaceBackend`] provides the workspace: a host with its rules and its journal, or an editor behind a
//! connection. `bowline mcp` uses a session of a host, so the rules, journal, audit log and merge are the same as for
//! ACP clients. Every MCP session opens its own backend. A failure of a tool is reported to the model as the tool's
//! result, with advice; only a malformed call is a protocol error.

use std::sync::Arc;

use bowline_access::approvals::BoxFuture;
use bowline_protocol::terminal::Invocation;
use bowline_workspace::files::FileBackend;
use bowline_workspace::terminals::TerminalBackend;

mod batch;
mod batches;
mod binary;
mod client_peer;
mod commands;
mod connections;
mod diagnostics;
mod events;
mod handler;
mod http;
mod http_sessions;
mod invalid_message;
mod line_transport;
mod outcome;
mod read;
mod resources;
mod search;
mod session;
mod stdio;
mod tool_specs;
mod workspace_resources;
mod write;

pub use client_peer::{ClientPeer, UserDecision};
pub use http::{HttpServer, HttpServerOptions};
pub use resources::{ResourceEvent, ResourceInfo, ResourceProvider, file_uri};
pub use stdio::serve;
pub use tool_specs::OfferedTools;
pub use workspace_resources::{CHANGES_URI, DIAGNOSTICS_URI, WorkspaceResources, builtin_resources};

/// The provider of a workspace, for one MCP session.
pub trait WorkspaceBackend: Send + Sync + 'static {
    /// Returns the canonical absolute path of the directory that relative paths start from.
    fn root(&self) -> &str;

    /// Returns the files.
    fn files(&self) -> &dyn FileBackend;

    /// Returns the terminals.
    fn terminals(&self) -> &dyn TerminalBackend;

    /// Returns the provider of resources other than files, if there is one.
    fn resources(&self) -> Option<&dyn ResourceProvider> {
        None
    }

    /// Closes it: everything that was started for the session ends.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Opens a backend for a client that has identified itself.
///
/// # Errors
/// Returns why the backend cannot be opened, as text for the client.
pub type OpenBackend =
    Arc<dyn Fn(ClientPeer) -> BoxFuture<'static, Result<Box<dyn WorkspaceBackend>, String>> + Send + Sync>;

/// The options of a server.
#[derive(Clone)]
pub struct McpServerOptions {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The tools it offers.
    pub offered_tools: OfferedTools,
    /// Suggests a remedy for a denial.
    pub advise_denial: Option<DenialAdvisor>,
}

impl std::fmt::Debug for McpServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("offer", &self.offered_tools)
            .finish_non_exhaustive()
    }
}

/// An operation that was denied.
#[derive(Debug, Clone, Copy)]
pub enum DeniedOperation<'a> {
    /// Reading a file, or listing a directory.
    Read {
        /// Its absolute path.
        path: &'a str,
    },
    /// Writing a file.
    Write {
        /// Its absolute path.
        path: &'a str,
    },
    /// Changing several files, or deleting some.
    Change {
        /// The absolute paths of those written.
        written: &'a [&'a str],
        /// The absolute paths of those deleted.
        deleted: &'a [&'a str],
    },
    /// Running a command.
    Run {
        /// The command.
        invocation: &'a Invocation,
        /// Its directory.
        cwd: &'a str,
        /// Its variables in addition to the usual ones.
        env: &'a [(String, String)],
    },
}

/// Returns what would allow an operation, as a sentence that a model repeats to its user, or `None` if nothing would.
pub type DenialAdvisor = Arc<dyn Fn(&DeniedOperation<'_>) -> Option<String> + Send + Sync>;

/// A server, ready to be served: a function that opens backends, and its options.
#[derive(Clone)]
pub struct McpWorkspaceServer {
    pub(crate) open_backend: OpenBackend,
    pub(crate) options: Arc<McpServerOptions>,
}

impl McpWorkspaceServer {
    /// Creates a server.
    #[must_use]
    pub fn new(settings: McpServerOptions, open: OpenBackend) -> Self {
        Self { open_backend: open, options: Arc::new(settings) }
    }
}

impl std::fmt::Debug for McpWorkspaceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.options).finish_non_exhaustive()
    }
}
