//! How the offline model tells a person what a tool answered.

use bowline_state::conversation::ToolResult;
use bowline_state::offline::Step;

/// No more of a result is shown, in bytes and lines: the tool call beside it has all of it.
const MAX_BYTES: usize = 16 << 10;
const MAX_LINES: usize = 200;

/// Returns what is said about a result.
pub(super) fn result(step: &Step, result: &ToolResult) -> String {
    let name = &result.name;
    if result.failed {
        let failed = format!("{} did not work:\n\n{}", doing(step), fenced("", &result.text));
        return match step {
            // The tool's own advice is for programs.
            Step::Replace { old, new, path, all: false } if result.text.contains("replace_all") => {
                format!("{failed}\n\nTo change every place: `replace all {old:?} with {new:?} in {path}`")
            }
            _ => failed,
        };
    }
    match step {
        Step::Read { path, lines: None } => format!("`{path}`:\n\n{}", fenced(language(path), &result.text)),
        Step::Read { path, lines: Some((line, limit)) } => {
            let last = line.saturating_add(limit.saturating_sub(1));
            format!("`{path}`, lines {line} to {last}:\n\n{}", fenced(language(path), &result.text))
        }
        Step::Write { path, .. } => format!("Wrote `{path}`.{}", noted(&result.text)),
        Step::Replace { path, .. } => format!("Changed `{path}`.{}", noted(&result.text)),
        Step::Run(command) => format!("`{}`:\n\n{}", first_line(command), fenced("", &result.text)),
        Step::List(directory) => {
            format!("`{}`:\n\n{}", directory.as_deref().unwrap_or("."), fenced("", &result.text))
        }
        Step::Find(text) => format!("`{}`:\n\n{}", first_line(text), fenced("", &result.text)),
        Step::Plan(entries) if entries.len() == 1 => "The plan has 1 step.".to_owned(),
        Step::Plan(entries) => format!("The plan has {} steps.", entries.len()),
        Step::Call { .. } | Step::Think(_) | Step::Say(_) | Step::Wait(_) | Step::Stream(_) => {
            format!("`{name}`:\n\n{}", fenced("", &result.text))
        }
    }
}

/// Returns what is said if no tool for a step is offered.
pub(super) fn missing(step: &Step, names: &[&str]) -> String {
    let needs = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
    let why = match step {
        Step::Run(_) => {
            "the session may be read-only, or the agent was started without `--shell`, as `--no-terminal` has it"
        }
        Step::Write { .. } | Step::Replace { .. } => "the session may be read-only",
        _ => "this session does not have it",
    };
    format!("{} needs {needs}, which is not offered: {why}.", doing(step))
}

/// Returns how many commands were not done.
pub(super) fn commands(count: usize) -> String {
    if count == 1 { "1 command was".to_owned() } else { format!("{count} commands were") }
}

fn doing(step: &Step) -> String {
    match step {
        Step::Read { path, .. } => format!("Reading `{path}`"),
        Step::Write { path, .. } => format!("Writing `{path}`"),
        Step::Replace { path, .. } => format!("Changing `{path}`"),
        Step::Run(command) => format!("Running `{}`", first_line(command)),
        Step::List(directory) => format!("Listing `{}`", directory.as_deref().unwrap_or(".")),
        Step::Find(text) => format!("Finding `{}`", first_line(text)),
        Step::Plan(_) => "The plan".to_owned(),
        Step::Call { tool, .. } => format!("Calling `{tool}`"),
        Step::Think(_) | Step::Say(_) | Step::Wait(_) | Step::Stream(_) => "This".to_owned(),
    }
}

/// Returns what a tool has to say beyond that it went well.
fn noted(text: &str) -> String {
    let text = text.trim();
    if text.lines().count() < 2 { String::new() } else { format!("\n\n{}", fenced("", text)) }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns text in a fence that nothing in it closes.
fn fenced(language: &str, text: &str) -> String {
    let text = text.trim_end_matches('\n');
    let shown = shortened(text);
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let left = text[shown.len()..].lines().count();
    let more = if left == 0 { String::new() } else { format!("\n… and {left} more lines") };
    format!("{fence}{language}\n{shown}\n{fence}{more}")
}

fn shortened(text: &str) -> &str {
    let bytes = text.floor_char_boundary(MAX_BYTES);
    let lines = text.match_indices('\n').nth(MAX_LINES - 1).map_or(text.len(), |(at, _)| at);
    &text[..bytes.min(lines)]
}

fn language(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, "rs")) => "rust",
        Some((_, "py")) => "python",
        Some((_, "md")) => "markdown",
        Some((_, ending)) if ending.len() <= 8 && ending.bytes().all(|b| b.is_ascii_alphanumeric()) => ending,
        _ => "",
    }
}
