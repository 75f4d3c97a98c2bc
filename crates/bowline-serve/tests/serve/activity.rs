//! What an overview learns of sessions.

use std::sync::Arc;

use bowline_serve::event::SessionId;
use bowline_serve::token::Role;
use bowline_serve::{Hub, HubEvent};
use serde_json::json;

use crate::support::Server;

/// Returns what a session is doing, in short.
async fn activity(hub: &Arc<Hub>, session: &SessionId) -> String {
    let stored = hub.store().session(session).await.unwrap().unwrap();
    let activity = hub.activity(&stored);
    format!("{} {}", activity.state.name(), activity.waiting_for.unwrap_or_default())
}

#[tokio::test]
async fn a_session_works_waits_and_fails() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    let mut events = server.hub.subscribe();
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    let session: SessionId = session.into();
    assert_eq!(events.recv().await.unwrap(), HubEvent::SessionChanged(session.clone()));
    assert_eq!(activity(&server.hub, &session).await, "idle ");

    client.prompt(2, &session, "ask").await;
    let question = loop {
        let (_, message) = stream.next().await;
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    assert_eq!(activity(&server.hub, &session).await, "waiting a question");
    assert_eq!(events.recv().await.unwrap(), HubEvent::SessionChanged(session.clone()));
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "yes" } });
    client.send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome })).await;
    stream.until_response(2).await;
    assert_eq!(activity(&server.hub, &session).await, "idle ");

    client.prompt(3, &session, "wait").await;
    loop {
        let (_, message) = stream.next().await;
        if message["params"]["update"]["content"]["text"] == "waiting" {
            break;
        }
    }
    assert_eq!(activity(&server.hub, &session).await, "working ");
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    client.send(cancel).await;
    stream.until_response(3).await;
    assert_eq!(activity(&server.hub, &session).await, "idle ");

    client.prompt(4, &session, "die").await;
    stream.until_response(4).await;
    assert_eq!(activity(&server.hub, &session).await, "failed ");
    // The next turn is a new one.
    client.prompt(5, &session, "count 1").await;
    stream.until_response(5).await;
    assert_eq!(activity(&server.hub, &session).await, "idle ");
}

#[tokio::test]
async fn a_turn_that_a_crash_interrupted_has_failed() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    client.prompt(2, &session, "wait").await;
    stream.next().await;
    server.hub.log().flush().await;
    server.crash().await;
    let server = Server::start(place.path()).await;
    let token = server.token("again", Role::Admin).await;
    let stored = SessionId::from(session.clone());
    assert_eq!(activity(&server.hub, &stored).await, "failed ");
    // Also when it is looked at, until its next turn.
    let client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    let params = json!({ "sessionId": session, "cwd": place.path(), "mcpServers": [] });
    client.request(1, "session/resume", params).await;
    own.next().await;
    assert_eq!(activity(&server.hub, &stored).await, "failed ");
}

#[tokio::test]
async fn usage_and_a_failed_turn_are_known_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    client.prompt(2, &session, "usage 7").await;
    stream.until_response(2).await;
    client.prompt(3, &session, "die").await;
    stream.until_response(3).await;
    server.hub.log().flush().await;
    server.crash().await;
    let server = Server::start(place.path()).await;
    let session = SessionId::from(session);
    assert_eq!(activity(&server.hub, &session).await, "failed ");
    let stored = server.hub.store().session(&session).await.unwrap().unwrap();
    let activity = server.hub.activity(&stored);
    assert_eq!(activity.usage.unwrap()["used"], 7);
    assert_eq!(activity.failure.as_deref(), Some("the agent ended"));
}

#[tokio::test]
async fn subscribers_learn_of_the_end() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let mut events = server.hub.subscribe();
    server.hub.drain(std::time::Duration::from_secs(1)).await;
    assert_eq!(events.recv().await.unwrap(), HubEvent::Stopped);
}
