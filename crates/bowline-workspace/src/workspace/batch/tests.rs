//! Batches as an agent and a user see them: files and steps in, answers and files out.
//!
//! A step is a word and its arguments. `~` is the project, `~lib` a second root. Operations are written as on the wire.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1::Error;
use bowline_history::changes::{ChangeId, Reversal};
use bowline_history::undo::ChangeSelection;
use bowline_protocol::file_extension::{BatchError, BatchFilesRequest, FileLimits, FileOperation};
use bowline_storage::disk_calls::{DiskCall, DiskCalls, DiskFaultInjector};
use bowline_text::lines::LineWindow;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BatchAgreement, BatchPreview, FileContent};
use crate::roots::{Resolver, RootSpec, Roots};
use crate::workspace::{DocumentEvent, Workspace, WorkspaceOptions, WorkspaceSession};

mod agreement;
mod append;
mod directories;
mod moves;
mod properties;
mod races;
mod transfers;
mod writes;

/// A project with two roots, and the session of an agent in it.
struct BatchProject {
    base: PathBuf,
    workspace: Workspace,
    session: WorkspaceSession,
    events: std::sync::mpsc::Receiver<DocumentEvent>,
    // The number of batches that changed files so far; each has a turn of its own.
    turn: u64,
    agreed: Option<BatchPreview>,
    _scratch: TempDir,
}

impl BatchProject {
    fn new(options: WorkspaceOptions) -> Self {
        Self::with_calls(options, DiskCalls::default(), Resolver::Kernel)
    }

    fn with_calls(options: WorkspaceOptions, calls: DiskCalls, resolver: Resolver) -> Self {
        let scratch = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        Self::in_directory(scratch, options, calls, resolver)
    }

    fn in_directory(
        scratch: TempDir,
        options: WorkspaceOptions,
        calls: DiskCalls,
        resolver: Resolver,
    ) -> Self {
        let base = scratch.path().canonicalize().unwrap();
        for root in ["project", "lib"] {
            fs::create_dir(base.join(root)).unwrap();
        }
        let spec = |name: &str| RootSpec::writable(base.join(name).to_str().unwrap());
        let roots = Roots::open_with(&spec("project"), &[spec("lib")], resolver).unwrap();
        let workspace = Workspace::open_with(roots, &base.join("state"), options, calls).unwrap().workspace;
        let (session, events) = (workspace.session("s"), workspace.document_events());
        Self { base, session, events, workspace, turn: 0, agreed: None, _scratch: scratch }
    }

    fn expand(&self, text: &str) -> String {
        let base = self.base.display();
        text.replace("~lib", &format!("{base}/lib")).replace('~', &format!("{base}/project"))
    }

    fn shorten(&self, text: &str) -> String {
        let base = self.base.display().to_string();
        text.replace(&format!("{base}/lib"), "~lib").replace(&format!("{base}/project"), "~")
    }

    fn operations(&self, operations: &str) -> Result<Vec<FileOperation>, BatchError> {
        let request = json!({"sessionId": "s", "operations": []});
        let mut request: Value = request;
        request["operations"] = serde_json::from_str(&self.expand(operations)).unwrap();
        let request: BatchFilesRequest = serde_json::from_value(request).unwrap();
        request.into_operations(&FileLimits::default())
    }

    fn run_step(&mut self, step: &str) -> Result<String, BatchError> {
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let (name, argument) = rest.split_once(' ').unwrap_or((rest, ""));
        let path = self.expand(name);
        let text = || serde_json::from_str::<String>(argument).unwrap();
        match verb {
            "disk" => {
                fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
                fs::write(&path, text()).unwrap();
            }
            "bytes" => {
                let bytes = argument.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap());
                fs::write(&path, bytes.collect::<Vec<u8>>()).unwrap();
            }
            "rm" => fs::remove_file(&path).unwrap(),
            "mkdir" => fs::create_dir_all(&path).unwrap(),
            "link" => std::os::unix::fs::symlink(self.expand(argument), &path).unwrap(),
            "hardlink" => fs::hard_link(self.expand(argument), &path).unwrap(),
            "mode" => {
                let mode = u32::from_str_radix(argument, 8).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            "many" => (0..argument.parse::<usize>().unwrap())
                .for_each(|number| fs::write(format!("{path}/{number}"), "x").unwrap()),
            "open" => drop(self.workspace.open_document(&path).unwrap()),
            "type" => {
                let revision = self.workspace.document(&path).unwrap().unwrap().revision;
                self.workspace.change_document(&path, text(), revision).unwrap();
            }
            "read" => {
                let read = self.session.read(&path, LineWindow::default());
                return Ok(
                    read.map_or_else(|error| format!("! {error}\n"), |read| format!("{:?}\n", read.text))
                );
            }
            "batch" => return self.apply(rest, None),
            "preview" => return self.preview(rest),
            "agreed" => {
                let agreed = self.agreed.take().unwrap();
                return self.apply(rest, Some(BatchAgreement::Preview(&agreed)));
            }
            "paths" => {
                let paths: Vec<String> = serde_json::from_str(&path).unwrap();
                return self.apply(argument, Some(BatchAgreement::Paths(&paths)));
            }
            "undo" | "redo" => return Ok(self.reverse_selected(verb, name, &path, argument)),
            "events" => return Ok(self.describe_events()),
            "tree" => return Ok(self.describe_tree()),
            "changes" => return Ok(self.describe_changes()),
            _ => panic!("unknown step {step}"),
        }
        Ok(String::new())
    }

    fn apply(&mut self, operations: &str, agreed: Option<BatchAgreement<'_>>) -> Result<String, BatchError> {
        let operations = self.operations(operations)?;
        let turn = self.turn + 1;
        let origin = self.session.origin(Some(turn), None);
        let outcome = self.session.apply_batch(&operations, &origin, agreed)?;
        let directories = outcome.directory_changes.len();
        if directories > 0 || outcome.operations.iter().any(|operation| !operation.changes.is_empty()) {
            self.turn = turn;
        }
        let mut answer = String::new();
        for (operation, outcome) in operations.iter().zip(outcome.operations) {
            let name = format!("{operation:?}");
            let name = name.split('(').next().unwrap().to_lowercase();
            write!(answer, "{name}: {} changes", outcome.changes.len()).unwrap();
            if let Some(written) = outcome.written {
                let merged = if written.is_merged { ", merged" } else { "" };
                let known = written.text.map_or("not text".to_owned(), |text| format!("{text:?}"));
                write!(answer, ", {known}{merged}").unwrap();
                written.notes.iter().for_each(|note| write!(answer, ", {note}").unwrap());
                let read = self.workspace.session("reader").read(&written.path, LineWindow::default());
                if let Ok(read) = read {
                    let etag = bowline_protocol::file_extension::Etag::digest(read.text.as_bytes());
                    let is_hashed = read.text.len() as u64 <= self.workspace.inner.options.max_write_bytes;
                    assert_eq!(written.etag == etag, is_hashed, "{}", written.etag.as_str());
                }
            }
            answer.push('\n');
        }
        if directories > 0 {
            writeln!(answer, "directories: {directories} changes").unwrap();
        }
        Ok(answer)
    }

    fn preview(&mut self, operations: &str) -> Result<String, BatchError> {
        let preview = self.session.preview_batch(&self.operations(operations)?)?;
        let describe = |content: &Option<FileContent>| match content {
            None => "none".to_owned(),
            Some(FileContent::Text(text)) => format!("{text:?}"),
            Some(FileContent::Binary { size, .. }) => format!("{size} bytes"),
            Some(FileContent::Large { size, added, .. }) => format!("{size} bytes, added {added:?}"),
        };
        let mut shown = String::new();
        for file in &preview.files {
            let (before, after) = (describe(&file.before), describe(&file.after));
            write!(shown, "{} {}: {before} -> {after}", file.operation, file.path).unwrap();
            assert_eq!(file.file.is_some(), Path::new(&file.path).exists());
            file.moved_from.iter().for_each(|from| write!(shown, ", moved from {from}").unwrap());
            file.copied_from.iter().for_each(|from| write!(shown, ", copied from {from}").unwrap());
            file.protection.iter().for_each(|why| write!(shown, ", protected: {why:?}").unwrap());
            file.source_protection.iter().for_each(|why| write!(shown, ", source: {why:?}").unwrap());
            if file.drops_privileges {
                shown.push_str(", drops privileges");
            }
            shown.push('\n');
        }
        preview.created_directories.iter().for_each(|path| writeln!(shown, "creates {path}").unwrap());
        preview.removed_directories.iter().for_each(|path| writeln!(shown, "removes {path}").unwrap());
        self.agreed = Some(preview);
        Ok(shown)
    }

    /// Undoes or redoes the last batch.
    fn reverse(&self, verb: &str) -> String {
        self.reverse_selected(verb, "", "", "")
    }

    /// Undoes or redoes the last batch, or `all`, `turn N`, `change N`, or the changes of a file.
    fn reverse_selected(&self, verb: &str, name: &str, path: &str, argument: &str) -> String {
        let origin = self.session.origin(None, None);
        let selection = match name {
            "" => ChangeSelection::turn("s", self.turn),
            "all" => ChangeSelection::default(),
            "turn" => ChangeSelection::turn("s", argument.parse().unwrap()),
            "change" => {
                let change = Reversal { change: ChangeId(argument.parse().unwrap()), hunks: None };
                ChangeSelection { change: Some(change), ..ChangeSelection::default() }
            }
            _ => ChangeSelection { path: Some(path.to_owned()), ..ChangeSelection::default() },
        };
        let reversed = match verb {
            "undo" => self.session.undo(&selection, &origin),
            _ => self.session.redo(&selection, &origin),
        };
        match reversed {
            Ok(outcome) => format!("{verb}: {} files\n", outcome.files.len()),
            Err(error) => format!("! {error}\n"),
        }
    }

    fn describe_events(&self) -> String {
        let describe = |event| match event {
            DocumentEvent::Edited { path, text, .. } => format!("{path} shows {text:?}\n"),
            DocumentEvent::FileDeleted { path } => format!("{path} is deleted\n"),
        };
        self.events.try_iter().map(describe).collect()
    }

    fn describe_tree(&self) -> String {
        let mut shown = String::new();
        for root in ["project", "lib"] {
            describe_directory(&self.base.join(root), &mut shown);
        }
        shown
    }

    /// Describes the changes in the journal. Those of a batch have one time.
    fn describe_changes(&self) -> String {
        let mut shown = String::new();
        let mut times = HashMap::new();
        for listed in self.workspace.changes(&ChangeSelection::default()).unwrap() {
            let change = listed.change;
            let verb = match (change.before, change.after) {
                (None, Some(_)) => "creates",
                (Some(_), None) => "deletes",
                (None, None) => "creates or removes",
                _ => "changes",
            };
            let actor = match change.origin.turn {
                Some(turn) => {
                    assert_eq!(*times.entry(turn).or_insert(change.at), change.at);
                    format!("batch {turn}")
                }
                None => "user".to_owned(),
            };
            let effect = if listed.is_in_effect { "" } else { ", not in effect" };
            writeln!(shown, "{actor} {verb} {}{effect}", change.path).unwrap();
        }
        shown
    }
}

/// Describes the files and directories below a directory. A mode is shown if it is not the usual one.
fn describe_directory(directory: &Path, shown: &mut String) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let found = fs::symlink_metadata(&path).unwrap();
        let mode = found.permissions().mode() & 0o7777;
        let usual = if found.is_dir() { 0o755 } else { 0o644 };
        let mode = if mode == usual || found.is_symlink() { String::new() } else { format!(" {mode:o}") };
        if found.is_dir() {
            writeln!(shown, "{}/{mode}", path.display()).unwrap();
            describe_directory(&path, shown);
        } else if found.is_symlink() {
            writeln!(shown, "{} is a link", path.display()).unwrap();
        } else {
            let bytes = fs::read(&path).unwrap();
            let content = String::from_utf8(bytes)
                .map_or_else(|error| format!("{:x?}", error.as_bytes()), |text| format!("{text:?}"));
            writeln!(shown, "{}{mode} {content}", path.display()).unwrap();
        }
    }
}

/// Returns an error as a peer sees it.
fn describe_error(error: BatchError) -> String {
    let error = Error::from(error);
    let mut data = error.data.unwrap_or_default();
    if let Some(etag) = data.get_mut("etag") {
        *etag = json!("…");
    }
    format!("! {} {} {data}\n", i32::from(error.code), error.message)
}

fn run(options: WorkspaceOptions, script: &str) -> String {
    let shown = run_with(options.clone(), Resolver::Kernel, script);
    assert_eq!(run_with(options, Resolver::Walk, script), shown, "both resolvers agree");
    shown
}

fn run_with(options: WorkspaceOptions, resolver: Resolver, script: &str) -> String {
    let mut project = BatchProject::with_calls(options, DiskCalls::default(), resolver);
    let mut shown = String::new();
    for step in script.lines().map(str::trim).filter(|step| !step.is_empty()) {
        let answer = project.run_step(step).unwrap_or_else(describe_error);
        shown.push_str(&project.shorten(&answer));
    }
    shown
}

fn check(script: &str, expected: Expect) {
    expected.assert_eq(&run(WorkspaceOptions::default(), script));
}
