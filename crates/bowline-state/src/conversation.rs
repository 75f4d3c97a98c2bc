//! A conversation as a model has it: what the user said, what the model said, what tools answered.
//!
//! It is what an agent sends with every request and keeps between them. What a *client* is shown is another thing: see
//! [`accumulator`](crate::accumulator).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::changes::ContentHash;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, or what the program says in the user's place.
    User,
    /// The model.
    Assistant,
    /// Tools, answering what the model called just before.
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture; only the user and tools have them.
    Image {
        /// Its media type.
        mime: String,
        /// The picture in base64.
        data: Arc<str>,
    },
    /// What the model thought. Providers that sign thoughts want them back as they were.
    Thought {
        /// The text.
        text: String,
        /// The provider's signature, opaque.
        signature: Option<String>,
    },
    /// A call of a tool, by the model.
    Call(ToolUse),
    /// A tool's answer.
    Result(ToolResult),
}

/// A call of a tool, as the model made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The model's id of the call; unique in the conversation (whoever takes a reply in sees to that).
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// What it is called with, or why that could not be read.
    pub input: Input,
}

/// What a tool is called with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A JSON value, an object in all good cases.
    Value(Value),
    /// Text that is not JSON: the model has to be told.
    Broken {
        /// What came.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that is answered.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// What the model reads.
    pub text: String,
    /// Pictures beside it: media type and base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<(String, Arc<str>)>,
    /// Whether the call failed.
    pub failed: bool,
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, when to use it, when not.
    pub description: String,
    /// A JSON schema of an object.
    pub schema: Value,
}

impl ToolSpec {
    /// Returns a hash of the description and the schema, whatever the order of the schema's members.
    #[must_use]
    pub fn definition_hash(&self) -> ContentHash {
        let mut schema = self.schema.clone();
        schema.sort_all_objects();
        ContentHash::of(Value::from(vec![self.description.as_str().into(), schema]).to_string().as_bytes())
    }
}

/// How much a model is to think before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// As the provider has it.
    #[default]
    Default,
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// More.
    Medium,
    /// Much.
    High,
}

/// What a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request, with those that came from a cache.
    pub input: u64,
    /// Tokens of the reply, thoughts included.
    pub output: u64,
    /// Tokens of the request that were read from a cache.
    pub cache_read: u64,
    /// Tokens of the request that were put into a cache.
    pub cache_write: u64,
    /// Tokens of the reply that were thoughts.
    pub thought: u64,
}

impl Message {
    /// Returns a message of one text.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text { text: text.into() }] }
    }

    /// Returns the calls in it.
    pub fn calls(&self) -> impl Iterator<Item = &ToolUse> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }
}

impl ToolResult {
    /// Returns the answer of a call that went well.
    #[must_use]
    pub fn done(call: &ToolUse, text: impl Into<String>) -> Self {
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            text: text.into(),
            images: Vec::new(),
            failed: false,
        }
    }

    /// Returns the answer of a call that failed.
    #[must_use]
    pub fn failed(call: &ToolUse, text: impl Into<String>) -> Self {
        Self { failed: true, ..Self::done(call, text) }
    }
}
