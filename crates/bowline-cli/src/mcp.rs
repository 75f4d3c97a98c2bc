//! `bowline mcp`: this workspace as an MCP server, on stdin and stdout or over HTTP.

mod desk;
mod place;
pub(crate) mod token;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_host::{Host, HostError, Settings};
use bowline_mcp::server::{self, Advise, DeniedTool, HttpServer, HttpSettings, Offer, Server};
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::paths::Access;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::{self, Supervisor, looked_at_within};
use clap::Args;
use tokio::net::{TcpListener, lookup_host};
use tokio::signal::unix::{SignalKind, signal};

use crate::SUPERVISOR;
use crate::client::arguments::Approve;
use crate::client::config::Config;
use crate::client::preset;
use crate::ending::Ending;
use crate::places::Places;
use crate::policy::hint::Hint;
use crate::records::showing::waits;
use desk::Desk;
use place::LocalPlace;

/// How long ending all sessions may take after a signal.
const SHUT_DOWN: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Nobody sits at this program, so what no rule allows is denied; the answer says which option or rule would allow it. A
client that can put questions to its user (elicitation) is asked instead.

Examples:
  bowline mcp                                     reads are allowed, for a client that starts servers itself
  bowline mcp --approve edits                     files may be changed as well; `bowline undo` takes changes back
  bowline mcp --cwd ~/project --read-only         another directory, and nothing but reading
  bowline mcp --listen 127.0.0.1:0 --token-file ~/.bowline-token

A client's configuration, as most have it:
  { \"mcpServers\": { \"bowline\": { \"command\": \"bowline\", \"args\": [\"mcp\", \"--approve\", \"edits\"] } } }";

/// How the workspace is served.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpArguments {
    /// The directory of the workspace, if it is not the current one
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// One more directory that may be used; with `:ro` at its end only to read. May be given several times
    #[arg(long, value_name = "DIRECTORY[:ro]")]
    add_dir: Vec<String>,
    /// A file that is open in an editor. With `=TEXTFILE` that file's content is what the editor shows and has not saved.
    /// May be given several times
    #[arg(long, value_name = "FILE[=TEXTFILE]")]
    open: Vec<String>,
    /// What is allowed without a question, where no rule of yours says otherwise
    #[arg(long, value_enum, value_name = "WHAT")]
    approve: Option<Approve>,
    /// A file of rules that hold in place of yours
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Does not offer to run commands
    #[arg(long)]
    no_terminal: bool,
    /// Offers files to read, and neither writing nor commands
    #[arg(long)]
    read_only: bool,
    /// Serves streamable HTTP at this address in place of stdin and stdout, like 127.0.0.1:0 for any free port. Says on
    /// stderr where, and with which token
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The file of the token that clients have to send. If it holds one, that counts; else a new one is written to it, for
    /// you alone to read
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Lets --listen take an address that other machines reach. What they send and get is not encrypted
    #[arg(long, requires = "listen")]
    allow_remote: bool,
    /// A name by which clients may call the server beside its address. May be given several times
    #[arg(long, value_name = "NAME", requires = "listen")]
    allow_host: Vec<String>,
    /// Ends a session over HTTP that nothing is heard of for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, requires = "listen")]
    idle_timeout: u64,
}

/// Serves the workspace until the client is gone, or a signal says to end.
pub(crate) async fn run(arguments: McpArguments) -> Result<ExitCode, Ending> {
    let places = Places::of_user()?;
    let desk = Arc::new(Desk::default());
    let host = open(&arguments, &places, desk.clone()).await?;
    let offer = match (arguments.read_only, arguments.no_terminal) {
        (true, _) => Offer::Reading,
        (false, true) => Offer::Files,
        (false, false) => Offer::Everything,
    };
    let settings = server::Settings {
        name: "bowline".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        offer,
        advise: Some(advise(&arguments, host.clone())),
    };
    let root = host.workspace().roots().cwd().to_owned();
    let open = move |client| LocalPlace::open(host.clone(), desk.clone(), client);
    let server = Server::new(settings, Arc::new(open));
    match &arguments.listen {
        Some(address) => over_http(server, address, &arguments, &root).await,
        None => {
            waits("a client that speaks MCP");
            over_pipes(server).await
        }
    }
}

async fn over_pipes(server: Server<LocalPlace>) -> Result<ExitCode, Ending> {
    let (reader, writer) = bowline_wire::standard_streams();
    let (tell, told) = tokio::sync::oneshot::channel();
    let stop = async move {
        let number = signalled().await;
        // Whoever waits for it is there until this is done.
        tell.send(number).ok();
    };
    server::serve(server, reader, writer, stop)
        .await
        .context("the client does not speak MCP as it should")?;
    Ok(told.await.map_or(ExitCode::SUCCESS, |number| ExitCode::from(128 + number)))
}

async fn over_http(
    server: Server<LocalPlace>,
    address: &str,
    arguments: &McpArguments,
    root: &str,
) -> Result<ExitCode, Ending> {
    // A port alone is one of this machine's own.
    let at = if address.starts_with(':') { format!("127.0.0.1{address}") } else { address.to_owned() };
    let addresses: Vec<SocketAddr> = match lookup_host(at).await {
        Ok(found) => found.collect(),
        Err(error) => {
            return Err(Ending::Usage(format!(
                "--listen {address} is no address with a port ({error}): give one like 127.0.0.1:0"
            )));
        }
    };
    if !arguments.allow_remote && addresses.iter().any(|address| !address.ip().is_loopback()) {
        return Err(Ending::Usage(format!(
            "--listen {address} can be reached from other machines, and nothing is encrypted: use 127.0.0.1, or add \
             --allow-remote if that is meant"
        )));
    }
    let token = token::of(arguments.token_file.as_deref())?;
    let listener = TcpListener::bind(&*addresses).await;
    let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
    let settings = HttpSettings {
        token: token.clone(),
        hosts: arguments.allow_host.clone(),
        idle: Duration::from_secs(arguments.idle_timeout.max(1)),
    };
    let http = HttpServer::start(server, listener, settings).context("cannot listen")?;
    let mut stderr = std::io::stderr();
    // Nobody may read it; the file has it as well.
    writeln!(stderr, "bowline: serving {root} at {}", http.url()).ok();
    writeln!(stderr, "bowline: clients send `Authorization: Bearer {token}`").ok();
    let number = signalled().await;
    if tokio::time::timeout(SHUT_DOWN, http.stop()).await.is_err() {
        return Err(Ending::Failed(anyhow::anyhow!("sessions did not end in time; what they ran is killed")));
    }
    Ok(ExitCode::from(128 + number))
}

async fn open(arguments: &McpArguments, places: &Places, desk: Arc<Desk>) -> Result<Host, Ending> {
    let here = std::env::current_dir().context("there is no current directory")?;
    let cwd = here.join(arguments.cwd.as_deref().unwrap_or(Path::new("")));
    let project = std::fs::canonicalize(&cwd)
        .map_err(|error| Ending::Usage(format!("--cwd {}: {error}: name a directory", cwd.display())))?;
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let supervisor = Supervisor { program, args: vec![SUPERVISOR.into()] };
    let mut terminals = terminals::Settings::inheriting(supervisor, std::env::vars_os());
    terminals.temporary = std::env::temp_dir();
    let mut settings = Settings::new(terminals);
    settings.workspace.foreign_files = Config::read(&places.config)?.ignore_changes;
    settings.writes_here_only = true;
    settings.offer.write = !arguments.read_only;
    settings.offer.terminal = !arguments.read_only && !arguments.no_terminal;
    settings.preset = arguments.approve.map(preset);
    settings.more_roots = arguments.add_dir.iter().map(|text| root(&here, text)).collect();
    let policy = match &arguments.policy {
        Some(file) => std::fs::canonicalize(here.join(file))
            .map_err(|error| Ending::Usage(format!("--policy {}: {error}", file.display())))?,
        None => places.policy(),
    };
    let own = places.for_host(policy);
    let opened = tokio::task::spawn_blocking(move || Host::open(&project, &own, desk, settings)).await;
    let host = opened.context("opening the workspace ended early")?.map_err(|error| match error {
        HostError::Roots(why) => Ending::Usage(why.to_string()),
        error => Ending::Failed(error.into()),
    })?;
    for text in &arguments.open {
        show(&host, &here, text)?;
    }
    Ok(host)
}

/// Opens a document, with unsaved text if there is one.
fn show(host: &Host, here: &Path, text: &str) -> Result<(), Ending> {
    let (file, unsaved) = text.split_once('=').map_or((text, None), |(file, unsaved)| (file, Some(unsaved)));
    let path = Path::new(host.workspace().roots().cwd()).join(file);
    let path = path.to_string_lossy();
    let cannot = |why: String| Ending::Usage(format!("--open {text}: {why}"));
    let opened = host.workspace().open_document(&path).map_err(|error| cannot(error.to_string()))?;
    if let Some(unsaved) = unsaved {
        let text = std::fs::read_to_string(here.join(unsaved)).map_err(|error| cannot(error.to_string()))?;
        let changed = host.workspace().change_document(&path, text, opened.revision);
        changed.map_err(|error| cannot(error.to_string()))?;
    }
    Ok(())
}

fn root(here: &Path, text: &str) -> RootSpec {
    let (path, is_read_only) = text.strip_suffix(":ro").map_or((text, false), |path| (path, true));
    let path = here.join(path).to_string_lossy().into_owned();
    if is_read_only { RootSpec::read_only(path) } else { RootSpec::writable(path) }
}

/// Returns what says what would allow something that was denied: a flag, and the rule for exactly that. Both are tried
/// on the policy in force before they are named.
fn advise(arguments: &McpArguments, host: Host) -> Advise {
    let (file, given) = (arguments.policy.clone(), arguments.approve.map(preset));
    Arc::new(move |denied| {
        let operation = operation(&host, denied)?;
        let hint = Hint::of(&host, &[operation], "", given);
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

fn operation(host: &Host, denied: &DeniedTool<'_>) -> Option<Operation> {
    let roots = host.workspace().roots();
    let file = |path: &str, access, kind| Some(roots.admit(path, access).ok()?.operation(kind));
    match *denied {
        DeniedTool::Read { path } => file(path, Access::Read, Kind::Read),
        DeniedTool::Write { path } => file(path, Access::Write, Kind::Write),
        DeniedTool::Run { invocation, cwd, env } => {
            let command = looked_at_within(roots, invocation.clone(), cwd.to_owned(), env.to_vec());
            Some(Operation { kind: Kind::Execute, target: Target::Command(command) })
        }
    }
}

/// Waits for a signal that asks the program to end, and returns its number.
pub(crate) async fn signalled() -> u8 {
    let kinds = [(SignalKind::hangup(), 1), (SignalKind::interrupt(), 2), (SignalKind::terminate(), 15)];
    let waits = kinds.map(|(kind, number)| {
        Box::pin(async move {
            match signal(kind) {
                Ok(mut signal) => drop(signal.recv().await),
                // Where signals cannot be waited for, they end the program by themselves.
                Err(_) => std::future::pending().await,
            }
            number
        })
    });
    futures_util::future::select_all(waits).await.0
}
