//! A pager for long results, where a person reads them in a terminal.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::showing::{Look, print};
use crate::ending::Ending;

/// What `less` is told unless the user tells it something else, as git does: to end if all fits on the screen, to show
/// colours, and to leave the text where it is.
const LESS: &str = "FRX";

/// Writes results to stdout: through the user's pager if that is a terminal, as they are if it is not.
///
/// # Errors
/// Returns why they cannot be written.
pub(crate) fn page(text: &str) -> Result<(), Ending> {
    let look = Look::of_stdout();
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    match command(std::env::var_os("PAGER")) {
        Some(pager) if look.terminal && !dumb => through(pager, text),
        _ => print(text),
    }
}

/// Returns the pager to start; none if the user wants none.
fn command(pager: Option<OsString>) -> Option<Command> {
    let pager = pager.unwrap_or_else(|| "less".into());
    if pager.is_empty() || pager == "cat" {
        return None;
    }
    // It may have arguments, as a shell reads them.
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    Some(command)
}

fn through(mut pager: Command, text: &str) -> Result<(), Ending> {
    let Ok(mut child) = pager.spawn() else { return print(text) };
    if let Some(mut stdin) = child.stdin.take() {
        // A person who has seen enough closes the pager.
        stdin.write_all(text.as_bytes()).ok();
    }
    match child.wait() {
        // The shell says that there is no such program.
        Ok(status) if status.code() == Some(127) => print(text),
        _ => Ok(()),
    }
}
