//! What only a shared store does: migrations, leases, messages, wake-ups.

use serde_json::json;
use test_support::postgres::TestPostgres;
use test_support::wait::wait_until_async;

use super::*;
use crate::event::{EventKind, Recipient};
use crate::store::{PendingQuestion, PendingWork, SessionChange};
use crate::token::Principal;

const LONG: Duration = Duration::from_secs(600);

async fn open(postgres: &TestPostgres, database: &str, name: &str) -> PostgresServerStore {
    let options = PostgresOptions { name: name.to_owned(), lease: LONG, heartbeat: LONG };
    let url = postgres.url(database).parse().unwrap();
    PostgresServerStore::open_for_server(&url, options).await.unwrap()
}

fn create(id: &str) -> Mutation {
    Mutation::Create(Box::new(StoredSession {
        id: id.into(),
        principal: "me".to_owned(),
        cwd: "/work".into(),
        title: None,
        setup: json!({}),
        pending: PendingWork::default(),
        created_at: Timestamp(1),
        updated_at: Timestamp(1),
        archived_at: None,
    }))
}

fn append(id: &str, generation: u64, seq: u64) -> Mutation {
    let body = Bytes::from_static(b"{}");
    let event = Event { seq, at: None, kind: EventKind::Update, recipient: Recipient::All, body };
    Mutation::Append { session: id.into(), generation, events: [event].into() }
}

fn wait(id: &str, generation: u64) -> Mutation {
    let pending = Some(PendingWork {
        questions: vec![PendingQuestion { id: "q".into(), seq: 1 }],
        ..PendingWork::default()
    });
    let change = SessionChange { pending, ..SessionChange::default() };
    Mutation::Update { session: id.into(), generation: Some(generation), change }
}

/// Ends a server's lease, as if time had passed.
fn end_lease(postgres: &TestPostgres, database: &str, store: &PostgresServerStore) {
    let id = store.server_id();
    postgres.run(
        database,
        &format!("UPDATE servers SET lease_until = now() - interval '1 second' WHERE id = '{id}'"),
    );
}

async fn acquire(store: &PostgresServerStore, id: &str) -> String {
    match store.acquire(&id.into()).await {
        Ok(Acquisition::Acquired(acquired)) => {
            format!("generation {} after {}", acquired.generation, acquired.last_seq)
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn servers_that_start_at_once_migrate_once_and_a_later_schema_is_refused() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let url: PostgresUrl = postgres.url(&database).parse().unwrap();
    let migrate =
        async || PostgresServerStore::open_without_migration(&url).unwrap().migrate().await.unwrap();
    let done = tokio::join!(migrate(), migrate(), migrate());
    let mut from = [done.0.from, done.1.from, done.2.from];
    from.sort_unstable();
    assert_eq!(from, [0, SCHEMA_VERSION, SCHEMA_VERSION], "one of them did it");
    assert_eq!(postgres.run(&database, "SELECT version FROM bowline_schema"), SCHEMA_VERSION.to_string());
    postgres.run(&database, "UPDATE bowline_schema SET version = 99");
    let error = PostgresServerStore::open_for_tokens(&url).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the database has version 99 of the schema, and this program knows versions up to 3: update bowline on this machine"
    );
    let status = PostgresServerStore::open_without_migration(&url).unwrap().status().await.unwrap();
    assert_eq!(status.schema, 99, "the status names a schema that it cannot read");
}

/// The first version does not have the conversations of Bowline's own agent.
const FIRST_VERSION: &str = "DROP TABLE agent_records, agent_sessions; DROP SEQUENCE agent_session_uses; \
                             UPDATE bowline_schema SET version = 1";

#[tokio::test]
async fn a_schema_of_the_first_version_keeps_its_sessions() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let store = open(&postgres, &database, "a").await;
    store.commit(vec![create("s"), append("s", 1, 1)]).await.unwrap();
    store.deregister().await.unwrap();
    drop(store);
    postgres.run(&database, FIRST_VERSION);
    let url: PostgresUrl = postgres.url(&database).parse().unwrap();
    let without = PostgresServerStore::open_without_migration(&url).unwrap();
    assert_eq!(without.status().await.unwrap().schema, 1);
    let store = open(&postgres, &database, "b").await;
    assert_eq!(store.status().await.unwrap().schema, SCHEMA_VERSION);
    assert_eq!(acquire(&store, "s").await, "generation 2 after 1");
    assert_eq!(store.session(&"s".into()).await.unwrap().unwrap().archived_at, None);
    assert_eq!(store.events_after(&"s".into(), 0, 100).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_belongs_to_one_living_server() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let (a, b) = (open(&postgres, &database, "a").await, open(&postgres, &database, "b").await);
    a.commit(vec![create("s"), append("s", 1, 1), wait("s", 1)]).await.unwrap();
    assert_eq!(acquire(&b, "s").await, "OwnedElsewhere");
    assert_eq!(acquire(&a, "s").await, "generation 2 after 1", "its own it may open again");
    assert_eq!(b.waiting_sessions().await.unwrap(), []);

    end_lease(&postgres, &database, &a);
    let waiting = WaitingSession { id: "s".into(), cwd: "/work".into(), has_messages: false };
    assert_eq!(b.waiting_sessions().await.unwrap(), [waiting]);
    assert!(!a.renew_lease().await.unwrap(), "a lease that has ended is not renewed");
    assert_eq!(
        acquire(&a, "s").await,
        "this server's lease in the database has ended: try again in a moment"
    );
    assert_eq!(acquire(&b, "s").await, "generation 3 after 1");
    assert_eq!(a.commit(vec![append("s", 2, 2)]).await.unwrap(), ["s".into()], "fenced");
    assert_eq!(a.commit(vec![wait("s", 2)]).await.unwrap(), ["s".into()], "fenced");
    a.commit(vec![Mutation::Release { session: "s".into(), generation: 2 }]).await.unwrap();

    a.register().await.unwrap();
    assert!(a.renew_lease().await.unwrap());
    assert_eq!(acquire(&a, "s").await, "OwnedElsewhere", "the late release had no effect");
    b.commit(vec![Mutation::Release { session: "s".into(), generation: 3 }]).await.unwrap();
    assert_eq!(acquire(&a, "s").await, "generation 4 after 1");
    a.deregister().await.unwrap();
    assert_eq!(acquire(&b, "s").await, "generation 5 after 1", "a server that stops leaves at once");
}

#[tokio::test]
async fn messages_reach_the_server_that_has_the_session_even_a_later_one() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let (a, b) = (open(&postgres, &database, "a").await, open(&postgres, &database, "b").await);
    let principal = Principal { name: "me".to_owned(), role: Role::User, token: String::new() };
    let (session, connections) = (SessionId::from("s"), ["c2".into(), "c1".into()]);
    let forward = async |store: &PostgresServerStore, message: &'static str| {
        store.forward(&session, &connections, &principal, message.as_bytes()).await.unwrap()
    };
    assert_eq!(forward(&b, "0").await, ForwardOutcome::NotOwned);
    a.commit(vec![create("s")]).await.unwrap();
    assert_eq!(forward(&a, "0").await, ForwardOutcome::NotOwned, "it is its own");
    assert_eq!(forward(&b, "1").await, ForwardOutcome::Sent);
    assert_eq!(forward(&b, "2").await, ForwardOutcome::Sent);
    let content = |message: &'static str| ServerMessageContent::FromClient {
        session: session.clone(),
        connections: connections.to_vec(),
        principal: principal.clone(),
        message: Bytes::from_static(message.as_bytes()),
    };
    let inbox = a.inbox(&[]).await.unwrap();
    let (first, message) = inbox[0].clone();
    assert_eq!(message, ServerMessage { server: b.server_id(), content: content("1") });
    assert_eq!(inbox[1].1.content, content("2"));
    assert_eq!(a.inbox(&[first]).await.unwrap().len(), 1, "the first is being handled");
    a.commit(vec![Mutation::Received(vec![first])]).await.unwrap();

    let reply =
        ServerMessageContent::ToClient { connection: "c2".into(), message: Bytes::from_static(b"{}") };
    let reply = |server| Box::new(ServerMessage { server, content: reply.clone() });
    a.commit(vec![Mutation::Send(reply(b.server_id()))]).await.unwrap();
    assert_eq!(b.inbox(&[]).await.unwrap()[0].1, *reply(a.server_id()));

    // The server ends before it has handled the second one.
    end_lease(&postgres, &database, &a);
    assert_eq!(forward(&b, "3").await, ForwardOutcome::NotOwned);
    let waiting = WaitingSession { id: "s".into(), cwd: "/work".into(), has_messages: true };
    assert_eq!(b.waiting_sessions().await.unwrap(), [waiting]);
    b.adopt_messages(&session).await.unwrap();
    assert_eq!(b.waiting_sessions().await.unwrap(), []);
    assert_eq!(b.inbox(&[]).await.unwrap()[0].1.content, content("2"), "in its place");

    let status = b.status().await.unwrap();
    let names: Vec<_> = status.servers.iter().map(|server| (&*server.name, server.lease_ms > 0)).collect();
    assert_eq!(names, [("a", false), ("b", true)]);
    assert_eq!((status.sessions, status.events, status.messages), (1, 0, 2));
    b.deregister().await.unwrap();
    a.register().await.unwrap();
    a.commit(vec![Mutation::Delete(session)]).await.unwrap();
    a.remove_stale().await.unwrap();
    assert_eq!(
        a.status().await.unwrap().messages,
        0,
        "for a deleted session, and a client of a server that is gone"
    );
}

/// Amid a commit, a server has locked its sessions.
#[tokio::test]
async fn a_server_that_is_suspended_amid_a_commit_does_not_keep_its_sessions() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let url = postgres.url(&database).parse().unwrap();
    let options = PostgresOptions { name: "a".to_owned(), lease: Duration::from_secs(2), heartbeat: LONG };
    let a = PostgresServerStore::open_for_server(&url, options).await.unwrap();
    let b = open(&postgres, &database, "b").await;
    a.commit(vec![create("s"), append("s", 1, 1)]).await.unwrap();
    // What appends events waits for a lock that the test has.
    let trigger = "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql
                     AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
                   CREATE TRIGGER pause AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION pause()";
    postgres.run(&database, trigger);
    let test = b.client().await.unwrap();
    test.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
    let mut commit = a.commit(vec![append("s", 1, 2)]);
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    tokio::select! {
        outcome = &mut commit => panic!("{outcome:?}"),
        () = wait_until_async("the append", || postgres.run(&database, waiting) == "1") => {}
    }
    // The commit is not polled from here on, as if its server were suspended.
    test.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    end_lease(&postgres, &database, &a);
    assert_eq!(acquire(&b, "s").await, "generation 2 after 1");
    commit.await.unwrap_err();
    assert_eq!(a.commit(vec![append("s", 1, 2)]).await.unwrap(), ["s".into()], "it has lost the session");
    assert_eq!(b.events_after(&"s".into(), 0, 1 << 20).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_answer_goes_only_to_sessions_that_its_sender_may_use() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let store = open(&postgres, &database, "a").await;
    store.commit(vec![create("s"), wait("s", 1)]).await.unwrap();
    let found = async |name: &str, role, text: &str| {
        let principal = Principal { name: name.to_owned(), role, token: String::new() };
        store.sessions_waiting_for(text, &principal).await.unwrap().len()
    };
    assert_eq!(found("me", Role::User, "q").await, 1);
    assert_eq!(found("me", Role::User, "another").await, 0);
    assert_eq!(found("stranger", Role::User, "q").await, 0);
    assert_eq!(found("boss", Role::Admin, "q").await, 1);
}

#[tokio::test]
async fn a_listener_wakes_for_events_and_messages_and_listens_again_after_a_failure() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let (a, b) = (open(&postgres, &database, "a").await, open(&postgres, &database, "b").await);
    let mut listener = b.listen();
    assert_eq!(listener.next().await, Wake::Everything, "what happened before");
    assert!(listener.is_listening());
    a.commit(vec![create("s"), create("t"), append("s", 1, 1), append("t", 1, 1)]).await.unwrap();
    assert_eq!(
        listener.next().await,
        Wake::Sessions(vec!["s".into(), "t".into()]),
        "one for the whole batch"
    );
    let principal = Principal { name: "me".to_owned(), role: Role::User, token: String::new() };
    b.forward(&"s".into(), &["c".into()], &principal, b"{}").await.unwrap();
    assert_eq!(listener.next().await, Wake::Inbox);
    let ids: Vec<String> = (0..1000).map(|number| format!("session-{number}")).collect();
    a.commit(ids.iter().map(|id| create(id)).collect()).await.unwrap();
    assert_eq!(listener.next().await, Wake::Everything, "more than a notification holds");

    let terminate =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    assert_eq!(postgres.run(&database, terminate), "1");
    a.commit(vec![append("s", 1, 2)]).await.unwrap();
    assert_eq!(listener.next().await, Wake::Everything);
    assert!(listener.is_listening());
    a.commit(vec![append("s", 1, 3)]).await.unwrap();
    assert_eq!(listener.next().await, Wake::Sessions(vec!["s".into()]));
}
