//! The offline model's descriptions of tool results.

use bowline_conversation::conversation::ToolResult;
use bowline_conversation::offline_commands::OfflineCommand;

/// The most bytes and lines shown of a result: the tool call has all of it.
const MAX_BYTES: usize = 16 << 10;
const MAX_LINES: usize = 200;

/// Describes a result.
pub(super) fn describe_result(step: &OfflineCommand, result: &ToolResult) -> String {
    let name = &result.name;
    if result.failed {
        let failed = format!("{} did not work:\n\n{}", describe_step(step), fence("", &result.text));
        return match step {
            // The tool's own advice is for models.
            OfflineCommand::Replace { old, new, path, all: false } if result.text.contains("replace_all") => {
                format!("{failed}\n\nTo change every place: `replace all {old:?} with {new:?} in {path}`")
            }
            _ => failed,
        };
    }
    match step {
        OfflineCommand::Read { path, lines: None } => {
            format!("`{path}`:\n\n{}", fence(fence_language(path), &result.text))
        }
        OfflineCommand::Read { path, lines: Some((line, limit)) } => {
            let last = line.saturating_add(limit.saturating_sub(1));
            format!("`{path}`, lines {line} to {last}:\n\n{}", fence(fence_language(path), &result.text))
        }
        OfflineCommand::Write { path, .. } => format!("Wrote `{path}`.{}", describe_notes(&result.text)),
        OfflineCommand::Replace { path, .. } => format!("Changed `{path}`.{}", describe_notes(&result.text)),
        OfflineCommand::Run(command) => format!("`{}`:\n\n{}", first_line(command), fence("", &result.text)),
        OfflineCommand::List(directory) => {
            format!("`{}`:\n\n{}", directory.as_deref().unwrap_or("."), fence("", &result.text))
        }
        OfflineCommand::Find(text) => format!("`{}`:\n\n{}", first_line(text), fence("", &result.text)),
        OfflineCommand::Plan(entries) if entries.len() == 1 => "The plan has 1 step.".to_owned(),
        OfflineCommand::Plan(entries) => format!("The plan has {} steps.", entries.len()),
        OfflineCommand::Call { .. }
        | OfflineCommand::Think(_)
        | OfflineCommand::Say(_)
        | OfflineCommand::Wait(_)
        | OfflineCommand::Stream(_) => {
            format!("`{name}`:\n\n{}", fence("", &result.text))
        }
    }
}

/// Explains that no tool for a step is offered.
pub(super) fn describe_missing_tool(step: &OfflineCommand, names: &[&str]) -> String {
    let required = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
    let reason = match step {
        OfflineCommand::Run(_) => {
            "the session may be read-only, or the agent was started without `--shell`, as `--no-terminal` has it"
        }
        OfflineCommand::Write { .. } | OfflineCommand::Replace { .. } => "the session may be read-only",
        _ => "this session does not have it",
    };
    format!("{} needs {required}, which is not offered: {reason}.", describe_step(step))
}

/// Describes how many commands were skipped.
pub(super) fn describe_skipped_commands(count: usize) -> String {
    if count == 1 { "1 command was".to_owned() } else { format!("{count} commands were") }
}

fn describe_step(step: &OfflineCommand) -> String {
    match step {
        OfflineCommand::Read { path, .. } => format!("Reading `{path}`"),
        OfflineCommand::Write { path, .. } => format!("Writing `{path}`"),
        OfflineCommand::Replace { path, .. } => format!("Changing `{path}`"),
        OfflineCommand::Run(command) => format!("Running `{}`", first_line(command)),
        OfflineCommand::List(directory) => format!("Listing `{}`", directory.as_deref().unwrap_or(".")),
        OfflineCommand::Find(text) => format!("Finding `{}`", first_line(text)),
        OfflineCommand::Plan(_) => "The plan".to_owned(),
        OfflineCommand::Call { tool, .. } => format!("Calling `{tool}`"),
        OfflineCommand::Think(_)
        | OfflineCommand::Say(_)
        | OfflineCommand::Wait(_)
        | OfflineCommand::Stream(_) => "This".to_owned(),
    }
}

/// Returns the notes of a tool beyond its success.
fn describe_notes(text: &str) -> String {
    let text = text.trim();
    if text.lines().count() < 2 { String::new() } else { format!("\n\n{}", fence("", text)) }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns text in a fence that the text itself cannot close.
fn fence(language: &str, text: &str) -> String {
    let text = text.trim_end_matches('\n');
    let shown = truncate(text);
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let left = text[shown.len()..].lines().count();
    let more = if left == 0 { String::new() } else { format!("\n… and {left} more lines") };
    format!("{fence}{language}\n{shown}\n{fence}{more}")
}

fn truncate(text: &str) -> &str {
    let bytes = text.floor_char_boundary(MAX_BYTES);
    let lines = text.match_indices('\n').nth(MAX_LINES - 1).map_or(text.len(), |(index, _)| index);
    &text[..bytes.min(lines)]
}

fn fence_language(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, "rs")) => "rust",
        Some((_, "py")) => "python",
        Some((_, "md")) => "markdown",
        Some((_, extension))
            if extension.len() <= 8 && extension.bytes().all(|b| b.is_ascii_alphanumeric()) =>
        {
            extension
        }
        _ => "",
    }
}
