//! Table and summary of a run.

use expect_test::{Expect, expect};

use super::{HostBenchReport, HostMeasurements};
use crate::files::Comparison;

fn check(measured: HostMeasurements, expect: Expect) {
    let report = HostBenchReport::new(measured);
    expect.assert_eq(&format!("{}{}\n", report.table(), report.summary()));
}

fn sides(ours: f64, theirs: f64) -> Comparison {
    // The second round takes both sides twice as long, so the ratio stays the same.
    Comparison { ours: vec![ours, ours * 2.0, ours], theirs: vec![theirs, theirs * 2.0, theirs] }
}

#[test]
fn a_ratio_is_how_much_of_the_peers_speed_is_left() {
    let mut measured = HostMeasurements::default();
    measured.reads[0].bare = sides(0.05, 0.04);
    measured.reads[0].memory = sides(0.05, 0.02);
    measured.reads[1].bare = sides(0.04, 0.02);
    measured.reads[1].memory = sides(0.04, 0.01);
    measured.mixed_reads[0].bare = sides(0.1, 0.05);
    measured.mixed_reads[1].bare = sides(0.08, 0.06);
    measured.writes = sides(0.5, 0.2);
    measured.command_starts = sides(4.0, 1.0);
    measured.outputs = vec![("yes".to_owned(), sides(0.5, 0.45))];
    (measured.output_mib, measured.grown_mib) = (2048, 2.5);
    measured.append_us = vec![6.0, 5.0, 7.0];
    measured.other_cores = 0.25;
    check(
        measured,
        expect![[r#"
                                                           host        peer  ratio  target
            reads, one at a time                       20000 /s    25000 /s   0.80   ≥ 0.6     met
            reads, one at a time, peer: from memory    20000 /s    50000 /s   0.40
            reads, 64 in flight                        25000 /s    50000 /s   0.50   ≥ 0.6  MISSED
            reads, 64 in flight, peer: from memory     25000 /s   100000 /s   0.25
            reads of many files, one at a time         10000 /s    20000 /s   0.50
            reads of many files, 64 in flight          12500 /s    16667 /s   0.75
            writes                                      2000 /s     5000 /s   0.40
            short commands                               250 /s     1000 /s   0.25
            output: yes                              2000 MiB/s  2222 MiB/s   0.90   ≥ 0.8     met
            memory, 2048 MiB put out                    2.5 MiB                       ≤ 16     met
            an entry of the audit log                    6.0 us
            other programs used 0.25 cores meanwhile
            {"reads":0.800,"reads_inflight64":0.500,"reads_memory":0.400,"reads_memory_inflight64":0.250,"reads_per_s":20000.000,"reads_inflight64_per_s":25000.000,"reads_mixed":0.500,"reads_mixed_inflight64":0.750,"writes":0.400,"terminal_start":0.250,"terminal_output_yes":0.900,"audit_append_us":6.000,"output_growth_mib":2.500}
        "#]],
    );
}

#[test]
fn what_was_not_measured_is_null() {
    check(
        HostMeasurements::default(),
        expect![[r#"
                                                     host  peer  ratio  target
            reads, one at a time                        -     -          ≥ 0.6  not measured
            reads, one at a time, peer: from memory     -     -
            reads, 64 in flight                         -     -          ≥ 0.6  not measured
            reads, 64 in flight, peer: from memory      -     -
            reads of many files, one at a time          -     -
            reads of many files, 64 in flight           -     -
            writes                                      -     -
            short commands                              -     -
            memory, 0 MiB put out                       -                 ≤ 16  not measured
            an entry of the audit log                   -
            other programs used 0.00 cores meanwhile
            {"reads":null,"reads_inflight64":null,"reads_memory":null,"reads_memory_inflight64":null,"reads_per_s":null,"reads_inflight64_per_s":null,"reads_mixed":null,"reads_mixed_inflight64":null,"writes":null,"terminal_start":null,"audit_append_us":null,"output_growth_mib":null}
        "#]],
    );
}
