//! The options for connecting to servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bowline_workspace::terminals::{self, ResourceLimits, SupervisorProgram};

use super::acp_transport::McpOverAcp;
use crate::http;

/// The options for connecting to servers.
#[derive(Debug, Clone)]
pub struct McpClientOptions {
    /// The supervisor program, which owns the processes of a server.
    pub supervisor: SupervisorProgram,
    /// The working directory of servers that do not name one.
    pub directory: PathBuf,
    /// The environment of the user, from which a server inherits a part.
    pub inherited_env: BTreeMap<String, String>,
    /// The resource limits for the processes of a server.
    pub resources: ResourceLimits,
    /// How long a server may take to exit after it was asked to.
    pub grace_period: Duration,
    /// The deadline for connecting to a server and listing its tools.
    pub start_timeout: Duration,
    /// How long a call may take without reporting progress.
    pub call_timeout: Duration,
    /// How long a call may take in total.
    pub call_limit: Duration,
    /// The options for HTTP clients.
    pub http: http::HttpClientOptions,
    /// The handle for servers of the ACP client itself, if it serves any.
    pub over_acp: Option<McpOverAcp>,
}

impl McpClientOptions {
    /// Returns options that give servers the same environment and limits as commands in terminals.
    #[must_use]
    pub fn from_terminal_options(
        terminals: &terminals::TerminalOptions,
        directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            supervisor: terminals.supervisor.clone(),
            directory: directory.into(),
            inherited_env: terminals.inherited_env.clone(),
            resources: terminals.resource_limits,
            grace_period: terminals.grace_period,
            // A server that is fetched from a registry on its first start needs time.
            start_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(120),
            call_limit: Duration::from_secs(30 * 60),
            http: http::HttpClientOptions::default(),
            over_acp: None,
        }
    }
}
