//! The editors and MCP clients that can start Bowline: their configuration formats and files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::jsonc;

/// An editor or another MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum EditorKind {
    /// Zed
    Zed,
    /// JetBrains IDEs, with AI Assistant
    Jetbrains,
    /// Neovim, with CodeCompanion.nvim or avante.nvim
    Neovim,
    /// Emacs, with agent-shell
    Emacs,
    /// Visual Studio Code, with the ACP Client extension; with --mcp, without it
    Vscode,
    /// Claude Desktop, as an MCP server
    ClaudeDesktop,
    /// Claude Code, as an MCP server
    ClaudeCode,
    /// Cursor, as an MCP server
    Cursor,
}

/// The role in which an editor starts Bowline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchRole {
    /// An agent, over ACP.
    Agent,
    /// A tool server, over MCP.
    McpServer,
}

/// How an editor starts Bowline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LaunchConfig {
    /// The role.
    pub(super) role: LaunchRole,
    /// Its name in the editor.
    pub(super) name: String,
    /// The program.
    pub(super) program: String,
    /// Its arguments.
    pub(super) args: Vec<String>,
}

/// The directories of a user's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigDirs {
    home: Option<PathBuf>,
    config: Option<PathBuf>,
}

/// An entry in an editor's JSON configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConfigEntry {
    /// The name of the object that holds agents or servers.
    pub(super) group: &'static str,
    /// The value of the entry.
    pub(super) value: Value,
}

/// A text to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snippet {
    /// Its purpose, if there are several.
    pub(super) title: Option<&'static str>,
    /// The text.
    pub(super) text: String,
}

impl ConfigDirs {
    /// Returns the directories for this environment.
    pub(super) fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        // Only programs on Linux follow this variable.
        let config = absolute("XDG_CONFIG_HOME").filter(|_| cfg!(target_os = "linux"));
        let config = config.or_else(|| home.as_ref().map(|home| home.join(".config")));
        Self { home, config }
    }
}

impl EditorKind {
    /// Returns its name on the command line.
    pub(super) fn cli_name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns whether it can start Bowline in a role.
    pub(super) fn supports(self, role: LaunchRole) -> bool {
        match self {
            Self::Zed | Self::Jetbrains | Self::Neovim | Self::Emacs => role == LaunchRole::Agent,
            Self::Vscode => true,
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => role == LaunchRole::McpServer,
        }
    }

    /// Returns the working directory to configure for its MCP server; `None` if it starts the server there anyway.
    pub(super) fn server_directory(self, project: &str) -> Option<String> {
        match self {
            Self::ClaudeDesktop => Some(project.to_owned()),
            Self::Cursor | Self::Vscode => Some("${workspaceFolder}".to_owned()),
            _ => None,
        }
    }

    /// Returns its display name.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Zed => "Zed",
            Self::Jetbrains => "JetBrains IDEs",
            Self::Neovim => "Neovim",
            Self::Emacs => "Emacs",
            Self::Vscode => "Visual Studio Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
        }
    }

    /// Returns the language of its configuration.
    pub(super) fn config_language(self) -> &'static str {
        match self {
            Self::Neovim => "Lua",
            Self::Emacs => "Emacs Lisp",
            _ => "JSON",
        }
    }

    /// Returns the names of its programs.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Zed => &["zed", "zeditor"],
            Self::Jetbrains => &["idea", "pycharm", "webstorm", "goland", "rustrover", "clion", "phpstorm"],
            Self::Neovim => &["nvim"],
            Self::Emacs => &["emacs"],
            Self::Vscode => &["code"],
            Self::ClaudeDesktop => &["claude-desktop"],
            Self::ClaudeCode => &["claude"],
            Self::Cursor => &["cursor"],
        }
    }

    /// Returns the directory that it creates when it runs, if that identifies it.
    pub(super) fn config_directory(self, dirs: &ConfigDirs) -> Option<PathBuf> {
        match self {
            Self::Jetbrains => dirs.config.as_ref().map(|config| config.join("JetBrains")),
            Self::Zed | Self::Vscode | Self::ClaudeDesktop => {
                let file = self.config_file(dirs, LaunchRole::Agent, Path::new(""))?;
                file.parent().map(Path::to_owned)
            }
            _ => None,
        }
    }

    /// Returns the name of the object in its file that holds agents or servers.
    pub(super) fn group_key(self, role: LaunchRole) -> Option<&'static str> {
        match self {
            Self::Zed | Self::Jetbrains => Some("agent_servers"),
            Self::Vscode if role == LaunchRole::McpServer => Some("servers"),
            Self::Vscode => Some("acp.agents"),
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => Some("mcpServers"),
            Self::Neovim | Self::Emacs => None,
        }
    }

    /// Returns the path of its configuration file, if known.
    pub(super) fn config_file(self, dirs: &ConfigDirs, role: LaunchRole, project: &Path) -> Option<PathBuf> {
        let join_base = |base: &Option<PathBuf>, name: &str| base.as_ref().map(|base| base.join(name));
        let application = |name: &str| match cfg!(target_os = "macos") {
            true => join_base(&dirs.home, &format!("Library/Application Support/{name}")),
            false => join_base(&dirs.config, name),
        };
        match self {
            Self::Zed => join_base(&dirs.config, "zed/settings.json"),
            Self::Jetbrains => join_base(&dirs.home, ".jetbrains/acp.json"),
            Self::Vscode if role == LaunchRole::McpServer => application("Code/User/mcp.json"),
            Self::Vscode => application("Code/User/settings.json"),
            Self::ClaudeDesktop => application("Claude/claude_desktop_config.json"),
            Self::ClaudeCode => join_base(&dirs.home, ".claude.json"),
            Self::Cursor => Some(project.join(".cursor/mcp.json")),
            Self::Neovim | Self::Emacs => None,
        }
    }

    /// Returns the usual path of that file, for display without a home directory.
    pub(super) fn usual_location(self, role: LaunchRole) -> &'static str {
        match self {
            Self::Zed => "~/.config/zed/settings.json",
            Self::Jetbrains => "~/.jetbrains/acp.json",
            Self::Neovim => "the set-up of the plugin, as in ~/.config/nvim/init.lua",
            Self::Emacs => "your init file, as in ~/.emacs.d/init.el",
            Self::Vscode if role == LaunchRole::McpServer => "~/.config/Code/User/mcp.json",
            Self::Vscode => "~/.config/Code/User/settings.json",
            Self::ClaudeDesktop => "claude_desktop_config.json",
            Self::ClaudeCode => "~/.claude.json",
            Self::Cursor => ".cursor/mcp.json",
        }
    }

    /// Describes where the snippet belongs.
    pub(super) fn placement_hint(self, location: &str, role: LaunchRole) -> String {
        match self {
            Self::Vscode if role == LaunchRole::Agent => format!(
                "install the extension ACP Client (formulahendry.acp-client), and add this to {location}"
            ),
            Self::Neovim => format!("add one of these to {location}"),
            Self::Emacs => format!("install agent-shell, and add this to {location}"),
            _ => format!("add this to {location}"),
        }
    }

    /// Returns the entry for its JSON file, if it has one.
    pub(super) fn config_entry(self, launch: &LaunchConfig) -> Option<ConfigEntry> {
        let LaunchConfig { program, args, .. } = launch;
        let kind = match self {
            Self::Zed => Some("custom"),
            Self::Vscode if launch.role == LaunchRole::McpServer => Some("stdio"),
            Self::ClaudeCode => Some("stdio"),
            _ => None,
        };
        let value = match kind {
            Some(kind) => json!({"type": kind, "command": program, "args": args, "env": {}}),
            None => json!({"command": program, "args": args, "env": {}}),
        };
        let group = self.group_key(launch.role)?;
        Some(ConfigEntry { group, value })
    }

    /// Returns the snippets to copy.
    pub(super) fn snippets(self, launch: &LaunchConfig) -> Vec<Snippet> {
        if let Some(ConfigEntry { group, value }) = self.config_entry(launch) {
            let config = json!({ group: { launch.name.as_str(): value } });
            let mut snippets = vec![Snippet { title: None, text: jsonc::format_pretty(&config) }];
            if self == Self::ClaudeCode {
                let title = Some("Or have Claude Code do it:");
                snippets.push(Snippet { title, text: claude_mcp_add(launch) });
            }
            return snippets;
        }
        match self {
            Self::Emacs => vec![Snippet { title: None, text: agent_shell(launch) }],
            _ => vec![
                Snippet { title: Some("With CodeCompanion.nvim:"), text: code_companion(launch) },
                Snippet { title: Some("With avante.nvim:"), text: avante(launch) },
            ],
        }
    }

    /// Describes the next step after the setup.
    pub(super) fn next_step(self, launch: &LaunchConfig) -> String {
        let name = &launch.name;
        match self {
            Self::Zed => format!(
                "Then open Zed's agent panel and begin a thread with {name}. What the two say to each other: `dev: open acp logs`."
            ),
            Self::Jetbrains => format!("Then choose {name} in the AI Chat tool window."),
            Self::Neovim => {
                format!("Then `:CodeCompanionChat adapter={}`, or `:AvanteAsk`.", to_identifier(name, '_'))
            }
            Self::Emacs => format!("Then `M-x agent-shell`, and choose {name}."),
            Self::Vscode if launch.role == LaunchRole::McpServer => {
                format!("Then run `MCP: List Servers` from the command palette, and start {name}.")
            }
            Self::ClaudeDesktop => "Then quit Claude Desktop, and start it again.".to_owned(),
            Self::ClaudeCode => {
                "Then start `claude` in your project; `/mcp` shows whether it is connected.".to_owned()
            }
            Self::Cursor => format!("Then switch {name} on in Cursor's settings, under Tools & MCP."),
            Self::Vscode => {
                format!("Then run `ACP: Connect to Agent` from the command palette, and choose {name}.")
            }
        }
    }
}

fn claude_mcp_add(launch: &LaunchConfig) -> String {
    let words = ["claude", "mcp", "add", "--scope", "user", &launch.name, "--", &launch.program];
    let words = words.into_iter().chain(launch.args.iter().map(String::as_str));
    // No word contains a NUL byte, since the command line cannot.
    shlex::try_join(words).unwrap_or_default()
}

fn code_companion(launch: &LaunchConfig) -> String {
    let command: Vec<String> =
        std::iter::once(&launch.program).chain(&launch.args).map(|word| quote(word)).collect();
    let (id, name, command) = (to_identifier(&launch.name, '_'), quote(&launch.name), command.join(", "));
    // The adapter that it extends requires no login of its own.
    format!(
        r#"require("codecompanion").setup({{
  adapters = {{
    acp = {{
      {id} = function()
        return require("codecompanion.adapters").extend("opencode", {{
          name = "{id}",
          formatted_name = {name},
          commands = {{ default = {{ {command} }} }},
        }})
      end,
    }},
  }},
}})"#
    )
}

fn avante(launch: &LaunchConfig) -> String {
    let args: Vec<String> = launch.args.iter().map(|word| quote(word)).collect();
    let (id, command, args) = (to_identifier(&launch.name, '_'), quote(&launch.program), args.join(", "));
    format!(
        r#"require("avante").setup({{
  provider = "{id}",
  acp_providers = {{
    ["{id}"] = {{
      command = {command},
      args = {{ {args} }},
    }},
  }},
}})"#
    )
}

fn agent_shell(launch: &LaunchConfig) -> String {
    let args: Vec<String> = launch.args.iter().map(|word| quote(word)).collect();
    let (id, name) = (to_identifier(&launch.name, '-'), quote(&launch.name));
    let (prompt, command, args) =
        (quote(&format!("{}> ", launch.name)), quote(&launch.program), args.join(" "));
    format!(
        r#"(with-eval-after-load 'agent-shell
  (add-to-list 'agent-shell-agent-configs
               (agent-shell-make-agent-config
                :identifier '{id}
                :mode-line-name {name}
                :buffer-name {name}
                :shell-prompt {prompt}
                :shell-prompt-regexp (regexp-quote {prompt})
                :client-maker (lambda (buffer)
                                (acp-make-client :command {command}
                                                 :command-params '({args})
                                                 :context-buffer buffer)))))"#
    )
}

/// Quotes a text for both Lua and Lisp; it contains no control characters.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Converts a name to an identifier.
fn to_identifier(name: &str, separator: char) -> String {
    let word: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { separator })
        .collect();
    match word.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => word,
        _ => format!("bowline{separator}{word}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn file(editor: EditorKind, variables: &[(&str, &str)]) -> String {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let role = if editor.supports(LaunchRole::Agent) { LaunchRole::Agent } else { LaunchRole::McpServer };
        let file = editor.config_file(&ConfigDirs::from_env(variable), role, Path::new("/p"));
        file.map_or_else(|| "-".to_owned(), |path| path.display().to_string())
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn files_are_where_the_editors_look() {
        assert_eq!(file(EditorKind::Zed, &[("HOME", "/h")]), "/h/.config/zed/settings.json");
        assert_eq!(
            file(EditorKind::Zed, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]),
            "/c/zed/settings.json"
        );
        assert_eq!(
            file(EditorKind::Jetbrains, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]),
            "/h/.jetbrains/acp.json"
        );
        assert_eq!(file(EditorKind::Vscode, &[("HOME", "/h")]), "/h/.config/Code/User/settings.json");
        assert_eq!(
            file(EditorKind::ClaudeDesktop, &[("HOME", "/h")]),
            "/h/.config/Claude/claude_desktop_config.json"
        );
        assert_eq!(file(EditorKind::ClaudeCode, &[("HOME", "/h")]), "/h/.claude.json");
        assert_eq!(file(EditorKind::Cursor, &[("HOME", "/h")]), "/p/.cursor/mcp.json");
        assert_eq!(file(EditorKind::Zed, &[("HOME", "h")]), "-");
        assert_eq!(file(EditorKind::Emacs, &[("HOME", "/h")]), "-");
    }

    #[test]
    fn odd_names_are_quoted() {
        let launch = LaunchConfig {
            role: LaunchRole::Agent,
            name: "My \"best\" é".to_owned(),
            program: r"/a\b".to_owned(),
            args: Vec::new(),
        };
        expect![[r#"
            require("avante").setup({
              provider = "my__best___",
              acp_providers = {
                ["my__best___"] = {
                  command = "/a\\b",
                  args = {  },
                },
              },
            })"#]]
        .assert_eq(&avante(&launch));
        assert_eq!(to_identifier("1st", '-'), "bowline-1st");
    }
}
