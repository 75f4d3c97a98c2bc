//! Tests of other programs that write a file while the engine reads, writes or undoes it: no saved line is lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bowline_history::undo::ChangeSelection;
use bowline_storage::disk_calls::{DiskCall, DiskCalls, DiskFaultInjector};
use bowline_text::lines::LineWindow;
use bowline_workspace::error::FilesError;
use bowline_workspace::journal::ChangeFilter;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions, WorkspaceSession};
use tempfile::TempDir;

/// A workspace with a file in it.
struct WriterFixture {
    base: PathBuf,
    calls: DiskCalls,
    _directory: TempDir,
}

impl WriterFixture {
    fn new(text: &str) -> Self {
        Self::with_callback(text, |_, _| Ok(()))
    }

    /// Calls `act` before every call that changes the disk.
    fn with_callback(
        text: &str,
        act: impl Fn(&std::path::Path, DiskCall) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let directory = TempDir::new().unwrap();
        let base = directory.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("ws/d")).unwrap();
        fs::write(base.join("ws/d/f"), text).unwrap();
        let gate = {
            let base = base.clone();
            CallbackInjector(Box::new(move |call| act(&base, call)))
        };
        Self { base, calls: DiskCalls::with_injector(Arc::new(gate)), _directory: directory }
    }

    fn open(&self) -> WorkspaceSession {
        let roots = Roots::open(&RootSpec::writable(self.base.join("ws").to_str().unwrap()), &[]).unwrap();
        let state = self.base.join("state");
        let opened =
            Workspace::open_with(roots, &state, WorkspaceOptions::default(), self.calls.clone()).unwrap();
        opened.workspace.session("s1")
    }

    fn file(&self) -> PathBuf {
        self.base.join("ws/d/f")
    }

    fn path(&self) -> String {
        self.file().to_str().unwrap().to_owned()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }
}

struct CallbackInjector(Box<dyn Fn(DiskCall) -> io::Result<()> + Send + Sync>);

impl DiskFaultInjector for CallbackInjector {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        (self.0)(call).map(|()| bytes)
    }
}

fn read(session: &WorkspaceSession, path: &str) -> String {
    session.read(path, LineWindow::default()).unwrap().text.to_string()
}

/// Returns every text of a file that the journal can restore.
fn journal_texts(session: &WorkspaceSession) -> String {
    let journal = session.workspace().roots().cwd().replace("/ws", "/state");
    let (journal, _) = bowline_workspace::journal::Journal::open(
        journal.as_ref(),
        bowline_workspace::journal::Retention::default(),
        bowline_text::time::Timestamp(i64::MAX / 4),
    )
    .unwrap();
    let mut texts = String::new();
    for entry in journal.changes(&ChangeFilter::default()).unwrap() {
        for side in [entry.change.before, entry.change.after].into_iter().flatten() {
            let bytes = journal.content(&side.hash).unwrap().unwrap_or_default();
            texts.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    texts
}

/// Returns a text long enough to keep the agent's and the user's lines far apart.
fn long_text() -> String {
    (0..40).map(|line| format!("line {line}\n")).collect()
}

/// How an editor saves.
type SaveFn = fn(&std::path::Path, &str);

fn truncate_and_write(path: &std::path::Path, text: &str) {
    let mut file = File::create(path).unwrap();
    let (first, rest) = text.split_at(text.len() / 2);
    for part in [first, rest] {
        // Simulates a slow editor: others are scheduled between the calls.
        (0..3).for_each(|_| std::thread::yield_now());
        file.write_all(part.as_bytes()).unwrap();
    }
}

fn write_in_place(path: &std::path::Path, text: &str) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    file.write_all_at(text.as_bytes(), 0).unwrap();
    file.set_len(text.len() as u64).unwrap();
}

fn rename_over(path: &std::path::Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Lets a user save lines at the end while an agent writes at the beginning, and, if `undoes` is set, undo the agent's
/// writes.
fn check_saves(save: SaveFn, undoes: bool) {
    const SAVES: usize = 400;
    let lab = WriterFixture::new(&long_text());
    let session = lab.open();
    let (file, path) = (lab.file(), lab.path());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(seen) = session.read(&path, LineWindow::default()) else { continue };
                let rest = seen.text.strip_prefix("agent ").and_then(|rest| rest.split_once('\n'));
                let rest = rest.map_or(seen.text.as_str(), |(_, rest)| rest);
                let text = format!("agent {number}\n{rest}");
                let turn = session.origin(Some(number), None);
                let is_written = session.write(&path, &text, &turn).is_ok();
                if undoes && is_written && number % 2 == 0 {
                    let turn =
                        bowline_history::undo::ChangeOwner::Turn { session: "s1".into(), turn: number };
                    session
                        .undo(&ChangeSelection { owner: turn, ..ChangeSelection::default() }, &user_origin())
                        .ok();
                }
            }
        });
        for number in 0..SAVES {
            // The editor loads the file from disk, then appends to it.
            let mut text = fs::read_to_string(&file).unwrap();
            if !text.ends_with('\n') || text.lines().count() < 40 {
                // Only the editor itself writes in parts, so it never reads a partial text.
                panic!("a text was cut: {text:?}");
            }
            text.push_str(&format!("user {number}\n"));
            save(&file, &text);
        }
        stop.store(true, Ordering::Relaxed);
    });
    session.workspace().merge_displaced();
    let (text, journal) = (lab.text(), journal_texts(&session));
    let lost: Vec<_> = (0..SAVES)
        .map(|number| format!("user {number}\n"))
        .filter(|line| !text.contains(line.as_str()) && !journal.contains(line.as_str()))
        .collect();
    assert!(lost.is_empty(), "{} of {SAVES} saved lines are lost: {lost:?}", lost.len());
}

fn user_origin() -> bowline_history::changes::ChangeOrigin {
    bowline_history::changes::ChangeOrigin::default()
}

#[test]
fn lines_that_are_saved_by_truncating_survive_an_agents_writes() {
    check_saves(truncate_and_write, false);
}

#[test]
fn lines_that_are_saved_in_place_survive_an_agents_writes() {
    check_saves(write_in_place, false);
}

#[test]
fn lines_that_are_saved_by_renaming_survive_an_agents_writes() {
    check_saves(rename_over, false);
}

#[test]
fn lines_that_are_saved_by_truncating_survive_undo() {
    check_saves(truncate_and_write, true);
}

#[test]
fn a_file_that_is_being_saved_is_read_once_it_is_whole() {
    let lab = WriterFixture::new("old\n");
    let session = lab.open();
    let mut saver = File::create(lab.file()).unwrap();
    let (begun, begins) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            begun.send(()).unwrap();
            read(&session, &lab.path())
        });
        begins.recv().unwrap();
        saver.write_all(b"new\n").unwrap();
        drop(saver);
        assert_eq!(reader.join().unwrap(), "new\n");
    });
}

#[test]
fn a_file_that_is_held_open_is_written_in_place() {
    let lab = WriterFixture::new("one\ntwo\nthree\n");
    let session = lab.open();
    let held = OpenOptions::new().read(true).append(true).open(lab.file()).unwrap();
    let inode = held.metadata().unwrap().ino();
    assert_eq!(read(&session, &lab.path()), "one\ntwo\nthree\n");
    session.write(&lab.path(), "one\nTWO, and more\nthree\n", &session.origin(Some(1), None)).unwrap();
    (&held).write_all(b"appended\n").unwrap();
    assert_eq!(fs::metadata(lab.file()).unwrap().ino(), inode);
    assert_eq!(lab.text(), "one\nTWO, and more\nthree\nappended\n");
    session.write(&lab.path(), "TWO, and more\nthree\n", &session.origin(Some(2), None)).unwrap();
    assert_eq!(lab.text(), "TWO, and more\nthree\nappended\n", "what was appended is merged");
    session.workspace().undo(&ChangeSelection::turn("s1", 2)).unwrap();
    assert_eq!(lab.text(), "one\nTWO, and more\nthree\nappended\n");
    assert_eq!(fs::metadata(lab.file()).unwrap().ino(), inode);
}

#[test]
fn a_file_that_a_program_is_writing_is_left_alone() {
    let lab = WriterFixture::new("one\n");
    let session = lab.open();
    read(&session, &lab.path());
    let logger = OpenOptions::new().append(true).open(lab.file()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                (&logger).write_all(b".").unwrap();
            }
        });
        let refused = session.write(&lab.path(), "two\n", &session.origin(Some(1), None)).unwrap_err();
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(refused, FilesError::BeingWritten(_)), "{refused}");
    });
    assert!(lab.text().starts_with("one\n."));
}

/// Opens the old file once the new one is in place, as a program does that looked up the name before.
fn fixture_with_late_opener(late: &Arc<Mutex<Option<File>>>) -> WriterFixture {
    let late = late.clone();
    WriterFixture::with_callback(&long_text(), move |base, call| {
        let is_temp = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tmp");
        let entries = fs::read_dir(base.join("ws/d")).into_iter().flatten().flatten();
        let temp = entries.map(|entry| entry.path()).find(is_temp);
        let mut late = late.lock().unwrap();
        if let (DiskCall::SyncDirectory, Some(temp), None) = (call, temp, late.as_ref()) {
            *late = Some(OpenOptions::new().write(true).open(temp).unwrap());
        }
        Ok(())
    })
}

#[test]
fn what_arrives_in_a_replaced_file_is_merged() {
    let late = Arc::default();
    let lab = fixture_with_late_opener(&late);
    let session = lab.open();
    let text = read(&session, &lab.path());
    session.write(&lab.path(), &format!("agent\n{text}"), &session.origin(Some(1), None)).unwrap();
    let saver = late.lock().unwrap().take().unwrap();
    assert_ne!(session.workspace().merge_displaced(), 0, "it is kept as long as it is open");
    saver.write_all_at(format!("{text}user\n").as_bytes(), 0).unwrap();
    drop(saver);
    session.workspace().merge_displaced();
    assert_eq!(lab.text(), format!("agent\n{text}user\n"));
}

#[test]
fn what_arrives_in_a_replaced_file_after_a_crash_is_merged() {
    let late = Arc::default();
    let lab = fixture_with_late_opener(&late);
    let text = {
        let session = lab.open();
        let text = read(&session, &lab.path());
        session.write(&lab.path(), &format!("agent\n{text}"), &session.origin(Some(1), None)).unwrap();
        text
    };
    let saver = late.lock().unwrap().take().unwrap();
    saver.write_all_at(format!("{text}user\n").as_bytes(), 0).unwrap();
    drop(saver);
    lab.open().workspace().merge_displaced();
    assert_eq!(lab.text(), format!("agent\n{text}user\n"));
}

#[test]
fn a_write_into_a_directory_that_was_moved_out_is_taken_back() {
    for (call, name) in [(DiskCall::Exchange, "f"), (DiskCall::Rename, "new")] {
        let lab = WriterFixture::with_callback("old\n", move |base, at| {
            if at == call {
                fs::rename(base.join("ws/d"), base.join("outside")).ok();
            }
            Ok(())
        });
        let session = lab.open();
        read(&session, &lab.path());
        let path = lab.base.join("ws/d").join(name);
        let refused = session.write(path.to_str().unwrap(), "new\n", &session.origin(Some(1), None));
        assert!(matches!(refused, Err(FilesError::NotAdmitted(_))), "{refused:?}");
        let outside = fs::read_dir(lab.base.join("outside")).unwrap();
        let names: Vec<_> = outside.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["f"]);
        assert_eq!(fs::read_to_string(lab.base.join("outside/f")).unwrap(), "old\n");
        assert!(session.workspace().undo(&ChangeSelection::turn("s1", 1)).is_err(), "nothing was done");
    }
}

#[test]
fn the_right_to_run_as_another_user_does_not_survive_a_write() {
    let lab = WriterFixture::new("#!/bin/sh\n");
    let session = lab.open();
    fs::set_permissions(lab.file(), fs::Permissions::from_mode(0o6755)).unwrap();
    read(&session, &lab.path());
    let preview = session.preview_write(&lab.path(), "#!/bin/sh\nid\n").unwrap();
    assert!(preview.drops_privileges);
    let written = session.write(&lab.path(), "#!/bin/sh\nid\n", &session.origin(Some(1), None)).unwrap();
    assert!(written.drops_privileges);
    assert_eq!(fs::metadata(lab.file()).unwrap().mode() & 0o7777, 0o755);
    let written = session.write(&lab.path(), "#!/bin/sh\n", &session.origin(Some(2), None)).unwrap();
    assert!(!written.drops_privileges);
}
