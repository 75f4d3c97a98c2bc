//! Permission requests and answers: the request an agent sends, the meaning of an answer, and the answer a client
//! gives.
//!
//! One rule holds throughout: an answer approves only if it selects an option that was offered, that allows, and
//! whose id is unique. Every other answer approves nothing.

use std::collections::HashSet;

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionId, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionId,
    ToolCallContent, ToolCallUpdate,
};

use crate::builders;
use crate::tracker::{ToolCallTracker, TrackerError};
use bowline_text::display::{self, quote};

/// The longest reason for a rejection, in bytes.
const MAX_REASON_BYTES: usize = 2000;

/// Builds the permission requests of one session.
#[derive(Debug, Clone)]
pub struct PermissionBroker {
    session_id: SessionId,
    // Invariant: passed `check_options`.
    options: Vec<PermissionOption>,
}

/// The optional parts of a permission request beyond the tool call.
#[derive(Debug, Clone, Default)]
pub struct PermissionRequestDetails {
    /// Why the agent asks, shown as text after all other content.
    pub description: Option<String>,
    /// Content shown after the call's own, such as the change to approve.
    pub content: Vec<ToolCallContent>,
    /// The options to offer instead of the broker's.
    pub options: Option<Vec<PermissionOption>>,
}

/// A permission request that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermissionRequestError {
    /// The tool call cannot be asked about.
    #[error(transparent)]
    ToolCall(#[from] TrackerError),
    /// No option is offered.
    #[error("a permission request needs an option")]
    NoOption,
    /// An option has no id to be chosen by.
    #[error("the permission option named {} has an empty id", quote(.name))]
    EmptyOptionId {
        /// The option's label.
        name: String,
    },
    /// Two options have the same id, so an answer would be ambiguous.
    #[error("two permission options have the id {}", quote(&.0.0))]
    DuplicateOptionId(PermissionOptionId),
}

impl PermissionBroker {
    /// Creates a broker that offers [`default_options`].
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>) -> Self {
        Self { session_id: session_id.into(), options: default_options() }
    }

    /// Creates a broker that offers `options`.
    ///
    /// # Errors
    /// Fails unless there is at least one option and each has a unique, non-empty id.
    pub fn with_options(
        session_id: impl Into<SessionId>,
        options: Vec<PermissionOption>,
    ) -> Result<Self, PermissionRequestError> {
        check_options(&options)?;
        Ok(Self { session_id: session_id.into(), options })
    }

    /// Builds a request for a tracked call, described by everything the tracker knows about it.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished, or if an offered option is invalid.
    pub fn build_request_for(
        &self,
        tracker: &ToolCallTracker,
        external_id: &str,
        ask: PermissionRequestDetails,
    ) -> Result<RequestPermissionRequest, PermissionRequestError> {
        self.build_request(tracker.full_update(external_id)?, ask)
    }

    /// Builds a request for a call that the caller describes.
    ///
    /// # Errors
    /// Fails if an offered option is invalid.
    pub fn build_request(
        &self,
        mut tool_call: ToolCallUpdate,
        ask: PermissionRequestDetails,
    ) -> Result<RequestPermissionRequest, PermissionRequestError> {
        let options = match ask.options {
            Some(options) => {
                check_options(&options)?;
                options
            }
            None => self.options.clone(),
        };
        let description = ask.description.map(builders::text);
        let extra: Vec<ToolCallContent> = ask.content.into_iter().chain(description).collect();
        if !extra.is_empty() {
            tool_call.fields.content.get_or_insert_default().extend(extra);
        }
        Ok(RequestPermissionRequest::new(self.session_id.clone(), tool_call, options))
    }
}

/// Returns the options to approve once, approve for the session, and reject once.
#[must_use]
pub fn default_options() -> Vec<PermissionOption> {
    vec![
        PermissionOption::new("approve", "Approve", PermissionOptionKind::AllowOnce),
        PermissionOption::new(
            "approve_for_session",
            "Approve for session",
            PermissionOptionKind::AllowAlways,
        ),
        PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
    ]
}

/// How long a choice holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceLifetime {
    /// For this call alone.
    Once,
    /// For similar calls too; the side that remembers it decides how long.
    Always,
}

/// What the user chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionVerdict {
    /// The call may go on.
    Approved {
        /// How long the approval holds.
        lifetime: ChoiceLifetime,
        /// The option that was chosen.
        option_id: PermissionOptionId,
    },
    /// The call may not go on.
    Rejected {
        /// How long the rejection holds.
        lifetime: ChoiceLifetime,
        /// The option that was chosen.
        option_id: PermissionOptionId,
    },
    /// The turn was cancelled before the user chose, so the call may not go on either.
    Cancelled,
}

impl PermissionVerdict {
    /// Returns the meaning of `outcome` for a request that offered `options`.
    ///
    /// # Errors
    /// Returns a [`PermissionOutcomeViolation`] for an answer that no user can have meant. It is not an approval.
    pub fn from_outcome(
        options: &[PermissionOption],
        outcome: &RequestPermissionOutcome,
    ) -> Result<Self, PermissionOutcomeViolation> {
        let option_id = match outcome {
            RequestPermissionOutcome::Cancelled => return Ok(Self::Cancelled),
            RequestPermissionOutcome::Selected(selected) => selected.option_id.clone(),
            // An outcome added by a newer schema approves nothing until it is handled here.
            _ => return Err(PermissionOutcomeViolation::UnknownOutcome),
        };
        let mut chosen = options.iter().filter(|option| option.option_id == option_id);
        let Some(option) = chosen.next() else {
            return Err(PermissionOutcomeViolation::NotOffered(option_id));
        };
        if chosen.next().is_some() {
            return Err(PermissionOutcomeViolation::Ambiguous(option_id));
        }
        match option.kind {
            PermissionOptionKind::AllowOnce => {
                Ok(Self::Approved { lifetime: ChoiceLifetime::Once, option_id })
            }
            PermissionOptionKind::AllowAlways => {
                Ok(Self::Approved { lifetime: ChoiceLifetime::Always, option_id })
            }
            PermissionOptionKind::RejectOnce => {
                Ok(Self::Rejected { lifetime: ChoiceLifetime::Once, option_id })
            }
            PermissionOptionKind::RejectAlways => {
                Ok(Self::Rejected { lifetime: ChoiceLifetime::Always, option_id })
            }
            // A kind added by a newer schema approves nothing until it is handled here.
            _ => Err(PermissionOutcomeViolation::UnknownKind(option_id)),
        }
    }

    /// Returns whether the call may go on.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        matches!(self, Self::Approved { .. })
    }
}

/// A client's answer that the protocol does not allow. It approves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermissionOutcomeViolation {
    /// The option is not in the request.
    #[error("permission option {} was not offered", quote(&.0.0))]
    NotOffered(PermissionOptionId),
    /// The request offered the id more than once.
    #[error("permission option {} was offered more than once", quote(&.0.0))]
    Ambiguous(PermissionOptionId),
    /// The option is not known to allow or to reject.
    #[error("permission option {} is of a kind that is not known here", quote(&.0.0))]
    UnknownKind(PermissionOptionId),
    /// The answer is neither a choice nor a cancellation.
    #[error("the outcome of the permission request is not known here")]
    UnknownOutcome,
}

/// The answer of a client, by its user or its rules, to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionDecision {
    /// The call may go on.
    Allow(ChoiceLifetime),
    /// The call may not go on.
    Deny(ChoiceLifetime),
    /// The turn is cancelled.
    Cancel,
}

/// The agent offers no option that grants exactly what was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoMatchingOptionError {
    /// No option allows only this once.
    #[error("the agent offers no option to allow once")]
    AllowOnce,
    /// No option allows.
    #[error("the agent offers no option to allow")]
    Allow,
}

/// Returns the outcome that reports `decision` to the agent.
///
/// An option is selected by its kind, never by its position, and only if its id is unique. If the exact kind is not
/// offered, the answer grants less or refuses more: always falls back to once, a denial to the other lifetime and
/// then to `cancelled`, which every agent treats as a refusal.
/// # Errors
/// Returns [`NoMatchingOptionError`] when an approval cannot be expressed without granting more. The call is then
/// still undecided.
pub fn choose_outcome(
    options: &[PermissionOption],
    decision: PermissionDecision,
) -> Result<RequestPermissionOutcome, NoMatchingOptionError> {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};

    let select = |kind| select_option(options, kind);
    match decision {
        PermissionDecision::Allow(ChoiceLifetime::Once) => {
            select(AllowOnce).ok_or(NoMatchingOptionError::AllowOnce)
        }
        PermissionDecision::Allow(ChoiceLifetime::Always) => {
            select(AllowAlways).or_else(|| select(AllowOnce)).ok_or(NoMatchingOptionError::Allow)
        }
        PermissionDecision::Deny(ChoiceLifetime::Once) => Ok(select(RejectOnce)
            .or_else(|| select(RejectAlways))
            .unwrap_or(RequestPermissionOutcome::Cancelled)),
        PermissionDecision::Deny(ChoiceLifetime::Always) => Ok(select(RejectAlways)
            .or_else(|| select(RejectOnce))
            .unwrap_or(RequestPermissionOutcome::Cancelled)),
        PermissionDecision::Cancel => Ok(RequestPermissionOutcome::Cancelled),
    }
}

/// Returns the user's reason for a rejection, if the client sends one in `_meta`: the protocol has no field for it.
#[must_use]
pub fn rejection_reason(response: &RequestPermissionResponse) -> Option<String> {
    let reason = response.meta.as_ref()?.get("bowline")?.get("reason")?.as_str()?;
    let reason = reason.strip_prefix("the user said no").unwrap_or(reason).trim_start_matches(':').trim();
    (!reason.is_empty()).then(|| display::escape_line(reason, MAX_REASON_BYTES))
}

/// Returns why no user answered, if a server that waited for its users says so in `_meta`. Such an answer rejects.
#[must_use]
pub fn unanswered_reason(response: &RequestPermissionResponse) -> Option<String> {
    server_note(response, "unanswered")
}

/// Returns the user who answered, if a server says in `_meta` that it was another one than the session's.
#[must_use]
pub fn answered_by(response: &RequestPermissionResponse) -> Option<String> {
    server_note(response, "answeredBy")
}

fn server_note(response: &RequestPermissionResponse, name: &str) -> Option<String> {
    let text = response.meta.as_ref()?.get("bowline")?.get(name)?.as_str()?;
    Some(display::escape_line(text, MAX_REASON_BYTES))
}

/// Selects the first option of the kind whose id is unique.
fn select_option(
    options: &[PermissionOption],
    kind: PermissionOptionKind,
) -> Option<RequestPermissionOutcome> {
    let is_unique =
        |id: &PermissionOptionId| options.iter().filter(|option| option.option_id == *id).count() == 1;
    let option = options.iter().find(|option| option.kind == kind && is_unique(&option.option_id))?;
    let selected = SelectedPermissionOutcome::new(option.option_id.clone());
    Some(RequestPermissionOutcome::Selected(selected))
}

fn check_options(options: &[PermissionOption]) -> Result<(), PermissionRequestError> {
    if options.is_empty() {
        return Err(PermissionRequestError::NoOption);
    }
    let mut ids = HashSet::new();
    options.iter().try_for_each(|option| {
        if option.option_id.0.is_empty() {
            Err(PermissionRequestError::EmptyOptionId { name: option.name.clone() })
        } else if !ids.insert(&option.option_id) {
            Err(PermissionRequestError::DuplicateOptionId(option.option_id.clone()))
        } else {
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests;
