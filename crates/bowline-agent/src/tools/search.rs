//! Listing directories and searching texts.

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::ToolKind;
use bowline_text::display;
use bowline_tools::tools::describe::{count_noun, hidden_character_warning};
use bowline_workspace::files::describe_stat;
use bowline_workspace::list::{ListEntry, ListOptions, Listing};
use bowline_workspace::search::{CaseMode, SearchQuery};
use bowline_workspace::walker;
use serde_json::json;

use super::active_call::{ActiveCall, CallStop, ToolOutput, excerpt, location, without_nulls};
use crate::permission::OperationOutcome;
use crate::runtime::batch;
use crate::runtime::{Backend, OverlaySearchResult, RuntimeError};

/// The most entries listed of a directory, and the greatest depth.
const MAX_ENTRIES: u64 = 1000;
const MAX_DEPTH: u32 = 10;

/// The most matches returned, and the most bytes of each line.
const MAX_MATCHES: usize = 200;
const MAX_LINE_BYTES: usize = 300;

/// The most bytes of a result.
const MAX_RESULT_BYTES: usize = 32 << 10;

/// Runs the tool that lists a directory.
pub(crate) async fn list_directory(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.optional_text("path")?.unwrap_or("."))?;
    let depth = fields.number("depth")?.unwrap_or(1).clamp(1, MAX_DEPTH);
    let display_path =
        if path.as_str() == active_call.runtime().cwd() { "." } else { active_call.display_path(&path) };
    let title = format!("List {display_path}");
    let input = json!({ "path": path.as_str(), "depth": depth });
    active_call
        .announce(&title, ToolKind::Read, |call| call.raw_input(input).locations(vec![location(&path, None)]))
        .await?;
    let backend = active_call.runtime().backend_choice().list;
    if backend == Backend::Local {
        check_project_is_local(active_call, "listed and searched").await?;
    }
    let request = active_call.read_request(backend, &path, &title).await?;
    let authorization =
        active_call.toolbox.permissions.authorize(backend, active_call.call, active_call.cx, request).await?;
    active_call.mark_running().await;
    let options = ListOptions { depth: depth as usize, max_entries: MAX_ENTRIES, ..ListOptions::default() };
    let result = active_call.runtime().list(path.as_str(), options).await;
    let failure = result.as_ref().err().map(ToString::to_string);
    authorization.record_outcome(OperationOutcome { failure, ..OperationOutcome::default() }).await?;
    let listing = result.map_err(|error| error.describe_for_model(backend, display_path))?;
    let text = format_listing(display_path, &listing, backend);
    let output = json!({ "servedBy": backend.as_str(), "entries": listing.entries.len() });
    Ok(ToolOutput { content: Some(excerpt(&text)), text, raw_output: Some(output), ..ToolOutput::default() })
}

/// Runs the tool that describes a file.
pub(crate) async fn stat_file(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.required_text("path")?)?;
    let display_path = active_call.display_path(&path);
    let title = format!("Look at {display_path}");
    let input = json!({ "path": path.as_str() });
    active_call
        .announce(&title, ToolKind::Read, |call| call.raw_input(input).locations(vec![location(&path, None)]))
        .await?;
    let choice = active_call.runtime().backend_choice();
    if choice.stat == Backend::Local {
        check_project_is_local(active_call, "described").await?;
    }
    let request = active_call.read_request(choice.stat, &path, &title).await?;
    let permissions = &active_call.toolbox.permissions;
    let authorization = permissions.authorize(choice.stat, active_call.call, active_call.cx, request).await?;
    active_call.mark_running().await;
    let result = batch::stat_file(active_call.runtime(), path.as_str()).await;
    let failure = result.as_ref().err().map(ToString::to_string);
    authorization.record_outcome(OperationOutcome { failure, ..OperationOutcome::default() }).await?;
    let stat = result.map_err(|error| error.describe_for_model(choice.stat, display_path))?;
    let mut text = describe_stat(display_path, &stat);
    // This machine does not know the unsaved text of an editor.
    if (choice.read, choice.stat) == (Backend::Client, Backend::Local) {
        text.push_str(" The editor may have unsaved text of it.");
    }
    let output = json!({ "servedBy": choice.stat.as_str(), "size": stat.size });
    Ok(ToolOutput { content: Some(excerpt(&text)), text, raw_output: Some(output), ..ToolOutput::default() })
}

/// Checks, as far as possible, that the project is on this machine: another one must not be mistaken for it.
pub(super) async fn check_project_is_local(
    active_call: &ActiveCall<'_>,
    participle: &str,
) -> Result<(), CallStop> {
    let Some(absent) = active_call.runtime().find_absent_file().await else { return Ok(()) };
    Err(format!(
        "only files of the agent's own machine can be {participle}, and {} is not on it, which the editor has: \
         the project is on another machine. (If that file is only not saved yet, read another one and try again.)",
        active_call.runtime().display_path(&absent)
    )
    .into())
}

fn format_listing(display_path: &str, listing: &Listing, backend: Backend) -> String {
    let names = count_noun(listing.entries.len() as u64, "name");
    let backend = backend.via_phrase();
    let mut text = format!("[{display_path}: {names}, {backend}; what ignore rules hide is left out]\n");
    let mut truncated = listing.truncated;
    for ListEntry { path, kind, size, .. } in &listing.entries {
        let path = display::escape_line(path, MAX_LINE_BYTES);
        let line = match kind {
            walker::EntryKind::Directory => format!("{path}/\n"),
            walker::EntryKind::File => format!("{path} ({size} bytes)\n"),
            _ => format!("{path} (no regular file)\n"),
        };
        if text.len() + line.len() > MAX_RESULT_BYTES {
            truncated = true;
            break;
        }
        text.push_str(&line);
    }
    if truncated {
        text.push_str("[there are more: list a directory below]\n");
    }
    if listing.unreadable > 0 {
        text.push_str(&format!("[{} directories could not be read]\n", listing.unreadable));
    }
    text
}

/// Runs the tool that searches texts.
pub(crate) async fn search_text(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let pattern = fields.required_text("pattern")?;
    if pattern.is_empty() {
        return Err("`pattern` is empty: give the text to look for".to_owned().into());
    }
    let directory = fields.optional_text("path")?.map(|path| active_call.resolve_path(path)).transpose()?;
    let is_regex = fields.flag("regex")?;
    let is_sensitive = fields.flag("case_sensitive")?;
    let glob = fields.optional_text("glob")?.filter(|glob| !glob.is_empty());
    let root = active_call.resolve_path(".")?;
    let target = directory.as_ref().unwrap_or(&root);
    let display_path = directory.as_ref().map_or(".", |path| active_call.display_path(path)).to_owned();
    let title = format!("Search for {} in {display_path}", display::escape_line(pattern, 80));
    let input = without_nulls(json!({
        "pattern": pattern,
        "path": target.as_str(),
        "regex": is_regex,
        "case_sensitive": is_sensitive,
        "glob": glob,
    }));
    active_call
        .announce(&title, ToolKind::Search, |call| {
            call.raw_input(input).locations(vec![location(target, None)])
        })
        .await?;
    check_project_is_local(active_call, "listed and searched").await?;
    let request = active_call.read_request(Backend::Local, target, &title).await?;
    let authorization = active_call
        .toolbox
        .permissions
        .authorize(Backend::Local, active_call.call, active_call.cx, request)
        .await?;
    active_call.mark_running().await;
    let query = if is_regex { SearchQuery::regex(pattern) } else { SearchQuery::literal(pattern) };
    let query = SearchQuery {
        case: if is_sensitive { CaseMode::Sensitive } else { CaseMode::Smart },
        include: glob.map(str::to_owned).into_iter().collect(),
        max_matches: MAX_MATCHES,
        max_line_bytes: MAX_LINE_BYTES,
        ..query
    };
    let result =
        active_call.runtime().search(query, directory.as_ref().map(|path| path.as_str().to_owned())).await;
    let failure = result.as_ref().err().map(ToString::to_string);
    authorization.record_outcome(OperationOutcome { failure, ..OperationOutcome::default() }).await?;
    let result = result.map_err(|error| match error {
        // The pattern or the path is wrong, so the backend does not matter.
        RuntimeError::Failed(RpcError::InvalidParams { reason }) => reason,
        error => error.describe_for_model(Backend::Local, &display_path),
    })?;
    let (text, locations) = (format_matches(active_call, &result), &result.result.matches);
    let locations = locations.iter().take(20);
    let locations = locations
        .filter_map(|hit| Some(location(&active_call.resolve_path(&hit.path).ok()?, Some(hit.line))));
    let locations: Vec<_> = locations.collect();
    let output = json!({
        "servedBy": Backend::Local.as_str(),
        "matches": result.result.matches.len(),
        "filesSearched": result.result.files_searched,
        "filesOfTheEditor": result.overlaid_files.len(),
        "truncated": result.result.truncated,
    });
    Ok(ToolOutput {
        content: Some(excerpt(&text)),
        text,
        locations: (!locations.is_empty()).then_some(locations),
        raw_output: Some(output),
        ..ToolOutput::default()
    })
}

fn format_matches(
    active_call: &ActiveCall<'_>,
    OverlaySearchResult { result, overlaid_files: from_client }: &OverlaySearchResult,
) -> String {
    let mut text = String::new();
    let mut truncated = result.truncated;
    let mut last = "";
    for hit in &result.matches {
        let mut lines = String::new();
        if hit.path != last {
            let unsaved = if from_client.contains(&hit.path) { " (as the editor has it)" } else { "" };
            lines.push_str(&format!(
                "{}{unsaved}\n",
                display::escape_line(active_call.runtime().display_path(&hit.path), MAX_LINE_BYTES)
            ));
        }
        lines.push_str(&format!(
            "  {}: {}{}\n",
            hit.line,
            hit.text,
            if hit.is_truncated { " …" } else { "" }
        ));
        if text.len() + lines.len() > MAX_RESULT_BYTES {
            truncated = true;
            break;
        }
        last = &hit.path;
        text.push_str(&lines);
    }
    let skipped = &result.skipped;
    let (lines, files) =
        (count_noun(result.matches.len() as u64, "matching line"), count_noun(result.files_searched, "file"));
    let mut notes = vec![format!("{lines}; {files} searched {}", Backend::Local.via_phrase())];
    if truncated {
        notes.push("there are more: narrow the search by path or glob".to_owned());
    }
    if !from_client.is_empty() {
        let files = count_noun(from_client.len() as u64, "file");
        notes.push(format!("of {files} that were read through the editor, its text counts"));
    }
    for (count, kind) in [
        (skipped.binary, "binary"),
        (skipped.too_large, "too large"),
        (skipped.secret, "protected"),
        (skipped.unreadable, "unreadable"),
    ] {
        if count > 0 {
            notes.push(format!("{} left out", count_noun(count, &format!("{kind} file"))));
        }
    }
    format!("[{}{}]\n{text}", notes.join("; "), hidden_character_warning(&text))
}
