//! The methods of the file extension, `_bowline/fs/…`, for an agent.

pub(crate) mod batch;
pub(crate) mod watch;

use std::sync::Arc;

use bowline_policy::claims::find_call_for_operation;
use bowline_protocol::file_extension::operations::{ListOperation, ReadOperation, StatOperation};
use bowline_protocol::file_extension::{
    FileError, FileLimits, ListDirectoryRequest, ListDirectoryResponse, ReadFileRequest, ReadFileResponse,
    StatFileRequest, StatFileResponse,
};
use bowline_wire::ClientContext;

use super::OperationContext;
use super::browse::run_as_read;
use crate::session::SessionInner;

/// The limits that the host advertises and applies.
pub(crate) const LIMITS: FileLimits = FileLimits::DEFAULT;

fn operation_context(
    session: &SessionInner,
    agent: Option<String>,
    paths: &[&str],
    cx: &ClientContext,
) -> OperationContext {
    let call = find_call_for_operation(&session.snapshot(), Some(paths));
    OperationContext { agent, call, cancel: cx.cancel_signal().clone(), missing_file_quirk: None }
}

/// Serves `_bowline/fs/list`.
pub(crate) async fn list(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: ListDirectoryRequest,
    cx: ClientContext,
) -> Result<ListDirectoryResponse, FileError> {
    let operation = request.into_operation(&LIMITS)?;
    let context = operation_context(&session, agent, &[operation.path.as_str()], &cx);
    list_page(session, context, operation).await
}

/// Lists a page of a directory, authorized and recorded.
pub(crate) async fn list_page(
    session: Arc<SessionInner>,
    context: OperationContext,
    operation: ListOperation,
) -> Result<ListDirectoryResponse, FileError> {
    let path = operation.path.as_str().to_owned();
    let title = format!("list {path}");
    let listed = run_as_read(session, context, path, title, move |files, _, _| files.list_page(&operation));
    listed.await.map(|(page, _)| page)
}

/// Serves `_bowline/fs/stat`. What a link is, and not its target, is as visible as in a listing of its directory.
pub(crate) async fn stat(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: StatFileRequest,
    cx: ClientContext,
) -> Result<StatFileResponse, FileError> {
    let operation = request.into_operation()?;
    let context = operation_context(&session, agent, &[operation.path.as_str()], &cx);
    stat_path(session, context, operation).await
}

/// Describes a path, authorized and recorded.
pub(crate) async fn stat_path(
    session: Arc<SessionInner>,
    context: OperationContext,
    operation: StatOperation,
) -> Result<StatFileResponse, FileError> {
    let path = operation.path.as_str().to_owned();
    let title = format!("look at {path}");
    if !operation.follow_symlinks
        && let Some((directory, _)) = path.trim_end_matches('/').rsplit_once('/')
        && !directory.is_empty()
    {
        let (link, title) = (path.clone(), title.clone());
        let (session, context, directory) = (session.clone(), context.clone(), directory.to_owned());
        let stat =
            run_as_read(session, context, directory, title, move |files, _, _| files.stat_symlink(&link));
        // The directory of a root cannot be read, and a root is not a link.
        if let Ok((Some(response), _)) = stat.await {
            return Ok(response);
        }
    }
    let stat = run_as_read(session, context, path, title, |files, admitted, _| files.stat_admitted(admitted));
    stat.await.map(|(response, _)| response)
}

/// Serves `_bowline/fs/read`.
pub(crate) async fn read(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: ReadFileRequest,
    cx: ClientContext,
) -> Result<ReadFileResponse, FileError> {
    let operation = request.into_operation(&LIMITS)?;
    let context = operation_context(&session, agent, &[operation.path.as_str()], &cx);
    read_data(session, context, operation).await
}

/// Reads a file as text or bytes, authorized and recorded.
pub(crate) async fn read_data(
    session: Arc<SessionInner>,
    context: OperationContext,
    operation: ReadOperation,
) -> Result<ReadFileResponse, FileError> {
    let path = operation.path.as_str().to_owned();
    let title = format!("read {path}");
    let read = run_as_read(session, context, path, title, move |files, admitted, entry| {
        let response = files.read_range(admitted, &operation)?;
        entry.bytes = Some(response.data.as_ref().map_or(0, |data| data.len() as u64));
        Ok(response)
    });
    read.await.map(|(response, _)| response)
}
