//! What a message says, in a few words.

use std::fmt::Write as _;

use serde_json::Value;

use crate::display;

/// The longest gist of a part, in bytes.
const PART: usize = 160;
/// So many paths are named.
const PATHS: usize = 4;
/// So many blocks of a prompt are shown.
const BLOCKS: usize = 8;

/// Returns text of others on one short line that is safe to show.
pub(super) fn short(text: &str) -> String {
    let text = text.trim();
    if text.len() <= 8 * PART {
        return display::line(text, PART);
    }
    // Most of a long text would be made safe in vain.
    let end = (0..=PART).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    display::line(&text[..end], 2 * PART) + "…"
}

/// Returns the options of a permission request: id and name.
pub(super) fn options(params: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list(&params["options"]).map(|option| (text(&option["optionId"]), text(&option["name"]))).collect()
}

/// Returns what an error says.
pub(super) fn error(error: &Value) -> String {
    let mut told = format!("error {}: {}", short(&error["code"].to_string()), word(&error["message"]));
    if let Some(data) = error.get("data").filter(|data| !data.is_null()) {
        // Writing to a string cannot fail.
        _ = write!(told, " ({})", data.as_str().map_or_else(|| short(&data.to_string()), short));
    }
    told
}

/// Returns what a request or a notification says.
pub(super) fn said(method: &str, params: &Value) -> String {
    match method {
        "initialize" => {
            let version = &params["protocolVersion"];
            joined([format!("protocol {}", short(&version.to_string())), about(&params["clientInfo"])])
        }
        "session/new" | "session/load" | "session/resume" | "session/fork" => {
            let servers = list(&params["mcpServers"]).count();
            let servers = if servers == 0 { String::new() } else { counted(servers, "MCP server") };
            joined([word(&params["cwd"]), servers])
        }
        "session/prompt" => blocks(&params["prompt"]),
        "session/update" => update(&params["update"]),
        "session/request_permission" => {
            let names: Vec<String> = options(params).iter().map(|(_, name)| short(name)).collect();
            format!("{}? {}", tool(&params["toolCall"]), names.join(" | "))
        }
        "fs/read_text_file" => {
            let window = [("line", "from line"), ("limit", "limit")]
                .map(|(key, told)| params[key].as_u64().map_or_else(String::new, |n| format!("{told} {n}")));
            let [from, limit] = window;
            joined([word(&params["path"]), from, limit])
        }
        "fs/write_text_file" => joined([word(&params["path"]), size(&params["content"])]),
        "terminal/create" => {
            let words = std::iter::once(&params["command"]).chain(list(&params["args"])).map(word);
            words.collect::<Vec<_>>().join(" ")
        }
        "session/set_mode" => word(&params["modeId"]),
        "session/set_model" => word(&params["modelId"]),
        "session/set_config_option" => {
            format!("{} = {}", word(&params["configId"]), scalar(&params["value"]))
        }
        "authenticate" => word(&params["methodId"]),
        "$/cancel_request" => format!("request {}", scalar(&params["requestId"])),
        "session/cancel" => String::new(),
        _ if method.starts_with("terminal/") => word(&params["terminalId"]),
        // Methods that came later, and extensions, show what they carry.
        _ => match params {
            Value::Null => String::new(),
            params => short(&params.to_string()),
        },
    }
}

/// Returns what the answer to a request of a method says.
pub(super) fn answered(method: &str, result: &Value, options: &[(String, String)]) -> String {
    match method {
        "initialize" => {
            let version = &result["protocolVersion"];
            joined([format!("protocol {}", short(&version.to_string())), about(&result["agentInfo"])])
        }
        "session/new" | "session/fork" => format!("session {}", word(&result["sessionId"])),
        "session/prompt" => word(&result["stopReason"]),
        "session/list" => counted(list(&result["sessions"]).count(), "session"),
        "session/request_permission" => {
            let outcome = &result["outcome"];
            let chosen = match outcome["optionId"].as_str() {
                Some(chosen) => match options.iter().find(|(id, _)| id == chosen) {
                    Some((_, name)) => short(name),
                    None => format!("{} (not offered)", short(chosen)),
                },
                None => word(&outcome["outcome"]),
            };
            let why = &result["_meta"]["bowline"];
            let by = if why["by"] == "proxy" { "answered by the proxy" } else { "" };
            joined([chosen, by.to_owned(), word(&why["reason"])])
        }
        "fs/read_text_file" => size(&result["content"]),
        "terminal/create" => format!("terminal {}", word(&result["terminalId"])),
        "terminal/output" => {
            let cut = if result["truncated"] == true { "cut" } else { "" };
            joined([size(&result["output"]), cut.to_owned(), exit(&result["exitStatus"])])
        }
        "terminal/wait_for_exit" => exit(result),
        _ => match result {
            Value::Null => String::new(),
            Value::Object(map) if map.is_empty() => String::new(),
            result => short(&result.to_string()),
        },
    }
}

fn update(update: &Value) -> String {
    let kind = update["sessionUpdate"].as_str().unwrap_or_default();
    match kind {
        "agent_message_chunk" => block(&update["content"]),
        "agent_thought_chunk" => format!("thinks: {}", block(&update["content"])),
        "user_message_chunk" => format!("user: {}", block(&update["content"])),
        "tool_call" | "tool_call_update" => tool(update),
        "plan" => {
            let entries = list(&update["entries"]);
            let done = entries.clone().filter(|entry| entry["status"] == "completed").count();
            format!("plan: {done} of {} done", entries.count())
        }
        "available_commands_update" => counted(list(&update["availableCommands"]).count(), "command"),
        "current_mode_update" => format!("mode {}", word(&update["currentModeId"])),
        _ => match update {
            Value::Object(map) if !kind.is_empty() => {
                let rest: serde_json::Map<String, Value> = map
                    .iter()
                    .filter(|(key, _)| *key != "sessionUpdate")
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                format!("{}: {}", short(kind), short(&Value::from(rest).to_string()))
            }
            // What is no update of the protocol is shown as it is.
            update => short(&update.to_string()),
        },
    }
}

/// Returns what is said of a tool call: what it is called, how it stands, what it changes.
fn tool(call: &Value) -> String {
    let title = match call["title"].as_str() {
        Some(title) => short(title),
        None => word(&call["toolCallId"]),
    };
    let status = call["status"].as_str().map_or_else(String::new, |status| format!("[{}]", short(status)));
    let content = list(&call["content"]);
    let diffs: Vec<&Value> = content.clone().filter(|part| part["type"] == "diff").collect();
    let mut changes: Vec<String> = diffs.iter().take(PATHS).map(|diff| word(&diff["path"])).collect();
    if diffs.len() > PATHS {
        changes.push(format!("{} more", diffs.len() - PATHS));
    }
    let changes = if changes.is_empty() { String::new() } else { format!("changes {}", changes.join(", ")) };
    let terminal = content.clone().find(|part| part["type"] == "terminal");
    let terminal =
        terminal.map_or_else(String::new, |part| format!("terminal {}", word(&part["terminalId"])));
    let head = [title, status].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    joined([head, changes, terminal])
}

fn blocks(prompt: &Value) -> String {
    let mut told: Vec<String> = list(prompt).take(BLOCKS).map(block).collect();
    let more = list(prompt).count().saturating_sub(BLOCKS);
    if more > 0 {
        told.push(format!("and {}", counted(more, "block")));
    }
    told.join(" ")
}

fn block(content: &Value) -> String {
    match content["type"].as_str() {
        Some("text") => word(&content["text"]),
        Some("resource_link") => format!("[{}]", word(&content["uri"])),
        Some("resource") => format!("[{}]", word(&content["resource"]["uri"])),
        Some(kind) => format!("[{}]", short(kind)),
        None => short(&content.to_string()),
    }
}

fn exit(status: &Value) -> String {
    match (status["exitCode"].as_i64(), status["signal"].as_str()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {}", short(signal)),
        (None, None) => String::new(),
    }
}

fn about(info: &Value) -> String {
    [word(&info["name"]), word(&info["version"])].join(" ").trim().to_owned()
}

fn size(text: &Value) -> String {
    text.as_str().map_or_else(String::new, |text| counted(text.len(), "byte"))
}

fn counted(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

fn word(value: &Value) -> String {
    value.as_str().map(short).unwrap_or_default()
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| short(&value.to_string()), short)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

fn joined<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
