//! The workspace engine: an agent's view of a project's files, safe for their owner.
//!
//! The engine is independent of ACP connections: hosts, agents, proxies and MCP servers all use it. The crates in `crates/pure`
//! decide; this crate executes.
//!
//! ```text
//!  write ─► Roots::admit ─► read_current ─► decide_write ─► Journal::begin ─► FileTransaction ─► Journal::settle
//!           text, then       under a lease   ledger, merge   both texts,       temporary file     done, or
//!           handles                                          durable           changes places     abandoned
//! ```
//!
//! - [`roots`]: the directories of a session, and the single resolver for all paths.
//! - [`workspace`]: a project with its documents and its journal. A session reads, writes, lists, searches and undoes;
//!   the [`Workspace`](workspace::Workspace) itself serves the editor: documents, changes, patches, undo, scans.
//! - [`files`], [`terminals`]: traits for tools that are independent of where files and commands live, with
//!   implementations for the local machine.
//! - [`journal`]: the record of changes, from which they can be undone.
//! - [`observer`], [`walker`]: detection of changes that did not pass through the engine.
//!
//! ```no_run
//! use bowline_workspace::roots::{RootSpec, Roots};
//! use bowline_workspace::text::lines::LineWindow;
//! use bowline_workspace::workspace::{Workspace, WorkspaceOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let roots = Roots::open(&RootSpec::writable("/project"), &[])?;
//! let journal = Workspace::journal_directory("/state/bowline".as_ref(), &roots);
//! let workspace = Workspace::open(roots, &journal, WorkspaceOptions::default())?.workspace;
//! let agent = workspace.session("agent");
//! let read = agent.read("/project/src/main.rs", LineWindow::default())?;
//! agent.write("/project/src/main.rs", &read.text.replace("old", "new"), &agent.origin(Some(1), None))?;
//! # Ok(())
//! # }
//! ```

use std::pin::Pin;

mod disk;
pub mod disk_snapshot;
pub mod error;
pub mod files;
mod git_objects;
pub mod journal;
pub mod list;
pub mod observer;
pub mod roots;
pub mod search;
pub mod terminals;
pub mod walker;
pub mod workspace;

pub use bowline_history as history;
pub use bowline_text as text;

/// A boxed future, as methods of a `dyn` trait return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
