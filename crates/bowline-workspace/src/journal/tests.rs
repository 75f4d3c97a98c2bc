//! A full disk, simulated by a database that may not grow.

use expect_test::expect;
use tempfile::TempDir;

use super::*;

fn journal() -> (TempDir, Journal) {
    let directory = TempDir::new().unwrap();
    let (journal, _) = Journal::open(directory.path(), Retention::default(), Timestamp(0)).unwrap();
    (directory, journal)
}

fn draft<'a>(origin: &'a ChangeOrigin, path: &'a str, text: &'a [u8]) -> ChangeDraft<'a> {
    ChangeDraft {
        origin,
        source: ChangeSource::Written,
        path,
        before: None,
        after: Some(DraftSide { content: DraftContent::Bytes(text), mode: 0o644 }),
        moved_from: None,
        reverses: &[],
        method: ApplyMethod::InPlace,
    }
}

/// At whichever page the room ends, nothing of the batch is recorded, and everything earlier is intact.
#[test]
fn without_room_nothing_is_half_recorded() {
    let (directory, mut journal) = journal();
    let origin = ChangeOrigin::default();
    journal.begin(&[draft(&origin, "/a", b"kept")], Timestamp(1)).unwrap();
    let before = journal.pending_changes().unwrap();
    let pages: i64 =
        journal.database.connection().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    let text: Vec<u8> = (0..40_000_u32)
        .flat_map(|n| ContentHash::digest(&n.to_le_bytes()).as_bytes()[..1].to_vec())
        .collect();
    let batch = [draft(&origin, "/b", b"small"), draft(&origin, "/c", &text)];
    let mut refused = 0;
    for room in 0.. {
        journal.database.connection().pragma(None, "max_page_count", pages + room, |_| Ok(())).unwrap();
        match journal.begin(&batch, Timestamp(2)) {
            Ok(ids) => {
                assert_eq!(ids, [ChangeId(2), ChangeId(3)]);
                break;
            }
            Err(error) => {
                let directory = directory.path().canonicalize().unwrap();
                expect!["no room is left for the journal $DIR/journal.sqlite: free some space"]
                    .assert_eq(&error.to_string().replace(directory.to_str().unwrap(), "$DIR"));
                refused += 1;
            }
        }
        assert_eq!(journal.pending_changes().unwrap(), before);
        assert_eq!(journal.content(&ContentHash::digest(b"small")).unwrap(), None);
        assert_eq!(journal.content(&ContentHash::digest(b"kept")).unwrap().unwrap(), b"kept");
    }
    assert!(refused > 5, "{refused}");
    assert_eq!(journal.pending_changes().unwrap().len(), 3);
    assert_eq!(journal.content(&ContentHash::digest(&text)).unwrap().unwrap(), text);
}

#[test]
fn a_journal_that_is_full_can_still_be_settled_and_pruned() {
    let (_directory, mut journal) = journal();
    let origin = ChangeOrigin::default();
    let ids = journal.begin(&[draft(&origin, "/a", b"kept")], Timestamp(1)).unwrap();
    let pages: i64 =
        journal.database.connection().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    journal.database.connection().pragma(None, "max_page_count", pages, |_| Ok(())).unwrap();
    journal.settle(&[(ids[0], ChangeOutcome::Done)]).unwrap();
    journal.prune(Timestamp(2)).unwrap();
    assert_eq!(journal.changes(&ChangeFilter::default()).unwrap().len(), 1);
}

/// Recording a change syncs the disk, which makes it durable; settling one does not, which makes it cheap.
#[test]
fn the_level_of_durability_follows_the_step() {
    let (_directory, mut journal) = journal();
    let origin = ChangeOrigin::default();
    let level = |journal: &Journal| -> i64 {
        journal.database.connection().pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap()
    };
    let (full, normal) = (2, 1);
    let ids = journal.begin(&[draft(&origin, "/a", b"1")], Timestamp(1)).unwrap();
    assert_eq!(level(&journal), full);
    journal.settle(&[(ids[0], ChangeOutcome::Done)]).unwrap();
    assert_eq!(level(&journal), normal);
    journal
        .record(
            &[ChangeDraft { method: ApplyMethod::AlreadyApplied, ..draft(&origin, "/a", b"2") }],
            Timestamp(1),
        )
        .unwrap();
    assert_eq!(level(&journal), full);
    journal.store_contents(&[b"3"]).unwrap();
    assert_eq!(level(&journal), normal);
}

#[test]
fn the_settings_of_the_database_are_those_that_are_relied_on() {
    let (_directory, journal) = journal();
    let value = |name: &str| -> String {
        let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
        format!("{name} {:?}", journal.database.connection().pragma_query_value(None, name, value).unwrap())
    };
    let names =
        ["journal_mode", "auto_vacuum", "trusted_schema", "cell_size_check", "busy_timeout", "page_size"];
    expect![[r#"
        journal_mode Text("wal")
        auto_vacuum Integer(2)
        trusted_schema Integer(0)
        cell_size_check Integer(1)
        busy_timeout Integer(10000)
        page_size Integer(4096)"#]]
    .assert_eq(&names.map(value).join("\n"));
}

#[test]
fn the_text_of_a_secret_file_is_sealed_and_needs_its_key() {
    let (directory, mut journal) = journal();
    let origin = ChangeOrigin::default();
    let large = "password\n".repeat(4000).into_bytes();
    assert!(!directory.path().join("secrets.key").exists(), "it is made when it is needed");
    let drafts = [draft(&origin, "/w/.env", b"password"), draft(&origin, "/w/id_rsa", &large)];
    journal.begin(&drafts, Timestamp(1)).unwrap();
    journal.begin(&[draft(&origin, "/w/a.txt", b"ordinary")], Timestamp(1)).unwrap();
    // Moves the content of the log into the database.
    journal.database.connection().pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap();
    let holds = |text: &str| {
        let bytes = std::fs::read(journal.path()).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    assert_eq!([holds("password"), holds("ordinary")], [false, true]);
    let blob = |journal: &Journal, bytes: &[u8]| journal.content(&ContentHash::digest(bytes));
    assert_eq!(blob(&journal, b"password").unwrap().unwrap(), b"password");
    assert_eq!(blob(&journal, &large).unwrap().unwrap(), large);
    let (again, _) = Journal::open(directory.path(), Retention::default(), Timestamp(2)).unwrap();
    assert_eq!(blob(&again, b"password").unwrap().unwrap(), b"password");
    std::fs::write(directory.path().join("secrets.key"), [7; 32]).unwrap();
    assert!(matches!(blob(&again, b"password"), Err(JournalError::Damaged(_))));
    assert_eq!(blob(&again, b"ordinary").unwrap().unwrap(), b"ordinary");
}
