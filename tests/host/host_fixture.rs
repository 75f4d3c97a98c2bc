//! The fixture of the host tests: an agent that runs a script, a user who answers from a list, and a text log of
//! everything that both see.
//!
//! A line of a script is one request of the agent, and the next line waits for its response:
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

use bowline_access::audit::verify;
use bowline_host::{Connection, HostOptions, HostSession};
use bowline_policy::audit::AuditRecord;
use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionReply};
use bowline_wire::CallError;
use bowline_wire::message::body::JsonBody;
use bowline_wire::schema::v1::{Error, StopReason};
use expect_test::Expect;
use serde_json::{Value, json};
use test_support::host_harness::{AgentTurn, HostHarness, TurnScript, turn_script};

use super::SUPERVISOR;

/// The log of everything that was seen, in order.
#[derive(Clone, Default)]
pub(crate) struct SeenLog(Arc<Mutex<String>>, Arc<tokio::sync::Notify>);

impl SeenLog {
    pub(crate) fn add(&self, line: &str) {
        let mut text = self.0.lock().unwrap();
        writeln!(text, "{line}").unwrap();
        drop(text);
        self.1.notify_waiters();
    }

    /// Waits until the log satisfies a condition.
    pub(crate) async fn wait_until(&self, condition: impl Fn(&str) -> bool) {
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

    /// Returns the log since the last call.
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A harness and its log. The audit log must be intact when this is dropped.
pub(crate) struct HostFixture {
    pub(crate) lab: HostHarness,
    pub(crate) seen: SeenLog,
    pub(crate) log_is_broken: bool,
}

impl HostFixture {
    /// Opens an empty project under the preset `ask`, with the user absent.
    pub(crate) fn new() -> Self {
        Self::with_options(|_| {})
    }

    pub(crate) fn with_options(set: impl FnOnce(&mut HostOptions)) -> Self {
        let lab = HostHarness::open(SUPERVISOR, set).unwrap();
        Self { lab, seen: SeenLog::default(), log_is_broken: false }
    }

    /// Makes the user give these answers in turn, and then none: `yes` or `no`, optionally followed by `turn`,
    /// `session`, `project` or `always`.
    pub(crate) fn with_answers(self, answers: &'static [&'static str]) -> Self {
        let mut answers = answers.iter();
        self.with_person(move |_| answers.next().map_or(QuestionReply::NoUser, |answer| parse_reply(answer)))
    }

    /// Makes the user answer with a function.
    pub(crate) fn with_person(
        self,
        mut answers: impl FnMut(&Question) -> QuestionReply + Send + 'static,
    ) -> Self {
        let (seen, base) = (self.seen.clone(), self.lab.base().display().to_string());
        self.lab.user.answer_with(move |question| {
            for line in normalize(&base, &question.to_text()).lines() {
                seen.add(&format!("  ? {line}"));
            }
            answers(question)
        });
        self
    }

    pub(crate) fn with_file(self, name: &str, text: &str) -> Self {
        self.lab.write_file(name, text).unwrap();
        self
    }

    /// Returns a turn that runs a script.
    pub(crate) fn scripted_turn(&self, script: &str) -> TurnScript {
        let script = script.to_owned();
        self.custom_turn(|actor| async move {
            actor.play_script(&script).await;
            StopReason::EndTurn
        })
    }

    /// Returns a turn that runs a closure.
    pub(crate) fn custom_turn<F>(&self, act: impl FnOnce(AgentActor) -> F + Send + 'static) -> TurnScript
    where
        F: Future<Output = StopReason> + Send + 'static,
    {
        let (seen, base) = (self.seen.clone(), self.lab.base().display().to_string());
        turn_script(move |turn| {
            let actor = AgentActor { turn, base, seen, terminal: Arc::default() };
            let done = act(actor);
            async move { Ok(done.await) }
        })
    }

    /// Runs scripts as the turns of one session, and returns the log.
    pub(crate) async fn play_turns(&self, turns: &[&str]) -> String {
        let (connection, session) =
            self.open_session(turns.iter().map(|script| self.scripted_turn(script)).collect()).await;
        for (number, _) in turns.iter().enumerate() {
            if number > 0 {
                self.seen.add("--");
            }
            session.prompt_text("go").await.unwrap();
        }
        connection.close_session(&session).await.unwrap();
        self.take_text()
    }

    pub(crate) async fn open_session(&self, acts: Vec<TurnScript>) -> (Connection, HostSession) {
        self.lab.open_session(acts).await.unwrap()
    }

    /// Runs a closure as one turn, and returns the log.
    pub(crate) async fn play_custom_turn<F>(
        &self,
        act: impl FnOnce(AgentActor) -> F + Send + 'static,
    ) -> String
    where
        F: Future<Output = StopReason> + Send + 'static,
    {
        let (connection, session) = self.open_session(vec![self.custom_turn(act)]).await;
        session.prompt_text("go").await.unwrap();
        connection.close_session(&session).await.unwrap();
        self.take_text()
    }

    /// Returns the normalised log since the last call.
    pub(crate) fn take_text(&self) -> String {
        self.normalize(&self.seen.take())
    }

    pub(crate) fn normalize(&self, text: &str) -> String {
        normalize(&self.lab.base().display().to_string(), text)
    }

    /// Returns the audit log as a table: the operation, its object, the decision, who made it, and why.
    pub(crate) fn audit_table(&self) -> String {
        let mut text = String::new();
        for AuditRecord { entry, .. } in self.lab.audit_records().unwrap() {
            let subject = match &entry.subject {
                bowline_policy::audit::AuditSubject::None => String::new(),
                bowline_policy::audit::AuditSubject::Path { requested: asked, resolved: None } => {
                    format!(" {asked}")
                }
                other => format!(" {other:?}"),
            };
            let turn = entry.turn.map(|turn| format!(" turn {turn}")).unwrap_or_default();
            let call = entry.call.map(|call| format!(" call {call}")).unwrap_or_default();
            let reason = entry.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            let exit = entry.exit.map(|exit| format!(" exit {exit}")).unwrap_or_default();
            let (action, decision, by) = (&entry.action, &entry.decision, &entry.decided_by);
            writeln!(text, "{action}{subject}{turn}{call}: {decision} by {by}{exit}{reason}").unwrap();
        }
        self.normalize(&text)
    }
}

impl Drop for HostFixture {
    fn drop(&mut self) {
        if std::thread::panicking() || self.log_is_broken {
            return;
        }
        let (directory, anchor) = self.lab.audit_paths();
        let report = verify(&directory, &anchor).unwrap();
        assert!(report.is_intact(), "{report:?}");
    }
}

/// Runs one turn, and compares what the agent and the user saw.
pub(crate) async fn check(stage: &HostFixture, script: &str, expected: Expect) {
    expected.assert_eq(&stage.play_turns(&[script]).await);
}

pub(crate) fn parse_reply(answer: &str) -> QuestionReply {
    let mut words = answer.split(' ');
    let choice = match words.next() {
        Some("yes") => AnswerChoice::Allow,
        Some("no") => AnswerChoice::Deny,
        _ => return QuestionReply::NoUser,
    };
    let keep = match words.next() {
        None => AnswerLifetime::Once,
        Some("turn") => AnswerLifetime::Turn,
        Some("session") => AnswerLifetime::Session,
        Some("project") => AnswerLifetime::Project,
        Some("always") => AnswerLifetime::Always,
        Some(other) => panic!("no answer holds for {other}"),
    };
    QuestionReply::answer(choice, keep)
}

fn normalize(base: &str, text: &str) -> String {
    let text = text.replace(&format!("{base}/project"), "$ROOT").replace(base, "$BASE");
    // The name of a workspace's directory contains a hash of its path.
    let Some((before, after)) = text.split_once("/project-") else { return text };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    format!("{before}/$WORKSPACE{rest}")
}

/// The agent in one turn.
#[derive(Clone)]
pub(crate) struct AgentActor {
    pub(crate) turn: AgentTurn,
    base: String,
    seen: SeenLog,
    terminal: Arc<Mutex<String>>,
}

impl AgentActor {
    /// Sends a request unchanged, except for the session id and the variables.
    pub(crate) async fn call(&self, method: &str, mut params: Value) -> Result<Value, Error> {
        if let Some(params) = params.as_object_mut() {
            params.entry("sessionId").or_insert(json!(self.turn.session));
        }
        let params = self.expand(&params.to_string());
        let body = JsonBody::from_raw(&serde_json::value::RawValue::from_string(params).unwrap());
        match self.turn.client.caller().call_raw(method.to_owned(), body).await {
            Ok(answer) => Ok(serde_json::from_str(answer.get()).unwrap()),
            Err(CallError::ErrorResponse(error)) => Err(error),
            Err(other) => panic!("{method}: {other}"),
        }
    }

    /// Sends a request, and returns its response as text.
    pub(crate) async fn call_text(&self, method: &str, params: Value) -> String {
        show_answer(&self.call(method, params).await)
    }

    pub(crate) async fn notify(&self, method: &str, mut params: Value) {
        if let Some(params) = params.as_object_mut() {
            params.entry("sessionId").or_insert(json!(self.turn.session));
        }
        let params = self.expand(&params.to_string());
        let body = JsonBody::from_raw(&serde_json::value::RawValue::from_string(params).unwrap());
        self.turn.client.caller().notify_raw(method.to_owned(), body).await.unwrap();
    }

    pub(crate) fn record(&self, line: &str) {
        self.seen.add(line);
    }

    pub(crate) async fn play_script(&self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.record(&format!("> {}", line.chars().take(200).collect::<String>()));
            let answer = self.play_line(line).await;
            if !answer.is_empty() {
                self.record(&answer);
            }
        }
    }

    async fn play_line(&self, line: &str) -> String {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let text = text.replace("\\n", "\n");
        match word {
            "read" => {
                let mut numbers = text.split(' ').map(|number| number.parse::<u32>().ok());
                let (line, limit) = (numbers.next().flatten(), numbers.next().flatten());
                let params = json!({"path": expand_name(name), "line": line, "limit": limit});
                match self.call("fs/read_text_file", params).await {
                    Ok(answer) => answer["content"].to_string(),
                    error => show_answer(&error),
                }
            }
            "write" => {
                self.call_text("fs/write_text_file", json!({"path": expand_name(name), "content": text}))
                    .await
            }
            "run" => self.run_command(json!({"command": rest})).await,
            "argv" => {
                let mut argv: Vec<String> = serde_json::from_str(rest).unwrap();
                let command = argv.remove(0);
                self.run_command(json!({"command": command, "args": argv})).await
            }
            "ask" => {
                let call = serde_json::from_str(rest).unwrap();
                self.request_permission(call, permission_options()).await
            }
            "call" => self.call_text(name, serde_json::from_str(&text.replace('\n', "\\n")).unwrap()).await,
            "update" => {
                let update: Value = serde_json::from_str(rest).unwrap();
                self.notify("session/update", json!({"update": update})).await;
                String::new()
            }
            "put" => {
                std::fs::write(self.expand(&expand_name(name)), text).unwrap();
                String::new()
            }
            "link" => {
                std::os::unix::fs::symlink(self.expand(&text), self.expand(&expand_name(name))).unwrap();
                String::new()
            }
            other => panic!("no script has {other}"),
        }
    }

    /// Asks for permission, and returns the outcome as text.
    pub(crate) async fn request_permission(&self, call: Value, options: Value) -> String {
        let params = json!({"toolCall": call, "options": options});
        match self.call("session/request_permission", params).await {
            Ok(answer) => match answer["outcome"]["optionId"].as_str() {
                Some(option) => format!("selected {option}"),
                None => answer["outcome"]["outcome"].as_str().unwrap().to_owned(),
            },
            error => show_answer(&error),
        }
    }

    /// Runs a command to completion, and returns its output and exit status.
    pub(crate) async fn run_command(&self, params: Value) -> String {
        let terminal = match self.create_terminal(params).await {
            Ok(terminal) => terminal,
            Err(error) => return show_answer(&Err(error)),
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
    pub(crate) async fn create_terminal(&self, params: Value) -> Result<String, Error> {
        let created = self.call("terminal/create", params).await?;
        let id = created["terminalId"].as_str().unwrap().to_owned();
        self.terminal.lock().unwrap().clone_from(&id);
        Ok(id)
    }

    fn expand(&self, text: &str) -> String {
        let terminal = self.terminal.lock().unwrap().clone();
        text.replace("$ROOT", &format!("{}/project", self.base))
            .replace("$BASE", &self.base)
            .replace("$T", &terminal)
    }
}

fn expand_name(name: &str) -> String {
    if name.starts_with('$') || name.starts_with('/') { name.to_owned() } else { format!("$ROOT/{name}") }
}

/// Formats a response as text.
pub(crate) fn show_answer(answer: &Result<Value, Error>) -> String {
    match answer {
        Ok(Value::Object(map)) if map.is_empty() => "ok".to_owned(),
        Ok(value) => value.to_string(),
        Err(error) => {
            let data = error.data.as_ref().map(|data| format!(" {data}")).unwrap_or_default();
            format!("! {} {}{data}", i32::from(error.code), error.message)
        }
    }
}

/// Returns typical permission options, preceded by one that a careless client would select.
pub(crate) fn permission_options() -> Value {
    json!([
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "never", "name": "No", "kind": "reject_once"},
    ])
}
