//! The tools that a model is offered, and what they do.
//!
//! A [`Toolbox`] belongs to a session. Each call is announced to the client, allowed by rules or by the user, carried out by
//! whoever serves the session, and told to the model, in that order. A call may be dropped at any moment: what it had
//! under way over the wire is cancelled by that, and [`Toolbox::clean_up`] ends its commands.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline_state::conversation::{ToolResult, ToolSpec, ToolUse};
use bowline_state::display;
use bowline_state::ledger::Ledger;
use bowline_state::mode::Mode;
use bowline_state::operation::{Operation, Target};
use bowline_state::tooling::deciding::Told;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

mod around;
mod before;
mod commands;
mod linked;
mod looking;
pub mod mcp;
mod plan;
mod reading;
mod specs;
mod withheld;
mod work;
mod workspace;
mod writing;

pub use linked::Linked;

use crate::permission::Permissions;
use crate::reporter::Reporter;
use crate::runtime::{Runtimes, Server};
use commands::book::Book;
use mcp::McpSource;
use specs::{Named, Tool};
use work::{Done, Stop, Work};

/// So many files are remembered as small enough to be read whole; then none is.
const MAX_SMALL: usize = 10_000;

/// As much of names is told in an error, in bytes.
const MAX_NAMED: usize = 2000;

/// What a call has at hand.
#[derive(Debug, Clone)]
pub struct Calling {
    /// Who tells the client of it.
    pub reporter: Reporter,
    /// The turn.
    pub turn: u64,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Ran {
    /// This, for the model.
    Result(ToolResult),
    /// The user cancelled the turn instead of allowing it.
    Cancelled,
}

/// What a toolbox is made of.
pub struct ToolParts {
    /// What serves the session.
    pub runtimes: Runtimes,
    /// The MCP servers of the session, if there are any.
    pub mcp: Option<Arc<dyn McpSource>>,
}

impl std::fmt::Debug for ToolParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolParts").finish_non_exhaustive()
    }
}

/// The tools of a session. Clones are the same one.
#[derive(Clone)]
pub struct Toolbox {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toolbox").finish_non_exhaustive()
    }
}

/// Who serves the files that a tool changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Side {
    /// Who reads them; nobody, if a client serves writing alone.
    pub(crate) read: Option<Server>,
    /// Who writes them.
    pub(crate) write: Server,
}

pub(crate) struct Inner {
    pub(crate) runtimes: Runtimes,
    pub(crate) permissions: Permissions,
    pub(crate) book: Book,
    mcp: Option<Arc<dyn McpSource>>,
    tools: Vec<Named>,
    ledger: Mutex<Ledger>,
    told: Mutex<Told>,
    // Files that were given whole once, and so are not too large for that. Invariant: at most `MAX_SMALL`.
    small: Mutex<HashSet<String>>,
    // Who writes which file. Invariant: but for those of the moment, the locks are gone.
    writing: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl Toolbox {
    /// Returns the tools of a session. Nothing is opened before it is needed.
    #[must_use]
    pub fn new(parts: ToolParts) -> Self {
        let ToolParts { runtimes, mcp } = parts;
        let settings = runtimes.settings();
        let tools = specs::tools(settings.tools, runtimes.choice(), settings.shell);
        let inner = Inner {
            permissions: Permissions::new(runtimes.clone()),
            runtimes,
            book: Book::default(),
            mcp,
            tools,
            ledger: Mutex::default(),
            told: Mutex::default(),
            small: Mutex::default(),
            writing: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns what serves the session.
    #[must_use]
    pub fn runtimes(&self) -> &Runtimes {
        &self.inner.runtimes
    }

    /// Lets a workspace server of the client serve what the client does not serve itself, if there is one by now; says who
    /// serves what when that changes.
    pub fn adopt_workspace(&self) -> Option<Vec<String>> {
        self.runtimes().adopt(self.inner.mcp.as_ref()?)
    }

    /// Returns what stands before every operation.
    #[must_use]
    pub fn permissions(&self) -> &Permissions {
        &self.inner.permissions
    }

    /// Returns the tools that a model is offered in a mode.
    #[must_use]
    pub fn specs(&self, mode: Mode) -> Arc<[ToolSpec]> {
        let offered = |tool: &&Named| mode.may_change() || !tool.tool.changes();
        let own = self.inner.tools.iter().filter(offered).map(Named::spec);
        own.chain(self.inner.others(mode)).collect()
    }

    /// Runs a call. Whatever is wrong with it is told in the result.
    ///
    /// It may be dropped at any moment; then [`clean_up`](Self::clean_up) is to be called.
    pub async fn run(&self, call: &ToolUse, cx: &Calling) -> Ran {
        let work = Work::new(&self.inner, call, cx);
        let outcome = self.inner.dispatch(&work).await;
        work.finish(outcome).await
    }

    /// Ends what calls that were dropped have left running, within a second or so; what takes longer goes on by itself.
    pub async fn clean_up(&self) {
        self.inner.book.clean_up().await;
    }

    /// Ends what a turn that is cancelled has left running, its commands in the background too; as
    /// [`clean_up`](Self::clean_up) does otherwise.
    pub async fn end_turn(&self, turn: u64) {
        self.inner.book.end_turn(turn).await;
    }

    /// Ends everything, commands in the background too.
    pub async fn end(&self) {
        self.inner.book.end().await;
        self.inner.permissions.end().await;
        self.inner.runtimes.end().await;
    }
}

impl Inner {
    async fn dispatch(&self, work: &Work<'_>) -> Result<Done, Stop> {
        let (name, mode) = (work.call.name.as_str(), self.permissions.mode());
        let tool = self.tools.iter().find(|tool| tool.name == name);
        let Some(tool) = tool.map(|tool| tool.tool).filter(|tool| mode.may_change() || !tool.changes())
        else {
            let others = self.others(mode);
            return match (&self.mcp, others.iter().find(|other| other.name == name)) {
                (Some(source), Some(spec)) => {
                    // What it does nobody knows; it may change files.
                    self.runtimes.note_command();
                    mcp::call(work, &**source, spec).await
                }
                _ => Err(specs::missing(name, &self.tools, mode, &others).into()),
            };
        };
        if let (Some(name), Some(adopted)) =
            (workspace::there(tool, self.runtimes.choice()), self.runtimes.workspace())
        {
            return workspace::call(work, adopted, name).await;
        }
        match tool {
            Tool::Read(by) => reading::read(work, by).await,
            Tool::Write(side) => writing::write(work, side).await,
            Tool::Edit(side) => writing::edit(work, side).await,
            Tool::List => looking::list(work).await,
            Tool::Search => looking::search(work).await,
            Tool::Execute(by) => commands::execute(work, by).await,
            Tool::Output => commands::output(work).await,
            Tool::Kill => commands::kill(work).await,
            Tool::Plan => {
                let plan = plan::read(work)?;
                Ok(plan::send(work, plan).await)
            }
        }
    }

    /// Returns the tools of MCP servers. What they do nobody knows, so there are none where nothing may change. Those of a
    /// workspace server that serves the session are called by the session's own, and not a second time.
    fn others(&self, mode: Mode) -> Vec<ToolSpec> {
        let source = self.mcp.as_ref().filter(|_| mode.may_change());
        let mut specs = source.map(|source| source.specs()).unwrap_or_default();
        if let Some(adopted) = self.runtimes.workspace() {
            specs.retain(|spec| !adopted.server().tools.contains(&spec.name));
        }
        specs
    }

    /// Says why something cannot be read here whatever anybody allows, if so: this machine serves the session's directories
    /// and nothing else, and nobody should be asked about what fails all the same.
    pub(crate) async fn out_of_reach(&self, by: Server, operation: &Operation) -> Option<String> {
        let (Server::Local, Target::Elsewhere { asked }) = (by, &operation.target) else { return None };
        let names = self.runtimes.root_names().await.join(", ");
        Some(format!(
            "{} lies outside the session's directories ({}), and nothing else can be read on the agent's own machine; \
             the user can add a directory to the session in the editor",
            display::line(asked, MAX_NAMED),
            display::line(&names, MAX_NAMED)
        ))
    }

    /// Returns what the model has seen.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at, and changes, what the model has seen and was told of.
    pub(crate) fn knows<T>(&self, act: impl FnOnce((&mut Ledger, &mut Told)) -> T) -> T {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        act((&mut self.ledger(), &mut told))
    }

    /// Returns what the ledger knows a file by: its path, but for a machine that is not the one that files are read from.
    /// The same path on two machines is two files.
    pub(crate) fn key(&self, by: Server, path: &str) -> String {
        if by == self.runtimes.choice().read { path.to_owned() } else { format!("{}:{path}", by.word()) }
    }

    pub(crate) fn is_small(&self, path: &str) -> bool {
        self.small.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    pub(crate) fn note_small(&self, path: &str) {
        let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
        if small.len() >= MAX_SMALL {
            small.clear();
        }
        small.insert(path.to_owned());
    }

    /// Waits until nobody else of the session writes a file.
    pub(crate) async fn alone(&self, path: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            writing.retain(|_, lock| lock.strong_count() > 0);
            let lock = writing.get(path).and_then(Weak::upgrade).unwrap_or_default();
            writing.insert(path.to_owned(), Arc::downgrade(&lock));
            lock
        };
        lock.lock_owned().await
    }
}
