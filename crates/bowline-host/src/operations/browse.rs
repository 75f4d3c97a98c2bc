//! Listing and searching, for clients without direct access to the files.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_access::approvals::{ApprovalRequest, OperationApproval};
use bowline_policy::audit::{AuditAction, AuditDecision, AuditSubject};
use bowline_policy::grants::{GrantHolder, ResolvedOperation};
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::Access;
use bowline_policy::policy::Effect;
use bowline_policy::question::{QuestionItem, QuestionTrigger};
use bowline_protocol::rpc_error::RpcError;
use bowline_text::display::quote;
use bowline_workspace::error::FilesError;
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace as engine;

use super::files::{is_same_file, path_subject};
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
    let action = move |files: &engine::WorkspaceSession| files.list(&owned_path, &options);
    run_on_directory(session, context, path, title, action).await.map(|(listing, _)| listing)
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
    let action = move |files: &engine::WorkspaceSession| files.search(&query, directory.as_deref());
    let (mut found, approval) = run_on_directory(session.clone(), context, path, title, action).await?;
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

fn can_read(session: &SessionInner, holder: &GrantHolder, path: &str, was_asked: bool) -> bool {
    let Ok(admitted) = session.files.admit(path, Access::Read) else { return false };
    match session.host.approvals.judge(holder, &admitted.operation(OperationKind::Read)) {
        Ok(ruling) => ruling.effect == Effect::Allow || (was_asked && ruling.effect == Effect::Ask),
        Err(_) => false,
    }
}

/// Runs a listing or a search of a directory, authorized as a read.
async fn run_on_directory<T: Send + 'static>(
    session: Arc<SessionInner>,
    context: OperationContext,
    path: String,
    title: String,
    action: impl FnOnce(&engine::WorkspaceSession) -> Result<T, FilesError> + Send + 'static,
) -> Result<(T, OperationApproval), RpcError> {
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
            Err(error) => Err(audited.record_failure(error.into())),
        }
    });
    let (mut audited, admitted) = admitted.await??;
    let request = ApprovalRequest {
        holder: audited.holder(),
        call: audited.entry_mut().call.clone(),
        agent,
        trigger: QuestionTrigger::UnrequestedOperation,
        title,
        items: vec![QuestionItem::new(admitted.operation(OperationKind::Read))],
        warnings: Vec::new(),
        agent_options: Vec::new(),
        resolved_operations: vec![ResolvedOperation::Read {
            path: admitted.canonical().to_owned(),
            file: admitted.file_id(),
        }],
    };
    let approval = authorize_operation(&mut audited, &request, &cancel).await;
    run_blocking(move || {
        let approval = approval.and_then(|approval| audited.check_active().map(|()| approval));
        let approval = approval.map_err(|failure| audited.record_failure(failure))?;
        let files = audited.session.files.clone();
        let is_unchanged = files
            .admit(admitted.requested_path(), Access::Read)
            .is_ok_and(|readmitted| is_same_file(&readmitted, &admitted));
        if !is_unchanged {
            let reason = format!("{} is another by now: ask again", quote(admitted.requested_path()));
            return Err(audited.record_failure(RpcError::InvalidParams { reason }));
        }
        match action(&files) {
            Ok(found) => audited.record(AuditDecision::Allowed).map(|()| (found, approval)),
            Err(error) => Err(audited.record_failure(error.into())),
        }
    })
    .await?
}
