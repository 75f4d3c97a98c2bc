//! `bowline serve` in a process of its own, with a token.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::model_server::{MODEL, ModelServer};

/// The options of a server with a short lease, which a busy machine can still renew in time.
const SHARED_OPTIONS: [&str; 6] = ["--listen", "127.0.0.1:0", "--lease-ms", "8000", "--heartbeat-ms", "200"];

/// The process. It is killed when this is dropped, as if the machine had failed.
#[derive(Debug)]
pub struct OwnServer {
    address: String,
    token: String,
    process: Child,
}

impl OwnServer {
    /// Starts the server with its state in `home`, for sessions below `root`, on an address such as `127.0.0.1:0`. The
    /// agent is Bowline's own if `agent` is empty. A second start in the same home uses the same sessions and tokens.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn start(bowline: &Path, home: &Path, root: &Path, listen: &str, agent: &[String]) -> Result<Self> {
        Self::start_on(bowline, home, root, &["--listen", listen], agent, None)
    }

    /// Starts one of several servers that share a database, with a short lease.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn start_shared(bowline: &Path, home: &Path, root: &Path, store: &str) -> Result<Self> {
        Self::launch(bowline, home, root, &SHARED_OPTIONS, &[], Some(store), &[])
    }

    /// Starts one of several servers that share a database, whose agent uses a scripted model.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn start_shared_with_model(
        bowline: &Path,
        home: &Path,
        root: &Path,
        store: &str,
        model: &ModelServer,
    ) -> Result<Self> {
        let config = home.join(".config/bowline");
        std::fs::create_dir_all(&config)?;
        std::fs::write(config.join("config.toml"), format!("model = \"compatible/{MODEL}\"\n"))?;
        let url = format!("{}/v1", model.url());
        let environment = [("COMPATIBLE_BASE_URL", &*url)];
        Self::launch(bowline, home, root, &SHARED_OPTIONS, &[], Some(store), &environment)
    }

    /// Starts the server with its sessions and tokens in a store: a directory or the address of a database.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn start_on(
        bowline: &Path,
        home: &Path,
        root: &Path,
        options: &[&str],
        agent: &[String],
        store: Option<&str>,
    ) -> Result<Self> {
        Self::launch(bowline, home, root, options, agent, store, &[])
    }

    fn launch(
        bowline: &Path,
        home: &Path,
        root: &Path,
        options: &[&str],
        agent: &[String],
        store: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let command = |arguments: &[&str]| {
            let mut command = Command::new(bowline);
            command.args(arguments).env("HOME", home).env("XDG_STATE_HOME", home.join("state"));
            command.envs(environment.iter().copied());
            if let Some(store) = store {
                command.env("BOWLINE_STORE", store);
            }
            command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME").stdin(Stdio::null());
            command
        };
        let token_file = home.join("token");
        if !token_file.exists() {
            let made = command(&["serve", "token", "add", "tester"]).stderr(Stdio::inherit()).output()?;
            std::fs::write(&token_file, made.stdout)?;
        }
        let token = std::fs::read_to_string(&token_file)?.trim().to_owned();
        let root = root.to_str().context("the root is not UTF-8")?;
        let mut serve = command(&["serve", "--root", root]);
        serve.args(options);
        if !agent.is_empty() {
            serve.arg("--").args(agent);
        }
        let mut process = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = process.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("Serving on http://").and_then(|line| line.strip_suffix("/acp"));
        let address = address.with_context(|| format!("the server did not start: {line}"))?.to_owned();
        Ok(Self { address, token, process })
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the token of its client.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the file with the token.
    #[must_use]
    pub fn token_file(home: &Path) -> PathBuf {
        home.join("token")
    }

    /// Returns the id of the process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// Fails if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.process.id())?;
        let id = Pid::from_raw(id).context("the process has no id")?;
        Ok(kill_process(id, signal)?)
    }

    /// Asks it to end, and returns whether it ended without an error.
    ///
    /// # Errors
    /// Fails if it cannot be waited for.
    pub fn terminate(mut self) -> Result<bool> {
        self.signal(Signal::TERM)?;
        Ok(self.process.wait()?.success())
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
