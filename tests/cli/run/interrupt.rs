//! Tests of runs that end before their turn, and leave nothing behind.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use super::fixture;
use crate::fixture::CliFixture;
use expect_test::expect;
use test_support::wait::{wait_for, wait_until};

/// A run in the background.
pub(crate) struct BackgroundRun {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl BackgroundRun {
    pub(crate) fn start(scene: &CliFixture, arguments: &[&str]) -> Self {
        let mut command = scene.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Waits for a text.
    pub(crate) fn wait_for_text(&mut self, text: &str) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let mut byte = [0];
            assert!(self.stdout.read(&mut byte).unwrap() > 0, "it ended without {text}");
            seen.extend(byte);
        }
    }

    pub(crate) fn send_signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for its exit without reading its output; returns the exit code.
    fn wait_for_exit_unread(mut self) -> Option<i32> {
        wait_for("an exit without a reader", || self.child.try_wait().unwrap()).code()
    }

    /// Waits for its exit; returns stderr and the exit code.
    pub(crate) fn wait_for_exit(mut self, scene: &CliFixture) -> String {
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        scene.normalize(&format!("{stderr}--- {:?}\n", status.code()))
    }
}

/// Waits until a process is gone.
fn wait_until_gone(id: &str) {
    let process = std::path::Path::new("/proc").join(id);
    wait_until(&format!("the end of process {id}"), || !process.exists());
}

/// A command that writes its process id and never ends.
fn endless_command(scene: &CliFixture) -> String {
    format!("run sh -c 'echo $$ > {}; exec sleep 1000'", scene.file_path("pid"))
}

/// Returns the process id of the endless command, if it was started.
fn started_command_pid(scene: &CliFixture) -> Option<String> {
    let text = std::fs::read_to_string(scene.project().join("pid")).ok()?;
    text.ends_with('\n').then(|| text.trim().to_owned())
}

/// Retries with growing time limits: the limit must end the run, but only after it has reached a certain point, and the
/// time for that depends on the machine. Each attempt doubles the limit, until one returns a value.
fn retry_with_limit<T>(attempt: impl Fn(&str) -> Option<T>) -> T {
    (0..8).find_map(|doubled| attempt(&(1 << doubled).to_string())).expect("a limit that is long enough")
}

/// Waits until the endless command is running, and returns its process id.
fn wait_for_command(scene: &CliFixture) -> String {
    wait_for("the command's start", || started_command_pid(scene))
}

#[test]
fn ctrl_c_cancels_the_turn_and_its_commands() {
    let scene = fixture();
    let run = BackgroundRun::start(&scene, &["run", "--approve", "all", &endless_command(&scene)]);
    let command = wait_for_command(&scene);
    run.send_signal("INT");
    expect![[r#"
        bowline: cancelling the turn; Ctrl-C again ends everything at once
        bowline: interrupted
        --- Some(130)
    "#]]
    .assert_eq(&run.wait_for_exit(&scene));
    wait_until_gone(&command);
}

#[test]
fn a_second_ctrl_c_ends_everything() {
    let scene = fixture();
    let turn = "read -r line; echo $$ > pid; trap '' TERM\nprintf '%s\\n' '{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s1\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"busy\\n\"}}}}'\nsleep 1000";
    let deaf = super::scripted_agents::scripted_agent(&scene, turn);
    let mut run = BackgroundRun::start(&scene, &["run", "--agent", &deaf, "go"]);
    run.wait_for_text("busy");
    let agent = wait_for_command(&scene);
    run.send_signal("INT");
    let mut stderr = BufReader::new(run.child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    run.send_signal("INT");
    stderr.read_to_string(&mut line).unwrap();
    expect![[r#"
        bowline: cancelling the turn; Ctrl-C again ends everything at once
        bowline: interrupted
        --- Some(130)
    "#]]
    .assert_eq(&format!("{line}--- {:?}\n", run.child.wait().unwrap().code()));
    wait_until_gone(&agent);
}

#[test]
fn a_signal_to_end_ends_it_cleanly() {
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        let scene = fixture();
        let run = BackgroundRun::start(&scene, &["run", "--approve", "all", &endless_command(&scene)]);
        let command = wait_for_command(&scene);
        run.send_signal(signal);
        assert_eq!(run.wait_for_exit(&scene), format!("bowline: terminated\n--- Some({code})\n"));
        wait_until_gone(&command);
    }
}

#[test]
fn what_takes_too_long_is_ended() {
    let (command, told) = retry_with_limit(|limit| {
        let scene = fixture();
        let run = BackgroundRun::start(
            &scene,
            &["run", "--approve", "all", "--timeout", limit, &endless_command(&scene)],
        );
        let told = run.wait_for_exit(&scene);
        // Otherwise the limit came before the turn began.
        let command = started_command_pid(&scene).filter(|_| told.contains("the turn took longer"))?;
        Some((command, told))
    });
    expect![[r#"
        bowline: the turn took longer than TIME and was ended
        --- Some(3)
    "#]]
    .assert_eq(&told);
    wait_until_gone(&command);
}

#[test]
fn a_turn_is_cancelled_when_its_output_is_closed() {
    let scene = fixture();
    let prompt = format!("say first\n{}", endless_command(&scene));
    let mut run = BackgroundRun::start(&scene, &["run", "--approve", "all", &prompt]);
    run.wait_for_text("first");
    let command = wait_for_command(&scene);
    drop(std::mem::replace(&mut run.stdout, BufReader::new(closed_stdout())));
    // Its next write finds the pipe closed.
    expect![[r#"
        bowline: the turn was cancelled, because its output is no longer read
        --- Some(1)
    "#]]
    .assert_eq(&run.wait_for_exit(&scene));
    wait_until_gone(&command);
}

#[test]
fn closing_the_output_after_the_turn_is_harmless() {
    let scene = fixture();
    let path = scene.file_path("b.txt");
    let write = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":"w","method":"fs/write_text_file","params":{{"sessionId":"s1","path":"{path}","content":"x"}}}}'"#
    );
    // When its input is closed, the turn has ended, but its changes have not been reported yet.
    let turn = [
        "read -r line",
        &write,
        "read -r answer",
        &super::scripted_agents::script_stop("end_turn"),
        "cat > /dev/null",
        "echo $$ > pid",
        "until [ -e go ]; do sleep 0.01; done",
    ];
    let slow = super::scripted_agents::scripted_agent(&scene, &turn.join("\n"));
    let mut run = BackgroundRun::start(&scene, &["run", "--agent", &slow, "--approve", "edits", "go"]);
    wait_for_command(&scene);
    drop(std::mem::replace(&mut run.stdout, BufReader::new(closed_stdout())));
    scene.write_file("go", "");
    expect![[r#"
        --- Some(0)
    "#]]
    .assert_eq(&run.wait_for_exit(&scene));
}

#[test]
fn a_failed_write_of_output_fails_the_run() {
    let scene = fixture();
    for format in ["text", "json", "quiet"] {
        let mut command = scene.command(&["run", "--format", format, "say x"]);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
        expect![[r#"
            --- stderr
            bowline: cannot write what the agent says: No space left on device (os error 28)
            --- 1
        "#]]
        .assert_eq(&scene.describe_output(&command.output().unwrap()));
    }
}

#[test]
fn a_turn_is_cancelled_when_its_output_is_read_too_slowly() {
    let scene = fixture();
    // More than a pipe and the queue hold.
    let chunk =
        super::scripted_agents::script_message(&format!("'$(head -c {} /dev/zero | tr '\\0' x)'", 1 << 20));
    let turn = format!("read -r line\necho $$ > pid\nfor i in $(seq 100); do {chunk}; done\nsleep 1000");
    let flood = super::scripted_agents::scripted_agent(&scene, &turn);
    let run = BackgroundRun::start(&scene, &["run", "--format", "json", "--agent", &flood, "go"]);
    let agent = wait_for_command(&scene);
    expect![[r#"
        bowline: what the agent says is read too slowly: the turn was cancelled
        --- Some(1)
    "#]]
    .assert_eq(&run.wait_for_exit(&scene));
    wait_until_gone(&agent);
    // Output that fits into the queue does not outlast the limit either.
    let turn = format!("read -r line\n{chunk}\n{}", super::scripted_agents::script_stop("end_turn"));
    let much = super::scripted_agents::scripted_agent(&scene, &turn);
    let told = retry_with_limit(|limit| {
        let run = BackgroundRun::start(&scene, &["run", "--agent", &much, "--timeout", limit, "go"]);
        let told = run.wait_for_exit(&scene);
        // Otherwise the limit came before the end of the turn.
        told.contains("the turn has ended").then_some(told)
    });
    expect![[r#"
        bowline: the turn has ended, and what it said was not read in time
        --- Some(3)
    "#]]
    .assert_eq(&told);
}

#[test]
fn an_agent_leaves_nothing_behind() {
    // It starts a process in its own process session, and ignores signals.
    let turn = "read -r line\nsetsid sh -c 'echo $$ > pid; exec sleep 1000' &\ntrap '' TERM HUP INT\nwhile :; do sleep 1000; done";
    for signals in [&["INT", "INT"][..], &["TERM"], &["HUP"], &["KILL"]] {
        let scene = fixture();
        let stubborn = super::scripted_agents::scripted_agent(&scene, turn);
        let mut run = BackgroundRun::start(&scene, &["run", "--agent", &stubborn, "go"]);
        let child = wait_for_command(&scene);
        let mut stderr = BufReader::new(run.child.stderr.take().unwrap());
        for (at, signal) in signals.iter().enumerate() {
            if at > 0 {
                // The first signal was handled.
                stderr.read_line(&mut String::new()).unwrap();
            }
            run.send_signal(signal);
        }
        let code = run.child.wait().unwrap().code();
        let expected = [("INT", 130), ("TERM", 143), ("HUP", 129)];
        let expected = expected.iter().find(|(signal, _)| signals.contains(signal)).map(|(_, code)| *code);
        assert_eq!(code, expected, "{signals:?}");
        wait_until_gone(&child);
    }
}

#[test]
fn an_unrepresentable_timeout_is_no_limit() {
    let scene = fixture();
    for seconds in ["9223372036854775807", "18446744073709551615"] {
        expect![[r#"
            x
            --- 0
        "#]]
        .assert_eq(&scene.run(&["run", "--timeout", seconds, "say x"]));
    }
}

/// Returns the stdout of a process that has ended.
fn closed_stdout() -> std::process::ChildStdout {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}

#[test]
fn an_agent_that_hangs_is_killed_with_the_run() {
    let (agent, told) = retry_with_limit(|limit| {
        let scene = fixture();
        let deaf = super::scripted_agents::scripted_agent(&scene, "echo $$ > pid; trap '' TERM; sleep 1000");
        let run = BackgroundRun::start(&scene, &["run", "--agent", &deaf, "--timeout", limit, "go"]);
        let told = run.wait_for_exit(&scene);
        // Otherwise the limit came before the turn began.
        let command = started_command_pid(&scene).filter(|_| told.contains("the turn took longer"))?;
        Some((command, told))
    });
    expect![[r#"
        bowline: the turn took longer than TIME and was ended
        --- Some(3)
    "#]]
    .assert_eq(&told);
    wait_until_gone(&agent);
}

#[test]
fn a_stalled_reader_does_not_delay_the_exit() {
    // More than a pipe holds, as one message.
    let turn = "read -r line; echo $$ > pid\nlong=$(head -c 300000 /dev/zero | tr '\\0' x)\n\
                printf '{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s1\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"%s\"}}}}\\n' \"$long\"\nsleep 1000";
    let start = |scene: &CliFixture, limit: &str| {
        let agent = super::scripted_agents::scripted_agent(scene, turn);
        BackgroundRun::start(scene, &["run", "--format", "json", "--timeout", limit, "--agent", &agent, "go"])
    };
    let scene = fixture();
    let run = start(&scene, "1000");
    let agent = wait_for_command(&scene);
    run.send_signal("TERM");
    assert_eq!(run.wait_for_exit_unread(), Some(143));
    wait_until_gone(&agent);
    let agent = retry_with_limit(|limit| {
        let scene = super::fixture();
        assert_eq!(start(&scene, limit).wait_for_exit_unread(), Some(3));
        started_command_pid(&scene)
    });
    wait_until_gone(&agent);
}
