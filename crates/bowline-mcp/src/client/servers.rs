//! The servers of a session, and their tools under unique names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_tools::mcp_tools::workspace::{self, WorkspaceToolset};
use bowline_tools::mcp_tools::{self, ListedTool, MAX_TOOLS, McpCallOutput, ToolNameAllocator};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::call;
use super::error::McpError;
use super::options::McpClientOptions;
use super::output_tail::OutputTail;
use super::server::{ServerSnapshot, ServerTask};
use super::spec::{ServerSpec, ServerSpecError};

/// The most servers that are connected to; further ones are left out and reported as failed.
pub const MAX_SERVERS: usize = 64;
/// How long shutting down may take beyond the grace period.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(6);

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It is starting.
    Starting,
    /// It can be called.
    Ready,
    /// It ended, and is being restarted.
    Restarting(String),
    /// It cannot be used.
    Failed(String),
    /// It was stopped.
    Stopped,
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("it is being started"),
            Self::Ready => f.write_str("it is ready"),
            Self::Restarting(reason) => write!(f, "{reason}; it is being started anew"),
            Self::Failed(reason) => f.write_str(reason),
            Self::Stopped => f.write_str("it was stopped"),
        }
    }
}

/// A tool of a server, as presented to a model and to a person.
#[derive(Debug, Clone, PartialEq)]
pub struct McpTool {
    /// The name that a model calls it by.
    pub name: String,
    /// The server's name, as the user gave it.
    pub server: String,
    /// The tool's name at the server.
    pub tool: String,
    /// The description for a model.
    pub description: String,
    /// The input schema, an object schema.
    pub schema: Value,
}

/// A server that is recognised as a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceServer {
    /// Its unique prefix in tool names.
    pub tool_prefix: String,
    /// Its name, as the user gave it.
    pub name: String,
    /// The workspace tools that it serves.
    pub serves: WorkspaceToolset,
    /// The names by which a model would call its workspace tools.
    pub tools: Vec<String>,
}

/// The status of a server, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name, as the user gave it.
    pub name: String,
    /// Its state.
    pub state: ServerState,
    /// How many tools it has.
    pub tools: usize,
    /// How many more were left out.
    pub left_out: usize,
    /// The names of the omitted tools whose schemas are nested too deeply.
    pub too_deep: Vec<String>,
    /// The last lines that it printed outside the protocol.
    pub stderr: Vec<String>,
}

/// The servers of a session. Dropping the value ends them.
#[derive(Debug)]
pub struct McpServers {
    entries: Vec<ServerEntry>,
    settings: Arc<McpClientOptions>,
    stop: watch::Sender<bool>,
    // The servers that are not connected to, each with the reason.
    left_out: Vec<(String, String)>,
}

struct ServerEntry {
    // Its name, as the user gave it.
    name: String,
    // Its unique prefix in tool names.
    tool_prefix: String,
    snapshot: watch::Receiver<ServerSnapshot>,
    output: Arc<OutputTail>,
    restart: Arc<Notify>,
    task: JoinHandle<()>,
}

impl fmt::Debug for ServerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .field("state", &self.snapshot.borrow().state)
            .finish()
    }
}

impl McpServers {
    /// Connects to all servers concurrently, in the background.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with IO and time enabled.
    #[must_use]
    pub fn connect(specs: Vec<ServerSpec>, settings: McpClientOptions) -> Self {
        let settings = Arc::new(settings);
        let (stop, stopped) = watch::channel(false);
        let mut used_names = Vec::new();
        let mut specs = specs.into_iter();
        let connect = |spec: ServerSpec| {
            let tool_prefix = mcp_tools::unique_server_name(&spec.name, &used_names);
            used_names.push(tool_prefix.clone());
            let (sender, snapshot) = watch::channel(ServerSnapshot::new());
            let (name, output) = (spec.name.clone(), Arc::<OutputTail>::default());
            let restart = Arc::<Notify>::default();
            let owner = ServerTask {
                spec,
                settings: Arc::clone(&settings),
                output: Arc::clone(&output),
                snapshot: sender,
                stop: stopped.clone(),
                restart: Arc::clone(&restart),
            };
            ServerEntry {
                name,
                tool_prefix,
                snapshot,
                output,
                restart,
                task: bowline_task::spawn(owner.run()),
            }
        };
        let entries = specs.by_ref().take(MAX_SERVERS).map(connect).collect();
        let too_many = format!("there are more than {MAX_SERVERS} servers");
        let left_out = specs.map(|spec| (spec.name, too_many.clone())).collect();
        Self { entries, settings, stop, left_out }
    }

    /// Adds servers whose specification was refused, by name and reason, so that they appear in the status.
    #[must_use]
    pub fn with_refused(mut self, refused: impl IntoIterator<Item = (String, ServerSpecError)>) -> Self {
        self.left_out.extend(refused.into_iter().map(|(name, error)| (name, error.to_string())));
        self
    }

    /// Waits until every server is ready or has failed, for at most `deadline`.
    pub async fn wait_until_ready(&self, deadline: Duration) {
        let all = async {
            for entry in &self.entries {
                drop(entry.snapshot.clone().wait_for(is_settled).await);
            }
        };
        timeout(deadline, all).await.unwrap_or_default();
    }

    /// Returns the current tools. They change when a server reports a change, ends or fails.
    #[must_use]
    pub fn tools(&self) -> Vec<McpTool> {
        let tool = |(name, entry, listed): (String, &ServerEntry, ListedTool)| {
            let ListedTool { name: tool, title, mut description, schema } = listed;
            if description.is_empty() {
                // Some providers require a description.
                description = format!("{title} (a tool of an MCP server)");
            }
            McpTool { name, server: entry.name.clone(), tool, description, schema }
        };
        self.named_tools(ListedTool::clone).map(tool).collect()
    }

    /// Calls a tool by its name for the model, and reports progress as lines. Dropping the future cancels the call.
    ///
    /// # Errors
    /// Returns why there is no answer. A tool's own failure is an answer, not an error.
    pub async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        progress: impl FnMut(String) + Send,
    ) -> Result<McpCallOutput, McpError> {
        let found = self.named_tools(|listed| listed.name.clone()).find(|(tool_name, ..)| tool_name == name);
        let (_, entry, tool) = found.ok_or_else(|| McpError::UnknownTool(name.to_owned()))?;
        let snapshot = entry.snapshot.clone();
        call::call(&entry.name, snapshot, &self.settings, tool, arguments, progress).await
    }

    /// Returns the first server that is a workspace, with its prefix in tool names and the names of its workspace
    /// tools.
    #[must_use]
    pub fn workspace(&self) -> Option<WorkspaceServer> {
        let found = |entry: &ServerEntry| {
            let serves = workspace::recognise_workspace(&entry.snapshot.borrow().tools)?;
            Some((entry.tool_prefix.clone(), entry.name.clone(), serves))
        };
        let (tool_prefix, name, serves) = self.entries.iter().find_map(found)?;
        let named_tools = self.named_tools(|listed| listed.name.clone());
        let named_tools = named_tools.filter(|(_, entry, tool)| {
            entry.tool_prefix == tool_prefix && workspace::ALL_TOOLS.contains(&tool.as_str())
        });
        let tools = named_tools.map(|(name, ..)| name).collect();
        Some(WorkspaceServer { tool_prefix, name, serves, tools })
    }

    /// Calls a tool of one server, given the server's prefix in tool names and the tool's name at the server.
    ///
    /// # Errors
    /// Returns why there is no answer, as [`call`](Self::call) does.
    pub async fn call_server_tool(
        &self,
        tool_prefix: &str,
        tool: &str,
        arguments: Map<String, Value>,
        progress: impl FnMut(String) + Send,
    ) -> Result<McpCallOutput, McpError> {
        let entry = self.entries.iter().find(|entry| entry.tool_prefix == tool_prefix);
        let entry = entry.ok_or_else(|| McpError::UnknownTool(tool.to_owned()))?;
        let snapshot = entry.snapshot.clone();
        call::call(&entry.name, snapshot, &self.settings, tool.to_owned(), arguments, progress).await
    }

    /// Returns the status of each server, in the order they were given.
    #[must_use]
    pub fn statuses(&self) -> Vec<ServerStatus> {
        let status = |entry: &ServerEntry| {
            let ServerSnapshot { state, tools, left_out, too_deep, .. } = entry.snapshot.borrow().clone();
            let (name, stderr) = (entry.name.clone(), entry.output.display_lines());
            let (tools, too_deep) = (tools.len(), too_deep.to_vec());
            ServerStatus { name, state, tools, left_out, too_deep, stderr }
        };
        let left_out = |(name, reason): &(String, String)| ServerStatus {
            name: name.clone(),
            state: ServerState::Failed(reason.clone()),
            tools: 0,
            left_out: 0,
            too_deep: Vec::new(),
            stderr: Vec::new(),
        };
        self.entries.iter().map(status).chain(self.left_out.iter().map(left_out)).collect()
    }

    /// Restarts the server of this name, or all servers. Returns their number once they are ready or have failed, or
    /// once the deadline has passed.
    pub async fn restart(&self, name: Option<&str>, deadline: Duration) -> usize {
        let selected = self.entries.iter().filter(|entry| name.is_none_or(|name| entry.name == name));
        let begin = |entry: &ServerEntry| {
            let mut snapshot = entry.snapshot.clone();
            snapshot.mark_unchanged();
            entry.restart.notify_one();
            snapshot
        };
        let restarting: Vec<_> = selected.map(begin).collect();
        let count = restarting.len();
        let all = async {
            for mut snapshot in restarting {
                // The state before the restart does not count as settled.
                if snapshot.changed().await.is_ok() {
                    drop(snapshot.wait_for(is_settled).await);
                }
            }
        };
        timeout(deadline, all).await.unwrap_or_default();
        count
    }

    /// Ends all servers, and returns when all their processes have ended or the deadline has passed.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let all = async {
            for entry in &self.entries {
                let mut snapshot = entry.snapshot.clone();
                while snapshot.changed().await.is_ok() {}
            }
        };
        timeout(self.settings.grace_period + SHUTDOWN_TIMEOUT, all).await.unwrap_or_default();
    }

    /// Returns a part of each tool, with the tool's unique name and its server.
    fn named_tools<T>(
        &self,
        part: impl Fn(&ListedTool) -> T,
    ) -> impl Iterator<Item = (String, &ServerEntry, T)> {
        let mut names = ToolNameAllocator::default();
        let of_entry = move |entry| {
            let ServerEntry { tool_prefix, snapshot, .. }: &ServerEntry = entry;
            let tools = Arc::clone(&snapshot.borrow().tools);
            let listed: Vec<&str> = tools.iter().map(|listed| listed.name.as_str()).collect();
            let names = names.assign(tool_prefix, &listed);
            let parts: Vec<T> = tools.iter().map(&part).collect();
            names.into_iter().zip(parts).map(move |(name, part)| (name, entry, part))
        };
        self.entries.iter().flat_map(of_entry).take(MAX_TOOLS)
    }
}

fn is_settled(snapshot: &ServerSnapshot) -> bool {
    matches!(snapshot.state, ServerState::Ready | ServerState::Failed(_) | ServerState::Stopped)
}

impl Drop for McpServers {
    fn drop(&mut self) {
        for entry in &self.entries {
            entry.task.abort();
        }
    }
}
