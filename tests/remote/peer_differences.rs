//! Where servers of others differ, as far as it concerns a client.
//!
//! | where peers differ | tests of the client (here and in `faults.rs`) | tests of the server (`bowline-serve/tests/serve`) |
//! |---|---|---|
//! | the stream of the response to `session/load`, and of the replay | `the_response_to_load_may_come_on_either_stream_…` | `a_session_that_is_loaded_again_…`, and Python's client in `e2e/peers.rs` |
//! | a stream of an unknown session | `the_stream_of_a_session_may_be_unknown_…` | `sessions_belong_to_their_principal` |
//! | batches | `messages_that_are_none_…` | `statuses_of_requests` |
//! | subprotocols, extensions, redirects and cookies of WebSockets | `a_websocket_that_is_not_opened_is_named` | `a_web_socket_needs_what_other_requests_need` |
//! | requests with an origin | `requests_carry_ids_token_and_cookies_…` | `statuses_of_requests`, `browsers_are_told_…` |
//! | HTTP/2 | | `http_2_is_served_without_negotiation`, `http_1_http_2_and_web_sockets_…` |
//! | the end of a connection's stream | `a_server_may_end_a_stream_that_is_idle_…` | `the_stream_of_a_connection_stays_open_…` |
//! | slow readers | `a_flood_reaches_a_slow_caller_…` | `a_reader_that_stops_…`, `agents_wait_while_too_much_is_pending` |
//! | cookies | `requests_carry_ids_token_and_cookies_…`, `a_websocket_keeps_the_cookies_…` in `bowline-remote/src/websocket.rs` | `a_ticket_is_exchanged_for_a_cookie_once` |

use serde_json::json;
use test_support::scripted_http::ScriptedHttpServer;

use crate::caller::{Caller, accept_post, answer_initialize, open_stream, other_result, prompt, update};

async fn connect() -> (ScriptedHttpServer, Caller, test_support::scripted_http::EventSender) {
    let mut server = ScriptedHttpServer::start().await.unwrap();
    let mut caller = Caller::start(&format!("http://{}", server.address()));
    caller.send(json!({"id": 0, "method": "initialize"})).await;
    answer_initialize(&mut server, "c1", &other_result()).await;
    caller.next().await;
    let connection = open_stream(&mut server, ["c1", "", ""]).await;
    (server, caller, connection)
}

#[tokio::test]
async fn the_response_to_load_may_come_on_either_stream_and_so_may_the_replay() {
    for comes_on_session in [true, false] {
        let (mut server, mut caller, mut connection) = connect().await;
        let load = json!({"id": 1, "method": "session/load", "params": {"sessionId": "s", "cwd": "/p"}});
        caller.send(load.clone()).await;
        // The stream is open before the session is loaded.
        let mut session = open_stream(&mut server, ["c1", "s", ""]).await;
        let post = server.next_post().await.unwrap();
        assert_eq!((post.json().unwrap(), post.header("acp-session-id")), (load, "s"));
        post.accept().await.unwrap();
        let stream = if comes_on_session { &mut session } else { &mut connection };
        stream.send(None, &update(1)).await.unwrap();
        stream.send(None, &json!({"id": 1, "result": {}})).await.unwrap();
        assert_eq!(caller.next().await, update(1));
        assert_eq!(caller.next().await["id"], 1);
    }
}

#[tokio::test]
async fn the_stream_of_a_session_may_be_unknown_until_it_is_loaded() {
    let (mut server, mut caller, mut connection) = connect().await;
    caller.send(json!({"id": 1, "method": "session/load", "params": {"sessionId": "s"}})).await;
    server.next_get().await.unwrap().respond(404, &[], "unknown session").await.unwrap();
    accept_post(&mut server).await;
    connection.send(None, &update(1)).await.unwrap();
    connection.send(None, &json!({"id": 1, "result": {}})).await.unwrap();
    let mut session = open_stream(&mut server, ["c1", "s", ""]).await;
    assert_eq!(caller.next().await, update(1));
    assert_eq!(caller.next().await["id"], 1);
    caller.send(prompt(2)).await;
    accept_post(&mut server).await;
    session.send(None, &json!({"id": 2, "result": {}})).await.unwrap();
    assert_eq!(caller.next().await["id"], 2);
}

#[tokio::test]
async fn a_stream_that_still_has_its_old_subscriber_is_opened_later() {
    let (mut server, mut caller, connection) = connect().await;
    drop(connection);
    server.next_get().await.unwrap().respond(409, &[], "already subscribed").await.unwrap();
    let mut connection = open_stream(&mut server, ["c1", "", ""]).await;
    connection.send(None, &json!({"method": "_note"})).await.unwrap();
    assert_eq!(caller.next().await, json!({"method": "_note"}));
}

#[tokio::test]
async fn a_message_that_is_larger_than_the_server_accepts_is_answered() {
    let (mut server, mut caller, connection) = connect().await;
    caller.send(json!({"id": 1, "method": "_large", "params": {"text": "x".repeat(1 << 20)}})).await;
    server.next_post().await.unwrap().respond(413, &[], "").await.unwrap();
    let error = caller.next_error().await;
    assert!(error.starts_with("1 the message is larger than http://"), "{error}");
    drop(connection);
}

#[tokio::test]
async fn a_server_may_end_a_stream_that_is_idle_at_any_time() {
    let (mut server, mut caller, mut connection) = connect().await;
    for _ in 0..3 {
        // A complete response, as a server or a proxy ends it.
        connection.send_raw("").await.unwrap();
        drop(connection);
        connection = open_stream(&mut server, ["c1", "", ""]).await;
    }
    connection.send(None, &json!({"method": "_note"})).await.unwrap();
    assert_eq!(caller.next().await, json!({"method": "_note"}));
}
