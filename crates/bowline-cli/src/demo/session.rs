//! A host, the agent in another process, and a session between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bowline_agent::model::provider::Provider;
use bowline_host::{Connection, Host, HostSession, SessionOptions};
use bowline_protocol::accumulator::SessionSnapshot;
use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{StopReason, ToolCallStatus};
use bowline_wire::{AgentExit, ShutdownGrace};
use tokio::process::Command;

use super::editor::DemoEditor;
use super::tour::Tour;

/// A host, the agent in another process, and a session between them.
pub(super) struct DemoSession {
    pub(super) editor: Arc<DemoEditor>,
    pub(super) session: HostSession,
    connection: Connection,
    directory: PathBuf,
}

impl DemoSession {
    /// Starts the agent and opens a session. The agent's state is kept below `base`, and the user's keys are not used.
    pub(super) async fn open(
        tour: &mut Tour,
        host: &Host,
        editor: &Arc<DemoEditor>,
        directory: &Path,
        base: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find the bowline program")?);
        command.args(["agent", "--model", "offline", "--shell"]).current_dir(directory);
        for provider in Provider::ALL {
            command.env_remove(provider.key_variable()).env_remove(provider.url_variable());
        }
        for (variable, subdirectory) in
            [("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data")]
        {
            command.env(variable, base.join("agent").join(subdirectory));
        }
        let connection = host.spawn(command).await?;
        let response = connection.initialize_response();
        let name =
            response.agent_info.as_ref().map_or_else(|| "the agent".to_owned(), |info| info.name.clone());
        let version = response.protocol_version;
        let session = connection.new_session(SessionOptions::default()).await?;
        let pid = connection.pid();
        let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        tour.print_message(
            "host",
            &format!("starts `bowline agent --model offline --shell` as process {pid}"),
        );
        tour.check(
            &format!("{name} speaks version {version} of the protocol and opened a session"),
            version == ProtocolVersion::V1,
            || "another version".to_owned(),
        );
        Ok(DemoSession { editor: editor.clone(), connection, session, directory: directory.to_owned() })
    }

    /// Runs a turn and returns the session's state after it.
    pub(super) async fn prompt(&self, tour: &Tour, text: &str) -> Result<DemoTurn> {
        tour.print_message("user", &self.shorten_paths(text));
        let turn = self.session.prompt_text(text).await?;
        if turn.stop_reason != StopReason::EndTurn {
            bail!("the turn {text:?} ended with {:?}", turn.stop_reason);
        }
        Ok(DemoTurn(self.session.snapshot()))
    }

    /// Runs a turn, and shows the answer.
    pub(super) async fn prompt_and_show(&self, tour: &Tour, text: &str) -> Result<DemoTurn> {
        let turn = self.prompt(tour, text).await?;
        self.show_answer(tour, &turn);
        Ok(turn)
    }

    /// Shows the answer, without code fences.
    pub(super) fn show_answer(&self, tour: &Tour, turn: &DemoTurn) {
        let message = self.shorten_paths(&turn.last_message());
        let lines: Vec<&str> =
            message.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("```")).collect();
        tour.print_message("agent", &lines.join("\n"));
    }

    /// Shows the questions that the user was asked, and returns them.
    pub(super) fn show_questions(&self, tour: &Tour) -> Vec<String> {
        let questions = self.editor.take_questions();
        for question in &questions {
            tour.print_message("asked", &self.shorten_paths(question));
        }
        questions
    }

    /// Shortens the project's paths in a text to relative ones.
    pub(super) fn shorten_paths(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.directory.display()), "")
    }

    /// Ends the agent.
    pub(super) async fn close(self) -> Option<AgentExit> {
        self.connection.shutdown(ShutdownGrace::default()).await
    }
}

/// The session's state after a turn.
pub(super) struct DemoTurn(SessionSnapshot);

impl DemoTurn {
    pub(super) fn last_message(&self) -> String {
        self.0.messages().next_back().map(|message| message.text()).unwrap_or_default()
    }

    pub(super) fn last_status(&self) -> Option<ToolCallStatus> {
        self.0.tool_calls().next_back().map(|call| call.status)
    }

    pub(super) fn describe_tool_calls(&self) -> String {
        self.0.tool_calls().map(|call| format!("{} {:?}\n", call.title, call.status)).collect()
    }
}
