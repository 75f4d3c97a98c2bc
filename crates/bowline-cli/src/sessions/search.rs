//! Looking for a text in stored conversations.

use std::fmt::Write as _;

use bowline_agent::store::{Meta, Stored};
use serde_json::json;

use super::conversation::{Part, parts};
use super::{Sessions, exporting, gone, nearest, short};
use crate::changes::Where;
use crate::ending::Ending;
use crate::records::here::directory;
use crate::records::pager::page;
use crate::records::showing::{Ink, Look, count, print, safe};
use crate::records::times::ago;
use bowline_workspace::clock::now;

/// So many lines of a session are shown.
const MAX_LINES: usize = 3;
/// So much of a line is shown around what was found, in bytes.
const AROUND: usize = 60;

/// A session in which a text was found.
struct Match {
    meta: Meta,
    lines: Vec<String>,
    total: usize,
}

/// Lists the sessions in which a text is: in their titles, prompts, answers, or what tools were called.
pub(super) async fn search(
    sessions: &Sessions,
    text: &str,
    all: bool,
    json: bool,
    place: &Where,
) -> Result<(), Ending> {
    let known = sessions.all().await?;
    let start = directory(place.cwd.as_deref())?;
    let nearest = nearest(&known, &start);
    let wanted = text.to_lowercase();
    let mut matches = Vec::new();
    for meta in known.iter().filter(|meta| all || Some(&meta.cwd) == nearest.as_ref()) {
        let stored = sessions.store()?.read(&meta.id).await.map_err(|error| gone(error, &meta.id))?;
        let (lines, total) = lines(&stored, &wanted);
        let title = meta.title.as_deref().is_some_and(|title| title.to_lowercase().contains(&wanted));
        if title || total > 0 {
            matches.push(Match { meta: meta.clone(), lines, total });
        }
    }
    if json {
        let object = |found: &Match| {
            let mut object = exporting::meta(&found.meta);
            object["matches"] = json!(found.total);
            format!("{object}\n")
        };
        return print(&matches.iter().map(object).collect::<String>());
    }
    if matches.is_empty() {
        let elsewhere = if all { "" } else { " (--all looks in every directory)" };
        return print(&format!("no session has {}{elsewhere}\n", safe(text)));
    }
    page(&table(&matches, &known, all))
}

fn table(matches: &[Match], known: &[Meta], with_directory: bool) -> String {
    let look = Look::of_stdout();
    let mut text = String::new();
    for Match { meta, lines, total } in matches {
        let title = meta.title.as_deref().map_or_else(|| "(no title)".to_owned(), safe);
        let mut when = ago(meta.updated, now());
        if with_directory {
            when = format!("{when} · {}", safe(&meta.cwd.to_string_lossy()));
        }
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{}  {title}  {}",
            look.paint(Ink::Head, &short(&meta.id, known)),
            look.paint(Ink::Faint, &when)
        );
        for line in lines {
            _ = writeln!(text, "    {line}");
        }
        if *total > lines.len() {
            let more = count(total - lines.len(), "more line", "more lines");
            _ = writeln!(text, "    {}", look.paint(Ink::Faint, &format!("… and {more}")));
        }
    }
    text
}

/// Returns the first lines of a conversation that have a text, and how many do.
fn lines(stored: &Stored, wanted: &str) -> (Vec<String>, usize) {
    let (mut shown, mut total) = (Vec::new(), 0);
    for part in parts(stored) {
        let (who, said) = match part {
            Part::User(said) => ("you", said),
            Part::Agent(said) => ("agent", said),
            Part::Tool(tool) => ("tool", tool.title),
            Part::Thought(_) | Part::Plan(_) | Part::Compacted => continue,
        };
        for line in said.lines().filter(|line| line.to_lowercase().contains(wanted)) {
            total += 1;
            if shown.len() < MAX_LINES {
                shown.push(format!("{who}: {}", around(line, wanted)));
            }
        }
    }
    (shown, total)
}

/// Returns the part of a line that has a text.
fn around(line: &str, wanted: &str) -> String {
    // Where case changes lengths this is a little off, and still in the line.
    let at = line.to_lowercase().find(wanted).unwrap_or(0).min(line.len());
    let start = line.floor_char_boundary(at.saturating_sub(AROUND));
    let end = line.ceil_char_boundary((at + wanted.len() + AROUND).min(line.len()));
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", safe(line[start..end].trim()))
}
