//! Elicitation: an agent's questions to the user, by a form or on a page.
//!
//! The host itself opens no page and fills in no form: it passes both to the front end, and validates the answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry, AuditSubject, DecisionSource};
use bowline_protocol::elicitation::{ElicitationUrl, Form};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAcceptAction, ElicitationAction,
    ElicitationId, ElicitationMode, ElicitationScope, SessionId,
};
use bowline_text::display::quote;
use bowline_wire::ClientContext;
use tokio::sync::Semaphore;

use super::run_blocking;
use crate::front_end::HostEvent;
use crate::host::HostInner;
use crate::session::SessionInner;
use bowline_storage::clock::now;

/// The maximum number of forms and pages of one agent that are open at once.
const MAX_OPEN_ELICITATIONS: usize = 32;

/// The maximum number of visited pages remembered until the agent reports them complete.
const MAX_PAGES: usize = 64;

/// The forms and pages of one agent.
pub(crate) struct Elicitations {
    open_slots: Semaphore,
    // The pages shown and not yet completed, oldest first. Invariant: at most `MAX_PAGES`.
    pages: Mutex<VecDeque<ElicitationId>>,
}

impl Elicitations {
    pub(crate) fn new() -> Self {
        Self { open_slots: Semaphore::new(MAX_OPEN_ELICITATIONS), pages: Mutex::default() }
    }

    fn track_page(&self, id: &ElicitationId) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() == MAX_PAGES {
            pages.pop_front();
        }
        pages.push_back(id.clone());
    }

    /// Removes a completed page. Returns whether it was known.
    pub(crate) fn complete_page(&self, id: &ElicitationId) -> bool {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pages.iter().position(|page| page == id);
        at.and_then(|at| pages.remove(at)).is_some()
    }
}

/// A parsed elicitation.
enum ElicitationPrompt {
    Form(Form),
    Page(ElicitationId),
}

impl ElicitationPrompt {
    fn from_mode(mode: &ElicitationMode) -> Result<Self, RpcError> {
        let invalid = |reason: String| RpcError::InvalidParams { reason };
        match mode {
            ElicitationMode::Form(form) => {
                let form =
                    Form::from_schema(&form.requested_schema).map_err(|fault| invalid(fault.to_string()))?;
                Ok(Self::Form(form))
            }
            ElicitationMode::Url(page) => {
                ElicitationUrl::parse(&page.url).map_err(|fault| invalid(fault.to_string()))?;
                Ok(Self::Page(page.elicitation_id.clone()))
            }
            ElicitationMode::Other(other) => {
                Err(invalid(format!("elicitation mode {} is not known here", quote(&other.mode))))
            }
            // Modes added to the protocol later were not announced.
            _ => Err(invalid("this elicitation mode is not known here".to_owned())),
        }
    }

    /// Returns the validated answer, or the reason why it counts as cancelled.
    fn validate_action(&self, action: ElicitationAction) -> Result<ElicitationAction, String> {
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
            // The content of a page is not part of the answer.
            (Self::Page(_), ElicitationAction::Accept(_)) => {
                Ok(ElicitationAction::Accept(ElicitationAcceptAction::new()))
            }
            (_, action) => Ok(action),
        }
    }
}

/// Returns the session that an elicitation belongs to, if it belongs to one.
pub(crate) fn scoped_session(request: &CreateElicitationRequest) -> Option<SessionId> {
    match request.scope() {
        ElicitationScope::Session(scope) => Some(scope.session_id.clone()),
        _ => None,
    }
}

/// Serves `elicitation/create`.
pub(crate) async fn create(
    shared: &Arc<HostInner>,
    open: &Elicitations,
    session: Option<Arc<SessionInner>>,
    agent: Option<String>,
    request: CreateElicitationRequest,
    cx: ClientContext,
) -> Result<CreateElicitationResponse, RpcError> {
    let prompt = ElicitationPrompt::from_mode(&request.mode)?;
    let _permit =
        open.open_slots.try_acquire().map_err(|_| RpcError::Busy { limit: MAX_OPEN_ELICITATIONS as u64 })?;
    if let ElicitationPrompt::Page(id) = &prompt {
        open.track_page(id);
    }
    let cancelled = async {
        match &session {
            Some(session) => session.wait_until_inactive(session.turn_status()).await,
            None => std::future::pending().await,
        }
    };
    let answer = tokio::select! {
        biased;
        () = cx.cancelled() => Err(RpcError::Cancelled),
        () = cancelled => Ok(ElicitationAction::Cancel),
        action = shared.front_end.elicit(agent.as_deref(), &request) => Ok(action),
    };
    let mut entry = AuditEntry::new(now(), AuditAction::Elicitation);
    entry.subject = AuditSubject::Text(request.message.clone());
    entry.decided_by = DecisionSource::Person;
    let outcome = answer.map(|action| {
        prompt.validate_action(action).unwrap_or_else(|reason| {
            shared.front_end.show(HostEvent::Notice { text: &reason });
            entry.reason = Some(reason);
            ElicitationAction::Cancel
        })
    });
    if let Some(session) = &session {
        let holder = session.holder(session.turn_status());
        (entry.session, entry.turn) = (Some(holder.session), holder.turn);
    }
    entry.decision = match &outcome {
        Ok(ElicitationAction::Accept(_)) => AuditDecision::Allowed,
        Ok(ElicitationAction::Decline) => AuditDecision::Denied,
        _ => AuditDecision::Cancelled,
    };
    if let (ElicitationPrompt::Page(id), false) = (&prompt, entry.decision == AuditDecision::Allowed) {
        open.complete_page(id);
    }
    let owned_host = shared.clone();
    run_blocking(move || owned_host.approvals.record(&entry))
        .await?
        .map_err(|_| RpcError::from(bowline_access::approvals::ApprovalError::Unrecorded))?;
    outcome.map(CreateElicitationResponse::new)
}
