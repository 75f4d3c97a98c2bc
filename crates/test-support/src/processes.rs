//! The running processes of a test.

use std::path::{Path, PathBuf};

/// Returns the processes that run in a directory, or have its name in their environment or arguments.
#[must_use]
pub fn processes_in(base: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let name = base.display().to_string();
    let here = |process: &PathBuf| {
        let works_here = std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(base));
        let knows = |file| {
            let bytes = std::fs::read(process.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(&name)
        };
        works_here || knows("environ") || knows("cmdline")
    };
    let found = processes.map(|entry| entry.path()).filter(here);
    found.map(|process| process.display().to_string()).collect()
}
