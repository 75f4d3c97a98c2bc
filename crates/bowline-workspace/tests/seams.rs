//! Where the parts meet: documents with writes and undo, observation with journal and other processes, groups with
//! faults, sessions with roots of their own.

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

use bowline_state::changes::{ChangeId, Origin, Reversal};
use bowline_state::diff;
use bowline_state::ledger::Verdict;
use bowline_state::lines::Window;
use bowline_state::observation::RACY_WINDOW_NS;
use bowline_state::paths::{Access, Protection};
use bowline_state::undo::{Direction, Selection, Who};
use bowline_workspace::calls::{Call, Calls, Gate};
use bowline_workspace::error::FilesError;
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{
    Agreed, DocumentEvent, Guard, Session, Settings, SharedNews, Watching, Workspace,
};
use rustix::fs::OFlags;
use tempfile::TempDir;
use test_support::file_clock;

/// A project with one session.
struct Project {
    root: PathBuf,
    workspace: Workspace,
    session: Session,
    scratch: TempDir,
}

impl Project {
    fn new() -> Self {
        Self::with(Settings::default(), Calls::default())
    }

    fn with(settings: Settings, calls: Calls) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        let workspace = open(&root, scratch.path(), settings, calls);
        let session = workspace.session("s1");
        Self { root, workspace, session, scratch }
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_owned()
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.root.join(name), bytes).unwrap();
    }

    fn get(&self, name: &str) -> String {
        fs::read(self.root.join(name)).unwrap().escape_ascii().to_string()
    }

    fn origin(&self) -> Origin {
        self.session.origin(Some(1), Some("c1"))
    }

    fn read(&self, name: &str) -> String {
        self.session.read(&self.path(name), Window::default()).unwrap().text.to_string()
    }

    fn write(&self, name: &str, text: &str) -> Option<Verdict> {
        self.session.write(&self.path(name), text, &self.origin()).unwrap().verdict
    }

    /// Types over what an editor sees.
    fn type_over(&self, name: &str, text: &str) {
        let shown = self.workspace.document(&self.path(name)).unwrap().unwrap();
        self.workspace.change_document(&shown.path, text.to_owned(), shown.revision).unwrap();
    }

    fn watch_out(&self) {
        self.workspace.start_observing(ObserverOptions::default(), Watching::No, &mut go_on).unwrap();
    }

    fn observe(&self) -> Result<usize, FilesError> {
        self.workspace.observe(&self.origin(), &mut go_on).map(|observed| observed.changes.len())
    }
}

fn open(root: &Path, scratch: &Path, settings: Settings, calls: Calls) -> Workspace {
    let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
    Workspace::open_with(roots, &scratch.join("state"), settings, calls).unwrap().workspace
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn of_session(session: &str) -> Selection {
    Selection { who: Who::Session(session.to_owned()), ..Selection::default() }
}

fn temporary_files(root: &Path) -> Vec<String> {
    let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".bowline-") && name.ends_with(".tmp")).collect()
}

/// An editor's copy of a document, kept up to date by events alone.
struct Copy {
    text: String,
    events: std::sync::mpsc::Receiver<DocumentEvent>,
}

impl Copy {
    fn follow(&mut self) -> Vec<u64> {
        let mut revisions = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            let DocumentEvent::Edited { edits, revision, text, .. } = event else { continue };
            self.text = diff::apply(&self.text, &edits).unwrap();
            assert_eq!(self.text, *text);
            revisions.push(revision);
        }
        revisions
    }
}

#[test]
fn events_lead_from_what_an_editor_shows_to_what_the_document_holds() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n4\n5\n");
    project.watch_out();
    let events = project.workspace.document_events();
    let shown = project.workspace.open_document(&project.path("a")).unwrap();
    let mut copy = Copy { text: shown.text.to_string(), events };
    project.read("a");
    project.write("a", "ONE\n2\n3\n4\n5\n");
    assert_eq!(copy.follow(), [1]);
    // The editor's own typing is no event; a write that is merged with it is one.
    copy.text = "ONE\n2\n3\n4\nfive\n".to_owned();
    project.type_over("a", &copy.text);
    assert!(copy.follow().is_empty());
    assert_eq!(project.write("a", "ONE\n2\nTHREE\n4\n5\n"), Some(Verdict::Merged));
    assert_eq!(copy.follow(), [3]);
    project.workspace.undo(&of_session("s1")).unwrap();
    assert_eq!(copy.follow(), [4]);
    project.put("a", "by a command\n");
    project.observe().unwrap();
    assert_eq!(copy.follow(), [5]);
    assert_eq!(copy.text, *project.workspace.document(&project.path("a")).unwrap().unwrap().text);
    assert_eq!(project.workspace.open_documents().len(), 1);
    project.session.delete(&project.path("a"), &project.origin()).unwrap_err();
    project.read("a");
    project.session.delete(&project.path("a"), &project.origin()).unwrap();
    assert_eq!(copy.events.try_recv(), Ok(DocumentEvent::FileGone { path: project.path("a") }));
}

#[test]
fn typing_that_crosses_a_write_is_merged_with_it() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n");
    let shown = project.workspace.open_document(&project.path("a")).unwrap();
    project.read("a");
    // It is on its way when the agent writes.
    let typed = format!("{}typed\n", shown.text);
    project.write("a", "AGENT\n2\n3\n");
    let now = project.workspace.change_document(&shown.path, typed, shown.revision).unwrap();
    assert_eq!(*now.text, "AGENT\n2\n3\ntyped\n");
    project.workspace.save_document(&shown.path).unwrap();
    assert_eq!(project.get("a"), "AGENT\\n2\\n3\\ntyped\\n");
    let stale = project.workspace.change_document(&shown.path, "x\n2\n3\n".to_owned(), shown.revision);
    assert!(matches!(stale, Err(FilesError::Untaken { .. })), "{stale:?}");
}

#[test]
fn a_document_does_not_answer_for_a_file_that_got_its_files_number() {
    let project = Project::new();
    project.put("a", "text of a\n");
    let number = fs::metadata(project.path("a")).unwrap().ino();
    project.workspace.open_document(&project.path("a")).unwrap();
    project.type_over("a", "unsaved text of a\n");
    project.put("other", "text of a\n");
    fs::rename(project.path("other"), project.path("a")).unwrap();
    // Most file systems give the number to one of the next files; where none does, there is nothing to confuse.
    for at in 0..200 {
        let name = format!("b{at}");
        project.put(&name, "text of b\n");
        if fs::metadata(project.path(&name)).unwrap().ino() == number {
            fs::hard_link(project.path(&name), project.path("c")).unwrap();
            assert_eq!(project.read(&name), "text of b\n");
        }
    }
}

#[test]
fn a_document_whose_file_is_away_is_saved_as_it_was() {
    let project = Project::new();
    let utf16: Vec<u8> = "\u{feff}h\u{e9}llo\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    project.put("a", &utf16);
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o640)).unwrap();
    project.workspace.open_document(&project.path("a")).unwrap();
    fs::remove_file(project.path("a")).unwrap();
    project.workspace.save_document(&project.path("a")).unwrap();
    assert_eq!(fs::read(project.path("a")).unwrap(), utf16);
    assert_eq!(fs::metadata(project.path("a")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn nothing_is_saved_for_a_write_that_is_refused() {
    let project = Project::new();
    let latin = b"caf\xe9 au lait, d\xe9j\xe0 vu\nb\nc\nd\n";
    project.put("a", latin);
    let shown = project.workspace.open_document(&project.path("a")).unwrap();
    let read = project.read("a");
    project.type_over("a", &format!("{}typed\n", shown.text));
    let refused =
        project.session.write(&project.path("a"), &read.replace("b\n", "\u{4e2d}\n"), &project.origin());
    assert!(matches!(refused, Err(FilesError::Unencodable { .. })), "{refused:?}");
    assert_eq!(fs::read(project.path("a")).unwrap(), latin);
    let preview = project.session.preview(&project.path("a"), "\0");
    assert!(preview.is_err(), "what cannot be written cannot be approved: {preview:?}");
}

#[test]
fn a_preview_shows_what_a_write_does_and_does_nothing() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n");
    project.read("a");
    project.put("a", "1\n2\nTHREE\n");
    let preview = project.session.preview(&project.path("a"), "ONE\n2\n3\n").unwrap();
    assert_eq!(
        (preview.before.unwrap().as_str(), preview.after.as_str()),
        ("1\n2\nTHREE\n", "ONE\n2\nTHREE\n")
    );
    assert_eq!((preview.verdict, project.get("a").as_str()), (Some(Verdict::Merged), "1\\n2\\nTHREE\\n"));
    assert_eq!(project.session.preview(&project.path("a"), "1\n2\n3\n").unwrap().verdict, None);
    let admitted = project.session.admit(&project.path(".git/hooks/pre-commit"), Access::Write).unwrap();
    assert_eq!((admitted.exists(), admitted.protection()), (false, Some(Protection::Hook)));
}

#[test]
fn what_a_person_made_of_a_write_outlasts_the_next_one() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n4\n5\n6\n7\n");
    project.read("a");
    let path = project.path("a");
    let origin = project.session.origin(None, None);
    let sent = "ONE\n2\n3\n4\n5\n6\nSEVEN\n";
    let shown = project.session.preview(&path, sent).unwrap();
    let edited = std::sync::Arc::new("1\n2\n3\n4\n5\n6\nVII\n".to_owned());
    let write =
        || project.session.write_as_agreed(&path, sent, &origin, Some(Agreed::Edited(&shown, &edited)));
    let written = write().unwrap();
    assert_eq!(written.text, edited);
    assert_eq!(written.notes().len(), 1, "the agent is told: {:?}", written.notes());
    assert_eq!(fs::read_to_string(&path).unwrap(), *edited);
    // Once the file is another one, nobody has seen what would become of it.
    assert!(matches!(write(), Err(FilesError::NotAsAgreed(_))));
    // The agent goes on from what it sent.
    let next = "ONE\n2\n3\nFOUR\n5\n6\nSEVEN\n";
    project.session.write(&path, next, &origin).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\nFOUR\n5\n6\nVII\n");
}

#[test]
fn a_write_is_what_was_agreed_to_or_it_is_not_done() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n");
    let path = project.path("a");
    let origin = project.session.origin(None, None);
    let shown = project.session.preview(&path, "ONE\n2\n3\n").unwrap();
    let write = |agreed| project.session.write_as_agreed(&path, "ONE\n2\n3\n", &origin, Some(agreed));
    // Somebody edits it, replaces it by a link, or puts another file with the same text in its place.
    let other = |what: &str| {
        matches!(write(Agreed::Shown(&shown)), Err(FilesError::NotAsAgreed(_)))
            .then(|| project.get("a"))
            .unwrap_or_else(|| panic!("{what} went unnoticed"))
    };
    project.put("a", "1\n2\nTHREE\n");
    assert_eq!(other("an edit"), "1\\n2\\nTHREE\\n");
    project.put("b", "1\n2\n3\n");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("b", &path).unwrap();
    other("a link");
    assert!(matches!(write(Agreed::Path(&path)), Err(FilesError::NotAsAgreed(_))));
    std::fs::remove_file(&path).unwrap();
    fs::rename(project.path("b"), &path).unwrap();
    assert_eq!(other("another file"), "1\\n2\\n3\\n");
    write(Agreed::Path(&path)).unwrap();
    assert_eq!(project.get("a"), "ONE\\n2\\n3\\n");
}

#[test]
fn who_reads_a_newer_text_in_windows_writes_against_that() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n4\n");
    project.read("a");
    project.put("a", "1\nUSER\n3\n4\n");
    for line in [1, 3] {
        let window = Window { line: Some(line), limit: Some(2) };
        project.session.read(&project.path("a"), window).unwrap();
    }
    assert_eq!(project.write("a", "1\n2\n3\n4\n"), Some(Verdict::Replaced));
    assert_eq!(project.get("a"), "1\\n2\\n3\\n4\\n");
}

#[test]
fn who_saw_that_there_is_nothing_does_not_overwrite_what_came_since() {
    let project = Project::new();
    project.session.read(&project.path("a"), Window::default()).unwrap_err();
    project.put("a", "the user's\n");
    let refused = project.session.write(&project.path("a"), "the agent's\n", &project.origin());
    assert!(matches!(refused, Err(FilesError::Rejected { .. })), "{refused:?}");
    assert_eq!(project.get("a"), "the user\\'s\\n");
}

#[test]
fn an_undo_of_ascii_gives_a_latin_file_back() {
    let project = Project::new();
    project.put("a", b"d\xe9j\xe0 vu, caf\xe9\nb\nc\nd\n");
    project.read("a");
    project.write("a", "deja vu, cafe\nb\nc\nd\n");
    project.put("a", "deja vu, cafe\nb\nc\nd\ne\n");
    project.workspace.undo(&of_session("s1")).unwrap();
    assert_eq!(fs::read(project.path("a")).unwrap(), b"d\xe9j\xe0 vu, caf\xe9\nb\nc\nd\ne\n");
}

#[test]
fn hunks_are_counted_as_undo_counts_them() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n");
    project.read("a");
    project.write("a", "one\n2\nthree\n");
    let hunks = project.workspace.hunks(ChangeId(1)).unwrap();
    assert_eq!(hunks.iter().map(|hunk| hunk.new.clone()).collect::<Vec<_>>(), [0..1, 2..3]);
    assert_eq!(project.workspace.texts(ChangeId(1)).unwrap().0.as_deref(), Some("1\n2\n3\n"));
    let second = Reversal { change: ChangeId(1), hunks: Some(vec![1]) };
    project.workspace.undo(&Selection { change: Some(second.clone()), ..Selection::default() }).unwrap();
    assert_eq!(project.get("a"), "one\\n2\\n3\\n");
    let again = project.workspace.undo(&Selection { change: Some(second), ..Selection::default() });
    assert!(matches!(again, Err(FilesError::NothingTo("undo"))), "{again:?}");
}

#[test]
fn what_could_not_be_recorded_is_found_again() {
    for watching in [Watching::No, Watching::IfPossible] {
        let project = Project::new();
        project.put("a", "one\n");
        project.workspace.start_observing(ObserverOptions::default(), watching, &mut go_on).unwrap();
        project.put("a", "two two\n");
        project.put("new", "new\n");
        file_clock::pass(Duration::from_nanos(RACY_WINDOW_NS.cast_unsigned()));
        let elsewhere =
            rusqlite::Connection::open(project.scratch.path().join("state/journal.sqlite")).unwrap();
        elsewhere.execute_batch("ALTER TABLE changes RENAME TO away").unwrap();
        project.observe().unwrap_err();
        elsewhere.execute_batch("ALTER TABLE away RENAME TO changes").unwrap();
        assert_eq!(project.observe().unwrap(), 2, "{watching:?}");
        project.workspace.undo(&of_session("s1")).unwrap();
        assert_eq!(project.get("a"), "one\\n");
        assert!(!project.root.join("new").exists(), "{watching:?}");
    }
}

#[test]
fn what_another_process_wrote_is_not_taken_for_the_commands() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n4\n5\n");
    project.watch_out();
    let other =
        open(&project.root, project.scratch.path(), Settings::default(), Calls::default()).session("s2");
    other.read(&project.path("a"), Window::default()).unwrap();
    other.write(&project.path("a"), "ONE\n2\n3\n4\n5\n", &other.origin(Some(1), None)).unwrap();
    project.put("a", "ONE\n2\n3\n4\n5\ncommand\n");
    assert_eq!(project.observe().unwrap(), 1);
    project.workspace.undo(&of_session("s1")).unwrap();
    assert_eq!(project.get("a"), "ONE\\n2\\n3\\n4\\n5\\n");
}

#[test]
fn what_cannot_be_undone_does_not_keep_the_rest_from_it() {
    let project = Project::new();
    project.put("log", vec![b'x'; 3 << 20]);
    project.put("a", "one\n");
    project.watch_out();
    project.read("a");
    project.write("a", "two\n");
    project.put("log", vec![b'y'; (3 << 20) + 1]);
    project.observe().unwrap();
    let taken = project.workspace.undo(&of_session("s1")).unwrap();
    assert_eq!((project.get("a").as_str(), taken.left), ("one\\n", vec![ChangeId(2)]));
    let alone = Selection { path: Some(project.path("log")), ..Selection::default() };
    let refused = project.workspace.undo(&alone).unwrap_err().to_string();
    assert!(refused.ends_with("its text is not kept"), "{refused}");
}

#[test]
fn a_scan_keeps_neither_reads_nor_other_processes_waiting() {
    let project = Project::new();
    for at in 0..1100 {
        project.put(&format!("{at}"), "x\n");
    }
    let workspace = project.workspace.clone();
    let mut others = Vec::new();
    workspace
        .start_observing(ObserverOptions::default(), Watching::No, &mut |_| {
            others.push(open(&project.root, project.scratch.path(), Settings::default(), Calls::default()));
            assert_eq!(project.read("1"), "x\n");
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(!others.is_empty());
}

/// Looks at temporary files whenever one kind of call is made.
struct Look {
    at: Call,
    root: OnceLock<PathBuf>,
    seen: Mutex<Vec<u32>>,
}

impl Gate for Look {
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize> {
        if let (true, Some(root)) = (call == self.at, self.root.get()) {
            let modes = temporary_files(root);
            let modes = modes.iter().map(|name| fs::metadata(root.join(name)).unwrap().mode() & 0o777);
            self.seen.lock().unwrap().extend(modes);
        }
        Ok(bytes)
    }
}

#[test]
fn a_secret_that_comes_back_is_shown_to_nobody_on_the_way() {
    let look = Arc::new(Look { at: Call::SetMode, root: OnceLock::new(), seen: Mutex::default() });
    let project = Project::with(Settings::default(), Calls::gated(look.clone()));
    project.put(".env", "KEY=secret\n");
    fs::set_permissions(project.path(".env"), PermissionsExt::from_mode(0o600)).unwrap();
    project.session.delete(&project.path(".env"), &project.origin()).unwrap();
    look.root.set(project.root.clone()).unwrap();
    project.workspace.undo(&of_session("s1")).unwrap();
    assert_eq!(*look.seen.lock().unwrap(), [0o600]);
}

/// Fails the next call of one kind, once it is armed.
struct FailNext {
    call: Call,
    armed: AtomicBool,
    failed: AtomicUsize,
}

impl Gate for FailNext {
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize> {
        if call == self.call && self.armed.swap(false, Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(28));
        }
        Ok(bytes)
    }
}

#[test]
fn a_group_that_fails_leaves_the_files_themselves() {
    let fail = Arc::new(FailNext {
        call: Call::CreateTemp,
        armed: AtomicBool::new(false),
        failed: AtomicUsize::new(0),
    });
    let project = Project::with(Settings::default(), Calls::gated(fail.clone()));
    project.put("z", "old\n");
    project.read("z");
    project.write("z", "new\n");
    project.write("a", "made\n");
    let before = fs::metadata(project.path("a")).unwrap();
    fail.armed.store(true, Ordering::Relaxed);
    // The newest change comes first: `a` is taken away, then `z` cannot be written.
    project.workspace.undo(&of_session("s1")).unwrap_err();
    assert_eq!(fail.failed.load(Ordering::Relaxed), 1);
    let after = fs::metadata(project.path("a")).unwrap();
    assert_eq!((after.ino(), project.get("z").as_str()), (before.ino(), "new\\n"), "it is the same file");
    assert_eq!(temporary_files(&project.root), Vec::<String>::new());
}

#[test]
fn a_file_that_was_made_read_only_can_be_made_writable_again() {
    let project = Project::new();
    project.put("a", "x\n");
    project.watch_out();
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o444)).unwrap();
    project.observe().unwrap();
    project.workspace.undo(&of_session("s1")).unwrap();
    assert_eq!(fs::metadata(project.path("a")).unwrap().mode() & 0o777, 0o644);
    let hidden = project.path(".bowline-0123456789abcdef0123456789abcdef.tmp");
    let refused = project.session.write(&hidden, "x\n", &project.origin()).unwrap_err();
    assert!(refused.to_string().contains("choose another name"), "{refused}");
}

#[test]
fn the_mode_of_a_file_with_two_names_comes_back() {
    let project =
        Project::with(Settings { hard_links: Guard::Allow, ..Settings::default() }, Calls::default());
    project.put("a", "x\n");
    fs::hard_link(project.path("a"), project.path("b")).unwrap();
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o644)).unwrap();
    project.watch_out();
    fs::set_permissions(project.path("a"), PermissionsExt::from_mode(0o755)).unwrap();
    project.observe().unwrap();
    let file = Selection { path: Some(project.path("a")), ..Selection::default() };
    project.workspace.undo(&file).unwrap();
    assert_eq!(fs::metadata(project.path("b")).unwrap().mode() & 0o777, 0o644);
}

/// Puts something else in the place of a file right before it is exchanged.
struct Swap {
    root: OnceLock<PathBuf>,
    done: AtomicBool,
    into: fn(&Path),
}

impl Gate for Swap {
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize> {
        if let (Call::Exchange, Some(root)) = (call, self.root.get())
            && !self.done.swap(true, Ordering::Relaxed)
        {
            fs::remove_file(root.join("a")).unwrap();
            (self.into)(&root.join("a"));
        }
        Ok(bytes)
    }
}

#[test]
fn what_takes_a_files_place_at_the_last_moment_stays() {
    let make_directory = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("inner"), "the user's\n").unwrap();
    };
    let make_link = |path: &Path| std::os::unix::fs::symlink("../elsewhere", path).unwrap();
    for into in [make_directory, make_link] {
        let swap = Arc::new(Swap { root: OnceLock::new(), done: AtomicBool::new(false), into });
        let project = Project::with(Settings::default(), Calls::gated(swap.clone()));
        project.put("a", "old\n");
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

/// Saves the file right before one kind of call: the old one, if it has lost its place.
struct SaveLate {
    at: Call,
    root: OnceLock<PathBuf>,
    append: bool,
}

impl Gate for SaveLate {
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize> {
        // Once: a file says that it is still to be done.
        let Some(root) = self.root.get().filter(|_| call == self.at) else { return Ok(bytes) };
        let late = root.join("late");
        if fs::remove_file(&late).is_ok() {
            let displaced = temporary_files(root).pop().filter(|_| call != Call::CreateTemp);
            let path = root.join(displaced.unwrap_or_else(|| "a".to_owned()));
            let mut file = fs::OpenOptions::new().write(true).append(self.append).open(path).unwrap();
            file.write_all(b"late\n").unwrap();
        }
        Ok(bytes)
    }
}

/// Returns a project whose file `a` is saved while it loses its place.
fn saved_late(at: Call, append: bool) -> Project {
    let save = Arc::new(SaveLate { at, root: OnceLock::new(), append });
    let project = Project::with(Settings::default(), Calls::gated(save.clone()));
    project.put("a", "1\n2\n3\n4\n");
    project.put("late", "");
    project.read("a");
    save.root.set(project.root.clone()).unwrap();
    project
}

#[test]
fn what_is_written_to_a_file_while_it_loses_its_place_is_brought_in() {
    for at in [Call::CreateTemp, Call::SyncDirectory, Call::Rename] {
        let project = saved_late(at, true);
        project.write("a", "ONE\n2\n3\n4\n");
        assert!(!project.root.join("late").exists(), "{at:?}");
        project.workspace.merge_displaced();
        assert_eq!(project.get("a"), "ONE\\n2\\n3\\n4\\nlate\\n", "{at:?}");
        project.workspace.undo(&of_session("s1")).unwrap();
        assert_eq!(project.get("a"), "1\\n2\\n3\\n4\\nlate\\n", "{at:?}: it is the user's");
        assert_eq!(temporary_files(&project.root), Vec::<String>::new());
    }
}

#[test]
fn what_cannot_be_brought_in_is_told_of_and_can_be_restored() {
    // Not at the end, but in the very lines that the agent changes.
    let project = saved_late(Call::SyncDirectory, false);
    let mut news = project.workspace.shared_news();
    let written = project.session.write(&project.path("a"), "ONE\nTWO\n3\n4\n", &project.origin()).unwrap();
    assert_eq!(project.get("a"), "ONE\\nTWO\\n3\\n4\\n");
    let mut told = Vec::new();
    project.workspace.tell_kept_texts(|text| told.push(text.clone()));
    assert_eq!(told, written.kept, "the answer and the user are told of the same");
    let [kept] = told.as_slice() else { panic!("{told:?}") };
    assert!(news.try_recv().is_ok_and(|news| news == SharedNews::TextsKept));
    project.workspace.tell_kept_texts(|text| panic!("{text} was told of before"));
    assert_eq!(project.workspace.kept_text(kept.change).unwrap().unwrap(), b"late\n\n4\n");
    assert_eq!(project.workspace.kept_texts().unwrap().len(), 1);
    let restore = Some(Reversal { change: kept.change, hunks: None });
    project.workspace.undo(&Selection { change: restore, ..Selection::default() }).unwrap();
    assert_eq!(project.get("a"), "late\\n\\n4\\n");
    assert_eq!(project.workspace.kept_texts().unwrap(), []);
}

/// Writes a text to a file at the first call, from the n-th on, at which a program can open it.
struct CopyAt {
    calls: AtomicUsize,
    nth: usize,
    file: OnceLock<PathBuf>,
    done: AtomicBool,
}

const SENT: &str = "ONE\n2\n3\n";

impl Gate for CopyAt {
    fn pass(&self, _: Call, bytes: usize) -> io::Result<usize> {
        let Some(file) = self.file.get() else { return Ok(bytes) };
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.nth && !self.done.load(Ordering::Relaxed) {
            // While the engine holds a lease, a program that opens the file waits.
            let mut options = fs::OpenOptions::new();
            options.write(true).truncate(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            if let Ok(mut file) = options.open(file) {
                file.write_all(SENT.as_bytes())?;
                self.done.store(true, Ordering::Relaxed);
            }
        }
        Ok(bytes)
    }
}

/// An agent that has the engine write a text may write it to the disk itself, at any moment.
#[test]
fn unsaved_text_stays_whenever_the_agents_own_copy_comes() {
    for nth in 0.. {
        let copy = Arc::new(CopyAt {
            calls: AtomicUsize::new(0),
            nth,
            file: OnceLock::new(),
            done: AtomicBool::new(false),
        });
        let project = Project::with(Settings::default(), Calls::gated(copy.clone()));
        project.put("a", "1\n2\n3\n");
        project.workspace.open_document(&project.path("a")).unwrap();
        project.type_over("a", "1\n2\n3\nunsaved\n");
        project.watch_out();
        copy.file.set(project.root.join("a")).unwrap();
        project.write("a", SENT);
        let came = copy.done.load(Ordering::Relaxed);
        project.workspace.merge_displaced();
        project.observe().unwrap();
        assert_eq!(project.get("a"), "ONE\\n2\\n3\\nunsaved\\n", "the copy came at call {nth}");
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
    let project = Project::new();
    let extra = project.scratch.path().canonicalize().unwrap().join("extra");
    fs::create_dir(&extra).unwrap();
    fs::write(extra.join("e"), "extra\n").unwrap();
    let extra_file = extra.join("e").to_str().unwrap().to_owned();
    let cwd = RootSpec::writable(project.root.to_str().unwrap());
    let given = |mode: fn(String) -> RootSpec| {
        let roots = Roots::open(&cwd, &[mode(extra.to_str().unwrap().to_owned())]).unwrap();
        project.workspace.session_within("s2", roots)
    };
    let refused = project.session.read(&extra_file, Window::default()).unwrap_err();
    assert!(matches!(refused, FilesError::Denied(_)), "{refused:?}");
    let reader = given(RootSpec::read_only);
    assert_eq!(*reader.read(&extra_file, Window::default()).unwrap().text, "extra\n");
    reader.write(&extra_file, "x\n", &Origin::default()).unwrap_err();
    let writer = given(RootSpec::writable);
    writer.write(&extra_file, "changed\n", &writer.origin(Some(1), None)).unwrap();
    let patch = project.workspace.diff(&of_session("s2")).unwrap();
    assert!(patch.starts_with(&format!("diff --git a{extra_file} b{extra_file}\n")), "{patch}");
    writer.undo(&of_session("s2"), &Origin::default()).unwrap();
    assert_eq!(fs::read(&extra_file).unwrap(), b"extra\n");
    // The journal is out of reach, whatever root it lies in.
    let state = project.scratch.path().canonicalize().unwrap().join("state/journal.sqlite");
    let all = Roots::open(&RootSpec::writable(project.scratch.path().to_str().unwrap()), &[]).unwrap();
    let everywhere = project.workspace.session_within("s3", all);
    let own = everywhere.read(state.to_str().unwrap(), Window::default()).unwrap_err();
    assert!(own.to_string().contains("belongs to Bowline itself"), "{own}");
}

#[test]
fn git_applies_what_diff_says() {
    let project = Project::new();
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
        project.put(name, bytes);
    }
    project.watch_out();
    for (name, _, text) in files {
        project.read(name);
        project.write(name, text);
    }
    project.write("new/deep.txt", "new\n");
    project.put("run.sh", "#!/bin/sh\n");
    fs::set_permissions(project.path("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    project.observe().unwrap();
    let patch = project.workspace.diff(&Selection::default()).unwrap();
    fs::write(project.scratch.path().join("patch"), &patch).unwrap();
    let reversed = git(&["apply", "--check", "-R", "--whitespace=nowarn", "../patch"]);
    assert!(reversed.0, "{}\n{patch}", reversed.1);
    project.workspace.undo(&Selection::default()).unwrap();
    let forward = git(&["apply", "--check", "--whitespace=nowarn", "../patch"]);
    assert!(forward.0, "{}\n{patch}", forward.1);
}

#[test]
fn what_an_undo_would_do_is_what_it_does_and_looking_does_nothing() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n4\n5\n");
    project.put("b", "x\n");
    project.write("a", "ONE\n2\n3\n4\nFIVE\n");
    project.write("b", "y\n");
    project.write("c", "new\n");
    project.put("a", "ONE\n2\n3\nfour\nFIVE\n6\n");
    let show = |selection: &Selection| {
        let foresight = project.workspace.foresee(Direction::Undo, selection).unwrap();
        assert_eq!(foresight.left, []);
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
    "#]].assert_eq(&show(&of_session("s1")));
    let hunk = Selection {
        change: Some(Reversal { change: ChangeId(1), hunks: Some(vec![0]) }),
        ..Selection::default()
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
    assert_eq!(project.get("a"), r"ONE\n2\n3\nfour\nFIVE\n6\n");
    project.workspace.undo(&hunk).unwrap();
    assert_eq!(project.get("a"), r"1\n2\n3\nfour\nFIVE\n6\n");
    let redo = project
        .workspace
        .foresee(Direction::Redo, &Selection { last: Some(1), ..Selection::default() })
        .unwrap();
    assert_eq!(redo.files.len(), 1);
    assert!(matches!(
        project.workspace.foresee(Direction::Undo, &of_session("nobody")),
        Err(FilesError::NothingTo("undo"))
    ));
}

#[test]
fn hunks_are_shown_as_patches_of_their_own() {
    let project = Project::new();
    project.put("a", "1\n2\n3\n4\n5\n");
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
        ! cannot take back change 1 of /a: there is no hunk 2, they are counted from 0 and there are this many: 2
        ! there is no change 9
    "#]].assert_eq(&shown.concat());
    let files = project.workspace.diff_files(&of_session("s1")).unwrap();
    assert_eq!(
        files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(),
        [project.path("a"), project.path("b")]
    );
    let all: String = files.into_iter().map(|file| file.patch).collect();
    assert_eq!(all, project.workspace.diff(&of_session("s1")).unwrap());
}
