//! F05, and F04: a turn that is cancelled after every single message of the agent, by clients that answer what they were
//! asked, and by such that do not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::model_server::{ModelServer, Say};

use super::{Tether, left_running, open_calls, replayed, updates};
use crate::conformance::{editor, opened};
use crate::program::{Answer, Program, Scene, is_answer};

/// A second is promised. A machine that does much else at the same time is given more, but less than an editor that does
/// not answer is.
const PATIENCE: Duration = Duration::from_secs(45);

const PROMPT: &str = "think first
plan: look; change
read a.txt
list
find one
replace \"one\" with \"two\" in a.txt
run echo hi
stream 4
say done";

/// What the client does with the request after which it cancels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Answers,
    NeverAnswers,
    AnswersAfterTheTurn,
}

/// How a turn went that was to be cancelled.
enum Cut {
    /// As it should; if the message after which it was cancelled is a request, its method.
    Cancelled(Option<String>),
    /// It was over before.
    TooShort,
}

async fn new_session(program: &mut Program, scene: &Scene) -> String {
    let session = program.new_session(&scene.project()).await;
    program.until(|it| it["params"]["update"]["sessionUpdate"] == "available_commands_update").await;
    session
}

/// Cancels a turn after so many messages, and checks all that has to hold then.
async fn cut(program: &mut Program, session: &str, prompt: &str, after: usize, last: Last) -> Cut {
    let begin = program.seen.len();
    let turn = program.prompt(session, prompt).await;
    let message = loop {
        let message = program.line().await.unwrap();
        if is_answer(&message, turn) {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return Cut::TooShort;
        }
        if program.seen.len() - begin == after {
            break message;
        }
        program.take(message).await;
    };
    let method = message.get("id").and(message["method"].as_str()).map(str::to_owned);
    let what = format!("message {after}, {last:?}: {message}");
    if last == Last::Answers {
        program.take(message.clone()).await;
    }
    let at = program.seen.len();
    program.notify("session/cancel", json!({"sessionId": session})).await;
    let asked = Instant::now();
    let answer = program.answer(turn).await;
    assert!(asked.elapsed() < PATIENCE, "{what}: {:?}", asked.elapsed());
    let reason = answer["result"]["stopReason"].as_str().unwrap_or_default();
    // A turn that nobody is to answer anything to may have ended before it heard.
    let is_right =
        reason == "cancelled" || (reason == "end_turn" && (method.is_none() || last == Last::Answers));
    assert!(is_right, "{what}: {answer}");

    let withdrawn = program.seen[at..].iter().filter(|it| it["method"] == "$/cancel_request");
    let withdrawn: Vec<&Value> = withdrawn.map(|it| &it["params"]["requestId"]).collect();
    if last != Last::Answers && method.is_some() {
        assert!(
            withdrawn.contains(&&message["id"]),
            "{what}: it is not told that nobody waits: {withdrawn:?}"
        );
    }
    let answered = program.seen.len();
    if last == Last::AnswersAfterTheTurn {
        program.take(message).await;
    }
    program.call("session/list", json!({"cwd": "/nowhere"})).await;
    assert_eq!(updates(&program.seen[answered..], session), Vec::<&Value>::new(), "{what}: after the end");
    assert_eq!(open_calls(&program.seen[begin..], session), Vec::<String>::new(), "{what}");
    let again = program.seen.iter().filter(|it| is_answer(it, turn)).count();
    assert_eq!(again, 1, "{what}: it is answered once");
    Cut::Cancelled(method)
}

/// A session whose turn was cancelled is as good as any other.
async fn goes_on(program: &mut Program, scene: &Scene, session: &str, what: &str) {
    let before = program.seen.len();
    assert_eq!(program.turn(session, "say next").await, "end_turn", "{what}");
    let old =
        updates(&program.seen[before..], session).into_iter().filter(|it| it.get("toolCallId").is_some());
    assert_eq!(old.count(), 0, "{what}: something of the last turn comes after it");
    let told = replayed(program, scene, session).await;
    assert!(told.contains("> say next\n< next\n"), "{what}: {told}");
    assert!(!told.contains(": pending") && !told.contains(": in_progress"), "{what}: {told}");
}

async fn everywhere(last: Last) -> Vec<String> {
    let scene = Scene::new();
    let mut program = scene.start(&["--shell"]);
    program.initialize(editor()).await;
    let mut methods = Vec::new();
    for after in 1.. {
        scene.put("a.txt", "one\n");
        let session = new_session(&mut program, &scene).await;
        let before = program.seen.len();
        let Cut::Cancelled(method) = cut(&mut program, &session, PROMPT, after, last).await else { break };
        let what = format!("message {after}, {last:?}, {method:?}");
        match (method.as_deref(), last) {
            // What was asked for and not done is in the client's hands.
            (Some("terminal/release"), Last::NeverAnswers) => program.terminals.clear(),
            // One that comes when nobody wants it any more is given up.
            (Some("terminal/create"), Last::AnswersAfterTheTurn) => {
                // It may have been given up already.
                let is_release = |it: &Value| it["method"] == "terminal/release";
                if !program.seen[before..].iter().any(is_release) {
                    program.until(is_release).await;
                }
            }
            _ => {}
        }
        assert!(program.terminals.is_empty(), "{what}: {:?}", program.terminals);
        goes_on(&mut program, &scene, &session, &what).await;
        program.call("session/close", json!({"sessionId": session})).await;
        methods.extend(method);
    }
    assert_eq!(program.end().await, Some(0));
    methods.sort();
    methods.dedup();
    methods
}

const ASKED: [&str; 7] = [
    "fs/read_text_file",
    "fs/write_text_file",
    "session/request_permission",
    "terminal/create",
    "terminal/output",
    "terminal/release",
    "terminal/wait_for_exit",
];

#[tokio::test]
async fn a_turn_is_cancelled_after_any_message() {
    assert_eq!(everywhere(Last::Answers).await, ASKED);
}

#[tokio::test]
async fn a_turn_is_cancelled_while_the_client_owes_an_answer() {
    assert_eq!(everywhere(Last::NeverAnswers).await, ASKED);
}

#[tokio::test]
async fn answers_that_come_after_the_turn_harm_nobody() {
    assert_eq!(everywhere(Last::AnswersAfterTheTurn).await, ASKED);
}

/// The same on this machine: what the turn runs is gone when it is answered.
#[tokio::test]
async fn a_turn_that_is_cancelled_leaves_no_process() {
    let scene = Scene::new();
    let mut program = scene.start(&["--shell", "--mode", "full"]);
    program.initialize(json!({})).await;
    let prompt = "write a.txt: one\nread a.txt\nrun echo hi\nrun sleep 1000";
    for after in 1.. {
        std::fs::remove_file(scene.project().join("a.txt")).unwrap_or_default();
        let session = new_session(&mut program, &scene).await;
        let before = program.seen.len();
        let Cut::Cancelled(_) = cut(&mut program, &session, prompt, after, Last::Answers).await else {
            panic!()
        };
        assert_eq!(left_running(&scene), Vec::<String>::new(), "message {after}");
        goes_on(&mut program, &scene, &session, &format!("message {after}")).await;
        let begun = updates(&program.seen[before..], &session).into_iter();
        let titles: Vec<&Value> =
            begun.filter(|it| it["status"] == "in_progress").map(|it| &it["toolCallId"]).collect();
        // The last message is that the last command runs.
        if titles.len() == 4 {
            break;
        }
    }
}

/// A command that has begun, with what it has started beside itself.
#[tokio::test]
async fn a_command_and_its_offspring_end_with_the_turn() {
    let scene = Scene::new();
    let (mut program, session) = opened(&scene, &["--shell", "--mode", "full"], json!({})).await;
    let mut tether = Tether::new(&scene.project().join("tether"));
    let command = "run exec 3>tether; trap '' TERM INT HUP; setsid sleep 1000 & (sleep 1001 &) ; sleep 1002";
    let turn = program.prompt(&session, command).await;
    tether.begun().await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    let asked = Instant::now();
    assert_eq!(program.answer(turn).await["result"]["stopReason"], "cancelled");
    assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
    tether.gone().await;
    goes_on(&mut program, &scene, &session, "a command").await;
}

/// In the middle of a stream that takes its time, and between the calls of one reply.
#[tokio::test]
async fn a_reply_is_cut_between_its_pieces_and_its_calls() {
    let scene = Scene::new();
    scene.put("a.txt", "one\n");
    let script = scene.home().join("script.jsonl");
    let read = json!({"name": "read_text_file", "input": {"path": "a.txt"}});
    let write = json!({"name": "write_text_file", "input": {"path": "b.txt", "content": "b"}});
    let reply = json!({"thought": "hm", "chunks": ["a", "b", "c"], "chunk_ms": 5, "calls": [read, write, read],
        "usage": {"input": 10, "output": 5}});
    std::fs::write(&script, format!("{reply}\n{}\n", json!({"text": "done"}))).unwrap();
    let model = format!("script:{}", script.display());
    let mut cuts = 0;
    for after in 1.. {
        // A script goes on where it was, so every round has a program of its own.
        let (mut program, session) = opened(&scene, &["--model", &model], editor()).await;
        let cut = cut(&mut program, &session, "go", after, Last::Answers).await;
        program.end().await;
        let Cut::Cancelled(_) = cut else { break };
        cuts += 1;
        let mut program = scene.start(&[]);
        program.initialize(editor()).await;
        let told = replayed(&mut program, &scene, &session).await;
        assert!(told.starts_with("> go\n") && !told.contains(": pending"), "{told}");
    }
    assert!(cuts > 15, "{cuts}");
}

/// What a provider gets after a turn was cancelled: every call has an answer, and the roles take turns.
#[tokio::test]
async fn the_conversation_stays_one_that_providers_take() {
    for after in 1.. {
        let scene = Scene::new();
        scene.put("a.txt", "one\n");
        let server = ModelServer::start(vec![
            Say::call("read_text_file", json!({"path": "a.txt"})),
            Say::call("write_text_file", json!({"path": "a.txt", "content": "two\n"})),
            Say::call("execute", json!({"command": "echo hi"})),
            Say::text("that is all"),
        ]);
        let server = server.await.unwrap();
        let mut command = scene.command(&["--shell", "--model", "gemini/test"]);
        command.env("GEMINI_API_KEY", "key").env("GEMINI_BASE_URL", server.url());
        let mut program = Program::start(command);
        program.initialize(editor()).await;
        let session = new_session(&mut program, &scene).await;
        program.permission = Answer::Kind("allow_once");
        let cut = cut(&mut program, &session, "go", after, Last::NeverAnswers).await;
        if let Cut::TooShort = cut {
            break;
        }
        assert_eq!(program.turn(&session, "and now?").await, "end_turn");
        let heard = server.heard();
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
