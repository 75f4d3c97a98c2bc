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
use bowline_workspace::files::{FileBackend, Requester, TextWriteOutcome};
use serde_json::json;

use super::DeniedOperation;
use super::WorkspaceBackend;
use super::outcome::ToolOutcome;
use super::session::{CallContext, McpSession};

/// How often a change is decided again because the file changed concurrently.
const ATTEMPTS: usize = 3;

/// Executes the tool that writes a whole file.
pub(crate) async fn write_file<P: WorkspaceBackend>(
    session: &McpSession<P>,
    fields: ToolInputFields<'_>,
    calling: &CallContext,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    let content = fields.required_text("content")?.to_owned();
    apply_change(session, &path, &RequestedWrite::Whole(content), calling).await
}

/// Executes the tool that edits a file by search and replace.
pub(crate) async fn edit_file<P: WorkspaceBackend>(
    session: &McpSession<P>,
    fields: ToolInputFields<'_>,
    calling: &CallContext,
) -> Result<ToolOutcome, String> {
    let path = session.resolve(fields.required_text("path")?)?;
    // A single edit may be given in the call itself.
    let is_one = fields.optional_text("old_text")?.is_some();
    let listed = if is_one { vec![fields] } else { fields.objects("edits")? };
    let edits: Result<Vec<SearchReplaceEdit>, String> = listed
        .into_iter()
        .enumerate()
        .map(|(at, each)| {
            parse_edit(each).map_err(|why| if is_one { why } else { format!("edit {}: {why}", at + 1) })
        })
        .collect();
    apply_change(session, &path, &RequestedWrite::Edits(edits?), calling).await
}

fn parse_edit(fields: ToolInputFields<'_>) -> Result<SearchReplaceEdit, String> {
    let which = if fields.flag("replace_all")? { MatchSelection::All } else { MatchSelection::Only };
    Ok(SearchReplaceEdit {
        old: fields.required_text("old_text")?.to_owned(),
        new: fields.required_text("new_text")?.to_owned(),
        selection: which,
    })
}

async fn apply_change<P: WorkspaceBackend>(
    session: &McpSession<P>,
    path: &LexicalPath,
    wanted: &RequestedWrite,
    calling: &CallContext,
) -> Result<ToolOutcome, String> {
    let (key, shown) = (path.as_str(), session.display_path(path.as_str()));
    let _alone = session.lock_file(key).await;
    let asker = Requester { turn: None, call: Some(calling.id.clone()) };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let current = read_current(session, key, shown).await?;
        let decided = session
            .with_ledger(|ledger, heard| decide_write((ledger, heard), key, &current, wanted, shown))?;
        if current.text().is_some_and(|text| **text == *decided.text) {
            session.with_ledger(|ledger, heard| {
                record_write((ledger, heard), key, &current, wanted, &decided, current.text());
            });
            let text = format!("{shown} holds this text already; nothing was written.");
            return Ok(write_outcome(shown, "unchanged", text));
        }
        if replaces_unseen_text(&current, decided.verdict) {
            return Err(format!(
                "nothing was written: {shown}: you have not read all of the text that would be replaced: read it first"
            ));
        }
        match session.backend.files().write(key, decided.text.as_str().to_owned(), &asker).await {
            Ok(written) => return Ok(finish_write(session, key, wanted, &current, &decided, written).await),
            // The file changed concurrently: decide again on its new text.
            Err(conflict @ RpcError::Conflict { .. }) => last = Some(conflict),
            Err(failure) => {
                let why = session.describe_failure(&DeniedOperation::Write { path: key }, shown, &failure);
                return Err(format!("nothing was written: {why}"));
            }
        }
    }
    let hunks = match &last {
        Some(RpcError::Conflict { hunks, .. }) => describe_conflicts(hunks),
        _ => String::new(),
    };
    Err(format!("nothing was written: {shown} keeps changing: read it again, then write{hunks}"))
}

async fn read_current<P: WorkspaceBackend>(
    session: &McpSession<P>,
    path: &str,
    shown: &str,
) -> Result<CurrentText, String> {
    match session.backend.files().read(path, LineWindow::default()).await {
        Ok(read) => Ok(CurrentText::Text(read.text)),
        Err(RpcError::ResourceNotFound { .. }) => Ok(CurrentText::Missing),
        Err(RpcError::TooLarge { bytes, .. }) => Err(format!(
            "nothing was written: {shown} has {bytes} bytes, which is too large to be changed so: use a command"
        )),
        Err(failure) => {
            let why = session.describe_failure(&DeniedOperation::Read { path }, shown, &failure);
            Err(format!("nothing was written: {why}"))
        }
    }
}

/// Returns whether the write would replace text that the model has not seen.
fn replaces_unseen_text(current: &CurrentText, verdict: Option<WriteVerdict>) -> bool {
    match (current, verdict) {
        (CurrentText::Text(text), Some(WriteVerdict::ReplacedPartlySeen | WriteVerdict::ReplacedUnseen)) => {
            !text.is_empty()
        }
        _ => false,
    }
}

async fn finish_write<P: WorkspaceBackend>(
    session: &McpSession<P>,
    key: &str,
    wanted: &RequestedWrite,
    current: &CurrentText,
    decided: &WriteDecision,
    written: TextWriteOutcome,
) -> ToolOutcome {
    let shown = session.display_path(key);
    let after = match written.text {
        Some(text) => Ok(text),
        None => session.backend.files().read(key, LineWindow::default()).await.map(|read| read.text),
    };
    let lines = count_noun(count_lines(&decided.text), "line");
    let mut parts = vec![match (wanted, decided.verdict) {
        (RequestedWrite::Edits(_), _) => {
            format!("Edited {shown} in {}.", count_noun(decided.place_count as u64, "place"))
        }
        (RequestedWrite::Whole(_), Some(WriteVerdict::Created)) => format!("Created {shown} ({lines})."),
        (RequestedWrite::Whole(_), _) => format!("Wrote {shown} ({lines})."),
    }];
    parts.extend(decided.notes.iter().cloned().chain(written.notes));
    let mut seen: Option<&Arc<String>> = None;
    match &after {
        Ok(now) if *now == decided.text => seen = Some(now),
        Ok(now) => {
            let (diff, is_cut) = describe_diff(&decided.text, now);
            parts.push(format!(
                "The file holds something else than what was written, by the editor or its user:\n{diff}"
            ));
            if is_cut {
                parts.push("There is more: read the file again before you edit it.".to_owned());
            } else {
                seen = Some(now);
            }
        }
        Err(why) => parts.push(format!("It could not be read again to see what became of it: {why}.")),
    }
    session.with_ledger(|ledger, heard| record_write((ledger, heard), key, current, wanted, decided, seen));
    let merged =
        written.verdict == Some(WriteVerdict::Merged) || decided.verdict == Some(WriteVerdict::Merged);
    let outcome = match decided.verdict {
        _ if merged => "merged",
        Some(WriteVerdict::Created) => "created",
        _ => "replaced",
    };
    write_outcome(shown, outcome, parts.join("\n"))
}

fn write_outcome(path: &str, outcome: &str, text: String) -> ToolOutcome {
    let structured = json!({ "path": path, "outcome": outcome, "message": text });
    ToolOutcome { text, structured: Some(structured), is_error: false }
}
