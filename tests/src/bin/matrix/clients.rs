//! The clients of the matrix: each is given our agent, whose model says what a script has, and what passes between the two is
//! written down.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use xtask::peers::{OtherClient, Peer, python_example};

use crate::agents::Way;
use crate::report::{Cell, Column, Row, questions};
use crate::script::Stage;
use crate::wire::PATIENCE;

const UNSAVED: &str = "one\ntwo\nthree\nnot saved yet\n";

/// A client of another project, or one built on another project's SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixClient {
    Sdk(Peer),
    Acpx,
    /// An example of the Python SDK, whose terminals are make-believe.
    PythonExample,
}

impl MatrixClient {
    pub(crate) fn all() -> Vec<Self> {
        let sdks = Peer::ALL.into_iter().map(Self::Sdk);
        sdks.chain([Self::Acpx, Self::PythonExample]).collect()
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Sdk(peer) => format!("{} SDK", peer.name()),
            Self::Acpx => "acpx".to_owned(),
            Self::PythonExample => "python SDK's example".to_owned(),
        }
    }

    /// Returns the version that is pinned, of those that do not give it themselves.
    pub(crate) fn pinned_version(self) -> Option<String> {
        match self {
            Self::Sdk(peer) => Some(peer.sdk_version().to_owned()),
            Self::PythonExample => Some(Peer::Python.sdk_version().to_owned()),
            Self::Acpx => None,
        }
    }

    pub(crate) fn command(self, root: &Path) -> Vec<String> {
        match self {
            Self::Sdk(peer) => peer.client(root),
            Self::Acpx => OtherClient::Acpx.command(root),
            Self::PythonExample => python_example(root, "gemini"),
        }
    }
}

/// What the model says: the steps of the script, and then a command that does not end.
fn replies() -> (Vec<Value>, Vec<Value>) {
    let call = |name: &str, input: Value| json!({"calls": [{"name": name, "input": input}]});
    let edits = json!([{"old_text": "two", "new_text": "2"}]);
    let steps = vec![
        call("read_text_file", json!({"path": "a.txt"})),
        call("edit_text_file", json!({"path": "a.txt", "edits": edits})),
        call("write_text_file", json!({"path": "new.txt", "content": "new\n"})),
        call("execute", json!({"command": "echo made > made.txt"})),
        json!({"text": "Done."}),
    ];
    let mut endless = call("execute", json!({"command": "touch started; sleep 600"}));
    endless["text"] = json!("I run it.");
    (steps, vec![endless, json!({"text": "Done."})])
}

/// Writes a program that starts our agent with a script, and writes down what it hears and says.
fn starter(stage: &Stage, bowline: &Path, way: Way, name: &str, replies: &[Value]) -> Result<PathBuf> {
    let (script, program) = (stage.home.join(format!("{name}.jsonl")), stage.home.join(name));
    std::fs::write(&script, replies.iter().map(|reply| format!("{reply}\n")).collect::<String>())?;
    let bowline = bowline.display();
    let proxy = match way {
        Way::Direct => String::new(),
        Way::Proxy => format!("{bowline} proxy -- "),
    };
    let home = stage.home.display();
    let text = format!(
        "#!/bin/sh\ntee -a {home}/heard | {proxy}{bowline} agent --model script:{} --shell | tee -a {home}/said\n",
        script.display()
    );
    std::fs::write(&program, text)?;
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
    Ok(program)
}

/// What passed between a client and our agent.
struct Passed {
    heard: Vec<Value>,
    said: Vec<Value>,
}

impl Passed {
    fn read(stage: &Stage) -> Self {
        let lines = |name: &str| {
            let text = std::fs::read_to_string(stage.home.join(name)).unwrap_or_default();
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        };
        Self { heard: lines("heard"), said: lines("said") }
    }

    fn version(&self) -> String {
        let hello = self.heard.iter().find(|message| message["method"] == "initialize");
        let info = hello.map(|hello| &hello["params"]["clientInfo"]["version"]);
        info.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns how often the user was asked about something with these words in its title.
    fn questions(&self, words: &str) -> String {
        let asked = self.said.iter().filter(|message| message["method"] == "session/request_permission");
        let about =
            asked.filter(|message| message["params"]["toolCall"]["title"].to_string().contains(words));
        questions(about.count())
    }
}

/// Takes a client through the script.
pub(crate) fn run_client(root: &Path, bowline: &Path, client: MatrixClient, way: Way) -> Row {
    let mut row = Row::new(client.name(), way);
    if let Err(error) = take(root, bowline, client, way, &mut row) {
        row.note(format!("{error:#}"));
    }
    row
}

fn take(root: &Path, bowline: &Path, client: MatrixClient, way: Way, row: &mut Row) -> Result<()> {
    let stage = Stage::new()?;
    let (steps, endless) = replies();
    let all = starter(&stage, bowline, way, "agent", &[steps.clone(), endless.clone()].concat())?;
    let all = all.display().to_string();
    let mut words = client.command(root);
    match client {
        MatrixClient::Sdk(peer) => {
            let plan = json!([{"prompt": {"go": 1}}, {"prompt": {"go": 2}, "cancelOnFirstChunk": true}]);
            words.extend(["--approve", "allow", "--plan", &plan.to_string()].map(str::to_owned));
            if peer == Peer::TypeScript {
                let open = json!({stage.path("a.txt"): UNSAVED});
                words.extend(["--open".to_owned(), open.to_string()]);
            }
            words.extend(["--".to_owned(), all]);
        }
        MatrixClient::Acpx => {
            words.extend(["--approve-all", "--agent", &all, "exec", "go"].map(str::to_owned))
        }
        MatrixClient::PythonExample => {
            words.extend(["--gemini", &all, "--yolo", "--prompt", "go"].map(str::to_owned));
        }
    }
    let mut child = spawn(&stage, &words)?;
    let outcome = wait(&mut child);
    judge(row, client, &stage);
    outcome.with_context(|| {
        let log = std::fs::read_to_string(stage.home.join("stderr.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    })?;
    let cancel = match client {
        MatrixClient::Sdk(_) => Some(cancelled(&stage)),
        MatrixClient::Acpx => Some(interrupt(&stage, root, bowline, way, &endless)?),
        MatrixClient::PythonExample => None,
    };
    if let Some(cancel) = cancel {
        row.set(Column::Cancel, cancel);
    }
    row.set(Column::Leftovers, stage.leftovers());
    Ok(())
}

fn spawn(stage: &Stage, words: &[String]) -> Result<Child> {
    let mut command = stage.command(words, &[]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {}", words[0]))
}

/// Waits for a client to end, and ends one that does not.
fn wait(child: &mut Child) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { bail!("ended with {status}") };
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    bail!("did not end in {} s", PATIENCE.as_secs())
}

fn judge(row: &mut Row, client: MatrixClient, stage: &Stage) {
    let passed = Passed::read(stage);
    row.version = passed.version();
    let has_unsaved = client == MatrixClient::Sdk(Peer::TypeScript);
    if has_unsaved {
        let seen = json!(passed.said).to_string().contains("not saved yet");
        row.set(Column::UnsavedRead, if seen { Cell::good("yes") } else { Cell::bad("no") });
    } else {
        row.set(Column::UnsavedRead, Cell::fault("shows no unsaved text"));
    }
    let expected = if has_unsaved { UNSAVED } else { "one\ntwo\nthree\n" }.replace("two", "2");
    let is = |name: &str, text: &str| stage.get(name).is_some_and(|held| held == text);
    let cell = |done: bool, words: &str, failed: &str| {
        if done { Cell::good(passed.questions(words)) } else { Cell::bad(failed) }
    };
    row.set(Column::Edit, cell(is("a.txt", &expected), "a.txt", "not edited"));
    row.set(Column::NewFile, cell(is("new.txt", "new\n"), "new.txt", "not created"));
    let ran = is("made.txt", "made\n");
    row.set(
        Column::Command,
        match client {
            MatrixClient::PythonExample if !ran => Cell::fault("its terminals are make-believe"),
            _ => cell(ran, "echo", "not run"),
        },
    );
}

fn cancelled(stage: &Stage) -> Cell {
    let passed = Passed::read(stage);
    if passed.said.iter().any(|message| message["result"]["stopReason"] == "cancelled") {
        Cell::good("yes")
    } else {
        Cell::bad("not cancelled")
    }
}

/// Interrupts acpx while a command runs, as its user would.
fn interrupt(stage: &Stage, root: &Path, bowline: &Path, way: Way, endless: &[Value]) -> Result<Cell> {
    let agent = starter(stage, bowline, way, "endless", endless)?.display().to_string();
    let mut words = OtherClient::Acpx.command(root);
    words.extend(["--approve-all", "--agent", &agent, "exec", "go"].map(str::to_owned));
    let mut child = spawn(stage, &words)?;
    let begun = Instant::now();
    while !stage.project.join("started").exists() && begun.elapsed() < PATIENCE {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    // It says by its status that it was interrupted.
    wait(&mut child).ok();
    Ok(cancelled(stage))
}
