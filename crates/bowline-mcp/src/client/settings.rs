//! How servers are connected to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bowline_workspace::terminals::{self, ResourceLimits, Supervisor};

use super::over_acp::OverAcp;
use crate::http;

/// How servers are connected to.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program that owns the processes of a server.
    pub supervisor: Supervisor,
    /// Where servers run that do not say where.
    pub directory: PathBuf,
    /// The environment of the user, of which a server gets a part.
    pub inherited: BTreeMap<String, String>,
    /// What a server gets of it beside what every command does, by name or as `PREFIX_*`.
    pub allows: Vec<String>,
    /// How much the processes of a server may take.
    pub resources: ResourceLimits,
    /// How long a server may take to end after it was asked to.
    pub grace: Duration,
    /// How long a server may take until its tools are known.
    pub start_timeout: Duration,
    /// How long a call may take without a word of progress.
    pub call_timeout: Duration,
    /// How long a call may take in all.
    pub call_limit: Duration,
    /// How clients for HTTP work.
    pub http: http::Settings,
    /// How servers of the client itself are reached, if they can be.
    pub over_acp: Option<OverAcp>,
}

impl Settings {
    /// Returns the settings that hold if nothing is said.
    #[must_use]
    pub fn new(supervisor: Supervisor, directory: impl Into<PathBuf>) -> Self {
        Self::like(&terminals::Settings::new(supervisor), directory)
    }

    /// Returns settings by which servers get what commands in terminals do.
    #[must_use]
    pub fn like(terminals: &terminals::Settings, directory: impl Into<PathBuf>) -> Self {
        Self {
            supervisor: terminals.supervisor.clone(),
            directory: directory.into(),
            inherited: terminals.inherited.clone(),
            allows: terminals.allows.clone(),
            resources: terminals.resources,
            grace: terminals.grace,
            // What is fetched from a registry at its first start takes its time.
            start_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(120),
            call_limit: Duration::from_secs(30 * 60),
            http: http::Settings::default(),
            over_acp: None,
        }
    }
}
