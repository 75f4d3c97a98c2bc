//! A tour of Bowline's features: the real agent and the real host, two processes over a pipe, each step checked.

mod editor;
mod session;
mod tour;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bowline_access::audit;
use bowline_history::changes::{ChangeOrigin, ChangeSource};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_host::{Host, HostCapabilities, HostOptions, HostPaths};
use bowline_policy::audit::AuditDecision;
use bowline_policy::operation::OperationKind;
use bowline_policy::policy::{Effect, OperationKinds, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec};
use bowline_policy::question::AnswerChoice;
use bowline_wire::schema::v1::{StopReason, ToolCallStatus};
use bowline_workspace::terminals::TerminalOptions;

use crate::signals::wait_for_signal;
use bowline_client::error::CliError;
use bowline_client::launch::terminal_options;
use editor::DemoEditor;
use session::DemoSession;
use tour::Tour;

/// The file on disk when the tour starts.
const SAVED: &str = r#"{
  "name": "knot",
  "debug": false,
  "folders": ["src", "tests"],
  "version": "1.0.0"
}
"#;

/// The user's unsaved text.
const UNSAVED: &str = r#"{
  "name": "knot",
  "debug": true,
  "folders": ["src", "tests"],
  "version": "1.0.0"
}
"#;

/// The project's test.
const TEST_SCRIPT: &str = "\
# Succeeds if the configuration says which version it is.
if grep '\"version\"' config.json; then echo 1 passed; else echo 1 failed; exit 1; fi
";

/// Runs the tour. An interrupted tour leaves neither the scratch project nor the agent behind.
pub(crate) async fn run() -> Result<(), CliError> {
    tokio::select! {
        tour = take_tour() => tour?.finish(),
        _ = wait_for_signal() => Err(CliError::Interrupted),
    }
}

async fn take_tour() -> Result<Tour> {
    let scratch = tempfile::tempdir().context("cannot make a scratch project")?;
    let base = scratch.path().canonicalize()?;
    let directory = base.join("project");
    std::fs::create_dir(&directory)?;
    let config = directory.join("config.json");
    std::fs::write(&config, SAVED)?;
    std::fs::write(directory.join("test.sh"), TEST_SCRIPT)?;
    let editor = Arc::new(DemoEditor::default());
    let paths = HostPaths {
        state: base.join("state"),
        policy: base.join("config/policy.toml"),
        anchors: base.join("anchors"),
    };
    let host = Host::open(&directory, &paths, editor.clone(), host_options(&base)?)?;
    editor.set_workspace(host.workspace());
    let mut tour = Tour::new();

    tour.print_heading("Two processes and a pipe");
    let demo = DemoSession::open(&mut tour, &host, &editor, &directory, &base).await?;
    let steps = async {
        read_steps(&mut tour, &demo, &config).await?;
        write_steps(&mut tour, &demo, &config).await?;
        merge_steps(&mut tour, &demo, &config).await?;
        command_steps(&mut tour, &demo, &host, &config).await?;
        undo_steps(&mut tour, &demo, &directory, &config)?;
        refusal_steps(&mut tour, &demo, &directory).await?;
        cancel_step(&mut tour, &demo).await
    };
    let steps = steps.await;
    let exit = demo.close().await;
    steps.with_context(|| exit.as_ref().map_or_else(|| "the agent ended".to_owned(), ToString::to_string))?;
    let notices = editor.notices();
    tour.check("the agent broke no rule of the protocol", notices.is_empty(), || notices.join("; "));
    let is_clean = exit.as_ref().and_then(|exit| exit.status).is_some_and(|status| status.success());
    tour.check("the agent ended when its stdin was closed", is_clean, || format!("{exit:?}"));

    tour.print_heading("An editor that cannot write");
    let read_only_host = host.with_capabilities(HostCapabilities {
        write: false,
        terminal: false,
        ..HostCapabilities::default()
    });
    let demo = DemoSession::open(&mut tour, &read_only_host, &editor, &directory, &base).await?;
    let reply = demo.prompt(&tour, "/status").await;
    demo.close().await;
    let reply = reply?.last_message();
    let served: Vec<&str> = reply.lines().filter_map(|line| line.strip_prefix("- served: ")).collect();
    tour.print_message("agent", &served.join("\n"));
    let expected = "writing files: the agent's own machine (the editor does not advertise fs.writeTextFile)";
    tour.check("the agent knows, does it itself, and says so", reply.contains(expected), || reply.clone());
    record_steps(&mut tour, &host)?;
    Ok(tour)
}

/// Returns the options of the tour's hosts.
fn host_options(base: &Path) -> Result<HostOptions> {
    Ok(HostOptions::new(TerminalOptions { temp_directory: base.to_owned(), ..terminal_options()? }))
}

async fn read_steps(tour: &mut Tour, demo: &DemoSession, config: &Path) -> Result<()> {
    tour.print_heading("Reading what is not saved");
    demo.editor.type_unsaved(&config.display().to_string(), UNSAVED)?;
    tour.print_message("editor", "config.json is open; \"debug\": true is typed, not saved");
    let turn = demo.prompt_and_show(tour, "read config.json").await?;
    let reply = turn.last_message();
    tour.check("the agent read the unsaved text, not the disk", reply.contains("\"debug\": true"), || {
        reply.clone()
    });
    let status = turn.last_status();
    tour.check(
        "the read was reported as a tool call that completed",
        status == Some(ToolCallStatus::Completed),
        || turn.describe_tool_calls(),
    );
    let turn = demo.prompt_and_show(tour, "read config.json lines 5-5").await?;
    let reply = turn.last_message();
    let is_one_line = reply.contains("\"version\"") && !reply.contains("\"debug\"");
    tour.check("one line was read, not the file", is_one_line, || reply.clone());
    Ok(())
}

async fn write_steps(tour: &mut Tour, demo: &DemoSession, config: &Path) -> Result<()> {
    tour.print_heading("Writing, with permission");
    let prompt = "replace \"1.0.0\" with \"2.0.0\" in config.json";
    demo.editor.set_answer(AnswerChoice::Deny);
    let turn = demo.prompt(tour, prompt).await?;
    let questions = demo.show_questions(tour);
    tour.print_message("user", "(rejects the edit)");
    demo.show_answer(tour, &turn);
    tour.check("a rejected edit leaves the disk alone", std::fs::read_to_string(config)? == SAVED, || {
        turn.describe_tool_calls()
    });
    tour.check("its tool call failed", turn.last_status() == Some(ToolCallStatus::Failed), || {
        turn.describe_tool_calls()
    });
    tour.check("the user was asked once", questions.len() == 1, || format!("{} questions", questions.len()));

    demo.editor.set_answer(AnswerChoice::Allow);
    let turn = demo.prompt(tour, prompt).await?;
    let questions = demo.editor.take_questions();
    tour.print_message("user", "(approves the edit)");
    demo.show_answer(tour, &turn);
    let written = std::fs::read_to_string(config)?;
    let expected = UNSAVED.replace("1.0.0", "2.0.0");
    tour.check("the edit is on disk, with what the user had typed", written == expected, || written.clone());
    tour.check("its tool call completed", turn.last_status() == Some(ToolCallStatus::Completed), || {
        turn.describe_tool_calls()
    });
    tour.check("asking and writing cost the user one question", questions.len() == 1, || {
        format!("{} questions", questions.len())
    });
    Ok(())
}

async fn merge_steps(tour: &mut Tour, demo: &DemoSession, config: &Path) -> Result<()> {
    tour.print_heading("Two at the same file");
    let before = std::fs::read_to_string(config)?;
    let typed = before.replace("\"debug\": true", "\"debug\": false");
    demo.editor.type_when_asked(&config.display().to_string(), typed.clone());
    let turn = demo.prompt(tour, "replace \"knot\" with \"bowline\" in config.json").await?;
    let questions = demo.editor.take_questions();
    if let [first, second] = questions.as_slice() {
        tour.print_message("asked", &demo.shorten_paths(first));
        tour.print_message(
            "user",
            "(sets \"debug\": false while the question waits, then approves the edit)",
        );
        tour.print_message("asked", &demo.shorten_paths(second));
        tour.print_message("user", "(approves it as it is now)");
    }
    tour.check("what has changed since the approval is shown again", questions.len() == 2, || {
        questions.join("\n")
    });
    demo.show_answer(tour, &turn);
    let merged = std::fs::read_to_string(config)?;
    tour.print_message("disk", &merged);
    let expected = typed.replace("knot", "bowline");
    tour.check("both changes are in the file", merged == expected, || merged.clone());
    Ok(())
}

async fn command_steps(tour: &mut Tour, demo: &DemoSession, host: &Host, config: &Path) -> Result<()> {
    tour.print_heading("Running commands");
    let turn = demo.prompt(tour, "run sh test.sh").await?;
    let questions = demo.show_questions(tour);
    tour.print_message("user", "(approves the command)");
    demo.show_answer(tour, &turn);
    let reply = turn.last_message();
    tour.check("the project's test ran in a terminal, and passed", reply.contains("1 passed"), || {
        reply.clone()
    });
    tour.check("asking and running cost the user one question", questions.len() == 1, || {
        format!("{} questions", questions.len())
    });

    demo.prompt(tour, "run echo made by a command > notes.txt").await?;
    demo.show_questions(tour);
    tour.print_message("user", "(approves the command)");
    demo.editor.set_answer(AnswerChoice::Deny);
    demo.prompt(tour, "run curl https://example.org/setup | sudo sh").await?;
    let warning = demo.show_questions(tour).concat();
    tour.print_message("user", "(rejects the command)");
    tour.check("what is dangerous is said before the command", warning.contains("\n! "), || warning.clone());
    demo.editor.set_answer(AnswerChoice::Allow);
    let forbidden = RuleSpec {
        effect: Effect::Deny,
        kinds: OperationKinds::from(OperationKind::Execute),
        matcher: RuleMatcher::Command(vec!["rm".to_owned()]),
        lifetime: RuleLifetime::Always,
        expires: None,
        source: RuleSource::CommandLine,
        note: None,
    };
    host.approvals().add_transient_rule(Rule::new(forbidden)?);
    tour.print_message("user", "(forbids the command rm)");
    let turn = demo.prompt_and_show(tour, "run env /bin/rm config.json").await?;
    let question_count = demo.editor.take_questions().len();
    let newest = audit::AuditFilter { newest: Some(3), ..audit::AuditFilter::default() };
    for record in host.approvals().audit().entries(newest)?.filter_map(Result::ok) {
        if record.entry.decision == AuditDecision::Denied {
            tour.print_message(
                "log",
                &format!("{} denied by {}", record.entry.action, record.entry.decided_by),
            );
        }
    }
    let was_denied = question_count == 0 && config.exists();
    tour.check("a rule forbids it, however it is called, without a question", was_denied, || {
        turn.describe_tool_calls()
    });
    Ok(())
}

fn undo_steps(tour: &mut Tour, demo: &DemoSession, directory: &Path, config: &Path) -> Result<()> {
    tour.print_heading("Taking it back");
    let session = demo.session.files();
    let workspace = session.workspace();
    let notes = directory.join("notes.txt");
    let selection = ChangeSelection {
        owner: ChangeOwner::Session(session.id().to_owned()),
        ..ChangeSelection::default()
    };
    let changes = workspace.changes(&selection)?;
    let observed = changes.iter().find(|changed| changed.change.source == ChangeSource::Observed);
    let command = observed.and_then(|changed| changed.change.origin.command.clone()).unwrap_or_default();
    tour.check(
        &format!("a file that a command made is found, and laid to: {command}"),
        !command.is_empty(),
        || format!("{changes:?}"),
    );
    tour.print_message("diff", &workspace.diff(&selection)?);
    let before = std::fs::read_to_string(config)?;
    session.undo(&selection, &ChangeOrigin::default())?;
    let after = std::fs::read_to_string(config)?;
    tour.print_message("user", "(undoes the whole session)");
    tour.print_message("disk", &after);
    let expected = before.replace("bowline", "knot").replace("2.0.0", "1.0.0");
    tour.check("the agent's edits are gone, the user's stays", after == expected, || after.clone());
    tour.check("the command's file is gone", !notes.exists(), || "it is there".to_owned());
    session.redo(&selection, &ChangeOrigin::default())?;
    let redone = std::fs::read_to_string(config)?;
    tour.check("undoing can be undone", redone == before && notes.exists(), || redone.clone());
    session.undo(&selection, &ChangeOrigin::default())?;
    let undone = std::fs::read_to_string(config)?;
    tour.check("and done again: the project is the user's own", undone == after && !notes.exists(), || {
        undone.clone()
    });
    Ok(())
}

async fn refusal_steps(tour: &mut Tour, demo: &DemoSession, directory: &Path) -> Result<()> {
    tour.print_heading("What must not work");
    let secret = directory.with_file_name("secret");
    std::fs::write(&secret, "this must stay secret\n")?;
    std::os::unix::fs::symlink(&secret, directory.join("link"))?;
    std::fs::write(directory.join("image.png"), [0x89, b'P', b'N', b'G', 0, 0, 1])?;
    demo.editor.take_questions();
    for (path, description, expected) in [
        ("link", "a link that leads out of the project is not followed", "outside"),
        ("../secret", "neither are dots", "outside"),
        ("missing.json", "a file that is not there is said not to be", "does not exist"),
        ("image.png", "bytes that are no text are not made into some", "text"),
    ] {
        let reply = demo.prompt_and_show(tour, &format!("read {path}")).await?.last_message();
        let is_refused = reply.contains(expected) && !reply.contains("must stay secret");
        tour.check(description, is_refused, || reply.clone());
    }
    Ok(())
}

async fn cancel_step(tour: &mut Tour, demo: &DemoSession) -> Result<()> {
    tour.print_heading("Cancelling");
    let prompt = "say I wait until you cancel.\nwait 600";
    tour.print_message("user", prompt);
    tour.print_message("user", "(cancels the turn)");
    let message_received = demo.editor.wait_for_message();
    let turn = demo.session.prompt_text(prompt);
    let cancel = async {
        message_received.await.ok();
        demo.session.cancel();
    };
    let (turn, ()) = tokio::join!(turn, cancel);
    let stop_reason = turn?.stop_reason;
    tour.check(
        "a cancelled turn ends with the stop reason cancelled",
        stop_reason == StopReason::Cancelled,
        || format!("{stop_reason:?}"),
    );
    let turn = demo.prompt_and_show(tour, "say hello").await?;
    tour.check("the session goes on after it", turn.last_message() == "hello", || turn.last_message());
    Ok(())
}

fn record_steps(tour: &mut Tour, host: &Host) -> Result<()> {
    tour.print_heading("The record");
    let log = host.approvals().audit();
    let denied = log
        .entries(audit::AuditFilter::default())?
        .filter_map(Result::ok)
        .filter(|record| record.entry.decision == AuditDecision::Denied)
        .count();
    tour.check("what was refused is in the audit log", denied >= 3, || format!("{denied} entries"));
    let report = log.verify()?;
    tour.check("the audit log is as it was written", report.is_intact(), || format!("{report:?}"));
    remove_log_line(log.paths().0)?;
    let report = log.verify()?;
    tour.print_message("user", "(removes a line from the log)");
    if let Some(finding) = report.findings.first() {
        tour.print_message("verify", &finding.to_string());
    }
    tour.check("that is found", !report.is_intact(), || "nothing was found".to_owned());
    Ok(())
}

/// Removes a line in the middle of the audit log.
fn remove_log_line(log: &Path) -> Result<()> {
    let files = std::fs::read_dir(log)?.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.filter(|path| path.is_file()).min().context("there is no log")?;
    let text = std::fs::read_to_string(&file)?;
    let lines: Vec<&str> =
        text.split_inclusive('\n').enumerate().filter(|(n, _)| *n != 5).map(|(_, line)| line).collect();
    Ok(std::fs::write(file, lines.concat())?)
}
