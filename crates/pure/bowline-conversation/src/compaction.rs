//! Conversation compaction: which part to summarise when a conversation no longer fits the model's context window.
//!
//! The most recent part is kept verbatim: in whole turns, or in whole steps (a reply and the results of its calls) if
//! one turn is too long. Long outputs in the older part are trimmed first; only if that is not enough is it replaced
//! with a summary. The user's first and latest requests stay verbatim.

mod summary;
mod tokens;
mod trim;

use crate::conversation::{ConversationMessage, MessageRole, TokenUsage, ToolSpec};

pub use summary::SummaryPlan;
pub use tokens::{estimate_messages, estimate_text};

/// The minimum window size assumed: no model can work with less.
pub const MIN_WINDOW_TOKENS: u64 = 2048;

/// The maximum size of a summary with its framing, in tokens.
pub const MAX_SUMMARY_TOKENS: u64 = 4096;

/// The minimum size of the older part that is worth summarising.
const MIN_SUMMARISED_TOKENS: u64 = 256;

/// The ratio between a provider's token counts and the estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCalibration {
    // Invariant: from 500 to 4000.
    per_mille: u64,
}

/// The tokens available for a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBudget {
    /// The size of the model's context window, in its own tokens.
    pub window: u64,
    /// The estimated tokens that every request carries besides the conversation; see [`estimate_fixed_tokens`].
    pub fixed_tokens: u64,
    /// The correction of the estimates.
    pub calibration: TokenCalibration,
}

/// How to compact a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionPlan {
    /// Replace the conversation with these messages: trimming long outputs was enough.
    Trimmed(Vec<ConversationMessage>),
    /// Replace the older part with a summary.
    Summarise(SummaryPlan),
}

impl Default for TokenCalibration {
    fn default() -> Self {
        Self { per_mille: 1000 }
    }
}

impl TokenCalibration {
    /// Calibrates from the provider's count for an estimated request.
    ///
    /// The ratio is clamped, because some providers report implausible counts that omit cached tokens, or all of them.
    pub fn record_usage(&mut self, estimated: u64, usage: &TokenUsage) {
        if estimated > 0 && usage.input > 0 {
            self.set_ratio(usage.input.saturating_mul(1000) / estimated);
        }
    }

    /// Calibrates from a request that overflowed although it was estimated to fit.
    pub fn record_overflow(&mut self, estimated: u64, window: u64) {
        let at_least = window.saturating_mul(1000) / estimated.max(1);
        self.set_ratio(at_least.max(self.per_mille).saturating_mul(5) / 4);
    }

    /// Converts estimated tokens to the provider's tokens.
    #[must_use]
    pub fn to_provider_tokens(self, estimated: u64) -> u64 {
        estimated.saturating_mul(self.per_mille) / 1000
    }

    fn to_estimated_tokens(self, real: u64) -> u64 {
        real.saturating_mul(1000) / self.per_mille
    }

    fn set_ratio(&mut self, per_mille: u64) {
        self.per_mille = per_mille.clamp(500, 4000);
    }
}

impl TokenBudget {
    /// Returns the approximate number of the provider's tokens in a request with these messages.
    #[must_use]
    pub fn request_tokens(&self, messages: &[ConversationMessage]) -> u64 {
        self.calibration.to_provider_tokens(self.estimated_request_tokens(messages))
    }

    /// Returns the estimated tokens of a request with these messages, as [`TokenCalibration::record_usage`] expects
    /// them.
    #[must_use]
    pub fn estimated_request_tokens(&self, messages: &[ConversationMessage]) -> u64 {
        estimate_messages(messages).saturating_add(self.fixed_tokens)
    }

    /// Returns the maximum size of a request in tokens: the rest of the window is for the reply.
    #[must_use]
    pub fn request_limit(&self) -> u64 {
        let window = self.window.max(MIN_WINDOW_TOKENS);
        window - (window / 5).min(32_000)
    }

    /// Returns the estimated tokens available for messages.
    fn message_room(&self) -> u64 {
        self.calibration
            .to_estimated_tokens(self.request_limit())
            .saturating_sub(self.fixed_tokens)
            .max(MIN_SUMMARISED_TOKENS)
    }
}

/// Returns the estimated tokens that every request carries besides the conversation.
#[must_use]
pub fn estimate_fixed_tokens(system: &str, tools: &[ToolSpec]) -> u64 {
    let tool = |tool: &ToolSpec| {
        estimate_text(&tool.name)
            + estimate_text(&tool.description)
            + tokens::estimate_value(&tool.schema)
            + 8
    };
    tools.iter().map(tool).sum::<u64>() + estimate_text(system)
}

/// Returns how to compact a conversation that leaves too little room for the reply; `None` if there is room or
/// compaction gains nothing.
///
/// After compaction, the next one is not due before the conversation has grown.
#[must_use]
pub fn plan_compaction(messages: &[ConversationMessage], budget: &TokenBudget) -> Option<CompactionPlan> {
    if budget.request_tokens(messages) <= budget.request_limit() {
        return None;
    }
    let room = budget.message_room();
    let from = find_kept_start(messages, room * 6 / 10, room * 3 / 10);
    let limit = room * 7 / 10;
    let old = trim::trim_old_messages(&messages[..from]);
    let kept = trim::fit_messages(&messages[from..], limit);
    if estimate_messages(&old) + estimate_messages(&kept) <= limit {
        return trimmed_if_smaller(messages, old, kept);
    }
    plan_summary(&messages[..from], &old, &kept, room)
        .map(CompactionPlan::Summarise)
        .or_else(|| trimmed_if_smaller(messages, old, kept))
}

/// Returns the plan for a summary that the user requested, regardless of the room left; `None` if there is too little
/// to summarise.
#[must_use]
pub fn plan_requested_summary(messages: &[ConversationMessage], budget: &TokenBudget) -> Option<SummaryPlan> {
    let room = budget.message_room();
    let from = find_kept_start(messages, room / 10, 0);
    let kept = trim::fit_messages(&messages[from..], room * 7 / 10);
    plan_summary(&messages[..from], &trim::trim_old_messages(&messages[..from]), &kept, room)
}

fn plan_summary(
    messages: &[ConversationMessage],
    old: &[ConversationMessage],
    kept: &[ConversationMessage],
    room: u64,
) -> Option<SummaryPlan> {
    // A summary is not summarised again until new messages follow it.
    let nothing_new = messages.len() <= 2 && messages.first().is_some_and(summary::is_summary);
    let size = estimate_messages(messages);
    if nothing_new || size < MIN_SUMMARISED_TOKENS {
        return None;
    }
    let room = (size / 2).min((room / 5).clamp(64, MAX_SUMMARY_TOKENS));
    Some(SummaryPlan::new(old.to_vec(), kept.to_vec(), room))
}

fn trimmed_if_smaller(
    before: &[ConversationMessage],
    mut old: Vec<ConversationMessage>,
    kept: Vec<ConversationMessage>,
) -> Option<CompactionPlan> {
    old.extend(kept);
    (estimate_messages(&old) < estimate_messages(before)).then_some(CompactionPlan::Trimmed(old))
}

/// Returns the index of the first kept message. It starts the last turn if that has at most `turn_limit` tokens, or an
/// earlier turn while the total is at most `earlier_limit`; otherwise it starts a step of the last turn.
fn find_kept_start(messages: &[ConversationMessage], turn_limit: u64, earlier_limit: u64) -> usize {
    let turn = |at: &usize| messages[*at].role == MessageRole::User;
    let step = |at: &usize| messages[*at].role != MessageRole::Tool;
    let last_turn = (0..messages.len()).rev().find(turn).unwrap_or(0);
    let mut size = 0;
    let mut sizes = vec![0; messages.len() + 1];
    for at in (0..messages.len()).rev() {
        size += tokens::estimate_message(&messages[at]);
        sizes[at] = size;
    }
    if sizes[last_turn] <= turn_limit {
        let earlier = (0..last_turn).filter(turn).find(|at| sizes[*at] <= earlier_limit);
        return earlier.unwrap_or(last_turn);
    }
    let steps = || (last_turn + 1..messages.len()).filter(step);
    let fits = steps().find(|at| sizes[*at] <= turn_limit);
    fits.or_else(|| steps().next_back()).unwrap_or(last_turn)
}

#[cfg(test)]
mod tests;
