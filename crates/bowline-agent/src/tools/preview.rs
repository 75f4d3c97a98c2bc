//! The preview of a call before it is allowed, where a title is too short.
//!
//! Clients show a call's title and content; few show its raw input. Most render text as Markdown, so verbatim text is
//! put in a fence.

use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_policy::question::QuestionItem;
use bowline_protocol::builders;
use bowline_protocol::schema::v1::ToolCallContent;
use bowline_text::display;
use serde_json::Value;

/// The most bytes shown. A notice comes first if there are more.
const MAX_PREVIEW_BYTES: usize = 128 << 10;

/// The most lines shown of a longer text, from its start and its end.
const MAX_LINES: usize = 400;

/// Returns a command as it would run: the whole line, its directory and its variables.
pub(crate) fn preview_command(command: CommandSpec) -> Vec<ToolCallContent> {
    let item = QuestionItem::new(Operation {
        kind: OperationKind::Execute,
        target: OperationTarget::Command(command),
    });
    let (mut text, mut left_out) = (String::new(), 0);
    for line in item.lines() {
        let line = line.strip_prefix("  ").unwrap_or(&line);
        if left_out > 0 || text.len() + line.len() > MAX_PREVIEW_BYTES {
            left_out += 1;
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    let left_out = (left_out > 0).then(|| format!("{left_out} variables are not shown: they are too long"));
    fenced_content(item.describe_omission().or(left_out), &text)
}

/// Returns the arguments of a call.
pub(crate) fn preview_arguments(input: &Value) -> Vec<ToolCallContent> {
    verbatim_content(&format!("{input:#}"), "the arguments")
}

/// Returns a text that replaces the unknown content of a file.
pub(crate) fn preview_replacement(path: &str, text: &str) -> Vec<ToolCallContent> {
    let mut content =
        vec![builders::text(format!("Replaces all of {}:", display::escape_line(path, MAX_PREVIEW_BYTES)))];
    content.extend(verbatim_content(text, "the text"));
    content
}

/// Returns a text that is appended to a file.
pub(crate) fn preview_addition(text: &str) -> Vec<ToolCallContent> {
    verbatim_content(text, "the text")
}

fn verbatim_content(text: &str, subject: &str) -> Vec<ToolCallContent> {
    let escaped: Vec<String> = text.lines().map(|line| display::escape_line(line, usize::MAX)).collect();
    let escaped = escaped.join("\n");
    if escaped.len() <= MAX_PREVIEW_BYTES {
        return fenced_content(None, &escaped);
    }
    let clipped = display::escape_block(text, MAX_LINES, MAX_PREVIEW_BYTES).text;
    fenced_content(Some(format!("a part of {subject} is not shown: it is too long")), &clipped)
}

fn fenced_content(warning: Option<String>, text: &str) -> Vec<ToolCallContent> {
    let warning = warning.map(|warning| format!("Careful: {warning}.\n\n")).unwrap_or_default();
    vec![builders::text(format!("{warning}{}", fence(text.trim_end_matches('\n'))))]
}

/// Returns text in a fence that the text itself cannot close.
fn fence(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests;
