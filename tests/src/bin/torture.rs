//! The parts that `cargo xtask torture` plays, in one program, with the engine that it is played against.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use bowline_workspace::error::FilesError;
use bowline_workspace::roots::{Denied, RootSpec, Roots};
use bowline_workspace::state::ledger::Verdict;
use bowline_workspace::state::lines::Window;
use bowline_workspace::workspace::{Session, Settings, Workspace};
use xtask::torture::{Agent, AgentPlan, Files, ReadOutcome, WriteOutcome, play_part};

fn main() -> ExitCode {
    play_part(work_on_engine)
}

/// Works for one turn on the engine, with the journal that `bowline` has for the same project and home.
fn work_on_engine(plan: &AgentPlan) -> anyhow::Result<()> {
    let roots = Roots::open(&RootSpec::writable(plan.project.to_string_lossy()), &[])?;
    let home = std::env::var_os("HOME").unwrap_or_default();
    let journal = Workspace::journal_directory(&Path::new(&home).join(".local/state/bowline"), &roots);
    let opened = Workspace::open(roots, &journal, Settings::default())?;
    let session = opened.workspace.session(&format!("engine-{}", std::process::id()));
    let mut agent = Agent::new(plan)?;
    agent.work(&mut Engine(session))?;
    Ok(())
}

struct Engine(Session);

impl Files for Engine {
    fn read(&mut self, path: &Path) -> io::Result<ReadOutcome> {
        Ok(match self.0.read(&path.to_string_lossy(), Window::default()) {
            Ok(read) => ReadOutcome::Text(read.text.to_string()),
            Err(FilesError::Denied(Denied::NotFound(_))) => ReadOutcome::Missing,
            Err(error) => ReadOutcome::Refused(error.to_string()),
        })
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<WriteOutcome> {
        let origin = self.0.origin(Some(1), None);
        Ok(match self.0.write(&path.to_string_lossy(), text, &origin) {
            Ok(written) if written.verdict == Some(Verdict::Merged) => WriteOutcome::Merged,
            Ok(_) => WriteOutcome::Written,
            Err(error) => WriteOutcome::Refused(error.to_string()),
        })
    }
}
