//! Tests of what a session knows, and of what it may write.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

fn text(text: &str) -> Arc<String> {
    Arc::new(text.to_owned())
}

fn whole(text: &str) -> Knowledge {
    Knowledge::Whole(Arc::new(text.to_owned()))
}

fn dirty(saved: Option<&str>, unsaved: &str) -> Document {
    let mut document = Document::new(saved.map(text), Some(Version(1)));
    document.change(text(unsaved), 0).unwrap();
    document
}

struct Row<'a> {
    name: &'a str,
    knowledge: Knowledge,
    disk: Option<&'a str>,
    document: Option<Document>,
    content: &'a str,
    unseen: Unseen,
}

/// Knows a stretch of a text that has 8 bytes.
fn part(stretch: Option<Range<u64>>) -> Knowledge {
    let mut ledger = Ledger::default();
    ledger.saw_window("/a", Version(1), stretch.unwrap_or(0..0), 8);
    ledger.knowledge("/a", Version(1))
}

fn row<'a>(name: &'a str, knowledge: Knowledge, disk: Option<&'a str>, content: &'a str) -> Row<'a> {
    Row { name, knowledge, disk, document: None, content, unseen: Unseen::Overwrite }
}

fn check(rows: Vec<Row<'_>>, expected: Expect) {
    let mut shown = String::new();
    for Row { name, knowledge, disk, document, content, unseen } in rows {
        let document = document.as_ref();
        let situation = Situation { knowledge, disk, version: Version(1), document, content, unseen };
        match decide(&situation) {
            Ok(Decision { text, known, verdict }) if text == known => {
                writeln!(shown, "{name}: {verdict:?} {text:?}").unwrap();
            }
            Ok(Decision { text, known, verdict }) => {
                writeln!(shown, "{name}: {verdict:?} {text:?}, knows {known:?}").unwrap();
            }
            Err(why) => writeln!(shown, "{name}: ! {why}").unwrap(),
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn a_write_is_made_against_what_the_session_knows() {
    let hash = |text: &str| Knowledge::Hashed(ContentHash::of(text.as_bytes()));
    check(
        vec![
            row("new file", Knowledge::Nothing, None, "a\n"),
            row("deleted since", whole("a\n"), None, "b\n"),
            row("partly seen and deleted since", part(None), None, "b\n"),
            row("unchanged since", whole("a\n"), Some("a\n"), "b\n"),
            row("changed elsewhere", whole("a\nb\nc\n"), Some("A\nb\nc\n"), "a\nb\nC\n"),
            row("changed at the same place", whole("a\n"), Some("A\n"), "b\n"),
            row("changed in the same way", whole("a\n"), Some("b\n"), "b\n"),
            row("hash unchanged", hash("a\n"), Some("a\n"), "b\n"),
            row("hash changed", hash("a\n"), Some("A\n"), "b\n"),
            row("windows of this version", Knowledge::Windows(Version(1)), Some("a\n"), "b\n"),
            row("windows of another version", Knowledge::Windows(Version(2)), Some("a\n"), "b\n"),
            row("seen to be missing", Knowledge::Absent, None, "b\n"),
            row("created since", Knowledge::Absent, Some("a\n"), "b\n"),
            row("created since with the same text", Knowledge::Absent, Some("b\n"), "b\n"),
            row("partly seen", part(None), Some("a\n"), "b\n"),
            row("all seen that changes", part(Some(2..6)), Some("a\nb\nc\nd\n"), "a\nB\nnew\nd\n"),
            row("more changes than was seen", part(Some(2..6)), Some("a\nb\nc\nd\n"), "a\nB\n"),
            row("the rest would go", part(Some(0..2)), Some("a\nb\nc\nd\n"), "A\n"),
            row("only added to", part(Some(0..2)), Some("a\nb\n"), "a\nb\nc\n"),
            row("nothing changes", part(None), Some("a\nb\n"), "a\nb\n"),
            row("partly seen, another text by now", part(Some(0..2)), Some("a\nb\nc\n"), "A\nb\nc\n"),
            row("never seen", Knowledge::Nothing, Some("a\n"), "b\n"),
        ],
        expect![[r#"
            new file: Created "a\n"
            deleted since: ! the file was deleted since this session read it: read it again, then write it
            partly seen and deleted since: ! the file was deleted since this session read it: read it again, then write it
            unchanged since: Replaced "b\n"
            changed elsewhere: Merged "A\nb\nC\n", knows "a\nb\nC\n"
            changed at the same place: ! the text was changed since this session read it, and both changes touch the same lines: read it again
            changed in the same way: Replaced "b\n"
            hash unchanged: Replaced "b\n"
            hash changed: ! the text was changed since this session read it: read it again
            windows of this version: Replaced "b\n"
            windows of another version: ! the text was changed since this session read it: read it again
            seen to be missing: Created "b\n"
            created since: ! the text was changed since this session read it, and both changes touch the same lines: read it again
            created since with the same text: Replaced "b\n"
            partly seen: ! this session has read only a part of the text and would change or remove line 1, which it has not read: read the rest of the text first, or change only lines that it has read
            all seen that changes: ReplacedPartlySeen "a\nB\nnew\nd\n"
            more changes than was seen: ! this session has read only a part of the text and would change or remove line 4, which it has not read: read the rest of the text first, or change only lines that it has read
            the rest would go: ! this session has read only a part of the text and would change or remove lines 2 to 4, which it has not read: read the rest of the text first, or change only lines that it has read
            only added to: ReplacedPartlySeen "a\nb\nc\n"
            nothing changes: ReplacedPartlySeen "a\nb\n"
            partly seen, another text by now: ! this session has read only a part of the text and would change or remove line 1, which it has not read: read the rest of the text first, or change only lines that it has read
            never seen: ReplacedUnseen "b\n"
        "#]],
    );
}

#[test]
fn what_was_not_seen_may_be_refused() {
    let refused = |name, knowledge, disk| Row { unseen: Unseen::Refuse, ..row(name, knowledge, disk, "b\n") };
    check(
        vec![
            refused("new file", Knowledge::Nothing, None),
            refused("never seen", Knowledge::Nothing, Some("a\n")),
            refused("partly seen", part(None), Some("a\n")),
            refused("old windows", Knowledge::Windows(Version(2)), Some("a\n")),
            refused("windows", Knowledge::Windows(Version(1)), Some("a\n")),
            refused("seen", whole("a\n"), Some("a\n")),
        ],
        expect![[r#"
            new file: Created "b\n"
            never seen: ! this session has not read all of the text that it would replace: read it first
            partly seen: ! this session has not read all of the text that it would replace: read it first
            old windows: ! this session has not read all of the text that it would replace: read it first
            windows: Replaced "b\n"
            seen: Replaced "b\n"
        "#]],
    );
}

#[test]
fn unsaved_text_is_never_written_over() {
    let with = |name, knowledge, disk, document, content| Row {
        document: Some(document),
        ..row(name, knowledge, disk, content)
    };
    let three = "a\nb\nc\n";
    check(
        vec![
            with(
                "seen with its unsaved text",
                whole("A\nb\nc\n"),
                Some(three),
                dirty(Some(three), "A\nb\nc\n"),
                "A\nb\nC\n",
            ),
            with(
                "seen before it was typed",
                whole(three),
                Some(three),
                dirty(Some(three), "A\nb\nc\n"),
                "a\nb\nC\n",
            ),
            with("never seen", Knowledge::Nothing, Some(three), dirty(Some(three), "A\nb\nc\n"), "a\nb\nC\n"),
            with(
                "partly seen, same place",
                part(None),
                Some(three),
                dirty(Some(three), "A\nb\nc\n"),
                "x\nb\nc\n",
            ),
            with("a file that is not there yet", Knowledge::Nothing, None, dirty(None, "typed\n"), "sent\n"),
            with("typed just that", Knowledge::Nothing, None, dirty(None, "sent\n"), "sent\n"),
            with(
                "disk changed too",
                whole("A\nb\nc\n"),
                Some("a\nb\nc2\n"),
                dirty(Some(three), "A\nb\nc\n"),
                "A2\nb\nc\n",
            ),
            with(
                "disk changed at the same place",
                whole("A\nb\nc\n"),
                Some("a3\nb\nc\n"),
                dirty(Some(three), "A\nb\nc\n"),
                "A2\nb\nc\n",
            ),
            with(
                "disk changed to the same",
                whole("A\nb\nc\n"),
                Some("A2\nb\nc\n"),
                dirty(Some(three), "A\nb\nc\n"),
                "A2\nb\nc\n",
            ),
            with(
                "clean document",
                whole(three),
                Some(three),
                Document::new(Some(text(three)), None),
                "a\nb\nC\n",
            ),
            with(
                "clean document, disk changed since it was loaded",
                whole("A\nb\nc\n"),
                Some("A\nb\nc\n"),
                Document::new(Some(text(three)), None),
                "A\nb\nC\n",
            ),
        ],
        expect![[r#"
            seen with its unsaved text: Replaced "A\nb\nC\n"
            seen before it was typed: Merged "A\nb\nC\n", knows "a\nb\nC\n"
            never seen: Merged "A\nb\nC\n", knows "a\nb\nC\n"
            partly seen, same place: ! this session has read only a part of the text and would change or remove line 1, which it has not read: read the rest of the text first, or change only lines that it has read
            a file that is not there yet: ! the text was changed since this session read it, and both changes touch the same lines: read it again
            typed just that: Replaced "sent\n"
            disk changed too: Merged "A2\nb\nc2\n", knows "A2\nb\nc\n"
            disk changed at the same place: ! the file on disk and the editor's unsaved text were both changed on the same lines: save or reload it
            disk changed to the same: Replaced "A2\nb\nc\n"
            clean document: Replaced "a\nb\nC\n"
            clean document, disk changed since it was loaded: Replaced "A\nb\nC\n"
        "#]],
    );
}

#[test]
fn what_others_changed_is_not_deleted() {
    let hash = |text: &str| Knowledge::Hashed(ContentHash::of(text.as_bytes()));
    let unsaved = dirty(Some("a\n"), "typed\n");
    let clean = Document::new(Some(text("a\n")), None);
    let rows = [
        (whole("a\n"), None, Unseen::Overwrite, Ok(())),
        (whole("a\n"), Some(&clean), Unseen::Overwrite, Ok(())),
        (whole("a\n"), Some(&unsaved), Unseen::Overwrite, Err(Rejected::Stale)),
        (whole("b\n"), None, Unseen::Overwrite, Err(Rejected::Stale)),
        (hash("a\n"), None, Unseen::Overwrite, Ok(())),
        (hash("b\n"), None, Unseen::Overwrite, Err(Rejected::Stale)),
        (Knowledge::Windows(Version(1)), None, Unseen::Refuse, Ok(())),
        (Knowledge::Windows(Version(2)), None, Unseen::Overwrite, Err(Rejected::Stale)),
        (Knowledge::Absent, None, Unseen::Overwrite, Err(Rejected::Stale)),
        (part(None), None, Unseen::Overwrite, Ok(())),
        (part(None), None, Unseen::Refuse, Err(Rejected::NotSeen)),
        (Knowledge::Nothing, None, Unseen::Overwrite, Ok(())),
        (Knowledge::Nothing, None, Unseen::Refuse, Err(Rejected::NotSeen)),
        (Knowledge::Nothing, Some(&unsaved), Unseen::Overwrite, Err(Rejected::Stale)),
    ];
    for (knowledge, document, unseen, expected) in rows {
        let disk = Some("a\n");
        let situation = Situation { knowledge, disk, version: Version(1), document, content: "", unseen };
        assert_eq!(decide_deletion(&situation), expected, "{situation:?}");
    }
}

#[test]
fn line_endings_are_the_files() {
    check(
        vec![
            row("sent without", whole("a\r\nb\r\n"), Some("a\r\nb\r\n"), "a\nB\n"),
            row("sent without, merged", whole("a\r\nb\r\nc\r\n"), Some("A\r\nb\r\nc\r\n"), "a\nb\nC\n"),
        ],
        expect![[r#"
            sent without: Replaced "a\r\nB\r\n"
            sent without, merged: Merged "A\r\nb\r\nC\r\n", knows "a\r\nb\r\nC\r\n"
        "#]],
    );
}

#[test]
fn windows_that_join_are_a_whole() {
    let mut ledger = Ledger::default();
    let mut seen = Vec::new();
    for (version, window) in [(1, 0..3), (1, 7..9), (1, 3..5), (1, 4..8), (1, 9..10), (2, 0..3), (2, 0..10)] {
        ledger.saw_window("/a", Version(version), window, 10);
        seen.push(ledger.knowledge("/a", Version(version)));
    }
    let all = |version| Knowledge::Windows(Version(version));
    let is_part = |known: &Knowledge| matches!(known, Knowledge::Part(_));
    let parts: Vec<bool> = seen.iter().map(is_part).collect();
    assert_eq!(parts, [true, true, true, true, false, true, false]);
    assert_eq!((&seen[4], &seen[6]), (&all(1), &all(2)));
    assert_eq!(ledger.knowledge("/a", Version(3)), all(2), "also if it is another text by now");
    ledger.saw_nothing("/a");
    assert_eq!(ledger.knowledge("/a", Version(2)), Knowledge::Absent);
}

#[test]
fn who_reads_a_newer_text_in_windows_knows_that_one() {
    let mut ledger = Ledger::default();
    ledger.saw("/a", text("older"), Version(1));
    ledger.saw_window("/a", Version(2), 0..3, 10);
    assert_eq!(ledger.knowledge("/a", Version(2)), whole("older"), "not all of it yet");
    ledger.saw_window("/a", Version(2), 3..10, 10);
    assert_eq!(ledger.knowledge("/a", Version(2)), Knowledge::Windows(Version(2)));
    assert_eq!(
        ledger.knowledge("/a", Version(3)),
        whole("older"),
        "a base to merge with is better than none"
    );
    ledger.saw("/a", text("whole"), Version(2));
    assert_eq!(ledger.knowledge("/a", Version(2)), whole("whole"));
    assert_eq!(ledger.held, 5);
}

#[test]
fn stretches_have_a_cap_and_then_less_is_known_than_was_seen() {
    let mut ledger = Ledger::default();
    let size = 4 * MAX_STRETCHES as u64;
    for at in 0..MAX_STRETCHES as u64 + 5 {
        ledger.saw_window("/a", Version(1), 2 * at..2 * at + 1, size);
    }
    let windows = ledger.files.get("/a").and_then(|seen| seen.windows.as_ref());
    assert_eq!(windows.map(|windows| windows.stretches.len()), Some(MAX_STRETCHES));
    ledger.saw_window("/a", Version(1), 0..size, size);
    assert_eq!(ledger.knowledge("/a", Version(1)), Knowledge::Windows(Version(1)));
}

#[test]
fn of_the_oldest_texts_only_which_they_were_is_kept() {
    let mut ledger = Ledger::default();
    let large = text(&"x".repeat(MAX_HELD_BYTES / 2));
    ledger.wrote("/a", large.clone());
    for path in ["/b", "/c", "/d"] {
        ledger.saw(path, large.clone(), Version(1));
    }
    let hashed = Knowledge::Hashed(ContentHash::of(large.as_bytes()));
    assert_eq!(ledger.knowledge("/a", Version(1)), hashed);
    assert_eq!(ledger.knowledge("/b", Version(1)), Knowledge::Windows(Version(1)));
    assert_eq!(ledger.knowledge("/b", Version(2)), Knowledge::Windows(Version(1)));
    assert_eq!(ledger.knowledge("/c", Version(2)), Knowledge::Whole(large.clone()));
    assert_eq!(ledger.held, MAX_HELD_BYTES);
    ledger.saw("/c", text("small"), Version(1));
    assert_eq!(ledger.held, MAX_HELD_BYTES / 2 + 5);
    ledger.wrote("/d", text(""));
    assert_eq!(ledger.held, 5);
}

#[test]
fn windows_of_a_newer_text_outlast_the_older_text() {
    let mut ledger = Ledger::default();
    ledger.saw("/a", text("older"), Version(1));
    ledger.saw_window("/a", Version(2), 0..10, 10);
    ledger.saw("/b", text(&"x".repeat(MAX_HELD_BYTES)), Version(1));
    assert_eq!(ledger.knowledge("/a", Version(2)), Knowledge::Windows(Version(2)));
}

#[test]
fn the_file_that_was_looked_at_longest_ago_is_forgotten_first() {
    let mut ledger = Ledger::default();
    for at in 0..MAX_FILES {
        ledger.saw(&format!("/{at}"), text("x"), Version(1));
    }
    ledger.saw("/0", text("y"), Version(1));
    ledger.saw("/new", text("x"), Version(1));
    assert_eq!(ledger.knowledge("/0", Version(0)), whole("y"));
    assert_eq!(ledger.knowledge("/1", Version(0)), Knowledge::Nothing);
    assert_eq!((ledger.files.len(), ledger.held), (MAX_FILES, MAX_FILES));
}

proptest! {
    #[test]
    fn stretches_cover_what_was_seen_and_nothing_else(
        windows in proptest::collection::vec((0u64..40, 0u64..10), 0..20)
    ) {
        let mut stretches = Vec::new();
        let mut seen = [false; 60];
        for (start, length) in windows {
            add_stretch(&mut stretches, start..start + length);
            for at in start..start + length {
                seen[at as usize] = true;
            }
        }
        for (at, seen) in seen.iter().enumerate() {
            let covered = stretches.iter().any(|stretch| stretch.contains(&(at as u64)));
            prop_assert_eq!(covered, *seen, "{} in {:?}", at, stretches);
        }
        prop_assert!(stretches.windows(2).all(|pair| pair[0].end < pair[1].start));
    }
}
