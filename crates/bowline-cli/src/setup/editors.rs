//! The editors and MCP clients that can start Bowline: how each is told of it, and where.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::jsonc;

/// An editor or another MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Editor {
    /// Zed
    Zed,
    /// The IDEs of JetBrains, with AI Assistant
    Jetbrains,
    /// Neovim, with CodeCompanion.nvim or avante.nvim
    Neovim,
    /// Emacs, with agent-shell
    Emacs,
    /// Visual Studio Code, with the extension ACP Client; with --mcp as it is
    Vscode,
    /// Claude Desktop, as an MCP server
    ClaudeDesktop,
    /// Claude Code, as an MCP server
    ClaudeCode,
    /// Cursor, as an MCP server
    Cursor,
}

/// What Bowline is to an editor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// An agent, over ACP.
    Agent,
    /// A server of tools, over MCP.
    McpServer,
}

/// How an editor starts Bowline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    /// As what.
    pub(super) role: Role,
    /// How the editor calls it.
    pub(super) name: String,
    /// The program.
    pub(super) program: String,
    /// Its arguments.
    pub(super) args: Vec<String>,
}

/// Where a user's configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Home {
    home: Option<PathBuf>,
    config: Option<PathBuf>,
}

/// What an editor's file of JSON should hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// The name of the object that holds agents or servers.
    pub(super) group: &'static str,
    /// What is said of this one.
    pub(super) value: Value,
}

/// Something to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snippet {
    /// What it is for, if there are several.
    pub(super) title: Option<&'static str>,
    /// The text.
    pub(super) text: String,
}

impl Home {
    /// Returns the directories of whoever has this environment.
    pub(super) fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        // Only Linux's programs look for their files where this says.
        let config = absolute("XDG_CONFIG_HOME").filter(|_| cfg!(target_os = "linux"));
        let config = config.or_else(|| home.as_ref().map(|home| home.join(".config")));
        Self { home, config }
    }
}

impl Editor {
    /// Returns the word for it on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Zed => "zed",
            Self::Jetbrains => "jetbrains",
            Self::Neovim => "neovim",
            Self::Emacs => "emacs",
            Self::Vscode => "vscode",
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
        }
    }

    /// Says whether it can start Bowline in a role.
    pub(super) fn takes(self, role: Role) -> bool {
        match self {
            Self::Zed | Self::Jetbrains | Self::Neovim | Self::Emacs => role == Role::Agent,
            Self::Vscode => true,
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => role == Role::McpServer,
        }
    }

    /// Returns the directory that its MCP server should be told to work in. `None`: it starts the server there.
    pub(super) fn server_directory(self, project: &str) -> Option<String> {
        match self {
            Self::ClaudeDesktop => Some(project.to_owned()),
            Self::Cursor | Self::Vscode => Some("${workspaceFolder}".to_owned()),
            _ => None,
        }
    }

    /// Returns what people call it.
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

    /// Returns what it is configured in.
    pub(super) fn language(self) -> &'static str {
        match self {
            Self::Neovim => "Lua",
            Self::Emacs => "Emacs Lisp",
            _ => "JSON",
        }
    }

    /// Returns the programs that it is started by.
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

    /// Returns the directory that it makes when it runs, if it can be told by that.
    pub(super) fn directory(self, home: &Home) -> Option<PathBuf> {
        match self {
            Self::Jetbrains => home.config.as_ref().map(|config| config.join("JetBrains")),
            Self::Zed | Self::Vscode | Self::ClaudeDesktop => {
                let file = self.file(home, Role::Agent, Path::new(""))?;
                file.parent().map(Path::to_owned)
            }
            _ => None,
        }
    }

    /// Returns the name of the object in its file that holds agents or servers.
    pub(super) fn group(self, role: Role) -> Option<&'static str> {
        match self {
            Self::Zed | Self::Jetbrains => Some("agent_servers"),
            Self::Vscode if role == Role::McpServer => Some("servers"),
            Self::Vscode => Some("acp.agents"),
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => Some("mcpServers"),
            Self::Neovim | Self::Emacs => None,
        }
    }

    /// Returns the file that it reads, if that is known.
    pub(super) fn file(self, home: &Home, role: Role, project: &Path) -> Option<PathBuf> {
        let below = |base: &Option<PathBuf>, name: &str| base.as_ref().map(|base| base.join(name));
        let application = |name: &str| match cfg!(target_os = "macos") {
            true => below(&home.home, &format!("Library/Application Support/{name}")),
            false => below(&home.config, name),
        };
        match self {
            Self::Zed => below(&home.config, "zed/settings.json"),
            Self::Jetbrains => below(&home.home, ".jetbrains/acp.json"),
            Self::Vscode if role == Role::McpServer => application("Code/User/mcp.json"),
            Self::Vscode => application("Code/User/settings.json"),
            Self::ClaudeDesktop => application("Claude/claude_desktop_config.json"),
            Self::ClaudeCode => below(&home.home, ".claude.json"),
            Self::Cursor => Some(project.join(".cursor/mcp.json")),
            Self::Neovim | Self::Emacs => None,
        }
    }

    /// Returns where that file usually is, for those without a home.
    pub(super) fn usual(self, role: Role) -> &'static str {
        match self {
            Self::Zed => "~/.config/zed/settings.json",
            Self::Jetbrains => "~/.jetbrains/acp.json",
            Self::Neovim => "the set-up of the plugin, as in ~/.config/nvim/init.lua",
            Self::Emacs => "your init file, as in ~/.emacs.d/init.el",
            Self::Vscode if role == Role::McpServer => "~/.config/Code/User/mcp.json",
            Self::Vscode => "~/.config/Code/User/settings.json",
            Self::ClaudeDesktop => "claude_desktop_config.json",
            Self::ClaudeCode => "~/.claude.json",
            Self::Cursor => ".cursor/mcp.json",
        }
    }

    /// Says what belongs there.
    pub(super) fn belongs(self, place: &str, role: Role) -> String {
        match self {
            Self::Vscode if role == Role::Agent => format!(
                "install the extension ACP Client (formulahendry.acp-client), and add this to {place}"
            ),
            Self::Neovim => format!("add one of these to {place}"),
            Self::Emacs => format!("install agent-shell, and add this to {place}"),
            _ => format!("add this to {place}"),
        }
    }

    /// Returns what its file of JSON should hold, if it is one.
    pub(super) fn entry(self, launch: &Launch) -> Option<Entry> {
        let Launch { program, args, .. } = launch;
        let kind = match self {
            Self::Zed => Some("custom"),
            Self::Vscode if launch.role == Role::McpServer => Some("stdio"),
            Self::ClaudeCode => Some("stdio"),
            _ => None,
        };
        let value = match kind {
            Some(kind) => json!({"type": kind, "command": program, "args": args, "env": {}}),
            None => json!({"command": program, "args": args, "env": {}}),
        };
        let group = self.group(launch.role)?;
        Some(Entry { group, value })
    }

    /// Returns what to copy.
    pub(super) fn snippets(self, launch: &Launch) -> Vec<Snippet> {
        if let Some(Entry { group, value }) = self.entry(launch) {
            let whole = json!({ group: { launch.name.as_str(): value } });
            let mut snippets = vec![Snippet { title: None, text: jsonc::pretty(&whole) }];
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

    /// Says how to begin once it is there.
    pub(super) fn next(self, launch: &Launch) -> String {
        let name = &launch.name;
        match self {
            Self::Zed => format!(
                "Then open Zed's agent panel and begin a thread with {name}. What the two say to each other: `dev: open acp logs`."
            ),
            Self::Jetbrains => format!("Then choose {name} in the AI Chat tool window."),
            Self::Neovim => {
                format!("Then `:CodeCompanionChat adapter={}`, or `:AvanteAsk`.", identifier(name, '_'))
            }
            Self::Emacs => format!("Then `M-x agent-shell`, and choose {name}."),
            Self::Vscode if launch.role == Role::McpServer => {
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

fn claude_mcp_add(launch: &Launch) -> String {
    let words = ["claude", "mcp", "add", "--scope", "user", &launch.name, "--", &launch.program];
    let words = words.into_iter().chain(launch.args.iter().map(String::as_str));
    // No word has a NUL: the command line had none.
    shlex::try_join(words).unwrap_or_default()
}

fn code_companion(launch: &Launch) -> String {
    let command: Vec<String> =
        std::iter::once(&launch.program).chain(&launch.args).map(|word| quoted(word)).collect();
    let (id, name, command) = (identifier(&launch.name, '_'), quoted(&launch.name), command.join(", "));
    // What it extends is an adapter that asks for no login of its own.
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

fn avante(launch: &Launch) -> String {
    let args: Vec<String> = launch.args.iter().map(|word| quoted(word)).collect();
    let (id, command, args) = (identifier(&launch.name, '_'), quoted(&launch.program), args.join(", "));
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

fn agent_shell(launch: &Launch) -> String {
    let args: Vec<String> = launch.args.iter().map(|word| quoted(word)).collect();
    let (id, name) = (identifier(&launch.name, '-'), quoted(&launch.name));
    let (prompt, command, args) =
        (quoted(&format!("{}> ", launch.name)), quoted(&launch.program), args.join(" "));
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

/// Returns a text as both Lua and Lisp quote it; there are no control characters in it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns a name as a word that programs use.
fn identifier(name: &str, between: char) -> String {
    let word: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { between })
        .collect();
    match word.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => word,
        _ => format!("bowline{between}{word}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn file(editor: Editor, variables: &[(&str, &str)]) -> String {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, it)| it.into());
        let role = if editor.takes(Role::Agent) { Role::Agent } else { Role::McpServer };
        let file = editor.file(&Home::of(variable), role, Path::new("/p"));
        file.map_or_else(|| "-".to_owned(), |path| path.display().to_string())
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn files_are_where_the_editors_look() {
        assert_eq!(file(Editor::Zed, &[("HOME", "/h")]), "/h/.config/zed/settings.json");
        assert_eq!(file(Editor::Zed, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]), "/c/zed/settings.json");
        assert_eq!(
            file(Editor::Jetbrains, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]),
            "/h/.jetbrains/acp.json"
        );
        assert_eq!(file(Editor::Vscode, &[("HOME", "/h")]), "/h/.config/Code/User/settings.json");
        assert_eq!(
            file(Editor::ClaudeDesktop, &[("HOME", "/h")]),
            "/h/.config/Claude/claude_desktop_config.json"
        );
        assert_eq!(file(Editor::ClaudeCode, &[("HOME", "/h")]), "/h/.claude.json");
        assert_eq!(file(Editor::Cursor, &[("HOME", "/h")]), "/p/.cursor/mcp.json");
        assert_eq!(file(Editor::Zed, &[("HOME", "h")]), "-");
        assert_eq!(file(Editor::Emacs, &[("HOME", "/h")]), "-");
    }

    #[test]
    fn odd_names_are_quoted() {
        let launch = Launch {
            role: Role::Agent,
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
        assert_eq!(identifier("1st", '-'), "bowline-1st");
    }
}
