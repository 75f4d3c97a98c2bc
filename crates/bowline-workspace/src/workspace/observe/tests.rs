//! Scans while the disk changes, with a clock that the test controls.

use std::fs;
use std::time::Duration;

use bowline_history::observation::RACY_WINDOW_NS;

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
