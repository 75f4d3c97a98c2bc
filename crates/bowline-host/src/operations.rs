//! Doing what an agent asks, each thing the same way: judged, recorded, done, recorded, answered.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bowline_state::audit::{Action, Decision, Entry, Subject};
use bowline_state::changes::{ChangeId, Origin};
use bowline_state::failure::Failure;
use bowline_state::grants::Holder;
use bowline_state::quirks::Quirk;
use bowline_state::schema::v1::{Error, PermissionOptionId};
use bowline_wire::service::CancelSignal;
use bowline_workspace::approvals::{Cleared, Refused, Request};
use bowline_workspace::audit::{AuditError, Pending};
use bowline_workspace::clock::now;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::Roots;
use tokio::task::spawn_blocking;

use crate::error::HostError;
use crate::front_end::Event;
use crate::host::Shared;
use crate::session::{Held, Turn};

pub(crate) mod elicitation;
pub(crate) mod files;
pub(crate) mod first_look;
pub(crate) mod looking;
pub(crate) mod passing;
pub(crate) mod permission;
pub(crate) mod terminals;

/// Runs something that waits for the disk where that is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HostError> {
    spawn_blocking(act).await.map_err(|ended| HostError::Internal(ended.to_string()))
}

/// Checks that the directories of a session are still where they were opened: an agent that works on the disk by itself would
/// work elsewhere. It takes a microsecond each, so nothing waits for it.
pub(crate) fn verify_roots(roots: &Roots) -> Result<(), HostError> {
    Ok(roots.verify().map_err(FilesError::from)?)
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Workspace(error) => error.into(),
            error => Self::Internal { reason: error.to_string() },
        }
    }
}

/// Who asks for an operation, and whether it is still wanted.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    /// How the agent calls itself.
    pub(crate) agent: Option<String>,
    /// The tool call, if it is known.
    pub(crate) call: Option<String>,
    /// Fires when nobody wants it any more.
    pub(crate) cancel: CancelSignal,
    /// By which the agent is told that a missing file is empty, if it is.
    pub(crate) missing_file: Option<&'static Quirk>,
}

/// One operation of a session on its way, and what is recorded of it.
pub(crate) struct Operating {
    pub(crate) held: Arc<Held>,
    // When it was begun, and so whose it is.
    begun: Turn,
    entry: Entry,
    started: Instant,
    // What was approved is not what it would do by now.
    changed: bool,
    // The agent's own answer that a person chose to say no.
    pub(crate) chosen: Option<PermissionOptionId>,
    // By which the agent is told that a missing file is empty, if it is.
    missing_file: Option<&'static Quirk>,
}

impl Operating {
    pub(crate) fn new(held: Arc<Held>, action: Action, call: Option<String>) -> Self {
        let begun = held.now();
        let holder = held.holder(begun);
        let mut entry = Entry::new(now(), action);
        (entry.session, entry.turn, entry.call) = (Some(holder.session), holder.turn, call);
        Self { held, begun, entry, started: Instant::now(), changed: false, chosen: None, missing_file: None }
    }

    /// Returns whose it is.
    pub(crate) fn holder(&self) -> Holder {
        self.held.holder(self.begun)
    }

    /// Returns who does it, as the journal has it.
    pub(crate) fn origin(&self) -> Origin {
        self.held.files.origin(self.holder().turn, self.entry.call.as_deref())
    }

    /// Checks that it is still wanted, at the moment of acting: an approval does not outlive its turn.
    pub(crate) fn wanted(&self) -> Result<(), Failure> {
        if self.held.is_wanted(self.begun) { Ok(()) } else { Err(Failure::Cancelled) }
    }

    /// Says what it is done to.
    pub(crate) fn on(mut self, subject: Subject) -> Self {
        self.entry.subject = subject;
        self
    }

    /// Says by which quirk the agent is told that a missing file is empty.
    pub(crate) fn with_quirk(mut self, missing_file: Option<&'static Quirk>) -> Self {
        self.missing_file = missing_file;
        self
    }

    /// Returns what the log is to say, for what only the operation knows.
    pub(crate) fn entry(&mut self) -> &mut Entry {
        &mut self.entry
    }

    /// Notes whether it would do something else by now than what was approved.
    pub(crate) fn changed(&mut self, changed: bool) {
        self.changed = changed;
    }

    /// Says whether it would, and forgets it.
    pub(crate) fn changed_meanwhile(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Records what became of it. Waits for the disk.
    pub(crate) fn record(&mut self, decision: Decision) -> Result<(), Failure> {
        self.decide(decision);
        let recorded = self.held.shared.approvals.record(&self.entry);
        recorded.map_err(|error| unrecorded(&self.held, &error))
    }

    /// Submits what became of it to the log: it may be told only once that is recorded.
    pub(crate) fn submit(&mut self, decision: Decision) -> Submitted {
        self.decide(decision);
        let pending = self.held.shared.approvals.submit(self.entry.clone());
        Submitted { pending, held: self.held.clone() }
    }

    fn decide(&mut self, decision: Decision) {
        self.entry.at = now();
        self.entry.decision = decision;
        let took = self.started.elapsed().as_micros();
        self.entry.latency_us = Some(u64::try_from(took).unwrap_or(u64::MAX));
    }

    /// Records that it did not come to anything, and returns why. Waits for the disk.
    pub(crate) fn fail(&mut self, failure: Failure) -> Failure {
        let decision = match &failure {
            Failure::Denied { .. } | Failure::OutsideRoots { .. } | Failure::Busy { .. } => Decision::Denied,
            Failure::Cancelled => Decision::Cancelled,
            _ => Decision::Failed,
        };
        let answered_by = self.missing_file.filter(|_| matches!(failure, Failure::ResourceNotFound { .. }));
        self.entry.reason = Some(match answered_by {
            Some(quirk) => quirk.log_line(&failure.to_string()),
            None => failure.to_string(),
        });
        // What fails is told as such, also if it cannot be recorded.
        self.record(decision).err().unwrap_or(failure)
    }
}

/// What became of an operation, on its way to the log.
pub(crate) struct Submitted {
    pending: Pending,
    held: Arc<Held>,
}

impl Submitted {
    /// Waits until the log has it.
    pub(crate) async fn recorded(self) -> Result<(), Failure> {
        match self.pending.recorded().await {
            Ok(_) => Ok(()),
            Err(error) => Err(unrecorded(&self.held, &error)),
        }
    }
}

fn unrecorded(held: &Held, error: &AuditError) -> Failure {
    held.show(Event::Notice { text: &error.to_string() });
    Refused::Unrecorded.into()
}

/// Lets an operation pass, as long as it is wanted: its request is not cancelled, nor its turn, nor its session over.
pub(crate) async fn clear(
    operating: &mut Operating,
    request: &Request,
    cancel: &CancelSignal,
) -> Result<Cleared, Failure> {
    let held = operating.held.clone();
    let cleared = tokio::select! {
        biased;
        () = cancel.fired() => return Err(Failure::Cancelled),
        () = held.unwanted(operating.begun) => return Err(Failure::Cancelled),
        cleared = held.shared.approvals.clear(request) => cleared,
    };
    match cleared {
        Ok(cleared) => {
            operating.entry().by = cleared.by();
            if let Cleared::Grant { call: Some(call) } = &cleared {
                operating.entry().call = Some(call.clone());
            }
            Ok(cleared)
        }
        Err(refused) => {
            operating.entry().by = refused.by();
            if let Refused::Person { option, .. } = &refused {
                operating.chosen.clone_from(option);
            }
            if let Refused::Rulebook(why) = &refused {
                held.show(Event::Notice { text: why });
            }
            Err(refused.into())
        }
    }
}

impl Shared {
    /// Says whether what is found changed on disk now can only be the user's doing.
    pub(crate) fn is_by_user(&self) -> bool {
        self.settings.writes_here_only && self.commands.load(Ordering::Relaxed) == 0
    }
}

/// Looks for what was changed before a command begins, as far as that is nobody's, so that it is not laid to the command.
pub(crate) async fn look_before_command(shared: &Arc<Shared>) {
    first_look::wait(shared, "the command").await;
    let is_idle = shared.turns.load(Ordering::Relaxed) == 0 && shared.commands.load(Ordering::Relaxed) == 0;
    if (is_idle || shared.is_by_user())
        && let Err(error) = observe(shared, Origin::default()).await
    {
        shared.front_end.show(Event::Notice { text: &error.to_string() });
    }
}

/// Looks for what changed on disk beside the host since the last look, and records it as `origin`'s doing.
pub(crate) async fn observe(shared: &Arc<Shared>, origin: Origin) -> Result<Vec<ChangeId>, HostError> {
    observe_each(shared, Box::new(move |_| origin.clone())).await
}

/// Whose doing a change is, by its file.
pub(crate) type Whose = Box<dyn Fn(&str) -> Origin + Send>;

/// As [`observe`], with whose doing a change is by its file.
pub(crate) async fn observe_each(shared: &Arc<Shared>, whose: Whose) -> Result<Vec<ChangeId>, HostError> {
    if !first_look::is_done(shared) {
        return Ok(Vec::new());
    }
    let its = shared.clone();
    let observed = blocking(move || {
        let mut progress = |files| {
            its.front_end.progress("looking for changes on disk", files);
            ControlFlow::Continue(())
        };
        let observed = its.workspace.observe_each(&whose, &mut progress)?;
        for id in &observed.changes {
            let change = its.workspace.change(*id)?;
            let mut entry = Entry::new(now(), Action::Observed);
            let origin = change.origin;
            (entry.session, entry.turn, entry.call) = (origin.session, origin.turn, origin.call);
            entry.subject = Subject::Path { asked: change.path, resolved: None };
            (entry.before, entry.after) =
                (change.before.map(|state| state.hash), change.after.map(|state| state.hash));
            its.approvals.record(&entry)?;
        }
        Ok::<_, HostError>(observed.changes)
    });
    observed.await?
}

/// Turns a failure into what the agent is answered.
pub(crate) fn answer<T>(outcome: Result<T, Failure>) -> Result<T, Error> {
    outcome.map_err(Error::from)
}
