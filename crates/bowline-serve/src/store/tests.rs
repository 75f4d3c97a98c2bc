//! One suite for every implementation of the store.

use bowline_text::time::Timestamp;
use bytes::Bytes;
use serde_json::json;
use std::time::Duration;

use super::*;
use crate::event::{EventKind, Recipient};
use crate::token::Role;
use test_support::postgres::TestPostgres;

/// A lease that does not end during a test.
const LEASE: Duration = Duration::from_secs(600);

/// Runs a check against each implementation.
async fn with_each_store<F: Future<Output = ()>>(check: impl Fn(Box<dyn ServerStore>) -> F) {
    let directory = tempfile::tempdir().unwrap();
    check(Box::new(SqliteServerStore::open_for_server(directory.path()).unwrap())).await;
    if let Some(postgres) = TestPostgres::start() {
        check(Box::new(open_postgres(&postgres, &postgres.create_database()).await)).await;
    }
}

async fn open_postgres(postgres: &TestPostgres, database: &str) -> PostgresServerStore {
    let options = PostgresOptions { name: "test".to_owned(), lease: LEASE, heartbeat: LEASE };
    let url = postgres.url(database).parse().unwrap();
    PostgresServerStore::open_for_server(&url, options).await.unwrap()
}

/// Acquires a session, and returns its generation and its last event; `None` if that was not possible.
async fn acquire(store: &dyn ServerStore, id: &str) -> Option<(u64, u64)> {
    match store.acquire(&id.into()).await.unwrap() {
        Acquisition::Acquired(acquired) => Some((acquired.generation, acquired.last_seq)),
        Acquisition::NotFound | Acquisition::OwnedElsewhere => None,
    }
}

fn session(id: &str, principal: &str) -> StoredSession {
    StoredSession {
        id: id.into(),
        principal: principal.to_owned(),
        cwd: "/work".into(),
        title: None,
        setup: json!({ "modes": null }),
        pending: PendingWork::default(),
        created_at: Timestamp(1),
        updated_at: Timestamp(1),
        archived_at: None,
    }
}

fn create(id: &str) -> Mutation {
    Mutation::Create(Box::new(session(id, "me")))
}

fn update(id: &str, generation: Option<u64>, change: SessionChange) -> Mutation {
    Mutation::Update { session: id.into(), generation, change }
}

fn append(id: &str, generation: u64, numbers: std::ops::RangeInclusive<u64>) -> Mutation {
    let events = numbers.map(|seq| Event {
        seq,
        at: Some(Timestamp(7)),
        kind: EventKind::Update,
        recipient: Recipient::All,
        body: Bytes::from(format!("{{\"n\":{seq}}}")),
    });
    Mutation::Append { session: id.into(), generation, events: events.collect() }
}

async fn numbers(store: &dyn ServerStore, id: &str, after: u64, max_bytes: usize) -> Vec<u64> {
    let events = store.events_after(&id.into(), after, max_bytes).await.unwrap();
    events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn events_come_back_in_order_after_any_number() {
    with_each_store(|store| async move {
        let lost =
            store.commit(vec![create("s"), append("s", 1, 1..=3), append("s", 1, 4..=4)]).await.unwrap();
        assert!(lost.is_empty());
        assert_eq!(numbers(&*store, "s", 0, 1 << 20).await, [1, 2, 3, 4]);
        assert_eq!(numbers(&*store, "s", 2, 1 << 20).await, [3, 4]);
        assert_eq!(numbers(&*store, "s", 4, 1 << 20).await, [0; 0]);
        let page = numbers(&*store, "s", 0, 1).await;
        assert!(!page.is_empty() && [1, 2, 3, 4].starts_with(&page), "a small page has at least one event");
        assert_eq!(numbers(&*store, "unknown", 0, 1 << 20).await, [0; 0]);
    })
    .await;
}

#[tokio::test]
async fn events_keep_their_times_and_what_clients_sent() {
    with_each_store(|store| async move {
        let event = |seq, at: Option<i64>, kind, recipient| Event {
            seq,
            at: at.map(Timestamp),
            kind,
            recipient,
            body: Bytes::from(format!("{{\"n\":{seq}}}")),
        };
        let client = || Recipient::Agent("c".into());
        let events = [
            event(1, None, EventKind::Update, Recipient::All),
            event(2, Some(70), EventKind::ClientMessage, client()),
            event(3, Some(70), EventKind::Update, Recipient::AllBut("c".into())),
            event(4, Some(90), EventKind::Answer, client()),
            event(5, Some(90), EventKind::TurnEnd, Recipient::All),
        ];
        store.commit(vec![create("s")]).await.unwrap();
        // A version that stored no times wrote the first.
        for events in events.chunk_by(|one, next| one.at == next.at) {
            let append = Mutation::Append { session: "s".into(), generation: 1, events: events.into() };
            for _ in 0..2 {
                assert!(store.commit(vec![append.clone()]).await.unwrap().is_empty());
            }
        }
        let stored = store.events_after(&"s".into(), 0, 1 << 20).await.unwrap();
        assert_eq!(stored, events);
    })
    .await;
}

#[tokio::test]
async fn a_commit_for_many_sessions_leaves_out_only_those_that_were_lost() {
    with_each_store(|store| async move {
        let sessions = ["a", "b", "c", "d"];
        store.commit(sessions.map(create).into()).await.unwrap();
        assert_eq!(acquire(&*store, "c").await, Some((2, 0)));
        let title = SessionChange { title: Some("new".into()), ..SessionChange::default() };
        let mut changes: Vec<Mutation> = sessions.map(|session| append(session, 1, 1..=2)).into();
        changes.extend([append("a", 1, 3..=3), update("b", Some(1), title), append("b", 1, 3..=4)]);
        assert_eq!(store.commit(changes).await.unwrap(), ["c".into()]);
        let mut stored = Vec::new();
        for session in sessions {
            stored.push((session, numbers(&*store, session, 0, 1 << 20).await));
        }
        let expected: [(&str, &[u64]); 4] =
            [("a", &[1, 2, 3]), ("b", &[1, 2, 3, 4]), ("c", &[]), ("d", &[1, 2])];
        assert_eq!(stored, expected.map(|(session, seqs)| (session, seqs.to_vec())));
    })
    .await;
}

#[tokio::test]
async fn the_last_of_several_changes_in_a_commit_counts() {
    with_each_store(|store| async move {
        let sessions = ["a", "b", "c"];
        store.commit(sessions.map(create).into()).await.unwrap();
        assert_eq!(acquire(&*store, "c").await, Some((2, 0)));
        let titled = |title: &str| SessionChange { title: Some(title.into()), ..SessionChange::default() };
        let set = |setup: u32| SessionChange { setup: Some(json!(setup)), ..SessionChange::default() };
        let archived = SessionChange { archived: Some(true), ..SessionChange::default() };
        let changes = vec![
            update("a", Some(1), titled("first")),
            append("a", 1, 1..=1),
            update("b", Some(1), set(1)),
            update("c", Some(1), titled("late")),
            update("a", Some(1), set(2)),
            append("b", 1, 1..=1),
            // Any server may make this one.
            update("b", None, archived),
            update("a", Some(1), titled("second")),
            append("a", 1, 2..=2),
            append("c", 1, 1..=1),
        ];
        assert_eq!(store.commit(changes).await.unwrap(), ["c".into()]);
        let mut stored = Vec::new();
        for id in sessions {
            let found = store.session(&id.into()).await.unwrap().unwrap();
            let numbers = numbers(&*store, id, 0, 1 << 20).await;
            stored.push(format!(
                "{id}: {:?} {} {} {numbers:?}",
                found.title,
                found.setup,
                if found.archived_at.is_some() { "archived" } else { "listed" }
            ));
        }
        expect_test::expect![[r#"
            a: Some("second") 2 listed [1, 2]
            b: None 1 archived [1]
            c: None {"modes":null} listed []"#]]
        .assert_eq(&stored.join("\n"));
    })
    .await;
}

#[tokio::test]
async fn a_server_that_lost_a_session_can_append_nothing() {
    with_each_store(|store| async move {
        store.commit(vec![create("s"), append("s", 1, 1..=2)]).await.unwrap();
        assert_eq!(acquire(&*store, "s").await, Some((2, 2)));
        let title = || SessionChange { title: Some("late".into()), ..SessionChange::default() };
        assert_eq!(store.commit(vec![update("s", Some(1), title())]).await.unwrap(), ["s".into()]);
        assert_eq!(store.session(&"s".into()).await.unwrap().unwrap().title, None);
        let lost = store.commit(vec![append("s", 1, 3..=3), create("t")]).await.unwrap();
        assert_eq!(lost, ["s".into()], "the older generation is fenced, the rest is committed");
        assert_eq!(numbers(&*store, "s", 0, 1 << 20).await, [1, 2]);
        assert!(store.session(&"t".into()).await.unwrap().is_some());
        assert!(store.commit(vec![append("s", 2, 3..=3)]).await.unwrap().is_empty());
        let after_a_gap = vec![append("s", 2, 5..=5), update("s", Some(2), title())];
        assert_eq!(store.commit(after_a_gap).await.unwrap(), ["s".into()], "a gap");
        assert_eq!(store.session(&"s".into()).await.unwrap().unwrap().title, None, "nothing follows it");
        assert_eq!(store.acquire(&"unknown".into()).await.unwrap(), Acquisition::NotFound);
    })
    .await;
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_can_be_repeated() {
    with_each_store(|store| async move {
        let title = SessionChange { title: Some("T".into()), ..SessionChange::default() };
        let all = || {
            vec![
                create("s"),
                append("s", 1, 1..=2),
                update("s", Some(1), title.clone()),
                append("s", 1, 3..=3),
            ]
        };
        for _ in 0..2 {
            assert!(store.commit(all()).await.unwrap().is_empty());
        }
        assert_eq!(numbers(&*store, "s", 0, 1 << 20).await, [1, 2, 3]);
        let event = |seq| Event {
            seq,
            at: None,
            kind: EventKind::Update,
            recipient: Recipient::All,
            body: Bytes::from_static(b"{}"),
        };
        let events = [event(2), event(3)].into();
        let other = Mutation::Append { session: "s".into(), generation: 1, events };
        assert_eq!(store.commit(vec![other]).await.unwrap(), ["s".into()], "not the same events");
        acquire(&*store, "s").await;
        assert_eq!(store.commit(all()).await.unwrap(), ["s".into()], "another server was there meanwhile");
    })
    .await;
}

#[tokio::test]
async fn texts_with_nul_are_stored() {
    with_each_store(|store| async move {
        let title = SessionChange {
            title: Some("a\0b".into()),
            setup: Some(json!("\0")),
            ..SessionChange::default()
        };
        let all = vec![create("s\0"), append("s\0", 1, 1..=1), update("s\0", Some(1), title)];
        assert!(store.commit(all).await.unwrap().is_empty());
        assert_eq!(numbers(&*store, "s\0", 0, 1).await, [1]);
        assert_eq!(store.session(&"s\0".into()).await.unwrap().unwrap().setup, json!("\0"));
    })
    .await;
}

#[tokio::test]
async fn an_id_that_exists_is_not_created_again() {
    with_each_store(|store| async move {
        store.commit(vec![create("s"), append("s", 1, 1..=1)]).await.unwrap();
        let again = Mutation::Create(Box::new(session("s", "other")));
        assert_eq!(store.commit(vec![again, append("s", 1, 2..=2)]).await.unwrap(), ["s".into()]);
        assert_eq!(store.session(&"s".into()).await.unwrap().unwrap().principal, "me");
        assert_eq!(numbers(&*store, "s", 0, 1 << 20).await, [1], "nothing is appended to another's session");
    })
    .await;
}

#[tokio::test]
async fn sessions_are_changed_listed_and_deleted() {
    with_each_store(|store| async move {
        let other = Mutation::Create(Box::new(session("b", "other")));
        store.commit(vec![create("a"), other]).await.unwrap();
        let pending = PendingWork {
            requests: vec![("c".into(), json!(1))],
            questions: vec![PendingQuestion { id: "q".into(), seq: 1 }],
            answered: vec![],
            last_turn: Box::new(TurnReport {
                failure: Some("why".to_owned()),
                usage: Some(json!({ "used": 1 })),
            }),
        };
        let change = SessionChange {
            title: Some("T".into()),
            setup: Some(json!({ "modes": 1 })),
            pending: Some(pending.clone()),
            archived: None,
        };
        store.commit(vec![update("a", Some(1), change)]).await.unwrap();
        let found = store.session(&"a".into()).await.unwrap().unwrap();
        assert_eq!(
            (found.title.as_deref(), &found.setup, &found.pending),
            (Some("T"), &json!({ "modes": 1 }), &pending)
        );
        assert!(found.updated_at > Timestamp(1));
        let list = async |query| {
            let sessions: Vec<StoredSession> = store.sessions(query).await.unwrap();
            sessions.into_iter().map(|session| session.id.to_string()).collect::<Vec<_>>()
        };
        let all = SessionQuery { limit: 10, ..SessionQuery::default() };
        assert_eq!(list(all.clone()).await, ["a", "b"], "last changed first");
        assert_eq!(list(SessionQuery { principal: Some("other".into()), ..all.clone() }).await, ["b"]);
        assert_eq!(list(SessionQuery { cwd: Some("/else".into()), ..all.clone() }).await, [""; 0]);
        assert_eq!(
            list(SessionQuery { after: Some((found.updated_at, found.id.clone())), ..all.clone() }).await,
            ["b"]
        );
        assert_eq!(list(SessionQuery { limit: 1, ..all.clone() }).await, ["a"]);
        store.commit(vec![append("a", 1, 1..=1), Mutation::Delete("a".into())]).await.unwrap();
        assert_eq!(list(all).await, ["b"]);
        assert_eq!(numbers(&*store, "a", 0, 1 << 20).await, [0; 0]);
    })
    .await;
}

#[tokio::test]
async fn archived_sessions_are_listed_apart_and_any_server_may_archive() {
    with_each_store(|store| async move {
        store.commit(vec![create("a"), create("b")]).await.unwrap();
        store.acquire(&"a".into()).await.unwrap();
        let archive = |archived| SessionChange { archived: Some(archived), ..SessionChange::default() };
        let list = async |archived| {
            let query = SessionQuery { archived, limit: 10, ..SessionQuery::default() };
            let sessions: Vec<StoredSession> = store.sessions(query).await.unwrap();
            sessions.into_iter().map(|session| session.id.to_string()).collect::<Vec<_>>()
        };
        assert!(store.commit(vec![update("a", None, archive(true))]).await.unwrap().is_empty());
        assert_eq!((list(false).await, list(true).await), (vec!["b".into()], vec!["a".into()]));
        let archived = store.session(&"a".into()).await.unwrap().unwrap();
        assert!(archived.archived_at.is_some());
        assert_eq!(archived.updated_at, Timestamp(1), "it was moved, not changed");
        store.commit(vec![update("a", None, archive(true))]).await.unwrap();
        assert_eq!(store.session(&"a".into()).await.unwrap().unwrap(), archived, "archived once");
        store.commit(vec![update("a", None, archive(false))]).await.unwrap();
        assert_eq!(store.session(&"a".into()).await.unwrap().unwrap().archived_at, None);
        let lost = store.commit(vec![update("unknown", None, archive(true))]).await.unwrap();
        assert!(lost.is_empty(), "a deleted session is not lost");
    })
    .await;
}

/// Returns sixteen characters that do not repeat.
fn digits_of_hash(number: u64) -> [u8; 16] {
    let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    std::array::from_fn(|index| b'0' + ((hash >> (4 * index)) & 15) as u8)
}

#[tokio::test]
async fn a_session_that_grows_too_large_loses_its_oldest_events() {
    with_each_store(|store| async move {
        store.commit(vec![create("s")]).await.unwrap();
        // Digits without a pattern, because stored runs are compressed.
        let body: Bytes = (0..500_000u64).flat_map(digits_of_hash).collect();
        for seq in 1..=9 {
            let (at, body) = (None, body.clone());
            let event = Event { seq, at, kind: EventKind::Update, recipient: Recipient::All, body };
            let append = Mutation::Append { session: "s".into(), generation: 1, events: [event].into() };
            assert!(store.commit(vec![append]).await.unwrap().is_empty());
        }
        assert_eq!(numbers(&*store, "s", 0, 1 << 30).await, [4, 5, 6, 7, 8, 9]);
    })
    .await;
}

#[tokio::test]
async fn tokens_are_kept_by_name() {
    with_each_store(|store| async move {
        let (token, _) =
            StoredToken::generate("ci", Role::Observer, Timestamp(1), Some(Timestamp(9))).unwrap();
        store.add_token(token.clone()).await.unwrap();
        assert_eq!(store.token(&token.id).await.unwrap(), Some(token.clone()));
        assert_eq!(store.token("unknown").await.unwrap(), None);
        let (second, _) = StoredToken::generate("ci", Role::User, Timestamp(1), None).unwrap();
        let error = store.add_token(second).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is a token named ci already; remove it first, or choose another name"
        );
        assert_eq!(store.tokens().await.unwrap(), [token]);
        assert!(store.remove_token("ci").await.unwrap());
        assert!(!store.remove_token("ci").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn two_servers_cannot_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let first = SqliteServerStore::open_for_server(directory.path()).unwrap();
    let error = SqliteServerStore::open_for_server(directory.path()).unwrap_err().to_string();
    assert!(error.starts_with("another `bowline serve` uses the store in"), "{error}");
    let beside = SqliteServerStore::open_for_tokens(directory.path()).unwrap();
    let (token, _) = StoredToken::generate("ci", Role::User, Timestamp(1), None).unwrap();
    beside.add_token(token.clone()).await.unwrap();
    assert_eq!(first.token(&token.id).await.unwrap(), Some(token), "a running server sees new tokens");
}

#[tokio::test]
async fn recent_events_survive_moves_by_any_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteServerStore::open_for_server(directory.path()).unwrap();
    let commit = |store: &SqliteServerStore, changes| {
        let store = store.clone();
        async move { store.commit(changes).await.unwrap() }
    };
    commit(&store, vec![create("a"), create("b")]).await;
    for seq in 1..=40 {
        assert!(commit(&store, vec![append("a", 1, seq..=seq), append("b", 1, seq..=seq)]).await.is_empty());
    }
    let again = vec![append("a", 1, 40..=40), append("b", 1, 42..=42)];
    assert_eq!(commit(&store, again).await, ["b".into()], "what is there already, and what has a gap");
    // Another process moves them, and this one goes on.
    let beside = SqliteServerStore::open_for_tokens(directory.path()).unwrap();
    assert_eq!(beside.counts().await.unwrap(), (2, 80));
    commit(&store, vec![append("a", 1, 41..=41)]).await;
    assert_eq!(beside.counts().await.unwrap(), (2, 80), "it knows of no others");
    drop(store);
    let store = SqliteServerStore::open_for_server(directory.path()).unwrap();
    assert_eq!(numbers(&store, "a", 39, 1 << 20).await, [40, 41]);
    commit(&store, vec![append("b", 1, 41..=41), Mutation::Delete("a".into())]).await;
    assert_eq!(acquire(&store, "b").await, Some((2, 41)));
    assert_eq!(commit(&store, vec![append("b", 1, 42..=42)]).await, ["b".into()], "of an earlier generation");
    commit(&store, vec![append("b", 2, 42..=42)]).await;
    assert_eq!(numbers(&store, "b", 0, 1 << 20).await, (1..=42).collect::<Vec<_>>());
    assert_eq!(numbers(&store, "a", 0, 1 << 20).await, [0; 0]);
    let rows = rusqlite::Connection::open(directory.path().join("serve.db")).unwrap();
    let runs: i64 = rows.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(runs, 3, "small runs of a generation that were moved together are one");
}

fn append_one(session: &str, seq: u64, body: Bytes) -> Mutation {
    let event = Event { seq, at: None, kind: EventKind::Update, recipient: Recipient::All, body };
    Mutation::Append { session: session.into(), generation: 1, events: [event].into() }
}

/// Appends an event to each of some sessions again and again, until something is so or fails. Returns the number of the
/// last event.
async fn append_until(
    store: &SqliteServerStore,
    sessions: &[String],
    mut last: u64,
    mut is_enough: impl FnMut() -> bool,
) -> u64 {
    while !is_enough() {
        let seq = last + 1;
        let append = |(number, session): (u64, &String)| {
            // Digits without a pattern, because rows are compressed.
            let parts = (0..100).map(|part| (seq << 20) + (number << 10) + part);
            append_one(session, seq, parts.flat_map(digits_of_hash).collect())
        };
        let appended = store.commit((0..).zip(sessions).map(append).collect()).await;
        let Ok(lost) = appended else { break };
        assert!(lost.is_empty());
        last = seq;
    }
    last
}

/// Returns whether some sessions' events were moved, and others' were not.
fn is_moving(file: &rusqlite::Connection) -> bool {
    let sql = "SELECT count(*), count(nullif(last_seq, (SELECT min(last_seq) FROM sessions))) FROM sessions";
    let counts: (i64, i64) = file.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    (1..counts.0).contains(&counts.1)
}

#[tokio::test]
async fn rows_are_moved_with_several_commits() {
    enum Interruption {
        None,
        Restart,
        OtherProcess,
        NewToken,
        Failure,
        Read,
    }
    let all = [
        Interruption::None,
        Interruption::Restart,
        Interruption::OtherProcess,
        Interruption::NewToken,
        Interruption::Failure,
        Interruption::Read,
    ];
    let sessions: Vec<String> = (0..40).map(|number| format!("session-{number}")).collect();
    for interruption in all {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteServerStore::open_for_server(directory.path()).unwrap();
        store.commit(sessions.iter().map(|session| create(session)).collect()).await.unwrap();
        let file = rusqlite::Connection::open(directory.path().join("serve.db")).unwrap();
        if let Interruption::Failure = interruption {
            // The last of them, by name.
            let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN new.session = 'session-9'
                          BEGIN SELECT raise(ABORT, 'no'); END";
            file.execute_batch(refuse).unwrap();
        }
        // Another session gets one event before and one after the interruption.
        store.commit(vec![create("session-99"), append_one("session-99", 1, "first".into())]).await.unwrap();
        let mut last = append_until(&store, &sessions, 0, || is_moving(&file)).await;
        match interruption {
            Interruption::None => {}
            Interruption::Restart => {
                drop(store);
                store = SqliteServerStore::open_for_server(directory.path()).unwrap();
            }
            Interruption::OtherProcess => {
                let beside = SqliteServerStore::open_for_tokens(directory.path()).unwrap();
                assert_eq!(beside.counts().await.unwrap(), (41, 40 * last + 1));
            }
            Interruption::NewToken => {
                let beside = SqliteServerStore::open_for_tokens(directory.path()).unwrap();
                let (token, _) = StoredToken::generate("ci", Role::User, Timestamp(1), None).unwrap();
                beside.add_token(token).await.unwrap();
            }
            Interruption::Failure => {
                last = append_until(&store, &sessions, last, || false).await;
                file.execute_batch("DROP TRIGGER refuse").unwrap();
            }
            Interruption::Read => {
                assert_eq!(numbers(&store, "session-39", last - 1, 1 << 20).await, [last]);
            }
        }
        let mut commits = 0..5;
        last = append_until(&store, &sessions, last, || commits.next().is_none()).await;
        let second = append_one("session-99", 2, "second".into());
        assert!(store.commit(vec![second]).await.unwrap().is_empty());
        last = append_until(&store, &sessions, last, || is_moving(&file)).await;
        for session in &sessions {
            assert_eq!(numbers(&store, session, 0, 1 << 30).await, (1..=last).collect::<Vec<_>>());
        }
        assert_eq!(numbers(&store, "session-99", 0, 1 << 30).await, [1, 2]);
    }
}

#[tokio::test]
async fn a_file_of_the_version_without_times_keeps_its_events() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteServerStore::open_for_server(directory.path()).unwrap();
    store.commit(vec![create("s"), append("s", 1, 1..=2)]).await.unwrap();
    assert_eq!(numbers(&store, "s", 0, 1 << 20).await, [1, 2]);
    drop(store);
    let file = rusqlite::Connection::open(directory.path().join("serve.db")).unwrap();
    let run = "u*\t{\"n\":1}\nu*\t{\"n\":2}\n";
    assert_eq!(file.execute("UPDATE events SET run = ?1", [run.as_bytes()]).unwrap(), 1);
    file.pragma_update(None, "user_version", 2).unwrap();
    drop(file);
    let store = SqliteServerStore::open_for_server(directory.path()).unwrap();
    assert!(store.commit(vec![append("s", 1, 3..=3)]).await.unwrap().is_empty());
    let events = store.events_after(&"s".into(), 0, 1 << 20).await.unwrap();
    let times: Vec<_> = events.iter().map(|event| (event.seq, event.at)).collect();
    assert_eq!(times, [(1, None), (2, None), (3, Some(Timestamp(7)))]);
}

#[tokio::test]
async fn a_commit_that_fails_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteServerStore::open_for_server(directory.path()).unwrap();
    store.commit(vec![create("s"), append("s", 1, 1..=2)]).await.unwrap();
    let other = rusqlite::Connection::open(directory.path().join("serve.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON recent_runs BEGIN SELECT raise(ABORT, 'no'); END";
    other.execute_batch(refuse).unwrap();
    store.commit(vec![append("s", 1, 3..=3)]).await.unwrap_err();
    other.execute_batch("DROP TRIGGER refuse").unwrap();
    assert!(store.commit(vec![append("s", 1, 3..=3)]).await.unwrap().is_empty());
    assert_eq!(numbers(&store, "s", 0, 1 << 20).await, [1, 2, 3]);
}

#[test]
fn answered_requests_are_remembered_for_a_while() {
    let mut pending = PendingWork::default();
    for id in 0..=MAX_ANSWERED {
        pending.requests.push(("c".into(), json!(id)));
        assert!(pending.knows(&["new".into(), "c".into()], &json!(id)));
        pending.mark_answered(&"c".into(), json!(id));
    }
    assert!(pending.is_empty());
    assert!(pending.knows(&["c".into()], &json!(1)));
    assert!(!pending.knows(&["c".into()], &json!(0)), "the oldest is forgotten");
    assert!(!pending.knows(&["other".into()], &json!(1)));
}
