//! An editor by hand: says what a test wants line by line, answers what it is asked, and keeps all that it is told.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};

/// What the editor has open.
pub(crate) const TEXT: &str = "one\ntwo\n";

/// A program that was started as an agent.
pub(crate) struct Wire {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// Every line that the program wrote.
    pub(crate) told: Vec<String>,
}

impl Wire {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Self { stdin: child.stdin.take(), stdout, child, told: Vec::new() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn say(&mut self, message: &Value) {
        // Who has gone does not hear it.
        writeln!(self.stdin.as_mut().unwrap(), "{message}").ok();
    }

    pub(crate) fn request(&mut self, id: &Value, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Waits for the next message, unless there will be none.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.as_mut()?.read_line(&mut line).unwrap();
        if line.is_empty() {
            return None;
        }
        let message = serde_json::from_str(&line).unwrap();
        self.told.push(line);
        Some(message)
    }

    /// Answers requests until a message comes that is looked for, and returns it unanswered.
    pub(crate) fn until(&mut self, looked_for: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next().unwrap_or_else(|| panic!("it ended after {:#?}", self.told));
            if looked_for(&message) {
                return message;
            }
            if message.get("method").is_some() && message.get("id").is_some() {
                self.answer(&message);
            }
        }
    }

    /// Sends a request, and returns the answer.
    pub(crate) fn ask(&mut self, id: &Value, method: &str, params: &Value) -> Value {
        self.request(id, method, params);
        self.until(|message| message.get("method").is_none() && message["id"] == *id)
    }

    /// Answers as an editor that allows everything, and in which every file that there is has the same text.
    pub(crate) fn answer(&mut self, request: &Value) {
        let path = request["params"]["path"].as_str().unwrap_or_default();
        let result = match request["method"].as_str().unwrap() {
            "fs/read_text_file" if !std::path::Path::new(path).exists() => {
                let error = json!({"code": -32002, "message": "Resource not found"});
                return self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "error": error}));
            }
            "fs/read_text_file" => json!({"content": TEXT}),
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
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Introduces an editor with files and terminals, and opens a session in a directory.
    pub(crate) fn open(&mut self, directory: &str) -> String {
        let can = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
        let initialize = json!({"protocolVersion": 1, "clientCapabilities": can});
        self.ask(&json!(0), "initialize", &initialize);
        let opened = self.ask(&json!(1), "session/new", &json!({"cwd": directory, "mcpServers": []}));
        opened["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt with the id 2.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request(&json!(2), "session/prompt", &json!({"sessionId": session, "prompt": prompt}));
    }

    /// Goes away: says nothing more, and hears nothing.
    pub(crate) fn leave(&mut self) {
        (self.stdin, self.stdout) = (None, None);
    }

    /// Says nothing more, and listens to the end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.stdin = None;
        self.hear_out()
    }

    /// Listens until the program has ended by itself.
    pub(crate) fn hear_out(&mut self) -> ExitStatus {
        while self.next().is_some() {}
        // Not `wait`, which would close stdin.
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::yield_now();
        }
    }
}

/// Whether a message is the permission request of an agent.
pub(crate) fn asks(message: &Value) -> bool {
    message["method"] == "session/request_permission"
}

/// Whether a message is a piece of what an agent says.
pub(crate) fn says(message: &Value) -> bool {
    message["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
}
