//! Repair of conversations that were cut off, so that every provider accepts them.

use std::collections::HashSet;

use indexmap::IndexMap;

use crate::conversation::{ConversationMessage, MessagePart, MessageRole, ToolResult, ToolUse};

/// The result given to the model for a call whose outcome is unknown.
pub const INTERRUPTED_RESULT: &str = "the program ended before this call was done, so it may have been done in part, in full or \
     not at all: look before you repeat it";

/// The user message put before a conversation that begins with the model's.
pub const LOST_BEGINNING_TEXT: &str = "(the beginning of the conversation is lost)";

/// Makes a conversation acceptable to providers, wherever it was cut.
///
/// Afterwards it begins with the user. A model message that calls tools is followed by one message with exactly one
/// answer to each call; calls without an answer get [`INTERRUPTED_RESULT`]. Consecutive messages of the same role are
/// merged. Empty texts and messages are removed, and so is a reply that ended while the model was still thinking. A
/// valid conversation is unchanged.
#[must_use]
pub fn repair_conversation(
    messages: impl IntoIterator<Item = ConversationMessage>,
) -> Vec<ConversationMessage> {
    let mut repair = ConversationRepair::default();
    for message in messages {
        repair.push(message);
    }
    repair.answer_open_calls();
    repair.messages
}

#[derive(Default)]
struct ConversationRepair {
    messages: Vec<ConversationMessage>,
    // The calls of the model's last message by id, in order; `None` for an answered call.
    open_calls: IndexMap<String, Option<ToolUse>>,
}

impl ConversationRepair {
    fn push(&mut self, message: ConversationMessage) {
        let ConversationMessage { role, mut parts } = message;
        match role {
            MessageRole::Tool => return self.take_results(parts),
            MessageRole::User => {
                parts.retain(|part| match part {
                    MessagePart::Text { text } => !text.is_empty(),
                    MessagePart::Image { .. } => true,
                    MessagePart::Thought { .. } | MessagePart::Call(_) | MessagePart::Result(_) => false,
                });
            }
            MessageRole::Assistant => {
                // A second call with the same id could not be answered separately.
                let mut ids = HashSet::new();
                parts.retain(|part| match part {
                    MessagePart::Text { text } => !text.is_empty(),
                    MessagePart::Thought { .. } => true,
                    MessagePart::Call(call) => ids.insert(call.id.clone()),
                    MessagePart::Image { .. } | MessagePart::Result(_) => false,
                });
                // The end of a reply that was cut short. Thoughts in a message with a call are sent back with it,
                // wherever they stand.
                if !parts.iter().any(|part| matches!(part, MessagePart::Call(_))) {
                    while let Some(MessagePart::Thought { .. }) = parts.last() {
                        parts.pop();
                    }
                }
            }
        }
        if parts.is_empty() {
            return;
        }
        self.answer_open_calls();
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.parts.append(&mut parts),
            Some(_) => self.messages.push(ConversationMessage { role, parts }),
            None => {
                if role == MessageRole::Assistant {
                    self.messages
                        .push(ConversationMessage::from_text(MessageRole::User, LOST_BEGINNING_TEXT));
                }
                self.messages.push(ConversationMessage { role, parts });
            }
        }
        // Of model messages that were merged, only the last had calls: calls are answered at once.
        if let Some(last) = self.messages.last() {
            self.open_calls = last.tool_uses().map(|call| (call.id.clone(), Some(call.clone()))).collect();
        }
    }

    /// Adds the answers to open calls, each once.
    fn take_results(&mut self, mut parts: Vec<MessagePart>) {
        parts.retain(|part| match part {
            MessagePart::Result(result) => {
                self.open_calls.get_mut(&result.id).and_then(Option::take).is_some()
            }
            _ => false,
        });
        self.push_results(parts);
    }

    /// Answers the calls that are still open.
    fn answer_open_calls(&mut self) {
        let open = std::mem::take(&mut self.open_calls);
        let answer = |call: ToolUse| MessagePart::Result(ToolResult::failure(&call, INTERRUPTED_RESULT));
        self.push_results(open.into_values().flatten().map(answer).collect());
    }

    fn push_results(&mut self, mut parts: Vec<MessagePart>) {
        match self.messages.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == MessageRole::Tool => last.parts.append(&mut parts),
            // Only calls of the previous message are answered, so there is one.
            _ => self.messages.push(ConversationMessage { role: MessageRole::Tool, parts }),
        }
    }
}
