//! Text search in stored conversations.

use std::fmt::Write as _;

use bowline_agent::store::{SessionMeta, StoredSession};
use serde_json::json;

use super::conversation::{ConversationPart, parts};
use super::{StoredSessions, export, nearest_directory, session_error, short_id};
use crate::changes::WorkspaceArguments;
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, pluralize, print};
use bowline_client::common::pager::print_paged;
use bowline_client::common::times::format_age;
use bowline_client::common::workspace_location::resolve_directory;
use bowline_client::error::CliError;
use bowline_storage::clock::now;

/// The maximum number of lines shown per session.
const MAX_LINES: usize = 3;
/// The number of bytes shown around a match.
const EXCERPT_CONTEXT: usize = 60;

/// A session in which a text was found.
struct SessionMatch {
    meta: SessionMeta,
    lines: Vec<String>,
    total: usize,
}

/// Lists the sessions that contain a text in their titles, prompts, answers or tool calls.
pub(super) async fn search(
    sessions: &StoredSessions,
    text: &str,
    all: bool,
    json: bool,
    workspace: &WorkspaceArguments,
) -> Result<(), CliError> {
    let all_sessions = sessions.list_all().await?;
    let start = resolve_directory(workspace.cwd.as_deref())?;
    let nearest = nearest_directory(&all_sessions, &start);
    let needle = text.to_lowercase();
    let mut matches = Vec::new();
    for meta in all_sessions.iter().filter(|meta| all || Some(&meta.cwd) == nearest.as_ref()) {
        let stored =
            sessions.store()?.read(&meta.id).await.map_err(|error| session_error(error, &meta.id))?;
        let (lines, total) = matching_lines(&stored, &needle);
        let title_matches = meta.title.as_deref().is_some_and(|title| title.to_lowercase().contains(&needle));
        if title_matches || total > 0 {
            matches.push(SessionMatch { meta: meta.clone(), lines, total });
        }
    }
    if json {
        let object = |session_match: &SessionMatch| {
            let mut object = export::meta_to_json(&session_match.meta);
            object["matches"] = json!(session_match.total);
            format!("{object}\n")
        };
        return print(&matches.iter().map(object).collect::<String>());
    }
    if matches.is_empty() {
        let hint = if all { "" } else { " (--all looks in every directory)" };
        return print(&format!("no session has {}{hint}\n", escape_line(text)));
    }
    print_paged(&format_matches(&matches, &all_sessions, all))
}

fn format_matches(matches: &[SessionMatch], all_sessions: &[SessionMeta], with_directory: bool) -> String {
    let style = OutputStyle::for_stdout();
    let mut text = String::new();
    for SessionMatch { meta, lines, total } in matches {
        let title = meta.title.as_deref().map_or_else(|| "(no title)".to_owned(), escape_line);
        let mut when = format_age(meta.updated_at, now());
        if with_directory {
            when = format!("{when} · {}", escape_line(&meta.cwd.to_string_lossy()));
        }
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{}  {title}  {}",
            style.paint(TextStyle::Heading, &short_id(&meta.id, all_sessions)),
            style.paint(TextStyle::Faint, &when)
        );
        for line in lines {
            _ = writeln!(text, "    {line}");
        }
        if *total > lines.len() {
            let more = pluralize(total - lines.len(), "more line", "more lines");
            _ = writeln!(text, "    {}", style.paint(TextStyle::Faint, &format!("… and {more}")));
        }
    }
    text
}

/// Returns the first matching lines of a conversation, and the number of matches.
fn matching_lines(stored: &StoredSession, needle: &str) -> (Vec<String>, usize) {
    let (mut excerpts, mut total) = (Vec::new(), 0);
    for part in parts(stored) {
        let (speaker, content) = match part {
            ConversationPart::User(content) => ("you", content),
            ConversationPart::Agent(content) => ("agent", content),
            ConversationPart::ToolCall(tool) => ("tool", tool.title),
            ConversationPart::Thought(_) | ConversationPart::Plan(_) | ConversationPart::Compacted => {
                continue;
            }
        };
        for line in content.lines().filter(|line| line.to_lowercase().contains(needle)) {
            total += 1;
            if excerpts.len() < MAX_LINES {
                excerpts.push(format!("{speaker}: {}", excerpt(line, needle)));
            }
        }
    }
    (excerpts, total)
}

/// Returns the part of a line around the match.
fn excerpt(line: &str, needle: &str) -> String {
    // If changing case changes lengths, this is slightly off, but still within the line.
    let index = line.to_lowercase().find(needle).unwrap_or(0).min(line.len());
    let start = line.floor_char_boundary(index.saturating_sub(EXCERPT_CONTEXT));
    let end = line.ceil_char_boundary((index + needle.len() + EXCERPT_CONTEXT).min(line.len()));
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", escape_line(line[start..end].trim()))
}
