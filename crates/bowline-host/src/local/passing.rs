//! A session that another client serves: what passes by is judged and recorded here, and what it changes on disk found.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bowline_state::accumulator::ToolCallView;
use bowline_state::audit::{Action, By, Decision};
use bowline_state::changes::Origin;
use bowline_state::display;
use bowline_state::failure::Failure;
pub use bowline_state::passing::{Act, Judged};
use bowline_state::permission::Verdict;
use bowline_state::schema::v1::{
    PermissionOption, RequestPermissionOutcome, SessionId, StopReason, ToolCallId,
};
pub use bowline_state::watching::Found;

use super::LocalSession;
use crate::error::HostError;
use crate::front_end::Event;
use crate::host::Host;
use crate::operations::passing::{self, Ruled};
use crate::operations::{self, Operating, blocking, first_look};
use crate::session::Counted;

/// So many permission requests are known that another client has still to answer; the oldest go.
const MAX_ASKED: usize = 256;

/// What was asked for, and is for another client to answer.
#[derive(Default)]
pub(super) struct Waiting(VecDeque<Asked>);

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waiting").field(&self.0.len()).finish()
    }
}

struct Asked {
    operating: Operating,
    request: bowline_workspace::approvals::Request,
    options: Vec<PermissionOption>,
}

impl Host {
    /// Opens a session that another client serves. One of before goes on under its name, and its turns are counted on.
    ///
    /// # Errors
    /// Fails if the journal or the log cannot be used.
    pub async fn passing_session(
        &self,
        id: &SessionId,
        is_old: bool,
        agent: Option<String>,
    ) -> Result<LocalSession, HostError> {
        if !is_old {
            return self.local_session(&id.0, agent).await;
        }
        let (shared, its) = (self.shared.clone(), id.clone());
        let (name, last) = blocking(move || {
            let name = shared.old_name(&its)?;
            let last = shared.workspace.last_turn(&name)?;
            Ok::<_, HostError>((name, last))
        })
        .await??;
        let session = self.local(id.clone(), name, agent).await?;
        session.inner.held.count_from(last.unwrap_or_default());
        Ok(session)
    }
}

impl LocalSession {
    /// Learns what is there, so that what changes later can be found. Turns do that by themselves; the first time takes
    /// long in a large project.
    ///
    /// # Errors
    /// Fails if the journal cannot be used.
    pub async fn starts_looking(&self) -> Result<(), HostError> {
        first_look::done(&self.inner.held.shared).await
    }

    /// Begins a turn. What changed before it is nobody's.
    ///
    /// # Errors
    /// Fails if there is a turn already, the session is over, or the journal or the log cannot be used.
    pub async fn turn_begins(&self) -> Result<u64, HostError> {
        let held = &self.inner.held;
        operations::verify_roots(held.files.roots())?;
        let turn = held.begin_turn()?;
        *self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(Counted::new(&held.shared));
        first_look::before_turn(&held.shared).await?;
        if held.shared.turns.load(Ordering::Relaxed) == 1 {
            held.look(Origin::default()).await;
        }
        let (shared, entry) = (held.shared.clone(), held.entry(Action::TurnStart, Some(turn)));
        blocking(move || shared.approvals.record(&entry)).await??;
        held.show(Event::TurnStarted { session: &held.id, turn });
        Ok(turn)
    }

    /// Ends the turn that is going on, if there is one. What it changed and nobody has looked for yet is found.
    ///
    /// # Errors
    /// Fails if the journal or the log cannot be used. The turn has ended all the same.
    pub async fn turn_ends(
        &self,
        stop: Option<StopReason>,
        whose: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> Result<Vec<Found>, HostError> {
        let held = &self.inner.held;
        let Some(turn) = held.holder(held.now()).turn else { return Ok(Vec::new()) };
        let found = self.looks(whose).await;
        let ended = held.end_turn(turn, stop).await;
        *self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner) = None;
        ended.and(found)
    }

    /// Withdraws every question of the turn that is going on, and kills its commands.
    pub async fn cancels(&self) {
        let held = &self.inner.held;
        if let Some(turn) = held.cancel_turn() {
            held.kill_commands(turn).await;
        }
    }

    /// Finds what changed on disk since the last look, and records it as this session's doing: of the turn that is going
    /// on, and of the call that `whose` says for a file.
    ///
    /// # Errors
    /// Fails if the journal or the log cannot be used.
    pub async fn looks(
        &self,
        whose: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> Result<Vec<Found>, HostError> {
        let held = &self.inner.held;
        let (files, turn) = (held.files.clone(), held.holder(held.now()).turn);
        let whose = Box::new(move |path: &str| files.origin(turn, whose(path).as_deref()));
        let changes = operations::observe_each(&held.shared, whose).await?;
        let workspace = held.shared.workspace.clone();
        blocking(move || {
            let found = changes.into_iter().map(|id| {
                let change = workspace.change(id)?;
                let (before, after) = workspace.texts(id)?;
                Ok(Found { change: id, path: change.path, call: change.origin.call, before, after })
            });
            found.collect()
        })
        .await?
    }

    /// Says what the rules come to for a permission request, with all that is known of its call.
    ///
    /// # Errors
    /// Fails if it cannot be judged or recorded.
    pub async fn judges(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> Result<Judged, Failure> {
        let its = options.clone();
        let ruled = self.run(None, |held, asking| passing::judge(held, asking, call, its)).await?;
        Ok(match ruled {
            Ruled::Answered(response) => Judged::Answered(response),
            Ruled::Ask(asked) => {
                let (operating, request) = *asked;
                let mut asked = self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.0.retain(|asked| asked.request.call != request.call);
                if asked.0.len() >= MAX_ASKED {
                    asked.0.pop_front();
                }
                asked.0.push_back(Asked { operating, request, options });
                Judged::Ask
            }
        })
    }

    /// Notes what a person answered whom the other client asked. What was agreed to may be done once, as it was shown.
    ///
    /// # Errors
    /// Fails if it cannot be recorded.
    pub async fn permitted(
        &self,
        call: &ToolCallId,
        outcome: RequestPermissionOutcome,
    ) -> Result<(), Failure> {
        let Some(Asked { mut operating, request, options }) = self.asked(call) else { return Ok(()) };
        let is_yes = Verdict::of(&options, &outcome).is_ok_and(|verdict| verdict.is_approved());
        let approvals = self.inner.held.shared.approvals.clone();
        blocking(move || {
            // Whether a person answered, the editor knows.
            operating.entry().by = By::Client;
            operating.record(if is_yes { Decision::Allowed } else { Decision::Denied })?;
            if is_yes && operating.wanted().is_ok() {
                approvals.grant(&request.holder, request.call.as_deref(), request.deeds);
            }
            Ok(())
        })
        .await?
    }

    /// Notes that a permission request was answered with yes and nobody was asked, because what it is for asks by itself.
    /// Nothing is granted by it.
    ///
    /// # Errors
    /// Fails if it cannot be recorded.
    pub async fn left_to_tool(&self, call: &ToolCallId) -> Result<(), Failure> {
        let Some(Asked { mut operating, request, .. }) = self.asked(call) else { return Ok(()) };
        let title = display::line(&request.title, 200);
        let text = format!("allowed {title}, and nobody was asked: the tool asks by itself");
        self.inner.held.show(Event::Notice { text: &text });
        blocking(move || {
            operating.entry().by = By::Nobody;
            operating.entry().reason = Some("the tool asks by itself".to_owned());
            operating.record(Decision::Allowed)
        })
        .await?
    }

    fn asked(&self, call: &ToolCallId) -> Option<Asked> {
        let mut asked = self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let at = asked.0.iter().position(|asked| asked.request.call.as_deref() == Some(&*call.0));
        at.and_then(|at| asked.0.remove(at))
    }

    /// Lets something pass that the other client will do, or says why not. Asks a person where the rules want it.
    ///
    /// # Errors
    /// Returns why it may not be done.
    pub async fn lets(&self, act: Act, call: Option<&str>) -> Result<(), Failure> {
        self.run(call, |held, asking| passing::lets(held, asking, act)).await
    }

    /// Returns the turn that is going on, if there is one.
    #[must_use]
    pub fn turn(&self) -> Option<u64> {
        let held = &self.inner.held;
        held.holder(held.now()).turn
    }
}
