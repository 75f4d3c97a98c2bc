//! Child processes in the foreground: the command line is shown, and the output streams to the terminal.

use anyhow::{Context, ensure};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns a command for the cargo that runs this program, with the repository as its directory.
pub fn cargo(root: &Path, args: &[&str]) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root).args(args);
    // Variables of this package that cargo set for this program. Some build scripts run again when they change, so cargo would
    // rebuild crates now, and once more when a person calls it.
    for (name, _) in env::vars_os().filter(|(name, _)| is_package_variable(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

fn is_package_variable(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Shows a command, runs it with its output streaming, and fails unless it succeeds.
///
/// # Errors
/// Fails when the program cannot be started or does not exit successfully.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    eprintln!("$ {}", to_command_line(command));
    let name = file_name(command.get_program());
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}

/// Like [`run`], but redirects the command's stdout to stderr, as progress.
///
/// # Errors
/// Fails when the program cannot be started or does not exit successfully.
pub fn run_as_progress(command: &mut Command) -> anyhow::Result<()> {
    run(command.stdout(Stdio::from(io::stderr())))
}

/// Returns whether a command starts and succeeds. Its output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Formats a command as a person would type it: environment variables, the program's name, arguments.
pub(crate) fn to_command_line(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let variables = set
        .filter(|(name, _)| *name != "PATH")
        .map(|(name, value)| format!("{}={}", to_text(name), quote(value)));
    let program = std::iter::once(file_name(command.get_program()));
    let words: Vec<String> = variables.chain(program).chain(command.get_args().map(quote)).collect();
    words.join(" ")
}

fn file_name(program: &OsStr) -> String {
    to_text(Path::new(program).file_name().unwrap_or(program))
}

fn quote(word: &OsStr) -> String {
    let word = to_text(word);
    let plain =
        !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"$;&|<>()*\\`".contains(c));
    if plain { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn to_text(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{run, succeeds, to_command_line};
    use std::process::Command;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/opt/rust/bin/cargo");
        command
            .args(["doc", "--no-deps", "a b", "it's", ""])
            .env("RUSTDOCFLAGS", "-D warnings")
            .env("PATH", "/x");
        assert_eq!(
            to_command_line(&command),
            r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'a b' 'it'\''s' ''"
        );
    }

    #[test]
    fn a_failure_says_which_program_and_how_it_ended() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh ended with exit status: 3");
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start no-such-program");
    }

    #[test]
    fn a_missing_program_does_not_succeed() {
        assert!(succeeds(&mut Command::new("true")));
        assert!(!succeeds(&mut Command::new("false")));
        assert!(!succeeds(&mut Command::new("no-such-program")));
    }
}
