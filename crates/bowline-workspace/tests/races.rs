//! Tests of races: paths that are swapped under the engine, and editors that write the same files.
//!
//! No order is enforced: both sides run as fast as they can, and the forbidden states are checked for throughout and at
//! the end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bowline_history::undo::ChangeSelection;
use bowline_protocol::file_extension::{BatchFilesRequest, FileLimits};
use bowline_storage::disk_calls::{DiskCall, DiskCalls, DiskFaultInjector};
use bowline_text::lines::LineWindow;
use bowline_text::time::Timestamp;
use bowline_workspace::error::FilesError;
use bowline_workspace::journal::{ChangeFilter, Journal, JournalEntry, Retention};
use bowline_workspace::roots::{Resolver, RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions, WorkspaceSession};
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;
use tempfile::TempDir;

const READS: usize = 20_000;
const WRITES: usize = 4_000;
const CREATIONS: usize = 500;
const EDITS: usize = 300;

/// Returns how often something is done: five times as often in a full run.
fn rounds(count: usize) -> usize {
    if test_support::is_full_run() { 5 * count } else { count }
}

/// Returns a directory in memory where available: the races are between names, not limited by disk speed.
fn temp_directory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a directory")
}

/// A workspace with a directory `d` and a link `l` to the outside, which are swapped all the time.
struct SwappedPaths {
    base: PathBuf,
    session: WorkspaceSession,
    _directory: TempDir,
}

impl SwappedPaths {
    fn new(resolver: Resolver) -> Self {
        let directory = temp_directory();
        let base = directory.path().canonicalize().unwrap();
        for name in ["ws/d", "out", "state"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        fs::write(base.join("ws/d/f"), "inside\n").unwrap();
        fs::write(base.join("out/f"), "outside\n").unwrap();
        symlink(base.join("out"), base.join("ws/l")).unwrap();
        let session = open_session(&base, resolver);
        Self { base, session, _directory: directory }
    }

    /// Runs a function while the names are swapped, and returns the number of swaps.
    fn run_while_swapping(&self, act: impl FnOnce()) -> usize {
        let (one, other) = (self.base.join("ws/d"), self.base.join("ws/l"));
        let count = AtomicUsize::new(0);
        run_while(act, || {
            rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            // At a constant pace, the other side would always be hit at the same step.
            let pause = count.fetch_add(1, Ordering::Relaxed).wrapping_mul(2_654_435_761) % 4096;
            (0..pause).for_each(|_| std::hint::spin_loop());
        })
    }

    fn path(&self, below: &str) -> String {
        self.base.join("ws").join(below).to_str().unwrap().to_owned()
    }

    /// Checks everything outside the workspace.
    fn assert_nothing_happened_outside(&self) {
        let outside: Vec<_> =
            fs::read_dir(self.base.join("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(outside, ["f"]);
        assert_eq!(fs::read_to_string(self.base.join("out/f")).unwrap(), "outside\n");
    }
}

fn open_session(base: &Path, resolver: Resolver) -> WorkspaceSession {
    let cwd = RootSpec::writable(base.join("ws").to_str().unwrap());
    let roots = Roots::open_with(&cwd, &[], resolver).unwrap();
    let opened = Workspace::open(roots, &base.join("state"), WorkspaceOptions::default()).unwrap();
    opened.workspace.session("s1")
}

/// Runs `act` while `other` runs over and over, and returns how often it ran.
fn run_while(act: impl FnOnce(), other: impl Fn() + Sync) -> usize {
    let stop = AtomicBool::new(false);
    let times = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                other();
                times.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The other thread has to stop even if this one panics.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    times.into_inner()
}

/// Checks the only errors allowed for a swapped path: it is outside, or keeps changing.
fn assert_is_path_error(error: &FilesError) {
    let text = error.to_string();
    let expected = ["is outside the session's directories", "keeps changing"];
    assert!(expected.iter().any(|expected| text.contains(expected)), "{text}");
}

fn check_reads(resolver: Resolver) {
    let reads = rounds(READS);
    let swapped = SwappedPaths::new(resolver);
    let path = swapped.path("d/f");
    let mut inside = 0;
    let swaps = swapped.run_while_swapping(|| {
        for _ in 0..reads {
            match swapped.session.read(&path, LineWindow::default()) {
                Ok(read) => {
                    assert_eq!(*read.text, "inside\n");
                    inside += 1;
                }
                Err(error) => assert_is_path_error(&error),
            }
        }
    });
    swapped.assert_nothing_happened_outside();
    assert!(inside > 0 && inside < reads && swaps > 200, "{inside} reads of {reads}, {swaps} swaps");
}

#[test]
fn reads_never_follow_a_directory_that_becomes_a_link_by_the_kernel() {
    check_reads(Resolver::Kernel);
}

#[test]
fn reads_never_follow_a_directory_that_becomes_a_link_by_the_walk() {
    check_reads(Resolver::Walk);
}

fn check_writes(resolver: Resolver) {
    let writes = rounds(WRITES);
    let swapped = SwappedPaths::new(resolver);
    let path = swapped.path("d/f");
    let mut inside = 0;
    let origin = swapped.session.origin(None, None);
    let swaps = swapped.run_while_swapping(|| {
        for count in 0..writes {
            // The directory alternates between two names: the view under one is stale under the other.
            swapped.session.end();
            match swapped.session.write(&path, &format!("inside {count}\n"), &origin) {
                Ok(_) => inside += 1,
                Err(error) => assert_is_path_error(&error),
            }
            if count % 1000 == 0 {
                swapped.assert_nothing_happened_outside();
            }
        }
    });
    swapped.assert_nothing_happened_outside();
    assert_no_temporary_file(&swapped.base.join("ws"));
    assert!(inside > 0 && inside < writes && swaps > 200, "{inside} writes of {writes}, {swaps} swaps");
}

#[test]
fn writes_never_follow_a_directory_that_becomes_a_link_by_the_kernel() {
    check_writes(Resolver::Kernel);
}

#[test]
fn writes_never_follow_a_directory_that_becomes_a_link_by_the_walk() {
    check_writes(Resolver::Walk);
}

fn check_creations(resolver: Resolver) {
    let creations = rounds(CREATIONS);
    let swapped = SwappedPaths::new(resolver);
    let origin = swapped.session.origin(None, None);
    let (mut created, mut count) = (0, 0);
    swapped.run_while_swapping(|| {
        // On a busy machine one outcome can take long to come.
        while count < creations || (created == 0 || created == count) && count < 100 * creations {
            match swapped.session.write(&swapped.path(&format!("d/{count}/y/z")), "inside\n", &origin) {
                Ok(_) => created += 1,
                Err(error) => assert_is_path_error(&error),
            }
            count += 1;
        }
    });
    swapped.assert_nothing_happened_outside();
    assert_no_temporary_file(&swapped.base.join("ws"));
    assert!(created > 0 && created < count, "{created} of {count}");
}

#[test]
fn directories_are_never_created_outside_by_the_kernel() {
    check_creations(Resolver::Kernel);
}

#[test]
fn directories_are_never_created_outside_by_the_walk() {
    check_creations(Resolver::Walk);
}

fn assert_no_temporary_file(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        assert!(!name.to_str().unwrap().ends_with(".tmp"), "{name:?} was left behind");
        if entry.file_type().unwrap().is_dir() {
            assert_no_temporary_file(&entry.path());
        }
    }
}

/// Returns every line of every text in a journal, and of what was appended.
fn journal_lines(directory: &Path) -> BTreeSet<String> {
    let (journal, _) = Journal::open(directory, Retention::default(), Timestamp(0)).unwrap();
    let mut lines = BTreeSet::new();
    for JournalEntry { change, .. } in journal.changes(&ChangeFilter::default()).unwrap() {
        for state in [change.before, change.after].into_iter().flatten() {
            let bytes = journal.content(&state.hash).unwrap().unwrap_or_default();
            lines.extend(String::from_utf8(bytes).unwrap().lines().map(str::to_owned));
        }
        let tail = journal.tail(change.id).unwrap().unwrap_or_default();
        lines.extend(String::from_utf8(tail).unwrap().lines().map(str::to_owned));
    }
    lines
}

/// A file whose first part an agent writes and whose last part an editor writes.
const SHARED_TEXT: &str = "agent:\n-\n-\nuser:\n";

/// Lets an agent and an editor write their lines, and checks for all of them at the end. The editor receives the file
/// and the line to add.
fn check_editor(edit: impl Fn(&Path, &str) + Sync) {
    let edit_count = rounds(EDITS);
    let directory = temp_directory();
    let base = directory.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("ws")).unwrap();
    let file = base.join("ws/a.txt");
    fs::write(&file, SHARED_TEXT).unwrap();
    let session = open_session(&base, Resolver::Kernel);
    let origin = session.origin(None, None);
    let path = file.to_str().unwrap();
    let edits = AtomicUsize::new(0);
    let turns = AtomicUsize::new(0);
    let mut written = 0;
    run_while(
        || {
            while edits.load(Ordering::Relaxed) < edit_count {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let read = session.read(path, LineWindow::default()).unwrap();
                // The agent's part is one line, and the editor's follows two others: both can always be merged.
                let (_, rest) = read.text.split_once("-\n").unwrap();
                match session.write(path, &format!("agent: {turn}\n-\n{rest}"), &origin) {
                    Ok(_) => written += 1,
                    Err(error) => assert!(
                        matches!(error, FilesError::WriteRejected { .. } | FilesError::KeepsChanging(_)),
                        "{error}"
                    ),
                }
            }
        },
        || {
            let count = edits.load(Ordering::Relaxed);
            // Keeps both sides at a similar pace.
            if count < edit_count.min(3 * turns.load(Ordering::Relaxed)) {
                edit(&file, &format!("user {count}\n"));
                edits.store(count + 1, Ordering::Relaxed);
            } else {
                std::thread::yield_now();
            }
        },
    );
    let text = fs::read_to_string(&file).unwrap();
    let there: BTreeSet<&str> = text.lines().collect();
    let missing: Vec<String> = (0..edit_count)
        .map(|count| format!("user {count}"))
        .filter(|line| !there.contains(&**line))
        .collect();
    // An editor that read the file at the moment of an exchange may overwrite its own last line with a stale text. The
    // line is then in the journal.
    assert!(missing.len() < 20, "{} lines are not in the file", missing.len());
    let kept = journal_lines(&base.join("state"));
    let lost: Vec<&String> = missing.iter().filter(|line| !kept.contains(*line)).collect();
    assert_eq!(lost, Vec::<&String>::new(), "lines of the user are lost");
    assert!(written > edit_count / 10, "the agent wrote only {written} times");
    assert_no_temporary_file(&base.join("ws"));
}

/// Appends to the file that has a name, and creates it if there is none.
///
/// A handle opened before the file was replaced writes to the old file, and the engine cannot prevent that. An editor
/// detects that by checking the name, and writes again; the file that has the name at that check must keep its text.
fn append_by_name(file: &Path, line: &str) {
    loop {
        let mut handle = OpenOptions::new().append(true).create(true).open(file).unwrap();
        handle.write_all(line.as_bytes()).unwrap();
        let is_there = fs::metadata(file).is_ok_and(|now| now.ino() == handle.metadata().unwrap().ino());
        if is_there {
            return;
        }
    }
}

#[test]
fn no_line_of_an_editor_that_appends_in_place_is_lost() {
    check_editor(append_by_name);
}

#[test]
fn no_line_of_an_editor_that_renames_is_lost() {
    check_editor(|file, line| {
        let mut text = fs::read_to_string(file).unwrap();
        text.push_str(line);
        let temp = file.with_extension("editing");
        fs::write(&temp, text).unwrap();
        fs::rename(&temp, file).unwrap();
    });
}

/// Lets an agent run batches that append, write, move, copy and remove, and undo them, while another program appends to
/// the same files.
fn check_batches(options: WorkspaceOptions) {
    let line_count = rounds(EDITS);
    let directory = temp_directory();
    let base = directory.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("ws")).unwrap();
    let names = ["log", "other"].map(|name| base.join("ws").join(name));
    names.iter().for_each(|path| fs::write(path, "first\n").unwrap());
    let cwd = RootSpec::writable(base.join("ws").to_str().unwrap());
    let roots = Roots::open(&cwd, &[]).unwrap();
    let workspace = Workspace::open(roots, &base.join("state"), options).unwrap().workspace;
    let session = workspace.session("s1");
    let (lines, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (mut applied, mut undone) = (0, 0);
    run_while(
        || {
            while lines.load(Ordering::Relaxed) < line_count {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let [log, other] = &names;
                let append = |path: &Path| json!({"op": "write", "path": path, "data": format!("agent {turn}\n"), "mode": "append"});
                let copy = base.join(format!("ws/copy-{turn}"));
                let operations = match turn % 6 {
                    0..=2 => json!([append(log)]),
                    3 => json!([append(log), append(other)]),
                    4 => json!([{"op": "copy", "from": log, "to": copy}, append(other)]),
                    _ => json!([{"op": "move", "from": log, "to": copy}, {"op": "remove", "path": other}]),
                };
                let request = json!({"sessionId": "s1", "operations": operations});
                let request: BatchFilesRequest = serde_json::from_value(request).unwrap();
                let operations = request.into_operations(&FileLimits::DEFAULT).unwrap();
                let origin = session.origin(Some(turn as u64 + 1), None);
                // A file that changes all the time may be refused; what was done is undone every other time.
                applied += usize::from(session.apply_batch(&operations, &origin, None).is_ok());
                if turn % 2 == 0 || turn % 6 == 5 {
                    let selection = ChangeSelection::turn("s1", turn as u64 + 1);
                    undone += usize::from(session.undo(&selection, &session.origin(None, None)).is_ok());
                }
            }
        },
        || {
            let count = lines.load(Ordering::Relaxed);
            // Keeps both sides at a similar pace.
            if count < line_count.min(3 * turns.load(Ordering::Relaxed)) {
                append_by_name(&names[count % 2], &format!("user {count}\n"));
                lines.store(count + 1, Ordering::Relaxed);
            } else {
                std::thread::yield_now();
            }
        },
    );
    drop((session, workspace));
    let mut there = journal_lines(&base.join("state"));
    for entry in fs::read_dir(base.join("ws")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        there.extend(text.lines().map(str::to_owned));
    }
    let all = (0..line_count).map(|count| format!("user {count}"));
    let lost: Vec<String> = all.filter(|line| !there.contains(line)).collect();
    assert_eq!(lost, Vec::<String>::new(), "lines of the user are lost");
    assert!(applied > 0 && undone > 0, "{applied} batches, {undone} undone");
    assert_no_temporary_file(&base.join("ws"));
}

#[test]
fn no_line_that_arrives_during_batches_is_lost() {
    check_batches(WorkspaceOptions::default());
}

#[test]
fn no_line_that_arrives_during_appends_in_place_is_lost() {
    check_batches(WorkspaceOptions { append_in_place_bytes: 0, ..WorkspaceOptions::default() });
}

#[test]
fn a_file_that_grows_and_shrinks_while_it_is_read_is_read_to_an_end() {
    // A read returns lines of the file, never more than the read cap, and never an unexpected error.
    let directory = temp_directory();
    let base = directory.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("ws")).unwrap();
    let file = base.join("ws/log.txt");
    let lines = "a line of the log\n".repeat(50_000);
    fs::write(&file, &lines).unwrap();
    let session = open_session(&base, Resolver::Kernel);
    let path = file.to_str().unwrap();
    let handle = OpenOptions::new().append(true).open(&file).unwrap();
    let count = AtomicUsize::new(0);
    run_while(
        || {
            // Each read waits for the writing program up to its limit.
            for at in 0..5 {
                let window = LineWindow { line: Some(1 + at * 251), limit: Some(100) };
                for window in [LineWindow::default(), window] {
                    match session.read(path, window) {
                        Ok(read) => assert!(
                            read.text
                                .split_inclusive('\n')
                                .all(|line| "a line of the log\n".starts_with(line))
                        ),
                        Err(error) => assert!(matches!(error, FilesError::PastEnd { .. }), "{error}"),
                    }
                }
            }
        },
        || {
            if count.fetch_add(1, Ordering::Relaxed) % 100 == 99 {
                handle.set_len(lines.len() as u64 / 2).unwrap();
            } else {
                (&handle).write_all(&lines.as_bytes()[..18 * 1000]).unwrap();
            }
        },
    );
}

/// Moves a directory out of the workspace at one of the calls that put a file in place.
struct DirectoryMover {
    from: PathBuf,
    to: PathBuf,
    calls_before: AtomicUsize,
}

impl DiskFaultInjector for DirectoryMover {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        let is_install = matches!(call, DiskCall::Rename | DiskCall::Exchange);
        let is_due = |left: usize| left.checked_sub(1);
        if is_install && self.calls_before.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due) == Ok(1)
        {
            fs::rename(&self.from, &self.to)?;
        }
        Ok(bytes)
    }
}

#[test]
fn a_directory_that_is_moved_out_during_a_batch_gets_its_files_back() {
    for moved_at in 1..=3 {
        let directory = temp_directory();
        let base = directory.path().canonicalize().unwrap();
        let (here, outside) = (base.join("ws/d"), base.join("outside"));
        fs::create_dir_all(&here).unwrap();
        fs::write(here.join("a"), "old a\n").unwrap();
        fs::write(here.join("b"), "old b\n").unwrap();
        let mover = DirectoryMover {
            from: here.clone(),
            to: outside.clone(),
            calls_before: AtomicUsize::new(moved_at),
        };
        let roots = Roots::open(&RootSpec::writable(base.join("ws").to_str().unwrap()), &[]).unwrap();
        let calls = DiskCalls::with_injector(Arc::new(mover));
        let options = WorkspaceOptions::default();
        let opened = Workspace::open_with(roots, &base.join("state"), options, calls).unwrap();
        let session = opened.workspace.session("s1");
        let writes: Vec<_> = ["a", "new", "b"]
            .iter()
            .map(|name| json!({"op": "write", "path": here.join(name), "data": "by the agent\n"}))
            .collect();
        let request = json!({"sessionId": "s1", "operations": writes});
        let request: BatchFilesRequest = serde_json::from_value(request).unwrap();
        let operations = request.into_operations(&FileLimits::DEFAULT).unwrap();
        for name in ["a", "b"] {
            session.read(here.join(name).to_str().unwrap(), LineWindow::default()).unwrap();
        }
        let origin = session.origin(Some(1), None);
        let error = session.apply_batch(&operations, &origin, None).unwrap_err();
        assert!(error.to_string().contains("keeps changing"), "{moved_at}: {error}");
        let left: BTreeSet<_> = fs::read_dir(&outside)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
            .collect();
        let expected =
            [("a", "old a\n"), ("b", "old b\n")].map(|(name, text)| (name.into(), text.to_owned()));
        assert_eq!(left, BTreeSet::from(expected), "moved at call {moved_at}");
    }
}
