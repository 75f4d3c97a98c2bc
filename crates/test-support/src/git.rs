//! Running git in a test's directory, without the settings of the user.

use std::path::Path;
use std::process::Command;

/// Runs git and returns its output.
///
/// # Panics
/// Panics if git fails.
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]
pub fn git(directory: &Path, arguments: &[&str]) -> String {
    let settings = ["user.name=A", "user.email=a@example.org", "gc.auto=0", "core.autocrlf=false"];
    let output = Command::new("git")
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Commits all files of a directory to a new repository, and packs them.
pub fn commit_and_pack(directory: &Path) {
    git(directory, &["init", "--quiet"]);
    git(directory, &["add", "--all"]);
    git(directory, &["commit", "--quiet", "--message", "all"]);
    git(directory, &["gc", "--quiet"]);
}
