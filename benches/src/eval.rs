//! Small tasks for an agent with a model, through a host: each in a project of its own, and judged by what came of it.
//!
//! Commands may change nothing outside the project and use no network: what a weak model runs is anybody's guess.

mod options;
mod report;
mod tasks;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bowline_host::{Connection, Session, SessionOptions, Settings};
use bowline_state::accumulator::MessageKind;
use bowline_state::policy::Preset;
use bowline_state::question::Reply;
use bowline_wire::Grace;
use bowline_workspace::terminals::{Confinement, Supervisor};
use test_support::lab::Lab;
use tokio::process::Command;

use crate::files::Progress;
use tasks::{Challenge, Ended};

pub use options::{Options, Task};
pub use report::{Attempt, Report};
pub use tasks::Set;

/// The model that takes its tasks as commands: it solves all of them, if the agent and the judges are all right.
const OFFLINE: &str = "offline";

/// How long an agent may take to start, and to stop once it is told to.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives the tasks to an agent, one after the other; `progress` is told what goes on.
///
/// # Errors
/// Fails if an agent cannot be started. That it fails at a task is no error.
pub fn run(options: &Options, progress: &mut dyn Write) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut progress = Progress { begun: Instant::now(), to: progress };
    let mut results = Vec::new();
    for challenge in &tasks::chosen(options.seed, options.set, options.only.as_deref())? {
        progress.tell(&format!("{}: {}", challenge.name, challenge.about))?;
        let result = runtime.block_on(take(challenge, options)).context(challenge.name)?;
        progress.tell(&format!("{}: {}", challenge.name, result.verdict()))?;
        results.push(result);
    }
    Ok(Report::new(options.model.clone(), options.seed, results))
}

async fn take(challenge: &Challenge, options: &Options) -> Result<Attempt> {
    let lab = project(challenge)?;
    let mut agent = Command::new(&options.agent);
    agent.args(["agent", "--shell", "--mode", "full", "--model", &options.model]);
    if let Some(url) = &options.base_url {
        agent.args(["--base-url", url]);
    }
    // Its sessions are not the user's; keys it may have.
    agent.current_dir(lab.path("")).env("XDG_STATE_HOME", lab.base().join("agent"));
    let connection = tokio::time::timeout(PATIENCE, lab.host.spawn(agent))
        .await
        .context("the agent does not answer")?
        .context("the agent does not start")?;
    let session = connection.new_session(SessionOptions::default()).await?;
    let result = solve(challenge, options, &lab, &session).await;
    end(connection, session).await;
    result
}

/// Opens a project with the files of a task, in which everything is allowed that stays in it.
fn project(challenge: &Challenge) -> Result<Lab> {
    let program = std::env::current_exe()?;
    let lab = Lab::open("", |settings: &mut Settings| {
        let terminals = &mut settings.terminals;
        terminals.supervisor = Supervisor { program, args: vec!["--supervise".into()] };
        let project = terminals.temporary.join("project");
        terminals.confinement = Some(Confinement { writable: vec![project], network: false });
        settings.preset = Some(Preset::Full);
    })?;
    lab.desk.answer(|_| Reply::allow());
    for (name, text) in &challenge.files {
        lab.put(name, text)?;
    }
    if let Some((name, text)) = &challenge.unsaved {
        let (path, workspace) = (lab.path(name), lab.host.workspace());
        let open = workspace.open_document(&path)?;
        workspace.change_document(&path, text.clone(), open.revision)?;
    }
    Ok(lab)
}

async fn solve(challenge: &Challenge, options: &Options, lab: &Lab, session: &Session) -> Result<Attempt> {
    let prompt = if options.model == OFFLINE { &challenge.by_hand } else { &challenge.prompt };
    let begun = Instant::now();
    let turn = session.prompt_text(prompt);
    tokio::pin!(turn);
    let mut failure = match tokio::time::timeout(options.limit, &mut turn).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("the turn failed: {error}")),
        Err(_) => {
            session.cancel();
            // Whether it ends in time, or how, changes nothing: it was too slow.
            tokio::time::timeout(PATIENCE, turn).await.ok();
            Some(format!("not done after {} s", options.limit.as_secs()))
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let snapshot = session.snapshot();
    let messages = snapshot.messages().filter(|message| message.kind == MessageKind::Agent);
    let said: Vec<String> = messages.map(|message| message.text()).collect();
    let said = said.join("\n");
    if failure.is_none() {
        failure = (challenge.judge)(&Ended { lab, said: &said });
    }
    if let (None, Some(line)) = (&failure, &challenge.command) {
        failure = run_command(session, line).await?;
    }
    let calls = snapshot.tool_calls().map(|call| call.title.to_string()).collect();
    Ok(Attempt { name: challenge.name.to_owned(), set: challenge.set, failure, seconds, calls, said })
}

/// Runs a command that must succeed, confined as the agent's are, and returns why it does not.
async fn run_command(session: &Session, line: &str) -> Result<Option<String>> {
    let terminals = session.terminals();
    let asked = bowline_workspace::terminals::Asked { command: line.to_owned(), ..Default::default() };
    let id = terminals.start(terminals.prepare(asked)?).await?;
    let Ok(exit) = tokio::time::timeout(PATIENCE, terminals.wait(&id)).await else {
        return Ok(Some(format!("`{line}` does not end")));
    };
    let shown = terminals.output(&id).await?.text;
    terminals.release(&id).await?;
    let exit = exit?;
    let last = shown.lines().last().unwrap_or_default();
    let well = exit == bowline_state::terminal::Exit::Code(0);
    Ok((!well).then(|| format!("`{line}` ends with {exit}: {last}")))
}

async fn end(connection: Connection, session: Session) {
    drop(session);
    // How it ends is no part of the task.
    connection.shutdown(Grace::default()).await;
}
