//! Metadata, writing several files at once, deleting and moving: by the methods of the file extension.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_history::ledger::WriteVerdict;
use bowline_policy::paths::LexicalPath;
use bowline_protocol::file_extension::{
    BatchOperation, BatchResult, Etag, FileData, FileError, FileType, ReadParams, RemoveParams,
    TransferParams, WriteFileResponse, WriteParams,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_tools::tools::describe::{count_lines, count_noun, describe_conflicts, describe_diff};
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::schema::MAX_WRITTEN_FILES;
use bowline_tools::tools::write::{
    CurrentText, RequestedWrite, WriteDecision, can_append_unread, decide_write, record_write,
};
use bowline_workspace::files::{self, Requester};
use serde_json::json;

use super::DeniedOperation;
use super::outcome::ToolOutcome;
use super::session::{CallContext, McpSession};
use super::write::{replaces_unseen_text, write_outcome};

/// How often a batch is decided again because a file changed concurrently.
const ATTEMPTS: usize = 3;

/// The most bytes of the current texts of all files of a call.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// The most bytes of differences in a result.
const MAX_DIFF_BYTES: usize = 32 << 10;

const READ_AGAIN: &str = "Others changed the file as well: read it again before you edit it.";

/// Executes the tool that describes a file.
pub(crate) async fn stat_file(
    session: &McpSession,
    fields: ToolInputFields<'_>,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    let stat = session.backend.files().stat(path.as_str()).await.map_err(|error| {
        let tool = DeniedOperation::Read { path: path.as_str() };
        describe_error(session, &tool, session.display_path(path.as_str()), &error)
    })?;
    Ok(ToolOutcome::from_text(files::describe_stat(session.display_path(path.as_str()), &stat)))
}

/// Executes the tool that deletes a file.
pub(crate) async fn delete_file(
    session: &McpSession,
    fields: ToolInputFields<'_>,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    let params = RemoveParams::new(path.as_str());
    let params = if fields.flag("recursive")? { params.recursive() } else { params };
    let denied = DeniedOperation::Change { written: &[], deleted: &[path.as_str()] };
    let _locks = session.lock_files([path.as_str()]).await;
    run_batch(session, vec![params.into()], &denied, context).await.map_err(|error| error.text)?;
    session.with_ledger(|ledger, _| ledger.record_transfer(path.as_str(), None));
    Ok(ToolOutcome::from_text(format!("Deleted {}.", session.display_path(path.as_str()))))
}

/// Executes the tool that moves a file.
pub(crate) async fn move_file(
    session: &McpSession,
    fields: ToolInputFields<'_>,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let from = session.resolve(fields.required_text("from")?)?;
    let to = session.resolve(fields.required_text("to")?)?;
    let params = TransferParams::new(from.as_str(), to.as_str());
    let params = if fields.flag("overwrite")? { params.overwrite() } else { params };
    let denied = DeniedOperation::Change { written: &[to.as_str()], deleted: &[from.as_str()] };
    let _locks = session.lock_files([from.as_str(), to.as_str()]).await;
    let operations = vec![BatchOperation::Move(params)];
    run_batch(session, operations, &denied, context).await.map_err(|error| error.text)?;
    session.with_ledger(|ledger, _| ledger.record_transfer(from.as_str(), Some(to.as_str())));
    let (from, to) = (session.display_path(from.as_str()), session.display_path(to.as_str()));
    Ok(ToolOutcome::from_text(format!("Moved {from} to {to}.")))
}

/// Returns whether a file is appended to without reading it.
pub(super) async fn is_large(session: &McpSession, path: &LexicalPath) -> bool {
    let files = session.backend.files();
    if !files.serves_file_extension() {
        return false;
    }
    let Ok(stat) = files.stat(path.as_str()).await else { return false };
    stat.file_type == FileType::File
        && session.with_ledger(|ledger, _| can_append_unread(ledger, path.as_str(), stat.size))
}

/// Appends to a file without reading it.
pub(super) async fn append_unread(
    session: &McpSession,
    path: &LexicalPath,
    content: String,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let display_path = session.display_path(path.as_str());
    let count = count_noun(count_lines(&content), "line");
    let denied = DeniedOperation::Write { path: path.as_str() };
    let _locks = session.lock_files([path.as_str()]).await;
    let operations = vec![WriteParams::new(path.as_str(), content).append().into()];
    run_batch(session, operations, &denied, context).await.map_err(|error| error.text)?;
    Ok(write_outcome(display_path, "replaced", format!("Appended {count} to {display_path}.")))
}

/// A file to write, as decided on its current text.
struct PlannedWrite<'a> {
    path: &'a LexicalPath,
    request: &'a RequestedWrite,
    current: CurrentText,
    decision: WriteDecision,
    // The operation that writes it, unless it has the text already.
    operation: Option<usize>,
}

/// Executes the tool that writes several files.
pub(crate) async fn write_files(
    session: &McpSession,
    fields: ToolInputFields<'_>,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let files = parse_files(session, fields)?;
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let _locks = session.lock_files(paths.iter().copied()).await;
    let denied = DeniedOperation::Change { written: &paths, deleted: &[] };
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let (mut operations, mut writes, mut text_bytes) = (Vec::new(), Vec::new(), 0);
        for (path, request) in &files {
            let write = plan_write(session, path, request, &mut operations).await?;
            text_bytes += write.current.text().map_or(0, |text| text.len());
            if text_bytes > MAX_TEXT_BYTES {
                return Err(
                    "nothing was written: the files are too large for one call: write fewer".to_owned()
                );
            }
            writes.push(write);
        }
        let results = match operations.is_empty() {
            true => Ok(Vec::new()),
            false => run_batch(session, operations, &denied, context).await,
        };
        match results {
            Ok(results) => return Ok(report_writes(session, &writes, &results)),
            // A file changed concurrently: decide again on its new text.
            Err(BatchFailure { is_changed: true, text }) => last = text,
            Err(BatchFailure { text, .. }) => return Err(text),
        }
    }
    Err(format!("{last}: the files keep changing: read them again, then write"))
}

fn parse_files(
    session: &McpSession,
    fields: ToolInputFields<'_>,
) -> Result<Vec<(LexicalPath, RequestedWrite)>, String> {
    let entries = fields.objects("files")?;
    if entries.is_empty() || entries.len() > MAX_WRITTEN_FILES {
        return Err(format!(
            "`files` has {}, and a call writes 1 to {MAX_WRITTEN_FILES}",
            count_noun(entries.len() as u64, "file")
        ));
    }
    let (mut files, mut known_paths) = (Vec::new(), BTreeSet::new());
    for (index, entry) in entries.into_iter().enumerate() {
        let at = |error: String| format!("file {}: {error}", index + 1);
        let path = session.resolve(entry.required_text("path").map_err(at)?).map_err(at)?;
        let content = entry.required_text("content").map_err(at)?.to_owned();
        if !known_paths.insert(path.as_str().to_owned()) {
            return Err(at(format!("{} is given twice", session.display_path(path.as_str()))));
        }
        files.push((path, RequestedWrite::Whole(content)));
    }
    Ok(files)
}

async fn plan_write<'a>(
    session: &McpSession,
    path: &'a LexicalPath,
    request: &'a RequestedWrite,
    operations: &mut Vec<BatchOperation>,
) -> Result<PlannedWrite<'a>, String> {
    let (key, display_path) = (path.as_str(), session.display_path(path.as_str()));
    let (current, etag) = read_current(session, path).await?;
    let decision = session
        .with_ledger(|ledger, heard| decide_write((ledger, heard), key, &current, request, display_path))?;
    let is_held = current.text().is_some_and(|text| **text == *decision.text);
    if !is_held && replaces_unseen_text(&current, decision.verdict) {
        return Err(format!(
            "nothing was written: {display_path}: you have not read all of the text that would be replaced: read it first"
        ));
    }
    let operation = (!is_held).then_some(operations.len());
    if operation.is_some() {
        let params = WriteParams::new(key, decision.text.as_str().to_owned()).create_parents();
        operations.push(match etag {
            Some(etag) => params.if_match(etag).into(),
            None => params.create_only().into(),
        });
    }
    Ok(PlannedWrite { path, request, current, decision, operation })
}

async fn read_current(
    session: &McpSession,
    path: &LexicalPath,
) -> Result<(CurrentText, Option<Etag>), String> {
    let display_path = session.display_path(path.as_str());
    let read = match session.backend.files().read_data(ReadParams::new(path.as_str())).await {
        Ok(read) => read,
        Err(FileError::NotFound { .. }) => return Ok((CurrentText::Missing, None)),
        Err(error) => {
            let tool = DeniedOperation::Read { path: path.as_str() };
            let reason = describe_error(session, &tool, display_path, &error);
            return Err(format!("nothing was written: {reason}"));
        }
    };
    if read.truncated {
        return Err(format!(
            "nothing was written: {display_path} has {} bytes, which is too large to be changed so: use a command",
            read.size
        ));
    }
    let etag = read.etag.clone();
    match read.into_data() {
        Ok(Some(FileData::Text(text))) => Ok((CurrentText::Text(Arc::new(text)), Some(etag))),
        Ok(_) => Err(format!("nothing was written: {display_path} is not text")),
        Err(error) => Err(format!("nothing was written: {display_path}: {error}")),
    }
}

/// Records what the model knows now, and describes the result.
fn report_writes(session: &McpSession, writes: &[PlannedWrite<'_>], results: &[BatchResult]) -> ToolOutcome {
    let (mut lines, mut entries, mut diff_bytes) = (Vec::new(), Vec::new(), MAX_DIFF_BYTES);
    for write in writes {
        let result = write.operation.and_then(|index| results.get(index));
        let written = match result {
            Some(BatchResult::Write(written)) => Some(written),
            _ => None,
        };
        let (line, outcome) = report_write(session, write, written, &mut diff_bytes);
        lines.push(format!("- {line}"));
        entries.push(json!({ "path": session.display_path(write.path.as_str()), "outcome": outcome }));
    }
    let text = format!("{}:\n{}", count_noun(lines.len() as u64, "file"), lines.join("\n"));
    let structured = Some(json!({ "files": entries, "message": text }));
    ToolOutcome { structured, ..ToolOutcome::from_text(text) }
}

fn report_write(
    session: &McpSession,
    write: &PlannedWrite<'_>,
    written: Option<&WriteFileResponse>,
    diff_bytes: &mut usize,
) -> (String, &'static str) {
    let PlannedWrite { path, request, current, decision, .. } = write;
    let (key, display_path) = (path.as_str(), session.display_path(path.as_str()));
    let record = |now: Option<&Arc<String>>| {
        session.with_ledger(|ledger, heard| {
            record_write((ledger, heard), key, current, request, decision, now);
        });
    };
    let Some(written) = written else {
        record(current.text());
        return (format!("{display_path} holds this text already"), "unchanged");
    };
    let lines = count_noun(count_lines(&decision.text), "line");
    let is_created = decision.verdict == Some(WriteVerdict::Created);
    let verb = if is_created { "Created" } else { "Wrote" };
    let mut parts = vec![format!("{verb} {display_path} ({lines})")];
    for note in &decision.notes {
        let is_shown = note.len() <= *diff_bytes;
        *diff_bytes = diff_bytes.saturating_sub(note.len());
        parts.push(if is_shown { note.clone() } else { READ_AGAIN.to_owned() });
    }
    match &written.content {
        Some(now) if *now != *decision.text => {
            let (mut diff, mut is_cut) = describe_diff(&decision.text, now);
            if diff.len() > *diff_bytes {
                (diff, is_cut) = (String::new(), true);
            }
            *diff_bytes -= diff.len();
            parts.push(format!(
                "The file holds something else than what was written, by the editor or its user:\n{diff}"
            ));
            parts.extend(is_cut.then(|| READ_AGAIN.to_owned()));
            let now = Arc::new(now.clone());
            record(Some(&now).filter(|_| !is_cut));
        }
        None if written.merged || written.formatted => {
            parts.push(READ_AGAIN.to_owned());
            record(None);
        }
        Some(_) | None => record(Some(&decision.text)),
    }
    let is_merged = written.merged || decision.verdict == Some(WriteVerdict::Merged);
    let outcome = match (is_merged, is_created) {
        (true, _) => "merged",
        (false, true) => "created",
        (false, false) => "replaced",
    };
    (parts.join("\n"), outcome)
}

/// Why a batch was not carried out, in words for the model.
struct BatchFailure {
    text: String,
    // Whether a file is no longer as it was read.
    is_changed: bool,
}

async fn run_batch(
    session: &McpSession,
    operations: Vec<BatchOperation>,
    denied: &DeniedOperation<'_>,
    context: &CallContext,
) -> Result<Vec<BatchResult>, BatchFailure> {
    let requester = Requester { turn: None, call: Some(context.id.clone()) };
    let is_write = operations.iter().any(|operation| matches!(operation, BatchOperation::Write(_)));
    let result = session.backend.files().batch(operations, &requester).await;
    result.map_err(|failure| {
        let is_race = matches!(failure.error, FileError::Conflict { .. } | FileError::AlreadyExists { .. });
        let reason = describe_error(session, denied, "the files", &failure.error);
        BatchFailure { text: format!("nothing was changed: {reason}"), is_changed: is_write && is_race }
    })
}

pub(super) fn describe_error(
    session: &McpSession,
    tool: &DeniedOperation<'_>,
    subject: &str,
    error: &FileError,
) -> String {
    match error {
        FileError::PermissionDenied { .. } | FileError::Rpc(_) => match error.to_rpc_error() {
            RpcError::InvalidRequest { reason } => reason,
            failure => session.describe_failure(tool, subject, &failure),
        },
        error => {
            let text = files::describe_file_error(error, |path| session.display_path(path).to_owned());
            match error {
                FileError::Conflict { hunks, .. } => text + &describe_conflicts(hunks),
                _ => text,
            }
        }
    }
}
