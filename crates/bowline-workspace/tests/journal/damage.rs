//! Tests of journals that are damaged, newer or not journals at all: they are set aside whole, never emptied.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bowline_history::changes::{ChangeOrigin, ChangeOutcome};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{Journal, JournalCondition, examine};
use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::fixture::{draft, history, list_files, open_journal, random_bytes, redact_directory};

/// A closed journal with some changes.
fn filled_journal() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let path = journal.path();
    add_changes(&mut journal, &["one", "two"]);
    (directory, path)
}

fn add_changes(journal: &mut Journal, texts: &[&str]) {
    let origin = ChangeOrigin::default();
    for text in texts {
        let ids = journal.begin(&[draft(&origin, "/a", None, Some(text.as_bytes()))], Timestamp(0)).unwrap();
        journal.settle(&[(ids[0], ChangeOutcome::Done)]).unwrap();
    }
}

/// Damages the file of a journal, opens it, and shows the notices and the files afterwards. The copy set aside has to
/// equal the damaged file byte for byte.
fn check(spoil: impl FnOnce(&Path), expected: Expect) {
    let (directory, path) = filled_journal();
    spoil(&path);
    let spoilt = fs::read(&path).unwrap_or_default();
    let (mut journal, notices) = open_journal(directory.path());
    let mut out = String::new();
    for notice in notices {
        writeln!(out, "{}", redact_directory(directory.path(), notice)).unwrap();
    }
    add_changes(&mut journal, &["new"]);
    out.push_str(&history(&journal));
    drop(journal);
    let (_, notices) = open_journal(directory.path());
    assert_eq!(notices, []);
    out.push_str(&list_files(directory.path()));
    expected.assert_eq(&out);
    let aside = directory.path().join("journal.sqlite.set-aside-1");
    assert_eq!(fs::read(aside).unwrap_or_default(), spoilt);
}

fn run_sql(statement: &'static str) -> impl FnOnce(&Path) {
    move |path| rusqlite::Connection::open(path).unwrap().execute_batch(statement).unwrap()
}

fn flip_bits(path: &Path, at: usize, bits: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= bits;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_that_is_no_database_is_set_aside() {
    check(
        |path| fs::write(path, random_bytes(1, 100_000)).unwrap(),
        expect![[r#"
        the journal of changes cannot be used: it is damaged (file is not a database); it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
        1 /a new Done
        0700 .
        0600 journal.sqlite
        0600 journal.sqlite.set-aside-1
        0600 lock
    "#]],
    );
}

#[test]
fn a_short_text_is_set_aside() {
    check(
        |path| fs::write(path, "notes of my own\n").unwrap(),
        expect![[r#"
        the journal of changes cannot be used: it is damaged (file is not a database); it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
        1 /a new Done
        0700 .
        0600 journal.sqlite
        0600 journal.sqlite.set-aside-1
        0600 lock
    "#]],
    );
}

#[test]
fn a_truncated_journal_is_set_aside() {
    check(
        |path| {
            let length = fs::metadata(path).unwrap().len();
            fs::File::options().write(true).open(path).unwrap().set_len(length / 2).unwrap();
        },
        expect![[r#"
            the journal of changes cannot be used: it is damaged (database disk image is malformed); it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
            1 /a new Done
            0700 .
            0600 journal.sqlite
            0600 journal.sqlite.set-aside-1
            0600 journal.sqlite.set-aside-1-shm
            0600 journal.sqlite.set-aside-1-wal
            0600 lock
        "#]],
    );
}

#[test]
fn a_journal_of_a_newer_bowline_is_set_aside() {
    check(
        run_sql("PRAGMA user_version = 7"),
        expect![[r#"
            the journal of changes cannot be used: it was written by a newer Bowline (format 7, this one reads up to 5), which can read it; it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
            1 /a new Done
            0700 .
            0600 journal.sqlite
            0600 journal.sqlite.set-aside-1
            0600 journal.sqlite.set-aside-1-shm
            0600 journal.sqlite.set-aside-1-wal
            0600 lock
        "#]],
    );
}

#[test]
fn journals_of_previous_formats_are_continued() {
    continue_previous_format("ALTER TABLE changes DROP COLUMN moved_from; PRAGMA user_version = 4");
    continue_previous_format(
        "ALTER TABLE changes DROP COLUMN moved_from; ALTER TABLE baseline DROP COLUMN git_object; DROP TABLE git_packs; DROP TABLE git_texts; PRAGMA user_version = 3",
    );
    continue_previous_format(
        "ALTER TABLE changes DROP COLUMN moved_from; ALTER TABLE baseline DROP COLUMN git_object; DROP TABLE git_packs; DROP TABLE git_texts; DROP TABLE tails; PRAGMA user_version = 2",
    );
}

fn continue_previous_format(sql: &'static str) {
    let (directory, path) = filled_journal();
    run_sql(sql)(&path);
    for _ in 0..2 {
        let (mut journal, notices) = open_journal(directory.path());
        assert_eq!(notices, []);
        add_changes(&mut journal, &["new"]);
    }
    let (journal, _) = open_journal(directory.path());
    expect![[r#"
        1 /a one Done
        2 /a two Done
        3 /a new Done
        4 /a new Done
    "#]]
    .assert_eq(&history(&journal));
}

#[test]
fn a_journal_of_a_format_that_never_was_is_set_aside() {
    check(
        run_sql("PRAGMA user_version = -1"),
        expect![[r#"
        the journal of changes cannot be used: its tables are not those of format -1; it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
        1 /a new Done
        0700 .
        0600 journal.sqlite
        0600 journal.sqlite.set-aside-1
        0600 journal.sqlite.set-aside-1-shm
        0600 journal.sqlite.set-aside-1-wal
        0600 lock
    "#]],
    );
}

#[test]
fn the_database_of_another_program_is_set_aside() {
    check(
        run_sql("PRAGMA application_id = 42"),
        expect![[r#"
            the journal of changes cannot be used: it was not written by Bowline, or its header is damaged (application 0x2a); it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
            1 /a new Done
            0700 .
            0600 journal.sqlite
            0600 journal.sqlite.set-aside-1
            0600 journal.sqlite.set-aside-1-shm
            0600 journal.sqlite.set-aside-1-wal
            0600 lock
        "#]],
    );
}

#[test]
fn a_journal_that_lacks_a_table_is_set_aside() {
    check(
        run_sql("DROP TABLE baseline"),
        expect![[r#"
            the journal of changes cannot be used: its tables are not those of format 5; it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
            1 /a new Done
            0700 .
            0600 journal.sqlite
            0600 journal.sqlite.set-aside-1
            0600 journal.sqlite.set-aside-1-shm
            0600 journal.sqlite.set-aside-1-wal
            0600 lock
        "#]],
    );
}

#[test]
fn a_log_without_its_database_is_set_aside() {
    check(
        |path| {
            fs::remove_file(path).unwrap();
            fs::write(path.with_extension("sqlite-wal"), "all that is left").unwrap();
        },
        expect![[r#"
            the journal of changes cannot be used: it is empty, or only its log is there; it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
            1 /a new Done
            0700 .
            0600 journal.sqlite
            0644 journal.sqlite.set-aside-1-wal
            0600 lock
        "#]],
    );
}

#[test]
fn a_log_whose_database_is_empty_is_set_aside() {
    check(
        |path| {
            fs::write(path, "").unwrap();
            fs::write(path.with_extension("sqlite-wal"), "all that is left").unwrap();
        },
        expect![[r#"
            the journal of changes cannot be used: it is empty, or only its log is there; it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
            1 /a new Done
            0700 .
            0600 journal.sqlite
            0600 journal.sqlite.set-aside-1
            0644 journal.sqlite.set-aside-1-wal
            0600 lock
        "#]],
    );
}

#[test]
fn an_empty_file_is_set_aside() {
    check(
        |path| fs::write(path, "").unwrap(),
        expect![[r#"
            the journal of changes cannot be used: it is empty, or only its log is there; it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun
            1 /a new Done
            0700 .
            0600 journal.sqlite
            0600 journal.sqlite.set-aside-1
            0600 lock
        "#]],
    );
}

/// Killed while the first database was being created, which is renamed into place when it is complete.
#[test]
fn a_journal_that_was_only_begun_is_made_again() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("journal.sqlite.new"), "half").unwrap();
    fs::write(directory.path().join("journal.sqlite.new-journal"), "half").unwrap();
    let (mut journal, notices) = open_journal(directory.path());
    assert_eq!(notices, []);
    add_changes(&mut journal, &["new"]);
    assert_eq!(history(&journal), "1 /a new Done\n");
    drop(journal);
    assert_eq!(list_files(directory.path()), "0700 .\n0600 journal.sqlite\n0600 lock\n");
}

/// Killed after the decision to replace a damaged database with a new one.
#[test]
fn a_replacement_that_was_cut_short_is_finished() {
    let (directory, path) = filled_journal();
    let within = |name: &str| directory.path().join(name);
    fs::rename(&path, within("journal.sqlite.ready")).unwrap();
    fs::write(&path, "damaged").unwrap();
    fs::write(within("journal.sqlite-wal"), "of the damaged one").unwrap();
    let (journal, notices) = open_journal(directory.path());
    assert_eq!(notices, []);
    assert_eq!(history(&journal), "1 /a one Done\n2 /a two Done\n");
    assert_eq!(fs::read(within("journal.sqlite.set-aside-1")).unwrap(), b"damaged");
    assert_eq!(fs::read(within("journal.sqlite.set-aside-1-wal")).unwrap(), b"of the damaged one");
}

#[test]
fn names_that_are_taken_are_left_alone() {
    let (directory, path) = filled_journal();
    fs::write(directory.path().join("journal.sqlite.set-aside-1-wal"), "kept").unwrap();
    fs::write(directory.path().join("journal.sqlite.set-aside-2"), "kept").unwrap();
    fs::write(path, "no database, and longer than a header ".repeat(20)).unwrap();
    let (_journal, notices) = open_journal(directory.path());
    let notices: Vec<_> = notices.iter().map(|notice| redact_directory(directory.path(), notice)).collect();
    expect!["the journal of changes cannot be used: it is damaged (file is not a database); it was moved to $DIR/journal.sqlite.set-aside-3 and a new one was begun"].assert_eq(&notices.join("\n"));
    expect![[r#"
        0700 .
        0600 journal.sqlite
        0600 journal.sqlite-shm
        0600 journal.sqlite-wal
        0644 journal.sqlite.set-aside-1-wal
        0644 journal.sqlite.set-aside-2
        0600 journal.sqlite.set-aside-3
        0600 lock
    "#]]
    .assert_eq(&list_files(directory.path()));
}

/// The WAL is set aside with the database, and neither is written to.
#[test]
fn the_log_of_a_newer_journal_goes_with_it() {
    let directory = TempDir::new().unwrap();
    let source = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(source.path());
    add_changes(&mut journal, &["one"]);
    run_sql("PRAGMA user_version = 7")(&journal.path());
    // Copied while in use: the latest rows are in the WAL alone.
    for name in ["journal.sqlite", "journal.sqlite-wal"] {
        fs::copy(source.path().join(name), directory.path().join(name)).unwrap();
    }
    let (_journal, notices) = open_journal(directory.path());
    assert_eq!(notices.len(), 1);
    for name in ["journal.sqlite", "journal.sqlite-wal"] {
        let aside = directory.path().join(name.replace(".sqlite", ".sqlite.set-aside-1"));
        assert_eq!(fs::read(source.path().join(name)).unwrap(), fs::read(aside).unwrap(), "{name}");
    }
}

/// For any changed byte of the header, the history is readable, or the journal is set aside unchanged.
#[test]
fn no_changed_byte_of_the_header_empties_a_journal() {
    let (directory, path) = filled_journal();
    let whole = history(&open_journal(directory.path()).0);
    let bytes = fs::read(&path).unwrap();
    let mut kept = 0;
    for (at, bits) in (0..100).map(|at| (at, 1 << (at % 8))) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("journal.sqlite");
        fs::write(&path, &bytes).unwrap();
        flip_bits(&path, at, bits);
        let flipped = fs::read(&path).unwrap();
        let (journal, notices) = open_journal(directory.path());
        if notices.is_empty() {
            kept += 1;
            assert_eq!(history(&journal), whole, "byte {at} ^ {bits}");
        } else {
            assert_eq!(history(&journal), "", "byte {at} ^ {bits}");
            let aside = directory.path().join("journal.sqlite.set-aside-1");
            assert!(fs::read(aside).unwrap() == flipped, "byte {at} ^ {bits}");
        }
    }
    assert!(kept > 10 && kept < 90, "{kept} flips did no harm");
}

/// For any changed byte of the file, there is no panic, and a content is returned intact or as an error.
#[test]
fn no_changed_byte_goes_unnoticed_in_a_content() {
    let (directory, path) = filled_journal();
    let whole = history(&open_journal(directory.path()).0);
    let bytes = fs::read(&path).unwrap();
    for at in (100..bytes.len()).step_by(997) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("journal.sqlite");
        fs::write(&path, &bytes).unwrap();
        flip_bits(&path, at, 0x55);
        let (journal, notices) = open_journal(directory.path());
        if notices.is_empty() {
            for (found, expected) in history(&journal).lines().zip(whole.lines()) {
                assert!(found == expected || found.contains('!'), "byte {at}: {found}");
            }
        }
    }
}

#[test]
fn a_damaged_content_is_an_error_that_names_it() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let path = journal.path();
    let text = "a text that is found again in the file";
    let hash = ContentHash::digest(text.as_bytes());
    add_changes(&mut journal, &[text]);
    drop(journal);
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    flip_bits(&path, at + 5, 1);

    let (journal, notices) = open_journal(directory.path());
    assert_eq!(notices, []);
    expect!["the content 2669382301e07ab36b0271cf64631419d138771111379c71cd7c8b42e6d8f86e is damaged in the journal and cannot be given back"].assert_eq(&journal.content(&hash).unwrap_err().to_string());
    assert_eq!(journal.changes(&Default::default()).unwrap().len(), 1);
}

/// A journal too large to be examined at every opening: damage is found in use, and the next opening examines it.
#[test]
fn damage_that_is_met_in_use_is_looked_for_when_opened_again() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let path = journal.path();
    let origin = ChangeOrigin::default();
    let large = random_bytes(1, 5 << 20);
    journal.begin(&[draft(&origin, "/large", None, Some(&large))], Timestamp(0)).unwrap();
    add_changes(&mut journal, &["small"]);
    let root: u32 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'changes'", [], |row| row.get(0))
        .unwrap();
    drop(journal);
    let mut bytes = fs::read(&path).unwrap();
    bytes[(root as usize - 1) * 4096..][..4096].fill(0xee);
    fs::write(&path, &bytes).unwrap();

    let (journal, notices) = open_journal(directory.path());
    let mut out: Vec<_> = notices.iter().map(|notice| redact_directory(directory.path(), notice)).collect();
    out.push(redact_directory(directory.path(), journal.pending_changes().unwrap_err()));
    drop(journal);
    let (journal, notices) = open_journal(directory.path());
    out.extend(notices.iter().map(|notice| redact_directory(directory.path(), notice)));
    assert_eq!(history(&journal), "");
    expect![[r#"
        old changes could not be dropped from the journal: damage was found in the journal $DIR/journal.sqlite (database disk image is malformed): open it again to set it aside
        damage was found in the journal $DIR/journal.sqlite (database disk image is malformed): open it again to set it aside
        the journal of changes cannot be used: it is damaged (*** in database main *** Tree 3 page 3: btreeInitPage() returns error code 11); it was moved to $DIR/journal.sqlite.set-aside-1 and a new one was begun"#]].assert_eq(&out.join("\n"));
    assert!(fs::read(directory.path().join("journal.sqlite.set-aside-1")).unwrap() == bytes);
}

#[test]
fn a_journal_that_is_only_looked_at_stays_as_it_is() {
    let seen = |spoil: &dyn Fn(&Path)| {
        let (directory, path) = filled_journal();
        spoil(&path);
        let content = fs::read(&path).ok();
        let found = examine(directory.path()).unwrap();
        assert_eq!(fs::read(&path).ok(), content);
        match found {
            JournalCondition::Missing => "missing".to_owned(),
            JournalCondition::Usable { changes, .. } => format!("usable, {changes} changes"),
            JournalCondition::Unusable(why) => why.to_string(),
        }
    };
    let shown = [
        seen(&|_| ()),
        seen(&|path| fs::remove_file(path).unwrap()),
        seen(&|path| run_sql("PRAGMA user_version = 99")(path)),
        seen(&|path| run_sql("DROP TABLE baseline")(path)),
        seen(&|path| {
            run_sql(
                "ALTER TABLE changes DROP COLUMN moved_from; ALTER TABLE baseline DROP COLUMN git_object; DROP TABLE git_packs; DROP TABLE git_texts; DROP TABLE tails; PRAGMA user_version = 2",
            )(path)
        }),
        seen(&|path| fs::write(path, "no database, however long it is".repeat(100)).unwrap()),
    ];
    expect![[r#"
        usable, 2 changes
        missing
        it was written by a newer Bowline (format 99, this one reads up to 5), which can read it
        its tables are not those of format 5
        usable, 2 changes
        it is damaged (file is not a database)
    "#]]
    .assert_eq(&(shown.join("\n") + "\n"));
}
