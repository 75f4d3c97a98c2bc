//! The editors and agents on this machine, and the next steps with them.

use std::ffi::OsString;
use std::path::Path;

use super::report::ReportSection;
use crate::setup::{InstalledEditor, find_installed};
use bowline_client::agents;

/// Well-known agents: the program, and the command that starts it as an ACP agent.
const KNOWN_AGENTS: [(&str, &str); 10] = [
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

/// The installed editors and agents.
pub(super) struct InstalledPeers {
    editors: Vec<InstalledEditor>,
    // Their commands.
    agents: Vec<&'static str>,
}

/// Finds editors and agents. `search` is the program search path.
pub(super) fn find_peers(
    variable: impl Fn(&str) -> Option<OsString>,
    search: Option<&OsString>,
    cwd: &Path,
) -> InstalledPeers {
    let agents = KNOWN_AGENTS.iter().filter(|(program, _)| agents::find_program(program, search).is_some());
    InstalledPeers {
        editors: find_installed(variable, search, cwd),
        agents: agents.map(|(_, command)| *command).collect(),
    }
}

impl InstalledPeers {
    /// Reports the editors.
    pub(super) fn editors_section(&self) -> ReportSection {
        let mut section = ReportSection::new("Editors");
        for editor in &self.editors {
            match &editor.configured_in {
                Some(file) => {
                    section.add_ok(format!("{}: starts Bowline, by {}", editor.title, file.display()))
                }
                None => section.add_info(format!("{}: bowline setup {}", editor.title, editor.cli_name)),
            };
        }
        let titles: Vec<String> = self
            .editors
            .iter()
            .map(|editor| {
                let state = if editor.configured_in.is_some() { " (starts Bowline)" } else { "" };
                format!("{}{state}", editor.title)
            })
            .collect();
        if titles.is_empty() {
            section.add_info("none found that can start Bowline");
        } else {
            section.set_summary(titles.join(", "));
        }
        section
    }

    /// Reports the agents.
    pub(super) fn agents_section(&self) -> ReportSection {
        let mut section = ReportSection::new("Agents");
        for command in &self.agents {
            section.add_ok(format!("`{command}`: bowline run --agent '{command}' \"PROMPT\""));
        }
        if self.agents.is_empty() {
            section.add_info("none found beside Bowline's own");
        } else {
            section.set_summary(self.agents.join(", "));
        }
        section
    }

    /// Returns the next steps: commands, each with a description.
    pub(super) fn next_steps(&self) -> Vec<(String, String)> {
        let is_unconfigured = |editor: &&InstalledEditor| editor.configured_in.is_none();
        let write_flag = |editor: &InstalledEditor| if editor.is_writable { " --write" } else { "" };
        let mut next = Vec::new();
        let editor = self.editors.iter().filter(|editor| editor.supports_agents).find(is_unconfigured);
        if let Some(editor) = editor {
            let (cli_name, title, write_flag) = (&editor.cli_name, editor.title, write_flag(editor));
            next.push((
                format!("bowline setup {cli_name}{write_flag}"),
                format!("Bowline's agent in {title}"),
            ));
            if let Some(agent) = self.agents.first() {
                let name = agent.split(' ').next().unwrap_or_default();
                next.push((
                    format!("bowline setup {cli_name} --proxy '{agent}'{write_flag}"),
                    format!("Bowline between {title} and {name}"),
                ));
            }
        }
        let client = self.editors.iter().filter(|editor| !editor.supports_agents).find(is_unconfigured);
        if let Some(client) = client {
            let write_flag = write_flag(client);
            next.push((
                format!("bowline setup {}{write_flag}", client.cli_name),
                format!("this workspace for {}", client.title),
            ));
        }
        next.push(("bowline chat".to_owned(), "talk to Bowline's agent here".to_owned()));
        next
    }
}
