//! Tests of processes that resist being killed, and of hosts that die suddenly.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bowline_workspace::terminals::CommandRequest;
use test_support::wait::wait_until_async;

use super::fixture::{TerminalFixture, exit_code, exit_signal, shell_request};

/// The environment variable with the project of a host process: a test that finds it set runs as the host of another
/// run of itself.
const HOST_VARIABLE: &str = "BOWLINE_TEST_HOST";

/// Runs a line that opens the pipe `hold` on descriptor 9 and prints `ready`; releases it; waits until no process has
/// the pipe open.
async fn check(line: &str) {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    let id = lab.start(&format!("exec 9>hold; {line}")).await;
    lab.wait_for_output(&id, "ready").await;
    lab.terminals.release(&id).await.unwrap();
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn a_process_tree_is_killed() {
    check("(sleep 1000 & sleep 1000 & echo ready; wait) & wait").await;
}

#[tokio::test]
async fn a_daemon_ends() {
    check("(setsid sh -c 'setsid sh -c \"echo ready; sleep 1000\" & exit' & exit); sleep 1000").await;
}

#[tokio::test]
async fn a_nohup_process_is_killed() {
    check("nohup sh -c 'trap \"\" HUP; echo ready; sleep 1000' & wait").await;
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed() {
    check("trap '' TERM INT HUP; echo ready; while :; do sleep 1000; done").await;
}

#[tokio::test]
async fn a_process_that_forks_on_sigterm_is_killed() {
    check("trap '(trap \"\" TERM; while :; do sleep 0.01; done) & (setsid sleep 1000) &' TERM; echo ready; while :; do sleep 0.01; done")
        .await;
}

#[tokio::test]
async fn a_stopped_process_is_killed() {
    check("sh -c 'echo ready; kill -STOP $$; sleep 1000' & wait").await;
}

#[tokio::test]
async fn a_deep_chain_ends() {
    check(
        "n=${n:-0}; f() { if [ $1 -lt 200 ]; then (f $(($1+1)); :); else echo ready; sleep 1000; fi; }; f 0",
    )
    .await;
}

#[tokio::test]
async fn the_background_neither_delays_the_exit_nor_outlives_the_terminal() {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    let id = lab.start("exec 9>hold; sleep 1000 & echo done").await;
    assert_eq!(Some(lab.wait(&id).await), exit_code(0));
    let shown = lab.terminals.output(&id).await.unwrap();
    assert_eq!(shown.text, "done\n");
    lab.terminals.release(&id).await.unwrap();
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn a_noisy_background_does_not_delay_the_exit() {
    let lab = TerminalFixture::new();
    let id = lab.start("yes & echo done; exit 3").await;
    assert_eq!(Some(lab.wait(&id).await), exit_code(3));
    lab.terminals.release(&id).await.unwrap();
}

#[tokio::test]
async fn output_of_the_background_is_still_shown() {
    let lab = TerminalFixture::new();
    drop(lab.create_process_pipe("go"));
    let id = lab.start("(read line < go; echo late $line) & echo early").await;
    lab.wait(&id).await;
    assert_eq!(lab.terminals.output(&id).await.unwrap().text, "early\n");
    lab.write_to_pipe("go").await;
    let shown = lab.wait_for_output(&id, "late go\n").await;
    assert_eq!(shown.text, "early\nlate go\n");
}

#[tokio::test]
async fn dropping_the_last_handle_kills_every_process() {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    let id = lab.start("exec 9>hold; setsid sleep 1000 & echo ready; wait").await;
    lab.wait_for_output(&id, "ready").await;
    drop(lab.terminals.clone());
    assert_eq!(lab.terminals.output(&id).await.unwrap().exit, None);
    drop(lab.terminals);
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn a_dropped_start_is_undone() {
    let lab = TerminalFixture::with_options(|settings| settings.limits.terminals = 1);
    for _ in 0..20 {
        let prepared = lab.terminals.prepare(super::fixture::shell_request("sleep 1000")).unwrap();
        let start = lab.terminals.start(prepared);
        tokio::select! {
            biased;
            started = start => { lab.terminals.release(&started.unwrap()).await.unwrap(); }
            () = tokio::task::yield_now() => {}
        }
    }
    // The slot is free.
    assert_eq!(lab.run("true").await.exit, exit_code(0));
}

#[tokio::test]
async fn nothing_starts_after_the_end_of_the_session() {
    let lab = TerminalFixture::new();
    let prepared = lab.terminals.prepare(super::fixture::shell_request("sleep 1000")).unwrap();
    lab.terminals.release_all().await;
    let refused = lab.terminals.start(prepared).await.unwrap_err();
    assert_eq!(refused.to_string(), "the session has ended: it runs no more commands");
}

#[tokio::test]
async fn a_start_that_is_under_way_ends_with_the_session() {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    // However far the start has come, the command does not keep running.
    let held = std::fs::File::options().write(true).open(lab.root.join("hold")).unwrap();
    let prepared = lab.terminals.prepare(super::fixture::shell_request("exec 9>hold; sleep 1000")).unwrap();
    let (started, ()) = tokio::join!(biased; lab.terminals.start(prepared), lab.terminals.release_all());
    assert_eq!(started.unwrap_err().to_string(), "the session has ended: it runs no more commands");
    drop(held);
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn waiting_for_an_exit_keeps_no_process_alive() {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    let id = lab.start("exec 9>hold; echo ready; sleep 1000").await;
    lab.wait_for_output(&id, "ready").await;
    let exit = lab.terminals.wait_detached(&id);
    drop(lab.terminals);
    assert_eq!(exit.await.ok(), exit_signal("SIGTERM"));
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn a_command_that_kills_its_supervisor_ends_with_it() {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    drop(lab.create_process_pipe("go"));
    let id = lab
        .start("exec 9>hold; setsid sleep 1000 & sleep 1000 & echo ready; read go < go; kill -9 $PPID; sleep 1000")
        .await;
    lab.wait_for_output(&id, "ready").await;
    lab.write_to_pipe("go").await;
    assert_eq!(Some(lab.wait(&id).await), exit_signal("SIGKILL"));
    thread.wait_until_closed().await;
    assert_eq!(lab.terminals.output(&id).await.unwrap().text, "ready\n");
    lab.terminals.release(&id).await.unwrap();
}

/// Lets a command kill the process that a shell word names, after starting a process that can only be found as a
/// descendant.
async fn check_killing(whom: &str) {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    drop(lab.create_process_pipe("go"));
    let line = format!(
        "exec 9>hold; keeper=$(cut -d' ' -f4 /proc/$PPID/stat); setsid env -i /bin/sleep 1000 & \
         env -i /bin/sleep 1000 & echo ready; read go < go; kill -9 {whom}; sleep 1000"
    );
    let id = lab.start(&line).await;
    lab.wait_for_output(&id, "ready").await;
    lab.write_to_pipe("go").await;
    assert_eq!(Some(lab.wait(&id).await), exit_signal("SIGKILL"));
    thread.wait_until_closed().await;
    lab.terminals.release(&id).await.unwrap();
}

#[tokio::test]
async fn a_command_that_kills_its_supervisor_leaves_nothing() {
    check_killing("$PPID").await;
}

#[tokio::test]
async fn a_command_that_kills_the_keeper_leaves_nothing() {
    check_killing("$keeper").await;
}

#[tokio::test]
async fn a_command_that_stops_its_supervisor_ends_all_the_same() {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    drop(lab.create_process_pipe("go"));
    let id = lab
        .start("exec 9>hold; setsid sleep 1000 & read go < go; kill -STOP $PPID; echo ready; sleep 1000")
        .await;
    lab.write_to_pipe("go").await;
    lab.wait_for_output(&id, "ready").await;
    lab.terminals.release(&id).await.unwrap();
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn too_many_processes_end_the_command() {
    let lab = TerminalFixture::with_options(|settings| settings.resource_limits.processes = Some(50));
    let thread = lab.create_process_pipe("hold");
    let id = lab.start("exec 9>hold; while :; do sleep 1000 & done").await;
    assert_eq!(Some(lab.wait(&id).await), exit_signal("SIGKILL"));
    thread.wait_until_closed().await;
    let text = lab.terminals.output(&id).await.unwrap().text;
    assert!(text.contains("processes, the limit is 50: it was ended\n"), "{text}");
}

#[tokio::test]
async fn a_fork_bomb_is_put_out() {
    let lab = TerminalFixture::with_options(|settings| settings.resource_limits.processes = Some(100));
    let thread = lab.create_process_pipe("hold");
    // Every process has a Unix session of its own, so no process group has them all. Unless it is stopped, there will
    // be 2,000.
    let bomb =
        "[ $1 -lt 10 ] || exec sleep 1000; setsid sh bomb $(($1+1)) & setsid sh bomb $(($1+1)) & wait\n";
    fs::write(lab.root.join("bomb"), bomb).unwrap();
    let id = lab.start("exec 9>hold; sh bomb 0").await;
    lab.wait(&id).await;
    thread.wait_until_closed().await;
    let text = lab.terminals.output(&id).await.unwrap().text;
    assert!(text.contains("processes, the limit is 100: it was ended\n"), "{text}");
}

#[tokio::test]
async fn limits_hold_for_every_process() {
    let lab = TerminalFixture::with_options(|settings| settings.resource_limits.open_files = Some(64));
    let shown = lab.run("ulimit -n; ulimit -c; ulimit -Hn").await;
    assert_eq!(shown.text, "64\n0\n64\n");
}

#[tokio::test]
async fn a_supervisor_runs_one_command_after_another() {
    let lab = TerminalFixture::new();
    let first = lab.run("echo $PPID; mkdir sub; cd sub; ulimit -n 32; umask 777; export X=1").await.text;
    let asked = CommandRequest {
        cwd: Some(lab.root.join("sub").display().to_string()),
        ..shell_request("echo $PPID; pwd; echo $X")
    };
    let second = lab.run_request(asked).await.text;
    assert_eq!(second, format!("{first}{}\n\n", lab.root.join("sub").display()));
    // A command that cannot be started leaves the supervisor usable.
    assert!(
        lab.start_error(super::fixture::argv_request(&["no-such-program"]))
            .await
            .contains("there is no program")
    );
    assert_eq!(lab.run("echo $PPID").await.text, first);
    // The supervisor has left the command's directory.
    let cwd = fs::read_link(format!("/proc/{}/cwd", first.trim())).unwrap();
    assert_eq!(cwd, Path::new("/"));
}

#[tokio::test]
async fn a_supervisor_that_has_nothing_to_do_ends() {
    let lab =
        TerminalFixture::with_options(|settings| settings.supervisor_idle_timeout = Duration::from_millis(1));
    let pids = lab.run("echo $PPID; cut -d' ' -f4 /proc/$PPID/stat").await.text;
    for pid in pids.lines() {
        wait_for_process_end(pid).await;
    }
    assert_eq!(lab.run("echo again").await.text, "again\n");
}

#[tokio::test]
async fn commands_at_the_same_time_have_supervisors_of_their_own() {
    let lab = TerminalFixture::new();
    drop(lab.create_process_pipe("go"));
    let id = lab.start("echo $PPID; read go < go").await;
    let first = lab.wait_for_output(&id, "\n").await.text;
    let second = lab.run("echo $PPID").await.text;
    assert_ne!(first, second);
    lab.write_to_pipe("go").await;
    lab.wait(&id).await;
    lab.terminals.release(&id).await.unwrap();
}

#[tokio::test]
async fn a_supervisor_that_died_while_it_waited_is_replaced() {
    let lab = TerminalFixture::new();
    let keeper = "cut -d' ' -f4 /proc/$PPID/stat";
    for whom in ["echo $PPID", keeper] {
        let pid = lab.run(whom).await.text;
        assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
        wait_for_process_end(pid.trim()).await;
        assert_eq!(lab.run("echo again").await.text, "again\n");
    }
}

#[tokio::test]
async fn a_supervisor_that_dies_before_it_accepts_a_job_is_replaced() {
    let lab = TerminalFixture::new();
    let pid = lab.run("echo $PPID").await.text;
    let kill = |signal| {
        let status = Command::new("kill").args([signal, pid.trim()]).status();
        assert!(status.unwrap().success());
    };
    // A stopped supervisor cannot accept a job, and is indistinguishable from a slow one.
    kill("-STOP");
    let (again, ()) = tokio::join!(lab.run("echo again"), async { kill("-9") });
    assert_eq!(again.text, "again\n");
}

#[tokio::test]
async fn a_program_that_is_not_a_supervisor_is_refused() {
    let lab = TerminalFixture::with_options(|settings| settings.supervisor.program = "/bin/true".into());
    let refused = lab.start_error(super::fixture::argv_request(&["true"])).await;
    assert_eq!(refused, "the supervisor of the command cannot be used: it ended early");
    let lab = TerminalFixture::with_options(|settings| settings.supervisor.program = "/no/where".into());
    let refused = lab.start_error(super::fixture::argv_request(&["true"])).await;
    assert_eq!(
        refused,
        "the supervisor of the command cannot be used: No such file or directory (os error 2)"
    );
    let lab = TerminalFixture::with_options(|settings| settings.supervisor.program = "true".into());
    let refused = lab.start_error(super::fixture::argv_request(&["true"])).await;
    assert_eq!(
        refused,
        "the supervisor of the command cannot be used: its program has to be an absolute path"
    );
}

#[tokio::test]
async fn nothing_outlives_a_host_that_is_killed() {
    if let Some(hold) = env::var_os(HOST_VARIABLE) {
        return run_host(Path::new(&hold)).await;
    }
    check_killing_host("nothing_outlives_a_host_that_is_killed").await;
}

#[tokio::test]
async fn nothing_outlives_a_host_that_is_killed_with_its_supervisors() {
    if let Some(hold) = env::var_os(HOST_VARIABLE) {
        return run_host_naming_helpers(Path::new(&hold), "$PPID").await;
    }
    check_killing_host("nothing_outlives_a_host_that_is_killed_with_its_supervisors").await;
}

#[tokio::test]
async fn nothing_outlives_a_host_that_is_killed_with_its_keepers() {
    if let Some(hold) = env::var_os(HOST_VARIABLE) {
        return run_host_naming_helpers(Path::new(&hold), "$(cut -d' ' -f4 /proc/$PPID/stat)").await;
    }
    check_killing_host("nothing_outlives_a_host_that_is_killed_with_its_keepers").await;
}

/// Runs a test as a host with five commands of two processes each, kills it together with the helpers that it names,
/// and waits for the end of all processes.
async fn check_killing_host(test: &str) {
    let lab = TerminalFixture::new();
    let thread = lab.create_process_pipe("hold");
    let mut host = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("shutdown::{test}"), "--nocapture"])
        .env(HOST_VARIABLE, lab.root.join("hold"))
        .env("TMPDIR", &lab.root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ready = lines.into_iter().find_map(|line| Some(line.split_once("five run")?.1.to_owned())).unwrap();
    // In one call, so that they have little time to react to the death of another. Some may have ended before their turn.
    let victims = format!("{} {ready}", host.id());
    Command::new("kill").arg("-9").args(victims.split_whitespace()).status().unwrap();
    assert_eq!(host.wait().unwrap().signal(), Some(9));
    let pids = thread.wait_until_closed().await;
    assert_eq!(pids.lines().count(), 10, "{pids}");
    for pid in pids.lines() {
        wait_for_process_end(pid).await;
    }
}

/// Waits until a process has ended. It closes its descriptors last, and is then reaped.
async fn wait_for_process_end(pid: &str) {
    let process = Path::new("/proc").join(pid);
    let runs = || {
        let is_zombie = fs::read_to_string(process.join("stat")).is_ok_and(|stat| stat.contains(") Z"));
        // The main thread is a zombie before the others have ended and closed the shared descriptors.
        fs::read_dir(process.join("task")).is_ok_and(|tasks| !is_zombie || tasks.count() > 1)
    };
    wait_until_async(&format!("the end of process {pid}"), || !runs()).await;
}

/// Runs five commands that resist being killed, and waits to be killed itself.
async fn run_host(hold: &Path) {
    let lab = TerminalFixture::new();
    drop(lab.create_process_pipe("go"));
    let line = format!(
        "exec 9>{}; echo $$ >&9; trap '' TERM; setsid sh -c 'echo $$ >&9; echo ready; exec sleep 1000' & \
         read go < go; kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat) $PPID; echo stopped; sleep 1000; sleep 1000",
        hold.display()
    );
    for _ in 0..5 {
        let id = lab.start(&line).await;
        lab.wait_for_output(&id, "ready").await;
        lab.write_to_pipe("go").await;
        lab.wait_for_output(&id, "stopped").await;
    }
    std::io::stdout().write_all(b"five run\n").unwrap();
    std::future::pending().await
}

/// Runs five commands with a process that can only be found as a descendant, names one helper of each by a shell word,
/// and waits to be killed.
async fn run_host_naming_helpers(hold: &Path, helper: &str) {
    let lab = TerminalFixture::new();
    let line = format!(
        "exec 9>{}; echo $$ >&9; setsid env -i /bin/sh -c 'echo $$ >&9; echo $0; exec /bin/sleep 1000' \"{helper}\" & wait",
        hold.display()
    );
    let mut ready = "five run".to_owned();
    for _ in 0..5 {
        let id = lab.start(&line).await;
        ready += &format!(" {}", lab.wait_for_output(&id, "\n").await.text.trim());
    }
    std::io::stdout().write_all(format!("{ready}\n").as_bytes()).unwrap();
    std::future::pending().await
}
