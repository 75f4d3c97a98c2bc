//! The host with agents that we did not write: on the official SDKs, and as their makers publish them.
//!
//! Each test gives an agent prompts and compares all that came of it: what it said, what a person was asked, what the
//! journal and the audit log hold.

use bowline_host::Settings;
use bowline_state::question::Reply;
use bowline_state::schema::v1::{PromptRequest, StopReason};
use expect_test::{Expect, expect};
use serde_json::json;
use test_support::agent_homes;
use test_support::lab::Lab;
use test_support::model_server::{ModelServer, Say};
use xtask::peers::{OtherAgent, Peer, is_there};

use super::SUPERVISOR;
use visit::Visit;

mod visit;

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the command of an agent, if it can be tested here.
fn other(agent: OtherAgent) -> Option<Vec<String>> {
    let command = agent.command(&root());
    is_there(agent.name(), &command).then_some(command)
}

fn lab(set: impl FnOnce(&mut Settings)) -> Lab {
    let lab = Lab::open(SUPERVISOR, set).unwrap();
    lab.put("a.txt", "one\ntwo\n").unwrap();
    lab.desk.answer(|_| Reply::allow());
    lab
}

#[tokio::test]
async fn fast_agent_asks_and_runs_commands_in_our_terminals() {
    let Some(mut command) = other(OtherAgent::FastAgent) else { return };
    let lab = lab(|_| {});
    // Else it keeps its sessions in the project.
    command.extend(["--home".to_owned(), lab.base().join("home/fast-agent").display().to_string()]);
    let mut visit = Visit::begin(lab, &command, &[]).await;
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
    assert_eq!(visit.lab.get("made.txt").unwrap(), "new\n");

    visit.lab.desk.answer(|_| Reply::deny());
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
    assert_eq!(visit.lab.get("made.txt").unwrap(), "new\n");
    visit.end().await;
}

#[tokio::test]
async fn elizacp_breaks_the_rules_and_its_turns_end() {
    let Some(command) = other(OtherAgent::Eliza) else { return };
    let mut visit = Visit::begin(lab(|_| {}), &command, &[]).await;
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

    // It answers in a session that nobody opened; what it says there is put aside.
    let nobodys = PromptRequest::new("nobody", vec!["Hello".into()]);
    let answer = visit.session.agent().prompt(nobodys).await.unwrap();
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    let told = visit.turn("I am happy").await;
    expect![[r#"
        turn 2 ended: EndTurn
        says
          How have I helped you to be happy?
        ! Breach { session: Some(SessionId("nobody")), what: "session not found: nobody" }
        audit: turn/start allowed by nobody
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);

    visit.another_session().await;
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

/// Lets gemini-cli take one turn, with its model saying what is in the script.
async fn gemini(lab: Lab, script: Vec<Say>, expected: Expect) -> Option<(Visit, ModelServer)> {
    let command = other(OtherAgent::Gemini)?;
    let model = ModelServer::start(script).await.unwrap();
    let variables = agent_homes::gemini(&lab.base().join("home"), model.url()).unwrap();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut visit = Visit::begin(lab, &command, &variables).await;
    let mut told = visit.turn("go").await;
    for result in model.tool_results() {
        told += &format!("model hears {}\n", result.replace(visit.lab.base().to_str().unwrap(), "$BASE"));
    }
    expected.assert_eq(&told);
    Some((visit, model))
}

/// Opens a lab in which an editor has `a.txt` open, with a line that is not saved.
fn lab_with_editor(set: impl FnOnce(&mut Settings)) -> Lab {
    let lab = lab(set);
    let (path, workspace) = (lab.path("a.txt"), lab.host.workspace());
    let open = workspace.open_document(&path).unwrap();
    workspace.change_document(&path, "one\ntwo\nunsaved\n".to_owned(), open.revision).unwrap();
    lab
}

/// The model replaces a word in the open file, and writes another.
fn two_edits(lab: &Lab) -> Vec<Say> {
    let edit = json!({
        "file_path": lab.path("a.txt"), "instruction": "shout", "old_string": "two", "new_string": "TWO",
    });
    let new = json!({"file_path": lab.path("b.txt"), "content": "new\n"});
    vec![Say::call("replace", edit), Say::call("write_file", new), Say::text("I am done.")]
}

#[tokio::test]
async fn gemini_reads_and_writes_through_us() {
    let lab = lab_with_editor(|_| {});
    lab.put("b.txt", "old\n").unwrap();
    let script = two_edits(&lab);
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
        journal: wrote $BASE/project/a.txt by nobody's session
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
    let Some((visit, _model)) = gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.get("a.txt").unwrap(), "one\nTWO\nunsaved\n");
    assert_eq!(visit.lab.get("b.txt").unwrap(), "new\n");
    visit.end().await;
}

/// It reads the file before it creates it, and would give up at an error.
#[tokio::test]
async fn gemini_creates_files() {
    let lab = lab(|_| {});
    let new = json!({"file_path": lab.path("c.txt"), "content": "new\n"});
    let script = vec![Say::call("write_file", new), Say::text("I am done.")];
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
    let Some((visit, _model)) = gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.get("c.txt").unwrap(), "new\n");
    visit.end().await;
}

#[tokio::test]
async fn gemini_writes_nothing_that_a_person_denies() {
    let lab = lab_with_editor(|_| {});
    lab.desk.answer(|_| Reply::deny());
    lab.put("b.txt", "old\n").unwrap();
    let script = two_edits(&lab);
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
    let Some((visit, _model)) = gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.get("a.txt").unwrap(), "one\ntwo\n");
    assert_eq!(visit.lab.get("b.txt").unwrap(), "old\n");
    visit.end().await;
}

/// What it reads by itself is what is on disk. Its edit of that is refused, for it would undo what the editor has not saved.
#[tokio::test]
async fn gemini_only_writes_through_us_where_reading_is_not_offered() {
    let lab = lab_with_editor(|settings| settings.offer.read = false);
    let script = two_edits(&lab);
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
        ! Breach { session: Some(SessionId("$SESSION")), what: "tool call replace__replace_$TIME_0 was updated before it was announced" }
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
    let Some((visit, _model)) = gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.get("a.txt").unwrap(), "one\ntwo\n");
    let open = visit.lab.host.workspace().document(&visit.lab.path("a.txt")).unwrap().unwrap();
    assert_eq!((open.text.as_str(), open.dirty), ("one\ntwo\nunsaved\n", true));
    assert_eq!(visit.lab.get("b.txt").unwrap(), "new\n");
    visit.end().await;
}

/// What it writes by itself is found.
#[tokio::test]
async fn gemini_only_reads_through_us_where_writing_is_not_offered() {
    let lab = lab(|settings| settings.offer.write = false);
    lab.put("b.txt", "old\n").unwrap();
    let script = two_edits(&lab);
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
    let Some((visit, _model)) = gemini(lab, script, expected).await else { return };
    assert_eq!(visit.lab.get("a.txt").unwrap(), "one\nTWO\n");
    visit.end().await;
}

/// Lets an agent on an SDK edit a file that an editor has open and run a command, once with a person who agrees and once
/// with one who does not; and then do what it likes without a word.
async fn on_an_sdk(peer: Peer) {
    let command = peer.agent(&root());
    if !is_there(peer.name(), &command) {
        return;
    }
    let lab = lab_with_editor(|_| {});
    let path = lab.path("a.txt");
    let mut visit = Visit::begin(lab, &command, &[]).await;
    let name = format!("peer-{}", peer.name());
    let edit =
        json!({"do": "edit", "path": path, "old": "two", "new": "TWO", "command": "cat a.txt; exit 3"})
            .to_string();

    visit.lab.desk.answer(|_| Reply::deny());
    let told = visit.turn(&edit).await.replace(&name, "$AGENT");
    expect_rejected().assert_eq(&told);
    assert_eq!(visit.lab.get("a.txt").unwrap(), "one\ntwo\n");

    visit.another_session().await;
    visit.lab.desk.answer(|_| Reply::allow());
    let told = visit.turn(&edit).await.replace(&name, "$AGENT");
    expect_allowed().assert_eq(&told);
    assert_eq!(visit.lab.get("a.txt").unwrap(), "one\nTWO\nunsaved\n");

    let flow = json!({"do": "flow", "path": path, "newPath": visit.lab.path("b.txt")}).to_string();
    let told = visit.turn(&flow).await.replace(&name, "$AGENT");
    expect_flow().assert_eq(&told);
    visit.end().await;
}

fn expect_rejected() -> Expect {
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

fn expect_allowed() -> Expect {
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
        journal: wrote $BASE/project/a.txt by nobody's session
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

fn expect_flow() -> Expect {
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
    on_an_sdk(Peer::Rust).await;
}

#[tokio::test]
async fn an_agent_on_the_python_sdk() {
    on_an_sdk(Peer::Python).await;
}

#[tokio::test]
async fn an_agent_on_the_typescript_sdk() {
    on_an_sdk(Peer::TypeScript).await;
}
