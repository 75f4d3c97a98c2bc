//! Sessions from the user's view: forked, switched in the middle, controlled by slash commands.

use expect_test::expect;
use serde_json::{Value, json};

use crate::program::{AgentFixture, AgentProgram};

async fn open_session(scene: &AgentFixture, arguments: &[&str]) -> (AgentProgram, String) {
    let mut program = scene.start_agent(arguments);
    program.initialize(json!({})).await;
    let session = program.new_session(&scene.project()).await;
    (program, session)
}

/// Returns the agent's reply to a prompt.
async fn reply_to(program: &mut AgentProgram, session: &str, prompt: &str) -> String {
    let before = program.agent_text().len();
    assert_eq!(program.run_turn(session, prompt).await, "end_turn");
    program.agent_text()[before..].to_owned()
}

fn write_script(scene: &AgentFixture, name: &str, lines: &[Value]) -> String {
    let path = scene.home().join(name);
    std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    format!("script:{}", path.display())
}

#[tokio::test]
async fn a_fork_has_the_context_and_goes_its_own_way() {
    let scene = AgentFixture::new();
    let model = write_script(&scene, "model", &[json!({"text": "I am the first."})]);
    let (mut program, session) = open_session(&scene, &["--model", &model]).await;
    program.run_turn(&session, "who are you?").await;
    let fork = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
    let forked = program.call("session/fork", fork).await["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(forked, session);
    // Loading the fork shows its conversation.
    program.call("session/close", json!({"sessionId": forked})).await;
    let before = program.messages.len();
    let load = json!({"sessionId": forked, "cwd": scene.project(), "mcpServers": []});
    program.call("session/load", load).await;
    let replayed: Vec<&str> = program.messages[before..]
        .iter()
        .filter_map(|message| message["params"]["update"]["content"]["text"].as_str())
        .collect();
    assert_eq!(replayed, ["who are you?", "I am the first."]);
    let page = program.call("session/list", json!({})).await;
    assert_eq!(page["sessions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_model_is_switched_in_the_middle_and_sees_what_was_said() {
    let scene = AgentFixture::new();
    let first = write_script(&scene, "first", &[json!({"text": "one"}), json!({"text": "one again"})]);
    // A script continues after the replies that the conversation already has.
    let second =
        write_script(&scene, "second", &[json!({}), json!({"expect": "to the second", "text": "two"})]);
    let (mut program, session) = open_session(&scene, &["--model", &first]).await;
    assert_eq!(reply_to(&mut program, &session, "to the first").await, "one");
    let told = reply_to(&mut program, &session, &format!("/model {second}")).await;
    assert_eq!(scene.normalize(&told), "The model is now script:$BASE/home/second.");
    assert_eq!(reply_to(&mut program, &session, "to the second").await, "two");
    let options = program.updates("config_option_update").pop().unwrap();
    assert_eq!(options["configOptions"][1]["currentValue"], second);
}

#[tokio::test]
async fn commands_by_a_slash_say_how_things_are() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &["--mode", "accept-edits", "--shell"]).await;
    let mut told = String::new();
    for prompt in [
        "/status", "/tools", "/mcp", "/mode", "/mode wild", "/mode read-only", "/tools", "/model",
        "/compact", "/hlep",
    ] {
        told += &format!("> {prompt}\n{}\n", reply_to(&mut program, &session, prompt).await.trim_end());
    }
    let told = scene.normalize(&told).replace(&session, "$SESSION");
    expect![[r#"
        > /status
        **Session** `$SESSION`, turn 1

        - model: offline (Offline (plain commands))
        - mode: accept-edits: Edits files of the project without asking; asks before commands
        - directory: $PROJECT
        - served: reading files: the agent's own machine (the editor does not advertise fs.readTextFile)
        - served: writing files: the agent's own machine (the editor does not advertise fs.writeTextFile)
        - served: commands: the agent's own machine (the editor does not advertise terminal)
        - served: listing and searching: the agent's own machine (the protocol has no such method)
        - served: file metadata: the agent's own machine (the editor does not advertise _bowline/fs/stat)
        - served: moving, deleting, writing several files: the agent's own machine (the editor does not advertise _bowline/fs/batch)
        > /tools
        Tools in mode accept-edits:

        - `read_text_file`: Reads a text file. The answer is a line in brackets and then the text as it is, at most 2000 lines at a time; go on with `line` where it says so.
        - `write_text_file`: Writes a whole text file, and creates it if it is not there. To change a part of a file, edit it instead. What the user changed meanwhile is kept, and the answer says so.
        - `edit_text_file`: Edits a text file by search and replace. Each old_text has to be in the file exactly once, letter for letter with its blanks; give enough lines around the place. All edits are made on the file as it is now, all or none, so they may not overlap.
        - `execute`: Runs a command and returns its output and exit code. Shell syntax works. A command that does not end by itself, a server for one, has to run with background set; others are ended when their time is over.
        - `write_files`: Writes several whole text files at once, all or none, with one question to the user. Missing files and directories are created. What the user changed meanwhile is kept, and the answer says so.
        - `append_file`: Appends text to the end of a text file, and creates it if it is not there. The file need not be read first. The text starts where the file ends: begin with a line break if its last line has none.
        - `delete_file`: Deletes a file or an empty directory; with `recursive`, a directory and all that is in it.
        - `move_file`: Moves or renames a file or directory. The directory it moves to has to exist. A file at the destination is replaced only with `overwrite`.
        - `list_directory`: Lists a directory of the project: its files with their sizes, and its directories. What ignore rules hide is left out.
        - `stat_file`: Describes a file or directory without its content: type, size, encoding, time of the last change, whether it has unsaved text.
        - `search_text`: Searches the text of the project's files, and tells the lines that match with their numbers. Unsaved text of files that were read through the editor is searched as the editor has it.
        - `execute_output`: Returns what a command in the background has put out since the last look, and whether it has ended.
        - `execute_kill`: Ends a command that runs in the background, and returns its last output.
        - `update_plan`: Shows the user the plan for a task of several steps. Always give the whole plan; have one entry in progress, and mark what is done at once.
        > /mcp
        There are no MCP servers in this session. A client names them when it opens one.
        > /mode
        The mode is accept-edits. There are:

        - `read-only`: Reads and searches; changes nothing and runs nothing
        - `ask`: Asks before every change and every command
        - `accept-edits`: Edits files of the project without asking; asks before commands
        - `full`: Edits and runs commands without asking; still asks about secrets and hooks
        > /mode wild
        There is no mode wild.

        The mode is accept-edits. There are:

        - `read-only`: Reads and searches; changes nothing and runs nothing
        - `ask`: Asks before every change and every command
        - `accept-edits`: Edits files of the project without asking; asks before commands
        - `full`: Edits and runs commands without asking; still asks about secrets and hooks
        > /mode read-only
        The mode is now read-only.
        > /tools
        Tools in mode read-only:

        - `read_text_file`: Reads a text file. The answer is a line in brackets and then the text as it is, at most 2000 lines at a time; go on with `line` where it says so.
        - `list_directory`: Lists a directory of the project: its files with their sizes, and its directories. What ignore rules hide is left out.
        - `stat_file`: Describes a file or directory without its content: type, size, encoding, time of the last change, whether it has unsaved text.
        - `search_text`: Searches the text of the project's files, and tells the lines that match with their numbers. Unsaved text of files that were read through the editor is searched as the editor has it.
        - `execute_output`: Returns what a command in the background has put out since the last look, and whether it has ended.
        - `execute_kill`: Ends a command that runs in the background, and returns its last output.
        - `update_plan`: Shows the user the plan for a task of several steps. Always give the whole plan; have one entry in progress, and mark what is done at once.

        Not offered:

        - `write_text_file`, `edit_text_file`, `execute`, `write_files`, `append_file`, `delete_file`, `move_file`: the mode read-only changes and runs nothing; `/mode ask` does, and asks first
        > /model
        The model is offline. There are:

        - `offline`: Offline (plain commands)

        Switch with `/model NAME`.
        > /compact
        There is too little to sum up yet.
        > /hlep
        there is no command /hlep: did you mean /help?

        - `/help`: Shows the commands
        - `/status`: Shows model, mode, who serves files and commands, and how full the context is
        - `/tools`: Shows the tools that the model is offered
        - `/model` *name of a model*: Shows or switches the model
        - `/mode` *read-only, ask, accept-edits or full*: Shows or switches what is done without asking
        - `/mcp` *restart, or restart NAME*: Shows the MCP servers and their tools, or starts them anew
        - `/compact` *what to keep in particular*: Sums up the conversation to make room
        - `/undo` *number of turns, a file, or all*: Takes back what the last turn changed
        - `/init`: Writes AGENTS.md for this project
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn undo_takes_back_what_the_agent_did_and_leaves_the_users_part() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\n");
    let (mut program, session) = open_session(&scene, &["--mode", "accept-edits"]).await;
    let mut told = String::new();
    for prompt in [
        "replace \"two\" with \"2\" in a.txt\nwrite new.txt: new",
        "replace \"five\" with \"5\" in a.txt",
        "/undo",
        "/undo",
        "/undo",
    ] {
        told += &format!("> {prompt}\n{}\n", reply_to(&mut program, &session, prompt).await.trim_end());
        scene.write_file("a.txt", &scene.read_file("a.txt").replace("six", "SIX"));
        told += &format!(
            "a.txt: {:?}, new.txt: {}\n",
            scene.read_file("a.txt"),
            scene.project().join("new.txt").exists()
        );
    }
    expect![[r#"
        > replace "two" with "2" in a.txt
        write new.txt: new
        Changed `a.txt`.Wrote `new.txt`.
        a.txt: "one\n2\nthree\nfour\nfive\nSIX\n", new.txt: true
        > replace "five" with "5" in a.txt
        Changed `a.txt`.
        a.txt: "one\n2\nthree\nfour\n5\nSIX\n", new.txt: true
        > /undo
        - a.txt is as it was before
        a.txt: "one\n2\nthree\nfour\nfive\nSIX\n", new.txt: true
        > /undo
        - new.txt is as it was before
        - a.txt is as it was before
        a.txt: "one\ntwo\nthree\nfour\nfive\nSIX\n", new.txt: false
        > /undo
        There is nothing to take back.
        a.txt: "one\ntwo\nthree\nfour\nfive\nSIX\n", new.txt: false
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn init_writes_a_beginning() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &["--mode", "accept-edits"]).await;
    assert_eq!(reply_to(&mut program, &session, "/init").await, "Wrote `AGENTS.md`.");
    assert!(scene.read_file("AGENTS.md").starts_with("# project\n"), "{}", scene.read_file("AGENTS.md"));
}

#[tokio::test]
async fn a_session_in_use_elsewhere_is_told_so() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[]).await;
    program.run_turn(&session, "say here").await;
    let mut other = scene.start_agent(&[]);
    other.initialize(json!({})).await;
    let load = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
    let error = other.call_error("session/load", load.clone()).await;
    assert!(error["message"].as_str().unwrap().contains("is in use by process"), "{error}");
    program.close().await;
    other.call("session/load", load).await;
    assert_eq!(other.agent_text(), "here");
}

#[tokio::test]
async fn a_turn_is_cancelled_at_once_while_the_store_cannot_be_written() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[]).await;
    program.run_turn(&session, "say saved").await;
    let database = scene.home().join(".local/state/bowline/sessions.db");
    let other = rusqlite::Connection::open(database).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let turn = program.prompt(&session, "say held up").await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    let begun = std::time::Instant::now();
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
    // Waiting for the locked store would take ten seconds.
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(reply_to(&mut program, &session, "say again").await, "again");
}

#[tokio::test]
async fn a_loaded_session_is_no_freer_than_the_agent_and_has_the_users_title() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &["--mode", "full"]).await;
    for prompt in ["/status", "say the first words"] {
        program.run_turn(&session, prompt).await;
    }
    program.close().await;
    let mut program = scene.start_agent(&["--mode", "read-only"]);
    program.initialize(json!({})).await;
    let load = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
    let loaded = program.call("session/load", load.clone()).await;
    assert_eq!(loaded["modes"]["currentModeId"], "read-only");
    let listed = program.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["title"], "say the first words");

    // A failed load leaves the open session intact, and an invalid MCP server does not fail the load.
    let mut bad = load;
    bad["cwd"] = json!("relative");
    assert_eq!(program.call_error("session/load", bad.clone()).await["code"], -32602);
    assert_eq!(reply_to(&mut program, &session, "say still here").await, "still here");
    bad["cwd"] = json!(scene.project());
    bad["mcpServers"] = json!([{"name": "bad", "command": "", "args": [], "env": []}]);
    program.call("session/load", bad).await;
    assert_eq!(reply_to(&mut program, &session, "say still here").await, "still here");
}

#[tokio::test]
async fn a_cancelled_prompt_is_not_carried_out_with_the_next() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &["--mode", "full"]).await;
    let turn = program.prompt(&session, "wait 3600\nwrite evil.txt: x").await;
    program.wait_for(|it| it["params"]["update"]["sessionUpdate"] == "session_info_update").await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
    assert_eq!(reply_to(&mut program, &session, "say hi").await, "hi");
    assert!(!scene.project().join("evil.txt").exists());
}
