//! Permission requests of an agent.

use std::sync::Arc;

use bowline_policy::audit::{AuditAction, AuditDecision as Recorded, AuditSubject};
use bowline_policy::claims::{TextReplacement, ToolCallClaim, extract_claims};
use bowline_policy::grants::ResolvedOperation;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::Access;
use bowline_policy::policy::{Preset, canonical_invocation_in};
use bowline_policy::question::{
    AgentOption, AnswerChoice, QuestionItem, QuestionTrigger, TextChange, ToolCallDescription,
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
use bowline_workspace::approvals::{ApprovalRequest, OperationApproval};
use bowline_workspace::terminals::resolve_command;

use super::files::{WILL_DROP_PRIVILEGES, resolve_write, write_item};
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
    held: Arc<SessionInner>,
    agent: Option<String>,
    request: RequestPermissionRequest,
    cx: ClientContext,
) -> Result<RequestPermissionResponse, RpcError> {
    let id = &request.tool_call.tool_call_id;
    let call = ToolCallView::from_update(held.snapshot().tool_call(id), &request.tool_call);
    let superseded = id.0.to_string();
    let (mut operating, asked) = prepare_request(held, agent, call, &request.options).await?;
    let cleared = authorize_operation(&mut operating, &asked, cx.cancel_signal()).await;
    let cancelled_here = cx.cancel_signal().is_fired();
    let chosen = operating.chosen_option.take();
    run_blocking(move || {
        let (outcome, recorded) = match &cleared {
            Ok(cleared) => match allow_outcome(&operating.session, &request.options, cleared) {
                Some(outcome) => (outcome, Recorded::Allowed),
                None => {
                    // Denied to the agent, so its grants are revoked.
                    operating
                        .session
                        .host
                        .approvals
                        .revoke_call_grants(operating.session.name(), &superseded);
                    let is_always =
                        choose_outcome(&request.options, PermissionDecision::Allow(ChoiceLifetime::Always))
                            .is_ok();
                    let why = if is_always { ONLY_ALLOW_ALWAYS } else { NO_ALLOW_OPTION };
                    operating.entry_mut().reason = Some(why.to_owned());
                    (deny_outcome(&request.options), Recorded::Denied)
                }
            },
            // The request itself was cancelled: its answer is an error, as for every other request.
            Err(RpcError::Cancelled) if cancelled_here => {
                return Err(operating.record_failure(RpcError::Cancelled));
            }
            Err(RpcError::Cancelled) => (RequestPermissionOutcome::Cancelled, Recorded::Cancelled),
            Err(busy @ RpcError::Busy { .. }) => return Err(operating.record_failure(busy.clone())),
            Err(failure) => {
                operating.entry_mut().reason = Some(failure.to_string());
                let outcome =
                    chosen.and_then(|id| find_chosen_option(&request.options, &id, AnswerChoice::Deny));
                (outcome.unwrap_or_else(|| deny_outcome(&request.options)), Recorded::Denied)
            }
        };
        operating.record(recorded)?;
        let response = RequestPermissionResponse::new(outcome);
        Ok(match cleared {
            Err(RpcError::Denied { reason: why }) => response.meta(reason_meta(why)),
            _ => response,
        })
    })
    .await?
}

/// Prepares the operation and the approval request for a tool call. Earlier grants of the call are revoked.
pub(super) async fn prepare_request(
    held: Arc<SessionInner>,
    agent: Option<String>,
    call: ToolCallView,
    options: &[PermissionOption],
) -> Result<(AuditedOperation, ApprovalRequest), RpcError> {
    let call_id = call.id.0.to_string();
    held.host.approvals.revoke_call_grants(held.name(), &call_id);
    let mut operating = AuditedOperation::new(held.clone(), AuditAction::Permission, Some(call_id.clone()))
        .with_subject(AuditSubject::Text(call.title.to_string()));
    let its = held.clone();
    let title = if call.title.is_empty() { "a tool call".to_owned() } else { call.title.to_string() };
    let place = held
        .host
        .description_permits
        .acquire()
        .await
        .map_err(|closed| RpcError::Internal { reason: closed.to_string() })?;
    let CallDescription { items, resolved_operations: deeds, warnings } =
        run_blocking(move || describe_tool_call(&its, &call)).await?;
    drop(place);
    if let [item] = items.as_slice() {
        operating.entry_mut().subject = AuditSubject::from(&item.operation.target);
    }
    let request = ApprovalRequest {
        holder: operating.holder(),
        call: Some(call_id),
        agent,
        trigger: QuestionTrigger::PermissionRequest,
        title,
        items,
        warnings: warnings.into_iter().chain(missing_option_warning(options)).collect(),
        agent_options: AgentOption::from_options(options),
        resolved_operations: deeds,
    };
    Ok((operating, request))
}

/// Returns the outcome that allows the call once. Longer lifetimes are remembered here, not by the agent, whose idea of
/// *always* may be wider. If the agent offers only *always*, it is chosen if the user, warned of it, has agreed, or if
/// the preset is `full`, which allows everything anyway. Blocks on the disk.
pub(super) fn allow_outcome(
    held: &SessionInner,
    options: &[PermissionOption],
    cleared: &OperationApproval,
) -> Option<RequestPermissionOutcome> {
    if let OperationApproval::Person { option: Some(id), .. } = cleared {
        return find_chosen_option(options, id, AnswerChoice::Allow);
    }
    choose_outcome(options, PermissionDecision::Allow(ChoiceLifetime::Once)).ok().or_else(|| {
        let is_full = || held.host.approvals.policy().is_ok_and(|policy| policy.preset == Preset::Full);
        let may_last = matches!(cleared, OperationApproval::Person { .. }) || is_full();
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
    let offer = AgentOption::from_options(options)
        .into_iter()
        .find(|offer| offer.id == *id && offer.choice == choice)?;
    Some(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(offer.id)))
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
pub(super) fn reason_meta(why: String) -> Meta {
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), serde_json::json!({ "reason": why }));
    meta
}

/// The operations of a tool call, as far as it describes them.
struct CallDescription {
    /// The operations, for rules and the user.
    items: Vec<QuestionItem>,
    /// The operations that can be granted until they are carried out.
    resolved_operations: Vec<ResolvedOperation>,
    /// Warnings for the user: where the call's claims are wrong, and its side effects.
    warnings: Vec<String>,
}

/// Describes the operations of a tool call. Blocks on the disk.
fn describe_tool_call(held: &SessionInner, call: &ToolCallView) -> CallDescription {
    let mut wrong: Vec<String> = Vec::new();
    let mut drops_privileges = false;
    let mut items = Vec::new();
    let mut deeds = Vec::new();
    let mut room = MAX_TEXTS;
    for claim in extract_claims(call) {
        match claim {
            ToolCallClaim::Read { path } => {
                let (item, deed) =
                    describe_file_operation(held, OperationKind::Read, to_absolute(held, path));
                items.push(item);
                deeds.extend(deed);
            }
            ToolCallClaim::Delete { path } => {
                let (item, deed) =
                    describe_file_operation(held, OperationKind::Delete, to_absolute(held, path));
                items.push(item);
                deeds.extend(deed);
            }
            ToolCallClaim::Write { path, text } => {
                let written = plan_write(held, to_absolute(held, path.clone()), text, &mut room);
                items.push(written.item);
                deeds.extend(written.resolved_operation);
                drops_privileges |= written.drops_privileges;
                if written.is_mismatched {
                    wrong.push(path);
                }
            }
            ToolCallClaim::Run { invocation, cwd } => {
                let (item, deed) = describe_command(held, invocation, cwd);
                items.push(item);
                deeds.push(deed);
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
    let wrong = match wrong.as_slice() {
        [] => None,
        [path] => {
            Some(format!("{path} does not have the text that would be replaced, or has it more than once"))
        }
        [path, rest @ ..] => Some(format!(
            "{path} and {} others do not have the text that would be replaced, or have it more than once",
            rest.len()
        )),
    };
    let dropped = drops_privileges.then(|| WILL_DROP_PRIVILEGES.to_owned());
    CallDescription {
        items,
        resolved_operations: deeds,
        warnings: wrong.into_iter().chain(dropped).collect(),
    }
}

/// Returns the absolute path of a tool's input, which may be relative to the session's directory. Only the tool can
/// expand `~`.
fn to_absolute(held: &SessionInner, path: String) -> String {
    if path.is_empty() || path.starts_with(['/', '~']) {
        return path;
    }
    format!("{}/{path}", held.files.roots().cwd())
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
    held: &SessionInner,
    kind: OperationKind,
    path: String,
) -> (QuestionItem, Option<ResolvedOperation>) {
    match held.files.admit(&path, required_access(kind)) {
        Ok(admitted) => {
            let (path, file) = (admitted.canonical().to_owned(), admitted.file_id());
            let deed = match kind {
                OperationKind::Read => Some(ResolvedOperation::Read { path, file }),
                OperationKind::Delete => Some(ResolvedOperation::Delete { path, file }),
                _ => None,
            };
            (QuestionItem::new(admitted.operation(kind)), deed)
        }
        Err(_) => (
            QuestionItem::new(Operation { kind, target: OperationTarget::OutsideRoots { requested: path } }),
            None,
        ),
    }
}

/// Describes a write with its result, bound to it; or, if the result cannot be determined, as the agent shows it.
pub(super) fn plan_write(
    held: &SessionInner,
    path: String,
    text: Option<TextReplacement>,
    room: &mut usize,
) -> PlannedWrite {
    let (item, _) = describe_file_operation(held, OperationKind::Write, path.clone());
    let Some(text) = text else {
        return PlannedWrite {
            item,
            resolved_operation: None,
            is_mismatched: false,
            drops_privileges: false,
        };
    };
    // The file's actual content, not the agent's version of it.
    let current = held.files.preview_write(&path, &text.new).ok().map(|preview| preview.before);
    let is_known = current.is_some();
    let whole = current.and_then(|before| text.apply_to(before.as_deref().map(String::as_str)));
    let is_wrong = is_known && whole.is_none();
    let shown = whole.and_then(|whole| Some((held.files.preview_write(&path, &whole).ok()?, whole)));
    let Some((preview, whole)) = shown else {
        let bytes = text.new.len() + text.old.as_ref().map_or(0, String::len);
        let change = TextChange { before: text.old.map(Arc::new), after: Arc::new(text.new) };
        let item = QuestionItem { change: take_budget(room, bytes).then_some(change), ..item };
        return PlannedWrite {
            item,
            resolved_operation: None,
            is_mismatched: is_wrong,
            drops_privileges: false,
        };
    };
    let drops_privileges = preview.drops_privileges;
    let bytes = preview.after.len() + preview.before.as_ref().map_or(0, |before| before.len());
    if !take_budget(room, bytes) {
        return PlannedWrite { item, resolved_operation: None, is_mismatched: is_wrong, drops_privileges };
    }
    let deed = Some(resolve_write(&preview, &whole));
    PlannedWrite {
        item: write_item(&path, &preview),
        resolved_operation: deed,
        is_mismatched: is_wrong,
        drops_privileges,
    }
}

/// Takes bytes from the text budget of a question, if enough are left.
fn take_budget(room: &mut usize, bytes: usize) -> bool {
    let fits = bytes <= *room;
    *room -= if fits { bytes } else { 0 };
    fits
}

fn describe_command(
    held: &SessionInner,
    invocation: Invocation,
    cwd: Option<String>,
) -> (QuestionItem, ResolvedOperation) {
    let asked = cwd.unwrap_or_else(|| held.files.roots().cwd().to_owned());
    // An unusable directory is shown as named; the command itself is refused later.
    let cwd = held.files.working_directory(&asked).map_or(asked, |directory| directory.path);
    let deed = ResolvedOperation::Run {
        invocation: canonical_invocation_in(&invocation, &cwd),
        cwd: cwd.clone(),
        env: Vec::new(),
    };
    let command = resolve_command(&held.files, invocation, cwd, Vec::new());
    (
        QuestionItem::new(Operation {
            kind: OperationKind::Execute,
            target: OperationTarget::Command(command),
        }),
        deed,
    )
}
