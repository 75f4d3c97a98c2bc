//! How a run ends before its turn does, and that nothing of it stays.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::scene;
use crate::program::Scene;
use expect_test::expect;

/// A run that goes on.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub(crate) fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let mut command = scene.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Waits for a text.
    pub(crate) fn until(&mut self, text: &str) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let mut byte = [0];
            assert!(self.stdout.read(&mut byte).unwrap() > 0, "it ended without {text}");
            seen.extend(byte);
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for its end while nobody reads what it says; returns the exit code.
    fn end_unread(mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < test_support::PATIENCE, "it waits for its reader");
            std::thread::yield_now();
        }
    }

    /// Waits for its end; returns stderr and the exit code.
    pub(crate) fn end(mut self, scene: &Scene) -> String {
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        scene.clean(&format!("{stderr}--- {:?}\n", status.code()))
    }
}

/// Waits until a process is gone.
fn gone(id: &str) {
    let begun = Instant::now();
    while std::path::Path::new("/proc").join(id).exists() {
        assert!(begun.elapsed() < test_support::PATIENCE, "process {id} is still there");
        std::thread::yield_now();
    }
}

/// A command that tells its process id and goes on for ever.
fn endless(scene: &Scene) -> String {
    format!("run sh -c 'echo $$ > {}; exec sleep 1000'", scene.path("pid"))
}

/// Returns the process id of the endless command, if it was started.
fn started_command(scene: &Scene) -> Option<String> {
    let text = std::fs::read_to_string(scene.project().join("pid")).ok()?;
    text.ends_with('\n').then(|| text.trim().to_owned())
}

/// Runs with a limit of some seconds that ends the run, but not before it came where it should: how many that takes is the
/// machine's affair, so each attempt has twice as many as the last one, until one returns something.
fn with_limit<T>(attempt: impl Fn(&str) -> Option<T>) -> T {
    (0..8).find_map(|doubled| attempt(&(1 << doubled).to_string())).expect("a limit that is long enough")
}

/// Waits until the endless command runs, and returns its process id.
fn running_command(scene: &Scene) -> String {
    let begun = Instant::now();
    loop {
        if let Some(command) = started_command(scene) {
            return command;
        }
        assert!(begun.elapsed() < test_support::PATIENCE, "the command was not started");
        std::thread::yield_now();
    }
}

#[test]
fn ctrl_c_cancels_the_turn_and_its_commands() {
    let scene = scene();
    let run = Running::start(&scene, &["run", "--approve", "all", &endless(&scene)]);
    let command = running_command(&scene);
    run.signal("INT");
    expect![[r#"
        bowline: cancelling the turn; Ctrl-C again ends everything at once
        bowline: interrupted
        --- Some(130)
    "#]]
    .assert_eq(&run.end(&scene));
    gone(&command);
}

#[test]
fn a_second_ctrl_c_ends_everything() {
    let scene = scene();
    let turn = "read -r line; echo $$ > pid; trap '' TERM\nprintf '%s\\n' '{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s1\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"busy\\n\"}}}}'\nsleep 1000";
    let deaf = super::others::agent(&scene, turn);
    let mut run = Running::start(&scene, &["run", "--agent", &deaf, "go"]);
    run.until("busy");
    let agent = running_command(&scene);
    run.signal("INT");
    let mut stderr = BufReader::new(run.child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    run.signal("INT");
    stderr.read_to_string(&mut line).unwrap();
    expect![[r#"
        bowline: cancelling the turn; Ctrl-C again ends everything at once
        bowline: interrupted
        --- Some(130)
    "#]]
    .assert_eq(&format!("{line}--- {:?}\n", run.child.wait().unwrap().code()));
    gone(&agent);
}

#[test]
fn a_signal_to_end_ends_it_cleanly() {
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        let scene = scene();
        let run = Running::start(&scene, &["run", "--approve", "all", &endless(&scene)]);
        let command = running_command(&scene);
        run.signal(signal);
        assert_eq!(run.end(&scene), format!("bowline: terminated\n--- Some({code})\n"));
        gone(&command);
    }
}

#[test]
fn what_takes_too_long_is_ended() {
    let (command, told) = with_limit(|limit| {
        let scene = scene();
        let run = Running::start(&scene, &["run", "--approve", "all", "--timeout", limit, &endless(&scene)]);
        let told = run.end(&scene);
        // Else the limit came before the turn began.
        let command = started_command(&scene).filter(|_| told.contains("the turn took longer"))?;
        Some((command, told))
    });
    expect![[r#"
        bowline: the turn took longer than TIME and was ended
        --- Some(3)
    "#]]
    .assert_eq(&told);
    gone(&command);
}

#[test]
fn a_turn_is_cancelled_if_nobody_reads_on() {
    let scene = scene();
    let prompt = format!("say first\n{}", endless(&scene));
    let mut run = Running::start(&scene, &["run", "--approve", "all", &prompt]);
    run.until("first");
    let command = running_command(&scene);
    drop(std::mem::replace(&mut run.stdout, BufReader::new(run_nothing())));
    // What it writes next finds nobody.
    expect![[r#"
        bowline: the turn was cancelled, as nobody reads what the agent says
        --- Some(1)
    "#]]
    .assert_eq(&run.end(&scene));
    gone(&command);
}

#[test]
fn who_has_read_enough_when_the_turn_has_ended_has_done_no_harm() {
    let scene = scene();
    let path = scene.path("b.txt");
    let write = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":"w","method":"fs/write_text_file","params":{{"sessionId":"s1","path":"{path}","content":"x"}}}}'"#
    );
    // When nobody speaks to it any more, the turn has ended, and what was changed has not been told.
    let turn = [
        "read -r line",
        &write,
        "read -r answer",
        &super::others::stops("end_turn"),
        "cat > /dev/null",
        "echo $$ > pid",
        "until [ -e go ]; do sleep 0.01; done",
    ];
    let slow = super::others::agent(&scene, &turn.join("\n"));
    let mut run = Running::start(&scene, &["run", "--agent", &slow, "--approve", "edits", "go"]);
    running_command(&scene);
    drop(std::mem::replace(&mut run.stdout, BufReader::new(run_nothing())));
    scene.put("go", "");
    expect![[r#"
        --- Some(0)
    "#]]
    .assert_eq(&run.end(&scene));
}

#[test]
fn what_cannot_be_written_is_a_failure() {
    let scene = scene();
    for format in ["text", "json", "quiet"] {
        let mut command = scene.command(&["run", "--format", format, "say x"]);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
        expect![[r#"
            --- stderr
            bowline: cannot write what the agent says: No space left on device (os error 28)
            --- 1
        "#]]
        .assert_eq(&scene.told(&command.output().unwrap()));
    }
}

#[test]
fn a_reader_who_stands_still_keeps_nobody() {
    let scene = scene();
    // More than a pipe and the queue hold.
    let chunk = super::others::says(&format!("'$(head -c {} /dev/zero | tr '\\0' x)'", 1 << 20));
    let turn = format!("read -r line\necho $$ > pid\nfor i in $(seq 100); do {chunk}; done\nsleep 1000");
    let flood = super::others::agent(&scene, &turn);
    let run = Running::start(&scene, &["run", "--format", "json", "--agent", &flood, "go"]);
    let agent = running_command(&scene);
    expect![[r#"
        bowline: what the agent says is read too slowly: the turn was cancelled
        --- Some(1)
    "#]]
    .assert_eq(&run.end(&scene));
    gone(&agent);
    // What fits into the queue alone does not outlast the time either.
    let turn = format!("read -r line\n{chunk}\n{}", super::others::stops("end_turn"));
    let much = super::others::agent(&scene, &turn);
    let told = with_limit(|limit| {
        let run = Running::start(&scene, &["run", "--agent", &much, "--timeout", limit, "go"]);
        let told = run.end(&scene);
        // Else the limit came before the end of the turn.
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
    // It starts something in a session of its own, and hears nothing.
    let turn = "read -r line\nsetsid sh -c 'echo $$ > pid; exec sleep 1000' &\ntrap '' TERM HUP INT\nwhile :; do sleep 1000; done";
    for signals in [&["INT", "INT"][..], &["TERM"], &["HUP"], &["KILL"]] {
        let scene = scene();
        let stubborn = super::others::agent(&scene, turn);
        let mut run = Running::start(&scene, &["run", "--agent", &stubborn, "go"]);
        let child = running_command(&scene);
        let mut stderr = BufReader::new(run.child.stderr.take().unwrap());
        for (at, signal) in signals.iter().enumerate() {
            if at > 0 {
                // The first one was heard.
                stderr.read_line(&mut String::new()).unwrap();
            }
            run.signal(signal);
        }
        let code = run.child.wait().unwrap().code();
        let expected = [("INT", 130), ("TERM", 143), ("HUP", 129)];
        let expected = expected.iter().find(|(signal, _)| signals.contains(signal)).map(|(_, code)| *code);
        assert_eq!(code, expected, "{signals:?}");
        gone(&child);
    }
}

#[test]
fn a_time_that_no_clock_tells_is_no_limit() {
    let scene = scene();
    for seconds in ["9223372036854775807", "18446744073709551615"] {
        expect![[r#"
            x
            --- 0
        "#]]
        .assert_eq(&scene.run(&["run", "--timeout", seconds, "say x"]));
    }
}

/// Returns the stdout of something that has ended.
fn run_nothing() -> std::process::ChildStdout {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}

#[test]
fn an_agent_that_hangs_is_killed_with_the_run() {
    let (agent, told) = with_limit(|limit| {
        let scene = scene();
        let deaf = super::others::agent(&scene, "echo $$ > pid; trap '' TERM; sleep 1000");
        let run = Running::start(&scene, &["run", "--agent", &deaf, "--timeout", limit, "go"]);
        let told = run.end(&scene);
        // Else the limit came before the turn began.
        let command = started_command(&scene).filter(|_| told.contains("the turn took longer"))?;
        Some((command, told))
    });
    expect![[r#"
        bowline: the turn took longer than TIME and was ended
        --- Some(3)
    "#]]
    .assert_eq(&told);
    gone(&agent);
}

#[test]
fn a_reader_that_stands_still_keeps_nobody_waiting() {
    // More than a pipe takes, as one message.
    let turn = "read -r line; echo $$ > pid\nlong=$(head -c 300000 /dev/zero | tr '\\0' x)\n\
                printf '{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s1\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"%s\"}}}}\\n' \"$long\"\nsleep 1000";
    let start = |scene: &Scene, limit: &str| {
        let agent = super::others::agent(scene, turn);
        Running::start(scene, &["run", "--format", "json", "--timeout", limit, "--agent", &agent, "go"])
    };
    let scene = scene();
    let run = start(&scene, "1000");
    let agent = running_command(&scene);
    run.signal("TERM");
    assert_eq!(run.end_unread(), Some(143));
    gone(&agent);
    let agent = with_limit(|limit| {
        let scene = super::scene();
        assert_eq!(start(&scene, limit).end_unread(), Some(3));
        started_command(&scene)
    });
    gone(&agent);
}
