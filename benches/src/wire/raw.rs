//! An agent as a process with raw pipes: messages are written and read line by line.

use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::child::{ChildPipes, TimedChild};
use super::machine::{cpu_us_of, kib_of};

/// A running agent and the raw ends of its pipes.
pub(crate) struct RawAgent {
    child: TimedChild,
    pipes: ChildPipes,
    line: String,
    requests: u64,
}

impl RawAgent {
    /// Starts the agent. It is killed at the time limit, and on drop.
    pub(crate) fn start(mut command: Command, limit: Duration) -> Result<Self> {
        let (child, pipes) = TimedChild::start(command.stdin(Stdio::piped()), limit)?;
        Ok(Self { child, pipes, line: String::new(), requests: 0 })
    }

    /// Initialises the connection with protocol version 1 and all client capabilities.
    pub(crate) fn initialize(&mut self) -> Result<()> {
        let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let answer = self.call("initialize", params)?;
        ensure!(answer.get("protocolVersion") == Some(&json!(1)), "initialize was answered with {answer}");
        Ok(())
    }

    /// Sends a request and returns the result, which must be the next line.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send(method, params)?;
        let line = self.read().with_context(|| format!("no answer to {method}"))?;
        let mut answer: Value =
            serde_json::from_str(line).with_context(|| format!("cannot read the line {line}"))?;
        ensure!(answer.get("id") == Some(&json!(id)), "{method} was answered with {line}");
        answer.get_mut("result").map(Value::take).with_context(|| format!("{method} failed: {line}"))
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        self.requests += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params}))?;
        Ok(self.requests)
    }

    /// Writes one message.
    pub(crate) fn write(&mut self, message: &Value) -> Result<()> {
        let stdin = self.pipes.stdin.as_mut().context("no pipe to the agent")?;
        stdin.write_all(format!("{message}\n").as_bytes()).context("cannot write to the agent")
    }

    /// Returns the next line.
    pub(crate) fn read(&mut self) -> Result<&str> {
        self.line.clear();
        let count = self.pipes.stdout.read_line(&mut self.line).context("cannot read from the agent")?;
        if count == 0 { Err(self.child.early_end_error()) } else { Ok(self.line.trim_end()) }
    }

    /// Returns the agent's resident memory.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        self.kib("VmRSS:")
    }

    /// Returns the agent's peak memory.
    pub(crate) fn peak_kib(&self) -> Result<u64> {
        self.kib("VmHWM:")
    }

    /// Returns the microseconds of processor time that the agent has used, without its children.
    pub(crate) fn cpu_us(&self) -> Result<f64> {
        cpu_us_of(self.child.id())
    }

    fn kib(&self, name: &str) -> Result<u64> {
        kib_of(self.child.id(), name).with_context(|| self.child.early_end_error())
    }

    /// Closes the agent's stdin, which must end it.
    pub(crate) fn end(self) -> Result<()> {
        drop(self.pipes);
        self.child.end()
    }
}
