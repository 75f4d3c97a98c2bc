//! One engine session of the proxy, backed by a session of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_history::attribution::{AttributedChange, ChangeAttribution, SessionDirectory};
use bowline_history::changes::{ChangeId, Reversal};
use bowline_history::undo::ChangeSelection;
use bowline_host::{FilesChangedSender, LocalSession};
use bowline_mcp::server::{CHANGES_URI, ResourceEvent, ResourceProvider, WorkspaceResources};
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::diagnostics::Diagnostic;
use bowline_protocol::file_extension::{CHANGED_METHOD, WATCH_METHOD};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    Error, PermissionOption, RequestPermissionResponse, TerminalId, ToolCallId,
};
use bowline_proxy::{
    AgentUpdateSender, BoxFuture, EditorWriteRequest, EngineSession, FollowedTerminal, JournalledWrite,
    PermissionRuling, RedoChange, RelayedOperation,
};
use bowline_text::lines::LineWindow;
use bowline_text::merge::MergeConflict;
use bowline_text::merge::merge;
use bowline_workspace::files::FileBackend;
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace::Workspace;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, broadcast, oneshot};

use super::client_methods;
use super::engine::log_to_stderr;
use super::permission::PermissionForwarder;

/// The maximum number of events queued for a client that does not read; a client that lags is told to reread
/// everything.
const MAX_NEWS: usize = 256;

/// An engine session that accompanies the editor's session.
pub(super) struct LocalEngineSession {
    session: LocalSession,
    workspace: Workspace,
    requested_cwd: String,
    permissions: Arc<PermissionForwarder>,
    is_over: AtomicBool,
    resources: Arc<WorkspaceResources<LocalSession>>,
    news: broadcast::Sender<ResourceEvent>,
    // One permit, held by a reverted change until it is written through the editor or redone.
    routing_slot: Arc<Semaphore>,
}

impl LocalEngineSession {
    pub(super) fn new(
        session: LocalSession,
        workspace: Workspace,
        requested_cwd: String,
        permissions: Arc<PermissionForwarder>,
    ) -> Self {
        let news = broadcast::Sender::new(MAX_NEWS);
        let resources =
            WorkspaceResources::new(workspace.clone(), session.name(), session.clone(), news.clone());
        Self {
            session,
            workspace,
            requested_cwd,
            permissions,
            is_over: AtomicBool::new(false),
            resources: Arc::new(resources),
            news,
            routing_slot: Arc::new(Semaphore::new(1)),
        }
    }

    /// Starts the initial scan, so that the first turn need not wait for it.
    pub(super) fn start_scan(&self) {
        let session = self.session.clone();
        bowline_task::spawn(async move {
            if let Err(error) = session.run_initial_scan().await {
                log_to_stderr(&error.to_string());
            }
        });
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends it, once the last changes are recorded and reverted changes are restored.
    pub(super) async fn end(&self) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let _permit = self.routing_slot.acquire().await;
        log_scan_error(self.session.end_turn(None, |_| None).await);
        self.permissions.unregister(self.session.name());
        self.session.end().await;
    }
}

/// Returns the changes found; logs an error and returns none if the scan failed.
fn log_scan_error(result: Result<Vec<AttributedChange>, bowline_host::HostError>) -> Vec<AttributedChange> {
    result.unwrap_or_else(|error| {
        log_to_stderr(&error.to_string());
        Vec::new()
    })
}

/// Announces that the session has changed something. Usually there is no subscriber.
fn notify_changes(sender: &broadcast::Sender<ResourceEvent>) {
    sender.send(ResourceEvent::Updated(CHANGES_URI.to_owned())).ok();
}

/// Announces the changes found, and returns them.
fn notify_found(
    sender: &broadcast::Sender<ResourceEvent>,
    changes: Vec<AttributedChange>,
) -> Vec<AttributedChange> {
    if !changes.is_empty() {
        notify_changes(sender);
    }
    changes
}

fn owner_lookup(owners: ChangeAttribution) -> impl Fn(&str) -> Option<String> + Send + 'static {
    move |path| owners.call_for_path(path).map(|call| call.0.to_string())
}

/// Returns a file's content on disk; `None` if the file does not exist.
async fn read_from_disk(session: &LocalSession, path: &str) -> Result<Option<String>, RpcError> {
    let (files, path) = (session.files().clone(), path.to_owned());
    let read = bowline_task::spawn_blocking(move || files.read(&path, LineWindow::default())).await;
    let read = read.map_err(|error| RpcError::Internal { reason: error.to_string() })?;
    match read.map_err(RpcError::from) {
        Ok(read) => Ok(Some(read.text.as_str().to_owned())),
        Err(RpcError::ResourceNotFound { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn conflict_failure(path: &str, conflict: &MergeConflict) -> RpcError {
    let reason = "the user has typed in the same lines, and not saved: read the file through the editor, and write again";
    let hunks = conflict.hunks.clone();
    RpcError::Conflict { path: path.to_owned(), reason: reason.to_owned(), hunks }
}

impl EngineSession for LocalEngineSession {
    fn directory(&self) -> SessionDirectory {
        SessionDirectory {
            editor_path: self.requested_cwd.clone(),
            canonical_path: self.session.files().roots().cwd().to_owned(),
        }
    }

    fn begin_turn(&self, prompt: Option<String>) -> BoxFuture<'static, ()> {
        let session = self.session.clone();
        Box::pin(async move {
            match (session.begin_turn().await, prompt) {
                (Err(error), _) => log_to_stderr(&error.to_string()),
                (Ok(turn), Some(prompt)) => {
                    let files = session.files();
                    files.workspace().record_turn_title(session.name(), turn, &prompt);
                }
                (Ok(_), None) => {}
            }
        })
    }

    fn end_turn(&self, owners: ChangeAttribution) -> BoxFuture<'static, Vec<AttributedChange>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move {
            notify_found(&news, log_scan_error(session.end_turn(None, owner_lookup(owners)).await))
        })
    }

    fn cancel_turn(&self) -> BoxFuture<'static, ()> {
        let session = self.session.clone();
        Box::pin(async move { session.cancel_turn().await })
    }

    fn scan(&self, owners: ChangeAttribution) -> BoxFuture<'static, Vec<AttributedChange>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move {
            notify_found(&news, log_scan_error(session.scan_changes(owner_lookup(owners)).await))
        })
    }

    fn judge_permission(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> BoxFuture<'static, Result<PermissionRuling, RpcError>> {
        let session = self.session.clone();
        Box::pin(async move { session.evaluate_permission(call, options).await })
    }

    fn record_permission_outcome(
        &self,
        call: ToolCallId,
        response: RequestPermissionResponse,
    ) -> BoxFuture<'static, ()> {
        let session = self.session.clone();
        Box::pin(async move {
            if let Err(failure) = session.record_permission_outcome(&call, &response).await {
                log_to_stderr(&failure.to_string());
            }
        })
    }

    fn defer_to_tool(&self, call: ToolCallId) -> BoxFuture<'static, ()> {
        let session = self.session.clone();
        Box::pin(async move {
            if let Err(failure) = session.record_delegated_permission(&call).await {
                log_to_stderr(&failure.to_string());
            }
        })
    }

    fn authorize(
        &self,
        operation: RelayedOperation,
        call: Option<String>,
    ) -> BoxFuture<'static, Result<(), RpcError>> {
        let session = self.session.clone();
        Box::pin(async move { session.authorize(operation, call.as_deref()).await })
    }

    fn journal_editor_write(
        &self,
        write: EditorWriteRequest,
    ) -> BoxFuture<'static, Result<JournalledWrite, RpcError>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move {
            let EditorWriteRequest { path, editor_text, new_text, agent_has_read, call } = write;
            let editor_text = match editor_text {
                // Some editors have empty text for a file that does not exist. Undo has to remove that file.
                Some(text)
                    if text.is_empty() && matches!(read_from_disk(&session, &path).await, Ok(None)) =>
                {
                    None
                }
                editor_text => editor_text,
            };
            let text = match &editor_text {
                // The agent knows the content on disk, but not the unsaved edits.
                Some(editor_text) if !agent_has_read => {
                    let base = read_from_disk(&session, &path).await?;
                    let merged = merge(&base.unwrap_or_default(), editor_text, &new_text);
                    merged.map_err(|conflict| conflict_failure(&path, &conflict))?
                }
                _ => new_text,
            };
            let turn = session.current_turn();
            let recorded =
                session.record_editor_write(&path, editor_text, text.clone(), turn, call.as_deref()).await?;
            notify_changes(&news);
            let rollback = Box::pin(async move {
                if let Err(failure) = session.cancel_editor_write(recorded, turn, call.as_deref()).await {
                    log_to_stderr(&failure.to_string());
                }
                notify_changes(&news);
            });
            Ok(JournalledWrite { text, rollback })
        })
    }

    fn revert_change(&self, change: ChangeId) -> BoxFuture<'static, Option<RedoChange>> {
        let (files, turn) = (self.session.files().clone(), self.session.current_turn());
        let slot = self.routing_slot.clone();
        Box::pin(async move {
            let permit = slot.acquire_owned().await.ok()?;
            let change = Some(Reversal { change, hunks: None });
            let selection = ChangeSelection { change, ..ChangeSelection::default() };
            let origin = files.origin(turn, None);
            let (undo_files, undo_selection, undo_origin) =
                (files.clone(), selection.clone(), origin.clone());
            let result =
                bowline_task::spawn_blocking(move || undo_files.undo(&undo_selection, &undo_origin)).await;
            if let Ok(Err(error)) = &result {
                log_to_stderr(&format!(
                    "a change stays as the agent made it, and is not sent through the editor: {error}"
                ));
            }
            let path = result.ok()?.ok()?.files.into_iter().next().map(|file| file.path).unwrap_or_default();
            let redo: RedoChange = Box::new(move |reason| {
                Box::pin(async move {
                    let _permit = permit;
                    let redone = bowline_task::spawn_blocking(move || files.redo(&selection, &origin)).await;
                    match redone {
                        Ok(Err(error)) => log_to_stderr(&format!(
                            "what the agent wrote to {path} did not go through the editor: {reason}. It is in the journal \
                             (`bowline redo`): {error}"
                        )),
                        // During shutdown the redo may be cut short; then the change is applied or in the journal.
                        Ok(Ok(_)) | Err(_) => log_to_stderr(&format!(
                            "what the agent wrote to {path} did not go through the editor: {reason}. The file is as the agent \
                             made it (`bowline undo` takes that back)"
                        )),
                    }
                })
            });
            Some(redo)
        })
    }

    fn serve(
        &self,
        method: String,
        params: Box<RawValue>,
        call: Option<String>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Error>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move {
            let may_change = client_methods::may_change(&method);
            let result = client_methods::serve(session, method, params, call).await;
            if may_change && result.is_ok() {
                notify_changes(&news);
            }
            result
        })
    }

    fn follow_terminal(&self, id: TerminalId) -> BoxFuture<'static, Option<FollowedTerminal>> {
        let session = self.session.clone();
        Box::pin(async move {
            let terminals = session.terminals();
            let output = terminals.subscribe(&id).await.ok()?;
            let exit = terminals.wait_detached(&id);
            Some(FollowedTerminal { output, exit: Box::pin(async { exit.await.ok() }) })
        })
    }

    fn watch(
        &self,
        params: Box<RawValue>,
        updates: AgentUpdateSender,
        answered: oneshot::Receiver<()>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Error>> {
        let session = self.session.clone();
        let sender: FilesChangedSender = Arc::new(move |notification| {
            let line = json!({ "jsonrpc": "2.0", "method": CHANGED_METHOD, "params": notification });
            let updates = updates.clone();
            Box::pin(async move { updates.send(line.to_string().into_bytes()).await.is_ok() })
        });
        // If the signal is dropped, the request was cancelled, which is an answer, too.
        let answered = Box::pin(async { answered.await.map_or_else(drop, drop) });
        Box::pin(async move {
            client_methods::with_params(WATCH_METHOD, &params, |request| {
                session.watch_files(request, sender, answered)
            })
            .await
        })
    }

    fn list(&self, path: String, options: ListOptions) -> BoxFuture<'static, Result<Listing, RpcError>> {
        let session = self.session.clone();
        Box::pin(async move { session.list(&path, options).await })
    }

    fn search(
        &self,
        query: SearchQuery,
        directory: Option<String>,
    ) -> BoxFuture<'static, Result<SearchResult, RpcError>> {
        let session = self.session.clone();
        Box::pin(async move { session.search(query, directory).await })
    }

    fn set_diagnostics(&self, path: String, diagnostics: Vec<Diagnostic>) -> BoxFuture<'static, ()> {
        let workspace = self.workspace.clone();
        Box::pin(async move {
            let result =
                bowline_task::spawn_blocking(move || workspace.share_diagnostics(&path, diagnostics)).await;
            // Editors also have files open that do not belong to this project.
            result.map_or_else(drop, drop);
        })
    }

    fn resources(&self) -> Arc<dyn ResourceProvider> {
        self.resources.clone()
    }

    fn end_session(&self) -> BoxFuture<'static, ()> {
        // Not borrowed from `self`, so that ending the session runs to completion.
        let (session, permissions) = (self.session.clone(), self.permissions.clone());
        let is_first = !self.is_over.swap(true, Ordering::Relaxed);
        Box::pin(async move {
            if is_first {
                log_scan_error(session.end_turn(None, |_| None).await);
                permissions.unregister(session.name());
                session.end().await;
            }
        })
    }
}
