//! Tests of a proxy between two in-memory ends: what passes, what is added, and what happens when a side dies, floods
//! or stalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::ready;

use bowline_protocol::relay::RelayEvent;
use bowline_wire::CallError;
use bowline_wire::message::body::JsonBody;
use bowline_wire::service::{IncomingRequest, RawParams, ServiceResponse, UncheckedParamsError};
use expect_test::expect;
use serde_json::value::RawValue;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadBuf,
};
use tokio::task::JoinHandle;

use super::*;
use crate::inject::ServerInjector;

mod cancel;
mod flood;
mod held_messages;

/// The test's side of one end.
pub(crate) struct TestPeer {
    pub(crate) reader: BufReader<DuplexStream>,
    pub(crate) writer: DuplexStream,
}

impl TestPeer {
    pub(crate) async fn send(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> String {
        let mut line = String::new();
        let reading = self.reader.read_line(&mut line);
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("a line").unwrap();
        line.trim_end().to_owned()
    }

    async fn receive_all(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).await.unwrap();
        bytes
    }
}

struct ProxyHarness {
    editor: TestPeer,
    agent: TestPeer,
    caller: Caller,
    running: JoinHandle<ProxyEndReason>,
}

pub(crate) fn peer_pair(buffer_size: usize) -> (TestPeer, PeerStreams) {
    let (to_peer, from_peer) = (tokio::io::duplex(buffer_size), tokio::io::duplex(buffer_size));
    let peer = TestPeer { reader: BufReader::new(to_peer.0), writer: from_peer.0 };
    (peer, PeerStreams { reader: Box::new(from_peer.1), writer: Box::new(to_peer.1) })
}

/// Answers every locally handled request with its method.
pub(crate) struct EchoService;

impl Service for EchoService {
    fn handle_request(
        &mut self,
        request: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError> {
        request.params.require_checked()?;
        Ok(ServiceResponse::Ready(Ok(JsonBody::from_value(&json!({ "served": request.method })).unwrap())))
    }

    fn handle_notification(
        &mut self,
        _: &str,
        _: RawParams<'_>,
    ) -> Result<Option<bowline_wire::service::BoxFuture<'static, ()>>, UncheckedParamsError> {
        Ok(None)
    }
}

fn start_proxy_with(
    interceptor: impl Interceptor + 'static,
    settings: ProxyOptions,
    buffer_size: usize,
) -> ProxyHarness {
    let ((editor, editor_streams), (agent, agent_streams)) = (peer_pair(buffer_size), peer_pair(buffer_size));
    let (caller, proxy) = Proxy::new(interceptor, EchoService, settings);
    let agent_exit = async { "the agent has ended with exit code 7".to_owned() };
    let running = tokio::spawn(proxy.run(editor_streams, agent_streams, agent_exit, std::future::pending()));
    ProxyHarness { editor, agent, caller, running }
}

fn start_proxy() -> ProxyHarness {
    start_proxy_with(None::<ServerInjector>, ProxyOptions::default(), 64 << 10)
}

const SESSION_LINES: &[(&str, &str)] = &[
    ("E", r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"_meta":{"x":1}}}"#),
    ("A", r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"_later":true}}}"#),
    ("E", r#"{ "id" : "n", "method":"session/new","params":{"cwd":"/w","mcpServers":[]},"jsonrpc":"2.0" }"#),
    ("A", r#"{"jsonrpc":"2.0","id":"n","result":{"sessionId":"s","_x":null}}"#),
    ("E", r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#),
    (
        "A",
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"é\u00e9","_new":[1.50]}}}"#,
    ),
    (
        "A",
        r#"{"jsonrpc":"2.0","id":2,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}"#,
    ),
    ("E", r#"{"jsonrpc":"2.0","id":2,"result":{"content":"x"}}"#),
    ("A", r#"{"jsonrpc":"2.0","id":2.5,"method":"_ext/thing"}"#),
    ("E", r#"[{"jsonrpc":"2.0","id":5,"method":"a"},{"jsonrpc":"2.0","method":"b"}]"#),
    ("E", "this is no message"),
    ("A", ""),
    ("A", r#"{"jsonrpc":"2.0","id":"bowline","method":"_ext"}"#),
    ("E", r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#),
    ("A", r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#),
];

#[tokio::test]
async fn a_session_passes_byte_for_byte() {
    let mut harness = start_proxy();
    for (side, line) in SESSION_LINES {
        let (from, to) = match *side {
            "E" => (&mut harness.editor, &mut harness.agent),
            _ => (&mut harness.agent, &mut harness.editor),
        };
        from.send(line).await;
        assert_eq!(to.receive().await, *line);
    }
    // Invalid UTF-8 passes as well, and so does an incomplete last line.
    harness.agent.writer.write_all(b"\xff\xfe{\r\n{\"cut").await.unwrap();
    harness.agent.writer.shutdown().await.unwrap();
    drop(harness.agent);
    let last = harness.editor.receive_all().await;
    expect![[r#"
        "\xff\xfe{\r\n{\"cut"
    "#]]
    .assert_eq(&format!("\"{}\"\n", last.escape_ascii()));
    assert_eq!(
        harness.running.await.unwrap(),
        ProxyEndReason::AgentExited("the agent has ended with exit code 7".to_owned())
    );
}

#[tokio::test]
async fn all_at_once_comes_out_as_it_went_in() {
    let harness = start_proxy_with(None::<ServerInjector>, ProxyOptions::default(), 1 << 10);
    let text = |side: &str| -> String {
        let lines =
            SESSION_LINES.iter().filter(|(from, _)| *from == side).map(|(_, line)| format!("{line}\n"));
        lines.collect::<String>().repeat(300)
    };
    let ProxyHarness { editor: TestPeer { reader: mut to_editor, writer: mut editor }, .. } = harness;
    let TestPeer { reader: mut to_agent, writer: mut agent } = harness.agent;
    let (from_editor, from_agent) = (text("E"), text("A"));
    let (mut received_by_agent, mut received_by_editor) =
        (vec![0; from_editor.len()], vec![0; from_agent.len()]);
    let (editor_write, agent_write, agent_read, editor_read) = tokio::join!(
        editor.write_all(from_editor.as_bytes()),
        agent.write_all(from_agent.as_bytes()),
        to_agent.read_exact(&mut received_by_agent),
        to_editor.read_exact(&mut received_by_editor),
    );
    assert!(editor_write.is_ok() && agent_write.is_ok() && agent_read.is_ok() && editor_read.is_ok());
    assert!(received_by_agent == from_editor.as_bytes() && received_by_editor == from_agent.as_bytes());
}

#[tokio::test]
async fn an_agent_that_dies_at_any_message_leaves_no_request_without_an_answer() {
    for at in 0..=SESSION_LINES.len() {
        let mut harness = start_proxy();
        let mut open = std::collections::BTreeSet::new();
        for (side, line) in &SESSION_LINES[..at] {
            let message = serde_json::from_str::<serde_json::Value>(line).unwrap_or_default();
            let (id, is_request) = (message["id"].to_string(), message["method"].is_string());
            let (from, to) = match *side {
                "E" => (&mut harness.editor, &mut harness.agent),
                _ => (&mut harness.agent, &mut harness.editor),
            };
            from.send(line).await;
            assert_eq!(to.receive().await, *line);
            match *side {
                "E" if is_request && id != "null" => drop(open.insert(id)),
                "A" if !is_request => drop(open.remove(&id)),
                _ => {}
            }
        }
        drop(harness.agent);
        let last = String::from_utf8(harness.editor.receive_all().await).unwrap();
        let answered = last.lines().map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(message["error"]["code"], -32603);
            assert!(line.contains("the agent has ended with exit code 7"), "{line}");
            message["id"].to_string()
        });
        assert_eq!(answered.collect::<std::collections::BTreeSet<_>>(), open, "after {at} messages");
        harness.running.await.unwrap();
    }
}

#[tokio::test]
async fn an_editor_that_leaves_closes_the_agents_input_and_hears_the_rest() {
    let mut harness = start_proxy();
    harness.editor.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
    harness.editor.writer.write_all(b"{\"no\":\"end\"").await.unwrap();
    harness.editor.writer.shutdown().await.unwrap();
    assert_eq!(
        harness.agent.receive_all().await,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}\n{\"no\":\"end\""
    );
    let result =
        harness.caller.call_raw("fs/read_text_file", JsonBody::from_value(&json!({})).unwrap()).await;
    assert!(matches!(result, Err(CallError::Closed)), "{result:?}");
    harness.agent.send(r#"{"jsonrpc":"2.0","id":1,"result":"late"}"#).await;
    assert_eq!(harness.editor.receive().await, r#"{"jsonrpc":"2.0","id":1,"result":"late"}"#);
    drop(harness.agent);
    assert_eq!(harness.running.await.unwrap(), ProxyEndReason::EditorGone);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_end_is_not_waited_for_for_ever() {
    let mut harness = start_proxy();
    drop(harness.editor);
    assert_eq!(harness.agent.receive_all().await, b"");
    assert_eq!(harness.running.await.unwrap(), ProxyEndReason::EditorGone);
}

/// A side that sends endlessly, and counts the bytes that were read.
struct EndlessReader(Arc<AtomicUsize>, &'static [u8]);

impl AsyncRead for EndlessReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // Yields to other tasks, as a pipe would.
        ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
        while buffer.remaining() >= self.1.len() {
            buffer.put_slice(self.1);
            self.0.fetch_add(self.1.len(), Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_flood_to_a_side_that_stalls_is_not_read_and_the_other_way_stays_open() {
    for line in [&b"{\"jsonrpc\":\"2.0\",\"method\":\"_flood\"}\n"[..], b"a line without an end "] {
        let bytes_read = Arc::new(AtomicUsize::new(0));
        let ((mut editor, editor_streams), (mut agent, agent_streams)) =
            (peer_pair(1 << 10), peer_pair(1 << 10));
        let agent_streams =
            PeerStreams { reader: Box::new(EndlessReader(bytes_read.clone(), line)), ..agent_streams };
        let settings = ProxyOptions { max_line: 128 << 10, ..ProxyOptions::default() };
        let (_caller, proxy) = Proxy::new(None::<ServerInjector>, EchoService, settings);
        let agent_exit = async { String::new() };
        let running =
            tokio::spawn(proxy.run(editor_streams, agent_streams, agent_exit, std::future::pending()));
        // The editor reads nothing, yet its own messages arrive.
        for number in 0..100 {
            let message = format!(r#"{{"jsonrpc":"2.0","method":"n{number}"}}"#);
            editor.send(&message).await;
            assert_eq!(agent.receive().await, message);
        }
        let limit = settings.high_water + settings.max_line + (4 << 20);
        assert!(bytes_read.load(Ordering::Relaxed) < limit, "{} bytes", bytes_read.load(Ordering::Relaxed));
        running.abort();
    }
}

#[tokio::test]
async fn a_line_of_any_length_passes() {
    let settings = ProxyOptions { max_line: 100 << 10, ..ProxyOptions::default() };
    let mut harness = start_proxy_with(None::<ServerInjector>, settings, 8 << 10);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"s","x":"{}"}}}}"#,
        "é".repeat(1 << 20)
    );
    let (sent, caller) = (line.clone(), harness.caller.clone());
    let mut writer = harness.editor.writer;
    let writer_task = tokio::spawn(async move {
        writer.write_all(format!("{sent}\n").as_bytes()).await.unwrap();
        writer
    });
    assert!(harness.agent.receive().await == line);
    // A long request is answered like any other if the agent dies.
    let _editor = writer_task.await.unwrap();
    let call = tokio::spawn(async move {
        caller.call_raw("fs/read_text_file", JsonBody::from_value(&json!({})).unwrap()).await
    });
    assert_eq!(harness.editor.reader.buffer(), b"");
    let mut request = String::new();
    harness.editor.reader.read_line(&mut request).await.unwrap();
    expect![[r#"
        {"jsonrpc":"2.0","id":"bowline-proxy-2","method":"fs/read_text_file","params":{}}
    "#]]
    .assert_eq(&request);
    drop(harness.agent);
    let mut last = String::new();
    harness.editor.reader.read_to_string(&mut last).await.unwrap();
    expect![[r#"
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-2"}}
        {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the agent has ended with exit code 7"}}
    "#]]
    .assert_eq(&last);
    harness.running.await.unwrap();
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn calls_of_our_own_are_answered_to_us_and_cancelled_when_dropped() {
    let mut harness = start_proxy();
    let caller = harness.caller.clone();
    let call = tokio::spawn(async move {
        let answer = caller
            .call_raw("fs/read_text_file", JsonBody::from_value(&json!({ "path": "/a" })).unwrap())
            .await;
        answer.map(|answer| answer.get().to_owned())
    });
    let mut transcript = vec![harness.editor.receive().await];
    // The agent uses the same id, cancels, and gets its own answer.
    harness.agent.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-1","method":"_x"}"#).await;
    transcript.push(harness.editor.receive().await);
    harness
        .agent
        .send(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-1"}}"#)
        .await;
    transcript.push(harness.editor.receive().await);
    harness.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-3","result":"agent's"}"#).await;
    transcript.push(harness.agent.receive().await);
    harness.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-1","result":"ours"}"#).await;
    transcript.push(call.await.unwrap().unwrap());
    let caller = harness.caller.clone();
    let dropped = tokio::spawn(async move {
        caller.call_raw("x", JsonBody::from_value(&json!({})).unwrap()).await.map(drop)
    });
    transcript.push(harness.editor.receive().await);
    dropped.abort();
    transcript.push(harness.editor.receive().await);
    // The late answer to it is discarded.
    harness.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-4","result":1}"#).await;
    harness.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-99","result":1}"#).await;
    harness.editor.send(r#"{"jsonrpc":"2.0","method":"after"}"#).await;
    transcript.push(harness.agent.receive().await);
    expect![[r#"
        {"jsonrpc":"2.0","id":"bowline-proxy-1","method":"fs/read_text_file","params":{"path":"/a"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-3","method":"_x"}
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-3"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-1","result":"agent's"}
        "ours"
        {"jsonrpc":"2.0","id":"bowline-proxy-4","method":"x","params":{}}
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-4"}}
        {"jsonrpc":"2.0","method":"after"}"#]]
    .assert_eq(&transcript.join("\n"));
}

/// Disposes of messages as a script dictates, by the session that they name.
struct ScriptedInterceptor(tokio::sync::mpsc::UnboundedReceiver<Disposition>);

impl Interceptor for ScriptedInterceptor {
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision {
        let RelayEvent::TurnStarted(session) = message.fact else {
            return if matches!(message.fact, RelayEvent::AgentRequest(..)) {
                InterceptDecision::Now(Disposition::HandleLocally)
            } else {
                InterceptDecision::PASS
            };
        };
        let order = match &*session.0 {
            "keep" => MessageOrder::Keep,
            "overtake" => MessageOrder::Overtake,
            _ => return InterceptDecision::PASS,
        };
        let (line, mut dispositions) =
            (message.line.to_vec(), std::mem::replace(&mut self.0, tokio::sync::mpsc::unbounded_channel().1));
        InterceptDecision::Later(
            order,
            Box::pin(async move {
                match dispositions.recv().await {
                    // Adds the message itself to the replacement.
                    Some(Disposition::Replace(mut lines)) => {
                        lines.push(line);
                        Disposition::Replace(lines)
                    }
                    disposition => disposition.unwrap_or(Disposition::Pass),
                }
            }),
        )
    }
}

#[tokio::test]
async fn who_stands_between_holds_changes_answers_and_takes() {
    let prompt = |session: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"{session}"}}}}"#
        )
    };
    let next = r#"{"jsonrpc":"2.0","method":"next"}"#;
    for (session, disposition) in [
        ("keep", Disposition::Replace(vec![b"{\"added\":1}".to_vec()])),
        ("keep", Disposition::Answer(Ok(RawValue::from_string("\"no\"".to_owned()).unwrap()))),
        ("overtake", Disposition::Pass),
    ] {
        let (dispositions, script) = tokio::sync::mpsc::unbounded_channel();
        let mut harness = start_proxy_with(ScriptedInterceptor(script), ProxyOptions::default(), 64 << 10);
        let is_answer = matches!(disposition, Disposition::Answer(_));
        harness.editor.send(&prompt(session)).await;
        harness.editor.send(next).await;
        if session == "overtake" {
            assert_eq!(harness.agent.receive().await, next);
        } else {
            // Messages in the other direction do not wait.
            harness.agent.send(r#"{"jsonrpc":"2.0","id":1,"method":"mcp/message","params":{}}"#).await;
            let served = r#"{"jsonrpc":"2.0","id":1,"result":{"served":"mcp/message"}}"#;
            assert_eq!(harness.agent.receive().await, served);
        }
        dispositions.send(disposition).unwrap();
        if is_answer {
            assert_eq!(harness.editor.receive().await, r#"{"jsonrpc":"2.0","id":1,"result":"no"}"#);
            assert_eq!(harness.agent.receive().await, next);
        } else if session == "keep" {
            assert_eq!(harness.agent.receive().await, "{\"added\":1}");
            assert_eq!(harness.agent.receive().await, prompt(session));
            assert_eq!(harness.agent.receive().await, next);
        } else {
            assert_eq!(harness.agent.receive().await, prompt(session));
        }
    }
}
