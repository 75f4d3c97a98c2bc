//! The agents of the matrix: how each is started without a network, and what its tools are called.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::{Value, json};
use test_support::agent_homes::{self, Variables};
use test_support::model_server::Say;
use xtask::peers::{OtherAgent, Peer};

/// An agent of another project, or one built on another project's SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixAgent {
    Other(OtherAgent),
    Sdk(Peer),
}

/// Which tools a model uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The agent's own.
    Direct,
    /// Those that the proxy adds.
    Proxy,
}

/// One thing that the script has a model do.
#[derive(Debug, Clone)]
pub(crate) enum Step<'a> {
    Read { path: &'a str },
    Edit { path: &'a str, old: &'a str, new: &'a str },
    Write { path: &'a str, content: &'a str },
    Run { command: &'a str },
}

impl MatrixAgent {
    pub(crate) fn all() -> Vec<Self> {
        let others = OtherAgent::ALL.into_iter().map(Self::Other);
        others.chain(Peer::ALL.into_iter().map(Self::Sdk)).collect()
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Other(agent) => agent.name().to_owned(),
            Self::Sdk(peer) => format!("{} SDK", peer.name()),
        }
    }

    pub(crate) fn command(self, root: &Path) -> Vec<String> {
        match self {
            Self::Other(agent) => agent.command(root),
            Self::Sdk(peer) => peer.agent(root),
        }
    }

    /// Returns the version that is pinned, of those that do not give it themselves.
    pub(crate) fn pinned_version(self) -> Option<String> {
        match self {
            Self::Other(OtherAgent::Eliza) => Some("12.0.0".to_owned()),
            Self::Other(_) => None,
            Self::Sdk(peer) => Some(peer.sdk_version().to_owned()),
        }
    }

    /// Prepares a home, and returns what else the agent is started with.
    pub(crate) fn prepare(self, home: &Path, url: &str) -> Result<(Vec<String>, Variables)> {
        let Self::Other(agent) = self else { return Ok((Vec::new(), Variables::new())) };
        Ok(match agent {
            // Else it keeps its sessions in the project.
            OtherAgent::FastAgent => {
                let home = home.join("fast-agent").display().to_string();
                (vec!["--home".to_owned(), home], Variables::new())
            }
            OtherAgent::Gemini => (Vec::new(), agent_homes::gemini(home, url)?),
            OtherAgent::OpenCode => (Vec::new(), agent_homes::opencode(home, url)?),
            OtherAgent::Claude => (Vec::new(), agent_homes::claude(url)),
            OtherAgent::Codex => (Vec::new(), agent_homes::codex(home, url)?),
            OtherAgent::Qwen => (Vec::new(), agent_homes::qwen(home, url)?),
            OtherAgent::Kimi => (Vec::new(), agent_homes::kimi(url)),
            OtherAgent::Eliza => (Vec::new(), Variables::new()),
        })
    }

    /// Returns what has to be said of loading its sessions.
    ///
    /// gemini names the file of a session by the minute and the session. It opens that file anew before it looks for what is
    /// to be loaded: if the minute is the one in which the session began, what the file held is gone.
    pub(crate) fn load_note(self) -> Option<&'static str> {
        (self == Self::Other(OtherAgent::Gemini))
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

    /// Returns what a model says to have a look at the added tools, if it is not shown them at once.
    ///
    /// qwen connects to servers after it has answered that a session is open, and its model has to search for their tools:
    /// nothing that a server or an editor says changes that.
    pub(crate) fn search(self) -> Option<Say> {
        let query = json!({"query": "select:mcp__bowline__edit_text_file"});
        (self == Self::Other(OtherAgent::Qwen)).then(|| Say::call("tool_search", query))
    }

    /// Whether a scripted model decides what it does.
    pub(crate) fn has_model(self) -> bool {
        !matches!(self, Self::Sdk(_) | Self::Other(OtherAgent::FastAgent | OtherAgent::Eliza))
    }

    /// Returns the prompts that have an agent without a model do a step; none if it cannot.
    pub(crate) fn prompts(self, way: Way, step: &Step<'_>) -> Option<String> {
        match self {
            Self::Other(OtherAgent::FastAgent) => {
                let Say::Call { name, args } = self.call(way, step)? else { return None };
                Some(format!("***CALL_TOOL {name} {args}"))
            }
            Self::Sdk(_) => match step {
                // One prompt of the contract reads, edits and runs.
                Step::Edit { path, old, new } => Some(
                    json!({"do": "edit", "path": path, "old": old, "new": new, "command": "echo made > made.txt"})
                        .to_string(),
                ),
                _ => None,
            },
            Self::Other(_) => None,
        }
    }

    /// Returns what a model says to have a step done; none if there is no such tool.
    pub(crate) fn call(self, way: Way, step: &Step<'_>) -> Option<Say> {
        let Self::Other(agent) = self else { return None };
        let (name, args) = match way {
            Way::Proxy => {
                let (name, args) = added(step);
                (added_name(agent, name)?, args)
            }
            Way::Direct => own(agent, step)?,
        };
        Some(Say::call(&name, args))
    }
}

/// Returns the tool of the proxy's server that does a step.
fn added(step: &Step<'_>) -> (&'static str, Value) {
    match step {
        Step::Read { path } => ("read_text_file", json!({"path": path})),
        Step::Edit { path, old, new } => {
            ("edit_text_file", json!({"path": path, "edits": [{"old_text": old, "new_text": new}]}))
        }
        Step::Write { path, content } => ("write_text_file", json!({"path": path, "content": content})),
        Step::Run { command } => ("execute", json!({"command": command})),
    }
}

/// Returns what an agent calls a tool of the server `bowline`.
fn added_name(agent: OtherAgent, name: &str) -> Option<String> {
    Some(match agent {
        OtherAgent::FastAgent => format!("bowline__{name}"),
        OtherAgent::OpenCode => format!("bowline_{name}"),
        OtherAgent::Claude | OtherAgent::Qwen | OtherAgent::Kimi => format!("mcp__bowline__{name}"),
        OtherAgent::Codex => format!("mcp__bowline.{name}"),
        OtherAgent::Gemini => format!("mcp_bowline_{name}"),
        OtherAgent::Eliza => return None,
    })
}

/// Returns an agent's own tool that does a step.
fn own(agent: OtherAgent, step: &Step<'_>) -> Option<(String, Value)> {
    let call = |name: &str, args: Value| Some((name.to_owned(), args));
    match (agent, step) {
        (OtherAgent::Gemini | OtherAgent::Qwen, Step::Read { path }) => {
            call("read_file", json!({"file_path": path}))
        }
        (OtherAgent::Gemini, Step::Edit { path, old, new }) => call(
            "replace",
            json!({"file_path": path, "instruction": "edit", "old_string": old, "new_string": new}),
        ),
        (OtherAgent::Qwen, Step::Edit { path, old, new }) => {
            call("edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        (OtherAgent::Gemini | OtherAgent::Qwen, Step::Write { path, content }) => {
            call("write_file", json!({"file_path": path, "content": content}))
        }
        (OtherAgent::Gemini, Step::Run { command }) => {
            call("run_shell_command", json!({"command": command, "description": "run"}))
        }
        (OtherAgent::Qwen, Step::Run { command }) => {
            call("run_shell_command", json!({"command": command, "is_background": false}))
        }
        (OtherAgent::OpenCode, Step::Read { path }) => call("read", json!({"filePath": path})),
        (OtherAgent::OpenCode, Step::Edit { path, old, new }) => {
            call("edit", json!({"filePath": path, "oldString": old, "newString": new}))
        }
        (OtherAgent::OpenCode, Step::Write { path, content }) => {
            call("write", json!({"filePath": path, "content": content}))
        }
        (OtherAgent::OpenCode, Step::Run { command }) => {
            call("bash", json!({"command": command, "description": "run"}))
        }
        (OtherAgent::Claude, Step::Read { path }) => call("Read", json!({"file_path": path})),
        (OtherAgent::Claude, Step::Edit { path, old, new }) => {
            call("Edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        (OtherAgent::Claude, Step::Write { path, content }) => {
            call("Write", json!({"file_path": path, "content": content}))
        }
        (OtherAgent::Claude, Step::Run { command }) => {
            call("Bash", json!({"command": command, "description": "run"}))
        }
        (OtherAgent::Kimi, Step::Read { path }) => call("Read", json!({"path": path})),
        (OtherAgent::Kimi, Step::Edit { path, old, new }) => {
            call("Edit", json!({"path": path, "old_string": old, "new_string": new}))
        }
        (OtherAgent::Kimi, Step::Write { path, content }) => {
            call("Write", json!({"path": path, "content": content}))
        }
        (OtherAgent::Kimi, Step::Run { command }) => {
            call("Bash", json!({"command": command, "description": "run"}))
        }
        (OtherAgent::FastAgent, Step::Read { path }) => call("read_text_file", json!({"path": path})),
        (OtherAgent::FastAgent, Step::Write { path, content }) => {
            call("write_text_file", json!({"path": path, "content": content}))
        }
        (OtherAgent::FastAgent, Step::Run { command }) => call("execute", json!({"command": command})),
        // It has a tool for commands, and a patch that is no function of the model's.
        (OtherAgent::Codex, Step::Read { path }) => {
            call("exec_command", json!({"cmd": format!("cat {path}")}))
        }
        (OtherAgent::Codex, Step::Edit { path, old, new }) => {
            call("exec_command", json!({"cmd": format!("sed -i 's/{old}/{new}/' {path}")}))
        }
        (OtherAgent::Codex, Step::Write { path, content }) => {
            call("exec_command", json!({"cmd": format!("printf '{}' > {path}", content.escape_debug())}))
        }
        (OtherAgent::Codex, Step::Run { command }) => call("exec_command", json!({"cmd": command})),
        (OtherAgent::FastAgent, Step::Edit { .. }) | (OtherAgent::Eliza, _) => None,
    }
}
