//! Tests of interactions between parts: documents with writes and undo, observation with the journal and other
//! processes, groups with faults, sessions with roots of their own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::fs;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bowline_history::changes::{ChangeId, ChangeOrigin, Reversal};
use bowline_history::ledger::WriteVerdict;
use bowline_history::observation::RACY_WINDOW_NS;
use bowline_history::undo::{ChangeOwner, ChangeSelection, ReversalDirection};
use bowline_policy::paths::{Access, Protection};
use bowline_storage::disk_calls::{DiskCall, DiskCalls, DiskFaultInjector};
use bowline_text::diff;
use bowline_text::lines::LineWindow;
use bowline_workspace::error::FilesError;
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{
    DocumentEvent, RiskyWriteBehavior, WatchMode, Workspace, WorkspaceNotification, WorkspaceOptions,
    WorkspaceSession, WriteAgreement,
};
use rustix::fs::OFlags;
use tempfile::TempDir;
use test_support::file_clock;
use test_support::fixture::delete_file;

/// A project with one session.
struct SessionProject {
    root: PathBuf,
    workspace: Workspace,
    session: WorkspaceSession,
    scratch: TempDir,
}

impl SessionProject {
    fn new() -> Self {
        Self::with_options(WorkspaceOptions::default(), DiskCalls::default())
    }

    fn with_options(settings: WorkspaceOptions, calls: DiskCalls) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        let workspace = open_workspace(&root, scratch.path(), settings, calls);
        let session = workspace.session("s1");
        Self { root, workspace, session, scratch }
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_owned()
    }

    fn write_file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.root.join(name), bytes).unwrap();
    }

    fn read_escaped(&self, name: &str) -> String {
        fs::read(self.root.join(name)).unwrap().escape_ascii().to_string()
    }

    fn origin(&self) -> ChangeOrigin {
        self.session.origin(Some(1), Some("c1"))
    }

    fn read(&self, name: &str) -> String {
        self.session.read(&self.path(name), LineWindow::default()).unwrap().text.to_string()
    }

    fn write(&self, name: &str, text: &str) -> Option<WriteVerdict> {
        self.session.write(&self.path(name), text, &self.origin()).unwrap().verdict
    }

    /// Replaces the text that an editor shows.
    fn type_over(&self, name: &str, text: &str) {
        let shown = self.workspace.document(&self.path(name)).unwrap().unwrap();
        self.workspace.change_document(&shown.path, text.to_owned(), shown.revision).unwrap();
    }

    fn start_observing(&self) {
        self.workspace
            .start_observing(ObserverOptions::default(), WatchMode::Off, &mut continue_scan)
            .unwrap();
    }

    fn observe(&self) -> Result<usize, FilesError> {
        self.workspace.observe(&self.origin(), &mut continue_scan).map(|observed| observed.changes.len())
    }
}

fn open_workspace(root: &Path, scratch: &Path, settings: WorkspaceOptions, calls: DiskCalls) -> Workspace {
    let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
    Workspace::open_with(roots, &scratch.join("state"), settings, calls).unwrap().workspace
}

fn continue_scan(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn select_session(session: &str) -> ChangeSelection {
    ChangeSelection { owner: ChangeOwner::Session(session.to_owned()), ..ChangeSelection::default() }
}

fn temporary_files(root: &Path) -> Vec<String> {
    let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".bowline-") && name.ends_with(".tmp")).collect()
}

/// An editor's copy of a document, kept up to date by events alone.
struct EditorCopy {
    text: String,
    events: std::sync::mpsc::Receiver<DocumentEvent>,
}

impl EditorCopy {
    fn apply_events(&mut self) -> Vec<u64> {
        let mut revisions = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            let DocumentEvent::Edited { edits, revision, text, .. } = event else { continue };
            self.text = diff::apply_edits(&self.text, &edits).unwrap();
            assert_eq!(self.text, *text);
            revisions.push(revision);
        }
        revisions
    }
}

#[test]
fn document_events_keep_an_editor_in_sync() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n4\n5\n");
    project.start_observing();
    let events = project.workspace.document_events();
    let shown = project.workspace.open_document(&project.path("a")).unwrap();
    let mut copy = EditorCopy { text: shown.text.to_string(), events };
    project.read("a");
    project.write("a", "ONE\n2\n3\n4\n5\n");
    assert_eq!(copy.apply_events(), [1]);
    // The editor's own typing causes no event; a write merged with it does.
    copy.text = "ONE\n2\n3\n4\nfive\n".to_owned();
    project.type_over("a", &copy.text);
    assert!(copy.apply_events().is_empty());
    assert_eq!(project.write("a", "ONE\n2\nTHREE\n4\n5\n"), Some(WriteVerdict::Merged));
    assert_eq!(copy.apply_events(), [3]);
    project.workspace.undo(&select_session("s1")).unwrap();
    assert_eq!(copy.apply_events(), [4]);
    project.write_file("a", "by a command\n");
    project.observe().unwrap();
    assert_eq!(copy.apply_events(), [5]);
    assert_eq!(copy.text, *project.workspace.document(&project.path("a")).unwrap().unwrap().text);
    assert_eq!(project.workspace.open_documents().len(), 1);
    delete_file(&project.session, &project.path("a"), &project.origin()).unwrap_err();
    project.read("a");
    delete_file(&project.session, &project.path("a"), &project.origin()).unwrap();
    assert_eq!(copy.events.try_recv(), Ok(DocumentEvent::FileDeleted { path: project.path("a") }));
}

#[test]
fn typing_that_crosses_a_write_is_merged_with_it() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n");
    let shown = project.workspace.open_document(&project.path("a")).unwrap();
    project.read("a");
    // The edit is in flight when the agent writes.
    let typed = format!("{}typed\n", shown.text);
    project.write("a", "AGENT\n2\n3\n");
    let now = project.workspace.change_document(&shown.path, typed, shown.revision).unwrap();
    assert_eq!(*now.text, "AGENT\n2\n3\ntyped\n");
    project.workspace.save_document(&shown.path).unwrap();
    assert_eq!(project.read_escaped("a"), "AGENT\\n2\\n3\\ntyped\\n");
    let stale = project.workspace.change_document(&shown.path, "x\n2\n3\n".to_owned(), shown.revision);
    assert!(matches!(stale, Err(FilesError::EditRejected { .. })), "{stale:?}");
}

#[test]
fn a_document_is_not_confused_by_a_reused_inode() {
    let project = SessionProject::new();
    project.write_file("a", "text of a\n");
    let number = fs::metadata(project.path("a")).unwrap().ino();
    project.workspace.open_document(&project.path("a")).unwrap();
    project.type_over("a", "unsaved text of a\n");
    project.write_file("other", "text of a\n");
    fs::rename(project.path("other"), project.path("a")).unwrap();
    // Most file systems reuse the inode number for one of the next files; where none does, there is nothing to confuse.
    for at in 0..200 {
        let name = format!("b{at}");
        project.write_file(&name, "text of b\n");
        if fs::metadata(project.path(&name)).unwrap().ino() == number {
            fs::hard_link(project.path(&name), project.path("c")).unwrap();
            assert_eq!(project.read(&name), "text of b\n");
        }
    }
}

#[test]
fn saving_a_removed_file_keeps_its_encoding_and_mode() {
    let project = SessionProject::new();
    let utf16: Vec<u8> = "\u{feff}h\u{e9}llo\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    project.write_file("a", &utf16);
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o640)).unwrap();
    project.workspace.open_document(&project.path("a")).unwrap();
    fs::remove_file(project.path("a")).unwrap();
    project.workspace.save_document(&project.path("a")).unwrap();
    assert_eq!(fs::read(project.path("a")).unwrap(), utf16);
    assert_eq!(fs::metadata(project.path("a")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn nothing_is_saved_for_a_write_that_is_refused() {
    let project = SessionProject::new();
    let latin = b"caf\xe9 au lait, d\xe9j\xe0 vu\nb\nc\nd\n";
    project.write_file("a", latin);
    let shown = project.workspace.open_document(&project.path("a")).unwrap();
    let read = project.read("a");
    project.type_over("a", &format!("{}typed\n", shown.text));
    let refused =
        project.session.write(&project.path("a"), &read.replace("b\n", "\u{4e2d}\n"), &project.origin());
    assert!(matches!(refused, Err(FilesError::Unencodable { .. })), "{refused:?}");
    assert_eq!(fs::read(project.path("a")).unwrap(), latin);
    let preview = project.session.preview_write(&project.path("a"), "\0");
    assert!(preview.is_err(), "what cannot be written cannot be approved: {preview:?}");
}

#[test]
fn a_preview_shows_what_a_write_does_and_does_nothing() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n");
    project.read("a");
    project.write_file("a", "1\n2\nTHREE\n");
    let preview = project.session.preview_write(&project.path("a"), "ONE\n2\n3\n").unwrap();
    assert_eq!(
        (preview.before.unwrap().as_str(), preview.after.as_str()),
        ("1\n2\nTHREE\n", "ONE\n2\nTHREE\n")
    );
    assert_eq!(
        (preview.verdict, project.read_escaped("a").as_str()),
        (Some(WriteVerdict::Merged), "1\\n2\\nTHREE\\n")
    );
    assert_eq!(project.session.preview_write(&project.path("a"), "1\n2\n3\n").unwrap().verdict, None);
    let admitted = project.session.admit(&project.path(".git/hooks/pre-commit"), Access::Write).unwrap();
    assert_eq!((admitted.exists(), admitted.protection()), (false, Some(Protection::VcsHook)));
}

#[test]
fn user_edits_to_a_proposed_write_survive_the_next_write() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n4\n5\n6\n7\n");
    project.read("a");
    let path = project.path("a");
    let origin = project.session.origin(None, None);
    let sent = "ONE\n2\n3\n4\n5\n6\nSEVEN\n";
    let shown = project.session.preview_write(&path, sent).unwrap();
    let edited = std::sync::Arc::new("1\n2\n3\n4\n5\n6\nVII\n".to_owned());
    let write = || {
        project.session.write_with_agreement(
            &path,
            sent,
            &origin,
            Some(WriteAgreement::Edited(&shown, &edited)),
        )
    };
    let written = write().unwrap();
    assert_eq!(written.text, edited);
    assert_eq!(written.notes().len(), 1, "the agent is told: {:?}", written.notes());
    assert_eq!(fs::read_to_string(&path).unwrap(), *edited);
    // Once the file is a different one, the write to it was never approved.
    assert!(matches!(write(), Err(FilesError::ChangedSinceApproval(_))));
    // The agent continues from the text it sent.
    let next = "ONE\n2\n3\nFOUR\n5\n6\nSEVEN\n";
    project.session.write(&path, next, &origin).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\nFOUR\n5\n6\nVII\n");
}

#[test]
fn a_write_is_what_was_agreed_to_or_it_is_not_done() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n");
    let path = project.path("a");
    let origin = project.session.origin(None, None);
    let shown = project.session.preview_write(&path, "ONE\n2\n3\n").unwrap();
    let write = |agreed| project.session.write_with_agreement(&path, "ONE\n2\n3\n", &origin, Some(agreed));
    // The file is edited, replaced by a link, or replaced by another file with the same text.
    let other = |what: &str| {
        matches!(write(WriteAgreement::Preview(&shown)), Err(FilesError::ChangedSinceApproval(_)))
            .then(|| project.read_escaped("a"))
            .unwrap_or_else(|| panic!("{what} went unnoticed"))
    };
    project.write_file("a", "1\n2\nTHREE\n");
    assert_eq!(other("an edit"), "1\\n2\\nTHREE\\n");
    project.write_file("b", "1\n2\n3\n");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("b", &path).unwrap();
    other("a link");
    assert!(matches!(write(WriteAgreement::Path(&path)), Err(FilesError::ChangedSinceApproval(_))));
    std::fs::remove_file(&path).unwrap();
    fs::rename(project.path("b"), &path).unwrap();
    assert_eq!(other("another file"), "1\\n2\\n3\\n");
    write(WriteAgreement::Path(&path)).unwrap();
    assert_eq!(project.read_escaped("a"), "ONE\\n2\\n3\\n");
}

#[test]
fn a_write_is_decided_against_newly_read_windows() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n4\n");
    project.read("a");
    project.write_file("a", "1\nUSER\n3\n4\n");
    for line in [1, 3] {
        let window = LineWindow { line: Some(line), limit: Some(2) };
        project.session.read(&project.path("a"), window).unwrap();
    }
    assert_eq!(project.write("a", "1\n2\n3\n4\n"), Some(WriteVerdict::Replaced));
    assert_eq!(project.read_escaped("a"), "1\\n2\\n3\\n4\\n");
}

#[test]
fn a_file_created_after_a_failed_read_is_not_overwritten() {
    let project = SessionProject::new();
    project.session.read(&project.path("a"), LineWindow::default()).unwrap_err();
    project.write_file("a", "the user's\n");
    let refused = project.session.write(&project.path("a"), "the agent's\n", &project.origin());
    assert!(matches!(refused, Err(FilesError::WriteRejected { .. })), "{refused:?}");
    assert_eq!(project.read_escaped("a"), "the user\\'s\\n");
}

#[test]
fn an_undo_of_ascii_gives_a_latin_file_back() {
    let project = SessionProject::new();
    project.write_file("a", b"d\xe9j\xe0 vu, caf\xe9\nb\nc\nd\n");
    project.read("a");
    project.write("a", "deja vu, cafe\nb\nc\nd\n");
    project.write_file("a", "deja vu, cafe\nb\nc\nd\ne\n");
    project.workspace.undo(&select_session("s1")).unwrap();
    assert_eq!(fs::read(project.path("a")).unwrap(), b"d\xe9j\xe0 vu, caf\xe9\nb\nc\nd\ne\n");
}

#[test]
fn hunks_are_counted_as_undo_counts_them() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n");
    project.read("a");
    project.write("a", "one\n2\nthree\n");
    let hunks = project.workspace.change_hunks(ChangeId(1)).unwrap();
    assert_eq!(hunks.iter().map(|hunk| hunk.new.clone()).collect::<Vec<_>>(), [0..1, 2..3]);
    assert_eq!(project.workspace.change_texts(ChangeId(1)).unwrap().0.as_deref(), Some("1\n2\n3\n"));
    let second = Reversal { change: ChangeId(1), hunks: Some(vec![1]) };
    project
        .workspace
        .undo(&ChangeSelection { change: Some(second.clone()), ..ChangeSelection::default() })
        .unwrap();
    assert_eq!(project.read_escaped("a"), "one\\n2\\n3\\n");
    let again =
        project.workspace.undo(&ChangeSelection { change: Some(second), ..ChangeSelection::default() });
    assert!(matches!(again, Err(FilesError::NothingToUndo("undo"))), "{again:?}");
}

#[test]
fn what_could_not_be_recorded_is_found_again() {
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let project = SessionProject::new();
        project.write_file("a", "one\n");
        project.workspace.start_observing(ObserverOptions::default(), watching, &mut continue_scan).unwrap();
        project.write_file("a", "two two\n");
        project.write_file("new", "new\n");
        file_clock::wait_past(Duration::from_nanos(RACY_WINDOW_NS.cast_unsigned()));
        let elsewhere =
            rusqlite::Connection::open(project.scratch.path().join("state/journal.sqlite")).unwrap();
        elsewhere.execute_batch("ALTER TABLE changes RENAME TO away").unwrap();
        project.observe().unwrap_err();
        elsewhere.execute_batch("ALTER TABLE away RENAME TO changes").unwrap();
        assert_eq!(project.observe().unwrap(), 2, "{watching:?}");
        project.workspace.undo(&select_session("s1")).unwrap();
        assert_eq!(project.read_escaped("a"), "one\\n");
        assert!(!project.root.join("new").exists(), "{watching:?}");
    }
}

#[test]
fn writes_of_another_process_are_not_attributed_to_the_command() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n4\n5\n");
    project.start_observing();
    let other = open_workspace(
        &project.root,
        project.scratch.path(),
        WorkspaceOptions::default(),
        DiskCalls::default(),
    )
    .session("s2");
    other.read(&project.path("a"), LineWindow::default()).unwrap();
    other.write(&project.path("a"), "ONE\n2\n3\n4\n5\n", &other.origin(Some(1), None)).unwrap();
    project.write_file("a", "ONE\n2\n3\n4\n5\ncommand\n");
    assert_eq!(project.observe().unwrap(), 1);
    project.workspace.undo(&select_session("s1")).unwrap();
    assert_eq!(project.read_escaped("a"), "ONE\\n2\\n3\\n4\\n5\\n");
}

#[test]
fn changes_that_cannot_be_undone_are_skipped() {
    let project = SessionProject::new();
    project.write_file("log", vec![b'x'; 3 << 20]);
    project.write_file("a", "one\n");
    project.start_observing();
    project.read("a");
    project.write("a", "two\n");
    project.write_file("log", vec![b'y'; (3 << 20) + 1]);
    project.observe().unwrap();
    let taken = project.workspace.undo(&select_session("s1")).unwrap();
    assert_eq!((project.read_escaped("a").as_str(), taken.skipped), ("one\\n", vec![ChangeId(2)]));
    let alone = ChangeSelection { path: Some(project.path("log")), ..ChangeSelection::default() };
    let refused = project.workspace.undo(&alone).unwrap_err().to_string();
    assert!(refused.ends_with("its text is not kept"), "{refused}");
}

#[test]
fn a_scan_keeps_neither_reads_nor_other_processes_waiting() {
    let project = SessionProject::new();
    for at in 0..1100 {
        project.write_file(&format!("{at}"), "x\n");
    }
    let workspace = project.workspace.clone();
    let mut others = Vec::new();
    workspace
        .start_observing(ObserverOptions::default(), WatchMode::Off, &mut |_| {
            others.push(open_workspace(
                &project.root,
                project.scratch.path(),
                WorkspaceOptions::default(),
                DiskCalls::default(),
            ));
            assert_eq!(project.read("1"), "x\n");
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(!others.is_empty());
}

/// Records the modes of temporary files at each call of one kind.
struct TempModeRecorder {
    at: DiskCall,
    root: OnceLock<PathBuf>,
    modes: Mutex<Vec<u32>>,
}

impl DiskFaultInjector for TempModeRecorder {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        if let (true, Some(root)) = (call == self.at, self.root.get()) {
            let modes = temporary_files(root);
            let modes = modes.iter().map(|name| fs::metadata(root.join(name)).unwrap().mode() & 0o777);
            self.modes.lock().unwrap().extend(modes);
        }
        Ok(bytes)
    }
}

#[test]
fn a_restored_secret_is_never_readable_by_others() {
    let look =
        Arc::new(TempModeRecorder { at: DiskCall::SetMode, root: OnceLock::new(), modes: Mutex::default() });
    let project =
        SessionProject::with_options(WorkspaceOptions::default(), DiskCalls::with_injector(look.clone()));
    project.write_file(".env", "KEY=secret\n");
    fs::set_permissions(project.path(".env"), PermissionsExt::from_mode(0o600)).unwrap();
    delete_file(&project.session, &project.path(".env"), &project.origin()).unwrap();
    look.root.set(project.root.clone()).unwrap();
    project.workspace.undo(&select_session("s1")).unwrap();
    assert_eq!(*look.modes.lock().unwrap(), [0o600]);
}

/// Fails the next call of one kind, once armed.
struct FailNextCall {
    call: DiskCall,
    armed: AtomicBool,
    failed: AtomicUsize,
}

impl DiskFaultInjector for FailNextCall {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        if call == self.call && self.armed.swap(false, Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(28));
        }
        Ok(bytes)
    }
}

#[test]
fn a_failed_group_leaves_the_original_files() {
    let fail = Arc::new(FailNextCall {
        call: DiskCall::CreateTemp,
        armed: AtomicBool::new(false),
        failed: AtomicUsize::new(0),
    });
    let project =
        SessionProject::with_options(WorkspaceOptions::default(), DiskCalls::with_injector(fail.clone()));
    project.write_file("z", "old\n");
    project.read("z");
    project.write("z", "new\n");
    project.write("a", "made\n");
    let before = fs::metadata(project.path("a")).unwrap();
    fail.armed.store(true, Ordering::Relaxed);
    // The newest change comes first: `a` is removed, then writing `z` fails.
    project.workspace.undo(&select_session("s1")).unwrap_err();
    assert_eq!(fail.failed.load(Ordering::Relaxed), 1);
    let after = fs::metadata(project.path("a")).unwrap();
    assert_eq!(
        (after.ino(), project.read_escaped("z").as_str()),
        (before.ino(), "new\\n"),
        "it is the same file"
    );
    assert_eq!(temporary_files(&project.root), Vec::<String>::new());
}

#[test]
fn a_file_that_was_made_read_only_can_be_made_writable_again() {
    let project = SessionProject::new();
    project.write_file("a", "x\n");
    project.start_observing();
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o444)).unwrap();
    project.observe().unwrap();
    project.workspace.undo(&select_session("s1")).unwrap();
    assert_eq!(fs::metadata(project.path("a")).unwrap().mode() & 0o777, 0o644);
    let hidden = project.path(".bowline-0123456789abcdef0123456789abcdef.tmp");
    let refused = project.session.write(&hidden, "x\n", &project.origin()).unwrap_err();
    assert!(refused.to_string().contains("choose another name"), "{refused}");
}

#[test]
fn the_mode_of_a_file_with_two_names_comes_back() {
    let project = SessionProject::with_options(
        WorkspaceOptions { hard_links: RiskyWriteBehavior::Allow, ..WorkspaceOptions::default() },
        DiskCalls::default(),
    );
    project.write_file("a", "x\n");
    fs::hard_link(project.path("a"), project.path("b")).unwrap();
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o644)).unwrap();
    project.start_observing();
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o755)).unwrap();
    project.observe().unwrap();
    let file = ChangeSelection { path: Some(project.path("a")), ..ChangeSelection::default() };
    project.workspace.undo(&file).unwrap();
    assert_eq!(fs::metadata(project.path("b")).unwrap().mode() & 0o777, 0o644);
}

/// Replaces a file right before it is exchanged.
struct SwapBeforeExchange {
    root: OnceLock<PathBuf>,
    done: AtomicBool,
    into: fn(&Path),
}

impl DiskFaultInjector for SwapBeforeExchange {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        if let (DiskCall::Exchange, Some(root)) = (call, self.root.get())
            && !self.done.swap(true, Ordering::Relaxed)
        {
            fs::remove_file(root.join("a")).unwrap();
            (self.into)(&root.join("a"));
        }
        Ok(bytes)
    }
}

#[test]
fn a_directory_or_link_swapped_in_before_a_write_stays() {
    let make_directory = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("inner"), "the user's\n").unwrap();
    };
    let make_link = |path: &Path| std::os::unix::fs::symlink("../elsewhere", path).unwrap();
    for into in [make_directory, make_link] {
        let swap = Arc::new(SwapBeforeExchange { root: OnceLock::new(), done: AtomicBool::new(false), into });
        let project =
            SessionProject::with_options(WorkspaceOptions::default(), DiskCalls::with_injector(swap.clone()));
        project.write_file("a", "old\n");
        project.read("a");
        swap.root.set(project.root.clone()).unwrap();
        project.session.write(&project.path("a"), "new\n", &project.origin()).unwrap_err();
        assert!(swap.done.load(Ordering::Relaxed));
        let there = fs::symlink_metadata(project.path("a")).unwrap();
        assert!(there.is_symlink() || fs::read(project.root.join("a/inner")).unwrap() == b"the user's\n");
        assert_eq!(temporary_files(&project.root), Vec::<String>::new());
        assert!(!project.scratch.path().join("elsewhere").exists());
    }
}

/// Saves the file right before one kind of call: to the old file, if it has been displaced.
struct LateSave {
    at: DiskCall,
    root: OnceLock<PathBuf>,
    append: bool,
}

impl DiskFaultInjector for LateSave {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        // Only once: a marker file shows that it is still to be done.
        let Some(root) = self.root.get().filter(|_| call == self.at) else { return Ok(bytes) };
        let late = root.join("late");
        if fs::remove_file(&late).is_ok() {
            let displaced = temporary_files(root).pop().filter(|_| call != DiskCall::CreateTemp);
            let path = root.join(displaced.unwrap_or_else(|| "a".to_owned()));
            let mut file = fs::OpenOptions::new().write(true).append(self.append).open(path).unwrap();
            file.write_all(b"late\n").unwrap();
        }
        Ok(bytes)
    }
}

/// Returns a project whose file `a` is saved while it is being displaced.
fn project_with_late_save(at: DiskCall, append: bool) -> SessionProject {
    let save = Arc::new(LateSave { at, root: OnceLock::new(), append });
    let project =
        SessionProject::with_options(WorkspaceOptions::default(), DiskCalls::with_injector(save.clone()));
    project.write_file("a", "1\n2\n3\n4\n");
    project.write_file("late", "");
    project.read("a");
    save.root.set(project.root.clone()).unwrap();
    project
}

#[test]
fn a_late_write_is_merged() {
    for at in [DiskCall::CreateTemp, DiskCall::SyncDirectory, DiskCall::Rename] {
        let project = project_with_late_save(at, true);
        project.write("a", "ONE\n2\n3\n4\n");
        assert!(!project.root.join("late").exists(), "{at:?}");
        project.workspace.merge_displaced();
        assert_eq!(project.read_escaped("a"), "ONE\\n2\\n3\\n4\\nlate\\n", "{at:?}");
        project.workspace.undo(&select_session("s1")).unwrap();
        assert_eq!(project.read_escaped("a"), "1\\n2\\n3\\n4\\nlate\\n", "{at:?}: it is the user's");
        assert_eq!(temporary_files(&project.root), Vec::<String>::new());
    }
}

#[test]
fn an_unmergeable_late_write_is_reported_and_can_be_restored() {
    // Not at the end, but in the lines that the agent changes.
    let project = project_with_late_save(DiskCall::SyncDirectory, false);
    let mut news = project.workspace.subscribe();
    let written = project.session.write(&project.path("a"), "ONE\nTWO\n3\n4\n", &project.origin()).unwrap();
    assert_eq!(project.read_escaped("a"), "ONE\\nTWO\\n3\\n4\\n");
    let mut told = Vec::new();
    project.workspace.report_kept_texts(|text| told.push(text.clone()));
    assert_eq!(told, written.kept_texts, "the answer and the user are told of the same");
    let [kept] = told.as_slice() else { panic!("{told:?}") };
    assert!(news.try_recv().is_ok_and(|news| news == WorkspaceNotification::TextsKept));
    project.workspace.report_kept_texts(|text| panic!("{text} was told of before"));
    assert_eq!(project.workspace.kept_text(kept.change).unwrap().unwrap(), b"late\n\n4\n");
    assert_eq!(project.workspace.kept_texts().unwrap().len(), 1);
    let restore = Some(Reversal { change: kept.change, hunks: None });
    project.workspace.undo(&ChangeSelection { change: restore, ..ChangeSelection::default() }).unwrap();
    assert_eq!(project.read_escaped("a"), "late\\n\\n4\\n");
    assert_eq!(project.workspace.kept_texts().unwrap(), []);
}

/// Writes a text to a file at the first call, from the n-th on, at which a program can open it.
struct AgentCopyAtCall {
    calls: AtomicUsize,
    nth: usize,
    file: OnceLock<PathBuf>,
    done: AtomicBool,
}

const SENT_TEXT: &str = "ONE\n2\n3\n";

impl DiskFaultInjector for AgentCopyAtCall {
    fn before_call(&self, _: DiskCall, bytes: usize) -> io::Result<usize> {
        let Some(file) = self.file.get() else { return Ok(bytes) };
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.nth && !self.done.load(Ordering::Relaxed) {
            // While the engine holds a lease, a program that opens the file blocks.
            let mut options = fs::OpenOptions::new();
            options.write(true).truncate(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            if let Ok(mut file) = options.open(file) {
                file.write_all(SENT_TEXT.as_bytes())?;
                self.done.store(true, Ordering::Relaxed);
            }
        }
        Ok(bytes)
    }
}

/// An agent that asks the engine to write a text may write it to the disk itself, at any moment.
#[test]
fn unsaved_text_survives_the_agents_own_write() {
    for nth in 0.. {
        let copy = Arc::new(AgentCopyAtCall {
            calls: AtomicUsize::new(0),
            nth,
            file: OnceLock::new(),
            done: AtomicBool::new(false),
        });
        let project =
            SessionProject::with_options(WorkspaceOptions::default(), DiskCalls::with_injector(copy.clone()));
        project.write_file("a", "1\n2\n3\n");
        project.workspace.open_document(&project.path("a")).unwrap();
        project.type_over("a", "1\n2\n3\nunsaved\n");
        project.start_observing();
        copy.file.set(project.root.join("a")).unwrap();
        project.write("a", SENT_TEXT);
        let came = copy.done.load(Ordering::Relaxed);
        project.workspace.merge_displaced();
        project.observe().unwrap();
        assert_eq!(project.read_escaped("a"), "ONE\\n2\\n3\\nunsaved\\n", "the copy came at call {nth}");
        let document = project.workspace.document(&project.path("a")).unwrap().unwrap();
        assert_eq!(document.text.as_str(), "ONE\n2\n3\nunsaved\n", "the copy came at call {nth}");
        if !came {
            assert!(nth > 10, "the write makes more calls than that");
            return;
        }
    }
}

#[test]
fn a_session_reaches_the_roots_it_was_given_and_no_other_does() {
    let project = SessionProject::new();
    let extra = project.scratch.path().canonicalize().unwrap().join("extra");
    fs::create_dir(&extra).unwrap();
    fs::write(extra.join("e"), "extra\n").unwrap();
    let extra_file = extra.join("e").to_str().unwrap().to_owned();
    let cwd = RootSpec::writable(project.root.to_str().unwrap());
    let given = |mode: fn(String) -> RootSpec| {
        let roots = Roots::open(&cwd, &[mode(extra.to_str().unwrap().to_owned())]).unwrap();
        project.workspace.session_with_roots("s2", roots)
    };
    let refused = project.session.read(&extra_file, LineWindow::default()).unwrap_err();
    assert!(matches!(refused, FilesError::NotAdmitted(_)), "{refused:?}");
    let reader = given(RootSpec::read_only);
    assert_eq!(*reader.read(&extra_file, LineWindow::default()).unwrap().text, "extra\n");
    reader.write(&extra_file, "x\n", &ChangeOrigin::default()).unwrap_err();
    let writer = given(RootSpec::writable);
    writer.write(&extra_file, "changed\n", &writer.origin(Some(1), None)).unwrap();
    let patch = project.workspace.diff(&select_session("s2")).unwrap();
    assert!(patch.starts_with(&format!("diff --git a{extra_file} b{extra_file}\n")), "{patch}");
    writer.undo(&select_session("s2"), &ChangeOrigin::default()).unwrap();
    assert_eq!(fs::read(&extra_file).unwrap(), b"extra\n");
    // The journal is out of reach, whichever root it is in.
    let state = project.scratch.path().canonicalize().unwrap().join("state/journal.sqlite");
    let all = Roots::open(&RootSpec::writable(project.scratch.path().to_str().unwrap()), &[]).unwrap();
    let everywhere = project.workspace.session_with_roots("s3", all);
    let own = everywhere.read(state.to_str().unwrap(), LineWindow::default()).unwrap_err();
    assert!(own.to_string().contains("belongs to Bowline itself"), "{own}");
}

#[test]
fn git_applies_what_diff_says() {
    let project = SessionProject::new();
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(&project.root).output().expect("git");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let files: &[(&str, &[u8], &str)] = &[
        ("plain.txt", b"1\n2\n3\n", "1\ntwo\n3\n"),
        ("crlf.txt", b"1\r\n2\r\n", "1\ntwo\n"),
        ("mixed.txt", b"1\r\n2\n3\r\n", "1\n2\n3\n4\n"),
        ("no-end.txt", b"1\n2", "1\n2\n"),
        ("bom.txt", b"\xef\xbb\xbf1\n2\n", "one\n2\n"),
        ("empty.txt", b"", "not empty\n"),
        ("with \"quotes\" and \u{e9}.txt", b"1\n", "2\n"),
    ];
    for (name, bytes, _) in files {
        project.write_file(name, bytes);
    }
    project.start_observing();
    for (name, _, text) in files {
        project.read(name);
        project.write(name, text);
    }
    project.write("new/deep.txt", "new\n");
    project.write_file("run.sh", "#!/bin/sh\n");
    fs::set_permissions(project.path("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    project.observe().unwrap();
    let patch = project.workspace.diff(&ChangeSelection::default()).unwrap();
    fs::write(project.scratch.path().join("patch"), &patch).unwrap();
    let reversed = git(&["apply", "--check", "-R", "--whitespace=nowarn", "../patch"]);
    assert!(reversed.0, "{}\n{patch}", reversed.1);
    project.workspace.undo(&ChangeSelection::default()).unwrap();
    let forward = git(&["apply", "--check", "--whitespace=nowarn", "../patch"]);
    assert!(forward.0, "{}\n{patch}", forward.1);
}

#[test]
fn an_undo_preview_matches_the_undo() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n4\n5\n");
    project.write_file("b", "x\n");
    project.write("a", "ONE\n2\n3\n4\nFIVE\n");
    project.write("b", "y\n");
    project.write("c", "new\n");
    project.write_file("a", "ONE\n2\n3\nfour\nFIVE\n6\n");
    let show = |selection: &ChangeSelection| {
        let foresight = project.workspace.preview_undo(ReversalDirection::Undo, selection).unwrap();
        assert_eq!(foresight.skipped, []);
        let shown = foresight.files.into_iter().map(|file| {
            let patch = file.patch.unwrap_or_else(|error| format!("! {error}\n"));
            let changes: Vec<String> = file.changes.iter().map(ToString::to_string).collect();
            format!(
                "{}: {}\n{patch}",
                file.path.replace(project.root.to_str().unwrap(), ""),
                changes.join(" ")
            )
        });
        shown.collect::<String>().replace(project.root.to_str().unwrap(), "")
    };
    // The user changed a line next to one of the agent's.
    expect_test::expect![[r#"
        /c: 3
        diff --git a/c b/c
        deleted file mode 100644
        --- a/c
        +++ /dev/null
        @@ -1 +0,0 @@
        -new
        /b: 2
        diff --git a/b b/b
        --- a/b
        +++ b/b
        @@ -1 +1 @@
        -y
        +x
        /a: 1
        ! cannot take back change 1 of /a: its lines were changed since: conflicting changes in 1 place, first at line 4
    "#]].assert_eq(&show(&select_session("s1")));
    let hunk = ChangeSelection {
        change: Some(Reversal { change: ChangeId(1), hunks: Some(vec![0]) }),
        ..ChangeSelection::default()
    };
    expect_test::expect![[r#"
        /a: 1
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,4 +1,4 @@
        -ONE
        +1
         2
         3
         four
    "#]]
    .assert_eq(&show(&hunk));
    assert_eq!(project.read_escaped("a"), r"ONE\n2\n3\nfour\nFIVE\n6\n");
    project.workspace.undo(&hunk).unwrap();
    assert_eq!(project.read_escaped("a"), r"1\n2\n3\nfour\nFIVE\n6\n");
    let redo = project
        .workspace
        .preview_undo(
            ReversalDirection::Redo,
            &ChangeSelection { limit: Some(1), ..ChangeSelection::default() },
        )
        .unwrap();
    assert_eq!(redo.files.len(), 1);
    assert!(matches!(
        project.workspace.preview_undo(ReversalDirection::Undo, &select_session("unknown")),
        Err(FilesError::NothingToUndo("undo"))
    ));
}

#[test]
fn hunks_are_shown_as_patches_of_their_own() {
    let project = SessionProject::new();
    project.write_file("a", "1\n2\n3\n4\n5\n");
    project.write("a", "ONE\n2\n3\n4\nFIVE\n");
    project.write("b", "new\n");
    let show = |change, hunks: &[usize]| match project.workspace.diff_hunks(ChangeId(change), hunks) {
        Ok(patch) => patch,
        Err(error) => format!("! {error}\n").replace(project.root.to_str().unwrap(), ""),
    };
    let shown = [show(1, &[0]), show(1, &[1]), show(1, &[0, 1]), show(2, &[0]), show(1, &[2]), show(9, &[0])];
    expect_test::expect![[r#"
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,4 +1,4 @@
        -1
        +ONE
         2
         3
         4
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -2,4 +2,4 @@
         2
         3
         4
        -5
        +FIVE
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,5 +1,5 @@
        -1
        +ONE
         2
         3
         4
        -5
        +FIVE
        diff --git a/b b/b
        new file mode 100644
        --- /dev/null
        +++ b/b
        @@ -0,0 +1 @@
        +new
        ! cannot take back change 1 of /a: no hunk 2: the change has 2, numbered from 0
        ! there is no change 9
    "#]]
    .assert_eq(&shown.concat());
    let files = project.workspace.diff_files(&select_session("s1")).unwrap();
    assert_eq!(
        files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(),
        [project.path("a"), project.path("b")]
    );
    let all: String = files.into_iter().map(|file| file.patch).collect();
    assert_eq!(all, project.workspace.diff(&select_session("s1")).unwrap());
}
