//! The tools that a model is offered.
//!
//! A [`Toolbox`] belongs to a session. Each call is announced to the client, authorized by the policy or the user,
//! carried out by a backend, and its result returned to the model, in that order. A call may be dropped at any moment:
//! its requests on the wire are cancelled, and [`Toolbox::clean_up`] ends its commands.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline_conversation::conversation::{ToolResult, ToolSpec, ToolUse};
use bowline_history::ledger::Ledger;
use bowline_policy::mode::AgentMode;
use bowline_policy::operation::OperationTarget;
use bowline_text::display;
use bowline_tools::tools::write::ReportedTexts;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

mod active_call;
mod batch;
mod commands;
mod linked_files;
pub mod mcp;
mod plan;
mod preview;
mod read;
mod search;
mod specs;
mod undo;
mod workspace_server;
mod write;

pub use linked_files::LinkedFiles;

use crate::permission::{OperationRequest, Permissions};
use crate::reporter::Reporter;
use crate::runtime::{Backend, SessionRuntime};
use active_call::{ActiveCall, CallStop, ToolOutput};
use commands::registry::CommandRegistry;
use mcp::McpSource;
use specs::{BuiltinTool, NamedTool};

/// The most files remembered as small enough to be read whole; beyond it all are forgotten.
const MAX_SMALL_FILES: usize = 10_000;

/// The longest list of names in an error, in bytes.
const MAX_NAMES_BYTES: usize = 2000;

/// The context of a call.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Reports it to the client.
    pub reporter: Reporter,
    /// The turn.
    pub turn: u64,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolCallOutcome {
    /// The result for the model.
    Result(ToolResult),
    /// The user cancelled the turn instead of allowing the call.
    Cancelled,
}

/// The tools of a session. Clones share their state.
#[derive(Clone)]
pub struct Toolbox {
    inner: Arc<ToolboxInner>,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toolbox").finish_non_exhaustive()
    }
}

/// The backends of the files that a tool changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileBackends {
    /// Reads them; `None` if a client serves only writes.
    pub(crate) read: Option<Backend>,
    /// Writes them.
    pub(crate) write: Backend,
}

impl FileBackends {
    fn are_local(self) -> bool {
        (self.read, self.write) == (Some(Backend::Local), Backend::Local)
    }
}

pub(crate) struct ToolboxInner {
    pub(crate) runtime: SessionRuntime,
    pub(crate) permissions: Permissions,
    pub(crate) commands: CommandRegistry,
    mcp: Option<Arc<dyn McpSource>>,
    own_tools: Vec<NamedTool>,
    ledger: Mutex<Ledger>,
    told_changes: Mutex<ReportedTexts>,
    // Files returned whole once, and so small enough for that. Invariant: at most `MAX_SMALL_FILES`.
    small_files: Mutex<HashSet<String>>,
    // The write locks, by file. Invariant: only locks in use stay alive.
    write_locks: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl Toolbox {
    /// Returns the tools of a session, with those of its MCP servers, if any. Resources are opened when they are needed.
    #[must_use]
    pub fn new(runtime: SessionRuntime, mcp: Option<Arc<dyn McpSource>>) -> Self {
        let options = runtime.options();
        let own_tools =
            specs::build_tools(options.tool_set, runtime.backend_choice(), options.is_shell_enabled);
        let inner = ToolboxInner {
            permissions: Permissions::new(runtime.clone()),
            runtime,
            commands: CommandRegistry::default(),
            mcp,
            own_tools,
            ledger: Mutex::default(),
            told_changes: Mutex::default(),
            small_files: Mutex::default(),
            write_locks: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the session's backends.
    #[must_use]
    pub fn runtime(&self) -> &SessionRuntime {
        &self.inner.runtime
    }

    /// Returns the permissions checked before every operation.
    #[must_use]
    pub fn permissions(&self) -> &Permissions {
        &self.inner.permissions
    }

    /// Returns the tools offered to a model in a mode.
    #[must_use]
    pub fn offered_specs(&self, mode: AgentMode) -> Arc<[ToolSpec]> {
        let is_offered = |tool: &&NamedTool| mode.can_change() || !tool.tool.is_mutating();
        let own_specs = self.inner.own_tools.iter().filter(is_offered).map(NamedTool::to_spec);
        own_specs.chain(self.inner.mcp_specs(mode)).collect()
    }

    /// Returns the tools that a model is not offered in a mode, each with a short reason.
    #[must_use]
    pub fn withheld_tools(&self, mode: AgentMode) -> Vec<(String, String)> {
        let mut withheld = Vec::new();
        let mutating = self.inner.own_tools.iter().filter(|tool| tool.tool.is_mutating());
        let mutating: Vec<String> = mutating.map(|tool| format!("`{}`", tool.name)).collect();
        let mcp_specs = self.inner.mcp.as_ref().map(|source| source.specs()).unwrap_or_default();
        if !mode.can_change() {
            let reason =
                format!("the mode {} changes and runs nothing; `/mode ask` does, and asks first", mode.id());
            withheld.push((mutating.join(", "), reason));
        }
        if !mode.can_change() && !mcp_specs.is_empty() {
            let tools = if mcp_specs.len() == 1 { "tool" } else { "tools" };
            let reason = format!("what they do is not known, and the mode {} changes nothing", mode.id());
            withheld.push((format!("{} {tools} of MCP servers", mcp_specs.len()), reason));
        }
        if !self.runtime().options().is_shell_enabled {
            let reason = "the agent was started without `--shell`, as `--no-terminal` has it";
            withheld.push(("commands".to_owned(), reason.to_owned()));
        }
        if let Some(workspace) = self.runtime().adopted_workspace() {
            let reason =
                format!("the tools above call those of the MCP server {:?}", workspace.server().name);
            withheld.push((format!("{} tools of a workspace", workspace.server().tools.len()), reason));
        }
        withheld
    }

    /// Runs a call. Every failure is reported in the result.
    ///
    /// The future may be dropped at any moment; [`clean_up`](Self::clean_up) must be called then.
    pub async fn run_call(&self, call: &ToolUse, cx: &CallContext) -> ToolCallOutcome {
        let active_call = ActiveCall::new(&self.inner, call, cx);
        let outcome = self.inner.dispatch(&active_call).await;
        active_call.finish(outcome).await
    }

    /// Ends the commands of dropped calls, within about a second; slower ones end in the background.
    pub async fn clean_up(&self) {
        self.inner.commands.clean_up().await;
    }

    /// Ends the commands of a cancelled turn, including its background commands, and otherwise does the same as
    /// [`clean_up`](Self::clean_up).
    pub async fn end_turn(&self, turn: u64) {
        self.inner.commands.end_turn(turn).await;
    }

    /// Ends all commands, including background commands.
    pub async fn end_session(&self) {
        self.inner.commands.end_all().await;
        self.inner.permissions.end_session().await;
        self.inner.runtime.end_session().await;
    }
}

impl ToolboxInner {
    async fn dispatch(&self, active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
        let (name, mode) = (active_call.call.name.as_str(), self.permissions.mode());
        let tool = self.own_tools.iter().find(|tool| tool.name == name);
        let Some(tool) = tool.map(|tool| tool.tool).filter(|tool| mode.can_change() || !tool.is_mutating())
        else {
            let mcp_specs = self.mcp_specs(mode);
            return match (&self.mcp, mcp_specs.iter().find(|spec| spec.name == name)) {
                (Some(source), Some(spec)) => {
                    // The effects of the tool are unknown; it may change files.
                    self.runtime.record_command();
                    mcp::call_mcp_tool(active_call, &**source, spec).await
                }
                _ => Err(specs::explain_missing_tool(name, &self.own_tools, mode, &mcp_specs).into()),
            };
        };
        if let (Some(name), Some(workspace)) = (
            workspace_server::workspace_tool_name(tool, self.runtime.backend_choice()),
            self.runtime.adopted_workspace(),
        ) {
            return workspace_server::call_workspace_tool(active_call, workspace, name).await;
        }
        let choice = self.runtime.backend_choice();
        // The workspace's files are not changed behind its back, nor others taken for them.
        let server = if tool == BuiltinTool::Stat { choice.read } else { choice.write };
        if tool.uses_file_extension() && server == Backend::Workspace {
            let reason =
                "the client's workspace server does not offer this: read, write or edit the files one by one";
            return Err(reason.to_owned().into());
        }
        match tool {
            BuiltinTool::Read(backend) => read::read_file(active_call, backend).await,
            BuiltinTool::Write(backends) => write::write_file(active_call, backends).await,
            BuiltinTool::Edit(backends) => write::edit_file(active_call, backends).await,
            BuiltinTool::WriteFiles => batch::write_files(active_call).await,
            BuiltinTool::Append(backends) if choice.batch == Backend::Client || backends.are_local() => {
                batch::append_file(active_call).await
            }
            BuiltinTool::Append(backends) => write::append_file(active_call, backends).await,
            BuiltinTool::Delete => batch::delete_file(active_call).await,
            BuiltinTool::Move => batch::move_file(active_call).await,
            BuiltinTool::Stat => search::stat_file(active_call).await,
            BuiltinTool::List => search::list_directory(active_call).await,
            BuiltinTool::Search => search::search_text(active_call).await,
            BuiltinTool::Execute(backend) => commands::execute(active_call, backend).await,
            BuiltinTool::Output => commands::read_output(active_call).await,
            BuiltinTool::Kill => commands::kill_command(active_call).await,
            BuiltinTool::Plan => {
                let plan = plan::read_plan(active_call)?;
                Ok(plan::send_plan(active_call, plan).await)
            }
        }
    }

    /// Returns the tools of MCP servers. Their effects are unknown, so a mode without changes offers none. Tools of the
    /// adopted workspace server are called through the session's own, and not offered twice.
    fn mcp_specs(&self, mode: AgentMode) -> Vec<ToolSpec> {
        let source = self.mcp.as_ref().filter(|_| mode.can_change());
        let mut specs = source.map(|source| source.specs()).unwrap_or_default();
        if let Some(workspace) = self.runtime.adopted_workspace() {
            specs.retain(|spec| !workspace.server().tools.contains(&spec.name));
        }
        specs
    }

    /// Returns why something cannot be read here regardless of permissions, if so. This machine serves only the
    /// session's directories, and the user should not be asked about a read that fails all the same.
    pub(crate) async fn explain_out_of_reach(
        &self,
        backend: Backend,
        request: &OperationRequest,
    ) -> Option<String> {
        let outside = request.items.iter().find_map(|item| match &item.operation.target {
            OperationTarget::OutsideRoots { requested } => Some(requested),
            _ => None,
        });
        let requested = outside.filter(|_| backend == Backend::Local)?;
        let names = self.runtime.root_names().await.join(", ");
        Some(format!(
            "{} lies outside the session's directories ({}), and nothing else can be read on the agent's own machine; \
             the user can add a directory to the session in the editor",
            display::escape_line(requested, MAX_NAMES_BYTES),
            display::escape_line(&names, MAX_NAMES_BYTES)
        ))
    }

    /// Returns the ledger of what the model has seen.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accesses what the model has seen and which changes it was told of.
    pub(crate) fn with_knowledge<T>(&self, f: impl FnOnce((&mut Ledger, &mut ReportedTexts)) -> T) -> T {
        let mut reported = self.told_changes.lock().unwrap_or_else(PoisonError::into_inner);
        f((&mut self.ledger(), &mut reported))
    }

    /// Returns the ledger's key of a file: its path, with a prefix if the backend is not the one that files are read
    /// from. The same path on two machines is two files.
    pub(crate) fn ledger_key(&self, backend: Backend, path: &str) -> String {
        if backend == self.runtime.backend_choice().read {
            path.to_owned()
        } else {
            format!("{}:{path}", backend.as_str())
        }
    }

    pub(crate) fn is_small_file(&self, path: &str) -> bool {
        self.small_files.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    pub(crate) fn record_small_file(&self, path: &str) {
        let mut small = self.small_files.lock().unwrap_or_else(PoisonError::into_inner);
        if small.len() >= MAX_SMALL_FILES {
            small.clear();
        }
        small.insert(path.to_owned());
    }

    /// Waits until no other call of the session writes the file.
    pub(crate) async fn lock_for_write(&self, path: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.write_locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let lock = locks.get(path).and_then(Weak::upgrade).unwrap_or_default();
            locks.insert(path.to_owned(), Arc::downgrade(&lock));
            lock
        };
        lock.lock_owned().await
    }
}
