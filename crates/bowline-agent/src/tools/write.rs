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
use bowline_tools::tools::describe::{self, count_lines, count_noun, describe_diff, first_different_line};
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::write::{CurrentText, RequestedWrite, WriteDecision, decide_write, record_write};
use bowline_workspace::files::{FileBackend, TextWriteOutcome};
use serde_json::{Value, json};

use super::FileBackends;
use super::active_call::{ActiveCall, CallStop, ToolOutput, location};
use crate::permission::{Authorization, OperationOutcome, OperationRequest};
use crate::runtime::disk_comparison::{DiskContent, decode_text, is_equivalent_text};
use crate::runtime::{Backend, DiskComparison, FileAbsence, RuntimeError, ServedText};

/// How often a change is shown again because the file changed during the user's review.
const MAX_ATTEMPTS: usize = 3;

/// The note for the model where the disk is ahead of the editor.
const NOT_RELOADED: &str =
    "The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.";

/// Runs a tool that writes a whole file.
pub(crate) async fn write_file(work: &ActiveCall<'_>, side: FileBackends) -> Result<ToolOutput, CallStop> {
    let fields = work.fields()?;
    let path = work.resolve_path(fields.required_text("path")?)?;
    let content = fields.required_text("content")?.to_owned();
    let input = json!({ "path": path.as_str(), "content": content });
    change_file(work, side, &path, &RequestedWrite::Whole(content), "Write", input).await
}

/// Runs a tool that edits a file by search and replace.
pub(crate) async fn edit_file(work: &ActiveCall<'_>, side: FileBackends) -> Result<ToolOutput, CallStop> {
    let fields = work.fields()?;
    let path = work.resolve_path(fields.required_text("path")?)?;
    let list = parse_edits(fields)?;
    let shown: Vec<Value> = list
        .iter()
        .map(|edit| json!({ "old_text": edit.old, "new_text": edit.new, "replace_all": edit.selection == MatchSelection::All }))
        .collect();
    let input = json!({ "path": path.as_str(), "edits": shown });
    change_file(work, side, &path, &RequestedWrite::Edits(list), "Edit", input).await
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
        let again = serde_json::Map::from_iter([("edits".to_owned(), list)]);
        return parse_edits(ToolInputFields::from_object(&again));
    }
    let listed = fields.objects("edits").map_err(|why| format!("{why}: {EDITS_FORM}"))?;
    let each = listed.into_iter().enumerate();
    each.map(|(index, each)| parse_edit(each).map_err(|why| format!("edit {}: {why}", index + 1))).collect()
}

fn parse_edit(fields: ToolInputFields<'_>) -> Result<SearchReplaceEdit, String> {
    let which = if fields.flag("replace_all")? { MatchSelection::All } else { MatchSelection::Only };
    let (old, new) = (fields.required_text_of(&OLD_TEXT_NAMES)?, fields.required_text_of(&NEW_TEXT_NAMES)?);
    Ok(SearchReplaceEdit { old: old.to_owned(), new: new.to_owned(), selection: which })
}

/// The field names of the old and the new text; after Bowline's own name, those of other agents, which models have
/// learned.
const OLD_TEXT_NAMES: [&str; 4] = ["old_text", "old_string", "old_str", "search"];
const NEW_TEXT_NAMES: [&str; 4] = ["new_text", "new_string", "new_str", "replace"];

const EDITS_FORM: &str =
    r#"give [{"old_text": "…", "new_text": "…"}], or old_text and new_text for a single edit"#;

async fn change_file(
    work: &ActiveCall<'_>,
    side: FileBackends,
    path: &LexicalPath,
    wanted: &RequestedWrite,
    verb: &str,
    input: Value,
) -> Result<ToolOutput, CallStop> {
    let title = format!("{verb} {}", work.display_path(path));
    work.announce(&title, ToolKind::Edit, |call| call.raw_input(input).locations(vec![location(path, None)]))
        .await?;
    let operation = work.file_operation(OperationKind::Write, path).await?;
    let key = work.toolbox.ledger_key(side.read.unwrap_or(side.write), path.as_str());
    let _alone = work.toolbox.lock_for_write(path.as_str()).await;
    for _ in 0..MAX_ATTEMPTS {
        let (current, note) = read_current(work, side, path).await?;
        let shown = work.display_path(path);
        let mut decided =
            work.toolbox.with_knowledge(|known| decide_write(known, &key, &current, wanted, shown))?;
        decided.notes.extend(note.map(str::to_owned));
        if current.text().is_some_and(|text| **text == *decided.text) {
            work.toolbox.with_knowledge(|known| {
                record_write(known, &key, &current, wanted, &decided, current.text())
            });
            let text = format!("{} holds this text already; nothing was written.", work.display_path(path));
            return Ok(ToolOutput { text, ..ToolOutput::default() });
        }
        let before = current.text().map(|text| text.as_str());
        let diff = vec![builders::diff(path.as_str(), before, decided.text.as_str())];
        let line = first_different_line(before.unwrap_or_default(), &decided.text);
        let fields = ToolCallUpdateFields::new().content(diff.clone());
        work.update(fields.locations(vec![location(path, Some(line))])).await;
        let change = TextChange { before: current.text().cloned(), after: decided.text.clone() };
        let item = QuestionItem::with_change(operation.clone(), change);
        let wish = OperationRequest { action: AuditAction::Write, title: title.clone(), item };
        let pass = work.toolbox.permissions.authorize(side.write, work.call, work.cx, wish).await;
        let pass = pass.map_err(|no| CallStop::from(no).with_content(diff.clone()))?;
        // The user takes time, and has approved exactly this change.
        if pass.is_exact() && self::read_current(work, side, path).await?.0 != current {
            continue;
        }
        // A client that authorizes operations knows which files were read, and shows its user what would be replaced.
        let is_seen = pass.is_exact()
            || pass.is_left_to_client()
            || is_replacement_seen(work, path, &key, &current, decided.verdict).await;
        let writing = ApprovedWrite {
            call: work,
            backends: side,
            path,
            ledger_key: key.clone(),
            request: wanted,
            current,
            decision: decided,
            diff,
        };
        if !is_seen {
            return Err(writing.refuse_unseen(pass).await);
        }
        if let Some(done) = writing.perform(pass).await? {
            return Ok(done);
        }
    }
    Err(format!(
        "{} keeps changing while it is approved: nothing was written, read it again",
        work.display_path(path)
    )
    .into())
}

/// Returns whether the model has seen everything that would be replaced.
async fn is_replacement_seen(
    work: &ActiveCall<'_>,
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
        (CurrentText::Unknown, _) => match work.runtime().read_disk(path.as_str()).await {
            DiskContent::Missing => true,
            DiskContent::File(bytes, _) => {
                let known = work.toolbox.ledger().knowledge(key, TextVersion(0));
                matches!(known, Knowledge::Whole(text) if decode_text(&bytes).is_some_and(|now| is_equivalent_text(&now, &text)))
            }
            DiskContent::Unknown => false,
        },
    }
}

/// Reads the current text, with a note for the model.
async fn read_current(
    work: &ActiveCall<'_>,
    side: FileBackends,
    path: &LexicalPath,
) -> Result<(CurrentText, Option<&'static str>), CallStop> {
    let Some(by) = side.read else { return Ok((CurrentText::Unknown, None)) };
    let (runtimes, shown) = (work.runtime(), work.display_path(path));
    if !work.toolbox.commands.background_names().is_empty() {
        // A background command may have changed it just now.
        runtimes.record_command();
    }
    if (by, side.write) == (Backend::Client, Backend::Local)
        && let Ok(engine) = runtimes.local().await
    {
        // Lets the engine notice later changes on disk. The content itself is read below.
        FileBackend::read(&engine.files, path.as_str(), LineWindow::default()).await.ok();
    }
    let nothing = |why: &str| CallStop::from(format!("nothing was written: {shown}{why}"));
    match runtimes.read(by, path.as_str(), LineWindow::default()).await {
        Ok(ServedText { text, disk_comparison: DiskComparison::UpToDate, .. }) => {
            Ok((CurrentText::Text(text), None))
        }
        Ok(ServedText { disk_comparison: DiskComparison::Merged(text), .. }) => {
            Ok((CurrentText::Text(text), Some(NOT_RELOADED)))
        }
        Ok(ServedText { disk_comparison: DiskComparison::Stale, .. }) => Err(nothing(
            " was changed on disk, and the editor has not reloaded it: it has to be saved or reloaded in the editor, or \
             edited by a command",
        )),
        Ok(ServedText { disk_comparison: DiskComparison::Deleted, .. }) => Err(nothing(
            " was deleted on disk, and the editor still has its text: it has to be saved or closed in the editor",
        )),
        Ok(ServedText { disk_comparison: DiskComparison::Lossy, .. }) => Err(nothing(
            " is not text that the editor can read, and what it could not read would be lost: change it by a command",
        )),
        Err(fault) => {
            let is_missing = match fault.file_absence(path.as_str()) {
                FileAbsence::Certain => true,
                FileAbsence::Possible => runtimes.read_disk(path.as_str()).await == DiskContent::Missing,
                FileAbsence::NotIndicated => false,
            };
            if is_missing {
                return Ok((CurrentText::Missing, None));
            }
            if fault.is_file_missing() {
                return Err(nothing(&format!(" cannot be read: {} says: {fault}", by.display_name())));
            }
            let advice = match &fault {
                RuntimeError::Failed(RpcError::TooLarge { .. }) => {
                    ": it is too large to be edited so, use a command"
                }
                _ => "",
            };
            Err(format!("nothing was written: {}{advice}", fault.describe_for_model(by, shown)).into())
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
    async fn perform(self, mut pass: Authorization) -> Result<Option<ToolOutput>, CallStop> {
        let Self { call: work, backends: side, path, .. } = &self;
        pass.record_start().await.map_err(|why| CallStop::from(why).with_content(self.diff.clone()))?;
        // A client that authorizes operations asks its user first.
        if !pass.is_left_to_client() {
            work.mark_running().await;
        }
        let (content, asker) = (self.decision.text.to_string(), work.asker());
        let written = work.runtime().write(side.write, path.as_str(), content, &asker).await;
        let (after, doubt) = match &written {
            // The writing and reading backends differ: the text that the writer reports is the file's.
            Ok(TextWriteOutcome { text: Some(text), .. })
                if side.read != Some(side.write) && *text != self.decision.text =>
            {
                (ReadBack::Text(text.clone()), None)
            }
            Ok(_) => (self.read_back().await, None),
            // The connection is up, so the file itself can be checked.
            Err(fault @ (RuntimeError::TimedOut { .. } | RuntimeError::InvalidAnswer { .. })) => {
                (self.read_back().await, Some(fault.to_string()))
            }
            Err(RuntimeError::Failed(RpcError::Conflict { .. })) if pass.is_left_to_client() => {
                return Ok(None);
            }
            Err(fault) => return Err(self.report_failure(pass, fault).await),
        };
        if let (Some(doubt), false) =
            (&doubt, matches!(&after, ReadBack::Text(text) if *text == self.decision.text))
        {
            let text = describe_unknown_outcome(work.display_path(path), doubt);
            self.record_outcome(pass, None, Some(text.clone())).await;
            return Err(CallStop::from(text).with_content(self.diff.clone()));
        }
        let now = match &after {
            ReadBack::Text(text) => Some(text.clone()),
            ReadBack::Unread(_) => None,
        };
        self.record_outcome(pass, now.as_ref().or(Some(&self.decision.text)), None).await;
        let told = self.describe_result(&after, written.map(|written| written.notes).unwrap_or_default());
        let seen = now.as_ref().filter(|_| !told.is_diff_cut);
        work.toolbox.with_knowledge(|known| {
            record_write(known, &self.ledger_key, &self.current, self.request, &self.decision, seen);
        });
        let before = self.current.text().map(|text| text.as_str());
        let holds = now.as_deref().unwrap_or(&self.decision.text);
        let line = first_different_line(before.unwrap_or_default(), holds);
        let output = json!({
            "servedBy": side.write.as_str(),
            "outcome": verdict_word(self.decision.verdict),
            "readBack": now.is_some(),
            "changedByEditor": told.is_changed_by_editor,
            "lines": count_lines(holds),
        });
        Ok(Some(ToolOutput {
            text: told.text,
            content: Some(vec![builders::diff(path.as_str(), before, holds.as_str())]),
            locations: Some(vec![location(path, Some(line))]),
            raw_output: Some(output),
            ..ToolOutput::default()
        }))
    }

    /// Refuses to replace text that neither the model has seen nor a person approved replacing.
    async fn refuse_unseen(&self, pass: Authorization) -> CallStop {
        let why = match self.current {
            CurrentText::Unknown => "the editor does not show what is in it now, which would be replaced",
            _ => {
                "you have not read all of the text that would be replaced, or not since this session was loaded"
            }
        };
        let advice = match self.current {
            CurrentText::Unknown => "ask the user for the mode that asks before edits",
            _ => "read it first",
        };
        let text = format!("nothing was written: {}: {why}: {advice}", self.call.display_path(self.path));
        self.record_outcome(pass, None, Some(text.clone())).await;
        CallStop::from(text).with_content(self.diff.clone())
    }

    async fn report_failure(&self, pass: Authorization, fault: &RuntimeError) -> CallStop {
        let shown = self.call.display_path(self.path);
        let text = if fault.is_outcome_unknown() {
            describe_unknown_outcome(shown, &fault.to_string())
        } else {
            let hunks = match fault {
                RuntimeError::Failed(RpcError::Conflict { hunks, .. }) => describe::describe_conflicts(hunks),
                _ => String::new(),
            };
            format!("nothing was written: {}{hunks}", fault.describe_for_model(self.backends.write, shown))
        };
        self.record_outcome(pass, None, Some(text.clone())).await;
        CallStop::from(text).with_content(self.diff.clone())
    }

    async fn record_outcome(&self, pass: Authorization, after: Option<&Arc<String>>, failed: Option<String>) {
        let hash = |text: &Arc<String>| ContentHash::digest(text.as_bytes());
        let became = OperationOutcome {
            bytes: Some(self.decision.text.len()),
            hash_before: self.current.text().map(hash),
            hash_after: after.map(hash),
            failure: failed,
            ..OperationOutcome::default()
        };
        if let Err(why) = pass.record_outcome(became).await {
            self.call.runtime().options().log.write_line(why);
        }
    }

    async fn read_back(&self) -> ReadBack {
        let Some(by) = self.backends.read else {
            return ReadBack::Unread("the editor does not offer reading".to_owned());
        };
        match self.call.runtime().read(by, self.path.as_str(), LineWindow::default()).await {
            // The writing and reading backends differ, and the reader may lag. An editor that did not write it may have
            // unsaved text.
            Ok(text)
                if by != self.backends.write
                    && (self.current.text() == Some(&text.text)
                        || by == Backend::Client && text.text != self.decision.text) =>
            {
                ReadBack::Unread(format!("{} does not have the new text yet", by.display_name()))
            }
            Ok(text) => ReadBack::Text(text.text),
            Err(fault) => ReadBack::Unread(fault.to_string()),
        }
    }

    /// Describes what was written, and the differences that the model does not know yet.
    fn describe_result(&self, after: &ReadBack, notes: Vec<String>) -> WriteReport {
        let (shown, by) = (self.call.display_path(self.path), self.backends.write.via_phrase());
        let lines = count_noun(count_lines(&self.decision.text), "line");
        let mut parts = vec![match (self.request, self.decision.verdict) {
            (RequestedWrite::Edits(_), _) => {
                let places = count_noun(self.decision.place_count as u64, "place");
                format!("Edited {shown} in {places}, {by}.")
            }
            (RequestedWrite::Whole(_), Some(WriteVerdict::Created)) => {
                format!("Created {shown} ({lines}), {by}.")
            }
            (RequestedWrite::Whole(_), _) => format!("Wrote {shown} ({lines}), {by}."),
        }];
        parts.extend(self.decision.notes.iter().cloned().chain(notes));
        let mut told = WriteReport { text: String::new(), is_diff_cut: false, is_changed_by_editor: false };
        match after {
            ReadBack::Text(now) if *now != self.decision.text => {
                let (diff, is_cut) = describe_diff(&self.decision.text, now);
                (told.is_changed_by_editor, told.is_diff_cut) = (true, is_cut);
                parts.push(format!(
                    "The file differs from what you sent, because its user or the editor's formatting changed it:\n{diff}"
                ));
                if is_cut {
                    parts.push("There is more: read the file again before you edit it.".to_owned());
                }
            }
            ReadBack::Text(_) => {}
            ReadBack::Unread(why) => {
                parts.push(format!("It could not be read again to see what became of it: {why}."));
            }
        }
        told.text = parts.join("\n");
        told
    }
}

struct WriteReport {
    text: String,
    is_diff_cut: bool,
    is_changed_by_editor: bool,
}

fn describe_unknown_outcome(shown: &str, why: &str) -> String {
    format!(
        "it is not known whether {shown} was written: {why}. Read it and compare before you write it again; do not \
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
