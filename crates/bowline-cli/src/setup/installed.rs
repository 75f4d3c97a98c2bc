//! Which editors and MCP clients are on this machine, and which of them start Bowline already.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use serde_json::{Map, Value};

use super::editors::{Editor, Home, Role};
use super::{jsonc, writing};
use crate::client::agents;

/// An editor or MCP client of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installed {
    /// What people call it.
    pub(crate) title: &'static str,
    /// What `bowline setup` calls it.
    pub(crate) word: &'static str,
    /// Whether it starts agents.
    pub(crate) takes_agents: bool,
    /// Whether `bowline setup --write` can set it up.
    pub(crate) can_be_written: bool,
    /// The file in which it is told to start Bowline, if it is.
    pub(crate) set_up_in: Option<PathBuf>,
}

/// Looks for editors and MCP clients. `search` is where programs are looked for.
pub(crate) fn installed(
    variable: impl Fn(&str) -> Option<OsString>,
    search: Option<&OsString>,
    project: &Path,
) -> Vec<Installed> {
    let home = Home::of(variable);
    let is_there = |editor: &Editor| {
        let has_program = editor.programs().iter().any(|program| agents::find(program, search).is_some());
        has_program || editor.directory(&home).is_some_and(|directory| directory.is_dir())
    };
    let look = |editor: &Editor| {
        let files = [Role::Agent, Role::McpServer].into_iter().filter_map(|role| {
            let file = editor.file(&home, role, project).filter(|_| editor.takes(role))?;
            Some((file, editor.group(role)?))
        });
        let set_up_in = files.into_iter().find(|(file, group)| starts_bowline(file, group));
        Installed {
            title: editor.title(),
            word: editor.word(),
            takes_agents: editor.takes(Role::Agent),
            can_be_written: editor.language() == "JSON",
            set_up_in: set_up_in.map(|(file, _)| file),
        }
    };
    Editor::value_variants().iter().filter(|editor| is_there(editor)).map(look).collect()
}

/// Says whether an editor's file names Bowline's program.
fn starts_bowline(file: &Path, group: &str) -> bool {
    let Ok(Some(text)) = writing::read(file) else { return false };
    entries(&text.text, group).is_some_and(|entries| entries.values().any(is_bowline))
}

/// Says whether an editor's file has an entry with a name that starts something else than Bowline.
pub(super) fn starts_another_program(text: &str, group: &str, name: &str) -> bool {
    entries(text, group).and_then(|mut entries| entries.remove(name)).is_some_and(|entry| !is_bowline(&entry))
}

fn entries(text: &str, group: &str) -> Option<Map<String, Value>> {
    match jsonc::read(text)?.get_mut(group)?.take() {
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
        let put = |name: &str, text: &str| {
            let path = home.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(&path, text).expect("written");
            path
        };
        let program = put("bin/nvim", "");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(program, mode).expect("set");
        put(
            ".config/zed/settings.json",
            r#"{ /* mine */ "agent_servers": {"B": {"command": "/x/bowline"}}}"#,
        );
        put(".config/Code/User/settings.json", r#"{"acp.agents": {"other": {"command": "bowline-not"}}}"#);
        let variable = |name: &str| (name == "HOME").then(|| home.into());
        let found = installed(variable, Some(&home.join("bin").into_os_string()), home);
        let told: Vec<_> = found.iter().map(|editor| (editor.word, editor.set_up_in.is_some())).collect();
        assert_eq!(told, [("zed", true), ("neovim", false), ("vscode", false)]);
    }
}
