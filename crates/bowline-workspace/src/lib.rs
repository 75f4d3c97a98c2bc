//! The workspace engine: an agent's view of a project's files, safe for their owner.
//!
//! It knows nothing of ACP's connection: hosts, agents and MCP servers use the same one. What it decides it asks
//! [`bowline_state`]; what is here does it.
//!
//! - [`roots`]: the directories of a session, and the one resolver that every path goes through.
//! - [`workspace`]: a project with its documents and its journal. A [`Session`](workspace::Session) reads, writes, lists,
//!   searches, undoes; the [`Workspace`](workspace::Workspace) itself is the editor's side: documents, changes, patches,
//!   undo, observation of what commands do.
//! - [`files`]: the trait [`Files`](files::Files) for tools that should not care who serves the files, and this machine's
//!   implementation for asynchronous code.
//! - [`journal`]: what changed, kept so that it can be taken back.
//! - [`storage`]: private files, locks and databases, which the journal and others are kept in.
//!
//! ```no_run
//! use bowline_workspace::roots::{RootSpec, Roots};
//! use bowline_workspace::state::lines::Window;
//! use bowline_workspace::workspace::{Settings, Workspace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let roots = Roots::open(&RootSpec::writable("/project"), &[])?;
//! let journal = Workspace::journal_directory("/state/bowline".as_ref(), &roots);
//! let workspace = Workspace::open(roots, &journal, Settings::default())?.workspace;
//! let agent = workspace.session("agent");
//! let read = agent.read("/project/src/main.rs", Window::default())?;
//! agent.write("/project/src/main.rs", &read.text.replace("old", "new"), &agent.origin(Some(1), None))?;
//! # Ok(())
//! # }
//! ```

pub mod approvals;
pub mod audit;
pub mod calls;
pub mod clock;
mod disk;
mod displaced;
pub mod error;
mod file_clock;
pub mod files;
pub mod glance;
pub mod journal;
pub mod listing;
pub mod observer;
pub mod policy;
mod replace;
pub mod roots;
pub mod search;
pub mod storage;
pub mod terminals;
pub mod walker;
pub mod watch;
pub mod workspace;
mod writers;

pub use bowline_state as state;
