//! A project in which commands run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bowline_protocol::schema::v1::TerminalId;
use bowline_protocol::terminal::CommandExit;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::{
    CommandRequest, LocalTerminals, OutputEvent, SupervisorProgram, TerminalBackend as _, TerminalError,
    TerminalOptions, TerminalSnapshot,
};
use bowline_workspace::workspace::{self, Workspace};
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// The timeout of every wait.
pub(crate) const MAX_WAIT: Duration = test_support::TEST_TIMEOUT;

pub(crate) struct TerminalFixture {
    pub(crate) root: PathBuf,
    pub(crate) terminals: LocalTerminals,
    _scratch: TempDir,
}

impl TerminalFixture {
    pub(crate) fn new() -> Self {
        Self::with_options(|_| {})
    }

    pub(crate) fn with_options(change: impl FnOnce(&mut TerminalOptions)) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
        let state = scratch.path().join("state");
        let workspace =
            Workspace::open(roots, &state, workspace::WorkspaceOptions::default()).unwrap().workspace;
        let mut settings = TerminalOptions::new(supervisor_program());
        settings.inherited_env = BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), root.to_str().unwrap().to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("OPENAI_API_KEY".to_owned(), "secret".to_owned()),
        ]);
        settings.grace_period = Duration::from_millis(300);
        settings.temp_directory = scratch.path().to_owned();
        change(&mut settings);
        let terminals = LocalTerminals::new(workspace.session("s1"), settings);
        Self { root, terminals, _scratch: scratch }
    }

    pub(crate) async fn start(&self, line: &str) -> TerminalId {
        self.terminals.create(shell_request(line)).await.unwrap()
    }

    /// Runs a shell line to completion.
    pub(crate) async fn run(&self, line: &str) -> TerminalSnapshot {
        self.run_request(shell_request(line)).await
    }

    pub(crate) async fn run_request(&self, asked: CommandRequest) -> TerminalSnapshot {
        let id = self.terminals.create(asked).await.unwrap();
        let exit = self.wait(&id).await;
        let shown = self.terminals.output(&id).await.unwrap();
        assert_eq!(shown.exit, Some(exit));
        self.terminals.release(&id).await.unwrap();
        shown
    }

    pub(crate) async fn wait(&self, id: &TerminalId) -> CommandExit {
        timeout(MAX_WAIT, self.terminals.wait(id)).await.expect("the command ends").unwrap()
    }

    /// Waits until the output contains a text.
    pub(crate) async fn wait_for_output(&self, id: &TerminalId, text: &str) -> TerminalSnapshot {
        let mut watcher = self.terminals.subscribe(id).await.unwrap();
        let seen = async {
            loop {
                let shown = self.terminals.output(id).await.unwrap();
                if shown.text.contains(text) {
                    return shown;
                }
                match watcher.next().await {
                    Some(OutputEvent::Bytes(_) | OutputEvent::Skipped(_)) => {}
                    None => panic!("the output ended without {text:?}: {shown:?}"),
                }
            }
        };
        timeout(MAX_WAIT, seen).await.expect("the output comes")
    }

    /// Creates a pipe that shows whether any process that opened it is still running.
    pub(crate) fn create_process_pipe(&self, name: &str) -> ProcessPipe {
        let path = self.root.join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        ProcessPipe(pipe::OpenOptions::new().open_receiver(&path).unwrap())
    }

    /// Writes the name of a pipe into it, for its reader.
    pub(crate) async fn write_to_pipe(&self, name: &str) {
        let (path, line) = (self.root.join(name), format!("{name}\n"));
        tokio::task::spawn_blocking(move || fs::write(path, line).unwrap()).await.unwrap();
    }

    pub(crate) async fn start_error(&self, asked: CommandRequest) -> String {
        match self.terminals.prepare(asked) {
            Ok(prepared) => self.terminals.start(prepared).await.unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
        .replace(self.root.to_str().unwrap(), "$ROOT")
    }
}

/// A pipe that processes hold open as long as they run.
pub(crate) struct ProcessPipe(pipe::Receiver);

impl ProcessPipe {
    /// Waits until no process holds the pipe open, and returns what was written to it. At least one must have opened
    /// it.
    pub(crate) async fn wait_until_closed(mut self) -> String {
        let mut text = String::new();
        timeout(MAX_WAIT, self.0.read_to_string(&mut text)).await.expect("all processes end").unwrap();
        text
    }
}

pub(crate) fn supervisor_program() -> SupervisorProgram {
    SupervisorProgram { program: PathBuf::from(env!("CARGO_BIN_EXE_terminal-supervisor")), args: Vec::new() }
}

pub(crate) fn shell_request(line: &str) -> CommandRequest {
    // The space makes it a shell line even if it is a single word.
    CommandRequest { command: format!("{line} "), ..CommandRequest::default() }
}

pub(crate) fn argv_request(words: &[&str]) -> CommandRequest {
    let (command, args) = words.split_first().unwrap();
    let args = args.iter().map(|word| (*word).to_owned()).collect();
    CommandRequest { command: (*command).to_owned(), args, ..CommandRequest::default() }
}

pub(crate) fn exit_code(code: i32) -> Option<CommandExit> {
    Some(CommandExit::Code(code))
}

pub(crate) fn exit_signal(name: &str) -> Option<CommandExit> {
    Some(CommandExit::Signal(name.to_owned()))
}

/// Returns whether the error is an unknown terminal.
pub(crate) fn is_unknown_terminal<T>(answer: Result<T, TerminalError>) -> bool {
    matches!(answer, Err(TerminalError::UnknownTerminal(_)))
}
