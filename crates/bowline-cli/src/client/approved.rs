//! Changes that the person approved, to say what is different when the same is asked about again.

use std::collections::VecDeque;
use std::sync::Arc;

use bowline_state::operation::Target;
use bowline_state::question::{Answer, Choice, Item, Occasion, Question, Reply, Shown};

/// So many changes are remembered; the oldest go.
const MAX_APPROVED: usize = 16;

/// The changes that were approved last, by file.
#[derive(Debug, Default)]
pub(crate) struct ApprovedChanges(VecDeque<(String, Shown)>);

/// What is not as it was when the person approved a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// What it is, in words.
    pub(crate) what: &'static str,
    /// The text then.
    pub(crate) then: Arc<String>,
    /// The text now.
    pub(crate) now: Arc<String>,
}

impl ApprovedChanges {
    /// Remembers what a reply approves.
    pub(crate) fn remember(&mut self, question: &Question, reply: &Reply) {
        if !matches!(reply, Reply::Answered(Answer { choice: Choice::Allow, .. })) {
            return;
        }
        for (path, change) in question.items.iter().filter_map(change_of) {
            self.0.retain(|(known, _)| known != path);
            self.0.push_back((path.to_owned(), change.clone()));
        }
        let surplus = self.0.len().saturating_sub(MAX_APPROVED);
        self.0.drain(..surplus);
    }

    /// Returns for each operation of a question what is different from what was approved, if it is asked about again.
    pub(crate) fn differences(&self, question: &Question) -> Vec<Option<Difference>> {
        let is_again = question.occasion == Occasion::Changed;
        let difference = |item: &Item| {
            let (path, now) = change_of(item).filter(|_| is_again)?;
            let (_, then) = self.0.iter().find(|(known, _)| known == path)?;
            let text = |text: &Option<Arc<String>>| text.clone().unwrap_or_default();
            let (what, then, now) = match then.before == now.before {
                false => ("the file changed since you approved this", text(&then.before), text(&now.before)),
                true => (
                    "the agent now writes another text than you approved",
                    then.after.clone(),
                    now.after.clone(),
                ),
            };
            (then != now).then_some(Difference { what, then, now })
        };
        question.items.iter().map(difference).collect()
    }
}

fn change_of(item: &Item) -> Option<(&str, &Shown)> {
    match (&item.operation.target, &item.change) {
        (Target::File { resolved, .. }, Some(change)) => Some((resolved, change)),
        _ => None,
    }
}
