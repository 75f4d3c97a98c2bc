//! Sessions, clients that come and go, questions, agents that die.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_protocol::remote::AWAIT_METHOD;
use bowline_serve::event::{Event, EventKind};
use bowline_serve::http::AccessOptions;
use bowline_serve::token::{Principal, Role};
use bowline_serve::{ConnectionStream, HubOptions, SessionStream, StreamMessage};
use bytes::Bytes;
use expect_test::expect;
use serde_json::{Value, json};
use test_support::wait::wait_until_async;

use crate::client::{Client, Stream, describe};
use crate::support::Server;

/// A server with one client that has opened a session.
struct Setup {
    place: tempfile::TempDir,
    server: Server,
    token: String,
    client: Client,
    own: Stream,
    session: String,
    stream: Stream,
}

async fn setup() -> Setup {
    setup_with(HubOptions::default()).await
}

async fn setup_with(options: HubOptions) -> Setup {
    let place = tempfile::tempdir().unwrap();
    let access = AccessOptions { is_loopback: true, ..AccessOptions::default() };
    let server = Server::start_with(place.path(), options, access).await;
    let token = server.token("me", Role::User).await;
    let client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    let (session, stream) = client.new_session(&mut own, place.path()).await;
    Setup { place, server, token, client, own, session, stream }
}

fn load(session: &str, cwd: &Path) -> Value {
    json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] })
}

#[tokio::test]
async fn a_prompt_streams_its_updates_and_then_its_response() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "count 3").await;
    expect![[r#"
        [
            "4 1",
            "5 2",
            "6 3",
            "8 result {\"stopReason\":\"end_turn\"}",
        ]
    "#]]
    .assert_debug_eq(&setup.stream.until_response(2).await);
}

#[tokio::test]
async fn a_client_that_returns_gets_what_it_missed_once() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "wait").await;
    let (seen, _) = setup.stream.next().await;
    // The client goes away, and the turn goes on without it.
    drop(setup.stream);
    drop(setup.own);
    setup.client.prompt(3, &setup.session, "count 300").await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": setup.session } });
    setup.client.send(cancel).await;
    let mut numbers = Vec::new();
    let mut last = seen;
    let mut responses = 0;
    // It returns several times, each time for a few messages only.
    while responses < 2 {
        let mut stream = setup.client.stream(Some(&setup.session), last).await;
        for _ in 0..40 {
            let (number, message) = stream.next().await;
            last = number;
            responses += usize::from(message["method"].is_null());
            numbers.push(number.unwrap());
            if responses == 2 {
                break;
            }
        }
    }
    // Its own prompt is not sent to it, and what it sent is only a record.
    let connection = [setup.client.connection.as_str().into()];
    let store = setup.server.hub.store();
    let events = store.events_after(&setup.session.as_str().into(), seen.unwrap(), 1 << 20).await.unwrap();
    let is_sent = |event: &&Event| event.recipient.includes(&connection) && event.kind != EventKind::TurnEnd;
    let expected: Vec<u64> = events.iter().filter(is_sent).map(|event| event.seq).collect();
    assert_eq!(numbers, expected);
    assert_eq!(numbers.len(), 302);
}

#[tokio::test]
async fn a_second_client_sees_everything_and_the_first_answer_counts() {
    let mut setup = setup().await;
    let phone = setup.server.client(&setup.token).await;
    let mut phone_own = phone.stream(None, None).await;
    let mut phone_stream = phone.stream(Some(&setup.session), None).await;
    phone.request(1, "session/load", load(&setup.session, setup.place.path())).await;
    assert_eq!(phone_stream.next().await.1["params"]["update"]["sessionUpdate"], "available_commands_update");
    assert_eq!(phone_own.next().await.1["result"]["modes"]["currentModeId"], "ask");
    setup.client.prompt(2, &setup.session, "ask").await;
    let question = setup.stream.next().await.1;
    assert_eq!(describe(&phone_stream.next().await.1), "user: ask");
    assert_eq!(phone_stream.next().await.1, question);
    let answer = |option: &str| {
        let outcome = json!({ "outcome": "selected", "optionId": option });
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } })
    };
    phone.send(answer("yes")).await;
    let withdrawn = setup.stream.next().await.1;
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&json!("$/cancel_request"), &question["id"])
    );
    // The second answer comes too late.
    setup.client.send(answer("no")).await;
    assert_eq!(describe(&phone_stream.next().await.1), r#"{"outcome":"selected","optionId":"yes"}"#);
    let shown = setup.stream.until_response(2).await;
    assert_eq!(shown.len(), 2, "{shown:?}");
}

#[tokio::test]
async fn a_question_waits_for_a_client_that_comes_later() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "ask").await;
    let question = setup.stream.next().await.1;
    let phone = setup.server.client(&setup.token).await;
    let mut phone_own = phone.stream(None, None).await;
    let mut phone_stream = phone.stream(Some(&setup.session), None).await;
    phone.request(1, "session/resume", load(&setup.session, setup.place.path())).await;
    phone_own.next().await;
    assert_eq!(phone_stream.next().await, (None, question.clone()), "sent again, without a number");
    let outcome = json!({ "outcome": "selected", "optionId": "no" });
    phone.send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } })).await;
    assert_eq!(describe(&phone_stream.next().await.1), r#"{"outcome":"selected","optionId":"no"}"#);
    drop(phone_stream);
    let mut later = phone.stream(Some(&setup.session), Some(3)).await;
    let next = describe(&later.next().await.1);
    assert_eq!(next, r#"{"outcome":"selected","optionId":"no"}"#, "an answered question is not sent again");
}

#[tokio::test]
async fn an_unanswered_question_is_denied() {
    let mut setup =
        setup_with(HubOptions { question_timeout: Duration::ZERO, ..HubOptions::default() }).await;
    setup.client.prompt(2, &setup.session, "ask").await;
    let shown = setup.stream.until_response(2).await;
    assert!(
        shown.iter().any(|line| line.ends_with(r#"{"outcome":"selected","optionId":"no"}"#)),
        "{shown:?}"
    );
    assert!(shown.iter().any(|line| line.ends_with("$/cancel_request")), "{shown:?}");
}

#[tokio::test]
async fn a_restarted_server_answers_what_was_interrupted() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "ask").await;
    let (last, question) = setup.stream.next().await;
    let place = setup.place;
    let token = setup.token;
    setup.server.crash().await;
    let server = Server::start(place.path()).await;
    let meta = json!({ "bowline": { "resumes": setup.client.connection } });
    let client = server.client_with(&token, json!({}), meta).await;
    let mut stream = client.stream(Some(&setup.session), last).await;
    let answered = stream.until_response(2).await;
    assert_eq!(answered.len(), 1, "without being asked: {answered:?}");
    // A client that did not learn that its request had arrived sends it again.
    client.prompt(2, &setup.session, "ask").await;
    client.prompt(3, &setup.session, "count 1").await;
    let shown = stream.until_response(3).await;
    expect![[r#"
        [
            "7 $/cancel_request",
            "10 1",
            "12 result {\"stopReason\":\"end_turn\"}",
        ]
    "#]]
    .assert_debug_eq(&shown);
    assert_eq!(question["method"], "session/request_permission");
    assert_eq!(server.launcher.prompts.load(Ordering::SeqCst), 1, "the interrupted prompt is not run again");
    // Another client loads all of it, without what the agent itself replayed.
    let other = server.client(&token).await;
    let mut own = other.stream(None, None).await;
    other.request(1, "session/load", load(&setup.session, place.path())).await;
    expect![[r#"
        [
            "- available_commands_update",
            "- user: ask",
            "- user: count 1",
            "- 1",
            "2 result {}",
        ]
    "#]]
    .assert_debug_eq(&own.until_response(1).await);
}

#[tokio::test]
async fn a_request_that_a_server_lost_is_answered_and_never_run() {
    let setup = setup().await;
    let (place, token) = (setup.place, setup.token);
    setup.server.crash().await;
    let resume = |client: &Client| json!({ "bowline": { "resumes": client.connection } });
    let server = Server::start(place.path()).await;
    server.launcher.ignores_loads.store(true, Ordering::SeqCst);
    let client = server.client_with(&token, json!({}), resume(&setup.client)).await;
    // Accepted, but its session is still being opened when this server dies, too.
    client.prompt(2, &setup.session, "count 1").await;
    let loads = &server.launcher.loads;
    wait_until_async("the session is being opened", || loads.load(Ordering::SeqCst) == 1).await;
    server.crash().await;
    let server = Server::start(place.path()).await;
    // One that has an earlier event, and one that has none.
    for last in [Some(1), None] {
        let client = server.client_with(&token, json!({}), resume(&client)).await;
        let mut stream = client.stream(Some(&setup.session), last).await;
        client.request(2, AWAIT_METHOD, json!({ "sessionId": setup.session })).await;
        let shown = stream.until_response(2).await;
        assert!(shown.last().unwrap().contains("the server stopped during this request"), "{shown:?}");
    }
    assert_eq!(server.launcher.prompts.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_that_the_agent_works_on_is_not_answered_twice() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "wait").await;
    let (last, _) = setup.stream.next().await;
    let meta = json!({ "bowline": { "resumes": setup.client.connection } });
    let client = setup.server.client_with(&setup.token, json!({}), meta).await;
    let mut stream = client.stream(Some(&setup.session), last).await;
    client.request(2, AWAIT_METHOD, json!({ "sessionId": setup.session })).await;
    let params = json!({ "sessionId": setup.session });
    client.send(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params })).await;
    assert_eq!(stream.until_response(2).await, [r#"7 result {"stopReason":"cancelled"}"#]);
}

#[tokio::test]
async fn a_dead_agent_is_reported_and_started_again() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "die").await;
    assert_eq!(setup.stream.until_response(2).await, ["5 error the agent ended"]);
    setup.client.prompt(3, &setup.session, "count 1").await;
    let shown = setup.stream.until_response(3).await;
    assert_eq!(shown.last().unwrap(), r#"10 result {"stopReason":"end_turn"}"#);
    assert_eq!(setup.server.launcher.starts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_session_keeps_the_agent_that_it_was_created_with() {
    let mut setup = setup().await;
    let named = |name: &str| json!({ "cwd": setup.place.path(), "mcpServers": [], "_meta": { "bowline": { "agent": name } } });
    setup.client.request(2, "session/new", named("unknown")).await;
    assert_eq!(describe(&setup.own.next().await.1), "error this server has no agent unknown");
    setup.client.request(3, "session/new", named("other")).await;
    let created = setup.own.next().await.1;
    let session = created["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(created["result"]["_meta"]["bowline"]["agent"]["name"], "other");
    let launched = || setup.server.launcher.names.lock().unwrap().clone();
    assert_eq!(launched(), ["", "other"]);
    setup.client.prompt(4, &session, "die").await;
    let mut stream = setup.client.stream(Some(&session), Some(0)).await;
    stream.until_response(4).await;
    setup.client.prompt(5, &session, "count 1").await;
    stream.until_response(5).await;
    assert_eq!(launched(), ["", "other", "other"]);
    let stored = setup.server.hub.store().session(&session.as_str().into()).await.unwrap().unwrap();
    assert_eq!(stored.agent(), Some("other"));
    // Clients that come later are told, too.
    setup.client.request(6, "session/resume", load(&session, setup.place.path())).await;
    assert_eq!(setup.own.next().await.1["result"]["_meta"]["bowline"]["agent"]["name"], "other");
    let usual = setup.server.hub.store().session(&setup.session.as_str().into()).await.unwrap().unwrap();
    assert_eq!(usual.agent(), None);
}

#[tokio::test]
async fn files_come_from_the_client_that_offers_them() {
    let setup = setup().await;
    let editor_can = json!({ "fs": { "readTextFile": true } });
    let editor = setup.server.client_with(&setup.token, editor_can, json!(null)).await;
    let mut own = editor.stream(None, None).await;
    let (session, mut stream) = editor.new_session(&mut own, setup.place.path()).await;
    let phone = setup.server.client(&setup.token).await;
    let mut phone_stream = phone.stream(Some(&session), Some(0)).await;
    editor.prompt(2, &session, "read /f").await;
    // The request follows what the agent said before it, and is no event.
    let (number, said) = stream.next().await;
    assert_eq!((number, describe(&said)), (Some(4), "reading".to_owned()));
    let (number, request) = stream.next().await;
    assert_eq!((number, &request["method"]), (None, &json!("fs/read_text_file")));
    // The stream is cut before the answer; the request is sent again with the same id.
    drop(stream);
    let mut stream = editor.stream(Some(&session), Some(4)).await;
    assert_eq!(stream.next().await, (None, request.clone()));
    // The phone has no files, and what it says about them does not count.
    let answer = |text: &str| json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "content": text } });
    phone.send(answer("false")).await;
    editor.send(answer("unsaved")).await;
    assert_eq!(stream.until_response(2).await.first().unwrap(), "5 unsaved");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line| line != "unsaved") {
        seen.push(describe(&phone_stream.next().await.1));
    }
    assert_eq!(seen, ["available_commands_update", "user: read /f", "reading", "unsaved"]);
}

#[tokio::test]
async fn a_request_for_files_without_a_client_fails_in_time() {
    let mut setup = setup_with(HubOptions { client_timeout: Duration::ZERO, ..HubOptions::default() }).await;
    setup.client.prompt(2, &setup.session, "read /f").await;
    let shown = setup.stream.until_response(2).await;
    assert_eq!(shown[1], "5 no client that offers fs/read_text_file is connected to this session");
}

#[tokio::test]
async fn a_request_sent_twice_is_done_once() {
    let mut setup = setup().await;
    for _ in 0..3 {
        setup.client.prompt(2, &setup.session, "count 1").await;
    }
    setup.client.prompt(3, &setup.session, "count 1").await;
    setup.stream.until_response(3).await;
    assert_eq!(setup.server.launcher.prompts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_change_of_mode_reaches_other_clients_and_later_ones() {
    let mut setup = setup().await;
    let other = setup.server.client(&setup.token).await;
    let mut other_stream = other.stream(Some(&setup.session), Some(1)).await;
    setup
        .client
        .request(2, "session/set_mode", json!({ "sessionId": setup.session, "modeId": "full" }))
        .await;
    setup.stream.until_response(2).await;
    assert_eq!(other_stream.next().await.1["params"]["update"]["currentModeId"], "full");
    let mut other_own = other.stream(None, None).await;
    other.request(1, "session/resume", load(&setup.session, setup.place.path())).await;
    assert_eq!(other_own.next().await.1["result"]["modes"]["currentModeId"], "full");
}

#[tokio::test]
async fn sessions_are_listed_and_deleted() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "count 1").await;
    setup.stream.until_response(2).await;
    setup.client.request(3, "session/list", json!({})).await;
    let list = setup.own.next().await.1;
    let listed = &list["result"]["sessions"][0];
    assert_eq!((&listed["sessionId"], &listed["title"]), (&json!(setup.session), &json!("count 1")));
    assert_eq!(listed["_meta"]["bowline"], json!({ "state": "idle", "principal": "me" }));
    setup.client.request(4, "session/delete", json!({ "sessionId": setup.session })).await;
    assert_eq!(setup.own.next().await.1["result"], json!({}));
    setup.client.request(5, "session/list", json!({})).await;
    assert_eq!(setup.own.next().await.1["result"]["sessions"], json!([]));
    setup.client.prompt(6, &setup.session, "count 1").await;
    let error = describe(&setup.own.next().await.1);
    assert_eq!(error, format!("error there is no session {}; `session/list` lists yours", setup.session));
}

#[tokio::test]
async fn directories_outside_of_the_roots_are_refused() {
    let mut setup = setup().await;
    for (id, cwd) in [(2, "/etc"), (3, "relative"), (4, "/")] {
        setup.client.request(id, "session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        let response = setup.own.next().await.1;
        assert_eq!(response["error"]["code"], -32602, "{response}");
    }
}

#[tokio::test]
async fn draining_lets_a_turn_end() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "wait").await;
    setup.stream.next().await;
    let hub = std::sync::Arc::clone(&setup.server.hub);
    let drain = tokio::spawn(async move { hub.drain(Duration::from_secs(600)).await });
    while setup.server.hub.is_ready() {
        tokio::task::yield_now().await;
    }
    let prompt = json!({ "sessionId": setup.session, "prompt": [] });
    let message = json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": prompt });
    assert_eq!(setup.client.post(&message).await.status(), 503);
    // A load balancer is told, and a supervisor need not end it.
    assert_eq!([setup.server.status("/ready").await, setup.server.status("/health").await], [503, 200]);
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": setup.session } });
    setup.client.send(cancel).await;
    assert_eq!(
        setup.stream.until_response(2).await.last().unwrap(),
        r#"7 result {"stopReason":"cancelled"}"#
    );
    drain.await.unwrap();
    assert!(setup.own.try_next().await.is_none(), "connections end after everything was sent");
}

#[tokio::test]
async fn the_last_errors_are_sent_before_streams_end() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "wait").await;
    setup.stream.next().await;
    let hub = std::sync::Arc::clone(&setup.server.hub);
    let (connection, session) = (setup.client.connection.as_str().into(), setup.session.as_str().into());
    // This stream replaces the other, and is not read before everything is stored.
    let mut stream = SessionStream::open(&hub, &connection, &session, Some(4)).await.unwrap();
    let draining = std::sync::Arc::clone(&hub);
    let drain = setup.server.spawn(async move { draining.drain(Duration::ZERO).await });
    while hub.log().is_open(&session) {
        tokio::task::yield_now().await;
    }
    // What the server's thread had to do is done.
    setup.server.run(|_| ()).await;
    setup.server.run(|_| ()).await;
    let last = stream.next().await.unwrap();
    let last: Vec<String> =
        last.iter().map(|message| describe(&serde_json::from_slice(&message.body).unwrap())).collect();
    assert_eq!(last, ["error the server stopped"]);
    assert!(stream.next().await.is_none());
    drop(stream);
    drain.await.unwrap();
    assert!(setup.own.try_next().await.is_none());
}

#[tokio::test]
async fn a_refused_client_does_not_refuse_others_that_open_the_same_session() {
    let setup = setup().await;
    let (place, token, session) = (setup.place, setup.token, setup.session);
    setup.server.crash().await;
    let server = Server::start(place.path()).await;
    let stranger = server.client(&server.token("stranger", Role::User).await).await;
    let owner = server.client(&token).await;
    let mut stranger_own = stranger.stream(None, None).await;
    let mut owner_own = owner.stream(None, None).await;
    let connections = [stranger.connection.clone(), owner.connection.clone()];
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/resume", "params": load(&session, place.path()) });
    // The stranger begins to open it, and the owner comes before it is refused.
    server
        .run(move |hub| {
            for connection in connections {
                hub.receive(&connection.as_str().into(), None, message.to_string().into()).unwrap();
            }
        })
        .await;
    assert_eq!(
        stranger_own.until_response(1).await,
        [format!("1 error there is no session {session}; `session/list` lists yours")]
    );
    assert_eq!(owner_own.until_response(1).await, ["1 result {}"]);
}

/// Returns the messages of a stream until the event with a number.
async fn until_number(stream: &mut SessionStream, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        let messages = stream.next().await.unwrap();
        numbers.extend(messages.into_iter().filter_map(|message| message.id));
    }
    numbers
}

#[tokio::test]
async fn a_stream_that_is_cut_while_a_session_is_loaded_loses_nothing() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "count 3000").await;
    setup.stream.until_response(2).await;
    let phone = setup.server.client(&setup.token).await;
    let mut own = phone.stream(None, None).await;
    let (hub, session) = (&setup.server.hub, setup.session.as_str().into());
    let connection = phone.connection.as_str().into();
    let mut first = SessionStream::open(hub, &connection, &session, None).await.unwrap();
    phone.request(1, "session/load", load(&setup.session, setup.place.path())).await;
    let sent = first.next().await.unwrap();
    assert!(sent.len() < 3000, "not all of the history at once");
    // The client received five messages, and opens the stream again before the server sees the end of the first.
    let mut second = SessionStream::open(hub, &connection, &session, Some(5)).await.unwrap();
    drop(first);
    // The prompt and 3,000 updates; the response to the other client is not for this one.
    assert_eq!(until_number(&mut second, 3003).await, (6..=3003).collect::<Vec<u64>>());
    setup.client.prompt(3, &setup.session, "count 1").await;
    assert_eq!(until_number(&mut second, 3008).await, [3007, 3008]);
    assert_eq!(own.until_response(1).await.len(), 1);
}

#[tokio::test]
async fn a_history_that_was_shown_is_not_shown_again_on_the_sessions_stream() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "count 2").await;
    setup.stream.until_response(2).await;
    let phone = setup.server.client(&setup.token).await;
    let mut own = phone.stream(None, None).await;
    phone.request(1, "session/load", load(&setup.session, setup.place.path())).await;
    assert_eq!(own.until_response(1).await.len(), 5);
    let mut stream = phone.stream(Some(&setup.session), Some(2)).await;
    setup.client.prompt(3, &setup.session, "count 1").await;
    assert_eq!(stream.next().await.0, Some(9));
}

#[tokio::test]
async fn a_session_that_is_loaded_again_is_shown_again() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "count 1").await;
    setup.stream.until_response(2).await;
    setup.client.request(3, "session/load", load(&setup.session, setup.place.path())).await;
    setup.own.until_response(3).await;
    setup.client.prompt(4, &setup.session, "count 1").await;
    // Without numbers, which the client has seen. Its own prompts are part of the history, and later ones are not sent to it.
    expect![[r#"
        [
            "- available_commands_update",
            "- user: count 1",
            "- 1",
            "9 1",
            "11 result {\"stopReason\":\"end_turn\"}",
        ]
    "#]]
    .assert_debug_eq(&setup.stream.until_response(4).await);
}

#[tokio::test]
async fn a_response_that_was_not_sent_yet_is_not_taken_for_history() {
    let mut setup = setup().await;
    let phone = setup.server.client(&setup.token).await;
    let mut phone_stream = phone.stream(Some(&setup.session), Some(1)).await;
    drop(setup.stream);
    setup.client.prompt(2, &setup.session, "count 1").await;
    while describe(&phone_stream.next().await.1) != "1" {}
    // The turn is over when the next one is shown.
    setup.client.prompt(3, &setup.session, "count 1").await;
    while describe(&phone_stream.next().await.1) != "1" {}
    setup.client.request(4, "session/load", load(&setup.session, setup.place.path())).await;
    assert_eq!(setup.own.until_response(4).await.len(), 6);
    let mut stream = setup.client.stream(Some(&setup.session), None).await;
    assert_eq!(stream.until_response(2).await, [r#"6 result {"stopReason":"end_turn"}"#]);
}

#[tokio::test]
async fn a_client_that_closes_a_session_gives_its_requests_back() {
    let setup = setup().await;
    let editor_can = json!({ "fs": { "readTextFile": true } });
    let editor = setup.server.client_with(&setup.token, editor_can, json!(null)).await;
    let mut own = editor.stream(None, None).await;
    let (session, mut stream) = editor.new_session(&mut own, setup.place.path()).await;
    let phone = setup.server.client(&setup.token).await;
    let mut phone_stream = phone.stream(Some(&session), Some(1)).await;
    editor.prompt(2, &session, "read /f").await;
    assert_eq!(describe(&stream.next().await.1), "reading");
    assert_eq!(stream.next().await.1["method"], "fs/read_text_file");
    editor.request(3, "session/close", json!({ "sessionId": session })).await;
    assert_eq!(describe(&phone_stream.next().await.1), "user: read /f");
    assert_eq!(describe(&phone_stream.next().await.1), "reading");
    let answer = describe(&phone_stream.next().await.1);
    assert_eq!(answer, "no client that offers fs/read_text_file is connected to this session");
}

#[tokio::test]
async fn a_number_that_the_session_does_not_have_yet_is_its_last() {
    let setup = setup().await;
    let mut stream = setup.client.stream(Some(&setup.session), Some(1000)).await;
    setup.client.prompt(2, &setup.session, "count 1").await;
    assert_eq!(stream.until_response(2).await.len(), 2);
}

#[tokio::test]
async fn bytes_that_a_stream_cannot_carry_are_replaced() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "bytes").await;
    assert_eq!(setup.stream.until_response(2).await[0], "4 a\u{fffd}b");
}

#[tokio::test]
async fn agents_start_independently_and_are_limited() {
    let place = tempfile::tempdir().unwrap();
    let access = AccessOptions { is_loopback: true, ..AccessOptions::default() };
    let options = HubOptions { max_agents: 1, ..HubOptions::default() };
    let server = Server::start_with(place.path(), options, access).await;
    let slow = server.token("slow", Role::User).await;
    let principal = Principal { name: "slow".into(), role: Role::User, token: String::new() };
    let initialize =
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "clientCapabilities": {} } });
    // A client hangs up while its agent starts.
    let hub = std::sync::Arc::clone(&server.hub);
    let connecting = {
        let message = initialize.to_string();
        server.spawn(async move { hub.connect(&principal, message.as_bytes(), false, "gone".into()).await })
    };
    while server.launcher.starts.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    connecting.abort();
    // Others need not wait for it.
    let quick = server.token("quick", Role::User).await;
    server.client(&quick).await;
    let other_kind = json!({ "terminal": true });
    assert_eq!(
        server.initialize(&quick, other_kind).await["error"]["message"],
        "quick has 1 agents already, one for each kind of client: close clients of other kinds and wait until their \
         agents have stopped, or start the server with a larger --max-agents"
    );
    // The agent that was being started serves the next client.
    server.launcher.slow_starts.add_permits(1);
    server.client(&slow).await;
    assert_eq!(server.launcher.starts.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_read_is_stopped_and_its_requests_fail() {
    let place = tempfile::tempdir().unwrap();
    let (hub, launcher, _) = Server::build(place.path(), HubOptions::default(), AccessOptions::default());
    tokio::spawn(std::sync::Arc::clone(&hub).run());
    let (stored, _) =
        bowline_serve::token::StoredToken::generate("me", Role::User, bowline_text::time::Timestamp(0), None)
            .unwrap();
    hub.store().add_token(stored.clone()).await.unwrap();
    let principal = stored.principal(bowline_text::time::Timestamp(1)).unwrap();
    let connection = "c".into();
    let request = |id: u64, method: &str, params: Value| {
        Bytes::from(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
    };
    hub.connect(&principal, &request(0, "initialize", json!({})), false, "c".into()).await.unwrap();
    let mut own = ConnectionStream::open(&hub, &connection, None).unwrap();
    let new = json!({ "cwd": place.path(), "mcpServers": [] });
    hub.receive(&connection, None, request(1, "session/new", new)).unwrap();
    own.next().await.unwrap();
    let mut stream = SessionStream::open(&hub, &connection, &"s1".into(), None).await.unwrap();
    let prompt = |text: &str| json!({ "sessionId": "s1", "prompt": [{ "type": "text", "text": text }] });
    hub.receive(&connection, None, request(2, "session/prompt", prompt("deaf"))).unwrap();
    // More than its pipe holds.
    hub.receive(&connection, None, request(3, "session/prompt", prompt(&"x".repeat(200_000)))).unwrap();
    let mut shown = Vec::new();
    while shown.len() < 3 {
        let messages: Vec<StreamMessage> = stream.next().await.unwrap();
        shown
            .extend(messages.iter().map(|message| describe(&serde_json::from_slice(&message.body).unwrap())));
    }
    let stopped = "error the agent did not read its input and was stopped; the session can be opened again";
    assert_eq!(shown, ["available_commands_update", stopped, stopped]);
    assert_eq!((hub.gauges().agents, launcher.starts.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test]
async fn requests_about_no_session_are_answered() {
    let mut setup = setup().await;
    let mut table = String::new();
    let cases = [
        ("session/prompt", json!({})),
        ("session/load", json!({ "sessionId": 5 })),
        ("session/x", json!([])),
    ];
    for (id, (method, params)) in (2..).zip(cases) {
        setup.client.request(id, method, params).await;
        let response = setup.own.next().await.1;
        table.push_str(&format!("{} {}\n", response["error"]["code"], describe(&response)));
    }
    expect![[r#"
        -32602 error session/prompt needs the text `sessionId` in its params
        -32602 error session/load needs the text `sessionId` in its params
        -32602 error session/x needs the text `sessionId` in its params
    "#]]
    .assert_eq(&table);
}

#[tokio::test]
async fn requests_that_wait_for_one_session_are_limited() {
    let mut setup = setup().await;
    for id in 2..=258 {
        setup.client.prompt(id, &setup.session, "wait").await;
    }
    let shown = setup.stream.until_response(258).await;
    assert!(
        shown.last().unwrap().ends_with("error 256 requests about this session wait for the agent already")
    );
}

#[tokio::test]
async fn a_fork_has_its_own_events_after_the_history() {
    let mut setup = setup().await;
    setup.client.prompt(2, &setup.session, "count 2").await;
    setup.stream.until_response(2).await;
    setup.client.request(3, "session/fork", load(&setup.session, setup.place.path())).await;
    let response = setup.own.next().await.1;
    let fork = response["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned();
    assert_ne!(fork, setup.session);
    // The client has the history already.
    let mut stream = setup.client.stream(Some(&fork), None).await;
    setup.client.prompt(4, &fork, "count 1").await;
    assert_eq!(stream.until_response(4).await, ["8 1", r#"10 result {"stopReason":"end_turn"}"#]);
    let phone = setup.server.client(&setup.token).await;
    let mut own = phone.stream(None, None).await;
    let mut histories = Vec::new();
    for (id, session) in [(1, &setup.session), (2, &fork)] {
        phone.request(id, "session/load", load(session, setup.place.path())).await;
        let mut history = Vec::new();
        loop {
            let message = own.next().await.1;
            if message["method"].is_null() {
                break;
            }
            assert_eq!(message["params"]["sessionId"], **session);
            history.push(describe(&message));
        }
        histories.push(history.join(", "));
    }
    expect![[r#"
        [
            "available_commands_update, user: count 2, 1, 2",
            "available_commands_update, user: count 2, 1, 2, user: count 1, 1",
        ]
    "#]]
    .assert_debug_eq(&histories);
    let stranger = setup.server.client(&setup.server.token("stranger", Role::User).await).await;
    let mut own = stranger.stream(None, None).await;
    for (id, session) in [(1, &setup.session), (2, &fork)] {
        stranger.request(id, "session/fork", load(session, setup.place.path())).await;
        let error = format!("error there is no session {session}; `session/list` lists yours");
        assert_eq!(describe(&own.next().await.1), error);
    }
}
