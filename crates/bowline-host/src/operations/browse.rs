//! Listing and searching, for clients without direct access to the files.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_policy::audit::{AuditAction, AuditDecision, AuditSubject};
use bowline_policy::grants::{GrantHolder, ResolvedOperation};
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::Access;
use bowline_policy::policy::Effect;
use bowline_policy::question::{QuestionItem, QuestionTrigger};
use bowline_protocol::rpc_error::RpcError;
use bowline_text::display::quote;
use bowline_workspace::approvals::{ApprovalRequest, OperationApproval};
use bowline_workspace::error::FilesError;
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace as engine;

use super::files::{is_same_file, path_subject};
use super::{AuditedOperation, OperationContext, authorize_operation, run_blocking};
use crate::session::SessionInner;

/// Lists a directory.
pub(crate) async fn list(
    held: Arc<SessionInner>,
    asking: OperationContext,
    path: String,
    options: ListOptions,
) -> Result<Listing, RpcError> {
    let title = format!("list {path}");
    let its = path.clone();
    let look = move |files: &engine::WorkspaceSession| files.list(&its, &options);
    run_on_directory(held, asking, path, title, look).await.map(|(listing, _)| listing)
}

/// Searches the files below a directory, or all files. Files that the rules do not allow to be read without a question
/// are left out: permission to search a directory does not cover each of its files.
pub(crate) async fn search(
    held: Arc<SessionInner>,
    asking: OperationContext,
    query: SearchQuery,
    below: Option<String>,
) -> Result<SearchResult, RpcError> {
    let path = below.clone().unwrap_or_else(|| held.files.roots().cwd().to_owned());
    let title = format!("search in {path} for {}", quote(&query.pattern));
    let look = move |files: &engine::WorkspaceSession| files.search(&query, below.as_deref());
    let (mut found, cleared) = run_on_directory(held.clone(), asking, path, title, look).await?;
    let asked = cleared.is_bound_to_operation();
    run_blocking(move || {
        let holder = held.holder(held.turn_status());
        let mut readable: HashMap<String, bool> = HashMap::new();
        let mut left_out = 0;
        found.matches.retain(|hit| {
            let may = readable.entry(hit.path.clone()).or_insert_with(|| {
                let may = can_read(&held, &holder, &hit.path, asked);
                left_out += u64::from(!may);
                may
            });
            *may
        });
        found.skipped.secret += left_out;
        found
    })
    .await
    .map_err(Into::into)
}

fn can_read(held: &SessionInner, holder: &GrantHolder, path: &str, asked: bool) -> bool {
    let Ok(admitted) = held.files.admit(path, Access::Read) else { return false };
    match held.host.approvals.judge(holder, &admitted.operation(OperationKind::Read)) {
        Ok(ruling) => ruling.effect == Effect::Allow || (asked && ruling.effect == Effect::Ask),
        Err(_) => false,
    }
}

/// Runs a listing or a search of a directory, authorized as a read.
async fn run_on_directory<T: Send + 'static>(
    held: Arc<SessionInner>,
    asking: OperationContext,
    path: String,
    title: String,
    look: impl FnOnce(&engine::WorkspaceSession) -> Result<T, FilesError> + Send + 'static,
) -> Result<(T, OperationApproval), RpcError> {
    let OperationContext { agent, call, cancel, .. } = asking;
    let its = held.clone();
    let admitted = run_blocking(move || {
        let mut operating = AuditedOperation::new(its.clone(), AuditAction::Read, call)
            .with_subject(AuditSubject::Path { requested: path.clone(), resolved: None });
        match its.files.admit(&path, Access::Read) {
            Ok(admitted) => {
                operating.entry_mut().subject = path_subject(&admitted);
                Ok((operating, admitted))
            }
            Err(error) => Err(operating.record_failure(error.into())),
        }
    });
    let (mut operating, admitted) = admitted.await??;
    let request = ApprovalRequest {
        holder: operating.holder(),
        call: operating.entry_mut().call.clone(),
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
    let cleared = authorize_operation(&mut operating, &request, &cancel).await;
    run_blocking(move || {
        let cleared = cleared.and_then(|cleared| operating.check_active().map(|()| cleared));
        let cleared = cleared.map_err(|failure| operating.record_failure(failure))?;
        let files = operating.session.files.clone();
        let again = files
            .admit(admitted.requested_path(), Access::Read)
            .is_ok_and(|again| is_same_file(&again, &admitted));
        if !again {
            let reason = format!("{} is another by now: ask again", quote(admitted.requested_path()));
            return Err(operating.record_failure(RpcError::InvalidParams { reason }));
        }
        match look(&files) {
            Ok(found) => operating.record(AuditDecision::Allowed).map(|()| (found, cleared)),
            Err(error) => Err(operating.record_failure(error.into())),
        }
    })
    .await?
}
