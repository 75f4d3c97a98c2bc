//! `bowline completions`: scripts that complete commands, options and values in a shell.
//!
//! The scripts ask the program itself, so they know the sessions, changes, rules and agents of the current directory,
//! and stay right after an update.

use anyhow::Context as _;
use bowline_client::common::console::print;
use bowline_client::error::CliError;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use super::candidates::add_candidates;
use crate::Cli;

/// The variable by which a script asks for completions.
const REQUEST_VARIABLE: &str = "BOWLINE_COMPLETE";

const EXAMPLES: &str = "\
The script calls `bowline`, which has to be in PATH. It completes commands and options, and also \
the sessions, changes, rules and agents of the current directory.

Examples:
  bowline completions bash > ~/.local/share/bash-completion/completions/bowline
  bowline completions zsh > ~/.zfunc/_bowline       with `fpath+=~/.zfunc` before compinit in ~/.zshrc
  bowline completions fish > ~/.config/fish/completions/bowline.fish
  bowline completions elvish >> ~/.config/elvish/rc.elv
  bowline completions powershell >> $PROFILE";

/// Which script to print.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Answers the request of a completion script, if there is one, and then exits.
pub(crate) fn answer_request() {
    let program = || without_hidden_commands(&add_candidates(Cli::command()));
    CompleteEnv::with_factory(program).var(REQUEST_VARIABLE).bin("bowline").complete();
}

/// Runs the command.
pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), CliError> {
    let name = arguments.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name).with_context(|| format!("there is no script for {name}"))?;
    let mut script = Vec::new();
    shell
        .write_registration(REQUEST_VARIABLE, "bowline", "bowline", "bowline", &mut script)
        .context("cannot write the script")?;
    print(&String::from_utf8_lossy(&script))
}

/// Returns the program without its hidden commands, which the scripts would offer otherwise.
pub(super) fn without_hidden_commands(program: &Command) -> Command {
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let version = program.get_version().map(|_| env!("CARGO_PKG_VERSION"));
    let mut visible =
        Command::new("bowline").version(version).args(program.get_arguments().cloned()).subcommands(commands);
    if let Some(about) = program.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(after) = program.get_after_help() {
        visible = visible.after_help(after.clone());
    }
    visible
}
