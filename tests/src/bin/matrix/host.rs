//! An agent in Bowline's own host, `bowline run`: the same script, judged by what passed between the two.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use test_support::model_server::{ModelServer, Say};
use xtask::peers::OtherAgent;

use crate::agents::{MatrixAgent, Step, Way};
use crate::report::{Cell, Column, Row, error_text, requests};
use crate::script::{EDITED, ENDLESS, MADE, SAVED, Stage, UNSAVED};
use crate::wire::PATIENCE;

/// What passed between the host and an agent.
struct Passed(Vec<Value>);

impl Passed {
    fn read(stage: &Stage, trace: &str) -> Self {
        let text = std::fs::read_to_string(stage.home.join(trace)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Self(lines.map(|mut line| line["message"].take()).collect())
    }

    fn calls<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |message| message["method"] == method)
    }

    /// Returns how often the agent asked about something with these words in it. A request may name nothing but its call, so
    /// what was told of the call counts too.
    fn requests(&self, words: &str) -> usize {
        let is_about = |asked: &&Value| {
            let id = &asked["params"]["toolCall"]["toolCallId"];
            let told = self.calls("session/update").map(|told| &told["params"]["update"]);
            let mut of_call = told.filter(|update| update["toolCallId"] == *id);
            asked.to_string().contains(words) || of_call.any(|update| update.to_string().contains(words))
        };
        self.calls("session/request_permission").filter(is_about).count()
    }

    /// Returns how often the agent asked at all.
    fn all_requests(&self) -> usize {
        self.calls("session/request_permission").count()
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

/// Takes an agent through the script.
pub(crate) async fn run_in_host(root: &Path, bowline: &Path, agent: MatrixAgent) -> Row {
    let mut row = Row::new(agent.name(), Way::Direct);
    if let Err(error) = take(root, bowline, agent, &mut row).await {
        row.note(format!("{error:#}"));
    }
    row
}

async fn take(root: &Path, bowline: &Path, agent: MatrixAgent, row: &mut Row) -> Result<()> {
    let stage = Stage::new()?;
    let (open, new) = (stage.path("a.txt"), stage.path("new.txt"));
    let steps = [
        Step::Read { path: &open },
        Step::Edit { path: &open, old: "two", new: "2" },
        Step::Write { path: &new, content: "new\n" },
        Step::Run { command: MADE },
    ];
    let endless = Step::Run { command: ENDLESS };
    let calls: Vec<Option<Say>> = steps.iter().map(|step| agent.call(Way::Direct, step)).collect();
    let mut script: Vec<Say> = calls.iter().flatten().cloned().collect();
    script.push(Say::text("Done."));
    // Some agents ask their model for more than a turn needs, so each part has a model of its own.
    let model = ModelServer::start(script).await?;
    let later = ModelServer::start(Vec::new()).await?;
    let endlessly = agent.call(Way::Direct, &endless).into_iter().cycle().take(3);
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
    tokio::task::block_in_place(|| {
        let unsaved = format!("a.txt={}", stage.home.join("unsaved").display());
        let texts: Vec<Option<String>> = if agent.has_model() {
            vec![Some("go".to_owned())]
        } else {
            steps.iter().map(|step| agent.prompts(Way::Direct, step)).collect()
        };
        let mut passed = Passed(Vec::new());
        let mut open = vec!["--open", unsaved.as_str()];
        let mut prompts: Vec<String> = texts.into_iter().flatten().collect();
        if prompts.is_empty() {
            prompts.push("hello".to_owned());
        }
        for prompt in prompts {
            wait(&mut run(&model, "trace", &open, &prompt)?)?;
            passed.0.extend(Passed::read(&stage, "trace").0);
            // What was not saved then is saved now.
            open = Vec::new();
        }
        row.version = passed.version();
        judge(row, agent, &stage, &passed, &calls, &model);
        row.set(
            Column::Sessions,
            go_on(|trace, more, prompt| run(&later, trace, more, prompt), agent, &stage, &passed)?,
        );
        let endlessly = |trace: &str, more: &[&str], prompt: &str| run(&never, trace, more, prompt);
        row.set(Column::Cancel, interrupt(endlessly, agent, &stage, &endless)?);
        row.set(Column::Leftovers, stage.leftovers());
        anyhow::Ok(())
    })
    .with_context(|| {
        let log = std::fs::read_to_string(stage.home.join("stderr.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().chars().take(200).collect::<String>()
    })
}

/// Waits for a process to end, and ends one that does not. Returns its status.
fn wait(child: &mut Child) -> Result<Option<i32>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn judge(
    row: &mut Row,
    agent: MatrixAgent,
    stage: &Stage,
    passed: &Passed,
    calls: &[Option<Say>],
    model: &ModelServer,
) {
    let is_on_sdk = matches!(agent, MatrixAgent::Sdk(_));
    let does = |at: usize| calls[at].is_some() || is_on_sdk && at != 2;
    let heard = format!("{}{}", json!(model.heard()), json!(passed.0));
    let told_by_agent = passed.0.iter().filter(|message| message["method"] == "session/update");
    let said: String = told_by_agent.map(ToString::to_string).collect();
    if does(0) {
        let seen =
            json!(model.heard()).to_string().contains("not saved yet") || said.contains("not saved yet");
        row.set(
            Column::UnsavedRead,
            match seen {
                true => Cell::good("yes"),
                false if !heard.contains("fs/read_text_file") => Cell::fault("it reads the disk itself"),
                false => Cell::fault("its tool for reading does not ask the editor"),
            },
        );
    }
    let known: usize = ["a.txt", "new.txt", "made.txt"].iter().map(|words| passed.requests(words)).sum();
    if known != passed.all_requests() {
        // Else the numbers below would be wrong and look right.
        row.note(format!(
            "{} permission requests, of which {known} are known to be about a step",
            passed.all_requests()
        ));
    }
    if does(1) {
        let asked = requests(passed.requests("a.txt"));
        let text = stage.get("a.txt").unwrap_or_default();
        row.set(
            Column::Edit,
            if text == EDITED {
                Cell::good(asked)
            } else if text == SAVED.replace("two", "2") {
                let asks_to_write =
                    passed.calls("fs/write_text_file").any(|call| call.to_string().contains("a.txt"));
                match asks_to_write {
                    true => Cell::bad("the file lacks what was not saved").with(&asked),
                    false => Cell::fault("it writes the disk itself, beside what is not saved").with(&asked),
                }
            } else {
                Cell::bad("not edited")
            },
        );
    }
    if does(2) {
        let is_there = stage.get("new.txt").is_some_and(|text| text.trim_end() == "new");
        let asked = requests(passed.requests("new.txt"));
        row.set(Column::NewFile, if is_there { Cell::good(asked) } else { Cell::bad("not created") });
    }
    if does(3) {
        let is_there = stage.get("made.txt").is_some_and(|text| text.trim_end() == "made");
        let asked = requests(passed.requests("made.txt"));
        row.set(Column::Command, if is_there { Cell::good(asked) } else { Cell::bad("not run") });
    }
}

/// Goes on with the session in another process of the agent.
fn go_on(
    run: impl Fn(&str, &[&str], &str) -> Result<Child>,
    agent: MatrixAgent,
    stage: &Stage,
    passed: &Passed,
) -> Result<Cell> {
    let can = passed.advertised();
    let offered = [
        ("list", !can["sessionCapabilities"]["list"].is_null()),
        ("load", can["loadSession"] == true),
        ("resume", !can["sessionCapabilities"]["resume"].is_null()),
    ];
    let names: Vec<&str> = offered.iter().filter(|(_, offered)| *offered).map(|(name, _)| *name).collect();
    if !names.contains(&"load") && !names.contains(&"resume") {
        return Ok(Cell::fault("offers neither load nor resume"));
    }
    agent.wait_to_load();
    let code = wait(&mut run("again", &["--session", "last"], "still there?")?)?;
    let names = names.join(", ");
    Ok(match code {
        Some(0) => match agent.load_note() {
            None => Cell::good(format!("goes on ({names})")),
            Some(note) => Cell::fault(format!("goes on ({names}) {note}")),
        },
        code => {
            let failed = Passed::read(stage, "again");
            match failed.0.iter().rev().find(|message| message["error"].is_object()) {
                Some(answer) => Cell::bad(format!("{names}; load answers: {}", error_text(&answer["error"]))),
                None => Cell::bad(format!("does not go on: ended with {code:?}")),
            }
        }
    })
}

/// Interrupts a command that does not end, or else a turn, as a user at the terminal does.
fn interrupt(
    run: impl Fn(&str, &[&str], &str) -> Result<Child>,
    agent: MatrixAgent,
    stage: &Stage,
    endless: &Step<'_>,
) -> Result<Cell> {
    let prompt = match agent {
        MatrixAgent::Sdk(_) => json!({"do": "wait"}).to_string(),
        MatrixAgent::Other(OtherAgent::Eliza) => return Ok(Cell::fault("answers at once")),
        MatrixAgent::Other(_) => agent.prompts(Way::Direct, endless).unwrap_or_else(|| "go on".to_owned()),
    };
    let runs = agent.call(Way::Direct, endless).is_some();
    let mut child = run("cancelled", &[], &prompt)?;
    let begun = Instant::now();
    let has_begun = || {
        let said = || std::fs::read_to_string(stage.home.join("cancelled")).unwrap_or_default();
        if runs { stage.project.join("started").exists() } else { said().contains("agent_message_chunk") }
    };
    while !has_begun() && begun.elapsed() < PATIENCE && child.try_wait()?.is_none() {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    if !has_begun() {
        wait(&mut child)?;
        return Ok(Cell::bad("nothing began that could be cancelled"));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    wait(&mut child)?;
    let passed = Passed::read(stage, "cancelled");
    let answer = passed.0.iter().find(|message| message["result"]["stopReason"].is_string());
    Ok(match answer.map(|answer| answer["result"]["stopReason"].as_str().unwrap_or_default()) {
        Some("cancelled") => Cell::good("yes"),
        Some(other) => Cell::bad(format!("it answers {other}")),
        None => match passed.0.iter().rev().find(|message| message["error"].is_object()) {
            Some(answer) => Cell::bad(format!("it answers an error: {}", error_text(&answer["error"]))),
            None => Cell::bad("no answer"),
        },
    })
}
