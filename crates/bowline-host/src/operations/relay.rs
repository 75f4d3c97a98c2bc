//! Authorization of operations that another client carries out, by the same rules and with the same log.

use std::sync::Arc;

use bowline_access::approvals::ApprovalRequest;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditSubject, DecisionSource};
use bowline_policy::claims::TextReplacement;
use bowline_policy::grants::ResolvedOperation;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::question::{Question, QuestionItem};
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::file_extension::{FileOperation, WriteCondition};
use bowline_protocol::relay::operation::RelayedOperation;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{PermissionOption, RequestPermissionResponse};
use bowline_protocol::terminal;
use bowline_text::display;
use bowline_workspace::terminals::resolve_command;

use super::file_extension::batch::{describe_operations, show_batch};
use super::permission::{
    PlannedWrite, allow_outcome, deny_outcome, describe_file_operation, plan_write, prepare_request,
    reason_meta,
};
use super::terminals::resolve_run;
use super::{AuditedOperation, OperationContext, authorize_operation, run_blocking};
use crate::front_end::HostEvent;
use crate::session::SessionInner;

/// The maximum size of a text shown in a question.
const MAX_TEXT: usize = 8 << 20;

/// The decision of the rules on a permission request.
pub(crate) enum RelayedRuling {
    /// The rules decide; this is the response.
    Decided(RequestPermissionResponse),
    /// The user decides, asked by the other client.
    AskUser(Box<(AuditedOperation, ApprovalRequest)>),
}

/// Evaluates a permission request that another client would answer.
pub(crate) async fn evaluate_permission(
    session: Arc<SessionInner>,
    context: OperationContext,
    call: ToolCallView,
    options: Vec<PermissionOption>,
) -> Result<RelayedRuling, RpcError> {
    let (mut audited, request) = prepare_request(session.clone(), context.agent, call, &options).await?;
    let Some(ruling) = session.host.approvals.decide_by_rules(&request).await else {
        return Ok(RelayedRuling::AskUser(Box::new((audited, request))));
    };
    run_blocking(move || match ruling {
        Ok(approval) => {
            let Some(outcome) = allow_outcome(&session, &options, &approval) else {
                // The agent does not offer to allow once, and the rules grant no more: the user may.
                return Ok(RelayedRuling::AskUser(Box::new((audited, request))));
            };
            audited.entry_mut().decided_by = approval.decision_source();
            audited.record(AuditDecision::Allowed)?;
            Ok(RelayedRuling::Decided(RequestPermissionResponse::new(outcome)))
        }
        Err(error) => {
            audited.entry_mut().decided_by = error.decision_source();
            report_denial(&mut audited, &request.question.title);
            let failure = audited.record_failure(error.into());
            let response = RequestPermissionResponse::new(deny_outcome(&options));
            Ok(RelayedRuling::Decided(match failure {
                RpcError::Denied { reason } => response.meta(reason_meta(reason)),
                failure => response.meta(reason_meta(failure.to_string())),
            }))
        }
    })
    .await?
}

/// Authorizes an operation that another client will carry out. Asks the user where the rules require it.
pub(crate) async fn authorize_relayed(
    session: Arc<SessionInner>,
    context: OperationContext,
    operation: RelayedOperation,
) -> Result<(), RpcError> {
    let OperationContext { agent, call, cancel, .. } = context;
    let (action, title) = match &operation {
        RelayedOperation::Read { path } => (AuditAction::Read, format!("read {path}")),
        RelayedOperation::Write { path, .. } => (AuditAction::Write, format!("write {path}")),
        RelayedOperation::Files(operations) => (AuditAction::Write, describe_operations(operations)),
        RelayedOperation::Run(command) => {
            (AuditAction::TerminalCreate, format!("run {}", display::escape_line(&command.command, 4096)))
        }
    };
    let mut audited = AuditedOperation::new(session.clone(), action, call.clone())
        .with_subject(AuditSubject::Text(title.clone()));
    let owned_session = session.clone();
    let (items, resolved_operations) =
        match run_blocking(move || describe_relayed(&owned_session, operation)).await? {
            Ok(described) => described,
            Err(failure) => return run_blocking(move || Err(audited.record_failure(failure))).await?,
        };
    let operations: Vec<Operation> = items.iter().map(|item| item.operation.clone()).collect();
    let question = Question { call, agent, ..Question::new(audited.holder(), title, items) };
    let request = ApprovalRequest { question, resolved_operations };
    let approval = authorize_operation(&mut audited, &request, &cancel).await;
    run_blocking(move || match approval.and_then(|_| audited.check_active()) {
        Ok(()) => record_each(&mut audited, &operations, AuditDecision::Allowed),
        Err(failure) => {
            report_denial(&mut audited, &request.question.title);
            let (first, rest) = operations.split_at(operations.len().min(1));
            first.iter().for_each(|operation| set_operation(&mut audited, operation));
            let failure = audited.record_failure(failure);
            let decision = audited.entry_mut().decision.clone();
            record_each(&mut audited, rest, decision)?;
            Err(failure)
        }
    })
    .await?
}

/// Records a decision on several operations, each by itself.
fn record_each(
    audited: &mut AuditedOperation,
    operations: &[Operation],
    decision: AuditDecision,
) -> Result<(), RpcError> {
    operations.iter().try_for_each(|operation| {
        set_operation(audited, operation);
        audited.record(decision.clone())
    })
}

fn set_operation(audited: &mut AuditedOperation, operation: &Operation) {
    let entry = audited.entry_mut();
    entry.subject = AuditSubject::from(&operation.target);
    match operation.kind {
        OperationKind::Read => entry.action = AuditAction::Read,
        OperationKind::Write | OperationKind::Delete => entry.action = AuditAction::Write,
        OperationKind::Execute => entry.action = AuditAction::TerminalCreate,
        OperationKind::Fetch => {}
    }
}

/// Describes the operation for rules and the user, and resolves it. Blocks on the disk.
fn describe_relayed(
    session: &SessionInner,
    operation: RelayedOperation,
) -> Result<(Vec<QuestionItem>, Vec<ResolvedOperation>), RpcError> {
    match operation {
        RelayedOperation::Read { path } => {
            let (item, resolved_operation) = describe_file_operation(session, OperationKind::Read, path);
            Ok((vec![item], resolved_operation.into_iter().collect()))
        }
        RelayedOperation::Write { path, content } => {
            let text = TextReplacement { old: None, new: content };
            let PlannedWrite { item, resolved_operation, .. } =
                plan_write(session, path, Some(text), &mut { MAX_TEXT });
            Ok((vec![item], resolved_operation.into_iter().collect()))
        }
        RelayedOperation::Files(mut operations) => {
            for operation in &mut operations {
                // The other client checks that: the disk may lack its unsaved text.
                if let FileOperation::Write(write) = operation {
                    write.condition = WriteCondition::Unconditional;
                }
            }
            // Not as the session, which has read other texts than the agent.
            let files = session.host.workspace.session_with_roots("", session.files.roots().clone());
            let shown = show_batch(&files, &operations).map_err(|failure| failure.error.to_rpc_error())?;
            Ok((shown.items, shown.resolved_operations))
        }
        RelayedOperation::Run(command) => {
            let invocation = terminal::parse_invocation(&command.command, &command.args)
                .map_err(|error| RpcError::InvalidParams { reason: error.to_string() })?;
            let cwd = command.cwd.unwrap_or_else(|| session.files.roots().cwd().to_owned());
            // A directory outside the workspace is evaluated as named.
            let cwd = session.files.working_directory(&cwd).map_or(cwd, |directory| directory.path);
            let command = resolve_command(session.files.roots(), invocation, cwd, command.env);
            let resolved_operations = vec![resolve_run(&command)];
            let operation =
                Operation { kind: OperationKind::Execute, target: OperationTarget::Command(command) };
            Ok((vec![QuestionItem::new(operation)], resolved_operations))
        }
    }
}

/// Shows the user which rule denied an operation. The agent does not learn it.
fn report_denial(audited: &mut AuditedOperation, title: &str) {
    let reason = match &audited.entry_mut().decided_by {
        DecisionSource::Rule(rule) => format!("by the rule {rule}"),
        DecisionSource::Preset(preset) => format!("by the preset {preset}"),
        _ => return,
    };
    let title = display::escape_line(title, 200);
    let text = format!(
        "denied {title}, {reason}: `bowline policy show` lists the rules, and `bowline policy --help` says how to change them"
    );
    audited.session.show(HostEvent::Notice { text: &text });
}
