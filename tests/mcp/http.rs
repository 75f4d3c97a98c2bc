//! Tests of streamable HTTP: which clients are served, and which are not.

use std::os::unix::fs::PermissionsExt as _;

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{HttpProgram, LivenessPipe, McpTestProject, TEST_TIMEOUT};

/// Sends bytes to a server, and returns its response up to the end of its head, or its first event.
async fn send_raw(server: &HttpProgram, request: &str) -> (TcpStream, String) {
    send_until(server, request, "\r\n\r\n").await
}

/// Sends bytes to a server, and returns its response up to a given text.
async fn send_until(server: &HttpProgram, request: &str, end: &str) -> (TcpStream, String) {
    let address = server.url.trim_start_matches("http://").split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, end).await;
    (stream, answer)
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        let mut some = [0; 4096];
        while !String::from_utf8_lossy(&bytes).contains(end) {
            match stream.read(&mut some).await.unwrap() {
                0 => break,
                count => bytes.extend_from_slice(&some[..count]),
            }
        }
    };
    timeout(TEST_TIMEOUT, reading).await.expect("the server hangs");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a request with a body, as a client sends it.
fn post_request(server: &HttpProgram, more: &str, body: &str) -> String {
    let address = server.url.trim_start_matches("http://").split('/').next().unwrap();
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{more}\r\n{body}",
        server.token
    )
}

fn initialize_body() -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    } })
    .to_string()
}

/// Opens a session, and returns the header that names it.
async fn open_session(server: &HttpProgram) -> String {
    let (_stream, answer) = send_raw(server, &post_request(server, "", &initialize_body())).await;
    let line =
        answer.lines().find(|line| line.to_lowercase().starts_with("mcp-session-id:")).unwrap_or_default();
    let header = format!("{line}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    assert!(send_raw(server, &post_request(server, &header, &ready)).await.1.starts_with("HTTP/1.1 202"));
    header
}

#[tokio::test]
async fn requests_without_the_token_or_from_web_pages_are_refused() {
    let scene = McpTestProject::new();
    let server = scene.start_http(&[]).await;
    let good = post_request(&server, "", &initialize_body());
    let port = server.url.trim_start_matches("http://127.0.0.1:").trim_end_matches("/mcp").to_owned();
    let mut text = String::new();
    for (what, request) in [
        ("as it should be", good.clone()),
        ("wrong token", good.replace(&server.token, "wrong")),
        ("no token", good.replace("Authorization", "X-Other")),
        ("a page", good.replace("Content-Type", "Origin: https://evil.example\r\nContent-Type")),
        ("another name", good.replace("Host: 127.0.0.1", "Host: evil.example")),
        ("another place", good.replace("POST /mcp", "POST /other")),
        ("no JSON", post_request(&server, "", "no JSON")),
        (
            "a page of ours",
            good.replace("Content-Type", &format!("Origin: http://localhost:{port}\r\nContent-Type")),
        ),
        ("a session that is none", post_request(&server, "Mcp-Session-Id: none\r\n", &initialize_body())),
        ("its end", post_request(&server, "Mcp-Session-Id: none\r\n", "").replace("POST", "DELETE")),
        ("its events", post_request(&server, "Mcp-Session-Id: none\r\n", "").replace("POST", "GET")),
        (
            "too long",
            post_request(&server, "", "").replace("Content-Length: 0", "Content-Length: 99999999999"),
        ),
        ("no HTTP", "hello\r\n\r\n".to_owned()),
    ] {
        let (_, answer) = send_raw(&server, &request).await;
        text.push_str(&format!("{what}: {}\n", answer.lines().next().unwrap_or_default()));
    }
    expect![[r#"
        as it should be: HTTP/1.1 200 OK
        wrong token: HTTP/1.1 401 Unauthorized
        no token: HTTP/1.1 401 Unauthorized
        a page: HTTP/1.1 403 Forbidden
        another name: HTTP/1.1 403 Forbidden
        another place: HTTP/1.1 404 Not Found
        no JSON: HTTP/1.1 400 Bad Request
        a page of ours: HTTP/1.1 200 OK
        a session that is none: HTTP/1.1 404 Not Found
        its end: HTTP/1.1 404 Not Found
        its events: HTTP/1.1 404 Not Found
        too long: HTTP/1.1 413 Payload Too Large
        no HTTP: HTTP/1.1 400 Bad Request
    "#]]
    .assert_eq(&text.replace(&port, "PORT"));
}

#[tokio::test]
async fn a_session_that_is_ended_is_gone() {
    let scene = McpTestProject::new();
    let server = scene.start_http(&[]).await;
    let end = post_request(&server, &open_session(&server).await, "").replace("POST", "DELETE");
    assert!(send_raw(&server, &end).await.1.starts_with("HTTP/1.1 204"));
    assert!(send_raw(&server, &end).await.1.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn invalid_messages_get_protocol_errors() {
    let scene = McpTestProject::new();
    let server = scene.start_http(&[]).await;
    let header = open_session(&server).await;
    let call =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{params}}}"#);
    let mut text = String::new();
    for (header, body) in [
        ("", call("{}")),
        ("", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#.to_owned()),
        (header.as_str(), "no JSON".to_owned()),
        (&header, call(r#"{"name":"\ud83d"}"#)),
        (&header, format!("[{}]", call("{}"))),
        (&header, call(r#"{"name":5}"#)),
    ] {
        let (mut stream, head) = send_raw(&server, &post_request(&server, header, &body)).await;
        let (head, rest) = head.split_once("\r\n\r\n").unwrap();
        let rest = if rest.contains("\"message\"") {
            rest.to_owned()
        } else {
            read_until(&mut stream, "\"message\"").await
        };
        let answer = rest.lines().find(|line| line.contains("\"message\"")).unwrap_or_default();
        text += &format!("{}: {answer}\n", head.lines().next().unwrap());
    }
    expect![[r#"
        HTTP/1.1 400 Bad Request: {"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"send initialize first"}}
        HTTP/1.1 400 Bad Request: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the parameters of initialize cannot be used: it needs protocolVersion, capabilities, and clientInfo with name and version"}}
        HTTP/1.1 400 Bad Request: {"jsonrpc":"2.0","error":{"code":-32700,"message":"the message is no JSON that can be used"}}
        HTTP/1.1 400 Bad Request: {"jsonrpc":"2.0","id":5,"error":{"code":-32700,"message":"the message holds text that is no Unicode (half a surrogate pair, or bytes that are no UTF-8): leave it out"}}
        HTTP/1.1 400 Bad Request: [{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}]
        HTTP/1.1 200 OK: data: {"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"the parameters of tools/call cannot be used: it needs name, and arguments as an object"}}
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn address_and_token_forms_are_accepted_or_explained() {
    let scene = McpTestProject::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let fifo = scene.base().join("fifo").display().to_string();
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (directory, missing) =
        (scene.base().display().to_string(), scene.base().join("no/token").display().to_string());
    let broken = scene.base().join("broken");
    std::fs::write(&broken, b"\xff\xfe and more than sixteen").unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o600)).unwrap();
    let broken = broken.display().to_string();
    let mut text = String::new();
    for options in [
        &["--listen", "127.0.0.1"][..],
        &["--listen", ":x"],
        &["--listen", "[::]:0"],
        &["--listen", &taken],
        &["--listen", ":0", "--token-file", &fifo],
        &["--listen", ":0", "--token-file", &directory],
        &["--listen", ":0", "--token-file", &missing],
        &["--listen", ":0", "--token-file", &broken],
    ] {
        let output = timeout(TEST_TIMEOUT, scene.command(&scene.command_words(options)).output())
            .await
            .unwrap()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).replace(&taken, "TAKEN");
        text += &format!("{} {}", output.status.code().unwrap(), scene.normalize(&said));
    }
    expect![[r#"
        2 bowline: --listen 127.0.0.1 is no address with a port (invalid socket address): give one like 127.0.0.1:0
        2 bowline: --listen :x is no address with a port (invalid port value): give one like 127.0.0.1:0
        2 bowline: --listen [::]:0 can be reached from other machines, and nothing is encrypted: use 127.0.0.1, or add --allow-remote if that is meant
        1 bowline: cannot listen at TAKEN: Address already in use (os error 98)
        2 bowline: --token-file $BASE/fifo: it is no regular file: name one, or one that is not there yet
        2 bowline: --token-file $BASE: it is no regular file: name one, or one that is not there yet
        2 bowline: --token-file $BASE/no/token: a new token cannot be written: entity not found
        2 bowline: --token-file $BASE/broken: a token has 16 to 1024 letters and digits: empty the file for a new one
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn a_session_ends_with_the_server_and_nothing_is_left() {
    let scene = McpTestProject::new();
    let mut life = LivenessPipe::new(&scene);
    let mut server = scene.start_http(&["--approve", "all"]).await;
    let header = open_session(&server).await;
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "execute", "arguments": { "command": life.shell_line() },
    } });
    let (_stream, answer) = send_raw(&server, &post_request(&server, &header, &call.to_string())).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    life.wait_until_started().await;
    let id = i32::try_from(server.child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    assert_eq!(timeout(TEST_TIMEOUT, server.child.wait()).await.unwrap().unwrap().code(), Some(143));
    life.wait_until_ended().await;
}

#[tokio::test]
async fn a_client_that_dies_in_a_call_takes_its_command_with_it() {
    let scene = McpTestProject::new();
    let mut life = LivenessPipe::new(&scene);
    let server = scene.start_http(&["--approve", "all"]).await;
    let header = open_session(&server).await;
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "execute", "arguments": { "command": life.shell_line() },
    } });
    let (stream, _) = send_raw(&server, &post_request(&server, &header, &call.to_string())).await;
    life.wait_until_started().await;
    drop(stream);
    life.wait_until_ended().await;
}

#[tokio::test]
async fn idle_sessions_end_with_what_they_run() {
    let scene = McpTestProject::new();
    let mut life = LivenessPipe::new(&scene);
    let server = scene.start_http(&["--approve", "all", "--idle-timeout", "2"]).await;
    let header = open_session(&server).await;
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "execute", "arguments": { "command": life.shell_line(), "background": true },
    } });
    let (_stream, _) = send_raw(&server, &post_request(&server, &header, &call.to_string())).await;
    life.wait_until_started().await;
    life.wait_until_ended().await;
    let (_, answer) = send_raw(&server, &post_request(&server, &header, &call.to_string())).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test]
async fn an_idle_session_makes_room_for_another() {
    let scene = McpTestProject::new();
    let server = scene.start_http(&[]).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" }).to_string();
    let events = |header: &str| post_request(&server, header, "").replace("POST", "GET");
    let first = open_session(&server).await;
    let mut listening = Vec::new();
    for _ in 1..32 {
        let header = open_session(&server).await;
        listening.push(send_raw(&server, &events(&header)).await);
    }
    let last = open_session(&server).await;
    let (_, answer) = send_raw(&server, &post_request(&server, &first, &ping)).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    listening.push(send_raw(&server, &events(&last)).await);
    assert!(listening.iter().all(|(_, answer)| answer.starts_with("HTTP/1.1 200")), "{listening:?}");
    let (_, answer) = send_raw(&server, &post_request(&server, "", &initialize_body())).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    // A request that opens no session evicts none.
    let (_, answer) = send_raw(&server, &post_request(&server, "", &ping)).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn half_open_connections_do_not_keep_clients_out() {
    let scene = McpTestProject::new();
    let server = scene.start_http(&[]).await;
    let header = open_session(&server).await;
    // A listening client keeps its connection.
    let listens = post_request(&server, &header, "").replace("POST", "GET");
    let (listening, answer) = send_raw(&server, &listens).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let address = server.url.trim_start_matches("http://").split('/').next().unwrap();
    let mut half_open = Vec::new();
    // More than would time out soon enough by themselves.
    for number in 0..900 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Some send nothing, others never finish their request.
        let begun: &[u8] = if number % 2 == 0 { b"" } else { b"POST /mcp HTTP/1.1\r\nX-Slow: " };
        stream.write_all(begun).await.unwrap();
        half_open.push(stream);
    }
    for _ in 0..3 {
        let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
        let (_, answer) = send_raw(&server, &post_request(&server, &header, &ping)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(!matches!(listening.try_read(&mut [0; 64]), Ok(0)), "the client that listens was cut off");
}

#[tokio::test]
async fn an_event_has_data_for_clients_that_take_all_data_for_messages() {
    let scene = McpTestProject::new();
    let server = scene.start_http(&[]).await;
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    let mut counted = String::new();
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let hello = initialize_body().replace("2025-11-25", revision);
        let (_stream, mut text) = send_until(&server, &post_request(&server, "", &hello), "serverInfo").await;
        let line = text.lines().find(|line| line.to_lowercase().starts_with("mcp-session-id:")).unwrap();
        let header = format!("{line}\r\nMCP-Protocol-Version: {revision}\r\n");
        text += &send_until(&server, &post_request(&server, &header, &list), "read_text_file").await.1;
        let empty = text.lines().filter(|line| line.starts_with("data:") && line.len() < 7).count();
        counted += &format!("{revision}: {empty} without data\n");
    }
    expect![[r#"
        2025-03-26: 0 without data
        2025-06-18: 0 without data
        2025-11-25: 2 without data
    "#]]
    .assert_eq(&counted);
}

#[tokio::test]
async fn a_token_file_is_for_its_owner_alone() {
    let scene = McpTestProject::new();
    let file = scene.base().join("token");
    let name = file.display().to_string();
    let first = scene.start_http(&["--token-file", &name]).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), first.token);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let second = scene.start_http(&["--token-file", &name]).await;
    assert_eq!(second.token, first.token);
}

#[tokio::test]
async fn listening_beyond_loopback_needs_an_option() {
    let scene = McpTestProject::new();
    let words = scene.command_words(&["--listen", "0.0.0.0:0"]);
    let output = scene.command(&words).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    expect![[r#"
        bowline: --listen 0.0.0.0:0 can be reached from other machines, and nothing is encrypted: use 127.0.0.1, or add --allow-remote if that is meant
    "#]].assert_eq(&String::from_utf8_lossy(&output.stderr));
}
