//! Summaries: the messages that replace the older part of a conversation, and a mechanical summary made without a
//! model.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::tokens::{estimate_text, truncate_middle};
use crate::conversation::{ConversationMessage, MessagePart, MessageRole, ToolUse, ToolUseInput};
use bowline_text::display;

// The headings of a summary's sections. They identify the sections when the summary itself is summarised.
const FIRST_REQUEST_HEADING: &str =
    "[The conversation before this was too long and has been summed up. The user's first request was:]";
const LATEST_REQUEST_HEADING: &str = "[The user's latest request, which is being worked on:]";
const SUMMARY_HEADING: &str = "[Summary of what happened since:]";
const FILES_HEADING: &str =
    "[Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]";
const ACKNOWLEDGEMENT: &str = "I have read the summary and go on from there.";

/// The tokens of the headings and of the acknowledgement.
const FRAME_TOKENS: u64 = 120;

/// The maximum number of requests and of calls in a mechanical summary; it lists the latest.
const MAX_LISTED_ITEMS: usize = 60;

/// The approximate maximum length of a line in a mechanical summary.
const MAX_LINE_BYTES: usize = 160;

/// A conversation whose older part will be replaced by a summary.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryPlan {
    old: Vec<ConversationMessage>,
    kept: Vec<ConversationMessage>,
    // The maximum tokens of the summary with its framing.
    max_tokens: u64,
}

impl SummaryPlan {
    pub(super) fn new(
        old: Vec<ConversationMessage>,
        kept: Vec<ConversationMessage>,
        max_tokens: u64,
    ) -> Self {
        Self { old, kept, max_tokens }
    }

    /// Returns the maximum number of tokens a summary should have.
    #[must_use]
    pub fn summary_tokens(&self) -> u64 {
        self.max_tokens / 2
    }

    /// Returns the messages to summarise as one text of at most about `tokens` tokens, for a model to read.
    #[must_use]
    pub fn render_transcript(&self, tokens: u64) -> String {
        let mut text = String::new();
        for message in &self.old {
            for part in &message.parts {
                text.push_str(&describe_part(message.role, part));
                text.push('\n');
            }
        }
        truncate_middle(&text, tokens).into_owned()
    }

    /// Returns a summary made without a model: the requests and the tool calls.
    #[must_use]
    pub fn mechanical_summary(&self) -> String {
        let mut lines = Vec::new();
        if let Some(earlier) = self.old.iter().find_map(|message| find_section(message, SUMMARY_HEADING)) {
            lines.push(truncate_middle(earlier, self.summary_tokens() / 3).into_owned());
        }
        let requests =
            self.old.iter().filter(|message| message.role == MessageRole::User && !is_summary(message));
        push_list(
            &mut lines,
            "Requests:",
            requests.map(|message| display::escape_line(&joined_text(message), MAX_LINE_BYTES)).collect(),
        );
        let failed = self.failed_call_ids();
        let calls = self.old.iter().flat_map(ConversationMessage::tool_uses);
        let calls = calls.map(|call| describe_call(call, failed.contains(call.id.as_str()))).collect();
        push_list(&mut lines, "Tool calls:", calls);
        if let Some(text) = self
            .old
            .iter()
            .rev()
            .filter(|message| message.role == MessageRole::Assistant)
            .find_map(assistant_text)
        {
            lines.push("Said last:".to_owned());
            lines.push(display::escape_line(&text, MAX_LINE_BYTES * 4));
        }
        lines.join("\n")
    }

    /// Returns the conversation with the old messages replaced by the summary. `files` lists the files that the session
    /// has read or changed.
    ///
    /// The result is always smaller than the original: a long summary is truncated.
    #[must_use]
    pub fn apply(self, summary: &str, files: &str) -> Vec<ConversationMessage> {
        let room = self.max_tokens.saturating_sub(FRAME_TOKENS).max(self.max_tokens / 8);
        let mut parts = Vec::new();
        let mut add = |head: &str, text: &str, tokens: u64| {
            let text = truncate_middle(text, tokens);
            parts.push(MessagePart::Text { text: format!("{head}\n{text}") });
            estimate_text(&text)
        };
        let mut left = room;
        left -= add(FIRST_REQUEST_HEADING, &self.first_request(), room / 5).min(left);
        if let Some(latest) = self.latest_request() {
            left -= add(LATEST_REQUEST_HEADING, &latest, room / 5).min(left);
        }
        if !files.trim().is_empty() {
            left -= add(FILES_HEADING, files.trim(), room / 5).min(left);
        }
        add(SUMMARY_HEADING, summary.trim(), left);
        let mut messages = vec![ConversationMessage { role: MessageRole::User, parts }];
        // Some providers reject two consecutive messages with the same role.
        if self.kept.first().is_none_or(|first| first.role != MessageRole::Assistant) {
            messages.push(ConversationMessage::from_text(MessageRole::Assistant, ACKNOWLEDGEMENT));
        }
        messages.extend(self.kept);
        messages
    }

    fn first_request(&self) -> Cow<'_, str> {
        let first = self.old.iter().find(|message| message.role == MessageRole::User);
        first.map_or("".into(), |message| match find_section(message, FIRST_REQUEST_HEADING) {
            Some(request) => request.into(),
            None => joined_text(message).into(),
        })
    }

    /// Returns the current request, if it is neither kept nor the first one.
    fn latest_request(&self) -> Option<Cow<'_, str>> {
        if self.kept.iter().any(|message| message.role == MessageRole::User) {
            return None;
        }
        let at = self.old.iter().rposition(|message| message.role == MessageRole::User)?;
        let latest = &self.old[at];
        if is_summary(latest) {
            return find_section(latest, LATEST_REQUEST_HEADING).map(Cow::from);
        }
        let first = self.old.iter().position(|message| message.role == MessageRole::User);
        (first != Some(at)).then(|| joined_text(latest).into())
    }

    fn failed_call_ids(&self) -> HashSet<&str> {
        let parts = self.old.iter().flat_map(|message| &message.parts);
        let failed = parts.filter_map(|part| match part {
            MessagePart::Result(result) if result.failed => Some(result.id.as_str()),
            _ => None,
        });
        failed.collect()
    }
}

/// Returns whether a message is a summary.
pub(super) fn is_summary(message: &ConversationMessage) -> bool {
    find_section(message, FIRST_REQUEST_HEADING).is_some() && find_section(message, SUMMARY_HEADING).is_some()
}

fn find_section<'a>(message: &'a ConversationMessage, heading: &str) -> Option<&'a str> {
    message.parts.iter().find_map(|part| match part {
        MessagePart::Text { text } => text.strip_prefix(heading)?.strip_prefix('\n'),
        _ => None,
    })
}

fn joined_text(message: &ConversationMessage) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        MessagePart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn assistant_text(message: &ConversationMessage) -> Option<String> {
    Some(joined_text(message)).filter(|text| !text.trim().is_empty() && text != ACKNOWLEDGEMENT)
}

fn push_list(lines: &mut Vec<String>, head: &str, mut items: Vec<String>) {
    if items.is_empty() {
        return;
    }
    lines.push(head.to_owned());
    let earlier = items.len().saturating_sub(MAX_LISTED_ITEMS);
    if earlier > 0 {
        lines.push(format!("- {earlier} earlier ones"));
    }
    lines.extend(items.drain(earlier..).map(|item| format!("- {item}")));
}

fn describe_call(call: &ToolUse, failed: bool) -> String {
    let input = match &call.input {
        ToolUseInput::Value(value) => describe_input(value),
        ToolUseInput::Broken { .. } => "(unreadable)".to_owned(),
    };
    let failed = if failed { " (failed)" } else { "" };
    display::escape_line(&format!("{} {input}{failed}", call.name), MAX_LINE_BYTES)
}

/// Returns the most telling part of a call's input: the path, the command, or otherwise all of it.
fn describe_input(input: &Value) -> String {
    let keys = ["path", "command", "query", "pattern"];
    let found = keys.iter().find_map(|name| input.get(name)?.as_str());
    found.map_or_else(|| input.to_string(), str::to_owned)
}

fn describe_part(role: MessageRole, part: &MessagePart) -> String {
    match part {
        MessagePart::Text { text } => match role {
            MessageRole::User => format!("USER: {text}"),
            MessageRole::Assistant | MessageRole::Tool => format!("ASSISTANT: {text}"),
        },
        MessagePart::Image { .. } => "(a picture)".to_owned(),
        MessagePart::Thought { .. } => String::new(),
        MessagePart::Call(call) => match &call.input {
            ToolUseInput::Value(input) => format!("CALL {} {input}", call.name),
            ToolUseInput::Broken { text, .. } => format!("CALL {} (unreadable) {text}", call.name),
        },
        MessagePart::Result(result) => {
            let failed = if result.failed { " FAILED" } else { "" };
            format!("RESULT of {}{failed}: {}", result.name, result.text)
        }
    }
}
