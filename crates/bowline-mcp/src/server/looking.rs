//! Looking around: what is in a directory, and where a text is.

use bowline_state::display;
use bowline_state::failure::Failure;
use bowline_state::tooling::input::Fields;
use bowline_state::tooling::telling::{plural, warning};
use bowline_workspace::files::Files;
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{Case, SearchQuery, SearchResult, Skipped};
use bowline_workspace::walker::Kind;
use serde_json::{Value, json};

use super::DeniedTool;
use super::Place;
use super::session::Session;
use super::told::Done;

/// So many entries of a directory are told, and so deep at most.
const MAX_ENTRIES: u64 = 1000;
const MAX_DEPTH: u32 = 10;

/// So many matches are told, and so many bytes of each line.
const MAX_MATCHES: usize = 200;
const MAX_LINE: usize = 300;

/// So many bytes are told in all.
const MAX_BYTES: usize = 32 << 10;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 16 << 10;

/// Runs the tool that lists a directory.
pub(crate) async fn list<P: Place>(session: &Session<P>, fields: Fields<'_>) -> Result<Done, String> {
    let path = session.resolve(fields.some_text("path")?.unwrap_or("."))?;
    let depth = fields.number("depth")?.unwrap_or(1).clamp(1, MAX_DEPTH);
    let shown = session.shown(path.as_str());
    let options = ListOptions { depth: depth as usize, max_entries: MAX_ENTRIES, ..ListOptions::default() };
    let listed = session.place.files().list(path.as_str(), options).await;
    let tool = DeniedTool::Read { path: path.as_str() };
    let listing = listed.map_err(|failure| session.told(&tool, shown, &failure))?;
    Ok(listed_text(shown, &listing))
}

fn listed_text(shown: &str, listing: &Listing) -> Done {
    let (mut text, mut entries) = (String::new(), Vec::new());
    for entry in &listing.entries {
        let path = display::line(&entry.path, MAX_LINE);
        let (line, kind) = match entry.kind {
            Kind::Directory => (format!("{path}/\n"), "directory"),
            Kind::File => (format!("{path} ({} bytes)\n", entry.size), "file"),
            _ => (format!("{path} (no regular file)\n"), "other"),
        };
        if text.len() + line.len() > MAX_BYTES {
            break;
        }
        text.push_str(&line);
        entries.push(json!({ "path": path, "kind": kind, "size": entry.size }));
    }
    let is_cut = listing.truncated || entries.len() < listing.entries.len();
    let mut notes =
        vec![plural(entries.len() as u64, "name"), "what ignore rules hide is left out".to_owned()];
    if is_cut {
        notes.push("there are more: list a directory below".to_owned());
    }
    if listing.unreadable > 0 {
        notes.push(format!("{} directories could not be read", listing.unreadable));
    }
    let text = format!("[{shown}: {}]\n{text}", notes.join("; "));
    Done { text, structured: Some(json!({ "entries": entries, "truncated": is_cut })), failed: false }
}

/// Runs the tool that searches texts.
pub(crate) async fn search<P: Place>(session: &Session<P>, fields: Fields<'_>) -> Result<Done, String> {
    let pattern = fields.text("pattern")?;
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(format!("`pattern` has to have 1 to {MAX_PATTERN} bytes: give the text to look for"));
    }
    let below = fields.some_text("path")?.map(|path| session.resolve(path)).transpose()?;
    let glob = fields.some_text("glob")?.filter(|glob| !glob.is_empty());
    let query =
        if fields.flag("regex")? { SearchQuery::regex(pattern) } else { SearchQuery::literal(pattern) };
    let query = SearchQuery {
        case: if fields.flag("case_sensitive")? { Case::Sensitive } else { Case::Smart },
        include: glob.map(str::to_owned).into_iter().collect(),
        max_matches: MAX_MATCHES,
        max_line_bytes: MAX_LINE,
        ..query
    };
    if !fields.flag("regex")? && pattern.contains('\n') {
        return Err("`pattern` has to be within a line: search for one line of it".to_owned());
    }
    let within = below.as_ref().map_or(".", |path| session.shown(path.as_str())).to_owned();
    let files = session.place.files();
    let found = files.search(query, below.as_ref().map(|path| path.as_str().to_owned())).await;
    let found = found.map_err(|failure| match failure {
        // What is wrong is the pattern or the place.
        Failure::InvalidParams { reason } => reason,
        failure => {
            let path = below.as_ref().map_or(session.place.root(), |path| path.as_str());
            session.told(&DeniedTool::Read { path }, &within, &failure)
        }
    })?;
    Ok(found_text(session, &found))
}

fn found_text<P: Place>(session: &Session<P>, found: &SearchResult) -> Done {
    let (mut text, mut matches, mut last) = (String::new(), Vec::<Value>::new(), "");
    for hit in &found.matches {
        let path = display::line(session.shown(&hit.path), MAX_LINE);
        let head = if hit.path == last { String::new() } else { format!("{path}\n") };
        let more = if hit.cut { " …" } else { "" };
        let lines = format!("{head}  {}: {}{more}\n", hit.line, hit.text);
        if text.len() + lines.len() > MAX_BYTES {
            break;
        }
        last = &hit.path;
        text.push_str(&lines);
        matches.push(json!({ "path": path, "line": hit.line, "column": hit.column, "text": hit.text }));
    }
    let is_cut = found.truncated || matches.len() < found.matches.len();
    let counted = plural(found.matches.len() as u64, "matching line");
    let mut notes = vec![format!("{counted}; {} searched", plural(found.files_searched, "file"))];
    if is_cut {
        notes.push("there are more: narrow the search by path or glob".to_owned());
    }
    notes.extend(left_out(&found.skipped));
    let text = format!("[{}{}]\n{text}", notes.join("; "), warning(&text));
    let structured =
        json!({ "matches": matches, "filesSearched": found.files_searched, "truncated": is_cut });
    Done { text, structured: Some(structured), failed: false }
}

/// Says which files were not searched, and why.
fn left_out(skipped: &Skipped) -> impl Iterator<Item = String> {
    let Skipped { binary, too_large, secret, unreadable } = *skipped;
    let counts =
        [(binary, "binary"), (too_large, "too large"), (secret, "protected"), (unreadable, "unreadable")];
    let told = |(count, what): (u64, &str)| format!("{} left out", plural(count, &format!("{what} file")));
    counts.into_iter().filter(|(count, _)| *count > 0).map(told)
}
