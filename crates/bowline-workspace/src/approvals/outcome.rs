//! Who let an operation pass, or why it may not be done.

use std::sync::Arc;

use bowline_state::audit::By;
use bowline_state::failure::Failure;
use bowline_state::policy::{Effect, Ground, Ruling};
use bowline_state::question::{Answer, Keep, Question};
use bowline_state::schema::v1::PermissionOptionId;

use super::MAX_WAITING;

/// What an agent is told where a rule denies something.
const BY_RULE: &str = "a rule of the user's denies it";

/// What an agent is told where no rule allows something and nobody can be asked.
pub const NOBODY: &str = "no rule allows it, and nobody is there to ask";

/// What an agent is told where a rule of the user's says to ask, and nobody can be asked.
pub const NOBODY_BY_RULE: &str = "a rule of the user's says to ask, and nobody is there to ask";

/// What an agent is told where the preset denies something.
pub const BY_SETTINGS: &str = "the user's settings deny it";

/// What an agent is told where something may not be done, whatever the user says.
const NOT_HERE: &str = "it may not be done here";

/// What an agent is told where nobody knows what the user wants.
const NO_RULES: &str = "the user's rules cannot be used";

/// Says that a person said no, and why. An agent may ask a host for which rules answer: then nobody did.
fn said_no(reason: Option<&str>) -> String {
    match reason {
        None => "the user said no".to_owned(),
        Some(reason @ (BY_RULE | NOBODY | NOBODY_BY_RULE | BY_SETTINGS | NOT_HERE | NO_RULES)) => {
            reason.to_owned()
        }
        Some(reason) => format!("the user said no: {reason}"),
    }
}

/// Who let an operation pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cleared {
    /// Rules, or the preset; in their own text.
    Rules(By),
    /// An approval that was given for this before, and is used up now.
    Grant {
        /// The tool call that it was given for.
        call: Option<String>,
    },
    /// A person, just now.
    Person {
        /// For how long that holds.
        keep: Keep,
        /// Which of the agent's own answers it was, if one was chosen.
        option: Option<PermissionOptionId>,
        /// What is to be written in place of what the agent wants, if the person changed it.
        text: Option<Arc<String>>,
    },
}

impl Cleared {
    /// Returns that rules let it pass.
    #[must_use]
    pub fn by_rules(ruling: &Ruling) -> Self {
        Self::Rules(by(ruling))
    }

    /// Returns that a person let it pass.
    ///
    /// # Errors
    /// Says that a text was given where none can be written.
    pub(super) fn by_person(question: &Question, answer: Answer) -> Result<Self, Refused> {
        if answer.text.is_some() && !question.can_be_edited() {
            return Err(Refused::Failed("what is done here cannot be edited".to_owned()));
        }
        Ok(Self::Person { keep: answer.keep, option: answer.option, text: answer.text })
    }

    /// Returns who it was, as the audit log has it.
    #[must_use]
    pub fn by(&self) -> By {
        match self {
            Self::Rules(by) => by.clone(),
            Self::Grant { .. } => By::Grant,
            Self::Person { .. } => By::Person,
        }
    }

    /// Says whether somebody has seen exactly what is to be done, and agreed to no more.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        !matches!(self, Self::Rules(_))
    }
}

/// Why an operation may not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Rules, or the preset, deny it.
    #[error("{text}")]
    Rules {
        /// Which.
        by: By,
        /// Why, in words.
        text: String,
        /// As much of it as an agent may know.
        told: &'static str,
    },
    /// A person said no.
    #[error("{}", said_no(.reason.as_deref()))]
    Person {
        /// Why, if the person told.
        reason: Option<String>,
        /// Which of the agent's own answers it was, if one was chosen.
        option: Option<PermissionOptionId>,
    },
    /// Nobody was there to ask.
    #[error("no rule allows it and nobody is there to ask ({because})")]
    Nobody {
        /// Why it would have been asked.
        because: String,
        /// As much of it as an agent may know.
        told: &'static str,
    },
    /// Too many questions wait.
    #[error("{MAX_WAITING} questions wait for the user already")]
    Busy,
    /// The rules cannot be read.
    #[error("the user's rules cannot be used: {0}")]
    Rulebook(String),
    /// Something of the host itself ended early.
    #[error("it could not be judged: {0}")]
    Failed(String),
    /// It cannot be recorded.
    #[error("the audit log cannot be written, so nothing is done")]
    Unrecorded,
}

impl Refused {
    /// Says whether a rule of the user's denies it. What it says is for the user alone.
    #[must_use]
    pub fn is_by_rule(&self) -> bool {
        matches!(self, Self::Rules { told, .. } if *told == BY_RULE)
    }

    /// Returns who it was, as the audit log has it.
    #[must_use]
    pub fn by(&self) -> By {
        match self {
            Self::Rules { by, .. } => by.clone(),
            Self::Person { .. } => By::Person,
            Self::Nobody { .. } | Self::Busy | Self::Rulebook(_) | Self::Failed(_) | Self::Unrecorded => {
                By::Nobody
            }
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy => Self::Busy { limit: MAX_WAITING as u64 },
            // Where rules and logs are concerns their owner, not an agent.
            Refused::Rulebook(_) => Self::Denied { why: NO_RULES.to_owned() },
            Refused::Unrecorded | Refused::Failed(_) => Self::Internal { reason: refused.to_string() },
            Refused::Rules { told, .. } => Self::Denied { why: told.to_owned() },
            Refused::Nobody { told, .. } => Self::Denied { why: told.to_owned() },
            refused => Self::Denied { why: refused.to_string() },
        }
    }
}

/// Returns that what is to be asked for cannot be.
pub(super) fn unasked(ruling: &Ruling) -> Refused {
    let told = match ruling.because.first().map(|reason| &reason.ground) {
        Some(Ground::Rule { .. }) => NOBODY_BY_RULE,
        _ => NOBODY,
    };
    Refused::Nobody { because: because(ruling), told }
}

/// Returns what the rules alone decide, if they do.
pub(super) fn decided(ruling: &Ruling) -> Option<Result<Cleared, Refused>> {
    match ruling.effect {
        Effect::Allow => Some(Ok(Cleared::by_rules(ruling))),
        Effect::Deny => {
            let told = match ruling.because.first().map(|reason| &reason.ground) {
                Some(Ground::Rule { .. }) => BY_RULE,
                Some(Ground::Preset { .. }) => BY_SETTINGS,
                _ => NOT_HERE,
            };
            Some(Err(Refused::Rules { by: by(ruling), text: because(ruling), told }))
        }
        Effect::Ask => None,
    }
}

fn by(ruling: &Ruling) -> By {
    match ruling.because.first().map(|reason| &reason.ground) {
        Some(Ground::Preset { preset, .. }) => By::Preset(preset.to_string()),
        Some(_) => By::Rule(because(ruling)),
        None => By::Nobody,
    }
}

/// Returns the first reason of a ruling, which has its own effect, without saying that again.
#[must_use]
pub fn because(ruling: &Ruling) -> String {
    let Some(reason) = ruling.because.first() else { return String::new() };
    let text = reason.to_string();
    text.strip_prefix(&format!("{}: ", reason.effect)).unwrap_or(&text).to_owned()
}
