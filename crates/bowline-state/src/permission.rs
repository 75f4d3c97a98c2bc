//! Asking for permission and answering: the request an agent sends, what an answer means, and what a client answers.
//!
//! One rule runs through it: only an option that was offered, that allows, and whose id stands for nothing else, is an
//! approval. Whatever else an answer says, it is none.

use std::collections::HashSet;

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionId, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, SelectedPermissionOutcome, SessionId, ToolCallContent, ToolCallUpdate,
};

use crate::builders;
use crate::failure::quote;
use crate::tracker::{ToolCallTracker, TrackerError};

/// Makes the permission requests of one session.
#[derive(Debug, Clone)]
pub struct PermissionBroker {
    session_id: SessionId,
    // Invariant: passed `check_options`.
    options: Vec<PermissionOption>,
}

/// What a permission request says beyond the tool call, all of it optional.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Why the agent asks, shown as text behind all other content.
    pub description: Option<String>,
    /// Content shown behind what the call has already, the change to approve for one.
    pub content: Vec<ToolCallContent>,
    /// The options to offer in place of the broker's.
    pub options: Option<Vec<PermissionOption>>,
}

/// A permission request that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The tool call cannot be asked about.
    #[error(transparent)]
    ToolCall(#[from] TrackerError),
    /// There is nothing to choose from.
    #[error("a permission request needs an option")]
    NoOption,
    /// An option has no id to be chosen by.
    #[error("the permission option named {} has an empty id", quote(.name))]
    EmptyOptionId {
        /// The option's label.
        name: String,
    },
    /// Two options have the same id, so that an answer could mean either.
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
    /// Fails unless each option has an id of its own and there is at least one.
    pub fn with_options(
        session_id: impl Into<SessionId>,
        options: Vec<PermissionOption>,
    ) -> Result<Self, AskError> {
        check_options(&options)?;
        Ok(Self { session_id: session_id.into(), options })
    }

    /// Asks for permission to go on with a tracked call, described by everything the tracker knows of it.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished, or an option is offered that cannot be.
    pub fn request_for(
        &self,
        tracker: &ToolCallTracker,
        external_id: &str,
        ask: Ask,
    ) -> Result<RequestPermissionRequest, AskError> {
        self.request(tracker.tool_call_model(external_id)?, ask)
    }

    /// Asks for permission to go on with a call that the caller describes.
    ///
    /// # Errors
    /// Fails if an option is offered that cannot be.
    pub fn request(
        &self,
        mut tool_call: ToolCallUpdate,
        ask: Ask,
    ) -> Result<RequestPermissionRequest, AskError> {
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
pub enum Lifetime {
    /// For this call alone.
    Once,
    /// For calls like it too; how long is for the side that remembers it to say.
    Always,
}

/// What the user chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may go on.
    Approved {
        /// How long the approval holds.
        lifetime: Lifetime,
        /// The option that was chosen.
        option_id: PermissionOptionId,
    },
    /// The call may not go on.
    Rejected {
        /// How long the rejection holds.
        lifetime: Lifetime,
        /// The option that was chosen.
        option_id: PermissionOptionId,
    },
    /// The turn was cancelled before the user chose, so the call may not go on either.
    Cancelled,
}

impl Verdict {
    /// Returns what `outcome` means for a request that offered `options`.
    ///
    /// # Errors
    /// Returns a [`AnswerBreach`] for an answer that no user can have meant. It is not an approval.
    pub fn of(
        options: &[PermissionOption],
        outcome: &RequestPermissionOutcome,
    ) -> Result<Self, AnswerBreach> {
        let option_id = match outcome {
            RequestPermissionOutcome::Cancelled => return Ok(Self::Cancelled),
            RequestPermissionOutcome::Selected(selected) => selected.option_id.clone(),
            // What a newer schema adds approves nothing until it is understood here.
            _ => return Err(AnswerBreach::UnknownOutcome),
        };
        let mut chosen = options.iter().filter(|option| option.option_id == option_id);
        let Some(option) = chosen.next() else { return Err(AnswerBreach::NotOffered(option_id)) };
        if chosen.next().is_some() {
            return Err(AnswerBreach::Ambiguous(option_id));
        }
        match option.kind {
            PermissionOptionKind::AllowOnce => Ok(Self::Approved { lifetime: Lifetime::Once, option_id }),
            PermissionOptionKind::AllowAlways => Ok(Self::Approved { lifetime: Lifetime::Always, option_id }),
            PermissionOptionKind::RejectOnce => Ok(Self::Rejected { lifetime: Lifetime::Once, option_id }),
            PermissionOptionKind::RejectAlways => {
                Ok(Self::Rejected { lifetime: Lifetime::Always, option_id })
            }
            // A kind that a newer schema adds approves nothing until it is understood here.
            _ => Err(AnswerBreach::UnknownKind(option_id)),
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
pub enum AnswerBreach {
    /// The option is none of those in the request.
    #[error("permission option {} was not offered", quote(&.0.0))]
    NotOffered(PermissionOptionId),
    /// The request offered the id more than once.
    #[error("permission option {} was offered more than once", quote(&.0.0))]
    Ambiguous(PermissionOptionId),
    /// The option is neither known to allow nor to reject.
    #[error("permission option {} is of a kind that is not known here", quote(&.0.0))]
    UnknownKind(PermissionOptionId),
    /// The answer is neither a choice nor a cancellation.
    #[error("the outcome of the permission request is not known here")]
    UnknownOutcome,
}

/// What a client, by its user or its rules, says to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The call may go on.
    Allow(Lifetime),
    /// The call may not go on.
    Deny(Lifetime),
    /// The turn is cancelled.
    Cancel,
}

/// The agent offers no option that says as much as was decided and no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswerable {
    /// Every option that allows allows more than this once, or none does.
    #[error("the agent offers no option to allow once")]
    AllowOnce,
    /// No option allows.
    #[error("the agent offers no option to allow")]
    Allow,
}

/// Returns the outcome that tells the agent of `decision`.
///
/// An option is found by its kind, never by its place, and only if no other has its id. Where the exact kind is not
/// offered, the answer grants less or refuses more: always falls back to once, a denial to the other lifetime and then
/// to `cancelled`, which every agent takes as a no.
///
/// # Errors
/// Returns [`Unanswerable`] when an allowance cannot be told without granting more. The call is then still undecided.
pub fn answer(
    options: &[PermissionOption],
    decision: Decision,
) -> Result<RequestPermissionOutcome, Unanswerable> {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};

    let select = |kind| select(options, kind);
    match decision {
        Decision::Allow(Lifetime::Once) => select(AllowOnce).ok_or(Unanswerable::AllowOnce),
        Decision::Allow(Lifetime::Always) => {
            select(AllowAlways).or_else(|| select(AllowOnce)).ok_or(Unanswerable::Allow)
        }
        Decision::Deny(Lifetime::Once) => Ok(select(RejectOnce)
            .or_else(|| select(RejectAlways))
            .unwrap_or(RequestPermissionOutcome::Cancelled)),
        Decision::Deny(Lifetime::Always) => Ok(select(RejectAlways)
            .or_else(|| select(RejectOnce))
            .unwrap_or(RequestPermissionOutcome::Cancelled)),
        Decision::Cancel => Ok(RequestPermissionOutcome::Cancelled),
    }
}

/// Selects the first option of the kind whose id is its own.
fn select(options: &[PermissionOption], kind: PermissionOptionKind) -> Option<RequestPermissionOutcome> {
    let is_unique =
        |id: &PermissionOptionId| options.iter().filter(|option| option.option_id == *id).count() == 1;
    let option = options.iter().find(|option| option.kind == kind && is_unique(&option.option_id))?;
    let selected = SelectedPermissionOutcome::new(option.option_id.clone());
    Some(RequestPermissionOutcome::Selected(selected))
}

fn check_options(options: &[PermissionOption]) -> Result<(), AskError> {
    if options.is_empty() {
        return Err(AskError::NoOption);
    }
    let mut ids = HashSet::new();
    options.iter().try_for_each(|option| {
        if option.option_id.0.is_empty() {
            Err(AskError::EmptyOptionId { name: option.name.clone() })
        } else if !ids.insert(&option.option_id) {
            Err(AskError::DuplicateOptionId(option.option_id.clone()))
        } else {
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests;
