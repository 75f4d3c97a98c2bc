//! Differences as lines in, changes as lines out; and that nothing is lost or invented.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bowline_protocol::file_extension::operations::FileGlob;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{from_value, json};

use super::*;
use crate::changes::{ChangeOrigin, FileState};

fn stamp(inode: u64, size: u64) -> FileStamp {
    FileStamp { device: 1, inode, size, mtime_ns: 7, ctime_ns: 7, mode: 0o644 }
}

/// Parses a difference: `KIND PATH [inode=N] [record=N] [by=AUTHOR]`; the path of a directory ends with `/`.
fn parse_difference(line: &str) -> PathDifference {
    let mut words = line.split(' ');
    let kind = from_value(json!(words.next().unwrap())).unwrap();
    let path = words.next().unwrap();
    let file_type = if path.ends_with('/') { WatchedType::Directory } else { WatchedType::File };
    let path = path.trim_end_matches('/').to_owned();
    let mut seen = PathDifference { path, kind, file_type, stamp: None, author: None, record: None };
    for word in words {
        match word.split_once('=').unwrap() {
            ("inode", number) => seen.stamp = Some(stamp(number.parse().unwrap(), 1)),
            ("record", number) => {
                seen.record = Some((Timestamp(number.parse().unwrap()), ContentHash::digest(b"text")));
            }
            ("by", author) => seen.author = Some(from_value(json!(author)).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    seen
}

fn show_changes(changes: &[FileChange]) -> String {
    let mut text = String::new();
    for FileChange { path, kind, by, from } in changes {
        let from = from.as_ref().map(|from| format!(" from {}", from.display())).unwrap_or_default();
        let (kind, by) = (json!(kind), json!(by));
        let (kind, by) = (kind.as_str().unwrap(), by.as_str().unwrap());
        writeln!(text, "{kind} {}{from} by {by}", path.display()).unwrap();
    }
    text
}

fn check(differences: &str, expected: Expect) {
    let differences = differences.trim().lines().map(parse_difference).collect();
    expected.assert_eq(&show_changes(&to_changes(differences, ChangeAuthor::User)));
}

#[test]
fn a_removal_and_a_creation_of_one_file_are_a_rename() {
    check(
        "
removed /a inode=1
created /b inode=1 by=command
removed /c inode=2
created /d inode=3
created /e inode=2
created /f inode=2
removed /g record=1 by=agent
created /h record=1 by=agent
removed /i record=2
created /j record=3
modified /k inode=1
removed /dir/ inode=4
created /file inode=4
",
        expect![[r#"
            renamed /b from /a by command
            created /d by user
            removed /dir by user
            renamed /e from /c by user
            created /f by user
            created /file by user
            renamed /h from /g by agent
            removed /i by user
            created /j by user
            modified /k by user
        "#]],
    );
}

#[test]
fn a_directory_has_the_author_of_everything_below_it() {
    check(
        "
created /one/
created /one/deep/
created /one/deep/a by=agent
created /one/b by=agent
created /two/
created /two/a by=agent
created /two/b by=session
created /three/
created /three/a by=agent
created /three/b
created /four/ by=session
created /four/a by=agent
created /empty/
",
        expect![[r#"
            created /empty by user
            created /four by session
            created /four/a by agent
            created /one by agent
            created /one/b by agent
            created /one/deep by agent
            created /one/deep/a by agent
            created /three by user
            created /three/a by agent
            created /three/b by user
            created /two by user
            created /two/a by agent
            created /two/b by session
        "#]],
    );
}

#[test]
fn a_scope_selects_paths() {
    let scope = |path: &str, extent, glob: Option<&str>| WatchScope {
        path: path.to_owned(),
        extent,
        glob: glob.map(|glob| FileGlob::new(glob).unwrap()),
    };
    let scopes = [
        scope("/w/a.rs", WatchExtent::File, None),
        scope("/w", WatchExtent::Entries, None),
        scope("/w", WatchExtent::Recursive, None),
        scope("/w", WatchExtent::Recursive, Some("*.rs")),
        scope("/w", WatchExtent::Recursive, Some("src/*.rs")),
        scope("/", WatchExtent::Recursive, None),
    ];
    let paths = ["/w", "/w/a.rs", "/w/b", "/w/src/c.rs", "/w/src/deep/d.rs", "/wide", "/"];
    let mut table = String::new();
    for scope in scopes {
        let selected: Vec<&str> = paths.into_iter().filter(|path| scope.selects(path)).collect();
        let glob = scope.glob.as_ref().map(FileGlob::pattern);
        writeln!(table, "{} {:?} {glob:?}: {}", scope.path, scope.extent, selected.join(" ")).unwrap();
    }
    expect![[r#"
        /w/a.rs File None: /w/a.rs
        /w Entries None: /w /w/a.rs /w/b
        /w Recursive None: /w /w/a.rs /w/b /w/src/c.rs /w/src/deep/d.rs
        /w Recursive Some("*.rs"): /w /w/a.rs /w/src/c.rs /w/src/deep/d.rs
        /w Recursive Some("src/*.rs"): /w /w/src/c.rs
        / Recursive None: /w /w/a.rs /w/b /w/src/c.rs /w/src/deep/d.rs /wide /
    "#]]
    .assert_eq(&table);
}

#[test]
fn states_are_compared_by_metadata() {
    let entry = |file_type, stamp: FileStamp, now_ns| WatchedEntry::new(file_type, stamp, now_ns);
    let (file, directory) = (WatchedType::File, WatchedType::Directory);
    let (recent, old) = (8, i64::MAX);
    let base = entry(file, stamp(1, 1), old);
    let executable = FileStamp { mode: 0o755, ..stamp(1, 1) };
    let touched = FileStamp { mtime_ns: 8, ctime_ns: 8, ..stamp(1, 1) };
    let both = FileStamp { mode: 0o755, ..touched };
    let linked = FileStamp { ctime_ns: 9, ..stamp(1, 1) };
    let rows = [
        ("missing", None, None, false),
        ("created", None, Some(base), false),
        ("removed", Some(base), None, false),
        ("same", Some(base), Some(base), true),
        ("same, but recent", Some(entry(file, stamp(1, 1), recent)), Some(base), true),
        ("same, recent, not reported", Some(entry(file, stamp(1, 1), recent)), Some(base), false),
        ("replaced", Some(base), Some(entry(file, stamp(2, 1), old)), false),
        ("size", Some(base), Some(entry(file, stamp(1, 2), old)), false),
        ("time", Some(base), Some(entry(file, touched, old)), false),
        ("mode", Some(base), Some(entry(file, executable, old)), false),
        ("links", Some(base), Some(entry(file, linked, old)), true),
        ("type", Some(base), Some(entry(directory, stamp(2, 1), old)), false),
        ("entries", Some(entry(directory, stamp(1, 1), old)), Some(entry(directory, touched, old)), true),
        (
            "entries and mode",
            Some(entry(directory, stamp(1, 1), old)),
            Some(entry(directory, both, old)),
            true,
        ),
    ];
    let mut table = String::new();
    for (name, before, after, is_reported) in rows {
        let kind = compare_entries(before.as_ref(), after.as_ref(), is_reported);
        writeln!(table, "{name}: {}", kind.map_or_else(|| "nothing".to_owned(), |kind| format!("{kind:?}")))
            .unwrap();
    }
    expect![[r#"
        missing: nothing
        created: Created
        removed: Removed
        same: nothing
        same, but recent: Modified
        same, recent, not reported: nothing
        replaced: Modified
        size: Modified
        time: Modified
        mode: Other
        links: nothing
        type: Other
        entries: nothing
        entries and mode: Other
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_record_names_the_author_if_it_explains_the_state() {
    let state = |text: &str| FileState { hash: ContentHash::digest(text.as_bytes()), size: 1, mode: 0o644 };
    let change = |source, session: Option<&str>, command: Option<&str>| Change {
        id: ChangeId(1),
        at: Timestamp(1),
        origin: ChangeOrigin {
            session: session.map(str::to_owned),
            command: command.map(str::to_owned),
            ..ChangeOrigin::default()
        },
        source,
        path: "/a".to_owned(),
        before: None,
        after: Some(state("new")),
        moved_from: None,
        reverses: Vec::new(),
    };
    let (written, observed) = (ChangeSource::Written, ChangeSource::Observed);
    let rows = [
        (written, Some("s"), None),
        (written, Some("t"), None),
        (written, None, None),
        (observed, Some("s"), Some("make")),
        (observed, Some("t"), Some("make")),
        (observed, Some("s"), None),
        (observed, None, None),
    ];
    let authors =
        rows.map(|(source, session, command)| change_author(&change(source, session, command), "s"));
    assert_eq!(
        authors,
        [
            Some(ChangeAuthor::Agent),
            Some(ChangeAuthor::Session),
            Some(ChangeAuthor::User),
            Some(ChangeAuthor::Command),
            Some(ChangeAuthor::Session),
            None,
            None
        ]
    );
    let new = change(written, None, None);
    let removed = Change { after: None, ..new.clone() };
    assert!(explains_state(&new, Some(&state("new").hash)));
    assert!(!explains_state(&new, Some(&state("other").hash)));
    assert!(!explains_state(&new, None));
    assert!(explains_state(&removed, None));
    assert!(!explains_state(&removed, Some(&state("new").hash)));
}

fn any_difference() -> impl Strategy<Value = PathDifference> {
    let kind = prop::sample::select(vec![
        ChangeKind::Created,
        ChangeKind::Modified,
        ChangeKind::Removed,
        ChangeKind::Other,
    ]);
    let file_type = prop::sample::select(vec![WatchedType::File, WatchedType::Directory]);
    let author = prop::option::of(prop::sample::select(vec![ChangeAuthor::Agent, ChangeAuthor::Session]));
    let record = prop::option::of((0..2_i64).prop_map(|at| (Timestamp(at), ContentHash::digest(b"x"))));
    ("/[ab](/[ab]){0,2}", kind, file_type, prop::option::of((0..3_u64, 0..2_u64)), author, record).prop_map(
        |(path, kind, file_type, place, author, record)| {
            let stamp = place.map(|(inode, size)| stamp(inode, size));
            PathDifference { path, kind, file_type, stamp, author, record }
        },
    )
}

proptest! {
    /// Every path is reported exactly once, a rename reports two, and only what is gone and what is new is renamed.
    #[test]
    fn nothing_is_lost_or_invented(differences in prop::collection::vec(any_difference(), 0..12)) {
        let mut seen = BTreeSet::new();
        let differences: Vec<_> =
            differences.into_iter().filter(|difference| seen.insert(difference.path.clone())).collect();
        let changes = to_changes(differences.clone(), ChangeAuthor::User);
        let find = |path: &std::path::Path| {
            differences.iter().find(|seen| std::path::Path::new(&seen.path) == path).unwrap()
        };
        let mut reported = BTreeSet::new();
        for change in &changes {
            prop_assert!(reported.insert(change.path.clone()));
            prop_assert!(find(&change.path).author.is_none_or(|author| author == change.by));
            match &change.from {
                None => prop_assert_eq!(find(&change.path).kind, change.kind),
                Some(from) => {
                    prop_assert!(reported.insert(from.clone()));
                    prop_assert_eq!(change.kind, ChangeKind::Renamed);
                    prop_assert_eq!(find(from).kind, ChangeKind::Removed);
                    prop_assert_eq!(find(&change.path).kind, ChangeKind::Created);
                }
            }
        }
        prop_assert_eq!(reported.len(), differences.len());
    }

    /// Pages cover all changes in order, and no page is larger than allowed.
    #[test]
    fn pages_cover_everything(changes in 0..100_usize, max in 0..10_usize, has_overflowed: bool) {
        let pages = page_ranges(changes, max, has_overflowed);
        let covered: Vec<usize> = pages.iter().cloned().flatten().collect();
        prop_assert_eq!(covered, (0..changes).collect::<Vec<_>>());
        prop_assert!(pages.iter().all(|page| page.len() <= max.max(1)));
        prop_assert_eq!(pages.is_empty(), changes == 0 && !has_overflowed);
    }
}
