//! A host, the agent in another process, and a session between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bowline_agent::model::provider::Provider;
use bowline_host::{Connection, Host, Session, SessionOptions};
use bowline_state::accumulator::Snapshot;
use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{StopReason, ToolCallStatus};
use bowline_wire::{AgentExit, Grace};
use tokio::process::Command;

use super::editor::Editor;
use super::tour::Tour;

/// A host, the agent in another process, and a session between them.
pub(super) struct Stage {
    pub(super) editor: Arc<Editor>,
    pub(super) session: Session,
    connection: Connection,
    directory: PathBuf,
}

impl Stage {
    /// Starts the agent and opens a session. What the agent keeps is kept below `base`, and whatever keys the user has,
    /// none is used.
    pub(super) async fn open(
        tour: &mut Tour,
        host: &Host,
        editor: &Arc<Editor>,
        directory: &Path,
        base: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find the bowline program")?);
        command.args(["agent", "--model", "offline", "--shell"]).current_dir(directory);
        for provider in Provider::ALL {
            command.env_remove(provider.variable()).env_remove(provider.url_variable());
        }
        for (variable, below) in
            [("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data")]
        {
            command.env(variable, base.join("agent").join(below));
        }
        let connection = host.spawn(command).await?;
        let answer = connection.initialized();
        let name =
            answer.agent_info.as_ref().map_or_else(|| "the agent".to_owned(), |info| info.name.clone());
        let version = answer.protocol_version;
        let session = connection.new_session(SessionOptions::default()).await?;
        let pid = connection.pid();
        let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        tour.say("host", &format!("starts `bowline agent --model offline --shell` as process {pid}"));
        tour.check(
            &format!("{name} speaks version {version} of the protocol and opened a session"),
            version == ProtocolVersion::V1,
            || "another version".to_owned(),
        );
        Ok(Stage { editor: editor.clone(), connection, session, directory: directory.to_owned() })
    }

    /// Takes a turn and returns the session as it stands after it.
    pub(super) async fn ask(&self, tour: &Tour, text: &str) -> Result<Turn> {
        tour.say("user", &self.near(text));
        let turn = self.session.prompt_text(text).await?;
        if turn.stop != StopReason::EndTurn {
            bail!("the turn {text:?} ended with {:?}", turn.stop);
        }
        Ok(Turn(self.session.snapshot()))
    }

    /// Takes a turn, and shows what is answered.
    pub(super) async fn answered(&self, tour: &Tour, text: &str) -> Result<Turn> {
        let turn = self.ask(tour, text).await?;
        self.answer(tour, &turn);
        Ok(turn)
    }

    /// Shows what is answered, without what marks code in a conversation.
    pub(super) fn answer(&self, tour: &Tour, turn: &Turn) {
        let said = self.near(&turn.last_words());
        let lines: Vec<&str> =
            said.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("```")).collect();
        tour.say("agent", &lines.join("\n"));
    }

    /// Shows what the person was asked, and returns it.
    pub(super) fn asked(&self, tour: &Tour) -> Vec<String> {
        let asked = self.editor.asked();
        for question in &asked {
            tour.say("asked", &self.near(question));
        }
        asked
    }

    /// Returns text in which files of the project are named as one names them there.
    pub(super) fn near(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.directory.display()), "")
    }

    /// Ends the agent.
    pub(super) async fn close(self) -> Option<AgentExit> {
        self.connection.shutdown(Grace::default()).await
    }
}

/// The session after a turn.
pub(super) struct Turn(Snapshot);

impl Turn {
    pub(super) fn last_words(&self) -> String {
        self.0.messages().next_back().map(|message| message.text()).unwrap_or_default()
    }

    pub(super) fn last_status(&self) -> Option<ToolCallStatus> {
        self.0.tool_calls().next_back().map(|call| call.status)
    }

    pub(super) fn calls(&self) -> String {
        self.0.tool_calls().map(|call| format!("{} {:?}\n", call.title, call.status)).collect()
    }
}
