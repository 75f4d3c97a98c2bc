//! Composing: pasted text, completions, and edits of an agent's text.

use std::time::Duration;

use bowline_policy::question::QuestionId;

use super::{App, KeyFocus};
use crate::chat::approval::EditableText;
use crate::chat::command;
use crate::chat::completion::{Completion, CompletionToken};
use crate::chat::event::ChatAction;
use crate::chat::input::InputOutcome;

/// The interval after which the list of files is requested again.
const FILES_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

impl App {
    /// Returns the text that an agent asks to write, if the user may edit it, and the id of the question.
    pub(crate) fn editable_text(&self) -> Option<(QuestionId, EditableText)> {
        let asked = self.pending_approvals.front()?;
        Some((asked.id, asked.approval.editable_text()?))
    }

    /// Applies the user's edit of a question's text.
    pub(crate) fn apply_edit(&mut self, question: QuestionId, text: String) {
        match self.pending_approvals.iter_mut().find(|asked| asked.id == question) {
            Some(asked) => asked.approval.apply_edit(text),
            None => self.show_flash("the agent does not ask any more: what you edited was not written"),
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        let typing = self.is_still_typing();
        self.last_key_at = Some(self.now);
        if self.is_too_small {
            return;
        }
        if let Some(asked) = self.pending_approvals.front_mut().filter(|_| !typing) {
            asked.approval.paste(text);
        } else if let Some((_, form)) = self.elicitations.front_mut() {
            form.paste(text);
        } else if let Some(search) = self.search_input.as_mut().filter(|_| self.pane.is_none()) {
            search.paste(text);
        } else if self.pane.is_none() {
            self.focus = KeyFocus::Input;
            self.last_typed_at = Some(self.now);
            if self.input.insert(text) == InputOutcome::Full {
                self.show_flash("that is too long to paste: put it into a file and mention it with @");
            }
            self.update_completion();
        }
    }

    /// Updates the completion list for the prompt being written.
    pub(super) fn update_completion(&mut self) {
        let token = CompletionToken::at_cursor(&self.input.text_before_cursor(), self.input.cursor().0);
        let commands = self.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.commands());
        let kept = self.completion.take();
        let new = token
            .and_then(|token| Completion::for_token(token, &command::all_commands(commands), &self.files));
        self.completion = new.map(|mut new| {
            // Newly listed files keep the current selection.
            if let Some(kept) = kept.filter(|kept| kept.token == new.token) {
                let same = kept
                    .selected_item()
                    .and_then(|chosen| new.items.iter().position(|offer| offer == chosen));
                new.selected = same.unwrap_or(0);
            }
            new
        });
    }

    /// If nothing is offered, warns that a name may be missing because the list is truncated.
    pub(super) fn warn_of_truncated_files(&mut self) {
        if self.files_truncated && self.completion.is_none() && self.is_at_file_token() {
            let count = self.files.len();
            self.show_flash(format!("@ knows the first {count} names of this workspace: write others whole"));
        }
    }

    fn is_at_file_token(&self) -> bool {
        matches!(
            CompletionToken::at_cursor(&self.input.text_before_cursor(), 1),
            Some(CompletionToken::File(_) | CompletionToken::QuotedFile(_))
        )
    }

    /// Requests the list of files if it is needed and missing or outdated.
    pub(super) fn request_files(&mut self) -> Option<ChatAction> {
        let is_known = self
            .files_requested_at
            .is_some_and(|asked| self.now.saturating_sub(asked) < FILES_REFRESH_INTERVAL);
        if !self.is_at_file_token() || is_known || self.session.is_none() {
            return None;
        }
        self.files_requested_at = Some(self.now);
        Some(ChatAction::ListFiles)
    }
}
