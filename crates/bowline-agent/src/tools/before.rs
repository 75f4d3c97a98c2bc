//! What a person sees of a call before it is allowed, where a title is too short to tell it.
//!
//! Clients show a call's title and its content; what is in its raw input few of them show. Text is Markdown to most, so
//! what is to be read letter by letter stands in a fence.

use bowline_state::operation::{Command, Kind, Operation, Target};
use bowline_state::question::Item;
use bowline_state::schema::v1::ToolCallContent;
use bowline_state::{builders, display};
use serde_json::Value;

/// So many bytes are shown in all. That there is more is said before all else.
const MAX_SHOWN: usize = 128 << 10;

/// Of what is longer than that, so many lines are, the first and the last.
const MAX_LINES: usize = 400;

/// Returns a command as it would run: the whole line, where, and with which variables.
pub(crate) fn command(command: Command) -> Vec<ToolCallContent> {
    let item = Item::plain(Operation { kind: Kind::Execute, target: Target::Command(command) });
    let (mut text, mut left_out) = (String::new(), 0);
    for line in item.lines() {
        let line = line.strip_prefix("  ").unwrap_or(&line);
        if left_out > 0 || text.len() + line.len() > MAX_SHOWN {
            left_out += 1;
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    let left_out = (left_out > 0).then(|| format!("{left_out} variables are not shown: they are too long"));
    content(item.unshown().or(left_out), &text)
}

/// Returns the arguments of a call.
pub(crate) fn arguments(input: &Value) -> Vec<ToolCallContent> {
    letter_by_letter(&format!("{input:#}"), "the arguments")
}

/// Returns a text that takes the place of all that a file holds, where that is not known.
pub(crate) fn replacing(path: &str, text: &str) -> Vec<ToolCallContent> {
    let mut content = vec![builders::text(format!("Replaces all of {}:", display::line(path, MAX_SHOWN)))];
    content.extend(letter_by_letter(text, "the text"));
    content
}

fn letter_by_letter(text: &str, what: &str) -> Vec<ToolCallContent> {
    let whole: Vec<String> = text.lines().map(|line| display::line(line, usize::MAX)).collect();
    let whole = whole.join("\n");
    if whole.len() <= MAX_SHOWN {
        return content(None, &whole);
    }
    let shown = display::block(text, MAX_LINES, MAX_SHOWN).text;
    content(Some(format!("a part of {what} is not shown: it is too long")), &shown)
}

fn content(warning: Option<String>, text: &str) -> Vec<ToolCallContent> {
    let warning = warning.map(|warning| format!("Careful: {warning}.\n\n")).unwrap_or_default();
    vec![builders::text(format!("{warning}{}", fenced(text.trim_end_matches('\n'))))]
}

/// Returns text in a fence that it cannot end itself.
fn fenced(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests;
