//! A proxy between two ends in memory: what passes, what is added, and what happens when a side dies, floods or stalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::ready;

use bowline_state::relay::Fact;
use bowline_wire::CallError;
use bowline_wire::body::Body;
use bowline_wire::service::{Answer, Incoming, Params, Unproven};
use expect_test::expect;
use serde_json::value::RawValue;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadBuf,
};
use tokio::task::JoinHandle;

use super::*;
use crate::between::Chain;

mod flooding;
mod giving_up;
mod held_messages;

/// One end as a test has it.
pub(crate) struct Far {
    pub(crate) reads: BufReader<DuplexStream>,
    pub(crate) writes: DuplexStream,
}

impl Far {
    pub(crate) async fn say(&mut self, line: &str) {
        self.writes.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> String {
        let mut line = String::new();
        let reading = self.reads.read_line(&mut line);
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("a line").unwrap();
        line.trim_end().to_owned()
    }

    async fn hear_all(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.reads.read_to_end(&mut bytes).await.unwrap();
        bytes
    }
}

struct Stage {
    editor: Far,
    agent: Far,
    caller: Caller,
    running: JoinHandle<Ended>,
}

pub(crate) fn pair(room: usize) -> (Far, Ends) {
    let (there, here) = (tokio::io::duplex(room), tokio::io::duplex(room));
    let far = Far { reads: BufReader::new(there.0), writes: here.0 };
    (far, Ends { reader: Box::new(here.1), writer: Box::new(there.1) })
}

/// Answers every request that is taken with its method.
pub(crate) struct Echo;

impl Service for Echo {
    fn request(&mut self, request: Incoming<'_>) -> Result<Answer, Unproven> {
        request.params.checked()?;
        Ok(Answer::Now(Ok(Body::of(&json!({ "served": request.method })).unwrap())))
    }

    fn notification(
        &mut self,
        _: &str,
        _: Params<'_>,
    ) -> Result<Option<bowline_wire::service::BoxFuture<()>>, Unproven> {
        Ok(None)
    }
}

fn stage_with(between: impl Between + 'static, settings: Settings, room: usize) -> Stage {
    let ((editor, near_editor), (agent, near_agent)) = (pair(room), pair(room));
    let (caller, proxy) = Proxy::new(between, Echo, settings);
    let farewell = async { "the agent has ended with exit code 7".to_owned() };
    let running = tokio::spawn(proxy.run(near_editor, near_agent, farewell, std::future::pending()));
    Stage { editor, agent, caller, running }
}

fn stage() -> Stage {
    stage_with(Chain::default(), Settings::default(), 64 << 10)
}

const SESSION: &[(&str, &str)] = &[
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
    let mut stage = stage();
    for (who, line) in SESSION {
        let (from, to) = match *who {
            "E" => (&mut stage.editor, &mut stage.agent),
            _ => (&mut stage.agent, &mut stage.editor),
        };
        from.say(line).await;
        assert_eq!(to.hear().await, *line);
    }
    // What is no text passes as well, and so does what has no end.
    stage.agent.writes.write_all(b"\xff\xfe{\r\n{\"cut").await.unwrap();
    stage.agent.writes.shutdown().await.unwrap();
    drop(stage.agent);
    let last = stage.editor.hear_all().await;
    expect![[r#"
        "\xff\xfe{\r\n{\"cut"
    "#]]
    .assert_eq(&format!("\"{}\"\n", last.escape_ascii()));
    assert_eq!(stage.running.await.unwrap(), Ended::Agent("the agent has ended with exit code 7".to_owned()));
}

#[tokio::test]
async fn all_at_once_comes_out_as_it_went_in() {
    let stage = stage_with(Chain::default(), Settings::default(), 1 << 10);
    let text = |who: &str| -> String {
        let lines = SESSION.iter().filter(|(from, _)| *from == who).map(|(_, line)| format!("{line}\n"));
        lines.collect::<String>().repeat(300)
    };
    let Stage { editor: Far { reads: mut to_editor, writes: mut editor }, .. } = stage;
    let Far { reads: mut to_agent, writes: mut agent } = stage.agent;
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
    for at in 0..=SESSION.len() {
        let mut stage = stage();
        let mut open = std::collections::BTreeSet::new();
        for (who, line) in &SESSION[..at] {
            let message = serde_json::from_str::<serde_json::Value>(line).unwrap_or_default();
            let (id, is_request) = (message["id"].to_string(), message["method"].is_string());
            let (from, to) = match *who {
                "E" => (&mut stage.editor, &mut stage.agent),
                _ => (&mut stage.agent, &mut stage.editor),
            };
            from.say(line).await;
            assert_eq!(to.hear().await, *line);
            match *who {
                "E" if is_request && id != "null" => drop(open.insert(id)),
                "A" if !is_request => drop(open.remove(&id)),
                _ => {}
            }
        }
        drop(stage.agent);
        let last = String::from_utf8(stage.editor.hear_all().await).unwrap();
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
    let mut stage = stage();
    stage.editor.say(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
    stage.editor.writes.write_all(b"{\"no\":\"end\"").await.unwrap();
    stage.editor.writes.shutdown().await.unwrap();
    assert_eq!(
        stage.agent.hear_all().await,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}\n{\"no\":\"end\""
    );
    let refused = stage.caller.call_raw("fs/read_text_file", Body::of(&json!({})).unwrap()).await;
    assert!(matches!(refused, Err(CallError::Closed)), "{refused:?}");
    stage.agent.say(r#"{"jsonrpc":"2.0","id":1,"result":"late"}"#).await;
    assert_eq!(stage.editor.hear().await, r#"{"jsonrpc":"2.0","id":1,"result":"late"}"#);
    drop(stage.agent);
    assert_eq!(stage.running.await.unwrap(), Ended::Editor);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_end_is_not_waited_for_for_ever() {
    let mut stage = stage();
    drop(stage.editor);
    assert_eq!(stage.agent.hear_all().await, b"");
    assert_eq!(stage.running.await.unwrap(), Ended::Editor);
}

/// A side that sends without end, and how much of it was taken.
struct Flood(Arc<AtomicUsize>, &'static [u8]);

impl AsyncRead for Flood {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // Lets others work, as a pipe would.
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
        let ((mut editor, near_editor), (mut agent, near_agent)) = (pair(1 << 10), pair(1 << 10));
        let near_agent = Ends { reader: Box::new(Flood(taken.clone(), line)), ..near_agent };
        let settings = Settings { look: 128 << 10, ..Settings::default() };
        let (_caller, proxy) = Proxy::new(Chain::default(), Echo, settings);
        let farewell = async { String::new() };
        let running = tokio::spawn(proxy.run(near_editor, near_agent, farewell, std::future::pending()));
        // The editor reads nothing; what it says arrives all the same.
        for number in 0..100 {
            let said = format!(r#"{{"jsonrpc":"2.0","method":"n{number}"}}"#);
            editor.say(&said).await;
            assert_eq!(agent.hear().await, said);
        }
        let most = settings.high_water + settings.look + (4 << 20);
        assert!(taken.load(Ordering::Relaxed) < most, "{} bytes", taken.load(Ordering::Relaxed));
        running.abort();
    }
}

#[tokio::test]
async fn a_line_of_any_length_passes() {
    let settings = Settings { look: 100 << 10, ..Settings::default() };
    let mut stage = stage_with(Chain::default(), settings, 8 << 10);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"s","x":"{}"}}}}"#,
        "é".repeat(1 << 20)
    );
    let (said, caller) = (line.clone(), stage.caller.clone());
    let mut writes = stage.editor.writes;
    let saying = tokio::spawn(async move {
        writes.write_all(format!("{said}\n").as_bytes()).await.unwrap();
        writes
    });
    assert!(stage.agent.hear().await == line);
    // It is a request like others: it is answered if the agent dies.
    let _editor = saying.await.unwrap();
    let call =
        tokio::spawn(
            async move { caller.call_raw("fs/read_text_file", Body::of(&json!({})).unwrap()).await },
        );
    assert_eq!(stage.editor.reads.buffer(), b"");
    let mut asked = String::new();
    stage.editor.reads.read_line(&mut asked).await.unwrap();
    expect![[r#"
        {"jsonrpc":"2.0","id":"bowline-proxy-2","method":"fs/read_text_file","params":{}}
    "#]]
    .assert_eq(&asked);
    drop(stage.agent);
    let mut last = String::new();
    stage.editor.reads.read_to_string(&mut last).await.unwrap();
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
    let mut stage = stage();
    let caller = stage.caller.clone();
    let call = tokio::spawn(async move {
        let answer = caller.call_raw("fs/read_text_file", Body::of(&json!({ "path": "/a" })).unwrap()).await;
        answer.map(|answer| answer.get().to_owned())
    });
    let mut told = vec![stage.editor.hear().await];
    // The agent uses the same id, cancels, and gets its own answer.
    stage.agent.say(r#"{"jsonrpc":"2.0","id":"bowline-proxy-1","method":"_x"}"#).await;
    told.push(stage.editor.hear().await);
    stage
        .agent
        .say(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-1"}}"#)
        .await;
    told.push(stage.editor.hear().await);
    stage.editor.say(r#"{"jsonrpc":"2.0","id":"bowline-proxy-3","result":"agent's"}"#).await;
    told.push(stage.agent.hear().await);
    stage.editor.say(r#"{"jsonrpc":"2.0","id":"bowline-proxy-1","result":"ours"}"#).await;
    told.push(call.await.unwrap().unwrap());
    let caller = stage.caller.clone();
    let dropped =
        tokio::spawn(async move { caller.call_raw("x", Body::of(&json!({})).unwrap()).await.map(drop) });
    told.push(stage.editor.hear().await);
    dropped.abort();
    told.push(stage.editor.hear().await);
    // Its late answer is nobody's.
    stage.editor.say(r#"{"jsonrpc":"2.0","id":"bowline-proxy-4","result":1}"#).await;
    stage.editor.say(r#"{"jsonrpc":"2.0","id":"bowline-proxy-99","result":1}"#).await;
    stage.editor.say(r#"{"jsonrpc":"2.0","method":"after"}"#).await;
    told.push(stage.agent.hear().await);
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

/// Does with messages what a script says, by the session that they name.
struct Scripted(tokio::sync::mpsc::UnboundedReceiver<Deed>);

impl Between for Scripted {
    fn look(&mut self, passing: Passing<'_>) -> Decision {
        let Fact::TurnBegins(session) = passing.fact else {
            return if matches!(passing.fact, Fact::Asked(..)) {
                Decision::Now(Deed::Take)
            } else {
                Decision::PASS
            };
        };
        let order = match &*session.0 {
            "keep" => Order::Keep,
            "overtake" => Order::Overtake,
            _ => return Decision::PASS,
        };
        let (line, mut deeds) =
            (passing.line.to_vec(), std::mem::replace(&mut self.0, tokio::sync::mpsc::unbounded_channel().1));
        Decision::Later(
            order,
            Box::pin(async move {
                match deeds.recv().await {
                    // The message among others.
                    Some(Deed::Instead(mut lines)) => {
                        lines.push(line);
                        Deed::Instead(lines)
                    }
                    deed => deed.unwrap_or(Deed::Pass),
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
        ("keep", Deed::Instead(vec![b"{\"added\":1}".to_vec()])),
        ("keep", Deed::Answer(Ok(RawValue::from_string("\"no\"".to_owned()).unwrap()))),
        ("overtake", Deed::Pass),
    ] {
        let (deeds, script) = tokio::sync::mpsc::unbounded_channel();
        let mut stage = stage_with(Scripted(script), Settings::default(), 64 << 10);
        let is_answer = matches!(deed, Deed::Answer(_));
        stage.editor.say(&prompt(session)).await;
        stage.editor.say(next).await;
        if session == "overtake" {
            assert_eq!(stage.agent.hear().await, next);
        } else {
            // What comes the other way does not wait.
            stage.agent.say(r#"{"jsonrpc":"2.0","id":1,"method":"mcp/message","params":{}}"#).await;
            let served = r#"{"jsonrpc":"2.0","id":1,"result":{"served":"mcp/message"}}"#;
            assert_eq!(stage.agent.hear().await, served);
        }
        deeds.send(deed).unwrap();
        if is_answer {
            assert_eq!(stage.editor.hear().await, r#"{"jsonrpc":"2.0","id":1,"result":"no"}"#);
            assert_eq!(stage.agent.hear().await, next);
        } else if session == "keep" {
            assert_eq!(stage.agent.hear().await, "{\"added\":1}");
            assert_eq!(stage.agent.hear().await, prompt(session));
            assert_eq!(stage.agent.hear().await, next);
        } else {
            assert_eq!(stage.agent.hear().await, prompt(session));
        }
    }
}
