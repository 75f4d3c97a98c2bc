//! Stamps: tables of what they prove, and the property that they never prove too much.

use std::fmt::Write as _;

use expect_test::expect;
use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;

fn stamp() -> Stamp {
    let time = 1_000 * SECOND + 7;
    Stamp { device: 1, inode: 2, size: 3, mtime_ns: time, ctime_ns: time, mode: 0o644 }
}

fn hash(text: &str) -> Option<ContentHash> {
    Some(ContentHash::of(text.as_bytes()))
}

#[test]
fn a_stamp_proves_sameness_only_if_it_is_old_enough() {
    let fine = stamp();
    let coarse = Stamp { mtime_ns: 1_000 * SECOND, ctime_ns: 1_000 * SECOND, ..fine };
    let backdated = Stamp { mtime_ns: 5 * SECOND + 1, ..fine };
    let from_the_future = Stamp { mtime_ns: 9_000 * SECOND + 1, ..fine };
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

/// On a file system that keeps whole seconds, a file may have been created two seconds after what its stamp says.
#[test]
fn a_file_that_is_not_older_than_a_moment_may_have_come_after_it() {
    let fine = Stamp { mtime_ns: 1_000_000_000, ctime_ns: 7_000_000_001, ..stamp() };
    let coarse = Stamp { mtime_ns: 1_000_000_000, ctime_ns: 7_000_000_000, ..stamp() };
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
    let known = Known { stamp: stamp(), hash: hash("old"), racy: false };
    let racy = Known { racy: true, ..known };
    let unread = Known { hash: None, ..known };
    let now = stamp();
    let table = [
        ("the same", known, now, "old"),
        ("racy, the same", racy, now, "old"),
        ("racy, other bytes", racy, now, "new"),
        ("touched", known, Stamp { mtime_ns: 1, ..now }, "old"),
        ("replaced by its like", known, Stamp { inode: 9, ..now }, "old"),
        ("on another device", known, Stamp { device: 9, ..now }, "old"),
        ("time set back", known, Stamp { ctime_ns: 9, ..now }, "new"),
        ("mode", known, Stamp { ctime_ns: 9, mode: 0o755, ..now }, "old"),
        ("mode and bytes", known, Stamp { ctime_ns: 9, mode: 0o755, ..now }, "new"),
        ("grown", known, Stamp { size: 9, ..now }, "new"),
        ("unread, racy, the same", Known { racy: true, ..unread }, now, "new"),
        ("unread, mode", unread, Stamp { ctime_ns: 9, mode: 0o755, ..now }, "new"),
        ("unread, touched", unread, Stamp { mtime_ns: 9, ..now }, "new"),
        ("unread, grown", unread, Stamp { size: 9, ..now }, "new"),
    ];
    let mut out = String::new();
    for (name, known, now, bytes) in table {
        let verdict = look(Some(&known), Some(&now));
        let change = compare(&known, &now, hash(bytes).as_ref());
        writeln!(out, "{name}: {verdict:?}, then {change:?}").unwrap();
    }
    for (known, now) in [(None, None), (None, Some(&now)), (Some(&known), None)] {
        writeln!(out, "{} -> {}: {:?}", known.is_some(), now.is_some(), look(known, now)).unwrap();
    }
    expect![[r#"
        the same: Same, then None
        racy, the same: Touched, then None
        racy, other bytes: Touched, then Bytes
        touched: Touched, then None
        replaced by its like: Touched, then None
        on another device: Touched, then None
        time set back: Touched, then Bytes
        mode: Touched, then Mode
        mode and bytes: Touched, then Bytes
        grown: Touched, then Bytes
        unread, racy, the same: Touched, then None
        unread, mode: Touched, then Mode
        unread, touched: Touched, then Bytes
        unread, grown: Touched, then Bytes
        false -> false: Same
        false -> true: Created
        true -> false: Deleted
    "#]]
    .assert_eq(&out);
}

#[test]
fn text_has_no_nul_unless_it_is_utf_16() {
    let late = [vec![b'a'; SNIFFED], vec![0]].concat();
    let early = [vec![b'a'; SNIFFED - 1], vec![0]].concat();
    let cases: [&[u8]; 7] =
        [b"", b"text", b"\xe9t\xe9", b"a\0b", b"\xff\xfea\0", b"\xfe\xff\0a", b"\xef\xbb\xbfa"];
    let told: Vec<bool> = cases.into_iter().chain([&*late, &*early]).map(seems_text).collect();
    assert_eq!(told, [true, true, true, false, true, true, true, true, false]);
}

proptest! {
    // A clock that ticks every `tick` stamps a file, the file is looked at, and written once more.
    #[test]
    fn a_write_after_the_look_is_never_taken_for_the_same(
        tick in 1..=20 * MS,
        written in 0..10 * SECOND,
        looked in 0..200 * MS,
        again in 0..200 * MS,
        sets_time_back in any::<bool>(),
    ) {
        let rounded = |time: i64| time - time % tick;
        let at = |time: i64| Stamp { mtime_ns: rounded(time), ctime_ns: rounded(time), ..stamp() };
        let known = Known::new(at(written), None, written + looked);
        let mut now = at(written + looked + again);
        if sets_time_back {
            now.mtime_ns = known.stamp.mtime_ns;
        }
        prop_assert_eq!(look(Some(&known), Some(&now)), Verdict::Touched);
    }

    #[test]
    fn pieces_have_the_hash_of_the_whole(pieces: Vec<Vec<u8>>) {
        let mut hasher = ContentHasher::default();
        pieces.iter().for_each(|piece| hasher.feed(piece));
        prop_assert_eq!(hasher.finish(), ContentHash::of(&pieces.concat()));
    }

    #[test]
    fn no_time_is_too_large(mtime_ns: i64, ctime_ns: i64, now: i64) {
        let stamp = Stamp { mtime_ns, ctime_ns, ..stamp() };
        let known = Known::new(stamp, None, now);
        prop_assert_eq!(look(Some(&known), Some(&stamp)) == Verdict::Touched, known.racy);
    }
}
