//! `bowline trace`: shows, draws and replays a recorded wire.

mod file;
mod page;
mod replay;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use bowline_protocol::trace::TraceSide;
use clap::{Args, Subcommand, ValueEnum};

use bowline_client::error::CliError;

/// What is asked for.
#[derive(Args, Debug)]
#[command(arg_required_else_help = false)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    command: TraceCommand,
}

const SHOW_EXAMPLES: &str = "\
Each line is one message: its time in seconds since the trace began; sender and receiver; method, id \
and session; its content; and for an answer, how long it took. Requests without an answer are listed \
at the end.

FILE is a file written by --trace. It can also be a file of plain messages, one per line, such as \
the output of `bowline run --format json`; the methods then determine the sender.

Examples:
  bowline trace show /tmp/wire.jsonl
  bowline trace show /tmp/wire.jsonl --method 'fs/*' --full
  bowline trace show /tmp/wire.jsonl --html > wire.html      create a page that works offline";

const REPLAY_EXAMPLES: &str = "\
As an agent, replay sends the recorded agent's messages on stdout, each after the client on stdin \
has sent the messages that came before it. As a client, it starts COMMAND and sends it the recorded \
client's messages; without a command, it uses stdin and stdout.

Requests are matched by method and session, then by content, then by order. The ids of requests, \
sessions and terminals and the working directory are replaced with those of the other side. Requests \
that are not in the recording are answered with an error.

Exit status: 0 everything was replayed, 1 the other side deviated or the replay is incomplete.

Examples:
  bowline run --agent 'bowline trace replay /tmp/wire.jsonl --as agent' \"the same prompt\"
  bowline trace replay /tmp/wire.jsonl --as client -- bowline agent --model offline --shell";

#[derive(Subcommand, Debug)]
enum TraceCommand {
    /// Print a trace as a list of messages or an HTML page
    #[command(after_help = SHOW_EXAMPLES)]
    Show(TraceShowArguments),
    /// Play the recorded agent or client to a real counterpart
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArguments),
}

/// What to show.
#[derive(Args, Debug)]
struct TraceShowArguments {
    /// The trace file; `-` is stdin
    file: PathBuf,
    /// Show messages of one session: its id or a prefix of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show messages whose method matches, such as 'fs/*', and their answers
    #[arg(long, value_name = "GLOB")]
    method: Option<String>,
    /// Print every message in full
    #[arg(long, conflicts_with = "html")]
    full: bool,
    /// Print one self-contained HTML page
    #[arg(long)]
    html: bool,
}

/// What to play.
#[derive(Args, Debug)]
struct ReplayArguments {
    /// The trace file
    file: PathBuf,
    /// The side to play
    #[arg(long = "as", value_name = "SIDE")]
    role: ReplayRole,
    /// As a client: the directory to send instead of the recorded one
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// As a client: give up after waiting this many seconds for the agent
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
    /// As a client: the agent to start
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A part to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplayRole {
    /// The agent, for a client to start
    Agent,
    /// The client of an agent
    Client,
}

impl ReplayRole {
    fn side(self) -> TraceSide {
        match self {
            Self::Agent => TraceSide::Agent,
            Self::Client => TraceSide::Client,
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: TraceArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        TraceCommand::Show(arguments) => show::run(&arguments).map(|()| ExitCode::SUCCESS),
        TraceCommand::Replay(arguments) => replay::run(&arguments),
    }
}
