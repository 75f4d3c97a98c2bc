//! Tests with scripted agents of a few lines: what they may do to a run, and how it reacts.

use super::fixture;
use crate::fixture::{CliFixture, write_script};
use expect_test::expect;

/// The agent's answers to `initialize` and `session/new`.
const HANDSHAKE_SCRIPT: &str = r#"
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{CAPABILITIES},"agentInfo":{"name":"tiny","version":"1"}}}'
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s1"OPENED}}'
"#;

/// Returns an agent that runs a shell script once it has a session.
pub(crate) fn scripted_agent(scene: &CliFixture, turn: &str) -> String {
    scripted_agent_with(scene, "", "", turn)
}

fn scripted_agent_with(scene: &CliFixture, capabilities: &str, opened: &str, turn: &str) -> String {
    let greeting = HANDSHAKE_SCRIPT.replace("CAPABILITIES", capabilities).replace("OPENED", opened);
    write_script(&scene.base(), "agent.sh", &format!("#!/bin/sh\n{greeting}{turn}\n"))
}

/// Returns a script line that sends a session update.
fn script_update(update: &str) -> String {
    format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s1","update":{update}}}}}'"#
    )
}

pub(crate) fn script_message(text: &str) -> String {
    script_update(&format!(
        r#"{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}"#
    ))
}

pub(crate) fn script_stop(why: &str) -> String {
    format!(r#"printf '%s\n' '{{"jsonrpc":"2.0","id":2,"result":{{"stopReason":"{why}"}}}}'"#)
}

/// Returns the script of an agent that asks to write a file, and writes it after another program has changed it.
pub(crate) fn late_writer_script(scene: &CliFixture) -> String {
    let path = scene.file_path("a.txt");
    let send = |message: &str| format!("printf '%s\\n' '{message}'");
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{{"sessionId":"s1","toolCall":{{"toolCallId":"t1","title":"Edit a.txt","kind":"edit","content":[{{"type":"diff","path":"{path}","oldText":"one\ntwo\nthree\n","newText":"ONE\ntwo\nthree\n"}}]}},"options":[{{"optionId":"y","name":"Allow","kind":"allow_once"}},{{"optionId":"n","name":"Reject","kind":"reject_once"}}]}}}}"#
    );
    let file = |method: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"f","method":"fs/{method}_text_file","params":{{"sessionId":"s1","path":"{path}"{more}}}}}"#
        )
    };
    let lines = [
        "read -r line".to_owned(),
        send(&file("read", "")),
        "read -r line".to_owned(),
        send(&request),
        "read -r line".to_owned(),
        "printf 'one\\ntwo\\nthree\\nmine\\n' > a.txt".to_owned(),
        send(&file("write", r#","content":"ONE\ntwo\nthree\n""#)),
        "read -r line".to_owned(),
        script_stop("end_turn"),
        // It stays until its input is closed.
        "read -r line".to_owned(),
    ];
    scripted_agent(scene, &lines.join("\n"))
}

/// Returns the script of an agent that asks to run `touch x`, offers options of these kinds, and reports the choice.
pub(super) fn script_permission_request(scene: &CliFixture, options: &[(&str, &str)]) -> String {
    let options: Vec<String> = { options.iter() }
        .map(|(id, kind)| format!(r#"{{"optionId":"{id}","name":"Plan {id}","kind":"{kind}"}}"#))
        .collect();
    let request = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{{"sessionId":"s1","toolCall":{{"toolCallId":"t1","title":"touch x","kind":"execute","rawInput":{{"command":"touch x"}}}},"options":[{}]}}}}'"#,
        options.join(",")
    );
    let lines = [
        "read -r line",
        &request,
        "read -r line",
        r#"chosen=$(printf '%s' "$line" | sed -n 's/.*"optionId":"\([^"]*\)".*/\1/p')"#,
        &script_message("Chosen: '\"$chosen\"'"),
        &script_stop("end_turn"),
        "read -r line",
    ];
    scripted_agent(scene, &lines.join("\n"))
}

#[test]
fn a_variable_that_runs_code_is_refused_with_the_rule_that_allows_it() {
    let scene = fixture();
    let create = r#"printf '%s\n' '{"jsonrpc":"2.0","id":"t","method":"terminal/create","params":{"sessionId":"s1","command":"touch","args":["made"],"env":[{"name":"NODE_OPTIONS","value":"--require=./x.js"}]}}'"#;
    let wait = r#"printf '%s\n' '{"jsonrpc":"2.0","id":"w","method":"terminal/wait_for_exit","params":{"sessionId":"s1","terminalId":"'"$terminal"'"}}'"#;
    let lines = [
        "read -r line",
        create,
        "read -r line",
        r#"terminal=$(printf '%s' "$line" | sed -n 's/.*"terminalId":"\([^"]*\)".*/\1/p')"#,
        &format!("if [ -n \"$terminal\" ]; then {wait}; read -r line; fi"),
        &script_stop("end_turn"),
        "read -r line",
    ];
    let agent = scripted_agent(&scene, &lines.join("\n"));
    expect![[r#"
        --- stderr
        bowline: denied: run touch made: the user cannot be asked; no flag allows it, but `bowline policy allow execute --env NODE_OPTIONS` does
        --- 5
    "#]].assert_eq(&run_scripted(&scene, &agent, &["--approve", "all"]));
    expect![[r#"
        --- stderr
        bowline: denied: run touch made: the user cannot be asked; no flag allows it, but `bowline policy allow execute --env NODE_OPTIONS` and `bowline policy allow execute --exact touch made` do
        --- 5
    "#]].assert_eq(&run_scripted(&scene, &agent, &[]));
    expect![[r#"
        --- stderr
        bowline: denied: run touch made: by `NODE_OPTIONS`: the variable is set, and it gives an interpreter options that load code
        --- 5
    "#]].assert_eq(&run_scripted(&scene, &agent, &["--approve", "reads"]));
    // A rule for the command does not cover the variable.
    scene.run(&["policy", "allow", "execute", "touch"]);
    expect![[r#"
        --- stderr
        bowline: denied: run touch made: the user cannot be asked; no flag allows it, but `bowline policy allow execute --env NODE_OPTIONS` does
        --- 5
    "#]].assert_eq(&run_scripted(&scene, &agent, &[]));
    assert!(!scene.has_file("made"));
    let told = scene.run_all(&[
        &["policy", "allow", "execute", "--env", "NODE_OPTIONS"],
        &["policy", "explain", "execute", "touch made", "--env", "NODE_OPTIONS=x", "--env", "LD_PRELOAD=y"],
    ]);
    expect![[r#"
        $ bowline policy allow execute --env NODE_OPTIONS
        2  allow execute: variable NODE_OPTIONS  (this workspace)
        holds for the workspace $PROJECT
        --- 0
        $ bowline policy explain execute touch made --env NODE_OPTIONS=x --env LD_PRELOAD=y
        asked about: touch made
          ask: `LD_PRELOAD`: the variable is set, and the system loads code from it into every program
          allow: `NODE_OPTIONS`: rule 2, allow execute: variable NODE_OPTIONS  (this workspace)
          allow: `touch made`: rule 1, allow execute: touch …  (this workspace)
        --- 0
    "#]]
    .assert_eq(&told);
    expect![[r#"

        Changed 1 file:
          made  +0 −0 (new) (after a command)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &agent, &[]));
    assert!(scene.has_file("made"));
}

#[test]
fn an_agent_that_takes_only_always_gets_it_where_everything_is_approved() {
    let scene = fixture();
    let only_always = script_permission_request(&scene, &[("ever", "allow_always"), ("no", "reject_once")]);
    expect![[r#"
        Chosen: ever
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &only_always, &["--approve", "all"]));
    expect![[r#"
        Chosen: no
        --- stderr
        bowline: denied: run touch x: the user cannot be asked; --approve all would allow it
        --- 5
    "#]]
    .assert_eq(&run_scripted(&scene, &only_always, &[]));
    // A rule allows it once, and the agent's scope of always may be wider.
    scene.run(&["policy", "allow", "execute", "touch"]);
    expect![[r#"
        Chosen: no
        --- stderr
        bowline: denied: touch x: the agent takes a yes for always only; --approve all would allow it
        --- 5
    "#]]
    .assert_eq(&run_scripted(&scene, &only_always, &[]));
    expect![[r#"
        Chosen: ever
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &only_always, &["--approve", "all"]));
    let no_yes = script_permission_request(&scene, &[("no", "reject_once")]);
    expect![[r#"
        Chosen: no
        --- stderr
        bowline: denied: touch x: the agent offers no option to allow it
        --- 5
    "#]]
    .assert_eq(&run_scripted(&scene, &no_yes, &["--approve", "all"]));
}

fn run_scripted(scene: &CliFixture, agent: &str, options: &[&str]) -> String {
    scene.run(&[&["run", "--agent", agent, "go"], options].concat())
}

#[test]
fn the_stop_reason_is_reported() {
    let scene = fixture();
    for (why, expected) in [
        (
            "end_turn",
            expect![[r#"
            Hello.
            --- 0
        "#]],
        ),
        (
            "refusal",
            expect![[r#"
            Hello.
            --- stderr
            bowline: the agent refused: nothing of this turn is remembered
            --- 1
        "#]],
        ),
        (
            "max_tokens",
            expect![[r#"
            Hello.
            --- stderr
            bowline: the model reached its limit of tokens: the answer may be cut
            --- 0
        "#]],
        ),
        (
            "max_turn_requests",
            expect![[r#"
            Hello.
            --- stderr
            bowline: the agent reached its limit of steps: go on with --session last
            --- 0
        "#]],
        ),
        (
            "cancelled",
            expect![[r#"
                Hello.
                --- stderr
                bowline: the agent ended in the middle of its turn
                --- 1
            "#]],
        ),
    ] {
        let turn = ["read -r line", &script_message("Hello."), &script_stop(why)].join("\n");
        expected.assert_eq(&run_scripted(&scene, &scripted_agent(&scene, &turn), &[]));
    }
}

#[test]
fn the_last_output_of_a_failed_agent_is_shown() {
    let scene = fixture();
    let dies = scripted_agent(
        &scene,
        &["read -r line", &script_message("I am"), "echo out of luck >&2; exit 7"].join("\n"),
    );
    expect![[r#"
        I am
        --- stderr
        bowline: the agent ended in the middle of its turn; it ended with exit status: 7; its last words:
          out of luck
        --- 1
    "#]]
    .assert_eq(&run_scripted(&scene, &dies, &[]));
    let refuses = scripted_agent(
        &scene,
        r#"read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"Internal error","data":{"details":"no quota"}}}'"#,
    );
    expect![[r#"
        --- stderr
        bowline: the agent failed: Internal error ({"details":"no quota"})
        --- 1
    "#]]
    .assert_eq(&run_scripted(&scene, &refuses, &[]));
    expect![[r#"
        --- stderr
        bowline: the agent ended before it answered: does it speak ACP?; it ended with exit status: 2; its last words:
          bad flag
        --- 1
    "#]].assert_eq(&run_scripted(&scene, "sh -c 'echo bad flag >&2; exit 2'", &[]));
    // Some agents print the reason for their exit on stdout.
    let prints = "#!/bin/sh\necho 'Usage: x [--acp]'\nprintf '\\033[2Jlog in first\\n'\nexit 3\n";
    let prints = write_script(&scene.base(), "prints.sh", prints);
    expect![[r#"
        --- stderr
        bowline: the agent breaks the protocol: the message is not valid JSON
        bowline: the agent breaks the protocol: the message is not valid JSON
        bowline: the agent ended before it answered: does it speak ACP?; it ended with exit status: 3; it wrote to stdout, where only messages belong:
          Usage: x [--acp]
          \u{1b}[2Jlog in first
        --- 1
    "#]].assert_eq(&run_scripted(&scene, &prints, &[]));
    let fails = write_script(
        &scene.base(),
        "fails.sh",
        r#"#!/bin/sh
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"Internal error","data":{"details":"the licence has ended"}}}'
read -r line
"#,
    );
    expect![[r#"
        --- stderr
        bowline: the agent did not start: Internal error ({"details":"the licence has ended"})
        --- 1
    "#]]
    .assert_eq(&run_scripted(&scene, &fails, &[]));
    expect![[r#"
        --- stderr
        bowline: cannot start the agent /no/such/agent: there is no such program
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, "/no/such/agent", &[]));
    scene.write_file("plain", "no program\n");
    expect![[r#"
        --- stderr
        bowline: cannot start the agent $PROJECT/plain: it is no program, or may not be run
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, "./plain", &[]));
    let orphan = write_script(&scene.base(), "orphan", "#!/no/such/shell\n");
    expect![[r#"
        --- stderr
        bowline: cannot start the agent $BASE/orphan: there is no program that its first line names
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, &orphan, &[]));
    expect![[r#"
        --- stderr
        bowline: there is no agent no-such-agent: not found in PATH, and $HOME/.config/bowline/config.toml names none
        --- 2
    "#]].assert_eq(&run_scripted(&scene, "no-such-agent", &[]));
    expect![[r#"
        --- stderr
        bowline: the agent did not start within TIME
        --- 3
    "#]]
    .assert_eq(&run_scripted(&scene, "sh -c 'cat > /dev/null'", &["--timeout", "1"]));
}

#[test]
fn what_is_no_message_is_passed_over() {
    let scene = fixture();
    let noisy = scripted_agent(
        &scene,
        &[
            "echo Welcome to the agent!",
            "until [ \"${line#*session/prompt}\" != \"$line\" ]; do read -r line; done",
            "echo '[1, 2'",
            &script_message("Hello."),
            &script_stop("end_turn"),
        ]
        .join("\n"),
    );
    expect![[r#"
        Hello.
        --- stderr
        bowline: the agent breaks the protocol: the message is not valid JSON
        bowline: the agent breaks the protocol: the message is not valid JSON
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &noisy, &[]));
    let output = scene.run_command(scene.command(&["run", "--agent", &noisy, "--format", "json", "go"]), "");
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        serde_json::from_slice::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let scene = fixture();
    let turn = [
        "read -r line",
        &script_update(r#"{"sessionUpdate":"tool_call","toolCallId":"1","title":"a\u001b]0;title\u0007b","kind":"read","status":"completed"}"#),
        &script_message(r"a\u001b[2Jb\u202ec"),
        &script_stop("end_turn"),
    ]
    .join("\n");
    let steering = scripted_agent(&scene, &turn);
    expect![[r#"
        ✓ read: a\u{1b}]0;title\u{7}b (TIME)

        a\u{1b}[2Jb\u{202e}c
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &steering, &[]));
    // A pipe receives the answer verbatim.
    let output =
        scene.run_command(scene.command(&["run", "--agent", &steering, "--format", "quiet", "go"]), "");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "a\u{1b}[2Jb\u{202e}c\n");
}

#[test]
fn an_agent_that_wants_a_login_says_how() {
    let scene = fixture();
    let locked = write_script(
        &scene.base(),
        "locked.sh",
        r#"#!/bin/sh
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"authMethods":[{"id":"key","name":"API key","description":"set TINY_KEY"}]}}'
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"Authentication required"}}'
read -r line
"#,
    );
    expect![[r#"
        --- stderr
        bowline: the agent wants you to log in first (Authentication required): name a way with --auth, or log in with its own program. It offers key: API key (set TINY_KEY)
        --- 1
    "#]].assert_eq(&run_scripted(&scene, &locked, &[]));
}

#[test]
fn a_rate_limit_is_no_login_and_long_messages_are_whole() {
    let scene = fixture();
    let long = "Wait for a while. ".repeat(40);
    let error = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":2,"error":{{"code":-32000,"message":"429 Too Many Requests: rate limit reached. {long}Then try again."}}}}'"#
    );
    let limited = scripted_agent(&scene, &format!("read -r line\n{error}\nread -r line"));
    let told = run_scripted(&scene, &limited, &[]);
    assert!(told.contains("the agent failed: 429 Too Many Requests: rate limit reached."), "{told}");
    assert!(told.contains("Then try again.\n") && !told.contains("log in"), "{told}");
}

#[test]
fn an_agent_of_another_version_is_not_spoken_to() {
    let scene = fixture();
    let newer = write_script(
        &scene.base(),
        "newer.sh",
        "#!/bin/sh\nread -r line\nprintf '%s\\n' '{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":99}}'\nread -r line\n",
    );
    expect![[r#"
        --- stderr
        bowline: the agent did not start: the agent answered protocol version 99, which is not spoken here (latest: 1)
        --- 1
    "#]].assert_eq(&run_scripted(&scene, &newer, &[]));
    // It echoes its input.
    expect![[r#"
        --- stderr
        bowline: the agent did not start: Method not found: initialize: does it speak ACP?
        --- 1
    "#]]
    .assert_eq(&run_scripted(&scene, "cat", &[]));
}

#[test]
fn an_agent_is_named_in_the_configuration_and_never_in_the_project() {
    let scene = fixture();
    let hello = scripted_agent(
        &scene,
        &["read -r line", &script_message("Hello, '$NAME'."), &script_stop("end_turn")].join("\n"),
    );
    let config = format!("[agents.tiny]\ncommand = \"{hello}\"\nenv = {{ NAME = \"you\" }}\n");
    scene.write_file("config.toml", &config);
    scene.write_file(".bowline/config.toml", &config);
    expect![[r#"
        --- stderr
        bowline: there is no agent tiny: not found in PATH, and $HOME/.config/bowline/config.toml names none
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, "tiny", &[]));
    std::fs::write(scene.config_dir().join("config.toml"), config).unwrap();
    expect![[r#"
        Hello, you.
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, "tiny", &[]));
}

#[test]
fn model_and_mode_are_set_as_the_agent_has_them() {
    let scene = fixture();
    let trace = scene.base().join("trace");
    let trace = trace.to_str().unwrap();
    let options = r#","configOptions":[{"id":"m","name":"Model","category":"model","type":"select","currentValue":"small","options":[{"value":"small","name":"Small"},{"value":"large","name":"Large one"}]}],"modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code"}]}"#;
    let turn = r#"
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":2,"result":{"configOptions":[]}}'
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":3,"result":{}}'
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}'
"#;
    let tiny = scripted_agent_with(&scene, "", options, turn);
    expect![[r#"
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &tiny, &["--trace", trace, "--model", "large one", "--mode", "code"]));
    let mut told = String::new();
    for method in ["session/set_config_option", "session/set_mode"] {
        told.extend(
            super::traced_params(&scene, "client", method)
                .iter()
                .map(|params| format!("{method} {params}\n")),
        );
    }
    expect![[r#"
        session/set_config_option {"sessionId":"s1","configId":"m","value":"large"}
        session/set_mode {"sessionId":"s1","modeId":"code"}
    "#]]
    .assert_eq(&told);
    expect![[r#"
        --- stderr
        bowline: the agent has no model huge: it has small, large
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, &tiny, &["--model", "huge"]));
    expect![[r#"
        --- stderr
        bowline: the agent has no mode yolo: it has ask, code
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, &tiny, &["--mode", "yolo"]));
    let plain = scripted_agent(
        &scene,
        "read -r line\nprintf '%s\\n' '{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32601,\"message\":\"no\"}}'\nread -r line",
    );
    expect![[r#"
        --- stderr
        bowline: the agent does not let its model be chosen: leave out --model
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, &plain, &["--model", "x"]));
    expect![[r#"
        --- stderr
        bowline: the agent has no modes: leave out --mode
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, &plain, &["--mode", "x"]));
}

#[test]
fn servers_are_passed_on() {
    let scene = fixture();
    let trace = scene.base().join("trace");
    let tiny = scripted_agent_with(
        &scene,
        r#""mcpCapabilities":{"http":true}"#,
        "",
        &["read -r line", &script_stop("end_turn")].join("\n"),
    );
    let files = format!("files={} --root 'a b'", write_script(&scene.base(), "mcp", "#!/bin/sh\n"));
    let told = run_scripted(
        &scene,
        &tiny,
        &["--trace", trace.to_str().unwrap(), "--mcp", &files, "--mcp", "web=https://example.org/mcp"],
    );
    expect![[r#"
        --- 0
    "#]]
    .assert_eq(&told);
    let servers = &super::traced_params(&scene, "client", "session/new")[0]["mcpServers"];
    expect![[r#"
        [
          {
            "name": "files",
            "command": "$BASE/mcp",
            "args": [
              "--root",
              "a b"
            ],
            "env": []
          },
          {
            "type": "http",
            "name": "web",
            "url": "https://example.org/mcp",
            "headers": []
          }
        ]
    "#]]
    .assert_eq(&scene.normalize(&format!("{servers:#}\n")));
    let without = scripted_agent(&scene, "read -r line");
    expect![[r#"
        --- stderr
        bowline: the agent did not open a session: an http MCP server needs agentCapabilities.mcpCapabilities.http, which was not advertised
        --- 1
    "#]].assert_eq(&run_scripted(&scene, &without, &["--mcp", "web=https://example.org/mcp"]));
    expect![[r#"
        --- stderr
        bowline: nothing is no MCP server: write it as NAME=COMMAND or NAME=URL
        --- 2
    "#]]
    .assert_eq(&run_scripted(&scene, &without, &["--mcp", "nothing"]));
}

#[test]
fn sessions_of_an_agent_that_does_not_list_them_are_remembered() {
    let scene = fixture();
    let once = ["read -r line", &script_message("Hello."), &script_stop("end_turn")].join("\n");
    let loads = r#""loadSession":true"#;
    let tiny = scripted_agent_with(&scene, loads, "", &once);
    expect![[r#"
        --- stderr
        bowline: there is no session here yet: leave out --session
        --- 4
    "#]]
    .assert_eq(&run_scripted(&scene, &tiny, &["--session", "last"]));
    expect![[r#"
        Hello.
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &tiny, &[]));
    let trace = scene.base().join("trace");
    // Replayed messages are not printed again.
    let replays = format!("{}\n{once}", script_message("Long ago."));
    let tiny = scripted_agent_with(&scene, loads, "", &replays);
    expect![[r#"
        Hello.
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &tiny, &["--session", "last", "--trace", trace.to_str().unwrap()]));
    assert_eq!(super::traced_params(&scene, "client", "session/load")[0]["sessionId"], "s1");
    let forgets = scripted_agent(&scene, &once);
    expect![[r#"
        --- stderr
        bowline: the agent cannot go on with sessions of before: leave out --session
        --- 4
    "#]]
    .assert_eq(&run_scripted(&scene, &forgets, &["--session", "s1"]));
}

#[test]
fn a_form_without_a_user_is_declined() {
    let scene = fixture();
    let turn = [
        "read -r line",
        r#"printf '%s\n' '{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"sessionId":"s1","mode":"form","message":"Which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}}}}}'"#,
        "read -r answer",
        r#"case "$answer" in *decline*) : ;; *) echo "$answer" >&2; exit 1 ;; esac"#,
        &script_message("Then not."),
        &script_stop("end_turn"),
    ]
    .join("\n");
    expect![[r#"
        Then not.
        --- stderr
        bowline: tiny asks, but the user cannot be asked: Which colour?
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &scripted_agent(&scene, &turn), &[]));
}

#[test]
fn writes_of_an_agent_that_never_asks_need_approval() {
    let scene = fixture();
    let path = scene.file_path("b.txt");
    let write = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":"w","method":"fs/write_text_file","params":{{"sessionId":"s1","path":"{path}","content":"x"}}}}'"#
    );
    let turn =
        ["read -r line", &write, "read -r answer", &script_message("Tried."), &script_stop("end_turn")]
            .join("\n");
    let pushy = scripted_agent(&scene, &turn);
    expect![[r#"
        Tried.
        --- stderr
        bowline: denied: write b.txt: the user cannot be asked; --approve edits would allow it
        --- 5
    "#]]
    .assert_eq(&run_scripted(&scene, &pushy, &[]));
    assert!(!scene.has_file("b.txt"));
    expect![[r#"
        Tried.

        Changed 1 file:
          b.txt  +1 −0 (new)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &pushy, &["--approve", "edits"]));
    assert_eq!(scene.read_file("b.txt"), "x");
}

#[test]
fn a_run_tells_of_its_own_denials_alone() {
    let scene = fixture();
    let path = scene.file_path("b.txt");
    let write = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":"w","method":"fs/write_text_file","params":{{"sessionId":"s1","path":"{path}","content":"x"}}}}'"#
    );
    let turn = ["read -r line", &write, "read -r answer", &script_stop("end_turn")].join("\n");
    expect![[r#"
        --- stderr
        bowline: denied: write b.txt: by the preset read-only; --approve edits would allow it
        --- 5
    "#]]
    .assert_eq(&run_scripted(&scene, &scripted_agent(&scene, &turn), &["--approve", "reads"]));
    // Its session has the same name, and its turn the same number.
    let harmless = scripted_agent(
        &scene,
        &["read -r line", &script_message("Hello."), &script_stop("end_turn")].join("\n"),
    );
    expect![[r#"
        Hello.
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &harmless, &[]));
}

#[test]
fn a_session_is_named_so_that_a_terminal_can_show_it() {
    let scene = fixture();
    let path = scene.file_path("b.txt");
    let id = r#"s\u001b[2J\n--yes; rm -rf $(x)"#;
    let turn = format!(
        r#"
read -r line
printf '%s\n' '{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":1}}}}'
read -r line
printf '%s\n' '{{"jsonrpc":"2.0","id":1,"result":{{"sessionId":"{id}"}}}}'
read -r line
printf '%s\n' '{{"jsonrpc":"2.0","id":"w","method":"fs/write_text_file","params":{{"sessionId":"{id}","path":"{path}","content":"x\n"}}}}'
read -r answer
{}
"#,
        script_stop("end_turn")
    );
    let steering = write_script(&scene.base(), "agent.sh", &format!("#!/bin/sh\n{turn}"));
    let output =
        scene.run_command(scene.command(&["run", "--approve", "edits", "--agent", &steering, "go"]), "");
    expect![[r#"
        Changed 1 file:
          b.txt  +1 −0 (new)
        To undo: bowline undo
    "#]]
    .assert_eq(String::from_utf8(output.stdout).unwrap().trim_start());
    scene.run(&["undo", "--session", "last", "--turn", "1"]);
    assert!(!scene.has_file("b.txt"));
}

#[test]
fn changes_undone_during_the_run_are_not_reported() {
    let scene = fixture();
    let path = scene.file_path("b.txt");
    let write = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":"w","method":"fs/write_text_file","params":{{"sessionId":"s1","path":"{path}","content":"x\n"}}}}'"#
    );
    let undo = format!("{} undo >&2 || exit 1", crate::fixture::bowline().display());
    let turn =
        ["read -r line", &write, "read -r answer", &undo, &script_message("Done."), &script_stop("end_turn")]
            .join("\n");
    expect![[r#"
        Done.
        --- 0
    "#]]
    .assert_eq(&run_scripted(&scene, &scripted_agent(&scene, &turn), &["--approve", "edits"]));
    assert!(!scene.has_file("b.txt"));
}
