//! Reading a file for the model, in views of bounded size.

use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::LineWindow;
use bowline_tools::tools::describe::{count_noun, hidden_character_warning};
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::view::{MAX_LINES, ViewSource, view_text};
use bowline_workspace::files::TextReadOutcome;
use bowline_workspace::workspace::TextSource;

use super::DeniedOperation;
use super::binary;
use super::outcome::ToolOutcome;
use super::session::McpSession;

/// Executes the tool that reads a file.
pub(crate) async fn read_file(
    session: &McpSession,
    fields: ToolInputFields<'_>,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    let (first, limit) = (fields.number("line")?.unwrap_or(1).max(1), fields.number("limit")?);
    let display_path = session.display_path(path.as_str());
    let read = match fetch_text(session, path.as_str(), first, limit).await {
        Ok(read) => read,
        Err(RpcError::NotText { .. }) if session.backend.files().serves_file_extension() => {
            return binary::read_binary(session, path.as_str()).await;
        }
        Err(failure) => {
            if matches!(failure, RpcError::ResourceNotFound { .. }) {
                session.with_ledger(|ledger, _| ledger.record_absent(path.as_str()));
            }
            let tool = DeniedOperation::Read { path: path.as_str() };
            return Err(session.describe_failure(&tool, display_path, &failure));
        }
    };
    let source = ViewSource { text: &read.text, is_whole: read.is_whole == Some(true) };
    let view = view_text(source, first, limit);
    if let (true, Some(total)) = (view.is_past_end, view.total_lines) {
        return Err(format!(
            "{display_path} has {}: line {first} is past the end",
            count_noun(total, "line")
        ));
    }
    session.with_ledger(|ledger, _| view.record_seen(ledger, path.as_str(), source));
    // The line above the text is ours, so that no part of the text can pass for it.
    let cut = if view.has_cut_line { "; a line is longer than can be shown and is cut" } else { "" };
    let unsaved =
        if read.source != TextSource::Disk { "; as the editor has it, unsaved changes included" } else { "" };
    let line_endings =
        if view.text.contains("\r\n") { "; its lines end in CRLF, and go on doing so" } else { "" };
    let (range, hidden) = (view.describe_range(), hidden_character_warning(view.text));
    let head = format!("[{display_path}: {range}{unsaved}{cut}{line_endings}{hidden}]");
    // A model that sees `\r` repeats it inconsistently; on writing, each line gets the line ending of the file.
    let plain = view.text.replace("\r\n", "\n");
    Ok(ToolOutcome::from_text(match view.next_line {
        Some(next) => format!("{head}\n{}\n[continue with line={next}]", plain.trim_end_matches('\n')),
        None => format!("{head}\n{plain}"),
    }))
}

/// Reads the requested text. The whole file is read if its size permits, so that the total is known.
async fn fetch_text(
    session: &McpSession,
    path: &str,
    first: u32,
    limit: Option<u32>,
) -> Result<TextReadOutcome, RpcError> {
    let files = session.backend.files();
    match files.read(path, LineWindow::default()).await {
        // The whole file was requested, so a backend that reports no truncation has returned all of it.
        Ok(read) => Ok(TextReadOutcome { is_whole: Some(read.is_whole.unwrap_or(true)), ..read }),
        Err(RpcError::TooLarge { .. }) => {
            let limit = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
            let read = files.read(path, LineWindow { line: Some(first), limit: Some(limit) }).await?;
            Ok(TextReadOutcome { is_whole: Some(false), ..read })
        }
        Err(failure) => Err(failure),
    }
}
