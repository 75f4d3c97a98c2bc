//! The real program over real pipes, and a client that works with plain JSON: it serves what it advertised, and keeps
//! every line.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use test_support::TEST_TIMEOUT;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::programs::build_program;

/// A directory with a project, and the user's own directories next to it.
pub(crate) struct AgentFixture {
    directory: tempfile::TempDir,
}

impl AgentFixture {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("project")).unwrap();
        std::fs::create_dir(directory.path().join("home")).unwrap();
        Self { directory }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("project")
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.project().join(name).display().to_string()
    }

    pub(crate) fn write_file(&self, name: &str, text: &str) {
        let path = self.project().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.project().join(name)).unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("home")
    }

    /// Replaces the fixture's directories by names that are the same in every run.
    pub(crate) fn normalize(&self, text: &str) -> String {
        let base = self.directory.path().canonicalize().unwrap();
        text.replace(&base.join("project").display().to_string(), "$PROJECT")
            .replace(&base.display().to_string(), "$BASE")
    }

    /// Starts `bowline agent` with these arguments, outside of the project.
    pub(crate) fn start_agent(&self, arguments: &[&str]) -> AgentProgram {
        AgentProgram::start(self.agent_command(arguments))
    }

    pub(crate) fn agent_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(bowline_path());
        command.arg("agent").args(arguments).current_dir("/").env_clear();
        command.env("HOME", self.home()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }
}

pub(crate) fn bowline_path() -> PathBuf {
    static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PROGRAM
        .get_or_init(|| build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]))
        .clone()
}

/// The client's answer to permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermissionReply {
    /// The option of this kind.
    Kind(&'static str),
    /// The turn was cancelled.
    Cancelled,
    /// An option that was not offered.
    Unknown,
    /// No answer.
    Never,
}

/// A running program, and its client.
pub(crate) struct AgentProgram {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    next_id: i64,
    /// Received messages that were not handled yet.
    pending: VecDeque<Value>,
    /// All received messages, in order.
    pub(crate) messages: Vec<Value>,
    pub(crate) permission_reply: PermissionReply,
    /// The editor's text of unsaved files.
    pub(crate) unsaved_files: HashMap<String, String>,
    /// Unreleased terminals, with the command and whether it has ended.
    pub(crate) terminals: HashMap<String, String>,
    /// Whether commands in terminals never end.
    pub(crate) has_endless_commands: bool,
    pending_exits: Vec<(Value, String)>,
    /// Produces the client's messages as an MCP server, from a request's id and params.
    pub(crate) mcp_responder: Option<McpResponder>,
}

/// Answers as an MCP server.
pub(crate) type McpResponder = Box<dyn Fn(&Value, &Value) -> Vec<Value> + Send>;

impl AgentProgram {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Self {
            child,
            stdin,
            lines,
            next_id: 0,
            pending: VecDeque::new(),
            messages: Vec::new(),
            permission_reply: PermissionReply::Kind("allow_once"),
            unsaved_files: HashMap::new(),
            terminals: HashMap::new(),
            has_endless_commands: false,
            pending_exits: Vec::new(),
            mcp_responder: None,
        }
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
        let message = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        self.send(&message).await;
        self.next_id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Returns the next message, or `None` at the end.
    pub(crate) async fn next_message(&mut self) -> Option<Value> {
        let lines = self.lines.as_mut().expect("the client listens");
        let line = tokio::time::timeout(TEST_TIMEOUT, lines.next_line()).await.expect("the program hangs");
        let value: Value = serde_json::from_str(&line.unwrap()?).expect("every line is JSON");
        let messages = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
        assert!(messages.iter().all(|message| message["jsonrpc"] == "2.0"), "{value}");
        self.messages.push(value.clone());
        Some(value)
    }

    /// Waits for the answer to a request, serving the agent's requests meanwhile.
    pub(crate) async fn wait_for_answer(&mut self, id: i64) -> Value {
        if let Some(at) = self.pending.iter().position(|message| is_answer(message, id)) {
            return self.pending.remove(at).unwrap();
        }
        loop {
            let message = self.next_message().await.expect("an answer");
            if is_answer(&message, id) {
                return message;
            }
            self.handle_message(message).await;
        }
    }

    /// Waits for a message that fulfils a condition, serving the agent's requests meanwhile.
    pub(crate) async fn wait_for(&mut self, condition: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next_message().await.expect("more messages");
            let found = condition(&message);
            self.handle_message(message.clone()).await;
            if found {
                return message;
            }
        }
    }

    /// Serves the agent's request, or keeps an answer.
    pub(crate) async fn handle_message(&mut self, message: Value) {
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some(method), Some(id)) => self.serve_request(method, id.clone(), &message["params"]).await,
            (Some(_), None) => {}
            (None, _) => self.pending.push_back(message),
        }
    }

    async fn serve_request(&mut self, method: &str, id: Value, params: &Value) {
        if let ("mcp/message", Some(serves)) = (method, &self.mcp_responder) {
            for message in serves(&id, params) {
                self.send(&message).await;
            }
            return;
        }
        let answer = match method {
            "fs/read_text_file" => self.read_file(params),
            "fs/write_text_file" => {
                let (path, content) = (params["path"].as_str().unwrap(), params["content"].as_str().unwrap());
                self.unsaved_files.remove(path);
                std::fs::write(path, content).map(|()| json!({})).map_err(|error| error.to_string())
            }
            "session/request_permission" => match self.permission_outcome(params) {
                Some(outcome) => Ok(json!({ "outcome": outcome })),
                None => return,
            },
            "terminal/create" => {
                let id = format!("terminal-{}", self.next_terminal());
                self.terminals.insert(id.clone(), params["command"].to_string());
                Ok(json!({ "terminalId": id }))
            }
            "terminal/output" => {
                Ok(json!({"output": "some output\n", "truncated": false, "exitStatus": self.exit_status()}))
            }
            "terminal/wait_for_exit" if self.has_endless_commands => {
                self.pending_exits.push((id, params["terminalId"].as_str().unwrap().to_owned()));
                return;
            }
            "terminal/wait_for_exit" => Ok(json!({"exitCode": 0, "signal": null})),
            "terminal/kill" => {
                for (wait, _) in std::mem::take(&mut self.pending_exits) {
                    let exit = json!({"exitCode": null, "signal": "SIGKILL"});
                    self.send(&json!({"jsonrpc": "2.0", "id": wait, "result": exit})).await;
                }
                Ok(json!({}))
            }
            "terminal/release" => {
                self.terminals.remove(params["terminalId"].as_str().unwrap());
                Ok(json!({}))
            }
            _ => Err(String::new()),
        };
        let message = match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(why) if why.is_empty() => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
            }
            Err(why) => {
                let error = json!({"code": -32002, "message": "Resource not found", "data": {"why": why}});
                json!({"jsonrpc": "2.0", "id": id, "error": error})
            }
        };
        self.send(&message).await;
    }

    fn read_file(&self, params: &Value) -> Result<Value, String> {
        let path = params["path"].as_str().unwrap();
        assert!(Path::new(path).is_absolute(), "{path} is relative");
        let text = match self.unsaved_files.get(path) {
            Some(text) => text.clone(),
            None => std::fs::read_to_string(path).map_err(|error| error.to_string())?,
        };
        let first = params["line"].as_u64().unwrap_or(1).max(1) as usize - 1;
        let limit = params["limit"].as_u64().map_or(usize::MAX, |limit| limit as usize);
        let lines: String = text.split_inclusive('\n').skip(first).take(limit).collect();
        Ok(json!({ "content": lines }))
    }

    fn permission_outcome(&self, params: &Value) -> Option<Value> {
        let options = params["options"].as_array().unwrap();
        match self.permission_reply {
            PermissionReply::Kind(kind) => {
                let option = options.iter().find(|option| option["kind"] == kind).expect("such an option");
                Some(json!({"outcome": "selected", "optionId": option["optionId"]}))
            }
            PermissionReply::Cancelled => Some(json!({"outcome": "cancelled"})),
            PermissionReply::Unknown => Some(json!({"outcome": "selected", "optionId": "no-such-option"})),
            PermissionReply::Never => None,
        }
    }

    fn next_terminal(&self) -> usize {
        self.messages.iter().filter(|message| message["method"] == "terminal/create").count()
    }

    fn exit_status(&self) -> Value {
        if self.has_endless_commands { Value::Null } else { json!({"exitCode": 0, "signal": null}) }
    }

    /// Returns the id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the program runs")
    }

    /// Sends a request and waits for its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        let answer = self.wait_for_answer(id).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Sends a request and waits for its error.
    pub(crate) async fn call_error(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        let answer = self.wait_for_answer(id).await;
        assert!(answer.get("result").is_none(), "{method}: {answer}");
        answer["error"].clone()
    }

    pub(crate) async fn initialize(&mut self, capabilities: Value) -> Value {
        self.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities})).await
    }

    pub(crate) async fn new_session(&mut self, cwd: &Path) -> String {
        let opened = self.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await;
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    /// Starts a turn and returns the id of its request.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> i64 {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.request("session/prompt", prompt).await
    }

    /// Runs a turn to its end and returns the stop reason.
    pub(crate) async fn run_turn(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text).await;
        let answer = self.wait_for_answer(id).await;
        answer["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Returns the updates of one kind received so far.
    pub(crate) fn updates(&self, kind: &str) -> Vec<Value> {
        let update = |message: &Value| message["params"]["update"].clone();
        let updates =
            self.messages.iter().filter(|message| message["method"] == "session/update").map(update);
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// Returns the agent's text so far.
    pub(crate) fn agent_text(&self) -> String {
        let chunks = self.updates("agent_message_chunk");
        chunks.iter().filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
    }

    /// Returns how often the agent has called a method.
    pub(crate) fn count_calls(&self, method: &str) -> usize {
        self.messages
            .iter()
            .filter(|message| message["method"] == method && message.get("id").is_some())
            .count()
    }

    /// Closes stdin, reads the remaining output, and returns the exit code.
    pub(crate) async fn close(&mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.wait_for_exit().await
    }

    /// Closes only the pipe that the program writes to.
    pub(crate) fn close_stdout(&mut self) {
        self.lines = None;
    }

    /// Waits until the program exits by itself, reads the remaining output, and returns the exit code.
    pub(crate) async fn wait_for_exit(&mut self) -> Option<i32> {
        while self.lines.is_some() && self.next_message().await.is_some() {}
        tokio::time::timeout(TEST_TIMEOUT, self.child.wait())
            .await
            .expect("the program hangs")
            .unwrap()
            .code()
    }
}

pub(crate) fn is_answer(message: &Value, id: i64) -> bool {
    message.get("method").is_none() && message["id"] == id
}
