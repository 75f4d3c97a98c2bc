//! An agent served by a simulated client, in which every command ends at once. A permission request fails the run: it
//! would be measured on one side only.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::options::BenchAgent;
use crate::wire::raw::RawAgent;

/// The time after which a process counts as failed.
const LIMIT: Duration = Duration::from_secs(900);

/// A running agent.
pub(super) struct AgentUnderTest {
    agent: RawAgent,
    project: String,
    terminals: u64,
}

/// The timing of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnTiming {
    /// From the prompt to the first tool call.
    pub(super) first_call_ms: f64,
    /// From the prompt to its response.
    pub(super) ms: f64,
}

impl AgentUnderTest {
    /// Starts the agent in a project with a home of its own, and initialises the connection.
    pub(super) fn start(agent: &BenchAgent, scratch: &Path) -> Result<Self> {
        let (project, home) = (scratch.join("project"), scratch.join("home").join(&agent.name));
        for directory in [&project, &home] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let (program, arguments) = agent.command.split_first().context("no agent")?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&project).stderr(Stdio::null()).env_clear();
        command.env("HOME", &home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let mut agent = RawAgent::start(command, LIMIT)?;
        agent.initialize()?;
        Ok(Self { agent, project: project.display().to_string(), terminals: 0 })
    }

    /// Opens a session and returns its id.
    pub(super) fn new_session(&mut self) -> Result<String> {
        let id = self.agent.send("session/new", json!({"cwd": self.project, "mcpServers": []}))?;
        let answer = self.serve(id, |_| ())?;
        let session = answer.get("sessionId").and_then(Value::as_str);
        session.map(str::to_owned).with_context(|| format!("session/new was answered with {answer}"))
    }

    /// Loads a session with the given number of turns, and returns the milliseconds until its history has arrived.
    pub(super) fn load_session(&mut self, session: &str, turns: usize) -> Result<f64> {
        let begun = Instant::now();
        let load = json!({"sessionId": session, "cwd": self.project, "mcpServers": []});
        let id = self.agent.send("session/load", load)?;
        let mut calls = 0;
        self.serve(id, |message| {
            calls += usize::from(message["params"]["update"]["sessionUpdate"] == "tool_call");
        })?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        ensure!(calls == turns, "{calls} of {turns} turns were loaded");
        Ok(ms)
    }

    /// Sends a prompt that must lead to the given number of commands, and serves them.
    pub(super) fn turn(&mut self, session: &str, prompt: &str, commands: usize) -> Result<TurnTiming> {
        let before = self.terminals;
        let begun = Instant::now();
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": prompt}]});
        let id = self.agent.send("session/prompt", prompt)?;
        let mut first = None;
        let answer = self.serve(id, |message| {
            if message["params"]["update"]["sessionUpdate"] == "tool_call" {
                first.get_or_insert_with(|| begun.elapsed());
            }
        })?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        ensure!(answer["stopReason"] == "end_turn", "the turn ended with {answer}");
        let run = self.terminals - before;
        ensure!(run == commands as u64, "{run} commands were run instead of {commands}");
        let first = first.context("no tool call was reported")?;
        Ok(TurnTiming { first_call_ms: first.as_secs_f64() * 1e3, ms })
    }

    /// Returns the resident memory of the process.
    pub(super) fn resident_kib(&self) -> Result<u64> {
        self.agent.resident_kib()
    }

    /// Serves the agent until it has answered a request, and returns the result. Passes every notification to `see`.
    fn serve(&mut self, id: u64, mut see: impl FnMut(&Value)) -> Result<Value> {
        loop {
            let line = self.agent.read()?;
            let mut message: Value =
                serde_json::from_str(line).with_context(|| format!("cannot read the line {line}"))?;
            match (message.get("method").and_then(Value::as_str), message.get("id")) {
                (Some("session/request_permission"), Some(_)) => {
                    bail!("the agent asks for permission: start it with the option that turns this off")
                }
                (Some(method), Some(asked)) => {
                    let result = self.client_response(method);
                    let answer = match result {
                        Some(result) => json!({"jsonrpc": "2.0", "id": asked, "result": result}),
                        None => {
                            let error = json!({"code": -32601, "message": "Method not found"});
                            json!({"jsonrpc": "2.0", "id": asked, "error": error})
                        }
                    };
                    self.agent.write(&answer)?;
                }
                (Some(_), None) => see(&message),
                (None, Some(answered)) if *answered == json!(id) => {
                    let result = message.get_mut("result").map(Value::take);
                    return result.with_context(|| format!("a request failed: {message}"));
                }
                (None, _) => bail!("an unexpected line came: {message}"),
            }
        }
    }

    fn client_response(&mut self, method: &str) -> Option<Value> {
        let result = match method {
            "terminal/create" => {
                self.terminals += 1;
                json!({"terminalId": format!("t{}", self.terminals)})
            }
            "terminal/output" => json!({"output": "hi\n", "truncated": false, "exitStatus": {"exitCode": 0}}),
            "terminal/wait_for_exit" => json!({"exitCode": 0}),
            "terminal/release" | "terminal/kill" => json!({}),
            _ => return None,
        };
        Some(result)
    }
}
