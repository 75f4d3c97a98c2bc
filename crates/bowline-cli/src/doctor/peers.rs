//! Which editors and agents are on this machine, and what to do next with them.

use std::ffi::OsString;
use std::path::Path;

use super::report::Section;
use crate::client::agents;
use crate::setup::{Installed, installed};

/// Agents that people use: the program, and the command that has it speak the protocol.
const AGENTS: [(&str, &str); 10] = [
    ("claude-agent-acp", "claude-agent-acp"),
    ("claude-code-acp", "claude-code-acp"),
    ("codex-acp", "codex-acp"),
    ("gemini", "gemini --acp"),
    ("opencode", "opencode acp"),
    ("qwen", "qwen --acp"),
    ("kimi", "kimi acp"),
    ("vibe-acp", "vibe-acp"),
    ("fast-agent-acp", "fast-agent-acp"),
    ("goose", "goose acp"),
];

/// What was found.
pub(super) struct Peers {
    editors: Vec<Installed>,
    // Their commands.
    agents: Vec<&'static str>,
}

/// Looks for editors and agents. `search` is where programs are looked for.
pub(super) fn look(
    variable: impl Fn(&str) -> Option<OsString>,
    search: Option<&OsString>,
    cwd: &Path,
) -> Peers {
    let agents = AGENTS.iter().filter(|(program, _)| agents::find(program, search).is_some());
    Peers { editors: installed(variable, search, cwd), agents: agents.map(|(_, command)| *command).collect() }
}

impl Peers {
    /// Tells of the editors.
    pub(super) fn editors(&self) -> Section {
        let mut section = Section::new("Editors");
        for editor in &self.editors {
            match &editor.set_up_in {
                Some(file) => {
                    section.well(format!("{}: starts Bowline, by {}", editor.title, file.display()))
                }
                None => section.plain(format!("{}: bowline setup {}", editor.title, editor.word)),
            };
        }
        let told: Vec<String> = self
            .editors
            .iter()
            .map(|editor| {
                let state = if editor.set_up_in.is_some() { " (starts Bowline)" } else { "" };
                format!("{}{state}", editor.title)
            })
            .collect();
        if told.is_empty() {
            section.plain("none found that can start Bowline");
        } else {
            section.summary(told.join(", "));
        }
        section
    }

    /// Tells of the agents.
    pub(super) fn agents(&self) -> Section {
        let mut section = Section::new("Agents");
        for command in &self.agents {
            section.well(format!("`{command}`: bowline run --agent '{command}' \"PROMPT\""));
        }
        if self.agents.is_empty() {
            section.plain("none found beside Bowline's own");
        } else {
            section.summary(self.agents.join(", "));
        }
        section
    }

    /// Returns what to do next: commands, each with what it does.
    pub(super) fn next(&self) -> Vec<(String, String)> {
        let waiting = |editor: &&Installed| editor.set_up_in.is_none();
        let write = |editor: &Installed| if editor.can_be_written { " --write" } else { "" };
        let mut next = Vec::new();
        let editor = self.editors.iter().filter(|editor| editor.takes_agents).find(waiting);
        if let Some(editor) = editor {
            let (word, title, write) = (editor.word, editor.title, write(editor));
            next.push((format!("bowline setup {word}{write}"), format!("Bowline's agent in {title}")));
            if let Some(agent) = self.agents.first() {
                let name = agent.split(' ').next().unwrap_or_default();
                next.push((
                    format!("bowline setup {word} --proxy '{agent}'{write}"),
                    format!("Bowline between {title} and {name}"),
                ));
            }
        }
        let client = self.editors.iter().filter(|editor| !editor.takes_agents).find(waiting);
        if let Some(client) = client {
            let write = write(client);
            next.push((
                format!("bowline setup {}{write}", client.word),
                format!("this workspace for {}", client.title),
            ));
        }
        next.push(("bowline chat".to_owned(), "talk to Bowline's agent here".to_owned()));
        next
    }
}
