//! The agents of the matrix: how each starts without a network, and the names of its tools.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::{Value, json};
use test_support::agent_homes::{self, EnvVars};
use test_support::model_server::ModelReply;
use xtask::peers::{PublishedAgent, SdkPeer};

/// An agent of another project, or one built on another project's SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixAgent {
    Published(PublishedAgent),
    Sdk(SdkPeer),
}

/// The tools that a model uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolRoute {
    /// The agent's own tools.
    Direct,
    /// The tools that the proxy adds.
    Proxy,
}

/// One step of the script for a model.
#[derive(Debug, Clone)]
pub(crate) enum ScriptStep<'a> {
    Read { path: &'a str },
    Edit { path: &'a str, old: &'a str, new: &'a str },
    Write { path: &'a str, content: &'a str },
    Run { command: &'a str },
}

impl MatrixAgent {
    pub(crate) fn all() -> Vec<Self> {
        let others = PublishedAgent::ALL.into_iter().map(Self::Published);
        others.chain(SdkPeer::ALL.into_iter().map(Self::Sdk)).collect()
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Published(agent) => agent.name().to_owned(),
            Self::Sdk(peer) => format!("{} SDK", peer.name()),
        }
    }

    pub(crate) fn command(self, root: &Path) -> Vec<String> {
        match self {
            Self::Published(agent) => agent.command(root),
            Self::Sdk(peer) => peer.agent_command(root),
        }
    }

    /// Returns the pinned version, for agents that do not report their own.
    pub(crate) fn pinned_version(self) -> Option<String> {
        match self {
            Self::Published(PublishedAgent::Eliza) => Some("12.0.0".to_owned()),
            Self::Published(_) => None,
            Self::Sdk(peer) => Some(peer.sdk_version().to_owned()),
        }
    }

    /// Prepares a home, and returns additional arguments and environment variables for the agent.
    pub(crate) fn prepare(self, home: &Path, url: &str) -> Result<(Vec<String>, EnvVars)> {
        let Self::Published(agent) = self else { return Ok((Vec::new(), EnvVars::new())) };
        Ok(match agent {
            // Otherwise it keeps its sessions in the project.
            PublishedAgent::FastAgent => {
                let home = home.join("fast-agent").display().to_string();
                (vec!["--home".to_owned(), home], EnvVars::new())
            }
            PublishedAgent::Gemini => (Vec::new(), agent_homes::prepare_gemini(home, url)?),
            PublishedAgent::OpenCode => (Vec::new(), agent_homes::prepare_opencode(home, url)?),
            PublishedAgent::Claude => (Vec::new(), agent_homes::claude_env(url)),
            PublishedAgent::Codex => (Vec::new(), agent_homes::prepare_codex(home, url)?),
            PublishedAgent::Qwen => (Vec::new(), agent_homes::prepare_qwen(home, url)?),
            PublishedAgent::Kimi => (Vec::new(), agent_homes::kimi_env(url)),
            PublishedAgent::Vibe => (Vec::new(), agent_homes::prepare_vibe(home, url)?),
            PublishedAgent::Eliza => (Vec::new(), EnvVars::new()),
        })
    }

    /// Returns a remark on loading the agent's sessions.
    ///
    /// gemini names the file of a session by the minute and the session. It opens that file for writing before it
    /// searches for the session to load: within the minute in which the session began, that truncates the file.
    pub(crate) fn load_note(self) -> Option<&'static str> {
        (self == Self::Published(PublishedAgent::Gemini))
            .then_some("in a later minute than the one in which it began")
    }

    /// Waits until a session that has just begun can be loaded.
    pub(crate) fn wait_to_load(self) {
        let minute = || SystemTime::now().duration_since(UNIX_EPOCH).map(|now| now.as_secs() / 60);
        let begun = minute().ok();
        while self.load_note().is_some() && minute().ok() == begun {
            std::thread::park_timeout(Duration::from_millis(500));
        }
    }

    /// Returns the model's search for the added tools, if the agent does not offer them at once.
    ///
    /// qwen connects to MCP servers only after it has reported the session as open, and its model must search for their
    /// tools. vibe's model is told only the server's name; it must search for the tools, and calls them from a program
    /// that it writes. Neither a server nor an editor can change that.
    pub(crate) fn tool_search(self) -> Option<ModelReply> {
        let (tool, query) = match self {
            Self::Published(PublishedAgent::Qwen) => {
                ("tool_search", json!({"query": "select:mcp__bowline__edit_text_file"}))
            }
            Self::Published(PublishedAgent::Vibe) => (
                "search_tool_functions",
                json!({"mode": "details", "functions": ["mcp_bowline.edit_text_file"]}),
            ),
            _ => return None,
        };
        Some(ModelReply::call(tool, query))
    }

    /// Returns whether a scripted model drives the agent.
    pub(crate) fn has_model(self) -> bool {
        !matches!(self, Self::Sdk(_) | Self::Published(PublishedAgent::FastAgent | PublishedAgent::Eliza))
    }

    /// Returns the prompt that makes an agent without a model do a step, or `None` if it cannot.
    pub(crate) fn prompt_for(self, way: ToolRoute, step: &ScriptStep<'_>) -> Option<String> {
        match self {
            Self::Published(PublishedAgent::FastAgent) => {
                let ModelReply::Call { name, args } = self.model_call(way, step)? else { return None };
                Some(format!("***CALL_TOOL {name} {args}"))
            }
            Self::Sdk(_) => match step {
                // One prompt of the contract reads, edits and runs.
                ScriptStep::Edit { path, old, new } => Some(
                    json!({"do": "edit", "path": path, "old": old, "new": new, "command": "echo made > made.txt"})
                        .to_string(),
                ),
                _ => None,
            },
            Self::Published(_) => None,
        }
    }

    /// Returns the model's call for a step, or `None` without a suitable tool.
    pub(crate) fn model_call(self, way: ToolRoute, step: &ScriptStep<'_>) -> Option<ModelReply> {
        let Self::Published(agent) = self else { return None };
        let (name, args) = match way {
            ToolRoute::Proxy => {
                let (name, args) = proxy_tool_call(step);
                match agent {
                    PublishedAgent::Vibe => ("run_typescript".to_owned(), vibe_program(name, &args)),
                    _ => (proxy_tool_name(agent, name)?, args),
                }
            }
            ToolRoute::Direct => own_tool_call(agent, step)?,
        };
        Some(ModelReply::call(&name, args))
    }
}

/// Returns the tool of the proxy's server for a step.
fn proxy_tool_call(step: &ScriptStep<'_>) -> (&'static str, Value) {
    match step {
        ScriptStep::Read { path } => ("read_text_file", json!({"path": path})),
        ScriptStep::Edit { path, old, new } => {
            ("edit_text_file", json!({"path": path, "edits": [{"old_text": old, "new_text": new}]}))
        }
        ScriptStep::Write { path, content } => ("write_text_file", json!({"path": path, "content": content})),
        ScriptStep::Run { command } => ("execute", json!({"command": command})),
    }
}

/// Returns the agent's name for a tool of the server `bowline`.
fn proxy_tool_name(agent: PublishedAgent, name: &str) -> Option<String> {
    Some(match agent {
        PublishedAgent::FastAgent => format!("bowline__{name}"),
        PublishedAgent::OpenCode => format!("bowline_{name}"),
        PublishedAgent::Claude | PublishedAgent::Qwen | PublishedAgent::Kimi => {
            format!("mcp__bowline__{name}")
        }
        PublishedAgent::Codex => format!("mcp__bowline.{name}"),
        PublishedAgent::Gemini => format!("mcp_bowline_{name}"),
        // vibe's model calls no tool of a server by name.
        PublishedAgent::Eliza | PublishedAgent::Vibe => return None,
    })
}

/// Returns the input of vibe's tool for programs: a program that calls one tool of the server `bowline`.
fn vibe_program(tool: &str, args: &Value) -> Value {
    json!({"code": format!("async function main() {{ return await tools.mcp_bowline.{tool}({args}); }}")})
}

/// Returns the agent's own tool for a step.
fn own_tool_call(agent: PublishedAgent, step: &ScriptStep<'_>) -> Option<(String, Value)> {
    let call = |name: &str, args: Value| Some((name.to_owned(), args));
    match (agent, step) {
        (PublishedAgent::Gemini | PublishedAgent::Qwen, ScriptStep::Read { path }) => {
            call("read_file", json!({"file_path": path}))
        }
        (PublishedAgent::Gemini, ScriptStep::Edit { path, old, new }) => call(
            "replace",
            json!({"file_path": path, "instruction": "edit", "old_string": old, "new_string": new}),
        ),
        (PublishedAgent::Qwen, ScriptStep::Edit { path, old, new }) => {
            call("edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        (PublishedAgent::Gemini | PublishedAgent::Qwen, ScriptStep::Write { path, content }) => {
            call("write_file", json!({"file_path": path, "content": content}))
        }
        (PublishedAgent::Gemini, ScriptStep::Run { command }) => {
            call("run_shell_command", json!({"command": command, "description": "run"}))
        }
        (PublishedAgent::Qwen, ScriptStep::Run { command }) => {
            call("run_shell_command", json!({"command": command, "is_background": false}))
        }
        (PublishedAgent::OpenCode, ScriptStep::Read { path }) => call("read", json!({"filePath": path})),
        (PublishedAgent::OpenCode, ScriptStep::Edit { path, old, new }) => {
            call("edit", json!({"filePath": path, "oldString": old, "newString": new}))
        }
        (PublishedAgent::OpenCode, ScriptStep::Write { path, content }) => {
            call("write", json!({"filePath": path, "content": content}))
        }
        (PublishedAgent::OpenCode, ScriptStep::Run { command }) => {
            call("bash", json!({"command": command, "description": "run"}))
        }
        (PublishedAgent::Claude, ScriptStep::Read { path }) => call("Read", json!({"file_path": path})),
        (PublishedAgent::Claude, ScriptStep::Edit { path, old, new }) => {
            call("Edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        (PublishedAgent::Claude, ScriptStep::Write { path, content }) => {
            call("Write", json!({"file_path": path, "content": content}))
        }
        (PublishedAgent::Claude, ScriptStep::Run { command }) => {
            call("Bash", json!({"command": command, "description": "run"}))
        }
        (PublishedAgent::Kimi, ScriptStep::Read { path }) => call("Read", json!({"path": path})),
        (PublishedAgent::Kimi, ScriptStep::Edit { path, old, new }) => {
            call("Edit", json!({"path": path, "old_string": old, "new_string": new}))
        }
        (PublishedAgent::Kimi, ScriptStep::Write { path, content }) => {
            call("Write", json!({"path": path, "content": content}))
        }
        (PublishedAgent::Kimi, ScriptStep::Run { command }) => {
            call("Bash", json!({"command": command, "description": "run"}))
        }
        (PublishedAgent::Vibe, ScriptStep::Read { path }) => call("read_file", json!({"path": path})),
        (PublishedAgent::Vibe, ScriptStep::Edit { path, old, new }) => {
            call("edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        (PublishedAgent::Vibe, ScriptStep::Write { path, content }) => {
            call("write_file", json!({"path": path, "content": content}))
        }
        (PublishedAgent::Vibe, ScriptStep::Run { command }) => call("bash", json!({"command": command})),
        (PublishedAgent::FastAgent, ScriptStep::Read { path }) => {
            call("read_text_file", json!({"path": path}))
        }
        (PublishedAgent::FastAgent, ScriptStep::Write { path, content }) => {
            call("write_text_file", json!({"path": path, "content": content}))
        }
        (PublishedAgent::FastAgent, ScriptStep::Run { command }) => {
            call("execute", json!({"command": command}))
        }
        // codex has a tool for commands; its patch tool is not a model function.
        (PublishedAgent::Codex, ScriptStep::Read { path }) => {
            call("exec_command", json!({"cmd": format!("cat {path}")}))
        }
        (PublishedAgent::Codex, ScriptStep::Edit { path, old, new }) => {
            call("exec_command", json!({"cmd": format!("sed -i 's/{old}/{new}/' {path}")}))
        }
        (PublishedAgent::Codex, ScriptStep::Write { path, content }) => {
            call("exec_command", json!({"cmd": format!("printf '{}' > {path}", content.escape_debug())}))
        }
        (PublishedAgent::Codex, ScriptStep::Run { command }) => call("exec_command", json!({"cmd": command})),
        (PublishedAgent::FastAgent, ScriptStep::Edit { .. }) | (PublishedAgent::Eliza, _) => None,
    }
}
