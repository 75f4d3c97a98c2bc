//! An agent that has exited, and the user's options.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{AgentStatus, App, KeyFocus};
use crate::chat::conversation::NoteLevel;
use crate::chat::event::{ChatAction, RestartTarget};

/// The pause required before a letter acts as a command: a user who is typing when the agent exits keeps typing.
const RESTART_QUIET_TIME: Duration = Duration::from_millis(600);

/// The maximum number of lines of an agent's last output kept in the conversation: the first and the last ones.
const MAX_EXIT_LINES: usize = 40;

impl App {
    /// Quits because the command line's request cannot be met. If the user has typed something meanwhile, it is kept
    /// and the user can retry.
    pub(super) fn handle_start_refused(&mut self, why: String) -> Vec<ChatAction> {
        if self.input.is_empty() && self.queued_prompts.is_empty() {
            return vec![ChatAction::Quit];
        }
        self.handle_agent_exit(why);
        Vec::new()
    }

    pub(super) fn handle_agent_exit(&mut self, words: String) {
        self.turn = None;
        self.pane = None;
        self.unqueue_all();
        // The exit window disappears when the agent is restarted.
        let lines: Vec<&str> = words.trim().lines().collect();
        let from = lines.len().saturating_sub(MAX_EXIT_LINES).max(1);
        let kept: Vec<&str> = lines.iter().take(1).chain(lines.iter().skip(from)).copied().collect();
        self.conversation.add_note(NoteLevel::Error, format!("the agent is gone: {}", kept.join("\n")));
        self.status = AgentStatus::Exited(words);
        self.focus = KeyFocus::Input;
        // A user who was not typing has not seen the window yet, either.
        self.previous_key_at = Some(self.now);
    }

    /// Handles a key that has a meaning after the agent has exited. All other keys work as usual, so that typing
    /// continues.
    pub(super) fn handle_exited_key(&mut self, key: KeyEvent) -> Option<Vec<ChatAction>> {
        let is_quiet =
            self.previous_key_at.is_none_or(|pressed| self.now.saturating_sub(pressed) >= RESTART_QUIET_TIME);
        let acts = match key.modifiers {
            KeyModifiers::CONTROL => true,
            KeyModifiers::NONE => is_quiet && self.input.is_empty(),
            _ => false,
        };
        let restart = match key.code {
            KeyCode::Char('r') if acts => RestartTarget::SameSession,
            KeyCode::Char('n') if acts => RestartTarget::NewSession,
            KeyCode::Char('q') if acts && key.modifiers.is_empty() => return Some(vec![ChatAction::Quit]),
            _ => return None,
        };
        self.begin_opening(format!("starting {} again", self.agent));
        Some(vec![ChatAction::Restart(restart)])
    }
}
