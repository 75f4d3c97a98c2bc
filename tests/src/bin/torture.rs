//! The program behind `cargo xtask torture`: all of its roles, with the engine linked in.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use bowline_workspace::error::FilesError;
use bowline_workspace::history::ledger::WriteVerdict;
use bowline_workspace::roots::{AdmitError, RootSpec, Roots};
use bowline_workspace::text::lines::LineWindow;
use bowline_workspace::workspace::{Workspace, WorkspaceOptions, WorkspaceSession};
use xtask::torture::{
    AgentFiles, ReadOutcome, TortureAgent, TortureAgentOptions, WriteOutcome, torture_main,
};

fn main() -> ExitCode {
    torture_main(work_on_engine)
}

/// Works on the engine for one turn, with the journal that `bowline` uses for the same project and home.
fn work_on_engine(plan: &TortureAgentOptions) -> anyhow::Result<()> {
    let roots = Roots::open(&RootSpec::writable(plan.project.to_string_lossy()), &[])?;
    let home = std::env::var_os("HOME").unwrap_or_default();
    let journal = Workspace::journal_directory(&Path::new(&home).join(".local/state/bowline"), &roots);
    let opened = Workspace::open(roots, &journal, WorkspaceOptions::default())?;
    let session = opened.workspace.session(&format!("engine-{}", std::process::id()));
    let mut agent = TortureAgent::new(plan)?;
    agent.work(&mut EngineFiles(session))?;
    Ok(())
}

struct EngineFiles(WorkspaceSession);

impl AgentFiles for EngineFiles {
    fn read(&mut self, path: &Path) -> io::Result<ReadOutcome> {
        Ok(match self.0.read(&path.to_string_lossy(), LineWindow::default()) {
            Ok(read) => ReadOutcome::Text(read.text.to_string()),
            Err(FilesError::NotAdmitted(AdmitError::NotFound(_))) => ReadOutcome::Missing,
            Err(error) => ReadOutcome::Refused(error.to_string()),
        })
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<WriteOutcome> {
        let origin = self.0.origin(Some(1), None);
        Ok(match self.0.write(&path.to_string_lossy(), text, &origin) {
            Ok(written) if written.verdict == Some(WriteVerdict::Merged) => WriteOutcome::Merged,
            Ok(_) => WriteOutcome::Written,
            Err(error) => WriteOutcome::Refused(error.to_string()),
        })
    }
}
