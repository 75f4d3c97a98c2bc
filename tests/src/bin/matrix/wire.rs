//! An editor by hand: a file open with text that is not saved, real terminals, and a user who allows everything.

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

/// How long an agent may take for its answer to anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// So many messages of an agent wait to be served.
const WAITING: usize = 1024;

type Stdin = Arc<Mutex<Option<ChildStdin>>>;

/// An agent that was started, and the editor that it talks to.
pub(crate) struct Wire {
    child: Child,
    stdin: Stdin,
    lines: Receiver<Value>,
    /// Everything that the agent said.
    pub(crate) told: Vec<Value>,
    // What is open, with text that is not saved.
    unsaved: HashMap<PathBuf, String>,
    terminals: HashMap<String, Terminal>,
    // Where commands run that name no directory.
    project: PathBuf,
    next: u64,
}

struct Terminal {
    output: Arc<Mutex<String>>,
    exit: Arc<Mutex<Option<i32>>>,
    group: u32,
}

impl Terminal {
    /// Kills all that it has started; one that has ended cannot be.
    fn kill(&self) {
        if lock(&self.exit).is_none() {
            let group = format!("-{}", self.group);
            Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status().ok();
        }
    }
}

impl Wire {
    /// Starts an agent for a project.
    pub(crate) fn start(
        mut command: Command,
        project: &Path,
        unsaved: HashMap<PathBuf, String>,
    ) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (tell, lines) = sync_channel(WAITING);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // What is no message is left out, as editors do.
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
        Ok(Self { child, stdin, lines, told, unsaved, terminals, project, next: 0 })
    }

    fn say(&self, message: &Value) {
        say(&self.stdin, message);
    }

    /// Sends a request, and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Serves the agent until a request is answered, and returns the answer. `each` sees every message before it is served.
    pub(crate) fn answer(&mut self, id: u64, mut each: impl FnMut(&Self, &Value)) -> Result<Value> {
        let begun = Instant::now();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(message) => {
                    each(self, &message);
                    self.told.push(message.clone());
                    if message.get("method").is_none() && message["id"] == id {
                        return Ok(message);
                    }
                    if message.get("method").is_some() && message.get("id").is_some() {
                        self.serve(&message);
                    }
                }
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < PATIENCE => each(self, &Value::Null),
                Err(RecvTimeoutError::Timeout) => bail!("no answer in {} s", PATIENCE.as_secs()),
                Err(RecvTimeoutError::Disconnected) => bail!("the agent ended"),
            }
        }
    }

    /// Sends a request and returns its result.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.request(method, params);
        let answer = self.answer(id, |_, _| ())?;
        match answer.get("error") {
            Some(error) => bail!("{method}: {}", error_text(error)),
            None => Ok(answer["result"].clone()),
        }
    }

    fn serve(&mut self, request: &Value) {
        let (id, params) = (request["id"].clone(), &request["params"]);
        let result = match request["method"].as_str().unwrap_or_default() {
            "fs/read_text_file" => self.read(params),
            "fs/write_text_file" => self.write(params),
            "session/request_permission" => Ok(permission(params)),
            "terminal/create" => self.create(params),
            "terminal/wait_for_exit" => match self.terminal(params) {
                Ok(terminal) => return wait(&self.stdin, id, &terminal.exit),
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
        self.say(&message);
    }

    fn read(&self, params: &Value) -> Result<Value, Value> {
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

    fn write(&mut self, params: &Value) -> Result<Value, Value> {
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

    /// Returns what the editor shows of a file.
    pub(crate) fn shows(&self, path: &Path) -> String {
        let disk = || std::fs::read_to_string(path).unwrap_or_default();
        self.unsaved.get(path).cloned().unwrap_or_else(disk)
    }

    fn terminal(&self, params: &Value) -> Result<&Terminal, Value> {
        let id = params["terminalId"].as_str().unwrap_or_default();
        self.terminals.get(id).ok_or_else(|| json!({"code": -32002, "message": "no such terminal"}))
    }

    fn create(&mut self, params: &Value) -> Result<Value, Value> {
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
            // What is no text is not shown.
            stdout.map(|mut stdout| stdout.read_to_string(&mut text).ok());
            *lock(&its_output) = text;
            let code = child.wait().ok().and_then(|status| status.code());
            *lock(&its_exit) = Some(code.unwrap_or(-1));
        });
        let id = format!("terminal_{}", self.terminals.len() + 1);
        self.terminals.insert(id.clone(), Terminal { output, exit, group });
        Ok(json!({"terminalId": id}))
    }

    /// Serves the agent until every command in a terminal has ended, for a while. Returns whether they have.
    pub(crate) fn commands_end(&mut self) -> bool {
        let begun = Instant::now();
        while self.terminals.values().any(|terminal| lock(&terminal.exit).is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                return false;
            }
            if let Ok(message) = self.lines.recv_timeout(Duration::from_millis(50)) {
                self.told.push(message.clone());
                if message.get("method").is_some() && message.get("id").is_some() {
                    self.serve(&message);
                }
            }
        }
        true
    }

    /// Says nothing more, and returns whether the agent ended by itself.
    pub(crate) fn end(mut self) -> bool {
        *lock(&self.stdin) = None;
        // An editor that goes takes its terminals along.
        for terminal in self.terminals.values() {
            terminal.kill();
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            // What it still says is heard.
            self.lines.recv_timeout(Duration::from_millis(50)).ok();
        }
        self.child.kill().ok();
        self.child.wait().ok();
        false
    }
}

/// Answers when a command has ended.
fn wait(stdin: &Stdin, id: Value, exit: &Arc<Mutex<Option<i32>>>) {
    let (stdin, exit) = (stdin.clone(), exit.clone());
    thread::spawn(move || {
        loop {
            let code = *lock(&exit);
            if let Some(code) = code {
                return say(&stdin, &json!({"jsonrpc": "2.0", "id": id, "result": {"exitCode": code}}));
            }
            thread::park_timeout(Duration::from_millis(20));
        }
    });
}

fn permission(params: &Value) -> Value {
    let options = params["options"].as_array().cloned().unwrap_or_default();
    let of = |kind: &str| options.iter().find(|option| option["kind"] == kind);
    match of("allow_once").or_else(|| of("allow_always")) {
        Some(option) => json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}}),
        None => json!({"outcome": {"outcome": "cancelled"}}),
    }
}

fn say(stdin: &Stdin, message: &Value) {
    if let Some(stdin) = lock(stdin).as_mut() {
        // An agent that has ended hears nothing.
        writeln!(stdin, "{message}").ok();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
