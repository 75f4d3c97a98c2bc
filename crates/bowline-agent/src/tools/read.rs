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
pub(crate) async fn read_file(work: &ActiveCall<'_>, by: Backend) -> Result<ToolOutput, CallStop> {
    let fields = work.fields()?;
    let path = work.resolve_path(fields.required_text("path")?)?;
    let (line, limit) = (fields.number("line")?, fields.number("limit")?);
    let shown = work.display_path(&path);
    let first = line.unwrap_or(1).max(1);
    let title = match (line, limit) {
        (None, None) => format!("Read {shown}"),
        (_, Some(limit)) => format!("Read {shown}, lines {first}-{}", first.saturating_add(limit.max(1)) - 1),
        (Some(_), None) => format!("Read {shown} from line {first}"),
    };
    let input = without_nulls(json!({ "path": path.as_str(), "line": line, "limit": limit }));
    let at = line.map(|_| u64::from(first));
    work.announce(&title, ToolKind::Read, |call| call.raw_input(input).locations(vec![location(&path, at)]))
        .await?;
    let wish = work.read_request(by, &path, &title).await?;
    let pass = work.toolbox.permissions.authorize(by, work.call, work.cx, wish).await?;
    work.mark_running().await;
    let read = fetch_text(work, by, path.as_str(), first, limit).await;
    let became = match &read {
        Ok(fetched) => OperationOutcome { bytes: Some(fetched.text.len()), ..OperationOutcome::default() },
        Err(fault) => OperationOutcome { failure: Some(fault.to_string()), ..OperationOutcome::default() },
    };
    pass.record_outcome(became).await?;
    let fetched = match read {
        Ok(fetched) => fetched,
        Err(fault) => {
            let mut told = fault.describe_for_model(by, shown);
            if fault.is_file_missing() {
                work.toolbox.ledger().record_absent(&work.toolbox.ledger_key(by, path.as_str()));
                told += &suggest_files(work, path.as_str()).await;
            }
            return Err(told.into());
        }
    };
    if !fetched.is_whole && first > 1 && fetched.text.is_empty() {
        // Some clients return an empty text past the end.
        return Err(format!("{shown} has no line {first}: that is past the end").into());
    }
    let shown_of = view::ViewSource { text: &fetched.text, is_whole: fetched.is_whole };
    let view = view_text(shown_of, first, limit);
    if let (true, Some(total)) = (view.is_past_end, view.total_lines) {
        return Err(format!("{shown} has {}: line {first} is past the end", count_noun(total, "line")).into());
    }
    view.record_seen(&mut work.toolbox.ledger(), &work.toolbox.ledger_key(by, path.as_str()), shown_of);
    let head = result_header(shown, &view, by, &fetched.disk_comparison);
    // Models repeat a `\r` inconsistently; writing restores the file's line endings.
    let plain = view.text.replace("\r\n", "\n");
    let text = match view.next_line {
        Some(next) => format!("{head}\n{}\n[continue with line={next}]", plain.trim_end_matches('\n')),
        None => format!("{head}\n{plain}"),
    };
    let output = json!({
        "servedBy": by.as_str(),
        "firstLine": view.first_line,
        "lines": view.line_count,
        "totalLines": view.total_lines,
    });
    Ok(ToolOutput { content: Some(excerpt(&plain)), text, raw_output: Some(output), ..ToolOutput::default() })
}

/// Suggests existing files in place of a missing one.
async fn suggest_files(work: &ActiveCall<'_>, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let near = work.runtime().find_files_named(name).await;
    if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) }
}

/// The text read: a whole file, or a part of it.
struct FetchedText {
    text: Arc<String>,
    is_whole: bool,
    disk_comparison: DiskComparison,
}

/// Reads the requested lines. A small file is read whole, so that its length is known.
async fn fetch_text(
    work: &ActiveCall<'_>,
    by: Backend,
    path: &str,
    first: u32,
    limit: Option<u32>,
) -> Result<FetchedText, RuntimeError> {
    let runtimes = work.runtime();
    let of = |ServedText { text, whole, disk_comparison: truth, .. }: ServedText| FetchedText {
        text,
        is_whole: whole == Some(true),
        disk_comparison: truth,
    };
    let wants_all = first == 1 && limit.is_none();
    if wants_all || work.toolbox.is_small_file(path) {
        match runtimes.read(by, path, LineWindow::default()).await {
            Ok(text) => {
                work.toolbox.record_small_file(path);
                return Ok(of(text));
            }
            // The file may be too large to be returned at once.
            Err(RuntimeError::Failed(RpcError::TooLarge { .. }) | RuntimeError::InvalidAnswer { .. }) => {}
            Err(fault) => return Err(fault),
        }
    }
    let limit = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    runtimes.read(by, path, LineWindow { line: Some(first), limit: Some(limit) }).await.map(of)
}

/// Returns the line above the text, so that nothing in the text can pass for a statement of Bowline.
fn result_header(shown: &str, view: &FileView<'_>, by: Backend, truth: &DiskComparison) -> String {
    let by = by.via_phrase();
    let range = view.describe_range();
    let cut = if view.has_cut_line { "; a line is longer than can be shown and is cut" } else { "" };
    let ends = if view.text.contains("\r\n") { "; its lines end in CRLF, and go on doing so" } else { "" };
    let beside = match truth {
        DiskComparison::UpToDate => "",
        DiskComparison::Merged(_) | DiskComparison::Stale => {
            "; it was changed on disk, and the editor has not reloaded it"
        }
        DiskComparison::Deleted => "; it was deleted on disk, and the editor still has it",
        DiskComparison::Lossy => "; it is not all text, and the editor could not read the rest",
    };
    let hidden = hidden_character_warning(view.text);
    format!("[{shown}: {range}, read {by}{cut}{ends}{beside}{hidden}]")
}
