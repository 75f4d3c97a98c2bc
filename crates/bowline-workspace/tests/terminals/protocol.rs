//! Tests of the protocol's terminal methods: execution, output and errors.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::TerminalId;
use bowline_workspace::terminals::{CommandRequest, OutputEvent, OutputSubscription, TerminalBackend as _};
use expect_test::expect;

use super::fixture::{
    MAX_WAIT, TerminalFixture, argv_request, exit_code, exit_signal, is_unknown_terminal, shell_request,
};

#[tokio::test]
async fn both_streams_come_in_order_with_the_exit() {
    let lab = TerminalFixture::new();
    let shown = lab.run("echo one; echo two >&2; echo three; exit 7").await;
    assert_eq!(
        (shown.text.as_str(), shown.truncated, shown.exit),
        ("one\ntwo\nthree\n", false, exit_code(7))
    );
}

#[tokio::test]
async fn arguments_are_literal_and_a_line_is_read_by_a_shell() {
    let lab = TerminalFixture::new();
    let literal =
        lab.run_request(argv_request(&["printf", "<%s>", "a b", "$(id)", "; rm -rf /", "\"", "*", ""])).await;
    assert_eq!(literal.text, "<a b><$(id)><; rm -rf /><\"><*><>");
    let line = lab.run_request(CommandRequest {
        command: "echo $((6 * 7)) | cat && echo done".to_owned(),
        ..CommandRequest::default()
    });
    assert_eq!(line.await.text, "42\ndone\n");
    let word =
        lab.run_request(CommandRequest { command: "pwd".to_owned(), ..CommandRequest::default() }).await;
    assert_eq!(word.text, format!("{}\n", lab.root.display()));
}

#[tokio::test]
async fn a_command_finds_only_what_it_may_inherit() {
    let lab = TerminalFixture::new();
    let asked = CommandRequest { env: vec![("CI".to_owned(), "1 2".to_owned())], ..argv_request(&["env"]) };
    let asked = CommandRequest { args: vec!["--".to_owned()], ..asked };
    let shown = lab.run_request(asked).await;
    let mut lines: Vec<_> =
        shown.text.lines().filter(|line| !line.starts_with("BOWLINE_TERMINAL=term-1-")).collect();
    lines.sort_unstable();
    let text = lines.join("\n").replace(lab.root.to_str().unwrap(), "$ROOT");
    expect![[r#"
        CI=1 2
        GIT_CONFIG_COUNT=2
        GIT_CONFIG_KEY_0=safe.bareRepository
        GIT_CONFIG_KEY_1=core.fsmonitor
        GIT_CONFIG_VALUE_0=explicit
        GIT_CONFIG_VALUE_1=false
        GIT_PAGER=cat
        HOME=$ROOT
        LANG=C.UTF-8
        PAGER=cat
        PATH=/usr/local/bin:/usr/bin:/bin"#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn a_program_is_looked_for_on_its_own_path() {
    let lab = TerminalFixture::new();
    fs::create_dir(lab.root.join("bin")).unwrap();
    let script = lab.root.join("bin/only-here");
    fs::write(&script, "#!/bin/sh\necho found\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = ("PATH".to_owned(), format!("{}:/bin:/usr/bin", lab.root.join("bin").display()));
    let shown = lab.run_request(CommandRequest { env: vec![path], ..argv_request(&["only-here"]) }).await;
    assert_eq!(shown.text, "found\n");
}

#[tokio::test]
async fn commands_that_cannot_run_are_refused_with_advice() {
    let lab = TerminalFixture::with_options(|settings| settings.limits.terminals = 2);
    fs::write(lab.root.join("plain"), "text").unwrap();
    fs::write(lab.root.join("no-interpreter"), "#!/nowhere/sh\n").unwrap();
    fs::set_permissions(lab.root.join("no-interpreter"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let at = |cwd: &str| CommandRequest { cwd: Some(cwd.to_owned()), ..argv_request(&["true"]) };
    let mut refused = Vec::new();
    for asked in [
        argv_request(&["no-such-program"]),
        argv_request(&["npm run", "test"]),
        argv_request(&["./plain"]),
        argv_request(&["./no-interpreter"]),
        argv_request(&[""]),
        argv_request(&["a\0b"]),
        CommandRequest { env: vec![("A=B".to_owned(), String::new())], ..argv_request(&["true"]) },
        at("/"),
        at("src"),
        at(lab.root.join("missing").to_str().unwrap()),
        at(lab.root.join("plain").to_str().unwrap()),
    ] {
        refused.push(lab.start_error(asked).await);
    }
    expect![[r#"
        there is no program no-such-program: check its name and PATH, and put its arguments into args
        there is no program npm run: check its name and PATH, and put its arguments into args
        ./plain cannot be executed: it is no program, or may not be run
        there is no program ./no-interpreter: check its name and PATH, and put its arguments into args
        the command is empty: name a program, or give a shell line
        the command or an argument holds a NUL character: leave it out
        A=B is no name for a variable: it has to be there, without = and NUL
        / is outside the session's directories
        src is relative, send an absolute path
        $ROOT/missing does not exist
        a name on the way to $ROOT/plain is not a directory"#]]
    .assert_eq(&refused.join("\n"));
    // None of them took up a slot.
    let (first, _second) = (lab.start("sleep 1000").await, lab.start("sleep 1000").await);
    expect![[r#"
        Other {
            code: -32029,
            message: "there are 2 terminals, which is the limit: release those that are not needed",
            data: Some(
                Object {
                    "limit": Number(2),
                },
            ),
        }
    "#]]
    .assert_debug_eq(&lab.terminals.create(argv_request(&["true"])).await.unwrap_err());
    lab.terminals.release(&first).await.unwrap();
    lab.run("true").await;
}

#[tokio::test]
async fn the_oldest_finished_terminal_makes_room_for_a_new_one() {
    let lab = TerminalFixture::with_options(|settings| settings.limits.terminals = 3);
    let running = lab.start("sleep 1000").await;
    let mut ended = Vec::new();
    for number in 0..10 {
        let id = lab.start(&format!("echo {number}")).await;
        lab.wait(&id).await;
        ended.push(id);
    }
    assert_eq!(lab.terminals.output(&running).await.unwrap().exit, None, "what runs is not ended");
    for (number, id) in ended.iter().enumerate() {
        let shown = lab.terminals.output(id).await.map(|shown| shown.text).ok();
        assert_eq!(shown, (number >= 8).then(|| format!("{number}\n")), "of the last two");
    }
    let (_second, _third) = (lab.start("sleep 1000").await, lab.start("sleep 1000").await);
    let refused = lab.start_error(argv_request(&["true"])).await;
    assert_eq!(refused, "there are 3 terminals, which is the limit: release those that are not needed");
}

#[tokio::test]
async fn the_first_to_exit_makes_room_even_if_it_leaves_processes() {
    let lab = TerminalFixture::with_options(|settings| {
        settings.limits.terminals = 2;
        settings.grace_period = Duration::from_secs(1);
    });
    let first = lab.start("(trap '' TERM; exec sleep 1000) & echo begun").await;
    lab.wait(&first).await;
    let second = lab.start("echo second").await;
    lab.wait(&second).await;
    // Its processes are gone by then, while those of the first may ignore SIGTERM for a second.
    lab.terminals.kill(&second).await.unwrap();
    lab.start("sleep 1000").await;
    assert!(is_unknown_terminal(lab.terminals.output(&first).await));
    assert_eq!(lab.terminals.output(&second).await.unwrap().text, "second\n");
}

#[tokio::test]
async fn a_directory_that_was_removed_is_refused_and_one_that_moved_is_followed() {
    let lab = TerminalFixture::new();
    let sub = lab.root.join("sub");
    fs::create_dir(&sub).unwrap();
    let asked = || CommandRequest { cwd: Some(sub.to_str().unwrap().to_owned()), ..argv_request(&["pwd"]) };
    let prepared = lab.terminals.prepare(asked()).unwrap();
    fs::rename(&sub, lab.root.join("moved")).unwrap();
    fs::create_dir(&sub).unwrap();
    let id = lab.terminals.start(prepared).await.unwrap();
    lab.wait(&id).await;
    let shown = lab.terminals.output(&id).await.unwrap();
    assert_eq!(shown.text, format!("{}\n", lab.root.join("moved").display()));
    let prepared = lab.terminals.prepare(asked()).unwrap();
    fs::remove_dir(&sub).unwrap();
    let refused = lab.terminals.start(prepared).await.unwrap_err().to_string();
    assert_eq!(refused, format!("the directory {} was removed: name one that is there", sub.display()));
}

#[tokio::test]
async fn stdin_is_empty_and_not_a_terminal() {
    let lab = TerminalFixture::new();
    let shown = lab.run("cat; echo read: $?; tty").await;
    assert_eq!((shown.text.as_str(), shown.exit), ("read: 0\nnot a tty\n", exit_code(1)));
}

#[tokio::test]
async fn a_command_holds_nothing_open_that_the_host_opened() {
    // Descriptors that this process itself inherited are passed on. The next one is the listed directory.
    let given = |fd: &String| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("02000000");
        i64::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000 == 0
    };
    let own = fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().file_name().into_string().unwrap());
    let given: Vec<_> = own.filter(given).collect();
    let shown = TerminalFixture::new().run_request(argv_request(&["ls", "/proc/self/fd"])).await;
    let held: Vec<_> = shown.text.lines().filter(|fd| !given.iter().any(|given| given == fd)).collect();
    assert!(held.len() <= 1, "{held:?} beside {given:?}");
}

#[tokio::test]
async fn output_does_not_wait_and_the_exit_comes_later() {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    let id = lab.start("exec 9>hold; echo begun; exec tail -f /dev/null").await;
    let shown = lab.wait_for_output(&id, "begun").await;
    assert_eq!(shown.exit, None);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let (terminals, id) = (lab.terminals.clone(), id.clone());
            tokio::spawn(async move { terminals.wait(&id).await.unwrap() })
        })
        .collect();
    lab.terminals.kill(&id).await.unwrap();
    for waiter in waiters {
        assert_eq!(
            Some(tokio::time::timeout(MAX_WAIT, waiter).await.unwrap().unwrap()),
            exit_signal("SIGTERM")
        );
    }
    thread.wait_until_closed().await;
    // The terminal still exists, and a second kill does nothing.
    lab.terminals.kill(&id).await.unwrap();
    let shown = lab.terminals.output(&id).await.unwrap();
    assert_eq!((shown.text.as_str(), shown.exit), ("begun\n", exit_signal("SIGTERM")));
}

#[tokio::test]
async fn a_released_terminal_is_none_but_can_be_shown() {
    let lab = TerminalFixture::new();
    let id = lab.start("echo kept; exec tail -f /dev/null").await;
    lab.wait_for_output(&id, "kept").await;
    let waiting = {
        let (terminals, id) = (lab.terminals.clone(), id.clone());
        tokio::spawn(async move { terminals.wait(&id).await })
    };
    tokio::task::yield_now().await;
    lab.terminals.release(&id).await.unwrap();
    assert!(is_unknown_terminal(lab.terminals.output(&id).await));
    assert!(is_unknown_terminal(lab.terminals.wait(&id).await));
    assert!(is_unknown_terminal(lab.terminals.kill(&id).await));
    assert!(is_unknown_terminal(lab.terminals.release(&id).await));
    assert!(is_unknown_terminal(lab.terminals.subscribe(&id).await));
    // A wait that began earlier receives the exit.
    assert_eq!(waiting.await.unwrap().ok(), exit_signal("SIGTERM"));
    let shown = lab.terminals.last_snapshot(&id).await.unwrap();
    assert_eq!((shown.text.as_str(), shown.exit), ("kept\n", exit_signal("SIGTERM")));

    let other = TerminalId::new("term-1-0000000000000000");
    let failure = RpcError::from(lab.terminals.output(&other).await.unwrap_err());
    assert_eq!(failure, RpcError::ResourceNotFound { uri: Some(other.to_string()) });
    assert_eq!(lab.terminals.last_snapshot(&other).await, None);
}

#[tokio::test]
async fn the_tail_is_kept_at_a_character() {
    let lab = TerminalFixture::new();
    for character in ["ä", "€", "😀"] {
        for limit in [100, 101] {
            let line =
                format!("i=0; while [ $i -lt 60 ]; do printf '%s' {character}; i=$((i+1)); done; echo");
            let shown = lab
                .run_request(CommandRequest { output_limit: Some(limit as u64), ..shell_request(&line) })
                .await;
            // The line end takes one byte of the limit.
            let kept = format!("{}\n", character.repeat((limit - 1) / character.len()));
            assert_eq!((shown.text, shown.truncated), (kept, true), "{character} {limit}");
        }
    }
}

#[tokio::test]
async fn signals_have_names() {
    let lab = TerminalFixture::new();
    let mut exits = Vec::new();
    for name in ["KILL", "TERM", "SEGV", "ABRT", "USR1", "PIPE", "34"] {
        exits.push(format!("{:?}", lab.run(&format!("kill -{name} $$")).await.exit.unwrap()));
    }
    expect![[r#"Signal("SIGKILL") Signal("SIGTERM") Signal("SIGSEGV") Signal("SIGABRT") Signal("SIGUSR1") Signal("SIGPIPE") Signal("SIG34")"#]]
        .assert_eq(&exits.join(" "));
}

#[tokio::test]
async fn a_watcher_sees_every_byte_or_how_many_it_missed() {
    let lab = TerminalFixture::new();
    drop(lab.create_process_pipe("go"));
    let id = lab.start("echo before; read go < go; printf '\\033[1mbold'; head -c 20000000 /dev/zero").await;
    lab.wait_for_output(&id, "before\n").await;
    let (mut slow, mut quick) =
        (lab.terminals.subscribe(&id).await.unwrap(), lab.terminals.subscribe(&id).await.unwrap());
    assert_eq!(slow.snapshot.text, "before\n");
    let quick = tokio::spawn(async move { (quick.next().await, count_output_bytes(quick).await) });
    lab.write_to_pipe("go").await;
    lab.wait(&id).await;
    let OutputEvent::Skipped(skipped) = slow.next().await.unwrap() else { panic!("it is too slow") };
    let late = count_output_bytes(slow).await;
    assert_eq!(skipped + late, 20_000_008);
    assert!(late <= 32 * 64 * 1024, "{late}");
    let (first, rest) = quick.await.unwrap();
    let Some(OutputEvent::Bytes(first)) = first else { panic!("it is quick enough for the first") };
    assert!(first.starts_with(b"\x1b[1mbold"));
    assert_eq!(first.len() as u64 + rest, 20_000_008);
}

/// Returns the number of bytes received, including skipped ones.
async fn count_output_bytes(mut watcher: OutputSubscription) -> u64 {
    let mut bytes = 0;
    while let Some(live) = watcher.next().await {
        bytes += match live {
            OutputEvent::Bytes(piece) => piece.len() as u64,
            OutputEvent::Skipped(skipped) => skipped,
        };
    }
    bytes
}

#[test]
fn processes_are_started_in_three_places_only() {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if fs::read_to_string(&path).unwrap().contains("Command::new") {
                found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert_eq!(found, ["keeper.rs", "spawn.rs", "supervisor.rs"]);
}

#[tokio::test]
async fn colours_are_for_watchers_and_text_is_for_agents() {
    let lab = TerminalFixture::new();
    let shown = lab.run("printf '\\033[31mred\\033[0m \\033]52;c;eA==\\007end\\n'").await;
    assert_eq!(shown.text, "red end\n");
}
