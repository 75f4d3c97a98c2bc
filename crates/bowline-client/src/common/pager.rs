//! A pager for long results on a terminal.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::console::{OutputStyle, print};
use crate::error::CliError;

/// The default options of `less`, as in git: exit if everything fits on the screen, show colours, and leave the text on
/// the screen.
const LESS_OPTIONS: &str = "FRX";

/// Writes results to stdout: through the user's pager if it is a terminal, directly otherwise.
///
/// # Errors
/// Returns why they cannot be written.
pub fn print_paged(text: &str) -> Result<(), CliError> {
    let style = OutputStyle::for_stdout();
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    match pager_command(std::env::var_os("PAGER")) {
        Some(pager) if style.is_terminal && !is_dumb => pipe_through(pager, text),
        _ => print(text),
    }
}

/// Returns the pager to start; `None` if the user wants none.
fn pager_command(pager: Option<OsString>) -> Option<Command> {
    let pager = pager.unwrap_or_else(|| "less".into());
    if pager.is_empty() || pager == "cat" {
        return None;
    }
    // The variable may contain arguments in shell syntax.
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS_OPTIONS);
    }
    Some(command)
}

fn pipe_through(mut pager: Command, text: &str) -> Result<(), CliError> {
    let Ok(mut child) = pager.spawn() else { return print(text) };
    if let Some(mut stdin) = child.stdin.take() {
        // The user may close the pager early.
        stdin.write_all(text.as_bytes()).ok();
    }
    match child.wait() {
        // The shell reports that the program does not exist.
        Ok(status) if status.code() == Some(127) => print(text),
        _ => Ok(()),
    }
}
