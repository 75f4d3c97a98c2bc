//! An agent that is gone, and what can be done then.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{App, Focus, Stage};
use crate::chat::conversation::Tone;
use crate::chat::event::{Action, Restart};

/// A letter means something other than itself only if no key was pressed for so long: whoever types a sentence while the
/// agent dies goes on with it.
const QUIET: Duration = Duration::from_millis(600);

/// So many lines of an agent's last words stay in the conversation: the first, and the last ones.
const MAX_WORDS: usize = 40;

impl App {
    /// Leaves, because what the command line asks for cannot be had. Who has written something meanwhile keeps it, and can
    /// try again.
    pub(super) fn refused(&mut self, why: String) -> Vec<Action> {
        if self.input.is_empty() && self.queued.is_empty() {
            return vec![Action::Quit];
        }
        self.died(why);
        Vec::new()
    }

    pub(super) fn died(&mut self, words: String) {
        self.turn = None;
        self.pane = None;
        self.unqueue_all();
        // The window goes when the agent is started again.
        let lines: Vec<&str> = words.trim().lines().collect();
        let from = lines.len().saturating_sub(MAX_WORDS).max(1);
        let kept: Vec<&str> = lines.iter().take(1).chain(lines.iter().skip(from)).copied().collect();
        self.conversation.note(Tone::Error, format!("the agent is gone: {}", kept.join("\n")));
        self.stage = Stage::Dead(words);
        self.focus = Focus::Input;
        // Also who was not typing has not seen it yet.
        self.pressed = Some(self.now);
    }

    /// Takes a key that has a meaning while the agent is gone. All others have theirs, so that typing goes on.
    pub(super) fn gone_key(&mut self, key: KeyEvent) -> Option<Vec<Action>> {
        let is_quiet = self.pressed.is_none_or(|pressed| self.now.saturating_sub(pressed) >= QUIET);
        let acts = match key.modifiers {
            KeyModifiers::CONTROL => true,
            KeyModifiers::NONE => is_quiet && self.input.is_empty(),
            _ => false,
        };
        let restart = match key.code {
            KeyCode::Char('r') if acts => Restart::SameSession,
            KeyCode::Char('n') if acts => Restart::NewSession,
            KeyCode::Char('q') if acts && key.modifiers.is_empty() => return Some(vec![Action::Quit]),
            _ => return None,
        };
        self.begin(format!("starting {} again", self.agent));
        Some(vec![Action::Restart(restart)])
    }
}
