//! The `bowline` binary: the only crate that prints, exits or reads the environment.
//!
//! - `run` and `chat` start an agent as an editor does, Bowline's own included: same pipes, same protocol. `client` is
//!   what they share: the workspace, the agent's process, the session, the prompt. In `chat`, a plain value takes
//!   events and returns actions, and a runner performs them, so every screen and key is tested without a terminal.
//! - `agent`, `proxy`, `connect` and `mcp` are the programs that others start. `mcp-bridge` connects an agent to the
//!   proxy's socket. `serve` offers an agent to remote clients; `web` is the same for a
//!   browser on this machine.
//! - `changes` (`undo`, `redo`, `rewind`, `restore`), `sessions`, `audit` and `policy` work on the user's directories
//!   without a host. Undo opens the journal under the same lock and writes with the same engine.
//! - `trace` shows, draws and replays a recorded wire. The connection only copies messages into a bounded backlog; a
//!   thread writes them, and what backlog or disk does not take is counted where it is missing.
//! - `doctor`, `setup`, `demo` and `completions` help with installation.
//!
//! Nothing is approved by default: Enter answers no question, nor does a key while the user types or one that repeats.
//! A prompt from stdin leaves no user to ask, which means no, and the message names the option that would allow it.

mod agent;
mod audit;
mod changes;
mod connect;
mod demo;
mod doctor;
mod help;
mod mcp;
mod policy;
mod proxy;
mod run;
mod serve;
mod sessions;
mod setup;
mod signals;
mod trace;
mod web;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use bowline_client::common::console;
use bowline_client::error::CliError;
use bowline_client::launch::SUPERVISOR_COMMAND;

/// The workspace between an editor and a coding agent: unsaved text, reviewed writes, undo.
#[derive(Parser)]
#[command(name = "bowline", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

const AFTER_HELP: &str = "\
Exit status: 0 success, 1 failure, 2 wrong usage, 3 timed out (--timeout), 4 no such session, \
5 denied without a user to ask, 130 interrupted, 143 terminated.

Environment:
  XDG_STATE_HOME     journal, audit log and sessions (default: ~/.local/state)
  XDG_CONFIG_HOME    rules, agents and keys (default: ~/.config)
  XDG_DATA_HOME      anchors of the audit log (default: ~/.local/share)
  NO_COLOR           no colours
  PAGER              the pager for long lists in a terminal
  BOWLINE_TOKEN      the token for a server, unless --token-file names one
  BOWLINE_STORE      the store of `bowline serve`, unless --store names one
  ANTHROPIC_API_KEY  and others: API keys for Bowline's own agent

For examples, run `bowline COMMAND --help`. To get started, try `bowline demo` and `bowline doctor`.";

#[derive(Subcommand)]
enum CliCommand {
    /// Run a short, self-checking tour on a scratch project; needs no API key or network
    ///
    /// The tour runs the real agent and the real host as two processes connected by a pipe, and checks every step.
    Demo,
    /// Run one prompt: serve this workspace to an agent and show what it does
    Run(run::RunArguments),
    /// Chat with an agent in a full-screen terminal interface
    Chat(bowline_tui::ChatArguments),
    /// Run Bowline's own agent for an editor, over ACP on stdin and stdout
    ///
    /// Without an API key, the agent uses the built-in offline model.
    Agent(agent::AgentArguments),
    /// Serve this workspace to MCP clients: files, unsaved text and commands
    Mcp(mcp::McpArguments),
    /// Run between an editor and any agent, and add tools, rules and undo
    Proxy(proxy::ProxyArguments),
    /// Open the web page for this directory in a browser
    Web(web::WebArguments),
    /// Serve an agent to remote clients, with sessions that outlive connections
    Serve(serve::ServeArguments),
    /// Connect an editor to an agent on a server, over HTTP or a WebSocket
    Connect(connect::ConnectArguments),
    /// List the changes that agents made in this workspace
    Changes(changes::ChangesArguments),
    /// Show the changes that agents made as a patch for git
    Diff(changes::DiffArguments),
    /// Undo the changes that agents made; your own later edits stay
    Undo(changes::UndoArguments),
    /// Redo changes that were undone
    Redo(changes::RedoArguments),
    /// List turns by their prompts, or go back to before one of them
    Rewind(changes::RewindArguments),
    /// Print or restore text of yours that is kept only in the journal
    Restore(changes::RestoreArguments),
    /// Manage the stored sessions of Bowline's own agent
    Sessions(sessions::SessionsArguments),
    /// Show, verify or archive the audit log of this workspace
    Audit(audit::AuditArguments),
    /// Show or replay a recorded conversation between client and agent
    Trace(trace::TraceArguments),
    /// Show or change the rules for what agents may do here
    Policy(policy::PolicyArguments),
    /// Check the installation and suggest how to fix problems
    Doctor(doctor::DoctorArguments),
    /// Print or write the configuration that an editor needs
    Setup(setup::SetupArguments),
    /// Print manual pages, or write them to a directory
    Man(help::man::ManArguments),
    /// Print a shell completion script
    Completions(help::completions::CompletionsArguments),
    /// Connect an agent to the MCP server of its proxy, over a socket
    #[command(hide = true)]
    McpBridge(mcp::bridge::McpBridgeArguments),
    /// Supervise the processes of one command for a host
    #[command(name = SUPERVISOR_COMMAND, hide = true)]
    Supervisor,
}

fn main() -> ExitCode {
    help::completions::answer_request();
    let arguments = Cli::try_parse();
    if let Ok(Cli { command: CliCommand::Supervisor }) = arguments {
        // Before any thread or runtime exists.
        return bowline_workspace::terminals::supervisor::main(std::env::args_os());
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return CliError::from(anyhow::Error::from(error)).report(),
    };
    if let Err(error) = signals::survive_file_size_limit(&runtime) {
        return CliError::from(error).report();
    }
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return help::print_help_or_error(&error),
    };
    let success = |()| ExitCode::SUCCESS;
    let result: Result<ExitCode, CliError> = match arguments.command {
        CliCommand::Demo => runtime.block_on(demo::run()).map(success),
        CliCommand::Run(arguments) => runtime.block_on(run::run(arguments)).map(success),
        CliCommand::Chat(arguments) => runtime.block_on(bowline_tui::run(arguments)).map(success),
        CliCommand::Agent(arguments) => runtime.block_on(agent::run(arguments)).map_err(CliError::from),
        CliCommand::Mcp(arguments) => runtime.block_on(mcp::run(arguments)),
        CliCommand::McpBridge(arguments) => runtime.block_on(mcp::bridge::run(arguments)),
        CliCommand::Proxy(arguments) => {
            console::note_waiting_for("an editor that speaks ACP");
            runtime.block_on(proxy::run(arguments))
        }
        CliCommand::Web(arguments) => runtime.block_on(web::run(arguments)),
        CliCommand::Serve(arguments) => runtime.block_on(serve::run(arguments)),
        CliCommand::Connect(arguments) => runtime.block_on(connect::run(arguments)),
        CliCommand::Changes(arguments) => changes::list(&arguments).map(success),
        CliCommand::Diff(arguments) => changes::diff(&arguments).map(success),
        CliCommand::Undo(arguments) => changes::undo(&arguments).map(success),
        CliCommand::Redo(arguments) => changes::redo(&arguments).map(success),
        CliCommand::Rewind(arguments) => changes::rewind(&arguments).map(success),
        CliCommand::Restore(arguments) => changes::restore(&arguments).map(success),
        CliCommand::Sessions(arguments) => runtime.block_on(sessions::run(arguments)).map(success),
        CliCommand::Audit(arguments) => audit::run(arguments).map(success),
        CliCommand::Trace(arguments) => trace::run(arguments),
        CliCommand::Policy(arguments) => policy::run(arguments).map(success),
        CliCommand::Doctor(arguments) => runtime.block_on(doctor::run(arguments)).map(success),
        CliCommand::Setup(arguments) => setup::run(arguments).map(success),
        CliCommand::Man(arguments) => help::man::run(&arguments).map(success),
        CliCommand::Completions(arguments) => help::completions::run(&arguments).map(success),
        CliCommand::Supervisor => Ok(ExitCode::SUCCESS),
    };
    // Blocking work is not awaited: a thread that reads stdin would never end.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| error.report())
}

#[cfg(test)]
mod tests;
