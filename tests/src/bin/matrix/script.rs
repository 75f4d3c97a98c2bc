//! The script of the matrix, and the results of its steps.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use test_support::model_server::{ModelReply, ModelServer};
use test_support::processes::processes_in;

use crate::agents::{MatrixAgent, ScriptStep, ToolRoute};
use crate::editor::{ANSWER_TIMEOUT, MatrixEditor};
use crate::report::{MatrixCell, MatrixColumn, MatrixRow, error_text, format_questions};

pub(crate) const SAVED: &str = "one\ntwo\nthree\n";
pub(crate) const UNSAVED: &str = "one\ntwo\nthree\nnot saved yet\n";
pub(crate) const EDITED: &str = "one\n2\nthree\nnot saved yet\n";
pub(crate) const MAKE_COMMAND: &str = "echo made > made.txt";
pub(crate) const ENDLESS_COMMAND: &str = "touch started; sleep 600";

/// The directory of the projects. In `/tmp`, codex-acp's sandbox leaves an empty `.git`, and kimi-code asks less in what
/// it takes for a repository.
const PROJECTS_DIR: &str = "/var/tmp";

/// The time for an agent's remaining processes to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A project, and a home for the agent.
pub(crate) struct MatrixProject {
    base: tempfile::TempDir,
    pub(crate) project: PathBuf,
    pub(crate) home: PathBuf,
}

impl MatrixProject {
    pub(crate) fn new() -> Result<Self> {
        let base = tempfile::Builder::new().prefix("matrix").tempdir_in(PROJECTS_DIR)?;
        let real = base.path().canonicalize()?;
        let (project, home) = (real.join("project"), real.join("home"));
        std::fs::create_dir_all(&project)?;
        std::fs::create_dir_all(&home)?;
        std::fs::write(project.join("a.txt"), SAVED)?;
        Ok(Self { base, project, home })
    }

    pub(crate) fn file_path(&self, name: &str) -> String {
        self.project.join(name).display().to_string()
    }

    pub(crate) fn read_file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.project.join(name)).ok()
    }

    /// Returns a command whose environment has only a home, a path and these variables.
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

    /// Reports the processes that are still running after a timeout, and kills them.
    pub(crate) fn end_leftovers(&self) -> MatrixCell {
        let begun = Instant::now();
        loop {
            let left = processes_in(self.base.path());
            if left.is_empty() {
                return MatrixCell::good("none");
            }
            if begun.elapsed() > EXIT_TIMEOUT {
                let mut names = Vec::new();
                for process in &left {
                    let name = std::fs::read_to_string(Path::new(process).join("comm")).unwrap_or_default();
                    names.push(name.trim().to_owned());
                    let id = process.trim_start_matches("/proc/");
                    Command::new("kill").args(["-KILL", id]).status().ok();
                }
                return MatrixCell::unexplained(format!("{} left: {}", left.len(), names.join(", ")));
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

/// The questions during a step.
#[derive(Debug, Default, Clone)]
struct StepQuestions {
    questions: usize,
}

/// Runs an agent behind the proxy through the script.
pub(crate) async fn run_behind_proxy(root: &Path, bowline: &Path, agent: MatrixAgent) -> MatrixRow {
    let mut row = MatrixRow::new(agent.name(), ToolRoute::Proxy);
    if let Err(error) = run_script(root, bowline, agent, ToolRoute::Proxy, &mut row).await {
        row.set_note(format!("{error:#}"));
    }
    row
}

async fn run_script(
    root: &Path,
    bowline: &Path,
    agent: MatrixAgent,
    way: ToolRoute,
    row: &mut MatrixRow,
) -> Result<()> {
    let stage = MatrixProject::new()?;
    let (open, new) = (stage.file_path("a.txt"), stage.file_path("new.txt"));
    let steps = [
        ScriptStep::Read { path: &open },
        ScriptStep::Edit { path: &open, old: "two", new: "2" },
        ScriptStep::Write { path: &new, content: "new\n" },
        ScriptStep::Run { command: MAKE_COMMAND },
    ];
    let endless = ScriptStep::Run { command: ENDLESS_COMMAND };
    let calls: Vec<Option<ModelReply>> = steps.iter().map(|step| agent.model_call(way, step)).collect();
    let mut script: Vec<ModelReply> = calls.iter().flatten().cloned().collect();
    script.push(ModelReply::text("Done."));
    let model = ModelServer::start(script.clone()).await?;
    let (more, variables) = agent.prepare(&stage.home, model.url())?;
    let command: Vec<String> = agent.command(root).into_iter().chain(more).collect();
    let proxy = [bowline.display().to_string(), "proxy".to_owned(), "--".to_owned()];
    let words: Vec<String> = proxy.into_iter().chain(command).collect();
    let unsaved = HashMap::from([(PathBuf::from(&open), UNSAVED.to_owned())]);
    let start = || MatrixEditor::start(stage.command(&words, &variables), &stage.project, unsaved.clone());
    let fill_row = || {
        let mut wire = start()?;
        let (session, advertised) = open_session(&mut wire, &stage, row)?;
        if let Some(search) = agent.tool_search() {
            find_tools(&mut wire, &session, &search, &model)?;
            model.set_script(script);
        }
        let done = run_steps(&mut wire, &session, agent, way, &steps, &calls, &model)?;
        fill_cells(row, agent, &wire, &stage, &done, &model);
        // Some agents make more requests to their model than a turn needs.
        model.set_script(agent.model_call(way, &endless).into_iter().cycle().take(3).collect());
        row.set_cell(MatrixColumn::Cancel, cancel_turn(&mut wire, &session, agent, way, &endless, &stage));
        let list = check_list(&mut wire, &session, &advertised, &stage);
        wire.shut_down();
        row.set_cell(MatrixColumn::Leftovers, stage.end_leftovers());
        let load = check_load(start, agent, &session, &advertised, &stage);
        row.set_cell(MatrixColumn::Sessions, MatrixCell::combine(list, load));
        anyhow::Ok(())
    };
    fill_row().with_context(|| {
        let log = std::fs::read_to_string(stage.home.join("stderr.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().chars().take(200).collect::<String>()
    })
}

/// Initialises the connection and opens a session. Returns its id, and the agent's capabilities.
fn open_session(
    wire: &mut MatrixEditor,
    stage: &MatrixProject,
    row: &mut MatrixRow,
) -> Result<(String, Value)> {
    let initialized = initialize(wire)?;
    row.version = initialized["agentInfo"]["version"].as_str().unwrap_or_default().to_owned();
    let opened = wire.call("session/new", json!({"cwd": stage.project, "mcpServers": []}))?;
    let session = opened["sessionId"].as_str().context("no session id")?.to_owned();
    Ok((session, initialized["agentCapabilities"].clone()))
}

fn initialize(wire: &mut MatrixEditor) -> Result<Value> {
    let can = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
    let info = json!({"name": "matrix", "version": "1"});
    wire.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": can, "clientInfo": info}))
}

fn prompt_params(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Makes a model search for the added tools until the agent knows them.
fn find_tools(
    wire: &mut MatrixEditor,
    session: &str,
    search: &ModelReply,
    model: &ModelServer,
) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_TIMEOUT {
        model.set_script(vec![search.clone(), ModelReply::text("Searched.")]);
        let id = wire.request("session/prompt", prompt_params(session, "Which tools are there?"));
        wire.wait_for_answer(id, |_, _| ())?;
        let heard = model.requests();
        let found = heard.last().map(|request| request["messages"].to_string()).unwrap_or_default();
        if found.contains("old_text") {
            return Ok(());
        }
    }
    bail!("the added tools are never found")
}

/// Runs the steps: with a model in one turn, otherwise in one turn each. Returns the questions of each.
fn run_steps(
    wire: &mut MatrixEditor,
    session: &str,
    agent: MatrixAgent,
    way: ToolRoute,
    steps: &[ScriptStep<'_>],
    calls: &[Option<ModelReply>],
    model: &ModelServer,
) -> Result<Vec<Option<StepQuestions>>> {
    let mut done: Vec<Option<StepQuestions>> =
        calls.iter().map(|call| call.as_ref().map(|_| StepQuestions::default())).collect();
    let note = |done: &mut StepQuestions, message: &Value| {
        done.questions += usize::from(message["method"] == "session/request_permission");
    };
    if agent.has_model() {
        // The model's n-th request comes after the agent has acted on the n-th reply.
        let acted: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].is_some()).collect();
        let before = model.requests().len();
        let id = wire.request("session/prompt", prompt_params(session, "go"));
        wire.wait_for_answer(id, |_, message| {
            let running = acted.get(model.requests().len().saturating_sub(before + 1));
            if let Some(done) = running.and_then(|at| done[*at].as_mut()) {
                note(done, message);
            }
        })?;
        return Ok(done);
    }
    for (at, step) in steps.iter().enumerate() {
        let Some(text) = agent.prompt_for(way, step) else { continue };
        let mut its = StepQuestions::default();
        let id = wire.request("session/prompt", prompt_params(session, &text));
        wire.wait_for_answer(id, |_, message| note(&mut its, message))?;
        done[at] = Some(its);
    }
    if done.iter().all(Option::is_none) {
        let id = wire.request("session/prompt", prompt_params(session, "hello"));
        wire.wait_for_answer(id, |_, _| ())?;
    }
    if matches!(agent, MatrixAgent::Sdk(_)) {
        // One prompt of the contract reads, edits and runs; it creates no file.
        let both = done[1].clone();
        (done[0], done[3]) = (both.clone(), both);
        if let Some(edit) = &mut done[1] {
            // The second question is about the command.
            edit.questions = edit.questions.saturating_sub(1);
        }
        if let Some(run) = &mut done[3] {
            run.questions = run.questions.saturating_sub(1);
        }
    }
    Ok(done)
}

/// Fills the row with the results of the steps.
fn fill_cells(
    row: &mut MatrixRow,
    agent: MatrixAgent,
    wire: &MatrixEditor,
    stage: &MatrixProject,
    done: &[Option<StepQuestions>],
    model: &ModelServer,
) {
    if done[0].is_some() {
        // An edit shows its change to the editor, so with a model the editor's messages prove nothing.
        let told = if agent.has_model() { Value::Null } else { json!(wire.received) };
        let heard = format!("{}{told}", json!(model.requests()));
        let seen = heard.contains("not saved yet");
        row.set_cell(
            MatrixColumn::UnsavedRead,
            if seen { MatrixCell::good("yes") } else { MatrixCell::unexplained("no") },
        );
    }
    let mut set = |column, done: Option<&StepQuestions>, is_done: bool, failed: &str| {
        if let Some(done) = done {
            let cell = if is_done {
                MatrixCell::good(format_questions(done.questions))
            } else {
                MatrixCell::unexplained(failed)
            };
            row.set_cell(column, cell);
        }
    };
    let (shows, disk) =
        (wire.visible_text(&stage.project.join("a.txt")), stage.read_file("a.txt").unwrap_or_default());
    let is = |name: &str, text: &str| stage.read_file(name).is_some_and(|held| held.trim_end() == text);
    set(MatrixColumn::Edit, done[1].as_ref(), shows == EDITED && disk == EDITED, "not edited");
    set(MatrixColumn::NewFile, done[2].as_ref(), is("new.txt", "new"), "not created");
    set(MatrixColumn::Command, done[3].as_ref(), is("made.txt", "made"), "not run");
    // A scripted model can call a tool that it was not offered; a real one would not.
    let offered = model.requests().iter().map(|asked| asked["tools"].to_string()).collect::<String>();
    if agent.tool_search().is_some() {
        row.map_cells(&[MatrixColumn::UnsavedRead], |cell| {
            cell.with_peer_fault("its model has to search for the tools")
        });
    } else if agent.has_model() && !offered.contains("edit_text_file") {
        let columns =
            [MatrixColumn::UnsavedRead, MatrixColumn::Edit, MatrixColumn::NewFile, MatrixColumn::Command];
        row.map_cells(&columns, |cell| cell.with_problem("the model is not shown the tool"));
    }
}

/// Cancels an endless command, or otherwise a turn that has just begun.
fn cancel_turn(
    wire: &mut MatrixEditor,
    session: &str,
    agent: MatrixAgent,
    way: ToolRoute,
    endless: &ScriptStep<'_>,
    stage: &MatrixProject,
) -> MatrixCell {
    let runs = agent.model_call(way, endless).is_some();
    let text = match (agent.prompt_for(way, endless), agent) {
        (Some(text), _) => text,
        (None, MatrixAgent::Sdk(_)) => json!({"do": "wait"}).to_string(),
        (None, MatrixAgent::Published(_)) => "go on".to_owned(),
    };
    let id = wire.request("session/prompt", prompt_params(session, &text));
    let (started, mut cancelled) = (stage.project.join("started"), None);
    let answer = wire.wait_for_answer(id, |wire, message| {
        let begins =
            if runs { started.exists() } else { message.is_null() || message["method"] == "session/update" };
        if cancelled.is_none() && begins {
            wire.notify("session/cancel", json!({"sessionId": session}));
            cancelled = Some(Instant::now());
        }
    });
    match answer {
        Ok(answer) if answer["result"]["stopReason"] == "cancelled" => {
            if !wire.wait_for_commands() {
                return MatrixCell::unexplained("yes, but the command runs on");
            }
            let took = cancelled.map(|at| at.elapsed().as_secs()).unwrap_or_default();
            if took > 5 {
                MatrixCell::unexplained(format!("after {took} s"))
            } else {
                MatrixCell::good("yes")
            }
        }
        Ok(answer) if cancelled.is_none() => {
            MatrixCell::unexplained(match answer["result"]["stopReason"].as_str() {
                Some(stop) => format!("the command did not run: {stop}"),
                None => error_text(&answer["error"]),
            })
        }
        Ok(answer) => match answer["result"]["stopReason"].as_str() {
            Some(_) if !runs => MatrixCell::peer_fault("answers at once"),
            Some(stop) => MatrixCell::unexplained(format!("answered {stop}")),
            None => MatrixCell::unexplained(format!("answered an error: {}", error_text(&answer["error"]))),
        },
        Err(error) => MatrixCell::unexplained(error.to_string()),
    }
}

fn check_list(
    wire: &mut MatrixEditor,
    session: &str,
    advertised: &Value,
    stage: &MatrixProject,
) -> MatrixCell {
    if advertised["sessionCapabilities"]["list"].is_null() {
        return MatrixCell::peer_fault("no list");
    }
    match wire.call("session/list", json!({"cwd": stage.project})) {
        Ok(answer) if answer.to_string().contains(session) => MatrixCell::good("list"),
        Ok(_) => MatrixCell::unexplained("the list lacks the session"),
        Err(error) => MatrixCell::unexplained(error.to_string()),
    }
}

/// Loads the session in another process.
fn check_load(
    start: impl Fn() -> Result<MatrixEditor>,
    agent: MatrixAgent,
    session: &str,
    advertised: &Value,
    stage: &MatrixProject,
) -> MatrixCell {
    if advertised["loadSession"] != true {
        return MatrixCell::peer_fault("no load");
    }
    agent.wait_to_load();
    let loaded = || {
        let mut wire = start()?;
        initialize(&mut wire)?;
        let params = json!({"sessionId": session, "cwd": stage.project, "mcpServers": []});
        let loaded = wire.call("session/load", params);
        let replayed = wire.received.iter().any(|message| message["method"] == "session/update");
        wire.shut_down();
        loaded.map(|_| replayed)
    };
    let cell = match loaded() {
        Ok(true) => match agent.load_note() {
            None => MatrixCell::good("load"),
            Some(note) => MatrixCell::peer_fault(format!("load {note}")),
        },
        Ok(false) => MatrixCell::unexplained("load replays nothing"),
        Err(error) => MatrixCell::unexplained(error.to_string()),
    };
    stage.end_leftovers();
    cell
}
