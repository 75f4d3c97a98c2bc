//! A peer that serves its agent over HTTP and WebSocket, in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// The process. It is killed when this is dropped, as if the machine had failed.
#[derive(Debug)]
pub struct PeerServer {
    address: String,
    process: Child,
}

impl PeerServer {
    /// Starts the agent of a peer as a server, on a free port.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn start(agent: &[String]) -> Result<Self> {
        let (program, arguments) = agent.split_first().context("the agent's command is missing")?;
        let mut process = Command::new(program)
            .args(arguments)
            .arg("--listen")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("the server has no output")?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        Ok(Self { address: address.trim().to_owned(), process })
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
