//! Protocol conformance over pipes: what ACP asks of an agent, checked with the real program.

use serde_json::{Value, json};

use crate::program::{AgentFixture, AgentProgram, PermissionReply};

const EDITOR_CAPABILITIES: &str =
    r#"{"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true}"#;

pub(crate) fn editor_capabilities() -> Value {
    serde_json::from_str(EDITOR_CAPABILITIES).unwrap()
}

pub(crate) async fn open_session(
    scene: &AgentFixture,
    arguments: &[&str],
    capabilities: Value,
) -> (AgentProgram, String) {
    let mut program = scene.start_agent(arguments);
    program.initialize(capabilities).await;
    let session = program.new_session(&scene.project()).await;
    (program, session)
}

/// `initialize` is answered for any requested version, and stdout has only messages.
#[tokio::test]
async fn initialize_is_answered_with_a_version_that_is_spoken_and_all_capabilities() {
    let scene = AgentFixture::new();
    for asked in [0, 1, 2, 99, 65535] {
        let mut program = scene.start_agent(&[]);
        let answer = program.call("initialize", json!({"protocolVersion": asked})).await;
        assert_eq!(answer["protocolVersion"], 1, "asked for {asked}");
        assert_eq!(answer["agentInfo"]["name"], "bowline");
        let capabilities = &answer["agentCapabilities"];
        assert_eq!(capabilities["loadSession"], true);
        assert_eq!(capabilities["promptCapabilities"]["image"], true);
        assert_eq!(capabilities["promptCapabilities"]["embeddedContext"], true);
        assert_eq!(capabilities["mcpCapabilities"]["http"], true);
        let methods = answer["authMethods"].as_array().unwrap();
        assert!(methods.iter().all(|method| method["type"] != "terminal"), "{methods:?}");
        assert_eq!(program.close().await, Some(0));
    }
    // An invalid version is an error, and the next attempt counts.
    let mut program = scene.start_agent(&[]);
    for wrong in [json!(-1), json!(1.5), json!("1")] {
        let error = program.call_error("initialize", json!({"protocolVersion": wrong})).await;
        assert_eq!(error["code"], -32602, "{error}");
    }
    let error = program.call_error("initialize", json!({"protocolVersion": -1})).await;
    let why = "protocolVersion is -1: a version is a whole number, 0 or more";
    assert!(error.to_string().contains(why), "{error}");
    program.call("initialize", json!({"protocolVersion": u64::MAX})).await;
    assert_eq!(program.close().await, Some(0));
    let mut program = scene.start_agent(&[]);
    let answer = program.initialize(json!({"auth": {"terminal": true}})).await;
    let methods = answer["authMethods"].as_array().unwrap();
    assert!(methods.iter().any(|method| method["type"] == "terminal"), "{methods:?}");
}

/// Sessions have unique ids, and a prompt with links is answered once, with a stop reason.
#[tokio::test]
async fn a_prompt_of_text_and_a_link_is_answered_once() {
    let scene = AgentFixture::new();
    scene.write_file("notes.txt", "on disk\n");
    let (mut program, first) = open_session(&scene, &[], editor_capabilities()).await;
    let second = program.new_session(&scene.project()).await;
    assert_ne!(first, second);
    program.unsaved_files.insert(scene.path("notes.txt"), "not saved\n".to_owned());
    let link = json!({"type": "resource_link", "name": "notes", "uri": format!("file://{}", scene.path("notes.txt"))});
    let text = json!({"type": "text", "text": "say hello"});
    let prompt = json!({"sessionId": first, "prompt": [text, link]});
    let answer = program.call("session/prompt", prompt).await;
    assert_eq!(answer["stopReason"], "end_turn");
    let reads = program.messages.iter().filter(|message| message["method"] == "fs/read_text_file");
    let notes = reads.filter(|message| message["params"]["path"] == scene.path("notes.txt")).count();
    assert_eq!(notes, 1, "the link is read through the client");
    assert!(program.agent_text().starts_with("hello"), "{}", program.agent_text());
}

/// Loading replays everything before it answers, even in another process; resuming replays nothing.
#[tokio::test]
async fn a_session_is_replayed_when_it_is_loaded_and_not_when_it_is_resumed() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    let (mut program, session) = open_session(&scene, &[], editor_capabilities()).await;
    program.run_turn(&session, "read a.txt\nsay marker").await;
    let live = program.agent_text();
    let open = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
    let before = program.messages.len();
    program.call("session/load", open.clone()).await;
    let replayed = format_messages(&program.messages[before..]);
    program.close().await;

    let mut program = scene.start_agent(&[]);
    program.initialize(editor_capabilities()).await;
    program.call("session/load", open.clone()).await;
    let again = format_messages(&program.messages);
    assert_eq!(replayed, again, "the same process and another replay the same");
    assert!(again.starts_with("user_message_chunk: read a.txt\nsay marker\n"), "{again}");
    assert!(again.contains("tool_call: Read a.txt completed"), "{again}");
    assert!(again.contains("marker"), "{again}");
    assert_eq!(program.agent_text(), live);
    program.run_turn(&session, "say more").await;
    program.close().await;

    let mut program = scene.start_agent(&[]);
    program.initialize(editor_capabilities()).await;
    program.call("session/resume", open).await;
    let kinds = ["user_message_chunk", "agent_message_chunk", "tool_call"];
    assert!(kinds.iter().all(|kind| program.updates(kind).is_empty()));
    assert_eq!(program.run_turn(&session, "say goodbye").await, "end_turn");
    assert_eq!(program.agent_text(), "goodbye");
}

fn format_messages(messages: &[Value]) -> String {
    let update = |message: &Value| {
        let update = &message["params"]["update"];
        let kind = update["sessionUpdate"].as_str()?;
        let text = match kind {
            "user_message_chunk" | "agent_message_chunk" => update["content"]["text"].as_str()?.to_owned(),
            "tool_call" => format!("{} {}", update["title"].as_str()?, update["status"].as_str()?),
            _ => return None,
        };
        Some(format!("{kind}: {text}\n"))
    };
    messages.iter().filter_map(update).collect()
}

/// Closing a session and cancelling end the turn as cancelled, once, and nothing follows.
#[tokio::test]
async fn a_turn_is_cancelled_by_cancel_by_its_request_and_by_closing() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &["--shell"], editor_capabilities()).await;
    let updates = |message: &Value| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    for way in ["cancel", "request", "close"] {
        let turn = program.prompt(&session, "say begun\nwait 3600").await;
        program.wait_for(updates).await;
        let closed = match way {
            "cancel" => {
                program.notify("session/cancel", json!({"sessionId": session})).await;
                program.notify("session/cancel", json!({"sessionId": session})).await;
                None
            }
            "request" => {
                program.notify("$/cancel_request", json!({"requestId": turn})).await;
                None
            }
            _ => Some(program.request("session/close", json!({"sessionId": session})).await),
        };
        let answer = program.wait_for_answer(turn).await;
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{way}: {answer}");
        if let Some(closed) = closed {
            assert_eq!(program.wait_for_answer(closed).await["result"], json!({}));
        }
    }
    let error = program.call_error("session/prompt", json!({"sessionId": session, "prompt": []})).await;
    assert_eq!(error["code"], -32002, "{error}");
}

/// An idle cancel does not affect the next turn. A cancel during a permission request ends the turn.
#[tokio::test]
async fn a_cancel_during_a_question_ends_the_turn_and_an_idle_one_does_nothing() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[], editor_capabilities()).await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(program.run_turn(&session, "say fine").await, "end_turn");
    program.permission_reply = PermissionReply::Never;
    let turn = program.prompt(&session, "write a.txt: text").await;
    program.wait_for(|message| message["method"] == "session/request_permission").await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
    assert!(program.messages.iter().any(|message| message["method"] == "$/cancel_request"));
    let last = program.updates("tool_call_update").pop().unwrap();
    assert_eq!(last["status"], "failed", "{last}");
    program.permission_reply = PermissionReply::Cancelled;
    assert_eq!(program.run_turn(&session, "write a.txt: text").await, "cancelled");
    // An option that was not offered grants no permission.
    program.permission_reply = PermissionReply::Unknown;
    assert_eq!(program.run_turn(&session, "write a.txt: text").await, "end_turn");
    assert!(!scene.project().join("a.txt").exists());
}

/// The session's directory is the base of relative paths, and limits writes.
#[tokio::test]
async fn relative_paths_start_from_the_sessions_directory() {
    let scene = AgentFixture::new();
    let more = scene.home().join("more");
    std::fs::create_dir_all(&more).unwrap();
    let mut program = scene.start_agent(&["--mode", "accept-edits"]);
    program.initialize(json!({})).await;
    let open = json!({"cwd": scene.project(), "mcpServers": [], "additionalDirectories": [more]});
    let session = program.call("session/new", open).await["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(program.run_turn(&session, "write made.txt: by the agent").await, "end_turn");
    assert_eq!(scene.read_file("made.txt"), "by the agent");
    program.run_turn(&session, &format!("write {}/other.txt: there", more.display())).await;
    assert_eq!(std::fs::read_to_string(more.join("other.txt")).unwrap(), "there");
    let outside = scene.home().join("outside.txt");
    program.run_turn(&session, &format!("write {}: no", outside.display())).await;
    assert!(!outside.exists());
    let error = program.call_error("session/new", json!({"cwd": "relative", "mcpServers": []})).await;
    assert_eq!(error["code"], -32602, "{error}");
}

/// Under every set of capabilities only advertised methods are called, and terminals are released.
#[tokio::test]
async fn only_what_was_advertised_is_called() {
    let sets = [
        json!({}),
        json!({"fs": {"readTextFile": true}}),
        json!({"fs": {"writeTextFile": true}}),
        json!({"terminal": true}),
        json!({"fs": {"readTextFile": true, "writeTextFile": true}}),
        editor_capabilities(),
    ];
    for set in sets {
        let scene = AgentFixture::new();
        scene.write_file("a.txt", "one\n");
        let (mut program, session) = open_session(&scene, &["--shell"], set.clone()).await;
        let turn = "read a.txt\nreplace \"one\" with \"two\" in a.txt\nrun echo hi\nwrite b.txt: new";
        assert_eq!(program.run_turn(&session, turn).await, "end_turn", "{set}");
        assert_eq!(
            (scene.read_file("a.txt"), scene.read_file("b.txt")),
            ("two\n".to_owned(), "new".to_owned()),
            "{set}"
        );
        let used = |method: &str| program.count_calls(method) > 0;
        assert_eq!(used("fs/read_text_file"), set["fs"]["readTextFile"] == true, "{set}");
        assert_eq!(used("fs/write_text_file"), set["fs"]["writeTextFile"] == true, "{set}");
        assert_eq!(used("terminal/create"), set["terminal"] == true, "{set}");
        assert!(program.terminals.is_empty(), "{set}: {:?}", program.terminals);
        let mut calls = program.updates("tool_call");
        calls.extend(program.updates("tool_call_update"));
        let ended = calls.iter().filter(|call| call["status"] == "completed").count();
        assert_eq!(ended, 4, "{set}: {calls:#?}");
        let ids: std::collections::HashSet<&str> =
            program.messages.iter().filter_map(|it| it["params"]["update"]["toolCallId"].as_str()).collect();
        assert_eq!(ids.len(), 4, "ids are unique in the session");
    }
}

/// A command that times out is killed, its output so far reported, and its terminal released.
#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_and_released() {
    let scene = AgentFixture::new();
    let (mut program, session) =
        open_session(&scene, &["--shell", "--command-timeout", "1"], editor_capabilities()).await;
    program.has_endless_commands = true;
    program.run_turn(&session, "run sleep 1000").await;
    assert_eq!((program.count_calls("terminal/kill"), program.count_calls("terminal/release")), (1, 1));
    assert!(program.terminals.is_empty());
    assert!(program.agent_text().contains("some output"), "{}", program.agent_text());
}

/// Plans are sent complete.
#[tokio::test]
async fn plans_are_sent_complete() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[], json!({})).await;
    program.run_turn(&session, "plan: look; change; test").await;
    let plans = program.updates("plan");
    let entries: Vec<usize> = plans.iter().map(|plan| plan["entries"].as_array().unwrap().len()).collect();
    assert!(!entries.is_empty() && entries.iter().all(|count| *count == 3), "{plans:?}");
}

/// Options are complete and valid, and both ways to set a mode agree.
#[tokio::test]
async fn modes_and_options_are_kept_in_step() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let opened = program.call("session/new", json!({"cwd": scene.project(), "mcpServers": []})).await;
    let session = &opened["sessionId"];
    let options = opened["configOptions"].as_array().unwrap();
    for option in options {
        assert_eq!(option["type"], "select", "no boolean options were advertised");
        let values: Vec<&Value> =
            option["options"].as_array().unwrap().iter().map(|it| &it["value"]).collect();
        assert!(values.contains(&&option["currentValue"]), "{option}");
    }
    assert_eq!(options[0]["category"], "mode");
    assert_eq!(opened["modes"]["currentModeId"], options[0]["currentValue"]);

    program.call("session/set_mode", json!({"sessionId": session, "modeId": "full"})).await;
    let told = program.updates("config_option_update").pop().unwrap();
    assert_eq!(told["configOptions"][0]["currentValue"], "full");
    let set = json!({"sessionId": session, "configId": "mode", "value": "read-only"});
    let answer = program.call("session/set_config_option", set).await;
    assert_eq!(answer["configOptions"][0]["currentValue"], "read-only");
    assert_eq!(answer["configOptions"].as_array().unwrap().len(), options.len());
    let modes = program.updates("current_mode_update");
    assert_eq!(modes.last().unwrap()["currentModeId"], "read-only");
    let error = program.call_error("session/set_mode", json!({"sessionId": session, "modeId": "wild"})).await;
    assert_eq!(error["code"], -32602);
    let set = json!({"sessionId": session, "configId": "model", "value": "no/such"});
    assert_eq!(program.call_error("session/set_config_option", set).await["code"], -32602);
}

/// Sessions are listed by pages and by directory, and a deleted one cannot be loaded.
#[tokio::test]
async fn sessions_are_listed_by_pages_and_deleted() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let mut made = std::collections::BTreeSet::new();
    for _ in 0..120 {
        made.insert(program.new_session(&scene.project()).await);
    }
    let mut listed = std::collections::BTreeSet::new();
    let mut cursor = Value::Null;
    loop {
        let page = program.call("session/list", json!({"cursor": cursor, "cwd": scene.project()})).await;
        let sessions = page["sessions"].as_array().unwrap();
        assert!(!sessions.is_empty() && sessions.len() <= 100, "{}", sessions.len());
        for session in sessions {
            assert!(listed.insert(session["sessionId"].as_str().unwrap().to_owned()), "listed twice");
            assert_eq!(session["cwd"], json!(scene.project()));
            assert!(session["updatedAt"].as_str().unwrap().ends_with('Z'));
        }
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(made, listed);
    assert_eq!(program.call("session/list", json!({"cwd": "/nonexistent"})).await["sessions"], json!([]));
    assert_eq!(program.call_error("session/list", json!({"cursor": "!!!"})).await["code"], -32602);
    let gone = made.first().unwrap();
    for id in [gone.as_str(), gone.as_str(), "unknown"] {
        assert_eq!(program.call("session/delete", json!({"sessionId": id})).await, json!({}));
    }
    let open = json!({"sessionId": gone, "cwd": scene.project(), "mcpServers": []});
    assert_eq!(program.call_error("session/load", open).await["code"], -32002);
}

/// An editor that always logs in by key can use a model that needs none.
#[tokio::test]
async fn login_by_key_succeeds_where_the_model_needs_none() {
    let scene = AgentFixture::new();
    let local = ["--model", "compatible/tiny", "--base-url", "http://127.0.0.1:9/v1"];
    for (model, succeeds) in [(&local[..], true), (&["--model", "anthropic/claude-opus-4-5"], false)] {
        let mut program = scene.start_agent(model);
        program.initialize(json!({})).await;
        let id = program.request("authenticate", json!({"methodId": "api-key"})).await;
        let answer = program.wait_for_answer(id).await;
        assert_eq!(answer["error"].is_null(), succeeds, "{model:?}: {answer}");
    }
}

/// Logging in and out return objects, a slash runs a command, and unadvertised blocks are an error.
#[tokio::test]
async fn login_slash_commands_and_unadvertised_blocks() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[], json!({})).await;
    assert_eq!(program.call("authenticate", json!({"methodId": "offline"})).await, json!({}));
    let error = program.call_error("authenticate", json!({"methodId": "api-key"})).await;
    assert_eq!(error["code"], -32000, "{error}");
    assert!(error["message"].as_str().unwrap().contains("ANTHROPIC_API_KEY"), "{error}");
    assert_eq!(program.call_error("authenticate", json!({"methodId": "unknown"})).await["code"], -32602);
    assert_eq!(program.call("logout", json!({})).await, json!({}));
    assert_eq!(program.run_turn(&session, "/help").await, "end_turn");
    assert!(program.agent_text().contains("`/status`"), "{}", program.agent_text());
    let audio = json!({"type": "audio", "mimeType": "audio/wav", "data": "AAAA"});
    let error = program.call_error("session/prompt", json!({"sessionId": session, "prompt": [audio]})).await;
    assert_eq!(error["code"], -32602, "{error}");
    assert_eq!(program.run_turn(&session, "say still here").await, "end_turn");
}

/// A missing API key is reported when a session is opened, not before, with advice.
#[tokio::test]
async fn a_missing_key_is_reported_with_advice() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&["--model", "anthropic/claude-sonnet-4-5"]);
    program.initialize(json!({})).await;
    let open = json!({"cwd": scene.project(), "mcpServers": []});
    let error = program.call_error("session/new", open.clone()).await;
    assert_eq!(error["code"], -32000, "{error}");
    assert!(error["message"].as_str().unwrap().contains("ANTHROPIC_API_KEY"), "{error}");
    program.call("authenticate", json!({"methodId": "offline"})).await;
    program.call("session/new", open).await;
}

/// No unadvertised kind of update is sent, and a session's first update comes after its answer.
#[tokio::test]
async fn session_updates_come_after_the_answer_that_opens_it() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[], json!({})).await;
    program.wait_for(|it| it["params"]["update"]["sessionUpdate"] == "available_commands_update").await;
    program.run_turn(&session, "say x").await;
    let answered = program.messages.iter().position(|it| it["result"]["sessionId"] == *session).unwrap();
    let first = program.messages.iter().position(|it| it["method"] == "session/update").unwrap();
    assert!(answered < first);
    for kind in ["notice", "compaction_update", "compaction_summary_chunk"] {
        assert!(program.updates(kind).is_empty());
    }
}

/// Each session has its own runtime, even with several in one directory.
#[tokio::test]
async fn sessions_work_side_by_side_in_one_directory() {
    let scene = AgentFixture::new();
    let (mut program, first) = open_session(&scene, &["--mode", "full", "--shell"], json!({})).await;
    let second = program.new_session(&scene.project()).await;
    let turns = [(&first, "write a.txt: one\nrun sleep 1"), (&second, "write b.txt: two\nrun echo hi")];
    let mut begun = Vec::new();
    for (session, prompt) in turns {
        begun.push(program.prompt(session, prompt).await);
    }
    for id in begun {
        assert_eq!(program.wait_for_answer(id).await["result"]["stopReason"], "end_turn");
    }
    assert_eq!((scene.read_file("a.txt"), scene.read_file("b.txt")), ("one".to_owned(), "two".to_owned()));
    assert_eq!(program.run_turn(&second, "/undo").await, "end_turn");
    assert!(scene.project().join("a.txt").exists() && !scene.project().join("b.txt").exists());
}
