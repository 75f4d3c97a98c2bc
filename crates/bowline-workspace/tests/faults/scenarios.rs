//! The scenarios for faults: each a state of the disk, an operation, and the files before and after it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_protocol::file_extension::{BatchFilesRequest, FileLimits};
use bowline_storage::disk_calls::DiskCall;
use bowline_text::hash::ContentHash;
use bowline_text::lines::LineWindow;
use bowline_workspace::error::FilesError;
use bowline_workspace::journal::Retention;
use bowline_workspace::workspace::{
    BulkSyncCondition, FileEditError, RiskyWriteBehavior, Workspace, WorkspaceOptions,
};
use serde_json::{Value, json};
use test_support::fixture::delete_file;

use super::fixture::FaultFixture;

const OLD: &str = "one\ntwo\nthree\nfour\nfive\n";
const NEW: &str = "one\n2\nthree\nfour\nfive\nsix\nseven\n";
const SHORT: &str = "one\n2\n";
const OTHER: &str = "alpha\nbeta\n";
// Long enough for SQLite to keep it on overflow pages, and not highly compressible.
const ADDED: &str = include_str!("plan.rs");
// The journal stores this as a delta to the text above.
const EDITED: &str = concat!("// One line more.\n", include_str!("plan.rs"));

/// A file that the operation changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScenarioFile {
    pub(crate) path: &'static str,
    /// The text before; `None` if the file does not exist.
    pub(crate) old: Option<&'static str>,
    /// The text after; `None` if the file does not exist.
    pub(crate) new: Option<&'static str>,
    /// Its mode whenever it exists.
    pub(crate) mode: Option<u32>,
}

/// A directory that the operation creates or removes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScenarioDirectory {
    pub(crate) path: &'static str,
    /// Whether it exists after the operation; before it, the opposite.
    pub(crate) is_created: bool,
}

/// How the operation is reversed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndoDirection {
    Undo,
    Redo,
}

/// The phase in which the faults occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    /// The operation.
    Operation,
    /// The first opening of the workspace, without a journal.
    FirstOpening,
    /// The next opening of the workspace, after the operation was cut off at the first such call, or halfway through it
    /// if it is a write.
    Recovery(DiskCall),
}

/// A scenario to run with faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) target: FaultTarget,
    pub(crate) files: &'static [ScenarioFile],
    pub(crate) directories: &'static [ScenarioDirectory],
    /// The number of files changed first, as an atomic group, before the rest. 0 changes all of them at once.
    pub(crate) first_count: usize,
    /// Another hard link to the first file.
    pub(crate) link: Option<&'static str>,
    /// Changes in the journal before, made through the engine.
    pub(crate) set_up: fn(&FaultFixture, &Workspace),
    /// The preparation in the process that runs the operation: reading files, opening documents.
    pub(crate) prepare: fn(&FaultFixture, &Workspace),
    pub(crate) act: fn(&FaultFixture, &Workspace) -> Result<(), FilesError>,
    pub(crate) direction: UndoDirection,
    pub(crate) selection: fn(&FaultFixture) -> ChangeSelection,
}

impl Scenario {
    pub(crate) fn options(&self) -> WorkspaceOptions {
        let hard_links =
            if self.link.is_some() { RiskyWriteBehavior::Allow } else { RiskyWriteBehavior::Refuse };
        // A reaper still running when the workspace is dropped would close the journal later, or only when the process
        // ends.
        let reap_interval = Duration::from_secs(3600);
        // Small files are large enough here.
        let append_in_place_bytes = 0;
        let mut settings = WorkspaceOptions {
            hard_links,
            reap_interval,
            append_in_place_bytes,
            ..WorkspaceOptions::default()
        };
        if self.name == "batch synced at once" {
            settings.bulk_sync = BulkSyncCondition::Always;
        }
        if self.name == "prune" {
            settings.retention = Retention { max_changes: 2, ..Retention::default() };
        }
        if self.name.ends_with("a large file") {
            // Less than the file, and more than what is appended to it.
            settings.max_write_bytes = LOG.len() as u64 - 1;
        }
        settings
    }

    /// Returns what the journal has as the hash of a text. A file that is too large to be written as a whole is
    /// known by its size and its end.
    pub(crate) fn journal_hash(&self, text: &str) -> ContentHash {
        let size = text.len() as u64;
        if size <= self.options().max_write_bytes {
            return ContentHash::digest(text.as_bytes());
        }
        let start = b"bowline: the size and the end of a large file\0";
        ContentHash::digest(&[&start[..], &size.to_le_bytes(), text.as_bytes()].concat())
    }
}

fn do_nothing(_: &FaultFixture, _: &Workspace) {}

fn second_turn(_: &FaultFixture) -> ChangeSelection {
    ChangeSelection {
        owner: ChangeOwner::Turn { session: "s".into(), turn: 2 },
        ..ChangeSelection::default()
    }
}

fn first_turn(_: &FaultFixture) -> ChangeSelection {
    ChangeSelection {
        owner: ChangeOwner::Turn { session: "s".into(), turn: 1 },
        ..ChangeSelection::default()
    }
}

fn last_change_of_a(lab: &FaultFixture) -> ChangeSelection {
    ChangeSelection { path: Some(lab.path("a.txt")), limit: Some(1), ..ChangeSelection::default() }
}

fn write(
    lab: &FaultFixture,
    workspace: &Workspace,
    turn: u64,
    path: &str,
    text: &str,
) -> Result<(), FilesError> {
    let session = workspace.session("s");
    session.write(&lab.path(path), text, &session.origin(Some(turn), Some("call"))).map(|_| ())
}

fn read_file(lab: &FaultFixture, workspace: &Workspace, path: &str) {
    workspace.session("s").read(&lab.path(path), LineWindow::default()).expect("nothing fails yet");
}

/// A turn that changes a file, creates one and deletes one.
fn change_three_files(lab: &FaultFixture, workspace: &Workspace) {
    let session = workspace.session("s");
    write(lab, workspace, 1, "a.txt", NEW).expect("nothing fails yet");
    write(lab, workspace, 1, "b.txt", ADDED).expect("nothing fails yet");
    delete_file(&session, &lab.path("c.txt"), &session.origin(Some(1), None)).expect("nothing fails yet");
}

fn undo_turn(lab: &FaultFixture, workspace: &Workspace) -> Result<(), FilesError> {
    let session = workspace.session("s");
    session.undo(&first_turn(lab), &session.origin(Some(2), None)).map(|_| ())
}

const REPLACE: Scenario = Scenario {
    name: "replace",
    target: FaultTarget::Operation,
    files: &[ScenarioFile { path: "a.txt", old: Some(OLD), new: Some(NEW), mode: Some(0o640) }],
    directories: &[],
    first_count: 0,
    link: None,
    set_up: do_nothing,
    prepare: |lab, workspace| read_file(lab, workspace, "a.txt"),
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", NEW),
    direction: UndoDirection::Undo,
    selection: second_turn,
};

const EDIT: Scenario = Scenario {
    name: "edit a long text",
    files: &[ScenarioFile { path: "a.txt", old: Some(ADDED), new: Some(EDITED), mode: Some(0o640) }],
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", EDITED),
    ..REPLACE
};

const CREATE: Scenario = Scenario {
    name: "create in new directories",
    files: &[ScenarioFile { path: "new/deep/b.txt", old: None, new: Some(ADDED), mode: None }],
    prepare: do_nothing,
    act: |lab, workspace| write(lab, workspace, 2, "new/deep/b.txt", ADDED),
    ..REPLACE
};

const MERGE: Scenario = Scenario {
    name: "merge",
    files: &[ScenarioFile {
        path: "a.txt",
        old: Some("one\ntwo\nthree\nfour\nFIVE\n"),
        new: Some("ONE\ntwo\nthree\nfour\nFIVE\n"),
        mode: Some(0o644),
    }],
    prepare: |lab, workspace| {
        lab.write_as_user("a.txt", OLD);
        read_file(lab, workspace, "a.txt");
        lab.write_as_user("a.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    },
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", "ONE\ntwo\nthree\nfour\nfive\n"),
    ..REPLACE
};

const GROW: Scenario = Scenario { name: "grow in place", link: Some("link.txt"), ..REPLACE };

const SHRINK: Scenario = Scenario {
    name: "shrink in place",
    files: &[ScenarioFile { path: "a.txt", old: Some(OLD), new: Some(SHORT), mode: Some(0o640) }],
    link: Some("link.txt"),
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", SHORT),
    ..REPLACE
};

const DELETE: Scenario = Scenario {
    name: "delete",
    files: &[ScenarioFile { path: "a.txt", old: Some(OLD), new: None, mode: Some(0o640) }],
    act: |lab, workspace| {
        let session = workspace.session("s");
        delete_file(&session, &lab.path("a.txt"), &session.origin(Some(2), None))
            .map_err(|error| files_error(lab, error))
    },
    ..REPLACE
};

const UNDO: Scenario = Scenario {
    name: "undo a turn",
    files: &[
        ScenarioFile { path: "a.txt", old: Some(NEW), new: Some(OLD), mode: Some(0o640) },
        ScenarioFile { path: "b.txt", old: Some(ADDED), new: None, mode: None },
        ScenarioFile { path: "c.txt", old: None, new: Some(OTHER), mode: Some(0o755) },
    ],
    set_up: |lab, workspace| {
        lab.write_as_user("a.txt", OLD);
        lab.remove_as_user("b.txt");
        lab.write_as_user("c.txt", OTHER);
        lab.set_mode_as_user("c.txt", 0o755);
        change_three_files(lab, workspace);
    },
    prepare: do_nothing,
    act: undo_turn,
    direction: UndoDirection::Redo,
    selection: first_turn,
    ..REPLACE
};

const REDO: Scenario = Scenario {
    name: "redo a turn",
    files: &[
        ScenarioFile { path: "a.txt", old: Some(OLD), new: Some(NEW), mode: Some(0o640) },
        ScenarioFile { path: "b.txt", old: None, new: Some(ADDED), mode: None },
        ScenarioFile { path: "c.txt", old: Some(OTHER), new: None, mode: Some(0o755) },
    ],
    set_up: |lab, workspace| {
        change_three_files(lab, workspace);
        undo_turn(lab, workspace).expect("nothing fails yet");
    },
    act: |lab, workspace| {
        let session = workspace.session("s");
        session.redo(&first_turn(lab), &session.origin(Some(3), None)).map(|_| ())
    },
    direction: UndoDirection::Undo,
    ..UNDO
};

/// The files in the way are removed first, as a group of their own, and then the directory.
const FILE_BACK: Scenario = Scenario {
    name: "undo where a file became a directory",
    files: &[
        ScenarioFile { path: "x/deep/b.txt", old: Some(OTHER), new: None, mode: None },
        ScenarioFile { path: "x/c.txt", old: Some(ADDED), new: None, mode: None },
        ScenarioFile { path: "x", old: None, new: Some(OLD), mode: None },
        ScenarioFile { path: "a.txt", old: Some(NEW), new: Some(OLD), mode: Some(0o640) },
    ],
    first_count: 2,
    set_up: |lab, workspace| {
        lab.remove_all_as_user("x");
        lab.write_as_user("x", OLD);
        lab.write_as_user("a.txt", OLD);
        let session = workspace.session("s");
        write(lab, workspace, 1, "a.txt", NEW).expect("nothing fails yet");
        delete_file(&session, &lab.path("x"), &session.origin(Some(1), None)).expect("nothing fails yet");
        write(lab, workspace, 1, "x/deep/b.txt", OTHER).expect("nothing fails yet");
        write(lab, workspace, 1, "x/c.txt", ADDED).expect("nothing fails yet");
    },
    ..UNDO
};

const DIRECTORY_BACK: Scenario = Scenario {
    name: "undo where a directory became a file",
    files: &[
        ScenarioFile { path: "x", old: Some(NEW), new: None, mode: None },
        ScenarioFile { path: "x/deep/b.txt", old: None, new: Some(OTHER), mode: None },
        ScenarioFile { path: "x/c.txt", old: None, new: Some(ADDED), mode: None },
    ],
    first_count: 1,
    set_up: |lab, workspace| {
        lab.remove_all_as_user("x");
        lab.write_as_user("x/deep/b.txt", OTHER);
        lab.write_as_user("x/c.txt", ADDED);
        let session = workspace.session("s");
        for name in ["x/deep/b.txt", "x/c.txt"] {
            delete_file(&session, &lab.path(name), &session.origin(Some(1), None))
                .expect("nothing fails yet");
        }
        lab.remove_all_as_user("x");
        write(lab, workspace, 1, "x", NEW).expect("nothing fails yet");
    },
    ..UNDO
};

const SAVE: Scenario = Scenario {
    name: "save a document",
    prepare: |lab, workspace| {
        workspace.open_document(&lab.path("a.txt")).expect("nothing fails yet");
        let shown = workspace.document(&lab.path("a.txt")).expect("it is there").expect("it is open");
        workspace.change_document(&lab.path("a.txt"), NEW.to_owned(), shown.revision).expect("it is open");
    },
    act: |lab, workspace| workspace.save_document(&lab.path("a.txt")).map(|_| ()),
    selection: last_change_of_a,
    ..REPLACE
};

const fn created(path: &'static str) -> ScenarioDirectory {
    ScenarioDirectory { path, is_created: true }
}

const fn removed(path: &'static str) -> ScenarioDirectory {
    ScenarioDirectory { path, is_created: false }
}

/// Performs a batch, written as on the wire with paths relative to the project.
fn apply_batch(
    lab: &FaultFixture,
    workspace: &Workspace,
    turn: u64,
    operations: &str,
) -> Result<(), FilesError> {
    let operations: Value =
        serde_json::from_str(&operations.replace('~', &lab.path(""))).expect("it is JSON");
    let request = json!({"sessionId": "s", "operations": operations});
    let request: BatchFilesRequest = serde_json::from_value(request).expect("it is a request");
    let operations = request.into_operations(&FileLimits::default()).expect("they are valid");
    let session = workspace.session("s");
    let origin = session.origin(Some(turn), Some("call"));
    let applied = session.apply_batch(&operations, &origin, None);
    applied.map(drop).map_err(|failed| files_error(lab, *failed.error))
}

fn files_error(lab: &FaultFixture, error: FileEditError) -> FilesError {
    match error {
        FileEditError::Files(error) => error,
        FileEditError::File(error) => {
            FilesError::System { path: lab.path(""), why: io::Error::other(error.to_string()) }
        }
    }
}

const BATCH: Scenario = Scenario {
    name: "batch",
    files: &[
        ScenarioFile { path: "a.txt", old: Some(OLD), new: Some(NEW), mode: Some(0o640) },
        ScenarioFile { path: "c.txt", old: Some(OTHER), new: None, mode: Some(0o755) },
        ScenarioFile { path: "from/deep/m.txt", old: Some(ADDED), new: None, mode: Some(0o600) },
        ScenarioFile { path: "to/deep/m.txt", old: None, new: Some(ADDED), mode: Some(0o600) },
        ScenarioFile { path: "made/n.txt", old: None, new: Some(SHORT), mode: None },
    ],
    directories: &[
        removed("from"),
        removed("from/deep"),
        created("to"),
        created("to/deep"),
        created("made"),
        created("empty"),
    ],
    act: |lab, workspace| {
        let operations = json!([
            {"op": "write", "path": "~a.txt", "data": NEW},
            {"op": "remove", "path": "~c.txt"},
            {"op": "move", "from": "~from", "to": "~to"},
            {"op": "write", "path": "~made/n.txt", "data": SHORT, "createParents": true},
            {"op": "mkdir", "path": "~empty"},
        ]);
        apply_batch(lab, workspace, 2, &operations.to_string())
    },
    ..REPLACE
};

const BULK_SYNC: Scenario = Scenario { name: "batch synced at once", ..BATCH };

/// A batch without files: the journal has no content of it.
const DIRECTORIES: Scenario = Scenario {
    name: "batch of directories",
    files: &[],
    directories: &[removed("from"), removed("from/deep"), created("made"), created("made/deep")],
    set_up: |lab, _| lab.create_directory_as_user("from/deep"),
    prepare: do_nothing,
    act: |lab, workspace| {
        let operations = json!([
            {"op": "remove", "path": "~from", "recursive": true},
            {"op": "mkdir", "path": "~made/deep", "parents": true},
        ]);
        apply_batch(lab, workspace, 2, &operations.to_string())
    },
    ..REPLACE
};

const INSERTED: &str = "one\n1.5\ntwo\nthree\nfour\nfive\n";

const TRANSFERS: Scenario = Scenario {
    name: "batch of copies, bytes and inserted text",
    files: &[
        ScenarioFile { path: "a.txt", old: Some(OLD), new: Some(INSERTED), mode: Some(0o640) },
        ScenarioFile { path: "b.txt", old: Some(OTHER), new: Some(SHORT), mode: Some(0o600) },
        ScenarioFile { path: "copy.txt", old: None, new: Some(OTHER), mode: Some(0o755) },
        ScenarioFile { path: "m.txt", old: Some(ADDED), new: None, mode: Some(0o640) },
        ScenarioFile { path: "over.txt", old: Some(SHORT), new: Some(ADDED), mode: Some(0o640) },
    ],
    set_up: |lab, _| {
        lab.write_as_user("source.txt", OTHER);
        lab.set_mode_as_user("source.txt", 0o755);
    },
    act: |lab, workspace| {
        let operations = json!([
            {"op": "write", "path": "~a.txt", "data": "1.5\n", "mode": "insert", "position": 4},
            {"op": "write", "path": "~b.txt", "data": "b25lCjIK", "encoding": "base64"},
            {"op": "copy", "from": "~source.txt", "to": "~copy.txt"},
            {"op": "move", "from": "~m.txt", "to": "~over.txt", "overwrite": true},
        ]);
        apply_batch(lab, workspace, 2, &operations.to_string())
    },
    ..REPLACE
};

/// The file goes back to its first path with its first text.
const UNDO_MOVE: Scenario = Scenario {
    name: "undo a move between two edits",
    files: &[
        ScenarioFile { path: "a.txt", old: None, new: Some(OLD), mode: Some(0o640) },
        ScenarioFile { path: "b.txt", old: Some(NEW), new: None, mode: Some(0o640) },
    ],
    set_up: |lab, workspace| {
        lab.remove_as_user("b.txt");
        lab.write_as_user("a.txt", OLD);
        lab.set_mode_as_user("a.txt", 0o640);
        write(lab, workspace, 1, "a.txt", SHORT).expect("nothing fails yet");
        let moved = json!([{"op": "move", "from": "~a.txt", "to": "~b.txt"}]);
        apply_batch(lab, workspace, 1, &moved.to_string()).expect("nothing fails yet");
        write(lab, workspace, 1, "b.txt", NEW).expect("nothing fails yet");
    },
    ..UNDO
};

const LOG: &str = "one\ntwo\nthree\nthree and a half\n";
const LOGGED: &str = "one\ntwo\nthree\nthree and a half\nfour and more\n";

fn append_line(lab: &FaultFixture, workspace: &Workspace, turn: u64) -> Result<(), FilesError> {
    let operations = json!([{"op": "write", "path": "~a.txt", "data": "four and more\n", "mode": "append"}]);
    apply_batch(lab, workspace, turn, &operations.to_string())
}

const APPEND: Scenario = Scenario {
    name: "append",
    files: &[ScenarioFile { path: "a.txt", old: Some(LOG), new: Some(LOGGED), mode: Some(0o640) }],
    prepare: do_nothing,
    act: |lab, workspace| append_line(lab, workspace, 2),
    ..REPLACE
};

const UNDO_APPEND: Scenario = Scenario {
    name: "undo an append",
    files: &[ScenarioFile { path: "a.txt", old: Some(LOGGED), new: Some(LOG), mode: Some(0o640) }],
    set_up: |lab, workspace| {
        lab.write_as_user("a.txt", LOG);
        append_line(lab, workspace, 1).expect("nothing fails yet");
    },
    prepare: do_nothing,
    act: undo_turn,
    direction: UndoDirection::Redo,
    selection: first_turn,
    ..REPLACE
};

const UNDO_APPEND_AND_WRITE: Scenario = Scenario {
    name: "undo an append and a write",
    files: &[
        ScenarioFile { path: "a.txt", old: Some(LOGGED), new: Some(LOG), mode: Some(0o640) },
        ScenarioFile { path: "b.txt", old: Some(OTHER), new: None, mode: None },
    ],
    set_up: |lab, workspace| {
        lab.write_as_user("a.txt", LOG);
        lab.remove_as_user("b.txt");
        append_line(lab, workspace, 1).expect("nothing fails yet");
        write(lab, workspace, 1, "b.txt", OTHER).expect("nothing fails yet");
    },
    ..UNDO_APPEND
};

/// Retention prunes old changes when the workspace is opened; the newest can still be undone.
const PRUNE: Scenario = Scenario {
    name: "prune",
    target: FaultTarget::Recovery(DiskCall::CreateTemp),
    set_up: |lab, workspace| {
        for round in 0..6 {
            let text = format!("{round}\n{ADDED}");
            write(lab, workspace, 1, "other.txt", &text).expect("nothing fails yet");
        }
    },
    ..REPLACE
};

/// Returns all scenarios.
pub(crate) fn all_scenarios() -> Vec<Scenario> {
    let recovery =
        |name, scenario: Scenario, call| Scenario { name, target: FaultTarget::Recovery(call), ..scenario };
    vec![
        Scenario { name: "first opening", target: FaultTarget::FirstOpening, ..REPLACE },
        REPLACE,
        EDIT,
        CREATE,
        MERGE,
        GROW,
        SHRINK,
        DELETE,
        UNDO,
        REDO,
        FILE_BACK,
        DIRECTORY_BACK,
        SAVE,
        BATCH,
        BULK_SYNC,
        DIRECTORIES,
        TRANSFERS,
        UNDO_MOVE,
        APPEND,
        UNDO_APPEND,
        UNDO_APPEND_AND_WRITE,
        PRUNE,
        recovery("recover a half-written temporary file", REPLACE, DiskCall::Write),
        recovery("recover before the exchange", REPLACE, DiskCall::Exchange),
        recovery("recover after the exchange", REPLACE, DiskCall::SyncDirectory),
        recovery("recover an edit of a long text", EDIT, DiskCall::SyncDirectory),
        recovery("recover a creation", CREATE, DiskCall::Rename),
        recovery("recover a half-written file", GROW, DiskCall::Write),
        recovery("recover an uncut file", SHRINK, DiskCall::Truncate),
        recovery("recover a deletion", DELETE, DiskCall::SyncDirectory),
        recovery("recover half an undo", UNDO, DiskCall::Exchange),
        recovery("recover half a redo", REDO, DiskCall::Rename),
        recovery("recover a batch before its files", BATCH, DiskCall::CreateTemp),
        recovery("recover half a batch", BATCH, DiskCall::Exchange),
        recovery("recover a batch without its directories", BATCH, DiskCall::Remove),
        recovery("recover half a batch of directories", DIRECTORIES, DiskCall::Remove),
        recovery("recover half a batch of copies", TRANSFERS, DiskCall::Exchange),
        recovery("recover half an undo of a move", UNDO_MOVE, DiskCall::Rename),
        recovery("recover half an append", APPEND, DiskCall::Write),
        recovery("recover an append that is not durable", APPEND, DiskCall::Sync),
        recovery("recover an undo of an append", UNDO_APPEND, DiskCall::Truncate),
        recovery("recover a group with an append", UNDO_APPEND_AND_WRITE, DiskCall::SyncDirectory),
        recovery("recover half an append to a large file", APPEND, DiskCall::Write),
        recovery("recover an undo of an append to a large file", UNDO_APPEND, DiskCall::Truncate),
        recovery("recover half the way to a file", FILE_BACK, DiskCall::Rename),
        recovery("recover half the way to a directory", DIRECTORY_BACK, DiskCall::Rename),
    ]
}

/// Creates the files of a scenario in their first state.
pub(crate) fn create_files(lab: &FaultFixture, scenario: &Scenario) {
    for subject in scenario.files {
        if let Some(old) = subject.old {
            lab.write_as_user(subject.path, old);
        }
        if let (Some(_), Some(mode)) = (subject.old, subject.mode) {
            lab.set_mode_as_user(subject.path, mode);
        }
    }
    if let (Some(link), Some(first)) = (scenario.link, scenario.files.first()) {
        fs::hard_link(lab.path(first.path), lab.path(link)).expect("the lab is writable");
    }
}

impl FaultFixture {
    /// Writes a file as a user's editor does that knows nothing of Bowline.
    pub(crate) fn write_as_user(&self, path: &str, text: &str) {
        let path = PathBuf::from(self.path(path));
        fs::create_dir_all(path.parent().expect("it is in the lab")).expect("the lab is writable");
        fs::write(path, text).expect("the lab is writable");
    }

    fn create_directory_as_user(&self, path: &str) {
        fs::create_dir_all(self.path(path)).expect("the lab is writable");
    }

    /// Removes a file, or a directory with its content.
    fn remove_all_as_user(&self, path: &str) {
        let path = self.path(path);
        fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).expect("the lab is writable");
    }

    fn remove_as_user(&self, path: &str) {
        fs::remove_file(self.path(path)).expect("the lab is writable");
    }

    fn set_mode_as_user(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).expect("the lab is writable");
    }
}
