//! Summaries of messages, in a few words.

use std::fmt::Write as _;

use serde_json::Value;

use bowline_text::display;

/// The maximum length of a summarised part, in bytes.
const MAX_SUMMARY_BYTES: usize = 160;
/// The maximum number of paths named.
const MAX_PATHS: usize = 4;
/// The maximum number of blocks of a prompt shown.
const MAX_BLOCKS: usize = 8;

/// Returns foreign text on one short line that is safe to show.
pub(super) fn shorten(text: &str) -> String {
    let text = text.trim();
    if text.len() <= 8 * MAX_SUMMARY_BYTES {
        return display::escape_line(text, MAX_SUMMARY_BYTES);
    }
    // Escaping all of a long text would be wasted.
    let end = (0..=MAX_SUMMARY_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    display::escape_line(&text[..end], 2 * MAX_SUMMARY_BYTES) + "…"
}

/// Returns the options of a permission request: id and name.
pub(super) fn permission_options(params: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    array_items(&params["options"]).map(|option| (text(&option["optionId"]), text(&option["name"]))).collect()
}

/// Summarises an error.
pub(super) fn summarise_error(error: &Value) -> String {
    let mut summary =
        format!("error {}: {}", shorten(&error["code"].to_string()), string_value(&error["message"]));
    if let Some(data) = error.get("data").filter(|data| !data.is_null()) {
        // Writing to a string cannot fail.
        _ = write!(summary, " ({})", data.as_str().map_or_else(|| shorten(&data.to_string()), shorten));
    }
    summary
}

/// Summarises a request or a notification.
pub(super) fn summarise_message(method: &str, params: &Value) -> String {
    match method {
        "initialize" => {
            let version = &params["protocolVersion"];
            join_parts([
                format!("protocol {}", shorten(&version.to_string())),
                describe_implementation(&params["clientInfo"]),
            ])
        }
        "session/new" | "session/load" | "session/resume" | "session/fork" => {
            let servers = array_items(&params["mcpServers"]).count();
            let servers = if servers == 0 { String::new() } else { count_noun(servers, "MCP server") };
            join_parts([string_value(&params["cwd"]), servers])
        }
        "session/prompt" => summarise_prompt(&params["prompt"]),
        "session/update" => summarise_update(&params["update"]),
        "session/request_permission" => {
            let names: Vec<String> =
                permission_options(params).iter().map(|(_, name)| shorten(name)).collect();
            format!("{}? {}", summarise_tool_call(&params["toolCall"]), names.join(" | "))
        }
        "fs/read_text_file" => {
            let window = [("line", "from line"), ("limit", "limit")].map(|(key, label)| {
                params[key].as_u64().map_or_else(String::new, |n| format!("{label} {n}"))
            });
            let [from, limit] = window;
            join_parts([string_value(&params["path"]), from, limit])
        }
        "fs/write_text_file" => {
            join_parts([string_value(&params["path"]), describe_size(&params["content"])])
        }
        "terminal/create" => {
            let words =
                std::iter::once(&params["command"]).chain(array_items(&params["args"])).map(string_value);
            words.collect::<Vec<_>>().join(" ")
        }
        "session/set_mode" => string_value(&params["modeId"]),
        "session/set_model" => string_value(&params["modelId"]),
        "session/set_config_option" => {
            format!("{} = {}", string_value(&params["configId"]), scalar_value(&params["value"]))
        }
        "authenticate" => string_value(&params["methodId"]),
        "$/cancel_request" => format!("request {}", scalar_value(&params["requestId"])),
        "session/cancel" => String::new(),
        _ if method.starts_with("terminal/") => string_value(&params["terminalId"]),
        // Later methods and extensions show their params.
        _ => match params {
            Value::Null => String::new(),
            params => shorten(&params.to_string()),
        },
    }
}

/// Summarises the answer to a request of a method.
pub(super) fn summarise_answer(method: &str, result: &Value, options: &[(String, String)]) -> String {
    match method {
        "initialize" => {
            let version = &result["protocolVersion"];
            join_parts([
                format!("protocol {}", shorten(&version.to_string())),
                describe_implementation(&result["agentInfo"]),
            ])
        }
        "session/new" | "session/fork" => format!("session {}", string_value(&result["sessionId"])),
        "session/prompt" => string_value(&result["stopReason"]),
        "session/list" => count_noun(array_items(&result["sessions"]).count(), "session"),
        "session/request_permission" => {
            let outcome = &result["outcome"];
            let chosen = match outcome["optionId"].as_str() {
                Some(chosen) => match options.iter().find(|(id, _)| id == chosen) {
                    Some((_, name)) => shorten(name),
                    None => format!("{} (not offered)", shorten(chosen)),
                },
                None => string_value(&outcome["outcome"]),
            };
            let meta = &result["_meta"]["bowline"];
            let answered_by = if meta["by"] == "proxy" { "answered by the proxy" } else { "" };
            join_parts([chosen, answered_by.to_owned(), string_value(&meta["reason"])])
        }
        "fs/read_text_file" => describe_size(&result["content"]),
        "terminal/create" => format!("terminal {}", string_value(&result["terminalId"])),
        "terminal/output" => {
            let cut = if result["truncated"] == true { "cut" } else { "" };
            join_parts([
                describe_size(&result["output"]),
                cut.to_owned(),
                describe_exit(&result["exitStatus"]),
            ])
        }
        "terminal/wait_for_exit" => describe_exit(result),
        _ => match result {
            Value::Null => String::new(),
            Value::Object(map) if map.is_empty() => String::new(),
            result => shorten(&result.to_string()),
        },
    }
}

fn summarise_update(update: &Value) -> String {
    let kind = update["sessionUpdate"].as_str().unwrap_or_default();
    match kind {
        "agent_message_chunk" => summarise_block(&update["content"]),
        "agent_thought_chunk" => format!("thinks: {}", summarise_block(&update["content"])),
        "user_message_chunk" => format!("user: {}", summarise_block(&update["content"])),
        "tool_call" | "tool_call_update" => summarise_tool_call(update),
        "plan" => {
            let entries = array_items(&update["entries"]);
            let done = entries.clone().filter(|entry| entry["status"] == "completed").count();
            format!("plan: {done} of {} done", entries.count())
        }
        "available_commands_update" => {
            count_noun(array_items(&update["availableCommands"]).count(), "command")
        }
        "current_mode_update" => format!("mode {}", string_value(&update["currentModeId"])),
        _ => match update {
            Value::Object(map) if !kind.is_empty() => {
                let rest: serde_json::Map<String, Value> = map
                    .iter()
                    .filter(|(key, _)| *key != "sessionUpdate")
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                format!("{}: {}", shorten(kind), shorten(&Value::from(rest).to_string()))
            }
            // An unknown update is shown as it is.
            update => shorten(&update.to_string()),
        },
    }
}

/// Summarises a tool call: its title, its status, its changes.
fn summarise_tool_call(call: &Value) -> String {
    let title = match call["title"].as_str() {
        Some(title) => shorten(title),
        None => string_value(&call["toolCallId"]),
    };
    let status = call["status"].as_str().map_or_else(String::new, |status| format!("[{}]", shorten(status)));
    let content = array_items(&call["content"]);
    let diffs: Vec<&Value> = content.clone().filter(|part| part["type"] == "diff").collect();
    let mut changes: Vec<String> =
        diffs.iter().take(MAX_PATHS).map(|diff| string_value(&diff["path"])).collect();
    if diffs.len() > MAX_PATHS {
        changes.push(format!("{} more", diffs.len() - MAX_PATHS));
    }
    let changes = if changes.is_empty() { String::new() } else { format!("changes {}", changes.join(", ")) };
    let terminal = content.clone().find(|part| part["type"] == "terminal");
    let terminal =
        terminal.map_or_else(String::new, |part| format!("terminal {}", string_value(&part["terminalId"])));
    let head = [title, status].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    join_parts([head, changes, terminal])
}

fn summarise_prompt(prompt: &Value) -> String {
    let mut blocks: Vec<String> = array_items(prompt).take(MAX_BLOCKS).map(summarise_block).collect();
    let omitted = array_items(prompt).count().saturating_sub(MAX_BLOCKS);
    if omitted > 0 {
        blocks.push(format!("and {}", count_noun(omitted, "block")));
    }
    blocks.join(" ")
}

fn summarise_block(content: &Value) -> String {
    match content["type"].as_str() {
        Some("text") => string_value(&content["text"]),
        Some("resource_link") => format!("[{}]", string_value(&content["uri"])),
        Some("resource") => format!("[{}]", string_value(&content["resource"]["uri"])),
        Some(kind) => format!("[{}]", shorten(kind)),
        None => shorten(&content.to_string()),
    }
}

fn describe_exit(status: &Value) -> String {
    match (status["exitCode"].as_i64(), status["signal"].as_str()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {}", shorten(signal)),
        (None, None) => String::new(),
    }
}

fn describe_implementation(info: &Value) -> String {
    [string_value(&info["name"]), string_value(&info["version"])].join(" ").trim().to_owned()
}

fn describe_size(text: &Value) -> String {
    text.as_str().map_or_else(String::new, |text| count_noun(text.len(), "byte"))
}

fn count_noun(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn string_value(value: &Value) -> String {
    value.as_str().map(shorten).unwrap_or_default()
}

fn scalar_value(value: &Value) -> String {
    value.as_str().map_or_else(|| shorten(&value.to_string()), shorten)
}

fn array_items(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

fn join_parts<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
