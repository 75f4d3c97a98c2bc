//! Tests of a proxy between two in-memory ends: what passes, what is added, and what happens when a side dies, floods
//! or stalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::ready;

use bowline_protocol::relay::RelayEvent;
use bowline_wire::CallError;
use bowline_wire::body::JsonBody;
use bowline_wire::service::{IncomingRequest, RawParams, ServiceResponse, UncheckedParamsError};
use expect_test::expect;
use serde_json::value::RawValue;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadBuf,
};
use tokio::task::JoinHandle;

use super::*;
use crate::interceptor::InterceptorChain;

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

pub(crate) fn peer_pair(room: usize) -> (TestPeer, PeerStreams) {
    let (there, here) = (tokio::io::duplex(room), tokio::io::duplex(room));
    let far = TestPeer { reader: BufReader::new(there.0), writer: here.0 };
    (far, PeerStreams { reader: Box::new(here.1), writer: Box::new(there.1) })
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
    ) -> Result<Option<bowline_wire::service::BoxFuture<()>>, UncheckedParamsError> {
        Ok(None)
    }
}

fn start_proxy_with(
    between: impl Interceptor + 'static,
    settings: ProxyOptions,
    room: usize,
) -> ProxyHarness {
    let ((editor, near_editor), (agent, near_agent)) = (peer_pair(room), peer_pair(room));
    let (caller, proxy) = Proxy::new(between, EchoService, settings);
    let farewell = async { "the agent has ended with exit code 7".to_owned() };
    let running = tokio::spawn(proxy.run(near_editor, near_agent, farewell, std::future::pending()));
    ProxyHarness { editor, agent, caller, running }
}

fn start_proxy() -> ProxyHarness {
    start_proxy_with(InterceptorChain::default(), ProxyOptions::default(), 64 << 10)
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
    let mut stage = start_proxy();
    for (who, line) in SESSION_LINES {
        let (from, to) = match *who {
            "E" => (&mut stage.editor, &mut stage.agent),
            _ => (&mut stage.agent, &mut stage.editor),
        };
        from.send(line).await;
        assert_eq!(to.receive().await, *line);
    }
    // Invalid UTF-8 passes as well, and so does an incomplete last line.
    stage.agent.writer.write_all(b"\xff\xfe{\r\n{\"cut").await.unwrap();
    stage.agent.writer.shutdown().await.unwrap();
    drop(stage.agent);
    let last = stage.editor.receive_all().await;
    expect![[r#"
        "\xff\xfe{\r\n{\"cut"
    "#]]
    .assert_eq(&format!("\"{}\"\n", last.escape_ascii()));
    assert_eq!(
        stage.running.await.unwrap(),
        ProxyEndReason::AgentExited("the agent has ended with exit code 7".to_owned())
    );
}

#[tokio::test]
async fn all_at_once_comes_out_as_it_went_in() {
    let stage = start_proxy_with(InterceptorChain::default(), ProxyOptions::default(), 1 << 10);
    let text = |who: &str| -> String {
        let lines =
            SESSION_LINES.iter().filter(|(from, _)| *from == who).map(|(_, line)| format!("{line}\n"));
        lines.collect::<String>().repeat(300)
    };
    let ProxyHarness { editor: TestPeer { reader: mut to_editor, writer: mut editor }, .. } = stage;
    let TestPeer { reader: mut to_agent, writer: mut agent } = stage.agent;
    let (from_editor, from_agent) = (text("E"), text("A"));
    let (mut heard_by_agent, mut heard_by_editor) = (vec![0; from_editor.len()], vec![0; from_agent.len()]);
    let (said, told, heard, read) = tokio::join!(
        editor.write_all(from_editor.as_bytes()),
        agent.write_all(from_agent.as_bytes()),
        to_agent.read_exact(&mut heard_by_agent),
        to_editor.read_exact(&mut heard_by_editor),
    );
    assert!(said.is_ok() && told.is_ok() && heard.is_ok() && read.is_ok());
    assert!(heard_by_agent == from_editor.as_bytes() && heard_by_editor == from_agent.as_bytes());
}

#[tokio::test]
async fn an_agent_that_dies_at_any_message_leaves_no_request_without_an_answer() {
    for at in 0..=SESSION_LINES.len() {
        let mut stage = start_proxy();
        let mut open = std::collections::BTreeSet::new();
        for (who, line) in &SESSION_LINES[..at] {
            let message = serde_json::from_str::<serde_json::Value>(line).unwrap_or_default();
            let (id, is_request) = (message["id"].to_string(), message["method"].is_string());
            let (from, to) = match *who {
                "E" => (&mut stage.editor, &mut stage.agent),
                _ => (&mut stage.agent, &mut stage.editor),
            };
            from.send(line).await;
            assert_eq!(to.receive().await, *line);
            match *who {
                "E" if is_request && id != "null" => drop(open.insert(id)),
                "A" if !is_request => drop(open.remove(&id)),
                _ => {}
            }
        }
        drop(stage.agent);
        let last = String::from_utf8(stage.editor.receive_all().await).unwrap();
        let answered = last.lines().map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(message["error"]["code"], -32603);
            assert!(line.contains("the agent has ended with exit code 7"), "{line}");
            message["id"].to_string()
        });
        assert_eq!(answered.collect::<std::collections::BTreeSet<_>>(), open, "after {at} messages");
        stage.running.await.unwrap();
    }
}

#[tokio::test]
async fn an_editor_that_leaves_closes_the_agents_input_and_hears_the_rest() {
    let mut stage = start_proxy();
    stage.editor.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
    stage.editor.writer.write_all(b"{\"no\":\"end\"").await.unwrap();
    stage.editor.writer.shutdown().await.unwrap();
    assert_eq!(
        stage.agent.receive_all().await,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}\n{\"no\":\"end\""
    );
    let refused = stage.caller.call_raw("fs/read_text_file", JsonBody::from_value(&json!({})).unwrap()).await;
    assert!(matches!(refused, Err(CallError::Closed)), "{refused:?}");
    stage.agent.send(r#"{"jsonrpc":"2.0","id":1,"result":"late"}"#).await;
    assert_eq!(stage.editor.receive().await, r#"{"jsonrpc":"2.0","id":1,"result":"late"}"#);
    drop(stage.agent);
    assert_eq!(stage.running.await.unwrap(), ProxyEndReason::EditorGone);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_end_is_not_waited_for_for_ever() {
    let mut stage = start_proxy();
    drop(stage.editor);
    assert_eq!(stage.agent.receive_all().await, b"");
    assert_eq!(stage.running.await.unwrap(), ProxyEndReason::EditorGone);
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
        let taken = Arc::new(AtomicUsize::new(0));
        let ((mut editor, near_editor), (mut agent, near_agent)) = (peer_pair(1 << 10), peer_pair(1 << 10));
        let near_agent = PeerStreams { reader: Box::new(EndlessReader(taken.clone(), line)), ..near_agent };
        let settings = ProxyOptions { max_line: 128 << 10, ..ProxyOptions::default() };
        let (_caller, proxy) = Proxy::new(InterceptorChain::default(), EchoService, settings);
        let farewell = async { String::new() };
        let running = tokio::spawn(proxy.run(near_editor, near_agent, farewell, std::future::pending()));
        // The editor reads nothing, yet its own messages arrive.
        for number in 0..100 {
            let said = format!(r#"{{"jsonrpc":"2.0","method":"n{number}"}}"#);
            editor.send(&said).await;
            assert_eq!(agent.receive().await, said);
        }
        let most = settings.high_water + settings.max_line + (4 << 20);
        assert!(taken.load(Ordering::Relaxed) < most, "{} bytes", taken.load(Ordering::Relaxed));
        running.abort();
    }
}

#[tokio::test]
async fn a_line_of_any_length_passes() {
    let settings = ProxyOptions { max_line: 100 << 10, ..ProxyOptions::default() };
    let mut stage = start_proxy_with(InterceptorChain::default(), settings, 8 << 10);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"s","x":"{}"}}}}"#,
        "é".repeat(1 << 20)
    );
    let (said, caller) = (line.clone(), stage.caller.clone());
    let mut writes = stage.editor.writer;
    let saying = tokio::spawn(async move {
        writes.write_all(format!("{said}\n").as_bytes()).await.unwrap();
        writes
    });
    assert!(stage.agent.receive().await == line);
    // A long request is answered like any other if the agent dies.
    let _editor = saying.await.unwrap();
    let call = tokio::spawn(async move {
        caller.call_raw("fs/read_text_file", JsonBody::from_value(&json!({})).unwrap()).await
    });
    assert_eq!(stage.editor.reader.buffer(), b"");
    let mut asked = String::new();
    stage.editor.reader.read_line(&mut asked).await.unwrap();
    expect![[r#"
        {"jsonrpc":"2.0","id":"bowline-proxy-2","method":"fs/read_text_file","params":{}}
    "#]]
    .assert_eq(&asked);
    drop(stage.agent);
    let mut last = String::new();
    stage.editor.reader.read_to_string(&mut last).await.unwrap();
    expect![[r#"
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-2"}}
        {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the agent has ended with exit code 7"}}
    "#]]
    .assert_eq(&last);
    stage.running.await.unwrap();
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn calls_of_our_own_are_answered_to_us_and_cancelled_when_dropped() {
    let mut stage = start_proxy();
    let caller = stage.caller.clone();
    let call = tokio::spawn(async move {
        let answer = caller
            .call_raw("fs/read_text_file", JsonBody::from_value(&json!({ "path": "/a" })).unwrap())
            .await;
        answer.map(|answer| answer.get().to_owned())
    });
    let mut told = vec![stage.editor.receive().await];
    // The agent uses the same id, cancels, and gets its own answer.
    stage.agent.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-1","method":"_x"}"#).await;
    told.push(stage.editor.receive().await);
    stage
        .agent
        .send(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-1"}}"#)
        .await;
    told.push(stage.editor.receive().await);
    stage.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-3","result":"agent's"}"#).await;
    told.push(stage.agent.receive().await);
    stage.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-1","result":"ours"}"#).await;
    told.push(call.await.unwrap().unwrap());
    let caller = stage.caller.clone();
    let dropped = tokio::spawn(async move {
        caller.call_raw("x", JsonBody::from_value(&json!({})).unwrap()).await.map(drop)
    });
    told.push(stage.editor.receive().await);
    dropped.abort();
    told.push(stage.editor.receive().await);
    // The late answer to it is discarded.
    stage.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-4","result":1}"#).await;
    stage.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-99","result":1}"#).await;
    stage.editor.send(r#"{"jsonrpc":"2.0","method":"after"}"#).await;
    told.push(stage.agent.receive().await);
    expect![[r#"
        {"jsonrpc":"2.0","id":"bowline-proxy-1","method":"fs/read_text_file","params":{"path":"/a"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-3","method":"_x"}
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-3"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-1","result":"agent's"}
        "ours"
        {"jsonrpc":"2.0","id":"bowline-proxy-4","method":"x","params":{}}
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-4"}}
        {"jsonrpc":"2.0","method":"after"}"#]]
    .assert_eq(&told.join("\n"));
}

/// Disposes of messages as a script dictates, by the session that they name.
struct ScriptedInterceptor(tokio::sync::mpsc::UnboundedReceiver<Disposition>);

impl Interceptor for ScriptedInterceptor {
    fn intercept(&mut self, passing: InterceptedMessage<'_>) -> InterceptDecision {
        let RelayEvent::TurnStarted(session) = passing.fact else {
            return if matches!(passing.fact, RelayEvent::AgentRequest(..)) {
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
        let (line, mut deeds) =
            (passing.line.to_vec(), std::mem::replace(&mut self.0, tokio::sync::mpsc::unbounded_channel().1));
        InterceptDecision::Later(
            order,
            Box::pin(async move {
                match deeds.recv().await {
                    // Adds the message itself to the replacement.
                    Some(Disposition::Replace(mut lines)) => {
                        lines.push(line);
                        Disposition::Replace(lines)
                    }
                    deed => deed.unwrap_or(Disposition::Pass),
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
    for (session, deed) in [
        ("keep", Disposition::Replace(vec![b"{\"added\":1}".to_vec()])),
        ("keep", Disposition::Answer(Ok(RawValue::from_string("\"no\"".to_owned()).unwrap()))),
        ("overtake", Disposition::Pass),
    ] {
        let (deeds, script) = tokio::sync::mpsc::unbounded_channel();
        let mut stage = start_proxy_with(ScriptedInterceptor(script), ProxyOptions::default(), 64 << 10);
        let is_answer = matches!(deed, Disposition::Answer(_));
        stage.editor.send(&prompt(session)).await;
        stage.editor.send(next).await;
        if session == "overtake" {
            assert_eq!(stage.agent.receive().await, next);
        } else {
            // Messages in the other direction do not wait.
            stage.agent.send(r#"{"jsonrpc":"2.0","id":1,"method":"mcp/message","params":{}}"#).await;
            let served = r#"{"jsonrpc":"2.0","id":1,"result":{"served":"mcp/message"}}"#;
            assert_eq!(stage.agent.receive().await, served);
        }
        deeds.send(deed).unwrap();
        if is_answer {
            assert_eq!(stage.editor.receive().await, r#"{"jsonrpc":"2.0","id":1,"result":"no"}"#);
            assert_eq!(stage.agent.receive().await, next);
        } else if session == "keep" {
            assert_eq!(stage.agent.receive().await, "{\"added\":1}");
            assert_eq!(stage.agent.receive().await, prompt(session));
            assert_eq!(stage.agent.receive().await, next);
        } else {
            assert_eq!(stage.agent.receive().await, prompt(session));
        }
    }
}
