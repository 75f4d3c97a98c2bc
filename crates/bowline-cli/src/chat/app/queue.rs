//! Prompts: sent at once, or queued until the turn ends.

use super::{AgentStatus, App, RunningTurn};
use crate::chat::event::ChatAction;

/// The maximum number of queued prompts.
const MAX_QUEUED: usize = 8;

impl App {
    /// Sends the next queued prompt, if it can be sent now.
    pub(super) fn send_next_queued(&mut self) -> Vec<ChatAction> {
        if self.turn.is_some() || self.status != AgentStatus::Ready {
            return Vec::new();
        }
        match self.queued_prompts.pop_front() {
            Some(text) => self.send_prompt(text),
            None => Vec::new(),
        }
    }

    pub(super) fn send_prompt(&mut self, text: String) -> Vec<ChatAction> {
        self.has_prompted = true;
        self.conversation.add_prompt(text.clone());
        self.turn = Some(RunningTurn { started_at: self.now, cancelled_at: None });
        vec![ChatAction::SendPrompt(text)]
    }

    /// Sends a prompt, queues it, or reports why neither is possible.
    pub(super) fn submit_prompt(&mut self, text: String) -> Vec<ChatAction> {
        if let AgentStatus::Exited(_) = self.status {
            self.input.set_text(&text);
            self.show_flash("the agent is not running: Ctrl-R starts it again");
            return Vec::new();
        }
        if self.turn.is_none() && self.status == AgentStatus::Ready {
            return self.send_prompt(text);
        }
        if self.queued_prompts.len() >= MAX_QUEUED {
            self.input.set_text(&text);
            self.show_flash(format!(
                "{MAX_QUEUED} prompts wait already: Esc cancels the turn, Ctrl-Q takes one back"
            ));
            return Vec::new();
        }
        self.queued_prompts.push_back(text);
        Vec::new()
    }

    /// Moves the last queued prompt back to the input, for editing.
    pub(super) fn unqueue_last(&mut self) {
        if let Some(text) = self.queued_prompts.pop_back() {
            let both = match self.input.is_empty() {
                true => text,
                false => format!("{text}\n{}", self.input.text()),
            };
            self.input.set_text(&both);
        }
    }

    /// Moves all queued prompts back to the input.
    pub(super) fn unqueue_all(&mut self) {
        while !self.queued_prompts.is_empty() {
            self.unqueue_last();
        }
    }
}
