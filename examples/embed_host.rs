//! An editor that embeds the host: it has a document with unsaved text, asks its user, and undoes the agent's turn.
//!
//! Usage: `cargo run --package bowline-host --example embed_host -- AGENT [ARGUMENT…]`; answer `y` to approve.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use bowline_host::history::undo::ChangeSelection;
use bowline_host::workspace::terminals::{self, SupervisorProgram, supervisor};
use bowline_host::{
    Approver, BoxFuture, FrontEnd, Host, HostEvent, HostOptions, HostPaths, Question, QuestionReply,
    SessionOptions,
};

struct ExampleEditor;

impl Approver for ExampleEditor {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        print!("{}", question.to_text());
        Box::pin(async {
            let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await;
            match line {
                Ok(Some(Ok(line))) if line == "y" => QuestionReply::allow(),
                Ok(Some(Ok(_))) => QuestionReply::deny(),
                _ => QuestionReply::NoUser,
            }
        })
    }
}

impl FrontEnd for ExampleEditor {
    fn show(&self, event: HostEvent<'_>) {
        if let HostEvent::FileWritten { verdict: Some(verdict), .. } = event {
            println!("the agent wrote: {verdict:?}");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run_session(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let mut agent = tokio::process::Command::new(arguments.next().ok_or("usage: embed_host AGENT")?);
    agent.args(arguments);
    let scratch = tempfile::tempdir()?;
    let project = scratch.path().join("project");
    std::fs::create_dir(&project)?;
    let file = project.join("config.json").display().to_string();
    std::fs::write(&file, "{ \"version\": \"1.0.0\" }\n")?;

    // The agent's commands run under a supervisor, which is this same executable started with `supervise`.
    let supervisor = SupervisorProgram::new(std::env::current_exe()?, ["supervise"]);
    let options =
        HostOptions::new(terminals::TerminalOptions::with_environment(supervisor, std::env::vars_os()));
    let host =
        Host::open(&project, &HostPaths::in_directory(scratch.path()), Arc::new(ExampleEditor), options)?;
    let document = host.workspace().open_document(&file)?;
    host.workspace().change_document(&file, format!("// typed\n{}", document.text), document.revision)?;

    let connection = host.spawn(agent).await?;
    let session = connection.new_session(SessionOptions::default()).await?;
    let end = session.prompt_text(&file).await?;
    let turn = ChangeSelection::turn(session.name(), end.turn);
    print!("{:?}\n{}", end.stop_reason, host.workspace().diff(&turn)?);
    host.workspace().undo(&turn)?;
    println!(
        "undone, the editor shows {:?}",
        host.workspace().document(&file)?.map(|document| document.text)
    );
    connection.shutdown(Default::default()).await;
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("supervise").is_some() {
        return Ok(supervisor::main(std::env::args_os()));
    }
    run_session(arguments)?;
    Ok(ExitCode::SUCCESS)
}
