//! Commands that the person runs beside the conversation, by `!`.

use super::App;
use crate::chat::conversation::Tone;
use crate::chat::event::Action;

impl App {
    /// Runs a command of the person's own, one at a time.
    pub(super) fn run_shell(&mut self, text: &str) -> Vec<Action> {
        if self.shell.is_some() {
            self.input.set(text);
            self.flash("a command of yours runs: Esc ends it");
            return Vec::new();
        }
        let line = text.trim().trim_start_matches('!').trim().to_owned();
        self.conversation.prompt(text.to_owned());
        self.shell = Some((line.clone(), self.now));
        vec![Action::RunShell(line)]
    }

    /// Ends it, and says whether there was one.
    pub(super) fn end_shell(&mut self) -> bool {
        let ended = self.shell.take();
        if ended.is_some() {
            self.conversation.note(Tone::Warning, "your command was ended");
        }
        ended.is_some()
    }

    pub(super) fn shell_ended(&mut self, result: Result<String, String>) {
        if self.shell.take().is_some() {
            match result {
                Ok(text) => self.conversation.note(Tone::Output, text),
                Err(why) => self.conversation.note(Tone::Error, why),
            }
        }
    }
}
