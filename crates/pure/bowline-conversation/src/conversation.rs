//! A conversation as the model sees it: the user's messages, the model's replies and the results of tools.
//!
//! An agent sends it with every request and keeps it in between. The *client's* view of a session is separate: see
//! [`accumulator`](bowline_protocol::accumulator).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use bowline_text::hash::ContentHash;

/// The role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// The user, or the program on the user's behalf.
    User,
    /// The model.
    Assistant,
    /// Tools, answering the preceding calls.
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConversationMessage {
    /// Its author.
    pub role: MessageRole,
    /// Its content, in order.
    pub parts: Vec<MessagePart>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessagePart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image; only users and tools send them.
    Image {
        /// Its media type.
        mime: String,
        /// The image in base64.
        data: Arc<str>,
    },
    /// A thought of the model. Providers that sign thoughts require them back unchanged.
    Thought {
        /// The text.
        text: String,
        /// The provider's signature, opaque.
        signature: Option<String>,
    },
    /// A tool call by the model.
    Call(ToolUse),
    /// The result of a tool call.
    Result(ToolResult),
}

/// A tool call, as the model made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The model's id of the call, unique in the conversation: the code that receives a reply ensures this.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its input, or the error that made it unreadable.
    pub input: ToolUseInput,
}

/// The input of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolUseInput {
    /// A JSON value, normally an object.
    Value(Value),
    /// Text that is not JSON; the model is notified.
    Broken {
        /// The received text.
        text: String,
        /// The parse error.
        why: String,
    },
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text for the model.
    pub text: String,
    /// Accompanying images: media type and base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<(String, Arc<str>)>,
    /// Whether the call failed.
    pub failed: bool,
}

/// The definition of a tool, as sent to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// Its purpose, and when to use it or not.
    pub description: String,
    /// The JSON schema of its input, an object.
    pub schema: Value,
}

impl ToolSpec {
    /// Returns a hash of the description and the schema, independent of the order of the schema's members.
    #[must_use]
    pub fn definition_hash(&self) -> ContentHash {
        let mut schema = self.schema.clone();
        schema.sort_all_objects();
        ContentHash::digest(
            Value::from(vec![self.description.as_str().into(), schema]).to_string().as_bytes(),
        )
    }
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingLevel {
    /// The provider's default.
    #[default]
    Default,
    /// No thinking.
    Off,
    /// Little thinking.
    Low,
    /// Moderate thinking.
    Medium,
    /// Extensive thinking.
    High,
}

/// The tokens that a request used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// Output tokens, including thoughts.
    pub output: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens spent on thoughts.
    pub thought: u64,
}

impl ConversationMessage {
    /// Returns a message with a single text part.
    #[must_use]
    pub fn from_text(role: MessageRole, text: impl Into<String>) -> Self {
        Self { role, parts: vec![MessagePart::Text { text: text.into() }] }
    }

    /// Returns the tool calls in the message.
    pub fn tool_uses(&self) -> impl Iterator<Item = &ToolUse> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::Call(call) => Some(call),
            _ => None,
        })
    }
}

impl ToolResult {
    /// Returns the result of a successful call.
    #[must_use]
    pub fn success(call: &ToolUse, text: impl Into<String>) -> Self {
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            text: text.into(),
            images: Vec::new(),
            failed: false,
        }
    }

    /// Returns the result of a failed call.
    #[must_use]
    pub fn failure(call: &ToolUse, text: impl Into<String>) -> Self {
        Self { failed: true, ..Self::success(call, text) }
    }
}
