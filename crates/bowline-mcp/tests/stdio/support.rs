//! Servers of a test, and what is said of them.

use std::time::{Duration, Instant};

use bowline_mcp::client::{McpError, Reach, ServerSpec, Servers, Settings, State};
use bowline_state::mcp_tools::CallOutput;
use bowline_workspace::terminals::Supervisor;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

const PEER: &str = env!("CARGO_BIN_EXE_mcp-peer");

pub(crate) fn settings() -> Settings {
    let supervisor = Supervisor::new(PEER, ["supervise"]);
    let grace = Duration::from_millis(300);
    Settings { grace, ..Settings::new(supervisor, std::env::temp_dir()) }
}

/// Returns a server that is the test's own program.
pub(crate) fn peer(name: &str, options: &[&str]) -> ServerSpec {
    let args = ["serve"].iter().chain(options).map(|option| (*option).to_owned()).collect();
    program(name, PEER, args)
}

pub(crate) fn program(name: &str, command: &str, args: Vec<String>) -> ServerSpec {
    let env = vec![("TOKEN".to_owned(), "abc".to_owned())];
    ServerSpec {
        name: name.to_owned(),
        reach: Reach::Stdio { command: command.to_owned(), args, env, cwd: None },
    }
}

pub(crate) async fn connect(specs: Vec<ServerSpec>, settings: Settings) -> Servers {
    let servers = Servers::connect(specs, settings);
    servers.ready(Duration::from_secs(20)).await;
    servers
}

pub(crate) async fn call(servers: &Servers, name: &str, arguments: Value) -> Result<CallOutput, McpError> {
    servers.call(name, object(arguments), drop).await
}

pub(crate) fn object(arguments: Value) -> Map<String, Value> {
    arguments.as_object().cloned().unwrap_or_default()
}

/// Returns what became of a call in words.
pub(crate) fn said(outcome: Result<CallOutput, McpError>) -> String {
    match outcome {
        Ok(output) => output.text,
        Err(error) => format!("! {error}"),
    }
}

/// Waits until a server is in such a state.
pub(crate) async fn until(servers: &Servers, name: &str, wanted: impl Fn(&State) -> bool) -> State {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let state =
            servers.status().into_iter().find(|status| status.name == name).map(|status| status.state);
        let state = state.expect("a server of this name");
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < end, "{name} is still {state:?}");
        tokio::task::yield_now().await;
    }
}

/// Where processes of a test say that they live.
pub(crate) struct Beacon {
    pub(crate) path: String,
    listener: UnixListener,
    _directory: tempfile::TempDir,
}

impl Beacon {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("beacon");
        let listener = UnixListener::bind(&path).unwrap();
        Self { path: path.display().to_string(), listener, _directory: directory }
    }

    /// Waits for the next process, and says which it is.
    pub(crate) async fn next(&self) -> (String, Life) {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut name = String::new();
        stream.read_line(&mut name).await.unwrap();
        (name.trim().to_owned(), Life(stream))
    }
}

/// The life of a process.
pub(crate) struct Life(BufReader<UnixStream>);

impl Life {
    /// Waits until the process is gone.
    pub(crate) async fn ended(mut self) {
        let mut byte = [0];
        let end = self.0.read(&mut byte);
        let read = tokio::time::timeout(Duration::from_secs(10), end).await.expect("the process still lives");
        assert_eq!(read.unwrap_or_default(), 0);
    }
}
