//! Commands that an agent runs through the host, and their cleanup.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bowline_history::observation::RACY_WINDOW_NS;
use bowline_history::undo::ChangeSelection;
use bowline_policy::policy::Preset;
use bowline_protocol::schema::v1::TerminalId;
use bowline_wire::schema::v1::StopReason;
use bowline_wire::{ConnectionLimits, ShutdownGrace, connect_agent};
use bowline_workspace::observer;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::{CommandRequest, TerminalError};
use expect_test::expect;
use serde_json::json;
use test_support::host_harness::PuppetAgent;
use test_support::wait::wait_until_async;
use tokio::sync::Notify;

use super::host_fixture::{AgentActor, HostFixture, check, parse_reply};

fn full_fixture() -> HostFixture {
    HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
}

/// Waits until a command has printed something, and returns it.
async fn wait_for_output(actor: &AgentActor, terminal: &str) -> String {
    loop {
        let output = actor.call("terminal/output", json!({"terminalId": terminal})).await.unwrap();
        let text = output["output"].as_str().unwrap();
        if text.ends_with('\n') {
            return text.trim().to_owned();
        }
    }
}

/// Waits until a process is gone.
async fn wait_until_gone(pid: &str) {
    let process = Path::new("/proc").join(pid);
    wait_until_async(&format!("the end of process {pid}"), || !process.exists()).await;
}

#[tokio::test]
async fn a_terminal_lives_as_the_protocol_says() {
    let text = full_fixture()
        .play_custom_turn(|actor| async move {
            let terminal =
                actor.create_terminal(json!({"command": "echo started; exec sleep 1000"})).await.unwrap();
            let id = json!({"terminalId": terminal});
            wait_for_output(&actor, &terminal).await;
            let running = actor.call_text("terminal/output", id.clone()).await;
            let (one, two, killed) = tokio::join!(
                actor.call_text("terminal/wait_for_exit", id.clone()),
                actor.call_text("terminal/wait_for_exit", id.clone()),
                actor.call_text("terminal/kill", id.clone()),
            );
            let after = actor.call_text("terminal/output", id.clone()).await;
            let again = actor.call_text("terminal/wait_for_exit", id.clone()).await;
            let killed_again = actor.call_text("terminal/kill", id.clone()).await;
            let released = actor.call_text("terminal/release", id.clone()).await;
            for answer in [running, one, two, killed, after, again, killed_again, released] {
                actor.record(&answer);
            }
            for method in ["output", "wait_for_exit", "kill", "release"] {
                let answer = actor.call_text(&format!("terminal/{method}"), id.clone()).await;
                actor.record(&answer.replace(&terminal, "$T"));
            }
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
        {"output":"started\n","truncated":false}
        {"signal":"SIGTERM"}
        {"signal":"SIGTERM"}
        ok
        {"output":"started\n","truncated":false,"exitStatus":{"signal":"SIGTERM"}}
        {"signal":"SIGTERM"}
        ok
        ok
        ! -32002 Resource not found: $T {"uri":"$T"}
        ! -32002 Resource not found: $T {"uri":"$T"}
        ! -32002 Resource not found: $T {"uri":"$T"}
        ! -32002 Resource not found: $T {"uri":"$T"}
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn commands_run_as_they_are_given() {
    let stage = full_fixture().with_file("sub/x", "");
    check(
        &stage,
        r#"
        run echo out; echo err >&2; exit 3
        argv ["echo", "a b", "$(id)", ";", "'\""]
        run cat; echo "end $?"
        run kill -9 $$
        call terminal/create {"command":"no-such-program-anywhere","args":["x"]}
        call terminal/create {"command":""}
        call terminal/create {"command":"pwd","cwd":"sub"}
        call terminal/create {"command":"pwd","cwd":"$BASE"}
        call terminal/create {"command":"pwd","cwd":"$ROOT/missing"}
        call terminal/create {"command":"pwd","cwd":"$ROOT/sub/x"}
        link out $BASE
        call terminal/create {"command":"pwd","cwd":"$ROOT/out"}
        call terminal/create {"command":"pwd","cwd":"$ROOT/sub/../.."}
        read sub/x
        "#,
        expect![[r#"
            > run echo out; echo err >&2; exit 3
            "out\nerr\n" exit 3
            > argv ["echo", "a b", "$(id)", ";", "'\""]
            "a b $(id) ; '\"\n" exit 0
            > run cat; echo "end $?"
            "end 0\n" exit 0
            > run kill -9 $$
            "" exit "SIGKILL"
            > call terminal/create {"command":"no-such-program-anywhere","args":["x"]}
            ! -32602 there is no program no-such-program-anywhere: check its name and PATH, and put its arguments into args
            > call terminal/create {"command":""}
            ! -32602 the command is empty: name a program, or give a shell line
            > call terminal/create {"command":"pwd","cwd":"sub"}
            ! -32602 sub is a relative path, send an absolute path {"reason":"relative","path":"sub"}
            > call terminal/create {"command":"pwd","cwd":"$BASE"}
            ! -32602 $BASE is outside the session's directories {"reason":"outside","path":"$BASE"}
            > call terminal/create {"command":"pwd","cwd":"$ROOT/missing"}
            ! -32002 Resource not found: $ROOT/missing {"uri":"$ROOT/missing"}
            > call terminal/create {"command":"pwd","cwd":"$ROOT/sub/x"}
            ! -32602 a name on the way to $ROOT/sub/x is not a directory
            > link out $BASE
            > call terminal/create {"command":"pwd","cwd":"$ROOT/out"}
            ! -32602 $ROOT/out is outside the session's directories {"reason":"outside","path":"$ROOT/out"}
            > call terminal/create {"command":"pwd","cwd":"$ROOT/sub/../.."}
            ! -32602 $ROOT/sub/../.. is outside the session's directories {"reason":"outside","path":"$ROOT/sub/../.."}
            > read sub/x
            ""
        "#]],
    )
    .await;
}

#[tokio::test]
async fn output_is_cut_at_a_character_within_its_limit() {
    let mut text = String::new();
    for (symbol, limit) in [("é", 100), ("é", 101), ("€", 100), ("€", 101), ("😀", 101), ("😀", 2)]
    {
        let command = format!("printf '%s' {}", symbol.repeat(200));
        text += &full_fixture()
            .play_custom_turn(move |actor| async move {
                let terminal = actor
                    .create_terminal(json!({"command": command, "outputByteLimit": limit}))
                    .await
                    .unwrap();
                let id = json!({"terminalId": terminal});
                actor.call("terminal/wait_for_exit", id.clone()).await.unwrap();
                let output = actor.call("terminal/output", id).await.unwrap();
                let kept = output["output"].as_str().unwrap();
                assert!(kept.chars().all(|c| symbol.contains(c)), "{kept}");
                actor.record(&format!("{symbol} {limit}: {} bytes, {}", kept.len(), output["truncated"]));
                StopReason::EndTurn
            })
            .await;
    }
    expect![[r#"
        é 100: 100 bytes, true
        é 101: 100 bytes, true
        € 100: 99 bytes, true
        € 101: 99 bytes, true
        😀 101: 100 bytes, true
        😀 2: 0 bytes, true
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn secrets_of_the_host_are_not_in_a_commands_environment() {
    let stage = HostFixture::with_options(|settings| {
        settings.preset = Some(Preset::Full);
        for name in ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "GH_TOKEN", "LD_PRELOAD"] {
            settings.terminals.inherited_env.insert(name.to_owned(), "secret".to_owned());
        }
        for (name, value) in [("HOME", "/home/me"), ("LANG", "C.UTF-8"), ("TERM", "xterm")] {
            settings.terminals.inherited_env.insert(name.to_owned(), value.to_owned());
        }
    });
    check(&stage, "run env | grep -v '^PWD\\|^_\\|^SHLVL\\|^OLDPWD\\|^BOWLINE_TERMINAL' | sort", expect![[r#"
        > run env | grep -v '^PWD\|^_\|^SHLVL\|^OLDPWD\|^BOWLINE_TERMINAL' | sort
        "GIT_CONFIG_COUNT=2\nGIT_CONFIG_KEY_0=safe.bareRepository\nGIT_CONFIG_KEY_1=core.fsmonitor\nGIT_CONFIG_VALUE_0=explicit\nGIT_CONFIG_VALUE_1=false\nGIT_PAGER=cat\nHOME=/home/me\nLANG=C.UTF-8\nPAGER=cat\nPATH=/usr/local/bin:/usr/bin:/bin\nTERM=xterm\n" exit 0
    "#]]).await;
}

#[tokio::test]
async fn what_an_environment_can_do_is_shown_and_asked_about() {
    let stage =
        HostFixture::with_options(|settings| settings.preset = Some(Preset::AcceptEdits)).with_answers(&[]);
    stage.lab.write_rules("[[rules]]\neffect = \"allow\"\ncommand = \"true\"\n").unwrap();
    let mut script =
        "call terminal/create {\"command\":\"true\",\"env\":[{\"name\":\"CI\",\"value\":\"1\"}]}\n"
            .to_owned();
    for name in ["LD_PRELOAD", "PATH", "GIT_SSH_COMMAND", "BASH_ENV", "NODE_OPTIONS"] {
        script += &format!(
            "call terminal/create {{\"command\":\"true\",\"env\":[{{\"name\":\"{name}\",\"value\":\"./x\"}}]}}\n"
        );
    }
    let text = stage.play_turns(&[&script]).await;
    let text: Vec<&str> =
        text.lines().map(|line| if line.starts_with("{\"terminalId") { "started" } else { line }).collect();
    expect![[r#"
        > call terminal/create {"command":"true","env":[{"name":"CI","value":"1"}]}
        started
        > call terminal/create {"command":"true","env":[{"name":"LD_PRELOAD","value":"./x"}]}
          ? puppet asks: run true
          ? ! sets LD_PRELOAD: the system loads code from it into every program
          ?   run true
          ?   in $ROOT
          ?   with LD_PRELOAD=./x
          ? Asked because `LD_PRELOAD`: the variable is set, and the system loads code from it into every program
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        > call terminal/create {"command":"true","env":[{"name":"PATH","value":"./x"}]}
          ? puppet asks: run true
          ? ! sets PATH: programs are looked for there
          ?   run true
          ?   in $ROOT
          ?   with PATH=./x
          ? Asked because `PATH`: the variable is set, and programs are looked for there
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        > call terminal/create {"command":"true","env":[{"name":"GIT_SSH_COMMAND","value":"./x"}]}
          ? puppet asks: run true
          ? ! sets GIT_SSH_COMMAND: git runs it, or reads settings that name programs
          ?   run true
          ?   in $ROOT
          ?   with GIT_SSH_COMMAND=./x
          ? Asked because `GIT_SSH_COMMAND`: the variable is set, and git runs it, or reads settings that name programs
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        > call terminal/create {"command":"true","env":[{"name":"BASH_ENV","value":"./x"}]}
          ? puppet asks: run true
          ? ! sets BASH_ENV: a shell runs it when it starts
          ?   run true
          ?   in $ROOT
          ?   with BASH_ENV=./x
          ? Asked because `BASH_ENV`: the variable is set, and a shell runs it when it starts
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        > call terminal/create {"command":"true","env":[{"name":"NODE_OPTIONS","value":"./x"}]}
          ? puppet asks: run true
          ? ! sets NODE_OPTIONS: it gives an interpreter options that load code
          ?   run true
          ?   in $ROOT
          ?   with NODE_OPTIONS=./x
          ? Asked because `NODE_OPTIONS`: the variable is set, and it gives an interpreter options that load code
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}"#]].assert_eq(&text.join("\n"));
}

#[tokio::test]
async fn an_approval_without_an_environment_does_not_cover_one() {
    let stage = HostFixture::new().with_answers(&["yes"]);
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"true"}}
        call terminal/create {"command":"true","env":[{"name":"LD_PRELOAD","value":"./x.so"}]}
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"true"}}
              ? puppet asks: Run
              ?   run true
              ?   in $ROOT
              ? Asked because `true`: no rule covers it, and preset ask asks before commands
            selected once
            > call terminal/create {"command":"true","env":[{"name":"LD_PRELOAD","value":"./x.so"}]}
              ? puppet is about to act, and it is not what was approved: run true
              ? ! sets LD_PRELOAD: the system loads code from it into every program
              ?   run true
              ?   in $ROOT
              ?   with LD_PRELOAD=./x.so
              ? Asked because `LD_PRELOAD`: the variable is set, and the system loads code from it into every program
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn output_can_be_shown_after_the_terminal_is_released() {
    let stage = full_fixture();
    let act = stage.custom_turn(|actor| async move {
        let terminal = actor.create_terminal(json!({"command": "echo kept"})).await.unwrap();
        let id = json!({"terminalId": terminal});
        actor.call("terminal/wait_for_exit", id.clone()).await.unwrap();
        actor.call("terminal/release", id).await.unwrap();
        actor.record(&terminal);
        StopReason::EndTurn
    });
    let (connection, session) = stage.open_session(vec![act]).await;
    session.prompt_text("go").await.unwrap();
    let id = TerminalId::new(stage.take_text().trim());
    let shown = session.terminals().last_snapshot(&id).await.unwrap();
    assert_eq!((shown.text.as_str(), shown.exit.unwrap().to_string().as_str()), ("kept\n", "0"));
    connection.close_session(&session).await.unwrap();
}

/// Returns a turn that starts a long-running command and records its process id.
fn long_command_turn(stage: &HostFixture) -> test_support::host_harness::TurnScript {
    stage.custom_turn(|actor| async move {
        let command = "trap '' TERM; (setsid sleep 1000 &); echo $$; while :; do sleep 1; done";
        let terminal = actor.create_terminal(json!({"command": command})).await.unwrap();
        actor.record(&wait_for_output(&actor, &terminal).await);
        StopReason::EndTurn
    })
}

#[tokio::test]
async fn no_command_outlives_its_session() {
    let stage = full_fixture();
    let (connection, session) = stage.open_session(vec![long_command_turn(&stage)]).await;
    session.prompt_text("go").await.unwrap();
    let pid = stage.take_text();
    assert!(Path::new("/proc").join(pid.trim()).exists());
    connection.close_session(&session).await.unwrap();
    wait_until_gone(pid.trim()).await;
}

#[tokio::test]
async fn no_command_outlives_its_connection() {
    for shutdown in [true, false] {
        let stage = full_fixture();
        let (connection, session) = stage.open_session(vec![long_command_turn(&stage)]).await;
        session.prompt_text("go").await.unwrap();
        let pid = stage.take_text();
        if shutdown {
            connection.shutdown(ShutdownGrace::default()).await;
        } else {
            drop(connection);
        }
        wait_until_gone(pid.trim()).await;
    }
}

#[tokio::test]
async fn no_command_outlives_its_agent() {
    let stage = full_fixture();
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (reader, writer) = tokio::io::split(theirs);
    let agent = Arc::new(PuppetAgent::new(vec![long_command_turn(&stage)]));
    let (_, serving) = connect_agent(agent, reader, writer, ConnectionLimits::DEFAULT);
    let serving = tokio::spawn(serving);
    let (reader, writer) = tokio::io::split(ours);
    let connection = stage.lab.host.connect(reader, writer).await.unwrap();
    let session = connection.new_session(bowline_host::SessionOptions::default()).await.unwrap();
    session.prompt_text("go").await.unwrap();
    let pid = stage.take_text();
    // The agent is gone, but the owner of the connection and the session has not noticed.
    serving.abort();
    wait_until_gone(pid.trim()).await;
    session.prompt_text("go").await.unwrap_err();
}

#[tokio::test]
async fn waiting_for_a_command_can_be_taken_back() {
    let text = full_fixture()
        .play_custom_turn(|actor| async move {
            let terminal =
                actor.create_terminal(json!({"command": "echo on; exec sleep 1000"})).await.unwrap();
            let id = json!({"terminalId": terminal});
            let waiting = actor.call_text("terminal/wait_for_exit", id.clone());
            tokio::select! {
                answer = waiting => panic!("{answer}"),
                _ = wait_for_output(&actor, &terminal) => {}
            }
            // Cancelling the request does not affect the command.
            let answer = actor.call_text("terminal/output", id.clone()).await;
            actor.record(&answer);
            let (waited, _) = tokio::join!(
                actor.call_text("terminal/wait_for_exit", id.clone()),
                actor.call_text("terminal/kill", id.clone())
            );
            actor.record(&waited);
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
        {"output":"on\n","truncated":false}
        {"signal":"SIGTERM"}
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn a_session_that_ended_starts_nothing() {
    let stage = full_fixture();
    let (connection, session) = stage.open_session(vec![]).await;
    let asked = CommandRequest { command: "sleep 300".to_owned(), ..CommandRequest::default() };
    let prepared = session.terminals().prepare(asked).unwrap();
    connection.close_session(&session).await.unwrap();
    let started = session.terminals().start(prepared).await;
    assert!(matches!(started, Err(TerminalError::SessionEnded)), "{started:?}");
}

/// Pauses a scan at one of its progress reports, until the returned sender is dropped.
fn pause_scan(stage: &HostFixture, at_report: u64) -> (SyncSender<()>, Receiver<()>) {
    let (release, released) = sync_channel(0);
    let (pausing, paused) = sync_channel(1);
    let mut reports = 0;
    stage.lab.user.on_progress(move || {
        reports += 1;
        if reports == at_report {
            pausing.send(()).unwrap();
            released.recv().ok();
        }
    });
    (release, paused)
}

#[tokio::test]
async fn a_turn_goes_on_beside_the_first_look_and_a_command_waits_for_it() {
    // More files than are scanned before the first progress report.
    const FILES: usize = 1500;
    let stage = HostFixture::with_options(|settings| {
        settings.preset = Some(Preset::AcceptEdits);
        settings.writes_through_host_only = true;
    });
    let asked = Arc::new(Notify::new());
    let answering = asked.clone();
    stage.lab.user.answer_with(move |_| {
        answering.notify_one();
        parse_reply("yes")
    });
    for number in 0..FILES {
        stage.lab.write_file(&format!("many/{number}"), "before\n").unwrap();
    }
    let (release, paused) = pause_scan(&stage, 1);
    let read_and_write = stage.scripted_turn("read many/7\nwrite new.txt new\nread new.txt");
    let overwrite = stage.custom_turn(|actor| async move {
        let command = json!({"command": "for file in many/*; do echo after > $file; done"});
        let terminal = actor.create_terminal(command).await.unwrap();
        let exit = actor.call_text("terminal/wait_for_exit", json!({"terminalId": terminal})).await;
        actor.record(&exit);
        StopReason::EndTurn
    });
    let (connection, session) = stage.open_session(vec![read_and_write, overwrite]).await;
    session.prompt_text("go").await.unwrap();
    paused.recv().unwrap();
    expect![[r#"
        > read many/7
        "before\n"
        > write new.txt new
        ok
        > read new.txt
        "new"
    "#]]
    .assert_eq(&stage.take_text());
    let (turn, ()) = tokio::join!(session.prompt_text("go"), async {
        // From here on, only the first scan keeps the command from running.
        asked.notified().await;
        let started = stage.lab.user.events().iter().any(|event| event.starts_with("TerminalStarted"));
        assert!(!started, "the command ran before the first look was over");
        drop(release);
    });
    turn.unwrap();
    let changes = stage.lab.host.workspace().changes(&ChangeSelection::default()).unwrap();
    let restorable = changes.iter().filter(|entry| entry.change.path.contains("/many/"));
    assert_eq!(restorable.count(), FILES, "every file that the command changed was known before");
    connection.close_session(&session).await.unwrap();
}

#[tokio::test]
async fn a_command_that_waited_long_enough_starts_and_what_it_changed_unseen_is_named() {
    // The files that are scanned before the first progress report.
    const SCANNED: u64 = observer::PROGRESS_EVERY - 1;
    let stage = HostFixture::with_options(|settings| {
        settings.preset = Some(Preset::Full);
        settings.writes_through_host_only = true;
        settings.initial_scan_timeout = Duration::ZERO;
    });
    for number in 0..SCANNED + 7 {
        stage.lab.write_file(&format!("many/{number:04}"), "before\n").unwrap();
    }
    wait_until_settled(&stage.lab.path("many")).await;
    let (release, paused) = pause_scan(&stage, 1);
    let read = stage.scripted_turn("read many/0007");
    let overwrite = stage.scripted_turn("run for file in many/*; do echo after > $file; done");
    let (connection, session) = stage.open_session(vec![read, overwrite]).await;
    session.prompt_text("go").await.unwrap();
    paused.recv().unwrap();
    session.prompt_text("go").await.unwrap();
    drop(release);
    let is_notice = |event: &&String| event.starts_with("Notice");
    stage.lab.user.wait_until(|_, events| events.iter().filter(is_notice).count() == 2).await;
    expect![[r#"
        Notice { text: "the first look at the project's files takes longer than 0 s: what the command changes before it is over may not be found or undone" }
        Notice { text: "changed before the first look at the project's files came to them, so that what they held before cannot be restored: $ROOT/many/, $ROOT/many/, $ROOT/many/, $ROOT/many/, $ROOT/many/ and 2 more" }"#]].assert_eq(&notices_text(&stage));
    connection.close_session(&session).await.unwrap();
}

/// Waits until no file that was just created in a directory looks as if a scan had begun before it.
async fn wait_until_settled(directory: &str) {
    let window = 2 * Duration::from_nanos(RACY_WINDOW_NS.unsigned_abs());
    let age = || Path::new(directory).metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
    wait_until_async("files that are older than the scan", || age() > window).await;
}

/// Returns the notices, without the numbers of files: the file system determines the order of a scan.
fn notices_text(stage: &HostFixture) -> String {
    let events = stage.lab.user.events();
    let notices: Vec<_> = events.into_iter().filter(|event| event.starts_with("Notice")).collect();
    let text = stage.normalize(&notices.join("\n"));
    text.split_inclusive('/')
        .map(|part| part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
        .collect()
}

#[tokio::test]
async fn an_agent_that_writes_by_itself_starts_beside_the_first_scan_of_a_large_project() {
    // The files that are scanned before the second progress report.
    const SCANNED: u64 = 2 * observer::PROGRESS_EVERY - 1;
    let other = tempfile::tempdir().unwrap();
    let root = other.path().canonicalize().unwrap();
    let stage = HostFixture::with_options(|settings| {
        settings.additional_roots.push(RootSpec::writable(root.to_string_lossy()));
    });
    for number in 0..SCANNED {
        stage.lab.write_file(&number.to_string(), "before\n").unwrap();
    }
    let scanned = [1, 2, 3].map(|number| PathBuf::from(stage.lab.path(&number.to_string())));
    let unscanned = [1, 2, 3, 4, 5, 6, 7].map(|number| root.join(number.to_string()));
    unscanned.iter().for_each(|path| std::fs::write(path, "before\n").unwrap());
    wait_until_settled(&stage.lab.path("")).await;
    let (release, paused) = pause_scan(&stage, 2);
    let overwrite = stage.custom_turn(move |_| async move {
        paused.recv().unwrap();
        scanned.iter().chain(&unscanned).for_each(|path| std::fs::write(path, "after\n").unwrap());
        drop(release);
        StopReason::EndTurn
    });
    let (connection, session) = stage.open_session(vec![overwrite]).await;
    let turn = session.prompt_text("go").await.unwrap();
    assert_eq!(turn.observed_changes.len(), 3, "the files that were scanned before");
    let notices = notices_text(&stage).replace(root.to_str().unwrap(), "$OTHER");
    expect![[r#"Notice { text: "changed before the first look at the project's files came to them, so that what they held before cannot be restored: $OTHER/, $OTHER/, $OTHER/, $OTHER/, $OTHER/ and 2 more" }"#]].assert_eq(&notices);
    connection.close_session(&session).await.unwrap();
}
