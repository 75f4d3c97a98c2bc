//! `bowline mcp`: this workspace as an MCP server, on stdin and stdout or over HTTP.

mod backend;
mod client_registry;
pub(crate) mod token;

pub(crate) mod bridge;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_host::{Host, HostError, HostOptions};
use bowline_mcp::server::{
    self, DenialAdvisor, DeniedOperation, HttpServer, HttpServerOptions, McpWorkspaceServer, OfferedTools,
};
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::Access;
use bowline_workspace::terminals::resolve_command;
use clap::Args;
use tokio::net::{TcpListener, lookup_host};

use crate::policy::hint::PolicyHint;
use crate::signals::wait_for_signal;
use backend::HostSessionBackend;
use bowline_client::approval_preset;
use bowline_client::arguments::ApprovalLevel;
use bowline_client::arguments::options::parse_root;
use bowline_client::common::console::note_waiting_for;
use bowline_client::config::Config;
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;
use bowline_client::launch::{open_document, terminal_options};
use client_registry::ClientRegistry;

/// The time limit for ending all sessions after a signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
This program has no user to ask, so operations that no rule allows are denied; the reply names the \
option or rule that would allow them. If the client supports elicitation, its user is asked instead.

Examples:
  bowline mcp                                allow reading, for a client that starts its servers
  bowline mcp --approve edits                also allow changing files; `bowline undo` reverts them
  bowline mcp --cwd ~/project --read-only    serve another directory, for reading only
  bowline mcp --listen 127.0.0.1:0 --token-file ~/.bowline-token

The usual client configuration:
  { \"mcpServers\": { \"bowline\": { \"command\": \"bowline\", \"args\": [\"mcp\", \"--approve\", \"edits\"] } } }";

/// How the workspace is served.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpArguments {
    /// The workspace directory (default: the current directory)
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// Serve another directory; append `:ro` to make it read-only
    ///
    /// Can be repeated.
    #[arg(long, value_name = "DIRECTORY[:ro]")]
    add_dir: Vec<String>,
    /// Treat a file as open in the editor
    ///
    /// With `=TEXTFILE`, the content of TEXTFILE is the unsaved text that the editor shows. Can be repeated.
    #[arg(long, value_name = "FILE[=TEXTFILE]")]
    open: Vec<String>,
    /// What to allow without asking (default: your preset)
    ///
    /// Your rules still apply. This option replaces your preset unless that is `read-only` or `deny`.
    #[arg(long, value_enum, value_name = "WHAT")]
    approve: Option<ApprovalLevel>,
    /// Use the rules in FILE instead of your own
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Do not offer commands
    #[arg(long)]
    no_terminal: bool,
    /// Offer only reading: no writing, no commands
    #[arg(long)]
    read_only: bool,
    /// Serve streamable HTTP at this address instead of stdin and stdout
    ///
    /// Use 127.0.0.1:0 for any free port. The address and the token are printed to stderr.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The file with the token that clients must send
    ///
    /// If the file has no token, a new one is written to it, readable by you only.
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Allow --listen on an address that other machines can reach
    ///
    /// The traffic is not encrypted.
    #[arg(long, requires = "listen")]
    allow_remote: bool,
    /// Accept another host name from clients, besides the address
    ///
    /// Can be repeated.
    #[arg(long, value_name = "NAME", requires = "listen")]
    allow_host: Vec<String>,
    /// Close an HTTP session after this many seconds without activity
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, requires = "listen")]
    idle_timeout: u64,
}

/// Serves the workspace until the client disconnects or a signal arrives.
pub(crate) async fn run(arguments: McpArguments) -> Result<ExitCode, CliError> {
    let dirs = UserDirs::from_env()?;
    let clients = Arc::new(ClientRegistry::default());
    let host = open_host(&arguments, &dirs, clients.clone()).await?;
    let offered_tools = match (arguments.read_only, arguments.no_terminal) {
        (true, _) => OfferedTools::ReadOnly,
        (false, true) => OfferedTools::Files,
        (false, false) => OfferedTools::Everything,
    };
    let settings = server::McpServerOptions {
        name: "bowline".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        offered_tools,
        advise_denial: Some(denial_advisor(&arguments, host.clone())),
    };
    let root = host.workspace().roots().cwd().to_owned();
    let open = move |client| HostSessionBackend::open(host.clone(), clients.clone(), client);
    let server = McpWorkspaceServer::new(settings, Arc::new(open));
    match &arguments.listen {
        Some(address) => serve_http(server, address, &arguments, &root).await,
        None => {
            note_waiting_for("a client that speaks MCP");
            serve_stdio(server).await
        }
    }
}

async fn serve_stdio(server: McpWorkspaceServer) -> Result<ExitCode, CliError> {
    let (reader, writer) = bowline_wire::standard_streams();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let stop = async move {
        let signal = wait_for_signal().await;
        // The receiver exists until this is done.
        sender.send(signal).ok();
    };
    server::serve(server, reader, writer, stop)
        .await
        .context("the client does not speak MCP as it should")?;
    Ok(receiver.await.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal)))
}

async fn serve_http(
    server: McpWorkspaceServer,
    address: &str,
    arguments: &McpArguments,
    root: &str,
) -> Result<ExitCode, CliError> {
    // A port alone means the loopback interface.
    let endpoint = if address.starts_with(':') { format!("127.0.0.1{address}") } else { address.to_owned() };
    let addresses: Vec<SocketAddr> = match lookup_host(endpoint).await {
        Ok(resolved) => resolved.collect(),
        Err(error) => {
            return Err(CliError::Usage(format!(
                "--listen {address} is no address with a port ({error}): give one like 127.0.0.1:0"
            )));
        }
    };
    if !arguments.allow_remote && addresses.iter().any(|address| !address.ip().is_loopback()) {
        return Err(CliError::Usage(format!(
            "--listen {address} can be reached from other machines, and nothing is encrypted: use 127.0.0.1, or add \
             --allow-remote if that is meant"
        )));
    }
    let token = token::load_or_create(arguments.token_file.as_deref())?;
    let listener = TcpListener::bind(&*addresses).await;
    let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
    let settings = HttpServerOptions {
        token: token.clone(),
        hosts: arguments.allow_host.clone(),
        idle_timeout: Duration::from_secs(arguments.idle_timeout.max(1)),
    };
    let http = HttpServer::start(server, listener, settings).context("cannot listen")?;
    let mut stderr = std::io::stderr();
    // Stderr may be closed; a token file, if named, contains the token as well.
    writeln!(stderr, "bowline: serving {root} at {}", http.url()).ok();
    writeln!(stderr, "bowline: clients send `Authorization: Bearer {token}`").ok();
    let signal = wait_for_signal().await;
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, http.stop()).await.is_err() {
        return Err(CliError::Failed(anyhow::anyhow!(
            "sessions did not end in time; what they ran is killed"
        )));
    }
    Ok(ExitCode::from(128 + signal))
}

async fn open_host(
    arguments: &McpArguments,
    dirs: &UserDirs,
    clients: Arc<ClientRegistry>,
) -> Result<Host, CliError> {
    let current_dir = std::env::current_dir().context("there is no current directory")?;
    let cwd = current_dir.join(arguments.cwd.as_deref().unwrap_or(Path::new("")));
    let project = std::fs::canonicalize(&cwd)
        .map_err(|error| CliError::Usage(format!("--cwd {}: {error}: name a directory", cwd.display())))?;
    let mut settings = HostOptions::new(terminal_options()?);
    settings.workspace.foreign_files = Config::read(&dirs.config)?.ignore_changes;
    settings.writes_through_host_only = true;
    settings.capabilities.write = !arguments.read_only;
    settings.capabilities.terminal = !arguments.read_only && !arguments.no_terminal;
    settings.preset = arguments.approve.map(approval_preset);
    settings.additional_roots = arguments.add_dir.iter().map(|text| parse_root(text, &current_dir)).collect();
    let policy = match &arguments.policy {
        Some(file) => std::fs::canonicalize(current_dir.join(file))
            .map_err(|error| CliError::Usage(format!("--policy {}: {error}", file.display())))?,
        None => dirs.policy_file(),
    };
    let host_paths = dirs.for_host(policy);
    let opened =
        bowline_task::spawn_blocking(move || Host::open(&project, &host_paths, clients, settings)).await;
    let host = opened.context("opening the workspace ended early")?.map_err(|error| match error {
        HostError::Roots(error) => CliError::Usage(error.to_string()),
        error => CliError::Failed(error.into()),
    })?;
    let cwd = Path::new(host.workspace().roots().cwd());
    for text in &arguments.open {
        open_document(&host, text, &current_dir, cwd)?;
    }
    Ok(host)
}

/// Returns an advisor that names what would allow a denied operation: a flag, and the rule for exactly that operation.
/// Both are tried on the policy in force first.
fn denial_advisor(arguments: &McpArguments, host: Host) -> DenialAdvisor {
    let (file, preset) = (arguments.policy.clone(), arguments.approve.map(approval_preset));
    Arc::new(move |denied| {
        let operations = denied_operations(&host, denied)?;
        let hint = PolicyHint::find(&host, &operations, "", preset);
        let command = hint.flag.map(|flag| format!("bowline mcp {flag}"));
        let flag = command.map(|command| format!("by starting the server with `{command}`"));
        let rule = hint.rules.map(|rules| match &file {
            Some(file) => format!("by a rule in {}", file.display()),
            None => format!("by a rule: {}", rules.join(" and ")),
        });
        let ways: Vec<String> = flag.into_iter().chain(rule).collect();
        (!ways.is_empty()).then(|| format!("The user can allow it {}.", ways.join(", or ")))
    })
}

fn denied_operations(host: &Host, denied: &DeniedOperation<'_>) -> Option<Vec<Operation>> {
    let roots = host.workspace().roots();
    let file = |path: &str, access, kind| Some(roots.admit(path, access).ok()?.operation(kind));
    match *denied {
        DeniedOperation::Read { path } => Some(vec![file(path, Access::Read, OperationKind::Read)?]),
        DeniedOperation::Write { path } => Some(vec![file(path, Access::Write, OperationKind::Write)?]),
        DeniedOperation::Change { written, deleted } => {
            let written = written.iter().map(|path| file(path, Access::Write, OperationKind::Write));
            let deleted = deleted.iter().map(|path| file(path, Access::Write, OperationKind::Delete));
            written.chain(deleted).collect()
        }
        DeniedOperation::Run { invocation, cwd, env } => {
            let command = resolve_command(roots, invocation.clone(), cwd.to_owned(), env.to_vec());
            let target = OperationTarget::Command(command);
            Some(vec![Operation { kind: OperationKind::Execute, target }])
        }
    }
}
