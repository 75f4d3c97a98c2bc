//! Scans while the disk changes, with a clock that the test controls, and texts that git has.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bowline_history::observation::RACY_WINDOW_NS;
use bowline_history::undo::ChangeSelection;
use test_support::git::{commit_and_pack, git};

use super::*;
use crate::workspace::fixture::TestProject;
use bowline_storage::file_clock;

/// Scans the disk, and returns the number of changes found.
fn scan_change_count(project: &TestProject, clock: &mut dyn FnMut() -> i64) -> usize {
    let mut writer = project.workspace.writer();
    let WorkspaceWriter { journal, observer_state: lookout, .. } = &mut *writer;
    let (roots, origin) = (&project.workspace.inner.roots, |_: &str| ChangeOrigin::default());
    let looked = lookout.scan_changes(journal, roots, clock, &origin, &mut |_| ControlFlow::Continue(()));
    looked.unwrap().0.changes.len()
}

/// A scan begins, a file is created, and the machine is busy for a second: this scan or the next one must report the
/// file as created.
#[test]
fn a_file_that_is_created_as_a_look_begins_is_found() {
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let project = TestProject::with_watching(&[("a", "a\n")], watching);
        let path = project.path("made");
        let mut slow_clock = || {
            fs::write(&path, "made\n").unwrap();
            file_clock::file_stamp(&rustix::fs::stat(&path).unwrap()).ctime_ns + 1_000_000_000
        };
        let first = scan_change_count(&project, &mut slow_clock);
        let next = scan_change_count(&project, &mut now_ns);
        assert_eq!(first + next, 1, "{watching:?}");
    }
}

#[test]
fn what_the_engine_wrote_is_compared_by_its_bytes_at_the_next_look() {
    let project = TestProject::with_watching(&[("a", "a\n")], WatchMode::Off);
    let path = project.path("a");
    let stamp = file_clock::file_stamp(&rustix::fs::stat(&path).unwrap());
    test_support::file_clock::wait_past(Duration::from_nanos(RACY_WINDOW_NS.cast_unsigned()));
    // The engine wrote these bytes, and within the same clock tick another program wrote different ones of the same
    // length.
    project.workspace.writer().observer_state.record_own_write(&path, Some((stamp, b"b\n")));
    assert_eq!(project.observe(&ChangeOrigin::default()), 1);
}

/// Returns whether the journal itself stores a text.
fn is_stored(project: &TestProject, text: &str) -> bool {
    let hash = ContentHash::digest(text.as_bytes());
    project.workspace.writer().journal.has_content(&hash).unwrap()
}

fn start_again(project: &TestProject) -> Workspace {
    let workspace = project.open_again();
    let mut go_on = |_| ControlFlow::Continue(());
    workspace.start_observing(ObserverOptions::default(), WatchMode::Off, &mut go_on).unwrap();
    workspace
}

#[test]
fn a_text_that_git_has_is_stored_only_once_it_changes_and_then_undone_without_git() {
    let project =
        TestProject::prepared(&[("a", "a\n"), ("b", "b\n"), (".env", "KEY=1\n")], WatchMode::Off, |root| {
            commit_and_pack(root);
            fs::write(root.join("b"), "not committed\n").unwrap();
        });
    let stored = ["a\n", "not committed\n", "KEY=1\n"].map(|text| is_stored(&project, text));
    assert_eq!(stored, [false, true, false]);
    // A command deletes everything, the repository as well.
    fs::remove_dir_all(project.path(".git")).unwrap();
    ["a", "b", ".env"].iter().for_each(|name| fs::remove_file(project.path(name)).unwrap());
    assert_eq!(project.observe(&ChangeOrigin::default()), 3);
    let stored = ["a\n", "not committed\n", "KEY=1\n"].map(|text| is_stored(&project, text));
    assert_eq!(stored, [true, true, false]);
    project.workspace.undo(&ChangeSelection::default()).unwrap();
    let files = ["a", "b", ".env"].map(|name| project.read(name));
    assert_eq!(files, [Some("a\n".to_owned()), Some("not committed\n".to_owned()), None]);
}

#[test]
fn a_text_is_found_in_git_although_another_process_saw_its_change_first() {
    let project = TestProject::prepared(&[("a", "a\n"), ("b", "b\n")], WatchMode::Off, commit_and_pack);
    // A command of this process changes files, and another process starts before it ends.
    project.write("a", "changed\n");
    fs::remove_file(project.path("b")).unwrap();
    drop(start_again(&project));
    assert_eq!(project.observe(&ChangeOrigin::default()), 2);
    project.workspace.undo(&ChangeSelection::default()).unwrap();
    assert_eq!(["a", "b"].map(|name| project.read(name)), [Some("a\n".to_owned()), Some("b\n".to_owned())]);
}

#[test]
fn a_touched_file_is_still_restored_from_git() {
    let project = TestProject::prepared(&[("a", "a\n")], WatchMode::Off, commit_and_pack);
    // Rewritten with the same text: the baseline's row is replaced.
    project.write("a", "a\n");
    assert_eq!(project.observe(&ChangeOrigin::default()), 0);
    assert!(!is_stored(&project, "a\n"));
    // The same in another process, later.
    drop(start_again(&project));
    project.write("a", "changed\n");
    assert_eq!(project.observe(&ChangeOrigin::default()), 1);
    project.workspace.undo(&ChangeSelection::default()).unwrap();
    assert_eq!(project.read("a").as_deref(), Some("a\n"));
}

#[test]
fn a_text_that_git_has_packed_again_is_left_there() {
    let project = TestProject::prepared(&[("a", "a\n")], WatchMode::Off, commit_and_pack);
    let packs = || project.workspace.writer().journal.git_packs().unwrap();
    let before = packs();
    assert_eq!(before.len(), 1);
    let root = project.path("");
    project.write("b", "b\n");
    commit_and_pack(root.as_ref());
    drop(start_again(&project));
    assert!(before != packs() && packs().len() == 1, "{before:?} {:?}", packs());
    assert_eq!(["a\n", "b\n"].map(|text| is_stored(&project, text)), [false, false]);
}

/// A first scan that ends early has not found all directories to watch.
#[test]
fn directories_that_a_stopped_first_scan_did_not_reach_are_watched_later() {
    let project = TestProject::prepared(&[], WatchMode::Off, |root| {
        for at in 0..1100 {
            let directory = root.join((at / 100).to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(at.to_string()), "x\n").unwrap();
        }
    });
    let workspace = project.open_again();
    let mut stop = |_| ControlFlow::Break(());
    let started =
        workspace.start_observing(ObserverOptions::default(), WatchMode::IfPossible, &mut stop).unwrap();
    assert!(started.report.stopped);
    assert_eq!(started.watcher_error.map(|error| error.to_string()), None);
    let observe = || workspace.observe(&ChangeOrigin::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(observe().report.files_seen, 1100);
    for at in 0..11 {
        project.write(&format!("{at}/new"), "new\n");
    }
    let observed = observe();
    assert_eq!(observed.changes.len(), 11);
    assert!(observed.report.files_seen < 100, "everything was scanned: {:?}", observed.report);
}

#[test]
fn a_text_that_git_has_dropped_is_stored_when_observation_starts_again() {
    let lose = |root: &Path| {
        fs::remove_dir_all(root.join(".git")).unwrap();
        git(root, &["init", "--quiet"]);
    };
    let project = TestProject::prepared(&[("a", "a\n"), ("gone", "gone\n")], WatchMode::Off, commit_and_pack);
    assert!(!is_stored(&project, "a\n"));
    lose(project.path("").as_ref());
    fs::remove_file(project.path("gone")).unwrap();
    let later = start_again(&project);
    assert!(is_stored(&project, "a\n"));
    let paths: Vec<String> =
        later.writer().journal.baseline().unwrap().into_iter().map(|row| row.path).collect();
    assert_eq!(paths, [project.path("a")]);
}
