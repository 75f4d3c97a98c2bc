//! A request as `genai` wants it, for each provider.

use bowline_state::conversation::{Input, Message, Part, Role, Thinking, ToolResult, ToolUse};
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ContentPart, MessageContent, ReasoningEffort, Tool,
    ToolCall, ToolName, ToolResponse,
};
use serde_json::{Value, json};

use crate::model::provider::Provider;
use crate::model::{ModelInfo, Request, words};

/// Of input that is no object, so much goes back to the model, in bytes: it shall see what it did.
const MAX_UNREAD: usize = 4 << 10;

/// Returns the conversation.
pub(super) fn chat(provider: Provider, info: &ModelInfo, request: &Request) -> ChatRequest {
    let mut messages = Vec::new();
    let mut chat = ChatRequest::default();
    if provider == Provider::Anthropic && !request.system.is_empty() {
        // What comes before this mark is cached: the tools and what the model is told first.
        messages.push(ChatMessage::system(&*request.system).with_options(CacheControl::Ephemeral));
    } else if !request.system.is_empty() {
        chat.system = Some(request.system.to_string());
    }
    let spoken = request.by_words.then(|| words::conversation(&request.messages));
    let said = spoken.as_deref().unwrap_or(&request.messages);
    let asked = said.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    for (at, message) in said.iter().enumerate() {
        let thoughts = Thoughts::of(provider, request.thinking, at > asked);
        push(&mut messages, provider, info, thoughts, message);
    }
    if provider == Provider::Anthropic
        && let Some(last) = messages.pop()
    {
        // And the conversation so far: the next request begins with the same.
        messages.push(last.with_options(CacheControl::Ephemeral));
    }
    chat.messages = messages;
    if !request.tools.is_empty() && !request.by_words {
        let tool = |tool: &bowline_state::conversation::ToolSpec| {
            Tool::new(ToolName::Custom(tool.name.clone()))
                .with_description(tool.description.clone())
                .with_schema(tool.schema.clone())
        };
        chat.tools = Some(request.tools.iter().map(tool).collect());
    }
    chat
}

/// Returns how the model is to answer.
pub(super) fn options(provider: Provider, name: &str, info: &ModelInfo, request: &Request) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        // For two providers this asks for thoughts to be sent at all.
        .with_capture_reasoning_content(info.thinking);
    if let Some(tokens) = request.max_output {
        options = options.with_max_tokens(tokens);
    }
    if let Some(effort) = effort(provider, name, info, request) {
        options = options.with_reasoning_effort(effort);
    }
    options
}

fn effort(provider: Provider, name: &str, info: &ModelInfo, request: &Request) -> Option<ReasoningEffort> {
    let thinking = if info.thinking { request.thinking } else { Thinking::Default };
    let level = match thinking {
        Thinking::Default => None,
        Thinking::Off => Some(ReasoningEffort::Zero),
        Thinking::Low => Some(ReasoningEffort::Low),
        Thinking::Medium => Some(ReasoningEffort::Medium),
        Thinking::High => Some(ReasoningEffort::High),
    };
    match provider {
        Provider::Anthropic if level.is_some() && !thought_through(request) => Some(ReasoningEffort::Zero),
        // A reply that may not be longer than the thoughts before it is refused.
        Provider::Anthropic if request.max_output.is_some_and(|tokens| tokens <= budget(thinking)) => {
            level.and(Some(ReasoningEffort::Zero))
        }
        Provider::Anthropic | Provider::Ollama => level,
        // The first models of this family cannot go without.
        Provider::OpenAi if thinking == Thinking::Off && first_gpt_5(name) => Some(ReasoningEffort::Minimal),
        // Without a level `genai` takes one from the end of the name, and the end off: `some-model-max` would become
        // `some-model`. A budget is a level that these are not told of.
        Provider::OpenAi | Provider::Compatible => level.or(Some(ReasoningEffort::Budget(0))),
        Provider::Gemini if thinking == Thinking::Off => Some(match name {
            name if name.contains("gemini-3") => ReasoningEffort::Minimal,
            name if name.contains("flash") => ReasoningEffort::Budget(0),
            _ => ReasoningEffort::Low,
        }),
        Provider::Gemini => level,
    }
}

/// Returns how many tokens `genai` lets Anthropic's models think for.
fn budget(thinking: Thinking) -> u32 {
    match thinking {
        Thinking::Default | Thinking::Off => 0,
        Thinking::Low => 1_024,
        Thinking::Medium => 8_000,
        Thinking::High => 24_000,
    }
}

fn first_gpt_5(name: &str) -> bool {
    name == "gpt-5" || name.starts_with("gpt-5-")
}

/// Says whether each call since the user spoke was thought about with this provider: Anthropic refuses to think in the
/// middle of a turn that began without.
fn thought_through(request: &Request) -> bool {
    let asked = request.messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let signed = |part: &Part| {
        matches!(part, Part::Thought { signature: Some(signature), .. }
            if untagged(Provider::Anthropic, signature).is_some() || unhidden(signature).is_some())
    };
    request.messages[asked.min(request.messages.len())..]
        .iter()
        .filter(|message| message.calls().next().is_some())
        .all(|message| message.parts.iter().any(signed))
}

/// Which thoughts go back.
#[derive(Clone, Copy)]
enum Thoughts {
    None,
    // Those that the provider signed.
    Signed,
    // As they are, in the turn that they belong to.
    Plain,
}

impl Thoughts {
    fn of(provider: Provider, thinking: Thinking, in_turn: bool) -> Self {
        match provider {
            Provider::Anthropic if thinking == Thinking::Off => Self::None,
            Provider::Anthropic | Provider::Gemini => Self::Signed,
            Provider::Compatible if in_turn => Self::Plain,
            Provider::OpenAi | Provider::Ollama | Provider::Compatible => Self::None,
        }
    }
}

fn push(
    messages: &mut Vec<ChatMessage>,
    provider: Provider,
    info: &ModelInfo,
    thoughts: Thoughts,
    message: &Message,
) {
    match message.role {
        Role::User => {
            let mut parts: Vec<_> = message.parts.iter().filter_map(|part| user_part(info, part)).collect();
            if parts.is_empty() {
                // Providers refuse a message that says nothing.
                parts.push(ContentPart::from_text("(nothing)"));
            }
            messages.push(ChatMessage::user(MessageContent::from_parts(apart(provider, parts))));
        }
        Role::Assistant => {
            let parts = apart(provider, assistant_parts(provider, thoughts, message));
            if !parts.is_empty() {
                messages.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
            }
        }
        Role::Tool => push_results(messages, provider, info, message),
    }
}

/// Keeps texts apart, where `genai` would write them one after the other.
fn apart(provider: Provider, mut parts: Vec<ContentPart>) -> Vec<ContentPart> {
    if provider == Provider::Ollama {
        let texts = parts.iter_mut().filter_map(|part| match part {
            ContentPart::Text(text) => Some(text),
            _ => None,
        });
        texts.skip(1).for_each(|text| text.insert_str(0, "\n\n"));
    }
    parts
}

fn user_part(info: &ModelInfo, part: &Part) -> Option<ContentPart> {
    match part {
        Part::Text { text } if text.trim().is_empty() => None,
        Part::Text { text } => Some(ContentPart::from_text(text)),
        Part::Image { mime, data } => Some(picture(info, mime, data)),
        // The user has none of these.
        Part::Thought { .. } | Part::Call(_) | Part::Result(_) => None,
    }
}

fn picture(info: &ModelInfo, mime: &str, data: &std::sync::Arc<str>) -> ContentPart {
    if info.images {
        ContentPart::from_binary_base64(mime, data.clone(), None)
    } else {
        ContentPart::from_text("(a picture, which this model cannot see)")
    }
}

fn assistant_parts(provider: Provider, thoughts: Thoughts, message: &Message) -> Vec<ContentPart> {
    let mut parts = Vec::new();
    // Gemini wants the signature back on the first call, if there is one.
    let mut on_call = None;
    let has_calls = message.calls().next().is_some();
    for part in &message.parts {
        match part {
            Part::Text { text } if text.trim().is_empty() => (),
            Part::Text { text } => parts.push(ContentPart::from_text(text)),
            Part::Thought { text, signature } => {
                let signature = signature.as_deref();
                let own = signature.and_then(|signature| untagged(provider, signature));
                match (thoughts, own) {
                    (Thoughts::Signed, Some(own)) if provider == Provider::Gemini && has_calls => {
                        on_call = Some(vec![own.to_owned()]);
                    }
                    (Thoughts::Signed, Some(own)) => {
                        parts.push(ContentPart::ThoughtSignature(own.to_owned()));
                        if provider == Provider::Anthropic {
                            parts.push(ContentPart::ReasoningContent(text.clone()));
                        }
                    }
                    (Thoughts::Signed, None) if provider == Provider::Anthropic => {
                        let data = signature.and_then(unhidden);
                        let block = |data| json!({"type": "redacted_thinking", "data": data});
                        parts.extend(data.map(|data| ContentPart::from_custom(block(data), None)));
                    }
                    (Thoughts::Plain, _) if signature.is_none() && !text.is_empty() => {
                        parts.push(ContentPart::ReasoningContent(text.clone()));
                    }
                    (Thoughts::None | Thoughts::Plain | Thoughts::Signed, _) => (),
                }
            }
            Part::Call(call) => parts.push(ContentPart::ToolCall(tool_call(call, on_call.take()))),
            // The model has none of these.
            Part::Image { .. } | Part::Result(_) => (),
        }
    }
    parts
}

fn tool_call(call: &ToolUse, thought_signatures: Option<Vec<String>>) -> ToolCall {
    let fn_arguments = match &call.input {
        Input::Value(value @ Value::Object(_)) => value.clone(),
        Input::Value(value) => unread(&value.to_string()),
        Input::Broken { text, .. } => unread(text),
    };
    ToolCall { call_id: call.id.clone(), fn_name: name(&call.name), fn_arguments, thought_signatures }
}

/// Returns input that is no object as one: providers refuse anything else.
fn unread(text: &str) -> Value {
    json!({"unreadable": &text[..text.floor_char_boundary(MAX_UNREAD)]})
}

/// Returns a name of a tool that every provider takes back, also if the model made it up.
fn name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn push_results(messages: &mut Vec<ChatMessage>, provider: Provider, info: &ModelInfo, message: &Message) {
    let results = message.parts.iter().filter_map(|part| match part {
        Part::Result(result) => Some(result),
        // Tools have nothing else to say.
        _ => None,
    });
    let mut parts = Vec::new();
    let mut pictures = Vec::new();
    for result in results {
        if provider == Provider::Anthropic {
            parts.push(ContentPart::from_custom(anthropic_result(info, result), None));
            continue;
        }
        let said = if result.text.is_empty() { "(nothing)" } else { &result.text };
        let response = ToolResponse::new(&result.id, said).with_fn_name(name(&result.name));
        parts.push(ContentPart::ToolResponse(response));
        pictures.extend(result.images.iter().map(|(mime, data)| picture(info, mime, data)));
    }
    match provider {
        // Ollama's messages hold one result each.
        Provider::Ollama => {
            let each =
                parts.into_iter().map(|part| ChatMessage::tool(MessageContent::from_parts(vec![part])));
            messages.extend(each);
        }
        _ if parts.is_empty() => (),
        _ => messages.push(ChatMessage::tool(MessageContent::from_parts(parts))),
    }
    if !pictures.is_empty() {
        pictures.insert(0, ContentPart::from_text("Pictures from the tools above:"));
        messages.push(ChatMessage::user(MessageContent::from_parts(apart(provider, pictures))));
    }
}

fn anthropic_result(info: &ModelInfo, result: &ToolResult) -> Value {
    let said = if result.text.is_empty() { "(nothing)" } else { &result.text };
    let mut content = vec![json!({"type": "text", "text": said})];
    for (mime, data) in result.images.iter().filter(|_| info.images) {
        let source = json!({"type": "base64", "media_type": mime, "data": &**data});
        content.push(json!({"type": "image", "source": source}));
    }
    json!({"type": "tool_result", "tool_use_id": result.id, "is_error": result.failed, "content": content})
}

/// Returns a signature with the name of who made it: nobody else can use it, and a session may change its model.
pub(super) fn tagged(provider: Provider, signature: &str) -> String {
    format!("{}:{signature}", provider.id())
}

/// Returns all there is of a hidden thought as a signature.
pub(super) fn hidden(data: &str) -> String {
    format!("anthropic-hidden:{data}")
}

fn untagged(provider: Provider, signature: &str) -> Option<&str> {
    signature.strip_prefix(provider.id())?.strip_prefix(':')
}

fn unhidden(signature: &str) -> Option<&str> {
    signature.strip_prefix("anthropic-hidden:")
}
