//! A session within this process instead of over ACP, for example of an MCP client.
//!
//! The same code authorizes, records and carries out its operations as those of an ACP agent.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bowline_access::approvals::BoxFuture;
use bowline_protocol::file_extension::{
    BatchError, BatchFilesRequest, BatchOperation, BatchResult, FileError, ReadFileRequest, ReadFileResponse,
    ReadParams, StatFileRequest, StatFileResponse,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{SessionId, TerminalId};
use bowline_protocol::terminal::CommandExit;
use bowline_text::lines::LineWindow;
use bowline_wire::service::CancelSignal;
use bowline_workspace::files::{FileBackend, Requester, TextReadOutcome, TextWriteOutcome};
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::terminals::{CommandRequest, LocalTerminals, TerminalBackend, TerminalSnapshot};
use bowline_workspace::workspace as engine;

use crate::error::HostError;
use crate::front_end::HostEvent;
use crate::host::{Host, HostCapabilities};
use crate::operations::{OperationContext, browse, files, run_blocking, terminals};
use crate::session::{ActiveTurnGuard, SessionInner};

mod file_extension;
mod relay;

pub use relay::{AttributedChange, PermissionRuling, RelayedOperation};

/// A session without an agent at the other end of a connection. Clones share it; dropping the last one ends it.
///
/// It implements [`FileBackend`] and [`TerminalBackend`], subject to rules, approvals, journal and audit log. Dropping
/// the future of an operation cancels it, which is recorded; a write that has begun is completed.
#[derive(Debug, Clone)]
pub struct LocalSession {
    inner: Arc<LocalSessionInner>,
}

#[derive(Debug)]
struct LocalSessionInner {
    session: Arc<SessionInner>,
    capabilities: HostCapabilities,
    // The name of the session's client.
    agent: Option<String>,
    // The turn in progress, if the client has turns.
    active_turn: Mutex<Option<ActiveTurnGuard>>,
    // Permission requests that another client has to answer.
    pending_permissions: Mutex<relay::PendingPermissions>,
}

impl Host {
    /// Opens a session within this process. The journal, rules and the audit log know it by `name`, with a number
    /// appended if the name was used before.
    ///
    /// # Errors
    /// Fails if the journal or the audit log cannot be used.
    pub async fn local_session(&self, name: &str, agent: Option<String>) -> Result<LocalSession, HostError> {
        let (shared, id) = (self.inner.clone(), SessionId::new(name));
        let owned_id = id.clone();
        let name = run_blocking(move || shared.reserve_new_name(&owned_id)).await??;
        self.create_local_session(id, name, agent).await
    }

    async fn create_local_session(
        &self,
        id: SessionId,
        name: String,
        agent: Option<String>,
    ) -> Result<LocalSession, HostError> {
        let files = self.inner.workspace.session(&name);
        let session = Arc::new(SessionInner::new(id, self.inner.clone(), files));
        session.record_start().await?;
        session.show(HostEvent::SessionOpened { session: &session.id, name: session.name() });
        let (turn, permissions) = (Mutex::default(), Mutex::default());
        Ok(LocalSession {
            inner: Arc::new(LocalSessionInner {
                session,
                capabilities: self.capabilities(),
                agent,
                active_turn: turn,
                pending_permissions: permissions,
            }),
        })
    }
}

impl LocalSession {
    /// Returns the session's name in the journal, in rules and in the audit log.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.session.name()
    }

    /// Returns the session's files, not subject to rules.
    #[must_use]
    pub fn files(&self) -> &engine::WorkspaceSession {
        &self.inner.session.files
    }

    /// Returns the session's terminals, to follow their output.
    #[must_use]
    pub fn terminals(&self) -> &LocalTerminals {
        &self.inner.session.terminals
    }

    /// Returns the capabilities of the session.
    #[must_use]
    pub fn capabilities(&self) -> HostCapabilities {
        self.inner.capabilities
    }

    /// Ends the session: commands are killed, pending operations are cancelled, and its read state is dropped.
    pub async fn end(&self) {
        self.inner.session.end().await;
    }

    /// Records that an editor, which has approved the write itself, is about to write a file: in the journal, as
    /// [`engine::WorkspaceSession::record_editor_write`] does, and in the audit log. To be called before the editor is
    /// asked to write.
    ///
    /// # Errors
    /// Returns an error if the write could not be recorded. The editor must not be asked then.
    pub async fn record_editor_write(
        &self,
        path: &str,
        editor_text: Option<String>,
        written: String,
        turn: Option<u64>,
        call: Option<&str>,
    ) -> Result<engine::EditorWrite, RpcError> {
        let (path, origin) = (path.to_owned(), self.files().origin(turn, call));
        self.run_operation(call, |session, context| {
            files::record_editor_write(session, context, path, editor_text, written, origin)
        })
        .await
    }

    /// Records that an editor did not write after all.
    ///
    /// # Errors
    /// Returns an error if that could not be recorded.
    pub async fn cancel_editor_write(
        &self,
        write: engine::EditorWrite,
        turn: Option<u64>,
        call: Option<&str>,
    ) -> Result<(), RpcError> {
        let origin = self.files().origin(turn, call);
        self.run_operation(call, |session, context| {
            files::cancel_editor_write(session, context, write, origin)
        })
        .await
    }

    /// Returns a future that carries out an operation, and cancels it when dropped.
    fn run_operation<T, F>(
        &self,
        call: Option<&str>,
        f: impl FnOnce(Arc<SessionInner>, OperationContext) -> F,
    ) -> OperationFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RpcError>> + Send + 'static,
    {
        let cancel = CancelSignal::new();
        let context = OperationContext {
            agent: self.inner.agent.clone(),
            call: call.map(str::to_owned),
            cancel: cancel.clone(),
            missing_file_quirk: None,
        };
        OperationFuture { operation: Some(Box::pin(f(self.inner.session.clone(), context))), cancel }
    }
}

impl Drop for LocalSessionInner {
    fn drop(&mut self) {
        let session = self.session.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { session.end().await });
        }
    }
}

/// The future of an operation. Dropping it early cancels the operation, which continues in the background until the
/// cancellation is recorded.
struct OperationFuture<T: 'static> {
    operation: Option<BoxFuture<'static, Result<T, RpcError>>>,
    cancel: CancelSignal,
}

impl<T: 'static> Future for OperationFuture<T> {
    type Output = Result<T, RpcError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(operation) = &mut self.operation else { return Poll::Ready(Err(RpcError::Cancelled)) };
        let result = operation.as_mut().poll(cx);
        if result.is_ready() {
            self.operation = None;
        }
        result
    }
}

impl<T: 'static> Drop for OperationFuture<T> {
    fn drop(&mut self) {
        let Some(operation) = self.operation.take() else { return };
        self.cancel.fire();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { operation.await.map_or_else(drop, drop) });
        }
    }
}

fn require_capability(offered: bool, capability: &str) -> Result<(), RpcError> {
    if offered {
        Ok(())
    } else {
        Err(RpcError::Denied { reason: format!("{capability} is not offered here") })
    }
}

impl FileBackend for LocalSession {
    fn read<'a>(
        &'a self,
        path: &'a str,
        window: LineWindow,
    ) -> BoxFuture<'a, Result<TextReadOutcome, RpcError>> {
        Box::pin(async move {
            require_capability(self.inner.capabilities.read, "reading files")?;
            let path = path.to_owned();
            let read = self
                .run_operation(None, |session, context| files::read_text(session, context, path, window))
                .await?;
            Ok(TextReadOutcome { text: read.text, source: read.source, is_whole: Some(read.is_whole) })
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: String,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<TextWriteOutcome, RpcError>> {
        Box::pin(async move {
            require_capability(self.inner.capabilities.write, "writing files")?;
            let (path, content) = (path.to_owned(), Arc::from(content));
            let call = requester.call.as_deref();
            let written = self
                .run_operation(call, |session, context| files::write_text(session, context, path, content))
                .await?;
            Ok(written.into())
        })
    }

    fn list<'a>(&'a self, path: &'a str, options: ListOptions) -> BoxFuture<'a, Result<Listing, RpcError>> {
        Box::pin(async move {
            require_capability(self.inner.capabilities.read, "reading files")?;
            let path = path.to_owned();
            self.run_operation(None, |session, context| browse::list(session, context, path, options)).await
        })
    }

    fn search(
        &self,
        query: SearchQuery,
        directory: Option<String>,
    ) -> BoxFuture<'_, Result<SearchResult, RpcError>> {
        Box::pin(async move {
            require_capability(self.inner.capabilities.read, "reading files")?;
            // A search changes nothing, so dropping its future stops it.
            let stop = query.stop.clone().unwrap_or_default();
            let query = SearchQuery { stop: Some(stop.clone()), ..query };
            let _end = OnDrop(move || stop.store(true, Ordering::Relaxed));
            self.run_operation(None, |session, context| browse::search(session, context, query, directory))
                .await
        })
    }

    fn serves_file_extension(&self) -> bool {
        true
    }

    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<StatFileResponse, FileError>> {
        Box::pin(self.stat_file(StatFileRequest::new(self.inner.session.id.clone(), path)))
    }

    fn read_data(&self, params: ReadParams) -> BoxFuture<'_, Result<ReadFileResponse, FileError>> {
        Box::pin(self.read_file(ReadFileRequest::new(self.inner.session.id.clone(), params)))
    }

    fn batch<'a>(
        &'a self,
        operations: Vec<BatchOperation>,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Vec<BatchResult>, BatchError>> {
        Box::pin(async move {
            let mut request = BatchFilesRequest::new(self.inner.session.id.clone());
            request.operations = operations;
            let changed = self.batch_files(request, requester.call.as_deref()).await;
            changed.map(|response| response.results)
        })
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl TerminalBackend for LocalSession {
    fn create(&self, request: CommandRequest) -> BoxFuture<'_, Result<TerminalId, RpcError>> {
        Box::pin(async move {
            require_capability(self.inner.capabilities.terminal, "running commands")?;
            self.run_operation(None, |session, context| async move {
                let cancel = context.cancel.clone();
                let id = terminals::start(session.clone(), context, request).await?;
                if cancel.is_fired() {
                    // Its id would never reach the caller.
                    terminals::release_terminal(session, &id).await.ok();
                    return Err(RpcError::Cancelled);
                }
                Ok(id)
            })
            .await
        })
    }

    fn output<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<TerminalSnapshot, RpcError>> {
        Box::pin(async move { Ok(self.inner.session.terminals.output(id).await?) })
    }

    fn wait<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<CommandExit, RpcError>> {
        Box::pin(async move { Ok(self.inner.session.terminals.wait(id).await?) })
    }

    fn kill<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>> {
        let id = id.clone();
        Box::pin(async move {
            let kill = |session, _| async move { terminals::kill_terminal(session, &id).await };
            self.run_operation(None, kill).await
        })
    }

    fn release<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>> {
        let id = id.clone();
        Box::pin(async move {
            let release = |session, _| async move { terminals::release_terminal(session, &id).await };
            self.run_operation(None, release).await
        })
    }
}
