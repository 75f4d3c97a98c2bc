//! Several servers on one database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_serve::store::{PostgresServerStore, PostgresUrl};
use bowline_serve::token::Role;
use serde_json::{Value, json};
use test_support::postgres::{TestPgBouncer, TestPostgres};
use test_support::wait::wait_until_async;

use crate::checker::{Record, check_history};
use crate::client::describe;
use crate::follower::Follower;
use crate::support::{HEARTBEAT, LEASE, ScriptedLauncher, Server};

/// A lease whose end a test waits for. A busy machine renews it in time.
const SHORT_LEASE: Duration = Duration::from_secs(8);

/// A database with servers, and a client with a session at the first one.
struct Cluster {
    servers: Vec<Server>,
    launcher: Arc<ScriptedLauncher>,
    token: String,
    place: tempfile::TempDir,
    database: String,
    postgres: TestPostgres,
}

impl Cluster {
    async fn start(count: usize) -> Option<Self> {
        let postgres = TestPostgres::start()?;
        let database = postgres.create_database();
        let url = postgres.url(&database).parse().unwrap();
        Some(Self::start_on(postgres, database, url, count, LEASE, HEARTBEAT).await)
    }

    async fn start_on(
        postgres: TestPostgres,
        database: String,
        url: PostgresUrl,
        count: usize,
        lease: Duration,
        heartbeat: Duration,
    ) -> Self {
        let place = tempfile::tempdir().unwrap();
        let launcher = Arc::new(ScriptedLauncher::default());
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Server::start_shared(&url, &launcher, place.path(), lease, heartbeat).await);
        }
        let token = servers[0].token("me", Role::User).await;
        Self { servers, launcher, token, place, database, postgres }
    }

    /// Starts another server, with the workspaces below a directory.
    async fn start_server(&self, root: &Path) -> Server {
        let url = self.postgres.url(&self.database).parse().unwrap();
        Server::start_shared(&url, &self.launcher, root, LEASE, HEARTBEAT).await
    }

    async fn client(&self, server: usize) -> Follower {
        Follower::new(self.servers[server].client(&self.token).await).await
    }

    /// Connects a client again, to another server, as one that takes over its earlier connection.
    async fn return_to(&self, server: usize, session: &str, follower: Follower) -> Follower {
        let resumption = follower.resumption();
        let client = self.servers[server].client_with(&self.token, json!({}), resumption).await;
        follower.continue_as(client, session).await
    }

    /// Loads a session that another client opened, and returns the response.
    async fn load(&self, follower: &mut Follower, session: &str) -> Value {
        let last = || {
            let last = format!("SELECT last_seq FROM sessions WHERE id = '{session}'");
            self.postgres.run(&self.database, &last).parse().unwrap()
        };
        follower.load(session, self.place.path(), last).await
    }

    fn check(&self, session: &str, followers: Vec<Follower>) {
        let records: Vec<Record> = followers.into_iter().map(|follower| follower.record).collect();
        check_history(&self.postgres, &self.database, session, &records);
    }

    fn server_ids(&self) -> Vec<String> {
        let ids = self.postgres.run(&self.database, "SELECT id FROM servers ORDER BY started_at");
        ids.lines().map(str::to_owned).collect()
    }

    fn end_lease(&self, id: &str) {
        let sql = format!("UPDATE servers SET lease_until = now() - interval '1 second' WHERE id = '{id}'");
        self.postgres.run(&self.database, &sql);
    }
}

const END_TURN: &str = r#"result {"stopReason":"end_turn"}"#;

#[tokio::test]
async fn clients_of_all_servers_use_one_session_and_the_first_answer_counts() {
    let Some(cluster) = Cluster::start(3).await else { return };
    let (mut a, mut b, mut c) = (cluster.client(0).await, cluster.client(1).await, cluster.client(2).await);
    let session = a.open(cluster.place.path()).await;
    assert_eq!(cluster.load(&mut b, &session).await["result"]["modes"]["currentModeId"], "ask");
    assert_eq!(describe(&b.next().await), "available_commands_update");
    cluster.load(&mut c, &session).await;
    c.next().await;

    // A prompt from another server, twice.
    b.client.prompt(2, &session, "count 3").await;
    b.client.prompt(2, &session, "count 3").await;
    assert_eq!(b.until_response(2).await, ["1", "2", "3", END_TURN]);
    a.until("3").await;
    assert_eq!(cluster.launcher.prompts.load(Ordering::SeqCst), 1);
    // It returns to another server, and does not know that its prompt arrived.
    let mut b = cluster.return_to(2, &session, b).await;
    b.client.prompt(2, &session, "count 3").await;

    // A question reaches all, and each answers.
    b.client.prompt(3, &session, "ask").await;
    let question = b.next().await;
    assert_eq!(question["method"], "session/request_permission");
    assert_eq!(describe(&a.next().await), "user: ask");
    assert_eq!(a.next().await, question);
    c.until("user: ask").await;
    assert_eq!(c.next().await, question);
    // One that comes later is asked, too.
    let mut late = cluster.client(1).await;
    cluster.load(&mut late, &session).await;
    while late.next().await != question {}
    tokio::join!(a.answer(&question, "yes"), b.answer(&question, "no"), c.answer(&question, "no"));
    let shown = b.until_response(3).await;
    assert_eq!(shown.last().unwrap(), END_TURN);
    let outcome = |option: &str| format!(r#"{{"outcome":"selected","optionId":"{option}"}}"#);
    let chosen: Vec<_> =
        shown.iter().filter(|text| **text == outcome("yes") || **text == outcome("no")).collect();
    assert_eq!(chosen.len(), 1, "{shown:?}");
    let chosen = chosen[0].clone();
    for follower in [&mut a, &mut c, &mut late] {
        follower.until(&chosen).await;
    }

    // A turn is cancelled from another server.
    a.client.prompt(4, &session, "wait").await;
    c.until("waiting").await;
    c.cancel(&session).await;
    assert_eq!(a.until_response(4).await.last().unwrap(), r#"result {"stopReason":"cancelled"}"#);

    // A request is cancelled from another server.
    b.until("waiting").await;
    b.client.prompt(5, &session, "wait").await;
    b.until("waiting").await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": 5 } });
    b.client.send(cancel).await;
    assert_eq!(b.until_response(5).await.last().unwrap(), r#"result {"stopReason":"cancelled"}"#);

    // The session is listed and deleted by another server.
    b.client.request(6, "session/list", json!({})).await;
    assert_eq!(b.own.next().await.1["result"]["sessions"][0]["_meta"]["bowline"]["state"], "idle");
    assert_eq!(cluster.launcher.prompts.load(Ordering::SeqCst), 4, "each was done once");
    cluster.check(&session, vec![a, b, late]);
    c.client.request(6, "session/delete", json!({ "sessionId": session })).await;
    assert_eq!(c.own.next().await.1["result"], json!({}));
    c.client.request(7, "session/list", json!({})).await;
    assert_eq!(c.own.next().await.1["result"]["sessions"], json!([]));
    assert_eq!(cluster.servers.iter().map(|server| server.hub.gauges().sessions).sum::<usize>(), 0);
    assert_eq!(cluster.launcher.starts.load(Ordering::SeqCst), 3, "one agent for each server's clients");
}

#[tokio::test]
async fn a_session_of_a_dead_server_is_settled_and_goes_on_elsewhere() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.next().await;
    a.client.prompt(2, &session, "ask").await;
    let question = a.next().await;
    b.until("user: ask").await;
    b.next().await;
    b.client.prompt(3, &session, "wait").await;
    a.until("waiting").await;
    b.until("waiting").await;
    let servers = cluster.server_ids();
    cluster.servers.remove(0).crash().await;
    // Sent to a server that is dead, while its lease is still valid.
    b.client.prompt(4, &session, "count 2").await;
    let waiting = "SELECT count(*) FROM inbox";
    wait_until_async("the message", || cluster.postgres.run(&cluster.database, waiting) == "1").await;
    let mut a = cluster.return_to(1, &session, a).await;
    cluster.end_lease(&servers[0]);
    let interrupted =
        "error the server stopped during this request; what the agent did until then is in the session";
    // Until then the question is open, and is sent again.
    assert_eq!(a.until_response(2).await.last().unwrap(), interrupted);
    a.until("$/cancel_request").await;
    assert_eq!(b.until_response(3).await.last().unwrap(), interrupted);
    let shown = b.until_response(4).await;
    assert_eq!(shown, ["$/cancel_request", "1", "2", END_TURN]);
    // The question is gone: an answer has no effect.
    b.answer(&question, "yes").await;
    // The session is usable at both servers.
    let mut c = cluster.client(1).await;
    cluster.load(&mut c, &session).await;
    c.client.prompt(5, &session, "count 1").await;
    assert_eq!(c.until_response(5).await.last().unwrap(), END_TURN);
    a.until("1").await;
    a.until("1").await;
    cluster.check(&session, vec![a, b, c]);
}

/// A server dies while it opens a session for a message from another server: the next one handles the message.
#[tokio::test]
async fn a_message_that_waits_for_a_session_survives_the_servers_that_had_it() {
    let Some(mut cluster) = Cluster::start(2).await else { return };
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.next().await;
    let servers = cluster.server_ids();
    cluster.servers.remove(0).crash().await;
    b.client.prompt(2, &session, "count 2").await;
    let waiting = || cluster.postgres.run(&cluster.database, "SELECT count(*) FROM inbox") == "1";
    wait_until_async("the message", waiting).await;
    cluster.launcher.ignores_loads.store(true, Ordering::SeqCst);
    cluster.end_lease(&servers[0]);
    wait_until_async("the load", || cluster.launcher.loads.load(Ordering::SeqCst) == 1).await;
    // Everything that the server knows to be done is stored.
    cluster.servers[0].hub.log().flush().await;
    assert!(waiting(), "the message is not handled yet");
    let next = cluster.start_server(cluster.place.path()).await;
    cluster.servers.push(next);
    cluster.servers.remove(0).crash().await;
    cluster.launcher.ignores_loads.store(false, Ordering::SeqCst);
    let mut b = cluster.return_to(0, &session, b).await;
    cluster.end_lease(&servers[1]);
    assert_eq!(b.until_response(2).await, ["1", "2", END_TURN]);
    assert_eq!(cluster.launcher.prompts.load(Ordering::SeqCst), 1);
    wait_until_async("an empty inbox", || !waiting()).await;
    cluster.check(&session, vec![a, b]);
}

/// A server that stops finishes its turns, and leaves new requests of other servers' clients to the next server.
#[tokio::test]
async fn requests_to_a_server_that_stops_are_handled_by_the_next() {
    let Some(mut cluster) = Cluster::start(2).await else { return };
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.next().await;
    a.client.prompt(2, &session, "wait").await;
    b.until("waiting").await;
    let stopping = cluster.servers.remove(0);
    let hub = Arc::clone(&stopping.hub);
    let drained = tokio::spawn(async move { hub.drain(LEASE).await });
    let count = |sql: &str| cluster.postgres.run(&cluster.database, sql);
    let draining = "SELECT count(*) FROM servers WHERE is_draining";
    wait_until_async("the announcement", || count(draining) == "1").await;
    b.client.prompt(3, &session, "count 1").await;
    wait_until_async("the message", || count("SELECT count(*) FROM inbox") == "1").await;
    b.cancel(&session).await;
    assert_eq!(a.until_response(2).await, ["waiting", r#"result {"stopReason":"cancelled"}"#]);
    assert_eq!(cluster.launcher.prompts.load(Ordering::SeqCst), 1, "the new request waits");
    drained.await.unwrap();
    assert_eq!(b.until_response(3).await.last().unwrap(), END_TURN);
    assert_eq!(cluster.launcher.prompts.load(Ordering::SeqCst), 2);
    cluster.check(&session, vec![a, b]);
}

/// No other server may open a session before its agent has closed it.
#[tokio::test]
async fn a_closed_session_is_given_up_once_its_agent_has_closed_it() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.launcher.offers_close.store(true, Ordering::SeqCst);
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.next().await;
    a.client.request(2, "session/close", json!({ "sessionId": session })).await;
    assert_eq!(a.own.next().await.1["result"], json!({}));
    b.client.prompt(3, &session, "count 1").await;
    let query = |sql: &str| cluster.postgres.run(&cluster.database, sql);
    wait_until_async("the message", || query("SELECT count(*) FROM inbox") == "1").await;
    cluster.servers[0].hub.log().flush().await;
    assert_eq!(query("SELECT owner IS NULL, generation FROM sessions"), "f|1", "it is still owned");
    cluster.launcher.closes.add_permits(1);
    assert_eq!(b.until_response(3).await, ["1", END_TURN]);
    assert_eq!(query("SELECT generation FROM sessions"), "2");
    // Closing and deleting it at once is possible.
    let mut c = cluster.client(0).await;
    cluster.load(&mut c, &session).await;
    c.client.request(2, "session/close", json!({ "sessionId": session })).await;
    c.client.request(3, "session/delete", json!({ "sessionId": session })).await;
    cluster.launcher.closes.add_permits(1);
    for _ in 0..2 {
        assert_eq!(c.own.next().await.1["result"], json!({}));
    }
    wait_until_async("the deletion", || query("SELECT count(*) FROM sessions") == "0").await;
}

#[tokio::test]
async fn a_server_without_a_lease_stops_its_agents_and_can_append_nothing() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.next().await;
    a.client.prompt(2, &session, "wait").await;
    a.until("waiting").await;
    let servers = cluster.server_ids();
    cluster.end_lease(&servers[0]);
    // One of the two answers: the server itself, or the one that took over, whichever is first.
    let shown = a.until_response(2).await;
    assert!(shown.last().unwrap().starts_with("error the server "), "{shown:?}");
    wait_until_async("the new registration", || cluster.server_ids().len() == 3).await;
    wait_until_async("the end of the agent", || cluster.servers[0].hub.gauges().agents == 0).await;
    // Both servers can use the session again.
    b.client.prompt(3, &session, "count 1").await;
    assert_eq!(b.until_response(3).await.last().unwrap(), END_TURN);
    a.client.prompt(4, &session, "count 1").await;
    assert_eq!(a.until_response(4).await.last().unwrap(), END_TURN);
    cluster.check(&session, vec![a, b]);
}

#[tokio::test]
async fn subscribers_miss_nothing_when_the_database_or_the_network_fails() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let (mut a, mut b, mut c) = (cluster.client(0).await, cluster.client(1).await, cluster.client(2).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    cluster.load(&mut c, &session).await;
    // `c` is slow: it does not read.
    a.client.prompt(2, &session, "count 2000").await;
    b.until("500").await;
    // The network between client and server is cut: the client returns to another server.
    let mut b = cluster.return_to(2, &session, b).await;
    b.until("1000").await;
    let terminate =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    cluster.postgres.run(&cluster.database, terminate);
    b.until("2000").await;
    a.client.prompt(3, &session, "count 2").await;
    b.until("2").await;
    assert_eq!(a.until_response(3).await.last().unwrap(), END_TURN);

    // The database crashes during a turn.
    a.client.prompt(4, &session, "wait").await;
    b.until("waiting").await;
    cluster.postgres.crash();
    cluster.postgres.restart();
    a = cluster.return_to(0, &session, a).await;
    a.cancel(&session).await;
    assert_eq!(a.until_response(4).await.last().unwrap(), r#"result {"stopReason":"cancelled"}"#);
    b = cluster.return_to(1, &session, b).await;
    b.client.prompt(5, &session, "count 3").await;
    assert_eq!(b.until_response(5).await.last().unwrap(), END_TURN);
    c.until("2000").await;
    cluster.check(&session, vec![a, b, c]);
}

/// An answer is accepted while the database is away: it reaches the server of the session later.
#[tokio::test]
async fn an_answer_waits_for_the_database() {
    let Some(mut cluster) = Cluster::start(2).await else { return };
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.next().await;
    a.client.prompt(2, &session, "ask").await;
    b.until("user: ask").await;
    let question = b.next().await;
    cluster.postgres.crash();
    let outcome = json!({ "outcome": "selected", "optionId": "yes" });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } });
    let status = b.client.post(&answer).await.status();
    // The attempt has failed before the database is back.
    cluster.servers[1].hub.store().session(&session.as_str().into()).await.unwrap_err();
    cluster.postgres.restart();
    if status == 503 {
        // The token was verified too long ago: a client that was refused sends it again.
        b.answer(&question, "yes").await;
    } else {
        assert_eq!(status, 202);
    }
    a = cluster.return_to(0, &session, a).await;
    a.until(r#"{"outcome":"selected","optionId":"yes"}"#).await;
    assert_eq!(a.until_response(2).await, [END_TURN]);
    cluster.check(&session, vec![a, b]);
}

/// Everything is announced: no server looks at the store by itself.
#[tokio::test]
async fn notifications_alone_carry_a_session_to_other_servers() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let url = postgres.url(&database).parse().unwrap();
    let cluster = Cluster::start_on(postgres, database, url, 2, LEASE, LEASE).await;
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.client.prompt(2, &session, "ask").await;
    b.next().await;
    let question = b.next().await;
    b.answer(&question, "yes").await;
    assert_eq!(b.until_response(2).await.last().unwrap(), END_TURN);
    a.until(r#"{"outcome":"selected","optionId":"yes"}"#).await;
    cluster.check(&session, vec![a, b]);
}

#[tokio::test]
async fn a_session_is_taken_over_only_where_its_directory_is() {
    let Some(mut cluster) = Cluster::start(1).await else { return };
    let other = tempfile::tempdir().unwrap();
    let without = cluster.start_server(other.path()).await;
    cluster.servers.push(without);
    let mut a = cluster.client(0).await;
    let session = a.open(cluster.place.path()).await;
    a.client.prompt(2, &session, "wait").await;
    a.until("waiting").await;
    let servers = cluster.server_ids();
    cluster.servers.remove(0).crash().await;
    cluster.end_lease(&servers[0]);
    let renewed = format!("SELECT lease_until FROM servers WHERE id = '{}'", servers[1]);
    for _ in 0..5 {
        let before = cluster.postgres.run(&cluster.database, &renewed);
        wait_until_async("a heartbeat", || cluster.postgres.run(&cluster.database, &renewed) != before).await;
    }
    let generation = "SELECT generation FROM sessions";
    assert_eq!(cluster.postgres.run(&cluster.database, generation), "1");
    let with = cluster.start_server(cluster.place.path()).await;
    cluster.servers.push(with);
    let mut a = cluster.return_to(1, &session, a).await;
    assert!(a.until_response(2).await.last().unwrap().starts_with("error the server stopped"));
    cluster.check(&session, vec![a]);
}

/// More than a server keeps in memory, for a client that does not read.
#[tokio::test]
async fn a_slow_subscriber_gets_large_events_from_the_database() {
    const COUNT: u64 = 24;
    let Some(cluster) = Cluster::start(2).await else { return };
    let (mut a, mut slow) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut slow, &session).await;
    for id in 2..2 + COUNT {
        a.client.prompt(id, &session, "blob 900000").await;
        assert_eq!(a.until_response(id).await.last().unwrap(), END_TURN);
    }
    let mut blobs = 0;
    while blobs < COUNT {
        blobs += u64::from(describe(&slow.next().await).len() == 900_000);
    }
    cluster.check(&session, vec![a, slow]);
}

#[tokio::test]
async fn a_server_that_cannot_reach_the_database_stops_its_agents() {
    let Some(postgres) = TestPostgres::start() else { return };
    let database = postgres.create_database();
    let url = postgres.url(&database).parse().unwrap();
    let mut cluster = Cluster::start_on(postgres, database, url, 1, SHORT_LEASE, HEARTBEAT).await;
    let mut a = cluster.client(0).await;
    let session = a.open(cluster.place.path()).await;
    a.client.prompt(2, &session, "wait").await;
    a.until("waiting").await;
    cluster.postgres.crash();
    // By its own clock: the database cannot tell it.
    wait_until_async("the end of the agent", || cluster.servers[0].hub.gauges().agents == 0).await;
    wait_until_async("the failure of a commit", || !cluster.servers[0].hub.is_ready()).await;
    assert_eq!(cluster.servers[0].status("/ready").await, 503);
    cluster.postgres.restart();
    let mut a = cluster.return_to(0, &session, a).await;
    let lost = "error the server lost its lease in the database; the session can be opened again";
    assert_eq!(a.until_response(2).await, [lost]);
    let leases = "SELECT count(*) FROM servers WHERE lease_until > now()";
    wait_until_async("a new lease", || cluster.postgres.run(&cluster.database, leases) == "1").await;
    a.client.prompt(3, &session, "count 1").await;
    assert_eq!(a.until_response(3).await, ["1", END_TURN]);
    cluster.check(&session, vec![a]);
}

#[tokio::test]
async fn servers_behind_a_pooler_poll() {
    let Some(postgres) = TestPostgres::start() else { return };
    let Some(bouncer) = TestPgBouncer::start(&postgres) else { return };
    let database = postgres.create_database();
    let url: PostgresUrl = bouncer.url(&database).parse().unwrap();
    let store = PostgresServerStore::open_for_tokens(&url).await.unwrap();
    let mut listener = store.listen();
    listener.next().await;
    assert!(!listener.is_listening(), "notifications do not arrive");
    // Without the looks at each heartbeat.
    let cluster = Cluster::start_on(postgres, database, url, 2, LEASE, LEASE).await;
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    let session = a.open(cluster.place.path()).await;
    cluster.load(&mut b, &session).await;
    b.client.prompt(2, &session, "count 300").await;
    assert_eq!(b.until_response(2).await.last().unwrap(), END_TURN);
    b.client.prompt(3, &session, "ask").await;
    let question = b.next().await;
    b.answer(&question, "yes").await;
    assert_eq!(b.until_response(3).await.last().unwrap(), END_TURN);
    a.until("300").await;
    cluster.check(&session, vec![a, b]);
}
