//! A look at the disk while something happens there, with the clock in the test's hand.

use std::fs;
use std::time::Duration;

use bowline_state::observation::RACY_WINDOW_NS;

use super::*;
use crate::workspace::fixture::Project;

/// Looks at the disk, and returns how many changes were found.
fn look(project: &Project, clock: &mut dyn FnMut() -> i64) -> usize {
    let mut writer = project.workspace.writer();
    let Writer { journal, lookout, .. } = &mut *writer;
    let (roots, origin) = (&project.workspace.inner.roots, |_: &str| Origin::default());
    let looked = lookout.look(journal, roots, clock, &origin, &mut |_| ControlFlow::Continue(()));
    looked.unwrap().0.changes.len()
}

/// A look begins, a file is created, and the machine is busy with other things for a second: whichever of this look and
/// the next one comes by the file has to tell that it was created.
#[test]
fn a_file_that_is_created_as_a_look_begins_is_found() {
    for watching in [Watching::No, Watching::IfPossible] {
        let project = Project::observed(&[("a", "a\n")], watching);
        let path = project.path("made");
        let mut slow_clock = || {
            fs::write(&path, "made\n").unwrap();
            walker::stamp(&rustix::fs::stat(&path).unwrap()).ctime_ns + 1_000_000_000
        };
        let first = look(&project, &mut slow_clock);
        let next = look(&project, &mut now_ns);
        assert_eq!(first + next, 1, "{watching:?}");
    }
}

#[test]
fn what_the_engine_wrote_is_compared_by_its_bytes_at_the_next_look() {
    let project = Project::observed(&[("a", "a\n")], Watching::No);
    let path = project.path("a");
    let stamp = walker::stamp(&rustix::fs::stat(&path).unwrap());
    test_support::file_clock::pass(Duration::from_nanos(RACY_WINDOW_NS.cast_unsigned()));
    // The engine wrote these bytes, and within the same tick another program wrote others of the same length.
    project.workspace.writer().lookout.expect(&path, Some((stamp, b"b\n")));
    assert_eq!(project.observe(&Origin::default()), 1);
}
