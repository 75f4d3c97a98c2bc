//! One MCP session: its backend, its commands, and what its model has seen of the files.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_history::ledger::Ledger;
use bowline_policy::paths::{LexicalPath, PathError};
use bowline_protocol::rpc_error::RpcError;
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::write::ReportedTexts as Heard;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncGuard, Semaphore};
use tokio_util::sync::CancellationToken;

use super::DeniedOperation;
use super::commands::{self, BackgroundCommands};
use super::outcome::{ToolOutcome, describe_failure};
use super::resources::MAX_SUBSCRIBED;
use super::tool_specs::ToolAction;
use super::{McpServerOptions, WorkspaceBackend, batch, read, search, write};

/// The most concurrent calls of a session; further ones are refused.
const MAX_CALLS: usize = 64;

/// The number of locks that serialise changes to the same file. Two files may share a lock.
const LOCK_COUNT: usize = 64;

/// One MCP session.
pub(crate) struct McpSession {
    pub(crate) backend: Box<dyn WorkspaceBackend>,
    pub(crate) options: Arc<McpServerOptions>,
    pub(crate) background: BackgroundCommands,
    ledger: Mutex<(Ledger, Heard)>,
    file_locks: Vec<AsyncMutex<()>>,
    // Invariant: at most `MAX_SUBSCRIBED`.
    subscriptions: Mutex<BTreeSet<String>>,
    call_permits: Semaphore,
    closed: CancellationToken,
}

/// The request id of a call, and the means to report its progress.
pub(crate) struct CallContext {
    /// The client's request id.
    pub(crate) id: String,
    pub(crate) progress: Option<(Peer<RoleServer>, ProgressToken)>,
}

impl CallContext {
    /// Reports the progress of a call. Delivery failures are ignored.
    pub(crate) async fn report_progress(&self, current: f64, total: f64, message: String) {
        let Some((peer, token)) = &self.progress else { return };
        let mut progress = ProgressNotificationParam::new(token.clone(), current);
        (progress.total, progress.message) = (Some(total), Some(message));
        peer.notify_progress(progress).await.ok();
    }
}

impl McpSession {
    pub(crate) fn new(backend: Box<dyn WorkspaceBackend>, settings: Arc<McpServerOptions>) -> Self {
        Self {
            backend,
            options: settings,
            background: BackgroundCommands::default(),
            ledger: Mutex::default(),
            file_locks: (0..LOCK_COUNT).map(|_| AsyncMutex::default()).collect(),
            subscriptions: Mutex::default(),
            call_permits: Semaphore::new(MAX_CALLS),
            closed: CancellationToken::new(),
        }
    }

    /// Executes a tool call.
    pub(crate) async fn call(
        self: &Arc<Self>,
        action: ToolAction,
        fields: ToolInputFields<'_>,
        context: CallContext,
    ) -> ToolOutcome {
        let Ok(_permit) = self.call_permits.try_acquire() else {
            let text =
                format!("{MAX_CALLS} calls are under way already: wait for one of them, then call again");
            return ToolOutcome::error(text);
        };
        let result = match action {
            ToolAction::Read => read::read_file(self, fields).await,
            ToolAction::Write => write::write_file(self, fields, &context).await,
            ToolAction::Edit => write::edit_file(self, fields, &context).await,
            ToolAction::Append => write::append_file(self, fields, &context).await,
            ToolAction::WriteFiles => batch::write_files(self, fields, &context).await,
            ToolAction::Delete => batch::delete_file(self, fields, &context).await,
            ToolAction::Move => batch::move_file(self, fields, &context).await,
            ToolAction::Stat => batch::stat_file(self, fields).await,
            ToolAction::List => search::list_directory(self, fields).await,
            ToolAction::Search => search::search_text(self, fields).await,
            ToolAction::Execute => commands::execute_command(self, fields, &context).await,
            ToolAction::Output => commands::read_background_output(self, fields).await,
            ToolAction::Kill => commands::kill_background_command(self, fields).await,
        };
        result.unwrap_or_else(ToolOutcome::error)
    }

    /// Returns an absolute path; a relative one starts from the backend's root.
    pub(crate) fn resolve(&self, path: &str) -> Result<LexicalPath, String> {
        let parsed = match LexicalPath::parse(path) {
            Err(PathError::Relative(path)) => LexicalPath::parse(format!("{}/{path}", self.backend.root())),
            parsed => parsed,
        };
        parsed.map_err(|fault| fault.to_string())
    }

    /// Returns a path relative to the root, for display.
    pub(crate) fn display_path<'p>(&self, path: &'p str) -> &'p str {
        let root = self.backend.root();
        if path == root {
            return ".";
        }
        path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path)
    }

    /// Describes a failure for the model.
    pub(crate) fn describe_failure(
        &self,
        tool: &DeniedOperation<'_>,
        subject: &str,
        failure: &RpcError,
    ) -> String {
        describe_failure(self.options.advise_denial.as_ref(), Some(tool), subject, failure)
    }

    /// Accesses the ledger of what the model knows about files.
    pub(crate) fn with_ledger<T>(&self, f: impl FnOnce(&mut Ledger, &mut Heard) -> T) -> T {
        let mut guard = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let (ledger, heard) = &mut *guard;
        f(ledger, heard)
    }

    /// Waits for exclusive access to files among the session's calls.
    pub(crate) async fn lock_files(&self, paths: impl IntoIterator<Item = &str>) -> Vec<AsyncGuard<'_, ()>> {
        // Each lock once and always in the same order, so that no two calls wait for each other.
        let indices: BTreeSet<usize> = paths.into_iter().map(lock_index).collect();
        let mut guards = Vec::new();
        for lock in indices.into_iter().filter_map(|index| self.file_locks.get(index)) {
            guards.push(lock.lock().await);
        }
        guards
    }

    fn lock_subscriptions(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes the client to a resource. Returns `false` at the limit.
    pub(crate) fn subscribe(&self, uri: String) -> bool {
        let mut subscribed = self.lock_subscriptions();
        subscribed.contains(&uri) || (subscribed.len() < MAX_SUBSCRIBED && subscribed.insert(uri))
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        self.lock_subscriptions().remove(uri);
    }

    pub(crate) fn subscriptions(&self) -> Vec<String> {
        self.lock_subscriptions().iter().cloned().collect()
    }

    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        self.lock_subscriptions().contains(uri)
    }

    /// Waits until the session is closed.
    pub(crate) async fn wait_until_closed(&self) {
        self.closed.cancelled().await;
    }

    /// Closes the session, and ends everything that it started.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        self.background.release_all(self.backend.terminals()).await;
        self.backend.close().await;
    }
}

fn lock_index(path: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    usize::try_from(hasher.finish() % LOCK_COUNT as u64).unwrap_or_default()
}
