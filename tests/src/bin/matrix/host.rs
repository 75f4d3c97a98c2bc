//! An agent in Bowline's own host, `bowline run`: the same script, judged by the messages between the two.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use test_support::model_server::{ModelReply, ModelServer};
use xtask::peers::PublishedAgent;

use crate::agents::{MatrixAgent, ScriptStep, ToolRoute};
use crate::editor::ANSWER_TIMEOUT;
use crate::report::{MatrixCell, MatrixColumn, MatrixRow, error_text, format_requests};
use crate::script::{EDITED, ENDLESS_COMMAND, MAKE_COMMAND, MatrixProject, SAVED, UNSAVED};

/// The messages between the host and an agent.
struct HostTraffic(Vec<Value>);

impl HostTraffic {
    fn read(stage: &MatrixProject, trace: &str) -> Self {
        let text = std::fs::read_to_string(stage.home.join(trace)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Self(lines.map(|mut line| line["message"].take()).collect())
    }

    fn messages_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |message| message["method"] == method)
    }

    /// Returns the number of permission requests about something with these words. A request may contain only the id of
    /// its tool call, so updates of the call count too.
    fn count_requests(&self, words: &str) -> usize {
        let is_about = |asked: &&Value| {
            let id = &asked["params"]["toolCall"]["toolCallId"];
            let told = self.messages_of("session/update").map(|told| &told["params"]["update"]);
            let mut of_call = told.filter(|update| update["toolCallId"] == *id);
            asked.to_string().contains(words) || of_call.any(|update| update.to_string().contains(words))
        };
        self.messages_of("session/request_permission").filter(is_about).count()
    }

    /// Returns the number of all permission requests.
    fn count_all_requests(&self) -> usize {
        self.messages_of("session/request_permission").count()
    }

    fn version(&self) -> String {
        let info = self.0.iter().find_map(|message| message["result"]["agentInfo"]["version"].as_str());
        info.unwrap_or_default().to_owned()
    }

    fn advertised(&self) -> Value {
        let can = self.0.iter().map(|message| &message["result"]["agentCapabilities"]);
        can.into_iter().find(|can| can.is_object()).cloned().unwrap_or_default()
    }
}

/// Runs an agent through the script.
pub(crate) async fn run_in_host(root: &Path, bowline: &Path, agent: MatrixAgent) -> MatrixRow {
    let mut row = MatrixRow::new(agent.name(), ToolRoute::Direct);
    if let Err(error) = run_script(root, bowline, agent, &mut row).await {
        row.set_note(format!("{error:#}"));
    }
    row
}

async fn run_script(root: &Path, bowline: &Path, agent: MatrixAgent, row: &mut MatrixRow) -> Result<()> {
    let stage = MatrixProject::new()?;
    let (open, new) = (stage.file_path("a.txt"), stage.file_path("new.txt"));
    let steps = [
        ScriptStep::Read { path: &open },
        ScriptStep::Edit { path: &open, old: "two", new: "2" },
        ScriptStep::Write { path: &new, content: "new\n" },
        ScriptStep::Run { command: MAKE_COMMAND },
    ];
    let endless = ScriptStep::Run { command: ENDLESS_COMMAND };
    let calls: Vec<Option<ModelReply>> =
        steps.iter().map(|step| agent.model_call(ToolRoute::Direct, step)).collect();
    let mut script: Vec<ModelReply> = calls.iter().flatten().cloned().collect();
    script.push(ModelReply::text("Done."));
    // Some agents make more requests to their model than a turn needs, so each part has its own model.
    let model = ModelServer::start(script).await?;
    let later = ModelServer::start(Vec::new()).await?;
    let endlessly = agent.model_call(ToolRoute::Direct, &endless).into_iter().cycle().take(3);
    let never = ModelServer::start(endlessly.collect()).await?;
    let (more, _) = agent.prepare(&stage.home, model.url())?;
    let agent_words: Vec<String> = agent.command(root).into_iter().chain(more).collect();
    let quoted = agent_words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    let line = quoted.collect::<Vec<_>>().join(" ");
    std::fs::write(stage.home.join("unsaved"), UNSAVED)?;
    let run = |model: &ModelServer, trace: &str, more: &[&str], prompt: &str| {
        let (_, variables) = agent.prepare(&stage.home, model.url())?;
        let trace = stage.home.join(trace).display().to_string();
        let words = ["run", "--agent", &line, "--approve", "all", "--trace", &trace];
        let words = words.iter().chain(more).chain([&prompt]).map(ToString::to_string);
        let words: Vec<String> = std::iter::once(bowline.display().to_string()).chain(words).collect();
        let mut command = stage.command(&words, &variables);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().context("cannot start bowline")
    };
    let mut fill_row = || {
        let unsaved = format!("a.txt={}", stage.home.join("unsaved").display());
        let texts: Vec<Option<String>> = if agent.has_model() {
            vec![Some("go".to_owned())]
        } else {
            steps.iter().map(|step| agent.prompt_for(ToolRoute::Direct, step)).collect()
        };
        let mut passed = HostTraffic(Vec::new());
        let mut open = vec!["--open", unsaved.as_str()];
        let mut prompts: Vec<String> = texts.into_iter().flatten().collect();
        if prompts.is_empty() {
            prompts.push("hello".to_owned());
        }
        for prompt in prompts {
            wait_for_exit(&mut run(&model, "trace", &open, &prompt)?)?;
            passed.0.extend(HostTraffic::read(&stage, "trace").0);
            // The unsaved text has been saved by now.
            open = Vec::new();
        }
        row.version = passed.version();
        fill_cells(row, agent, &stage, &passed, &calls, &model);
        row.set_cell(
            MatrixColumn::Sessions,
            resume_session(|trace, more, prompt| run(&later, trace, more, prompt), agent, &stage, &passed)?,
        );
        let endlessly = |trace: &str, more: &[&str], prompt: &str| run(&never, trace, more, prompt);
        row.set_cell(MatrixColumn::Cancel, interrupt_turn(endlessly, agent, &stage, &endless)?);
        row.set_cell(MatrixColumn::Leftovers, stage.end_leftovers());
        anyhow::Ok(())
    };
    fill_row().with_context(|| {
        let log = std::fs::read_to_string(stage.home.join("stderr.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().chars().take(200).collect::<String>()
    })
}

/// Waits for a process to exit, and kills it after a timeout. Returns its status.
fn wait_for_exit(child: &mut Child) -> Result<Option<i32>> {
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_TIMEOUT {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn fill_cells(
    row: &mut MatrixRow,
    agent: MatrixAgent,
    stage: &MatrixProject,
    passed: &HostTraffic,
    calls: &[Option<ModelReply>],
    model: &ModelServer,
) {
    let is_on_sdk = matches!(agent, MatrixAgent::Sdk(_));
    let does = |at: usize| calls[at].is_some() || is_on_sdk && at != 2;
    let heard = format!("{}{}", json!(model.requests()), json!(passed.0));
    let told_by_agent = passed.0.iter().filter(|message| message["method"] == "session/update");
    let said: String = told_by_agent.map(ToString::to_string).collect();
    if does(0) {
        let seen =
            json!(model.requests()).to_string().contains("not saved yet") || said.contains("not saved yet");
        row.set_cell(
            MatrixColumn::UnsavedRead,
            match seen {
                true => MatrixCell::good("yes"),
                false if !heard.contains("fs/read_text_file") => {
                    MatrixCell::peer_fault("it reads the disk itself")
                }
                false => MatrixCell::peer_fault("its tool for reading does not ask the editor"),
            },
        );
    }
    let known: usize =
        ["a.txt", "new.txt", "made.txt"].iter().map(|words| passed.count_requests(words)).sum();
    if known != passed.count_all_requests() {
        // Otherwise the numbers below would be plausible and wrong.
        row.set_note(format!(
            "{} permission requests, of which {known} are known to be about a step",
            passed.count_all_requests()
        ));
    }
    if does(1) {
        let asked = format_requests(passed.count_requests("a.txt"));
        let text = stage.read_file("a.txt").unwrap_or_default();
        row.set_cell(
            MatrixColumn::Edit,
            if text == EDITED {
                MatrixCell::good(asked)
            } else if text == SAVED.replace("two", "2") {
                let asks_to_write =
                    passed.messages_of("fs/write_text_file").any(|call| call.to_string().contains("a.txt"));
                match asks_to_write {
                    true => MatrixCell::unexplained("the file lacks what was not saved").with_detail(&asked),
                    false => MatrixCell::peer_fault("it writes the disk itself, beside what is not saved")
                        .with_detail(&asked),
                }
            } else {
                MatrixCell::unexplained("not edited")
            },
        );
    }
    if does(2) {
        let is_there = stage.read_file("new.txt").is_some_and(|text| text.trim_end() == "new");
        let asked = format_requests(passed.count_requests("new.txt"));
        row.set_cell(
            MatrixColumn::NewFile,
            if is_there { MatrixCell::good(asked) } else { MatrixCell::unexplained("not created") },
        );
    }
    if does(3) {
        let is_there = stage.read_file("made.txt").is_some_and(|text| text.trim_end() == "made");
        let asked = format_requests(passed.count_requests("made.txt"));
        row.set_cell(
            MatrixColumn::Command,
            if is_there { MatrixCell::good(asked) } else { MatrixCell::unexplained("not run") },
        );
    }
}

/// Resumes the session in another process of the agent.
fn resume_session(
    run: impl Fn(&str, &[&str], &str) -> Result<Child>,
    agent: MatrixAgent,
    stage: &MatrixProject,
    passed: &HostTraffic,
) -> Result<MatrixCell> {
    let can = passed.advertised();
    let offered = [
        ("list", !can["sessionCapabilities"]["list"].is_null()),
        ("load", can["loadSession"] == true),
        ("resume", !can["sessionCapabilities"]["resume"].is_null()),
    ];
    let names: Vec<&str> = offered.iter().filter(|(_, offered)| *offered).map(|(name, _)| *name).collect();
    if !names.contains(&"load") && !names.contains(&"resume") {
        return Ok(MatrixCell::peer_fault("offers neither load nor resume"));
    }
    agent.wait_to_load();
    let code = wait_for_exit(&mut run("again", &["--session", "last"], "still there?")?)?;
    let names = names.join(", ");
    Ok(match code {
        Some(0) => match agent.load_note() {
            None => MatrixCell::good(format!("goes on ({names})")),
            Some(note) => MatrixCell::peer_fault(format!("goes on ({names}) {note}")),
        },
        code => {
            let failed = HostTraffic::read(stage, "again");
            match failed.0.iter().rev().find(|message| message["error"].is_object()) {
                Some(answer) => MatrixCell::unexplained(format!(
                    "{names}; load answers: {}",
                    error_text(&answer["error"])
                )),
                None => MatrixCell::unexplained(format!("does not go on: ended with {code:?}")),
            }
        }
    })
}

/// Interrupts an endless command, or otherwise a turn, as a user at the terminal does.
fn interrupt_turn(
    run: impl Fn(&str, &[&str], &str) -> Result<Child>,
    agent: MatrixAgent,
    stage: &MatrixProject,
    endless: &ScriptStep<'_>,
) -> Result<MatrixCell> {
    let prompt = match agent {
        MatrixAgent::Sdk(_) => json!({"do": "wait"}).to_string(),
        MatrixAgent::Published(PublishedAgent::Eliza) => {
            return Ok(MatrixCell::peer_fault("answers at once"));
        }
        MatrixAgent::Published(_) => {
            agent.prompt_for(ToolRoute::Direct, endless).unwrap_or_else(|| "go on".to_owned())
        }
    };
    let runs = agent.model_call(ToolRoute::Direct, endless).is_some();
    let mut child = run("cancelled", &[], &prompt)?;
    let begun = Instant::now();
    let has_begun = || {
        let said = || std::fs::read_to_string(stage.home.join("cancelled")).unwrap_or_default();
        if runs { stage.project.join("started").exists() } else { said().contains("agent_message_chunk") }
    };
    while !has_begun() && begun.elapsed() < ANSWER_TIMEOUT && child.try_wait()?.is_none() {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    if !has_begun() {
        wait_for_exit(&mut child)?;
        return Ok(MatrixCell::unexplained("nothing began that could be cancelled"));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    wait_for_exit(&mut child)?;
    let passed = HostTraffic::read(stage, "cancelled");
    let answer = passed.0.iter().find(|message| message["result"]["stopReason"].is_string());
    Ok(match answer.map(|answer| answer["result"]["stopReason"].as_str().unwrap_or_default()) {
        Some("cancelled") => MatrixCell::good("yes"),
        Some(other) => MatrixCell::unexplained(format!("it answers {other}")),
        None => match passed.0.iter().rev().find(|message| message["error"].is_object()) {
            Some(answer) => {
                MatrixCell::unexplained(format!("it answers an error: {}", error_text(&answer["error"])))
            }
            None => MatrixCell::unexplained("no answer"),
        },
    })
}
