//! The running processes of a test.

use std::path::{Path, PathBuf};

use crate::wait::wait_until;

/// Returns the processes that run in a directory, or have its name in their environment or arguments.
#[must_use]
pub fn processes_in(base: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let name = base.display().to_string();
    let is_inside = |process: &PathBuf| {
        let is_cwd_inside = std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(base));
        let mentions = |file| {
            let bytes = std::fs::read(process.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(&name)
        };
        is_cwd_inside || mentions("environ") || mentions("cmdline")
    };
    let found = processes.map(|entry| entry.path()).filter(is_inside);
    found.map(|process| process.display().to_string()).collect()
}

/// Waits until [`processes_in`] finds none. Killed processes may take a moment to exit.
///
/// # Panics
/// Panics if one is left after a minute.
#[track_caller]
pub fn wait_until_none_in(base: &Path) {
    let left = processes_in(base);
    wait_until(&format!("the end of {left:?}"), || processes_in(base).is_empty());
}
