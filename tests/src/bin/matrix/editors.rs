//! The editors of the matrix: plugins of Emacs and Neovim, which a script drives without a terminal.
//!
//! No registry has the plugins, so they come from a directory that the user names in a variable.

use std::path::Path;
use std::process::{Command, Stdio};

/// A plugin of an editor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EditorPlugin {
    AgentShell,
    CodeCompanion,
    Agentic,
}

/// An editor: its program, what it must be able to do, and where its plugins are.
struct Editor {
    requirement: &'static str,
    // Fails if the program is too old.
    version_check: &'static [&'static str],
    plugins_variable: &'static str,
    plugins: &'static str,
}

const EMACS: Editor = Editor {
    requirement: "Emacs 29.1 or later",
    version_check: &[
        "emacs",
        "-Q",
        "--batch",
        "--eval",
        "(kill-emacs (if (version< emacs-version \"29.1\") 1 0))",
    ],
    plugins_variable: "BOWLINE_EMACS_PLUGINS",
    plugins: "acp, shell-maker and agent-shell",
};

const NEOVIM: Editor = Editor {
    requirement: "Neovim 0.11 or later",
    version_check: &[
        "nvim",
        "--clean",
        "--headless",
        "-c",
        "if !has('nvim-0.11') | cquit | endif",
        "-c",
        "qall",
    ],
    plugins_variable: "BOWLINE_NVIM_PLUGINS",
    plugins: "plenary.nvim, codecompanion.nvim and agentic.nvim",
};

impl EditorPlugin {
    pub(crate) const ALL: [Self; 3] = [Self::AgentShell, Self::CodeCompanion, Self::Agentic];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AgentShell => "agent-shell",
            Self::CodeCompanion => "codecompanion.nvim",
            Self::Agentic => "agentic.nvim",
        }
    }

    fn editor(self) -> Editor {
        match self {
            Self::AgentShell => EMACS,
            Self::CodeCompanion | Self::Agentic => NEOVIM,
        }
    }

    /// Returns the command that starts the editor and runs the script. Callers append the agent's command.
    pub(crate) fn command(self, root: &Path) -> Vec<String> {
        let script = |path: &str| root.join("tests/peers").join(path).display().to_string();
        let (emacs, neovim) = (script("emacs/drive.el"), script("neovim/drive.lua"));
        let words: &[&str] = match self {
            Self::AgentShell => &["emacs", "-Q", "--batch", "-l", &emacs],
            Self::CodeCompanion | Self::Agentic => &["nvim", "-l", &neovim, self.name()],
        };
        words.iter().map(ToString::to_string).collect()
    }

    /// Returns the variables that the script and the agent read.
    pub(crate) fn variables(self) -> Vec<(&'static str, String)> {
        let variable = self.editor().plugins_variable;
        // CodeCompanion logs in wherever an agent offers it; the model of the script needs no key.
        let key = ("ANTHROPIC_API_KEY", "x".to_owned());
        vec![(variable, std::env::var(variable).unwrap_or_default()), key]
    }

    /// Returns why the agent does not see what is not saved, if that is the plugin's fault.
    pub(crate) fn read_fault(self) -> Option<&'static str> {
        (self == Self::CodeCompanion).then_some("it reads the disk, not the buffer")
    }

    /// Returns the text that the plugin's known fault leaves after the edit, and the fault.
    pub(crate) fn edit_fault(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::CodeCompanion => {
                Some(("one\n2\nthree\n\n", "its write replaces what is not saved, and adds a line"))
            }
            Self::Agentic => Some((
                "one\n2\nthree\nnot saved yet",
                "it reads and writes the file without its last line end",
            )),
            Self::AgentShell => None,
        }
    }

    /// Returns what is missing to run the plugin here, if anything is.
    pub(crate) fn missing_reason(self) -> Option<String> {
        let Editor { requirement, version_check, plugins_variable, plugins } = self.editor();
        let mut check = Command::new(version_check[0]);
        check.args(&version_check[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !check.status().is_ok_and(|status| status.success()) {
            return Some(format!("needs {requirement}"));
        }
        let directory = std::env::var(plugins_variable).unwrap_or_default();
        let is_there = |name: &str| {
            let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name()).any(|entry| entry.to_string_lossy().starts_with(name))
        };
        (!is_there(self.name()))
            .then(|| format!("needs {plugins_variable}: a directory that holds {plugins}"))
    }
}
