//! A turn cancelled after every single message of the agent, by clients that answer pending requests and by clients
//! that do not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::model_server::{ModelReply, ModelServer};

use super::{LifetimePipe, find_leftover_processes, open_calls, replay_session, session_updates};
use crate::conformance::{editor_capabilities, open_session};
use crate::program::{AgentFixture, AgentProgram, PermissionReply, is_answer};

/// The promise is one second. A busy machine gets more, but less than the timeout of an unresponsive editor.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(45);

const PROMPT: &str = "think first
plan: look; change
read a.txt
list
find one
replace \"one\" with \"two\" in a.txt
run echo hi
stream 4
say done";

/// When the client answers the request after which it cancels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerTiming {
    BeforeCancel,
    Never,
    AfterTurn,
}

/// The outcome of a turn to be cancelled.
enum CancelOutcome {
    /// It was cancelled; with the method, if the message before the cancel was a request.
    Cancelled(Option<String>),
    /// It ended before.
    TooShort,
}

async fn new_session(program: &mut AgentProgram, scene: &AgentFixture) -> String {
    let session = program.new_session(&scene.project()).await;
    program.wait_for(|it| it["params"]["update"]["sessionUpdate"] == "available_commands_update").await;
    session
}

/// Cancels a turn after a number of messages, and checks all invariants.
async fn cancel_after(
    program: &mut AgentProgram,
    session: &str,
    prompt: &str,
    after: usize,
    last: AnswerTiming,
) -> CancelOutcome {
    let begin = program.messages.len();
    let turn = program.prompt(session, prompt).await;
    let message = loop {
        let message = program.next_message().await.unwrap();
        if is_answer(&message, turn) {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return CancelOutcome::TooShort;
        }
        if program.messages.len() - begin == after {
            break message;
        }
        program.handle_message(message).await;
    };
    let method = message.get("id").and(message["method"].as_str()).map(str::to_owned);
    let what = format!("message {after}, {last:?}: {message}");
    if last == AnswerTiming::BeforeCancel {
        program.handle_message(message.clone()).await;
    }
    let at = program.messages.len();
    program.notify("session/cancel", json!({"sessionId": session})).await;
    let asked = Instant::now();
    let answer = program.wait_for_answer(turn).await;
    assert!(asked.elapsed() < CANCEL_TIMEOUT, "{what}: {:?}", asked.elapsed());
    let reason = answer["result"]["stopReason"].as_str().unwrap_or_default();
    // A turn that awaits no answer may end before the cancel arrives.
    let is_right = reason == "cancelled"
        || (reason == "end_turn" && (method.is_none() || last == AnswerTiming::BeforeCancel));
    assert!(is_right, "{what}: {answer}");

    let withdrawn = program.messages[at..].iter().filter(|it| it["method"] == "$/cancel_request");
    let withdrawn: Vec<&Value> = withdrawn.map(|it| &it["params"]["requestId"]).collect();
    if last != AnswerTiming::BeforeCancel && method.is_some() {
        assert!(withdrawn.contains(&&message["id"]), "{what}: no cancel was sent: {withdrawn:?}");
    }
    let answered = program.messages.len();
    if last == AnswerTiming::AfterTurn {
        program.handle_message(message).await;
    }
    program.call("session/list", json!({"cwd": "/nowhere"})).await;
    assert_eq!(
        session_updates(&program.messages[answered..], session),
        Vec::<&Value>::new(),
        "{what}: after the end"
    );
    assert_eq!(open_calls(&program.messages[begin..], session), Vec::<String>::new(), "{what}");
    let again = program.messages.iter().filter(|it| is_answer(it, turn)).count();
    assert_eq!(again, 1, "{what}: it is answered once");
    CancelOutcome::Cancelled(method)
}

/// Checks that a session works as usual after a cancelled turn.
async fn check_session_continues(
    program: &mut AgentProgram,
    scene: &AgentFixture,
    session: &str,
    what: &str,
) {
    let before = program.messages.len();
    assert_eq!(program.run_turn(session, "say next").await, "end_turn", "{what}");
    let old = session_updates(&program.messages[before..], session)
        .into_iter()
        .filter(|it| it.get("toolCallId").is_some());
    assert_eq!(old.count(), 0, "{what}: something of the last turn comes after it");
    let told = replay_session(program, scene, session).await;
    assert!(told.contains("> say next\n< next\n"), "{what}: {told}");
    assert!(!told.contains(": pending") && !told.contains(": in_progress"), "{what}: {told}");
}

async fn cancel_everywhere(last: AnswerTiming) -> Vec<String> {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&["--shell"]);
    program.initialize(editor_capabilities()).await;
    let mut methods = Vec::new();
    for after in 1.. {
        scene.write_file("a.txt", "one\n");
        let session = new_session(&mut program, &scene).await;
        let before = program.messages.len();
        let CancelOutcome::Cancelled(method) =
            cancel_after(&mut program, &session, PROMPT, after, last).await
        else {
            break;
        };
        let what = format!("message {after}, {last:?}, {method:?}");
        match (method.as_deref(), last) {
            // The client has not carried out the release.
            (Some("terminal/release"), AnswerTiming::Never) => program.terminals.clear(),
            // A terminal that is created too late is released.
            (Some("terminal/create"), AnswerTiming::AfterTurn) => {
                // It may have been released already.
                let is_release = |it: &Value| it["method"] == "terminal/release";
                if !program.messages[before..].iter().any(is_release) {
                    program.wait_for(is_release).await;
                }
            }
            _ => {}
        }
        assert!(program.terminals.is_empty(), "{what}: {:?}", program.terminals);
        check_session_continues(&mut program, &scene, &session, &what).await;
        program.call("session/close", json!({"sessionId": session})).await;
        methods.extend(method);
    }
    assert_eq!(program.close().await, Some(0));
    methods.sort();
    methods.dedup();
    methods
}

const EXPECTED_REQUESTS: [&str; 7] = [
    "fs/read_text_file", "fs/write_text_file", "session/request_permission", "terminal/create",
    "terminal/output", "terminal/release", "terminal/wait_for_exit",
];

#[tokio::test]
async fn a_turn_is_cancelled_after_any_message() {
    assert_eq!(cancel_everywhere(AnswerTiming::BeforeCancel).await, EXPECTED_REQUESTS);
}

#[tokio::test]
async fn a_turn_is_cancelled_while_the_client_owes_an_answer() {
    assert_eq!(cancel_everywhere(AnswerTiming::Never).await, EXPECTED_REQUESTS);
}

#[tokio::test]
async fn answers_after_the_turn_are_harmless() {
    assert_eq!(cancel_everywhere(AnswerTiming::AfterTurn).await, EXPECTED_REQUESTS);
}

/// The same with a local runtime: the turn's processes are gone when it is answered.
#[tokio::test]
async fn a_turn_that_is_cancelled_leaves_no_process() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&["--shell", "--mode", "full"]);
    program.initialize(json!({})).await;
    let prompt = "write a.txt: one\nread a.txt\nrun echo hi\nrun sleep 1000";
    for after in 1.. {
        std::fs::remove_file(scene.project().join("a.txt")).unwrap_or_default();
        let session = new_session(&mut program, &scene).await;
        let before = program.messages.len();
        let CancelOutcome::Cancelled(_) =
            cancel_after(&mut program, &session, prompt, after, AnswerTiming::BeforeCancel).await
        else {
            panic!()
        };
        assert_eq!(find_leftover_processes(&scene), Vec::<String>::new(), "message {after}");
        check_session_continues(&mut program, &scene, &session, &format!("message {after}")).await;
        let begun = session_updates(&program.messages[before..], &session).into_iter();
        let titles: Vec<&Value> =
            begun.filter(|it| it["status"] == "in_progress").map(|it| &it["toolCallId"]).collect();
        // The last message reports that the last command runs.
        if titles.len() == 4 {
            break;
        }
    }
}

/// A running command ends together with its child processes.
#[tokio::test]
async fn a_command_and_its_offspring_end_with_the_turn() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &["--shell", "--mode", "full"], json!({})).await;
    let mut tether = LifetimePipe::new(&scene.project().join("tether"));
    let command = "run exec 3>tether; trap '' TERM INT HUP; setsid sleep 1000 & (sleep 1001 &) ; sleep 1002";
    let turn = program.prompt(&session, command).await;
    tether.wait_opened().await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    let asked = Instant::now();
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
    assert!(asked.elapsed() < CANCEL_TIMEOUT, "{:?}", asked.elapsed());
    tether.wait_closed().await;
    check_session_continues(&mut program, &scene, &session, "a command").await;
}

/// In the middle of a slow stream, and between the calls of one reply.
#[tokio::test]
async fn a_reply_is_cut_between_its_pieces_and_its_calls() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "one\n");
    let script = scene.home().join("script.jsonl");
    let read = json!({"name": "read_text_file", "input": {"path": "a.txt"}});
    let write = json!({"name": "write_text_file", "input": {"path": "b.txt", "content": "b"}});
    let reply = json!({"thought": "hm", "chunks": ["a", "b", "c"], "chunk_ms": 5, "calls": [read, write, read],
        "usage": {"input": 10, "output": 5}});
    std::fs::write(&script, format!("{reply}\n{}\n", json!({"text": "done"}))).unwrap();
    let model = format!("script:{}", script.display());
    let mut cuts = 0;
    for after in 1.. {
        // A script continues where it was, so every round starts a new program.
        let (mut program, session) = open_session(&scene, &["--model", &model], editor_capabilities()).await;
        let cut = cancel_after(&mut program, &session, "go", after, AnswerTiming::BeforeCancel).await;
        program.close().await;
        let CancelOutcome::Cancelled(_) = cut else { break };
        cuts += 1;
        let mut program = scene.start_agent(&[]);
        program.initialize(editor_capabilities()).await;
        let told = replay_session(&mut program, &scene, &session).await;
        assert!(told.starts_with("> go\n") && !told.contains(": pending"), "{told}");
    }
    assert!(cuts > 15, "{cuts}");
}

/// The conversation stays valid for providers after a cancelled turn: every call has a result, and the roles alternate.
#[tokio::test]
async fn a_cancelled_conversation_stays_valid_for_providers() {
    for after in 1.. {
        let scene = AgentFixture::new();
        scene.write_file("a.txt", "one\n");
        let server = ModelServer::start(vec![
            ModelReply::call("read_text_file", json!({"path": "a.txt"})),
            ModelReply::call("write_text_file", json!({"path": "a.txt", "content": "two\n"})),
            ModelReply::call("execute", json!({"command": "echo hi"})),
            ModelReply::text("that is all"),
        ]);
        let server = server.await.unwrap();
        let mut command = scene.agent_command(&["--shell", "--model", "gemini/test"]);
        command.env("GEMINI_API_KEY", "key").env("GEMINI_BASE_URL", server.url());
        let mut program = AgentProgram::start(command);
        program.initialize(editor_capabilities()).await;
        let session = new_session(&mut program, &scene).await;
        program.permission_reply = PermissionReply::Kind("allow_once");
        let cut = cancel_after(&mut program, &session, "go", after, AnswerTiming::Never).await;
        if let CancelOutcome::TooShort = cut {
            break;
        }
        assert_eq!(program.run_turn(&session, "and now?").await, "end_turn");
        let heard = server.requests();
        check_turns(heard.last().unwrap()["contents"].as_array().unwrap(), after);
    }
}

fn check_turns(contents: &[Value], after: usize) {
    let parts = |content: &Value, kind: &str| {
        let parts =
            content["parts"].as_array().unwrap().iter().filter_map(|part| part[kind]["name"].as_str());
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    let what = format!("message {after}: {contents:#?}");
    assert_eq!(contents[0]["role"], "user", "{what}");
    for (at, content) in contents.iter().enumerate() {
        let calls = parts(content, "functionCall");
        let answers = contents.get(at + 1).map(|next| parts(next, "functionResponse")).unwrap_or_default();
        assert_eq!(calls, answers, "{what}");
        if let Some(next) = contents.get(at + 1) {
            assert!(content["role"] != "model" || next["role"] != "model", "{what}");
        }
    }
}
