//! The clients of the matrix: each is connected to our agent with a scripted model, and their messages are recorded.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use xtask::peers::{PublishedClient, SdkPeer, all_files_exist, python_example_command};

use crate::agents::ToolRoute;
use crate::editor::ANSWER_TIMEOUT;
use crate::editors::EditorPlugin;
use crate::report::{MatrixCell, MatrixColumn, MatrixRow, format_questions};
use crate::script::MatrixProject;

const UNSAVED: &str = "one\ntwo\nthree\nnot saved yet\n";

/// A client of another project, or one built on another project's SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixClient {
    Sdk(SdkPeer),
    Acpx,
    /// A terminal interface, whose keys a script presses.
    Toad,
    /// An example client of the Python SDK, with simulated terminals.
    PythonExample,
    /// A plugin of an editor.
    Editor(EditorPlugin),
}

impl MatrixClient {
    pub(crate) fn all() -> Vec<Self> {
        let sdks = SdkPeer::ALL.into_iter().map(Self::Sdk);
        let editors = EditorPlugin::ALL.into_iter().map(Self::Editor);
        sdks.chain([Self::Acpx, Self::Toad, Self::PythonExample]).chain(editors).collect()
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Sdk(peer) => format!("{} SDK", peer.name()),
            Self::Acpx => PublishedClient::Acpx.name().to_owned(),
            Self::Toad => PublishedClient::Toad.name().to_owned(),
            Self::PythonExample => "python SDK's example".to_owned(),
            Self::Editor(plugin) => plugin.name().to_owned(),
        }
    }

    /// Returns the pinned version, for clients that do not report their own.
    pub(crate) fn pinned_version(self) -> Option<String> {
        match self {
            Self::Sdk(peer) => Some(peer.sdk_version().to_owned()),
            Self::PythonExample => Some(SdkPeer::Python.sdk_version().to_owned()),
            Self::Acpx | Self::Toad | Self::Editor(_) => None,
        }
    }

    pub(crate) fn command(self, root: &Path) -> Vec<String> {
        match self {
            Self::Sdk(peer) => peer.client_command(root),
            Self::Acpx => PublishedClient::Acpx.command(root),
            Self::Toad => PublishedClient::Toad.command(root),
            Self::PythonExample => python_example_command(root, "gemini"),
            Self::Editor(plugin) => plugin.command(root),
        }
    }

    /// Returns why the client cannot run here, or `None` if it can.
    pub(crate) fn missing_reason(self, root: &Path) -> Option<String> {
        match self {
            Self::Editor(plugin) => plugin.missing_reason(),
            _ => (!all_files_exist(&self.command(root)))
                .then(|| "`cargo xtask peers --all` installs it".to_owned()),
        }
    }

    fn variables(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Editor(plugin) => plugin.variables(),
            _ => Vec::new(),
        }
    }

    fn plugin(self) -> Option<EditorPlugin> {
        match self {
            Self::Editor(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// Returns whether the client has text that is not saved.
    fn has_unsaved_text(self) -> bool {
        matches!(self, Self::Sdk(SdkPeer::TypeScript) | Self::Editor(_))
    }
}

/// Returns the model's replies: the steps of the script, and then a command that does not end.
fn model_replies() -> (Vec<Value>, Vec<Value>) {
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

/// Writes a program that starts our agent with a script, and records its input and output.
fn write_agent_starter(
    stage: &MatrixProject,
    bowline: &Path,
    way: ToolRoute,
    name: &str,
    replies: &[Value],
) -> Result<PathBuf> {
    let (script, program) = (stage.home.join(format!("{name}.jsonl")), stage.home.join(name));
    std::fs::write(&script, replies.iter().map(|reply| format!("{reply}\n")).collect::<String>())?;
    let bowline = bowline.display();
    let proxy = match way {
        ToolRoute::Direct => String::new(),
        ToolRoute::Proxy => format!("{bowline} proxy -- "),
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

/// The messages between a client and our agent.
struct ClientTraffic {
    received: Vec<Value>,
    sent: Vec<Value>,
}

impl ClientTraffic {
    fn read(stage: &MatrixProject) -> Self {
        let lines = |name: &str| {
            let text = std::fs::read_to_string(stage.home.join(name)).unwrap_or_default();
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        };
        Self { received: lines("heard"), sent: lines("said") }
    }

    fn version(&self) -> String {
        let hello = self.received.iter().find(|message| message["method"] == "initialize");
        let info = hello.map(|hello| &hello["params"]["clientInfo"]["version"]);
        info.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns the number of permission requests with these words in the title, as text.
    fn count_questions(&self, words: &str) -> String {
        let asked = self.sent.iter().filter(|message| message["method"] == "session/request_permission");
        let about =
            asked.filter(|message| message["params"]["toolCall"]["title"].to_string().contains(words));
        format_questions(about.count())
    }
}

/// Runs a client through the script.
pub(crate) fn run_client(root: &Path, bowline: &Path, client: MatrixClient, way: ToolRoute) -> MatrixRow {
    let mut row = MatrixRow::new(client.name(), way);
    if let Err(error) = run_script(root, bowline, client, way, &mut row) {
        row.set_note(format!("{error:#}"));
    }
    row
}

fn run_script(
    root: &Path,
    bowline: &Path,
    client: MatrixClient,
    way: ToolRoute,
    row: &mut MatrixRow,
) -> Result<()> {
    let stage = MatrixProject::new()?;
    let (steps, endless) = model_replies();
    let all = write_agent_starter(&stage, bowline, way, "agent", &[steps.clone(), endless.clone()].concat())?;
    let all = all.display().to_string();
    let mut words = client.command(root);
    match client {
        MatrixClient::Sdk(peer) => {
            let plan = json!([{"prompt": {"go": 1}}, {"prompt": {"go": 2}, "cancelOnFirstChunk": true}]);
            words.extend(["--approve", "allow", "--plan", &plan.to_string()].map(str::to_owned));
            if peer == SdkPeer::TypeScript {
                let open = json!({stage.file_path("a.txt"): UNSAVED});
                words.extend(["--open".to_owned(), open.to_string()]);
            }
            words.extend(["--".to_owned(), all]);
        }
        MatrixClient::Acpx => {
            words.extend(["--approve-all", "--agent", &all, "exec", "go"].map(str::to_owned))
        }
        // Their scripts send both prompts, and cancel the second turn.
        MatrixClient::Toad | MatrixClient::Editor(_) => words.push(all),
        MatrixClient::PythonExample => {
            words.extend(["--gemini", &all, "--yolo", "--prompt", "go"].map(str::to_owned));
        }
    }
    let mut child = spawn(&stage, &words, &client.variables())?;
    let outcome = wait_for_exit(&mut child);
    fill_cells(row, client, &stage);
    outcome.with_context(|| {
        let log = std::fs::read_to_string(stage.home.join("stderr.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    })?;
    let cancel = match client {
        MatrixClient::Sdk(_) | MatrixClient::Toad | MatrixClient::Editor(_) => Some(cancel_cell(&stage)),
        MatrixClient::Acpx => Some(interrupt_client(&stage, root, bowline, way, &endless)?),
        MatrixClient::PythonExample => None,
    };
    if let Some(cancel) = cancel {
        row.set_cell(MatrixColumn::Cancel, cancel);
    }
    let leftovers = match client {
        MatrixClient::Toad => {
            stage.end_leftovers().explain_failure("its `terminal/kill` ends only the outermost shell")
        }
        _ => stage.end_leftovers(),
    };
    row.set_cell(MatrixColumn::Leftovers, leftovers);
    Ok(())
}

fn spawn(stage: &MatrixProject, words: &[String], variables: &[(&'static str, String)]) -> Result<Child> {
    let mut command = stage.command(words, variables);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {}", words[0]))
}

/// Waits for a client to exit, and kills it after a timeout.
fn wait_for_exit(child: &mut Child) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_TIMEOUT {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { bail!("ended with {status}") };
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    bail!("did not end in {} s", ANSWER_TIMEOUT.as_secs())
}

fn fill_cells(row: &mut MatrixRow, client: MatrixClient, stage: &MatrixProject) {
    let passed = ClientTraffic::read(stage);
    // A plugin may report no version, or one that never changes.
    let reported = std::fs::read_to_string(stage.home.join("version")).map(|text| text.trim().to_owned());
    row.version = reported.unwrap_or_else(|_| passed.version());
    let has_unsaved = client.has_unsaved_text();
    if has_unsaved {
        let seen = json!(passed.sent).to_string().contains("not saved yet");
        let cell = if seen { MatrixCell::good("yes") } else { MatrixCell::unexplained("no") };
        let fault = client.plugin().and_then(EditorPlugin::read_fault);
        row.set_cell(
            MatrixColumn::UnsavedRead,
            match fault {
                Some(fault) => cell.explain_failure(fault),
                None => cell,
            },
        );
    } else {
        row.set_cell(MatrixColumn::UnsavedRead, MatrixCell::peer_fault("shows no unsaved text"));
    }
    let expected = if has_unsaved { UNSAVED } else { "one\ntwo\nthree\n" }.replace("two", "2");
    let is = |name: &str, text: &str| stage.read_file(name).is_some_and(|held| held == text);
    let cell = |done: bool, words: &str, failed: &str| {
        if done { MatrixCell::good(passed.count_questions(words)) } else { MatrixCell::unexplained(failed) }
    };
    let known_fault = client.plugin().and_then(EditorPlugin::edit_fault);
    row.set_cell(
        MatrixColumn::Edit,
        match known_fault.filter(|(text, _)| is("a.txt", text)) {
            Some((_, fault)) => MatrixCell::peer_fault(fault).with_detail(&passed.count_questions("a.txt")),
            None => cell(is("a.txt", &expected), "a.txt", "not edited"),
        },
    );
    row.set_cell(MatrixColumn::NewFile, cell(is("new.txt", "new\n"), "new.txt", "not created"));
    let ran = is("made.txt", "made\n");
    row.set_cell(
        MatrixColumn::Command,
        match client {
            MatrixClient::PythonExample if !ran => MatrixCell::peer_fault("its terminals are make-believe"),
            _ => cell(ran, "echo", "not run"),
        },
    );
}

fn cancel_cell(stage: &MatrixProject) -> MatrixCell {
    let passed = ClientTraffic::read(stage);
    if passed.sent.iter().any(|message| message["result"]["stopReason"] == "cancelled") {
        MatrixCell::good("yes")
    } else {
        MatrixCell::unexplained("not cancelled")
    }
}

/// Interrupts acpx while a command runs, as its user would.
fn interrupt_client(
    stage: &MatrixProject,
    root: &Path,
    bowline: &Path,
    way: ToolRoute,
    endless: &[Value],
) -> Result<MatrixCell> {
    let agent = write_agent_starter(stage, bowline, way, "endless", endless)?.display().to_string();
    let mut words = PublishedClient::Acpx.command(root);
    words.extend(["--approve-all", "--agent", &agent, "exec", "go"].map(str::to_owned));
    let mut child = spawn(stage, &words, &[])?;
    let begun = Instant::now();
    while !stage.project.join("started").exists() && begun.elapsed() < ANSWER_TIMEOUT {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    // Its exit status reports the interrupt.
    wait_for_exit(&mut child).ok();
    Ok(cancel_cell(stage))
}
