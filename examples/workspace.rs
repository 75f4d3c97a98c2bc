//! The workspace on its own: a user and an agent change the same file, both changes survive, and the agent's is undone.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use bowline_workspace::history::changes::ChangeOrigin;
use bowline_workspace::history::undo::{ChangeOwner, ChangeSelection};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::text::lines::LineWindow;
use bowline_workspace::workspace::{Workspace, WorkspaceOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let project = scratch.path().join("project");
    std::fs::create_dir(&project)?;
    let file = project.join("knots.txt").display().to_string();
    std::fs::write(&file, "bowline\r\nclove hitch\r\nsheet bend\r\n")?;

    // A workspace confines file access to its roots and keeps its journal in a separate directory.
    let roots = Roots::open(&RootSpec::writable(project.display().to_string()), &[])?;
    let opened = Workspace::open(roots, &scratch.path().join("journal"), WorkspaceOptions::default())?;
    let workspace = opened.workspace;
    let agent = workspace.session("agent");

    let read = agent.read(&file, LineWindow::default())?;
    println!("the agent read {:?}", read.text);

    let document = workspace.open_document(&file)?;
    workspace.change_document(&file, document.text.replace("sheet bend", "reef knot"), document.revision)?;
    println!("the user typed, and did not save");

    let written = agent.write(&file, "BOWLINE\nclove hitch\nsheet bend\n", &agent.origin(Some(1), None))?;
    println!("the agent wrote: {:?}, the file has {:?}", written.verdict, written.text);

    let turn = ChangeSelection {
        owner: ChangeOwner::Turn { session: "agent".to_owned(), turn: 1 },
        ..ChangeSelection::default()
    };
    print!("{}", workspace.diff(&turn)?);
    agent.undo(&turn, &ChangeOrigin::default())?;
    println!("undone, the file has {:?}", std::fs::read_to_string(&file)?);
    Ok(())
}
