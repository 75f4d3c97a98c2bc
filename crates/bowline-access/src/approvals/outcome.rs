//! The outcome of an approval: its source, or the reason for the denial.

use std::sync::Arc;

use bowline_policy::audit::DecisionSource;
use bowline_policy::policy::{Effect, PolicyDecision, ReasonBasis};
use bowline_policy::question::{Question, QuestionAnswer};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::PermissionOptionId;

use super::MAX_PENDING_QUESTIONS;

/// The message to the agent where a rule denies the operation.
const DENIED_BY_RULE: &str = "a rule of the user's denies it";

/// The message to the agent where no rule allows the operation and there is no user to ask.
pub const NO_APPROVER: &str = "no rule allows it, and the user cannot be asked";

/// The message to the agent where a rule of the user's says to ask and there is no user to ask.
pub const NO_APPROVER_FOR_RULE: &str = "a rule of the user's says to ask, and the user cannot be asked";

/// The message to the agent where the preset denies the operation.
pub const DENIED_BY_SETTINGS: &str = "the user's settings deny it";

/// The message to the agent where a built-in rule denies the operation regardless of the user's rules.
const NOT_PERMITTED_HERE: &str = "it may not be done here";

/// The message to the agent where the user's rules are unusable.
const POLICY_UNUSABLE: &str = "the user's rules cannot be used";

/// Describes a user's denial. For an agent that asks another host, the reason may be one of the messages above: then
/// that host's rules answered, not a user.
fn describe_user_denial(reason: Option<&str>) -> String {
    match reason {
        None => "the user said no".to_owned(),
        Some(
            reason @ (DENIED_BY_RULE | NO_APPROVER | NO_APPROVER_FOR_RULE | DENIED_BY_SETTINGS
            | NOT_PERMITTED_HERE | POLICY_UNUSABLE),
        ) => reason.to_owned(),
        Some(reason) => format!("the user said no: {reason}"),
    }
}

/// The source of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationApproval {
    /// Rules, or the preset, with their description.
    Rules(DecisionSource),
    /// An earlier grant for this operation, now consumed.
    Grant {
        /// The tool call that the grant was given for.
        call: Option<String>,
    },
    /// The user, in answer to a question.
    Person {
        /// The agent's own option, if the user chose one.
        option: Option<PermissionOptionId>,
        /// The text to write instead of the agent's, if the user edited it.
        text: Option<Arc<String>>,
    },
}

impl OperationApproval {
    /// Returns an approval by rules.
    #[must_use]
    pub fn from_ruling(ruling: &PolicyDecision) -> Self {
        Self::Rules(ruling_source(ruling))
    }

    /// Returns an approval by the user.
    ///
    /// # Errors
    /// Fails if the answer has an edited text and the question is not editable.
    pub(super) fn from_answer(question: &Question, answer: QuestionAnswer) -> Result<Self, ApprovalError> {
        if answer.edited_text.is_some() && !question.is_editable() {
            return Err(ApprovalError::Failed("what is done here cannot be edited".to_owned()));
        }
        Ok(Self::Person { option: answer.option_id, text: answer.edited_text })
    }

    /// Returns the decision source for the audit log.
    #[must_use]
    pub fn decision_source(&self) -> DecisionSource {
        match self {
            Self::Rules(by) => by.clone(),
            Self::Grant { .. } => DecisionSource::Grant,
            Self::Person { .. } => DecisionSource::Person,
        }
    }

    /// Returns whether the approval covers exactly this operation and nothing else.
    #[must_use]
    pub fn is_bound_to_operation(&self) -> bool {
        !matches!(self, Self::Rules(_))
    }
}

/// The reason why an operation is not approved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// Rules, or the preset, deny it.
    #[error("{reason}")]
    Rules {
        /// The rule or preset.
        decision_source: DecisionSource,
        /// The reason, for the user.
        reason: String,
        /// The part of the reason that an agent may know.
        agent_message: &'static str,
    },
    /// The user denied it.
    #[error("{}", describe_user_denial(.reason.as_deref()))]
    Person {
        /// The user's reason, if given.
        reason: Option<String>,
        /// The agent's own option, if the user chose one.
        option: Option<PermissionOptionId>,
    },
    /// There was no user to ask.
    #[error("no rule allows it and the user cannot be asked ({reason})")]
    NoApprover {
        /// The reason for asking.
        reason: String,
        /// The part of the reason that an agent may know.
        agent_message: &'static str,
    },
    /// Too many questions are pending.
    #[error("{MAX_PENDING_QUESTIONS} questions wait for the user already")]
    Busy,
    /// The rules cannot be read.
    #[error("the user's rules cannot be used: {0}")]
    PolicyUnusable(String),
    /// A part of the host failed.
    #[error("it could not be judged: {0}")]
    Failed(String),
    /// The audit log cannot be written.
    #[error("the audit log cannot be written, so nothing is done")]
    Unrecorded,
}

impl ApprovalError {
    /// Returns whether one of the user's rules denies it. The text of that rule is for the user alone.
    #[must_use]
    pub fn is_denied_by_rule(&self) -> bool {
        matches!(self, Self::Rules { agent_message, .. } if *agent_message == DENIED_BY_RULE)
    }

    /// Returns the decision source for the audit log.
    #[must_use]
    pub fn decision_source(&self) -> DecisionSource {
        match self {
            Self::Rules { decision_source: by, .. } => by.clone(),
            Self::Person { .. } => DecisionSource::Person,
            Self::NoApprover { .. }
            | Self::Busy
            | Self::PolicyUnusable(_)
            | Self::Failed(_)
            | Self::Unrecorded => DecisionSource::NotDecided,
        }
    }
}

impl From<ApprovalError> for RpcError {
    fn from(refused: ApprovalError) -> Self {
        match refused {
            ApprovalError::Busy => Self::Busy { limit: MAX_PENDING_QUESTIONS as u64 },
            // The location of rules and logs concerns their owner, not an agent.
            ApprovalError::PolicyUnusable(_) => Self::Denied { reason: POLICY_UNUSABLE.to_owned() },
            ApprovalError::Unrecorded | ApprovalError::Failed(_) => {
                Self::Internal { reason: refused.to_string() }
            }
            ApprovalError::Rules { agent_message: told, .. } => Self::Denied { reason: told.to_owned() },
            ApprovalError::NoApprover { agent_message: told, .. } => Self::Denied { reason: told.to_owned() },
            refused => Self::Denied { reason: refused.to_string() },
        }
    }
}

/// Returns the error for a question without a user to ask.
pub(super) fn no_approver_error(ruling: &PolicyDecision) -> ApprovalError {
    let told = match ruling.reasons.first().map(|reason| &reason.basis) {
        Some(ReasonBasis::Rule { .. }) => NO_APPROVER_FOR_RULE,
        _ => NO_APPROVER,
    };
    ApprovalError::NoApprover { reason: describe_ruling(ruling), agent_message: told }
}

/// Returns the decision of the rules alone, or `None` if the user has to be asked.
pub(super) fn decide_by_ruling(ruling: &PolicyDecision) -> Option<Result<OperationApproval, ApprovalError>> {
    match ruling.effect {
        Effect::Allow => Some(Ok(OperationApproval::from_ruling(ruling))),
        Effect::Deny => {
            let told = match ruling.reasons.first().map(|reason| &reason.basis) {
                Some(ReasonBasis::Rule { .. }) => DENIED_BY_RULE,
                Some(ReasonBasis::Preset { .. }) => DENIED_BY_SETTINGS,
                _ => NOT_PERMITTED_HERE,
            };
            Some(Err(ApprovalError::Rules {
                decision_source: ruling_source(ruling),
                reason: describe_ruling(ruling),
                agent_message: told,
            }))
        }
        Effect::Ask => None,
    }
}

fn ruling_source(ruling: &PolicyDecision) -> DecisionSource {
    match ruling.reasons.first().map(|reason| &reason.basis) {
        Some(ReasonBasis::Preset { preset, .. }) => DecisionSource::Preset(preset.to_string()),
        Some(_) => DecisionSource::Rule(describe_ruling(ruling)),
        None => DecisionSource::NotDecided,
    }
}

/// Returns the first reason of a ruling without the prefix that repeats its effect.
#[must_use]
pub fn describe_ruling(ruling: &PolicyDecision) -> String {
    let Some(reason) = ruling.reasons.first() else { return String::new() };
    let text = reason.to_string();
    text.strip_prefix(&format!("{}: ", reason.effect)).unwrap_or(&text).to_owned()
}
