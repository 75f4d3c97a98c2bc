//! Changes that the user approved, to show the differences when the same change is requested again.

use std::collections::VecDeque;
use std::sync::Arc;

use bowline_policy::operation::OperationTarget;
use bowline_policy::question::{
    AnswerChoice, Question, QuestionAnswer, QuestionItem, QuestionReply, QuestionTrigger, TextChange,
};

/// The maximum number of remembered changes; the oldest are dropped.
const MAX_APPROVED: usize = 16;

/// The most recently approved changes, by file.
#[derive(Debug, Default)]
pub struct ApprovedChanges(VecDeque<(String, TextChange)>);

/// A difference from an approved change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDifference {
    /// What differs, in words.
    pub description: &'static str,
    /// The approved text.
    pub approved: Arc<String>,
    /// The current text.
    pub current: Arc<String>,
}

impl ApprovedChanges {
    /// Remembers the changes that a reply approves.
    pub fn remember(&mut self, question: &Question, reply: &QuestionReply) {
        if !matches!(reply, QuestionReply::Answered(QuestionAnswer { choice: AnswerChoice::Allow, .. })) {
            return;
        }
        for (path, change) in question.items.iter().filter_map(file_change) {
            self.0.retain(|(known, _)| known != path);
            self.0.push_back((path.to_owned(), change.clone()));
        }
        let surplus = self.0.len().saturating_sub(MAX_APPROVED);
        self.0.drain(..surplus);
    }

    /// Returns, for each operation of a question, the difference from what was approved if it is requested again.
    pub fn differences(&self, question: &Question) -> Vec<Option<ApprovalDifference>> {
        let is_repeated = question.trigger == QuestionTrigger::ChangedOperation;
        let difference = |item: &QuestionItem| {
            let (path, current) = file_change(item).filter(|_| is_repeated)?;
            let (_, approved) = self.0.iter().find(|(known, _)| known == path)?;
            let text = |text: &Option<Arc<String>>| text.clone().unwrap_or_default();
            let (description, approved, current) = match approved.before == current.before {
                false => (
                    "the file changed since you approved this",
                    text(&approved.before),
                    text(&current.before),
                ),
                true => (
                    "the agent now writes another text than you approved",
                    approved.after.clone(),
                    current.after.clone(),
                ),
            };
            (approved != current).then_some(ApprovalDifference { description, approved, current })
        };
        question.items.iter().map(difference).collect()
    }
}

fn file_change(item: &QuestionItem) -> Option<(&str, &TextChange)> {
    match (&item.operation.target, &item.change) {
        (OperationTarget::File { resolved, .. }, Some(change)) => Some((resolved, change)),
        _ => None,
    }
}
