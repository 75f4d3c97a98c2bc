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
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it offers.
    pub offer: Offer,
    /// What could be done about a denial.
    pub advice: Advice,
}

/// What could be done about a denial, in sentences that end the answer. A model tells its user.
#[derive(Debug, Clone, Default)]
pub struct Advice {
    /// Where something may not be read.
    pub reading: String,
    /// Where something may not be written.
    pub writing: String,
    /// Where something may not be run.
    pub running: String,
    /// Where something may not be written because of its name. If it is empty, `writing` holds.
    pub protected: String,
}

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
