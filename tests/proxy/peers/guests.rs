//! Agents that we did not write, each in a home of its own, with a model that says what the test wants.

use std::path::Path;

use serde_json::{Value, json};
use test_support::agent_homes::{self, Variables};
use test_support::model_server::{ModelServer, Say};
use xtask::peers::{OtherAgent, Peer, is_there};

use crate::program::Scene;
use crate::programs::root;

/// An agent that uses the tools of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guest {
    FastAgent,
    OpenCode,
    Claude,
    Codex,
    Gemini,
}

/// An agent that is ready to be started.
pub(super) struct Ready {
    pub(super) command: Vec<String>,
    pub(super) variables: Variables,
    pub(super) prompts: Vec<String>,
    pub(super) model: ModelServer,
}

impl Guest {
    fn agent(self) -> OtherAgent {
        match self {
            Self::FastAgent => OtherAgent::FastAgent,
            Self::OpenCode => OtherAgent::OpenCode,
            Self::Claude => OtherAgent::Claude,
            Self::Codex => OtherAgent::Codex,
            Self::Gemini => OtherAgent::Gemini,
        }
    }

    /// Returns what it calls a tool of the server `bowline`.
    fn tool(self, name: &str) -> String {
        match self {
            Self::FastAgent => format!("bowline__{name}"),
            Self::OpenCode => format!("bowline_{name}"),
            Self::Claude => format!("mcp__bowline__{name}"),
            Self::Codex => format!("mcp__bowline.{name}"),
            Self::Gemini => format!("mcp_bowline_{name}"),
        }
    }

    /// Prepares it to use these tools and then to say `Done.`, if it can be tested here. One whose model only repeats what it
    /// is told is told to use a tool by each prompt; another does it all in one turn.
    pub(super) async fn ready(self, scene: &Scene, calls: &[(&str, Value)]) -> Option<Ready> {
        let mut command = self.agent().command(&root());
        if !is_there(self.agent().name(), &command) {
            return None;
        }
        let calls = calls.iter().map(|(name, args)| (self.tool(name), args));
        let mut script: Vec<Say> = calls.clone().map(|(name, args)| Say::call(&name, args.clone())).collect();
        script.push(Say::text("Done."));
        let model = ModelServer::start(script).await.unwrap();
        let home = scene.home();
        let mut prompts = vec!["go".to_owned()];
        let variables = match self {
            Self::FastAgent => {
                // Else it keeps its sessions in the project.
                command.extend(["--home".to_owned(), home.join("fast-agent").display().to_string()]);
                prompts = calls.map(|(name, args)| format!("***CALL_TOOL {name} {args}")).collect();
                Variables::new()
            }
            Self::OpenCode => agent_homes::opencode(&home, model.url()).unwrap(),
            Self::Claude => agent_homes::claude(model.url()),
            Self::Codex => agent_homes::codex(&home, model.url()).unwrap(),
            Self::Gemini => agent_homes::gemini(&home, model.url()).unwrap(),
        };
        Some(Ready { command, variables, prompts, model })
    }
}

/// The uses of tools by which an agent reads a file that is open, and changes what is not saved of it.
pub(super) fn read_and_edit(path: &Path) -> [(&'static str, Value); 2] {
    let edits = json!([{"old_text": "not saved yet", "new_text": "written by the agent"}]);
    [("read_text_file", json!({"path": path})), ("edit_text_file", json!({"path": path, "edits": edits}))]
}

/// Returns the command of the agent on an official SDK, if it can be tested here.
pub(super) fn on_an_sdk(peer: Peer) -> Option<Vec<String>> {
    let command = peer.agent(&root());
    is_there(peer.name(), &command).then_some(command)
}

/// Returns a command as one line.
pub(super) fn line(command: &[String]) -> String {
    let quoted = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}
