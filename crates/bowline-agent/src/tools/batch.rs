//! Changing several files at once, and appending, deleting and moving: all or nothing, with one question.
//!
//! The client's file extension does it, or else this machine's engine. As for a single write, the new text of a file is
//! decided on the current text and on what the model has seen, and a file that changed meanwhile is decided again. An
//! editor without the extension may have unsaved text, which the engine does not know: such a file is left alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_history::ledger::{Knowledge, TextVersion};
use bowline_policy::audit::AuditAction;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::LexicalPath;
use bowline_policy::question::QuestionItem;
use bowline_protocol::builders;
use bowline_protocol::file_extension::{
    BatchOperation, Etag, FileError, FileType, RemoveParams, TransferParams, WriteParams,
};
use bowline_protocol::schema::v1::{ToolCallContent, ToolCallLocation, ToolCallUpdateFields, ToolKind};
use bowline_text::display;
use bowline_text::hash::ContentHash;
use bowline_text::lines::LineWindow;
use bowline_text::unsaved_text::is_equivalent_text;
use bowline_tools::tools::describe::{
    count_lines, count_noun, describe_conflicts, describe_diff, describe_later_changes, first_different_line,
};
use bowline_tools::tools::schema::MAX_WRITTEN_FILES;
use bowline_tools::tools::write::{
    CurrentText, RequestedWrite, WriteDecision, can_append_unread, decide_write, record_write,
};
use bowline_workspace::files;
use bowline_workspace::workspace::{FileContent, FilePreview};
use serde_json::{Value, json};

use super::FileBackends;
use super::active_call::{ActiveCall, CallStop, ToolOutput, location};
use super::search::check_project_is_local;
use super::write::{is_replacement_seen, read_current};
use crate::permission::{Authorization, OperationOutcome, OperationRequest};
use crate::runtime::batch;
use crate::runtime::{Backend, BatchFailure, BatchWrite, ClientContent, LocalPreview, WrittenText};

mod affected_file;

use affected_file::{AffectedFile, FileSide, to_item};

/// How often a change is decided and shown again because a file changed meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// The most files that deleting or moving a directory may change.
const MAX_FILES: usize = 500;

/// The most bytes of the current texts of all files of a call.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// The most bytes of differences in a result.
const MAX_DIFF_BYTES: usize = 32 << 10;

/// The longest path in a line for the client, in bytes.
const MAX_PATH_BYTES: usize = 1000;

/// A change that the model requests.
enum FileChange {
    Write { path: LexicalPath, request: RequestedWrite },
    Delete { path: LexicalPath, recursive: bool },
    Move { from: LexicalPath, to: LexicalPath, overwrite: bool },
}

impl FileChange {
    fn paths(&self) -> Vec<&LexicalPath> {
        match self {
            Self::Write { path, .. } | Self::Delete { path, .. } => vec![path],
            Self::Move { from, to, .. } => vec![from, to],
        }
    }
}

/// Runs the tool that writes several files.
pub(crate) async fn write_files(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let files = active_call.fields()?.objects("files")?;
    if files.is_empty() {
        return Err("`files` is empty: give at least one file".to_owned().into());
    }
    if files.len() > MAX_WRITTEN_FILES {
        return Err(format!(
            "`files` has {} files, and a call writes at most {MAX_WRITTEN_FILES}: make several calls",
            files.len()
        )
        .into());
    }
    let (mut changes, mut inputs, mut known_paths) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (index, fields) in files.into_iter().enumerate() {
        let at = |error: String| CallStop::from(format!("file {}: {error}", index + 1));
        let path = active_call.resolve_path(fields.required_text("path").map_err(at)?)?;
        let content = fields.required_text("content").map_err(at)?;
        if !known_paths.insert(path.as_str().to_owned()) {
            return Err(at(format!("{} is given twice", active_call.display_path(&path))));
        }
        inputs.push(json!({ "path": path.as_str(), "content": content }));
        changes.push(FileChange::Write { path, request: RequestedWrite::Whole(content.to_owned()) });
    }
    let title = format!("Write {}", count_noun(changes.len() as u64, "file"));
    change_files(active_call, &title, ToolKind::Edit, json!({ "files": inputs }), &changes).await
}

/// Runs the tool that appends to a file, where the client offers the file extension or no files at all.
pub(crate) async fn append_file(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.required_text("path")?)?;
    let content = fields.required_text("content")?;
    let input = json!({ "path": path.as_str(), "content": content });
    let title = format!("Append to {}", active_call.display_path(&path));
    let changes = [FileChange::Write { path, request: RequestedWrite::Append(content.to_owned()) }];
    change_files(active_call, &title, ToolKind::Edit, input, &changes).await
}

/// Returns whether a file is appended to without reading it.
async fn is_large(active_call: &ActiveCall<'_>, backend: Backend, path: &LexicalPath) -> bool {
    let runtime = active_call.runtime();
    let stat = match backend {
        Backend::Client => runtime.client_files().stat(path.as_str()).await,
        // An editor may have unsaved text of it.
        Backend::Local | Backend::Workspace if runtime.backend_choice().read == Backend::Client => {
            return false;
        }
        Backend::Local | Backend::Workspace => batch::stat_file(runtime, path.as_str()).await,
    };
    let Ok(stat) = stat else { return false };
    let key = ledger_key(active_call, backend, path.as_str());
    stat.file_type == FileType::File && can_append_unread(&active_call.toolbox.ledger(), &key, stat.size)
}

/// Runs the tool that deletes a file.
pub(crate) async fn delete_file(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let path = active_call.resolve_path(fields.required_text("path")?)?;
    let recursive = fields.flag("recursive")?;
    let input = json!({ "path": path.as_str(), "recursive": recursive });
    let title = format!("Delete {}", active_call.display_path(&path));
    let changes = [FileChange::Delete { path, recursive }];
    change_files(active_call, &title, ToolKind::Delete, input, &changes).await
}

/// Runs the tool that moves a file.
pub(crate) async fn move_file(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let from = active_call.resolve_path(fields.required_text("from")?)?;
    let to = active_call.resolve_path(fields.required_text("to")?)?;
    let overwrite = fields.flag("overwrite")?;
    let input = json!({ "from": from.as_str(), "to": to.as_str(), "overwrite": overwrite });
    let title = format!("Move {} to {}", active_call.display_path(&from), active_call.display_path(&to));
    let changes = [FileChange::Move { from, to, overwrite }];
    change_files(active_call, &title, ToolKind::Move, input, &changes).await
}

async fn change_files(
    active_call: &ActiveCall<'_>,
    title: &str,
    kind: ToolKind,
    input: Value,
    changes: &[FileChange],
) -> Result<ToolOutput, CallStop> {
    let paths: Vec<&LexicalPath> = changes.iter().flat_map(FileChange::paths).collect();
    let locations = paths.iter().map(|path| location(path, None)).collect();
    active_call.announce(title, kind, |call| call.raw_input(input).locations(locations)).await?;
    let backend = active_call.runtime().backend_choice().batch;
    if backend == Backend::Local {
        check_project_is_local(active_call, "changed so").await?;
    }
    // Always in the same order, so that no two calls wait for each other.
    let sorted: BTreeSet<&str> = paths.iter().map(|path| path.as_str()).collect();
    let mut locks = Vec::new();
    for path in sorted {
        locks.push(active_call.toolbox.lock_for_write(path).await);
    }
    let mut last = None;
    for _ in 0..MAX_ATTEMPTS {
        let batch = PlannedBatch::plan(active_call, backend, changes).await?;
        if batch.operations.is_empty() {
            return Ok(batch.report(active_call, &[]));
        }
        match batch.run(active_call, title).await? {
            BatchProgress::Done(output) => return Ok(output),
            BatchProgress::Changed(error) => last = error,
        }
    }
    let reason = last.map(|error| format!(": {}", describe_file_error(active_call, &error)));
    let reason = reason.unwrap_or_default();
    Err(format!("nothing was changed: the files keep changing, read them again{reason}").into())
}

/// A file that is written, with its decision.
struct PlannedWrite<'a> {
    path: &'a LexicalPath,
    key: String,
    request: &'a RequestedWrite,
    current: CurrentText,
    decision: WriteDecision,
    // The operation that writes it, unless it has the text already.
    operation: Option<usize>,
}

/// The changes of a call, decided on the files as they are.
struct PlannedBatch<'a> {
    backend: Backend,
    changes: &'a [FileChange],
    writes: Vec<PlannedWrite<'a>>,
    // What is appended to files that are not read. Only that is shown.
    appends: Vec<(&'a LexicalPath, Arc<String>)>,
    operations: Vec<BatchOperation>,
    files: Vec<AffectedFile>,
    items: Vec<QuestionItem>,
    // On this machine: what is agreed to.
    shown: Option<LocalPreview>,
}

/// The outcome of an attempt.
enum BatchProgress {
    Done(ToolOutput),
    // A file changed meanwhile: decide again.
    Changed(Option<FileError>),
}

impl<'a> PlannedBatch<'a> {
    async fn plan(
        active_call: &ActiveCall<'_>,
        backend: Backend,
        changes: &'a [FileChange],
    ) -> Result<Self, CallStop> {
        let mut batch = Self {
            backend,
            changes,
            writes: Vec::new(),
            appends: Vec::new(),
            operations: Vec::new(),
            files: Vec::new(),
            items: Vec::new(),
            shown: None,
        };
        for change in changes {
            match change {
                FileChange::Write { path, request: RequestedWrite::Append(addition) }
                    if is_large(active_call, backend, path).await =>
                {
                    let params = WriteParams::new(path.as_str(), addition.clone()).append();
                    batch.operations.push(params.into());
                    batch.appends.push((path, Arc::new(addition.clone())));
                }
                FileChange::Write { path, request } => {
                    batch.plan_write(active_call, path, request).await?;
                    let texts = batch.writes.iter().filter_map(|write| write.current.text());
                    if texts.map(|text| text.len()).sum::<usize>() > MAX_TEXT_BYTES {
                        let reason = "nothing was written: the files are too large for one call: write fewer";
                        return Err(reason.to_owned().into());
                    }
                }
                FileChange::Delete { path, recursive } => {
                    let params = RemoveParams::new(path.as_str());
                    let params = if *recursive { params.recursive() } else { params };
                    batch.operations.push(params.into());
                }
                FileChange::Move { from, to, overwrite } => {
                    let params = TransferParams::new(from.as_str(), to.as_str());
                    let params = if *overwrite { params.overwrite() } else { params };
                    batch.operations.push(BatchOperation::Move(params));
                }
            }
        }
        match backend {
            Backend::Client => batch.show_client_files(active_call).await?,
            Backend::Local | Backend::Workspace if batch.operations.is_empty() => {}
            Backend::Local | Backend::Workspace => batch.show_local_files(active_call).await?,
        }
        batch.check_removed_texts(active_call)?;
        Ok(batch)
    }

    /// Refuses to remove a text that was changed since the model read it.
    fn check_removed_texts(&self, active_call: &ActiveCall<'_>) -> Result<(), CallStop> {
        let is_source = |file: &AffectedFile| {
            self.files.iter().any(|other| other.moved_from.as_ref() == Some(&file.resolved))
        };
        for file in &self.files {
            let is_removed = file.moved_from.is_some() || file.after == FileSide::Absent && !is_source(file);
            let key = ledger_key(active_call, self.backend, &file.path);
            let known = active_call.toolbox.ledger().knowledge(&key, TextVersion(0));
            if let (true, FileSide::Text(text), Knowledge::Whole(known)) = (is_removed, &file.before, known)
                && !is_equivalent_text(text, &known)
            {
                return Err(format!(
                    "nothing was changed: {} was changed since you read it: read it again first",
                    active_call.runtime().display_path(&file.path)
                )
                .into());
            }
        }
        Ok(())
    }

    async fn plan_write(
        &mut self,
        active_call: &ActiveCall<'_>,
        path: &'a LexicalPath,
        request: &'a RequestedWrite,
    ) -> Result<(), CallStop> {
        let (current, etag) = match self.backend {
            Backend::Client => read_from_client(active_call, path).await?,
            Backend::Local | Backend::Workspace => read_from_engine(active_call, path).await?,
        };
        let key = ledger_key(active_call, self.backend, path.as_str());
        let display_path = active_call.display_path(path);
        let decision = active_call
            .toolbox
            .with_knowledge(|knowledge| decide_write(knowledge, &key, &current, request, display_path))?;
        let is_held = current.text().is_some_and(|text| **text == *decision.text);
        let operation = (!is_held).then_some(self.operations.len());
        if operation.is_some() {
            let params = match request {
                RequestedWrite::Append(addition) if etag.is_some() => {
                    WriteParams::new(path.as_str(), addition.clone()).append()
                }
                _ => WriteParams::new(path.as_str(), decision.text.as_str().to_owned()),
            };
            let params = params.create_parents();
            let params = match etag {
                Some(etag) => params.if_match(etag),
                None => params.create_only(),
            };
            self.operations.push(params.into());
        }
        self.writes.push(PlannedWrite { path, key, request, current, decision, operation });
        Ok(())
    }

    /// Describes the effect on the client's files. A client that decides shows it to its user by itself.
    async fn show_client_files(&mut self, active_call: &ActiveCall<'_>) -> Result<(), CallStop> {
        for write in self.writes.iter().filter(|write| write.operation.is_some()) {
            let before = write.current.text().map_or(FileSide::Absent, |text| FileSide::Text(text.clone()));
            let after = FileSide::Text(write.decision.text.clone());
            let operation = active_call.file_operation(OperationKind::Write, write.path).await?;
            self.items.push(to_item(operation, &before, &after));
            self.files.push(AffectedFile::new(write.path, before, after));
        }
        for (path, addition) in &self.appends {
            let (before, after) = (FileSide::Text(Arc::default()), FileSide::Text(addition.clone()));
            let operation = active_call.file_operation(OperationKind::Write, path).await?;
            self.items.push(to_item(operation, &before, &after));
            self.files.push(AffectedFile::new(path, before, after));
        }
        for change in self.changes {
            let (source, kind) = match change {
                FileChange::Write { .. } => continue,
                FileChange::Delete { path, .. } => (path, OperationKind::Delete),
                FileChange::Move { from, .. } => (from, OperationKind::Delete),
            };
            let before = match read_side(active_call, source).await? {
                FileSide::Absent => {
                    let path = source.as_str().to_owned();
                    return Err(refuse(active_call, &FileError::NotFound { path }));
                }
                before => before,
            };
            let operation = active_call.file_operation(kind, source).await?;
            self.items.push(to_item(operation, &before, &FileSide::Absent));
            self.files.push(AffectedFile::new(source, before.clone(), FileSide::Absent));
            if let FileChange::Move { to, .. } = change {
                let replaced = read_side(active_call, to).await?;
                let operation = active_call.file_operation(OperationKind::Write, to).await?;
                self.items.push(to_item(operation, &replaced, &before));
                let moved_from = Some(source.as_str().to_owned());
                self.files.push(AffectedFile { moved_from, ..AffectedFile::new(to, replaced, before) });
            }
        }
        Ok(())
    }

    /// Describes the effect on this machine's files, and checks that an editor has no unsaved text of them.
    async fn show_local_files(&mut self, active_call: &ActiveCall<'_>) -> Result<(), CallStop> {
        let runtime = active_call.runtime();
        let shown = match batch::preview_local_batch(runtime, &self.operations).await {
            Ok(shown) => shown,
            Err(failure) => return Err(describe_failure(active_call, Backend::Local, &failure).into()),
        };
        if shown.preview.files.len() > MAX_FILES {
            return Err(format!(
                "nothing was changed: there are {} files in it, and a call changes at most {MAX_FILES}: change its \
                 directories one by one",
                shown.preview.files.len()
            )
            .into());
        }
        let is_written = |file: &FilePreview| {
            matches!(self.operations.get(file.operation), Some(BatchOperation::Write(_)))
        };
        for file in shown.preview.files.iter().filter(|file| !is_written(file)) {
            check_unsaved_text(active_call, file).await?;
        }
        self.files = shown.preview.files.iter().map(AffectedFile::from_preview).collect();
        self.items.clone_from(&shown.items);
        self.shown = Some(shown);
        Ok(())
    }

    /// Authorizes the changes and carries them out.
    async fn run(mut self, active_call: &ActiveCall<'_>, title: &str) -> Result<BatchProgress, CallStop> {
        let content = self.content(active_call);
        let fields = ToolCallUpdateFields::new().content(content.clone()).locations(self.locations());
        active_call.update(fields).await;
        let request = OperationRequest {
            action: AuditAction::Write,
            title: title.to_owned(),
            items: std::mem::take(&mut self.items),
        };
        let with_content = |stop: CallStop| stop.with_content(content.clone());
        let permissions = &active_call.toolbox.permissions;
        let authorization =
            permissions.authorize(self.backend, active_call.call, active_call.cx, request).await;
        let mut authorization = authorization.map_err(|denial| with_content(denial.into()))?;
        // The user takes time, and has approved exactly this.
        if authorization.is_exact() {
            let now = Self::plan(active_call, self.backend, self.changes).await?;
            if (&now.operations, &now.files) != (&self.operations, &self.files) {
                return Ok(BatchProgress::Changed(None));
            }
        }
        if let Some(unseen) = self.find_unseen(active_call, &authorization).await {
            let unseen = active_call.display_path(unseen);
            let text = format!(
                "nothing was written: {unseen}: you have not read all of the text that would be replaced, or not since \
                 this session was loaded: read it first"
            );
            log_failure(authorization, text.clone()).await;
            return Err(with_content(text.into()));
        }
        authorization.record_start().await.map_err(|denial| with_content(denial.into()))?;
        // A client that authorizes operations asks its user first.
        if !authorization.is_left_to_client() {
            active_call.mark_running().await;
        }
        let runtime = active_call.runtime();
        let applied = match self.shown.take() {
            Some(shown) => {
                batch::apply_local_batch(runtime, &self.operations, shown, &active_call.asker()).await
            }
            None => batch::apply_client_batch(runtime, self.operations.clone()).await,
        };
        match applied {
            Ok(results) => {
                self.record_outcome(active_call, authorization).await;
                Ok(BatchProgress::Done(self.report(active_call, &results)))
            }
            Err(BatchFailure::Changed(error)) => {
                log_failure(authorization, error.to_string()).await;
                Ok(BatchProgress::Changed(Some(error)))
            }
            Err(failure) => {
                let text = describe_failure(active_call, self.backend, &failure);
                log_failure(authorization, text.clone()).await;
                Err(with_content(text.into()))
            }
        }
    }

    /// Returns a file whose text would be replaced although neither the model has seen it nor a person approved that.
    async fn find_unseen(
        &self,
        active_call: &ActiveCall<'_>,
        authorization: &Authorization,
    ) -> Option<&'a LexicalPath> {
        // A client that authorizes operations knows which files were read, and shows its user what would be replaced.
        if authorization.is_exact() || authorization.is_left_to_client() {
            return None;
        }
        for PlannedWrite { path, key, current, decision, request, .. } in &self.writes {
            if matches!(request, RequestedWrite::Whole(_))
                && !is_replacement_seen(active_call, path, key, current, decision.verdict).await
            {
                return Some(path);
            }
        }
        None
    }

    /// Returns what the client shows: the change of each text, and the paths of moved files.
    fn content(&self, active_call: &ActiveCall<'_>) -> Vec<ToolCallContent> {
        let mut content = Vec::new();
        let escape = |path: &str| {
            let path = active_call.runtime().display_path(path);
            format!("`{}`", display::escape_line(path, MAX_PATH_BYTES))
        };
        let is_source = |path: &str| self.files.iter().any(|file| file.moved_from.as_deref() == Some(path));
        for file in &self.files {
            let (path, before, after) = (file.path.as_str(), &file.before, &file.after);
            match (&file.moved_from, before, after) {
                (Some(from), FileSide::Absent, _) => {
                    content.push(builders::text(format!("Move {} to {}", escape(from), escape(path))));
                }
                (Some(from), _, _) => {
                    content.push(builders::text(format!(
                        "Move {} to {}, which is replaced",
                        escape(from),
                        escape(path)
                    )));
                    if let (FileSide::Text(before), FileSide::Text(after)) = (before, after) {
                        content.push(builders::diff(path, Some(before.as_str()), after.as_str()));
                    }
                }
                // The other path of a move shows it.
                (None, _, FileSide::Absent) if is_source(&file.resolved) => {}
                (None, FileSide::Text(before), FileSide::Absent) => {
                    content.push(builders::diff(path, Some(before.as_str()), ""));
                }
                (None, _, FileSide::Text(after)) => {
                    content.push(builders::diff(
                        path,
                        before.text().map(|text| text.as_str()),
                        after.as_str(),
                    ));
                }
                (None, FileSide::Opaque | FileSide::Absent, _) => {
                    content.push(builders::text(format!("Delete {}, which is not text", escape(path))));
                }
                (None, FileSide::Text(_), FileSide::Opaque) => {
                    content.push(builders::text(format!("Replace {} by what is not text", escape(path))));
                }
            }
        }
        if self.files.is_empty() {
            let paths = self.changes.iter().flat_map(FileChange::paths);
            content.extend(paths.map(|path| builders::text(format!("Directory {}", escape(path.as_str())))));
        }
        content
    }

    fn locations(&self) -> Vec<ToolCallLocation> {
        let line = |path: &LexicalPath| {
            let write = self.writes.iter().find(|write| write.path == path)?;
            let before = write.current.text().map(|text| text.as_str()).unwrap_or_default();
            Some(first_different_line(before, &write.decision.text))
        };
        self.changes.iter().flat_map(FileChange::paths).map(|path| location(path, line(path))).collect()
    }

    async fn record_outcome(&self, active_call: &ActiveCall<'_>, mut authorization: Authorization) {
        for file in &self.files {
            // Of a file that is not read only what is appended is known.
            let is_known = !self.appends.iter().any(|(path, _)| path.as_str() == file.path);
            let hash = |side: &FileSide| {
                side.text().filter(|_| is_known).map(|text| ContentHash::digest(text.as_bytes()))
            };
            let outcome = OperationOutcome {
                bytes: file.after.text().map(|text| text.len()),
                hash_before: hash(&file.before),
                hash_after: hash(&file.after),
                ..OperationOutcome::default()
            };
            if let Err(error) = authorization.record_file(&file.path, outcome).await {
                active_call.runtime().options().log.write_line(error);
            }
        }
    }

    /// Records what the model knows now, and describes the result.
    fn report(&self, active_call: &ActiveCall<'_>, results: &[BatchWrite]) -> ToolOutput {
        let (mut lines, mut content) = (Vec::new(), Vec::new());
        let mut diff_bytes = MAX_DIFF_BYTES;
        for write in &self.writes {
            let result = write.operation.and_then(|index| results.get(index));
            let report = write.report(active_call, result, &mut diff_bytes);
            lines.push(report.text);
            let before = write.current.text().map(|text| text.as_str());
            if result.is_some() {
                content.push(builders::diff(write.path.as_str(), before, report.shown.as_str()));
            }
        }
        for (path, addition) in &self.appends {
            let count = count_noun(count_lines(addition), "line");
            lines.push(format!("Appended {count} to {}", active_call.display_path(path)));
            content.push(builders::diff(path.as_str(), Some(""), addition.as_str()));
        }
        for change in self.changes {
            match change {
                FileChange::Write { .. } => {}
                FileChange::Delete { path, .. } => {
                    self.record_transfer(active_call, path.as_str(), None);
                    let display_path = active_call.display_path(path);
                    lines.push(format!("Deleted {display_path}{}", self.describe_count(path)));
                }
                FileChange::Move { from, to, .. } => {
                    self.record_transfer(active_call, from.as_str(), Some(to.as_str()));
                    let (from_path, to_path) = (active_call.display_path(from), active_call.display_path(to));
                    lines.push(format!("Moved {from_path} to {to_path}{}", self.describe_count(from)));
                }
            }
        }
        let served = self.backend.via_phrase();
        let text = match lines.as_slice() {
            [line] if self.operations.is_empty() => format!("{line}; nothing was written."),
            [line] => match line.split_once('\n') {
                Some((line, notes)) => format!("{line}, {served}.\n{notes}"),
                None => format!("{line}, {served}."),
            },
            lines => {
                let list: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
                format!("{}, {served}:\n{}", count_noun(lines.len() as u64, "file"), list.join("\n"))
            }
        };
        let notes: Vec<String> = results
            .iter()
            .flat_map(|result| result.notes.iter())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .cloned()
            .collect();
        let text = std::iter::once(text).chain(notes).collect::<Vec<_>>().join("\n");
        let output = json!({ "servedBy": self.backend.as_str(), "operations": self.operations.len() });
        let content = (!content.is_empty()).then_some(content);
        ToolOutput { text, content, raw_output: Some(output), ..ToolOutput::default() }
    }

    /// Returns how many files a deleted or moved directory had, if the path is one and this is known.
    fn describe_count(&self, path: &LexicalPath) -> String {
        let removed = || self.files.iter().filter(|file| file.after == FileSide::Absent);
        if removed().any(|file| file.path == path.as_str()) || removed().next().is_none() {
            return String::new();
        }
        format!(" with {}", count_noun(removed().count() as u64, "file"))
    }

    /// Records what the model knows of a path that was deleted or moved, and of everything beneath it.
    fn record_transfer(&self, active_call: &ActiveCall<'_>, from: &str, to: Option<&str>) {
        let key = |path: &str| ledger_key(active_call, self.backend, path);
        active_call.toolbox.ledger().record_transfer(&key(from), to.map(key).as_deref());
    }
}

/// The result of a write for the model, and the text that the client shows.
struct WriteReport {
    text: String,
    shown: Arc<String>,
}

impl PlannedWrite<'_> {
    /// Records what the model knows of the file now, and describes the result. `None` if it had the text already.
    fn report(
        &self,
        active_call: &ActiveCall<'_>,
        result: Option<&BatchWrite>,
        diff_bytes: &mut usize,
    ) -> WriteReport {
        let (path, decision) = (active_call.display_path(self.path), &self.decision);
        let record = |now: Option<&Arc<String>>| {
            active_call.toolbox.with_knowledge(|knowledge| {
                record_write(knowledge, &self.key, &self.current, self.request, decision, now);
            });
        };
        let Some(result) = result else {
            record(self.current.text());
            return WriteReport {
                text: format!("{path} holds this text already"),
                shown: decision.text.clone(),
            };
        };
        let mut parts = vec![decision.describe(self.request, path)];
        for note in &decision.notes {
            let is_shown = note.len() <= *diff_bytes;
            *diff_bytes = diff_bytes.saturating_sub(note.len());
            let note = if is_shown {
                note
            } else {
                "Others changed the file as well: read it again before you edit it."
            };
            parts.push(note.to_owned());
        }
        let now = match &result.text {
            WrittenText::AsSent => Some(&decision.text),
            WrittenText::Text(text) => Some(text),
            WrittenText::Unknown => None,
        };
        match now {
            Some(text) if *text != decision.text => {
                let (mut diff, mut is_cut) = describe_diff(&decision.text, text);
                if diff.len() > *diff_bytes {
                    (diff, is_cut) = (String::new(), true);
                }
                *diff_bytes -= diff.len();
                parts.push(describe_later_changes(&diff, is_cut));
                record(Some(text).filter(|_| !is_cut));
            }
            Some(text) => record(Some(text)),
            None => {
                parts.push("The editor changed the text: read the file again before you edit it.".to_owned());
                record(None);
            }
        }
        WriteReport { text: parts.join("\n"), shown: now.unwrap_or(&decision.text).clone() }
    }
}

/// Returns the ledger's key of a file. Files of this machine are those that the model reads, as far as both are checked
/// to have the same text.
fn ledger_key(active_call: &ActiveCall<'_>, backend: Backend, path: &str) -> String {
    let backend = match backend {
        Backend::Client => Backend::Client,
        Backend::Local | Backend::Workspace => active_call.runtime().backend_choice().read,
    };
    active_call.toolbox.ledger_key(backend, path)
}

/// Reads the current text of a file from the client, and its etag if it exists.
async fn read_from_client(
    active_call: &ActiveCall<'_>,
    path: &LexicalPath,
) -> Result<(CurrentText, Option<Etag>), CallStop> {
    let content = active_call.runtime().client_files().read_content(path.as_str()).await;
    let refused = |error: FileError| refuse(active_call, &error);
    let (path, reason) = (path.as_str().to_owned(), "it is not text".to_owned());
    match content {
        Ok(ClientContent::Text(text, etag)) => Ok((CurrentText::Text(text), Some(etag))),
        Ok(ClientContent::Missing) => Ok((CurrentText::Missing, None)),
        Ok(ClientContent::Binary) => Err(refused(FileError::NotText { path, reason })),
        Ok(ClientContent::NotFile) => Err(refused(FileError::NotFile { path })),
        Err(failure) => Err(describe_failure(active_call, Backend::Client, &failure).into()),
    }
}

/// Reads what is at a path of the client, for display.
async fn read_side(active_call: &ActiveCall<'_>, path: &LexicalPath) -> Result<FileSide, CallStop> {
    match active_call.runtime().client_files().read_content(path.as_str()).await {
        Ok(ClientContent::Text(text, _)) => Ok(FileSide::Text(text)),
        Ok(ClientContent::Missing) => Ok(FileSide::Absent),
        Ok(ClientContent::Binary | ClientContent::NotFile) => Ok(FileSide::Opaque),
        // It can be moved and deleted all the same.
        Err(BatchFailure::Refused(FileError::TooLarge { .. })) => Ok(FileSide::Opaque),
        Err(failure) => Err(describe_failure(active_call, Backend::Client, &failure).into()),
    }
}

/// Reads the current text of a file on this machine, and its etag if it exists. An editor must have the same text: the
/// engine does not know its unsaved text.
async fn read_from_engine(
    active_call: &ActiveCall<'_>,
    path: &LexicalPath,
) -> Result<(CurrentText, Option<Etag>), CallStop> {
    let read = active_call.runtime().backend_choice().read;
    let backends = |read: Backend| FileBackends { read: Some(read), write: Backend::Local };
    let (current, _) = read_current(active_call, backends(Backend::Local), path).await?;
    if read == Backend::Client {
        let (edited, _) = read_current(active_call, backends(Backend::Client), path).await?;
        let is_same = match (&current, &edited) {
            (CurrentText::Text(disk), CurrentText::Text(edited)) => is_equivalent_text(disk, edited),
            // An editor need not find a file that was created just now.
            (_, CurrentText::Missing) => true,
            _ => false,
        };
        if !is_same {
            return Err(refuse_unsaved(active_call, path.as_str()));
        }
    }
    let etag = current.text().map(|text| Etag::digest(text.as_bytes()));
    Ok((current, etag))
}

/// Checks that an editor without the file extension has no unsaved text of a file.
async fn check_unsaved_text(active_call: &ActiveCall<'_>, file: &FilePreview) -> Result<(), CallStop> {
    let runtime = active_call.runtime();
    if runtime.backend_choice().read != Backend::Client {
        return Ok(());
    }
    let is_safe =
        match (runtime.client_files().read(&file.requested, LineWindow::default()).await, &file.before) {
            (Ok(edited), Some(FileContent::Text(disk))) => is_equivalent_text(disk, &edited),
            (Ok(edited), Some(large @ FileContent::Large { .. })) => {
                Etag::digest(edited.as_bytes()) == large.etag()
            }
            (Ok(edited), None) => edited.is_empty(),
            // The editor shows bytes as text, and cannot edit them.
            (Ok(_), Some(FileContent::Binary { .. })) => true,
            (Err(error), Some(FileContent::Text(_) | FileContent::Large { .. })) => error.is_file_missing(),
            (Err(_), None | Some(FileContent::Binary { .. })) => true,
        };
    if is_safe { Ok(()) } else { Err(refuse_unsaved(active_call, &file.requested)) }
}

fn refuse_unsaved(active_call: &ActiveCall<'_>, path: &str) -> CallStop {
    format!(
        "nothing was changed: {} has unsaved text in the editor, or the editor cannot show its text: the user has to \
         save it first",
        active_call.runtime().display_path(path)
    )
    .into()
}

async fn log_failure(authorization: Authorization, failure: String) {
    let failure = Some(failure);
    authorization.log_outcome(OperationOutcome { failure, ..OperationOutcome::default() }).await;
}

fn refuse(active_call: &ActiveCall<'_>, error: &FileError) -> CallStop {
    format!("nothing was changed: {}", describe_file_error(active_call, error)).into()
}

/// Describes why a batch failed, with advice.
fn describe_failure(active_call: &ActiveCall<'_>, backend: Backend, failure: &BatchFailure) -> String {
    match failure {
        BatchFailure::Changed(error) | BatchFailure::Refused(error) => {
            format!("nothing was changed: {}", describe_file_error(active_call, error))
        }
        BatchFailure::Runtime(error) if error.is_outcome_unknown() => format!(
            "it is not known whether the files were changed: {error}. Look at them before you go on; do not simply repeat \
             the call."
        ),
        BatchFailure::Runtime(error) => {
            format!("nothing was changed: {}", error.describe_for_model(backend, "the files"))
        }
    }
}

fn describe_file_error(active_call: &ActiveCall<'_>, error: &FileError) -> String {
    let text = files::describe_file_error(error, |path| active_call.runtime().display_path(path).to_owned());
    match error {
        FileError::Conflict { hunks, .. } => text + &describe_conflicts(hunks),
        _ => text,
    }
}
