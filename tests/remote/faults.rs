//! Faults of the network and of the server: lost streams, lost answers, restarts, and answers that are no messages.

use std::time::Duration;

use bowline_remote::MAX_MESSAGE_BYTES;
use expect_test::expect;
use serde_json::json;
use test_support::scripted_http::{EventSender, ScriptedHttpServer};

use crate::caller::{
    Caller, OpenSession, TOKEN, accept_post, answer_initialize, bowline_result, open_stream, other_result,
    prompt, stream_headers, update,
};
use crate::servers::Balancer;

#[tokio::test]
async fn requests_carry_ids_token_and_cookies_and_the_end_deletes_the_connection() {
    let mut server = ScriptedHttpServer::start().await.unwrap();
    let mut caller = Caller::start(&format!("http://{}", server.address()));
    caller.send(json!({"id": 0, "method": "initialize", "params": {}})).await;
    let exchange = server.next_post().await.unwrap();
    assert_eq!(exchange.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(exchange.header("content-type"), "application/json");
    // Servers refuse origins that they do not know.
    assert_eq!(exchange.header("origin"), "");
    assert_eq!(exchange.header("accept"), "application/json, text/event-stream");
    let headers = [
        ("content-type", "application/json"),
        ("acp-connection-id", "c1"),
        ("set-cookie", "route=a; Path=/; HttpOnly"),
    ];
    // Over several lines, as some servers format it.
    exchange.respond(200, &headers, "{\n  \"id\": 0,\n  \"result\": {}\n}").await.unwrap();
    assert_eq!(caller.next().await, json!({"id": 0, "result": {}}));
    let get = server.next_get().await.unwrap();
    assert_eq!(stream_headers(&get), ["c1", "", ""]);
    assert_eq!([get.header("cookie"), get.header("accept")], ["route=a", "text/event-stream"]);
    let connection = get.send_events().await.unwrap();
    caller.send(json!({"id": 1, "method": "session/list"})).await;
    let post = server.next_post().await.unwrap();
    assert_eq!([post.header("cookie"), post.header("acp-connection-id")], ["route=a", "c1"]);
    post.accept().await.unwrap();
    let finishing = tokio::spawn(caller.finish());
    let delete = server.next_other().await.unwrap();
    assert_eq!((delete.method.as_str(), delete.header("acp-connection-id")), ("DELETE", "c1"));
    delete.accept().await.unwrap();
    finishing.await.unwrap().unwrap();
    connection.wait_for_close().await.unwrap();
}

#[tokio::test]
async fn a_caller_that_was_killed_ends_the_connection() {
    let mut open = OpenSession::open(&other_result()).await;
    open.prompt(2).await;
    let client = open.caller.vanish();
    let delete = open.server.next_other().await.unwrap();
    assert_eq!(delete.header("acp-connection-id"), "c1");
    delete.accept().await.unwrap();
    client.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_websocket_that_is_not_opened_is_named() {
    let mut server = ScriptedHttpServer::start().await.unwrap();
    let address = server.address().to_string();
    let mut caller = Caller::start(&format!("ws://{address}"));
    let mut errors = String::new();
    for (id, status) in [200, 302, 401, 503].into_iter().enumerate() {
        caller.send(json!({"id": id, "method": "initialize"})).await;
        let upgrade = server.next_get().await.unwrap();
        assert_eq!(upgrade.header("authorization"), format!("Bearer {TOKEN}"));
        // Neither subprotocols nor compression are offered.
        assert_eq!(
            [upgrade.header("sec-websocket-protocol"), upgrade.header("sec-websocket-extensions")],
            ["", ""]
        );
        upgrade.respond(status, &[], "").await.unwrap();
        errors += &caller.next_error().await.replace(&address, "HOST");
        errors.push('\n');
    }
    caller.send(json!({"id": 4, "method": "initialize"})).await;
    drop(server.next_get().await.unwrap());
    errors += &caller.next_error().await.replace(&address, "HOST");
    expect![[r#"
        0 ws://HOST/acp answers without opening a WebSocket: check the URL, or try http:// or https://
        1 ws://HOST/acp redirects to another URL (302), where the token is not sent; if that is right, use it as the URL
        2 ws://HOST/acp denies access (401); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN
        3 ws://HOST/acp failed (503)
        4 ws://HOST/acp closed the connection"#]].assert_eq(&errors);
}

#[tokio::test]
async fn a_dropped_stream_continues_and_nothing_comes_twice() {
    let mut open = OpenSession::open(&bowline_result()).await;
    open.prompt(2).await;
    let question = json!({"id": 7, "method": "session/request_permission", "params": {"sessionId": "s"}});
    open.session.send(Some(1), &update(1)).await.unwrap();
    open.session.send(Some(2), &question).await.unwrap();
    assert_eq!(open.caller.next().await, update(1));
    assert_eq!(open.caller.next().await, question);
    drop(open.session);
    let mut session = open_stream(&mut open.server, ["c1", "s", "2"]).await;
    session.send(Some(2), &question).await.unwrap();
    session.send(None, &question).await.unwrap();
    session.send(Some(3), &update(3)).await.unwrap();
    assert_eq!(open.caller.next().await, update(3));
    // The answer was lost on its way, so it is posted again.
    open.caller.send(json!({"id": 7, "result": {}})).await;
    drop(open.server.next_post().await.unwrap());
    let answer = open.server.next_post().await.unwrap();
    assert_eq!((answer.json().unwrap()["id"].clone(), answer.header("acp-session-id")), (json!(7), "s"));
    answer.accept().await.unwrap();
    session.send(None, &question).await.unwrap();
    session.send(Some(4), &json!({"id": 2, "result": {}})).await.unwrap();
    assert_eq!(open.caller.next().await, json!({"id": 2, "result": {}}));
}

#[tokio::test]
async fn streams_without_ids_are_opened_again() {
    let mut open = OpenSession::open(&other_result()).await;
    open.session.send(None, &update(1)).await.unwrap();
    open.session.send_raw(": keep-alive\n\n").await.unwrap();
    assert_eq!(open.caller.next().await, update(1));
    drop(open.session);
    let mut session = open_stream(&mut open.server, ["c1", "s", ""]).await;
    session.send(None, &update(2)).await.unwrap();
    assert_eq!(open.caller.next().await, update(2));
    drop(open.connection);
    let mut connection = open_stream(&mut open.server, ["c1", "", ""]).await;
    connection.send(None, &json!({"method": "_note"})).await.unwrap();
    assert_eq!(open.caller.next().await, json!({"method": "_note"}));
    let reports = open.caller.reports().concat();
    assert!(reports.contains("messages may be missing"), "{reports}");
}

#[tokio::test]
async fn a_request_without_an_answer_is_posted_again_only_to_a_server_that_recognizes_it() {
    let mut open = OpenSession::open(&bowline_result()).await;
    open.caller.send(prompt(2)).await;
    drop(open.server.next_post().await.unwrap());
    let gateway = open.server.next_post().await.unwrap();
    assert_eq!(gateway.json().unwrap(), prompt(2));
    gateway.respond(502, &[], "bad gateway").await.unwrap();
    assert_eq!(accept_post(&mut open.server).await, prompt(2));

    let mut open = OpenSession::open(&other_result()).await;
    open.caller.send(prompt(2)).await;
    drop(open.server.next_post().await.unwrap());
    let error = open.caller.next_error().await;
    assert!(error.starts_with("2 cannot reach http://127.0.0.1:"), "{error}");
    assert!(
        error.ends_with("the agent may have received the request: check before you repeat it"),
        "{error}"
    );
    // Only this request is affected.
    open.prompt(3).await;
}

#[tokio::test]
async fn a_restarted_bowline_server_takes_over() {
    let (mut open, network) = OpenSession::open_balanced(&bowline_result()).await;
    open.prompt(2).await;
    open.session.send(Some(5), &update(5)).await.unwrap();
    assert_eq!(open.caller.next().await, update(5));
    let mut server = replace_server(open.server, [open.connection, open.session], &network).await;
    let initialize = answer_streams_as_unknown(&mut server, "c2", &bowline_result()).await;
    assert_eq!(initialize["params"], json!({"protocolVersion": 1, "_meta": {"bowline": {"resumes": "c1"}}}));
    let mut streams = Vec::new();
    for _ in 0..2 {
        let get = next_known_get(&mut server, "c2").await;
        let headers = stream_headers(&get).map(str::to_owned);
        streams.push((headers, get.send_events().await.unwrap()));
    }
    streams.sort_by(|(one, _), (other, _)| one.cmp(other));
    let headers: Vec<_> = streams.iter().map(|(headers, _)| headers.join(" ")).collect();
    assert_eq!(headers, ["c2  ", "c2 s 5"]);
    let (_, session) = &mut streams[1];
    session.send(Some(5), &update(5)).await.unwrap();
    let interrupted = json!({"id": 2, "error": {"code": -32603, "message": "interrupted"}});
    session.send(Some(6), &interrupted).await.unwrap();
    assert_eq!(open.caller.next().await, interrupted);
    open.caller.send(prompt(3)).await;
    let post = server.next_post().await.unwrap();
    assert_eq!([post.header("acp-connection-id"), post.header("acp-session-id")], ["c2", "s"]);
}

/// Ends a server with its streams, and starts another in its place.
async fn replace_server(
    server: ScriptedHttpServer,
    streams: [EventSender; 2],
    network: &Balancer,
) -> ScriptedHttpServer {
    server.stop().await;
    drop(streams);
    let next = ScriptedHttpServer::start().await.unwrap();
    // What the first one has answered still arrives.
    network.redirect_to(&next.address().to_string());
    next
}

/// Answers streams of the first connection with 404 until the client initializes again; answers that, and returns it.
async fn answer_streams_as_unknown(
    server: &mut ScriptedHttpServer,
    connection: &str,
    result: &serde_json::Value,
) -> serde_json::Value {
    loop {
        // The connection's stream decides. A session's may be refused first.
        let get = server.next_get().await.unwrap();
        let is_connection = get.header("acp-session-id").is_empty();
        get.respond(404, &[], "Unknown Acp-Connection-Id").await.unwrap();
        if is_connection {
            return answer_initialize(server, connection, result).await;
        }
    }
}

/// Returns the next GET of a connection, and answers those of earlier ones with 404.
async fn next_known_get(
    server: &mut ScriptedHttpServer,
    connection: &str,
) -> test_support::scripted_http::HttpExchange {
    loop {
        let get = server.next_get().await.unwrap();
        if get.header("acp-connection-id") == connection {
            return get;
        }
        // The client may have closed it already.
        get.respond(404, &[], "Unknown Acp-Connection-Id").await.ok();
    }
}

#[tokio::test]
async fn after_the_restart_of_another_server_sessions_are_loaded_without_their_replay() {
    let (mut open, network) = OpenSession::open_balanced(&other_result()).await;
    open.prompt(2).await;
    let mut server = replace_server(open.server, [open.connection, open.session], &network).await;
    answer_streams_as_unknown(&mut server, "c2", &other_result()).await;
    let error = open.caller.next_error().await;
    assert!(error.ends_with("the agent may or may not have done this; check, and try again"), "{error}");
    let mut connection = next_known_get(&mut server, "c2").await.send_events().await.unwrap();
    let get = next_known_get(&mut server, "c2").await;
    assert_eq!(stream_headers(&get), ["c2", "s", ""]);
    let mut session = get.send_events().await.unwrap();
    open.caller.send(prompt(3)).await;
    let load = accept_post(&mut server).await;
    assert_eq!(
        (load["method"].clone(), load["params"].clone()),
        (json!("session/load"), json!({"cwd": "/p", "sessionId": "s"}))
    );
    session.send(None, &update(1)).await.unwrap();
    connection.send(None, &json!({"id": load["id"], "result": {}})).await.unwrap();
    assert_eq!(accept_post(&mut server).await, prompt(3));
    session.send(None, &update(2)).await.unwrap();
    assert_eq!(open.caller.next().await, update(2));
}

#[tokio::test]
async fn a_stream_that_is_refused_until_its_session_is_loaded_is_opened_then() {
    for status in [403, 404] {
        let (mut open, network) = OpenSession::open_balanced(&other_result()).await;
        let mut server = replace_server(open.server, [open.connection, open.session], &network).await;
        answer_streams_as_unknown(&mut server, "c2", &other_result()).await;
        let mut connection = next_known_get(&mut server, "c2").await.send_events().await.unwrap();
        let refused = next_known_get(&mut server, "c2").await;
        assert_eq!(stream_headers(&refused), ["c2", "s", ""]);
        refused.respond(status, &[], "this connection has not loaded the session").await.unwrap();
        let load = accept_post(&mut server).await;
        assert_eq!(load["method"], "session/load");
        connection.send(None, &json!({"id": load["id"], "result": {}})).await.unwrap();
        let get = next_known_get(&mut server, "c2").await;
        assert_eq!(stream_headers(&get), ["c2", "s", ""]);
        let mut session = get.send_events().await.unwrap();
        open.caller.send(prompt(3)).await;
        assert_eq!(accept_post(&mut server).await, prompt(3));
        session.send(None, &update(1)).await.unwrap();
        assert_eq!(open.caller.next().await, update(1));
    }
}

#[tokio::test]
async fn a_server_that_stays_away_is_given_up() {
    let server = ScriptedHttpServer::start().await.unwrap();
    let caller = Caller::start_with_limit(&format!("http://{}", server.address()), Duration::ZERO);
    let mut open = OpenSession::open_with(server, caller, &bowline_result()).await;
    open.prompt(2).await;
    let address = open.server.stop().await.to_string();
    drop((open.connection, open.session));
    let error = open.caller.next_error().await.replace(&address, "HOST");
    let (error, _) = error.split_once(" s: ").unwrap();
    assert_eq!(error, "2 http://HOST/acp could not be reached again within 0");
    let ended = open.caller.wait_for_end().await.unwrap_err().to_string();
    assert!(ended.contains("could not be reached again"), "{ended}");
}

#[tokio::test]
async fn what_is_no_server_of_acp_is_named() {
    let mut server = ScriptedHttpServer::start().await.unwrap();
    let address = server.address().to_string();
    let mut caller = Caller::start(&format!("http://{address}"));
    let json = ("content-type", "application/json");
    type Answer<'a> = (u16, &'a [(&'a str, &'a str)], &'a str);
    let answers: [Answer<'_>; 9] = [
        (200, &[("content-type", "text/html; charset=utf-8")], "<!doctype html>"),
        (200, &[("content-type", "text/plain")], "hello"),
        (200, &[], "hello"),
        (200, &[json], "{\"id\":5"),
        (202, &[], ""),
        (302, &[("location", "http://127.0.0.1:1/login")], ""),
        (401, &[("content-type", "text/plain")], "no token"),
        (404, &[("content-type", "text/html")], "<html>"),
        (429, &[("retry-after", "12")], ""),
    ];
    let mut errors = String::new();
    for (id, (status, headers, body)) in answers.into_iter().enumerate() {
        caller.send(json!({"id": id, "method": "initialize"})).await;
        server.next_post().await.unwrap().respond(status, headers, body).await.unwrap();
        errors += &caller.next_error().await.replace(&address, "HOST");
        errors.push('\n');
    }
    server.stop().await;
    caller.send(json!({"id": 9, "method": "initialize"})).await;
    let error = caller.next_error().await.replace(&address, "HOST");
    errors += &error.replace(" (os error 111)", "");
    expect![[r#"
        0 http://HOST/acp answers with a web page instead of application/json: is it the URL of an ACP server?
        1 http://HOST/acp answers with text/plain instead of application/json: is it the URL of an ACP server?
        2 http://HOST/acp answers without a content type instead of application/json: is it the URL of an ACP server?
        3 http://HOST/acp answered `initialize` with something else than its response
        4 http://HOST/acp did not answer `initialize`: it does not speak ACP over HTTP
        5 http://HOST/acp redirects to http://127.0.0.1:1/login (302), where the token is not sent; if that is right, use it as the URL
        6 http://HOST/acp denies access (401): no token; give its token with --token-file FILE or the environment variable BOWLINE_TOKEN
        7 http://HOST/acp was not found (404); check the URL, whose path is usually /acp
        8 http://HOST/acp has too many requests (429); try again after 12 s
        9 cannot reach http://HOST/acp: Connection refused"#]].assert_eq(&errors);
    caller.finish().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_is_a_web_page_ends_the_connection() {
    let mut server = ScriptedHttpServer::start().await.unwrap();
    let mut caller = Caller::start(&format!("http://{}", server.address()));
    caller.send(json!({"id": 0, "method": "initialize"})).await;
    answer_initialize(&mut server, "c1", &other_result()).await;
    caller.next().await;
    caller.send(json!({"id": 1, "method": "session/list"})).await;
    let page = server.next_get().await.unwrap();
    page.respond(200, &[("content-type", "text/html")], "<html>").await.unwrap();
    let error = caller.next_error().await;
    assert!(error.contains("answers with a web page instead of text/event-stream"), "{error}");
    assert!(caller.wait_for_end().await.is_err());
}

#[tokio::test]
async fn an_event_that_is_too_large_ends_its_session_only() {
    let mut open = OpenSession::open(&other_result()).await;
    open.prompt(2).await;
    open.session.send_raw("data: ").await.unwrap();
    let block = "x".repeat(1 << 20);
    // The client closes the stream before the last block is sent.
    for _ in 0..=MAX_MESSAGE_BYTES >> 20 {
        if open.session.send_raw(&block).await.is_err() {
            break;
        }
    }
    let error = open.caller.next_error().await;
    assert!(error.ends_with(&format!("an event has more than {MAX_MESSAGE_BYTES} bytes")), "{error}");
    open.caller.send(json!({"id": 3, "method": "session/list"})).await;
    assert_eq!(accept_post(&mut open.server).await["id"], 3);
}

#[tokio::test]
async fn posts_keep_their_order_while_an_answer_is_slow() {
    let mut open = OpenSession::open(&other_result()).await;
    open.caller.send(json!({"id": 2, "method": "session/list"})).await;
    let slow = open.server.next_post().await.unwrap();
    for id in 3..50 {
        open.caller.send(json!({"id": id, "method": "session/list"})).await;
    }
    // The server can send meanwhile.
    open.session.send(None, &update(1)).await.unwrap();
    assert_eq!(open.caller.next().await, update(1));
    slow.accept().await.unwrap();
    for id in 3..50 {
        assert_eq!(accept_post(&mut open.server).await["id"], id);
    }
}

#[tokio::test]
async fn a_flood_reaches_a_slow_caller_whole_and_in_order() {
    let mut open = OpenSession::open(&other_result()).await;
    let text = "x".repeat(10_000);
    let event = |number: u64| json!({"method": "session/update", "params": {"sessionId": "s", "n": number, "text": text}});
    let flood = async {
        for number in 0..500 {
            open.session.send(None, &event(number)).await.unwrap();
        }
    };
    let read = async {
        for number in 0..500 {
            assert_eq!(open.caller.next().await["params"]["n"], number);
        }
    };
    tokio::join!(flood, read);
}

#[tokio::test]
async fn messages_that_are_none_are_dropped_and_reported() {
    let mut open = OpenSession::open(&other_result()).await;
    open.session.send_raw("data: hello\n\ndata: [{}]\n\ndata: {\"id\":99,\"result\":{}}\n\n").await.unwrap();
    // Two lines of data are one message.
    open.session.send_raw("data: {\"method\":\ndata: \"_note\"}\n\n").await.unwrap();
    assert_eq!(open.caller.next().await, json!({"method": "_note"}));
    let reports = open.caller.reports();
    assert_eq!(reports.len(), 2, "{reports:?}");
    open.caller.send_text("[]").await;
    assert_eq!(open.caller.next_error().await, "null batches of messages are not supported");
}
