//! A hand-written editor: a file open with unsaved text, real terminals, and a user who allows everything.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::report::error_text;

/// The time limit of every response of an agent.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// The number of messages of an agent that can be queued.
const MAX_QUEUED_MESSAGES: usize = 1024;

type SharedStdin = Arc<Mutex<Option<ChildStdin>>>;

/// A running agent, and the editor that serves it.
pub(crate) struct MatrixEditor {
    child: Child,
    stdin: SharedStdin,
    messages: Receiver<Value>,
    /// Every message from the agent.
    pub(crate) received: Vec<Value>,
    // The open files with their unsaved text.
    unsaved: HashMap<PathBuf, String>,
    terminals: HashMap<String, EditorTerminal>,
    // The default directory of commands.
    project: PathBuf,
    next_id: u64,
}

struct EditorTerminal {
    output: Arc<Mutex<String>>,
    exit: Arc<Mutex<Option<i32>>>,
    group: u32,
}

impl EditorTerminal {
    /// Kills the command and its children, unless it has exited.
    fn kill(&self) {
        if lock(&self.exit).is_none() {
            let group = format!("-{}", self.group);
            Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status().ok();
        }
    }
}

impl MatrixEditor {
    /// Starts an agent for a project.
    pub(crate) fn start(
        mut command: Command,
        project: &Path,
        unsaved: HashMap<PathBuf, String>,
    ) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (tell, lines) = sync_channel(MAX_QUEUED_MESSAGES);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Lines that are not messages are ignored, as in real editors.
                if let Ok(message) = serde_json::from_str(&line)
                    && tell.send(message).is_err()
                {
                    return;
                }
            }
        });
        let stdin = Arc::new(Mutex::new(child.stdin.take()));
        let terminals = HashMap::new();
        let (told, project) = (Vec::new(), project.to_owned());
        Ok(Self { child, stdin, messages: lines, received: told, unsaved, terminals, project, next_id: 0 })
    }

    fn send(&self, message: &Value) {
        send_message(&self.stdin, message);
    }

    /// Sends a request, and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}));
        self.next_id
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Serves the agent until a request is answered, and returns the response. Passes every message to `each` before
    /// serving it.
    pub(crate) fn wait_for_answer(&mut self, id: u64, mut each: impl FnMut(&Self, &Value)) -> Result<Value> {
        let begun = Instant::now();
        loop {
            match self.messages.recv_timeout(Duration::from_millis(50)) {
                Ok(message) => {
                    each(self, &message);
                    self.received.push(message.clone());
                    if message.get("method").is_none() && message["id"] == id {
                        return Ok(message);
                    }
                    if message.get("method").is_some() && message.get("id").is_some() {
                        self.serve(&message);
                    }
                }
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < ANSWER_TIMEOUT => {
                    each(self, &Value::Null)
                }
                Err(RecvTimeoutError::Timeout) => bail!("no answer in {} s", ANSWER_TIMEOUT.as_secs()),
                Err(RecvTimeoutError::Disconnected) => bail!("the agent ended"),
            }
        }
    }

    /// Sends a request and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.request(method, params);
        let answer = self.wait_for_answer(id, |_, _| ())?;
        match answer.get("error") {
            Some(error) => bail!("{method}: {}", error_text(error)),
            None => Ok(answer["result"].clone()),
        }
    }

    fn serve(&mut self, request: &Value) {
        let (id, params) = (request["id"].clone(), &request["params"]);
        let result = match request["method"].as_str().unwrap_or_default() {
            "fs/read_text_file" => self.read_file(params),
            "fs/write_text_file" => self.write_file(params),
            "session/request_permission" => Ok(allow_permission(params)),
            "terminal/create" => self.create_terminal(params),
            "terminal/wait_for_exit" => match self.terminal(params) {
                Ok(terminal) => return answer_on_exit(&self.stdin, id, &terminal.exit),
                Err(error) => Err(error),
            },
            "terminal/output" => self.terminal(params).map(|terminal| {
                let exit = lock(&terminal.exit).map(|code| json!({"exitCode": code}));
                json!({"output": *lock(&terminal.output), "truncated": false, "exitStatus": exit})
            }),
            "terminal/kill" | "terminal/release" => self.terminal(params).map(|terminal| {
                terminal.kill();
                json!({})
            }),
            _ => Err(json!({"code": -32601, "message": "Method not found"})),
        };
        let mut message = json!({"jsonrpc": "2.0", "id": id});
        match result {
            Ok(result) => message["result"] = result,
            Err(error) => message["error"] = error,
        }
        self.send(&message);
    }

    fn read_file(&self, params: &Value) -> Result<Value, Value> {
        let path = Path::new(params["path"].as_str().unwrap_or_default());
        let text = self.unsaved.get(path).cloned().or_else(|| std::fs::read_to_string(path).ok());
        let text = text.ok_or_else(
            || json!({"code": -32002, "message": "Resource not found", "data": {"uri": params["path"]}}),
        )?;
        let number = |name: &str| params[name].as_u64().and_then(|number| usize::try_from(number).ok());
        let first = number("line").unwrap_or(1).saturating_sub(1);
        let lines = text.split_inclusive('\n').skip(first).take(number("limit").unwrap_or(usize::MAX));
        Ok(json!({"content": lines.collect::<String>()}))
    }

    fn write_file(&mut self, params: &Value) -> Result<Value, Value> {
        let path = PathBuf::from(params["path"].as_str().unwrap_or_default());
        let content = params["content"].as_str().unwrap_or_default().to_owned();
        let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = parent.and_then(|()| std::fs::write(&path, &content));
        written.map_err(|error| json!({"code": -32603, "message": error.to_string()}))?;
        if let Some(open) = self.unsaved.get_mut(&path) {
            *open = content;
        }
        Ok(json!({}))
    }

    /// Returns the editor's current text of a file.
    pub(crate) fn visible_text(&self, path: &Path) -> String {
        let disk = || std::fs::read_to_string(path).unwrap_or_default();
        self.unsaved.get(path).cloned().unwrap_or_else(disk)
    }

    fn terminal(&self, params: &Value) -> Result<&EditorTerminal, Value> {
        let id = params["terminalId"].as_str().unwrap_or_default();
        self.terminals.get(id).ok_or_else(|| json!({"code": -32002, "message": "no such terminal"}))
    }

    fn create_terminal(&mut self, params: &Value) -> Result<Value, Value> {
        let words = |name: &str| params[name].as_array().cloned().unwrap_or_default();
        let command = params["command"].as_str().unwrap_or_default();
        let args = words("args");
        let mut shell = Command::new(if args.is_empty() { "sh" } else { command });
        if args.is_empty() {
            shell.args(["-c", command]);
        }
        shell.args(args.iter().filter_map(Value::as_str)).process_group(0);
        for variable in words("env") {
            shell.env(
                variable["name"].as_str().unwrap_or_default(),
                variable["value"].as_str().unwrap_or_default(),
            );
        }
        let cwd = params["cwd"].as_str().map_or_else(|| self.project.clone(), PathBuf::from);
        shell.current_dir(cwd);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            shell.spawn().map_err(|error| json!({"code": -32603, "message": error.to_string()}))?;
        let (output, exit) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(None)));
        let (stdout, group) = (child.stdout.take(), child.id());
        let (its_output, its_exit) = (output.clone(), exit.clone());
        thread::spawn(move || {
            let mut text = String::new();
            // Output that is not text is not shown.
            stdout.map(|mut stdout| stdout.read_to_string(&mut text).ok());
            *lock(&its_output) = text;
            let code = child.wait().ok().and_then(|status| status.code());
            *lock(&its_exit) = Some(code.unwrap_or(-1));
        });
        let id = format!("terminal_{}", self.terminals.len() + 1);
        self.terminals.insert(id.clone(), EditorTerminal { output, exit, group });
        Ok(json!({"terminalId": id}))
    }

    /// Serves the agent until every command in a terminal has exited, up to a time limit. Returns whether they have.
    pub(crate) fn wait_for_commands(&mut self) -> bool {
        let begun = Instant::now();
        while self.terminals.values().any(|terminal| lock(&terminal.exit).is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                return false;
            }
            if let Ok(message) = self.messages.recv_timeout(Duration::from_millis(50)) {
                self.received.push(message.clone());
                if message.get("method").is_some() && message.get("id").is_some() {
                    self.serve(&message);
                }
            }
        }
        true
    }

    /// Closes the agent's input, and returns whether the agent exited by itself.
    pub(crate) fn shut_down(mut self) -> bool {
        *lock(&self.stdin) = None;
        // An editor's terminals end with it.
        for terminal in self.terminals.values() {
            terminal.kill();
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            // Drains the agent's remaining messages.
            self.messages.recv_timeout(Duration::from_millis(50)).ok();
        }
        self.child.kill().ok();
        self.child.wait().ok();
        false
    }
}

/// Responds when a command has exited.
fn answer_on_exit(stdin: &SharedStdin, id: Value, exit: &Arc<Mutex<Option<i32>>>) {
    let (stdin, exit) = (stdin.clone(), exit.clone());
    thread::spawn(move || {
        loop {
            let code = *lock(&exit);
            if let Some(code) = code {
                return send_message(
                    &stdin,
                    &json!({"jsonrpc": "2.0", "id": id, "result": {"exitCode": code}}),
                );
            }
            thread::park_timeout(Duration::from_millis(20));
        }
    });
}

fn allow_permission(params: &Value) -> Value {
    let options = params["options"].as_array().cloned().unwrap_or_default();
    let of = |kind: &str| options.iter().find(|option| option["kind"] == kind);
    match of("allow_once").or_else(|| of("allow_always")) {
        Some(option) => json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}}),
        None => json!({"outcome": {"outcome": "cancelled"}}),
    }
}

fn send_message(stdin: &SharedStdin, message: &Value) {
    if let Some(stdin) = lock(stdin).as_mut() {
        // Fails only if the agent has exited.
        writeln!(stdin, "{message}").ok();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
