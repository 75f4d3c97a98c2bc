//! How a run is told.

use expect_test::{Expect, expect};

use super::{Measured, Report};
use crate::files::Sides;

fn check(measured: Measured, expect: Expect) {
    let report = Report::new(measured);
    expect.assert_eq(&format!("{}{}\n", report.table(), report.summary()));
}

fn sides(ours: f64, theirs: f64) -> Sides {
    // The second round is twice as slow for both, and the ratio stays.
    Sides { ours: vec![ours, ours * 2.0, ours], theirs: vec![theirs, theirs * 2.0, theirs] }
}

#[test]
fn a_ratio_is_how_much_of_the_peers_speed_is_left() {
    let mut measured = Measured::default();
    measured.reads[0].bare = sides(0.05, 0.04);
    measured.reads[0].memory = sides(0.05, 0.02);
    measured.reads[1].bare = sides(0.04, 0.02);
    measured.reads[1].memory = sides(0.04, 0.01);
    measured.writes = sides(0.5, 0.2);
    measured.starts = sides(4.0, 1.0);
    measured.outputs = vec![("yes".to_owned(), sides(0.5, 0.45))];
    (measured.output_mib, measured.grown_mib) = (2048, 2.5);
    measured.append_us = vec![6.0, 5.0, 7.0];
    measured.others = 0.25;
    check(measured, expect![[""]]);
}

#[test]
fn what_was_not_measured_is_null() {
    check(Measured::default(), expect![[""]]);
}
