//! The real program over real pipes, and a client that knows nothing but JSON.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::programs::program;

pub(crate) use test_support::PATIENCE;

/// A directory with a project in it, and the user's own places beside it.
pub(crate) struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    /// Returns a project with some files in it.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("home")).unwrap();
        std::fs::create_dir(directory.path().join("project")).unwrap();
        let scene = Self { directory };
        scene.put("a.txt", "one\ntwo\nthree\n");
        scene.put(".env", "SECRET=1\n");
        scene
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.base().join("project").join(name).display().to_string()
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns text in which the directories of this scene have the names that every run has, and times are none.
    pub(crate) fn clean(&self, text: &str) -> String {
        let text =
            text.replace(&self.path(""), "$PROJECT/").replace(&self.base().display().to_string(), "$BASE");
        let mut clean = String::new();
        let mut rest = text.as_str();
        // How long a command took is told as `, 0.1 s]`.
        while let Some(end) = rest.find(" s]") {
            let start = rest[..end].rfind(", ").unwrap_or(end);
            clean.push_str(&rest[..start]);
            clean.push_str(", T s]");
            rest = &rest[end + 3..];
        }
        clean + rest
    }

    /// Returns the words that start `bowline mcp` for the project.
    pub(crate) fn words(&self, arguments: &[&str]) -> Vec<String> {
        let program = bowline().display().to_string();
        let cwd = self.path("");
        let own = [program.as_str(), "mcp", "--cwd", &cwd];
        own.iter().chain(arguments).map(|word| (*word).to_owned()).collect()
    }

    /// Returns a command with the scene's own environment.
    pub(crate) fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").env_clear().kill_on_drop(true);
        command.env("HOME", self.base().join("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    /// Starts the server, and says hello.
    pub(crate) async fn start(&self, arguments: &[&str]) -> Program {
        let mut program = self.start_silent(arguments);
        program.hello().await;
        program
    }

    pub(crate) fn start_silent(&self, arguments: &[&str]) -> Program {
        let mut command = self.command(&self.words(arguments));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Program { stdin: child.stdin.take(), lines, child, next: 0, notifications: Vec::new() }
    }

    /// Starts the server at a port, and returns it with its URL and its token.
    pub(crate) async fn listen(&self, arguments: &[&str]) -> Listening {
        let words = self.words(&[&["--listen", "127.0.0.1:0"], arguments].concat());
        let mut command = self.command(&words);
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut line = async || timeout(PATIENCE, stderr.next_line()).await.unwrap().unwrap().unwrap();
        let (first, second) = (line().await, line().await);
        let url = first.rsplit(' ').next().unwrap().to_owned();
        let token = second.rsplit(' ').next().unwrap().trim_end_matches('`').to_owned();
        Listening { child, url, token, _stderr: stderr }
    }
}

pub(crate) fn bowline() -> PathBuf {
    static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PROGRAM.get_or_init(|| program("bowline", &["build", "--quiet", "--package", "bowline-cli"])).clone()
}

/// A server at a port.
pub(crate) struct Listening {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) token: String,
    _stderr: Lines<BufReader<ChildStderr>>,
}

/// A running server, and its client.
pub(crate) struct Program {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    next: i64,
    /// What came that is no answer.
    pub(crate) notifications: Vec<Value>,
}

impl Program {
    /// Begins the session.
    pub(crate) async fn hello(&mut self) {
        self.hello_with(json!({})).await;
    }

    /// Begins the session of a client that can do these things.
    pub(crate) async fn hello_with(&mut self, capabilities: Value) {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let id = self.request("initialize", hello).await;
        assert_eq!(self.answer(id).await["result"]["serverInfo"]["name"], "bowline");
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
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params })).await;
        self.next
    }

    /// Returns the next message, or nothing at the end.
    pub(crate) async fn line(&mut self) -> Option<Value> {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("the server hangs");
        Some(serde_json::from_str(&line.unwrap()?).expect("every line is JSON"))
    }

    /// Waits for the answer to a request.
    pub(crate) async fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.line().await.expect("an answer");
            if message["id"] == id {
                return message;
            }
            self.notifications.push(message);
        }
    }

    /// Calls a tool, and returns what a model reads; `! ` is before what failed.
    pub(crate) async fn call(&mut self, name: &str, arguments: Value) -> String {
        let id = self.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
        said(&self.answer(id).await)
    }

    /// Ends the client's side, and returns how the server ends.
    pub(crate) async fn end(mut self) -> Option<i32> {
        drop(self.stdin.take());
        timeout(PATIENCE, self.child.wait()).await.expect("the server does not end").unwrap().code()
    }
}

/// Returns an answer to a call as a model reads it.
pub(crate) fn said(answer: &Value) -> String {
    if let Some(error) = answer.get("error") {
        return format!("!! {} {}", error["code"], error["message"].as_str().unwrap_or_default());
    }
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    if answer["result"]["isError"] == true { format!("! {text}") } else { text.to_owned() }
}

/// A named pipe that a command holds open: when the last process of it is gone, reading ends.
pub(crate) struct Life {
    pub(crate) path: String,
    reader: pipe::Receiver,
}

impl Life {
    pub(crate) fn new(scene: &Scene) -> Self {
        let path = scene.path("life");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Opened for both, so that there is a reader before there is a writer.
        let reader = pipe::OpenOptions::new().open_receiver(&path).unwrap();
        Self { path, reader }
    }

    /// Returns a shell line that says that it lives, and lives until it is killed.
    pub(crate) fn line(&self) -> String {
        format!("exec 3>{}; echo alive >&3; sleep 1000 & sleep 1000", self.path)
    }

    /// Waits until the command runs.
    pub(crate) async fn begun(&mut self) {
        let mut bytes = [0; 6];
        let reading = async {
            loop {
                self.reader.readable().await.unwrap();
                match self.reader.try_read(&mut bytes) {
                    Ok(6) => return,
                    // Nobody has opened it yet.
                    Ok(_) => tokio::task::yield_now().await,
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
        };
        timeout(PATIENCE, reading).await.expect("the command does not begin");
    }

    /// Waits until nothing of the command runs.
    pub(crate) async fn ended(mut self) {
        let mut rest = Vec::new();
        timeout(PATIENCE, self.reader.read_to_end(&mut rest)).await.expect("the command still runs").unwrap();
    }
}
