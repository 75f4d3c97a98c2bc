//! `bowline trace`: a recorded wire, to read, to look at, and to play back.

mod file;
mod page;
mod replay;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use bowline_state::trace::Side;
use clap::{Args, Subcommand, ValueEnum};

use crate::ending::Ending;

/// What is asked for.
#[derive(Args, Debug)]
#[command(arg_required_else_help = false)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    command: Command,
}

const SHOW_EXAMPLES: &str = "\
Each line is one message: when, in seconds since the trace began; from whom to whom; its method, id and session; what it says;
and of an answer how long it took. Requests without an answer are named at the end.

FILE is what --trace wrote. Files of bare messages, one a line, are read too, such as the output of `bowline run --format
json`: who said what is then told by the methods.

Examples:
  bowline trace show /tmp/wire.jsonl
  bowline trace show /tmp/wire.jsonl --method 'fs/*' --full
  bowline trace show /tmp/wire.jsonl --html > wire.html      a page to look at, without network";

const REPLAY_EXAMPLES: &str = "\
As an agent it says on stdout what the recorded agent said, once the client on stdin has said what came before. As a client
it starts COMMAND and says to it what the recorded client said; without a command it speaks on stdin and stdout.

Requests are told by method and session, then by what they carry, then by their order. Ids of requests, sessions and
terminals, and the working directory, become those of the other side. A request that the recording does not have is answered
by an error.

Exit status: 0 if all was played; 1 if the other side did something else, or not all was played.

Examples:
  bowline run --agent 'bowline trace replay /tmp/wire.jsonl --as agent' \"the same prompt\"
  bowline trace replay /tmp/wire.jsonl --as client -- bowline agent --model offline --shell";

#[derive(Subcommand, Debug)]
enum Command {
    /// Prints a recorded wire as a sequence, or as a page to look at
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArguments),
    /// Plays the part of the recorded agent or client to a real one
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArguments),
}

/// What to show.
#[derive(Args, Debug)]
struct ShowArguments {
    /// The recorded wire; `-` is stdin
    file: PathBuf,
    /// Messages of one session: its id, or the beginning of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Messages with a method that fits, such as session/update or 'fs/*', and the answers to them
    #[arg(long, value_name = "GLOB")]
    method: Option<String>,
    /// Prints every message whole
    #[arg(long, conflicts_with = "html")]
    full: bool,
    /// Prints one HTML page that needs nothing else
    #[arg(long)]
    html: bool,
}

/// What to play.
#[derive(Args, Debug)]
struct ReplayArguments {
    /// The recorded wire
    file: PathBuf,
    /// Whose part to play
    #[arg(long = "as", value_name = "SIDE")]
    role: Role,
    /// As a client: the directory to name in place of the recorded one
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// As a client: gives up if the agent says nothing for so long while its answer is waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
    /// As a client: the agent to start
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A part to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// The agent, for a client to start
    Agent,
    /// The client of an agent
    Client,
}

impl Role {
    fn side(self) -> Side {
        match self {
            Self::Agent => Side::Agent,
            Self::Client => Side::Client,
        }
    }
}

/// Does it.
pub(crate) fn run(arguments: TraceArguments) -> Result<ExitCode, Ending> {
    match arguments.command {
        Command::Show(arguments) => show::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Replay(arguments) => replay::run(&arguments),
    }
}
