//! Tests of both ends together: order, backpressure, and nested calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_wire::message::body::JsonBody;
use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{
    ClientCapabilities, Error, ExtRequest, FileSystemCapabilities, InitializeRequest, NewSessionRequest,
    PromptRequest, ReadTextFileRequest, ReadTextFileResponse, RequestPermissionRequest,
    RequestPermissionResponse, SessionNotification,
};
use bowline_wire::{
    AgentHandle, CallError, Client, ClientContext, ConnectionLimits, connect_agent, connect_client,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, mpsc};

use crate::probe_agent::{LineClient, ProbeAgent};

/// Counts updates, each only when the test permits it, and answers a read by asking the agent first.
struct GatedClient {
    gate: Semaphore,
    handled: AtomicUsize,
    call_results: Option<mpsc::UnboundedSender<Result<(), CallError>>>,
}

impl GatedClient {
    fn new(open: bool) -> Self {
        let permits = if open { Semaphore::MAX_PERMITS } else { 0 };
        GatedClient { gate: Semaphore::new(permits), handled: AtomicUsize::new(0), call_results: None }
    }
}

impl Client for GatedClient {
    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn session_update(&self, _: SessionNotification, agent: AgentHandle) {
        if let Some(calls) = &self.call_results {
            let echo = ExtRequest::new("_echo", serde_json::value::RawValue::NULL.to_owned().into());
            calls.send(agent.ext_request(echo).await.map(drop)).expect("the test listens");
        }
        self.gate.acquire().await.expect("the gate stays").forget();
        self.handled.fetch_add(1, Ordering::Relaxed);
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        cx: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        // `/3` asks the agent to read `/2`, and so on: each end waits for the other inside its handlers.
        let depth: u32 = request.path.to_string_lossy().trim_start_matches('/').parse().unwrap_or(0);
        if depth > 0 {
            let prompt = PromptRequest::new(request.session_id, vec![format!("read /{}", depth - 1).into()]);
            cx.agent().prompt(prompt).await?;
        }
        Ok(ReadTextFileResponse::new(format!("depth {depth}")))
    }
}

fn connect(editor: Arc<GatedClient>, limits: ConnectionLimits, pipe: usize) -> AgentHandle {
    let (client_stream, agent_stream) = tokio::io::duplex(pipe);
    let (reader, writer) = tokio::io::split(agent_stream);
    let (_client, serving) = connect_agent(Arc::new(ProbeAgent), reader, writer, limits);
    tokio::spawn(serving);
    let (reader, writer) = tokio::io::split(client_stream);
    let (agent, serving) = connect_client(editor, reader, writer, limits);
    tokio::spawn(serving);
    agent
}

async fn connect_initialized(
    editor: &Arc<GatedClient>,
    limits: ConnectionLimits,
    pipe: usize,
) -> AgentHandle {
    let agent = connect(Arc::clone(editor), limits, pipe);
    let fs = FileSystemCapabilities::new().read_text_file(true);
    let request =
        InitializeRequest::new(ProtocolVersion::V1).client_capabilities(ClientCapabilities::new().fs(fs));
    agent.initialize(request).await.expect("initialized");
    agent.new_session(NewSessionRequest::new("/")).await.expect("a session");
    agent
}

fn prompt(text: &str) -> PromptRequest {
    PromptRequest::new("s", vec![text.into()])
}

#[tokio::test]
async fn both_sides_may_call_each_other_inside_their_handlers() {
    let editor = Arc::new(GatedClient::new(true));
    let agent = connect_initialized(&editor, ConnectionLimits::DEFAULT, 64).await;
    agent.prompt(prompt("read /20")).await.expect("no deadlock");
    assert_eq!(editor.handled.load(Ordering::Relaxed), 21);
}

#[tokio::test]
async fn a_turn_ends_after_all_its_updates_were_handled() {
    let editor = Arc::new(GatedClient::new(true));
    let agent = connect_initialized(&editor, ConnectionLimits::DEFAULT, 4096).await;
    for turn in 1..=20 {
        agent.prompt(prompt("stream 100")).await.expect("a turn");
        assert_eq!(editor.handled.load(Ordering::Relaxed), turn * 100);
    }
}

#[tokio::test]
async fn a_slow_handler_holds_the_end_of_the_turn_back_but_not_other_answers() {
    let editor = Arc::new(GatedClient::new(false));
    let agent = connect_initialized(&editor, ConnectionLimits::DEFAULT, 1 << 16).await;
    let turn = tokio::spawn({
        let agent = agent.clone();
        async move { agent.prompt(prompt("stream 3")).await }
    });
    // The agent answers this after it has sent all updates of the turn.
    agent.new_session(NewSessionRequest::new("/")).await.expect("an answer in the meantime");
    assert!(!turn.is_finished());
    editor.gate.add_permits(2);
    agent.new_session(NewSessionRequest::new("/")).await.expect("an answer in the meantime");
    assert!(!turn.is_finished());
    editor.gate.add_permits(1);
    turn.await.expect("no panic").expect("the end of the turn");
    assert_eq!(editor.handled.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_stops_the_sender() {
    let mut wire = LineClient::connect(ProbeAgent, ConnectionLimits::DEFAULT, 4096);
    wire.send(br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#).await;
    wire.receive().await;
    wire.send(
        br#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"stream 1000000"}]}}"#,
    )
    .await;
    wire.receive().await;
    // Time stands still until every task waits: the sender is blocked, with a million updates to go.
    tokio::time::advance(Duration::from_secs(1)).await;
    wire.send(br#"{"jsonrpc":"2.0","id":2,"method":"_echo","params":"meanwhile"}"#).await;
    let mut before = 1;
    while !wire.receive().await.contains("meanwhile") {
        before += 1;
    }
    // The queued updates are bounded by the limits: the pipe, the high water mark and the queue.
    assert!(before < 5000, "{before} updates were queued");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_keep_up_stops_the_sender() {
    let editor = Arc::new(GatedClient::new(false));
    let (client_stream, mut agent_stream) = tokio::io::duplex(4096);
    let (reader, writer) = tokio::io::split(client_stream);
    let (_agent, serving) = connect_client(Arc::clone(&editor), reader, writer, ConnectionLimits::DEFAULT);
    tokio::spawn(serving);
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":{{\
         \"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{:01000}\"}}}}}}}}\n",
        0
    );
    let mut sent = 0;
    let flood = async {
        while sent < 64 << 20 {
            agent_stream.write_all(line.as_bytes()).await.expect("it is read");
            sent += line.len();
        }
    };
    // Time stands still until nothing else can move.
    assert!(tokio::time::timeout(Duration::from_secs(1), flood).await.is_err());
    // 8 MiB wait for the handler, and one read may add to that.
    assert!(sent < 10 << 20, "{sent} bytes were taken");
    // Once they are handled, reading resumes.
    editor.gate.add_permits(Semaphore::MAX_PERMITS);
    let more = agent_stream.write_all(line.as_bytes());
    tokio::time::timeout(Duration::from_secs(1), more).await.expect("it is read again").expect("it is read");
}

#[tokio::test]
async fn a_notification_handler_that_waits_behind_its_own_notifications_is_told_so() {
    let (sender, mut calls) = mpsc::unbounded_channel();
    let editor = Arc::new(GatedClient { call_results: Some(sender), ..GatedClient::new(true) });
    let mut limits = ConnectionLimits::DEFAULT;
    limits.max_backlog = 2000;
    let agent = connect_initialized(&editor, limits, 1 << 16).await;
    let turn = tokio::spawn(async move { agent.prompt(prompt("stream 500")).await });
    let mut deadlocks = 0;
    for _ in 0..500 {
        match calls.recv().await.expect("every handler ends") {
            Ok(()) => {}
            Err(CallError::WouldDeadlock) => deadlocks += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    turn.await.expect("no panic").expect("the end of the turn");
    assert!(deadlocks > 0, "the backlog was never full");
}

#[tokio::test]
async fn what_was_queued_before_closing_still_leaves() {
    let (client_stream, agent_stream) = tokio::io::duplex(256);
    let (reader, writer) = tokio::io::split(client_stream);
    let (agent, serving) =
        connect_client(Arc::new(GatedClient::new(true)), reader, writer, ConnectionLimits::DEFAULT);
    for _ in 0..100 {
        agent.caller().notify_raw("_note", JsonBody::empty_object()).await.expect("queued");
    }
    agent.caller().close();
    let serving = tokio::spawn(serving);
    let mut lines = BufReader::new(agent_stream).lines();
    let mut count = 0;
    while let Some(line) = lines.next_line().await.expect("text") {
        assert_eq!(line, r#"{"jsonrpc":"2.0","method":"_note","params":{}}"#);
        count += 1;
    }
    assert_eq!(count, 100);
    serving.await.expect("no panic").expect("no error");
    assert!(matches!(
        agent.caller().notify_raw("_note", JsonBody::empty_object()).await,
        Err(CallError::Closed)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_asks_and_never_reads_is_held_back() {
    let mut wire = LineClient::connect(ProbeAgent, ConnectionLimits::DEFAULT, 4096);
    wire.send(br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#).await;
    wire.receive().await;
    let mut sent = 0_u32;
    let flood = async {
        while sent < 20_000 {
            wire.send(
                format!(r#"{{"jsonrpc":"2.0","id":{sent},"method":"_echo","params":"{:0200}"}}"#, 0)
                    .as_bytes(),
            )
            .await;
            sent += 1;
        }
    };
    // Time stands still until nothing else can move.
    assert!(tokio::time::timeout(Duration::from_secs(1), flood).await.is_err());
    // 256 KiB of answers, 1,024 more that wait, then 4,096 refusals: then reading pauses.
    assert!(sent < 10_000, "{sent} requests were taken");
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_peer_that_never_reads() {
    let (client_stream, _agent_stream) = tokio::io::duplex(16);
    let (reader, writer) = tokio::io::split(client_stream);
    let (agent, serving) =
        connect_client(Arc::new(GatedClient::new(true)), reader, writer, ConnectionLimits::DEFAULT);
    let serving = tokio::spawn(serving);
    agent.caller().notify_raw("_a_note_that_does_not_fit", JsonBody::empty_object()).await.expect("queued");
    agent.caller().close();
    serving.await.expect("no panic").expect("no error");
}
