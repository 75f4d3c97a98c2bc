//! Reading a file for the model, in portions of suitable size.

use std::sync::Arc;

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::ToolKind;
use bowline_text::lines::LineWindow;
use bowline_tools::tools::describe::{count_noun, hidden_character_warning};
use bowline_tools::tools::view::{self, FileView, MAX_LINES, view_text};
use serde_json::json;

use super::active_call::{ActiveCall, CallStop, ToolOutput, excerpt, location, without_nulls};
use crate::permission::OperationOutcome;
use crate::runtime::{Backend, DiskComparison, RuntimeError, ServedText};

/// Runs a tool that reads a file.
pub(crate) async fn read_file(
    active_call: &ActiveCall<'_>,
    backend: Backend,
) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.required_text("path")?)?;
    let (line, limit) = (fields.number("line")?, fields.number("limit")?);
    let display_path = active_call.display_path(&path);
    let first = line.unwrap_or(1).max(1);
    let title = match (line, limit) {
        (None, None) => format!("Read {display_path}"),
        (_, Some(limit)) => {
            format!("Read {display_path}, lines {first}-{}", first.saturating_add(limit.max(1)) - 1)
        }
        (Some(_), None) => format!("Read {display_path} from line {first}"),
    };
    let input = without_nulls(json!({ "path": path.as_str(), "line": line, "limit": limit }));
    let location_line = line.map(|_| u64::from(first));
    active_call
        .announce(&title, ToolKind::Read, |call| {
            call.raw_input(input).locations(vec![location(&path, location_line)])
        })
        .await?;
    let request = active_call.read_request(backend, &path, &title).await?;
    let authorization =
        active_call.toolbox.permissions.authorize(backend, active_call.call, active_call.cx, request).await?;
    active_call.mark_running().await;
    let result = fetch_text(active_call, backend, path.as_str(), first, limit).await;
    let outcome = match &result {
        Ok(fetched) => OperationOutcome { bytes: Some(fetched.text.len()), ..OperationOutcome::default() },
        Err(error) => OperationOutcome { failure: Some(error.to_string()), ..OperationOutcome::default() },
    };
    authorization.record_outcome(outcome).await?;
    let fetched = match result {
        Ok(fetched) => fetched,
        Err(error) => {
            let mut message = error.describe_for_model(backend, display_path);
            if error.is_file_missing() {
                active_call
                    .toolbox
                    .ledger()
                    .record_absent(&active_call.toolbox.ledger_key(backend, path.as_str()));
                message += &suggest_files(active_call, path.as_str()).await;
            }
            return Err(message.into());
        }
    };
    if !fetched.is_whole && first > 1 && fetched.text.is_empty() {
        // Some clients return an empty text past the end.
        return Err(format!("{display_path} has no line {first}: that is past the end").into());
    }
    let source = view::ViewSource { text: &fetched.text, is_whole: fetched.is_whole };
    let view = view_text(source, first, limit);
    if let (true, Some(total)) = (view.is_past_end, view.total_lines) {
        return Err(format!(
            "{display_path} has {}: line {first} is past the end",
            count_noun(total, "line")
        )
        .into());
    }
    view.record_seen(
        &mut active_call.toolbox.ledger(),
        &active_call.toolbox.ledger_key(backend, path.as_str()),
        source,
    );
    let header = result_header(display_path, &view, backend, &fetched.disk_comparison);
    // Models repeat a `\r` inconsistently; writing restores the file's line endings.
    let body = view.text.replace("\r\n", "\n");
    let text = match view.next_line {
        Some(next) => format!("{header}\n{}\n[continue with line={next}]", body.trim_end_matches('\n')),
        None => format!("{header}\n{body}"),
    };
    let output = json!({
        "servedBy": backend.as_str(),
        "firstLine": view.first_line,
        "lines": view.line_count,
        "totalLines": view.total_lines,
    });
    Ok(ToolOutput { content: Some(excerpt(&body)), text, raw_output: Some(output), ..ToolOutput::default() })
}

/// Suggests existing files in place of a missing one.
async fn suggest_files(active_call: &ActiveCall<'_>, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let namesakes = active_call.runtime().find_files_named(name).await;
    if namesakes.is_empty() { String::new() } else { format!("; there is {}", namesakes.join(", ")) }
}

/// The text read: a whole file, or a part of it.
struct FetchedText {
    text: Arc<String>,
    is_whole: bool,
    disk_comparison: DiskComparison,
}

/// Reads the requested lines. A small file is read whole, so that its length is known.
async fn fetch_text(
    active_call: &ActiveCall<'_>,
    backend: Backend,
    path: &str,
    first: u32,
    limit: Option<u32>,
) -> Result<FetchedText, RuntimeError> {
    let runtime = active_call.runtime();
    let into_fetched = |ServedText { text, whole, disk_comparison, .. }: ServedText| FetchedText {
        text,
        is_whole: whole == Some(true),
        disk_comparison,
    };
    let wants_whole_file = first == 1 && limit.is_none();
    if wants_whole_file || active_call.toolbox.is_small_file(path) {
        match runtime.read(backend, path, LineWindow::default()).await {
            Ok(text) => {
                active_call.toolbox.record_small_file(path);
                return Ok(into_fetched(text));
            }
            // The file may be too large to be returned at once.
            Err(RuntimeError::Failed(RpcError::TooLarge { .. }) | RuntimeError::InvalidAnswer { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let limit = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    runtime.read(backend, path, LineWindow { line: Some(first), limit: Some(limit) }).await.map(into_fetched)
}

/// Returns the line above the text, so that nothing in the text can pass for a statement of Bowline.
fn result_header(
    display_path: &str,
    view: &FileView<'_>,
    backend: Backend,
    comparison: &DiskComparison,
) -> String {
    let backend = backend.via_phrase();
    let range = view.describe_range();
    let cut_note = if view.has_cut_line { "; a line is longer than can be shown and is cut" } else { "" };
    let line_ending_note =
        if view.text.contains("\r\n") { "; its lines end in CRLF, and go on doing so" } else { "" };
    let disk_note = match comparison {
        DiskComparison::UpToDate => "",
        DiskComparison::Merged(_) | DiskComparison::Stale => {
            "; it was changed on disk, and the editor has not reloaded it"
        }
        DiskComparison::Deleted => "; it was deleted on disk, and the editor still has it",
        DiskComparison::Lossy => "; it is not all text, and the editor could not read the rest",
    };
    let hidden_note = hidden_character_warning(view.text);
    format!("[{display_path}: {range}, read {backend}{cut_note}{line_ending_note}{disk_note}{hidden_note}]")
}
