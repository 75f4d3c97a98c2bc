//! Authorization of operations that another client carries out, by the same rules and with the same log.

use std::sync::Arc;

use bowline_policy::audit::{AuditAction, AuditDecision, AuditSubject, DecisionSource};
use bowline_policy::claims::TextReplacement;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::question::{QuestionItem, QuestionTrigger};
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::relayed_operation::RelayedOperation;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{PermissionOption, RequestPermissionResponse};
use bowline_protocol::terminal;
use bowline_text::display;
use bowline_workspace::approvals::ApprovalRequest;
use bowline_workspace::terminals::resolve_command;

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
    held: Arc<SessionInner>,
    asking: OperationContext,
    call: ToolCallView,
    options: Vec<PermissionOption>,
) -> Result<RelayedRuling, RpcError> {
    let (mut operating, request) = prepare_request(held.clone(), asking.agent, call, &options).await?;
    let Some(decided) = held.host.approvals.decide_by_rules(&request).await else {
        return Ok(RelayedRuling::AskUser(Box::new((operating, request))));
    };
    run_blocking(move || match decided {
        Ok(cleared) => {
            let Some(outcome) = allow_outcome(&held, &options, &cleared) else {
                // The agent does not offer to allow once, and the rules grant no more: the user may.
                return Ok(RelayedRuling::AskUser(Box::new((operating, request))));
            };
            operating.entry_mut().decided_by = cleared.decision_source();
            operating.record(AuditDecision::Allowed)?;
            Ok(RelayedRuling::Decided(RequestPermissionResponse::new(outcome)))
        }
        Err(refused) => {
            operating.entry_mut().decided_by = refused.decision_source();
            report_denial(&mut operating, &request.title);
            let failure = operating.record_failure(refused.into());
            let response = RequestPermissionResponse::new(deny_outcome(&options));
            Ok(RelayedRuling::Decided(match failure {
                RpcError::Denied { reason: why } => response.meta(reason_meta(why)),
                failure => response.meta(reason_meta(failure.to_string())),
            }))
        }
    })
    .await?
}

/// Authorizes an operation that another client will carry out. Asks the user where the rules require it.
pub(crate) async fn authorize_relayed(
    held: Arc<SessionInner>,
    asking: OperationContext,
    act: RelayedOperation,
) -> Result<(), RpcError> {
    let OperationContext { agent, call, cancel, .. } = asking;
    let (action, title) = match &act {
        RelayedOperation::Read { path } => (AuditAction::Read, format!("read {path}")),
        RelayedOperation::Write { path, .. } => (AuditAction::Write, format!("write {path}")),
        RelayedOperation::Run(asked) => {
            (AuditAction::TerminalCreate, format!("run {}", display::escape_line(&asked.command, 4096)))
        }
    };
    let mut operating = AuditedOperation::new(held.clone(), action, call.clone())
        .with_subject(AuditSubject::Text(title.clone()));
    let its = held.clone();
    let (item, deeds) = match run_blocking(move || describe_relayed(&its, act)).await? {
        Ok(described) => described,
        Err(failure) => return run_blocking(move || Err(operating.record_failure(failure))).await?,
    };
    operating.entry_mut().subject = AuditSubject::from(&item.operation.target);
    let request = ApprovalRequest {
        holder: operating.holder(),
        call,
        agent,
        trigger: QuestionTrigger::UnrequestedOperation,
        title,
        items: vec![item],
        warnings: Vec::new(),
        agent_options: Vec::new(),
        resolved_operations: deeds,
    };
    let cleared = authorize_operation(&mut operating, &request, &cancel).await;
    run_blocking(move || match cleared.and_then(|_| operating.check_active()) {
        Ok(()) => operating.record(AuditDecision::Allowed),
        Err(failure) => {
            report_denial(&mut operating, &request.title);
            Err(operating.record_failure(failure))
        }
    })
    .await?
}

/// Describes the operation for rules and the user, and resolves it. Blocks on the disk.
fn describe_relayed(
    held: &SessionInner,
    act: RelayedOperation,
) -> Result<(QuestionItem, Vec<bowline_policy::grants::ResolvedOperation>), RpcError> {
    match act {
        RelayedOperation::Read { path } => {
            let (item, deed) = describe_file_operation(held, OperationKind::Read, path);
            Ok((item, deed.into_iter().collect()))
        }
        RelayedOperation::Write { path, content } => {
            let text = TextReplacement { old: None, new: content };
            let PlannedWrite { item, resolved_operation: deed, .. } =
                plan_write(held, path, Some(text), &mut { MAX_TEXT });
            Ok((item, deed.into_iter().collect()))
        }
        RelayedOperation::Run(asked) => {
            let invocation = terminal::parse_invocation(&asked.command, &asked.args)
                .map_err(|why| RpcError::InvalidParams { reason: why.to_string() })?;
            let cwd = asked.cwd.unwrap_or_else(|| held.files.roots().cwd().to_owned());
            // A directory outside the workspace is evaluated as named.
            let cwd = held.files.working_directory(&cwd).map_or(cwd, |directory| directory.path);
            let command = resolve_command(&held.files, invocation, cwd, asked.env);
            let deeds = vec![resolve_run(&command)];
            let operation =
                Operation { kind: OperationKind::Execute, target: OperationTarget::Command(command) };
            Ok((QuestionItem::new(operation), deeds))
        }
    }
}

/// Shows the user which rule denied an operation. The agent does not learn it.
fn report_denial(operating: &mut AuditedOperation, title: &str) {
    let why = match &operating.entry_mut().decided_by {
        DecisionSource::Rule(rule) => format!("by the rule {rule}"),
        DecisionSource::Preset(preset) => format!("by the preset {preset}"),
        _ => return,
    };
    let title = display::escape_line(title, 200);
    let text = format!(
        "denied {title}, {why}: `bowline policy show` lists the rules, and `bowline policy --help` says how to change them"
    );
    operating.session.show(HostEvent::Notice { text: &text });
}
