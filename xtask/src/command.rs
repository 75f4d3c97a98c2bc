//! Child processes that a person watches: the command is shown, and its output streams by.

use anyhow::{Context, ensure};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the cargo that runs this program, set to work on the repository.
pub fn cargo(root: &Path, args: &[&str]) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root).args(args);
    command
}

/// Shows a command, runs it with its output streaming, and fails unless it succeeds.
///
/// # Errors
/// Fails when the program cannot be started or ends with anything but success.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    eprintln!("$ {}", shown(command));
    let name = file_name(command.get_program());
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}

/// Like [`run`], but what the command prints goes to stderr, as progress.
///
/// # Errors
/// Fails when the program cannot be started or ends with anything but success.
pub fn run_as_progress(command: &mut Command) -> anyhow::Result<()> {
    run(command.stdout(Stdio::from(io::stderr())))
}

/// Whether a command can be started and succeeds. What it prints is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Writes a command as a person would type it: the variables set for it, the program's name, the arguments.
pub(crate) fn shown(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let variables = set
        .filter(|(name, _)| *name != "PATH")
        .map(|(name, value)| format!("{}={}", text(name), quoted(value)));
    let program = std::iter::once(file_name(command.get_program()));
    let words: Vec<String> = variables.chain(program).chain(command.get_args().map(quoted)).collect();
    words.join(" ")
}

fn file_name(program: &OsStr) -> String {
    text(Path::new(program).file_name().unwrap_or(program))
}

fn quoted(word: &OsStr) -> String {
    let word = text(word);
    let plain =
        !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"$;&|<>()*\\`".contains(c));
    if plain { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn text(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{run, shown, succeeds};
    use std::process::Command;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/opt/rust/bin/cargo");
        command
            .args(["doc", "--no-deps", "a b", "it's", ""])
            .env("RUSTDOCFLAGS", "-D warnings")
            .env("PATH", "/x");
        assert_eq!(shown(&command), r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'a b' 'it'\''s' ''");
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
