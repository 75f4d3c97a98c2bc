//! A conversation in the terms that all wire formats share.

use std::borrow::Cow;

use bowline_state::conversation::{Input, Message, Part, Thinking, ToolResult, ToolSpec};
use serde_json::{Value, json};

use crate::model::provider::Provider;
use crate::model::{ModelInfo, Request, words};

/// How much of input that is no object goes back to the model, in bytes: it shall see what it did.
const MAX_UNREADABLE: usize = 4 << 10;
/// Providers refuse texts that are empty.
const EMPTY: &str = "(nothing)";

/// What a user's message holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    Text(&'a str),
    Image { mime: &'a str, data: &'a str },
}

/// Returns an object of the fields that have a value.
pub(super) fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Returns a list, unless it is empty.
pub(super) fn list(values: Vec<Value>) -> Option<Value> {
    (!values.is_empty()).then(|| values.into())
}

/// Returns the system prompt, unless it is empty.
pub(super) fn system(request: &Request) -> Option<&str> {
    Some(&*request.system).filter(|system| !system.is_empty())
}

/// Returns the declarations of the tools. A model that is told of them in words has none.
pub(super) fn tools(request: &Request, declare: fn(&ToolSpec) -> Value) -> Option<Value> {
    if request.by_words { None } else { list(request.tools.iter().map(declare).collect()) }
}

/// Returns the conversation. For a model that is told of tools in words, calls and results are texts.
pub(super) fn messages(request: &Request) -> Cow<'_, [Message]> {
    if request.by_words { words::conversation(&request.messages).into() } else { (&*request.messages).into() }
}

/// Returns how much the model is to think, as far as that can be chosen.
pub(super) fn thinking(info: &ModelInfo, request: &Request) -> Thinking {
    if info.thinking { request.thinking } else { Thinking::Default }
}

/// Returns what a user's message holds.
pub(super) fn user_content<'a>(info: &ModelInfo, message: &'a Message) -> Vec<Content<'a>> {
    let content = |part: &'a Part| match part {
        Part::Text { text } => (!text.trim().is_empty()).then_some(Content::Text(text)),
        Part::Image { mime, data } => Some(image(info, mime, data)),
        // The user has none of these.
        Part::Thought { .. } | Part::Call(_) | Part::Result(_) => None,
    };
    let contents: Vec<_> = message.parts.iter().filter_map(content).collect();
    if contents.is_empty() { vec![Content::Text(EMPTY)] } else { contents }
}

fn image<'a>(info: &ModelInfo, mime: &'a str, data: &'a str) -> Content<'a> {
    let hidden = Content::Text("(a picture, which this model cannot see)");
    if info.images { Content::Image { mime, data } } else { hidden }
}

/// Returns the results in a message of tools, which have nothing else to say.
pub(super) fn results(message: &Message) -> impl Iterator<Item = &ToolResult> {
    message.parts.iter().filter_map(|part| if let Part::Result(result) = part { Some(result) } else { None })
}

/// Returns the pictures of tools as a user's message, for formats whose results are texts. Empty if there are none.
pub(super) fn result_images<'a>(info: &ModelInfo, message: &'a Message) -> Vec<Content<'a>> {
    let images = results(message).flat_map(|result| &result.images);
    let mut contents: Vec<_> = images.map(|(mime, data)| image(info, mime, data)).collect();
    if !contents.is_empty() {
        contents.insert(0, Content::Text("Pictures from the tools above:"));
    }
    contents
}

/// Returns the text of a result.
pub(super) fn result_text(result: &ToolResult) -> &str {
    if result.text.is_empty() { EMPTY } else { &result.text }
}

/// Returns a call's input as an object: providers refuse anything else.
pub(super) fn arguments(input: &Input) -> Value {
    let unreadable = |text: &str| json!({"unreadable": &text[..text.floor_char_boundary(MAX_UNREADABLE)]});
    match input {
        Input::Value(value @ Value::Object(_)) => value.clone(),
        Input::Value(value) => unreadable(&value.to_string()),
        Input::Broken { text, .. } => unreadable(text),
    }
}

/// Returns a name of a tool that every provider takes back, also if the model made it up.
pub(super) fn tool_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Returns a signature with its provider's name: no other provider can use it, and a session may change its model.
pub(super) fn tag(provider: Provider, signature: &str) -> String {
    format!("{}:{signature}", provider.id())
}

/// Returns a signature without its provider's name, if it is this one's.
pub(super) fn untag(provider: Provider, signature: &str) -> Option<&str> {
    signature.strip_prefix(provider.id())?.strip_prefix(':')
}
