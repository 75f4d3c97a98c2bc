//! The host with third-party agents: some on the official SDKs, and others as published.
//!
//! Each test prompts an agent and compares the whole result: the agent's messages, the questions to the user, the
//! journal and the audit log.

use bowline_host::HostOptions;
use bowline_policy::question::QuestionReply;
use bowline_protocol::schema::v1::{PromptRequest, StopReason};
use expect_test::{Expect, expect};
use serde_json::json;
use test_support::agent_homes;
use test_support::host_harness::HostHarness;
use test_support::model_server::{ModelReply, ModelServer};
use xtask::peers::{PublishedAgent, SdkPeer, is_available};

use super::SUPERVISOR;
use agent_run::PeerAgentRun;

mod agent_run;

fn workspace_root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the command of an agent, if it is available for tests.
fn peer_command(agent: PublishedAgent) -> Option<Vec<String>> {
    let command = agent.command(&workspace_root());
    is_available(agent.name(), &command).then_some(command)
}

fn open_lab(set: impl FnOnce(&mut HostOptions)) -> HostHarness {
    let lab = HostHarness::open(SUPERVISOR, set).unwrap();
    lab.write_file("a.txt", "one\ntwo\n").unwrap();
    lab.user.answer_with(|_| QuestionReply::allow());
    lab
}

#[tokio::test]
async fn fast_agent_asks_and_runs_commands_in_our_terminals() {
    let Some(mut command) = peer_command(PublishedAgent::FastAgent) else { return };
    let lab = open_lab(|_| {});
    // Otherwise it keeps its sessions in the project.
    command.extend(["--home".to_owned(), lab.base().join("home/fast-agent").display().to_string()]);
    let mut visit = PeerAgentRun::start(lab, &command, &[]).await;
    let told = visit.turn(r#"***CALL_TOOL execute {"command":"echo hi; echo new > made.txt; exit 3"}"#).await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          hi


          [Exit code: 3]
        call Execute Failed: execute
        question
          fast-agent-acp asks: execute
            run echo hi; echo new > made.txt; exit 3
            in $BASE/project
          Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        journal: found $BASE/project/made.txt by $SESSION in turn 1 with /bin/sh -lc 'echo hi; echo new > made.txt; exit 3'
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: permission allowed by person echo hi; echo new > made.txt; exit 3
        audit: terminal/create allowed by grant /bin/sh -lc 'echo hi; echo new > made.txt; exit 3'
        audit: terminal/release allowed by nobody the terminal
        audit: turn/end allowed by nobody
        audit: observed allowed by nobody $BASE/project/made.txt
        audit: terminal/exit allowed by grant /bin/sh -lc 'echo hi; echo new > made.txt; exit 3': 3
    "#]].assert_eq(&told);
    assert_eq!(visit.lab.read_file("made.txt").unwrap(), "new\n");

    visit.lab.user.answer_with(|_| QuestionReply::deny());
    let told = visit.turn(r#"***CALL_TOOL execute {"command":"rm made.txt"}"#).await;
    expect![[r#"
        turn 2 ended: EndTurn
        says
          The user has declined permission to use this tool: acp_terminal__execute
        call Execute Failed: execute
        question
          fast-agent-acp asks: execute
          ! removes made.txt
            run rm made.txt
            in $BASE/project
          Asked because `rm made.txt`: no rule covers it, and preset ask asks before commands
        audit: turn/start allowed by nobody
        audit: permission denied by person rm made.txt
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);
    assert_eq!(visit.lab.read_file("made.txt").unwrap(), "new\n");
    visit.end().await;
}

#[tokio::test]
async fn elizacp_breaks_the_rules_and_its_turns_end() {
    let Some(command) = peer_command(PublishedAgent::Eliza) else { return };
    let mut visit = PeerAgentRun::start(open_lab(|_| {}), &command, &[]).await;
    let told = visit.turn("Hello").await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          How do you do. Please state your problem.
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);

    // It answers in a session that was never opened; the host ignores its messages there.
    let prompt = PromptRequest::new("unknown", vec!["Hello".into()]);
    let answer = visit.session.agent().prompt(prompt).await.unwrap();
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    let told = visit.turn("I am happy").await;
    expect![[r#"
        turn 2 ended: EndTurn
        says
          How have I helped you to be happy?
        ! Breach { session: Some(SessionId("unknown")), what: "session not found: unknown" }
        audit: turn/start allowed by nobody
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);

    visit.open_another_session().await;
    let told = visit.turn(&"\u{202e}".repeat(100_000)).await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          Do you feel strongly about discussing such things?
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);
    let told = visit.turn("").await;
    expect![[r#"
        turn 2 ended: EndTurn
        says
          Please tell me more.
        audit: turn/start allowed by nobody
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);
    visit.end().await;
}

/// Runs one turn of gemini-cli, with a scripted model.
async fn run_gemini(
    lab: HostHarness,
    script: Vec<ModelReply>,
    expected: Expect,
) -> Option<(PeerAgentRun, ModelServer)> {
    let command = peer_command(PublishedAgent::Gemini)?;
    let model = ModelServer::start(script).await.unwrap();
    let variables = agent_homes::prepare_gemini(&lab.base().join("home"), model.url()).unwrap();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut visit = PeerAgentRun::start(lab, &command, &variables).await;
    let mut told = visit.turn("go").await;
    for result in model.tool_results() {
        told += &format!("model hears {}\n", result.replace(visit.lab.base().to_str().unwrap(), "$BASE"));
    }
    expected.assert_eq(&told);
    Some((visit, model))
}

/// Opens a harness in which an editor has `a.txt` open, with an unsaved line.
fn lab_with_editor(set: impl FnOnce(&mut HostOptions)) -> HostHarness {
    let lab = open_lab(set);
    let (path, workspace) = (lab.path("a.txt"), lab.host.workspace());
    let open = workspace.open_document(&path).unwrap();
    workspace.change_document(&path, "one\ntwo\nunsaved\n".to_owned(), open.revision).unwrap();
    lab
}

/// Makes the model replace a word in the open file, and write another file.
fn two_edits_script(lab: &HostHarness) -> Vec<ModelReply> {
    let edit = json!({
        "file_path": lab.path("a.txt"), "instruction": "shout", "old_string": "two", "new_string": "TWO",
    });
    let new = json!({"file_path": lab.path("b.txt"), "content": "new\n"});
    vec![
        ModelReply::call("replace", edit),
        ModelReply::call("write_file", new),
        ModelReply::text("I am done."),
    ]
}

#[tokio::test]
async fn gemini_reads_and_writes_through_us() {
    let lab = lab_with_editor(|_| {});
    lab.write_file("b.txt", "old\n").unwrap();
    let script = two_edits_script(&lab);
    let expected = expect![[r#"
        turn 1 ended: EndTurn
        says
          I am done.
        call Edit Completed: a.txt: two => TWO
        call Edit Completed: Writing to b.txt
        question
          Gemini CLI asks: a.txt: two => TWO
            write $BASE/project/a.txt
            lines: 1 added, 1 removed
            @@ -1,3 +1,3 @@
             one
            -two
            +TWO
             unsaved
          Asked because no rule covers it, and preset ask asks before writes
        question
          Gemini CLI asks: Writing to b.txt
            write $BASE/project/b.txt
            lines: 1 added, 1 removed
            @@ -1 +1 @@
            -old
            +new
          Asked because no rule covers it, and preset ask asks before writes
        journal: wrote $BASE/project/a.txt by no session
        journal: wrote $BASE/project/a.txt by $SESSION in turn 1
        journal: wrote $BASE/project/b.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: permission allowed by person $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/write allowed by grant $BASE/project/a.txt
        audit: fs/write allowed by grant $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/b.txt
        audit: permission allowed by person $BASE/project/b.txt
        audit: fs/read allowed by preset: ask $BASE/project/b.txt
        audit: fs/write allowed by grant $BASE/project/b.txt
        audit: fs/write allowed by grant $BASE/project/b.txt
        audit: turn/end allowed by nobody
        model hears replace: Successfully modified file: $BASE/project/a.txt (1 replacements). Here is the updated code:
        one
        TWO
        unsaved

        model hears write_file: Successfully overwrote file: $BASE/project/b.txt. Here is the updated code:
        new

    "#]];
    let Some((visit, _model)) = run_gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), "one\nTWO\nunsaved\n");
    assert_eq!(visit.lab.read_file("b.txt").unwrap(), "new\n");
    visit.end().await;
}

/// gemini reads a file before it creates it, and would give up on an error.
#[tokio::test]
async fn gemini_creates_files() {
    let lab = open_lab(|_| {});
    let new = json!({"file_path": lab.path("c.txt"), "content": "new\n"});
    let script = vec![ModelReply::call("write_file", new), ModelReply::text("I am done.")];
    let expected = expect![[r#"
        turn 1 ended: EndTurn
        says
          I am done.
        call Edit Completed: Writing to c.txt
        question
          Gemini CLI asks: Writing to c.txt
            write $BASE/project/c.txt
            new file, lines: 1
            @@ -0,0 +1 @@
            +new
          Asked because no rule covers it, and preset ask asks before writes
        journal: wrote $BASE/project/c.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read failed by preset: ask $BASE/project/c.txt
        audit: permission allowed by person $BASE/project/c.txt
        audit: fs/read failed by preset: ask $BASE/project/c.txt
        audit: fs/write allowed by grant $BASE/project/c.txt
        audit: fs/write allowed by grant $BASE/project/c.txt
        audit: turn/end allowed by nobody
        model hears write_file: Successfully overwrote file: $BASE/project/c.txt. Here is the updated code:
        new

    "#]];
    let Some((visit, _model)) = run_gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.read_file("c.txt").unwrap(), "new\n");
    visit.end().await;
}

#[tokio::test]
async fn gemini_writes_nothing_that_a_person_denies() {
    let lab = lab_with_editor(|_| {});
    lab.user.answer_with(|_| QuestionReply::deny());
    lab.write_file("b.txt", "old\n").unwrap();
    let script = two_edits_script(&lab);
    let expected = expect![[r#"
        turn 1 ended: EndTurn
        says
          I am done.
        question
          Gemini CLI asks: a.txt: two => TWO
            write $BASE/project/a.txt
            lines: 1 added, 1 removed
            @@ -1,3 +1,3 @@
             one
            -two
            +TWO
             unsaved
          Asked because no rule covers it, and preset ask asks before writes
        question
          Gemini CLI asks: Writing to b.txt
            write $BASE/project/b.txt
            lines: 1 added, 1 removed
            @@ -1 +1 @@
            -old
            +new
          Asked because no rule covers it, and preset ask asks before writes
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: permission denied by person $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/b.txt
        audit: permission denied by person $BASE/project/b.txt
        audit: turn/end allowed by nobody
        model hears replace: Tool "replace" was canceled by the user.
        model hears write_file: Tool "write_file" was canceled by the user.
    "#]];
    let Some((visit, _model)) = run_gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), "one\ntwo\n");
    assert_eq!(visit.lab.read_file("b.txt").unwrap(), "old\n");
    visit.end().await;
}

/// Without the client's reads, gemini reads the disk. The host refuses the resulting edit, which would undo unsaved
/// text.
#[tokio::test]
async fn gemini_only_writes_through_us_where_reading_is_not_offered() {
    let lab = lab_with_editor(|settings| settings.capabilities.read = false);
    let script = two_edits_script(&lab);
    let expected = expect![[r#"
        turn 1 ended: EndTurn
        says
          I am done.
        call Edit Completed: Writing to b.txt
        question
          Gemini CLI asks: a.txt: two => TWO
            write $BASE/project/a.txt
            lines: 1 added, 1 removed
            @@ -1,2 +1,2 @@
             one
            -two
            +TWO
          Asked because no rule covers it, and preset ask asks before writes
        question
          Gemini CLI asks: Writing to b.txt
            write $BASE/project/b.txt
            new file, lines: 1
            @@ -0,0 +1 @@
            +new
          Asked because no rule covers it, and preset ask asks before writes
        ! Violation { session: Some(SessionId("$SESSION")), description: "tool call replace__replace_$TIME_0 was updated before it was announced" }
        journal: wrote $BASE/project/b.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: permission allowed by person $BASE/project/a.txt
        audit: fs/write failed by nobody $BASE/project/a.txt
        audit: permission allowed by person $BASE/project/b.txt
        audit: fs/write allowed by grant $BASE/project/b.txt
        audit: fs/write allowed by grant $BASE/project/b.txt
        audit: turn/end allowed by nobody
        model hears replace: [object Object]
        model hears write_file: Successfully created and wrote to new file: $BASE/project/b.txt. Here is the updated code:
        new

    "#]];
    let Some((visit, _model)) = run_gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), "one\ntwo\n");
    let open = visit.lab.host.workspace().document(&visit.lab.path("a.txt")).unwrap().unwrap();
    assert_eq!((open.text.as_str(), open.is_dirty), ("one\ntwo\nunsaved\n", true));
    assert_eq!(visit.lab.read_file("b.txt").unwrap(), "new\n");
    visit.end().await;
}

/// The host detects gemini's own writes.
#[tokio::test]
async fn gemini_only_reads_through_us_where_writing_is_not_offered() {
    let lab = open_lab(|settings| settings.capabilities.write = false);
    lab.write_file("b.txt", "old\n").unwrap();
    let script = two_edits_script(&lab);
    let expected = expect![[r#"
        turn 1 ended: EndTurn
        says
          I am done.
        call Edit Completed: a.txt: two => TWO
        call Edit Completed: Writing to b.txt
        question
          Gemini CLI asks: a.txt: two => TWO
            write $BASE/project/a.txt
            lines: 1 added, 1 removed
            @@ -1,2 +1,2 @@
             one
            -two
            +TWO
          Asked because no rule covers it, and preset ask asks before writes
        question
          Gemini CLI asks: Writing to b.txt
            write $BASE/project/b.txt
            lines: 1 added, 1 removed
            @@ -1 +1 @@
            -old
            +new
          Asked because no rule covers it, and preset ask asks before writes
        journal: found $BASE/project/a.txt by $SESSION in turn 1
        journal: found $BASE/project/b.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: permission allowed by person $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/b.txt
        audit: permission allowed by person $BASE/project/b.txt
        audit: fs/read allowed by preset: ask $BASE/project/b.txt
        audit: turn/end allowed by nobody
        audit: observed allowed by nobody $BASE/project/a.txt
        audit: observed allowed by nobody $BASE/project/b.txt
        model hears replace: Successfully modified file: $BASE/project/a.txt (1 replacements). Here is the updated code:
        one
        TWO

        model hears write_file: Successfully overwrote file: $BASE/project/b.txt. Here is the updated code:
        new

    "#]];
    let Some((visit, _model)) = run_gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), "one\nTWO\n");
    visit.end().await;
}

/// Makes an SDK agent edit a file that is open in an editor and run a command, once with a user who refuses and once
/// with one who agrees; then runs the contract's flow.
async fn check_sdk_agent(peer: SdkPeer) {
    let command = peer.agent_command(&workspace_root());
    if !is_available(peer.name(), &command) {
        return;
    }
    let lab = lab_with_editor(|_| {});
    let path = lab.path("a.txt");
    let mut visit = PeerAgentRun::start(lab, &command, &[]).await;
    let name = format!("peer-{}", peer.name());
    let edit =
        json!({"do": "edit", "path": path, "old": "two", "new": "TWO", "command": "cat a.txt; exit 3"})
            .to_string();

    visit.lab.user.answer_with(|_| QuestionReply::deny());
    let told = visit.turn(&edit).await.replace(&name, "$AGENT");
    expected_rejected().assert_eq(&told);
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), "one\ntwo\n");

    visit.open_another_session().await;
    visit.lab.user.answer_with(|_| QuestionReply::allow());
    let told = visit.turn(&edit).await.replace(&name, "$AGENT");
    expected_allowed().assert_eq(&told);
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), "one\nTWO\nunsaved\n");

    let flow = json!({"do": "flow", "path": path, "newPath": visit.lab.path("b.txt")}).to_string();
    let told = visit.turn(&flow).await.replace(&name, "$AGENT");
    expected_flow().assert_eq(&told);
    visit.end().await;
}

fn expected_rejected() -> Expect {
    expect![[r#"
        turn 1 ended: EndTurn
        says
          read:"one\ntwo\nunsaved\n"
        says
          permission:reject
        says
          permission:reject
        call Edit Failed: Edit the file
        call Execute Failed: cat a.txt; exit 3
        question
          $AGENT asks: Edit the file
            write $BASE/project/a.txt
            lines: 1 added, 1 removed
            @@ -1,3 +1,3 @@
             one
            -two
            +TWO
             unsaved
          Asked because no rule covers it, and preset ask asks before writes
        question
          $AGENT asks: cat a.txt; exit 3
            run cat a.txt; exit 3
            in $BASE/project
          Asked because `cat a.txt`: no rule covers it, and preset ask asks before commands
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: permission denied by person $BASE/project/a.txt
        audit: permission denied by person cat a.txt; exit 3
        audit: turn/end allowed by nobody
    "#]]
}

fn expected_allowed() -> Expect {
    expect![[r#"
        turn 1 ended: EndTurn
        says
          read:"one\ntwo\nunsaved\n"
        says
          permission:allowwrote
        says
          permission:allowterminal:3:"one\nTWO\nunsaved\n"
        call Edit Completed: Edit the file
        call Execute Completed: cat a.txt; exit 3
        question
          $AGENT asks: Edit the file
            write $BASE/project/a.txt
            lines: 1 added, 1 removed
            @@ -1,3 +1,3 @@
             one
            -two
            +TWO
             unsaved
          Asked because no rule covers it, and preset ask asks before writes
        question
          $AGENT asks: cat a.txt; exit 3
            run cat a.txt; exit 3
            in $BASE/project
          Asked because `cat a.txt`: no rule covers it, and preset ask asks before commands
        journal: wrote $BASE/project/a.txt by no session
        journal: wrote $BASE/project/a.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: permission allowed by person $BASE/project/a.txt
        audit: fs/write allowed by grant $BASE/project/a.txt
        audit: fs/write allowed by grant $BASE/project/a.txt
        audit: permission allowed by person cat a.txt; exit 3
        audit: terminal/create allowed by grant cat a.txt; exit 3
        audit: terminal/release allowed by nobody the terminal
        audit: turn/end allowed by nobody
        audit: terminal/exit allowed by grant cat a.txt; exit 3: 3
    "#]]
}

fn expected_flow() -> Expect {
    expect![[r#"
        turn 2 ended: EndTurn
        says
          read:"one\nTWO\nunsaved\n"window:"TWO\n"permission:allowwrotemissing:-32002terminal:0:"hello\n"killed
        call Edit Completed: Update config
        question
          $AGENT asks: Update config
            write $BASE/project/a.txt
            with │ {
                 │   "path": "$BASE/project/a.txt"
                 │ }
          Asked because no rule covers it, and preset ask asks before writes
        question
          $AGENT asks: write $BASE/project/b.txt
            write $BASE/project/b.txt
            new file, lines: 4
            @@ -0,0 +1,4 @@
            +one
            +TWO
            +unsaved
            +written by $AGENT
          Asked because no rule covers it, and preset ask asks before writes
        question
          $AGENT asks: run echo hello
            run echo hello
            in $BASE/project
          Asked because `echo hello`: no rule covers it, and preset ask asks before commands
        question
          $AGENT asks: run sleep 600
            run sleep 600
            in $BASE/project
          Asked because `sleep 600`: no rule covers it, and preset ask asks before commands
        journal: wrote $BASE/project/b.txt by $SESSION in turn 2
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: permission allowed by person $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/b.txt
        audit: fs/write allowed by person $BASE/project/b.txt
        audit: fs/read failed by preset: ask $BASE/project/a.txt.missing
        audit: terminal/create allowed by person echo hello
        audit: terminal/release allowed by nobody the terminal
        audit: terminal/create allowed by person sleep 600
        audit: terminal/kill allowed by nobody the terminal
        audit: terminal/release allowed by nobody the terminal
        audit: turn/end allowed by nobody
        audit: terminal/exit allowed by person echo hello: 0
        audit: terminal/exit allowed by person sleep 600: SIGTERM
    "#]]
}

#[tokio::test]
async fn an_agent_on_the_official_rust_sdk() {
    check_sdk_agent(SdkPeer::Rust).await;
}

#[tokio::test]
async fn an_agent_on_the_python_sdk() {
    check_sdk_agent(SdkPeer::Python).await;
}

#[tokio::test]
async fn an_agent_on_the_typescript_sdk() {
    check_sdk_agent(SdkPeer::TypeScript).await;
}

#[tokio::test]
async fn an_agent_on_the_typescript_sdk_uses_the_file_extension() {
    let peer = SdkPeer::TypeScript;
    let command = peer.agent_command(&workspace_root());
    if !is_available(peer.name(), &command) {
        return;
    }
    let lab = lab_with_editor(|_| {});
    lab.write_file("b.txt", "b\n").unwrap();
    let mut visit = PeerAgentRun::start(lab, &command, &[]).await;
    let task = json!({"do": "files", "directory": visit.lab.path("").trim_end_matches('/')});
    let told = visit.turn(&task.to_string()).await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          offered:list,stat,read,write,batch,watchlisted:a.txt,b.txtdirty:trueread:"two\nunsaved\n"batch:mkdir,copy,writestale:conflictwatched:created,agent
        question
          peer-typescript asks: change files, 3 operations at once
            read $BASE/project/b.txt
            write $BASE/project/docs/copy.txt
            new file, lines: 1
            @@ -0,0 +1 @@
            +b
            write $BASE/project/a.txt
            lines: 1 added, 0 removed
            @@ -1,3 +1,4 @@
             one
             two
             unsaved
            +written by peer-typescript
          Asked because no rule covers it, and preset ask asks before writes
        question
          peer-typescript asks: write $BASE/project/watched.txt
            write $BASE/project/watched.txt
            new file, lines: 1
            @@ -0,0 +1 @@
            +watched
          Asked because no rule covers it, and preset ask asks before writes
        journal: wrote $BASE/project/a.txt by no session
        journal: wrote $BASE/project/docs/copy.txt by $SESSION in turn 1
        journal: wrote $BASE/project/a.txt by $SESSION in turn 1
        journal: wrote $BASE/project/watched.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/docs
        audit: fs/read allowed by person $BASE/project/b.txt
        audit: fs/write allowed by person $BASE/project/docs/copy.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/docs/copy.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/write failed by nobody $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project
        audit: fs/write allowed by person $BASE/project/watched.txt
        audit: fs/write allowed by person $BASE/project/watched.txt
        audit: turn/end allowed by nobody
    "#]].assert_eq(&told);
    let text = "one\ntwo\nunsaved\nwritten by peer-typescript\n";
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), text);
    visit.end().await;
}
