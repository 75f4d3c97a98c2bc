//! Prompts: sent at once, or when the turn before them is over.

use super::{App, Stage, Turn};
use crate::chat::event::Action;

/// So many prompts wait at most.
const MAX_QUEUED: usize = 8;

impl App {
    /// Sends what waits, if it can be sent now.
    pub(super) fn next_prompt(&mut self) -> Vec<Action> {
        if self.turn.is_some() || self.stage != Stage::Ready {
            return Vec::new();
        }
        match self.queued.pop_front() {
            Some(text) => self.send(text),
            None => Vec::new(),
        }
    }

    pub(super) fn send(&mut self, text: String) -> Vec<Action> {
        self.said = true;
        self.conversation.prompt(text.clone());
        self.turn = Some(Turn { since: self.now, cancelled: None });
        vec![Action::Prompt(text)]
    }

    /// Sends a prompt, or keeps it until it can be sent, or says why not.
    pub(super) fn say(&mut self, text: String) -> Vec<Action> {
        if let Stage::Dead(_) = self.stage {
            self.input.set(&text);
            self.flash("the agent is not running: Ctrl-R starts it again");
            return Vec::new();
        }
        if self.turn.is_none() && self.stage == Stage::Ready {
            return self.send(text);
        }
        if self.queued.len() >= MAX_QUEUED {
            self.input.set(&text);
            self.flash(format!(
                "{MAX_QUEUED} prompts wait already: Esc cancels the turn, Ctrl-Q takes one back"
            ));
            return Vec::new();
        }
        self.queued.push_back(text);
        Vec::new()
    }

    /// Takes back the prompt that was put last among those that wait, to change it.
    pub(super) fn unqueue(&mut self) {
        if let Some(text) = self.queued.pop_back() {
            let both = match self.input.is_empty() {
                true => text,
                false => format!("{text}\n{}", self.input.text()),
            };
            self.input.set(&both);
        }
    }

    /// Takes back all prompts that wait.
    pub(super) fn unqueue_all(&mut self) {
        while !self.queued.is_empty() {
            self.unqueue();
        }
    }
}
