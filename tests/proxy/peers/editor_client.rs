//! A scripted editor: sends what a test dictates line by line, answers requests, and records all output of the program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};
use test_support::wait::wait_for;

/// The text of every file that the editor has open.
pub(crate) const EDITOR_TEXT: &str = "one\ntwo\n";

/// A program started as an agent.
pub(crate) struct EditorClient {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// Every line that the program wrote.
    pub(crate) output: Vec<String>,
}

impl EditorClient {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Self { stdin: child.stdin.take(), stdout, child, output: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, message: &Value) {
        // The program may have ended.
        writeln!(self.stdin.as_mut().unwrap(), "{message}").ok();
    }

    pub(crate) fn send_request(&mut self, id: &Value, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Waits for the next message. Returns `None` at the end.
    pub(crate) fn receive(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.as_mut()?.read_line(&mut line).unwrap();
        if line.is_empty() {
            return None;
        }
        let message = serde_json::from_str(&line).unwrap();
        self.output.push(line);
        Some(message)
    }

    /// Answers requests until a message matches, and returns that one unanswered.
    pub(crate) fn receive_until(&mut self, looked_for: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.receive().unwrap_or_else(|| panic!("it ended after {:#?}", self.output));
            if looked_for(&message) {
                return message;
            }
            if message.get("method").is_some() && message.get("id").is_some() {
                self.answer(&message);
            }
        }
    }

    /// Sends a request, and returns the answer.
    pub(crate) fn call(&mut self, id: &Value, method: &str, params: &Value) -> Value {
        self.send_request(id, method, params);
        self.receive_until(|message| message.get("method").is_none() && message["id"] == *id)
    }

    /// Answers as an editor that allows everything, and in which every existing file has the same text.
    pub(crate) fn answer(&mut self, request: &Value) {
        let path = request["params"]["path"].as_str().unwrap_or_default();
        let result = match request["method"].as_str().unwrap() {
            "fs/read_text_file" if !std::path::Path::new(path).exists() => {
                let error = json!({"code": -32002, "message": "Resource not found"});
                return self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "error": error}));
            }
            "fs/read_text_file" => json!({"content": EDITOR_TEXT}),
            "fs/write_text_file" => {
                std::fs::write(path, request["params"]["content"].as_str().unwrap()).unwrap();
                json!({})
            }
            "session/request_permission" => {
                let mut options = request["params"]["options"].as_array().unwrap().iter();
                let allow = options.find(|option| option["kind"] == "allow_once").unwrap();
                json!({"outcome": {"outcome": "selected", "optionId": allow["optionId"]}})
            }
            "terminal/create" => json!({"terminalId": "terminal_1"}),
            "terminal/output" => {
                let exit = json!({"exitCode": 0, "signal": null});
                json!({"output": "hello\n", "truncated": false, "exitStatus": exit})
            }
            "terminal/wait_for_exit" => json!({"exitCode": 0, "signal": null}),
            _ => json!({}),
        };
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Initialises an editor with files and terminals, and opens a session in a directory.
    pub(crate) fn open_session(&mut self, directory: &str) -> String {
        let can = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
        let initialize = json!({"protocolVersion": 1, "clientCapabilities": can});
        self.call(&json!(0), "initialize", &initialize);
        let opened = self.call(&json!(1), "session/new", &json!({"cwd": directory, "mcpServers": []}));
        opened["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt with the id 2.
    pub(crate) fn send_prompt(&mut self, session: &str, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send_request(&json!(2), "session/prompt", &json!({"sessionId": session, "prompt": prompt}));
    }

    /// Disconnects: closes both directions.
    pub(crate) fn disconnect(&mut self) {
        (self.stdin, self.stdout) = (None, None);
    }

    /// Closes the input, and reads the output to its end.
    pub(crate) fn close(&mut self) -> ExitStatus {
        self.stdin = None;
        self.wait_for_exit()
    }

    /// Reads until the program has exited by itself.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        while self.receive().is_some() {}
        // Not `wait`, which would close stdin.
        wait_for("the program's exit", || self.child.try_wait().unwrap())
    }
}

/// Returns whether a message is a permission request.
pub(crate) fn is_permission_request(message: &Value) -> bool {
    message["method"] == "session/request_permission"
}

/// Returns whether a message is a chunk of an agent's text.
pub(crate) fn is_agent_message(message: &Value) -> bool {
    message["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
}
