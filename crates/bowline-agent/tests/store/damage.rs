//! Databases that are damaged, newer or missing: kept as they were, and never silently empty.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bowline_agent::store::{
    Durability, SessionQuery, SessionStore as _, SqliteSessionStore, StoreError, StoreNotice,
};
use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::fixture::{agent_text, agent_texts, new_directory, open_store, session_id, session_meta};

/// A directory with three unclaimed sessions, and the path of its database.
async fn create_filled_database() -> (TempDir, PathBuf) {
    let directory = new_directory();
    let store = open_store(&directory);
    for id in ["one", "two", "three"] {
        let lease = store.create(session_meta(id, "/work")).await.unwrap();
        for number in 0..20 {
            let text = format!("{id} {number} {}", "x".repeat(200));
            lease.append(vec![agent_text(text)], Durability::Deferred).await.unwrap();
        }
        lease.close().await.unwrap();
    }
    // Closing leaves everything in the one file.
    drop(store);
    let path = directory.path().join("sessions.db");
    (directory, path)
}

/// Moves everything from the log into the one file.
fn checkpoint(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// Describes each listed session, and the notices.
async fn describe_sessions(directory: &Path, store: &SqliteSessionStore) -> String {
    let mut out = String::new();
    match store.list(SessionQuery { page_size: 9, ..SessionQuery::default() }).await {
        Ok(page) => {
            for meta in page.sessions {
                match store.read(&meta.id).await {
                    Ok(stored) => {
                        let texts = agent_texts(&stored);
                        writeln!(out, "{} {}", meta.id, texts.len()).unwrap();
                        for (number, text) in texts.iter().enumerate() {
                            assert!(text.starts_with(&format!("{} {number} x", meta.id)), "{text}");
                        }
                    }
                    Err(error) => writeln!(out, "{} ! {error}", meta.id).unwrap(),
                }
            }
        }
        Err(error) => writeln!(out, "! {error}").unwrap(),
    }
    for notice in store.take_notices() {
        writeln!(out, "{notice}").unwrap();
    }
    out.replace(directory.canonicalize().unwrap().to_str().unwrap(), "$DIR")
}

/// Damages the database and describes what is left of it. The copy set aside is the damaged file, to the byte, and the
/// next process has no notices.
async fn check(damage: impl FnOnce(&Path), expected: Expect) {
    let (directory, path) = create_filled_database().await;
    damage(&path);
    let damaged = fs::read(&path).unwrap_or_default();
    let first = describe_sessions(directory.path(), &open_store(&directory)).await;
    expected.assert_eq(&first);
    let set_aside = directory.path().join("sessions.db.set-aside-1");
    assert!(fs::read(set_aside).unwrap_or_default() == damaged, "what lies aside is another one");
    let store = open_store(&directory);
    let second = describe_sessions(directory.path(), &store).await;
    assert!(first.starts_with(&second), "{second}");
    let lease = store.create(session_meta("new", "/work")).await.unwrap();
    lease.append(vec![agent_text("new 0 x")], Durability::Synced).await.unwrap();
}

fn edit_bytes(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_file_without_a_byte_is_told() {
    check(
        |path| fs::write(path, "").unwrap(),
        expect![[r#"
        the stored sessions were damaged (it is empty, or only its log is there); a copy was set aside as $DIR/sessions.db.set-aside-1; no session could be read
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_file_that_is_no_database_is_told() {
    check(
        |path| fs::write(path, "notes of my own\n".repeat(1000)).unwrap(),
        expect![[r#"
            the stored sessions were damaged (file is not a database); a copy was set aside as $DIR/sessions.db.set-aside-1; no session could be read
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_truncated_database_keeps_its_readable_records() {
    check(
        |path| edit_bytes(path, |bytes| bytes.truncate(bytes.len() - 3 * 4096)),
        expect![[r#"
            three 0
            two 6
            one 20
            the stored sessions were damaged (database disk image is malformed); a copy was set aside as $DIR/sessions.db.set-aside-1; sessions that are whole: 1; 2 lack their end: two, three
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_damaged_record_ends_only_its_session() {
    check(
        |path| {
            edit_bytes(path, |bytes| {
                let text = b"two 7 xx";
                let position = bytes.windows(text.len()).position(|window| window == text).unwrap();
                bytes[position + 20] ^= 1;
            });
        },
        expect![[r#"
            three 20
            two 7
            one 20
            the stored sessions were damaged (a record is not what was written); a copy was set aside as $DIR/sessions.db.set-aside-1; sessions that are whole: 2; 1 lack their end: two
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_foreign_header_is_reported_and_the_sessions_continue() {
    check(
        |path| edit_bytes(path, |bytes| bytes[68] ^= 0x10),
        expect![[r#"
            three 20
            two 20
            one 20
            the stored sessions were damaged (it was not written by Bowline, or its header is damaged (application 0x5b6e6f74)); a copy was set aside as $DIR/sessions.db.set-aside-1; sessions that are whole: 3
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_log_without_its_database_is_told() {
    let (directory, path) = create_filled_database().await;
    fs::remove_file(&path).unwrap();
    let log = directory.path().join("sessions.db-wal");
    fs::write(&log, "what is left").unwrap();
    expect![[r#"
        the stored sessions were damaged (it is empty, or only its log is there); a copy was set aside as $DIR/sessions.db.set-aside-1; no session could be read
    "#]]
    .assert_eq(&describe_sessions(directory.path(), &open_store(&directory)).await);
    assert_eq!(fs::read(directory.path().join("sessions.db.set-aside-1-wal")).unwrap(), b"what is left");
}

#[tokio::test]
async fn sessions_of_a_newer_bowline_are_left_alone() {
    let (directory, path) = create_filled_database().await;
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 7").unwrap();
    checkpoint(&path);
    let before = fs::read(&path).unwrap();
    let store = open_store(&directory);
    expect![[r#"
        ! the sessions in $DIR/sessions.db were written by a newer Bowline (format 7, this one reads 1): use that one, or move the file away to begin anew
    "#]]
    .assert_eq(&describe_sessions(directory.path(), &store).await);
    let error = store.create(session_meta("new", "/")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(fs::read(&path).unwrap() == before);
}

/// Any single flipped byte: no wrong data is returned, and every incomplete session is reported.
#[tokio::test]
async fn no_flipped_byte_goes_unnoticed() {
    let (_directory, path) = create_filled_database().await;
    let intact = fs::read(&path).unwrap();
    let mut repaired = 0;
    for (round, position) in (0..100).chain((100..intact.len()).step_by(401)).enumerate() {
        let directory = new_directory();
        let path = directory.path().join("sessions.db");
        fs::write(&path, &intact).unwrap();
        edit_bytes(&path, |bytes| bytes[position] ^= 1 << (round % 8));
        let damaged = fs::read(&path).unwrap();
        let store = open_store(&directory);
        let first = describe_sessions(directory.path(), &store).await;
        if first.contains("set aside") {
            // Damage met on the way is repaired by the second pass: every listed session can be read.
            let second = describe_sessions(directory.path(), &store).await;
            assert!(!second.contains('!'), "byte {position}: {second}");
            let set_aside = directory.path().join("sessions.db.set-aside-1");
            assert!(fs::read(set_aside).unwrap() == damaged, "byte {position}");
            repaired += 1;
        } else if !first.contains('!') {
            assert_eq!(first, "three 20\ntwo 20\none 20\n", "byte {position}");
        }
    }
    assert!(repaired > 20, "{repaired} were told of");
}

/// The holder of a session continues after another process had to rebuild the database.
#[tokio::test]
async fn a_session_holder_continues_after_a_rebuild() {
    let (directory, path) = create_filled_database().await;
    let first = open_store(&directory);
    let (lease, _) = first.claim(&session_id("one")).await.unwrap();
    lease.append(vec![agent_text("one 20 x")], Durability::Deferred).await.unwrap();
    checkpoint(&path);
    edit_bytes(&path, |bytes| bytes[68] ^= 1);
    let second = open_store(&directory);
    let description = describe_sessions(directory.path(), &second).await;
    assert!(
        description.starts_with("one 21\nthree 20\ntwo 20\nthe stored sessions were damaged"),
        "{description}"
    );
    lease.append(vec![agent_text("one 21 x")], Durability::Deferred).await.unwrap();
    assert_eq!(agent_texts(&second.read(&session_id("one")).await.unwrap()).len(), 22);
    let error = second.claim(&session_id("one")).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    assert_eq!(first.take_notices(), []);
}

/// Interrupted at any step, the replacement is put in place by the next process, or made again.
#[tokio::test]
async fn a_replacement_that_was_cut_short_is_finished() {
    let (directory, path) = create_filled_database().await;
    let path_to = |name: &str| directory.path().join(name);
    let intact = fs::read(&path).unwrap();
    // Committed, with the log of the old database still there.
    fs::rename(&path, path_to("sessions.db.ready")).unwrap();
    fs::write(&path, "damaged").unwrap();
    fs::write(path_to("sessions.db-wal"), "of the old one").unwrap();
    assert_eq!(
        describe_sessions(directory.path(), &open_store(&directory)).await,
        "three 20\ntwo 20\none 20\n"
    );
    // Not committed yet.
    fs::write(path_to("sessions.db.new"), "half").unwrap();
    fs::write(path_to("sessions.db.new-journal"), "half").unwrap();
    assert_eq!(
        describe_sessions(directory.path(), &open_store(&directory)).await,
        "three 20\ntwo 20\none 20\n"
    );
    // The very first database, which does not exist until it is complete.
    fs::remove_file(&path).unwrap();
    fs::write(path_to("sessions.db.new"), "half").unwrap();
    assert_eq!(describe_sessions(directory.path(), &open_store(&directory)).await, "");
    // A database restored from a copy is used without a notice.
    fs::write(&path, &intact).unwrap();
    assert_eq!(
        describe_sessions(directory.path(), &open_store(&directory)).await,
        "three 20\ntwo 20\none 20\n"
    );
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_named() {
    let directory = new_directory();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = open_store(&file).create(session_meta("one", "/")).await.unwrap_err();
    assert!(error.to_string().ends_with("file: File exists (os error 17)"), "{error}");
    fs::create_dir(directory.path().join("sessions.db")).unwrap();
    let error = open_store(&directory).create(session_meta("one", "/")).await.unwrap_err();
    assert!(error.to_string().ends_with("sessions.db: it is not a plain file"), "{error}");
    assert_eq!(StoreNotice::NotPruned("x".into()).to_string(), "old sessions could not be removed: x");
}
