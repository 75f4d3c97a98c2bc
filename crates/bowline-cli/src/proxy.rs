//! `bowline proxy`: a transparent proxy between an editor and an agent.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_policy::own_tools::PolicyStatus;
use bowline_protocol::relay::mcp_servers::McpTransport;
use bowline_protocol::terminal::CommandExit;
use bowline_protocol::trace::TraceSide;
use bowline_proxy::{
    CallerSlot, EngineInterceptor, EngineSessions, InjectorOptions, PeerStreams, Proxy, ProxyEndReason,
    ProxyOptions, ServerInjector,
};
use bowline_text::display::quote;
use bowline_wire::{Direction, RecordedStream, WireRecorder};
use bowline_workspace::terminals::SupervisedProgram;
use clap::{Args, ValueEnum};
use tokio::time::timeout;

use crate::signals::wait_for_signal;
use bowline_client::agents::AgentCommand;
use bowline_client::error::CliError;
use bowline_client::launch::own_supervisor;
use bowline_client::launch::spawn_error;
use bowline_client::trace::TraceRecorder;
use bowline_serve::token::random_hex;
use engine::LocalEngine;
use redact::TraceSecrets;
use sockets::SocketDir;

mod client_methods;
mod engine;
mod options;
mod permission;
mod redact;
mod session;
mod sockets;

/// The time limit for an agent to exit after it has closed its output.
const AGENT_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time limit for releasing the editor's resources once the agent is gone.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit for forwarding the end of an agent's stderr.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// The time limit for recording the agent's last changes.
const FINAL_SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of the proxy's own updates queued for an editor or an agent that does not read.
const MAX_PENDING_UPDATES: usize = 64;

/// The maximum length of a traced line, in bytes; a longer one is traced in pieces.
const MAX_TRACED_LINE: usize = 64 << 20;

const EXAMPLES: &str = "\
Configure the editor to start this program instead of the agent, with the agent's command after \
`--`. All messages pass unchanged and in order, whatever their length, including cancellations, \
extensions and unknown methods. So does the agent's stderr. The exception is known agent bugs, which \
are worked around and noted on stderr: gemini reads a file before creating it and gives up on the \
editor's error, so a missing file reads as empty. BOWLINE_NO_QUIRKS=1 turns these workarounds off.

Each session gains an MCP server named `bowline`. Its tools read, write, edit, list and search files \
and run commands through the editor. So an agent without editor support sees unsaved text, and you \
review its work in the editor, which asks before a file is changed or a command is run. Tools that \
move and delete files or write several at once need the editor's file extension `_bowline/fs/…`; \
without it they use the disk under your rules, and refuse files with unsaved text. Only tools \
that the editor supports are offered, or all of them with --host; with no tools, no server is added. \
The server's resources are the session's changes and the diagnostics that the editor shares with \
`_bowline/diagnostics`.

Some agents (claude-agent-acp, codex-acp, fast-agent) also ask for permission before they call such \
a tool. If such a request clearly names the tool, it is answered with \"allow once\", and you see only \
the tool's own question, with the diff; --trace marks these answers. Unless its mode is \
workspace-write, codex-acp first has a model review such calls. Set that mode in the editor, with \
INITIAL_AGENT_MODE=workspace-write, or with `bowline run --mode workspace-write`.

When a tool call begins and ends, the proxy looks for changes that the agent made directly on disk. \
The editor shows them as diffs on the call; `bowline changes` and `bowline undo` include them. For a \
write through the editor, the journal starts from your unsaved text. If the agent never read that \
text, the two are merged; if both changed the same lines, nothing is written.

When the agent exits, all open requests of the editor get an error that says so. When the editor \
disconnects or a signal arrives, the agent's input is closed. After five seconds the agent is killed \
with all the processes it started. None of them is left over, however this program ends.

Examples:
  bowline proxy -- claude-agent-acp
  bowline proxy -- opencode acp
  bowline proxy --trace /tmp/agent.trace -- bowline agent
  bowline proxy --no-mcp --no-observe -- bowline agent    only pass messages on
  bowline proxy --policy accept-edits -- opencode acp     allow edits, ask about commands
  bowline proxy --host -- opencode acp                    for an editor without files and terminals

The configuration for Zed:
  { \"agent_servers\": { \"OpenCode\": {
      \"command\": \"bowline\", \"args\": [\"proxy\", \"--\", \"opencode\", \"acp\"] } } }

Exit status: 0 the editor disconnected or the agent exited normally, 1 the agent failed, 2 wrong \
usage or the agent cannot be started, 128 plus the signal number after a signal.";

/// What stands between, and before whom.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProxyArguments {
    /// Record all messages to and from the agent in a file, for `bowline trace`
    ///
    /// Each message is stored with its time. The file must be outside the current directory. An older trace is
    /// overwritten.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Record all messages to and from the editor in a file, as --trace does
    #[arg(long, value_name = "FILE")]
    trace_editor: Option<PathBuf>,
    /// How the agent connects to the added MCP server
    #[arg(long, value_enum, value_name = "WAY", default_value_t = TransportArgument::Auto)]
    mcp_transport: TransportArgument,
    /// Do not add an MCP server
    #[arg(long, conflicts_with = "mcp_transport")]
    no_mcp: bool,
    #[command(flatten)]
    engine: options::EngineArguments,
    /// The agent's command, as you would start it without the proxy
    #[arg(last = true, required = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

/// How an agent reaches an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TransportArgument {
    /// The first of these that the agent supports
    Auto,
    /// Over the ACP connection (`mcp/message`)
    Acp,
    /// Over HTTP on this machine, with a secret
    Http,
    /// Through `bowline mcp-bridge`, which the agent starts
    Stdio,
}

/// Forwards messages until one side disconnects.
pub(crate) async fn run(arguments: ProxyArguments) -> Result<ExitCode, CliError> {
    let cwd = std::env::current_dir().context("there is no current directory")?;
    let cwd = cwd.canonicalize().unwrap_or(cwd);
    let secrets = TraceSecrets::default();
    let begin =
        |file: &PathBuf, sides| open_trace(file, &cwd, sides).map(|recorder| secrets.redacting(recorder));
    let trace =
        arguments.trace.as_ref().map(|file| begin(file, (TraceSide::Proxy, TraceSide::Agent))).transpose()?;
    let trace_editor = arguments
        .trace_editor
        .as_ref()
        .map(|file| begin(file, (TraceSide::Client, TraceSide::Proxy)))
        .transpose()?;
    let program = AgentCommand::from_words(&arguments.agent).program(&cwd, std::env::vars_os())?;
    let supervisor = own_supervisor()?;
    let caller_slot = CallerSlot::default();
    let engine = LocalEngine::new(
        arguments.engine.local_engine_options(&cwd, supervisor.clone())?,
        caller_slot.clone(),
    );
    let started = SupervisedProgram::start_with_piped_input(&supervisor, program).await;
    let (mut agent_process, streams, writer) = started.map_err(spawn_error)?;
    let stderr_task = bowline_task::spawn(async move {
        let mut stderr = streams.stderr;
        // A closed or blocked stderr must not delay anything else.
        tokio::io::copy(&mut stderr, &mut tokio::io::stderr()).await.map_or_else(drop, drop);
    });
    let agent = PeerStreams { reader: Box::new(streams.stdio), writer: Box::new(writer) };
    let agent = record_streams(agent, trace, (Direction::Received, Direction::Sent));
    let (reader, writer) = bowline_wire::standard_streams();
    // This trace is recorded from the editor's side: messages received here are on their way to the agent, and count as
    // sent.
    let editor = PeerStreams { reader, writer };
    let editor = record_streams(editor, trace_editor, (Direction::Sent, Direction::Received));
    // Dropped at the end of this function, along with its sockets.
    let sockets = SocketDir::new_in(std::env::temp_dir());
    let engine_sessions = EngineSessions::new(arguments.engine.engine_options());
    let injector_options = InjectorOptions {
        transport: match arguments.mcp_transport {
            TransportArgument::Auto => None,
            TransportArgument::Acp => Some(McpTransport::Acp),
            TransportArgument::Http => Some(McpTransport::Http),
            TransportArgument::Stdio => Some(McpTransport::Stdio),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        generate_secret: Box::new(move || {
            let secret = random_hex::<32>().map_err(std::io::Error::other)?;
            secrets.add(&secret);
            Ok(secret)
        }),
        bridge_command: (supervisor.program.clone(), vec!["mcp-bridge".to_owned()]),
        socket_dir: sockets.create_on_demand(),
        rules: if arguments.engine.engine_options().enforce_policy {
            PolicyStatus::Undecided
        } else {
            PolicyStatus::Off
        },
        engine_sessions: engine_sessions.clone(),
    };
    let (injector, served, link) = ServerInjector::new(injector_options, caller_slot.clone());
    let settings = ProxyOptions {
        canonicalize: arguments.engine.engine_options().enforce_policy,
        ..ProxyOptions::default()
    };
    let (update_sender, update_receiver) = tokio::sync::mpsc::channel(MAX_PENDING_UPDATES);
    let (agent_sender, agent_receiver) = tokio::sync::mpsc::channel(MAX_PENDING_UPDATES);
    let interceptor = EngineInterceptor::new(
        Arc::new(engine.clone()),
        engine_sessions,
        (caller_slot.clone(), update_sender, agent_sender),
        (!arguments.no_mcp).then_some(injector),
    );
    let (caller, proxy) = Proxy::new(interceptor, served, settings);
    caller_slot.set(caller);
    let proxy = proxy.with_editor_updates(update_receiver).with_agent_updates(agent_receiver);
    let (signal_sender, signal_receiver) = tokio::sync::oneshot::channel();
    let stop = async move {
        // The receiver exists until this is done.
        signal_sender.send(wait_for_signal().await).ok();
    };
    let mut exit = None;
    let exit_message = async {
        exit = timeout(AGENT_EXIT_TIMEOUT, agent_process.wait()).await.ok().flatten();
        timeout(RELEASE_TIMEOUT, link.close()).await.unwrap_or_default();
        describe_exit(exit.as_ref())
    };
    let end_reason = proxy.run(editor, agent, exit_message, stop).await;
    agent_process.stop().await;
    // The agent has stopped, so its last changes are complete and can be recorded.
    timeout(FINAL_SCAN_TIMEOUT, engine.end_sessions()).await.unwrap_or_default();
    timeout(STDERR_TIMEOUT, stderr_task).await.map_or_else(drop, |result| result.unwrap_or_default());
    match end_reason {
        ProxyEndReason::Stopped => {
            Ok(signal_receiver.await.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal)))
        }
        ProxyEndReason::AgentExited(message) if exit != Some(CommandExit::Code(0)) => {
            Err(CliError::Failed(anyhow::anyhow!(message)))
        }
        ProxyEndReason::AgentExited(_) | ProxyEndReason::EditorGone => Ok(ExitCode::SUCCESS),
    }
}

/// Describes how the agent ended.
fn describe_exit(exit: Option<&CommandExit>) -> String {
    match exit {
        Some(CommandExit::Code(0)) => "the agent has ended".to_owned(),
        Some(CommandExit::Code(code)) => format!("the agent has ended with exit code {code}"),
        Some(CommandExit::Signal(name)) => format!("the agent was ended by {}", quote(name)),
        None => "the agent has closed its output".to_owned(),
    }
}

fn open_trace(
    file: &Path,
    cwd: &Path,
    sides: (TraceSide, TraceSide),
) -> Result<Arc<dyn WireRecorder>, CliError> {
    Ok(Arc::new(TraceRecorder::begin(&cwd.join(file), &[cwd.to_owned()])?).recorder(sides.0, sides.1))
}

/// Records a peer's messages. `directions` are those of what is read from it and of what is written to it.
fn record_streams(
    streams: PeerStreams,
    recorder: Option<Arc<dyn WireRecorder>>,
    directions: (Direction, Direction),
) -> PeerStreams {
    if recorder.is_none() {
        return streams;
    }
    let reader = RecordedStream::new(streams.reader, recorder.clone(), directions.0, MAX_TRACED_LINE);
    let writer = RecordedStream::new(streams.writer, recorder, directions.1, MAX_TRACED_LINE);
    PeerStreams { reader: Box::new(reader), writer: Box::new(writer) }
}
