//! What clients saw of a session while its server was killed or suspended during a turn, or the network was cut, checked
//! against the database. Each server is a process of its own, and the clients read plain event streams.

use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::own_server::OwnServer;
use test_support::wait::wait_until_async;

use crate::checker::{Record, check_history, find_faults, read_history};
use crate::client::{Client, describe, http_client};
use crate::follower::Follower;
use crate::servers::{Balancer, Cluster, is_answer, is_method};

/// A turn with so many updates that a fault comes amid them. It cannot end by itself: it asks before it writes.
const LONG_TURN: &str = "stream 30000\nwrite a.txt: hello";
/// A turn that clients see whole.
const TURN: &str = "stream 6000\nwrite a.txt: hello";
/// An update amid them.
const AMID: &str = "500 ";
const END_TURN: &str = r#"result {"stopReason":"end_turn"}"#;
const INTERRUPTED: &str =
    "error the server stopped during this request; what the agent did until then is in the session";

fn new_http_client() -> reqwest::Client {
    http_client(reqwest::Client::builder().no_proxy())
}

async fn connect(address: &str, token: &str, meta: Value) -> Client {
    Client::connect(new_http_client(), &format!("http://{address}"), token, json!({}), meta).await
}

/// Connects a client again, to another address, as one that takes over its earlier connection.
async fn return_to(address: &str, session: &str, follower: Follower) -> Follower {
    let client = connect(address, &follower.client.token, follower.resumption()).await;
    follower.continue_as(client, session).await
}

/// Reads what comes until the stream ends.
async fn read_until_cut(follower: &mut Follower) {
    while follower.try_next().await.is_some() {}
}

/// Opens the streams of a client again, after the last event that it saw, with the connection that it has.
async fn reopen_streams(follower: &mut Follower, session: &str) {
    follower.client.http = new_http_client();
    follower.own = follower.client.stream(None, None).await;
    follower.stream = Some(follower.client.stream(Some(session), Some(follower.last())).await);
}

/// Opens a session, and returns its id with a client of each address that follows it.
async fn follow(cluster: &Cluster, addresses: &[&str], token: &str) -> (String, Vec<Follower>) {
    let mut followers = Vec::new();
    for address in addresses {
        followers.push(Follower::new(connect(address, token, json!(null)).await).await);
    }
    let session = followers[0].open(&cluster.project()).await;
    for follower in &mut followers[1..] {
        let last = || cluster.query("SELECT last_seq FROM sessions").parse().unwrap();
        let response = follower.load(&session, &cluster.project(), last).await;
        assert!(response["error"].is_null(), "{response}");
    }
    (session, followers)
}

fn check(cluster: &Cluster, session: &str, followers: Vec<Follower>) {
    let records: Vec<Record> = followers.into_iter().map(|follower| follower.record).collect();
    check_history(&cluster.postgres, &cluster.database, session, &records);
}

/// Returns a message that the client has seen, or sees now.
async fn see(follower: &mut Follower, is_it: impl Fn(&Value) -> bool) -> Value {
    let mut seen = follower.record.seen.iter().map(|(_, message)| message);
    if let Some(message) = seen.find(|message| is_it(message)) {
        return message.clone();
    }
    loop {
        let message = follower.next().await;
        if is_it(&message) {
            return message;
        }
    }
}

/// Waits until the client has seen a text of the agent.
async fn see_text(follower: &mut Follower, text: &str) {
    see(follower, |message| describe(message) == text).await;
}

/// Returns what the client has seen as the response to a request.
async fn see_answer(follower: &mut Follower, id: u64) -> String {
    describe(&see(follower, is_answer(id)).await)
}

/// Waits for a question, and allows what it asks.
async fn allow(follower: &mut Follower) {
    let question = see(follower, is_method("session/request_permission")).await;
    let options = question["params"]["options"].as_array().unwrap();
    let option = options.iter().find(|option| option["kind"] == "allow_once").unwrap();
    follower.answer(&question, option["optionId"].as_str().unwrap()).await;
}

/// Everyone uses the session once more, and sees what the others do.
async fn use_in_turn(session: &str, followers: &mut [Follower]) {
    for number in 0..followers.len() {
        let text = format!("turn of client {number}");
        followers[number].client.prompt(10, session, &format!("say {text}")).await;
        for (other, follower) in followers.iter_mut().enumerate() {
            match other == number {
                true => assert_eq!(see_answer(follower, 10).await, END_TURN),
                false => see_text(follower, &text).await,
            }
        }
    }
}

/// Kills the owner of a session amid the updates of a turn.
async fn check_after_a_kill(servers: usize) {
    let Some(cluster) = Cluster::start() else { return };
    let mut servers: Vec<OwnServer> = (0..servers).map(|_| cluster.server()).collect();
    let token = servers[0].token().to_owned();
    let addresses: Vec<&str> = servers.iter().map(OwnServer::address).collect();
    let (session, mut followers) = follow(&cluster, &addresses, &token).await;
    followers[0].client.prompt(2, &session, LONG_TURN).await;
    for follower in &mut followers {
        see_text(follower, AMID).await;
    }

    // As `kill -9`.
    drop(servers.remove(0));
    let mut first = followers.remove(0);
    read_until_cut(&mut first).await;
    // Sent while the lease of the killed server is still valid.
    followers[0].client.prompt(3, &session, "say it goes on").await;
    let first = return_to(servers[0].address(), &session, first).await;
    followers.insert(0, first);
    assert_eq!(see_answer(&mut followers[0], 2).await, INTERRUPTED);
    assert_eq!(see_answer(&mut followers[1], 3).await, END_TURN);
    use_in_turn(&session, &mut followers).await;
    assert_ne!(cluster.query("SELECT generation FROM sessions"), "1");
    assert!(!cluster.project().join("a.txt").exists());
    check(&cluster, &session, followers);
}

#[tokio::test]
async fn histories_are_whole_after_the_owner_of_two_was_killed() {
    check_after_a_kill(2).await;
}

#[tokio::test]
async fn histories_are_whole_after_the_owner_of_three_was_killed() {
    check_after_a_kill(3).await;
}

/// Suspends the owner of a session amid the updates of a turn, beyond its lease.
async fn check_after_a_suspension(servers: usize) {
    let Some(cluster) = Cluster::start() else { return };
    let servers: Vec<OwnServer> = (0..servers).map(|_| cluster.server()).collect();
    let token = servers[0].token().to_owned();
    let addresses: Vec<&str> = servers.iter().map(OwnServer::address).collect();
    let (session, mut followers) = follow(&cluster, &addresses, &token).await;
    followers[0].client.prompt(2, &session, LONG_TURN).await;
    for follower in &mut followers {
        see_text(follower, AMID).await;
    }

    servers[0].signal(Signal::STOP).unwrap();
    let generation = || cluster.query("SELECT generation FROM sessions");
    wait_until_async("the next owner", || generation() == "2").await;
    // It still has what its agent sent, and cannot store it any more.
    servers[0].signal(Signal::CONT).unwrap();
    let registrations = || cluster.query("SELECT count(*) FROM servers").parse::<usize>().unwrap();
    wait_until_async("the new registration", || registrations() > servers.len()).await;
    assert_eq!(see_answer(&mut followers[0], 2).await, INTERRUPTED);
    use_in_turn(&session, &mut followers).await;
    assert!(!cluster.project().join("a.txt").exists());
    check(&cluster, &session, followers);
}

#[tokio::test]
async fn histories_are_whole_after_the_owner_of_two_was_suspended() {
    check_after_a_suspension(2).await;
}

#[tokio::test]
async fn histories_are_whole_after_the_owner_of_three_was_suspended() {
    check_after_a_suspension(3).await;
}

#[tokio::test]
async fn histories_are_whole_after_cuts_of_the_network() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.server(), cluster.server());
    let networks = [Balancer::start(a.address()).await, Balancer::start(b.address()).await];
    let addresses = networks.each_ref().map(Balancer::address);
    let (session, mut followers) = follow(&cluster, &addresses, a.token()).await;
    followers[0].client.prompt(2, &session, TURN).await;
    for follower in &mut followers {
        see_text(follower, AMID).await;
    }

    // Both come back to their servers with their connections.
    for ((network, server), follower) in networks.iter().zip([&a, &b]).zip(&mut followers) {
        network.switch_to(server.address());
        read_until_cut(follower).await;
        reopen_streams(follower, &session).await;
    }
    // One does not know whether its prompt arrived.
    followers[0].client.prompt(2, &session, TURN).await;
    for follower in &mut followers {
        see_text(follower, "3000 ").await;
    }
    allow(&mut followers[1]).await;
    // One comes back to the other server.
    let mut first = followers.remove(0);
    networks[0].switch_to(b.address());
    read_until_cut(&mut first).await;
    followers.insert(0, return_to(networks[0].address(), &session, first).await);
    assert_eq!(see_answer(&mut followers[0], 2).await, END_TURN);
    use_in_turn(&session, &mut followers).await;
    assert_eq!(std::fs::read_to_string(cluster.project().join("a.txt")).unwrap().trim_end(), "hello");
    assert_eq!(cluster.query("SELECT generation FROM sessions"), "1");
    check(&cluster, &session, followers);
}

/// The checks above would fail if a single event were lost, sent twice or changed, whichever it is.
#[tokio::test]
async fn a_lost_or_repeated_event_of_a_real_record_is_found() {
    let Some(cluster) = Cluster::start() else { return };
    let server = cluster.server();
    let network = Balancer::start(server.address()).await;
    let (session, mut followers) = follow(&cluster, &[network.address()], server.token()).await;
    let follower = &mut followers[0];
    follower.client.prompt(2, &session, "stream 40").await;
    assert_eq!(see_answer(follower, 2).await, END_TURN);
    network.switch_to(server.address());
    read_until_cut(follower).await;
    reopen_streams(follower, &session).await;
    follower.client.prompt(3, &session, "stream 20").await;
    assert_eq!(see_answer(follower, 3).await, END_TURN);

    let history = read_history(&cluster.postgres, &cluster.database, &session);
    let record = &follower.record;
    assert_eq!(find_faults(&history, std::slice::from_ref(record)), [""; 0]);
    let has_faults = |record: Record| !find_faults(&history, &[record]).is_empty();
    assert!(record.seen.len() > 60);
    for (index, (seq, message)) in record.seen.iter().enumerate() {
        let what = format!("{seq} {}", describe(message));
        let [mut without, mut repeated, mut changed] = std::array::from_fn(|_| record.clone());
        without.seen.remove(index);
        repeated.seen.insert(index, (*seq, message.clone()));
        changed.seen[index].1["jsonrpc"] = json!("1.0");
        // A client may be behind: the last event can be missing.
        assert_eq!(has_faults(without), index + 1 < record.seen.len(), "{what}");
        assert!(has_faults(repeated) && has_faults(changed), "{what}");
    }
}
