//! What is being written: pasted text, what it could be completed to, and what was made of an agent's text.

use std::time::Duration;

use bowline_state::question::QuestionId;

use super::{App, Focus};
use crate::chat::approval::EditableText;
use crate::chat::command;
use crate::chat::completion::{Completion, Token};
use crate::chat::event::Action;
use crate::chat::input::Typed;

/// The list of files is asked for again after so long.
const FILES_KEPT: Duration = Duration::from_secs(10);

impl App {
    /// Returns what an agent is asking to write, if the person may change it, and of which question it is.
    pub(crate) fn editable(&self) -> Option<(QuestionId, EditableText)> {
        let asked = self.questions.front()?;
        Some((asked.id, asked.approval.editable()?))
    }

    /// Takes in what the person made of the text of a question.
    pub(crate) fn edit(&mut self, question: QuestionId, text: String) {
        match self.questions.iter_mut().find(|asked| asked.id == question) {
            Some(asked) => asked.approval.edit(text),
            None => self.flash("the agent does not ask any more: what you edited was not written"),
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        let typing = self.goes_on_typing();
        self.touched = Some(self.now);
        if self.too_small {
            return;
        }
        if let Some(asked) = self.questions.front_mut().filter(|_| !typing) {
            asked.approval.paste(text);
        } else if let Some((_, form)) = self.forms.front_mut() {
            form.paste(text);
        } else if let Some(search) = self.search.as_mut().filter(|_| self.pane.is_none()) {
            search.paste(text);
        } else if self.pane.is_none() {
            self.focus = Focus::Input;
            self.typed = Some(self.now);
            if self.input.insert(text) == Typed::Full {
                self.flash("that is too long to paste: put it into a file and mention it with @");
            }
            self.look_for_completion();
        }
    }

    /// Looks whether what is being written can be completed.
    pub(super) fn look_for_completion(&mut self) {
        let token = Token::at(&self.input.before_cursor(), self.input.cursor().0);
        let commands = self.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.commands());
        let kept = self.completion.take();
        let new = token.and_then(|token| Completion::of(token, &command::all(commands), &self.files));
        self.completion = new.map(|mut new| {
            // New files do not take away what was chosen.
            if let Some(kept) = kept.filter(|kept| kept.token == new.token) {
                let same =
                    kept.chosen().and_then(|chosen| new.offers.iter().position(|offer| offer == chosen));
                new.selected = same.unwrap_or(0);
            }
            new
        });
    }

    /// Says that a name may be missing only because there are too many, where nothing else is offered.
    pub(super) fn tell_of_more_files(&mut self) {
        if self.files_truncated && self.completion.is_none() && self.names_a_file() {
            let count = self.files.len();
            self.flash(format!("@ knows the first {count} names of this workspace: write others whole"));
        }
    }

    fn names_a_file(&self) -> bool {
        matches!(Token::at(&self.input.before_cursor(), 1), Some(Token::File(_) | Token::Quoted(_)))
    }

    /// Asks for the files if they are wanted and not known well enough.
    pub(super) fn want_files(&mut self) -> Option<Action> {
        let is_known = self.files_asked.is_some_and(|asked| self.now.saturating_sub(asked) < FILES_KEPT);
        if !self.names_a_file() || is_known || self.session.is_none() {
            return None;
        }
        self.files_asked = Some(self.now);
        Some(Action::ListFiles)
    }
}
