//! Tests of stamps: tables of what they prove, and the property that they never prove too much.

use std::fmt::Write as _;

use expect_test::expect;
use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;

fn stamp() -> FileStamp {
    let time = 1_000 * SECOND + 7;
    FileStamp { device: 1, inode: 2, size: 3, mtime_ns: time, ctime_ns: time, mode: 0o644 }
}

fn hash(text: &str) -> Option<ContentHash> {
    Some(ContentHash::digest(text.as_bytes()))
}

#[test]
fn a_stamp_proves_sameness_only_if_it_is_old_enough() {
    let fine = stamp();
    let coarse = FileStamp { mtime_ns: 1_000 * SECOND, ctime_ns: 1_000 * SECOND, ..fine };
    let backdated = FileStamp { mtime_ns: 5 * SECOND + 1, ..fine };
    let from_the_future = FileStamp { mtime_ns: 9_000 * SECOND + 1, ..fine };
    let mut out = String::new();
    for (name, stamp) in
        [("fine", fine), ("coarse", coarse), ("backdated", backdated), ("from the future", from_the_future)]
    {
        for after in [-60 * SECOND, 0, 49 * MS, 51 * MS, 2_000 * MS, 2_051 * MS] {
            let racy = stamp.is_racy(stamp.ctime_ns + after);
            writeln!(out, "{name} +{} ms: {}", after / MS, if racy { "racy" } else { "proves" }).unwrap();
        }
    }
    expect![[r#"
        fine +-60000 ms: racy
        fine +0 ms: racy
        fine +49 ms: racy
        fine +51 ms: proves
        fine +2000 ms: proves
        fine +2051 ms: proves
        coarse +-60000 ms: racy
        coarse +0 ms: racy
        coarse +49 ms: racy
        coarse +51 ms: racy
        coarse +2000 ms: racy
        coarse +2051 ms: proves
        backdated +-60000 ms: racy
        backdated +0 ms: racy
        backdated +49 ms: racy
        backdated +51 ms: proves
        backdated +2000 ms: proves
        backdated +2051 ms: proves
        from the future +-60000 ms: racy
        from the future +0 ms: racy
        from the future +49 ms: racy
        from the future +51 ms: proves
        from the future +2000 ms: proves
        from the future +2051 ms: proves
    "#]]
    .assert_eq(&out);
}

/// With second granularity, a file may have been created two seconds after the time in its stamp.
#[test]
fn a_file_that_is_not_older_than_a_moment_may_have_come_after_it() {
    let fine = FileStamp { mtime_ns: 1_000_000_000, ctime_ns: 7_000_000_001, ..stamp() };
    let coarse = FileStamp { mtime_ns: 1_000_000_000, ctime_ns: 7_000_000_000, ..stamp() };
    for (stamp, window) in [(fine, RACY_WINDOW_NS), (coarse, COARSE_WINDOW_NS)] {
        for (after, may_have) in
            [(i64::MIN, true), (-1, true), (0, true), (window, true), (window + 1, false)]
        {
            let moment = stamp.ctime_ns.saturating_add(after);
            assert_eq!(stamp.may_have_changed_since(moment), may_have, "{stamp:?} {after}");
        }
    }
}

#[test]
fn every_part_of_a_stamp_counts() {
    let known = KnownFile { stamp: stamp(), hash: hash("old"), is_racy: false };
    let racy = KnownFile { is_racy: true, ..known };
    let unread = KnownFile { hash: None, ..known };
    let now = stamp();
    let table = [
        ("the same", known, now, "old"),
        ("racy, the same", racy, now, "old"),
        ("racy, other bytes", racy, now, "new"),
        ("touched", known, FileStamp { mtime_ns: 1, ..now }, "old"),
        ("replaced by its like", known, FileStamp { inode: 9, ..now }, "old"),
        ("on another device", known, FileStamp { device: 9, ..now }, "old"),
        ("time set back", known, FileStamp { ctime_ns: 9, ..now }, "new"),
        ("mode", known, FileStamp { ctime_ns: 9, mode: 0o755, ..now }, "old"),
        ("mode and bytes", known, FileStamp { ctime_ns: 9, mode: 0o755, ..now }, "new"),
        ("grown", known, FileStamp { size: 9, ..now }, "new"),
        ("unread, racy, the same", KnownFile { is_racy: true, ..unread }, now, "new"),
        ("unread, mode", unread, FileStamp { ctime_ns: 9, mode: 0o755, ..now }, "new"),
        ("unread, touched", unread, FileStamp { mtime_ns: 9, ..now }, "new"),
        ("unread, grown", unread, FileStamp { size: 9, ..now }, "new"),
    ];
    let mut out = String::new();
    for (name, known, now, bytes) in table {
        let verdict = compare_stamps(Some(&known), Some(&now));
        let change = compare_contents(&known, &now, hash(bytes).as_ref());
        writeln!(out, "{name}: {verdict:?}, then {change:?}").unwrap();
    }
    for (known, now) in [(None, None), (None, Some(&now)), (Some(&known), None)] {
        writeln!(out, "{} -> {}: {:?}", known.is_some(), now.is_some(), compare_stamps(known, now)).unwrap();
    }
    expect![[r#"
        the same: Unchanged, then None
        racy, the same: MaybeChanged, then None
        racy, other bytes: MaybeChanged, then Bytes
        touched: MaybeChanged, then None
        replaced by its like: MaybeChanged, then None
        on another device: MaybeChanged, then None
        time set back: MaybeChanged, then Bytes
        mode: MaybeChanged, then Mode
        mode and bytes: MaybeChanged, then Bytes
        grown: MaybeChanged, then Bytes
        unread, racy, the same: MaybeChanged, then None
        unread, mode: MaybeChanged, then Mode
        unread, touched: MaybeChanged, then Bytes
        unread, grown: MaybeChanged, then Bytes
        false -> false: Unchanged
        false -> true: Created
        true -> false: Deleted
    "#]]
    .assert_eq(&out);
}

#[test]
fn text_has_no_nul_unless_it_is_utf_16() {
    let late = [vec![b'a'; SNIFF_BYTES], vec![0]].concat();
    let early = [vec![b'a'; SNIFF_BYTES - 1], vec![0]].concat();
    let cases: [&[u8]; 7] =
        [b"", b"text", b"\xe9t\xe9", b"a\0b", b"\xff\xfea\0", b"\xfe\xff\0a", b"\xef\xbb\xbfa"];
    let results: Vec<bool> = cases.into_iter().chain([&*late, &*early]).map(looks_like_text).collect();
    assert_eq!(results, [true, true, true, false, true, true, true, true, false]);
}

proptest! {
    // A clock that ticks every `tick` stamps a file; the file is scanned, and written once more.
    #[test]
    fn a_write_after_the_look_is_never_taken_for_the_same(
        tick in 1..=20 * MS,
        written in 0..10 * SECOND,
        looked in 0..200 * MS,
        again in 0..200 * MS,
        sets_time_back in any::<bool>(),
    ) {
        let rounded = |time: i64| time - time % tick;
        let at = |time: i64| FileStamp { mtime_ns: rounded(time), ctime_ns: rounded(time), ..stamp() };
        let known = KnownFile::new(at(written), None, written + looked);
        let mut now = at(written + looked + again);
        if sets_time_back {
            now.mtime_ns = known.stamp.mtime_ns;
        }
        prop_assert_eq!(compare_stamps(Some(&known), Some(&now)), StampVerdict::MaybeChanged);
    }

    #[test]
    fn no_time_is_too_large(mtime_ns: i64, ctime_ns: i64, now: i64) {
        let stamp = FileStamp { mtime_ns, ctime_ns, ..stamp() };
        let known = KnownFile::new(stamp, None, now);
        prop_assert_eq!(compare_stamps(Some(&known), Some(&stamp)) == StampVerdict::MaybeChanged, known.is_racy);
    }
}
