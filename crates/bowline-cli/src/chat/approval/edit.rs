//! Changing a text before it is written: hunks that are left out, or all of it in the person's editor.

use std::path::Path;
use std::sync::Arc;

use bowline_state::diff::{hunks, take_back};
use bowline_state::operation::Target;
use bowline_state::question::{Choice, Item, Question, Reply, Shown};

use super::Approval;

/// A text to be edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EditableText {
    /// The text.
    pub(crate) text: Arc<String>,
    /// How the name of its file ends, so that an editor knows what it is.
    pub(crate) suffix: String,
}

impl Approval {
    /// Returns the text that would be written, if the person may change it.
    pub(crate) fn editable(&self) -> Option<EditableText> {
        let (item, change) = self.change().filter(|_| self.question.can_be_edited())?;
        let name = match &item.operation.target {
            Target::File { resolved, .. } => Path::new(resolved),
            _ => Path::new(""),
        };
        let ending = name.extension().and_then(|ending| ending.to_str());
        let suffix = ending.map_or_else(String::new, |ending| format!(".{ending}"));
        Some(EditableText { text: change.after.clone(), suffix })
    }

    /// Takes in what the person made of the text.
    pub(crate) fn edit(&mut self, text: String) {
        let Some(EditableText { text: before, .. }) = self.editable() else { return };
        if *before == text {
            return;
        }
        self.agents_text.get_or_insert(before);
        self.set_text(Arc::new(text));
    }

    /// Says whether it is the person's text by now.
    pub(super) fn is_edited(&self) -> bool {
        self.agents_text.is_some()
    }

    /// Leaves out the hunk that is the first in sight.
    pub(super) fn leave_out_hunk(&mut self) {
        let Some((hunk, _)) = self.hunk_in_sight() else { return };
        let Some((_, change)) = self.change() else { return };
        let before = change.before.as_ref().map_or("", |before| before.as_str());
        if let Ok(text) = take_back(before, &change.after, &[hunk]) {
            self.edit(text);
        }
    }

    /// Goes back to what the agent wants to write.
    pub(super) fn restore(&mut self) {
        if let Some(text) = self.agents_text.take() {
            self.set_text(text);
        }
    }

    /// Returns which hunk is the first in sight, and of how many; none if there is no choice between hunks.
    pub(super) fn hunk_in_sight(&self) -> Option<(usize, usize)> {
        let (_, change) = self.change().filter(|_| self.question.can_be_edited())?;
        let before = change.before.as_ref()?;
        let rows = &self.drawn.as_ref()?.hunks;
        let all = hunks(before, &change.after).len();
        let hunk = rows.iter().position(|rows| rows.end > self.view.top())?;
        (all > 1).then_some((hunk, all))
    }

    /// Returns an answer with the person's text, if it allows something and there is one.
    pub(super) fn with_text(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Answered(mut answer) if answer.choice == Choice::Allow && self.is_edited() => {
                answer.text = self.change().map(|(_, change)| change.after.clone());
                Reply::Answered(answer)
            }
            reply => reply,
        }
    }

    fn change(&self) -> Option<(&Item, &Shown)> {
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
        self.drawn = None;
    }
}
