//! Shell commands that the user runs with `!` beside the conversation.

use super::App;
use crate::chat::conversation::NoteLevel;
use crate::chat::event::ChatAction;

impl App {
    /// Runs a shell command of the user, one at a time.
    pub(super) fn run_shell(&mut self, text: &str) -> Vec<ChatAction> {
        if self.shell_command.is_some() {
            self.input.set_text(text);
            self.show_flash("a command of yours runs: Esc ends it");
            return Vec::new();
        }
        let line = text.trim().trim_start_matches('!').trim().to_owned();
        self.conversation.add_prompt(text.to_owned());
        self.shell_command = Some((line.clone(), self.now));
        vec![ChatAction::RunShell(line)]
    }

    /// Ends the running command, and returns whether there was one.
    pub(super) fn end_shell(&mut self) -> bool {
        let ended = self.shell_command.take();
        if ended.is_some() {
            self.conversation.add_note(NoteLevel::Warning, "your command was ended");
        }
        ended.is_some()
    }

    pub(super) fn handle_shell_ended(&mut self, result: Result<String, String>) {
        if self.shell_command.take().is_some() {
            match result {
                Ok(text) => self.conversation.add_note(NoteLevel::Output, text),
                Err(why) => self.conversation.add_note(NoteLevel::Error, why),
            }
        }
    }
}
