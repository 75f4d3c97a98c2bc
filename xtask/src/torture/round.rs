//! One round: saving programs, the agent behind one of Bowline's programs, a user who undoes, and kills, all at once.

use super::agent::TortureAgentOptions;
use super::checker::{self, LineAccount};
use super::editor::{self, TortureEditorOptions};
use super::mcp;
use super::random::Random;
use super::record::{ALL_FILES, EventRecorder};
use super::round_dir::RoundDir;
use super::saver::SaverAccount;
use super::style::{EntryPoint, SaveStyle};
use anyhow::{Context as _, bail, ensure};
use std::collections::BTreeMap;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The time after which a round reports that a process hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The approximate size of one agent operation in its record, in bytes.
const BYTES_PER_OPERATION: u64 = 150;

/// The result of a round for one style.
#[derive(Debug, Default)]
pub(super) struct StyleReport {
    pub(super) saves: usize,
    pub(super) writes: usize,
    pub(super) merges: usize,
    pub(super) conflicts: usize,
    pub(super) undos: usize,
    pub(super) account: LineAccount,
}

/// The result of a round.
#[derive(Debug)]
pub(super) struct RoundReport {
    pub(super) kills: usize,
    pub(super) styles: BTreeMap<SaveStyle, StyleReport>,
}

/// Runs a round to completion, and accounts for every line.
pub(super) fn run(scene: &RoundDir, front: EntryPoint, saves: usize) -> anyhow::Result<RoundReport> {
    let mut kills = 0;
    let mut undos = BTreeMap::new();
    thread::scope(|scope| {
        // If one actor fails, the round ends for the others.
        let driver = scope.spawn(|| drive_agent(scene, front).inspect_err(|_| scene.end_round()));
        let user = scope.spawn(|| undo_and_redo(scene).inspect_err(|_| scene.end_round()));
        let saved = wait_for_agent(scene).and_then(|()| run_savers(scene, front, saves));
        scene.end_round();
        kills = join(driver)?;
        undos = join(user)?;
        saved
    })?;
    // Recovery: any command opens the workspace.
    let output = scene.run_bowline(&["changes"])?;
    ensure!(
        output.status.success(),
        "bowline changes fails after the round: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    scene.add_notice(&output.stderr)?;
    let mut styles = BTreeMap::new();
    for style in &scene.styles {
        let saved = SaverAccount::read(&scene.record_file(&format!("{}.account", style.name())))?;
        let agent = checker::count_agent_events(scene, *style);
        let report = StyleReport {
            saves: saved.saves,
            writes: agent.writes,
            merges: agent.merges,
            conflicts: agent.conflicts,
            undos: undos.get(style).copied().unwrap_or(0),
            account: checker::account_for_lines(scene, *style, &saved)?,
        };
        styles.insert(*style, report);
    }
    Ok(RoundReport { kills, styles })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a part of the round panicked"))
}

/// Waits until the agent has started to work.
fn wait_for_agent(scene: &RoundDir) -> anyhow::Result<()> {
    let deadline = Instant::now() + HANG_TIMEOUT;
    while scene.agent_progress() == 0 && !scene.is_stopped() {
        ensure!(Instant::now() < deadline, "the agent does not begin: {}", scene.last_notices());
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn run_savers(scene: &RoundDir, front: EntryPoint, saves: usize) -> anyhow::Result<()> {
    let mut savers = Vec::new();
    for style in &scene.styles {
        let mut command = scene.command(&scene.programs.torture)?;
        command.arg("saver").args(["--style", style.name()]).arg("--file").arg(scene.saved_file(*style));
        command.args(["--seed", &scene.seed.to_string(), "--saves", &saves.to_string()]);
        command.arg("--record").arg(scene.record_file(style.name()));
        command.arg("--account").arg(scene.record_file(&format!("{}.account", style.name())));
        command.arg("--agent-record").arg(scene.agent_record_dir().join(style.name()));
        command.arg("--stop").arg(scene.stop_file());
        if front.needs_lock() {
            command.arg("--lock").arg(scene.lock_file());
        }
        savers.push((style, command.spawn().context("cannot start a saving program")?));
    }
    for (style, mut saver) in savers {
        let status = saver.wait()?;
        ensure!(
            status.success(),
            "the {} program ended with {status}: {}",
            style.name(),
            scene.last_notices()
        );
    }
    Ok(())
}

/// Restarts the agent's side until the round is over, and kills Bowline in most of the runs. Returns the number of
/// kills.
fn drive_agent(scene: &RoundDir, front: EntryPoint) -> anyhow::Result<usize> {
    let mut random = Random::new(scene.seed, "kill");
    let mut record = EventRecorder::open(&scene.record_file("kill"))?;
    let mut kills = 0;
    for process in 0.. {
        if scene.is_stopped() {
            break;
        }
        let operations = random.between(20, 120);
        let kill_after =
            random.chance(60).then(|| random.between(1, operations) as u64 * BYTES_PER_OPERATION);
        let plan = scene.agent_options(process, operations);
        if run_bowline(scene, front, &plan, kill_after, &mut random)? {
            record.record(ALL_FILES, "kill -9")?;
            kills += 1;
        }
    }
    Ok(kills)
}

/// Runs one process of Bowline until it ends or is killed. Returns whether it was killed.
fn run_bowline(
    scene: &RoundDir,
    front: EntryPoint,
    plan: &TortureAgentOptions,
    kill_after: Option<u64>,
    random: &mut Random,
) -> anyhow::Result<bool> {
    let mut command = bowline_command(scene, front, plan)?;
    if matches!(front, EntryPoint::Mcp | EntryPoint::Proxy | EntryPoint::Route) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    }
    let begun_at = scene.agent_progress();
    let mut child = command.spawn().context("cannot start Bowline")?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let kill_at = kill_after.map(|after| begun_at + after);
    let late = random.duration_micros(0, 3000);
    thread::scope(|scope| {
        let other = pipes
            .map(|(stdin, stdout)| scope.spawn(move || serve_other_side(scene, front, plan, stdin, stdout)));
        let killed = wait_or_kill(scene, &mut child, kill_at, late);
        if killed.is_err() {
            // Errors are ignored: the process may have exited already.
            child.kill().ok();
            child.wait().ok();
        }
        // The other side ends with the process, and with an error if it was interrupted.
        if let Some(Err(_)) = other.map(thread::ScopedJoinHandle::join) {
            bail!("the other side of Bowline panicked");
        }
        killed
    })
}

fn bowline_command(
    scene: &RoundDir,
    front: EntryPoint,
    plan: &TortureAgentOptions,
) -> anyhow::Result<Command> {
    let direct = (front == EntryPoint::Route).then(|| scene.lock_file());
    let words = agent_command_line(scene, &TortureAgentOptions { direct, ..plan.clone() });
    let mut command = match front {
        EntryPoint::Engine => scene.command(&scene.programs.torture)?,
        EntryPoint::Host | EntryPoint::Mcp | EntryPoint::Proxy | EntryPoint::Route => {
            scene.command(&scene.programs.bowline)?
        }
    };
    match front {
        EntryPoint::Engine => command.arg("engine").args(words.iter().skip(2)),
        EntryPoint::Host => {
            let agent: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            command.args([
                "run",
                "--approve",
                "edits",
                "--format",
                "quiet",
                "--agent",
                &agent.join(" "),
                "go",
            ])
        }
        EntryPoint::Mcp => command.args(["mcp", "--approve", "edits", "--no-terminal"]),
        EntryPoint::Proxy => command.args(["proxy", "--no-mcp", "--"]).args(words),
        EntryPoint::Route => command.args(["proxy", "--no-mcp", "--route-writes", "--"]).args(words),
    };
    Ok(command)
}

/// Returns the agent's command line.
fn agent_command_line(scene: &RoundDir, plan: &TortureAgentOptions) -> Vec<String> {
    let path = |path: &std::path::Path| path.display().to_string();
    let styles: Vec<&str> = plan.styles.iter().map(|style| style.name()).collect();
    let mut words = vec![path(&scene.programs.torture), "agent".to_owned()];
    let options = [
        ("--project", path(&plan.project)),
        ("--styles", styles.join(",")),
        ("--seed", plan.seed.to_string()),
        ("--operations", plan.operations.to_string()),
        ("--records", path(&plan.records)),
        ("--stop", path(&plan.stop)),
    ];
    words.extend(options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    words.extend(plan.direct.iter().flat_map(|lock| ["--direct".to_owned(), path(lock)]));
    words
}

fn serve_other_side(
    scene: &RoundDir,
    front: EntryPoint,
    plan: &TortureAgentOptions,
    stdin: ChildStdin,
    stdout: ChildStdout,
) -> std::io::Result<()> {
    if front == EntryPoint::Mcp {
        return mcp::run(plan, stdin, stdout);
    }
    let plan = TortureEditorOptions {
        project: scene.project(),
        lock: scene.lock_file(),
        record: scene.record_file("editor"),
        stop: scene.stop_file(),
        turns: 3,
    };
    editor::run(&plan, stdin, stdout)
}

/// Waits for a process to end, or kills it shortly after the agent has reached the given progress.
fn wait_or_kill(
    scene: &RoundDir,
    child: &mut Child,
    kill_at: Option<u64>,
    late: Duration,
) -> anyhow::Result<bool> {
    let mut deadline = Instant::now() + HANG_TIMEOUT;
    let mut progress = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "Bowline ended with {status}: {}", scene.last_notices());
            return Ok(false);
        }
        let now = scene.agent_progress();
        if now != progress {
            (progress, deadline) = (now, Instant::now() + HANG_TIMEOUT);
        }
        if kill_at.is_some_and(|kill_at| now >= kill_at) {
            sleep(late);
            child.kill()?;
            child.wait()?;
            return Ok(true);
        }
        ensure!(Instant::now() < deadline, "Bowline hangs: the agent got no further for {HANG_TIMEOUT:?}");
        sleep(POLL_INTERVAL);
    }
}

/// Undoes and redoes while the others work. Returns how many undos and redos changed each file.
fn undo_and_redo(scene: &RoundDir) -> anyhow::Result<BTreeMap<SaveStyle, usize>> {
    let mut random = Random::new(scene.seed, "undo");
    let mut record = EventRecorder::open(&scene.record_file("undo"))?;
    let mut counts = BTreeMap::new();
    loop {
        let next = scene.agent_progress() + random.between(5, 60) as u64 * BYTES_PER_OPERATION;
        while scene.agent_progress() < next && !scene.is_stopped() {
            sleep(POLL_INTERVAL);
        }
        if scene.is_stopped() {
            return Ok(counts);
        }
        let words = match random.below(10) {
            0 => vec!["undo"],
            1..=3 => vec!["undo", "--keep-going"],
            4..=6 => vec!["undo", "--written-only", "--keep-going"],
            _ => vec!["redo", "--keep-going"],
        };
        let output = scene.run_bowline(&words)?;
        let told = String::from_utf8_lossy(&output.stdout);
        for style in &scene.styles {
            let name = format!("  {} ", style.file_name());
            if told.lines().any(|line| line.starts_with(&name)) {
                *counts.entry(*style).or_insert(0) += 1;
            }
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first = told.lines().chain(said.lines()).next().unwrap_or_default();
        record.record(ALL_FILES, &format!("bowline {}: {first}", words.join(" ")))?;
        // A refusal quotes lines that stay in place.
        if output.status.success() {
            scene.add_notice(&output.stderr)?;
        }
    }
}
