//! Letting a person answer what an agent wants to know: by a form, or on a page.
//!
//! The host itself opens no page and fills in no form: it hands both to the front end, and checks what comes back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_state::audit::{Action, By, Decision, Entry, Subject};
use bowline_state::elicitation::{Form, Page};
use bowline_state::failure::{Failure, quote};
use bowline_state::schema::v1::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAcceptAction, ElicitationAction,
    ElicitationId, ElicitationMode, ElicitationScope, SessionId,
};
use bowline_wire::ClientContext;
use tokio::sync::Semaphore;

use super::blocking;
use crate::front_end::Event;
use crate::host::Shared;
use crate::session::Held;
use bowline_workspace::clock::now;

/// So many forms and pages of one agent are open at once.
const MAX_OPEN: usize = 32;

/// So many pages that a person went to are remembered until the agent says that they have done their work.
const MAX_PAGES: usize = 64;

/// The forms and pages of one agent.
pub(crate) struct Elicitations {
    places: Semaphore,
    // Those that were shown and are not completed, the oldest first. Invariant: at most `MAX_PAGES`.
    pages: Mutex<VecDeque<ElicitationId>>,
}

impl Elicitations {
    pub(crate) fn new() -> Self {
        Self { places: Semaphore::new(MAX_OPEN), pages: Mutex::default() }
    }

    fn show_page(&self, id: &ElicitationId) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() == MAX_PAGES {
            pages.pop_front();
        }
        pages.push_back(id.clone());
    }

    /// Forgets a page. Says whether it was known.
    pub(crate) fn complete(&self, id: &ElicitationId) -> bool {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pages.iter().position(|page| page == id);
        at.and_then(|at| pages.remove(at)).is_some()
    }
}

/// What a person is asked.
enum Asked {
    Form(Form),
    Page(ElicitationId),
}

impl Asked {
    fn read(mode: &ElicitationMode) -> Result<Self, Failure> {
        let invalid = |reason: String| Failure::InvalidParams { reason };
        match mode {
            ElicitationMode::Form(form) => {
                let form = Form::read(&form.requested_schema).map_err(|fault| invalid(fault.to_string()))?;
                Ok(Self::Form(form))
            }
            ElicitationMode::Url(page) => {
                Page::read(&page.url).map_err(|fault| invalid(fault.to_string()))?;
                Ok(Self::Page(page.elicitation_id.clone()))
            }
            ElicitationMode::Other(other) => {
                Err(invalid(format!("elicitation mode {} is not known here", quote(&other.mode))))
            }
            // A mode that the protocol gains later was not offered.
            _ => Err(invalid("this elicitation mode is not known here".to_owned())),
        }
    }

    /// Returns what may be sent of an answer; or that it is taken for none, and why.
    fn accept(&self, action: ElicitationAction) -> Result<ElicitationAction, String> {
        match (self, action) {
            (Self::Form(form), ElicitationAction::Accept(accepted)) => {
                let content = accepted.content.unwrap_or_default();
                let faults: Vec<String> = form.check(&content).iter().map(ToString::to_string).collect();
                if faults.is_empty() {
                    Ok(ElicitationAction::Accept(ElicitationAcceptAction::new().content(content)))
                } else {
                    Err(format!("the form was not sent: {}", faults.join(", ")))
                }
            }
            // What was done on a page stays there.
            (Self::Page(_), ElicitationAction::Accept(_)) => {
                Ok(ElicitationAction::Accept(ElicitationAcceptAction::new()))
            }
            (_, action) => Ok(action),
        }
    }
}

/// Returns the session that an elicitation belongs to, if it belongs to one.
pub(crate) fn session(request: &CreateElicitationRequest) -> Option<SessionId> {
    match request.scope() {
        ElicitationScope::Session(scope) => Some(scope.session_id.clone()),
        _ => None,
    }
}

/// Serves `elicitation/create`.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    open: &Elicitations,
    held: Option<Arc<Held>>,
    agent: Option<String>,
    request: CreateElicitationRequest,
    cx: ClientContext,
) -> Result<CreateElicitationResponse, Failure> {
    let asked = Asked::read(&request.mode)?;
    let _place = open.places.try_acquire().map_err(|_| Failure::Busy { limit: MAX_OPEN as u64 })?;
    if let Asked::Page(id) = &asked {
        open.show_page(id);
    }
    let cancelled = async {
        match &held {
            Some(held) => held.unwanted(held.now()).await,
            None => std::future::pending().await,
        }
    };
    let answered = tokio::select! {
        biased;
        () = cx.cancelled() => Err(Failure::Cancelled),
        () = cancelled => Ok(ElicitationAction::Cancel),
        action = shared.front_end.elicit(agent.as_deref(), &request) => Ok(action),
    };
    let mut entry = Entry::new(now(), Action::Elicitation);
    entry.subject = Subject::Text(request.message.clone());
    entry.by = By::Person;
    let outcome = answered.map(|action| {
        asked.accept(action).unwrap_or_else(|why| {
            shared.front_end.show(Event::Notice { text: &why });
            entry.reason = Some(why);
            ElicitationAction::Cancel
        })
    });
    if let Some(held) = &held {
        let holder = held.holder(held.now());
        (entry.session, entry.turn) = (Some(holder.session), holder.turn);
    }
    entry.decision = match &outcome {
        Ok(ElicitationAction::Accept(_)) => Decision::Allowed,
        Ok(ElicitationAction::Decline) => Decision::Denied,
        _ => Decision::Cancelled,
    };
    if let (Asked::Page(id), false) = (&asked, entry.decision == Decision::Allowed) {
        open.complete(id);
    }
    let its = shared.clone();
    blocking(move || its.approvals.record(&entry))
        .await?
        .map_err(|_| Failure::from(bowline_workspace::approvals::Refused::Unrecorded))?;
    outcome.map(CreateElicitationResponse::new)
}
