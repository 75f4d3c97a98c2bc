//! Running commands for an agent.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bowline_state::audit::{Action, Decision, Entry, Subject};
use bowline_state::changes::Origin;
use bowline_state::claims::call_for;
use bowline_state::display;
use bowline_state::failure::{Failure, quote};
use bowline_state::grants::Deed;
use bowline_state::operation::{Command, Kind, Operation, Target};
use bowline_state::policy::{EnvironmentRisk, canonical_in, environment};
use bowline_state::question::{Item, Occasion};
use bowline_state::schema::v1::{
    CreateTerminalRequest, CreateTerminalResponse, KillTerminalRequest, KillTerminalResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, SessionId, TerminalId, TerminalOutputRequest,
    TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
use bowline_state::terminal::Exit;
use bowline_wire::ClientContext;
use bowline_workspace::approvals::Request;
use bowline_workspace::terminals::Asked;

use super::{Asking, Operating, blocking, clear, look_before_command, observe};
use crate::front_end::Event;
use crate::host::Shared;
use crate::session::Held;
use bowline_workspace::clock::now;

/// Serves `terminal/create`.
pub(crate) async fn create(
    held: Arc<Held>,
    agent: Option<String>,
    request: CreateTerminalRequest,
    cx: ClientContext,
) -> Result<CreateTerminalResponse, Failure> {
    let call = call_for(&held.snapshot(), None);
    let asked = Asked {
        command: request.command,
        args: request.args,
        env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        cwd: request.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        output_limit: request.output_byte_limit,
    };
    let asking = Asking { agent, call, cancel: cx.cancel().clone(), missing_file: None };
    start(held, asking, asked).await.map(CreateTerminalResponse::new)
}

/// Runs a command, for whoever asks.
pub(crate) async fn start(held: Arc<Held>, asking: Asking, asked: Asked) -> Result<TerminalId, Failure> {
    let Asking { agent, call, cancel, .. } = asking;
    let mut operating = Operating::new(held.clone(), Action::TerminalCreate, call.clone())
        .on(Subject::Text(display::line(&asked.command, 4096)));
    let its = held.clone();
    let prepared = blocking(move || its.terminals.prepare(asked)).await?;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return blocking(move || Err(operating.fail(error.into()))).await?,
    };
    let command = prepared.command();
    let operation = Operation { kind: Kind::Execute, target: Target::Command(command.clone()) };
    operating.entry().subject = Subject::from(&operation.target);
    let request = Request {
        holder: operating.holder(),
        call,
        agent,
        occasion: Occasion::Act,
        title: format!("run {}", display::typed(&command.invocation)),
        items: vec![Item::plain(operation)],
        warnings: Vec::new(),
        offers: Vec::new(),
        deeds: vec![deed(&command)],
    };
    let cleared = clear(&mut operating, &request, &cancel).await;
    let (mut operating, prepared) = blocking(move || {
        let wanted = cleared.and_then(|_| operating.wanted());
        // What was agreed to is that directory, where it was.
        let is_there = || operating.held.files.leads_to(&prepared.directory);
        let moved = || Failure::InvalidParams {
            reason: format!("{} is another directory by now: ask again", quote(&prepared.directory.path)),
        };
        if let Err(failure) = wanted.and_then(|()| if is_there() { Ok(()) } else { Err(moved()) }) {
            return Err(operating.fail(failure));
        }
        operating.record(Decision::Allowed)?;
        Ok((operating, prepared))
    })
    .await??;
    look_before_command(&held.shared).await;
    let running = Running::new(&held.shared);
    match held.terminals.start(prepared).await {
        Ok(id) => {
            held.runs(operating.holder().turn, id.clone());
            if operating.wanted().is_err() {
                // Its turn was cancelled while it was started, and its commands are killed already.
                held.terminals.kill(&id).await.ok();
            }
            held.show(Event::TerminalStarted {
                session: &held.id,
                terminal: &id,
                command: &command,
                terminals: &held.terminals,
            });
            let exit = held.terminals.exit(&id);
            let following = Following::new(&held, id.clone(), &command, &mut operating);
            let looking = held.followed.add(id.clone());
            tokio::spawn(async move {
                // In this order: who waits for the look finds that the command runs no more.
                let (_looking, _running) = (looking, running);
                // A terminal that was released has been killed; its end is recorded there.
                if let Ok(exit) = exit.await {
                    following.ended(exit).await;
                }
            });
            Ok(id)
        }
        Err(error) => blocking(move || Err(operating.fail(error.into()))).await?,
    }
}

/// Counts a command until what it changed was looked for.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.commands.fetch_add(1, Ordering::Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.commands.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a command bound to all that it does: what every command has in its environment is left out, and so is what
/// does no harm.
pub(super) fn deed(command: &Command) -> Deed {
    let harmful = |(name, value): &&(String, String)| environment(name, value) != EnvironmentRisk::Harmless;
    Deed::Run {
        invocation: canonical_in(&command.invocation, &command.cwd),
        cwd: command.cwd.clone(),
        env: command.env.iter().filter(harmful).cloned().collect(),
    }
}

/// What the end of a command needs. It does not have the session: whoever drops that ends the command.
struct Following {
    shared: Arc<Shared>,
    held: Weak<Held>,
    session: SessionId,
    terminal: TerminalId,
    origin: Origin,
    entry: Entry,
    started: Instant,
}

impl Following {
    fn new(held: &Arc<Held>, terminal: TerminalId, command: &Command, operating: &mut Operating) -> Self {
        let (mut origin, entry) = (operating.origin(), operating.entry().clone());
        origin.command = Some(display::line(&display::invocation(&command.invocation), 4096));
        Self {
            shared: held.shared.clone(),
            held: Arc::downgrade(held),
            session: held.id.clone(),
            terminal,
            origin,
            entry,
            started: Instant::now(),
        }
    }

    /// Records the end of the command, and looks for what it changed.
    async fn ended(self, exit: Exit) {
        let Self { shared, session, terminal, mut origin, mut entry, .. } = self;
        // What it changed is found in the turn that goes on by now.
        if let Some(held) = self.held.upgrade() {
            origin.turn = held.holder(held.now()).turn;
        }
        let observed = observe(&shared, origin).await;
        (entry.at, entry.action, entry.decision) = (now(), Action::TerminalExit, Decision::Allowed);
        entry.exit = Some(exit.to_string());
        entry.latency_us = Some(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX));
        let log = shared.clone();
        let recorded = blocking(move || log.approvals.record(&entry)).await;
        let failed = match (&observed, recorded) {
            (Err(error), _) => Some(error.to_string()),
            (_, Err(error)) => Some(error.to_string()),
            (_, Ok(Err(error))) => Some(error.to_string()),
            (Ok(_), Ok(Ok(()))) => None,
        };
        if let Some(text) = failed {
            shared.front_end.show(Event::Notice { text: &text });
        }
        let observed = observed.unwrap_or_default();
        let (session, terminal) = (&session, &terminal);
        shared.front_end.show(Event::TerminalEnded { session, terminal, exit: &exit, observed: &observed });
    }
}

/// Serves `terminal/output`.
pub(crate) async fn output(
    held: Arc<Held>,
    request: TerminalOutputRequest,
) -> Result<TerminalOutputResponse, Failure> {
    let shown = held.terminals.output(&request.terminal_id).await?;
    let exit = shown.exit.as_ref().map(Into::into);
    Ok(TerminalOutputResponse::new(shown.text, shown.truncated).exit_status(exit))
}

/// Serves `terminal/wait_for_exit`.
pub(crate) async fn wait(
    held: Arc<Held>,
    request: WaitForTerminalExitRequest,
    cx: ClientContext,
) -> Result<WaitForTerminalExitResponse, Failure> {
    tokio::select! {
        biased;
        () = cx.cancelled() => Err(Failure::Cancelled),
        exit = held.terminals.wait(&request.terminal_id) => Ok(WaitForTerminalExitResponse::new((&exit?).into())),
    }
}

/// Serves `terminal/kill`.
pub(crate) async fn kill(
    held: Arc<Held>,
    request: KillTerminalRequest,
) -> Result<KillTerminalResponse, Failure> {
    end(held, &request.terminal_id).await.map(|()| KillTerminalResponse::new())
}

/// Ends a command.
pub(crate) async fn end(held: Arc<Held>, id: &TerminalId) -> Result<(), Failure> {
    let outcome = held.terminals.kill(id).await.map_err(Failure::from);
    recorded(held, Action::TerminalKill, id, outcome).await
}

/// Serves `terminal/release`.
pub(crate) async fn release(
    held: Arc<Held>,
    request: ReleaseTerminalRequest,
) -> Result<ReleaseTerminalResponse, Failure> {
    forget(held, &request.terminal_id).await.map(|()| ReleaseTerminalResponse::new())
}

/// Ends a command and forgets its terminal.
pub(crate) async fn forget(held: Arc<Held>, id: &TerminalId) -> Result<(), Failure> {
    let outcome = held.terminals.release(id).await.map_err(Failure::from);
    recorded(held, Action::TerminalRelease, id, outcome).await
}

async fn recorded(
    held: Arc<Held>,
    action: Action,
    id: &TerminalId,
    outcome: Result<(), Failure>,
) -> Result<(), Failure> {
    let mut operating = Operating::new(held, action, None).on(Subject::Text(id.0.to_string()));
    blocking(move || match outcome {
        Ok(()) => operating.record(Decision::Allowed),
        Err(failure) => Err(operating.fail(failure)),
    })
    .await?
}
