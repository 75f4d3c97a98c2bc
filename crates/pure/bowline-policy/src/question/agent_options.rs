//! The options that an agent offers, where they are more than a yes and a no.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{PermissionOption, PermissionOptionId, PermissionOptionKind};

use super::AnswerChoice;
use bowline_text::display;

/// The maximum number of options offered to a person: one per digit. Further options are mentioned.
pub const MAX_AGENT_OPTIONS: usize = 9;

/// The maximum length of a displayed name, in bytes.
const MAX_NAME: usize = 400;

/// An option that an agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOption {
    /// The agent's id for it.
    pub id: PermissionOptionId,
    /// Its name, in the agent's words.
    pub name: String,
    /// Whether it allows or denies.
    pub choice: AnswerChoice,
    /// Whether the agent applies it beyond this once.
    pub is_persistent: bool,
}

impl AgentOption {
    /// Returns the selectable options among those that an agent offers: only those with a unique id.
    #[must_use]
    pub fn from_options(options: &[PermissionOption]) -> Vec<Self> {
        let mut count: HashMap<&PermissionOptionId, usize> = HashMap::new();
        for option in options {
            *count.entry(&option.option_id).or_default() += 1;
        }
        let known = options.iter().filter(|option| count.get(&option.option_id) == Some(&1));
        known.filter_map(Self::from_option).collect()
    }

    fn from_option(option: &PermissionOption) -> Option<Self> {
        let (choice, is_persistent) = match option.kind {
            PermissionOptionKind::AllowOnce => (AnswerChoice::Allow, false),
            PermissionOptionKind::AllowAlways => (AnswerChoice::Allow, true),
            PermissionOptionKind::RejectOnce => (AnswerChoice::Deny, false),
            PermissionOptionKind::RejectAlways => (AnswerChoice::Deny, true),
            // A kind of a later protocol is neither a yes nor a no.
            _ => return None,
        };
        Some(Self { id: option.option_id.clone(), name: option.name.clone(), choice, is_persistent })
    }

    /// Returns the options that a person should choose from; none if they amount to yes and no. Where a rule can be
    /// made here, the agent's own "always" is left out, because the rule states its scope and can be revoked.
    #[must_use]
    pub fn selectable(mut all: Vec<Self>, rules: bool) -> Vec<Self> {
        all.retain(|offer| !rules || !offer.is_persistent);
        let several = |choice| all.iter().filter(|offer| offer.choice == choice).count() > 1;
        if several(AnswerChoice::Allow) || several(AnswerChoice::Deny) { all } else { Vec::new() }
    }

    /// Returns its name and meaning, safe on any terminal.
    #[must_use]
    pub fn label(&self) -> String {
        let meaning = match (self.choice, self.is_persistent) {
            (AnswerChoice::Allow, false) => "yes",
            (AnswerChoice::Allow, true) => "yes, always",
            (AnswerChoice::Deny, false) => "no",
            (AnswerChoice::Deny, true) => "no, always",
        };
        format!("{} ({meaning})", display::escape_line(&self.name, MAX_NAME))
    }
}
