//! Permission requests of an agent.

use std::sync::Arc;

use bowline_access::approvals::{ApprovalRequest, OperationApproval};
use bowline_policy::audit::{AuditAction, AuditDecision as Recorded, AuditSubject};
use bowline_policy::claims::{TextReplacement, ToolCallClaim, extract_claims};
use bowline_policy::danger::Danger;
use bowline_policy::grants::ResolvedOperation;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::Access;
use bowline_policy::policy::{Preset, canonical_invocation_in};
use bowline_policy::question::{
    AgentOption, AnswerChoice, Question, QuestionItem, QuestionTrigger, TextChange, ToolCallDescription,
};
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::permission::{ChoiceLifetime, PermissionDecision, choose_outcome};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    Meta, PermissionOption, PermissionOptionId, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome,
};
use bowline_protocol::terminal::Invocation;
use bowline_wire::ClientContext;
use bowline_workspace::terminals::resolve_command;

use super::files::{privilege_danger, resolve_write, write_item};
use super::{AuditedOperation, authorize_operation, run_blocking};
use crate::session::SessionInner;

/// The maximum total size of the texts of one question, in bytes; further files are only named, and asked about when
/// they are written.
const MAX_TEXTS: usize = 32 << 20;

/// The reason in the audit log for denying an operation that rules allow once, because the agent offers only to allow
/// it always.
pub const ONLY_ALLOW_ALWAYS: &str =
    "the agent offers only to allow it always, which takes a person or the preset full";

/// The reason in the audit log for an agent that offers no option to allow.
pub const NO_ALLOW_OPTION: &str = "the agent offers no option to allow it";

/// Serves `session/request_permission`.
pub(crate) async fn handle_request(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: RequestPermissionRequest,
    cx: ClientContext,
) -> Result<RequestPermissionResponse, RpcError> {
    let id = &request.tool_call.tool_call_id;
    let call = ToolCallView::from_update(session.snapshot().tool_call(id), &request.tool_call);
    let superseded = id.0.to_string();
    let (mut audited, approval_request) = prepare_request(session, agent, call, &request.options).await?;
    let approval = authorize_operation(&mut audited, &approval_request, cx.cancel_signal()).await;
    let cancelled_here = cx.cancel_signal().is_fired();
    let chosen = audited.chosen_option.take();
    run_blocking(move || {
        let (outcome, recorded) = match &approval {
            Ok(approval) => match allow_outcome(&audited.session, &request.options, approval) {
                Some(outcome) => (outcome, Recorded::Allowed),
                None => {
                    // Denied to the agent, so its grants are revoked.
                    audited.session.host.approvals.revoke_call_grants(audited.session.name(), &superseded);
                    let is_always =
                        choose_outcome(&request.options, PermissionDecision::Allow(ChoiceLifetime::Always))
                            .is_ok();
                    let reason = if is_always { ONLY_ALLOW_ALWAYS } else { NO_ALLOW_OPTION };
                    audited.entry_mut().reason = Some(reason.to_owned());
                    (deny_outcome(&request.options), Recorded::Denied)
                }
            },
            // The request itself was cancelled: its answer is an error, as for every other request.
            Err(RpcError::Cancelled) if cancelled_here => {
                return Err(audited.record_failure(RpcError::Cancelled));
            }
            Err(RpcError::Cancelled) => (RequestPermissionOutcome::Cancelled, Recorded::Cancelled),
            Err(busy @ RpcError::Busy { .. }) => return Err(audited.record_failure(busy.clone())),
            Err(failure) => {
                audited.entry_mut().reason = Some(failure.to_string());
                let outcome =
                    chosen.and_then(|id| find_chosen_option(&request.options, &id, AnswerChoice::Deny));
                (outcome.unwrap_or_else(|| deny_outcome(&request.options)), Recorded::Denied)
            }
        };
        audited.record(recorded)?;
        let response = RequestPermissionResponse::new(outcome);
        Ok(match approval {
            Err(RpcError::Denied { reason }) => response.meta(reason_meta(reason)),
            _ => response,
        })
    })
    .await?
}

/// Prepares the operation and the approval request for a tool call. Earlier grants of the call are revoked.
pub(super) async fn prepare_request(
    session: Arc<SessionInner>,
    agent: Option<String>,
    call: ToolCallView,
    options: &[PermissionOption],
) -> Result<(AuditedOperation, ApprovalRequest), RpcError> {
    let call_id = call.id.0.to_string();
    session.host.approvals.revoke_call_grants(session.name(), &call_id);
    let mut audited = AuditedOperation::new(session.clone(), AuditAction::Permission, Some(call_id.clone()))
        .with_subject(AuditSubject::Text(call.title.to_string()));
    let owned_session = session.clone();
    let title = if call.title.is_empty() { "a tool call".to_owned() } else { call.title.to_string() };
    let permit = session
        .host
        .description_permits
        .acquire()
        .await
        .map_err(|closed| RpcError::Internal { reason: closed.to_string() })?;
    let CallDescription { items, resolved_operations, dangers } =
        run_blocking(move || describe_tool_call(&owned_session, &call)).await?;
    drop(permit);
    if let [item] = items.as_slice() {
        audited.entry_mut().subject = AuditSubject::from(&item.operation.target);
    }
    let unlisted = missing_option_warning(options).map(Danger::serious);
    let question = Question {
        call: Some(call_id),
        agent,
        trigger: QuestionTrigger::PermissionRequest,
        dangers: dangers.into_iter().chain(unlisted).collect(),
        agent_options: AgentOption::from_options(options),
        ..Question::new(audited.holder(), title, items)
    };
    Ok((audited, ApprovalRequest { question, resolved_operations }))
}

/// Returns the outcome that allows the call once. Longer lifetimes are remembered here, not by the agent, whose idea of
/// *always* may be wider. If the agent offers only *always*, it is chosen if the user, warned of it, has agreed, or if
/// the preset is `full`, which allows everything anyway. Blocks on the disk.
pub(super) fn allow_outcome(
    session: &SessionInner,
    options: &[PermissionOption],
    approval: &OperationApproval,
) -> Option<RequestPermissionOutcome> {
    if let OperationApproval::Person { option: Some(id), .. } = approval {
        return find_chosen_option(options, id, AnswerChoice::Allow);
    }
    choose_outcome(options, PermissionDecision::Allow(ChoiceLifetime::Once)).ok().or_else(|| {
        let is_full = || session.host.approvals.policy().is_ok_and(|policy| policy.preset == Preset::Full);
        let may_last = matches!(approval, OperationApproval::Person { .. }) || is_full();
        may_last.then(|| choose_outcome(options, PermissionDecision::Allow(ChoiceLifetime::Always)).ok())?
    })
}

/// Returns the outcome for an option that the user chose, if the agent offers it and its kind matches the user's
/// choice.
fn find_chosen_option(
    options: &[PermissionOption],
    id: &PermissionOptionId,
    choice: AnswerChoice,
) -> Option<RequestPermissionOutcome> {
    let option = AgentOption::from_options(options)
        .into_iter()
        .find(|option| option.id == *id && option.choice == choice)?;
    Some(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.id)))
}

/// Warns of an agent that offers only to allow always, or not at all.
fn missing_option_warning(options: &[PermissionOption]) -> Option<String> {
    let offers = |lifetime| choose_outcome(options, PermissionDecision::Allow(lifetime)).is_ok();
    match (offers(ChoiceLifetime::Once), offers(ChoiceLifetime::Always)) {
        (true, _) => None,
        (false, true) => Some("the agent takes a yes for always: it offers nothing less".to_owned()),
        (false, false) => Some("the agent offers no yes: whatever is answered, it is told no".to_owned()),
    }
}

pub(super) fn deny_outcome(options: &[PermissionOption]) -> RequestPermissionOutcome {
    choose_outcome(options, PermissionDecision::Deny(ChoiceLifetime::Once))
        .unwrap_or(RequestPermissionOutcome::Cancelled)
}

/// Returns the reason for a denial as metadata, since the protocol has no field for it.
pub(super) fn reason_meta(reason: String) -> Meta {
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), serde_json::json!({ "reason": reason }));
    meta
}

/// The operations of a tool call, as far as it describes them.
struct CallDescription {
    /// The operations, for rules and the user.
    items: Vec<QuestionItem>,
    /// The operations that can be granted until they are carried out.
    resolved_operations: Vec<ResolvedOperation>,
    /// Warnings for the user: where the call's claims are wrong, and its side effects.
    dangers: Vec<Danger>,
}

/// Describes the operations of a tool call. Blocks on the disk.
fn describe_tool_call(session: &SessionInner, call: &ToolCallView) -> CallDescription {
    let mut mismatched: Vec<String> = Vec::new();
    let mut drops_privileges = false;
    let mut items = Vec::new();
    let mut resolved_operations = Vec::new();
    let mut budget = MAX_TEXTS;
    for claim in extract_claims(call) {
        match claim {
            ToolCallClaim::Read { path } => {
                let (item, resolved_operation) =
                    describe_file_operation(session, OperationKind::Read, to_absolute(session, path));
                items.push(item);
                resolved_operations.extend(resolved_operation);
            }
            ToolCallClaim::Delete { path } => {
                let (item, resolved_operation) =
                    describe_file_operation(session, OperationKind::Delete, to_absolute(session, path));
                items.push(item);
                resolved_operations.extend(resolved_operation);
            }
            ToolCallClaim::Write { path, text } => {
                let written = plan_write(session, to_absolute(session, path.clone()), text, &mut budget);
                items.push(written.item);
                resolved_operations.extend(written.resolved_operation);
                drops_privileges |= written.drops_privileges;
                if written.is_mismatched {
                    mismatched.push(path);
                }
            }
            ToolCallClaim::Run { invocation, cwd } => {
                let (item, resolved_operation) = describe_command(session, invocation, cwd);
                items.push(item);
                resolved_operations.push(resolved_operation);
            }
            ToolCallClaim::Fetch { url } => {
                items.push(QuestionItem::new(Operation {
                    kind: OperationKind::Fetch,
                    target: OperationTarget::Url(url),
                }));
            }
            ToolCallClaim::Described { kind, title } => {
                items.push(QuestionItem::new(Operation { kind, target: OperationTarget::Described(title) }));
            }
        }
    }
    // An item with neither a text nor a command to show gets the agent's own description, once per call.
    let described = |item: &QuestionItem| matches!(item.operation.target, OperationTarget::Described(_));
    let at =
        items.iter().position(described).or_else(|| items.iter().position(QuestionItem::shows_only_name));
    if let Some(item) = at.and_then(|at| items.get_mut(at)) {
        item.description = Some(Arc::new(ToolCallDescription::from_tool_call(call)));
    }
    let mismatched = match mismatched.as_slice() {
        [] => None,
        [path] => {
            Some(format!("{path} does not have the text that would be replaced, or has it more than once"))
        }
        [path, rest @ ..] => Some(format!(
            "{path} and {} others do not have the text that would be replaced, or have it more than once",
            rest.len()
        )),
    };
    let mismatched = mismatched.map(Danger::serious).into_iter();
    let dangers = mismatched.chain(privilege_danger(drops_privileges)).collect();
    CallDescription { items, resolved_operations, dangers }
}

/// Returns the absolute path of a tool's input, which may be relative to the session's directory. Only the tool can
/// expand `~`.
fn to_absolute(session: &SessionInner, path: String) -> String {
    if path.is_empty() || path.starts_with(['/', '~']) {
        return path;
    }
    format!("{}/{path}", session.files.roots().cwd())
}

/// A write, described before it is carried out.
pub(super) struct PlannedWrite {
    pub(super) item: QuestionItem,
    pub(super) resolved_operation: Option<ResolvedOperation>,
    /// Whether the file lacks the text that the call claims to replace.
    is_mismatched: bool,
    /// Whether the file has setuid or setgid, which the write would remove.
    drops_privileges: bool,
}

fn required_access(kind: OperationKind) -> Access {
    if kind == OperationKind::Read { Access::Read } else { Access::Write }
}

pub(super) fn describe_file_operation(
    session: &SessionInner,
    kind: OperationKind,
    path: String,
) -> (QuestionItem, Option<ResolvedOperation>) {
    match session.files.admit(&path, required_access(kind)) {
        Ok(admitted) => {
            let (path, file) = (admitted.canonical().to_owned(), admitted.file_id());
            let resolved_operation = match kind {
                OperationKind::Read => Some(ResolvedOperation::Read { path, file }),
                OperationKind::Delete => Some(ResolvedOperation::Delete { path, file }),
                _ => None,
            };
            (QuestionItem::new(admitted.operation(kind)), resolved_operation)
        }
        Err(_) => (
            QuestionItem::new(Operation { kind, target: OperationTarget::OutsideRoots { requested: path } }),
            None,
        ),
    }
}

/// Describes a write with its result, bound to it; or, if the result cannot be determined, as the agent shows it.
pub(super) fn plan_write(
    session: &SessionInner,
    path: String,
    text: Option<TextReplacement>,
    budget: &mut usize,
) -> PlannedWrite {
    let (item, _) = describe_file_operation(session, OperationKind::Write, path.clone());
    let Some(text) = text else {
        return PlannedWrite {
            item,
            resolved_operation: None,
            is_mismatched: false,
            drops_privileges: false,
        };
    };
    // The file's actual content, not the agent's version of it.
    let current = session.files.preview_write(&path, &text.new).ok().map(|preview| preview.before);
    let is_known = current.is_some();
    let new_text = current.and_then(|before| text.apply_to(before.as_deref().map(String::as_str)));
    let is_mismatched = is_known && new_text.is_none();
    let planned =
        new_text.and_then(|new_text| Some((session.files.preview_write(&path, &new_text).ok()?, new_text)));
    let Some((preview, new_text)) = planned else {
        let bytes = text.new.len() + text.old.as_ref().map_or(0, String::len);
        let change = TextChange { before: text.old.map(Arc::new), after: Arc::new(text.new) };
        let item = QuestionItem { change: take_budget(budget, bytes).then_some(change), ..item };
        return PlannedWrite { item, resolved_operation: None, is_mismatched, drops_privileges: false };
    };
    let drops_privileges = preview.drops_privileges;
    let bytes = preview.after.len() + preview.before.as_ref().map_or(0, |before| before.len());
    if !take_budget(budget, bytes) {
        return PlannedWrite { item, resolved_operation: None, is_mismatched, drops_privileges };
    }
    let resolved_operation = Some(resolve_write(&preview, &new_text));
    PlannedWrite { item: write_item(&path, &preview), resolved_operation, is_mismatched, drops_privileges }
}

/// Takes bytes from the text budget of a question, if enough are left.
fn take_budget(budget: &mut usize, bytes: usize) -> bool {
    let fits = bytes <= *budget;
    *budget -= if fits { bytes } else { 0 };
    fits
}

fn describe_command(
    session: &SessionInner,
    invocation: Invocation,
    cwd: Option<String>,
) -> (QuestionItem, ResolvedOperation) {
    let requested = cwd.unwrap_or_else(|| session.files.roots().cwd().to_owned());
    // An unusable directory is shown as named; the command itself is refused later.
    let cwd = session.files.working_directory(&requested).map_or(requested, |directory| directory.path);
    let resolved_operation = ResolvedOperation::Run {
        invocation: canonical_invocation_in(&invocation, &cwd),
        cwd: cwd.clone(),
        env: Vec::new(),
    };
    let command = resolve_command(session.files.roots(), invocation, cwd, Vec::new());
    (
        QuestionItem::new(Operation {
            kind: OperationKind::Execute,
            target: OperationTarget::Command(command),
        }),
        resolved_operation,
    )
}
