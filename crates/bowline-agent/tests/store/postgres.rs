//! What only a store that several machines share does: takeovers, lost answers, concurrent starts.

use bowline_agent::store::{
    Durability, PostgresSessionStore, SessionRetention, SessionStore as _, StoreError,
};
use test_support::postgres::TestPostgres;

use super::fixture::{agent_text, agent_texts, session_id, session_meta};

fn open(server: &TestPostgres, database: &str) -> PostgresSessionStore {
    PostgresSessionStore::new(server.url(database).parse().unwrap(), SessionRetention::default())
}

#[tokio::test]
async fn the_earlier_holder_of_a_session_stores_nothing_after_a_takeover() {
    let Some(server) = TestPostgres::start() else { return };
    let database = server.create_database();
    let (first, second) = (open(&server, &database), open(&server, &database));
    let old = first.create(session_meta("one", "/work")).await.unwrap();
    old.append(vec![agent_text("before")], Durability::Synced).await.unwrap();
    let (new, stored) = second.claim(&session_id("one")).await.unwrap();
    assert_eq!(agent_texts(&stored), ["before"]);
    for error in [
        old.append(vec![agent_text("late")], Durability::Synced).await.unwrap_err(),
        old.update_meta(Box::new(|meta| meta.turns = 9)).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Lost(_)), "{error}");
    }
    new.append(vec![agent_text("after")], Durability::Synced).await.unwrap();
    old.close().await.unwrap_err();
    let stored = second.read(&session_id("one")).await.unwrap();
    assert_eq!((agent_texts(&stored), stored.meta.turns), (vec!["before", "after"], 0));
    // Its process can claim it again.
    let (again, _) = first.claim(&session_id("one")).await.unwrap();
    again.append(vec![agent_text("again")], Durability::Synced).await.unwrap();
    assert!(matches!(new.close().await, Err(StoreError::Lost(_))));
}

/// Records wait while the database is away, and those of a commit whose answer was lost are not stored twice.
#[tokio::test]
async fn records_wait_for_the_database_and_are_stored_once() {
    let Some(mut server) = TestPostgres::start() else { return };
    let database = server.create_database();
    let store = open(&server, &database);
    let lease = store.create(session_meta("one", "/work")).await.unwrap();
    lease.append(vec![agent_text("a")], Durability::Synced).await.unwrap();
    server.crash();
    lease.append(vec![agent_text("b")], Durability::Synced).await.unwrap_err();
    lease.append(vec![agent_text("c")], Durability::Synced).await.unwrap_err();
    server.restart();
    // As if the first of the two had been stored: the database has it, and the answer was lost.
    server.run(
        &database,
        "INSERT INTO agent_records SELECT session, 1, kind, codec, size, data, checksum FROM agent_records;
         UPDATE agent_sessions SET next = 2",
    );
    lease.append(vec![agent_text("d")], Durability::Synced).await.unwrap();
    let stored = store.read(&session_id("one")).await.unwrap();
    assert_eq!(agent_texts(&stored), ["a", "a", "c", "d"], "`b` is what the database has in its place");
    lease.close().await.unwrap();
}

#[tokio::test]
async fn agents_that_start_at_once_migrate_once() {
    let Some(server) = TestPostgres::start() else { return };
    let database = server.create_database();
    let stores = [(); 4].map(|()| open(&server, &database));
    let created = stores
        .iter()
        .enumerate()
        .map(|(number, store)| store.create(session_meta(format!("s{number}"), "/work")));
    for lease in futures_util::future::join_all(created).await {
        lease.unwrap().close().await.unwrap();
    }
    assert_eq!(server.run(&database, "SELECT count(*) FROM agent_sessions"), "4");
    assert_eq!(server.run(&database, "SELECT count(*) FROM bowline_schema"), "1");
}

/// A session without a server's row of it is left from a client that had gone; it is removed after a day.
#[tokio::test]
async fn sessions_that_no_server_knows_are_removed_after_a_day() {
    let Some(server) = TestPostgres::start() else { return };
    let database = server.create_database();
    let store = open(&server, &database);
    for id in ["new", "known", "unknown"] {
        store.create(session_meta(id, "/work")).await.unwrap();
    }
    server.run(
        &database,
        "UPDATE agent_sessions SET updated_at = updated_at - 90000000 WHERE id <> 'new';
         INSERT INTO sessions(id, principal, cwd, setup, pending, generation, last_seq, bytes, created_at, updated_at)
         VALUES('known', 'me', '/work', '{}', '{}', 1, 0, 0, 0, 0)",
    );
    open(&server, &database).read(&session_id("known")).await.unwrap();
    assert_eq!(
        server.run(&database, "SELECT string_agg(id, ' ' ORDER BY id) FROM agent_sessions"),
        "known new"
    );
}

/// A database that cannot be reached is named, without the password.
#[tokio::test]
async fn an_unreachable_database_is_an_error_and_shows_no_password() {
    let url = "postgres://me:secret@127.0.0.1:1/bowline".parse().unwrap();
    let store = PostgresSessionStore::new(url, SessionRetention::default());
    let error = store.create(session_meta("one", "/work")).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1/bowline") && !error.contains("secret"), "{error}");
    assert!(!format!("{store:?}").contains("secret"));
}
