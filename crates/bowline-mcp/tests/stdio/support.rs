//! Server specifications for tests, and descriptions of their outcomes.

use std::time::Duration;

use bowline_mcp::client::{McpClientOptions, McpError, McpServers, ServerSpec, ServerState, TransportSpec};
use bowline_tools::mcp_tools::McpCallOutput;
use bowline_workspace::terminals::{SupervisorProgram, TerminalOptions};
use serde_json::{Map, Value};
use test_support::wait::wait_for_async;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

const PEER: &str = env!("CARGO_BIN_EXE_mcp-peer");

pub(crate) fn client_options() -> McpClientOptions {
    let supervisor = SupervisorProgram::new(PEER, ["supervise"]);
    let grace_period = Duration::from_millis(300);
    McpClientOptions {
        grace_period,
        ..McpClientOptions::from_terminal_options(&TerminalOptions::new(supervisor), std::env::temp_dir())
    }
}

/// Returns the specification of a server that is the test program.
pub(crate) fn peer_spec(name: &str, options: &[&str]) -> ServerSpec {
    let args = ["serve"].iter().chain(options).map(|option| (*option).to_owned()).collect();
    program_spec(name, PEER, args)
}

pub(crate) fn program_spec(name: &str, command: &str, args: Vec<String>) -> ServerSpec {
    let env = vec![("TOKEN".to_owned(), "abc".to_owned())];
    ServerSpec {
        name: name.to_owned(),
        transport: TransportSpec::Stdio { command: command.to_owned(), args, env, cwd: None },
    }
}

pub(crate) async fn connect(specs: Vec<ServerSpec>, settings: McpClientOptions) -> McpServers {
    let servers = McpServers::connect(specs, settings);
    servers.wait_until_ready(Duration::from_secs(20)).await;
    servers
}

pub(crate) async fn call(
    servers: &McpServers,
    name: &str,
    arguments: Value,
) -> Result<McpCallOutput, McpError> {
    servers.call(name, object(arguments), drop).await
}

pub(crate) fn object(arguments: Value) -> Map<String, Value> {
    arguments.as_object().cloned().unwrap_or_default()
}

/// Describes the outcome of a call.
pub(crate) fn describe_call(outcome: Result<McpCallOutput, McpError>) -> String {
    match outcome {
        Ok(output) => output.text,
        Err(error) => format!("! {error}"),
    }
}

/// Waits until a server's state matches.
pub(crate) async fn wait_for_state(
    servers: &McpServers,
    name: &str,
    predicate: impl Fn(&ServerState) -> bool,
) -> ServerState {
    let find = || {
        let status = servers.statuses().into_iter().find(|status| status.name == name);
        Some(status.expect("a server of this name").state).filter(&predicate)
    };
    wait_for_async(&format!("another state of server {name}"), find).await
}

/// A socket that the processes of a test connect to while they are alive.
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

    /// Waits for the next process, and returns its name and connection.
    pub(crate) async fn accept(&self) -> (String, LivenessSocket) {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut name = String::new();
        stream.read_line(&mut name).await.unwrap();
        (name.trim().to_owned(), LivenessSocket(stream))
    }
}

/// The connection of a living process.
pub(crate) struct LivenessSocket(BufReader<UnixStream>);

impl LivenessSocket {
    /// Waits until the process is gone.
    pub(crate) async fn wait_until_ended(mut self) {
        let mut byte = [0];
        let end = self.0.read(&mut byte);
        let read = tokio::time::timeout(Duration::from_secs(10), end).await.expect("the process still lives");
        assert_eq!(read.unwrap_or_default(), 0);
    }
}
