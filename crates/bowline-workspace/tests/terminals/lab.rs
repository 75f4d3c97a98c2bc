//! A project in which commands are run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bowline_state::schema::v1::TerminalId;
use bowline_state::terminal::Exit;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::{
    Asked, Live, LocalTerminals, Settings, Shown, Supervisor, TerminalError, Terminals as _,
};
use bowline_workspace::workspace::{self, Workspace};
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// Nothing that is waited for takes longer, unless it is broken.
pub(crate) const LONG: Duration = test_support::PATIENCE;

pub(crate) struct Lab {
    pub(crate) root: PathBuf,
    pub(crate) terminals: LocalTerminals,
    _scratch: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
        let state = scratch.path().join("state");
        let workspace = Workspace::open(roots, &state, workspace::Settings::default()).unwrap().workspace;
        let mut settings = Settings::new(supervisor());
        settings.inherited = BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), root.to_str().unwrap().to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("OPENAI_API_KEY".to_owned(), "secret".to_owned()),
        ]);
        settings.grace = Duration::from_millis(300);
        settings.temporary = scratch.path().to_owned();
        change(&mut settings);
        let terminals = LocalTerminals::new(workspace.session("s1"), settings);
        Self { root, terminals, _scratch: scratch }
    }

    pub(crate) async fn start(&self, line: &str) -> TerminalId {
        self.terminals.create(shell(line)).await.unwrap()
    }

    /// Runs a shell line to its end.
    pub(crate) async fn run(&self, line: &str) -> Shown {
        self.run_asked(shell(line)).await
    }

    pub(crate) async fn run_asked(&self, asked: Asked) -> Shown {
        let id = self.terminals.create(asked).await.unwrap();
        let exit = self.wait(&id).await;
        let shown = self.terminals.output(&id).await.unwrap();
        assert_eq!(shown.exit, Some(exit));
        self.terminals.release(&id).await.unwrap();
        shown
    }

    pub(crate) async fn wait(&self, id: &TerminalId) -> Exit {
        timeout(LONG, self.terminals.wait(id)).await.expect("the command ends").unwrap()
    }

    /// Waits until the output has a text.
    pub(crate) async fn until(&self, id: &TerminalId, text: &str) -> Shown {
        let mut watcher = self.terminals.watch(id).await.unwrap();
        let seen = async {
            loop {
                let shown = self.terminals.output(id).await.unwrap();
                if shown.text.contains(text) {
                    return shown;
                }
                match watcher.next().await {
                    Some(Live::Bytes(_) | Live::Skipped(_)) => {}
                    None => panic!("the output ended without {text:?}: {shown:?}"),
                }
            }
        };
        timeout(LONG, seen).await.expect("the output comes")
    }

    /// Returns a pipe by which it is known whether anybody who opened it still runs.
    pub(crate) fn thread(&self, name: &str) -> Thread {
        let path = self.root.join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        Thread(pipe::OpenOptions::new().open_receiver(&path).unwrap())
    }

    /// Writes the name of a pipe into it, for whoever reads there.
    pub(crate) async fn tell(&self, name: &str) {
        let (path, line) = (self.root.join(name), format!("{name}\n"));
        tokio::task::spawn_blocking(move || fs::write(path, line).unwrap()).await.unwrap();
    }

    pub(crate) async fn refused(&self, asked: Asked) -> String {
        match self.terminals.prepare(asked) {
            Ok(prepared) => self.terminals.start(prepared).await.unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
        .replace(self.root.to_str().unwrap(), "$ROOT")
    }
}

/// A pipe that processes hold open as long as they run.
pub(crate) struct Thread(pipe::Receiver);

impl Thread {
    /// Waits until nobody holds it any more, and returns what was written to it. Somebody has to have opened it.
    pub(crate) async fn ends(mut self) -> String {
        let mut text = String::new();
        timeout(LONG, self.0.read_to_string(&mut text)).await.expect("all processes end").unwrap();
        text
    }
}

pub(crate) fn supervisor() -> Supervisor {
    Supervisor { program: PathBuf::from(env!("CARGO_BIN_EXE_terminal-supervisor")), args: Vec::new() }
}

pub(crate) fn shell(line: &str) -> Asked {
    // Also where a line has one word, it is to be a line.
    Asked { command: format!("{line} "), ..Asked::default() }
}

pub(crate) fn argv(words: &[&str]) -> Asked {
    let (command, args) = words.split_first().unwrap();
    let args = args.iter().map(|word| (*word).to_owned()).collect();
    Asked { command: (*command).to_owned(), args, ..Asked::default() }
}

pub(crate) fn code(code: i32) -> Option<Exit> {
    Some(Exit::Code(code))
}

pub(crate) fn signal(name: &str) -> Option<Exit> {
    Some(Exit::Signal(name.to_owned()))
}

/// Returns whether the id is no terminal's.
pub(crate) fn is_unknown<T>(answer: Result<T, TerminalError>) -> bool {
    matches!(answer, Err(TerminalError::Unknown(_)))
}
