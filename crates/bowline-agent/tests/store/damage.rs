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
        let held = store.create(session_meta(id, "/work")).await.unwrap();
        for number in 0..20 {
            let text = format!("{id} {number} {}", "x".repeat(200));
            held.append(vec![agent_text(text)], Durability::Deferred).await.unwrap();
        }
        held.close().await.unwrap();
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
                        let found = agent_texts(&stored);
                        writeln!(out, "{} {}", meta.id, found.len()).unwrap();
                        for (number, text) in found.iter().enumerate() {
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
async fn check(spoil: impl FnOnce(&Path), expected: Expect) {
    let (directory, path) = create_filled_database().await;
    spoil(&path);
    let spoilt = fs::read(&path).unwrap_or_default();
    let shown = describe_sessions(directory.path(), &open_store(&directory)).await;
    expected.assert_eq(&shown);
    let aside = directory.path().join("sessions.db.set-aside-1");
    assert!(fs::read(aside).unwrap_or_default() == spoilt, "what lies aside is another one");
    let next = open_store(&directory);
    let again = describe_sessions(directory.path(), &next).await;
    assert!(shown.starts_with(&again), "{again}");
    let held = next.create(session_meta("new", "/work")).await.unwrap();
    held.append(vec![agent_text("new 0 x")], Durability::Synced).await.unwrap();
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
async fn of_a_database_that_was_cut_off_what_is_there_goes_on() {
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
async fn a_record_that_is_not_what_was_written_ends_its_session_and_no_other() {
    check(
        |path| {
            edit_bytes(path, |bytes| {
                let text = b"two 7 xx";
                let found = bytes.windows(text.len()).position(|window| window == text).unwrap();
                bytes[found + 20] ^= 1;
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
async fn a_header_of_somebody_elses_is_told_and_the_sessions_go_on() {
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
    let newer = open_store(&directory);
    expect![[r#"
        ! the sessions in $DIR/sessions.db were written by a newer Bowline (format 7, this one reads 1): use that one, or move the file away to begin anew
    "#]]
    .assert_eq(&describe_sessions(directory.path(), &newer).await);
    let refused = newer.create(session_meta("new", "/")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    assert!(fs::read(&path).unwrap() == before);
}

/// Any single flipped byte: no wrong data is returned, and every incomplete session is reported.
#[tokio::test]
async fn no_flipped_byte_goes_unnoticed() {
    let (_directory, path) = create_filled_database().await;
    let whole = fs::read(&path).unwrap();
    let mut told = 0;
    for (round, at) in (0..100).chain((100..whole.len()).step_by(401)).enumerate() {
        let directory = new_directory();
        let path = directory.path().join("sessions.db");
        fs::write(&path, &whole).unwrap();
        edit_bytes(&path, |bytes| bytes[at] ^= 1 << (round % 8));
        let spoilt = fs::read(&path).unwrap();
        let store = open_store(&directory);
        let shown = describe_sessions(directory.path(), &store).await;
        if shown.contains("set aside") {
            // Damage met on the way is repaired by the second pass: every listed session can be read.
            let again = describe_sessions(directory.path(), &store).await;
            assert!(!again.contains('!'), "byte {at}: {again}");
            let aside = directory.path().join("sessions.db.set-aside-1");
            assert!(fs::read(aside).unwrap() == spoilt, "byte {at}");
            told += 1;
        } else if !shown.contains('!') {
            assert_eq!(shown, "three 20\ntwo 20\none 20\n", "byte {at}");
        }
    }
    assert!(told > 20, "{told} were told of");
}

/// The holder of a session continues after another process had to rebuild the database.
#[tokio::test]
async fn who_has_a_session_while_the_database_is_made_anew_goes_on() {
    let (directory, path) = create_filled_database().await;
    let first = open_store(&directory);
    let (held, _) = first.claim(&session_id("one")).await.unwrap();
    held.append(vec![agent_text("one 20 x")], Durability::Deferred).await.unwrap();
    checkpoint(&path);
    edit_bytes(&path, |bytes| bytes[68] ^= 1);
    let second = open_store(&directory);
    let shown = describe_sessions(directory.path(), &second).await;
    assert!(shown.starts_with("one 21\nthree 20\ntwo 20\nthe stored sessions were damaged"), "{shown}");
    held.append(vec![agent_text("one 21 x")], Durability::Deferred).await.unwrap();
    assert_eq!(agent_texts(&second.read(&session_id("one")).await.unwrap()).len(), 22);
    let refused = second.claim(&session_id("one")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    assert_eq!(first.take_notices(), []);
}

/// Interrupted at any step, the replacement is put in place by the next process, or made again.
#[tokio::test]
async fn a_replacement_that_was_cut_short_is_finished() {
    let (directory, path) = create_filled_database().await;
    let within = |name: &str| directory.path().join(name);
    let whole = fs::read(&path).unwrap();
    // Committed, with the log of the old database still there.
    fs::rename(&path, within("sessions.db.ready")).unwrap();
    fs::write(&path, "damaged").unwrap();
    fs::write(within("sessions.db-wal"), "of the old one").unwrap();
    assert_eq!(
        describe_sessions(directory.path(), &open_store(&directory)).await,
        "three 20\ntwo 20\none 20\n"
    );
    // Not committed yet.
    fs::write(within("sessions.db.new"), "half").unwrap();
    fs::write(within("sessions.db.new-journal"), "half").unwrap();
    assert_eq!(
        describe_sessions(directory.path(), &open_store(&directory)).await,
        "three 20\ntwo 20\none 20\n"
    );
    // The very first database, which does not exist until it is complete.
    fs::remove_file(&path).unwrap();
    fs::write(within("sessions.db.new"), "half").unwrap();
    assert_eq!(describe_sessions(directory.path(), &open_store(&directory)).await, "");
    // A database restored from a copy is used without a notice.
    fs::write(&path, &whole).unwrap();
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
    let refused = open_store(&file).create(session_meta("one", "/")).await.unwrap_err();
    assert!(refused.to_string().ends_with("file: File exists (os error 17)"), "{refused}");
    fs::create_dir(directory.path().join("sessions.db")).unwrap();
    let refused = open_store(&directory).create(session_meta("one", "/")).await.unwrap_err();
    assert!(refused.to_string().ends_with("sessions.db: it is not a plain file"), "{refused}");
    assert_eq!(StoreNotice::NotPruned("x".into()).to_string(), "old sessions could not be removed: x");
}
