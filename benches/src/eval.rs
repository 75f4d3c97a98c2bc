//! The evaluation: small tasks for an agent with a model, run through a host. Each task has its own project, and is
//! judged by its result.
//!
//! Commands may change nothing outside the project and use no network, because a weak model's commands are
//! unpredictable.

mod options;
mod report;
mod tasks;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bowline_host::{Connection, HostOptions, HostSession, SessionOptions};
use bowline_policy::policy::Preset;
use bowline_policy::question::QuestionReply;
use bowline_protocol::accumulator::MessageKind;
use bowline_wire::ShutdownGrace;
use bowline_workspace::terminals::{Confinement, SupervisorProgram};
use test_support::host_harness::HostHarness;
use tokio::process::Command;

use crate::files::BenchProgress;
use tasks::{EvalTask, TaskResult};

pub use options::{EvalBenchOptions, EvalCommand};
pub use report::{EvalReport, TaskAttempt};
pub use tasks::TaskSet;

/// The model that takes its tasks as commands. It solves all of them if the agent and the checks are correct.
const OFFLINE_MODEL: &str = "offline";

/// The maximum time for an agent to start, and to stop when cancelled.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Gives the tasks to an agent, one after the other; writes messages to `progress`.
///
/// # Errors
/// Fails if an agent cannot be started. A failed task is not an error.
pub fn run(options: &EvalBenchOptions, progress: &mut dyn Write) -> Result<EvalReport> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut progress = BenchProgress { started: Instant::now(), output: progress };
    let mut results = Vec::new();
    for challenge in &tasks::select_tasks(options.seed, options.set, options.only.as_deref())? {
        progress.report(&format!("{}: {}", challenge.name, challenge.description))?;
        let result = runtime.block_on(run_task(challenge, options)).context(challenge.name)?;
        progress.report(&format!("{}: {}", challenge.name, result.describe()))?;
        results.push(result);
    }
    Ok(EvalReport::new(options.model.clone(), options.seed, results))
}

async fn run_task(challenge: &EvalTask, options: &EvalBenchOptions) -> Result<TaskAttempt> {
    let lab = open_project(challenge)?;
    let mut agent = Command::new(&options.agent);
    agent.args(["agent", "--shell", "--mode", "full", "--model", &options.model]);
    if let Some(url) = &options.base_url {
        agent.args(["--base-url", url]);
    }
    // Its sessions are kept apart from the user's; its API keys are not.
    agent.current_dir(lab.path("")).env("XDG_STATE_HOME", lab.base().join("agent"));
    let connection = tokio::time::timeout(TIMEOUT, lab.host.spawn(agent))
        .await
        .context("the agent does not answer")?
        .context("the agent does not start")?;
    let session = connection.new_session(SessionOptions::default()).await?;
    let result = attempt_task(challenge, options, &lab, &session).await;
    shut_down(connection, session).await;
    result
}

/// Opens a project with the files of a task, under rules that allow everything inside the project.
fn open_project(challenge: &EvalTask) -> Result<HostHarness> {
    let program = std::env::current_exe()?;
    let lab = HostHarness::open("", |settings: &mut HostOptions| {
        let terminals = &mut settings.terminals;
        terminals.supervisor = SupervisorProgram { program, args: vec!["--supervise".into()] };
        let project = terminals.temp_directory.join("project");
        terminals.confinement = Some(Confinement { writable: vec![project] });
        settings.preset = Some(Preset::Full);
    })?;
    lab.user.answer_with(|_| QuestionReply::allow());
    for (name, text) in &challenge.files {
        lab.write_file(name, text)?;
    }
    if let Some((name, text)) = &challenge.unsaved {
        let (path, workspace) = (lab.path(name), lab.host.workspace());
        let open = workspace.open_document(&path)?;
        workspace.change_document(&path, text.clone(), open.revision)?;
    }
    Ok(lab)
}

async fn attempt_task(
    challenge: &EvalTask,
    options: &EvalBenchOptions,
    lab: &HostHarness,
    session: &HostSession,
) -> Result<TaskAttempt> {
    let prompt = if options.model == OFFLINE_MODEL { &challenge.offline_prompt } else { &challenge.prompt };
    let begun = Instant::now();
    let turn = session.prompt_text(prompt);
    tokio::pin!(turn);
    let mut failure = match tokio::time::timeout(options.limit, &mut turn).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("the turn failed: {error}")),
        Err(_) => {
            session.cancel();
            // The task has failed already, so it does not matter whether or how the turn ends.
            tokio::time::timeout(TIMEOUT, turn).await.ok();
            Some(format!("not done after {} s", options.limit.as_secs()))
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let snapshot = session.snapshot();
    let messages = snapshot.messages().filter(|message| message.kind == MessageKind::Agent);
    let said: Vec<String> = messages.map(|message| message.text()).collect();
    let said = said.join("\n");
    if failure.is_none() {
        failure = (challenge.check)(&TaskResult { lab, answer: &said });
    }
    if let (None, Some(line)) = (&failure, &challenge.success_command) {
        failure = run_command(session, line).await?;
    }
    let calls = snapshot.tool_calls().map(|call| call.title.to_string()).collect();
    Ok(TaskAttempt { name: challenge.name.to_owned(), set: challenge.set, failure, seconds, calls, said })
}

/// Runs a command that must succeed, confined like the agent's commands, and returns the reason if it fails.
async fn run_command(session: &HostSession, line: &str) -> Result<Option<String>> {
    let terminals = session.terminals();
    let asked =
        bowline_workspace::terminals::CommandRequest { command: line.to_owned(), ..Default::default() };
    let id = terminals.start(terminals.prepare(asked)?).await?;
    let Ok(exit) = tokio::time::timeout(TIMEOUT, terminals.wait(&id)).await else {
        return Ok(Some(format!("`{line}` does not end")));
    };
    let shown = terminals.output(&id).await?.text;
    terminals.release(&id).await?;
    let exit = exit?;
    let last = shown.lines().last().unwrap_or_default();
    let well = exit == bowline_protocol::terminal::CommandExit::Code(0);
    Ok((!well).then(|| format!("`{line}` ends with {exit}: {last}")))
}

async fn shut_down(connection: Connection, session: HostSession) {
    drop(session);
    // How the agent ends is not part of the task.
    connection.shutdown(ShutdownGrace::default()).await;
}
