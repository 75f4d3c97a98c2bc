//! The methods of the file extension, for programs that serve an agent on behalf of an editor.

use std::sync::Arc;

use bowline_access::approvals::BoxFuture;
use bowline_protocol::file_extension::{
    BatchError, BatchFilesRequest, BatchFilesResponse, FileError, ListDirectoryRequest,
    ListDirectoryResponse, ReadFileRequest, ReadFileResponse, StatFileRequest, StatFileResponse,
    UnwatchFilesRequest, UnwatchFilesResponse, WatchFilesRequest, WatchFilesResponse, WriteFileRequest,
    WriteFileResponse,
};
use bowline_protocol::rpc_error::RpcError;

use super::{LocalSession, require_capability};
use crate::operations::OperationContext;
use crate::operations::file_extension::watch::{self, FilesChangedSender};
use crate::operations::file_extension::{self, LIMITS};
use crate::session::SessionInner;

impl LocalSession {
    /// Serves `_bowline/fs/list`.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed.
    pub async fn list_directory(
        &self,
        request: ListDirectoryRequest,
    ) -> Result<ListDirectoryResponse, FileError> {
        self.require_reading()?;
        let operation = request.into_operation(&LIMITS)?;
        self.run_file_operation(None, |session, context| {
            file_extension::list_page(session, context, operation)
        })
        .await
    }

    /// Serves `_bowline/fs/stat`.
    ///
    /// # Errors
    /// Returns an error if the path does not exist.
    pub async fn stat_file(&self, request: StatFileRequest) -> Result<StatFileResponse, FileError> {
        self.require_reading()?;
        let operation = request.into_operation()?;
        self.run_file_operation(None, |session, context| {
            file_extension::stat_path(session, context, operation)
        })
        .await
    }

    /// Serves `_bowline/fs/read`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub async fn read_file(&self, request: ReadFileRequest) -> Result<ReadFileResponse, FileError> {
        self.require_reading()?;
        let operation = request.into_operation(&LIMITS)?;
        self.run_file_operation(None, |session, context| {
            file_extension::read_data(session, context, operation)
        })
        .await
    }

    /// Serves `_bowline/fs/write`.
    ///
    /// # Errors
    /// Returns an error if nothing was written.
    pub async fn write_file(
        &self,
        request: WriteFileRequest,
        call: Option<&str>,
    ) -> Result<WriteFileResponse, FileError> {
        self.require_writing()?;
        let operation = request.into_operation(&LIMITS)?;
        self.run_file_operation(call, |session, context| {
            file_extension::batch::write_data(session, context, operation)
        })
        .await
    }

    /// Serves `_bowline/fs/batch`.
    ///
    /// # Errors
    /// Returns an error if nothing was changed.
    pub async fn batch_files(
        &self,
        request: BatchFilesRequest,
        call: Option<&str>,
    ) -> Result<BatchFilesResponse, BatchError> {
        self.require_writing()?;
        let operations = request.into_operations(&LIMITS)?;
        let changed = self.run_file_operation(call, |session, context| {
            file_extension::batch::change_files(session, context, operations)
        });
        changed.await.map(BatchFilesResponse::new)
    }

    /// Serves `_bowline/fs/watch`. Changes are sent once `answered` completes; those of all watches of the session go to
    /// the sender of the first one.
    ///
    /// # Errors
    /// Returns an error if the path cannot be watched.
    pub async fn watch_files(
        &self,
        request: WatchFilesRequest,
        sender: FilesChangedSender,
        answered: BoxFuture<'static, ()>,
    ) -> Result<WatchFilesResponse, FileError> {
        self.require_reading()?;
        let operation = request.into_operation()?;
        self.run_file_operation(None, |session, context| {
            watch::start_watch(session, context, operation, (sender, answered))
        })
        .await
    }

    /// Serves `_bowline/fs/unwatch`.
    ///
    /// # Errors
    /// Returns an error if there is no such watch.
    pub async fn unwatch_files(
        &self,
        request: UnwatchFilesRequest,
    ) -> Result<UnwatchFilesResponse, FileError> {
        watch::unwatch(self.inner.session.clone(), request).await
    }

    /// Runs an operation whose error is one of the extension's.
    async fn run_file_operation<T, E, F>(
        &self,
        call: Option<&str>,
        f: impl FnOnce(Arc<SessionInner>, OperationContext) -> F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<RpcError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.run_operation(call, |session, context| {
            let operation = f(session, context);
            async { Ok(operation.await) }
        })
        .await?
    }

    fn require_reading(&self) -> Result<(), RpcError> {
        require_capability(self.inner.capabilities.read, "reading files")
    }

    fn require_writing(&self) -> Result<(), RpcError> {
        require_capability(self.inner.capabilities.write, "writing files")
    }
}
