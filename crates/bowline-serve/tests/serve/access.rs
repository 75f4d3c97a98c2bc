//! Who may use the server, and what of it.

use bowline_serve::HubOptions;
use bowline_serve::http::{AccessOptions, CookieKey};
use bowline_serve::token::{Role, StoredToken};
use bowline_text::time::Timestamp;
use expect_test::expect;
use serde_json::{Value, json};

use crate::client::{describe, http_client};
use crate::support::Server;
use crate::transport::Socket;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;

#[tokio::test]
async fn statuses_of_requests() {
    let place = tempfile::tempdir().unwrap();
    let access = AccessOptions {
        origins: vec!["https://page.example".into()],
        is_loopback: true,
        ..AccessOptions::default()
    };
    let server = Server::start_with(place.path(), HubOptions::default(), access).await;
    let token = server.token("me", Role::User).await;
    let (expired, expired_text) =
        StoredToken::generate("old", Role::User, Timestamp(1), Some(Timestamp(2))).unwrap();
    server.hub.store().add_token(expired).await.unwrap();
    let other = server.token("other", Role::User).await;
    let client = server.client(&token).await;
    let host = server.url.strip_prefix("http://").unwrap().to_owned();
    let bearer = format!("authorization: Bearer {token}");
    let json = "content-type: application/json";
    let connection = format!("acp-connection-id: {}", client.connection);
    let events = "accept: text/event-stream";
    let prompt = r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#;
    let long_id = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "x".repeat(257));
    let long_session = prompt.replace(r#""a""#, &format!(r#""{}""#, "x".repeat(257)));
    let escaped = r#"{"jsonrpc":"2.0","\u0069d":1,"method":"x"}"#;
    let huge_id = r#"{"jsonrpc":"2.0","id":1e400,"method":"x"}"#;
    let large_id = r#"{"jsonrpc":"2.0","id":18446744073709551616,"method":"x"}"#;
    let odd_id = r#"{"jsonrpc":"2.0","id":{"id":1},"method":"x"}"#;
    let no_id = r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}1{}}}"#,
        "[".repeat(9999),
        "]".repeat(9999)
    );
    let two_sessions =
        r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"a","sessionId":"b"}}"#;
    let two_ids = r#"{"jsonrpc":"2.0","id":1,"method":"x","id":2}"#;
    let capabilities = json!({ "_meta": "x".repeat(64 << 10) });
    let large_capabilities = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "clientCapabilities": capabilities } });
    let large_capabilities = large_capabilities.to_string();
    let own_origin = format!("origin: http://{host}");
    let cases: &[(&str, &str, &str, &[&str], &str)] = &[
        ("no token", "POST", "/acp", &[json], INITIALIZE),
        ("a wrong token", "POST", "/acp", &[json, "authorization: Bearer bow_00_00"], INITIALIZE),
        ("not a token", "POST", "/acp", &[json, "authorization: Bearer x"], INITIALIZE),
        ("another scheme", "POST", "/acp", &[json, "authorization: Basic bWU6bWU="], INITIALIZE),
        (
            "an expired token",
            "POST",
            "/acp",
            &[json, &format!("authorization: Bearer {expired_text}")],
            INITIALIZE,
        ),
        ("a token in the URL", "POST", &format!("/acp?token={token}"), &[json, &bearer], INITIALIZE),
        ("initialize", "POST", "/acp", &[json, &bearer], INITIALIZE),
        ("no JSON type", "POST", "/acp", &[&bearer], INITIALIZE),
        ("not JSON", "POST", "/acp", &[json, &bearer], "{"),
        ("a batch", "POST", "/acp", &[json, &bearer, &connection], "[]"),
        ("no connection", "POST", "/acp", &[json, &bearer], prompt),
        ("an unknown connection", "POST", "/acp", &[json, &bearer, "acp-connection-id: x"], prompt),
        (
            "another's connection",
            "POST",
            "/acp",
            &[json, &connection, &format!("authorization: Bearer {other}")],
            prompt,
        ),
        (
            "another session in the header",
            "POST",
            "/acp",
            &[json, &bearer, &connection, "acp-session-id: b"],
            prompt,
        ),
        ("initialize twice", "POST", "/acp", &[json, &bearer, &connection], INITIALIZE),
        ("a prompt", "POST", "/acp", &[json, &bearer, &connection], prompt),
        ("a stream without Accept", "GET", "/acp", &[&bearer, &connection, "accept: application/json"], ""),
        ("a stream without a connection", "GET", "/acp", &[&bearer, events], ""),
        ("a wrong Last-Event-ID", "GET", "/acp", &[&bearer, &connection, events, "last-event-id: x"], ""),
        (
            "a long session id in the header",
            "GET",
            "/acp",
            &[&bearer, &connection, events, &format!("acp-session-id: {}", "x".repeat(257))],
            "",
        ),
        ("a long request id", "POST", "/acp", &[json, &bearer, &connection], &long_id),
        ("a long session id", "POST", "/acp", &[json, &bearer, &connection], &long_session),
        ("an escaped key", "POST", "/acp", &[json, &bearer, &connection], escaped),
        ("two ids", "POST", "/acp", &[json, &bearer, &connection], two_ids),
        ("a number beyond all others as id", "POST", "/acp", &[json, &bearer, &connection], huge_id),
        ("a number beyond 64 bits as id", "POST", "/acp", &[json, &bearer, &connection], large_id),
        ("an object as id", "POST", "/acp", &[json, &bearer, &connection], odd_id),
        ("null as id", "POST", "/acp", &[json, &bearer, &connection], no_id),
        ("a deep message", "POST", "/acp", &[json, &bearer, &connection], &deep),
        ("two sessions", "POST", "/acp", &[json, &bearer, &connection], two_sessions),
        ("a token in the URL under another name", "GET", &format!("/health?x={token}"), &[], ""),
        ("a token in the URL under another name", "GET", &format!("/metrics?x={token}"), &[], ""),
        ("a token in the URL of nothing", "GET", &format!("/nothing?x={token}"), &[], ""),
        ("a token in the URL of a login", "POST", &format!("/login?token={token}"), &[], "{}"),
        ("a ticket with a wrong token", "POST", "/ticket", &["authorization: Bearer bow_00_00"], ""),
        ("a login with a foreign origin", "POST", "/login", &["origin: https://evil.example"], "{}"),
        ("a login with a large body", "POST", "/login", &[], &large_capabilities),
        ("large capabilities", "POST", "/acp", &[json, &bearer], &large_capabilities),
        ("another method", "PUT", "/acp", &[&bearer], ""),
        ("an unknown path", "GET", "/../etc/passwd", &[&bearer], ""),
        ("its own origin", "POST", "/acp", &[json, &bearer, &own_origin], INITIALIZE),
        ("an allowed origin", "POST", "/acp", &[json, &bearer, "origin: https://page.example"], INITIALIZE),
        ("a foreign origin", "POST", "/acp", &[json, &bearer, "origin: https://evil.example"], INITIALIZE),
        ("a null origin", "POST", "/acp", &[json, &bearer, "origin: null"], INITIALIZE),
        ("a foreign host", "POST", "/acp", &[json, &bearer, "host: evil.example"], INITIALIZE),
        ("health", "GET", "/health", &[], ""),
        ("ready", "GET", "/ready", &[], ""),
        ("metrics without a token", "GET", "/metrics", &[], ""),
        ("metrics", "GET", "/metrics", &[&bearer], ""),
        ("delete", "DELETE", "/acp", &[&bearer, &connection], ""),
        ("delete twice", "DELETE", "/acp", &[&bearer, &connection], ""),
    ];
    let mut table = String::new();
    for (name, method, path, headers, body) in cases {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request =
            client.http.request(method, format!("{}{path}", server.url)).body((*body).to_owned());
        for header in *headers {
            let (key, value) = header.split_once(": ").unwrap();
            request = request.header(key, value);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let reason = if status.is_success() { String::new() } else { response.text().await.unwrap() };
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        table.push_str(format!("{name}: {} {reason}", status.as_u16()).trim_end());
        table.push('\n');
    }
    expect![[r#"
        no token: 401 send the header Authorization: Bearer TOKEN; `bowline serve token add NAME` makes a token
        a wrong token: 401 the token is wrong, was removed or has expired
        not a token: 401 the token is wrong, was removed or has expired
        another scheme: 401 only bearer tokens are accepted
        an expired token: 401 the token is wrong, was removed or has expired
        a token in the URL: 400 never put a token into a URL: it ends up in logs. Send the header Authorization: Bearer TOKEN
        initialize: 200
        no JSON type: 415 send JSON: Content-Type: application/json
        not JSON: 400 this is not a JSON-RPC message
        a batch: 501 batches of messages are not supported
        no connection: 400 only `initialize` can be sent without the header Acp-Connection-Id
        an unknown connection: 404 this connection is unknown or has ended: send `initialize` again
        another's connection: 404 this connection is unknown or has ended: send `initialize` again
        another session in the header: 400 the session in the header is not the one in the params
        initialize twice: 400 this connection is initialized already
        a prompt: 202
        a stream without Accept: 406 a stream needs Accept: text/event-stream
        a stream without a connection: 400 the header Acp-Connection-Id is missing
        a wrong Last-Event-ID: 400 Last-Event-ID is not an id of this server
        a long session id in the header: 400 an id has at most 256 bytes
        a long request id: 400 an id has at most 256 bytes
        a long session id: 400 an id has at most 256 bytes
        an escaped key: 400 this is not a JSON-RPC message
        two ids: 400 this is not a JSON-RPC message
        a number beyond all others as id: 400 this is not a JSON-RPC message
        a number beyond 64 bits as id: 400 this is not a JSON-RPC message
        an object as id: 400 this is not a JSON-RPC message
        null as id: 202
        a deep message: 202
        two sessions: 400 this is not a JSON-RPC message
        a token in the URL under another name: 400 never put a token into a URL: it ends up in logs. Send the header Authorization: Bearer TOKEN
        a token in the URL under another name: 400 never put a token into a URL: it ends up in logs. Send the header Authorization: Bearer TOKEN
        a token in the URL of nothing: 400 never put a token into a URL: it ends up in logs. Send the header Authorization: Bearer TOKEN
        a token in the URL of a login: 400 never put a token into a URL: it ends up in logs. Send the header Authorization: Bearer TOKEN
        a ticket with a wrong token: 401 the token is wrong, was removed or has expired
        a login with a foreign origin: 403 pages of this origin may not use the server: allow it with `bowline serve --origin`
        a login with a large body: 413 a body has at most 4096 bytes
        large capabilities: 400 clientCapabilities has more than 64 KiB
        another method: 405 use GET, POST or DELETE
        an unknown path: 404 there is nothing here; the endpoint is /acp
        its own origin: 200
        an allowed origin: 200
        a foreign origin: 403 pages of this origin may not use the server: allow it with `bowline serve --origin`
        a null origin: 403 pages of this origin may not use the server: allow it with `bowline serve --origin`
        a foreign host: 403 the header Host does not name this machine
        health: 200
        ready: 200
        metrics without a token: 401 send the header Authorization: Bearer TOKEN; `bowline serve token add NAME` makes a token
        metrics: 200
        delete: 202
        delete twice: 404 this connection is unknown or has ended: send `initialize` again
    "#]].assert_eq(&table);
}

#[tokio::test]
async fn sessions_belong_to_their_principal() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let owner = server.client(&server.token("owner", Role::User).await).await;
    let mut own = owner.stream(None, None).await;
    let (session, mut owner_stream) = owner.new_session(&mut own, place.path()).await;
    let root = place.path().canonicalize().unwrap();
    let mut table = String::new();
    for (name, role) in [("stranger", Role::User), ("observer", Role::Observer), ("admin", Role::Admin)] {
        let client = server.client(&server.token(name, role).await).await;
        let mut own = client.stream(None, None).await;
        let requests = [
            ("session/list", json!({})),
            ("session/load", json!({ "sessionId": session, "cwd": place.path(), "mcpServers": [] })),
            ("session/set_mode", json!({ "sessionId": session, "modeId": "x" })),
            ("session/new", json!({ "cwd": "/", "mcpServers": [] })),
        ];
        for (id, (method, params)) in (1..).zip(requests) {
            // What an admin may do is answered on the session's stream.
            let mut stream = client.stream(Some(&session), Some(1)).await;
            client.request(id, method, params).await;
            let answered = if role == Role::Admin && method == "session/set_mode" {
                stream.until_response(id).await
            } else {
                own.until_response(id).await
            };
            let answer = answered.last().unwrap();
            let answer = if method == "session/list" { &answer[..answer.len().min(40)] } else { answer };
            table.push_str(&format!("{name} {method}: {answer}\n"));
        }
    }
    expect![[r#"
        stranger session/list: 1 result {"sessions":[],"nextCursor":nul
        stranger session/load: 2 error there is no session S; `session/list` lists yours
        stranger session/set_mode: 3 error there is no session S; `session/list` lists yours
        stranger session/new: 4 error the directory / is outside of what this server offers: /root
        observer session/list: 1 result {"sessions":[{"sessionId":"S",
        observer session/load: 2 result {"modes":{"currentModeId":"ask","availableModes":[]}}
        observer session/set_mode: 3 error an observer may not change anything
        observer session/new: 4 error an observer may not change anything
        admin session/list: 1 result {"sessions":[{"sessionId":"S",
        admin session/load: 2 result {"modes":{"currentModeId":"ask","availableModes":[]}}
        admin session/set_mode: 4 result {}
        admin session/new: 3 error the directory / is outside of what this server offers: /root
    "#]]
    .assert_eq(&table.replace(&session, "S").replace(&*root.to_string_lossy(), "/root"));
    // The stranger got nothing of it on its stream.
    let stranger = server.client(&server.token("stranger2", Role::User).await).await;
    let mut stream = stranger.stream(Some(&session), Some(0)).await;
    owner.prompt(9, &session, "count 2").await;
    owner_stream.until_response(9).await;
    stranger
        .http
        .delete(&stranger.url)
        .bearer_auth(&stranger.token)
        .header("acp-connection-id", &stranger.connection)
        .send()
        .await
        .unwrap();
    assert_eq!(stream.try_next().await.map(|(_, message)| describe(&message)), None);
}

/// Others may know the ids of a session and of its question.
#[tokio::test]
async fn what_others_send_about_a_session_has_no_effect() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let owner = server.client(&server.token("owner", Role::User).await).await;
    let mut own = owner.stream(None, None).await;
    let (session, mut owner_stream) = owner.new_session(&mut own, place.path()).await;
    owner.prompt(2, &session, "ask").await;
    let question = owner_stream.next().await.1["id"].clone();
    let answer = |option: &str| {
        let outcome = json!({ "outcome": "selected", "optionId": option });
        json!({ "jsonrpc": "2.0", "id": question, "result": { "outcome": outcome } })
    };
    let notification =
        |method: &str, params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
    let mut table = String::new();
    for (name, role) in [("stranger", Role::User), ("observer", Role::Observer)] {
        let client = server.client(&server.token(name, role).await).await;
        let mut own = client.stream(None, None).await;
        client.send(answer("yes")).await;
        client.send(notification("session/cancel", json!({ "sessionId": session }))).await;
        client.send(notification("$/cancel_request", json!({ "requestId": 2 }))).await;
        let prompt = json!([{ "type": "text", "text": "count 1" }]);
        let requests = [
            ("session/delete", json!({ "sessionId": session })),
            ("session/prompt", json!({ "sessionId": session, "prompt": prompt })),
            ("session/fork", json!({ "sessionId": session, "cwd": place.path(), "mcpServers": [] })),
            ("session/close", json!({ "sessionId": session })),
        ];
        for (id, (method, params)) in (10..).zip(requests) {
            client.request(id, method, params).await;
            let answer = describe(&own.next().await.1);
            table.push_str(&format!("{name} {method}: {answer}\n"));
        }
    }
    expect![[r#"
        stranger session/delete: result {}
        stranger session/prompt: error there is no session S; `session/list` lists yours
        stranger session/fork: error there is no session S; `session/list` lists yours
        stranger session/close: error there is no session S; `session/list` lists yours
        observer session/delete: error an observer may not change anything
        observer session/prompt: error an observer may not change anything
        observer session/fork: error an observer may not change anything
        observer session/close: result {}
    "#]]
    .assert_eq(&table.replace(&session, "S"));
    owner.send(answer("no")).await;
    let shown = owner_stream.until_response(2).await;
    assert!(shown[0].ends_with(r#"{"outcome":"selected","optionId":"no"}"#), "{shown:?}");
    assert!(shown[1].ends_with(r#"result {"stopReason":"end_turn"}"#), "{shown:?}");
}

#[tokio::test]
async fn with_tls_cookies_are_secure_and_only_pages_with_tls_are_its_own() {
    let place = tempfile::tempdir().unwrap();
    let access = AccessOptions { is_loopback: true, is_secure: true, ..AccessOptions::default() };
    let server = Server::start_with(place.path(), HubOptions::default(), access).await;
    let token = server.token("me", Role::User).await;
    let http = http_client(reqwest::Client::builder());
    let host = server.url.strip_prefix("http://").unwrap();
    let mut statuses = Vec::new();
    for scheme in ["http", "https"] {
        let login = http.post(format!("{}/login", server.url)).header("origin", format!("{scheme}://{host}"));
        let response = login.body(json!({ "token": token }).to_string()).send().await.unwrap();
        let cookie = response.headers().get("set-cookie").map_or("", |cookie| cookie.to_str().unwrap());
        let attributes = cookie.split_once("; ").unwrap_or_default().1;
        let status = response.status().as_u16();
        statuses.push(format!("{scheme}: {status} {attributes}").trim_end().to_owned());
    }
    expect![[r#"
        http: 403
        https: 204 HttpOnly; SameSite=Strict; Path=/; Max-Age=604800; Secure"#]]
    .assert_eq(&statuses.join("\n"));
}

#[tokio::test]
async fn the_metrics_count_what_happened() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let client = server.client(&server.token("me", Role::User).await).await;
    let mut own = client.stream(None, None).await;
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    client.prompt(2, &session, "count 2").await;
    stream.until_response(2).await;
    client.prompt(3, &session, "ask").await;
    stream.next().await;
    let url = format!("{}/metrics", server.url);
    let response = client.http.get(url).bearer_auth(&client.token).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4");
    let text = response.text().await.unwrap();
    let values: String =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    expect![[r#"
        bowline_events_total 10
        bowline_requests_total 6
        bowline_refused_total 0
        bowline_prompts_total 2
        bowline_questions_total 1
        bowline_questions_expired_total 0
        bowline_agent_starts_total 1
        bowline_agent_exits_total 0
        bowline_connections 1
        bowline_sessions 1
        bowline_turns 1
        bowline_open_questions 1
        bowline_agents 1
        bowline_store_up 1
    "#]]
    .assert_eq(&values);
}

/// Exchanges a token for a ticket.
async fn ticket(server: &Server, http: &reqwest::Client, token: &str) -> String {
    let response = http.post(format!("{}/ticket", server.url)).bearer_auth(token).send().await.unwrap();
    response.text().await.unwrap()
}

#[tokio::test]
async fn a_ticket_is_exchanged_for_a_cookie_once() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let http = http_client(reqwest::Client::builder());
    let ticket = ticket(&server, &http, &token).await;
    let login = || http.post(format!("{}/login", server.url)).body(ticket.clone()).send();
    let response = login().await.unwrap();
    assert_eq!(response.status(), 204);
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    let (value, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "HttpOnly; SameSite=Strict; Path=/; Max-Age=604800");
    assert_eq!(login().await.unwrap().status(), 401, "a second exchange");
    let metrics =
        |cookie: String| http.get(format!("{}/metrics", server.url)).header("cookie", cookie).send();
    assert_eq!(metrics(format!("a=b; {value}")).await.unwrap().status(), 200);
    assert_eq!(metrics("bowline=x".to_owned()).await.unwrap().status(), 401);
}

#[tokio::test]
async fn what_came_from_a_token_ends_with_it() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let http = http_client(reqwest::Client::builder());
    let login = |ticket: String| http.post(format!("{}/login", server.url)).body(ticket).send();
    let cookie = login(ticket(&server, &http, &token).await).await.unwrap();
    let cookie = cookie.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let late_ticket = ticket(&server, &http, &token).await;
    let client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    let (_, mut stream) = client.new_session(&mut own, place.path()).await;
    let mut socket = Socket::connect(&server, &token).await;
    socket.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    socket.until_response(0).await;
    // Another token with the same name does not revive it.
    server.hub.store().remove_token("me").await.unwrap();
    server.token("me", Role::User).await;
    let metrics = http.get(format!("{}/metrics", server.url)).header("cookie", cookie).send().await.unwrap();
    assert_eq!(metrics.status(), 401);
    assert_eq!(login(late_ticket).await.unwrap().status(), 401);
    assert!(own.try_next().await.is_none() && stream.try_next().await.is_none());
    assert_eq!(socket.close_reason().await, "the connection ended");
}

#[tokio::test]
async fn browsers_are_told_which_origins_may_use_the_server() {
    let place = tempfile::tempdir().unwrap();
    let access = AccessOptions {
        origins: vec!["https://page.example".into()],
        is_loopback: true,
        ..AccessOptions::default()
    };
    let server = Server::start_with(place.path(), HubOptions::default(), access).await;
    let token = server.token("me", Role::User).await;
    let http = http_client(reqwest::Client::builder());
    let mut table = String::new();
    for origin in ["https://page.example", "https://evil.example"] {
        let preflight = http
            .request(reqwest::Method::OPTIONS, format!("{}/acp", server.url))
            .header("access-control-request-method", "POST");
        let post = http
            .post(format!("{}/acp", server.url))
            .bearer_auth(&token)
            .header("content-type", "application/json")
            .body(INITIALIZE);
        let refused = http.post(format!("{}/acp", server.url));
        for request in [preflight, post, refused] {
            let response = request.header("origin", origin).send().await.unwrap();
            table.push_str(&format!("{origin} {}\n", response.status().as_u16()));
            let mut headers: Vec<String> = response
                .headers()
                .iter()
                .filter(|(name, _)| name.as_str().starts_with("access-control") || *name == "vary")
                .map(|(name, value)| format!("  {name}: {}\n", value.to_str().unwrap()))
                .collect();
            headers.sort();
            table.push_str(&headers.concat());
        }
    }
    expect![[r#"
        https://page.example 204
          access-control-allow-credentials: true
          access-control-allow-headers: authorization, content-type, accept, acp-connection-id, acp-session-id, last-event-id
          access-control-allow-methods: GET, POST, DELETE
          access-control-allow-origin: https://page.example
          access-control-expose-headers: acp-connection-id
          access-control-max-age: 600
          vary: origin
        https://page.example 200
          access-control-allow-credentials: true
          access-control-allow-origin: https://page.example
          access-control-expose-headers: acp-connection-id
          vary: origin
        https://page.example 401
          access-control-allow-credentials: true
          access-control-allow-origin: https://page.example
          access-control-expose-headers: acp-connection-id
          vary: origin
        https://evil.example 403
        https://evil.example 403
        https://evil.example 403
    "#]].assert_eq(&table);
}

/// Logs in with a token, and returns the cookie, with the name it has at any port.
async fn log_in(server: &Server, token: &str) -> String {
    let http = http_client(reqwest::Client::builder());
    let body = json!({ "token": token }).to_string();
    let response = http.post(format!("{}/login", server.url)).body(body).send().await.unwrap();
    assert_eq!(response.status(), 204);
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    cookie.split_once('=').unwrap().1.split_once(';').unwrap().0.to_owned()
}

#[tokio::test]
async fn a_cookie_survives_a_restart_but_not_its_token() {
    let place = tempfile::tempdir().unwrap();
    let access = || AccessOptions {
        is_loopback: true,
        cookie_key: Some(CookieKey::load(place.path()).unwrap()),
        ..AccessOptions::default()
    };
    let server = Server::start_with(place.path(), HubOptions::default(), access()).await;
    let token = server.token("me", Role::User).await;
    let cookie = log_in(&server, &token).await;
    server.crash().await;
    let status = async |server: &Server| {
        let port = server.url.rsplit_once(':').unwrap().1;
        let http = http_client(reqwest::Client::builder());
        let request = http.get(format!("{}/metrics", server.url));
        request.header("cookie", format!("bowline-{port}={cookie}")).send().await.unwrap().status()
    };
    let server = Server::start_with(place.path(), HubOptions::default(), access()).await;
    assert_eq!(status(&server).await, 200);
    server.crash().await;
    let server = Server::start_with(place.path(), HubOptions::default(), access()).await;
    server.hub.store().remove_token("me").await.unwrap();
    assert_eq!(status(&server).await, 401);
}

#[tokio::test]
async fn a_wrong_token_gets_no_cookie() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let http = http_client(reqwest::Client::builder());
    for body in [r#"{"token":"bow_00_00"}"#, r#"{"ticket":"00"}"#, "{}", "not JSON"] {
        let response = http.post(format!("{}/login", server.url)).body(body).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.headers().get("set-cookie")), (401, None), "{body}");
    }
}
