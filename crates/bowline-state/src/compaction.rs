//! Which part of a conversation is summed up when it no longer fits a model's window.
//!
//! What was said last is kept as it is, in whole turns, or in whole steps (a reply and what its calls were answered) of
//! a turn that is too long by itself. Of what is older, long outputs are cut first; only if that is not enough it is
//! replaced by a summary. The first request and the latest stay in the user's own words.

mod measure;
mod summary;
mod trim;

use crate::conversation::{Message, Role, ToolSpec, Usage};

pub use measure::{estimate, estimate_text};
pub use summary::SumUp;

/// A window that is said to be smaller than this is taken to be this large: nobody can work in less.
pub const MIN_WINDOW: u64 = 2048;

/// A summary and what goes with it have at most this many tokens.
pub const MAX_SUMMARY: u64 = 4096;

/// What is older has to have so many tokens before a summary of it is worth anything.
const WORTH_A_SUMMARY: u64 = 256;

/// How far the estimates are from what a provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    // Invariant: from 500 to 4000.
    per_mille: u64,
}

/// What there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The model's window, in its own tokens.
    pub window: u64,
    /// What goes with every request beside the conversation, as estimated; see [`fixed`].
    pub fixed: u64,
    /// How far estimates are off.
    pub gauge: Gauge,
}

/// What is to be done with a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// These messages take its place: it was enough to cut long outputs.
    Trimmed(Vec<Message>),
    /// The older part is to be replaced by a summary.
    SumUp(SumUp),
}

impl Default for Gauge {
    fn default() -> Self {
        Self { per_mille: 1000 }
    }
}

impl Gauge {
    /// Learns from what a provider counted for a request that was estimated.
    ///
    /// A count that cannot be (providers leave out what was cached, or all of it) moves the gauge only so far.
    pub fn learn(&mut self, estimated: u64, usage: &Usage) {
        if estimated > 0 && usage.input > 0 {
            self.set(usage.input.saturating_mul(1000) / estimated);
        }
    }

    /// Learns that a request did not fit, though it was estimated to.
    pub fn too_long(&mut self, estimated: u64, window: u64) {
        let at_least = window.saturating_mul(1000) / estimated.max(1);
        self.set(at_least.max(self.per_mille).saturating_mul(5) / 4);
    }

    /// Returns the provider's tokens for estimated ones.
    #[must_use]
    pub fn real(self, estimated: u64) -> u64 {
        estimated.saturating_mul(self.per_mille) / 1000
    }

    fn estimated(self, real: u64) -> u64 {
        real.saturating_mul(1000) / self.per_mille
    }

    fn set(&mut self, per_mille: u64) {
        self.per_mille = per_mille.clamp(500, 4000);
    }
}

impl Budget {
    /// Returns how many tokens a request with these messages takes, about.
    #[must_use]
    pub fn tokens(&self, messages: &[Message]) -> u64 {
        self.gauge.real(self.estimated(messages))
    }

    /// Returns what is estimated for a request with these messages, as [`Gauge::learn`] wants it.
    #[must_use]
    pub fn estimated(&self, messages: &[Message]) -> u64 {
        estimate(messages).saturating_add(self.fixed)
    }

    /// Returns how many tokens a request may have: the rest of the window is for the reply.
    #[must_use]
    pub fn limit(&self) -> u64 {
        let window = self.window.max(MIN_WINDOW);
        window - (window / 5).min(32_000)
    }

    /// Returns how many estimated tokens the messages may have.
    fn room(&self) -> u64 {
        self.gauge.estimated(self.limit()).saturating_sub(self.fixed).max(WORTH_A_SUMMARY)
    }
}

/// Returns how many tokens go with every request beside the conversation, as estimated.
#[must_use]
pub fn fixed(system: &str, tools: &[ToolSpec]) -> u64 {
    let tool = |tool: &ToolSpec| {
        estimate_text(&tool.name) + estimate_text(&tool.description) + measure::value(&tool.schema) + 8
    };
    tools.iter().map(tool).sum::<u64>() + estimate_text(system)
}

/// Returns what to do with a conversation that leaves too little room for the reply; nothing if there is room, or if
/// nothing can be gained.
///
/// Once it is done, it is not due again before the conversation has grown.
#[must_use]
pub fn due(messages: &[Message], budget: &Budget) -> Option<Plan> {
    if budget.tokens(messages) <= budget.limit() {
        return None;
    }
    let room = budget.room();
    let from = kept_from(messages, room * 6 / 10, room * 3 / 10);
    let most = room * 7 / 10;
    let old = trim::trimmed(&messages[..from]);
    let kept = trim::squeezed(&messages[from..], most);
    if estimate(&old) + estimate(&kept) <= most {
        return smaller(messages, old, kept);
    }
    sum_up(&messages[..from], &old, &kept, room).map(Plan::SumUp).or_else(|| smaller(messages, old, kept))
}

/// Returns how a conversation is summed up because the user wants it, however much room there is; nothing if there is
/// too little to sum up.
#[must_use]
pub fn wanted(messages: &[Message], budget: &Budget) -> Option<SumUp> {
    let room = budget.room();
    let from = kept_from(messages, room / 10, 0);
    let kept = trim::squeezed(&messages[from..], room * 7 / 10);
    sum_up(&messages[..from], &trim::trimmed(&messages[..from]), &kept, room)
}

fn sum_up(whole: &[Message], old: &[Message], kept: &[Message], room: u64) -> Option<SumUp> {
    // A summary is not summed up again before there is something new beside it.
    let nothing_new = whole.len() <= 2 && whole.first().is_some_and(summary::is_summary);
    let size = estimate(whole);
    if nothing_new || size < WORTH_A_SUMMARY {
        return None;
    }
    let room = (size / 2).min((room / 5).clamp(64, MAX_SUMMARY));
    Some(SumUp::new(old.to_vec(), kept.to_vec(), room))
}

fn smaller(before: &[Message], mut old: Vec<Message>, kept: Vec<Message>) -> Option<Plan> {
    old.extend(kept);
    (estimate(&old) < estimate(before)).then_some(Plan::Trimmed(old))
}

/// Returns where what is kept begins: with the last turn if that has at most `whole` tokens, and with turns before it as
/// long as all together have at most `more`; else with a step of the last turn.
fn kept_from(messages: &[Message], whole: u64, more: u64) -> usize {
    let turn = |at: &usize| messages[*at].role == Role::User;
    let step = |at: &usize| messages[*at].role != Role::Tool;
    let last_turn = (0..messages.len()).rev().find(turn).unwrap_or(0);
    let mut size = 0;
    let mut sizes = vec![0; messages.len() + 1];
    for at in (0..messages.len()).rev() {
        size += measure::message(&messages[at]);
        sizes[at] = size;
    }
    if sizes[last_turn] <= whole {
        let earlier = (0..last_turn).filter(turn).find(|at| sizes[*at] <= more);
        return earlier.unwrap_or(last_turn);
    }
    let steps = || (last_turn + 1..messages.len()).filter(step);
    let fits = steps().find(|at| sizes[*at] <= whole);
    fits.or_else(|| steps().next_back()).unwrap_or(last_turn)
}

#[cfg(test)]
mod tests;
