//! Third-party agents, each in its own home, with a model whose answers the test dictates.

use std::path::Path;

use serde_json::{Value, json};
use test_support::agent_homes::{self, EnvVars};
use test_support::model_server::{ModelReply, ModelServer};
use xtask::peers::{PublishedAgent, SdkPeer, is_available};

use crate::fixture::CliFixture;
use crate::programs::workspace_root;

/// An agent that uses the tools of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum McpAgent {
    FastAgent,
    OpenCode,
    Claude,
    Codex,
    Gemini,
}

/// An agent that is ready to start.
pub(super) struct PreparedAgent {
    pub(super) command: Vec<String>,
    pub(super) variables: EnvVars,
    pub(super) prompts: Vec<String>,
    pub(super) model: ModelServer,
}

impl McpAgent {
    fn third_party_agent(self) -> PublishedAgent {
        match self {
            Self::FastAgent => PublishedAgent::FastAgent,
            Self::OpenCode => PublishedAgent::OpenCode,
            Self::Claude => PublishedAgent::Claude,
            Self::Codex => PublishedAgent::Codex,
            Self::Gemini => PublishedAgent::Gemini,
        }
    }

    /// Returns the agent's name for a tool of the server `bowline`.
    fn tool_name(self, name: &str) -> String {
        match self {
            Self::FastAgent => format!("bowline__{name}"),
            Self::OpenCode => format!("bowline_{name}"),
            Self::Claude => format!("mcp__bowline__{name}"),
            Self::Codex => format!("mcp__bowline.{name}"),
            Self::Gemini => format!("mcp_bowline_{name}"),
        }
    }

    /// Prepares it to use these tools and then to say `Done.`, if it is available here. An agent whose model only
    /// echoes its prompt needs one prompt per tool; the others use all tools in one turn.
    pub(super) async fn prepare(self, scene: &CliFixture, calls: &[(&str, Value)]) -> Option<PreparedAgent> {
        let mut command = self.third_party_agent().command(&workspace_root());
        if !is_available(self.third_party_agent().name(), &command) {
            return None;
        }
        let calls = calls.iter().map(|(name, args)| (self.tool_name(name), args));
        let mut script: Vec<ModelReply> =
            calls.clone().map(|(name, args)| ModelReply::call(&name, args.clone())).collect();
        script.push(ModelReply::text("Done."));
        let model = ModelServer::start(script).await.unwrap();
        let home = scene.home();
        let mut prompts = vec!["go".to_owned()];
        let variables = match self {
            Self::FastAgent => {
                // Otherwise it keeps its sessions in the project.
                command.extend(["--home".to_owned(), home.join("fast-agent").display().to_string()]);
                prompts = calls.map(|(name, args)| format!("***CALL_TOOL {name} {args}")).collect();
                EnvVars::new()
            }
            Self::OpenCode => agent_homes::prepare_opencode(&home, model.url()).unwrap(),
            Self::Claude => agent_homes::claude_env(model.url()),
            Self::Codex => agent_homes::prepare_codex(&home, model.url()).unwrap(),
            Self::Gemini => agent_homes::prepare_gemini(&home, model.url()).unwrap(),
        };
        Some(PreparedAgent { command, variables, prompts, model })
    }
}

/// The tool calls by which an agent reads an open file and changes its unsaved text.
pub(super) fn read_and_edit_calls(path: &Path) -> [(&'static str, Value); 2] {
    let edits = json!([{"old_text": "not saved yet", "new_text": "written by the agent"}]);
    [("read_text_file", json!({"path": path})), ("edit_text_file", json!({"path": path, "edits": edits}))]
}

/// Returns the command of the agent on an official SDK, if it is available here.
pub(super) fn sdk_agent_command(peer: SdkPeer) -> Option<Vec<String>> {
    let command = peer.agent_command(&workspace_root());
    is_available(peer.name(), &command).then_some(command)
}

/// Returns a command as one shell line.
pub(super) fn shell_quote(command: &[String]) -> String {
    let quoted = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}
