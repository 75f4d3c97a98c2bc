//! An agent's requests and notifications, formatted as one line each.

use agent_client_protocol_schema::v1::{
    ContentBlock, CreateTerminalRequest, RequestPermissionRequest, SessionUpdate, ToolCall, ToolCallContent,
    ToolCallLocation, ToolCallUpdate,
};
use serde_json::Value;

/// The length in bytes up to which a text is logged in full.
const MAX_TEXT_BYTES: usize = 400;

pub(super) fn format_permission(request: &RequestPermissionRequest) -> String {
    let call = &request.tool_call;
    let title = call.fields.title.as_deref().unwrap_or("?");
    let content = call.fields.content.as_deref().map(format_contents).unwrap_or_default();
    let options: Vec<String> =
        request.options.iter().map(|option| format!("\n    {}: {}", option.option_id, option.name)).collect();
    format!("{} {title:?}{content}{}", call.tool_call_id, options.concat())
}

pub(super) fn format_command(request: &CreateTerminalRequest) -> String {
    let words: Vec<String> =
        std::iter::once(&request.command).chain(&request.args).map(|word| format!("{word:?}")).collect();
    let env: Vec<String> = request.env.iter().map(|each| format!(" {}={}", each.name, each.value)).collect();
    let cwd = request.cwd.as_ref().map(|cwd| format!(" in {}", cwd.display())).unwrap_or_default();
    let limit = request.output_byte_limit.map(|limit| format!(" limit {limit}")).unwrap_or_default();
    format!("{}{cwd}{}{limit}", words.join(" "), env.concat())
}

pub(super) fn format_update(update: &SessionUpdate) -> String {
    match update {
        SessionUpdate::ToolCall(call) => format_tool_call(call),
        SessionUpdate::ToolCallUpdate(update) => format_tool_call_update(update),
        SessionUpdate::AgentMessageChunk(chunk) => format!("> text {}", format_block(&chunk.content)),
        SessionUpdate::AgentThoughtChunk(chunk) => format!("> thought {}", format_block(&chunk.content)),
        SessionUpdate::UserMessageChunk(chunk) => format!("> user {}", format_block(&chunk.content)),
        SessionUpdate::Plan(plan) => {
            let entries = plan.entries.iter();
            let entries = entries
                .map(|entry| format!("\n    {:?} {:?} {}", entry.status, entry.priority, entry.content));
            format!("> plan{}", entries.collect::<String>())
        }
        other => format!("> {}", serde_json::to_string(other).unwrap_or_default()),
    }
}

fn format_tool_call(call: &ToolCall) -> String {
    let ToolCall { tool_call_id, title, kind, status, content, locations, raw_input, .. } = call;
    let input = raw_input.as_ref().map(format_raw).unwrap_or_default();
    format!(
        "> tool_call {tool_call_id} {title:?} {kind:?} {status:?}{}{}\n    input {input}",
        format_locations(locations),
        format_contents(content)
    )
}

fn format_tool_call_update(update: &ToolCallUpdate) -> String {
    let fields = &update.fields;
    let status = fields.status.map(|status| format!(" {status:?}")).unwrap_or_default();
    let locations = fields.locations.as_deref().map(format_locations).unwrap_or_default();
    let contents = match fields.content.as_deref() {
        Some([]) => " no content".to_owned(),
        Some(content) => format_contents(content),
        None => String::new(),
    };
    let output = fields.raw_output.as_ref().map(|output| format!("\n    output {}", format_raw(output)));
    format!("> update {}{status}{locations}{contents}{}", update.tool_call_id, output.unwrap_or_default())
}

fn format_locations(locations: &[ToolCallLocation]) -> String {
    let format_location = |location: &ToolCallLocation| {
        let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!(" @{}{line}", location.path.display())
    };
    locations.iter().map(format_location).collect()
}

fn format_contents(content: &[ToolCallContent]) -> String {
    let format_content = |content: &ToolCallContent| match content {
        ToolCallContent::Content(content) => format!("\n    text {}", format_block(&content.content)),
        ToolCallContent::Diff(diff) => format!(
            "\n    diff {} {} -> {}",
            diff.path.display(),
            diff.old_text.as_deref().map_or_else(|| "nothing".to_owned(), quote),
            quote(&diff.new_text)
        ),
        ToolCallContent::Terminal(terminal) => format!("\n    terminal {}", terminal.terminal_id),
        other => format!("\n    {other:?}"),
    };
    content.iter().map(format_content).collect()
}

fn format_block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => quote(&text.text),
        other => format!("{other:?}"),
    }
}

fn format_raw(value: &Value) -> String {
    truncate(&value.to_string())
}

fn quote(text: &str) -> String {
    format!("{:?}", truncate(text))
}

fn truncate(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    format!("{}… {} bytes", &text[..text.floor_char_boundary(MAX_TEXT_BYTES)], text.len())
}
