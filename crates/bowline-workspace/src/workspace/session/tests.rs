//! Reads without waiting: the same text as any other read, or none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File, OpenOptions};
use std::io::IoSliceMut;
use std::os::unix::fs::symlink;

use bowline_text::lines::LineWindow;
use rustix::io::ReadWriteFlags;

use super::{MAX_TRY_READ_BYTES, ReadText, WorkspaceSession};
use crate::workspace::fixture::TestProject;

fn try_read(session: &WorkspaceSession, path: &str) -> Option<ReadText> {
    session.try_read_admitted(&session.try_admit(path)?)
}

/// Returns whether this system and its file system read from the cache alone.
fn reads_cached_files(path: &str) -> bool {
    let file = File::open(path).unwrap();
    let mut byte = [0];
    rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT).is_ok()
}

#[test]
fn a_cached_file_is_read_without_waiting_and_known_then() {
    let project = TestProject::new(&[("a", "one\r\n"), ("empty", "")]);
    if !reads_cached_files(&project.path("a")) {
        return;
    }
    for name in ["a", "empty", "../project/a"] {
        let (one, other) = (project.workspace.session("one"), project.workspace.session("other"));
        let path = format!("{}/{name}", project.path("").trim_end_matches('/'));
        // The first read fills the cache.
        let expected = other.read(&path, LineWindow::default()).unwrap();
        assert_eq!(try_read(&one, &path), Some(expected), "{name}");
        // A session that has read the file may replace it.
        let written = one.write(&path, "two\r\n", &one.origin(Some(1), None)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\r\n", "{name}: {written:?}");
    }
}

#[test]
fn a_read_that_may_wait_or_fail_is_left_to_others() {
    let project = TestProject::new(&[("a", "a\n"), ("open", "b\n"), ("written", "c\n"), ("binary", "a\0b")]);
    project.write("large", &"x".repeat(MAX_TRY_READ_BYTES as usize + 1));
    fs::create_dir(project.path("directory")).unwrap();
    symlink("/etc/passwd", project.path("outside")).unwrap();
    project.workspace.open_document(&project.path("open")).unwrap();
    let session = project.workspace.session("one");
    let writer = OpenOptions::new().append(true).open(project.path("written")).unwrap();
    for name in ["missing", "directory", "large", "open", "written", "binary", "outside", "a/b"] {
        assert_eq!(try_read(&session, &project.path(name)), None, "{name}");
    }
    drop(writer);
    assert_eq!(try_read(&session, "/etc/passwd"), None);
    // Nothing was recorded.
    assert_eq!(session.with_ledger(|ledger| ledger.paths().count()), 0);
}
