//! Tests of `bowline doctor -- COMMAND`: agents that work, and agents that fail in every way.

use expect_test::{Expect, expect};
use test_support::wait::wait_until;

use super::run_doctor;
use crate::fixture::{CliFixture, bowline, write_script};

/// Checks an agent that is a script, and compares the report.
fn check(text: &str, expected: Expect) {
    let scene = CliFixture::new();
    let agent = write_script(&scene.base(), "agent", text);
    expected.assert_eq(&agent_section(&scene, &[&agent]));
}

fn agent_section(scene: &CliFixture, command: &[&str]) -> String {
    let mut arguments = vec!["doctor", "--timeout", "10", "--"];
    arguments.extend(command);
    let told = run_doctor(scene, &arguments, &[]);
    told[told.find("The agent\n").unwrap()..].to_owned()
}

/// A script that answers requests in order; `$id` in an answer is the id of the request.
fn answering_script(answers: &[&str]) -> String {
    let mut text = "#!/bin/sh\n".to_owned();
    for answer in answers {
        text += "while read -r line; do case $line in *'\"method\"'*) break;; esac; done\n";
        text += "id=$(printf '%s' \"$line\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/')\n";
        text += &format!("cat <<END\n{answer}\nEND\n");
    }
    text + "while read -r line; do :; done\n"
}

/// Waits until a killed process is gone, which takes the system a moment.
fn assert_gone(pid: &str) {
    wait_until(&format!("the end of process {pid}"), || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}

const INITIALIZE_ANSWER: &str = r#"{"jsonrpc":"2.0","id":$id,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true}},"authMethods":[{"id":"key","name":"API key","description":"A key of yours"}],"agentInfo":{"name":"scripted","version":"7"}}}"#;

#[test]
fn programs_that_cannot_be_started_are_told_apart() {
    let scene = CliFixture::new();
    expect![[r#"
        The agent
          ✗ not found: no directory of PATH has a program no-such-agent
            → install it, or name it by its whole path: editors may have another PATH than this shell
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&agent_section(&scene, &["no-such-agent", "--acp"]));
    expect![[r#"
        The agent
          ✗ not found: there is no file ./no-such-agent
            → name the program by its whole path
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&agent_section(&scene, &["./no-such-agent"]));
    expect![[r#"
        The agent
          ✗ not found: no directory of PATH has a program "gemini --acp"
            → give its arguments as words of their own, not in quotes
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&agent_section(&scene, &["gemini --acp"]));
    scene.write_file("plain", "#!/bin/sh\n");
    expect![[r#"
        The agent
          ✗ not executable: ./plain
            → chmod +x ./plain
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&agent_section(&scene, &["./plain"]));
    let agent = write_script(&scene.base(), "agent", "#!/no/such/interpreter -x\n");
    expect![[r#"
        The agent
          ✗ cannot be started: $BASE/agent: there is no /no/such/interpreter
            → install /no/such/interpreter, which its first line names
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&agent_section(&scene, &[&agent]));
    let agent = write_script(&scene.base(), "other", "\u{7f}ELF and nothing else");
    expect![[r#"
        The agent
          ✗ cannot be started: $BASE/other: Exec format error (os error 8)
            → it is not made for this machine, or its first line is missing: `file` tells
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&agent_section(&scene, &[&agent]));
}

#[test]
fn an_agent_that_exits_at_once_is_quoted() {
    check(
        "#!/bin/sh\necho 'no login: run agent login' >&2\nexit 3\n",
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✗ exits at once with code 3
                  on stderr:
                  │ no login: run agent login
                → run it in a terminal to see why; is an argument such as --acp missing? Or a login?
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        "#!/bin/sh\nkill -9 $$\n",
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✗ exits at once by SIGKILL
                → run it in a terminal to see why; is an argument such as --acp missing? Or a login?
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
}

#[test]
fn an_agent_that_speaks_something_else_is_quoted() {
    check(
        "#!/bin/sh\necho 'Welcome to \u{1b}[31magent'\necho usage: >&2\n",
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✗ speaks something else than ACP, and exits at once with code 0; its first line:
                  │ Welcome to \u{1b}[31magent
                  on stderr:
                  │ usage:
                → is an argument such as --acp missing?
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        "#!/bin/sh\necho '> '\nwhile read -r line; do :; done\n",
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✗ speaks something else than ACP; its first line:
                  │ > 
                → is an argument such as --acp missing?
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        "#!/bin/sh\nexec cat\n",
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✗ only says again what it is told, as a terminal or `cat` does:
                  │ {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true,"session":{"compaction":{},"configOptions":{"boolean":{}},"notices":{}},"auth":{"terminal":false},"elicitation":{"form":{},"url":{}},"_met
                → is an argument such as --acp missing?
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        &answering_script(&[r#"{"jsonrpc":"2.0","id":$id,"result":{"capabilities":{}}}"#]),
        expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✗ speaks something else than ACP (missing field `protocolVersion` before column 19); its first line:
              │ {"jsonrpc":"2.0","id":0,"result":{"capabilities":{}}}
            → is an argument such as --acp missing?
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
    check(
        &answering_script(&[
            r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32601,"message":"Method not found"}}"#,
        ]),
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✗ refuses initialize: Method not found (-32601)
                → it speaks JSON-RPC, but may not be an ACP agent: is an argument such as --acp missing?
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
}

#[test]
fn an_agent_that_only_closes_its_stdout_has_not_exited() {
    check(
        "#!/bin/sh\nexec sleep 600 >/dev/null\n",
        expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✗ closes its stdout at once
            → run it in a terminal to see why; is an argument such as --acp missing? Or a login?
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
}

#[test]
fn an_agent_that_never_answers_is_not_waited_for() {
    check(
        "#!/bin/sh\nwhile read -r line; do :; done\n",
        expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✗ never answers: nothing on stdout for TIME
            → is an argument such as --acp missing? If it only starts slowly, try --timeout 60
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
}

#[test]
fn an_agent_of_another_version_is_told() {
    check(
        &answering_script(&[r#"{"jsonrpc":"2.0","id":$id,"result":{"protocolVersion":9}}"#]),
        expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✗ wrong protocol version: the agent answered protocol version 9, which is not spoken here (latest: 1)
            → update the agent, or Bowline: they have no version in common
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
}

#[test]
fn an_agent_that_wants_a_login_is_told() {
    let refused = r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"Authentication required"}}"#;
    check(
        &answering_script(&[INITIALIZE_ANSWER, refused]),
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✓ scripted 7; protocol version 1; initialize took TIME
              · what it can:
                  sessions: load; not: resume, list, fork, close, delete, additional directories
                  prompts beside text and links: images; not: embedded files, audio
                  MCP servers beside stdio: none of http, sse
              · log in:
                  API key (key): A key of yours
              ✗ session/new: it wants a login first: Authentication required (-32000)
                → log in with --auth key of `bowline run` or `bowline chat`
              · Bowline would offer it:
                  reading files, with unsaved text (fs/read_text_file)
                  writing files, merged with your edits, undoable (fs/write_text_file)
                  terminals, with the whole process tree ended after them (terminal/create)
                  forms to ask you by (elicitation/create)
                  pages to send you to (elicitation/create)
              ✓ ends when its stdin is closed
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
}

#[test]
fn a_session_that_does_not_open_is_told() {
    let refused = r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32603,"message":"Internal error","data":{"why":"no disk"}}}"#;
    check(
        &answering_script(&[INITIALIZE_ANSWER, refused]),
        expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✓ scripted 7; protocol version 1; initialize took TIME
          · what it can:
              sessions: load; not: resume, list, fork, close, delete, additional directories
              prompts beside text and links: images; not: embedded files, audio
              MCP servers beside stdio: none of http, sse
          · log in:
              API key (key): A key of yours
          ✗ session/new: Internal error (-32603) {"why":"no disk"}
            → see its own documentation, or its log
          · Bowline would offer it:
              reading files, with unsaved text (fs/read_text_file)
              writing files, merged with your edits, undoable (fs/write_text_file)
              terminals, with the whole process tree ended after them (terminal/create)
              forms to ask you by (elicitation/create)
              pages to send you to (elicitation/create)
          ✓ ends when its stdin is closed
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
    // Its last output is reported, even if it exits successfully.
    let ending = answering_script(&[INITIALIZE_ANSWER])
        .replace("while read -r line; do :; done\n", "read -r line\necho 'out of luck' >&2\n");
    check(
        &ending,
        expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✓ scripted 7; protocol version 1; initialize took TIME
          · what it can:
              sessions: load; not: resume, list, fork, close, delete, additional directories
              prompts beside text and links: images; not: embedded files, audio
              MCP servers beside stdio: none of http, sse
          · log in:
              API key (key): A key of yours
          ✗ session/new: the agent ended
            → what it says on stderr is below
          · Bowline would offer it:
              reading files, with unsaved text (fs/read_text_file)
              writing files, merged with your edits, undoable (fs/write_text_file)
              terminals, with the whole process tree ended after them (terminal/create)
              forms to ask you by (elicitation/create)
              pages to send you to (elicitation/create)
          ✓ ends when its stdin is closed
              on stderr:
              │ out of luck
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
    check(
        &answering_script(&[INITIALIZE_ANSWER]),
        expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✓ scripted 7; protocol version 1; initialize took TIME
          · what it can:
              sessions: load; not: resume, list, fork, close, delete, additional directories
              prompts beside text and links: images; not: embedded files, audio
              MCP servers beside stdio: none of http, sse
          · log in:
              API key (key): A key of yours
          ✗ session/new: no answer for TIME
            → it may wait for the network or a login; if it is only slow, try --timeout 60
          · Bowline would offer it:
              reading files, with unsaved text (fs/read_text_file)
              writing files, merged with your edits, undoable (fs/write_text_file)
              terminals, with the whole process tree ended after them (terminal/create)
              forms to ask you by (elicitation/create)
              pages to send you to (elicitation/create)
          ✓ ends when its stdin is closed
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
}

#[test]
fn what_an_agent_offers_is_listed() {
    let opened = r#"{"jsonrpc":"2.0","id":$id,"result":{"sessionId":"s","modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code"}]},"configOptions":[{"id":"model","name":"Model","type":"select","currentValue":"big","options":[{"value":"big","name":"Big"},{"value":"small","name":"Small"}]},{"id":"web","name":"Web","type":"boolean","currentValue":true}]}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"plan","description":"Plans"},{"name":"undo","description":"Undoes"}]}}}"#;
    check(
        &answering_script(&[&format!("a banner\n{INITIALIZE_ANSWER}"), opened]),
        expect![[r#"
            The agent
              ✓ starts: $BASE/agent
              ✓ scripted 7; protocol version 1; initialize took TIME
              · what it can:
                  sessions: load; not: resume, list, fork, close, delete, additional directories
                  prompts beside text and links: images; not: embedded files, audio
                  MCP servers beside stdio: none of http, sse
              · log in:
                  API key (key): A key of yours
              ! it writes something else than the protocol to stdout
                  │ a banner
                → other clients may end the connection at that: it belongs on stderr
              ✓ session/new works; it took TIME
              ✓ modes: ask, code (now ask)
              ✓ option model: big, small (now big)
              ✓ option web: on or off (now on)
              ✓ commands: /plan, /undo
              · Bowline would offer it:
                  reading files, with unsaved text (fs/read_text_file)
                  writing files, merged with your edits, undoable (fs/write_text_file)
                  terminals, with the whole process tree ended after them (terminal/create)
                  forms to ask you by (elicitation/create)
                  pages to send you to (elicitation/create)
              ✓ ends when its stdin is closed
            --- 0
        "#]],
    );
}

#[test]
fn nothing_of_an_agent_stays_behind() {
    let scene = CliFixture::new();
    let pids = scene.base().join("pids");
    let text = answering_script(&[INITIALIZE_ANSWER, "sorry"]).replace(
        "#!/bin/sh\n",
        &format!("#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $$ $! > {}\n", pids.display()),
    );
    let agent = write_script(&scene.base(), "agent", &(text + "while :; do wait; done\n"));
    expect![[r#"
        The agent
          ✓ starts: $BASE/agent
          ✓ scripted 7; protocol version 1; initialize took TIME
          · what it can:
              sessions: load; not: resume, list, fork, close, delete, additional directories
              prompts beside text and links: images; not: embedded files, audio
              MCP servers beside stdio: none of http, sse
          · log in:
              API key (key): A key of yours
          ✗ session/new: no answer for TIME
            → it may wait for the network or a login; if it is only slow, try --timeout 60
          · Bowline would offer it:
              reading files, with unsaved text (fs/read_text_file)
              writing files, merged with your edits, undoable (fs/write_text_file)
              terminals, with the whole process tree ended after them (terminal/create)
              forms to ask you by (elicitation/create)
              pages to send you to (elicitation/create)
          ! does not end when its stdin is closed: it had to be killed
            → other clients may leave it running
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&agent_section(&scene, &[&agent]));
    for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
        assert_gone(pid);
    }
}

#[test]
fn bowlines_own_agent_is_well() {
    let scene = CliFixture::new();
    let program = bowline().display().to_string();
    expect![[r#"
        The agent
          ✓ starts: $BOWLINE
          ✓ Bowline 0.1.0; protocol version 1; initialize took TIME
          · what it can:
              sessions: load, resume, list, fork, close, delete, additional directories
              prompts beside text and links: embedded files, images; not: audio
              MCP servers beside stdio: http, sse
          · log in:
              Use an API key (api-key): Uses the key that is there already. If there is none: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY for the program that starts Bowline, or store a key with `bowline agent --login` in a terminal
              Work offline (offline): Uses the offline model: plain commands, no key, no network
          ✓ session/new works; it took TIME
          ✓ modes: read-only, ask, accept-edits, full (now ask)
          ✓ option mode: read-only, ask, accept-edits, full (now ask)
          ✓ option model: offline (now offline)
          ✓ commands: /help, /status, /tools, /model, /mode, /mcp, /compact, /init
          · Bowline would offer it:
              reading files, with unsaved text (fs/read_text_file)
              writing files, merged with your edits, undoable (fs/write_text_file)
              terminals, with the whole process tree ended after them (terminal/create)
              forms to ask you by (elicitation/create)
              pages to send you to (elicitation/create)
          ✓ ends when its stdin is closed
        --- 0
    "#]].assert_eq(&agent_section(&scene, &[&program, "agent", "--shell"]));
    // The probe's session is not among the user's.
    let listed = scene.run(&["sessions", "list"]);
    assert!(!listed.contains("$SESSION"), "{listed}");
}

/// An interrupt ends the agent, too.
#[test]
fn an_interrupt_ends_the_agent_too() {
    let scene = CliFixture::new();
    let (pid, ready) = (scene.base().join("pid"), scene.base().join("ready"));
    assert!(std::process::Command::new("mkfifo").arg(&ready).status().unwrap().success());
    let text = format!(
        "#!/bin/sh\ntrap '' INT TERM\necho $$ > {}\necho ready > {}\nwhile :; do sleep 600; done\n",
        pid.display(),
        ready.display()
    );
    let agent = write_script(&scene.base(), "agent", &text);
    let mut command = scene.command(&["doctor", "--timeout", "600", "--", &agent]);
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    assert_eq!(std::fs::read_to_string(&ready).unwrap(), "ready\n");
    let number = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &number]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    expect![[r#"
        --- stderr
        bowline: interrupted
        --- 130
    "#]]
    .assert_eq(&scene.describe_output(&output));
    let pid = std::fs::read_to_string(pid).unwrap();
    assert_gone(pid.trim());
}
