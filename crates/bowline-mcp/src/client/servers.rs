//! The servers of a session, and their tools under names of their own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::mcp_tools::workspace::{self, Workspace};
use bowline_state::mcp_tools::{self, CallOutput, Hints, Listed, MAX_TOOLS, Names};
use bowline_state::schema::v1::ToolKind;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::call;
use super::error::McpError;
use super::ring::Ring;
use super::server::{Owner, Snapshot};
use super::settings::Settings;
use super::spec::{ServerSpec, SpecError};

/// So many servers are connected to; others are left out, and said to be.
pub const MAX_SERVERS: usize = 64;
/// How long the end of servers may take beyond their grace.
const PATIENCE: Duration = Duration::from_secs(6);

/// How a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is being connected to.
    Starting,
    /// It can be called.
    Ready,
    /// It ended, and is being started anew.
    Restarting(String),
    /// It cannot be used.
    Failed(String),
    /// It was ended.
    Stopped,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("it is being started"),
            Self::Ready => f.write_str("it is ready"),
            Self::Restarting(why) => write!(f, "{why}; it is being started anew"),
            Self::Failed(why) => f.write_str(why),
            Self::Stopped => f.write_str("it was stopped"),
        }
    }
}

/// A tool of a server, as a model and a person are told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct McpTool {
    /// The name that a model calls it by.
    pub name: String,
    /// What the user calls its server.
    pub server: String,
    /// What the server calls it.
    pub tool: String,
    /// What a person is shown.
    pub title: String,
    /// What a model is told.
    pub description: String,
    /// A schema of an object.
    pub schema: Value,
    /// What a client is told it is. Nothing is allowed because of it.
    pub kind: ToolKind,
    /// What the server hints at.
    pub hints: Hints,
}

/// A server that is a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceServer {
    /// What it is called in names of tools, which no other is.
    pub in_names: String,
    /// What the user calls it.
    pub name: String,
    /// What it does.
    pub serves: Workspace,
    /// The names by which a model would call the tools that it has as a workspace.
    pub tools: Vec<String>,
}

/// A server, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// What the user calls it.
    pub name: String,
    /// How it is.
    pub state: State,
    /// How many tools it has.
    pub tools: usize,
    /// How many more were left out.
    pub left_out: usize,
    /// The names of those among them whose schemas are nested too deep.
    pub too_deep: Vec<String>,
    /// What it calls itself, with its version.
    pub version: Option<String>,
    /// The last lines that it said beside the protocol.
    pub stderr: Vec<String>,
}

/// The servers of a session. Dropping it ends them.
#[derive(Debug)]
pub struct Servers {
    entries: Vec<Entry>,
    settings: Arc<Settings>,
    stop: watch::Sender<bool>,
    // Those that are not connected to, each with the reason.
    left_out: Vec<(String, String)>,
}

struct Entry {
    // What the user calls it.
    name: String,
    // What it is called in names of tools.
    in_names: String,
    snapshot: watch::Receiver<Snapshot>,
    ring: Arc<Ring>,
    again: Arc<Notify>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .field("state", &self.snapshot.borrow().state)
            .finish()
    }
}

impl Servers {
    /// Connects to all servers at the same time, in the background.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with IO and time enabled.
    #[must_use]
    pub fn connect(specs: Vec<ServerSpec>, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let (stop, stopped) = watch::channel(false);
        let mut taken = Vec::new();
        let mut specs = specs.into_iter();
        let connect = |spec: ServerSpec| {
            let in_names = mcp_tools::server_name(&spec.name, &taken);
            taken.push(in_names.clone());
            let (sender, snapshot) = watch::channel(Snapshot::new());
            let (name, ring) = (spec.name.clone(), Arc::<Ring>::default());
            let again = Arc::<Notify>::default();
            let owner = Owner {
                spec,
                settings: Arc::clone(&settings),
                ring: Arc::clone(&ring),
                snapshot: sender,
                stop: stopped.clone(),
                again: Arc::clone(&again),
            };
            Entry { name, in_names, snapshot, ring, again, task: tokio::spawn(owner.run()) }
        };
        let entries = specs.by_ref().take(MAX_SERVERS).map(connect).collect();
        let too_many = format!("there are more than {MAX_SERVERS} servers");
        let left_out = specs.map(|spec| (spec.name, too_many.clone())).collect();
        Self { entries, settings, stop, left_out }
    }

    /// Adds servers that cannot be connected to as they are given, by name and reason, so that a person hears of them.
    #[must_use]
    pub fn and_refused(mut self, refused: impl IntoIterator<Item = (String, SpecError)>) -> Self {
        self.left_out.extend(refused.into_iter().map(|(name, why)| (name, why.to_string())));
        self
    }

    /// Waits until every server is ready or has failed, but not for longer than `deadline`.
    pub async fn ready(&self, deadline: Duration) {
        let all = async {
            for entry in &self.entries {
                drop(entry.snapshot.clone().wait_for(is_settled).await);
            }
        };
        timeout(deadline, all).await.unwrap_or_default();
    }

    /// Returns the tools that there are now. They change when servers say so, end or fail.
    #[must_use]
    pub fn tools(&self) -> Vec<McpTool> {
        let tool = |(name, entry, listed): (String, &Entry, Listed)| {
            let Listed { tool, title, mut description, schema, hints } = listed;
            if description.is_empty() {
                // Some providers want one.
                description = format!("{title} (a tool of an MCP server)");
            }
            let (server, kind) = (entry.name.clone(), mcp_tools::kind(hints));
            McpTool { name, server, tool, title, description, schema, kind, hints }
        };
        self.named(Listed::clone).map(tool).collect()
    }

    /// Calls a tool by the name that a model has for it, and tells its progress as lines. Dropping the call cancels it.
    ///
    /// # Errors
    /// Returns why there is no answer. An answer of the tool that says it failed is none of these.
    pub async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        progress: impl FnMut(String) + Send,
    ) -> Result<CallOutput, McpError> {
        let found = self.named(|listed| listed.tool.clone()).find(|(known, ..)| known == name);
        let (_, entry, tool) = found.ok_or_else(|| McpError::UnknownTool(name.to_owned()))?;
        let snapshot = entry.snapshot.clone();
        call::call(&entry.name, snapshot, &self.settings, tool, arguments, progress).await
    }

    /// Returns the first server that is a workspace, by what it is called in names of tools, with the names of its tools that
    /// are those of a workspace.
    #[must_use]
    pub fn workspace(&self) -> Option<WorkspaceServer> {
        let found = |entry: &Entry| {
            let serves = workspace::recognise(&entry.snapshot.borrow().tools)?;
            Some((entry.in_names.clone(), entry.name.clone(), serves))
        };
        let (in_names, name, serves) = self.entries.iter().find_map(found)?;
        let its = self.named(|listed| listed.tool.clone());
        let its = its
            .filter(|(_, entry, tool)| entry.in_names == in_names && workspace::ALL.contains(&tool.as_str()));
        let tools = its.map(|(name, ..)| name).collect();
        Some(WorkspaceServer { in_names, name, serves, tools })
    }

    /// Calls a tool of a server by what the server calls it; the server by what it is called in names of tools.
    ///
    /// # Errors
    /// Returns why there is no answer, as [`call`](Self::call) does.
    pub async fn call_of(
        &self,
        in_names: &str,
        tool: &str,
        arguments: Map<String, Value>,
        progress: impl FnMut(String) + Send,
    ) -> Result<CallOutput, McpError> {
        let entry = self.entries.iter().find(|entry| entry.in_names == in_names);
        let entry = entry.ok_or_else(|| McpError::UnknownTool(tool.to_owned()))?;
        let snapshot = entry.snapshot.clone();
        call::call(&entry.name, snapshot, &self.settings, tool.to_owned(), arguments, progress).await
    }

    /// Returns how each server is, in the order they were given.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        let status = |entry: &Entry| {
            let Snapshot { state, tools, left_out, too_deep, version, .. } = entry.snapshot.borrow().clone();
            let (name, stderr) = (entry.name.clone(), entry.ring.shown());
            let (tools, too_deep) = (tools.len(), too_deep.to_vec());
            ServerStatus { name, state, tools, left_out, too_deep, version, stderr }
        };
        let left_out = |(name, why): &(String, String)| ServerStatus {
            name: name.clone(),
            state: State::Failed(why.clone()),
            tools: 0,
            left_out: 0,
            too_deep: Vec::new(),
            version: None,
            stderr: Vec::new(),
        };
        self.entries.iter().map(status).chain(self.left_out.iter().map(left_out)).collect()
    }

    /// Starts servers anew: the one of this name, or all. Returns how many, once they are ready or have failed, or the
    /// deadline is over.
    pub async fn restart(&self, name: Option<&str>, deadline: Duration) -> usize {
        let meant = self.entries.iter().filter(|entry| name.is_none_or(|name| entry.name == name));
        let begin = |entry: &Entry| {
            let mut snapshot = entry.snapshot.clone();
            snapshot.mark_unchanged();
            entry.again.notify_one();
            snapshot
        };
        let begun: Vec<_> = meant.map(begin).collect();
        let count = begun.len();
        let all = async {
            for mut snapshot in begun {
                // What it was is not what it becomes.
                if snapshot.changed().await.is_ok() {
                    drop(snapshot.wait_for(is_settled).await);
                }
            }
        };
        timeout(deadline, all).await.unwrap_or_default();
        count
    }

    /// Ends all servers, and returns when nothing of them runs, or the time for it is over.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let all = async {
            for entry in &self.entries {
                let mut snapshot = entry.snapshot.clone();
                while snapshot.changed().await.is_ok() {}
            }
        };
        timeout(self.settings.grace + PATIENCE, all).await.unwrap_or_default();
    }

    /// Returns a part of each tool, with the tool's name and its server.
    fn named<T>(&self, part: impl Fn(&Listed) -> T) -> impl Iterator<Item = (String, &Entry, T)> {
        let mut names = Names::default();
        let of_entry = move |entry| {
            let Entry { in_names, snapshot, .. }: &Entry = entry;
            let tools = Arc::clone(&snapshot.borrow().tools);
            let listed: Vec<&str> = tools.iter().map(|listed| listed.tool.as_str()).collect();
            let names = names.assign(in_names, &listed);
            let parts: Vec<T> = tools.iter().map(&part).collect();
            names.into_iter().zip(parts).map(move |(name, part)| (name, entry, part))
        };
        self.entries.iter().flat_map(of_entry).take(MAX_TOOLS)
    }
}

fn is_settled(snapshot: &Snapshot) -> bool {
    matches!(snapshot.state, State::Ready | State::Failed(_) | State::Stopped)
}

impl Drop for Servers {
    fn drop(&mut self) {
        for entry in &self.entries {
            entry.task.abort();
        }
    }
}
