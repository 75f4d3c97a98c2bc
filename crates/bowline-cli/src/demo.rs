//! A tour of what Bowline does: a real agent and a real client, two processes over a pipe, each step checked.

pub(crate) mod agent;
mod editor;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bowline_state::accumulator::Snapshot;
use bowline_state::changes::{Origin, Source};
use bowline_state::ledger::Verdict;
use bowline_state::permission::{Decision, Lifetime};
use bowline_state::undo::{Selection, Who};
use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{
    ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest, NewSessionRequest,
    PromptRequest, SessionId, StopReason, ToolCallStatus,
};
use bowline_wire::{AgentHandle, AgentProcess, Grace, Limits, spawn_agent};
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Settings, Watching, Workspace};
use tokio::process::Command;

use editor::Editor;

/// What is on disk when the tour starts.
const SAVED: &str = r#"{
  "name": "knot",
  "debug": false,
  "folders": ["src", "tests"],
  "version": "1.0.0"
}
"#;

/// What the user has typed and not saved.
const UNSAVED: &str = r#"{
  "name": "knot",
  "debug": true,
  "folders": ["src", "tests"],
  "version": "1.0.0"
}
"#;

/// Takes the tour.
pub(crate) async fn run() -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a scratch project")?;
    let directory = scratch.path().canonicalize()?.join("project");
    std::fs::create_dir(&directory)?;
    let config = directory.join("config.json");
    std::fs::write(&config, SAVED)?;
    let workspace = open_workspace(&directory, &scratch.path().join("state"))?;
    let mut tour = Tour::default();

    tour.title("Two processes and a pipe");
    let (stage, process) = Stage::open(&mut tour, &workspace, true).await?;
    let steps = async {
        read_steps(&mut tour, &stage, &config).await?;
        write_steps(&mut tour, &stage, &config).await?;
        merge_steps(&mut tour, &stage, &config).await?;
        undo_steps(&mut tour, &stage, &directory, &config)?;
        refusal_steps(&mut tour, &stage, &directory).await?;
        cancel_step(&mut tour, &stage).await
    };
    let steps = steps.await;
    let exit = process.shutdown(Grace::default()).await;
    steps.with_context(|| exit.to_string())?;
    tour.check("the agent broke no rule of the protocol", stage.editor.breaches().is_empty(), || {
        stage.editor.breaches().join("; ")
    });
    let clean = exit.status.is_some_and(|status| status.success());
    tour.check("the agent ended when its stdin was closed", clean, || exit.to_string());

    tour.title("An editor that cannot write");
    let (stage, process) = Stage::open(&mut tour, &workspace, false).await?;
    let said = stage.ask(&tour, &format!("bump {}", config.display())).await.map(|turn| turn.last_words());
    let exit = process.shutdown(Grace::default()).await;
    let said = said.with_context(|| exit.to_string())?;
    tour.say("agent", &said);
    tour.check("the agent sees that before it sends anything", said.contains("not advertised"), || {
        said.clone()
    });
    tour.finish()
}

async fn read_steps(tour: &mut Tour, stage: &Stage, config: &Path) -> Result<()> {
    tour.title("Reading what is not saved");
    stage.editor.type_unsaved(&config.display().to_string(), UNSAVED)?;
    tour.say("editor", "config.json is open; \"debug\": true is typed, not saved");
    let turn = stage.ask(tour, &format!("show {}", config.display())).await?;
    tour.say("agent", &turn.last_words());
    tour.check("the agent read the unsaved text, not the disk", turn.last_words() == UNSAVED, || {
        turn.last_words()
    });
    tour.check("the read was reported as a tool call that completed", turn.last_call("Read"), || {
        turn.calls()
    });

    let turn = stage.ask(tour, &format!("line 5 of {}", config.display())).await?;
    tour.say("agent", &turn.last_words());
    tour.check("one line was read, not the file", turn.last_words() == "  \"version\": \"1.0.0\"\n", || {
        turn.last_words()
    });
    Ok(())
}

async fn write_steps(tour: &mut Tour, stage: &Stage, config: &Path) -> Result<()> {
    tour.title("Writing, with permission");
    stage.editor.person_says(Decision::Deny(Lifetime::Once));
    let turn = stage.ask(tour, &format!("bump {}", config.display())).await?;
    tour.say("user", "(rejects the edit)");
    tour.say("agent", &turn.last_words());
    tour.check("a rejected edit leaves the disk alone", std::fs::read_to_string(config)? == SAVED, || {
        turn.calls()
    });
    tour.check("its tool call failed", turn.last_status() == Some(ToolCallStatus::Failed), || turn.calls());

    stage.editor.person_says(Decision::Allow(Lifetime::Once));
    let turn = stage.ask(tour, &format!("bump {}", config.display())).await?;
    tour.say("user", "(approves the edit)");
    tour.say("agent", &turn.last_words());
    let written = std::fs::read_to_string(config)?;
    let wanted = UNSAVED.replace("1.0.0", "2.0.0");
    tour.check("the edit is on disk, with what the user had typed", written == wanted, || written.clone());
    tour.check("its tool call completed", turn.last_status() == Some(ToolCallStatus::Completed), || {
        turn.calls()
    });
    tour.check("the user was asked once for each edit", stage.editor.questions() == 2, || {
        format!("{} questions", stage.editor.questions())
    });
    Ok(())
}

async fn merge_steps(tour: &mut Tour, stage: &Stage, config: &Path) -> Result<()> {
    tour.title("Two at the same file");
    let before = std::fs::read_to_string(config)?;
    let typed = before.replace("\"debug\": true", "\"debug\": false");
    stage.editor.type_when_asked(&config.display().to_string(), typed.clone());
    let turn = stage.ask(tour, &format!("rename {}", config.display())).await?;
    tour.say("user", "(sets \"debug\": false while the question waits, then approves the edit)");
    tour.say("agent", &turn.last_words());
    let merged = std::fs::read_to_string(config)?;
    tour.say("disk", &merged);
    let wanted = typed.replace("\"version\"", "\"release\"");
    tour.check("both changes are in the file", merged == wanted, || merged.clone());
    let verdict = stage.editor.verdict();
    tour.check("the editor knows that they were merged", verdict == Some(Verdict::Merged), || {
        format!("{verdict:?}")
    });
    Ok(())
}

fn undo_steps(tour: &mut Tour, stage: &Stage, directory: &Path, config: &Path) -> Result<()> {
    tour.title("Taking it back");
    let session = stage.editor.files();
    let workspace = session.workspace();
    let notes = directory.join("notes.txt");
    std::fs::write(&notes, "made by a command\n")?;
    let command = Origin { command: Some("make notes".to_owned()), ..session.origin(Some(1), None) };
    workspace.observe(&command, &mut |_| std::ops::ControlFlow::Continue(()))?;
    tour.say("shell", "make notes");
    let all = Selection { who: Who::Session(session.id().to_owned()), ..Selection::default() };
    let changes = workspace.changes(&all)?;
    let found = changes.iter().any(|changed| changed.change.source == Source::Observed);
    tour.check("a file that a command made beside Bowline is found", found, || format!("{changes:?}"));
    let patch = workspace.diff(&all)?;
    tour.say("diff", &patch);
    let before = std::fs::read_to_string(config)?;
    session.undo(&all, &Origin::default())?;
    let after = std::fs::read_to_string(config)?;
    tour.say("user", "(undoes the whole session)");
    tour.say("disk", &after);
    let wanted = before.replace("\"release\"", "\"version\"").replace("2.0.0", "1.0.0");
    tour.check("the agent's edits are gone, the user's stays", after == wanted, || after.clone());
    tour.check("the command's file is gone", !notes.exists(), || "it is there".to_owned());
    session.redo(&all, &Origin::default())?;
    let redone = std::fs::read_to_string(config)?;
    tour.check("undoing can be undone", redone == before && notes.exists(), || redone.clone());
    Ok(())
}

/// Opens the project as a workspace, with its journal beside it.
fn open_workspace(directory: &Path, state: &Path) -> Result<Workspace> {
    let root = RootSpec::writable(directory.display().to_string());
    let roots = Roots::open(&root, &[])?;
    let journal = Workspace::journal_directory(state, &roots);
    let opened = Workspace::open(roots, &journal, Settings::default())?;
    let carry_on = &mut |_| std::ops::ControlFlow::Continue(());
    opened.workspace.start_observing(ObserverOptions::default(), Watching::IfPossible, carry_on)?;
    Ok(opened.workspace)
}

async fn refusal_steps(tour: &mut Tour, stage: &Stage, directory: &Path) -> Result<()> {
    tour.title("What must not work");
    let outside = format!("{}-evil/secret", directory.display());
    let secret = directory.with_file_name("secret");
    std::fs::write(&secret, "nobody should read this\n")?;
    let link = directory.join("link");
    std::os::unix::fs::symlink(&secret, &link)?;
    std::fs::write(directory.join("image.png"), [0x89, b'P', b'N', b'G', 0, 0, 1])?;
    for (path, wanted) in [
        (directory.join("missing.json").display().to_string(), "Resource not found"),
        (outside, "outside the session's directories"),
        (format!("{}/../secret", directory.display()), "outside the session's directories"),
        ("config.json".to_owned(), "send an absolute path"),
        (link.display().to_string(), "outside the session's directories"),
        (directory.join("image.png").display().to_string(), "cannot be read as text"),
    ] {
        if !path.starts_with('/') {
            tour.say("user", "(this time by its name alone)");
        }
        let said = stage.ask(tour, &format!("show {path}")).await?.last_words();
        tour.say("agent", &said);
        tour.check(&format!("the answer says: {wanted}"), said.contains(wanted), || said.clone());
    }
    Ok(())
}

async fn cancel_step(tour: &mut Tour, stage: &Stage) -> Result<()> {
    tour.title("Cancelling");
    tour.say("user", "wait");
    tour.say("user", "(cancels the turn)");
    let speaking = stage.editor.turn();
    let turn = stage.agent.prompt(PromptRequest::new(stage.session.clone(), vec!["wait".into()]));
    let cancel = async {
        speaking.await.ok();
        stage.agent.cancel(stage.session.clone()).await
    };
    let (turn, cancelled) = tokio::join!(turn, cancel);
    cancelled?;
    let stop = turn?.stop_reason;
    tour.check("a cancelled turn ends with the stop reason cancelled", stop == StopReason::Cancelled, || {
        format!("{stop:?}")
    });
    let turn = stage.ask(tour, "hello").await?;
    tour.check("the session goes on after it", turn.last_words().starts_with("I know"), || turn.last_words());
    Ok(())
}

/// A client, an agent in another process, and a session between them.
struct Stage {
    editor: Arc<Editor>,
    agent: AgentHandle,
    session: SessionId,
    directory: PathBuf,
}

impl Stage {
    /// Starts the agent for an editor that can write, or for one that cannot.
    async fn open(tour: &mut Tour, workspace: &Workspace, may_write: bool) -> Result<(Self, AgentProcess)> {
        let directory = Path::new(workspace.roots().cwd());
        let session = workspace.session(if may_write { "tour" } else { "second" });
        let editor = Arc::new(Editor::new(session, Decision::Allow(Lifetime::Once)));
        let mut command = Command::new(std::env::current_exe().context("cannot find the bowline program")?);
        command.arg("__demo-agent").current_dir(directory);
        let (agent, process) = spawn_agent(command, Arc::clone(&editor), Limits::DEFAULT)?;
        let fs = FileSystemCapabilities::new().read_text_file(true).write_text_file(may_write);
        let hello = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new().fs(fs))
            .client_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
        let answer = agent.initialize(hello).await?;
        let name = answer.agent_info.map_or_else(|| "the agent".to_owned(), |info| info.name);
        let version = answer.protocol_version;
        let session = agent.new_session(NewSessionRequest::new(directory)).await?.session_id;
        let pid = process.id().map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        tour.check(
            &format!("{name} runs as process {pid}, speaks version {version} and opened session {session}"),
            version == ProtocolVersion::V1,
            || "another version".to_owned(),
        );
        Ok((Stage { editor, agent, session, directory: directory.to_owned() }, process))
    }

    /// Takes a turn and returns the session as it stands after it.
    async fn ask(&self, tour: &Tour, text: &str) -> Result<Turn> {
        drop(self.editor.turn());
        tour.say("user", &text.replace(&format!("{}/", self.directory.display()), ""));
        let turn = self.agent.prompt(PromptRequest::new(self.session.clone(), vec![text.into()])).await?;
        if turn.stop_reason != StopReason::EndTurn {
            bail!("the turn {text:?} ended with {:?}", turn.stop_reason);
        }
        Ok(Turn(self.editor.snapshot()))
    }
}

/// The session after a turn.
struct Turn(Snapshot);

impl Turn {
    fn last_words(&self) -> String {
        self.0.messages().next_back().map(|message| message.text()).unwrap_or_default()
    }

    fn last_status(&self) -> Option<ToolCallStatus> {
        self.0.tool_calls().next_back().map(|call| call.status)
    }

    fn last_call(&self, title: &str) -> bool {
        let last = self.0.tool_calls().next_back();
        last.is_some_and(|call| call.title.starts_with(title) && call.status == ToolCallStatus::Completed)
    }

    fn calls(&self) -> String {
        self.0.tool_calls().map(|call| format!("{} {:?}\n", call.title, call.status)).collect()
    }
}

/// What a person sees of the tour.
#[derive(Default)]
struct Tour {
    checks: usize,
    failed: usize,
}

impl Tour {
    /// Prints a line. If nobody reads any more, the checks still count.
    fn print(&self, line: &str) {
        writeln!(std::io::stdout(), "{line}").ok();
    }

    fn title(&self, title: &str) {
        if self.checks > 0 {
            self.print("");
        }
        self.print(title);
    }

    fn say(&self, who: &str, text: &str) {
        for line in text.lines() {
            self.print(&format!("  {who:>6} │ {line}"));
        }
    }

    fn check<T: Display>(&mut self, what: &str, holds: bool, seen: impl FnOnce() -> T) {
        self.checks += 1;
        if holds {
            self.print(&format!("  ✓ {what}"));
        } else {
            self.failed += 1;
            self.print(&format!("  ✗ {what}\n    but: {}", seen()));
        }
    }

    fn finish(self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} of {} checks failed", self.failed, self.checks);
        }
        self.print(&format!("\nAll {} checks hold.", self.checks));
        Ok(())
    }
}
