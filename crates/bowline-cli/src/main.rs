//! The `bowline` binary.

mod agent;
mod audit;
mod changes;
mod chat;
mod client;
mod completions;
mod demo;
mod doctor;
mod ending;
mod help;
mod mcp;
mod mcp_bridge;
mod places;
mod policy;
mod proxy;
mod quirks;
mod records;
mod run;
mod sessions;
mod setup;
mod signals;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use ending::Ending;
use records::showing;

/// The workspace between an editor and a coding agent: unsaved text, reviewed writes, undo.
#[derive(Parser)]
#[command(name = "bowline", version, arg_required_else_help = true, after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Exit status: 0 done, 1 failed, 2 wrong usage, 3 took longer than --timeout, 4 no such session, 5 denied with nobody to ask,
130 interrupted, 143 terminated.

Environment: HOME (else your account's home), or XDG_STATE_HOME (journal, audit log, sessions), XDG_CONFIG_HOME (rules, agents) and XDG_DATA_HOME (anchors)
say where Bowline keeps what is yours; NO_COLOR turns colours off, PAGER shows long lists in a terminal; keys such as ANTHROPIC_API_KEY are for `bowline agent`.

`bowline COMMAND --help` has examples. `bowline demo` shows all of it; `bowline doctor` says what works here.";

#[derive(Subcommand)]
enum Command {
    /// Takes a short tour on a scratch project: the real agent and the real host, two processes over a pipe, every step
    /// checked. Needs no key and no network
    Demo,
    /// Serves this workspace to an agent for one prompt, and shows what it does
    Run(run::RunArguments),
    /// The same in a full-screen terminal interface
    Chat(chat::ChatArguments),
    /// The agent, for editors to start: speaks ACP on stdin and stdout. Works without a key by the offline model
    #[command(visible_alias = "serve")]
    Agent(agent::AgentArguments),
    /// Serves this workspace to MCP clients: files, commands and unsaved text under your rules
    Mcp(mcp::McpArguments),
    /// Stands between an editor and any agent, and gives the agent the editor's files and terminals as an MCP server
    Proxy(proxy::ProxyArguments),
    /// Lists what agents changed in this workspace
    Changes(changes::ChangesArguments),
    /// Shows what agents changed, as a patch that git reads
    Diff(changes::DiffArguments),
    /// Takes back what agents changed; your own later edits stay
    Undo(changes::UndoArguments),
    /// Does again what was undone
    Redo(changes::RedoArguments),
    /// Lists turns by their prompt, and goes back to before one
    Rewind(changes::RewindArguments),
    /// Prints or puts back text of yours that could only be kept in the journal
    Restore(changes::RestoreArguments),
    /// Lists, shows, searches, exports, renames, copies and deletes sessions of Bowline's agent
    Sessions(sessions::SessionsArguments),
    /// Shows, verifies and archives the record of what agents did here
    Audit(audit::AuditArguments),
    /// Shows what was said between a client and an agent, and plays it back
    Trace(trace::TraceArguments),
    /// Shows and changes what agents may do here without a question
    Policy(policy::PolicyArguments),
    /// Says what works, what does not, and what to do about it
    Doctor(doctor::DoctorArguments),
    /// Prints the configuration that an editor needs, or writes it
    Setup(setup::SetupArguments),
    /// Prints a script that completes commands and options in a shell
    Completions(completions::CompletionsArguments),
    /// Connects an agent that starts its MCP servers itself to its proxy, which names it to the agent
    #[command(hide = true)]
    McpBridge(mcp_bridge::BridgeArguments),
    /// Owns the processes of one command, started by a host.
    #[command(name = SUPERVISOR, hide = true)]
    Supervisor,
}

/// How the program is started to own the processes of a command.
pub(crate) const SUPERVISOR: &str = "__supervisor";

fn main() -> ExitCode {
    let arguments = Arguments::try_parse();
    if let Ok(Arguments { command: Command::Supervisor }) = arguments {
        // Before there is a thread or a runtime.
        return bowline_workspace::terminals::supervisor::main(std::env::args_os());
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Ending::from(anyhow::Error::from(error)).exit(),
    };
    if let Err(error) = signals::survive_file_size_limit(&runtime) {
        return Ending::from(error).exit();
    }
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return help::tell(&error),
    };
    let done = |()| ExitCode::SUCCESS;
    let result: Result<ExitCode, Ending> = match arguments.command {
        Command::Demo => runtime.block_on(demo::run()).map(done),
        Command::Run(arguments) => runtime.block_on(run::run(arguments)).map(done),
        Command::Chat(arguments) => runtime.block_on(chat::run(arguments)).map(done),
        Command::Agent(arguments) => runtime.block_on(agent::run(arguments)).map_err(Ending::from),
        Command::Mcp(arguments) => runtime.block_on(mcp::run(arguments)),
        Command::McpBridge(arguments) => runtime.block_on(mcp_bridge::run(arguments)),
        Command::Proxy(arguments) => {
            showing::waits("an editor that speaks ACP");
            runtime.block_on(proxy::run(arguments))
        }
        Command::Changes(arguments) => changes::list(&arguments).map(done),
        Command::Diff(arguments) => changes::diff(&arguments).map(done),
        Command::Undo(arguments) => changes::undo(&arguments).map(done),
        Command::Redo(arguments) => changes::redo(&arguments).map(done),
        Command::Rewind(arguments) => changes::rewind(&arguments).map(done),
        Command::Restore(arguments) => changes::restore(&arguments).map(done),
        Command::Sessions(arguments) => runtime.block_on(sessions::run(arguments)).map(done),
        Command::Audit(arguments) => audit::run(arguments).map(done),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Policy(arguments) => policy::run(arguments).map(done),
        Command::Doctor(arguments) => runtime.block_on(doctor::run(arguments)).map(done),
        Command::Setup(arguments) => setup::run(arguments).map(done),
        Command::Completions(arguments) => completions::run(&arguments).map(done),
        Command::Supervisor => Ok(ExitCode::SUCCESS),
    };
    // What still works on the disk need not be waited for: a thread that reads stdin would never end.
    runtime.shutdown_background();
    result.unwrap_or_else(|ending| ending.exit())
}

#[cfg(test)]
mod tests;
