//! An editor that embeds the host: its document has unsaved text, its user is asked, and what the agent did is undone.
//!
//! `cargo run --package bowline-host --example embed_host -- AGENT [ARGUMENT…]`, and answer `y`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use bowline_host::state::undo::Selection;
use bowline_host::workspace::terminals::{self, Supervisor, supervisor};
use bowline_host::{
    BoxFuture, Event, FrontEnd, Host, Person, Places, Question, Reply, SessionOptions, Settings,
};

struct Editor;

impl Person for Editor {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        print!("{}", question.text());
        Box::pin(async {
            let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await;
            match line {
                Ok(Some(Ok(line))) if line == "y" => Reply::allow(),
                Ok(Some(Ok(_))) => Reply::deny(),
                _ => Reply::Nobody,
            }
        })
    }
}

impl FrontEnd for Editor {
    fn show(&self, event: Event<'_>) {
        if let Event::Written { verdict: Some(verdict), .. } = event {
            println!("the agent wrote: {verdict:?}");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn edit(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let mut agent = tokio::process::Command::new(arguments.next().ok_or("usage: embed_host AGENT")?);
    agent.args(arguments);
    let scratch = tempfile::tempdir()?;
    let project = scratch.path().join("project");
    std::fs::create_dir(&project)?;
    let file = project.join("config.json").display().to_string();
    std::fs::write(&file, "{ \"version\": \"1.0.0\" }\n")?;

    // Commands of agents run below this very program, started again.
    let supervisor = Supervisor::new(std::env::current_exe()?, ["supervise"]);
    let settings = Settings::new(terminals::Settings::inheriting(supervisor, std::env::vars_os()));
    let host = Host::open(&project, &Places::below(scratch.path()), Arc::new(Editor), settings)?;
    let shown = host.workspace().open_document(&file)?;
    host.workspace().change_document(&file, format!("// typed\n{}", shown.text), shown.revision)?;

    let connection = host.spawn(agent).await?;
    let session = connection.new_session(SessionOptions::default()).await?;
    let end = session.prompt_text(&file).await?;
    let turn = Selection::turn(session.name(), end.turn);
    print!("{:?}\n{}", end.stop, host.workspace().diff(&turn)?);
    host.workspace().undo(&turn)?;
    println!("undone, the editor shows {:?}", host.workspace().document(&file)?.map(|shown| shown.text));
    connection.shutdown(Default::default()).await;
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("supervise").is_some() {
        return Ok(supervisor::main(std::env::args_os()));
    }
    edit(arguments)?;
    Ok(ExitCode::SUCCESS)
}
