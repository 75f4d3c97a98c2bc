//! `bowline completions`: scripts that complete commands and options in a shell.

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use crate::Cli;
use crate::common::console::print;
use crate::error::CliError;

const EXAMPLES: &str = "\
Examples:
  bowline completions bash > ~/.local/share/bash-completion/completions/bowline
  bowline completions zsh > ~/.zfunc/_bowline       with `fpath+=~/.zfunc` before compinit in ~/.zshrc
  bowline completions fish > ~/.config/fish/completions/bowline.fish
  bowline completions elvish >> ~/.config/elvish/rc.elv
  bowline completions powershell >> $PROFILE";

/// What is asked for.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut without_hidden_commands(&Cli::command()),
        "bowline",
        &mut script,
    );
    print(&String::from_utf8_lossy(&script))
}

/// Returns the program without its hidden commands, which the scripts would offer otherwise.
fn without_hidden_commands(program: &Command) -> Command {
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let version = program.get_version().map(|_| env!("CARGO_PKG_VERSION"));
    Command::new("bowline").version(version).args(program.get_arguments().cloned()).subcommands(commands)
}
