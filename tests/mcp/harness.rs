//! A harness that runs the real program over real pipes, with a client that knows only JSON.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use test_support::wait::wait_until_async;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::programs::build_program;

pub(crate) use test_support::TEST_TIMEOUT;

/// A directory with a project and the user's home.
pub(crate) struct McpTestProject {
    directory: tempfile::TempDir,
}

impl McpTestProject {
    /// Creates a project with some files in it.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("home")).unwrap();
        std::fs::create_dir(directory.path().join("project")).unwrap();
        let scene = Self { directory };
        scene.write_file("a.txt", "one\ntwo\nthree\n");
        scene.write_file(".env", "SECRET=1\n");
        scene
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.base().join("project").join(name).display().to_string()
    }

    pub(crate) fn write_file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Replaces the project's directories and all durations in a text by fixed placeholders.
    pub(crate) fn normalize(&self, text: &str) -> String {
        let text =
            text.replace(&self.path(""), "$PROJECT/").replace(&self.base().display().to_string(), "$BASE");
        let mut clean = String::new();
        let mut rest = text.as_str();
        // The duration of a command is printed as `, 0.1 s]`.
        while let Some(end) = rest.find(" s]") {
            let start = rest[..end].rfind(", ").unwrap_or(end);
            clean.push_str(&rest[..start]);
            clean.push_str(", T s]");
            rest = &rest[end + 3..];
        }
        clean + rest
    }

    /// Returns the command line that starts `bowline mcp` for the project.
    pub(crate) fn command_words(&self, arguments: &[&str]) -> Vec<String> {
        let program = bowline().display().to_string();
        let cwd = self.path("");
        let own = [program.as_str(), "mcp", "--cwd", &cwd];
        own.iter().chain(arguments).map(|word| (*word).to_owned()).collect()
    }

    /// Returns a command with the project's environment.
    pub(crate) fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").env_clear().kill_on_drop(true);
        command.env("HOME", self.base().join("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    /// Starts the server, and initialises the session.
    pub(crate) async fn start(&self, arguments: &[&str]) -> McpProgram {
        let mut program = self.start_uninitialized(arguments);
        program.initialize().await;
        program
    }

    pub(crate) fn start_uninitialized(&self, arguments: &[&str]) -> McpProgram {
        let mut command = self.command(&self.command_words(arguments));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        McpProgram { stdin: child.stdin.take(), lines, child, next_id: 0, notifications: Vec::new() }
    }

    /// Starts the server on a port, and returns it with its URL and its token.
    pub(crate) async fn start_http(&self, arguments: &[&str]) -> HttpProgram {
        let words = self.command_words(&[&["--listen", "127.0.0.1:0"], arguments].concat());
        let mut command = self.command(&words);
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut line = async || timeout(TEST_TIMEOUT, stderr.next_line()).await.unwrap().unwrap().unwrap();
        let (first, second) = (line().await, line().await);
        let url = first.rsplit(' ').next().unwrap().to_owned();
        let token = second.rsplit(' ').next().unwrap().trim_end_matches('`').to_owned();
        HttpProgram { child, url, token, _stderr: stderr }
    }
}

pub(crate) fn bowline() -> PathBuf {
    static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PROGRAM
        .get_or_init(|| build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]))
        .clone()
}

/// A server on a port.
pub(crate) struct HttpProgram {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) token: String,
    _stderr: Lines<BufReader<ChildStderr>>,
}

/// A running server, and its client.
pub(crate) struct McpProgram {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    next_id: i64,
    /// The messages received that are not answers.
    pub(crate) notifications: Vec<Value>,
}

impl McpProgram {
    /// Initialises the session.
    pub(crate) async fn initialize(&mut self) {
        self.initialize_with(json!({})).await;
    }

    /// Initialises the session of a client with these capabilities.
    pub(crate) async fn initialize_with(&mut self, capabilities: Value) {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let id = self.request("initialize", hello).await;
        assert_eq!(self.wait_for_answer(id).await["result"]["serverInfo"]["name"], "bowline");
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_bytes(format!("{message}\n").as_bytes()).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).await.unwrap();
        stdin.flush().await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params })).await;
        self.next_id
    }

    /// Returns the next message, or `None` at the end.
    pub(crate) async fn next_message(&mut self) -> Option<Value> {
        let line = timeout(TEST_TIMEOUT, self.lines.next_line()).await.expect("the server hangs");
        Some(serde_json::from_str(&line.unwrap()?).expect("every line is JSON"))
    }

    /// Waits for the answer to a request.
    pub(crate) async fn wait_for_answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.next_message().await.expect("an answer");
            if message["id"] == id {
                return message;
            }
            self.notifications.push(message);
        }
    }

    /// Calls a tool, and returns the text for the model; `! ` precedes a failure.
    pub(crate) async fn call_tool(&mut self, name: &str, arguments: Value) -> String {
        let id = self.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
        describe_answer(&self.wait_for_answer(id).await)
    }

    /// Closes the client's side, and returns the server's exit code.
    pub(crate) async fn close(mut self) -> Option<i32> {
        drop(self.stdin.take());
        timeout(TEST_TIMEOUT, self.child.wait()).await.expect("the server does not end").unwrap().code()
    }
}

/// Returns the answer to a call as a model reads it.
pub(crate) fn describe_answer(answer: &Value) -> String {
    if let Some(error) = answer.get("error") {
        return format!("!! {} {}", error["code"], error["message"].as_str().unwrap_or_default());
    }
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    if answer["result"]["isError"] == true { format!("! {text}") } else { text.to_owned() }
}

/// A named pipe that a command holds open: reading ends when the last process of the command has ended.
pub(crate) struct LivenessPipe {
    pub(crate) path: String,
    reader: pipe::Receiver,
}

impl LivenessPipe {
    pub(crate) fn new(scene: &McpTestProject) -> Self {
        let path = scene.path("life");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Opened before any writer, so that the command does not block.
        let reader = pipe::OpenOptions::new().open_receiver(&path).unwrap();
        Self { path, reader }
    }

    /// Returns a shell command that signals its start, and runs until it is killed.
    pub(crate) fn shell_line(&self) -> String {
        format!("exec 3>{}; echo alive >&3; sleep 1000 & sleep 1000", self.path)
    }

    /// Waits until the command runs.
    pub(crate) async fn wait_until_started(&mut self) {
        let mut bytes = [0; 6];
        let has_started = || match self.reader.try_read(&mut bytes) {
            // There are no bytes if no writer has opened it yet.
            Ok(count) => count == 6,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                false
            }
        };
        wait_until_async("the command's start", has_started).await;
    }

    /// Waits until all processes of the command have ended.
    pub(crate) async fn wait_until_ended(mut self) {
        let mut rest = Vec::new();
        timeout(TEST_TIMEOUT, self.reader.read_to_end(&mut rest))
            .await
            .expect("the command still runs")
            .unwrap();
    }
}
