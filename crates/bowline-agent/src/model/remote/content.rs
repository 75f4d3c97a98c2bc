//! The parts of a conversation that all wire formats share.

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, ThinkingLevel, ToolResult, ToolSpec, ToolUseInput,
};
use serde_json::{Value, json};

use crate::model::provider::Provider;
use crate::model::{ModelInfo, ModelRequest};

/// How much of an input that is not an object is sent back to the model, in bytes, so that it sees its mistake.
const MAX_UNREADABLE: usize = 4 << 10;
/// Stands for an empty text, which providers reject.
const EMPTY_TEXT: &str = "(nothing)";

/// The content of a user's message.
#[derive(Debug, Clone, Copy)]
pub(super) enum UserContent<'a> {
    Text(&'a str),
    Image { mime: &'a str, data: &'a str },
}

/// Returns an object of the fields with a value.
pub(super) fn json_object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Returns a list, unless it is empty.
pub(super) fn non_empty_array(values: Vec<Value>) -> Option<Value> {
    (!values.is_empty()).then(|| values.into())
}

/// Returns the system prompt, unless it is empty.
pub(super) fn system_prompt(request: &ModelRequest) -> Option<&str> {
    Some(&*request.system_prompt).filter(|system| !system.is_empty())
}

/// Returns the declarations of the tools, unless there are none.
pub(super) fn tool_declarations(request: &ModelRequest, declare: fn(&ToolSpec) -> Value) -> Option<Value> {
    non_empty_array(request.tools.iter().map(declare).collect())
}

/// Returns the thinking level, if the model has a choice.
pub(super) fn thinking_level(info: &ModelInfo, request: &ModelRequest) -> ThinkingLevel {
    if info.supports_thinking { request.thinking } else { ThinkingLevel::Default }
}

/// Returns the content of a user's message.
pub(super) fn user_content<'a>(info: &ModelInfo, message: &'a ConversationMessage) -> Vec<UserContent<'a>> {
    let content = |part: &'a MessagePart| match part {
        MessagePart::Text { text } => (!text.trim().is_empty()).then_some(UserContent::Text(text)),
        MessagePart::Image { mime, data } => Some(image_content(info, mime, data)),
        // Users send none of these.
        MessagePart::Thought { .. } | MessagePart::Call(_) | MessagePart::Result(_) => None,
    };
    let contents: Vec<_> = message.parts.iter().filter_map(content).collect();
    if contents.is_empty() { vec![UserContent::Text(EMPTY_TEXT)] } else { contents }
}

fn image_content<'a>(info: &ModelInfo, mime: &'a str, data: &'a str) -> UserContent<'a> {
    let placeholder = UserContent::Text("(a picture, which this model cannot see)");
    if info.supports_images { UserContent::Image { mime, data } } else { placeholder }
}

/// Returns the results in a tool message, which has no other parts.
pub(super) fn tool_results(message: &ConversationMessage) -> impl Iterator<Item = &ToolResult> {
    message
        .parts
        .iter()
        .filter_map(|part| if let MessagePart::Result(result) = part { Some(result) } else { None })
}

/// Returns the images of tools as a user's message, for formats whose results are only text. Empty if there are none.
pub(super) fn result_images<'a>(info: &ModelInfo, message: &'a ConversationMessage) -> Vec<UserContent<'a>> {
    let images = tool_results(message).flat_map(|result| &result.images);
    let mut contents: Vec<_> = images.map(|(mime, data)| image_content(info, mime, data)).collect();
    if !contents.is_empty() {
        contents.insert(0, UserContent::Text("Pictures from the tools above:"));
    }
    contents
}

/// Returns a result's text, never empty.
pub(super) fn result_text(result: &ToolResult) -> &str {
    if result.text.is_empty() { EMPTY_TEXT } else { &result.text }
}

/// Returns a call's input as an object: providers reject anything else.
pub(super) fn call_arguments(input: &ToolUseInput) -> Value {
    let unreadable = |text: &str| json!({"unreadable": &text[..text.floor_char_boundary(MAX_UNREADABLE)]});
    match input {
        ToolUseInput::Value(value @ Value::Object(_)) => value.clone(),
        ToolUseInput::Value(value) => unreadable(&value.to_string()),
        ToolUseInput::Broken { text, .. } => unreadable(text),
    }
}

/// Returns a tool's name in a form that every provider accepts, even if the model invented it.
pub(super) fn sanitize_tool_name(name: &str) -> String {
    let sanitize = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(sanitize).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Prefixes a signature with its provider: no other provider can use it, and a session may change its model.
pub(super) fn tag_signature(provider: Provider, signature: &str) -> String {
    format!("{}:{signature}", provider.id())
}

/// Returns a signature without its prefix, if it is from this provider.
pub(super) fn untag_signature(provider: Provider, signature: &str) -> Option<&str> {
    signature.strip_prefix(provider.id())?.strip_prefix(':')
}
