//! An engine beside two ends in memory: what is held, answered, served and shown, and that all else passes.

use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_mcp::server::{Described, News, Resources};
use bowline_state::accumulator::ToolCallView;
use bowline_state::changes::ChangeId;
use bowline_state::diagnostics::Diagnostic;
use bowline_state::relay::Opening as Asked;
use bowline_state::schema::v1::{
    Error, PermissionOption, PermissionOptionKind, RequestPermissionOutcome, SelectedPermissionOutcome,
    ToolCallId,
};
use bowline_state::watching::{Found, Owners};
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use expect_test::expect;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::*;
use crate::between::{BoxFuture, Chain};
use crate::engine::{Act, Again, EditorWrites, Judged, Recorded};
use crate::proxy::tests::{Echo, Far, pair};
use crate::proxy::{Ends, Proxy, Settings};

mod unopened;

/// An engine whose disk is what a test puts there.
#[derive(Default)]
struct Disk {
    changed: Mutex<Vec<String>>,
    turns: AtomicUsize,
    looks: AtomicUsize,
    // Whether looks take for ever.
    hangs: std::sync::atomic::AtomicBool,
    told: Mutex<Vec<String>>,
    // What was asked to pass, in order.
    judged: Mutex<Vec<String>>,
}

#[derive(Clone, Default)]
struct TestEngine(Arc<Disk>);

impl Engine for TestEngine {
    fn prepares(&self, _: &Asked) {}

    fn notes(&self, line: &str) {
        self.tell(line.to_owned());
    }

    fn opens(&self, opened: &Opened) -> BoxFuture<Option<Arc<dyn EngineSession>>> {
        let session =
            (opened.session.0.as_ref() != "closed").then(|| Arc::new(self.clone()) as Arc<dyn EngineSession>);
        Box::pin(std::future::ready(session))
    }
}

impl TestEngine {
    fn tell(&self, what: String) {
        self.0.told.lock().unwrap().push(what);
    }

    fn found(&self, owners: &Owners) -> Vec<Found> {
        let changed = std::mem::take(&mut *self.0.changed.lock().unwrap());
        let each = changed.into_iter().map(|path| Found {
            change: ChangeId(1),
            call: owners.of(&path).map(|call| call.0.to_string()),
            path,
            before: Some("old".to_owned()),
            after: Some("new".to_owned()),
        });
        each.collect()
    }

    fn looked(&self, owners: Owners) -> BoxFuture<Vec<Found>> {
        let engine = self.clone();
        Box::pin(async move {
            if engine.0.hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let found = engine.found(&owners);
            engine.0.looks.fetch_add(1, Ordering::Relaxed);
            found
        })
    }
}

impl EngineSession for TestEngine {
    fn place(&self) -> Place {
        Place { asked: "/w".to_owned(), own: "/w".to_owned() }
    }

    fn turn_begins(&self, _: Option<String>) -> BoxFuture<()> {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {})
    }

    fn turn_ends(&self, owners: Owners) -> BoxFuture<Vec<Found>> {
        self.looked(owners)
    }

    fn cancels(&self) -> BoxFuture<()> {
        self.tell("cancelled".to_owned());
        Box::pin(async {})
    }

    fn looks(&self, owners: Owners) -> BoxFuture<Vec<Found>> {
        self.looked(owners)
    }

    fn judges(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> BoxFuture<Result<Judged, Failure>> {
        let kind = match &*call.title {
            "allowed" => PermissionOptionKind::AllowOnce,
            "denied" => PermissionOptionKind::RejectOnce,
            _ => return Box::pin(async { Ok(Judged::Ask) }),
        };
        let option = options.into_iter().find(|option| option.kind == kind).unwrap();
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id));
        Box::pin(async move { Ok(Judged::Answered(RequestPermissionResponse::new(outcome))) })
    }

    fn permitted(&self, call: ToolCallId, outcome: RequestPermissionOutcome) -> BoxFuture<()> {
        self.tell(format!("{} {}", call.0, json!(outcome)));
        Box::pin(async {})
    }

    fn left_to_tool(&self, call: ToolCallId) -> BoxFuture<()> {
        self.tell(format!("{} is left to its tool", call.0));
        Box::pin(async {})
    }

    fn lets(&self, act: Act, _: Option<String>) -> BoxFuture<Result<(), Failure>> {
        self.0.judged.lock().unwrap().push(format!("{act:?}"));
        let is_denied = match act {
            Act::Read { path } | Act::Write { path, .. } => path.ends_with(".env"),
            Act::Run(asked) => asked.command == "rm",
        };
        let why = "a rule denies it".to_owned();
        Box::pin(async move { if is_denied { Err(Failure::Denied { why }) } else { Ok(()) } })
    }

    fn editor_writes(&self, write: EditorWrites) -> BoxFuture<Result<Recorded, Failure>> {
        let engine = self.clone();
        engine.tell(format!("{:?} -> {:?} {}", write.had, write.wants, write.has_read));
        let text = if write.wants == "merge" { "merged".to_owned() } else { write.wants };
        let undone: BoxFuture<()> = Box::pin(async move { engine.tell("not written".to_owned()) });
        Box::pin(async move {
            if text == "conflict" {
                let (path, why) = (write.path, "both changed it".to_owned());
                return Err(Failure::Conflict { path, why, hunks: Vec::new() });
            }
            Ok(Recorded { text, undone })
        })
    }

    fn puts_back(&self, _: ChangeId) -> BoxFuture<Option<Again>> {
        self.tell("put back".to_owned());
        let engine = self.clone();
        let again: Again =
            Box::new(|why| Box::pin(async move { engine.tell(format!("the agent's again: {why}")) }));
        Box::pin(async move { Some(again) })
    }

    fn serves(
        &self,
        method: String,
        params: Box<RawValue>,
        _: Option<String>,
    ) -> BoxFuture<Result<Box<RawValue>, Error>> {
        let answer = to_raw_value(&json!({ "here": method, "params": params })).unwrap();
        let is_missing = params.get().contains("/w/missing");
        let missing = Failure::ResourceNotFound { uri: Some("/w/missing".to_owned()) };
        Box::pin(async move { if is_missing { Err(missing.into()) } else { Ok(answer) } })
    }

    fn lists(&self, _: String, _: ListOptions) -> BoxFuture<Result<Listing, Failure>> {
        Box::pin(async { Err(unserved()) })
    }

    fn searches(&self, _: SearchQuery, _: Option<String>) -> BoxFuture<Result<SearchResult, Failure>> {
        Box::pin(async { Err(unserved()) })
    }

    fn diagnosed(&self, path: String, diagnostics: Vec<Diagnostic>) -> BoxFuture<()> {
        let (engine, messages) = (self.clone(), diagnostics.into_iter().map(|one| one.message));
        let messages = messages.collect::<Vec<_>>().join(", ");
        Box::pin(async move { engine.tell(format!("{path}: {messages}")) })
    }

    fn shelf(&self) -> Arc<dyn Resources> {
        Arc::new(Empty)
    }

    fn ends(&self) -> BoxFuture<()> {
        Box::pin(async {})
    }
}

struct Empty;

impl Resources for Empty {
    fn list(&self) -> bowline_workspace::approvals::BoxFuture<'_, Vec<Described>> {
        Box::pin(async { Vec::new() })
    }

    fn read<'a>(
        &'a self,
        _: &'a str,
    ) -> bowline_workspace::approvals::BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async { Ok(None) })
    }

    fn news(&self) -> tokio::sync::broadcast::Receiver<News> {
        tokio::sync::broadcast::Sender::new(1).subscribe()
    }
}

struct Stage {
    editor: Far,
    agent: Far,
    engine: TestEngine,
    _running: tokio::task::JoinHandle<crate::proxy::Ended>,
}

/// A stage on which a session is open.
async fn stage(options: Options, capabilities: &str) -> Stage {
    stage_with(options, capabilities, r#"{"protocolVersion":1}"#).await
}

/// A stage whose agent answers `initialize` so.
async fn stage_with(options: Options, capabilities: &str, initialized: &str) -> Stage {
    let ((editor, near_editor), (agent, near_agent)): ((Far, Ends), (Far, Ends)) =
        (pair(1 << 20), pair(1 << 20));
    let engine = TestEngine::default();
    let (line, (telling, told)) = (Line::default(), mpsc::channel(64));
    let sessions = Sessions::new(options);
    let beside = Beside::new(Arc::new(engine.clone()), sessions, (line.clone(), telling), Chain::default());
    let settings = Settings { strict: options.rules, look: 100 << 10, ..Settings::default() };
    let (caller, proxy) = Proxy::new(beside, Echo, settings);
    line.connect(caller);
    let farewell = async { "gone".to_owned() };
    let running =
        tokio::spawn(proxy.telling(told).run(near_editor, near_agent, farewell, std::future::pending()));
    let mut stage = Stage { editor, agent, engine, _running: running };
    let hello = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":1,"clientCapabilities":{capabilities}}}}}"#
    );
    stage.editor.say(&hello).await;
    let heard = stage.agent.hear().await;
    if !options.host {
        assert_eq!(heard, hello);
    }
    stage.agent.say(&format!(r#"{{"jsonrpc":"2.0","id":0,"result":{initialized}}}"#)).await;
    stage.editor.hear().await;
    stage.opens("s").await;
    stage
}

impl Stage {
    async fn opens(&mut self, session: &str) {
        let new = r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}"#;
        self.editor.say(new).await;
        assert_eq!(self.agent.hear().await, new);
        let opened = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"sessionId":"{session}"}}}}"#);
        self.agent.say(&opened).await;
        assert_eq!(self.editor.hear().await, opened);
    }

    async fn prompts(&mut self, session: &str) {
        let prompt = format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[]}}}}"#
        );
        self.editor.say(&prompt).await;
        assert_eq!(self.agent.hear().await, prompt);
    }

    fn changes(&self, path: &str) {
        self.engine.0.changed.lock().unwrap().push(path.to_owned());
    }

    /// The agent says something that passes.
    async fn passes(&mut self, line: &str) {
        self.agent.say(line).await;
        assert_eq!(self.editor.hear().await, line);
    }
}

const FULL: &str = r#"{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;

fn update(session: &str, rest: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{{rest}}}}}}}"#
    )
}

#[tokio::test]
async fn what_a_call_changed_is_shown_on_it_after_the_agents_own_update_and_before_the_turns_end() {
    let mut stage = stage(Options::default(), FULL).await;
    stage.prompts("s").await;
    assert_eq!(stage.engine.0.turns.load(Ordering::Relaxed), 1);
    stage.passes(&update("s", r#""sessionUpdate":"tool_call","toolCallId":"t","title":"é","_x":1.50"#)).await;
    // The look at its beginning is over.
    while stage.engine.0.looks.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    stage.changes("/w/a");
    stage
        .passes(&update("s", r#""sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed""#))
        .await;
    let shown = stage.editor.hear().await;
    stage.changes("/w/b");
    stage.agent.say(ANSWER).await;
    let answer = stage.editor.hear().await;
    expect![[r#"
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"diff","path":"/w/a","oldText":"old","newText":"new"}],"_meta":{"bowline":{"observed":1}}}}}
        {"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}
    "#]]
    .assert_eq(&format!("{shown}\n{answer}\n"));
}

#[tokio::test]
async fn content_that_the_agent_gives_later_keeps_the_diffs_that_were_added() {
    // As opencode 1.18.33 tells of its own write: the file is there before the call has ended, and the result comes last.
    let mut stage = stage(Options::default(), FULL).await;
    stage.prompts("s").await;
    stage.passes(&update("s", r#""sessionUpdate":"tool_call","toolCallId":"t","title":"write","kind":"edit","status":"pending""#)).await;
    while stage.engine.0.looks.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    stage.changes("/w/a");
    stage
        .passes(&update("s", r#""sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress""#))
        .await;
    let mut heard = vec![stage.editor.hear().await];
    let text = r#""content":[{"type":"content","content":{"type":"text","text":"Wrote file"}}],"n":1.50"#;
    let its_diff = r#""content":[{"type":"diff","path":"/w/a","oldText":"old","newText":"new"}]"#;
    for rest in [&format!(r#""status":"completed",{text}"#), text, its_diff, r#""title":"a""#] {
        let rest = format!(r#""sessionUpdate":"tool_call_update","toolCallId":"t",{rest}"#);
        stage.agent.say(&update("s", &rest)).await;
        heard.push(stage.editor.hear().await);
    }
    stage.agent.say(ANSWER).await;
    heard.push(stage.editor.hear().await);
    let updates = heard.iter().map(|line| line.replace(&update("s", "").replace("}}}", ""), "..."));
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
    let mut stage = stage(Options { rules: true, ..Options::default() }, FULL).await;
    stage.opens("closed").await;
    for session in ["closed", "unknown"] {
        stage.prompts(session).await;
        stage.changes("/w/a");
        stage
            .passes(&update(
                session,
                r#""sessionUpdate":"tool_call","toolCallId":"t","title":"","status":"completed""#,
            ))
            .await;
        stage.passes(ANSWER).await;
    }
    // A second answer to the same prompt is passed on, and means nothing.
    stage.passes(ANSWER).await;
    // Rules that cannot be asked do not mean yes.
    stage
        .agent
        .say(r#"{"jsonrpc":"2.0","id":9,"method":"fs/read_text_file","params":{"sessionId":"closed","path":"/w/a"}}"#)
        .await;
    expect![[r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32030,"message":"permission denied: rules are to be applied, and the proxy has none for this session: its stderr says why","data":{"why":"rules are to be applied, and the proxy has none for this session: its stderr says why"}}}"#]].assert_eq(&stage.agent.hear().await);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_hangs_holds_up_neither_messages_nor_for_long_the_end_of_the_turn() {
    let mut stage = stage(Options::default(), FULL).await;
    stage.prompts("s").await;
    stage.engine.0.hangs.store(true, Ordering::Relaxed);
    for number in 0..300 {
        let rest = format!(
            r#""sessionUpdate":"tool_call","toolCallId":"t{number}","title":"","status":"completed""#
        );
        stage.passes(&update("s", &rest)).await;
    }
    stage.passes(ANSWER).await;
}

#[tokio::test]
async fn rules_answer_what_they_decide_and_the_editor_the_rest() {
    let mut stage = stage(Options { rules: true, ..Options::default() }, FULL).await;
    let ask = |id: u32, title: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"s","toolCall":{{"toolCallId":"c{id}","title":"{title}"}},"options":[{{"optionId":"y","name":"Yes","kind":"allow_once"}},{{"optionId":"n","name":"No","kind":"reject_once"}}]}}}}"#
        )
    };
    let mut told = String::new();
    for (id, title) in [(10, "allowed"), (11, "denied")] {
        stage.agent.say(&ask(id, title)).await;
        told += &(stage.agent.hear().await + "\n");
    }
    let asked = ask(12, "asked");
    stage.passes(&asked).await;
    let yes = r#"{"jsonrpc":"2.0","id":12,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}"#;
    stage.editor.say(yes).await;
    assert_eq!(stage.agent.hear().await, yes);
    for (id, method, rest) in [
        (20, "fs/read_text_file", r#""path":"/w/.env""#),
        (21, "fs/write_text_file", r#""path":"/w/.env","content":"x""#),
        (22, "terminal/create", r#""command":"rm""#),
    ] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"s",{rest}}}}}"#
        );
        stage.agent.say(&line).await;
        told += &(stage.agent.hear().await + "\n");
    }
    stage
        .passes(r#"{"jsonrpc":"2.0","id":23,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}"#)
        .await;
    stage.passes(r#"{"jsonrpc":"2.0","id":24,"method":"terminal/create","params":{"sessionId":"s","command":"ls"}}"#).await;
    while stage.engine.0.told.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    stage.editor.say(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#).await;
    stage.agent.hear().await;
    while stage.engine.0.told.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    told += &stage.engine.0.told.lock().unwrap().join("\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":10,"result":{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"bowline":{"by":"proxy"}}}}
        {"jsonrpc":"2.0","id":11,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"by":"proxy"}}}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        {"jsonrpc":"2.0","id":22,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
        c12 {"outcome":"selected","optionId":"y"}
        cancelled"#]].assert_eq(&told);
}

#[tokio::test]
async fn a_method_that_only_resembles_a_judged_one_is_refused() {
    let mut stage = stage(Options { rules: true, ..Options::default() }, FULL).await;
    let mut told = String::new();
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
        stage.agent.say(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method},"params":{params}}}"#)).await;
        told += &format!("{method} {}\n", stage.agent.hear().await);
    }
    stage.passes(r#"{"jsonrpc":"2.0","id":14,"method":"_zed.dev/Write_Text_File"}"#).await;
    expect![[r#"
        "FS/Write_Text_File" {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs/write_text_file " {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs/write_text_file\u0000" {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs/write\u200b_text_file" {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "fs\/write_text_file." {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        "terminal/create\ud800" {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
        ["fs/write_text_file"] {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"rules are to be applied, and this line can be taken for different messages: write each name once and plainly, one message a line"}}
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn what_rules_cannot_be_applied_to_is_refused() {
    let rules = Options { rules: true, ..Options::default() };
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
    let mut stage = stage(rules, FULL).await;
    let mut told = String::new();
    for line in lines {
        stage.agent.say(line).await;
        told += &(stage.agent.hear().await + "\n");
    }
    // An editor might take this answer for a request: it gets one that is none, and the turn is over.
    stage.prompts("s").await;
    stage
        .agent
        .say(r#"{"jsonrpc":"2.0","id":2,"result":{},"method":"fs/write_text_file","params":{}}"#)
        .await;
    told += &(stage.editor.hear().await + "\n");
    // What some readers take blanks off is dropped, unanswered if it is no message to us.
    stage
        .agent
        .say("\u{a0}{\"jsonrpc\":\"2.0\",\"id\":20,\"method\":\"fs/write_text_file\",\"params\":{}}")
        .await;
    stage.agent.say(&blank).await;
    stage.agent.say("Loading {}").await;
    // All else passes, and noise too.
    stage.passes("Loading …").await;
    stage.passes(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#).await;
    stage.passes(r#"{"jsonrpc":"2.0","id":14,"method":"_x","params":{"method":"fs/write_text_file"}}"#).await;
    stage.prompts("s").await;
    stage.passes(ANSWER).await;
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
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn a_message_with_two_meanings_goes_on_in_the_one_that_was_judged() {
    let mut stage = stage(Options { rules: true, ..Options::default() }, FULL).await;
    let mut told = String::new();
    for line in [
        r#"{"jsonrpc":"2.0","\u0069d":11,"method":"_x"}"#,
        r#"{"jsonrpc":"2.0","id":12,"method":"fs/write_text_file","method":"_x","params":{"path":"/w/.env"}}"#,
        r#"{"jsonrpc":"2.0","id":13,"m\u0065thod":"fs\/read_text_file","params":{"sessionId":"s","path":"/w/.env","path":"/w/a"}}"#,
        r#"{"jsonrpc":"2.0","id":14,"method":"terminal/create","params":{"command":"rm"},"params":{"sessionId":"s","command":"rm","comm\u0061nd":"ls","args":["-l"],"env":[{"name":"A","name":"B","value":"1"}],"_meta":{"n":1.50,"n":123456789012345678901234567890,"x":-0}}}"#,
        "{\"jsonrpc\":\"2.0\",\r\"id\":15, \"method\":\"_x\",\t\"_new\":1e5 }",
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","sessionId":"t","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half \ud83d"}}}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{"a":1,"a":2},"error":null}"#,
    ] {
        stage.agent.say(line).await;
        told += &(stage.editor.hear().await + "\n");
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
    .assert_eq(&told);
    expect![[r#"
        Read { path: "/w/a" }
        Run(Asked { command: "ls", args: ["-l"], env: [("B", "1")], cwd: None, output_limit: None })"#]]
    .assert_eq(&stage.engine.0.judged.lock().unwrap().join("\n"));
}

/// The members of an object as they stand in a line, for readers to whom the first of equal names counts.
fn first_member(object: &str, name: &str) -> Option<String> {
    struct First<'a>(&'a str);
    impl<'de> serde::de::Visitor<'de> for First<'_> {
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
    let found = serde::Deserializer::deserialize_map(&mut reader, First(name)).unwrap();
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
        let known = [r#""fs/read_text_file""#, r#""fs\/read_text_file""#, r#""_x""#, r#""FS/read_text_file""#];
        let methods = methods.iter().map(|at| format!(r#""m\u0065thod":{}"#, known[*at]));
        let methods = methods.collect::<Vec<_>>().join(",").replacen(r"m\u0065thod", "method", usize::from(is_first));
        let line = format!(r#"{{"jsonrpc":"2.0","id":7,{methods},"params":{{"sessionId":"s",{params}}}}}"#);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (heard, judged) = runtime.block_on(async {
            let mut stage = stage(Options { rules: true, ..Options::default() }, FULL).await;
            stage.agent.say(&line).await;
            let heard = tokio::select! {
                heard = stage.editor.hear() => Some(heard),
                _ = stage.agent.hear() => None,
            };
            let judged = stage.engine.0.judged.lock().unwrap().clone();
            (heard, judged)
        });
        let Some(heard) = heard else { return Ok(()) };
        let last: serde_json::Value = serde_json::from_str(&heard).unwrap();
        let first = |object: &str, name: &str| -> serde_json::Value {
            serde_json::from_str(&first_member(object, name).unwrap()).unwrap()
        };
        proptest::prop_assert_eq!(first(&heard, "method"), last["method"].clone());
        let params = first_member(&heard, "params").unwrap();
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
    let mut stage = stage(Options { rules: true, ..Options::default() }, "{}").await;
    stage
        .agent
        .say(r#"{"jsonrpc":"2.0","id":20,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/.env","content":""}}"#)
        .await;
    expect![[r#"{"jsonrpc":"2.0","id":20,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}"#]].assert_eq(&stage.agent.hear().await);
    stage
        .passes(r#"{"jsonrpc":"2.0","id":21,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":""}}"#)
        .await;
}

#[tokio::test]
async fn what_the_editor_lacks_is_offered_and_served_here() {
    let mut stage =
        stage(Options { host: true, ..Options::default() }, r#"{"fs":{"readTextFile":true},"_x":[1]}"#).await;
    let mut told = String::new();
    for (id, method) in [(20, "fs/write_text_file"), (21, "terminal/create"), (22, "terminal/wait_for_exit")]
    {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"s","path":"/w/a"}}}}"#
        );
        stage.agent.say(&line).await;
        told += &(stage.agent.hear().await + "\n");
    }
    stage
        .agent
        .say(r#"{"jsonrpc":"2.0","id":23,"method":"terminal/create","params":{"sessionId":"unknown","command":"x"}}"#)
        .await;
    told += &(stage.agent.hear().await + "\n");
    // What it has is its own.
    stage
        .passes(r#"{"jsonrpc":"2.0","id":24,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}"#)
        .await;
    expect![[r#"
        {"jsonrpc":"2.0","id":20,"result":{"here":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a"}}}
        {"jsonrpc":"2.0","id":21,"result":{"here":"terminal/create","params":{"sessionId":"s","path":"/w/a"}}}
        {"jsonrpc":"2.0","id":22,"result":{"here":"terminal/wait_for_exit","params":{"sessionId":"s","path":"/w/a"}}}
        {"jsonrpc":"2.0","id":23,"error":{"code":-32002,"message":"Resource not found: session unknown","data":{"sessionId":"unknown"}}}
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn a_write_through_the_editor_begins_with_what_the_editor_has() {
    let mut stage = stage(Options::default(), FULL).await;
    let write = |id: u32, content: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/write_text_file","params":{{"sessionId":"s","path":"/w/a","content":"{content}","_meta":{{"x":1.0}}}}}}"#
        )
    };
    let mut told = String::new();
    for (id, content) in [(30, "plain"), (31, "merge"), (32, "conflict"), (33, "refused")] {
        stage.agent.say(&write(id, content)).await;
        let asked = stage.editor.hear().await;
        told += &(asked.clone() + "\n");
        let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
        stage
            .editor
            .say(
                &json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "content": "typed" } }).to_string(),
            )
            .await;
        if content != "conflict" {
            let asked = stage.editor.hear().await;
            told += &(asked.clone() + "\n");
            let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
            let mut answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "_meta": null } });
            if content == "refused" {
                answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": -32000, "message": "no" } });
            }
            stage.editor.say(&answer.to_string()).await;
        }
        told += &(stage.agent.hear().await + "\n");
    }
    told += &stage.engine.0.told.lock().unwrap().join("\n");
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
        not written"#]].assert_eq(&told);
}

#[tokio::test]
async fn a_change_that_is_routed_is_put_back_and_written_by_the_editor() {
    let mut stage = stage(Options { route: true, ..Options::default() }, FULL).await;
    let mut told = String::new();
    for (call, is_refused) in [("t", false), ("u", true)] {
        stage.prompts("s").await;
        stage.changes("/w/a");
        let rest =
            format!(r#""sessionUpdate":"tool_call","toolCallId":"{call}","title":"","status":"completed""#);
        stage.passes(&update("s", &rest)).await;
        for answer in [json!({ "content": "old" }), json!({})] {
            let asked: serde_json::Value = serde_json::from_str(&stage.editor.hear().await).unwrap();
            told += &format!("{} {}\n", asked["method"], asked["params"]);
            let answer = match is_refused && answer == json!({}) {
                true => {
                    json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": 1, "message": "no" } })
                }
                false => json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer }),
            };
            stage.editor.say(&answer.to_string()).await;
        }
        let shown = stage.editor.hear().await;
        told += &format!("{}\n", shown.contains("diff"));
        stage.passes(ANSWER).await;
        told += &(std::mem::take(&mut *stage.engine.0.told.lock().unwrap()).join("\n") + "\n");
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
    .assert_eq(&told);
}

#[tokio::test]
async fn diagnostics_pass_unchanged_and_the_sessions_they_are_for_hear_of_them_in_order() {
    let mut stage = stage(Options::default(), FULL).await;
    let share =
        |rest: &str| format!(r#"{{"jsonrpc":"2.0","method":"_bowline/diagnostics","params":{{{rest}}}}}"#);
    for line in [
        share(
            r#""sessionId":"s","path":"/w/a","diagnostics":[{"message":"one","_x":1.50},{"message":"two"}]"#,
        ),
        // For nobody, and nothing that can be read.
        share(r#""sessionId":"other","path":"/w/b","diagnostics":[]"#),
        share(r#""path":"/w/b""#),
        // For all.
        share(r#""path":"/w/c","diagnostics":[{"message":"three"}]"#),
    ] {
        stage.editor.say(&line).await;
        assert_eq!(stage.agent.hear().await, line);
    }
    // An agent's are none.
    stage.passes(&share(r#""path":"/w/d","diagnostics":[{"message":"the agent's"}]"#)).await;
    let last = share(r#""sessionId":"s","path":"/w/a","diagnostics":[]"#);
    stage.editor.say(&last).await;
    assert_eq!(stage.agent.hear().await, last);
    while stage.engine.0.told.lock().unwrap().last().is_none_or(|told| told != "/w/a: ") {
        tokio::task::yield_now().await;
    }
    let told = stage.engine.0.told.lock().unwrap().clone();
    // What is told of a file again before the engine has it stands in place of it.
    assert!(
        [&["/w/a: one, two", "/w/c: three", "/w/a: "][..], &["/w/c: three", "/w/a: "]]
            .iter()
            .any(|may| told.iter().map(String::as_str).eq(may.iter().copied())),
        "{told:?}"
    );
}

#[tokio::test]
async fn what_is_found_while_a_call_is_open_is_routed_when_none_is() {
    let mut stage = stage(Options { route: true, ..Options::default() }, FULL).await;
    stage.prompts("s").await;
    stage.changes("/w/a");
    let call = |what: &str| update("s", &format!(r#""toolCallId":"t",{what}"#));
    stage.passes(&call(r#""sessionUpdate":"tool_call","title":"","status":"in_progress""#)).await;
    // It is shown, and the editor is asked for nothing.
    let shown = stage.editor.hear().await;
    assert!(shown.contains("diff"), "{shown}");
    stage.passes(&call(r#""sessionUpdate":"tool_call_update","status":"completed""#)).await;
    let asked = stage.editor.hear().await;
    assert!(asked.contains("fs/read_text_file"), "{asked}");
}

const GEMINI: &str = r#"{"protocolVersion":1,"agentInfo":{"name":"gemini-cli","version":"0.61.0"}}"#;

fn read_of(id: u32, path: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/read_text_file","params":{{"sessionId":"s","path":"{path}"}}}}"#
    )
}

/// Lets the editor answer what it is asked next, and returns what that was.
async fn answered(stage: &mut Stage, answer: serde_json::Value) -> String {
    let line = stage.editor.hear().await;
    let asked: serde_json::Value = serde_json::from_str(&line).unwrap();
    let mut message = json!({ "jsonrpc": "2.0", "id": asked["id"] });
    message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
    stage.editor.say(&message.to_string()).await;
    format!("editor: {} {}\n", asked["method"], asked["params"])
}

#[tokio::test]
async fn gemini_reads_a_missing_file_as_empty_and_replaces_none_that_appears() {
    let mut stage = stage_with(Options::default(), FULL, GEMINI).await;
    let missing = json!({ "error": { "code": -32002, "message": "Resource not found" } });
    let by_node = json!({ "error": { "code": -32603, "message": "Internal error", "data": { "details": "ENOENT: no such file" } } });
    let denied = json!({ "error": { "code": -32603, "message": "access denied" } });
    let text = |text: &str| json!({ "result": { "content": text } });
    let write = |id: u32, path: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/write_text_file","params":{{"sessionId":"s","path":"{path}","content":"new"}}}}"#
        )
    };
    let mut told = String::new();
    let reads = [("/w/a", missing.clone()), ("/w/b", by_node), ("/w/c", denied), ("/w/d", text("there"))];
    for (id, (path, answer)) in (30..).zip(reads) {
        stage.agent.say(&read_of(id, path)).await;
        told += &answered(&mut stage, answer).await;
        told += &format!("agent: {}\n", stage.agent.hear().await);
    }
    // It is still missing; it has appeared; it was read.
    for (id, path, had) in
        [(40, "/w/a", missing), (41, "/w/b", text("the user's")), (42, "/w/d", text("there"))]
    {
        let is_refused = path == "/w/b";
        stage.agent.say(&write(id, path)).await;
        told += &answered(&mut stage, had).await;
        if !is_refused {
            told += &answered(&mut stage, json!({ "result": {} })).await;
        }
        told += &format!("agent: {}\n", stage.agent.hear().await);
    }
    told += &stage.engine.0.told.lock().unwrap().join("\n");
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
        Some("there") -> "new" true"#]].assert_eq(&told);
}

#[tokio::test]
async fn for_other_agents_and_without_the_table_reads_pass_as_they_are() {
    let off = Options { quirks: bowline_state::quirks::QuirkMode::Off, ..Options::default() };
    for (options, initialized) in [(off, GEMINI), (Options::default(), r#"{"protocolVersion":1}"#)] {
        let mut stage = stage_with(options, FULL, initialized).await;
        let read = read_of(30, "/w/a");
        stage.agent.say(&read).await;
        assert_eq!(stage.editor.hear().await, read);
        let missing = r#"{"jsonrpc":"2.0","id":30,"error":{"code":-32002,"message":"Resource not found"}}"#;
        stage.editor.say(missing).await;
        assert_eq!(stage.agent.hear().await, missing);
    }
}

#[tokio::test]
async fn gemini_reads_a_missing_file_that_is_served_here_as_empty() {
    let mut stage = stage_with(Options { host: true, ..Options::default() }, "{}", GEMINI).await;
    stage.agent.say(&read_of(30, "/w/missing")).await;
    assert_eq!(stage.agent.hear().await, r#"{"jsonrpc":"2.0","id":30,"result":{"content":""}}"#);
    let told = stage.engine.0.told.lock().unwrap().join("\n");
    assert!(told.contains("is read as empty text for gemini-cli"), "{told}");
}
