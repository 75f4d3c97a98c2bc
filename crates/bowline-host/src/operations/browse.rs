//! Listing, searching and reads of the file extension: each is authorized as a read of one path.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_access::approvals::OperationApproval;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry, AuditSubject};
use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::Access;
use bowline_policy::policy::Effect;
use bowline_protocol::file_extension::FileError;
use bowline_protocol::rpc_error::RpcError;
use bowline_text::display::quote;
use bowline_workspace::error::FilesError;
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::roots::{AdmitError, AdmittedPath};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace as engine;

use super::files::{is_same_file, path_subject, read_request};
use super::{AuditedOperation, OperationContext, authorize_operation, run_blocking};
use crate::session::SessionInner;

/// Lists a directory.
pub(crate) async fn list(
    session: Arc<SessionInner>,
    context: OperationContext,
    path: String,
    options: ListOptions,
) -> Result<Listing, RpcError> {
    let title = format!("list {path}");
    let owned_path = path.clone();
    let action = move |files: &engine::WorkspaceSession, _: &AdmittedPath, _: &mut AuditEntry| {
        files.list(&owned_path, &options).map_err(RpcError::from)
    };
    run_as_read(session, context, path, title, action).await.map(|(listing, _)| listing)
}

/// Searches the files below a directory, or all files. Files that the rules do not allow to be read without a question
/// are left out: permission to search a directory does not cover each of its files.
pub(crate) async fn search(
    session: Arc<SessionInner>,
    context: OperationContext,
    query: SearchQuery,
    directory: Option<String>,
) -> Result<SearchResult, RpcError> {
    let path = directory.clone().unwrap_or_else(|| session.files.roots().cwd().to_owned());
    let title = format!("search in {path} for {}", quote(&query.pattern));
    let action = move |files: &engine::WorkspaceSession, _: &AdmittedPath, _: &mut AuditEntry| {
        files.search(&query, directory.as_deref()).map_err(RpcError::from)
    };
    let (mut found, approval) = run_as_read(session.clone(), context, path, title, action).await?;
    let was_asked = approval.is_bound_to_operation();
    run_blocking(move || {
        let holder = session.holder(session.turn_status());
        let mut readable: HashMap<String, bool> = HashMap::new();
        let mut left_out = 0;
        found.matches.retain(|hit| {
            let is_readable = readable.entry(hit.path.clone()).or_insert_with(|| {
                let is_readable = can_read(&session, &holder, &hit.path, was_asked);
                left_out += u64::from(!is_readable);
                is_readable
            });
            *is_readable
        });
        found.skipped.secret += left_out;
        found
    })
    .await
    .map_err(Into::into)
}

/// Returns whether the rules allow to read a file without a question. If the user approved an operation on files around
/// it (`was_asked`), files that would be asked about are included. A file that is gone is judged by its path.
pub(super) fn can_read(session: &SessionInner, holder: &GrantHolder, path: &str, was_asked: bool) -> bool {
    let operation = match session.files.admit(path, Access::Read) {
        Ok(admitted) => Some(admitted.operation(OperationKind::Read)),
        Err(FilesError::NotAdmitted(AdmitError::NotFound(_) | AdmitError::NotADirectory(_))) => {
            session.files.roots().removed_path_operation(path, OperationKind::Read)
        }
        Err(_) => None,
    };
    let Some(operation) = operation else { return false };
    match session.host.approvals.judge(holder, &operation) {
        Ok(ruling) => ruling.effect == Effect::Allow || (was_asked && ruling.effect == Effect::Ask),
        Err(_) => false,
    }
}

/// The error of an operation. It is recorded as one of the protocol's.
pub(super) trait OperationFailure: From<RpcError> + From<FilesError> + Send + 'static {
    /// Returns the error as one of the protocol's.
    fn to_rpc_error(&self) -> RpcError;
}

impl OperationFailure for RpcError {
    fn to_rpc_error(&self) -> RpcError {
        self.clone()
    }
}

impl OperationFailure for FileError {
    fn to_rpc_error(&self) -> RpcError {
        Self::to_rpc_error(self)
    }
}

/// Records a failure, and returns the error for the answer: another one if it cannot be recorded.
pub(super) fn record_failure<E: OperationFailure>(audited: &mut AuditedOperation, failure: E) -> E {
    let known = failure.to_rpc_error();
    let recorded = audited.record_failure(known.clone());
    if recorded == known { failure } else { recorded.into() }
}

/// Runs an operation on a path, authorized as a read of it.
pub(super) async fn run_as_read<T: Send + 'static, E: OperationFailure>(
    session: Arc<SessionInner>,
    context: OperationContext,
    path: String,
    title: String,
    action: impl FnOnce(&engine::WorkspaceSession, &AdmittedPath, &mut AuditEntry) -> Result<T, E>
    + Send
    + 'static,
) -> Result<(T, OperationApproval), E> {
    let OperationContext { agent, call, cancel, .. } = context;
    let owned_session = session.clone();
    let admitted = run_blocking(move || {
        let mut audited = AuditedOperation::new(owned_session.clone(), AuditAction::Read, call)
            .with_subject(AuditSubject::Path { requested: path.clone(), resolved: None });
        match owned_session.files.admit(&path, Access::Read) {
            Ok(admitted) => {
                audited.entry_mut().subject = path_subject(&admitted);
                Ok((audited, admitted))
            }
            Err(error) => Err(record_failure(&mut audited, E::from(error))),
        }
    });
    let (mut audited, admitted) = admitted.await.map_err(RpcError::from)??;
    let request = read_request(&mut audited, &admitted, title, agent);
    let approval = authorize_operation(&mut audited, &request, &cancel).await;
    let done = run_blocking(move || {
        let approval = approval.and_then(|approval| audited.check_active().map(|()| approval));
        let approval = approval.map_err(|failure| audited.record_failure(failure))?;
        let files = audited.session.files.clone();
        // The approval covers that file, not another one that has its path by now.
        let readmitted = files.admit(admitted.requested_path(), Access::Read);
        let readmitted = readmitted.ok().filter(|readmitted| is_same_file(readmitted, &admitted));
        let Some(readmitted) = readmitted else {
            let reason = format!("{} is another by now: ask again", quote(admitted.requested_path()));
            return Err(audited.record_failure(RpcError::InvalidParams { reason }).into());
        };
        match action(&files, &readmitted, audited.entry_mut()) {
            Ok(found) => Ok(audited.record(AuditDecision::Allowed).map(|()| (found, approval))?),
            Err(failure) => Err(record_failure(&mut audited, failure)),
        }
    });
    done.await.map_err(RpcError::from)?
}
