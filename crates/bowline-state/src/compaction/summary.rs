//! What takes the place of the older part of a conversation, and what is said of it without a model.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::measure::{estimate_text, shortened};
use crate::conversation::{Input, Message, Part, Role, ToolUse};
use crate::display;

// What the parts of a summary begin with. They are found again by it when the summary is summed up in its turn.
const FIRST: &str =
    "[The conversation before this was too long and has been summed up. The user's first request was:]";
const LATEST: &str = "[The user's latest request, which is being worked on:]";
const SUMMARY: &str = "[Summary of what happened since:]";
const FILES: &str =
    "[Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]";
const TAKEN: &str = "I have read the summary and go on from there.";

/// What goes around the parts of a summary, and the model's word after it, in tokens.
const FRAME: u64 = 120;

/// A mechanical summary lists at most this many requests and this many calls, the latest.
const MAX_LISTED: usize = 60;

/// One line of a mechanical summary has at most about this many bytes.
const MAX_LINE: usize = 160;

/// A conversation whose older part is to be replaced by a summary.
#[derive(Debug, Clone, PartialEq)]
pub struct SumUp {
    old: Vec<Message>,
    kept: Vec<Message>,
    // How many tokens the summary and what goes with it may have.
    room: u64,
}

impl SumUp {
    pub(super) fn new(old: Vec<Message>, kept: Vec<Message>, room: u64) -> Self {
        Self { old, kept, room }
    }

    /// Returns what is to be summed up; long outputs are cut already.
    #[must_use]
    pub fn old(&self) -> &[Message] {
        &self.old
    }

    /// Returns what stays.
    #[must_use]
    pub fn kept(&self) -> &[Message] {
        &self.kept
    }

    /// Returns how many tokens a summary should have at most.
    #[must_use]
    pub fn summary_tokens(&self) -> u64 {
        self.room / 2
    }

    /// Returns what is to be summed up as one text of at most about that many tokens, for a model that reads it.
    #[must_use]
    pub fn transcript(&self, tokens: u64) -> String {
        let mut text = String::new();
        for message in &self.old {
            for part in &message.parts {
                text.push_str(&told(message.role, part));
                text.push('\n');
            }
        }
        shortened(&text, tokens).into_owned()
    }

    /// Returns a summary that needs no model: what was asked, and what was called.
    #[must_use]
    pub fn mechanical(&self) -> String {
        let mut lines = Vec::new();
        if let Some(earlier) = self.old.iter().find_map(|message| marked(message, SUMMARY)) {
            lines.push(shortened(earlier, self.summary_tokens() / 3).into_owned());
        }
        let requests = self.old.iter().filter(|message| message.role == Role::User && !is_summary(message));
        list(
            &mut lines,
            "Requests:",
            requests.map(|message| display::line(&texts(message), MAX_LINE)).collect(),
        );
        let failed = self.failed();
        let calls = self.old.iter().flat_map(Message::calls);
        let calls = calls.map(|call| called(call, failed.contains(call.id.as_str()))).collect();
        list(&mut lines, "Tool calls:", calls);
        if let Some(said) =
            self.old.iter().rev().filter(|message| message.role == Role::Assistant).find_map(spoken)
        {
            lines.push("Said last:".to_owned());
            lines.push(display::line(&said, MAX_LINE * 4));
        }
        lines.join("\n")
    }

    /// Returns the conversation with the summary in place of what is old. `files` says which files the session has
    /// read or changed.
    ///
    /// It is smaller than what it was made of, however long the summary is: that is cut.
    #[must_use]
    pub fn apply(self, summary: &str, files: &str) -> Vec<Message> {
        let room = self.room.saturating_sub(FRAME).max(self.room / 8);
        let mut parts = Vec::new();
        let mut add = |head: &str, text: &str, tokens: u64| {
            let text = shortened(text, tokens);
            parts.push(Part::Text { text: format!("{head}\n{text}") });
            estimate_text(&text)
        };
        let mut left = room;
        left -= add(FIRST, &self.first_request(), room / 5).min(left);
        if let Some(latest) = self.latest_request() {
            left -= add(LATEST, &latest, room / 5).min(left);
        }
        if !files.trim().is_empty() {
            left -= add(FILES, files.trim(), room / 5).min(left);
        }
        add(SUMMARY, summary.trim(), left);
        let mut messages = vec![Message { role: Role::User, parts }];
        // Two messages of the same side in a row are more than some providers take.
        if self.kept.first().is_none_or(|first| first.role != Role::Assistant) {
            messages.push(Message::text(Role::Assistant, TAKEN));
        }
        messages.extend(self.kept);
        messages
    }

    fn first_request(&self) -> Cow<'_, str> {
        let first = self.old.iter().find(|message| message.role == Role::User);
        first.map_or("".into(), |message| match marked(message, FIRST) {
            Some(request) => request.into(),
            None => texts(message).into(),
        })
    }

    /// Returns the request that is being worked on, if it is neither kept nor the first.
    fn latest_request(&self) -> Option<Cow<'_, str>> {
        if self.kept.iter().any(|message| message.role == Role::User) {
            return None;
        }
        let at = self.old.iter().rposition(|message| message.role == Role::User)?;
        let latest = &self.old[at];
        if is_summary(latest) {
            return marked(latest, LATEST).map(Cow::from);
        }
        let first = self.old.iter().position(|message| message.role == Role::User);
        (first != Some(at)).then(|| texts(latest).into())
    }

    fn failed(&self) -> HashSet<&str> {
        let parts = self.old.iter().flat_map(|message| &message.parts);
        let failed = parts.filter_map(|part| match part {
            Part::Result(result) if result.failed => Some(result.id.as_str()),
            _ => None,
        });
        failed.collect()
    }
}

/// Says whether a message is a summary.
pub(super) fn is_summary(message: &Message) -> bool {
    marked(message, FIRST).is_some() && marked(message, SUMMARY).is_some()
}

fn marked<'a>(message: &'a Message, mark: &str) -> Option<&'a str> {
    message.parts.iter().find_map(|part| match part {
        Part::Text { text } => text.strip_prefix(mark)?.strip_prefix('\n'),
        _ => None,
    })
}

fn texts(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn spoken(message: &Message) -> Option<String> {
    Some(texts(message)).filter(|text| !text.trim().is_empty() && text != TAKEN)
}

fn list(lines: &mut Vec<String>, head: &str, mut items: Vec<String>) {
    if items.is_empty() {
        return;
    }
    lines.push(head.to_owned());
    let earlier = items.len().saturating_sub(MAX_LISTED);
    if earlier > 0 {
        lines.push(format!("- {earlier} earlier ones"));
    }
    lines.extend(items.drain(earlier..).map(|item| format!("- {item}")));
}

fn called(call: &ToolUse, failed: bool) -> String {
    let input = match &call.input {
        Input::Value(value) => gist(value),
        Input::Broken { .. } => "(unreadable)".to_owned(),
    };
    let failed = if failed { " (failed)" } else { "" };
    display::line(&format!("{} {input}{failed}", call.name), MAX_LINE)
}

/// Returns what a call is about: the file, the command, or else all of its input.
fn gist(input: &Value) -> String {
    let telling = ["path", "command", "query", "pattern"];
    let found = telling.iter().find_map(|name| input.get(name)?.as_str());
    found.map_or_else(|| input.to_string(), str::to_owned)
}

fn told(role: Role, part: &Part) -> String {
    match part {
        Part::Text { text } => match role {
            Role::User => format!("USER: {text}"),
            Role::Assistant | Role::Tool => format!("ASSISTANT: {text}"),
        },
        Part::Image { .. } => "(a picture)".to_owned(),
        Part::Thought { .. } => String::new(),
        Part::Call(call) => match &call.input {
            Input::Value(input) => format!("CALL {} {input}", call.name),
            Input::Broken { text, .. } => format!("CALL {} (unreadable) {text}", call.name),
        },
        Part::Result(result) => {
            let failed = if result.failed { " FAILED" } else { "" };
            format!("RESULT of {}{failed}: {}", result.name, result.text)
        }
    }
}
