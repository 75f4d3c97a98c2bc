//! Conversations that were cut off, made whole enough for every provider.

use std::collections::HashSet;

use indexmap::IndexMap;

use crate::conversation::{Message, Part, Role, ToolResult, ToolUse};

/// What a model is told of a call whose outcome nobody knows.
pub const INTERRUPTED: &str = "the program ended before this call was done, so it may have been done in part, in full or \
     not at all: look before you repeat it";

/// What stands in for the user's words before a conversation that begins with the model's.
pub const LOST_BEGINNING: &str = "(the beginning of the conversation is lost)";

/// Makes a conversation one that providers take, wherever it was cut.
///
/// Afterwards it begins with the user. A message of the model's that calls tools is followed by one message with an answer
/// to each call and to nothing else; calls that have none are answered with [`INTERRUPTED`]. No two messages of the user's,
/// the model's or the tools' follow each other: they become one. Nothing is said by nobody: empty texts and messages are
/// gone, and so is a reply that ended while the model was still thinking. What is fine already is left as it is.
#[must_use]
pub fn mend(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut mended = Mended::default();
    for message in messages {
        mended.push(message);
    }
    mended.answer();
    mended.messages
}

#[derive(Default)]
struct Mended {
    messages: Vec<Message>,
    // The calls of the last message of the model's by their ids, in order; none in place of one that is answered.
    open: IndexMap<String, Option<ToolUse>>,
}

impl Mended {
    fn push(&mut self, message: Message) {
        let Message { role, mut parts } = message;
        match role {
            Role::Tool => return self.take_results(parts),
            Role::User => {
                parts.retain(|part| match part {
                    Part::Text { text } => !text.is_empty(),
                    Part::Image { .. } => true,
                    Part::Thought { .. } | Part::Call(_) | Part::Result(_) => false,
                });
            }
            Role::Assistant => {
                // A second call of the same id could not be answered apart from the first.
                let mut ids = HashSet::new();
                parts.retain(|part| match part {
                    Part::Text { text } => !text.is_empty(),
                    Part::Thought { .. } => true,
                    Part::Call(call) => ids.insert(call.id.clone()),
                    Part::Image { .. } | Part::Result(_) => false,
                });
                // The end of a reply that was cut short. Thoughts before a call are sent back with it, wherever they stand.
                if !parts.iter().any(|part| matches!(part, Part::Call(_))) {
                    while let Some(Part::Thought { .. }) = parts.last() {
                        parts.pop();
                    }
                }
            }
        }
        if parts.is_empty() {
            return;
        }
        self.answer();
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.parts.append(&mut parts),
            Some(_) => self.messages.push(Message { role, parts }),
            None => {
                if role == Role::Assistant {
                    self.messages.push(Message::text(Role::User, LOST_BEGINNING));
                }
                self.messages.push(Message { role, parts });
            }
        }
        // Messages of the model's that became one had no calls but in the last of them: calls are answered at once.
        if let Some(last) = self.messages.last() {
            self.open = last.calls().map(|call| (call.id.clone(), Some(call.clone()))).collect();
        }
    }

    /// Takes in the answers to calls that are open, each once.
    fn take_results(&mut self, mut parts: Vec<Part>) {
        parts.retain(|part| match part {
            Part::Result(result) => self.open.get_mut(&result.id).and_then(Option::take).is_some(),
            _ => false,
        });
        self.answered(parts);
    }

    /// Answers the calls that nobody has answered.
    fn answer(&mut self) {
        let open = std::mem::take(&mut self.open);
        let answer = |call: ToolUse| Part::Result(ToolResult::failed(&call, INTERRUPTED));
        self.answered(open.into_values().flatten().map(answer).collect());
    }

    fn answered(&mut self, mut parts: Vec<Part>) {
        match self.messages.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == Role::Tool => last.parts.append(&mut parts),
            // Only calls of the message before are answered, so there is one.
            _ => self.messages.push(Message { role: Role::Tool, parts }),
        }
    }
}
