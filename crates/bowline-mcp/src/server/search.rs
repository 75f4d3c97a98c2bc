//! Listing directories and searching texts.

use bowline_protocol::rpc_error::RpcError;
use bowline_text::display;
use bowline_tools::tools::describe::{count_noun, hidden_character_warning};
use bowline_tools::tools::input::ToolInputFields;
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{CaseMode, SearchQuery, SearchResult, SkippedFiles};
use bowline_workspace::walker::EntryKind;
use serde_json::{Value, json};

use super::DeniedOperation;
use super::outcome::ToolOutcome;
use super::session::McpSession;

/// The most entries of a directory listing, and its greatest depth.
const MAX_ENTRIES: u64 = 1000;
const MAX_DEPTH: u32 = 10;

/// The most matches that are returned, and the most bytes of each line.
const MAX_MATCHES: usize = 200;
const MAX_LINE_BYTES: usize = 300;

/// The longest output, in bytes.
const MAX_OUTPUT_BYTES: usize = 32 << 10;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 16 << 10;

/// Executes the tool that lists a directory.
pub(crate) async fn list_directory(
    session: &McpSession,
    fields: ToolInputFields<'_>,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.optional_text("path")?.unwrap_or("."))?;
    let depth = fields.number("depth")?.unwrap_or(1).clamp(1, MAX_DEPTH);
    let display_path = session.display_path(path.as_str());
    let options = ListOptions { depth: depth as usize, max_entries: MAX_ENTRIES, ..ListOptions::default() };
    let result = session.backend.files().list(path.as_str(), options).await;
    let tool = DeniedOperation::Read { path: path.as_str() };
    let listing = result.map_err(|failure| session.describe_failure(&tool, display_path, &failure))?;
    Ok(describe_listing(display_path, &listing))
}

fn describe_listing(display_path: &str, listing: &Listing) -> ToolOutcome {
    let (mut text, mut entries) = (String::new(), Vec::new());
    for entry in &listing.entries {
        let path = display::escape_line(&entry.path, MAX_LINE_BYTES);
        let (line, kind) = match entry.kind {
            EntryKind::Directory => (format!("{path}/\n"), "directory"),
            EntryKind::File => (format!("{path} ({} bytes)\n", entry.size), "file"),
            _ => (format!("{path} (no regular file)\n"), "other"),
        };
        if text.len() + line.len() > MAX_OUTPUT_BYTES {
            break;
        }
        text.push_str(&line);
        entries.push(json!({ "path": path, "kind": kind, "size": entry.size }));
    }
    let is_cut = listing.truncated || entries.len() < listing.entries.len();
    let mut notes =
        vec![count_noun(entries.len() as u64, "name"), "what ignore rules hide is left out".to_owned()];
    if is_cut {
        notes.push("there are more: list a directory below".to_owned());
    }
    if listing.unreadable > 0 {
        notes.push(format!("{} directories could not be read", listing.unreadable));
    }
    let text = format!("[{display_path}: {}]\n{text}", notes.join("; "));
    ToolOutcome {
        structured: Some(json!({ "entries": entries, "truncated": is_cut })),
        ..ToolOutcome::from_text(text)
    }
}

/// Executes the tool that searches texts.
pub(crate) async fn search_text(
    session: &McpSession,
    fields: ToolInputFields<'_>,
) -> Result<ToolOutcome, String> {
    let pattern = fields.required_text("pattern")?;
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(format!("`pattern` has to have 1 to {MAX_PATTERN} bytes: give the text to look for"));
    }
    let directory = fields.optional_text("path")?.map(|path| session.resolve(path)).transpose()?;
    let glob = fields.optional_text("glob")?.filter(|glob| !glob.is_empty());
    let query =
        if fields.flag("regex")? { SearchQuery::regex(pattern) } else { SearchQuery::literal(pattern) };
    let query = SearchQuery {
        case: if fields.flag("case_sensitive")? { CaseMode::Sensitive } else { CaseMode::Smart },
        include: glob.map(str::to_owned).into_iter().collect(),
        max_matches: MAX_MATCHES,
        max_line_bytes: MAX_LINE_BYTES,
        ..query
    };
    if !fields.flag("regex")? && pattern.contains('\n') {
        return Err("`pattern` has to be within a line: search for one line of it".to_owned());
    }
    let display_path = directory.as_ref().map_or(".", |path| session.display_path(path.as_str())).to_owned();
    let files = session.backend.files();
    let found = files.search(query, directory.as_ref().map(|path| path.as_str().to_owned())).await;
    let found = found.map_err(|failure| match failure {
        // The pattern or the path is invalid, and the reason says which.
        RpcError::InvalidParams { reason } => reason,
        failure => {
            let path = directory.as_ref().map_or(session.backend.root(), |path| path.as_str());
            session.describe_failure(&DeniedOperation::Read { path }, &display_path, &failure)
        }
    })?;
    Ok(describe_matches(session, &found))
}

fn describe_matches(session: &McpSession, found: &SearchResult) -> ToolOutcome {
    let (mut text, mut matches, mut last) = (String::new(), Vec::<Value>::new(), "");
    for hit in &found.matches {
        let path = display::escape_line(session.display_path(&hit.path), MAX_LINE_BYTES);
        let head = if hit.path == last { String::new() } else { format!("{path}\n") };
        let more = if hit.is_truncated { " …" } else { "" };
        let lines = format!("{head}  {}: {}{more}\n", hit.line, hit.text);
        if text.len() + lines.len() > MAX_OUTPUT_BYTES {
            break;
        }
        last = &hit.path;
        text.push_str(&lines);
        matches.push(json!({ "path": path, "line": hit.line, "column": hit.column, "text": hit.text }));
    }
    let is_cut = found.truncated || matches.len() < found.matches.len();
    let counted = count_noun(found.matches.len() as u64, "matching line");
    let mut notes = vec![format!("{counted}; {} searched", count_noun(found.files_searched, "file"))];
    if is_cut {
        notes.push("there are more: narrow the search by path or glob".to_owned());
    }
    notes.extend(describe_skipped(&found.skipped));
    let text = format!("[{}{}]\n{text}", notes.join("; "), hidden_character_warning(&text));
    let structured =
        json!({ "matches": matches, "filesSearched": found.files_searched, "truncated": is_cut });
    ToolOutcome { structured: Some(structured), ..ToolOutcome::from_text(text) }
}

/// Describes which files were not searched, and why.
fn describe_skipped(skipped: &SkippedFiles) -> impl Iterator<Item = String> {
    let SkippedFiles { binary, too_large, secret, unreadable } = *skipped;
    let counts =
        [(binary, "binary"), (too_large, "too large"), (secret, "protected"), (unreadable, "unreadable")];
    let describe =
        |(count, kind): (u64, &str)| format!("{} left out", count_noun(count, &format!("{kind} file")));
    counts.into_iter().filter(|(count, _)| *count > 0).map(describe)
}
