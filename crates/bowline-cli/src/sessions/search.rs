//! Text search in stored conversations.

use std::fmt::Write as _;

use bowline_agent::store::{SessionMeta, StoredSession};
use serde_json::json;

use super::conversation::{ConversationPart, parts};
use super::{StoredSessions, export, nearest_directory, session_error, short_id};
use crate::changes::WorkspaceArguments;
use crate::common::console::{OutputStyle, TextStyle, escape_line, pluralize, print};
use crate::common::pager::print_paged;
use crate::common::times::format_age;
use crate::common::workspace_location::resolve_directory;
use crate::error::CliError;
use bowline_workspace::clock::now;

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
    place: &WorkspaceArguments,
) -> Result<(), CliError> {
    let known = sessions.list_all().await?;
    let start = resolve_directory(place.cwd.as_deref())?;
    let nearest = nearest_directory(&known, &start);
    let wanted = text.to_lowercase();
    let mut matches = Vec::new();
    for meta in known.iter().filter(|meta| all || Some(&meta.cwd) == nearest.as_ref()) {
        let stored =
            sessions.store()?.read(&meta.id).await.map_err(|error| session_error(error, &meta.id))?;
        let (lines, total) = matching_lines(&stored, &wanted);
        let title = meta.title.as_deref().is_some_and(|title| title.to_lowercase().contains(&wanted));
        if title || total > 0 {
            matches.push(SessionMatch { meta: meta.clone(), lines, total });
        }
    }
    if json {
        let object = |found: &SessionMatch| {
            let mut object = export::meta_to_json(&found.meta);
            object["matches"] = json!(found.total);
            format!("{object}\n")
        };
        return print(&matches.iter().map(object).collect::<String>());
    }
    if matches.is_empty() {
        let elsewhere = if all { "" } else { " (--all looks in every directory)" };
        return print(&format!("no session has {}{elsewhere}\n", escape_line(text)));
    }
    print_paged(&format_matches(&matches, &known, all))
}

fn format_matches(matches: &[SessionMatch], known: &[SessionMeta], with_directory: bool) -> String {
    let look = OutputStyle::for_stdout();
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
            look.paint(TextStyle::Heading, &short_id(&meta.id, known)),
            look.paint(TextStyle::Faint, &when)
        );
        for line in lines {
            _ = writeln!(text, "    {line}");
        }
        if *total > lines.len() {
            let more = pluralize(total - lines.len(), "more line", "more lines");
            _ = writeln!(text, "    {}", look.paint(TextStyle::Faint, &format!("… and {more}")));
        }
    }
    text
}

/// Returns the first matching lines of a conversation, and the number of matches.
fn matching_lines(stored: &StoredSession, wanted: &str) -> (Vec<String>, usize) {
    let (mut shown, mut total) = (Vec::new(), 0);
    for part in parts(stored) {
        let (who, said) = match part {
            ConversationPart::User(said) => ("you", said),
            ConversationPart::Agent(said) => ("agent", said),
            ConversationPart::ToolCall(tool) => ("tool", tool.title),
            ConversationPart::Thought(_) | ConversationPart::Plan(_) | ConversationPart::Compacted => {
                continue;
            }
        };
        for line in said.lines().filter(|line| line.to_lowercase().contains(wanted)) {
            total += 1;
            if shown.len() < MAX_LINES {
                shown.push(format!("{who}: {}", excerpt(line, wanted)));
            }
        }
    }
    (shown, total)
}

/// Returns the part of a line around the match.
fn excerpt(line: &str, wanted: &str) -> String {
    // If changing case changes lengths, this is slightly off, but still within the line.
    let at = line.to_lowercase().find(wanted).unwrap_or(0).min(line.len());
    let start = line.floor_char_boundary(at.saturating_sub(EXCERPT_CONTEXT));
    let end = line.ceil_char_boundary((at + wanted.len() + EXCERPT_CONTEXT).min(line.len()));
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", escape_line(line[start..end].trim()))
}
