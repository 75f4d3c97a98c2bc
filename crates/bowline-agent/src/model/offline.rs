//! The offline model: it follows plain commands, without network or API key.
//!
//! It keeps no state between requests. Its position follows from the conversation alone: the number of calls since the
//! user's last message is the number of completed steps that need a tool. A reloaded session continues where it was.

mod describe;

use std::sync::Arc;

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, ToolResult, ToolSpec, ToolUse, ToolUseInput,
};
use bowline_conversation::offline_commands::{HELP_TEXT, OfflineCommand, parse};
use serde_json::{Value, json};

use super::reply_sender::{ReplySender, reply_from_fn};
use super::{Model, ModelError, ModelInfo, ModelRequest, ReplyEvent, ReplyStop, ReplyStream};

/// The name of the offline model.
pub const NAME: &str = "offline";

/// Follows plain commands.
#[derive(Debug)]
pub struct OfflineModel {
    info: ModelInfo,
}

impl OfflineModel {
    /// Returns the offline model.
    #[must_use]
    pub fn new() -> Self {
        Self { info: info() }
    }
}

impl Default for OfflineModel {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the properties of the offline model.
#[must_use]
pub fn info() -> ModelInfo {
    ModelInfo {
        name: NAME.to_owned(),
        title: "Offline (plain commands)".to_owned(),
        context_window: 128_000,
        supports_images: false,
        supports_thinking: false,
        price: None,
    }
}

impl Model for OfflineModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream_reply(&self, request: ModelRequest) -> ReplyStream {
        reply_from_fn(move |sender| async move {
            let mut turn = OfflineReply { sender, request, has_text: false };
            turn.write().await;
            // It uses no tokens, so it reports no usage; some older clients fail on such an update.
            turn.sender.send(ReplyEvent::End(ReplyStop::Done)).await;
            Ok::<(), ModelError>(())
        })
    }
}

/// One reply.
struct OfflineReply {
    sender: ReplySender,
    request: ModelRequest,
    // Whether text was sent already, so that the next paragraph is preceded by a blank line.
    has_text: bool,
}

impl OfflineReply {
    async fn write(&mut self) {
        let messages: Arc<[ConversationMessage]> = self.request.messages.clone();
        let Some(index) = messages.iter().rposition(|message| message.role == MessageRole::User) else {
            return self.send_paragraph(HELP_TEXT).await;
        };
        let (prompt, later) = (&messages[index], &messages[index + 1..]);
        let steps = match parse_steps(prompt) {
            Ok(steps) => steps,
            Err(message) => return self.send_paragraph(&message).await,
        };
        let call_count = later.iter().flat_map(ConversationMessage::tool_uses).count();
        let mut first = 0;
        if call_count > 0 {
            // The step of the last call.
            let mut calls = steps.iter().enumerate().filter(|(_, step)| needs_tool(step));
            let Some((last, step)) = calls.nth(call_count - 1) else {
                return self.send_paragraph("All commands are done.").await;
            };
            first = last + 1;
            let result = later.iter().rev().flat_map(|message| &message.parts).find_map(|part| match part {
                MessagePart::Result(result) => Some(result),
                _ => None,
            });
            let remaining = steps.len() - first;
            if let Some(result) = result
                && !self.report_result(step, result, remaining).await
            {
                return;
            }
        }
        for (index, step) in steps.iter().enumerate().skip(first) {
            if !self.perform_step(step, steps.len() - index - 1).await {
                return;
            }
        }
    }

    /// Describes the result of a call; returns whether to continue.
    async fn report_result(&mut self, step: &OfflineCommand, result: &ToolResult, remaining: usize) -> bool {
        self.send_paragraph(&describe::describe_result(step, result)).await;
        if result.failed && remaining > 0 {
            self.send_paragraph(&format!(
                "I stop here; {} not done.",
                describe::describe_skipped_commands(remaining)
            ))
            .await;
        }
        !result.failed
    }

    /// Performs a step; returns whether the next one can follow in the same reply.
    async fn perform_step(&mut self, step: &OfflineCommand, remaining: usize) -> bool {
        match step {
            OfflineCommand::Think(text) => {
                self.sender.send(ReplyEvent::Thought { text: text.clone(), signature: None }).await;
            }
            OfflineCommand::Say(text) => self.send_paragraph(text).await,
            OfflineCommand::Wait(time) => {
                tokio::time::sleep(*time).await;
                self.send_paragraph(&format!("Waited {time:?}.")).await;
            }
            OfflineCommand::Stream(count) => {
                self.send_paragraph("").await;
                for number in 1..=*count {
                    self.send_text(&format!("{number} ")).await;
                }
            }
            step => match tool_call_for(step, &self.request.tools) {
                Ok((name, input)) => {
                    let id = unused_call_id(&self.request.messages);
                    self.sender
                        .send(ReplyEvent::Call(ToolUse { id, name, input: ToolUseInput::Value(input) }))
                        .await;
                    return false;
                }
                Err(missing) => {
                    let note = if remaining > 0 {
                        format!(" I stop here; {} not done.", describe::describe_skipped_commands(remaining))
                    } else {
                        String::new()
                    };
                    self.send_paragraph(&format!("{missing}{note}")).await;
                    return false;
                }
            },
        }
        true
    }

    async fn send_paragraph(&mut self, text: &str) {
        if self.has_text {
            self.send_text("\n\n").await;
        }
        self.send_text(text).await;
    }

    async fn send_text(&mut self, text: &str) {
        self.has_text |= !text.is_empty();
        self.sender.send_text(text).await;
    }
}

/// Returns the steps in a message, or the answer to give instead. A prompt has parts besides the typed text (files, a
/// reminder): if one part is a command, parts that are not are ignored.
fn parse_steps(prompt: &ConversationMessage) -> Result<Vec<OfflineCommand>, String> {
    let mut steps = Vec::new();
    let mut first_error = None;
    for part in &prompt.parts {
        let MessagePart::Text { text } = part else { continue };
        match parse(text) {
            Ok(parsed) => steps.extend(parsed),
            Err(_) if is_help_request(text) => return Err(HELP_TEXT.to_owned()),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if !steps.is_empty() {
        return Ok(steps);
    }
    // The user's text is one part; images and files are others.
    let attachment_note = match prompt.parts.len().saturating_sub(1) {
        0 => String::new(),
        _ => "I see what is attached, but I do not know what to do with it: `read PATH` shows a file, and pictures I \
              cannot look at.\n\n"
            .to_owned(),
    };
    Err(first_error.map_or_else(
        || HELP_TEXT.to_owned(),
        |error| format!("I did nothing: {error}.\n\n{attachment_note}{HELP_TEXT}"),
    ))
}

fn is_help_request(text: &str) -> bool {
    let word = text.trim().trim_matches(['?', '!', '.', '/']);
    word.is_empty() && text.contains('?') || word.eq_ignore_ascii_case("help")
}

fn needs_tool(step: &OfflineCommand) -> bool {
    use OfflineCommand::{Say, Stream, Think, Wait};
    !matches!(step, Think(_) | Say(_) | Wait(_) | Stream(_))
}

/// Returns the call for a step, or why it cannot be made.
fn tool_call_for(step: &OfflineCommand, tools: &[ToolSpec]) -> Result<(String, Value), String> {
    let is_offered = |name: &&str| tools.iter().any(|tool| tool.name == *name);
    let (names, input): (&[&str], Value) = match step {
        OfflineCommand::Read { path, lines } => {
            let mut input = json!({"path": path});
            if let Some((line, limit)) = lines {
                input["line"] = json!(line);
                input["limit"] = json!(limit);
            }
            (&["read_text_file", "ide_read_file", "read_file"], input)
        }
        OfflineCommand::Write { path, text } => {
            (&["write_text_file", "ide_write_file", "write_file"], json!({"path": path, "content": text}))
        }
        OfflineCommand::Replace { path, old, new, all } => {
            let mut edit = json!({"old_text": old, "new_text": new});
            if *all {
                edit["replace_all"] = json!(true);
            }
            (&["edit_text_file", "ide_edit_file", "edit_file"], json!({"path": path, "edits": [edit]}))
        }
        OfflineCommand::Run(command) => (&["execute", "ide_terminal", "bash"], json!({"command": command})),
        OfflineCommand::List(directory) => {
            (&["list_directory"], json!({"path": directory.as_deref().unwrap_or(".")}))
        }
        OfflineCommand::Find(text) => (&["search_text"], json!({"pattern": text})),
        OfflineCommand::Plan(entries) => {
            let entry =
                |content: &String| json!({"content": content, "priority": "medium", "status": "pending"});
            (&["update_plan"], json!({"entries": entries.iter().map(entry).collect::<Vec<_>>()}))
        }
        // Passed on unchecked, so that the answer to an unknown tool can be seen too.
        OfflineCommand::Call { tool, input } => return Ok((tool.clone(), input.clone())),
        OfflineCommand::Think(_)
        | OfflineCommand::Say(_)
        | OfflineCommand::Wait(_)
        | OfflineCommand::Stream(_) => (&[], Value::Null),
    };
    match names.iter().find(|name| is_offered(name)) {
        Some(name) => Ok(((*name).to_owned(), input)),
        None => Err(describe::describe_missing_tool(step, names)),
    }
}

/// Returns an id that is unused in the conversation.
fn unused_call_id(messages: &[ConversationMessage]) -> String {
    let used: std::collections::HashSet<&str> =
        messages.iter().flat_map(ConversationMessage::tool_uses).map(|call| call.id.as_str()).collect();
    let ids = (used.len() + 1..).map(|number| format!("offline_{number}"));
    ids.into_iter().find(|id| !used.contains(id.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests;
