//! Tests of an engine interceptor between two in-memory ends: messages held, answered, served and shown, and the rest
//! passed.

use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_history::attribution::{AttributedChange, ChangeAttribution};
use bowline_history::changes::ChangeId;
use bowline_mcp::server::{ResourceEvent, ResourceInfo, ResourceProvider};
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::diagnostics::Diagnostic;
use bowline_protocol::file_extension::FileOperation;
use bowline_protocol::relay::SessionOpening as Asked;
use bowline_protocol::schema::v1::{
    Error, PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionResponse,
    SelectedPermissionOutcome, ToolCallId,
};
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use expect_test::expect;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use test_support::wait::wait_until_async;

use super::*;
use crate::engine::{
    EditorWriteRequest, FollowedTerminal, JournalledWrite, PermissionRuling, RedoChange, RelayedOperation,
};
use crate::inject::ServerInjector;
use crate::interceptor::BoxFuture;
use crate::proxy::tests::{EchoService, TestPeer, peer_pair};
use crate::proxy::{PeerStreams, Proxy, ProxyOptions};

mod pending_sessions;

/// An engine whose disk a test controls.
#[derive(Default)]
struct FakeDisk {
    changed: Mutex<Vec<String>>,
    turns: AtomicUsize,
    scans: AtomicUsize,
    // Whether scans hang.
    scans_hang: std::sync::atomic::AtomicBool,
    events: Mutex<Vec<String>>,
    // The operations that were judged, in order.
    judged: Mutex<Vec<String>>,
}

#[derive(Clone, Default)]
struct TestEngine(Arc<FakeDisk>);

impl Engine for TestEngine {
    fn prepare(&self, _: &Asked) {}

    fn log(&self, line: &str) {
        self.log_event(line.to_owned());
    }

    fn open_session(&self, opened: &RelayedSession) -> BoxFuture<'static, Option<Arc<dyn EngineSession>>> {
        let session =
            (opened.session.0.as_ref() != "closed").then(|| Arc::new(self.clone()) as Arc<dyn EngineSession>);
        Box::pin(std::future::ready(session))
    }
}

impl TestEngine {
    fn log_event(&self, event: String) {
        self.0.events.lock().unwrap().push(event);
    }

    fn take_changes(&self, owners: &ChangeAttribution) -> Vec<AttributedChange> {
        let changed = std::mem::take(&mut *self.0.changed.lock().unwrap());
        let changes = changed.into_iter().map(|path| AttributedChange {
            change: ChangeId(1),
            call: owners.call_for_path(&path).map(|call| call.0.to_string()),
            path,
            before: Some("old".to_owned()),
            after: Some("new".to_owned()),
        });
        changes.collect()
    }

    fn scan_disk(&self, owners: ChangeAttribution) -> BoxFuture<'static, Vec<AttributedChange>> {
        let engine = self.clone();
        Box::pin(async move {
            if engine.0.scans_hang.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let found = engine.take_changes(&owners);
            engine.0.scans.fetch_add(1, Ordering::Relaxed);
            found
        })
    }
}

impl EngineSession for TestEngine {
    fn directory(&self) -> SessionDirectory {
        SessionDirectory { editor_path: "/w".to_owned(), canonical_path: "/w".to_owned() }
    }

    fn begin_turn(&self, _: Option<String>) -> BoxFuture<'static, ()> {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {})
    }

    fn end_turn(&self, owners: ChangeAttribution) -> BoxFuture<'static, Vec<AttributedChange>> {
        self.scan_disk(owners)
    }

    fn cancel_turn(&self) -> BoxFuture<'static, ()> {
        self.log_event("cancelled".to_owned());
        Box::pin(async {})
    }

    fn scan(&self, owners: ChangeAttribution) -> BoxFuture<'static, Vec<AttributedChange>> {
        self.scan_disk(owners)
    }

    fn judge_permission(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> BoxFuture<'static, Result<PermissionRuling, RpcError>> {
        let kind = match &*call.title {
            "allowed" => PermissionOptionKind::AllowOnce,
            "denied" => PermissionOptionKind::RejectOnce,
            _ => return Box::pin(async { Ok(PermissionRuling::AskUser) }),
        };
        let option = options.into_iter().find(|option| option.kind == kind).unwrap();
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id));
        Box::pin(async move { Ok(PermissionRuling::Decided(RequestPermissionResponse::new(outcome))) })
    }

    fn record_permission_outcome(
        &self,
        call: ToolCallId,
        response: RequestPermissionResponse,
    ) -> BoxFuture<'static, ()> {
        self.log_event(format!("{} {}", call.0, json!(response.outcome)));
        Box::pin(async {})
    }

    fn defer_to_tool(&self, call: ToolCallId) -> BoxFuture<'static, ()> {
        self.log_event(format!("{} is left to its tool", call.0));
        Box::pin(async {})
    }

    fn authorize(
        &self,
        operation: RelayedOperation,
        _: Option<String>,
    ) -> BoxFuture<'static, Result<(), RpcError>> {
        self.0.judged.lock().unwrap().push(format!("{operation:?}"));
        let is_denied = match operation {
            RelayedOperation::Read { path } | RelayedOperation::Write { path, .. } => path.ends_with(".env"),
            RelayedOperation::Files(operations) => {
                let mut effects = operations.iter().flat_map(FileOperation::effects);
                effects.any(|effect| effect.path().ends_with(".env"))
            }
            RelayedOperation::Run(request) => request.command == "rm",
        };
        let reason = "a rule denies it".to_owned();
        Box::pin(async move { if is_denied { Err(RpcError::Denied { reason }) } else { Ok(()) } })
    }

    fn journal_editor_write(
        &self,
        write: EditorWriteRequest,
    ) -> BoxFuture<'static, Result<JournalledWrite, RpcError>> {
        let engine = self.clone();
        engine.log_event(format!("{:?} -> {:?} {}", write.editor_text, write.new_text, write.agent_has_read));
        let text = if write.new_text == "merge" { "merged".to_owned() } else { write.new_text };
        let rollback: BoxFuture<'static, ()> =
            Box::pin(async move { engine.log_event("not written".to_owned()) });
        Box::pin(async move {
            if text == "conflict" {
                let (path, reason) = (write.path, "both changed it".to_owned());
                return Err(RpcError::Conflict { path, reason, hunks: Vec::new() });
            }
            Ok(JournalledWrite { text, rollback })
        })
    }

    fn revert_change(&self, _: ChangeId) -> BoxFuture<'static, Option<RedoChange>> {
        self.log_event("put back".to_owned());
        let engine = self.clone();
        let redo: RedoChange = Box::new(|reason| {
            Box::pin(async move { engine.log_event(format!("the agent's again: {reason}")) })
        });
        Box::pin(async move { Some(redo) })
    }

    fn serve(
        &self,
        method: String,
        params: Box<RawValue>,
        _: Option<String>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Error>> {
        let answer = to_raw_value(&json!({ "here": method, "params": params })).unwrap();
        let is_missing = params.get().contains("/w/missing");
        let missing = RpcError::ResourceNotFound { uri: Some("/w/missing".to_owned()) };
        Box::pin(async move { if is_missing { Err(missing.into()) } else { Ok(answer) } })
    }

    fn follow_terminal(&self, _: TerminalId) -> BoxFuture<'static, Option<FollowedTerminal>> {
        Box::pin(std::future::ready(None))
    }

    fn watch(
        &self,
        params: Box<RawValue>,
        updates: AgentUpdateSender,
        answered: oneshot::Receiver<()>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Error>> {
        Box::pin(async move {
            updates.send(b"\"of an earlier watch\"".to_vec()).await.unwrap();
            tokio::spawn(async move {
                answered.await.unwrap();
                updates.send(b"\"of this watch\"".to_vec()).await.unwrap();
            });
            Ok(params)
        })
    }

    fn list(&self, _: String, _: ListOptions) -> BoxFuture<'static, Result<Listing, RpcError>> {
        Box::pin(async { Err(workspace_unavailable()) })
    }

    fn search(
        &self,
        _: SearchQuery,
        _: Option<String>,
    ) -> BoxFuture<'static, Result<SearchResult, RpcError>> {
        Box::pin(async { Err(workspace_unavailable()) })
    }

    fn set_diagnostics(&self, path: String, diagnostics: Vec<Diagnostic>) -> BoxFuture<'static, ()> {
        let (engine, messages) = (self.clone(), diagnostics.into_iter().map(|diagnostic| diagnostic.message));
        let messages = messages.collect::<Vec<_>>().join(", ");
        Box::pin(async move { engine.log_event(format!("{path}: {messages}")) })
    }

    fn resources(&self) -> Arc<dyn ResourceProvider> {
        Arc::new(NoResources)
    }

    fn end_session(&self) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

struct NoResources;

impl ResourceProvider for NoResources {
    fn list(&self) -> bowline_access::approvals::BoxFuture<'_, Vec<ResourceInfo>> {
        Box::pin(async { Vec::new() })
    }

    fn read<'a>(
        &'a self,
        _: &'a str,
    ) -> bowline_access::approvals::BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async { Ok(None) })
    }

    fn subscribe(&self) -> tokio::sync::broadcast::Receiver<ResourceEvent> {
        tokio::sync::broadcast::Sender::new(1).subscribe()
    }
}

struct EngineHarness {
    editor: TestPeer,
    agent: TestPeer,
    engine: TestEngine,
    received_initialize: String,
    _running: tokio::task::JoinHandle<crate::proxy::ProxyEndReason>,
}

/// Returns a harness with an open session.
async fn start_harness(options: EngineInterceptorOptions, capabilities: &str) -> EngineHarness {
    start_harness_with(options, capabilities, r#"{"protocolVersion":1}"#).await
}

/// Returns a harness whose agent answers `initialize` with `initialized`.
async fn start_harness_with(
    options: EngineInterceptorOptions,
    capabilities: &str,
    initialized: &str,
) -> EngineHarness {
    let ((editor, editor_streams), (agent, agent_streams)): (
        (TestPeer, PeerStreams),
        (TestPeer, PeerStreams),
    ) = (peer_pair(1 << 20), peer_pair(1 << 20));
    let engine = TestEngine::default();
    let (line, (update_sender, updates)) = (CallerSlot::default(), mpsc::channel(64));
    let (agent_sender, agent_updates) = mpsc::channel(64);
    let sessions = EngineSessions::new(options);
    let interceptor = EngineInterceptor::new(
        Arc::new(engine.clone()),
        sessions,
        (line.clone(), update_sender, agent_sender),
        None::<ServerInjector>,
    );
    let settings =
        ProxyOptions { canonicalize: options.enforce_policy, max_line: 100 << 10, ..ProxyOptions::default() };
    let (caller, proxy) = Proxy::new(interceptor, EchoService, settings);
    line.set(caller);
    let agent_exit = async { "gone".to_owned() };
    let running = tokio::spawn(proxy.with_editor_updates(updates).with_agent_updates(agent_updates).run(
        editor_streams,
        agent_streams,
        agent_exit,
        std::future::pending(),
    ));
    let received_initialize = String::new();
    let mut harness = EngineHarness { editor, agent, engine, received_initialize, _running: running };
    let initialize = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":1,"clientCapabilities":{capabilities}}}}}"#
    );
    harness.editor.send(&initialize).await;
    let received = harness.agent.receive().await;
    if !options.serve_as_host && !capabilities.contains("bowline") {
        assert_eq!(received, initialize);
    }
    harness.received_initialize = received;
    harness.agent.send(&format!(r#"{{"jsonrpc":"2.0","id":0,"result":{initialized}}}"#)).await;
    harness.editor.receive().await;
    harness.open_session("s").await;
    harness
}

impl EngineHarness {
    async fn open_session(&mut self, session: &str) {
        let new = r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}"#;
        self.editor.send(new).await;
        assert_eq!(self.agent.receive().await, new);
        let opened = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"sessionId":"{session}"}}}}"#);
        self.agent.send(&opened).await;
        assert_eq!(self.editor.receive().await, opened);
    }

    async fn send_prompt(&mut self, session: &str) {
        let prompt = format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[]}}}}"#
        );
        self.editor.send(&prompt).await;
        assert_eq!(self.agent.receive().await, prompt);
    }

    fn change_file(&self, path: &str) {
        self.engine.0.changed.lock().unwrap().push(path.to_owned());
    }

    /// Waits until the scan at the beginning of a call is over.
    async fn wait_for_scan(&self) {
        wait_until_async("the first scan", || self.engine.0.scans.load(Ordering::Relaxed) > 0).await;
    }

    /// Sends a line from the agent, and expects it to be forwarded unchanged.
    async fn expect_forwarded(&mut self, line: &str) {
        self.agent.send(line).await;
        assert_eq!(self.editor.receive().await, line);
    }
}

const ALL_CAPABILITIES: &str = r#"{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true}"#;
const PROMPT_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;

fn update_line(session: &str, rest: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{{rest}}}}}}}"#
    )
}

#[tokio::test]
async fn what_a_call_changed_is_shown_on_it_after_the_agents_own_update_and_before_the_turns_end() {
    let mut harness = start_harness(EngineInterceptorOptions::default(), ALL_CAPABILITIES).await;
    harness.send_prompt("s").await;
    assert_eq!(harness.engine.0.turns.load(Ordering::Relaxed), 1);
    harness
        .expect_forwarded(&update_line(
            "s",
            r#""sessionUpdate":"tool_call","toolCallId":"t","title":"é","_x":1.50"#,
        ))
        .await;
    harness.wait_for_scan().await;
    harness.change_file("/w/a");
    harness
        .expect_forwarded(&update_line(
            "s",
            r#""sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed""#,
        ))
        .await;
    let update = harness.editor.receive().await;
    harness.change_file("/w/b");
    harness.agent.send(PROMPT_RESPONSE).await;
    let answer = harness.editor.receive().await;
    expect![[r#"
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"diff","path":"/w/a","oldText":"old","newText":"new"}],"_meta":{"bowline":{"observed":1}}}}}
        {"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}
    "#]]
    .assert_eq(&format!("{update}\n{answer}\n"));
}

#[tokio::test]
async fn content_that_the_agent_gives_later_keeps_the_diffs_that_were_added() {
    // The sequence of opencode 1.18.33's own write: the file exists before the call has ended, and the result comes
    // last.
    let mut harness = start_harness(EngineInterceptorOptions::default(), ALL_CAPABILITIES).await;
    harness.send_prompt("s").await;
    harness.expect_forwarded(&update_line("s", r#""sessionUpdate":"tool_call","toolCallId":"t","title":"write","kind":"edit","status":"pending""#)).await;
    harness.wait_for_scan().await;
    harness.change_file("/w/a");
    harness
        .expect_forwarded(&update_line(
            "s",
            r#""sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress""#,
        ))
        .await;
    let mut received = vec![harness.editor.receive().await];
    let text = r#""content":[{"type":"content","content":{"type":"text","text":"Wrote file"}}],"n":1.50"#;
    let its_diff = r#""content":[{"type":"diff","path":"/w/a","oldText":"old","newText":"new"}]"#;
    for rest in [&format!(r#""status":"completed",{text}"#), text, its_diff, r#""title":"a""#] {
        let rest = format!(r#""sessionUpdate":"tool_call_update","toolCallId":"t",{rest}"#);
        harness.agent.send(&update_line("s", &rest)).await;
        received.push(harness.editor.receive().await);
    }
    harness.agent.send(PROMPT_RESPONSE).await;
    received.push(harness.editor.receive().await);
    let updates = received.iter().map(|line| line.replace(&update_line("s", "").replace("}}}", ""), "..."));
    expect![[r#"
        ..."sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"diff","path":"/w/a","oldText":"old","newText":"new"}],"_meta":{"bowline":{"observed":1}}}}}
        ..."sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed","content":[{"type":"content","content":{"type":"text","text":"Wrote file"}},{"type":"diff","path":"/w/a","oldText":"old","newText":"new","_meta":{"bowline":{"observed":true}}}],"n":1.50}}}
        ..."sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"content","content":{"type":"text","text":"Wrote file"}},{"type":"diff","path":"/w/a","oldText":"old","newText":"new","_meta":{"bowline":{"observed":true}}}],"n":1.50}}}
        ..."sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"diff","path":"/w/a","oldText":"old","newText":"new"}]}}}
        ..."sessionUpdate":"tool_call_update","toolCallId":"t","title":"a"}}}
        {"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#]].assert_eq(&updates.collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn of_other_sessions_and_of_those_without_an_engine_everything_passes() {
    let mut harness = start_harness(
        EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() },
        ALL_CAPABILITIES,
    )
    .await;
    harness.open_session("closed").await;
    for session in ["closed", "unknown"] {
        harness.send_prompt(session).await;
        harness.change_file("/w/a");
        harness
            .expect_forwarded(&update_line(
                session,
                r#""sessionUpdate":"tool_call","toolCallId":"t","title":"","status":"completed""#,
            ))
            .await;
        harness.expect_forwarded(PROMPT_RESPONSE).await;
    }
    // A second answer to the same prompt is forwarded without effect.
    harness.expect_forwarded(PROMPT_RESPONSE).await;
    // Unavailable rules do not mean yes.
    harness
        .agent
        .send(r#"{"jsonrpc":"2.0","id":9,"method":"fs/read_text_file","params":{"sessionId":"closed","path":"/w/a"}}"#)
        .await;
    expect![[r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32030,"message":"permission denied: rules are to be applied, and the proxy has none for this session: its stderr says why","data":{"why":"rules are to be applied, and the proxy has none for this session: its stderr says why"}}}"#]].assert_eq(&harness.agent.receive().await);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_hangs_holds_up_neither_messages_nor_for_long_the_end_of_the_turn() {
    let mut harness = start_harness(EngineInterceptorOptions::default(), ALL_CAPABILITIES).await;
    harness.send_prompt("s").await;
    harness.engine.0.scans_hang.store(true, Ordering::Relaxed);
    for number in 0..300 {
        let rest = format!(
            r#""sessionUpdate":"tool_call","toolCallId":"t{number}","title":"","status":"completed""#
        );
        harness.expect_forwarded(&update_line("s", &rest)).await;
    }
    harness.expect_forwarded(PROMPT_RESPONSE).await;
}

#[tokio::test]
async fn rules_answer_what_they_decide_and_the_editor_the_rest() {
    let mut harness = start_harness(
        EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() },
        ALL_CAPABILITIES,
    )
    .await;
    let ask = |id: u32, title: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"s","toolCall":{{"toolCallId":"c{id}","title":"{title}"}},"options":[{{"optionId":"y","name":"Yes","kind":"allow_once"}},{{"optionId":"n","name":"No","kind":"reject_once"}}]}}}}"#
        )
    };
    let mut transcript = String::new();
    for (id, title) in [(10, "allowed"), (11, "denied")] {
        harness.agent.send(&ask(id, title)).await;
        transcript += &(harness.agent.receive().await + "\n");
    }
    let question = ask(12, "asked");
    harness.expect_forwarded(&question).await;
    let approval = r#"{"jsonrpc":"2.0","id":12,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}"#;
    harness.editor.send(approval).await;
    assert_eq!(harness.agent.receive().await, approval);
    for (id, method, rest) in [
        (20, "fs/read_text_file", r#""path":"/w/.env""#),
        (21, "fs/write_text_file", r#""path":"/w/.env","content":"x""#),
        (22, "terminal/create", r#""command":"rm""#),
    ] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"s",{rest}}}}}"#
        );
        harness.agent.send(&line).await;
        transcript += &(harness.agent.receive().await + "\n");
    }
    harness
        .expect_forwarded(r#"{"jsonrpc":"2.0","id":23,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}"#)
        .await;
    harness.expect_forwarded(r#"{"jsonrpc":"2.0","id":24,"method":"terminal/create","params":{"sessionId":"s","command":"ls"}}"#).await;
    wait_until_async("the answer's event", || !harness.engine.0.events.lock().unwrap().is_empty()).await;
    harness.editor.send(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#).await;
    harness.agent.receive().await;
    wait_until_async("the cancellation", || harness.engine.0.events.lock().unwrap().len() >= 2).await;
    transcript += &harness.engine.0.events.lock().unwrap().join("\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":10,"result":{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"bowline":{"by":"proxy"}}}}
        {"jsonrpc":"2.0","id":11,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"by":"proxy"}}}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":22,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        c12 {"outcome":"selected","optionId":"y"}
        cancelled"#]].assert_eq(&transcript);
}

#[tokio::test]
async fn a_method_that_only_resembles_a_judged_one_is_refused() {
    let mut harness = start_harness(
        EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() },
        ALL_CAPABILITIES,
    )
    .await;
    let mut transcript = String::new();
    for method in [
        r#""FS/Write_Text_File""#,
        r#""fs/write_text_file ""#,
        r#""fs/write_text_file\u0000""#,
        r#""fs/write\u200b_text_file""#,
        r#""fs\/write_text_file.""#,
        r#""terminal/create\ud800""#,
        r#"["fs/write_text_file"]"#,
    ] {
        let params = r#"{"sessionId":"s","path":"/w/.env","content":""}"#;
        harness
            .agent
            .send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method},"params":{params}}}"#))
            .await;
        transcript += &format!("{method} {}\n", harness.agent.receive().await);
    }
    harness.expect_forwarded(r#"{"jsonrpc":"2.0","id":14,"method":"_zed.dev/Write_Text_File"}"#).await;
    expect![[r#"
        "FS/Write_Text_File" {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs/write_text_file " {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs/write_text_file\u0000" {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs/write\u200b_text_file" {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs\/write_text_file." {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "terminal/create\ud800" {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        ["fs/write_text_file"] {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
    "#]].assert_eq(&transcript);
}

#[tokio::test]
async fn what_rules_cannot_be_applied_to_is_refused() {
    let rules = EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() };
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":15,"method":"fs/write_text_file","params":{{"sessionId":"s","path":"/w/a","content":"{}"}}}}"#,
        "x".repeat(4 << 20)
    );
    let blank = format!(
        r#"{}{{"jsonrpc":"2.0","id":19,"method":"fs/write_text_file","params":{{}}}}"#,
        " ".repeat(4 << 20)
    );
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a","path":"/w/.env"}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"fs/read_text_file","params":{"sessionId":"s","path":7}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","path":"/w/.env","content":""}}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"fs/write_text_file","params":{"path":"/w/.env","content":""}}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":"terminal/create","params":{"sessionId":"s","sessionId":"t","command":"rm"}}"#,
        r#"{"jsonrpc":"2.0","id":6,"method":"terminal/create","params":["s","rm"]}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"terminal/create"}"#,
        r#"{"jsonrpc":"2.0","id":8,"method":"fs/read_text_file","params":{"sessionId":"other","path":"/w/.env"}}"#,
        r#"{"jsonrpc":"2.0","id":9,"method":"_x","method":"fs/write_text_file","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":10,"method":"fs/write_text_file","params":{},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"fs/write_text_file","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"fs/write_text_file","params":{}}"#,
        r#"{"jsonrpc":"2.0","ID":11,"method":"_x"}"#,
        r#"[{"jsonrpc":"2.0","id":12,"method":"fs/write_text_file","params":{}}]"#,
        r#"{"jsonrpc":"2.0","id":13,"m\u0065thod":"fs/write_text_file"}"#,
        r#"{"jsonrpc":"2.0","id":16,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a","Path":"/w/.env"}}"#,
        r#"{"jsonrpc":"2.0","id":17,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a","path\u0000":"/w/.env"}}"#,
        r#"{"jsonrpc":"2.0","id":21,"method":"_x","Method":"fs/write_text_file","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":22,"method":"_x"}{"jsonrpc":"2.0","id":23,"method":"fs/write_text_file"}"#,
        "[]\r{\"jsonrpc\":\"2.0\",\"id\":18,\"method\":\"fs/write_text_file\"}",
        &long,
    ];
    let mut harness = start_harness(rules, ALL_CAPABILITIES).await;
    let mut transcript = String::new();
    for line in lines {
        harness.agent.send(line).await;
        transcript += &(harness.agent.receive().await + "\n");
    }
    // An editor might take this answer for a request: it gets a plain answer instead, and the turn is over.
    harness.send_prompt("s").await;
    harness
        .agent
        .send(r#"{"jsonrpc":"2.0","id":2,"result":{},"method":"fs/write_text_file","params":{}}"#)
        .await;
    transcript += &(harness.editor.receive().await + "\n");
    // Lines that some readers accept after stripping blanks are dropped, without an answer if they are not messages to
    // us.
    harness
        .agent
        .send("\u{a0}{\"jsonrpc\":\"2.0\",\"id\":20,\"method\":\"fs/write_text_file\",\"params\":{}}")
        .await;
    harness.agent.send(&blank).await;
    harness.agent.send("Loading {}").await;
    // All other lines pass, including noise.
    harness.expect_forwarded("Loading …").await;
    harness.expect_forwarded(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#).await;
    harness
        .expect_forwarded(
            r#"{"jsonrpc":"2.0","id":14,"method":"_x","params":{"method":"fs/write_text_file"}}"#,
        )
        .await;
    harness.send_prompt("s").await;
    harness.expect_forwarded(PROMPT_RESPONSE).await;
    expect![[r#"
        {"jsonrpc":"2.0","id":1,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":3,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":5,"error":{"code":-32002,"message":"Resource not found: session t","data":{"sessionId":"t"}}}
        {"jsonrpc":"2.0","id":6,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":8,"error":{"code":-32002,"message":"Resource not found: session other","data":{"sessionId":"other"}}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":10,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        {"jsonrpc":"2.0","id":13,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":16,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":17,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        {"jsonrpc":"2.0","id":22,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        {"jsonrpc":"2.0","id":15,"error":{"code":-32600,"message":"rules are to be applied, and this line is too long to be looked at"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent's answer: rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
    "#]].assert_eq(&transcript);
}

#[tokio::test]
async fn a_message_with_two_meanings_goes_on_in_the_one_that_was_judged() {
    let mut harness = start_harness(
        EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() },
        ALL_CAPABILITIES,
    )
    .await;
    let mut transcript = String::new();
    for line in [
        r#"{"jsonrpc":"2.0","\u0069d":11,"method":"_x"}"#,
        r#"{"jsonrpc":"2.0","id":12,"method":"fs/write_text_file","method":"_x","params":{"path":"/w/.env"}}"#,
        r#"{"jsonrpc":"2.0","id":13,"m\u0065thod":"fs\/read_text_file","params":{"sessionId":"s","path":"/w/.env","path":"/w/a"}}"#,
        r#"{"jsonrpc":"2.0","id":14,"method":"terminal/create","params":{"command":"rm"},"params":{"sessionId":"s","command":"rm","comm\u0061nd":"ls","args":["-l"],"env":[{"name":"A","name":"B","value":"1"}],"_meta":{"n":1.50,"n":123456789012345678901234567890,"x":-0}}}"#,
        "{\"jsonrpc\":\"2.0\",\r\"id\":15, \"method\":\"_x\",\t\"_new\":1e5 }",
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","sessionId":"t","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half \ud83d"}}}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{"a":1,"a":2},"error":null}"#,
    ] {
        harness.agent.send(line).await;
        transcript += &(harness.editor.receive().await + "\n");
    }
    expect![[r#"
        {"jsonrpc":"2.0","id":11,"method":"_x"}
        {"jsonrpc":"2.0","id":12,"method":"_x","params":{"path":"/w/.env"}}
        {"jsonrpc":"2.0","id":13,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
        {"jsonrpc":"2.0","id":14,"method":"terminal/create","params":{"sessionId":"s","command":"ls","args":["-l"],"env":[{"name":"B","value":"1"}],"_meta":{"n":123456789012345678901234567890,"x":-0}}}
        {"jsonrpc":"2.0","id":15,"method":"_x","_new":1e5}
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"t","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half \ud83d"}}}}
        {"jsonrpc":"2.0","id":99,"result":{"a":2},"error":null}
    "#]]
    .assert_eq(&transcript);
    expect![[r#"
        Read { path: "/w/a" }
        Run(CommandRequest { command: "ls", args: ["-l"], env: [("B", "1")], cwd: None, output_limit: None })"#]]
    .assert_eq(&harness.engine.0.judged.lock().unwrap().join("\n"));
}

/// Returns a member of an object as it stands in a line, for readers that use the first of equal names.
fn first_member(object: &str, name: &str) -> Option<String> {
    struct FirstMemberVisitor<'a>(&'a str);
    impl<'de> serde::de::Visitor<'de> for FirstMemberVisitor<'_> {
        type Value = Option<Box<RawValue>>;

        fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            to.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut first = None;
            while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                if first.is_none() && name == self.0 {
                    first = Some(value);
                }
            }
            Ok(first)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(object);
    let found = serde::Deserializer::deserialize_map(&mut reader, FirstMemberVisitor(name)).unwrap();
    found.map(|value| value.get().to_owned())
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    #[test]
    fn readers_who_differ_read_what_was_judged(
        members in proptest::collection::vec((0..7_usize, 0..5_usize), 1..8),
        methods in proptest::collection::vec(0..4_usize, 1..3),
        is_first in proptest::prelude::any::<bool>(),
    ) {
        let names = ["path", r"p\u0061th", r"\u0070ath", "sessionId", r"session\u0049d", "_x", "Path"];
        let values = [r#""/w/a""#, r#""/w\/b""#, r#""\u002fw/.env""#, r#""s""#, "1.50"];
        let members = members.iter().map(|(name, value)| format!(r#""{}": {}"#, names[*name], values[*value]));
        let params = members.collect::<Vec<_>>().join(",\t");
        let candidates = [r#""fs/read_text_file""#, r#""fs\/read_text_file""#, r#""_x""#, r#""FS/read_text_file""#];
        let methods = methods.iter().map(|at| format!(r#""m\u0065thod":{}"#, candidates[*at]));
        let methods = methods.collect::<Vec<_>>().join(",").replacen(r"m\u0065thod", "method", usize::from(is_first));
        let line = format!(r#"{{"jsonrpc":"2.0","id":7,{methods},"params":{{"sessionId":"s",{params}}}}}"#);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (received, judged) = runtime.block_on(async {
            let mut harness = start_harness(EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() }, ALL_CAPABILITIES).await;
            harness.agent.send(&line).await;
            let received = tokio::select! {
                received = harness.editor.receive() => Some(received),
                _ = harness.agent.receive() => None,
            };
            let judged = harness.engine.0.judged.lock().unwrap().clone();
            (received, judged)
        });
        let Some(received) = received else { return Ok(()) };
        let last: serde_json::Value = serde_json::from_str(&received).unwrap();
        let first = |object: &str, name: &str| -> serde_json::Value {
            serde_json::from_str(&first_member(object, name).unwrap()).unwrap()
        };
        proptest::prop_assert_eq!(first(&received, "method"), last["method"].clone());
        let params = first_member(&received, "params").unwrap();
        if last["method"] == "fs/read_text_file" {
            let path = first(&params, "path");
            proptest::prop_assert_eq!(&path, &last["params"]["path"]);
            proptest::prop_assert_eq!(judged, [format!("Read {{ path: {path} }}")]);
            proptest::prop_assert_eq!(first(&params, "sessionId"), "s");
        } else {
            proptest::prop_assert_eq!(&last["method"], "_x");
            proptest::prop_assert!(judged.is_empty(), "{:?}", judged);
        }
    }
}

#[tokio::test]
async fn an_editor_that_says_it_serves_nothing_is_asked_for_nothing_that_rules_deny() {
    let mut harness = start_harness(
        EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() },
        "{}",
    )
    .await;
    harness
        .agent
        .send(r#"{"jsonrpc":"2.0","id":20,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/.env","content":""}}"#)
        .await;
    expect![[r#"{"jsonrpc":"2.0","id":20,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}"#]].assert_eq(&harness.agent.receive().await);
    harness
        .expect_forwarded(r#"{"jsonrpc":"2.0","id":21,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":""}}"#)
        .await;
}

#[tokio::test]
async fn what_the_editor_lacks_is_offered_and_served_here() {
    let mut harness = start_harness(
        EngineInterceptorOptions { serve_as_host: true, ..EngineInterceptorOptions::default() },
        r#"{"fs":{"readTextFile":true},"_x":[1]}"#,
    )
    .await;
    let mut transcript = String::new();
    for (id, method) in [(20, "fs/write_text_file"), (21, "terminal/create"), (22, "terminal/wait_for_exit")]
    {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"s","path":"/w/a"}}}}"#
        );
        harness.agent.send(&line).await;
        transcript += &(harness.agent.receive().await + "\n");
    }
    harness
        .agent
        .send(r#"{"jsonrpc":"2.0","id":23,"method":"terminal/create","params":{"sessionId":"unknown","command":"x"}}"#)
        .await;
    transcript += &(harness.agent.receive().await + "\n");
    // The editor still serves what it supports itself.
    harness
        .expect_forwarded(r#"{"jsonrpc":"2.0","id":24,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}"#)
        .await;
    expect![[r#"
        {"jsonrpc":"2.0","id":20,"result":{"here":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a"}}}
        {"jsonrpc":"2.0","id":21,"result":{"here":"terminal/create","params":{"sessionId":"s","path":"/w/a"}}}
        {"jsonrpc":"2.0","id":22,"result":{"here":"terminal/wait_for_exit","params":{"sessionId":"s","path":"/w/a"}}}
        {"jsonrpc":"2.0","id":23,"error":{"code":-32002,"message":"Resource not found: session unknown","data":{"sessionId":"unknown"}}}
    "#]].assert_eq(&transcript);
}

#[tokio::test]
async fn a_write_through_the_editor_begins_with_what_the_editor_has() {
    let mut harness = start_harness(EngineInterceptorOptions::default(), ALL_CAPABILITIES).await;
    let write = |id: u32, content: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/write_text_file","params":{{"sessionId":"s","path":"/w/a","content":"{content}","_meta":{{"x":1.0}}}}}}"#
        )
    };
    let mut transcript = String::new();
    for (id, content) in [(30, "plain"), (31, "merge"), (32, "conflict"), (33, "refused")] {
        harness.agent.send(&write(id, content)).await;
        let request = harness.editor.receive().await;
        transcript += &(request.clone() + "\n");
        let request: serde_json::Value = serde_json::from_str(&request).unwrap();
        harness
            .editor
            .send(
                &json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "content": "typed" } })
                    .to_string(),
            )
            .await;
        if content != "conflict" {
            let request = harness.editor.receive().await;
            transcript += &(request.clone() + "\n");
            let request: serde_json::Value = serde_json::from_str(&request).unwrap();
            let mut answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "_meta": null } });
            if content == "refused" {
                answer = json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32000, "message": "no" } });
            }
            harness.editor.send(&answer.to_string()).await;
        }
        transcript += &(harness.agent.receive().await + "\n");
    }
    transcript += &harness.engine.0.events.lock().unwrap().join("\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":"bowline-proxy-4","method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-5","method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":"plain","_meta":{"x":1.0}}}
        {"jsonrpc":"2.0","id":30,"result":{"_meta":null}}
        {"jsonrpc":"2.0","id":"bowline-proxy-7","method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-8","method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":"merged","_meta":{"x":1.0}}}
        {"jsonrpc":"2.0","id":31,"result":{"_meta":null}}
        {"jsonrpc":"2.0","id":"bowline-proxy-10","method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
        {"jsonrpc":"2.0","id":32,"error":{"code":-32602,"message":"/w/a: both changed it","data":{"reason":"conflict","path":"/w/a","why":"both changed it","hunks":[]}}}
        {"jsonrpc":"2.0","id":"bowline-proxy-12","method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-13","method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":"refused","_meta":{"x":1.0}}}
        {"jsonrpc":"2.0","id":33,"error":{"code":-32000,"message":"no"}}
        Some("typed") -> "plain" false
        Some("typed") -> "merge" false
        Some("typed") -> "conflict" false
        Some("typed") -> "refused" false
        not written"#]].assert_eq(&transcript);
}

#[tokio::test]
async fn a_change_that_is_routed_is_put_back_and_written_by_the_editor() {
    let mut harness = start_harness(
        EngineInterceptorOptions { route_writes: true, ..EngineInterceptorOptions::default() },
        ALL_CAPABILITIES,
    )
    .await;
    let mut transcript = String::new();
    for (call, is_refused) in [("t", false), ("u", true)] {
        harness.send_prompt("s").await;
        harness.change_file("/w/a");
        let rest =
            format!(r#""sessionUpdate":"tool_call","toolCallId":"{call}","title":"","status":"completed""#);
        harness.expect_forwarded(&update_line("s", &rest)).await;
        for answer in [json!({ "content": "old" }), json!({})] {
            let request: serde_json::Value = serde_json::from_str(&harness.editor.receive().await).unwrap();
            transcript += &format!("{} {}\n", request["method"], request["params"]);
            let answer = match is_refused && answer == json!({}) {
                true => {
                    json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": 1, "message": "no" } })
                }
                false => json!({ "jsonrpc": "2.0", "id": request["id"], "result": answer }),
            };
            harness.editor.send(&answer.to_string()).await;
        }
        let update = harness.editor.receive().await;
        transcript += &format!("{}\n", update.contains("diff"));
        harness.expect_forwarded(PROMPT_RESPONSE).await;
        transcript += &(std::mem::take(&mut *harness.engine.0.events.lock().unwrap()).join("\n") + "\n");
    }
    expect![[r#"
        "fs/read_text_file" {"sessionId":"s","path":"/w/a"}
        "fs/write_text_file" {"sessionId":"s","path":"/w/a","content":"new"}
        true
        put back
        Some("old") -> "new" false
        "fs/read_text_file" {"sessionId":"s","path":"/w/a"}
        "fs/write_text_file" {"sessionId":"s","path":"/w/a","content":"new"}
        true
        put back
        Some("old") -> "new" false
        not written
        the agent's again: no
    "#]]
    .assert_eq(&transcript);
}

#[tokio::test]
async fn diagnostics_pass_unchanged_and_the_sessions_they_are_for_hear_of_them_in_order() {
    let mut harness = start_harness(EngineInterceptorOptions::default(), ALL_CAPABILITIES).await;
    let share =
        |rest: &str| format!(r#"{{"jsonrpc":"2.0","method":"_bowline/diagnostics","params":{{{rest}}}}}"#);
    for line in [
        share(
            r#""sessionId":"s","path":"/w/a","diagnostics":[{"message":"one","_x":1.50},{"message":"two"}]"#,
        ),
        // For an unknown session, and without readable diagnostics.
        share(r#""sessionId":"other","path":"/w/b","diagnostics":[]"#),
        share(r#""path":"/w/b""#),
        // For all sessions.
        share(r#""path":"/w/c","diagnostics":[{"message":"three"}]"#),
    ] {
        harness.editor.send(&line).await;
        assert_eq!(harness.agent.receive().await, line);
    }
    // Diagnostics from an agent are ignored.
    harness.expect_forwarded(&share(r#""path":"/w/d","diagnostics":[{"message":"the agent's"}]"#)).await;
    let last = share(r#""sessionId":"s","path":"/w/a","diagnostics":[]"#);
    harness.editor.send(&last).await;
    assert_eq!(harness.agent.receive().await, last);
    let is_last = |event: &String| event == "/w/a: ";
    let has_last = || harness.engine.0.events.lock().unwrap().last().is_some_and(is_last);
    wait_until_async("the last diagnostics", has_last).await;
    let events = harness.engine.0.events.lock().unwrap().clone();
    // Diagnostics that arrive before the engine has the previous ones of the same file replace them.
    assert!(
        [&["/w/a: one, two", "/w/c: three", "/w/a: "][..], &["/w/c: three", "/w/a: "]]
            .iter()
            .any(|order| events.iter().map(String::as_str).eq(order.iter().copied())),
        "{events:?}"
    );
}

#[tokio::test]
async fn what_is_found_while_a_call_is_open_is_routed_when_none_is() {
    let mut harness = start_harness(
        EngineInterceptorOptions { route_writes: true, ..EngineInterceptorOptions::default() },
        ALL_CAPABILITIES,
    )
    .await;
    harness.send_prompt("s").await;
    harness.change_file("/w/a");
    let call = |fields: &str| update_line("s", &format!(r#""toolCallId":"t",{fields}"#));
    harness.expect_forwarded(&call(r#""sessionUpdate":"tool_call","title":"","status":"in_progress""#)).await;
    // The change is shown, and the editor gets no request.
    let update = harness.editor.receive().await;
    assert!(update.contains("diff"), "{update}");
    harness.expect_forwarded(&call(r#""sessionUpdate":"tool_call_update","status":"completed""#)).await;
    let request = harness.editor.receive().await;
    assert!(request.contains("fs/read_text_file"), "{request}");
}

const GEMINI_INITIALIZE_RESULT: &str =
    r#"{"protocolVersion":1,"agentInfo":{"name":"gemini-cli","version":"0.61.0"}}"#;

fn read_request(id: u32, path: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/read_text_file","params":{{"sessionId":"s","path":"{path}"}}}}"#
    )
}

/// Answers the next request to the editor, and returns its method and params.
async fn answer_next(harness: &mut EngineHarness, answer: serde_json::Value) -> String {
    let line = harness.editor.receive().await;
    let request: serde_json::Value = serde_json::from_str(&line).unwrap();
    let mut message = json!({ "jsonrpc": "2.0", "id": request["id"] });
    message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
    harness.editor.send(&message.to_string()).await;
    format!("editor: {} {}\n", request["method"], request["params"])
}

#[tokio::test]
async fn gemini_reads_a_missing_file_as_empty_and_replaces_none_that_appears() {
    let mut harness =
        start_harness_with(EngineInterceptorOptions::default(), ALL_CAPABILITIES, GEMINI_INITIALIZE_RESULT)
            .await;
    let missing = json!({ "error": { "code": -32002, "message": "Resource not found" } });
    let by_node = json!({ "error": { "code": -32603, "message": "Internal error", "data": { "details": "ENOENT: no such file" } } });
    let denied = json!({ "error": { "code": -32603, "message": "access denied" } });
    let text = |text: &str| json!({ "result": { "content": text } });
    let write = |id: u32, path: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/write_text_file","params":{{"sessionId":"s","path":"{path}","content":"new"}}}}"#
        )
    };
    let mut transcript = String::new();
    let reads = [("/w/a", missing.clone()), ("/w/b", by_node), ("/w/c", denied), ("/w/d", text("there"))];
    for (id, (path, answer)) in (30..).zip(reads) {
        harness.agent.send(&read_request(id, path)).await;
        transcript += &answer_next(&mut harness, answer).await;
        transcript += &format!("agent: {}\n", harness.agent.receive().await);
    }
    // The first is still missing, the second has appeared, the third was read.
    for (id, path, editor_reply) in
        [(40, "/w/a", missing), (41, "/w/b", text("the user's")), (42, "/w/d", text("there"))]
    {
        let is_refused = path == "/w/b";
        harness.agent.send(&write(id, path)).await;
        transcript += &answer_next(&mut harness, editor_reply).await;
        if !is_refused {
            transcript += &answer_next(&mut harness, json!({ "result": {} })).await;
        }
        transcript += &format!("agent: {}\n", harness.agent.receive().await);
    }
    transcript += &harness.engine.0.events.lock().unwrap().join("\n");
    expect![[r#"
        editor: "fs/read_text_file" {"sessionId":"s","path":"/w/a"}
        agent: {"jsonrpc":"2.0","id":30,"result":{"content":""}}
        editor: "fs/read_text_file" {"sessionId":"s","path":"/w/b"}
        agent: {"jsonrpc":"2.0","id":31,"result":{"content":""}}
        editor: "fs/read_text_file" {"sessionId":"s","path":"/w/c"}
        agent: {"jsonrpc":"2.0","id":32,"error":{"code":-32603,"message":"access denied"}}
        editor: "fs/read_text_file" {"sessionId":"s","path":"/w/d"}
        agent: {"jsonrpc":"2.0","id":33,"result":{"content":"there"}}
        editor: "fs/read_text_file" {"sessionId":"s","path":"/w/a"}
        editor: "fs/write_text_file" {"sessionId":"s","path":"/w/a","content":"new"}
        agent: {"jsonrpc":"2.0","id":40,"result":{}}
        editor: "fs/read_text_file" {"sessionId":"s","path":"/w/b"}
        agent: {"jsonrpc":"2.0","id":41,"error":{"code":-32602,"message":"/w/b: the file was missing when it was read, and has appeared since: nothing was written, read it again","data":{"reason":"conflict","path":"/w/b","why":"the file was missing when it was read, and has appeared since: nothing was written, read it again","hunks":[]}}}
        editor: "fs/read_text_file" {"sessionId":"s","path":"/w/d"}
        editor: "fs/write_text_file" {"sessionId":"s","path":"/w/d","content":"new"}
        agent: {"jsonrpc":"2.0","id":42,"result":{}}
        /w/a: a missing file is read as empty text for gemini-cli: it reads a file before it creates it, and gives up on any error (BOWLINE_NO_QUIRKS=1 turns this off)
        /w/b: a missing file is read as empty text for gemini-cli: it reads a file before it creates it, and gives up on any error (BOWLINE_NO_QUIRKS=1 turns this off)
        None -> "new" false
        Some("there") -> "new" true"#]].assert_eq(&transcript);
}

#[tokio::test]
async fn for_other_agents_and_without_the_table_reads_pass_as_they_are() {
    let without_quirks = EngineInterceptorOptions {
        quirks: bowline_protocol::quirks::QuirkMode::Off,
        ..EngineInterceptorOptions::default()
    };
    for (options, initialized) in [
        (without_quirks, GEMINI_INITIALIZE_RESULT),
        (EngineInterceptorOptions::default(), r#"{"protocolVersion":1}"#),
    ] {
        let mut harness = start_harness_with(options, ALL_CAPABILITIES, initialized).await;
        let read = read_request(30, "/w/a");
        harness.agent.send(&read).await;
        assert_eq!(harness.editor.receive().await, read);
        let missing = r#"{"jsonrpc":"2.0","id":30,"error":{"code":-32002,"message":"Resource not found"}}"#;
        harness.editor.send(missing).await;
        assert_eq!(harness.agent.receive().await, missing);
    }
}

#[tokio::test]
async fn gemini_reads_a_missing_file_that_is_served_here_as_empty() {
    let mut harness = start_harness_with(
        EngineInterceptorOptions { serve_as_host: true, ..EngineInterceptorOptions::default() },
        "{}",
        GEMINI_INITIALIZE_RESULT,
    )
    .await;
    harness.agent.send(&read_request(30, "/w/missing")).await;
    assert_eq!(harness.agent.receive().await, r#"{"jsonrpc":"2.0","id":30,"result":{"content":""}}"#);
    let events = harness.engine.0.events.lock().unwrap().join("\n");
    assert!(events.contains("is read as empty text for gemini-cli"), "{events}");
}

#[tokio::test]
async fn the_file_extension_of_the_editor_is_judged() {
    let capabilities = r#"{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true,"_meta":{"bowline":{"decides":true,"version":1,"fs":{"list":{},"read":{"maxBytes":1},"batch":{"maxOperations":1},"watch":{}}}}}"#;
    let read =
        r#"{"jsonrpc":"2.0","id":9,"method":"_bowline/fs/read","params":{"sessionId":"s","path":"/w/a"}}"#;
    let mut harness = start_harness(EngineInterceptorOptions::default(), capabilities).await;
    assert!(harness.received_initialize.contains(capabilities), "{}", harness.received_initialize);
    harness.expect_forwarded(read).await;
    let options = EngineInterceptorOptions { enforce_policy: true, ..EngineInterceptorOptions::default() };
    let mut harness = start_harness(options, capabilities).await;
    let initialize: Value = serde_json::from_str(&harness.received_initialize).unwrap();
    expect![[r#"{"list":{},"read":{"maxBytes":1},"batch":{"maxOperations":1}}"#]]
        .assert_eq(&initialize["params"]["clientCapabilities"]["_meta"]["bowline"]["fs"].to_string());
    let batch = |operations: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"_bowline/fs/batch","params":{{"sessionId":"s","operations":[{operations}]}}}}"#
        )
    };
    let copy = r#"{"op":"copy","from":"/w/a","to":"/w/b"}"#;
    for passed in [read, &read.replace("fs/read", "fs/list"), &batch(copy), &batch("")] {
        harness.expect_forwarded(passed).await;
    }
    let judged = harness.engine.0.judged.lock().unwrap().len();
    assert_eq!(judged, 4);
    let mut answers = String::new();
    for refused in [
        read.replace("/w/a", "/w/.env"),
        batch(&copy.replace("/w/a", "/w/.env")),
        batch(r#"{"op":"remove","path":"/w/a"},{"op":"remove","path":"/w/a"}"#),
        // A lenient editor may read the other member.
        batch(r#"{"op":"remove","path":"/w/a","Path":"/w/.env"}"#),
        batch("1"),
        read.replace(r#""path""#, r#""paths""#),
        // These are not offered.
        read.replace("fs/read", "fs/stat"),
        read.replace("fs/read", "fs/watch"),
        read.replace("fs/read", "fs/no_such_method"),
    ] {
        harness.agent.send(&refused).await;
        answers += &(harness.agent.receive().await + "\n");
    }
    expect![[r#"
        {"jsonrpc":"2.0","id":9,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"kind":"permissionDenied","why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"kind":"permissionDenied","why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"operation 1: /w/a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/w/a","other":0}}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"operation 0: the operation is wrong: expected an operation at column 1","data":{"kind":"badParams","index":0}}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"rules are to be applied to this request, and it cannot be read"}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"Method not found","data":{"kind":"internal"}}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"Method not found","data":{"kind":"internal"}}}
        {"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"Method not found","data":{"kind":"internal"}}}
    "#]].assert_eq(&answers);
}

#[tokio::test]
async fn the_file_extension_is_served_where_the_editor_has_no_files() {
    let read =
        r#"{"jsonrpc":"2.0","id":9,"method":"_bowline/fs/read","params":{"sessionId":"s","path":"/w/a"}}"#;
    for enforce_policy in [false, true] {
        let options = EngineInterceptorOptions {
            serve_as_host: true,
            enforce_policy,
            ..EngineInterceptorOptions::default()
        };
        let mut harness = start_harness(options, r#"{"_meta":{"other":1}}"#).await;
        let initialize: Value = serde_json::from_str(&harness.received_initialize).unwrap();
        expect![[
            r#"{"other":1,"bowline":{"version":1,"fs":{"list":{"maxEntries":2000},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}"#
        ]]
        .assert_eq(&initialize["params"]["clientCapabilities"]["_meta"].to_string());
        harness.agent.send(read).await;
        let answer = harness.agent.receive().await;
        assert!(answer.contains(r#""id":9,"result":{"here":"_bowline/fs/read""#), "{answer}");
        // The answer follows the changes of earlier watches, and is followed by those of its own.
        harness.agent.send(&read.replace("fs/read", "fs/watch")).await;
        assert_eq!(harness.agent.receive().await, r#""of an earlier watch""#);
        let answer = harness.agent.receive().await;
        assert!(answer.contains(r#""id":9,"result":{"sessionId":"s""#), "{answer}");
        assert_eq!(harness.agent.receive().await, r#""of this watch""#);
    }
    // An editor with files has unsaved text that the engine does not know.
    let options = EngineInterceptorOptions { serve_as_host: true, ..EngineInterceptorOptions::default() };
    let mut harness = start_harness(options, r#"{"fs":{"readTextFile":true}}"#).await;
    assert!(!harness.received_initialize.contains("bowline"), "{}", harness.received_initialize);
    harness.expect_forwarded(read).await;
}

#[tokio::test]
async fn a_host_learns_what_the_user_approves_before_the_agent_does() {
    let options = EngineInterceptorOptions { serve_as_host: true, ..EngineInterceptorOptions::default() };
    let request = |number: u32, call: &str| {
        let offered = r#"[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]"#;
        format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"session/request_permission","params":{{"sessionId":"s","toolCall":{call},"options":{offered}}}}}"#
        )
    };
    let answer = |number: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{number},"result":{{"outcome":{{"outcome":"selected","optionId":"y"}}}}}}"#
        )
    };
    let mut harness = start_harness(options, "{}").await;
    harness.expect_forwarded(&request(20, r#"{"toolCallId":"shown","title":"asked"}"#)).await;
    harness.editor.send(&answer(20)).await;
    assert_eq!(harness.agent.receive().await, answer(20));
    assert_eq!(
        harness.engine.0.events.lock().unwrap().join("\n"),
        r#"shown {"outcome":"selected","optionId":"y"}"#
    );
    // What an editor can read in two ways grants nothing.
    harness.expect_forwarded(&request(21, r#"{"toolCallId":"a","toolCallId":"b","title":"asked"}"#)).await;
    harness.editor.send(&answer(21)).await;
    assert_eq!(harness.agent.receive().await, answer(21));
    // The rules of a host answer what they decide.
    harness.agent.send(&request(22, r#"{"toolCallId":"ruled","title":"denied"}"#)).await;
    expect![[r#"{"jsonrpc":"2.0","id":22,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"by":"proxy"}}}}"#]].assert_eq(&harness.agent.receive().await);
    assert_eq!(harness.engine.0.events.lock().unwrap().len(), 1);
    // An editor that serves all of it knows what it allowed.
    let mut harness = start_harness(options, ALL_CAPABILITIES).await;
    harness.expect_forwarded(&request(20, r#"{"toolCallId":"shown","title":"denied"}"#)).await;
}
