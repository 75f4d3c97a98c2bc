//! Commands of an agent.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bowline_history::changes::ChangeOrigin;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry, AuditSubject};
use bowline_policy::claims::find_call_for_operation;
use bowline_policy::grants::ResolvedOperation;
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_policy::policy::{EnvironmentRisk, assess_variable, canonical_invocation_in};
use bowline_policy::question::{QuestionItem, QuestionTrigger};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CreateTerminalRequest, CreateTerminalResponse, KillTerminalRequest, KillTerminalResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, SessionId, TerminalId, TerminalOutputRequest,
    TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
use bowline_protocol::terminal::CommandExit;
use bowline_text::display;
use bowline_text::display::quote;
use bowline_wire::ClientContext;
use bowline_workspace::approvals::ApprovalRequest;
use bowline_workspace::terminals::CommandRequest;

use super::{
    AuditedOperation, OperationContext, authorize_operation, run_blocking, scan_before_command, scan_changes,
};
use crate::front_end::HostEvent;
use crate::host::HostInner;
use crate::session::SessionInner;
use bowline_workspace::clock::now;

/// Serves `terminal/create`.
pub(crate) async fn create(
    held: Arc<SessionInner>,
    agent: Option<String>,
    request: CreateTerminalRequest,
    cx: ClientContext,
) -> Result<CreateTerminalResponse, RpcError> {
    let call = find_call_for_operation(&held.snapshot(), None);
    let asked = CommandRequest {
        command: request.command,
        args: request.args,
        env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        cwd: request.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        output_limit: request.output_byte_limit,
    };
    let asking =
        OperationContext { agent, call, cancel: cx.cancel_signal().clone(), missing_file_quirk: None };
    start(held, asking, asked).await.map(CreateTerminalResponse::new)
}

/// Starts a command, authorized and recorded.
pub(crate) async fn start(
    held: Arc<SessionInner>,
    asking: OperationContext,
    asked: CommandRequest,
) -> Result<TerminalId, RpcError> {
    let OperationContext { agent, call, cancel, .. } = asking;
    let mut operating = AuditedOperation::new(held.clone(), AuditAction::TerminalCreate, call.clone())
        .with_subject(AuditSubject::Text(display::escape_line(&asked.command, 4096)));
    let its = held.clone();
    let prepared = run_blocking(move || its.terminals.prepare(asked)).await?;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return run_blocking(move || Err(operating.record_failure(error.into()))).await?,
    };
    let command = prepared.command();
    let operation =
        Operation { kind: OperationKind::Execute, target: OperationTarget::Command(command.clone()) };
    operating.entry_mut().subject = AuditSubject::from(&operation.target);
    let request = ApprovalRequest {
        holder: operating.holder(),
        call,
        agent,
        trigger: QuestionTrigger::UnrequestedOperation,
        title: format!("run {}", bowline_protocol::terminal::format_typed_command(&command.invocation)),
        items: vec![QuestionItem::new(operation)],
        warnings: Vec::new(),
        agent_options: Vec::new(),
        resolved_operations: vec![resolve_run(&command)],
    };
    let cleared = authorize_operation(&mut operating, &request, &cancel).await;
    let (mut operating, prepared) = run_blocking(move || {
        let wanted = cleared.and_then(|_| operating.check_active());
        // The approval covers that directory at its path.
        let is_there = || operating.session.files.is_current_directory(&prepared.directory);
        let moved = || RpcError::InvalidParams {
            reason: format!("{} is another directory by now: ask again", quote(&prepared.directory.path)),
        };
        if let Err(failure) = wanted.and_then(|()| if is_there() { Ok(()) } else { Err(moved()) }) {
            return Err(operating.record_failure(failure));
        }
        operating.record(AuditDecision::Allowed)?;
        Ok((operating, prepared))
    })
    .await??;
    scan_before_command(&held.host).await;
    let running = UnscannedCommandGuard::new(&held.host);
    match held.terminals.start(prepared).await {
        Ok(id) => {
            held.track_command(operating.holder().turn, id.clone());
            if operating.check_active().is_err() {
                // The turn was cancelled while the command started, after the turn's commands were killed.
                held.terminals.kill(&id).await.ok();
            }
            held.show(HostEvent::TerminalStarted {
                session: &held.id,
                terminal: &id,
                command: &command,
                terminals: &held.terminals,
            });
            let exit = held.terminals.wait_detached(&id);
            let following = CommandCompletion::new(&held, id.clone(), &command, &mut operating);
            let looking = held.pending_scans.add(id.clone());
            tokio::spawn(async move {
                // Variables drop in reverse order: a caller woken by the end of the scan finds the command no longer
                // counted.
                let (_looking, _running) = (looking, running);
                // A released terminal has been killed, and the release records its end.
                if let Ok(exit) = exit.await {
                    following.record_exit(exit).await;
                }
            });
            Ok(id)
        }
        Err(error) => run_blocking(move || Err(operating.record_failure(error.into()))).await?,
    }
}

/// Counts a command until its changes have been scanned.
struct UnscannedCommandGuard(Arc<HostInner>);

impl UnscannedCommandGuard {
    fn new(shared: &Arc<HostInner>) -> Self {
        shared.unscanned_commands.fetch_add(1, Ordering::Relaxed);
        Self(shared.clone())
    }
}

impl Drop for UnscannedCommandGuard {
    fn drop(&mut self) {
        self.0.unscanned_commands.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a command as a resolved operation. The default environment and harmless variables are left out.
pub(super) fn resolve_run(command: &CommandSpec) -> ResolvedOperation {
    let harmful =
        |(name, value): &&(String, String)| assess_variable(name, value) != EnvironmentRisk::Harmless;
    ResolvedOperation::Run {
        invocation: canonical_invocation_in(&command.invocation, &command.cwd),
        cwd: command.cwd.clone(),
        env: command.env.iter().filter(harmful).cloned().collect(),
    }
}

/// The data for the end of a command. It does not hold the session, because dropping the session must end the command.
struct CommandCompletion {
    shared: Arc<HostInner>,
    session: Weak<SessionInner>,
    session_id: SessionId,
    terminal: TerminalId,
    origin: ChangeOrigin,
    entry: AuditEntry,
    started: Instant,
}

impl CommandCompletion {
    fn new(
        held: &Arc<SessionInner>,
        terminal: TerminalId,
        command: &CommandSpec,
        operating: &mut AuditedOperation,
    ) -> Self {
        let (mut origin, entry) = (operating.origin(), operating.entry_mut().clone());
        origin.command = Some(display::escape_line(
            &bowline_protocol::terminal::format_invocation(&command.invocation),
            4096,
        ));
        Self {
            shared: held.host.clone(),
            session: Arc::downgrade(held),
            session_id: held.id.clone(),
            terminal,
            origin,
            entry,
            started: Instant::now(),
        }
    }

    /// Records the exit of the command, and scans for its changes.
    async fn record_exit(self, exit: CommandExit) {
        let Self { shared, session_id: session, terminal, mut origin, mut entry, .. } = self;
        // The changes are attributed to the turn in progress by now.
        if let Some(held) = self.session.upgrade() {
            origin.turn = held.holder(held.turn_status()).turn;
        }
        let observed = scan_changes(&shared, origin).await;
        (entry.at, entry.action, entry.decision) = (now(), AuditAction::TerminalExit, AuditDecision::Allowed);
        entry.exit = Some(exit.to_string());
        entry.latency_us = Some(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX));
        let log = shared.clone();
        let recorded = run_blocking(move || log.approvals.record(&entry)).await;
        let failed = match (&observed, recorded) {
            (Err(error), _) => Some(error.to_string()),
            (_, Err(error)) => Some(error.to_string()),
            (_, Ok(Err(error))) => Some(error.to_string()),
            (Ok(_), Ok(Ok(()))) => None,
        };
        if let Some(text) = failed {
            shared.front_end.show(HostEvent::Notice { text: &text });
        }
        let observed = observed.unwrap_or_default();
        let (session, terminal) = (&session, &terminal);
        shared.front_end.show(HostEvent::TerminalEnded {
            session,
            terminal,
            exit: &exit,
            observed: &observed,
        });
    }
}

/// Serves `terminal/output`.
pub(crate) async fn output(
    held: Arc<SessionInner>,
    request: TerminalOutputRequest,
) -> Result<TerminalOutputResponse, RpcError> {
    let shown = held.terminals.output(&request.terminal_id).await?;
    let exit = shown.exit.as_ref().map(Into::into);
    Ok(TerminalOutputResponse::new(shown.text, shown.truncated).exit_status(exit))
}

/// Serves `terminal/wait_for_exit`.
pub(crate) async fn wait(
    held: Arc<SessionInner>,
    request: WaitForTerminalExitRequest,
    cx: ClientContext,
) -> Result<WaitForTerminalExitResponse, RpcError> {
    tokio::select! {
        biased;
        () = cx.cancelled() => Err(RpcError::Cancelled),
        exit = held.terminals.wait(&request.terminal_id) => Ok(WaitForTerminalExitResponse::new((&exit?).into())),
    }
}

/// Serves `terminal/kill`.
pub(crate) async fn kill(
    held: Arc<SessionInner>,
    request: KillTerminalRequest,
) -> Result<KillTerminalResponse, RpcError> {
    kill_terminal(held, &request.terminal_id).await.map(|()| KillTerminalResponse::new())
}

/// Kills a command.
pub(crate) async fn kill_terminal(held: Arc<SessionInner>, id: &TerminalId) -> Result<(), RpcError> {
    let outcome = held.terminals.kill(id).await.map_err(RpcError::from);
    record_outcome(held, AuditAction::TerminalKill, id, outcome).await
}

/// Serves `terminal/release`.
pub(crate) async fn release(
    held: Arc<SessionInner>,
    request: ReleaseTerminalRequest,
) -> Result<ReleaseTerminalResponse, RpcError> {
    release_terminal(held, &request.terminal_id).await.map(|()| ReleaseTerminalResponse::new())
}

/// Kills a command and releases its terminal.
pub(crate) async fn release_terminal(held: Arc<SessionInner>, id: &TerminalId) -> Result<(), RpcError> {
    let outcome = held.terminals.release(id).await.map_err(RpcError::from);
    record_outcome(held, AuditAction::TerminalRelease, id, outcome).await
}

async fn record_outcome(
    held: Arc<SessionInner>,
    action: AuditAction,
    id: &TerminalId,
    outcome: Result<(), RpcError>,
) -> Result<(), RpcError> {
    let mut operating =
        AuditedOperation::new(held, action, None).with_subject(AuditSubject::Text(id.0.to_string()));
    run_blocking(move || match outcome {
        Ok(()) => operating.record(AuditDecision::Allowed),
        Err(failure) => Err(operating.record_failure(failure)),
    })
    .await?
}
