//! Writing and editing files: based on the current text and on what the model has seen, and verified afterwards.
//!
//! The steps are the same for every backend. The current text is read; the new text is decided against what the model
//! has seen, so that none of the user's changes is lost; the difference is shown and authorized; the text is written,
//! and read again, because editors format and merge. The model is told of every difference it does not know.

use std::sync::Arc;

use bowline_history::ledger::{Knowledge, TextVersion, WriteVerdict};
use bowline_policy::audit::AuditAction;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::LexicalPath;
use bowline_policy::question::{QuestionItem, TextChange};
use bowline_protocol::builders;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{ToolCallContent, ToolCallUpdateFields, ToolKind};
use bowline_text::edits::{MatchSelection, SearchReplaceEdit};
use bowline_text::hash::ContentHash;
use bowline_text::lines::LineWindow;
use bowline_text::unsaved_text::is_equivalent_text;
use bowline_tools::tools::describe::{
    self, count_lines, describe_diff, describe_later_changes, first_different_line,
};
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::write::{CurrentText, RequestedWrite, WriteDecision, decide_write, record_write};
use bowline_workspace::files::{FileBackend, TextWriteOutcome};
use serde_json::{Value, json};

use super::FileBackends;
use super::active_call::{ActiveCall, CallStop, ToolOutput, location};
use crate::permission::{Authorization, OperationOutcome, OperationRequest};
use crate::runtime::disk_comparison::{DiskContent, decode_text};
use crate::runtime::{Backend, DiskComparison, FileAbsence, RuntimeError, ServedText};

/// How often a change is shown again because the file changed during the user's review.
const MAX_ATTEMPTS: usize = 3;

/// The note for the model where the disk is ahead of the editor.
const NOT_RELOADED: &str =
    "The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.";

/// Runs a tool that writes a whole file.
pub(crate) async fn write_file(
    active_call: &ActiveCall<'_>,
    backends: FileBackends,
) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.required_text("path")?)?;
    let content = fields.required_text("content")?.to_owned();
    let input = json!({ "path": path.as_str(), "content": content });
    change_file(active_call, backends, &path, &RequestedWrite::Whole(content), "Write", input).await
}

/// Runs a tool that edits a file by search and replace.
pub(crate) async fn edit_file(
    active_call: &ActiveCall<'_>,
    backends: FileBackends,
) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.required_text("path")?)?;
    let edits = parse_edits(fields)?;
    let edits_json: Vec<Value> = edits
        .iter()
        .map(|edit| json!({ "old_text": edit.old, "new_text": edit.new, "replace_all": edit.selection == MatchSelection::All }))
        .collect();
    let input = json!({ "path": path.as_str(), "edits": edits_json });
    change_file(active_call, backends, &path, &RequestedWrite::Edits(edits), "Edit", input).await
}

/// Runs a tool that appends to a file, through a backend without the file extension.
pub(crate) async fn append_file(
    active_call: &ActiveCall<'_>,
    backends: FileBackends,
) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.required_text("path")?)?;
    let content = fields.required_text("content")?.to_owned();
    let input = json!({ "path": path.as_str(), "content": content });
    change_file(active_call, backends, &path, &RequestedWrite::Append(content), "Append to", input).await
}

/// Parses the edits of a call.
pub(super) fn parse_edits(fields: ToolInputFields<'_>) -> Result<Vec<SearchReplaceEdit>, String> {
    // A single edit may stand in the call itself.
    if fields.has_any(&OLD_TEXT_NAMES) {
        return parse_edit(fields).map(|edit| vec![edit]);
    }
    // Weak models send the list as text.
    if let Ok(Some(text)) = fields.optional_text("edits")
        && let Ok(list @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(text)
    {
        let object = serde_json::Map::from_iter([("edits".to_owned(), list)]);
        return parse_edits(ToolInputFields::from_object(&object));
    }
    let edits = fields.objects("edits").map_err(|error| format!("{error}: {EDITS_FORM}"))?;
    let indexed = edits.into_iter().enumerate();
    indexed
        .map(|(index, fields)| parse_edit(fields).map_err(|error| format!("edit {}: {error}", index + 1)))
        .collect()
}

fn parse_edit(fields: ToolInputFields<'_>) -> Result<SearchReplaceEdit, String> {
    let selection = if fields.flag("replace_all")? { MatchSelection::All } else { MatchSelection::Only };
    let (old, new) = (fields.required_text_of(&OLD_TEXT_NAMES)?, fields.required_text_of(&NEW_TEXT_NAMES)?);
    Ok(SearchReplaceEdit { old: old.to_owned(), new: new.to_owned(), selection })
}

/// The field names of the old and the new text; after Bowline's own name, those of other agents, which models have
/// learned.
const OLD_TEXT_NAMES: [&str; 4] = ["old_text", "old_string", "old_str", "search"];
const NEW_TEXT_NAMES: [&str; 4] = ["new_text", "new_string", "new_str", "replace"];

const EDITS_FORM: &str =
    r#"give [{"old_text": "…", "new_text": "…"}], or old_text and new_text for a single edit"#;

async fn change_file(
    active_call: &ActiveCall<'_>,
    backends: FileBackends,
    path: &LexicalPath,
    requested: &RequestedWrite,
    verb: &str,
    input: Value,
) -> Result<ToolOutput, CallStop> {
    let title = format!("{verb} {}", active_call.display_path(path));
    active_call
        .announce(&title, ToolKind::Edit, |call| call.raw_input(input).locations(vec![location(path, None)]))
        .await?;
    let operation = active_call.file_operation(OperationKind::Write, path).await?;
    let key = active_call.toolbox.ledger_key(backends.read.unwrap_or(backends.write), path.as_str());
    let _lock = active_call.toolbox.lock_for_write(path.as_str()).await;
    for _ in 0..MAX_ATTEMPTS {
        let (current, note) = read_current(active_call, backends, path).await?;
        let display_path = active_call.display_path(path);
        let mut decision = active_call
            .toolbox
            .with_knowledge(|knowledge| decide_write(knowledge, &key, &current, requested, display_path))?;
        decision.notes.extend(note.map(str::to_owned));
        if current.text().is_some_and(|text| **text == *decision.text) {
            active_call.toolbox.with_knowledge(|knowledge| {
                record_write(knowledge, &key, &current, requested, &decision, current.text())
            });
            let text =
                format!("{} holds this text already; nothing was written.", active_call.display_path(path));
            return Ok(ToolOutput { text, ..ToolOutput::default() });
        }
        let before = current.text().map(|text| text.as_str());
        let diff = vec![builders::diff(path.as_str(), before, decision.text.as_str())];
        let line = first_different_line(before.unwrap_or_default(), &decision.text);
        let fields = ToolCallUpdateFields::new().content(diff.clone());
        active_call.update(fields.locations(vec![location(path, Some(line))])).await;
        let change = TextChange { before: current.text().cloned(), after: decision.text.clone() };
        let item = QuestionItem::with_change(operation.clone(), change);
        let request =
            OperationRequest { action: AuditAction::Write, title: title.clone(), items: vec![item] };
        let authorization = active_call
            .toolbox
            .permissions
            .authorize(backends.write, active_call.call, active_call.cx, request)
            .await;
        let authorization =
            authorization.map_err(|denial| CallStop::from(denial).with_content(diff.clone()))?;
        // The user takes time, and has approved exactly this change.
        if authorization.is_exact() && self::read_current(active_call, backends, path).await?.0 != current {
            continue;
        }
        // A client that authorizes operations knows which files were read, and shows its user what would be replaced.
        let is_seen = authorization.is_exact()
            || authorization.is_left_to_client()
            || is_replacement_seen(active_call, path, &key, &current, decision.verdict).await;
        let approved = ApprovedWrite {
            call: active_call,
            backends,
            path,
            ledger_key: key.clone(),
            request: requested,
            current,
            decision,
            diff,
        };
        if !is_seen {
            return Err(approved.refuse_unseen(authorization).await);
        }
        if let Some(output) = approved.perform(authorization).await? {
            return Ok(output);
        }
    }
    Err(format!(
        "{} keeps changing while it is approved: nothing was written, read it again",
        active_call.display_path(path)
    )
    .into())
}

/// Returns whether the model has seen everything that would be replaced.
pub(super) async fn is_replacement_seen(
    active_call: &ActiveCall<'_>,
    path: &LexicalPath,
    key: &str,
    current: &CurrentText,
    verdict: Option<WriteVerdict>,
) -> bool {
    match (current, verdict) {
        (CurrentText::Text(text), Some(WriteVerdict::ReplacedPartlySeen | WriteVerdict::ReplacedUnseen)) => {
            text.is_empty()
        }
        (CurrentText::Text(_) | CurrentText::Missing, _) => true,
        // The writing backend does not serve reads; this machine's disk is the best available source.
        (CurrentText::Unknown, _) => match active_call.runtime().read_disk(path.as_str()).await {
            DiskContent::Missing => true,
            DiskContent::File(bytes, _) => {
                let knowledge = active_call.toolbox.ledger().knowledge(key, TextVersion(0));
                matches!(knowledge, Knowledge::Whole(text) if decode_text(&bytes).is_some_and(|disk_text| is_equivalent_text(&disk_text, &text)))
            }
            DiskContent::Unknown => false,
        },
    }
}

/// Reads the current text, with a note for the model.
pub(super) async fn read_current(
    active_call: &ActiveCall<'_>,
    backends: FileBackends,
    path: &LexicalPath,
) -> Result<(CurrentText, Option<&'static str>), CallStop> {
    let Some(backend) = backends.read else { return Ok((CurrentText::Unknown, None)) };
    let (runtime, display_path) = (active_call.runtime(), active_call.display_path(path));
    if !active_call.toolbox.commands.background_names().is_empty() {
        // A background command may have changed it just now.
        runtime.record_command();
    }
    if (backend, backends.write) == (Backend::Client, Backend::Local)
        && let Ok(engine) = runtime.local().await
    {
        // Lets the engine notice later changes on disk. The content itself is read below.
        FileBackend::read(&engine.files, path.as_str(), LineWindow::default()).await.ok();
    }
    let not_written = |reason: &str| CallStop::from(format!("nothing was written: {display_path}{reason}"));
    match runtime.read(backend, path.as_str(), LineWindow::default()).await {
        Ok(ServedText { text, disk_comparison: DiskComparison::UpToDate, .. }) => {
            Ok((CurrentText::Text(text), None))
        }
        Ok(ServedText { disk_comparison: DiskComparison::Merged(text), .. }) => {
            Ok((CurrentText::Text(text), Some(NOT_RELOADED)))
        }
        Ok(ServedText { disk_comparison: DiskComparison::Stale, .. }) => Err(not_written(
            " was changed on disk, and the editor has not reloaded it: it has to be saved or reloaded in the editor, or \
             edited by a command",
        )),
        Ok(ServedText { disk_comparison: DiskComparison::Deleted, .. }) => Err(not_written(
            " was deleted on disk, and the editor still has its text: it has to be saved or closed in the editor",
        )),
        Ok(ServedText { disk_comparison: DiskComparison::Lossy, .. }) => Err(not_written(
            " is not text that the editor can read, and what it could not read would be lost: change it by a command",
        )),
        Err(error) => {
            let is_missing = match error.file_absence(path.as_str()) {
                FileAbsence::Certain => true,
                FileAbsence::Possible => runtime.read_disk(path.as_str()).await == DiskContent::Missing,
                FileAbsence::NotIndicated => false,
            };
            if is_missing {
                return Ok((CurrentText::Missing, None));
            }
            if error.is_file_missing() {
                return Err(not_written(&format!(
                    " cannot be read: {} says: {error}",
                    backend.display_name()
                )));
            }
            let advice = match &error {
                RuntimeError::Failed(RpcError::TooLarge { .. }) => {
                    ": it is too large to be edited so, use a command"
                }
                _ => "",
            };
            Err(format!("nothing was written: {}{advice}", error.describe_for_model(backend, display_path))
                .into())
        }
    }
}

/// An authorized change.
struct ApprovedWrite<'a, 'w> {
    call: &'a ActiveCall<'w>,
    backends: FileBackends,
    path: &'a LexicalPath,
    // The file's key in the ledger.
    ledger_key: String,
    request: &'a RequestedWrite,
    current: CurrentText,
    decision: WriteDecision,
    diff: Vec<ToolCallContent>,
}

/// The state of a file after it was written.
enum ReadBack {
    /// It has this text.
    Text(Arc<String>),
    /// It was not read again, for this reason.
    Unread(String),
}

impl ApprovedWrite<'_, '_> {
    /// Writes the text. Returns `None` if the file changed while the client decided: the change is then decided anew.
    async fn perform(self, mut authorization: Authorization) -> Result<Option<ToolOutput>, CallStop> {
        let Self { call, backends, path, .. } = &self;
        authorization
            .record_start()
            .await
            .map_err(|denial| CallStop::from(denial).with_content(self.diff.clone()))?;
        // A client that authorizes operations asks its user first.
        if !authorization.is_left_to_client() {
            call.mark_running().await;
        }
        let (content, requester) = (self.decision.text.to_string(), call.asker());
        let written = call.runtime().write(backends.write, path.as_str(), content, &requester).await;
        let (after, doubt) = match &written {
            // The writing and reading backends differ: the text that the writer reports is the file's.
            Ok(TextWriteOutcome { text: Some(text), .. })
                if backends.read != Some(backends.write) && *text != self.decision.text =>
            {
                (ReadBack::Text(text.clone()), None)
            }
            Ok(_) => (self.read_back().await, None),
            // The connection is up, so the file itself can be checked.
            Err(error @ (RuntimeError::TimedOut { .. } | RuntimeError::InvalidAnswer { .. })) => {
                (self.read_back().await, Some(error.to_string()))
            }
            Err(RuntimeError::Failed(RpcError::Conflict { .. })) if authorization.is_left_to_client() => {
                return Ok(None);
            }
            Err(error) => return Err(self.report_failure(authorization, error).await),
        };
        if let (Some(doubt), false) =
            (&doubt, matches!(&after, ReadBack::Text(text) if *text == self.decision.text))
        {
            let text = describe_unknown_outcome(call.display_path(path), doubt);
            self.record_outcome(authorization, None, Some(text.clone())).await;
            return Err(CallStop::from(text).with_content(self.diff.clone()));
        }
        let current_text = match &after {
            ReadBack::Text(text) => Some(text.clone()),
            ReadBack::Unread(_) => None,
        };
        self.record_outcome(authorization, current_text.as_ref().or(Some(&self.decision.text)), None).await;
        let report = self.describe_result(&after, written.map(|written| written.notes).unwrap_or_default());
        let seen = current_text.as_ref().filter(|_| !report.is_diff_cut);
        call.toolbox.with_knowledge(|knowledge| {
            record_write(knowledge, &self.ledger_key, &self.current, self.request, &self.decision, seen);
        });
        let before = self.current.text().map(|text| text.as_str());
        let final_text = current_text.as_deref().unwrap_or(&self.decision.text);
        let line = first_different_line(before.unwrap_or_default(), final_text);
        let output = json!({
            "servedBy": backends.write.as_str(),
            "outcome": verdict_word(self.decision.verdict),
            "readBack": current_text.is_some(),
            "changedByEditor": report.is_changed_by_editor,
            "lines": count_lines(final_text),
        });
        Ok(Some(ToolOutput {
            text: report.text,
            content: Some(vec![builders::diff(path.as_str(), before, final_text.as_str())]),
            locations: Some(vec![location(path, Some(line))]),
            raw_output: Some(output),
            ..ToolOutput::default()
        }))
    }

    /// Refuses to replace text that neither the model has seen nor a person approved replacing.
    async fn refuse_unseen(&self, authorization: Authorization) -> CallStop {
        let reason = match self.current {
            CurrentText::Unknown => "the editor does not show what is in it now, which would be replaced",
            _ => {
                "you have not read all of the text that would be replaced, or not since this session was loaded"
            }
        };
        let advice = match self.current {
            CurrentText::Unknown => "ask the user for the mode that asks before edits",
            _ => "read it first",
        };
        let text = format!("nothing was written: {}: {reason}: {advice}", self.call.display_path(self.path));
        self.record_outcome(authorization, None, Some(text.clone())).await;
        CallStop::from(text).with_content(self.diff.clone())
    }

    async fn report_failure(&self, authorization: Authorization, error: &RuntimeError) -> CallStop {
        let display_path = self.call.display_path(self.path);
        let text = if error.is_outcome_unknown() {
            describe_unknown_outcome(display_path, &error.to_string())
        } else {
            let hunks = match error {
                RuntimeError::Failed(RpcError::Conflict { hunks, .. }) => describe::describe_conflicts(hunks),
                _ => String::new(),
            };
            format!(
                "nothing was written: {}{hunks}",
                error.describe_for_model(self.backends.write, display_path)
            )
        };
        self.record_outcome(authorization, None, Some(text.clone())).await;
        CallStop::from(text).with_content(self.diff.clone())
    }

    async fn record_outcome(
        &self,
        authorization: Authorization,
        after: Option<&Arc<String>>,
        failure: Option<String>,
    ) {
        let hash = |text: &Arc<String>| ContentHash::digest(text.as_bytes());
        let outcome = OperationOutcome {
            bytes: Some(self.decision.text.len()),
            hash_before: self.current.text().map(hash),
            hash_after: after.map(hash),
            failure,
            ..OperationOutcome::default()
        };
        authorization.log_outcome(outcome).await;
    }

    async fn read_back(&self) -> ReadBack {
        let Some(backend) = self.backends.read else {
            return ReadBack::Unread("the editor does not offer reading".to_owned());
        };
        match self.call.runtime().read(backend, self.path.as_str(), LineWindow::default()).await {
            // The writing and reading backends differ, and the reader may lag. An editor that did not write it may have
            // unsaved text.
            Ok(text)
                if backend != self.backends.write
                    && (self.current.text() == Some(&text.text)
                        || backend == Backend::Client && text.text != self.decision.text) =>
            {
                ReadBack::Unread(format!("{} does not have the new text yet", backend.display_name()))
            }
            Ok(text) => ReadBack::Text(text.text),
            Err(error) => ReadBack::Unread(error.to_string()),
        }
    }

    /// Describes what was written, and the differences that the model does not know yet.
    fn describe_result(&self, after: &ReadBack, notes: Vec<String>) -> WriteReport {
        let (display_path, backend) = (self.call.display_path(self.path), self.backends.write.via_phrase());
        let done = self.decision.describe(self.request, display_path);
        let mut parts = vec![format!("{done}, {backend}.")];
        parts.extend(self.decision.notes.iter().cloned().chain(notes));
        let mut report = WriteReport { text: String::new(), is_diff_cut: false, is_changed_by_editor: false };
        match after {
            ReadBack::Text(current) if *current != self.decision.text => {
                let (diff, is_cut) = describe_diff(&self.decision.text, current);
                (report.is_changed_by_editor, report.is_diff_cut) = (true, is_cut);
                parts.push(describe_later_changes(&diff, is_cut));
            }
            ReadBack::Text(_) => {}
            ReadBack::Unread(reason) => {
                parts.push(format!("It could not be read again to see what became of it: {reason}."));
            }
        }
        report.text = parts.join("\n");
        report
    }
}

struct WriteReport {
    text: String,
    is_diff_cut: bool,
    is_changed_by_editor: bool,
}

fn describe_unknown_outcome(display_path: &str, reason: &str) -> String {
    format!(
        "it is not known whether {display_path} was written: {reason}. Read it and compare before you write it again; do not \
         simply repeat the call."
    )
}

fn verdict_word(verdict: Option<WriteVerdict>) -> &'static str {
    match verdict {
        Some(WriteVerdict::Created) => "created",
        Some(WriteVerdict::Replaced) => "replaced",
        Some(WriteVerdict::Merged) => "merged",
        Some(WriteVerdict::ReplacedPartlySeen) => "replaced what was seen in part",
        Some(WriteVerdict::ReplacedUnseen) => "replaced what was not seen",
        None => "written",
    }
}
