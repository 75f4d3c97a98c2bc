//! Looking around: what is in a directory, and where a text is.

use bowline_state::display;
use bowline_state::failure::Failure;
use bowline_state::schema::v1::ToolKind;
use bowline_state::tooling::telling::{plural, warning};
use bowline_workspace::listing::{ListEntry, ListOptions, Listing};
use bowline_workspace::search::{Case, SearchQuery};
use bowline_workspace::walker;
use serde_json::json;

use super::work::{Done, Stop, Work, excerpt, location, without_nulls};
use crate::permission::Became;
use crate::runtime::{Fault, Overlaid, Server};

/// So many entries of a directory are told, and so deep at most.
const MAX_ENTRIES: u64 = 1000;
const MAX_DEPTH: u32 = 10;

/// So many matches are told, and so many bytes of each line.
const MAX_MATCHES: usize = 200;
const MAX_LINE: usize = 300;

/// So many bytes are told in all.
const MAX_BYTES: usize = 32 << 10;

/// Runs the tool that lists a directory.
pub(crate) async fn list(work: &Work<'_>) -> Result<Done, Stop> {
    let fields = work.fields()?;
    let path = work.resolve(fields.some_text("path")?.unwrap_or("."))?;
    let depth = fields.number("depth")?.unwrap_or(1).clamp(1, MAX_DEPTH);
    let shown = if path.as_str() == work.runtimes().cwd() { "." } else { work.shown(&path) };
    let title = format!("List {shown}");
    let input = json!({ "path": path.as_str(), "depth": depth });
    work.start(&title, ToolKind::Read, |call| call.raw_input(input).locations(vec![location(&path, None)]))
        .await?;
    check_here(work).await?;
    let wish = work.looks(Server::Local, &path, &title).await?;
    let pass = work.tools.permissions.clear(Server::Local, work.call, work.cx, wish).await?;
    work.runs().await;
    let options = ListOptions { depth: depth as usize, max_entries: MAX_ENTRIES, ..ListOptions::default() };
    let listed = work.runtimes().list(path.as_str(), options).await;
    let failed = listed.as_ref().err().map(ToString::to_string);
    pass.became(Became { failed, ..Became::default() }).await?;
    let listing = listed.map_err(|fault| fault.told(Server::Local, shown))?;
    let text = listing_text(shown, &listing);
    let output = json!({ "servedBy": Server::Local.word(), "entries": listing.entries.len() });
    Ok(Done { content: Some(excerpt(&text)), text, output: Some(output), ..Done::default() })
}

/// Checks that the project is on this machine, as far as can be known: another one must not be taken for it.
async fn check_here(work: &Work<'_>) -> Result<(), Stop> {
    let Some(absent) = work.runtimes().elsewhere().await else { return Ok(()) };
    Err(format!(
        "only files of the agent's own machine can be listed and searched, and {} is not on it, which the editor has: \
         the project is on another machine. (If that file is only not saved yet, read another one and try again.)",
        work.runtimes().shown(&absent)
    )
    .into())
}

fn listing_text(shown: &str, listing: &Listing) -> String {
    let names = plural(listing.entries.len() as u64, "name");
    let by = Server::Local.through();
    let mut text = format!("[{shown}: {names}, {by}; what ignore rules hide is left out]\n");
    let mut cut = listing.truncated;
    for ListEntry { path, kind, size, .. } in &listing.entries {
        let path = display::line(path, MAX_LINE);
        let line = match kind {
            walker::Kind::Directory => format!("{path}/\n"),
            walker::Kind::File => format!("{path} ({size} bytes)\n"),
            _ => format!("{path} (no regular file)\n"),
        };
        if text.len() + line.len() > MAX_BYTES {
            cut = true;
            break;
        }
        text.push_str(&line);
    }
    if cut {
        text.push_str("[there are more: list a directory below]\n");
    }
    if listing.unreadable > 0 {
        text.push_str(&format!("[{} directories could not be read]\n", listing.unreadable));
    }
    text
}

/// Runs the tool that searches texts.
pub(crate) async fn search(work: &Work<'_>) -> Result<Done, Stop> {
    let fields = work.fields()?;
    let pattern = fields.text("pattern")?;
    if pattern.is_empty() {
        return Err("`pattern` is empty: give the text to look for".to_owned().into());
    }
    let below = fields.some_text("path")?.map(|path| work.resolve(path)).transpose()?;
    let is_regex = fields.flag("regex")?;
    let is_sensitive = fields.flag("case_sensitive")?;
    let glob = fields.some_text("glob")?.filter(|glob| !glob.is_empty());
    let root = work.resolve(".")?;
    let place = below.as_ref().unwrap_or(&root);
    let within = below.as_ref().map_or(".", |path| work.shown(path)).to_owned();
    let title = format!("Search for {} in {within}", display::line(pattern, 80));
    let input = without_nulls(json!({
        "pattern": pattern,
        "path": place.as_str(),
        "regex": is_regex,
        "case_sensitive": is_sensitive,
        "glob": glob,
    }));
    work.start(&title, ToolKind::Search, |call| call.raw_input(input).locations(vec![location(place, None)]))
        .await?;
    check_here(work).await?;
    let wish = work.looks(Server::Local, place, &title).await?;
    let pass = work.tools.permissions.clear(Server::Local, work.call, work.cx, wish).await?;
    work.runs().await;
    let query = if is_regex { SearchQuery::regex(pattern) } else { SearchQuery::literal(pattern) };
    let query = SearchQuery {
        case: if is_sensitive { Case::Sensitive } else { Case::Smart },
        include: glob.map(str::to_owned).into_iter().collect(),
        max_matches: MAX_MATCHES,
        max_line_bytes: MAX_LINE,
        ..query
    };
    let found = work.runtimes().search(query, below.as_ref().map(|path| path.as_str().to_owned())).await;
    let failed = found.as_ref().err().map(ToString::to_string);
    pass.became(Became { failed, ..Became::default() }).await?;
    let found = found.map_err(|fault| match fault {
        // What is wrong is the pattern or the place, whoever says so.
        Fault::Said(Failure::InvalidParams { reason }) => reason,
        fault => fault.told(Server::Local, &within),
    })?;
    let (text, locations) = (found_text(work, &found), &found.found.matches);
    let locations = locations.iter().take(20);
    let locations =
        locations.filter_map(|hit| Some(location(&work.resolve(&hit.path).ok()?, Some(hit.line))));
    let locations: Vec<_> = locations.collect();
    let output = json!({
        "servedBy": Server::Local.word(),
        "matches": found.found.matches.len(),
        "filesSearched": found.found.files_searched,
        "filesOfTheEditor": found.from_client.len(),
        "truncated": found.found.truncated,
    });
    Ok(Done {
        content: Some(excerpt(&text)),
        text,
        locations: (!locations.is_empty()).then_some(locations),
        output: Some(output),
        ..Done::default()
    })
}

fn found_text(work: &Work<'_>, Overlaid { found, from_client }: &Overlaid) -> String {
    let mut text = String::new();
    let mut cut = found.truncated;
    let mut last = "";
    for hit in &found.matches {
        let mut lines = String::new();
        if hit.path != last {
            let unsaved = if from_client.contains(&hit.path) { " (as the editor has it)" } else { "" };
            lines.push_str(&format!(
                "{}{unsaved}\n",
                display::line(work.runtimes().shown(&hit.path), MAX_LINE)
            ));
        }
        lines.push_str(&format!("  {}: {}{}\n", hit.line, hit.text, if hit.cut { " …" } else { "" }));
        if text.len() + lines.len() > MAX_BYTES {
            cut = true;
            break;
        }
        last = &hit.path;
        text.push_str(&lines);
    }
    let skipped = &found.skipped;
    let (lines, files) =
        (plural(found.matches.len() as u64, "matching line"), plural(found.files_searched, "file"));
    let mut notes = vec![format!("{lines}; {files} searched {}", Server::Local.through())];
    if cut {
        notes.push("there are more: narrow the search by path or glob".to_owned());
    }
    if !from_client.is_empty() {
        let files = plural(from_client.len() as u64, "file");
        notes.push(format!("of {files} that were read through the editor, its text counts"));
    }
    for (count, what) in [
        (skipped.binary, "binary"),
        (skipped.too_large, "too large"),
        (skipped.secret, "protected"),
        (skipped.unreadable, "unreadable"),
    ] {
        if count > 0 {
            notes.push(format!("{} left out", plural(count, &format!("{what} file"))));
        }
    }
    format!("[{}{}]\n{text}", notes.join("; "), warning(&text))
}
