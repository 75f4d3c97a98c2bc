//! Detection of installed editors and MCP clients, and of those that already start Bowline.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use serde_json::{Map, Value};

use super::editors::{ConfigDirs, EditorKind, LaunchRole};
use super::{config_file, jsonc};
use bowline_client::agents;

/// An installed editor or MCP client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstalledEditor {
    /// Its display name.
    pub(crate) title: &'static str,
    /// Its name in `bowline setup`.
    pub(crate) cli_name: String,
    /// Whether it can start agents.
    pub(crate) supports_agents: bool,
    /// Whether `bowline setup --write` can set it up.
    pub(crate) is_writable: bool,
    /// The file that configures it to start Bowline, if there is one.
    pub(crate) configured_in: Option<PathBuf>,
}

/// Finds editors and MCP clients. `search` is the program search path.
pub(crate) fn find_installed(
    variable: impl Fn(&str) -> Option<OsString>,
    search: Option<&OsString>,
    project: &Path,
) -> Vec<InstalledEditor> {
    let dirs = ConfigDirs::from_env(variable);
    let is_installed = |editor: &EditorKind| {
        let has_program =
            editor.programs().iter().any(|program| agents::find_program(program, search).is_some());
        has_program || editor.config_directory(&dirs).is_some_and(|directory| directory.is_dir())
    };
    let describe = |editor: &EditorKind| {
        let files = [LaunchRole::Agent, LaunchRole::McpServer].into_iter().filter_map(|role| {
            let file = editor.config_file(&dirs, role, project).filter(|_| editor.supports(role))?;
            Some((file, editor.group_key(role)?))
        });
        let configured_in = files.into_iter().find(|(file, group)| starts_bowline(file, group));
        InstalledEditor {
            title: editor.title(),
            cli_name: editor.cli_name(),
            supports_agents: editor.supports(LaunchRole::Agent),
            is_writable: editor.config_language() == "JSON",
            configured_in: configured_in.map(|(file, _)| file),
        }
    };
    EditorKind::value_variants().iter().filter(|editor| is_installed(editor)).map(describe).collect()
}

/// Returns whether an editor's file names Bowline's program.
fn starts_bowline(file: &Path, group: &str) -> bool {
    let Ok(Some(config)) = config_file::read(file) else { return false };
    entries(&config.text, group).is_some_and(|entries| entries.values().any(is_bowline))
}

/// Returns whether an editor's file has an entry of this name that starts another program.
pub(super) fn starts_another_program(text: &str, group: &str, name: &str) -> bool {
    entries(text, group).and_then(|mut entries| entries.remove(name)).is_some_and(|entry| !is_bowline(&entry))
}

fn entries(text: &str, group: &str) -> Option<Map<String, Value>> {
    match jsonc::parse_value(text)?.get_mut(group)?.take() {
        Value::Object(entries) => Some(entries),
        _ => None,
    }
}

fn is_bowline(entry: &Value) -> bool {
    let program = entry.get("command").and_then(Value::as_str).map(Path::new);
    program.and_then(Path::file_name).is_some_and(|name| name == "bowline")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editors_are_found_by_their_programs_and_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path();
        let write_file = |name: &str, text: &str| {
            let path = home.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(&path, text).expect("written");
            path
        };
        let program = write_file("bin/nvim", "");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(program, mode).expect("set");
        write_file(
            ".config/zed/settings.json",
            r#"{ /* mine */ "agent_servers": {"B": {"command": "/x/bowline"}}}"#,
        );
        write_file(
            ".config/Code/User/settings.json",
            r#"{"acp.agents": {"other": {"command": "bowline-not"}}}"#,
        );
        let variable = |name: &str| (name == "HOME").then(|| home.into());
        let editors = find_installed(variable, Some(&home.join("bin").into_os_string()), home);
        let result: Vec<_> =
            editors.iter().map(|editor| (&*editor.cli_name, editor.configured_in.is_some())).collect();
        assert_eq!(result, [("zed", true), ("neovim", false), ("vscode", false)]);
    }
}
