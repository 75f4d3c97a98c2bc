//! A workspace as an MCP server: its files, its terminals and what changed in it, as tools and resources.
//!
//! ```text
//!  MCP client ─► stdio, or HTTP on loopback ─► Handler ─► Session ─► Files, Terminals of a Place
//!                                                │            └ ledger: what the model has seen of each file
//!                                                └ resources ─► Resources of a Place, with their changes
//! ```
//!
//! Whoever has a workspace is a [`Place`]: a host with its rules and its journal, or an editor at the other end of a wire.
//! Every MCP session opens one for itself. What a tool cannot do is told to the model as the tool's result, with what to
//! do about it; only what is no call at all is an error of the protocol.

use std::future::Future;
use std::sync::Arc;

use bowline_state::operation::Invocation;
use bowline_workspace::approvals::BoxFuture;
use bowline_workspace::files::Files;
use bowline_workspace::terminals::Terminals;

mod asking;
mod batches;
mod commands;
mod connections;
mod diagnosed;
mod events;
mod handler;
mod http;
mod lines;
mod looking;
mod reading;
mod resources;
mod session;
mod shelf;
mod specs;
mod stdio;
mod told;
mod unreadable;
mod visits;
mod writing;

pub use asking::{Client, Decision};
pub use http::{HttpServer, HttpSettings};
pub use resources::{Described, News, Resources, file_uri};
pub use shelf::{CHANGES, DIAGNOSTICS, Shelf, always};
pub use specs::Offer;
pub use stdio::serve;

/// Whoever has a workspace, for one MCP session.
pub trait Place: Send + Sync + 'static {
    /// Its files.
    type Files: Files;
    /// Its terminals.
    type Terminals: Terminals;

    /// Returns the directory that relative paths start from: absolute, by its own name.
    fn root(&self) -> &str;

    /// Returns the files.
    fn files(&self) -> &Self::Files;

    /// Returns the terminals.
    fn terminals(&self) -> &Self::Terminals;

    /// Returns what can be read beside files, if anything can.
    fn resources(&self) -> Option<&dyn Resources> {
        None
    }

    /// Ends it: nothing that was started for the session runs on.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Opens a place for a client that has said who it is.
///
/// # Errors
/// Says why there is none, to be told to the client.
pub type Open<P> = Arc<dyn Fn(Client) -> BoxFuture<'static, Result<P, String>> + Send + Sync>;

/// How a server presents itself.
#[derive(Clone)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it offers.
    pub offer: Offer,
    /// Says what could be done about a denial.
    pub advise: Option<Advise>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("offer", &self.offer)
            .finish_non_exhaustive()
    }
}

/// Something that was denied.
#[derive(Debug, Clone, Copy)]
pub enum DeniedTool<'a> {
    /// To read a file, or what is in a directory.
    Read {
        /// Its absolute path.
        path: &'a str,
    },
    /// To write a file.
    Write {
        /// Its absolute path.
        path: &'a str,
    },
    /// To run a command.
    Run {
        /// The command.
        invocation: &'a Invocation,
        /// Its directory.
        cwd: &'a str,
        /// What it has beside the usual variables.
        env: &'a [(String, String)],
    },
}

/// Says what would allow something, in a sentence that a model tells its user; none if nothing would.
pub type Advise = Arc<dyn Fn(&DeniedTool<'_>) -> Option<String> + Send + Sync>;

/// A server, ready to be served: what opens places, and how it presents itself.
pub struct Server<P> {
    pub(crate) open: Open<P>,
    pub(crate) settings: Arc<Settings>,
}

impl<P: Place> Server<P> {
    /// Returns a server.
    #[must_use]
    pub fn new(settings: Settings, open: Open<P>) -> Self {
        Self { open, settings: Arc::new(settings) }
    }
}

impl<P> Clone for Server<P> {
    fn clone(&self) -> Self {
        Self { open: self.open.clone(), settings: self.settings.clone() }
    }
}

impl<P> std::fmt::Debug for Server<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}
