//! What a proxy needs of whoever has this machine's files, rules, journal and log. It knows no host: who composes the two
//! implements this over one.

use std::sync::Arc;

use bowline_mcp::server::Resources;
use bowline_state::accumulator::ToolCallView;
use bowline_state::changes::ChangeId;
use bowline_state::diagnostics::Diagnostic;
use bowline_state::failure::Failure;
pub use bowline_state::passing::{Act, Judged};
use bowline_state::relay::{Opened, Opening};
use bowline_state::schema::v1::{Error, PermissionOption, RequestPermissionOutcome, ToolCallId};
use bowline_state::watching::{Found, Owners, Place};
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use serde_json::value::RawValue;

use crate::between::BoxFuture;

/// Opens sessions beside the editor's.
pub trait Engine: Send + Sync + 'static {
    /// Begins to look at a directory that a session will have.
    fn prepares(&self, opening: &Opening);

    /// Writes a line for people who look for a fault.
    fn notes(&self, line: &str);

    /// Opens the session that the agent has opened. What it is to be told of why it cannot is told elsewhere.
    fn opens(&self, opened: &Opened) -> BoxFuture<Option<Arc<dyn EngineSession>>>;
}

/// A write by the editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorWrites {
    /// The file, as the agent names it.
    pub path: String,
    /// What the editor has of it, with what is not saved; none if there is no such file.
    pub had: Option<String>,
    /// What the agent wants it to hold.
    pub wants: String,
    /// Whether the agent has read the file through the editor, and so knows what is not saved.
    pub has_read: bool,
    /// The tool call, if it is known.
    pub call: Option<String>,
}

/// A write by the editor that is recorded.
pub struct Recorded {
    /// What is to be written: what the agent wants, or that merged with what the user typed.
    pub text: String,
    /// To be told if the editor does not write after all.
    pub undone: BoxFuture<()>,
}

/// Does a change again that was put back. It is told why the editor did not do it.
pub type Again = Box<dyn FnOnce(String) -> BoxFuture<()> + Send>;

/// One session beside the editor's.
pub trait EngineSession: Send + Sync {
    /// Returns where it is.
    fn place(&self) -> Place;

    /// A turn begins, with what is asked for: what changed before is nobody's.
    fn turn_begins(&self, prompt: Option<String>) -> BoxFuture<()>;

    /// The turn has ended. Returns what was found on disk that nobody has looked for yet.
    fn turn_ends(&self, owners: Owners) -> BoxFuture<Vec<Found>>;

    /// The turn is cancelled: its questions are withdrawn, and its commands killed.
    fn cancels(&self) -> BoxFuture<()>;

    /// Finds what changed on disk, and records it.
    fn looks(&self, owners: Owners) -> BoxFuture<Vec<Found>>;

    /// Says what the rules come to for a permission request.
    fn judges(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> BoxFuture<Result<Judged, Failure>>;

    /// The editor's user has answered one.
    fn permitted(&self, call: ToolCallId, outcome: RequestPermissionOutcome) -> BoxFuture<()>;

    /// A request that rules left open was answered with yes: what it is for asks by itself.
    fn left_to_tool(&self, call: ToolCallId) -> BoxFuture<()>;

    /// Lets something pass that the editor will do, or says why not.
    fn lets(&self, act: Act, call: Option<String>) -> BoxFuture<Result<(), Failure>>;

    /// Records a write before the editor is asked for it.
    fn editor_writes(&self, write: EditorWrites) -> BoxFuture<Result<Recorded, Failure>>;

    /// Puts a file back to what it was before a change, if nobody has changed it since. Returns what does the change again.
    fn puts_back(&self, change: ChangeId) -> BoxFuture<Option<Again>>;

    /// Does what the editor cannot: a method of files or terminals, with its params.
    fn serves(
        &self,
        method: String,
        params: Box<RawValue>,
        call: Option<String>,
    ) -> BoxFuture<Result<Box<RawValue>, Error>>;

    /// Lists a directory where the editor's is not listed, under rules.
    fn lists(&self, path: String, options: ListOptions) -> BoxFuture<Result<Listing, Failure>>;

    /// Searches files, likewise.
    fn searches(&self, query: SearchQuery, below: Option<String>)
    -> BoxFuture<Result<SearchResult, Failure>>;

    /// Takes what the editor knows to be wrong in a file, in place of what it said before. Of files that are none of the
    /// session's nothing is kept.
    fn diagnosed(&self, path: String, diagnostics: Vec<Diagnostic>) -> BoxFuture<()>;

    /// Returns what can be read of the session beside its files, and hears of it.
    fn shelf(&self) -> Arc<dyn Resources>;

    /// The session is over.
    fn ends(&self) -> BoxFuture<()>;
}
