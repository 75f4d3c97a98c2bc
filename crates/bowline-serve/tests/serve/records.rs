//! What the event log keeps beside what clients are sent: their messages, and how turns ended.

use bowline_serve::event::Recipient;
use bowline_serve::token::Role;
use expect_test::expect;
use serde_json::{Value, json};

use crate::client::{Client, describe};
use crate::support::Server;

async fn load(client: &Client, id: u64, session: &str, cwd: &std::path::Path) {
    let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [{ "secret": "env" }] });
    client.request(id, "session/load", params).await;
}

async fn answer(client: &Client, question: &Value) {
    let outcome = json!({ "outcome": "selected", "optionId": "no" });
    client.send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } })).await;
}

#[tokio::test]
async fn what_clients_send_is_recorded_and_not_sent_to_others() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let editor_can = json!({ "fs": { "readTextFile": true } });
    let client = server.client_with(&token, editor_can, json!(null)).await;
    let mut own = client.stream(None, None).await;
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    let phone = server.client(&token).await;
    let mut phone_own = phone.stream(None, None).await;
    load(&phone, 1, &session, place.path()).await;
    phone_own.until_response(1).await;
    let mut phone_stream = phone.stream(Some(&session), None).await;

    client.prompt(2, &session, "ask").await;
    phone_stream.next().await;
    let (_, question) = phone_stream.next().await;
    answer(&phone, &question).await;
    stream.until_response(2).await;
    client.prompt(3, &session, "read /f").await;
    stream.next().await;
    let (_, request) = stream.next().await;
    let content = json!({ "content": "not to be kept" });
    client.send(json!({ "jsonrpc": "2.0", "id": request["id"], "result": content })).await;
    stream.until_response(3).await;
    let mode = json!({ "sessionId": session, "modeId": "edits" });
    client.request(4, "session/set_mode", mode).await;
    stream.until_response(4).await;
    client.prompt(5, &session, "wait").await;
    stream.next().await;
    client
        .send(json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": 5 } }))
        .await;
    stream.until_response(5).await;
    let unknown = json!({ "sessionId": session, "key": "secret" });
    client.send(json!({ "jsonrpc": "2.0", "method": "_other/login", "params": unknown })).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    phone.send(cancel).await;

    server.hub.log().flush().await;
    let events = server.hub.store().events_after(&session.as_str().into(), 0, 1 << 20).await.unwrap();
    assert!(events.iter().all(|event| event.at.is_some()));
    let ids = [client.connection.as_str().into(), phone.connection.as_str().into()];
    let mut shown = String::new();
    for event in events {
        let body = str::from_utf8(&event.body).unwrap();
        assert!(!body.contains("secret"), "{body}");
        let Recipient::Agent(sender) = &event.recipient else { continue };
        assert!(!body.contains("not to be kept"), "{body}");
        assert!(!event.recipient.includes(&ids));
        let name = if **sender == client.connection { "editor" } else { "phone" };
        let body = body.replace(question["id"].as_str().unwrap(), "question");
        shown += &format!("{} {:?} {name} {body}\n", event.seq, event.kind);
    }
    expect![[r#"
        2 ClientMessage editor {"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"ask"}]}}
        5 Answer phone {"jsonrpc":"2.0","id":"question","result":{"outcome":{"outcome":"selected","optionId":"no"}}}
        10 ClientMessage editor {"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"read /f"}]}}
        16 ClientMessage editor {"jsonrpc":"2.0","id":4,"method":"session/set_mode","params":{"sessionId":"s1","modeId":"edits"}}
        19 ClientMessage editor {"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"wait"}]}}
        22 ClientMessage editor {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}
        25 ClientMessage editor {"jsonrpc":"2.0","method":"_other/login"}
        26 ClientMessage phone {"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s1"}}
    "#]].assert_eq(&shown);
    // The phone got nothing else.
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &String| !line.starts_with("waiting")) {
        seen.push(describe(&phone_stream.next().await.1));
    }
    expect![[r#"
        {"outcome":"selected","optionId":"no"}
        user: read /f
        reading
        not to be kept
        current_mode_update
        user: wait
        waiting"#]]
    .assert_eq(&seen.join("\n"));
}

#[tokio::test]
async fn clients_that_want_to_know_how_turns_ended_are_told() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let page = async || {
        let capabilities = json!({ "_meta": { "bowline": { "turnEnds": {} } } });
        server.client_with(&token, capabilities, json!(null)).await
    };
    let (client, watcher) = (page().await, page().await);
    let mut own = client.stream(None, None).await;
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    let mut watcher_stream = watcher.stream(Some(&session), Some(1)).await;
    client.prompt(2, &session, "count 1").await;
    let mut shown = stream.until_response(2).await;
    client.prompt(3, &session, "die").await;
    shown.extend(stream.until_response(3).await);
    shown.push("the other client:".to_owned());
    for _ in 0..5 {
        shown.push(describe_turn(&watcher_stream.next().await.1));
    }
    for (name, client) in
        [("loaded:", page().await), ("loaded by one that does not ask:", server.client(&token).await)]
    {
        shown.push(name.to_owned());
        let mut own = client.stream(None, None).await;
        load(&client, 1, &session, place.path()).await;
        loop {
            let (_, message) = own.next().await;
            shown.push(describe_turn(&message));
            if message["method"].is_null() {
                break;
            }
        }
    }
    expect![[r#"
        4 1
        6 result {"stopReason":"end_turn"}
        10 error the agent ended
        the other client:
        user: count 1
        1
        turn ended "end_turn"null
        user: die
        turn ended null"the agent ended"
        loaded:
        available_commands_update
        user: count 1
        1
        turn ended "end_turn"null
        user: die
        turn ended null"the agent ended"
        result {}
        loaded by one that does not ask:
        available_commands_update
        user: count 1
        1
        user: die
        result {}"#]]
    .assert_eq(&shown.join("\n"));
}

/// The history of a fork says how each turn ended, as that of the original does.
#[tokio::test]
async fn a_fork_has_the_ends_of_earlier_turns() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let capabilities = || json!({ "_meta": { "bowline": { "turnEnds": {} } } });
    let client = server.client_with(&token, capabilities(), json!(null)).await;
    let mut own = client.stream(None, None).await;
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    client.prompt(2, &session, "count 1").await;
    stream.until_response(2).await;
    client.prompt(3, &session, "die").await;
    stream.until_response(3).await;
    let fork = json!({ "sessionId": session, "cwd": place.path(), "mcpServers": [] });
    client.request(4, "session/fork", fork).await;
    let response = own.next().await.1;
    let fork = response["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned();
    // The client has the history already, and its own prompt's response.
    let mut stream = client.stream(Some(&fork), None).await;
    client.prompt(5, &fork, "count 1").await;
    let mut shown = stream.until_response(5).await;
    let watcher = server.client_with(&token, capabilities(), json!(null)).await;
    let mut own = watcher.stream(None, None).await;
    for (id, session) in [(1, &session), (2, &fork)] {
        load(&watcher, id, session, place.path()).await;
        shown.push("loaded:".to_owned());
        loop {
            let (_, message) = own.next().await;
            if message["method"].is_null() {
                break;
            }
            assert_eq!(message["params"]["sessionId"], **session);
            shown.push(describe_turn(&message));
        }
    }
    expect![[r#"
        9 1
        11 result {"stopReason":"end_turn"}
        loaded:
        available_commands_update
        user: count 1
        1
        turn ended "end_turn"null
        user: die
        turn ended null"the agent ended"
        loaded:
        available_commands_update
        user: count 1
        1
        turn ended "end_turn"null
        user: die
        turn ended null"the agent ended"
        user: count 1
        1
        turn ended "end_turn"null"#]]
    .assert_eq(&shown.join("\n"));
}

/// Describes a message, and with it how a turn ended.
fn describe_turn(message: &Value) -> String {
    match &message["params"] {
        params if message["method"] == "_bowline/turn/ended" => {
            format!("turn ended {}{}", params["stopReason"], params["error"])
        }
        _ => describe(message),
    }
}
