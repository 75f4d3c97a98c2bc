//! Whole turns with an editor that formats on save, whose user types and refuses, that stalls and that dies. The agent is
//! in the same process, so that it need not wait a minute for an editor that stalls.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_agent::agent::BowlineAgent;
use bowline_agent::keys::Keyring;
use bowline_agent::model::catalogue::{Models, ModelsSettings};
use bowline_agent::settings::{Places, Settings};
use bowline_state::failure::Failure;
use bowline_state::schema::v1::{NewSessionRequest, PermissionOptionKind, PromptRequest};
use bowline_workspace::terminals::{self, Supervisor};
use expect_test::{Expect, expect};
use test_support::editor::{Editor, Offers, Run, Says, Trouble};
use test_support::faulty_sqlite;

/// How long an editor is waited for, and a command.
const LIMIT: Duration = Duration::from_secs(3);

/// Returns an agent that keeps its state below a directory.
fn agent(base: &Path) -> BowlineAgent {
    let places = Places {
        state: base.join("state"),
        policy: base.join("config/policy.toml"),
        anchors: base.join("anchors"),
        keys: base.join("config/keys.json"),
    };
    let supervisor = Supervisor { program: "/no/supervisor".into(), args: Vec::new() };
    let mut settings = Settings::new(places, terminals::Settings::new(supervisor));
    settings.shell = true;
    // An editor that does not stall answers at once, or a little later on a machine that does much else.
    settings.client_timeout = LIMIT;
    settings.review_timeout = LIMIT;
    settings.command_timeout = LIMIT;
    let keys = Keyring::new(None);
    let models = Models::new(ModelsSettings { keys: keys.clone(), ..ModelsSettings::default() });
    BowlineAgent::new(settings, models, keys)
}

/// Takes a turn with an editor that has `a.txt` open, and returns what it was asked, what the agent said, and what the
/// editor has in the end.
async fn told(prepare: impl FnOnce(&Editor, &str), prompt: &str) -> String {
    let base = tempfile::tempdir().unwrap();
    let project = base.path().canonicalize().unwrap().join("project");
    std::fs::create_dir(&project).unwrap();
    let agent = agent(base.path());
    let editor = Editor::new(Offers::ALL);
    editor.hide(&project.display().to_string(), "$ROOT");
    let path = project.join("a.txt").display().to_string();
    editor.put(&path, "one\ntwo\nthree\n");
    let (_client, handle) = editor.connect(agent.clone()).await.unwrap();
    let session = handle.new_session(NewSessionRequest::new(&project)).await.unwrap().session_id;
    editor.until("available_commands_update").await;
    // The first turn reads what is to be read once.
    handle.prompt(PromptRequest::new(session.clone(), vec!["say hi".into()])).await.unwrap();
    editor.take_log();
    prepare(&editor, &path);
    let answer = handle.prompt(PromptRequest::new(session, vec![prompt.into()])).await;
    let mut told = shown(&editor);
    match answer {
        Ok(answer) => writeln!(told, "{:?}", answer.stop_reason).unwrap(),
        Err(error) => writeln!(told, "! {error}").unwrap(),
    }
    agent.shut_down().await;
    writeln!(told, "a.txt: {:?}, {} terminals", editor.get(&path), editor.open_terminals()).unwrap();
    told
}

fn shown(editor: &Arc<Editor>) -> String {
    let (mut asked, mut said) = (String::new(), String::new());
    for line in editor.take_log().lines() {
        if line.starts_with("< ") {
            writeln!(asked, "{line}").unwrap();
        } else if let Some(text) = line.strip_prefix("> text ") {
            said.push_str(&without_time(text));
        }
    }
    format!("{asked}> {said}\n")
}

/// Returns a text without how long a command took.
fn without_time(text: &str) -> String {
    let taken = text.split_once("through the editor, ").and_then(|(before, rest)| {
        let (_, after) = rest.split_once(" s]")?;
        Some(format!("{before}through the editor, TIME]{after}"))
    });
    taken.unwrap_or_else(|| text.to_owned())
}

async fn check(prepare: impl FnOnce(&Editor, &str), prompt: &str, expected: Expect) {
    expected.assert_eq(&told(prepare, prompt).await);
}

const EDIT: &str = "read a.txt\nreplace \"two\" with \"2\" in a.txt\nreplace \"2\" with \"zwei\" in a.txt";

#[tokio::test]
async fn an_editor_that_formats_on_save_is_believed() {
    check(|editor, _| editor.format(|_, text| text.to_uppercase()), EDIT, expect![[r#"
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
            editor.after("session/request_permission", move |documents| {
                documents.insert(path, "one\ntwo\nthree\nfour, typed\n".to_owned());
            });
        },
        EDIT,
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
            > "`a.txt`:\n\n```txt\n[a.txt: all of it, 3 lines, read through the editor]\none\ntwo\nthree\n```""Changed `a.txt`.\n\n```\nEdited a.txt in 1 place, through the editor.\nSomebody else had changed the file since you last saw it:\n@@ -3 +3,2 @@\n three\n+four, typed\n```""Changed `a.txt`."
            EndTurn
            a.txt: Some("one\nzwei\nthree\nfour, typed\n"), 0 terminals
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_editor_that_refuses_is_told_of() {
    let refuses = |method: &'static str| {
        move |editor: &Editor, _: &str| {
            let error = Failure::Denied { why: "not now".to_owned() };
            editor.trouble(method, Trouble::Refuses(error.into()));
        }
    };
    check(refuses("fs/write_text_file"), EDIT, expect![[r#"
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
    check(|editor, _| editor.say(Says::Kind(PermissionOptionKind::RejectOnce)), EDIT, expect![[r#"
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
    let stalls =
        |method: &'static str| move |editor: &Editor, _: &str| editor.trouble(method, Trouble::Stalls);
    check(stalls("fs/read_text_file"), "read a.txt\nsay not reached", expect![[r#"
        < fs/read_text_file $ROOT/a.txt
        < $/cancel_request for fs/read_text_file
        > "Reading `a.txt` did not work:\n\n```\na.txt: the editor did not answer fs/read_text_file within 3 s\n```""\n\n""I stop here; 1 command was not done."
        EndTurn
        a.txt: Some("one\ntwo\nthree\n"), 0 terminals
    "#]]).await;
    check(stalls("fs/write_text_file"), EDIT, expect![[r#"
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
        |editor, _| editor.trouble("fs/write_text_file", Trouble::StallsAfterwards),
        EDIT,
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
    check(|editor, _| editor.run(Run::endless("building\n")), "run make", expect![[r#"
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
        for trouble in [Trouble::Dies, Trouble::DiesAfterwards] {
            let prompt = format!("{EDIT}\nrun make");
            let ended = told(|editor, _| editor.trouble(method, trouble), &prompt).await;
            assert!(ended.contains("\n! "), "{method}: {ended}");
        }
    }
}

/// F22: what a turn came to survives a power failure from the moment that the client has its end.
#[tokio::test]
async fn a_turn_is_durable_before_its_end_is_told() {
    faulty_sqlite::install();
    let base = tempfile::tempdir().unwrap();
    let agent = agent(base.path());
    let editor = Editor::new(Offers::ALL);
    let (_client, handle) = editor.connect(agent.clone()).await.unwrap();
    let session = handle.new_session(NewSessionRequest::new(base.path())).await.unwrap().session_id;
    for prompt in ["say one", "say two"] {
        handle.prompt(PromptRequest::new(session.clone(), vec![prompt.into()])).await.unwrap();
        let unsynced = faulty_sqlite::unsynced_files();
        assert_eq!(unsynced, [] as [std::path::PathBuf; 0], "after {prompt}");
    }
    agent.shut_down().await;
}
