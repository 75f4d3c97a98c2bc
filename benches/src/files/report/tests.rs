//! Table and summary of fixed samples. No test depends on a measured time.

use expect_test::{Expect, expect};

use super::{FilesBenchReport, FilesMeasurements, MemoryGrowth, ScanTimes};
use crate::files::comparison::Comparison;
use crate::files::extension::ExtensionTimes;
use crate::files::growth::GrowthTimes;
use crate::files::window_reads::WindowTimes;

fn check(measured: FilesMeasurements, expect: Expect) {
    let report = FilesBenchReport::new(measured);
    expect.assert_eq(&format!("{}{}\n", report.table(), report.summary()));
}

fn sides(ours: &[f64], theirs: &[f64]) -> Comparison {
    Comparison { ours: ours.to_vec(), theirs: theirs.to_vec() }
}

fn memory_growth(name: &str, file_mib: u64, mib: f64) -> MemoryGrowth {
    MemoryGrowth { name: name.to_owned(), file_mib, is_window: name.starts_with("window"), mib }
}

#[test]
fn the_worst_of_a_group_is_in_the_summary() {
    let whole = &[800.0, 1600.0, 900.0];
    let spot = |first: f64, repeat: f64| WindowTimes {
        first: sides(&[first; 3], whole),
        repeat: sides(&[repeat, repeat * 2.0, repeat], whole),
    };
    let measured = FilesMeasurements {
        windows: [spot(0.1, 0.01), spot(100.0, 0.5), spot(1000.0, 1.5)],
        whole_reads: vec![
            (4096, sides(&[0.02], &[0.01])),
            (1 << 20, sides(&[1.0, 2.0, 1.0], &[0.9, 1.8, 0.7])),
            (8 << 20, sides(&[10.0], &[7.5])),
        ],
        many_reads: sides(&[2.0, 3.0], &[1.0, 2.4]),
        edits: vec![(16 << 10, sides(&[5.0], &[2.0])), (256 << 10, sides(&[8.0], &[2.5]))],
        writes: vec![(16 << 10, sides(&[9.0, 4.0], &[3.0, 2.0])), (256 << 10, sides(&[10.0], &[3.0]))],
        diff_ms: vec![12.0, 14.0],
        merge_ms: vec![25.0],
        extension: ExtensionTimes {
            list: sides(&[20.0], &[10.0]),
            batch: sides(&[100.0], &[1000.0]),
            append: sides(&[1500.0], &[1000.0]),
            base64: sides(&[60.0], &[15.0]),
        },
        scans: ScanTimes {
            first: vec![900.0, 800.0],
            repeat: vec![100.0, 100.0],
            restart: vec![200.0],
            watched: vec![3.0],
        },
        memory_growths: vec![
            memory_growth("window start", 64, 0.5),
            memory_growth("window end", 64, 0.75),
            memory_growth("window end", 1024, 2.0),
            memory_growth("whole read", 8, 9.0),
            memory_growth("write 256 KiB", 0, 3.0),
        ],
        growth: GrowthTimes {
            first_ms: vec![3000.0],
            next: sides(&[700.0, 900.0], &[400.0, 400.0]),
            search: sides(&[1400.0], &[1000.0]),
            late_writes: sides(&[1.5], &[1.4]),
            undo_ms: vec![1400.0],
            memory: vec![memory_growth("first scan, repository of 200000 files", 0, 65.0)],
        },
        other_cores: 0.25,
    };
    check(
        measured,
        expect![[r#"
                                                                bowline         peer  ratio  target
            window first start                                 0.100 ms   900.000 ms   9000     ≥ 1     met
            window first middle                              100.000 ms   900.000 ms   9.00     ≥ 1     met
            window first end                                1000.000 ms   900.000 ms   0.90     ≥ 1  MISSED
            window repeat start                                0.010 ms   900.000 ms  80000  ≥ 1000     met
            window repeat middle                               0.500 ms   900.000 ms   1600  ≥ 1000     met
            window repeat end                                  1.500 ms   900.000 ms    533  ≥ 1000  MISSED
            whole read 4 KiB                                   0.020 ms     0.010 ms   0.50
            whole read 1 MiB                                   1.000 ms     0.900 ms   0.90   ≥ 0.8     met
            whole read 8 MiB                                  10.000 ms     7.500 ms   0.75   ≥ 0.8  MISSED
            whole read 1 MiB, many files                       2.500 ms     1.700 ms   0.65   ≥ 0.8  MISSED
            journalled write 16 KiB                            5.000 ms     2.000 ms   2.50     ≤ 3     met
            journalled write 256 KiB                           8.000 ms     2.500 ms   3.20     ≤ 3  MISSED
            journalled write over new text 16 KiB              6.500 ms     2.500 ms   2.50
            journalled write over new text 256 KiB            10.000 ms     3.000 ms   3.33
            list 10,000 entries                               20.000 ms    10.000 ms   0.50
            batch of 1,000 writes (peer: single)             100.000 ms  1000.000 ms  10.00     ≥ 5     met
            1,000 appends to 100 MB (peer: to 0)            1500.000 ms  1000.000 ms   1.50     ≤ 2     met
            base64 read 64 MiB                                60.000 ms    15.000 ms   0.25
            scan again (peer: first)                         100.000 ms   850.000 ms   8.50     ≥ 2     met
            repository, next run (peer: git status)          800.000 ms   400.000 ms   2.00     ≤ 2     met
            repository, search (peer: rg)                   1400.000 ms  1000.000 ms   1.40   ≤ 1.3  MISSED
            last of many writes (peer: first)                  1.500 ms     1.400 ms   1.07   ≤ 1.5     met
            window repeat, worst                               1.500 ms                         ≤ 1  MISSED
            scan, next run                                   200.000 ms
            scan, watched                                      3.000 ms
            repository, first scan                          3000.000 ms
            undo of many changes                            1400.000 ms
            diff 100k lines                                   13.000 ms
            merge 100k lines                                  25.000 ms
            memory: window start of 64 MiB                     0.50 MiB
            memory: window end of 64 MiB                       0.75 MiB
            memory: window end of 1024 MiB                     2.00 MiB
            memory: whole read of 8 MiB                        9.00 MiB
            memory: write 256 KiB                              3.00 MiB
            memory: first scan, repository of 200000 files    65.00 MiB                        ≤ 64  MISSED
            memory: windows, with the file                     1.25 MiB                         ≤ 1  MISSED
            other programs used 0.25 cores meanwhile
            {"whole_read":0.750,"small_read":0.500,"many_read":0.650,"window_first":0.900,"window_repeat":533.333,"window_repeat_ms":1.500,"window_first_start":9000.000,"window_first_middle":9.000,"window_first_end":0.900,"window_repeat_start":80000.000,"window_repeat_middle":1600.000,"window_repeat_end":533.333,"journalled_write":3.200,"journalled_write_new":3.333,"list":0.500,"batch":10.000,"append":1.500,"base64_read":0.250,"diff_100k_ms":13.000,"merge_100k_ms":25.000,"scan_repeat":8.500,"scan_first_ms":850.000,"scan_repeat_ms":100.000,"scan_restart_ms":200.000,"scan_watched_ms":3.000,"repository_first_ms":3000.000,"repository_next":2.000,"repository_next_ms":800.000,"repository_search":1.400,"repository_mib":65.000,"late_write":1.071,"undo_many_ms":1400.000,"peak_mib":2.000,"peak_growth_mib":1.250}
        "#]],
    );
}

#[test]
fn what_was_not_measured_is_null() {
    check(
        FilesMeasurements::default(),
        expect![[r#"
                                                     bowline  peer  ratio  target
            window first start                             -     -            ≥ 1  not measured
            window first middle                            -     -            ≥ 1  not measured
            window first end                               -     -            ≥ 1  not measured
            window repeat start                            -     -         ≥ 1000  not measured
            window repeat middle                           -     -         ≥ 1000  not measured
            window repeat end                              -     -         ≥ 1000  not measured
            whole read 1 MiB, many files                   -     -          ≥ 0.8  not measured
            list 10,000 entries                            -     -
            batch of 1,000 writes (peer: single)           -     -            ≥ 5  not measured
            1,000 appends to 100 MB (peer: to 0)           -     -            ≤ 2  not measured
            base64 read 64 MiB                             -     -
            scan again (peer: first)                       -     -            ≥ 2  not measured
            repository, next run (peer: git status)        -     -            ≤ 2  not measured
            repository, search (peer: rg)                  -     -          ≤ 1.3  not measured
            last of many writes (peer: first)              -     -          ≤ 1.5  not measured
            window repeat, worst                           -                  ≤ 1  not measured
            scan, next run                                 -
            scan, watched                                  -
            repository, first scan                         -
            undo of many changes                           -
            diff 100k lines                                -
            merge 100k lines                               -
            memory: windows, with the file                 -                  ≤ 1  not measured
            other programs used 0.00 cores meanwhile
            {"whole_read":null,"small_read":null,"many_read":null,"window_first":null,"window_repeat":null,"window_repeat_ms":null,"window_first_start":null,"window_first_middle":null,"window_first_end":null,"window_repeat_start":null,"window_repeat_middle":null,"window_repeat_end":null,"journalled_write":null,"journalled_write_new":null,"list":null,"batch":null,"append":null,"base64_read":null,"diff_100k_ms":null,"merge_100k_ms":null,"scan_repeat":null,"scan_first_ms":null,"scan_repeat_ms":null,"scan_restart_ms":null,"scan_watched_ms":null,"repository_first_ms":null,"repository_next":null,"repository_next_ms":null,"repository_search":null,"repository_mib":null,"late_write":null,"undo_many_ms":null,"peak_mib":null,"peak_growth_mib":null}
        "#]],
    );
}
