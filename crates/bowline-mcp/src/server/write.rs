//! Writing and editing files: decided on the current text, against what the model has seen of it.
//!
//! The current text is read first, from the editor or from disk. Changes that the user made since the model saw the
//! file are merged, or the conflict is reported and nothing is written. Parts of the result that the model did not know
//! are reported to it.

use std::sync::Arc;

use bowline_history::ledger::WriteVerdict;
use bowline_policy::paths::LexicalPath;
use bowline_protocol::rpc_error::RpcError;
use bowline_text::edits::{MatchSelection, SearchReplaceEdit};
use bowline_text::lines::LineWindow;
use bowline_tools::tools::describe::{count_lines, count_noun, describe_conflicts, describe_diff};
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::write::{CurrentText, RequestedWrite, WriteDecision, decide_write, record_write};
use bowline_workspace::files::{Requester, TextWriteOutcome};
use serde_json::json;

use super::DeniedOperation;
use super::batch;
use super::outcome::ToolOutcome;
use super::session::{CallContext, McpSession};

/// How often a change is decided again because the file changed concurrently.
const ATTEMPTS: usize = 3;

/// Executes the tool that writes a whole file.
pub(crate) async fn write_file(
    session: &McpSession,
    fields: ToolInputFields<'_>,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    let content = fields.required_text("content")?.to_owned();
    apply_change(session, &path, &RequestedWrite::Whole(content), context).await
}

/// Executes the tool that edits a file by search and replace.
pub(crate) async fn edit_file(
    session: &McpSession,
    fields: ToolInputFields<'_>,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    // A single edit may be given in the call itself.
    let is_single = fields.optional_text("old_text")?.is_some();
    let entries = if is_single { vec![fields] } else { fields.objects("edits")? };
    let edits: Result<Vec<SearchReplaceEdit>, String> = entries
        .into_iter()
        .enumerate()
        .map(|(at, entry)| {
            parse_edit(entry)
                .map_err(|error| if is_single { error } else { format!("edit {}: {error}", at + 1) })
        })
        .collect();
    apply_change(session, &path, &RequestedWrite::Edits(edits?), context).await
}

/// Executes the tool that appends to a file.
pub(crate) async fn append_file(
    session: &McpSession,
    fields: ToolInputFields<'_>,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    let content = fields.required_text("content")?.to_owned();
    if batch::is_large(session, &path).await {
        return batch::append_unread(session, &path, content, context).await;
    }
    apply_change(session, &path, &RequestedWrite::Append(content), context).await
}

fn parse_edit(fields: ToolInputFields<'_>) -> Result<SearchReplaceEdit, String> {
    let which = if fields.flag("replace_all")? { MatchSelection::All } else { MatchSelection::Only };
    Ok(SearchReplaceEdit {
        old: fields.required_text("old_text")?.to_owned(),
        new: fields.required_text("new_text")?.to_owned(),
        selection: which,
    })
}

async fn apply_change(
    session: &McpSession,
    path: &LexicalPath,
    requested: &RequestedWrite,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let (key, display_path) = (path.as_str(), session.display_path(path.as_str()));
    let _locks = session.lock_files([key]).await;
    let requester = Requester { turn: None, call: Some(context.id.clone()) };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let current = read_current(session, key, display_path).await?;
        let decision = session.with_ledger(|ledger, heard| {
            decide_write((ledger, heard), key, &current, requested, display_path)
        })?;
        if current.text().is_some_and(|text| **text == *decision.text) {
            session.with_ledger(|ledger, heard| {
                record_write((ledger, heard), key, &current, requested, &decision, current.text());
            });
            let text = format!("{display_path} holds this text already; nothing was written.");
            return Ok(write_outcome(display_path, "unchanged", text));
        }
        if !matches!(requested, RequestedWrite::Append(_)) && replaces_unseen_text(&current, decision.verdict)
        {
            return Err(format!(
                "nothing was written: {display_path}: you have not read all of the text that would be replaced: read it first"
            ));
        }
        match session.backend.files().write(key, decision.text.as_str().to_owned(), &requester).await {
            Ok(written) => {
                return Ok(finish_write(session, key, requested, &current, &decision, written).await);
            }
            // The file changed concurrently: decide again on its new text.
            Err(conflict @ RpcError::Conflict { .. }) => last = Some(conflict),
            Err(failure) => {
                let reason =
                    session.describe_failure(&DeniedOperation::Write { path: key }, display_path, &failure);
                return Err(format!("nothing was written: {reason}"));
            }
        }
    }
    let hunks = match &last {
        Some(RpcError::Conflict { hunks, .. }) => describe_conflicts(hunks),
        _ => String::new(),
    };
    Err(format!("nothing was written: {display_path} keeps changing: read it again, then write{hunks}"))
}

async fn read_current(session: &McpSession, path: &str, display_path: &str) -> Result<CurrentText, String> {
    match session.backend.files().read(path, LineWindow::default()).await {
        Ok(read) => Ok(CurrentText::Text(read.text)),
        Err(RpcError::ResourceNotFound { .. }) => Ok(CurrentText::Missing),
        Err(RpcError::TooLarge { bytes, .. }) => Err(format!(
            "nothing was written: {display_path} has {bytes} bytes, which is too large to be changed so: use a command"
        )),
        Err(failure) => {
            let reason = session.describe_failure(&DeniedOperation::Read { path }, display_path, &failure);
            Err(format!("nothing was written: {reason}"))
        }
    }
}

/// Returns whether the write would replace text that the model has not seen.
pub(super) fn replaces_unseen_text(current: &CurrentText, verdict: Option<WriteVerdict>) -> bool {
    match (current, verdict) {
        (CurrentText::Text(text), Some(WriteVerdict::ReplacedPartlySeen | WriteVerdict::ReplacedUnseen)) => {
            !text.is_empty()
        }
        _ => false,
    }
}

async fn finish_write(
    session: &McpSession,
    key: &str,
    requested: &RequestedWrite,
    current: &CurrentText,
    decision: &WriteDecision,
    written: TextWriteOutcome,
) -> ToolOutcome {
    let display_path = session.display_path(key);
    let after = match written.text {
        Some(text) => Ok(text),
        None => session.backend.files().read(key, LineWindow::default()).await.map(|read| read.text),
    };
    let lines = count_noun(count_lines(&decision.text), "line");
    let mut parts = vec![match (requested, decision.verdict) {
        (RequestedWrite::Edits(_), _) => {
            format!("Edited {display_path} in {}.", count_noun(decision.place_count as u64, "place"))
        }
        (RequestedWrite::Append(addition), Some(WriteVerdict::Replaced)) => {
            format!("Appended {} to {display_path}.", count_noun(count_lines(addition), "line"))
        }
        (RequestedWrite::Whole(_) | RequestedWrite::Append(_), Some(WriteVerdict::Created)) => {
            format!("Created {display_path} ({lines}).")
        }
        (RequestedWrite::Whole(_) | RequestedWrite::Append(_), _) => {
            format!("Wrote {display_path} ({lines}).")
        }
    }];
    parts.extend(decision.notes.iter().cloned().chain(written.notes));
    let mut seen: Option<&Arc<String>> = None;
    match &after {
        Ok(now) if *now == decision.text => seen = Some(now),
        Ok(now) => {
            let (diff, is_cut) = describe_diff(&decision.text, now);
            parts.push(format!(
                "The file holds something else than what was written, by the editor or its user:\n{diff}"
            ));
            if is_cut {
                parts.push("There is more: read the file again before you edit it.".to_owned());
            } else {
                seen = Some(now);
            }
        }
        Err(error) => parts.push(format!("It could not be read again to see what became of it: {error}.")),
    }
    session
        .with_ledger(|ledger, heard| record_write((ledger, heard), key, current, requested, decision, seen));
    let merged =
        written.verdict == Some(WriteVerdict::Merged) || decision.verdict == Some(WriteVerdict::Merged);
    let outcome = match decision.verdict {
        _ if merged => "merged",
        Some(WriteVerdict::Created) => "created",
        _ => "replaced",
    };
    write_outcome(display_path, outcome, parts.join("\n"))
}

pub(super) fn write_outcome(path: &str, outcome: &str, text: String) -> ToolOutcome {
    let structured = json!({ "path": path, "outcome": outcome, "message": text });
    ToolOutcome { structured: Some(structured), ..ToolOutcome::from_text(text) }
}
