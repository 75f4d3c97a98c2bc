//! A stage for the tests of the host: an agent that plays a script, a person who answers from a list, and all that both
//! see written down as text.
//!
//! A line of a script is one request of the agent, and the next waits for its answer:
//!
//! ```text
//! read NAME [LINE [LIMIT]]    write NAME TEXT    run SHELL-LINE    ask TOOL-CALL
//! call METHOD PARAMS          update UPDATE      put NAME TEXT     link NAME TARGET
//! ```
//!
//! `$ROOT` is the project, `$BASE` the directory around it, `$T` the newest terminal; `put` and `link` change the disk
//! behind the host's back. Session ids are filled in.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use bowline_host::{Connection, Session, Settings};
use bowline_state::audit::Record;
use bowline_state::question::{Choice, Keep, Question, Reply};
use bowline_wire::schema::v1::{Error, StopReason};
use bowline_wire::{CallError, body::Body};
use bowline_workspace::audit::verify;
use expect_test::Expect;
use serde_json::{Value, json};
use test_support::lab::{Act, Lab, Turn, boxed};

use super::SUPERVISOR;

/// What was seen, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<String>>, Arc<tokio::sync::Notify>);

impl Seen {
    pub(crate) fn add(&self, line: &str) {
        let mut text = self.0.lock().unwrap();
        writeln!(text, "{line}").unwrap();
        drop(text);
        self.1.notify_waiters();
    }

    /// Waits until what was seen fulfils a condition.
    pub(crate) async fn until(&self, condition: impl Fn(&str) -> bool) {
        loop {
            let changed = self.1.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(&self.0.lock().unwrap()) {
                return;
            }
            changed.await;
        }
    }

    /// Returns what was seen since the last time.
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A lab, and what is seen in it. When it goes, the audit log has to be whole.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) seen: Seen,
    pub(crate) log_is_broken: bool,
}

impl Stage {
    /// Opens an empty project under the preset `ask`, with nobody there.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(set: impl FnOnce(&mut Settings)) -> Self {
        let lab = Lab::open(SUPERVISOR, set).unwrap();
        Self { lab, seen: Seen::default(), log_is_broken: false }
    }

    /// Lets a person sit down who gives these answers one after the other, and then none: `yes`, `no`, with `turn`,
    /// `session`, `project` or `always` behind it.
    pub(crate) fn answers(self, answers: &'static [&'static str]) -> Self {
        let mut answers = answers.iter();
        self.person(move |_| answers.next().map_or(Reply::Nobody, |answer| reply(answer)))
    }

    /// Lets a person sit down who answers by a function.
    pub(crate) fn person(self, mut answers: impl FnMut(&Question) -> Reply + Send + 'static) -> Self {
        let (seen, base) = (self.seen.clone(), self.lab.base().display().to_string());
        self.lab.desk.answer(move |question| {
            for line in clean(&base, &question.text()).lines() {
                seen.add(&format!("  ? {line}"));
            }
            answers(question)
        });
        self
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        self.lab.put(name, text).unwrap();
        self
    }

    /// Returns a turn that plays a script.
    pub(crate) fn act(&self, script: &str) -> Act {
        let script = script.to_owned();
        self.acting(|actor| async move {
            actor.play(&script).await;
            StopReason::EndTurn
        })
    }

    /// Returns a turn that does something.
    pub(crate) fn acting<F>(&self, act: impl FnOnce(Actor) -> F + Send + 'static) -> Act
    where
        F: Future<Output = StopReason> + Send + 'static,
    {
        let (seen, base) = (self.seen.clone(), self.lab.base().display().to_string());
        boxed(move |turn| {
            let actor = Actor { turn, base, seen, terminal: Arc::default() };
            let done = act(actor);
            async move { Ok(done.await) }
        })
    }

    /// Plays scripts as the turns of one session, and returns all that was seen.
    pub(crate) async fn play(&self, turns: &[&str]) -> String {
        let (connection, session) = self.session(turns.iter().map(|script| self.act(script)).collect()).await;
        for (number, _) in turns.iter().enumerate() {
            if number > 0 {
                self.seen.add("--");
            }
            session.prompt_text("go").await.unwrap();
        }
        connection.close_session(&session).await.unwrap();
        self.text()
    }

    pub(crate) async fn session(&self, acts: Vec<Act>) -> (Connection, Session) {
        self.lab.session(acts).await.unwrap()
    }

    /// Plays one turn that is no script, and returns all that was seen.
    pub(crate) async fn turn<F>(&self, act: impl FnOnce(Actor) -> F + Send + 'static) -> String
    where
        F: Future<Output = StopReason> + Send + 'static,
    {
        let (connection, session) = self.session(vec![self.acting(act)]).await;
        session.prompt_text("go").await.unwrap();
        connection.close_session(&session).await.unwrap();
        self.text()
    }

    /// Returns all that was seen since the last time.
    pub(crate) fn text(&self) -> String {
        self.clean(&self.seen.take())
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        clean(&self.lab.base().display().to_string(), text)
    }

    /// Returns the audit log as a table: what, to what, what was decided, by whom, and why.
    pub(crate) fn log(&self) -> String {
        let mut text = String::new();
        for Record { entry, .. } in self.lab.log().unwrap() {
            let subject = match &entry.subject {
                bowline_state::audit::Subject::None => String::new(),
                bowline_state::audit::Subject::Path { asked, resolved: None } => format!(" {asked}"),
                other => format!(" {other:?}"),
            };
            let turn = entry.turn.map(|turn| format!(" turn {turn}")).unwrap_or_default();
            let call = entry.call.map(|call| format!(" call {call}")).unwrap_or_default();
            let reason = entry.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            let exit = entry.exit.map(|exit| format!(" exit {exit}")).unwrap_or_default();
            let (action, decision, by) = (&entry.action, &entry.decision, &entry.by);
            writeln!(text, "{action}{subject}{turn}{call}: {decision} by {by}{exit}{reason}").unwrap();
        }
        self.clean(&text)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() || self.log_is_broken {
            return;
        }
        let (directory, anchor) = self.lab.audit();
        let report = verify(&directory, &anchor).unwrap();
        assert!(report.is_intact(), "{report:?}");
    }
}

/// Plays one turn, and compares what the agent and the person saw.
pub(crate) async fn check(stage: &Stage, script: &str, expected: Expect) {
    expected.assert_eq(&stage.play(&[script]).await);
}

pub(crate) fn reply(answer: &str) -> Reply {
    let mut words = answer.split(' ');
    let choice = match words.next() {
        Some("yes") => Choice::Allow,
        Some("no") => Choice::Deny,
        _ => return Reply::Nobody,
    };
    let keep = match words.next() {
        None => Keep::Once,
        Some("turn") => Keep::Turn,
        Some("session") => Keep::Session,
        Some("project") => Keep::Project,
        Some("always") => Keep::Always,
        Some(other) => panic!("no answer holds for {other}"),
    };
    Reply::answer(choice, keep)
}

fn clean(base: &str, text: &str) -> String {
    let text = text.replace(&format!("{base}/project"), "$ROOT").replace(base, "$BASE");
    // The directory of a workspace is named after a hash of where it is.
    let Some((before, after)) = text.split_once("/project-") else { return text };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    format!("{before}/$WORKSPACE{rest}")
}

/// The agent in one turn.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) turn: Turn,
    base: String,
    seen: Seen,
    terminal: Arc<Mutex<String>>,
}

impl Actor {
    /// Sends a request as it is, but for the session id and the words that stand for names.
    pub(crate) async fn call(&self, method: &str, mut params: Value) -> Result<Value, Error> {
        if let Some(params) = params.as_object_mut() {
            params.entry("sessionId").or_insert(json!(self.turn.session));
        }
        let params = self.meant(&params.to_string());
        let body = Body::raw(&serde_json::value::RawValue::from_string(params).unwrap());
        match self.turn.client.caller().call_raw(method.to_owned(), body).await {
            Ok(answer) => Ok(serde_json::from_str(answer.get()).unwrap()),
            Err(CallError::Refused(error)) => Err(error),
            Err(other) => panic!("{method}: {other}"),
        }
    }

    /// Sends a request, and returns its answer as text.
    pub(crate) async fn answer(&self, method: &str, params: Value) -> String {
        show(&self.call(method, params).await)
    }

    pub(crate) async fn notify(&self, method: &str, mut params: Value) {
        if let Some(params) = params.as_object_mut() {
            params.entry("sessionId").or_insert(json!(self.turn.session));
        }
        let params = self.meant(&params.to_string());
        let body = Body::raw(&serde_json::value::RawValue::from_string(params).unwrap());
        self.turn.client.caller().notify_raw(method.to_owned(), body).await.unwrap();
    }

    pub(crate) fn says(&self, line: &str) {
        self.seen.add(line);
    }

    pub(crate) async fn play(&self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.says(&format!("> {}", line.chars().take(200).collect::<String>()));
            let answer = self.line(line).await;
            if !answer.is_empty() {
                self.says(&answer);
            }
        }
    }

    async fn line(&self, line: &str) -> String {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let text = text.replace("\\n", "\n");
        match word {
            "read" => {
                let mut numbers = text.split(' ').map(|number| number.parse::<u32>().ok());
                let (line, limit) = (numbers.next().flatten(), numbers.next().flatten());
                let params = json!({"path": path(name), "line": line, "limit": limit});
                match self.call("fs/read_text_file", params).await {
                    Ok(answer) => answer["content"].to_string(),
                    error => show(&error),
                }
            }
            "write" => self.answer("fs/write_text_file", json!({"path": path(name), "content": text})).await,
            "run" => self.run(json!({"command": rest})).await,
            "argv" => {
                let mut argv: Vec<String> = serde_json::from_str(rest).unwrap();
                let command = argv.remove(0);
                self.run(json!({"command": command, "args": argv})).await
            }
            "ask" => {
                let call = serde_json::from_str(rest).unwrap();
                self.ask(call, options()).await
            }
            "call" => self.answer(name, serde_json::from_str(&text.replace('\n', "\\n")).unwrap()).await,
            "update" => {
                let update: Value = serde_json::from_str(rest).unwrap();
                self.notify("session/update", json!({"update": update})).await;
                String::new()
            }
            "put" => {
                std::fs::write(self.meant(&path(name)), text).unwrap();
                String::new()
            }
            "link" => {
                std::os::unix::fs::symlink(self.meant(&text), self.meant(&path(name))).unwrap();
                String::new()
            }
            other => panic!("no script has {other}"),
        }
    }

    /// Asks for permission, and returns the outcome as text.
    pub(crate) async fn ask(&self, call: Value, options: Value) -> String {
        let params = json!({"toolCall": call, "options": options});
        match self.call("session/request_permission", params).await {
            Ok(answer) => match answer["outcome"]["optionId"].as_str() {
                Some(option) => format!("selected {option}"),
                None => answer["outcome"]["outcome"].as_str().unwrap().to_owned(),
            },
            error => show(&error),
        }
    }

    /// Runs a command to its end, and returns its output and how it ended.
    pub(crate) async fn run(&self, params: Value) -> String {
        let terminal = match self.create(params).await {
            Ok(terminal) => terminal,
            Err(error) => return show(&Err(error)),
        };
        let exit = self.call("terminal/wait_for_exit", json!({"terminalId": terminal})).await.unwrap();
        let output = self.call("terminal/output", json!({"terminalId": terminal})).await.unwrap();
        self.call("terminal/release", json!({"terminalId": terminal})).await.unwrap();
        let ended = match (&exit["exitCode"], &exit["signal"]) {
            (Value::Null, signal) => signal.to_string(),
            (code, _) => code.to_string(),
        };
        format!("{} exit {ended}", output["output"])
    }

    /// Starts a command, and returns its terminal.
    pub(crate) async fn create(&self, params: Value) -> Result<String, Error> {
        let created = self.call("terminal/create", params).await?;
        let id = created["terminalId"].as_str().unwrap().to_owned();
        self.terminal.lock().unwrap().clone_from(&id);
        Ok(id)
    }

    fn meant(&self, text: &str) -> String {
        let terminal = self.terminal.lock().unwrap().clone();
        text.replace("$ROOT", &format!("{}/project", self.base))
            .replace("$BASE", &self.base)
            .replace("$T", &terminal)
    }
}

fn path(name: &str) -> String {
    if name.starts_with('$') || name.starts_with('/') { name.to_owned() } else { format!("$ROOT/{name}") }
}

/// Returns an answer as text.
pub(crate) fn show(answer: &Result<Value, Error>) -> String {
    match answer {
        Ok(Value::Object(map)) if map.is_empty() => "ok".to_owned(),
        Ok(value) => value.to_string(),
        Err(error) => {
            let data = error.data.as_ref().map(|data| format!(" {data}")).unwrap_or_default();
            format!("! {} {}{data}", i32::from(error.code), error.message)
        }
    }
}

/// Returns options as most agents offer them, with one first that a careless client would take.
pub(crate) fn options() -> Value {
    json!([
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "never", "name": "No", "kind": "reject_once"},
    ])
}
