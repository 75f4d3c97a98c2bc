//! The answers that an agent offers, where they are more than a yes and a no.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{PermissionOption, PermissionOptionId, PermissionOptionKind};

use super::Choice;
use crate::display;

/// So many are offered to a person: as many as there are digits. That there are more is told.
pub const MAX_OFFERS: usize = 9;

/// As much of a name is shown, in bytes.
const MAX_NAME: usize = 400;

/// An answer that an agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What the agent calls it.
    pub id: PermissionOptionId,
    /// Its name, in the agent's words.
    pub name: String,
    /// Yes or no.
    pub choice: Choice,
    /// Whether the agent takes it for more than this once.
    pub lasts: bool,
}

impl Offer {
    /// Returns what can be chosen of what an agent offers: only an option whose id stands for nothing else.
    #[must_use]
    pub fn all(options: &[PermissionOption]) -> Vec<Self> {
        let mut count: HashMap<&PermissionOptionId, usize> = HashMap::new();
        for option in options {
            *count.entry(&option.option_id).or_default() += 1;
        }
        let known = options.iter().filter(|option| count.get(&option.option_id) == Some(&1));
        known.filter_map(Self::of).collect()
    }

    fn of(option: &PermissionOption) -> Option<Self> {
        let (choice, lasts) = match option.kind {
            PermissionOptionKind::AllowOnce => (Choice::Allow, false),
            PermissionOptionKind::AllowAlways => (Choice::Allow, true),
            PermissionOptionKind::RejectOnce => (Choice::Deny, false),
            PermissionOptionKind::RejectAlways => (Choice::Deny, true),
            // A kind of a later protocol says neither yes nor no.
            _ => return None,
        };
        Some(Self { id: option.option_id.clone(), name: option.name.clone(), choice, lasts })
    }

    /// Returns those that a person should choose among; none if there is nothing to choose but yes and no. Where a rule can
    /// be made here, an agent's own always is left out: the rule says what it is for, and can be taken back.
    #[must_use]
    pub fn to_choose(mut all: Vec<Self>, rules: bool) -> Vec<Self> {
        all.retain(|offer| !rules || !offer.lasts);
        let several = |choice| all.iter().filter(|offer| offer.choice == choice).count() > 1;
        if several(Choice::Allow) || several(Choice::Deny) { all } else { Vec::new() }
    }

    /// Returns it in words, safe on any terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let means = match (self.choice, self.lasts) {
            (Choice::Allow, false) => "yes",
            (Choice::Allow, true) => "yes, always",
            (Choice::Deny, false) => "no",
            (Choice::Deny, true) => "no, always",
        };
        format!("{} ({means})", display::line(&self.name, MAX_NAME))
    }
}
