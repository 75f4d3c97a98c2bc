//! Help texts, and usage errors on one line.

mod candidates;
pub(crate) mod completions;
pub(crate) mod man;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;

use bowline_client::common::console::ignore_broken_pipe;
use bowline_client::error::CliError;

/// Prints the help or version that the command line requests, or the usage error, and returns the exit code.
pub(crate) fn print_help_or_error(error: &clap::Error) -> ExitCode {
    let is_help =
        matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    if error.use_stderr() && !is_help {
        return CliError::Usage(to_one_line(&error.render().to_string())).report();
    }
    match ignore_broken_pipe(error.print().and_then(|()| io::stdout().flush())) {
        Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
        Err(error) => error.report(),
    }
}

/// Returns a usage error, with clap's tip, on one line.
fn to_one_line(message: &str) -> String {
    let mut line = String::new();
    let paragraphs = message.strip_prefix("error: ").unwrap_or(message).split("\n\n");
    for paragraph in paragraphs.take_while(|paragraph| !paragraph.starts_with("Usage: ")) {
        for part in paragraph.lines().map(str::trim).filter(|part| !part.starts_with("For more information"))
        {
            let (separator, part) = part.strip_prefix("tip: ").map_or((" ", part), |tip| ("; ", tip));
            line.push_str(if line.is_empty() || part.is_empty() { "" } else { separator });
            line.push_str(part);
        }
    }
    line + " (see --help)"
}
