//! One round: saving programs, the agent behind one of Bowline's programs, a user who undoes, and kills, all at once.

use super::agent::AgentPlan;
use super::checker::{self, Account};
use super::editor::{self, EditorPlan};
use super::mcp;
use super::random::Random;
use super::record::{EVERY_FILE, Recorder};
use super::saver::SaverAccount;
use super::scene::Scene;
use super::style::{Front, Style};
use anyhow::{Context as _, bail, ensure};
use std::collections::BTreeMap;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// How long a process may take to do its part, before the round says that it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a process is looked at.
const TICK: Duration = Duration::from_millis(1);
/// What one operation of the agent is in its record, roughly, in bytes.
const OPERATION: u64 = 150;

/// What came of a round, for one style.
#[derive(Debug, Default)]
pub(super) struct StyleReport {
    pub(super) saves: usize,
    pub(super) writes: usize,
    pub(super) merges: usize,
    pub(super) conflicts: usize,
    pub(super) undos: usize,
    pub(super) account: Account,
}

/// What came of a round.
#[derive(Debug)]
pub(super) struct RoundReport {
    pub(super) kills: usize,
    pub(super) styles: BTreeMap<Style, StyleReport>,
}

/// Runs a round to its end, and accounts for every line.
pub(super) fn run(scene: &Scene, front: Front, saves: usize) -> anyhow::Result<RoundReport> {
    let mut kills = 0;
    let mut undos = BTreeMap::new();
    thread::scope(|scope| {
        // Where one part fails the others have nothing to go on for.
        let driver = scope.spawn(|| drive_agent(scene, front).inspect_err(|_| scene.end_round()));
        let user = scope.spawn(|| undo_and_redo(scene).inspect_err(|_| scene.end_round()));
        let saved = wait_for_agent(scene).and_then(|()| run_savers(scene, front, saves));
        scene.end_round();
        kills = join(driver)?;
        undos = join(user)?;
        saved
    })?;
    // Recovery: any command opens the workspace.
    let output = scene.bowline(&["changes"])?;
    ensure!(
        output.status.success(),
        "bowline changes fails after the round: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    scene.add_notice(&output.stderr)?;
    let mut styles = BTreeMap::new();
    for style in &scene.styles {
        let saved = SaverAccount::read(&scene.record(&format!("{}.account", style.name())))?;
        let agent = checker::count_agent_events(scene, *style);
        let report = StyleReport {
            saves: saved.saves,
            writes: agent.writes,
            merges: agent.merges,
            conflicts: agent.conflicts,
            undos: undos.get(style).copied().unwrap_or(0),
            account: checker::account(scene, *style, &saved)?,
        };
        styles.insert(*style, report);
    }
    Ok(RoundReport { kills, styles })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a part of the round panicked"))
}

/// Waits until the agent has begun.
fn wait_for_agent(scene: &Scene) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while scene.agent_progress() == 0 && !scene.is_stopped() {
        ensure!(Instant::now() < deadline, "the agent does not begin: {}", scene.last_notices());
        sleep(TICK);
    }
    Ok(())
}

fn run_savers(scene: &Scene, front: Front, saves: usize) -> anyhow::Result<()> {
    let mut savers = Vec::new();
    for style in &scene.styles {
        let mut command = scene.command(&scene.programs.torture)?;
        command.arg("saver").args(["--style", style.name()]).arg("--file").arg(scene.file(*style));
        command.args(["--seed", &scene.seed.to_string(), "--saves", &saves.to_string()]);
        command.arg("--record").arg(scene.record(style.name()));
        command.arg("--account").arg(scene.record(&format!("{}.account", style.name())));
        command.arg("--agent-record").arg(scene.agent_records().join(style.name()));
        command.arg("--stop").arg(scene.stop());
        if front.needs_lock() {
            command.arg("--lock").arg(scene.lock());
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

/// Starts the agent's side again and again until the round is over, and kills Bowline in most of the cases. Returns how
/// often it did.
fn drive_agent(scene: &Scene, front: Front) -> anyhow::Result<usize> {
    let mut random = Random::new(scene.seed, "kill");
    let mut record = Recorder::open(&scene.record("kill"))?;
    let mut kills = 0;
    for process in 0.. {
        if scene.is_stopped() {
            break;
        }
        let operations = random.between(20, 120);
        let kill_after = random.percent(60).then(|| random.between(1, operations) as u64 * OPERATION);
        let plan = scene.agent_plan(process, operations);
        if run_bowline(scene, front, &plan, kill_after, &mut random)? {
            record.record(EVERY_FILE, "kill -9")?;
            kills += 1;
        }
    }
    Ok(kills)
}

/// Runs one process of Bowline until it ends or is killed; says whether it was.
fn run_bowline(
    scene: &Scene,
    front: Front,
    plan: &AgentPlan,
    kill_after: Option<u64>,
    random: &mut Random,
) -> anyhow::Result<bool> {
    let mut command = bowline_command(scene, front, plan)?;
    if matches!(front, Front::Mcp | Front::Proxy | Front::Route) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    }
    let begun_at = scene.agent_progress();
    let mut child = command.spawn().context("cannot start Bowline")?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let kill_at = kill_after.map(|after| begun_at + after);
    let late = random.micros(0, 3000);
    thread::scope(|scope| {
        let other = pipes
            .map(|(stdin, stdout)| scope.spawn(move || serve_other_side(scene, front, plan, stdin, stdout)));
        let killed = watch(scene, &mut child, kill_at, late);
        if killed.is_err() {
            // What failed is told; that it may be gone already is not.
            child.kill().ok();
            child.wait().ok();
        }
        // The other side ends with the process, in an error if that was in the middle of something.
        if let Some(Err(_)) = other.map(thread::ScopedJoinHandle::join) {
            bail!("the other side of Bowline panicked");
        }
        killed
    })
}

fn bowline_command(scene: &Scene, front: Front, plan: &AgentPlan) -> anyhow::Result<Command> {
    let direct = (front == Front::Route).then(|| scene.lock());
    let words = agent_words(scene, &AgentPlan { direct, ..plan.clone() });
    let mut command = match front {
        Front::Engine => scene.command(&scene.programs.torture)?,
        Front::Host | Front::Mcp | Front::Proxy | Front::Route => scene.command(&scene.programs.bowline)?,
    };
    match front {
        Front::Engine => command.arg("engine").args(words.iter().skip(2)),
        Front::Host => {
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
        Front::Mcp => command.args(["mcp", "--approve", "edits", "--no-terminal"]),
        Front::Proxy => command.args(["proxy", "--no-mcp", "--"]).args(words),
        Front::Route => command.args(["proxy", "--no-mcp", "--route-writes", "--"]).args(words),
    };
    Ok(command)
}

/// Returns the agent's command line.
fn agent_words(scene: &Scene, plan: &AgentPlan) -> Vec<String> {
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
    scene: &Scene,
    front: Front,
    plan: &AgentPlan,
    stdin: ChildStdin,
    stdout: ChildStdout,
) -> std::io::Result<()> {
    if front == Front::Mcp {
        return mcp::run(plan, stdin, stdout);
    }
    let plan = EditorPlan {
        project: scene.project(),
        lock: scene.lock(),
        record: scene.record("editor"),
        stop: scene.stop(),
        turns: 3,
    };
    editor::run(&plan, stdin, stdout)
}

/// Waits for a process to end, and kills it a moment after the agent has come so far.
fn watch(scene: &Scene, child: &mut Child, kill_at: Option<u64>, late: Duration) -> anyhow::Result<bool> {
    let mut deadline = Instant::now() + PATIENCE;
    let mut progress = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "Bowline ended with {status}: {}", scene.last_notices());
            return Ok(false);
        }
        let now = scene.agent_progress();
        if now != progress {
            (progress, deadline) = (now, Instant::now() + PATIENCE);
        }
        if kill_at.is_some_and(|kill_at| now >= kill_at) {
            sleep(late);
            child.kill()?;
            child.wait()?;
            return Ok(true);
        }
        ensure!(Instant::now() < deadline, "Bowline hangs: the agent got no further for {PATIENCE:?}");
        sleep(TICK);
    }
}

/// Undoes and redoes while the others work. Returns how many undos and redos changed each file.
fn undo_and_redo(scene: &Scene) -> anyhow::Result<BTreeMap<Style, usize>> {
    let mut random = Random::new(scene.seed, "undo");
    let mut record = Recorder::open(&scene.record("undo"))?;
    let mut counts = BTreeMap::new();
    loop {
        let next = scene.agent_progress() + random.between(5, 60) as u64 * OPERATION;
        while scene.agent_progress() < next && !scene.is_stopped() {
            sleep(TICK);
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
        let output = scene.bowline(&words)?;
        let told = String::from_utf8_lossy(&output.stdout);
        for style in &scene.styles {
            let name = format!("  {} ", style.file_name());
            if told.lines().any(|line| line.starts_with(&name)) {
                *counts.entry(*style).or_insert(0) += 1;
            }
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first = told.lines().chain(said.lines()).next().unwrap_or_default();
        record.record(EVERY_FILE, &format!("bowline {}: {first}", words.join(" ")))?;
        // A refusal quotes lines that stay where they are.
        if output.status.success() {
            scene.add_notice(&output.stderr)?;
        }
    }
}
