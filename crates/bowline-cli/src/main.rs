//! The `bowline` binary.

mod agent;
mod demo;
mod places;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The workspace between an editor and a coding agent: unsaved text, reviewed writes, undo.
#[derive(Parser)]
#[command(name = "bowline", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Takes a short tour on a scratch project: a real agent and a real client, two processes over a pipe, every step
    /// checked. Needs no key and no network.
    Demo,
    /// The agent, for editors to start: speaks ACP on stdin and stdout. Works without a key by the offline model
    Agent(agent::AgentArguments),
    /// The agent of the demo, started by the demo itself.
    #[command(name = "__demo-agent", hide = true)]
    DemoAgent,
    /// Owns the processes of one command, started by a host.
    #[command(name = SUPERVISOR, hide = true)]
    Supervisor,
}

/// How the program is started to own the processes of a command.
pub(crate) const SUPERVISOR: &str = "__supervisor";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Command::Supervisor = arguments.command {
        // Before there is a thread or a runtime.
        return bowline_workspace::terminals::supervisor::main(std::env::args_os());
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let done = |()| ExitCode::SUCCESS;
    let result = match arguments.command {
        Command::Demo => runtime.block_on(demo::run()).map(done),
        Command::Agent(arguments) => runtime.block_on(agent::run(arguments)),
        Command::DemoAgent => runtime.block_on(demo::agent::run()).map(done).map_err(Into::into),
        Command::Supervisor => Ok(ExitCode::SUCCESS),
    };
    // What still works on the disk need not be waited for: a thread that reads stdin would never end.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "errors of the program are for the person who runs it")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("bowline: {error:#}");
    ExitCode::FAILURE
}
