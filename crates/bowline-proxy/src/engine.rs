//! The interface between a proxy and the owner of this machine's files, rules, journal and audit log. The proxy does
//! not depend on a host: the composing program implements these traits on top of one.

use std::sync::Arc;

use bowline_history::attribution::{AttributedChange, ChangeAttribution, SessionDirectory};
use bowline_history::changes::ChangeId;
use bowline_mcp::server::ResourceProvider;
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::diagnostics::Diagnostic;
pub use bowline_protocol::relay::operation::{PermissionRuling, RelayedOperation};
use bowline_protocol::relay::{RelayedSession, SessionOpening};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    Error, PermissionOption, RequestPermissionResponse, TerminalId, ToolCallId,
};
use bowline_protocol::terminal::CommandExit;
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::terminals::OutputSubscription;
use serde_json::value::RawValue;

use tokio::sync::oneshot;

use crate::engine_interceptor::AgentUpdateSender;
use crate::interceptor::BoxFuture;

/// Opens engine sessions that accompany the editor's sessions.
pub trait Engine: Send + Sync + 'static {
    /// Starts to scan the directory of a session that is about to open.
    fn prepare(&self, opening: &SessionOpening);

    /// Writes a line to the diagnostic log.
    fn log(&self, line: &str);

    /// Opens the session that the agent has opened. Returns `None` on failure; the reason is reported elsewhere.
    fn open_session(&self, opened: &RelayedSession) -> BoxFuture<'static, Option<Arc<dyn EngineSession>>>;
}

/// A write to be done by the editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorWriteRequest {
    /// The file, as the agent names it.
    pub path: String,
    /// The editor's text, including unsaved changes, or `None` if the file does not exist.
    pub editor_text: Option<String>,
    /// The text that the agent wants to write.
    pub new_text: String,
    /// Whether the agent has read the file through the editor, and so knows the unsaved text.
    pub agent_has_read: bool,
    /// The tool call, if known.
    pub call: Option<String>,
}

/// A journalled write by the editor.
pub struct JournalledWrite {
    /// The text to write: the agent's text, or that text merged with what the user typed.
    pub text: String,
    /// To be awaited if the editor does not write after all.
    pub rollback: BoxFuture<'static, ()>,
}

/// Reapplies a reverted change. Takes the reason why the editor did not write it.
pub type RedoChange = Box<dyn FnOnce(String) -> BoxFuture<'static, ()> + Send>;

/// A terminal that is followed.
pub struct FollowedTerminal {
    /// Its output, so far and as it comes.
    pub output: OutputSubscription,
    /// The exit of its command; `None` if the terminal is released before.
    pub exit: BoxFuture<'static, Option<CommandExit>>,
}

/// An engine session that accompanies a session of the editor.
pub trait EngineSession: Send + Sync {
    /// Returns its directory.
    fn directory(&self) -> SessionDirectory;

    /// Begins a turn with its prompt. Earlier changes are attributed to no one.
    fn begin_turn(&self, prompt: Option<String>) -> BoxFuture<'static, ()>;

    /// Ends the turn. Returns the changes on disk that were not found before.
    fn end_turn(&self, owners: ChangeAttribution) -> BoxFuture<'static, Vec<AttributedChange>>;

    /// Cancels the turn: its questions are withdrawn, and its commands killed.
    fn cancel_turn(&self) -> BoxFuture<'static, ()>;

    /// Finds and records the changes on disk.
    fn scan(&self, owners: ChangeAttribution) -> BoxFuture<'static, Vec<AttributedChange>>;

    /// Returns the rules' verdict on a permission request.
    fn judge_permission(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> BoxFuture<'static, Result<PermissionRuling, RpcError>>;

    /// Records the user's answer to a permission request.
    fn record_permission_outcome(
        &self,
        call: ToolCallId,
        response: RequestPermissionResponse,
    ) -> BoxFuture<'static, ()>;

    /// Records that a request left open by the rules was approved, because the tool itself will ask.
    fn defer_to_tool(&self, call: ToolCallId) -> BoxFuture<'static, ()>;

    /// Authorises an operation of the editor, or returns why it is denied.
    fn authorize(
        &self,
        operation: RelayedOperation,
        call: Option<String>,
    ) -> BoxFuture<'static, Result<(), RpcError>>;

    /// Journals a write before it is sent to the editor.
    fn journal_editor_write(
        &self,
        write: EditorWriteRequest,
    ) -> BoxFuture<'static, Result<JournalledWrite, RpcError>>;

    /// Reverts a file to its text before a change, unless it has changed since. Returns a function that reapplies the
    /// change.
    fn revert_change(&self, change: ChangeId) -> BoxFuture<'static, Option<RedoChange>>;

    /// Serves a file or terminal method that the editor lacks.
    fn serve(
        &self,
        method: String,
        params: Box<RawValue>,
        call: Option<String>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Error>>;

    /// Follows the output of a terminal that is served here; `None` if there is no such terminal.
    fn follow_terminal(&self, id: TerminalId) -> BoxFuture<'static, Option<FollowedTerminal>>;

    /// Serves the method that watches files. Changes are sent to `updates` as lines for the agent, once `answered`
    /// completes; those of all watches of the session go to the channel of the first one.
    fn watch(
        &self,
        params: Box<RawValue>,
        updates: AgentUpdateSender,
        answered: oneshot::Receiver<()>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Error>>;

    /// Lists a directory on this machine's disk, under the rules.
    fn list(&self, path: String, options: ListOptions) -> BoxFuture<'static, Result<Listing, RpcError>>;

    /// Searches files on this machine's disk, under the rules.
    fn search(
        &self,
        query: SearchQuery,
        directory: Option<String>,
    ) -> BoxFuture<'static, Result<SearchResult, RpcError>>;

    /// Replaces the editor's diagnostics of a file. Files outside the session are ignored.
    fn set_diagnostics(&self, path: String, diagnostics: Vec<Diagnostic>) -> BoxFuture<'static, ()>;

    /// Returns the session's resources other than files, with their events.
    fn resources(&self) -> Arc<dyn ResourceProvider>;

    /// Ends the session.
    fn end_session(&self) -> BoxFuture<'static, ()>;
}
