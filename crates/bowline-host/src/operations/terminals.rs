//! Commands of an agent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bowline_access::approvals::{ApprovalRequest, OperationApproval};
use bowline_history::changes::ChangeOrigin;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry, AuditSubject};
use bowline_policy::claims::find_call_for_operation;
use bowline_policy::grants::ResolvedOperation;
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_policy::policy::{Effect, EnvironmentRisk, assess_variable, canonical_invocation_in};
use bowline_policy::question::{Question, QuestionItem};
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
use bowline_workspace::terminals::CommandRequest;
use bowline_workspace::workspace::WorkingDirectory;

use super::{
    AuditedOperation, OperationContext, authorize_operation, run_blocking, scan_before_command, scan_changes,
};
use crate::front_end::HostEvent;
use crate::host::HostInner;
use crate::session::SessionInner;
use bowline_storage::clock::now;

/// Serves `terminal/create`.
pub(crate) async fn create(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: CreateTerminalRequest,
    cx: ClientContext,
) -> Result<CreateTerminalResponse, RpcError> {
    let call = find_call_for_operation(&session.snapshot(), None);
    let request = CommandRequest {
        command: request.command,
        args: request.args,
        env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        cwd: request.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        output_limit: request.output_byte_limit,
    };
    let context =
        OperationContext { agent, call, cancel: cx.cancel_signal().clone(), missing_file_quirk: None };
    start(session, context, request).await.map(CreateTerminalResponse::new)
}

/// Starts a command, authorized and recorded.
pub(crate) async fn start(
    session: Arc<SessionInner>,
    context: OperationContext,
    request: CommandRequest,
) -> Result<TerminalId, RpcError> {
    let OperationContext { agent, call, cancel, .. } = context;
    let mut audited = AuditedOperation::new(session.clone(), AuditAction::TerminalCreate, call.clone())
        .with_subject(AuditSubject::Text(display::escape_line(&request.command, 4096)));
    let owned_cancel = cancel.clone();
    // If the rules alone decide, the command is prepared, evaluated and recorded in one blocking call.
    let (audited, prepared, operation) = run_blocking(move || {
        let prepared = match audited.session.terminals.prepare(request) {
            Ok(prepared) => prepared,
            Err(error) => return Err(audited.record_failure(error.into())),
        };
        let target = OperationTarget::Command(prepared.command());
        audited.entry_mut().subject = AuditSubject::from(&target);
        let operation = Operation { kind: OperationKind::Execute, target };
        match audited.session.host.approvals.judge(&audited.holder(), &operation) {
            Ok(ruling) if ruling.effect == Effect::Allow && !owned_cancel.is_fired() => {
                audited.entry_mut().decided_by = OperationApproval::from_ruling(&ruling).decision_source();
                record_start(&mut audited, &prepared.directory)?;
                Ok((audited, prepared, None))
            }
            // Denials and policy errors are handled in one place, below.
            _ => Ok((audited, prepared, Some(operation))),
        }
    })
    .await??;
    let command = prepared.command();
    let (mut audited, prepared) = match operation {
        None => (audited, prepared),
        Some(operation) => {
            let mut audited = audited;
            let title =
                format!("run {}", bowline_protocol::terminal::format_typed_command(&command.invocation));
            let items = vec![QuestionItem::new(operation)];
            let question = Question { call, agent, ..Question::new(audited.holder(), title, items) };
            let request = ApprovalRequest { question, resolved_operations: vec![resolve_run(&command)] };
            let approval = authorize_operation(&mut audited, &request, &cancel).await;
            run_blocking(move || match approval {
                Ok(_) => {
                    record_start(&mut audited, &prepared.directory)?;
                    Ok((audited, prepared))
                }
                Err(failure) => Err(audited.record_failure(failure)),
            })
            .await??
        }
    };
    scan_before_command(&session.host).await;
    let running = UnscannedCommandGuard::new(&session);
    match session.terminals.start(prepared).await {
        Ok(id) => {
            session.track_command(audited.holder().turn, id.clone());
            if audited.check_active().is_err() {
                // The turn was cancelled while the command started, after the turn's commands were killed.
                session.terminals.kill(&id).await.ok();
            }
            session.show(HostEvent::TerminalStarted {
                session: &session.id,
                terminal: &id,
                command: &command,
                terminals: &session.terminals,
            });
            let exit = session.terminals.wait_detached(&id);
            let completion = CommandCompletion::new(&session, id.clone(), &command, &mut audited);
            let scan_guard = session.pending_scans.add(id.clone());
            bowline_task::spawn(async move {
                // Variables drop in reverse order: a caller woken by the end of the scan finds the command no longer
                // counted.
                let (_scan_guard, _running) = (scan_guard, running);
                // A released terminal has been killed, and the release records its end.
                if let Ok(exit) = exit.await {
                    completion.record_exit(exit).await;
                }
            });
            Ok(id)
        }
        Err(error) => run_blocking(move || Err(audited.record_failure(error.into()))).await?,
    }
}

/// Records that an approved command starts, unless its turn has ended or its directory has moved meanwhile.
fn record_start(audited: &mut AuditedOperation, directory: &WorkingDirectory) -> Result<(), RpcError> {
    // The approval covers that directory at its path.
    let is_current = || audited.session.files.is_current_directory(directory);
    let moved = || RpcError::InvalidParams {
        reason: format!("{} is another directory by now: ask again", quote(&directory.path)),
    };
    match audited.check_active().and_then(|()| if is_current() { Ok(()) } else { Err(moved()) }) {
        Ok(()) => audited.record(AuditDecision::Allowed),
        Err(failure) => Err(audited.record_failure(failure)),
    }
}

/// Counts a command until its changes have been scanned.
struct UnscannedCommandGuard {
    host: Arc<HostInner>,
    session_count: Arc<AtomicUsize>,
}

impl UnscannedCommandGuard {
    fn new(session: &SessionInner) -> Self {
        let (host, session_count) = (session.host.clone(), session.unscanned_commands.clone());
        host.unscanned_commands.fetch_add(1, Ordering::Relaxed);
        session_count.fetch_add(1, Ordering::Relaxed);
        Self { host, session_count }
    }
}

impl Drop for UnscannedCommandGuard {
    fn drop(&mut self) {
        self.session_count.fetch_sub(1, Ordering::Relaxed);
        self.host.unscanned_commands.fetch_sub(1, Ordering::Relaxed);
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
        session: &Arc<SessionInner>,
        terminal: TerminalId,
        command: &CommandSpec,
        audited: &mut AuditedOperation,
    ) -> Self {
        let (mut origin, entry) = (audited.origin(), audited.entry_mut().clone());
        origin.command = Some(display::escape_line(
            &bowline_protocol::terminal::format_invocation(&command.invocation),
            4096,
        ));
        Self {
            shared: session.host.clone(),
            session: Arc::downgrade(session),
            session_id: session.id.clone(),
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
        if let Some(session) = self.session.upgrade() {
            origin.turn = session.holder(session.turn_status()).turn;
        }
        let observed = scan_changes(&shared, origin).await;
        (entry.at, entry.action, entry.decision) = (now(), AuditAction::TerminalExit, AuditDecision::Allowed);
        entry.exit = Some(exit.to_string());
        entry.latency_us = Some(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX));
        let recorded = shared.approvals.submit(entry).wait().await;
        let failed = match (&observed, recorded) {
            (Err(error), _) => Some(error.to_string()),
            (_, Err(error)) => Some(error.to_string()),
            (Ok(_), Ok(_)) => None,
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
    session: Arc<SessionInner>,
    request: TerminalOutputRequest,
) -> Result<TerminalOutputResponse, RpcError> {
    let snapshot = session.terminals.output(&request.terminal_id).await?;
    let exit = snapshot.exit.as_ref().map(Into::into);
    Ok(TerminalOutputResponse::new(snapshot.text, snapshot.truncated).exit_status(exit))
}

/// Serves `terminal/wait_for_exit`.
pub(crate) async fn wait(
    session: Arc<SessionInner>,
    request: WaitForTerminalExitRequest,
    cx: ClientContext,
) -> Result<WaitForTerminalExitResponse, RpcError> {
    tokio::select! {
        biased;
        () = cx.cancelled() => Err(RpcError::Cancelled),
        exit = session.terminals.wait(&request.terminal_id) => Ok(WaitForTerminalExitResponse::new((&exit?).into())),
    }
}

/// Serves `terminal/kill`.
pub(crate) async fn kill(
    session: Arc<SessionInner>,
    request: KillTerminalRequest,
) -> Result<KillTerminalResponse, RpcError> {
    kill_terminal(session, &request.terminal_id).await.map(|()| KillTerminalResponse::new())
}

/// Kills a command.
pub(crate) async fn kill_terminal(session: Arc<SessionInner>, id: &TerminalId) -> Result<(), RpcError> {
    let outcome = session.terminals.kill(id).await.map_err(RpcError::from);
    record_outcome(session, AuditAction::TerminalKill, id, outcome).await
}

/// Serves `terminal/release`.
pub(crate) async fn release(
    session: Arc<SessionInner>,
    request: ReleaseTerminalRequest,
) -> Result<ReleaseTerminalResponse, RpcError> {
    release_terminal(session, &request.terminal_id).await.map(|()| ReleaseTerminalResponse::new())
}

/// Kills a command and releases its terminal.
pub(crate) async fn release_terminal(session: Arc<SessionInner>, id: &TerminalId) -> Result<(), RpcError> {
    let outcome = session.terminals.release(id).await.map_err(RpcError::from);
    record_outcome(session, AuditAction::TerminalRelease, id, outcome).await
}

async fn record_outcome(
    session: Arc<SessionInner>,
    action: AuditAction,
    id: &TerminalId,
    outcome: Result<(), RpcError>,
) -> Result<(), RpcError> {
    let mut audited =
        AuditedOperation::new(session, action, None).with_subject(AuditSubject::Text(id.0.to_string()));
    match outcome {
        Ok(()) => audited.submit(AuditDecision::Allowed).wait().await,
        Err(failure) => run_blocking(move || Err(audited.record_failure(failure))).await?,
    }
}
