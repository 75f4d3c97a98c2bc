//! Tests of a session's knowledge, and of the writes it permits.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

fn text(text: &str) -> Arc<String> {
    Arc::new(text.to_owned())
}

fn whole_knowledge(text: &str) -> Knowledge {
    Knowledge::Whole(Arc::new(text.to_owned()))
}

fn dirty_document(saved: Option<&str>, unsaved: &str) -> Document {
    let mut document = Document::new(saved.map(text), Some(TextVersion(1)));
    document.apply_change(text(unsaved), 0).unwrap();
    document
}

struct WriteCase<'a> {
    name: &'a str,
    knowledge: Knowledge,
    disk: Option<&'a str>,
    document: Option<Document>,
    content: &'a str,
}

/// Returns the knowledge of a range of a text of 8 bytes.
fn partial_knowledge(stretch: Option<Range<u64>>) -> Knowledge {
    let mut ledger = Ledger::default();
    ledger.record_window_read("/a", TextVersion(1), stretch.unwrap_or(0..0), 8);
    ledger.knowledge("/a", TextVersion(1))
}

fn write_case<'a>(
    name: &'a str,
    knowledge: Knowledge,
    disk: Option<&'a str>,
    content: &'a str,
) -> WriteCase<'a> {
    WriteCase { name, knowledge, disk, document: None, content }
}

fn check(rows: Vec<WriteCase<'_>>, expected: Expect) {
    let mut shown = String::new();
    for WriteCase { name, knowledge, disk, document, content } in rows {
        let document = document.as_ref();
        let context = WriteContext { knowledge, disk_text: disk, version: TextVersion(1), document, content };
        match decide_write(&context) {
            Ok(LedgerDecision { text, known_text, verdict }) if text == known_text => {
                writeln!(shown, "{name}: {verdict:?} {text:?}").unwrap();
            }
            Ok(LedgerDecision { text, known_text, verdict }) => {
                writeln!(shown, "{name}: {verdict:?} {text:?}, knows {known_text:?}").unwrap();
            }
            Err(error) => writeln!(shown, "{name}: ! {error}").unwrap(),
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn a_write_is_made_against_what_the_session_knows() {
    let hash = |text: &str| Knowledge::Hashed(ContentHash::digest(text.as_bytes()));
    check(
        vec![
            write_case("new file", Knowledge::Nothing, None, "a\n"),
            write_case("deleted since", whole_knowledge("a\n"), None, "b\n"),
            write_case("partly seen and deleted since", partial_knowledge(None), None, "b\n"),
            write_case("unchanged since", whole_knowledge("a\n"), Some("a\n"), "b\n"),
            write_case("changed elsewhere", whole_knowledge("a\nb\nc\n"), Some("A\nb\nc\n"), "a\nb\nC\n"),
            write_case("changed at the same place", whole_knowledge("a\n"), Some("A\n"), "b\n"),
            write_case("changed in the same way", whole_knowledge("a\n"), Some("b\n"), "b\n"),
            write_case("hash unchanged", hash("a\n"), Some("a\n"), "b\n"),
            write_case("hash changed", hash("a\n"), Some("A\n"), "b\n"),
            write_case("windows of this version", Knowledge::Windows(TextVersion(1)), Some("a\n"), "b\n"),
            write_case("windows of another version", Knowledge::Windows(TextVersion(2)), Some("a\n"), "b\n"),
            write_case("seen to be missing", Knowledge::Absent, None, "b\n"),
            write_case("created since", Knowledge::Absent, Some("a\n"), "b\n"),
            write_case("created since with the same text", Knowledge::Absent, Some("b\n"), "b\n"),
            write_case("partly seen", partial_knowledge(None), Some("a\n"), "b\n"),
            write_case(
                "all seen that changes",
                partial_knowledge(Some(2..6)),
                Some("a\nb\nc\nd\n"),
                "a\nB\nnew\nd\n",
            ),
            write_case(
                "more changes than was seen",
                partial_knowledge(Some(2..6)),
                Some("a\nb\nc\nd\n"),
                "a\nB\n",
            ),
            write_case("the rest would go", partial_knowledge(Some(0..2)), Some("a\nb\nc\nd\n"), "A\n"),
            write_case("only added to", partial_knowledge(Some(0..2)), Some("a\nb\n"), "a\nb\nc\n"),
            write_case("nothing changes", partial_knowledge(None), Some("a\nb\n"), "a\nb\n"),
            write_case(
                "partly seen, another text by now",
                partial_knowledge(Some(0..2)),
                Some("a\nb\nc\n"),
                "A\nb\nc\n",
            ),
            write_case("never seen", Knowledge::Nothing, Some("a\n"), "b\n"),
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
fn unsaved_text_is_never_written_over() {
    let case = |name, knowledge, disk, document, content| WriteCase {
        document: Some(document),
        ..write_case(name, knowledge, disk, content)
    };
    let three = "a\nb\nc\n";
    check(
        vec![
            case(
                "seen with its unsaved text",
                whole_knowledge("A\nb\nc\n"),
                Some(three),
                dirty_document(Some(three), "A\nb\nc\n"),
                "A\nb\nC\n",
            ),
            case(
                "seen before it was typed",
                whole_knowledge(three),
                Some(three),
                dirty_document(Some(three), "A\nb\nc\n"),
                "a\nb\nC\n",
            ),
            case(
                "never seen",
                Knowledge::Nothing,
                Some(three),
                dirty_document(Some(three), "A\nb\nc\n"),
                "a\nb\nC\n",
            ),
            case(
                "partly seen, same place",
                partial_knowledge(None),
                Some(three),
                dirty_document(Some(three), "A\nb\nc\n"),
                "x\nb\nc\n",
            ),
            case(
                "a file that is not there yet",
                Knowledge::Nothing,
                None,
                dirty_document(None, "typed\n"),
                "sent\n",
            ),
            case("typed just that", Knowledge::Nothing, None, dirty_document(None, "sent\n"), "sent\n"),
            case(
                "disk changed too",
                whole_knowledge("A\nb\nc\n"),
                Some("a\nb\nc2\n"),
                dirty_document(Some(three), "A\nb\nc\n"),
                "A2\nb\nc\n",
            ),
            case(
                "disk changed at the same place",
                whole_knowledge("A\nb\nc\n"),
                Some("a3\nb\nc\n"),
                dirty_document(Some(three), "A\nb\nc\n"),
                "A2\nb\nc\n",
            ),
            case(
                "disk changed to the same",
                whole_knowledge("A\nb\nc\n"),
                Some("A2\nb\nc\n"),
                dirty_document(Some(three), "A\nb\nc\n"),
                "A2\nb\nc\n",
            ),
            case(
                "clean document",
                whole_knowledge(three),
                Some(three),
                Document::new(Some(text(three)), None),
                "a\nb\nC\n",
            ),
            case(
                "clean document, disk changed since it was loaded",
                whole_knowledge("A\nb\nc\n"),
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
    let hash = |text: &str| Knowledge::Hashed(ContentHash::digest(text.as_bytes()));
    let unsaved = dirty_document(Some("a\n"), "typed\n");
    let clean = Document::new(Some(text("a\n")), None);
    let rows = [
        (whole_knowledge("a\n"), None, Ok(())),
        (whole_knowledge("a\n"), Some(&clean), Ok(())),
        (whole_knowledge("a\n"), Some(&unsaved), Err(WriteRejectedError::Stale)),
        (whole_knowledge("b\n"), None, Err(WriteRejectedError::Stale)),
        (hash("a\n"), None, Ok(())),
        (hash("b\n"), None, Err(WriteRejectedError::Stale)),
        (Knowledge::Windows(TextVersion(1)), None, Ok(())),
        (Knowledge::Windows(TextVersion(2)), None, Err(WriteRejectedError::Stale)),
        (Knowledge::Absent, None, Err(WriteRejectedError::Stale)),
        (partial_knowledge(None), None, Ok(())),
        (Knowledge::Nothing, None, Ok(())),
        (Knowledge::Nothing, Some(&unsaved), Err(WriteRejectedError::Stale)),
    ];
    for (knowledge, document, expected) in rows {
        let disk = Some("a\n");
        let context =
            WriteContext { knowledge, disk_text: disk, version: TextVersion(1), document, content: "" };
        assert_eq!(decide_deletion(&context), expected, "{context:?}");
    }
}

#[test]
fn an_insertion_adds_to_what_the_session_knows() {
    let hashed = |text: &str| Knowledge::Hashed(ContentHash::digest(text.as_bytes()));
    let rows = [
        ("no file", Knowledge::Nothing, None, 0),
        ("a deleted file", whole_knowledge("old\n"), None, 0),
        ("unknown text", Knowledge::Nothing, Some("one\ntwo\n"), 4),
        ("a part", partial_knowledge(Some(0..4)), Some("one\ntwo\n"), 4),
        ("all of it", whole_knowledge("one\ntwo\n"), Some("one\ntwo\n"), 4),
        ("its hash", hashed("one\n"), Some("one\n"), 4),
        ("another hash", hashed("two\n"), Some("one\n"), 4),
        ("its windows", Knowledge::Windows(TextVersion(1)), Some("one\n"), 0),
        ("older windows", Knowledge::Windows(TextVersion(2)), Some("one\n"), 0),
        ("older text, at the end", whole_knowledge("one\n"), Some("one\nuser\n"), 9),
        ("older text, elsewhere", whole_knowledge("one\ntwo\n"), Some("one\ntwo\nthree\nuser\n"), 0),
        ("older text, beside a change", whole_knowledge("one\n"), Some("user\n"), 0),
        ("absence, at the end", Knowledge::Absent, Some("user\n"), 5),
        ("absence, at the start", Knowledge::Absent, Some("user\n"), 0),
        ("other line endings", whole_knowledge("one\r\n"), Some("one\r\n"), 5),
    ];
    let mut shown = String::new();
    for (name, knowledge, live, position) in rows {
        let decision = decide_insertion(&knowledge, TextVersion(1), live, position, "new\n");
        let known = decision
            .known_text
            .as_ref()
            .map(|known| if *known == decision.text { "all".to_owned() } else { format!("{known:?}") });
        let known = known.unwrap_or_else(|| "as before".to_owned());
        writeln!(shown, "{name}: {:?}, known {known}", decision.text).unwrap();
    }
    expect![[r#"
        no file: "new\n", known all
        a deleted file: "new\n", known all
        unknown text: "one\nnew\ntwo\n", known as before
        a part: "one\nnew\ntwo\n", known as before
        all of it: "one\nnew\ntwo\n", known all
        its hash: "one\nnew\n", known all
        another hash: "one\nnew\n", known as before
        its windows: "new\none\n", known all
        older windows: "new\none\n", known as before
        older text, at the end: "one\nuser\nnew\n", known "one\nnew\n"
        older text, elsewhere: "new\none\ntwo\nthree\nuser\n", known "new\none\ntwo\n"
        older text, beside a change: "new\nuser\n", known as before
        absence, at the end: "user\nnew\n", known "new\n"
        absence, at the start: "new\nuser\n", known as before
        other line endings: "one\r\nnew\r\n", known all
    "#]]
    .assert_eq(&shown);
}

#[test]
fn line_endings_are_the_files() {
    check(
        vec![
            write_case("sent without", whole_knowledge("a\r\nb\r\n"), Some("a\r\nb\r\n"), "a\nB\n"),
            write_case(
                "sent without, merged",
                whole_knowledge("a\r\nb\r\nc\r\n"),
                Some("A\r\nb\r\nc\r\n"),
                "a\nb\nC\n",
            ),
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
    let mut knowledge = Vec::new();
    for (version, window) in [(1, 0..3), (1, 7..9), (1, 3..5), (1, 4..8), (1, 9..10), (2, 0..3), (2, 0..10)] {
        ledger.record_window_read("/a", TextVersion(version), window, 10);
        knowledge.push(ledger.knowledge("/a", TextVersion(version)));
    }
    let all = |version| Knowledge::Windows(TextVersion(version));
    let is_part = |known: &Knowledge| matches!(known, Knowledge::Partial(_));
    let parts: Vec<bool> = knowledge.iter().map(is_part).collect();
    assert_eq!(parts, [true, true, true, true, false, true, false]);
    assert_eq!((&knowledge[4], &knowledge[6]), (&all(1), &all(2)));
    assert_eq!(ledger.knowledge("/a", TextVersion(3)), all(2), "also if it is another text by now");
    ledger.record_absent("/a");
    assert_eq!(ledger.knowledge("/a", TextVersion(2)), Knowledge::Absent);
}

#[test]
fn who_reads_a_newer_text_in_windows_knows_that_one() {
    let mut ledger = Ledger::default();
    ledger.record_read("/a", text("older"), TextVersion(1));
    ledger.record_window_read("/a", TextVersion(2), 0..3, 10);
    assert_eq!(ledger.knowledge("/a", TextVersion(2)), whole_knowledge("older"), "not all of it yet");
    ledger.record_window_read("/a", TextVersion(2), 3..10, 10);
    assert_eq!(ledger.knowledge("/a", TextVersion(2)), Knowledge::Windows(TextVersion(2)));
    assert_eq!(
        ledger.knowledge("/a", TextVersion(3)),
        whole_knowledge("older"),
        "a base to merge with is better than none"
    );
    ledger.record_read("/a", text("whole"), TextVersion(2));
    assert_eq!(ledger.knowledge("/a", TextVersion(2)), whole_knowledge("whole"));
    assert_eq!(ledger.held_bytes, 5);
}

#[test]
fn stretches_have_a_cap_and_then_less_is_known_than_was_seen() {
    let mut ledger = Ledger::default();
    let size = 4 * MAX_READ_RANGES as u64;
    for at in 0..MAX_READ_RANGES as u64 + 5 {
        ledger.record_window_read("/a", TextVersion(1), 2 * at..2 * at + 1, size);
    }
    let windows = ledger.files.get("/a").and_then(|entry| entry.windows.as_ref());
    assert_eq!(windows.map(|windows| windows.ranges.len()), Some(MAX_READ_RANGES));
    ledger.record_window_read("/a", TextVersion(1), 0..size, size);
    assert_eq!(ledger.knowledge("/a", TextVersion(1)), Knowledge::Windows(TextVersion(1)));
}

#[test]
fn of_the_oldest_texts_only_which_they_were_is_kept() {
    let mut ledger = Ledger::default();
    let large = text(&"x".repeat(MAX_HELD_BYTES / 2));
    ledger.record_write("/a", large.clone());
    for path in ["/b", "/c", "/d"] {
        ledger.record_read(path, large.clone(), TextVersion(1));
    }
    let hashed = Knowledge::Hashed(ContentHash::digest(large.as_bytes()));
    assert_eq!(ledger.knowledge("/a", TextVersion(1)), hashed);
    assert_eq!(ledger.knowledge("/b", TextVersion(1)), Knowledge::Windows(TextVersion(1)));
    assert_eq!(ledger.knowledge("/b", TextVersion(2)), Knowledge::Windows(TextVersion(1)));
    assert_eq!(ledger.knowledge("/c", TextVersion(2)), Knowledge::Whole(large.clone()));
    assert_eq!(ledger.held_bytes, MAX_HELD_BYTES);
    ledger.record_read("/c", text("small"), TextVersion(1));
    assert_eq!(ledger.held_bytes, MAX_HELD_BYTES / 2 + 5);
    ledger.record_write("/d", text(""));
    assert_eq!(ledger.held_bytes, 5);
}

#[test]
fn windows_of_a_newer_text_outlast_the_older_text() {
    let mut ledger = Ledger::default();
    ledger.record_read("/a", text("older"), TextVersion(1));
    ledger.record_window_read("/a", TextVersion(2), 0..10, 10);
    ledger.record_read("/b", text(&"x".repeat(MAX_HELD_BYTES)), TextVersion(1));
    assert_eq!(ledger.knowledge("/a", TextVersion(2)), Knowledge::Windows(TextVersion(2)));
}

#[test]
fn the_file_that_was_looked_at_longest_ago_is_forgotten_first() {
    let mut ledger = Ledger::default();
    for at in 0..MAX_FILES {
        ledger.record_read(&format!("/{at}"), text("x"), TextVersion(1));
    }
    ledger.record_read("/0", text("y"), TextVersion(1));
    ledger.record_read("/new", text("x"), TextVersion(1));
    assert_eq!(ledger.knowledge("/0", TextVersion(0)), whole_knowledge("y"));
    assert_eq!(ledger.knowledge("/1", TextVersion(0)), Knowledge::Nothing);
    assert_eq!((ledger.files.len(), ledger.held_bytes), (MAX_FILES, MAX_FILES));
}

proptest! {
    #[test]
    fn stretches_cover_what_was_seen_and_nothing_else(
        windows in proptest::collection::vec((0u64..40, 0u64..10), 0..20)
    ) {
        let mut ranges = Vec::new();
        let mut seen = [false; 60];
        for (start, length) in windows {
            add_range(&mut ranges, start..start + length);
            for at in start..start + length {
                seen[at as usize] = true;
            }
        }
        for (at, seen) in seen.iter().enumerate() {
            let covered = ranges.iter().any(|range| range.contains(&(at as u64)));
            prop_assert_eq!(covered, *seen, "{} in {:?}", at, ranges);
        }
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
    }
}

#[test]
fn a_moved_text_stays_known_and_a_removed_one_does_not() {
    let mut ledger = Ledger::default();
    for path in ["/dir/a", "/dir/deep/b", "/directory", "/to/a"] {
        ledger.record_read(path, text(path), TextVersion(1));
    }
    ledger.record_transfer("/dir", Some("/to"));
    let known = |ledger: &Ledger, path: &str| ledger.knowledge(path, TextVersion(0));
    assert_eq!(known(&ledger, "/to/a"), whole_knowledge("/dir/a"));
    assert_eq!(known(&ledger, "/to/deep/b"), whole_knowledge("/dir/deep/b"));
    assert_eq!(known(&ledger, "/directory"), whole_knowledge("/directory"));
    assert_eq!(known(&ledger, "/dir/a"), Knowledge::Nothing);
    assert_eq!(known(&ledger, "/dir"), Knowledge::Absent);
    ledger.record_transfer("/to/a", None);
    assert_eq!(known(&ledger, "/to/a"), Knowledge::Absent);
}
