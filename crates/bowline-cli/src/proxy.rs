//! `bowline proxy`: stands between an editor and an agent that know nothing of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_proxy::{
    Beside, Chain, Ended, Ends, Inject, InjectSettings, Line, Proxy, Reader, Sessions, Settings, Writer,
};
use bowline_state::failure::quote;
use bowline_state::relay::own_tools::Rules;
use bowline_state::relay::servers::Transport;
use bowline_state::terminal::Exit;
use bowline_state::trace::Side;
use bowline_wire::{Direction, Tap, Tapped};
use bowline_workspace::terminals::{Companion, Supervisor};
use clap::{Args, ValueEnum};
use tokio::time::timeout;

use crate::SUPERVISOR;
use crate::client::agents::AgentCommand;
use crate::client::launch::cannot_start;
use crate::client::trace::Trace;
use crate::ending::Ending;
use crate::mcp::{signalled, token};
use blotting::Secrets;
use engine::LocalEngine;
use sockets::Sockets;

mod asking;
mod blotting;
mod engine;
mod options;
mod serving;
mod session;
mod sockets;

/// How long an agent that has closed its output may take to end.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How long giving up what runs at the editor may take, once the agent is gone.
const GIVE_UP: Duration = Duration::from_secs(2);

/// How long the last of an agent's stderr may take to be passed on.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long recording what the agent changed last may take.
const LAST_LOOK: Duration = Duration::from_secs(10);

/// So many updates of our own wait for an editor that does not read.
const MAX_TOLD: usize = 64;

/// A line that is longer is traced in pieces.
const MAX_TRACED: usize = 64 << 20;

const EXAMPLES: &str = "\
An editor starts it in place of the agent, with the agent's own command behind `--`. Everything that the two say to each
other is passed on as it is: methods that Bowline does not know, extensions, order, cancellations and messages of any
length. What the agent writes to stderr is passed on too. The exception is known faults of agents, which are worked around and
noted on stderr: gemini reads a file before it creates it and gives up on the editor's error, so a missing file reads as empty.
BOWLINE_NO_QUIRKS=1 in the environment turns that off.

One thing is added: each session gets an MCP server named `bowline`, whose tools read, write, edit, list and search files
and run commands through the editor. So an agent that knows nothing of an editor's files sees text that is not saved yet,
and what it writes is reviewed where the user works: the editor asks before a file is changed or a command is run. Only
what the editor advertises is offered, and the rest with --host; with nothing to offer, nothing is added. What the editor
shares by `_bowline/diagnostics` and what the session changed are resources of the server.

Where an agent asks for permission before it calls such a tool, and says so beyond doubt (claude-agent-acp, codex-acp,
fast-agent), that question is answered with its option to allow it once, and you see the tool's own, with the diff;
--trace marks it. codex-acp has a model of its own review such calls first, unless its mode is workspace-write: choose
that in the editor, by INITIAL_AGENT_MODE=workspace-write, or with `bowline run --mode workspace-write`.

What the agent changes on disk by itself is looked for when its tool calls begin and end. The editor is shown it as diffs
on the calls, and `bowline changes` and `bowline undo` know it. What it writes through the editor begins, in the journal,
with what you had typed and not saved; if it never read that, the two are merged, and where both changed the same lines
nothing is written.

When the agent ends, every request of the editor that is open is answered with an error that says so. When the editor is
gone, or a signal comes, the agent's input is closed, it has five seconds to end, and then it is killed with all that it
started. Nothing of it stays, however this program ends.

Examples:
  bowline proxy -- claude-agent-acp
  bowline proxy -- opencode acp
  bowline proxy --trace /tmp/agent.trace -- bowline agent
  bowline proxy --no-mcp --no-observe -- bowline agent       passes on and adds nothing
  bowline proxy --policy accept-edits -- opencode acp        edits pass, commands are asked about
  bowline proxy --host -- opencode acp                       for an editor without files and terminals

An editor's configuration, as Zed has it:
  { \"agent_servers\": { \"OpenCode\": { \"command\": \"bowline\", \"args\": [\"proxy\", \"--\", \"opencode\", \"acp\"] } } }

Ends with 0 when the editor is gone or the agent ended in order, 1 if the agent failed, 2 if the command line makes no sense
or names no agent that can be started, and 128 and its number after a signal.";

/// What stands between, and before whom.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProxyArguments {
    /// Writes every message between this program and the agent to a file, with its time, for `bowline trace`. The file
    /// lies outside of the current directory; a trace of before is overwritten
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The same between the editor and this program
    #[arg(long, value_name = "FILE")]
    trace_editor: Option<PathBuf>,
    /// How the agent reaches the MCP server that is added
    #[arg(long, value_enum, value_name = "WAY", default_value_t = Way::Auto)]
    mcp_transport: Way,
    /// Adds no MCP server
    #[arg(long, conflicts_with = "mcp_transport")]
    no_mcp: bool,
    #[command(flatten)]
    beside: options::BesideArguments,
    /// The agent's command, as it would be started without a proxy
    #[arg(last = true, required = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

/// How an agent reaches an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// The first of these that the agent says it can
    Auto,
    /// Over its own connection (`mcp/message`)
    Acp,
    /// Over HTTP on this machine, with a secret
    Http,
    /// By `bowline mcp-bridge`, which the agent starts
    Stdio,
}

/// Passes messages on until one side is gone.
pub(crate) async fn run(arguments: ProxyArguments) -> Result<ExitCode, Ending> {
    let here = std::env::current_dir().context("there is no current directory")?;
    let here = here.canonicalize().unwrap_or(here);
    let secrets = Secrets::default();
    let begin = |file: &PathBuf, ends| begin(file, &here, ends).map(|tap| secrets.blotted(tap));
    let trace = arguments.trace.as_ref().map(|file| begin(file, (Side::Proxy, Side::Agent))).transpose()?;
    let trace_editor =
        arguments.trace_editor.as_ref().map(|file| begin(file, (Side::Client, Side::Proxy))).transpose()?;
    let program = AgentCommand::given(&arguments.agent).program(&here, std::env::vars_os())?;
    let own = std::env::current_exe().context("cannot find the bowline program")?;
    let supervisor = Supervisor { program: own.clone(), args: vec![SUPERVISOR.into()] };
    let line = Line::default();
    let engine = LocalEngine::new(arguments.beside.plan(&here, supervisor.clone())?, line.clone());
    let started = Companion::start_piped(&supervisor, program).await;
    let (mut companion, streams, writer) = started.map_err(cannot_start)?;
    let errors = tokio::spawn(async move {
        let mut errors = streams.errors;
        // Who does not read it must not hold up anything.
        tokio::io::copy(&mut errors, &mut tokio::io::stderr()).await.map_or_else(drop, drop);
    });
    let agent = tapped(Ends { reader: Box::new(streams.talk), writer: Box::new(writer) }, trace);
    let (reader, writer) = bowline_wire::standard_streams();
    // Seen from here, what comes from the editor is on its way to the agent.
    let editor = tapped_back(Ends { reader, writer }, trace_editor);
    // Goes with this function, and the sockets in it.
    let sockets = Sockets::below(std::env::temp_dir());
    let doing = Sessions::new(arguments.beside.doing());
    let (inject, served, link) = Inject::new(InjectSettings {
        transport: match arguments.mcp_transport {
            Way::Auto => None,
            Way::Acp => Some(Transport::Acp),
            Way::Http => Some(Transport::Http),
            Way::Stdio => Some(Transport::Stdio),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        secret: Box::new(move || {
            let secret = token::new().map_err(std::io::Error::other)?;
            secrets.add(&secret);
            Ok(secret)
        }),
        bridge: (own, vec!["mcp-bridge".to_owned()]),
        sockets: sockets.lent(),
        rules: if arguments.beside.doing().rules { Rules::LeaveOpen } else { Rules::Off },
        beside: doing.clone(),
    });
    let mut chain = Chain::default();
    if !arguments.no_mcp {
        chain.0.push(Box::new(inject));
    }
    let settings = Settings { strict: arguments.beside.doing().rules, ..Settings::default() };
    let (telling, told_beside) = tokio::sync::mpsc::channel(MAX_TOLD);
    let beside = Beside::new(Arc::new(engine.clone()), doing, (line.clone(), telling), chain);
    let (caller, proxy) = Proxy::new(beside, served, settings);
    line.connect(caller.clone());
    link.connect(caller);
    let proxy = proxy.telling(told_beside);
    let (tell, told) = tokio::sync::oneshot::channel();
    let stop = async move {
        // Whoever waits for it is there until this is done.
        tell.send(signalled().await).ok();
    };
    let mut exit = None;
    let farewell = async {
        exit = timeout(LAST_MOMENT, companion.ended()).await.ok().flatten();
        timeout(GIVE_UP, link.close()).await.unwrap_or_default();
        how(exit.as_ref())
    };
    let ended = proxy.run(editor, agent, farewell, stop).await;
    companion.end().await;
    // What the agent changed last is recorded, now that it changes nothing any more.
    timeout(LAST_LOOK, engine.end()).await.unwrap_or_default();
    timeout(LAST_WORDS, errors).await.map_or_else(drop, |joined| joined.unwrap_or_default());
    match ended {
        Ended::Stopped => Ok(told.await.map_or(ExitCode::SUCCESS, |number| ExitCode::from(128 + number))),
        Ended::Agent(how) if exit != Some(Exit::Code(0)) => Err(Ending::Failed(anyhow::anyhow!(how))),
        Ended::Agent(_) | Ended::Editor => Ok(ExitCode::SUCCESS),
    }
}

/// Says how the agent ended.
fn how(exit: Option<&Exit>) -> String {
    match exit {
        Some(Exit::Code(0)) => "the agent has ended".to_owned(),
        Some(Exit::Code(code)) => format!("the agent has ended with exit code {code}"),
        Some(Exit::Signal(name)) => format!("the agent was ended by {}", quote(name)),
        None => "the agent has closed its output".to_owned(),
    }
}

fn begin(file: &Path, here: &Path, ends: (Side, Side)) -> Result<Arc<dyn Tap>, Ending> {
    Ok(Arc::new(Trace::begin(&here.join(file), &[here.to_owned()])?).between(ends.0, ends.1))
}

fn tapped(ends: Ends, tap: Option<Arc<dyn Tap>>) -> Ends {
    let Some(tap) = tap else { return ends };
    let reader: Reader = Box::new(Tapped::new(ends.reader, tap.clone(), Direction::Received, MAX_TRACED));
    let writer: Writer = Box::new(Tapped::new(ends.writer, tap, Direction::Sent, MAX_TRACED));
    Ends { reader, writer }
}

fn tapped_back(ends: Ends, tap: Option<Arc<dyn Tap>>) -> Ends {
    let Some(tap) = tap else { return ends };
    let reader: Reader = Box::new(Tapped::new(ends.reader, tap.clone(), Direction::Sent, MAX_TRACED));
    let writer: Writer = Box::new(Tapped::new(ends.writer, tap, Direction::Received, MAX_TRACED));
    Ends { reader, writer }
}
