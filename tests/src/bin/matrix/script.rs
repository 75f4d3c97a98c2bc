//! The script that every agent is taken through, and what came of each of its steps.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use test_support::model_server::{ModelServer, Say};
use test_support::processes::working_in;

use crate::agents::{MatrixAgent, Step, Way};
use crate::report::{Cell, Column, Row, error_text, questions};
use crate::wire::{PATIENCE, Wire};

pub(crate) const SAVED: &str = "one\ntwo\nthree\n";
pub(crate) const UNSAVED: &str = "one\ntwo\nthree\nnot saved yet\n";
pub(crate) const EDITED: &str = "one\n2\nthree\nnot saved yet\n";
pub(crate) const MADE: &str = "echo made > made.txt";
pub(crate) const ENDLESS: &str = "touch started; sleep 600";

/// How long what an agent leaves behind may take to go.
const LEAVING: Duration = Duration::from_secs(10);

/// A project, and a home for the agent.
pub(crate) struct Stage {
    base: tempfile::TempDir,
    pub(crate) project: PathBuf,
    pub(crate) home: PathBuf,
}

impl Stage {
    pub(crate) fn new() -> Result<Self> {
        let base = tempfile::Builder::new().prefix("matrix").tempdir()?;
        let real = base.path().canonicalize()?;
        let (project, home) = (real.join("project"), real.join("home"));
        std::fs::create_dir_all(&project)?;
        std::fs::create_dir_all(&home)?;
        std::fs::write(project.join("a.txt"), SAVED)?;
        Ok(Self { base, project, home })
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.project.join(name).display().to_string()
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.project.join(name)).ok()
    }

    /// Returns a command with nothing in its environment but a home, a path and these variables.
    pub(crate) fn command(&self, words: &[String], variables: &[(&'static str, String)]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.project).env_clear();
        command.env("HOME", &self.home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let log = std::fs::File::create(self.home.join("stderr.log"));
        command.envs(variables.iter().cloned());
        match log {
            Ok(log) => command.stderr(log),
            Err(_) => command.stderr(std::process::Stdio::null()),
        };
        command
    }

    /// Returns what still runs of it, once that had time to go; and ends it.
    pub(crate) fn leftovers(&self) -> Cell {
        let begun = Instant::now();
        loop {
            let left = working_in(self.base.path());
            if left.is_empty() {
                return Cell::good("none");
            }
            if begun.elapsed() > LEAVING {
                let mut names = Vec::new();
                for process in &left {
                    let name = std::fs::read_to_string(Path::new(process).join("comm")).unwrap_or_default();
                    names.push(name.trim().to_owned());
                    let id = process.trim_start_matches("/proc/");
                    Command::new("kill").args(["-KILL", id]).status().ok();
                }
                return Cell::bad(format!("{} left: {}", left.len(), names.join(", ")));
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

/// What was asked while a step was done.
#[derive(Debug, Default, Clone)]
struct Done {
    questions: usize,
}

/// Takes an agent behind the proxy through the script.
pub(crate) async fn run_behind_proxy(root: &Path, bowline: &Path, agent: MatrixAgent) -> Row {
    let mut row = Row::new(agent.name(), Way::Proxy);
    if let Err(error) = take(root, bowline, agent, Way::Proxy, &mut row).await {
        row.note(format!("{error:#}"));
    }
    row
}

async fn take(root: &Path, bowline: &Path, agent: MatrixAgent, way: Way, row: &mut Row) -> Result<()> {
    let stage = Stage::new()?;
    let (open, new) = (stage.path("a.txt"), stage.path("new.txt"));
    let steps = [
        Step::Read { path: &open },
        Step::Edit { path: &open, old: "two", new: "2" },
        Step::Write { path: &new, content: "new\n" },
        Step::Run { command: MADE },
    ];
    let endless = Step::Run { command: ENDLESS };
    let calls: Vec<Option<Say>> = steps.iter().map(|step| agent.call(way, step)).collect();
    let mut script: Vec<Say> = calls.iter().flatten().cloned().collect();
    script.push(Say::text("Done."));
    let model = ModelServer::start(script.clone()).await?;
    let (more, variables) = agent.prepare(&stage.home, model.url())?;
    let command: Vec<String> = agent.command(root).into_iter().chain(more).collect();
    let proxy = [bowline.display().to_string(), "proxy".to_owned(), "--".to_owned()];
    let words: Vec<String> = proxy.into_iter().chain(command).collect();
    let unsaved = HashMap::from([(PathBuf::from(&open), UNSAVED.to_owned())]);
    let start = || Wire::start(stage.command(&words, &variables), &stage.project, unsaved.clone());
    tokio::task::block_in_place(|| {
        let mut wire = start()?;
        let (session, advertised) = open_session(&mut wire, &stage, row)?;
        if let Some(search) = agent.search() {
            find_tools(&mut wire, &session, &search, &model)?;
            model.go_on_with(script);
        }
        let done = work(&mut wire, &session, agent, way, &steps, &calls, &model)?;
        judge(row, agent, &wire, &stage, &done, &model);
        // Some agents ask their model for more than a turn needs.
        model.go_on_with(agent.call(way, &endless).into_iter().cycle().take(3).collect());
        row.set(Column::Cancel, cancel(&mut wire, &session, agent, way, &endless, &stage));
        let list = list(&mut wire, &session, &advertised, &stage);
        wire.end();
        row.set(Column::Leftovers, stage.leftovers());
        let load = load(start, agent, &session, &advertised, &stage);
        row.set(Column::Sessions, Cell::both(list, load));
        anyhow::Ok(())
    })
    .with_context(|| {
        let log = std::fs::read_to_string(stage.home.join("stderr.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().chars().take(200).collect::<String>()
    })
}

/// Introduces the editor and opens a session. Returns its id, and what the agent said it can.
fn open_session(wire: &mut Wire, stage: &Stage, row: &mut Row) -> Result<(String, Value)> {
    let initialized = initialize(wire)?;
    row.version = initialized["agentInfo"]["version"].as_str().unwrap_or_default().to_owned();
    let opened = wire.ask("session/new", json!({"cwd": stage.project, "mcpServers": []}))?;
    let session = opened["sessionId"].as_str().context("no session id")?.to_owned();
    Ok((session, initialized["agentCapabilities"].clone()))
}

fn initialize(wire: &mut Wire) -> Result<Value> {
    let can = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
    let info = json!({"name": "matrix", "version": "1"});
    wire.ask("initialize", json!({"protocolVersion": 1, "clientCapabilities": can, "clientInfo": info}))
}

fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Has a model search for the added tools until the agent knows them.
fn find_tools(wire: &mut Wire, session: &str, search: &Say, model: &ModelServer) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        model.go_on_with(vec![search.clone(), Say::text("Searched.")]);
        let id = wire.request("session/prompt", prompt(session, "Which tools are there?"));
        wire.answer(id, |_, _| ())?;
        let heard = model.heard();
        let found = heard.last().map(|request| request["messages"].to_string()).unwrap_or_default();
        if found.contains("old_text") {
            return Ok(());
        }
    }
    bail!("the added tools are never found")
}

/// Has the steps done: in one turn by a model, else in a turn each. Returns what was asked in each.
fn work(
    wire: &mut Wire,
    session: &str,
    agent: MatrixAgent,
    way: Way,
    steps: &[Step<'_>],
    calls: &[Option<Say>],
    model: &ModelServer,
) -> Result<Vec<Option<Done>>> {
    let mut done: Vec<Option<Done>> =
        calls.iter().map(|call| call.as_ref().map(|_| Done::default())).collect();
    let note = |done: &mut Done, message: &Value| {
        done.questions += usize::from(message["method"] == "session/request_permission");
    };
    if agent.has_model() {
        // The n-th request of the model comes after its n-th reply was acted upon.
        let acted: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].is_some()).collect();
        let before = model.heard().len();
        let id = wire.request("session/prompt", prompt(session, "go"));
        wire.answer(id, |_, message| {
            let running = acted.get(model.heard().len().saturating_sub(before + 1));
            if let Some(done) = running.and_then(|at| done[*at].as_mut()) {
                note(done, message);
            }
        })?;
        return Ok(done);
    }
    for (at, step) in steps.iter().enumerate() {
        let Some(text) = agent.prompts(way, step) else { continue };
        let mut its = Done::default();
        let id = wire.request("session/prompt", prompt(session, &text));
        wire.answer(id, |_, message| note(&mut its, message))?;
        done[at] = Some(its);
    }
    if done.iter().all(Option::is_none) {
        let id = wire.request("session/prompt", prompt(session, "hello"));
        wire.answer(id, |_, _| ())?;
    }
    if matches!(agent, MatrixAgent::Sdk(_)) {
        // One prompt of the contract read, edited and ran; it creates no file.
        let both = done[1].clone();
        (done[0], done[3]) = (both.clone(), both);
        if let Some(edit) = &mut done[1] {
            // The second question is the command's.
            edit.questions = edit.questions.saturating_sub(1);
        }
        if let Some(run) = &mut done[3] {
            run.questions = run.questions.saturating_sub(1);
        }
    }
    Ok(done)
}

/// Says what came of the steps.
fn judge(
    row: &mut Row,
    agent: MatrixAgent,
    wire: &Wire,
    stage: &Stage,
    done: &[Option<Done>],
    model: &ModelServer,
) {
    if done[0].is_some() {
        // An edit shows the editor what it would change, so what the editor was told proves nothing of a model.
        let told = if agent.has_model() { Value::Null } else { json!(wire.told) };
        let heard = format!("{}{told}", json!(model.heard()));
        let seen = heard.contains("not saved yet");
        row.set(Column::UnsavedRead, if seen { Cell::good("yes") } else { Cell::bad("no") });
    }
    let mut set = |column, done: Option<&Done>, is_done: bool, failed: &str| {
        if let Some(done) = done {
            let cell = if is_done { Cell::good(questions(done.questions)) } else { Cell::bad(failed) };
            row.set(column, cell);
        }
    };
    let (shows, disk) = (wire.shows(&stage.project.join("a.txt")), stage.get("a.txt").unwrap_or_default());
    let is = |name: &str, text: &str| stage.get(name).is_some_and(|held| held.trim_end() == text);
    set(Column::Edit, done[1].as_ref(), shows == EDITED && disk == EDITED, "not edited");
    set(Column::NewFile, done[2].as_ref(), is("new.txt", "new"), "not created");
    set(Column::Command, done[3].as_ref(), is("made.txt", "made"), "not run");
    // A scripted model calls a tool that it is not shown; others would not.
    let offered = model.heard().iter().map(|asked| asked["tools"].to_string()).collect::<String>();
    if agent.search().is_some() {
        row.alter(&[Column::UnsavedRead], |cell| cell.but_by_peer("its model has to search for the tools"));
    } else if agent.has_model() && !offered.contains("edit_text_file") {
        let columns = [Column::UnsavedRead, Column::Edit, Column::NewFile, Column::Command];
        row.alter(&columns, |cell| cell.but("the model is not shown the tool"));
    }
}

/// Cancels a command that does not end, or else a turn that has just begun.
fn cancel(
    wire: &mut Wire,
    session: &str,
    agent: MatrixAgent,
    way: Way,
    endless: &Step<'_>,
    stage: &Stage,
) -> Cell {
    let runs = agent.call(way, endless).is_some();
    let text = match (agent.prompts(way, endless), agent) {
        (Some(text), _) => text,
        (None, MatrixAgent::Sdk(_)) => json!({"do": "wait"}).to_string(),
        (None, MatrixAgent::Other(_)) => "go on".to_owned(),
    };
    let id = wire.request("session/prompt", prompt(session, &text));
    let (started, mut cancelled) = (stage.project.join("started"), None);
    let answer = wire.answer(id, |wire, message| {
        let begins =
            if runs { started.exists() } else { message.is_null() || message["method"] == "session/update" };
        if cancelled.is_none() && begins {
            wire.notify("session/cancel", json!({"sessionId": session}));
            cancelled = Some(Instant::now());
        }
    });
    match answer {
        Ok(answer) if answer["result"]["stopReason"] == "cancelled" => {
            if !wire.commands_end() {
                return Cell::bad("yes, but the command runs on");
            }
            let took = cancelled.map(|at| at.elapsed().as_secs()).unwrap_or_default();
            if took > 5 { Cell::bad(format!("after {took} s")) } else { Cell::good("yes") }
        }
        Ok(answer) if cancelled.is_none() => Cell::bad(match answer["result"]["stopReason"].as_str() {
            Some(stop) => format!("the command did not run: {stop}"),
            None => error_text(&answer["error"]),
        }),
        Ok(answer) => match answer["result"]["stopReason"].as_str() {
            Some(_) if !runs => Cell::fault("answers at once"),
            Some(stop) => Cell::bad(format!("answered {stop}")),
            None => Cell::bad(format!("answered an error: {}", error_text(&answer["error"]))),
        },
        Err(error) => Cell::bad(error.to_string()),
    }
}

fn list(wire: &mut Wire, session: &str, advertised: &Value, stage: &Stage) -> Cell {
    if advertised["sessionCapabilities"]["list"].is_null() {
        return Cell::fault("no list");
    }
    match wire.ask("session/list", json!({"cwd": stage.project})) {
        Ok(answer) if answer.to_string().contains(session) => Cell::good("list"),
        Ok(_) => Cell::bad("the list lacks the session"),
        Err(error) => Cell::bad(error.to_string()),
    }
}

/// Loads the session in another process.
fn load(
    start: impl Fn() -> Result<Wire>,
    agent: MatrixAgent,
    session: &str,
    advertised: &Value,
    stage: &Stage,
) -> Cell {
    if advertised["loadSession"] != true {
        return Cell::fault("no load");
    }
    agent.wait_to_load();
    let loaded = || {
        let mut wire = start()?;
        initialize(&mut wire)?;
        let params = json!({"sessionId": session, "cwd": stage.project, "mcpServers": []});
        let loaded = wire.ask("session/load", params);
        let replayed = wire.told.iter().any(|message| message["method"] == "session/update");
        wire.end();
        loaded.map(|_| replayed)
    };
    let cell = match loaded() {
        Ok(true) => match agent.load_note() {
            None => Cell::good("load"),
            Some(note) => Cell::fault(format!("load {note}")),
        },
        Ok(false) => Cell::bad("load replays nothing"),
        Err(error) => Cell::bad(error.to_string()),
    };
    stage.leftovers();
    cell
}
