//! Tests of the older HTTP transport with server-sent events.

use std::sync::Mutex;

use bowline_mcp::client::ServerState;
use expect_test::expect;
use serde_json::Value;
use test_support::wait::wait_until_async;
use tokio::sync::mpsc;

use super::scripted_server::{
    HttpTestRequest, ScriptedReply, ScriptedServer, answer_correctly, call_echo, client_options, connect,
    describe_call, describe_server_and_call,
};

/// Serves the older protocol. `endpoint` is the address it names for messages; with `cut`, `tools/call` ends the
/// stream.
async fn start_server(endpoint: &'static str, cut: bool) -> ScriptedServer {
    let stream = Mutex::new(None::<mpsc::Sender<String>>);
    ScriptedServer::new(move |request: &HttpTestRequest| {
        if request.verb == "GET" {
            let (sender, chunks) = mpsc::channel(16);
            sender.try_send(format!(": welcome\n\nevent: endpoint\ndata: {endpoint}\n\n")).unwrap();
            *stream.lock().unwrap() = Some(sender);
            return ScriptedReply::Stream(chunks);
        }
        if cut && request.method() == "tools/call" {
            *stream.lock().unwrap() = None;
            return ScriptedReply::text(202, "text/plain", "Accepted");
        }
        let ScriptedReply::Whole { body, .. } = answer_correctly(request) else {
            return ScriptedReply::Close;
        };
        if let (Ok(Value::Object(_)), Some(stream)) = (serde_json::from_str(&body), &*stream.lock().unwrap())
        {
            stream.try_send(format!("event: message\ndata: {body}\n\n")).unwrap();
        }
        ScriptedReply::text(202, "text/plain", "Accepted")
    })
    .await
}

#[tokio::test]
async fn messages_go_to_the_address_that_the_server_names() {
    let server = start_server("/messages?session=1", false).await;
    let servers = connect(server.sse_transport(), client_options()).await;
    let mut output = describe_server_and_call(&servers).await;
    for request in server.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer abc"));
        output.push_str(&format!("\n{} {}", request.path, request.describe()));
    }
    expect![[r#"
        Ready
        {"a":1}
        /sse GET
        /messages?session=1 POST initialize
        /messages?session=1 POST notifications/initialized
        /messages?session=1 POST tools/list
        /messages?session=1 POST tools/call"#]]
    .assert_eq(&output);
    servers.shutdown().await;
}

#[tokio::test]
async fn messages_never_go_to_another_host() {
    let server = start_server("http://127.0.0.2:1/messages", false).await;
    let servers = connect(server.sse_transport(), client_options()).await;
    expect![[r#"
        Failed("the server wants messages sent to \"http://127.0.0.2:1/messages\", which is another host: nothing is sent there")
        ! there is no MCP tool "mcp__web__echo": it may have gone with its server"#]].assert_eq(&describe_server_and_call(&servers).await);
    servers.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_ends_fails_the_call_and_is_opened_anew() {
    let server = start_server("messages", true).await;
    let servers = connect(server.sse_transport(), client_options()).await;
    let outcome = describe_call(call_echo(&servers).await);
    wait_until_async("a new stream", || servers.statuses()[0].state == ServerState::Ready).await;
    let opened = server.requests().iter().filter(|request| request.verb == "GET").count();
    expect![[r#"
        ! the MCP server "web" ended during the call, what it did is not known: it closed the connection; it is being started anew
        opened 2 times"#]].assert_eq(&format!("{outcome}\nopened {opened} times"));
    servers.shutdown().await;
}

#[tokio::test]
async fn what_is_no_stream_is_no_server() {
    let server = ScriptedServer::new(|_| ScriptedReply::text(200, "text/html", "<html>hello")).await;
    let servers = connect(server.sse_transport(), client_options()).await;
    expect![[r#"Failed("what answers is no MCP server: it sends \"text/html\", which begins with \"<html>hello\"")"#]].assert_eq(&format!("{:?}", servers.statuses()[0].state));
    servers.shutdown().await;
}
