//! Editing a text before it is written: excluding hunks, or changing all of it in the user's editor.

use std::path::Path;
use std::sync::Arc;

use bowline_policy::operation::OperationTarget;
use bowline_policy::question::{AnswerChoice, Question, QuestionItem, QuestionReply, TextChange};
use bowline_text::diff::{compute_hunks, revert_hunks};

use super::ApprovalPane;

/// A text to be edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EditableText {
    /// The text.
    pub(crate) text: Arc<String>,
    /// The extension of its file, so that an editor recognises the type.
    pub(crate) suffix: String,
}

impl ApprovalPane {
    /// Returns the text that would be written, if the user may edit it.
    pub(crate) fn editable_text(&self) -> Option<EditableText> {
        let (item, change) = self.selected_change().filter(|_| self.question.is_editable())?;
        let name = match &item.operation.target {
            OperationTarget::File { resolved, .. } => Path::new(resolved),
            _ => Path::new(""),
        };
        let extension = name.extension().and_then(|extension| extension.to_str());
        let suffix = extension.map_or_else(String::new, |extension| format!(".{extension}"));
        Some(EditableText { text: change.after.clone(), suffix })
    }

    /// Applies the user's edit of the text.
    pub(crate) fn apply_edit(&mut self, text: String) {
        let Some(EditableText { text: before, .. }) = self.editable_text() else { return };
        if *before == text {
            return;
        }
        self.original_text.get_or_insert(before);
        self.set_text(Arc::new(text));
    }

    /// Returns whether the user has edited the text.
    pub(super) fn is_edited(&self) -> bool {
        self.original_text.is_some()
    }

    /// Excludes the first visible hunk.
    pub(super) fn exclude_hunk(&mut self) {
        let Some((hunk, _)) = self.visible_hunk() else { return };
        let Some((_, change)) = self.selected_change() else { return };
        let before = change.before.as_ref().map_or("", |before| before.as_str());
        if let Ok(text) = revert_hunks(before, &change.after, &[hunk]) {
            self.apply_edit(text);
        }
    }

    /// Restores the agent's text.
    pub(super) fn restore_original(&mut self) {
        if let Some(text) = self.original_text.take() {
            self.set_text(text);
        }
    }

    /// Returns the first visible hunk and the number of hunks; `None` if there is no choice between hunks.
    pub(super) fn visible_hunk(&self) -> Option<(usize, usize)> {
        let (_, change) = self.selected_change().filter(|_| self.question.is_editable())?;
        let before = change.before.as_ref()?;
        let rows = &self.rendered.as_ref()?.hunks;
        let count = compute_hunks(before, &change.after).len();
        let hunk = rows.iter().position(|rows| rows.end > self.viewport.top())?;
        (count > 1).then_some((hunk, count))
    }

    /// Adds the user's text to a reply, if the reply allows the write and the text was edited.
    pub(super) fn add_edited_text(&self, reply: QuestionReply) -> QuestionReply {
        match reply {
            QuestionReply::Answered(mut answer)
                if answer.choice == AnswerChoice::Allow && self.is_edited() =>
            {
                answer.edited_text = self.selected_change().map(|(_, change)| change.after.clone());
                QuestionReply::Answered(answer)
            }
            reply => reply,
        }
    }

    fn selected_change(&self) -> Option<(&QuestionItem, &TextChange)> {
        let item = self.question.items.get(self.selected)?;
        Some((item, item.change.as_ref()?))
    }

    fn set_text(&mut self, text: Arc<String>) {
        let mut question = Question::clone(&self.question);
        if let Some(change) = question.items.get_mut(self.selected).and_then(|item| item.change.as_mut()) {
            change.after = text;
        }
        self.question = Arc::new(question);
        self.stats[self.selected] = None;
        self.rendered = None;
    }
}
