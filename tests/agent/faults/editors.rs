//! Whole turns with editors that format on save, stall or die, and whose users type and refuse. The agent is in the
//! same process, so that its timeouts can be short.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_agent::agent::BowlineAgent;
use bowline_agent::agent_options::{AgentOptions, AgentPaths};
use bowline_agent::model::catalogue::{CatalogueOptions, ModelCatalogue};
use bowline_agent::model::keys::Keyring;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{NewSessionRequest, PermissionOptionKind, PromptRequest};
use bowline_workspace::terminals::{self, SupervisorProgram};
use expect_test::{Expect, expect};
use test_support::editor::{EditorCapabilities, EditorFault, FakeCommand, FakeEditor, UserAnswer};
use test_support::faulty_sqlite;

/// The timeout of requests to the editor, and of commands.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns an agent with its state below a directory.
fn new_agent(base: &Path) -> BowlineAgent {
    let places = AgentPaths {
        state_dir: base.join("state"),
        policy_file: base.join("config/policy.toml"),
        anchors_dir: base.join("anchors"),
        keys_file: base.join("config/keys.json"),
    };
    let supervisor = SupervisorProgram { program: "/no/supervisor".into(), args: Vec::new() };
    let mut settings = AgentOptions::new(places, terminals::TerminalOptions::new(supervisor));
    settings.is_shell_enabled = true;
    // A responsive editor answers well within this, even on a busy machine.
    settings.client_timeout = STEP_TIMEOUT;
    settings.review_timeout = STEP_TIMEOUT;
    settings.command_timeout = STEP_TIMEOUT;
    let keys = Keyring::new(None);
    let models = ModelCatalogue::new(CatalogueOptions { keys: keys.clone(), ..CatalogueOptions::default() });
    BowlineAgent::new(settings, models, keys)
}

/// Runs a turn with an editor that has `a.txt` open. Returns the requests to the editor, the agent's text, and the
/// final text in the editor.
async fn run_turn(prepare: impl FnOnce(&FakeEditor, &str), prompt: &str) -> String {
    let base = tempfile::tempdir().unwrap();
    let project = base.path().canonicalize().unwrap().join("project");
    std::fs::create_dir(&project).unwrap();
    let agent = new_agent(base.path());
    let editor = FakeEditor::new(EditorCapabilities::ALL);
    editor.replace_in_log(&project.display().to_string(), "$ROOT");
    let path = project.join("a.txt").display().to_string();
    editor.set_document(&path, "one\ntwo\nthree\n");
    let (_client, handle) = editor.connect(agent.clone()).await.unwrap();
    let session = handle.new_session(NewSessionRequest::new(&project)).await.unwrap().session_id;
    editor.wait_for_log("available_commands_update").await;
    // The first turn makes the reads that happen once per session.
    handle.prompt(PromptRequest::new(session.clone(), vec!["say hi".into()])).await.unwrap();
    editor.take_log();
    prepare(&editor, &path);
    let answer = handle.prompt(PromptRequest::new(session, vec![prompt.into()])).await;
    let mut told = take_exchange(&editor);
    match answer {
        Ok(answer) => writeln!(told, "{:?}", answer.stop_reason).unwrap(),
        Err(error) => writeln!(told, "! {error}").unwrap(),
    }
    agent.shut_down().await;
    writeln!(told, "a.txt: {:?}, {} terminals", editor.document(&path), editor.open_terminals()).unwrap();
    told
}

fn take_exchange(editor: &Arc<FakeEditor>) -> String {
    let (mut asked, mut said) = (String::new(), String::new());
    for line in editor.take_log().lines() {
        if line.starts_with("< ") {
            writeln!(asked, "{line}").unwrap();
        } else if let Some(text) = line.strip_prefix("> text ") {
            said.push_str(&strip_durations(text));
        }
    }
    format!("{asked}> {said}\n")
}

/// Removes the durations of commands.
fn strip_durations(text: &str) -> String {
    let taken = text.split_once("through the editor, ").and_then(|(before, rest)| {
        let (_, after) = rest.split_once(" s]")?;
        Some(format!("{before}through the editor, TIME]{after}"))
    });
    taken.unwrap_or_else(|| text.to_owned())
}

async fn check(prepare: impl FnOnce(&FakeEditor, &str), prompt: &str, expected: Expect) {
    expected.assert_eq(&run_turn(prepare, prompt).await);
}

const EDIT_PROMPT: &str =
    "read a.txt\nreplace \"two\" with \"2\" in a.txt\nreplace \"2\" with \"zwei\" in a.txt";

#[tokio::test]
async fn an_editor_that_formats_on_save_is_believed() {
    check(|editor, _| editor.set_formatter(|_, text| text.to_uppercase()), EDIT_PROMPT, expect![[r#"
        < fs/read_text_file $ROOT/a.txt
        < fs/read_text_file $ROOT/a.txt
        < session/request_permission turn2_2 "Edit a.txt"
        < fs/read_text_file $ROOT/a.txt
        < fs/write_text_file $ROOT/a.txt "one\n2\nthree\n"
        < fs/read_text_file $ROOT/a.txt
        < fs/read_text_file $ROOT/a.txt
        < session/request_permission turn2_3 "Edit a.txt"
        < fs/read_text_file $ROOT/a.txt
        < fs/write_text_file $ROOT/a.txt "ONE\nzwei\nTHREE\n"
        < fs/read_text_file $ROOT/a.txt
        > "`a.txt`:\n\n```txt\n[a.txt: all of it, 3 lines, read through the editor]\none\ntwo\nthree\n```""Changed `a.txt`.\n\n```\nEdited a.txt in 1 place, through the editor.\nThe file differs from what you sent, because its user or the editor's formatting changed it:\n@@ -1,3 +1,3 @@\n-one\n+ONE\n 2\n-three\n+THREE\n```""Changed `a.txt`.\n\n```\nEdited a.txt in 1 place, through the editor.\nThe file differs from what you sent, because its user or the editor's formatting changed it:\n@@ -1,3 +1,3 @@\n ONE\n-zwei\n+ZWEI\n THREE\n```"
        EndTurn
        a.txt: Some("ONE\nZWEI\nTHREE\n"), 0 terminals
    "#]]).await;
}

#[tokio::test]
async fn a_user_that_types_meanwhile_loses_nothing() {
    check(
        |editor, path| {
            let path = path.to_owned();
            editor.run_after("session/request_permission", move |documents| {
                documents.insert(path, "one\ntwo\nthree\nfour, typed\n".to_owned());
            });
        },
        EDIT_PROMPT,
        expect![[r#"
            < fs/read_text_file $ROOT/a.txt
            < fs/read_text_file $ROOT/a.txt
            < session/request_permission turn2_2 "Edit a.txt"
            < fs/read_text_file $ROOT/a.txt
            < fs/read_text_file $ROOT/a.txt
            < session/request_permission turn2_2 "Edit a.txt"
            < fs/read_text_file $ROOT/a.txt
            < fs/write_text_file $ROOT/a.txt "one\n2\nthree\nfour, typed\n"
            < fs/read_text_file $ROOT/a.txt
            < fs/read_text_file $ROOT/a.txt
            < session/request_permission turn2_3 "Edit a.txt"
            < fs/read_text_file $ROOT/a.txt
            < fs/write_text_file $ROOT/a.txt "one\nzwei\nthree\nfour, typed\n"
            < fs/read_text_file $ROOT/a.txt
            > "`a.txt`:\n\n```txt\n[a.txt: all of it, 3 lines, read through the editor]\none\ntwo\nthree\n```""Changed `a.txt`.\n\n```\nEdited a.txt in 1 place, through the editor.\nAnother program changed the file since you last saw it:\n@@ -3 +3,2 @@\n three\n+four, typed\n```""Changed `a.txt`."
            EndTurn
            a.txt: Some("one\nzwei\nthree\nfour, typed\n"), 0 terminals
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_editor_that_refuses_is_told_of() {
    let refuses = |method: &'static str| {
        move |editor: &FakeEditor, _: &str| {
            let error = RpcError::Denied { reason: "not now".to_owned() };
            editor.queue_fault(method, EditorFault::Refuse(error.into()));
        }
    };
    check(refuses("fs/write_text_file"), EDIT_PROMPT, expect![[r#"
        < fs/read_text_file $ROOT/a.txt
        < fs/read_text_file $ROOT/a.txt
        < session/request_permission turn2_2 "Edit a.txt"
        < fs/read_text_file $ROOT/a.txt
        < fs/write_text_file $ROOT/a.txt "one\n2\nthree\n"
        > "`a.txt`:\n\n```txt\n[a.txt: all of it, 3 lines, read through the editor]\none\ntwo\nthree\n```""Changing `a.txt` did not work:\n\n```\nnothing was written: a.txt: permission denied: not now\n```""\n\n""I stop here; 1 command was not done."
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
    check(
        refuses("terminal/create"),
        "run make",
        expect![[r#"
            < session/request_permission turn2_1 "Run make"
            < terminal/create "make" in $ROOT limit 262144
            > "Running `make` did not work:\n\n```\n`make`: permission denied: not now\n```"
            EndTurn
            a.txt: Some("one\ntwo\nthree\n"), 0 terminals
        "#]],
    )
    .await;
    check(|editor, _| editor.queue_answer(UserAnswer::OptionKind(PermissionOptionKind::RejectOnce)), EDIT_PROMPT, expect![[r#"
        < fs/read_text_file $ROOT/a.txt
        < fs/read_text_file $ROOT/a.txt
        < session/request_permission turn2_2 "Edit a.txt"
        > "`a.txt`:\n\n```txt\n[a.txt: all of it, 3 lines, read through the editor]\none\ntwo\nthree\n```""Changing `a.txt` did not work:\n\n```\npermission denied: the user said no; do something else, or ask what to do instead\n```""\n\n""I stop here; 1 command was not done."
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
}

#[tokio::test]
async fn an_editor_that_stalls_is_not_waited_for() {
    let stalls = |method: &'static str| {
        move |editor: &FakeEditor, _: &str| editor.queue_fault(method, EditorFault::Stall)
    };
    check(stalls("fs/read_text_file"), "read a.txt\nsay not reached", expect![[r#"
        < fs/read_text_file $ROOT/a.txt
        < $/cancel_request for fs/read_text_file
        > "Reading `a.txt` did not work:\n\n```\na.txt: the editor did not answer fs/read_text_file within 3 s\n```""\n\n""I stop here; 1 command was not done."
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
    check(stalls("fs/write_text_file"), EDIT_PROMPT, expect![[r#"
        < fs/read_text_file $ROOT/a.txt
        < fs/read_text_file $ROOT/a.txt
        < session/request_permission turn2_2 "Edit a.txt"
        < fs/read_text_file $ROOT/a.txt
        < fs/write_text_file $ROOT/a.txt "one\n2\nthree\n"
        < fs/read_text_file $ROOT/a.txt
        < $/cancel_request for fs/write_text_file
        > "`a.txt`:\n\n```txt\n[a.txt: all of it, 3 lines, read through the editor]\none\ntwo\nthree\n```""Changing `a.txt` did not work:\n\n```\nit is not known whether a.txt was written: the editor did not answer fs/write_text_file within 3 s. Read it and compare before you write it again; do not simply repeat the call.\n```""\n\n""I stop here; 1 command was not done."
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
    check(
        |editor, _| editor.queue_fault("fs/write_text_file", EditorFault::StallAfterActing),
        EDIT_PROMPT,
        expect![[r#"
            < fs/read_text_file $ROOT/a.txt
            < fs/read_text_file $ROOT/a.txt
            < session/request_permission turn2_2 "Edit a.txt"
            < fs/read_text_file $ROOT/a.txt
            < fs/write_text_file $ROOT/a.txt "one\n2\nthree\n"
            < fs/read_text_file $ROOT/a.txt
            < $/cancel_request for fs/write_text_file
            < fs/read_text_file $ROOT/a.txt
            < session/request_permission turn2_3 "Edit a.txt"
            < fs/read_text_file $ROOT/a.txt
            < fs/write_text_file $ROOT/a.txt "one\nzwei\nthree\n"
            < fs/read_text_file $ROOT/a.txt
            > "`a.txt`:\n\n```txt\n[a.txt: all of it, 3 lines, read through the editor]\none\ntwo\nthree\n```""Changed `a.txt`.""Changed `a.txt`."
            EndTurn
            a.txt: Some("one\nzwei\nthree\n"), 0 terminals
        "#]],
    )
    .await;
    check(stalls("terminal/create"), "run make", expect![[r#"
        < session/request_permission turn2_1 "Run make"
        < terminal/create "make" in $ROOT limit 262144
        < $/cancel_request for terminal/create
        > "Running `make` did not work:\n\n```\nit is not known whether `make` runs: the editor did not answer terminal/create within 3 s\n```"
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
    check(stalls("terminal/wait_for_exit"), "run make", expect![[r#"
        < session/request_permission turn2_1 "Run make"
        < terminal/create "make" in $ROOT limit 262144
        < terminal/wait_for_exit t1
        < terminal/kill t1
        < $/cancel_request for terminal/wait_for_exit
        < terminal/output t1
        < terminal/release t1
        > "Running `make` did not work:\n\n```\n[`make` was ended because it took longer than 3 s; this is its output so far, through the editor, TIME]\n```"
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
    check(|editor, _| editor.queue_command(FakeCommand::endless("building\n")), "run make", expect![[r#"
        < session/request_permission turn2_1 "Run make"
        < terminal/create "make" in $ROOT limit 262144
        < terminal/wait_for_exit t1
        < terminal/kill t1
        < $/cancel_request for terminal/wait_for_exit
        < terminal/output t1
        < terminal/release t1
        > "Running `make` did not work:\n\n```\n[`make` was ended because it took longer than 3 s; this is its output so far, through the editor, TIME]\nbuilding\n```"
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
}

#[tokio::test]
async fn an_editor_that_dies_ends_the_turn() {
    for method in ["fs/read_text_file", "fs/write_text_file", "session/request_permission", "terminal/create"]
    {
        for trouble in [EditorFault::Disconnect, EditorFault::DisconnectAfterActing] {
            let prompt = format!("{EDIT_PROMPT}\nrun make");
            let ended = run_turn(|editor, _| editor.queue_fault(method, trouble), &prompt).await;
            assert!(ended.contains("\n! "), "{method}: {ended}");
        }
    }
}

/// A turn survives a power failure from the moment that the client has its end.
#[tokio::test]
async fn a_turn_is_durable_before_its_end_is_told() {
    faulty_sqlite::install();
    let base = tempfile::tempdir().unwrap();
    let agent = new_agent(base.path());
    let editor = FakeEditor::new(EditorCapabilities::ALL);
    let (_client, handle) = editor.connect(agent.clone()).await.unwrap();
    let session = handle.new_session(NewSessionRequest::new(base.path())).await.unwrap().session_id;
    for prompt in ["say one", "say two"] {
        handle.prompt(PromptRequest::new(session.clone(), vec![prompt.into()])).await.unwrap();
        let unsynced = faulty_sqlite::unsynced_files();
        assert_eq!(unsynced, [] as [std::path::PathBuf; 0], "after {prompt}");
    }
    agent.shut_down().await;
}
