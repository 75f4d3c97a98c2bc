//! `bowline serve`: an agent for remote clients, over HTTP and WebSocket.

mod launcher;
mod store;
mod token;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_serve::http::{Access, AccessOptions, Endpoint, ListenerOptions, load_tls, serve};
use bowline_serve::metrics::Metrics;
use bowline_serve::{Hub, HubOptions};
use bowline_web::{AssetSource, WebOptions};
use clap::{Args, Subcommand, ValueEnum};
use tokio::net::TcpListener;

use crate::signals::wait_for_signal;
use bowline_client::agents::{AgentCommand, OWN_AGENT_NAME};
use bowline_client::common::console::print;
use bowline_client::config::Config;
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;
pub(crate) use launcher::OfferedAgents;
use launcher::ProgramLauncher;
use store::{LeaseArguments, StatusArguments, StoreArguments};
pub(crate) use store::{OpenedStore, open_directory};

/// The most connections at once.
pub(crate) const MAX_CONNECTIONS: usize = 4096;

const EXAMPLES: &str = "\
Clients connect to /acp with the transport of the Agent Client Protocol: HTTP with event streams, or \
WebSocket. Sessions outlive connections: a turn goes on while its client is away, and a client that \
returns gets what it missed. Several clients can use one session; the first answer to a question \
counts. `bowline connect URL` makes such a session usable in today's editors.

Each client needs a token. Its sessions belong to the token's name; role `admin` uses all sessions, \
`observer` sees all and changes none. Beyond this machine, the server needs TLS, or a proxy in front \
that adds it (--behind-proxy).

Sessions work only below --root. If a client offers its own files and terminals, the agent uses them; \
otherwise those of the server, with your rules, a journal and undo.

Several servers can share sessions in a PostgreSQL database (--store), and take over those of a server \
that dies.

The web page at / needs the same tokens.

/health and /ready need no token, /metrics (Prometheus) does. SIGTERM lets running turns end.

Examples:
  bowline serve token add laptop                  make a token, shown once
  bowline serve --root ~/projects                 Bowline's own agent on http://127.0.0.1:8790
  bowline serve --root ~/projects -- opencode acp
  BOWLINE_STORE=postgres://... bowline serve --root /srv/projects --behind-proxy --listen 0.0.0.0:8790
  bowline serve --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem --root /srv/projects

Exit status: 0 after a signal, 1 failure, 2 wrong usage.";

/// What is served, where, and to whom.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct ServeArguments {
    #[command(subcommand)]
    command: Option<ServeCommand>,
    /// The address to listen on, with its port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8790", value_parser = parse_address)]
    listen: SocketAddr,
    /// The transport: HTTP and WebSocket on --listen, or ACP on stdin and stdout
    #[arg(long, value_enum, default_value_t = TransportArgument::Http)]
    transport: TransportArgument,
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    lease: LeaseArguments,
    /// Allow sessions in this directory and below (default: the current directory)
    ///
    /// Can be repeated.
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// The certificate chain for TLS, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without TLS, because a proxy in front adds it
    #[arg(long, conflicts_with = "tls_cert")]
    behind_proxy: bool,
    /// Let pages of another origin use the server, such as https://example.com
    ///
    /// Can be repeated.
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin)]
    origin: Vec<String>,
    /// How long a question waits for an answer, in seconds; then it is denied
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    question_timeout: u64,
    /// How long running turns may take to end after SIGTERM, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_timeout: u64,
    /// The most open sessions of each token
    #[arg(long, value_name = "COUNT", default_value_t = 4096)]
    max_sessions: usize,
    /// The most agents of each token: one runs for each kind of client
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    max_agents: usize,
    /// Also offer an agent of your configuration, by its name there: new sessions of the web page can choose it
    ///
    /// Can be repeated.
    #[arg(long, value_name = "NAME")]
    offer: Vec<String>,
    /// The most messages of each token in a second; for a short time, ten times as many
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    max_rate: u32,
    /// Do not offer the web page at /
    #[arg(long)]
    no_web: bool,
    /// The format of the log on stderr
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// The agent's command (default: Bowline's own agent)
    #[arg(last = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

#[derive(Subcommand, Debug)]
enum ServeCommand {
    /// Manage the tokens that clients need
    Token(token::TokenArguments),
    /// Bring the store to this version of bowline, as each server does when it starts
    Migrate(StoreArguments),
    /// Show the store's sessions, and the servers that share it
    Status(StatusArguments),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TransportArgument {
    /// HTTP with event streams, and WebSocket, at the same address
    Http,
    /// The same as http
    Ws,
    /// stdin and stdout: the same as `bowline agent` without options
    Stdio,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    Text,
    /// JSON objects, one for each line
    Json,
}

/// Parses an address to listen on.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "give an IP address and a port, such as 127.0.0.1:8790".to_owned())
}

/// Parses an origin as browsers send it: a scheme, a host, and a port unless it is the usual one.
fn parse_origin(text: &str) -> Result<String, String> {
    let origin = text.trim_end_matches('/').to_ascii_lowercase();
    let host = ["https://", "http://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '*']);
    if host.is_some_and(is_host) {
        return Ok(origin);
    }
    Err("an origin has a scheme and a host, and no path: https://example.com".to_owned())
}

/// Serves until a signal arrives.
pub(crate) async fn run(arguments: ServeArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        None => {}
        Some(ServeCommand::Token(token)) => return token::run(token).await.map(|()| ExitCode::SUCCESS),
        Some(ServeCommand::Migrate(store)) => return store::migrate(store).await.map(|()| ExitCode::SUCCESS),
        Some(ServeCommand::Status(status)) => {
            return store::show_status(status).await.map(|()| ExitCode::SUCCESS);
        }
    }
    if arguments.transport == TransportArgument::Stdio {
        if !arguments.agent.is_empty() {
            return Err(CliError::Usage("for stdin and stdout, start the agent's command itself".to_owned()));
        }
        return crate::agent::run(crate::agent::AgentArguments::usual()).await.map_err(CliError::from);
    }
    let is_loopback = arguments.listen.ip().is_loopback();
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(load_tls(certificate, key).map_err(|error| CliError::Usage(error.to_string()))?)
        }
        _ => None,
    };
    if !is_loopback && tls.is_none() && !arguments.behind_proxy {
        return Err(CliError::Usage(format!(
            "{} is reachable from other machines, and without TLS everyone on the way could read the tokens: \
             give --tls-cert and --tls-key, or --behind-proxy if a proxy in front adds TLS",
            arguments.listen
        )));
    }
    start_log(arguments.log_format);
    let roots = resolve_roots(&arguments.root)?;
    let config = Config::read(&UserDirs::from_env()?.config)?;
    let (own, others): (Vec<_>, Vec<_>) =
        arguments.offer.into_iter().partition(|name| name == OWN_AGENT_NAME);
    let named = AgentCommand::configured_with(&config, &others)?;
    let agents = OfferedAgents { usual: arguments.agent, named, has_own: !own.is_empty() };
    let opened = arguments.store.open_for_server(arguments.lease, &arguments.listen.to_string()).await?;
    let options = HubOptions {
        roots,
        question_timeout: Duration::from_secs(arguments.question_timeout),
        max_sessions: arguments.max_sessions,
        max_agents: arguments.max_agents,
        max_rate: arguments.max_rate,
        ..HubOptions::default()
    };
    let is_secure = tls.is_some() || arguments.behind_proxy;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let server = OpenedServer::open(ServerSetup {
        listen: arguments.listen,
        listener: ListenerOptions { tls, max_connections: MAX_CONNECTIONS },
        access: AccessOptions {
            origins: arguments.origin,
            is_loopback,
            is_secure,
            ..AccessOptions::default()
        },
        store: opened,
        agents,
        options,
        drain_timeout: Duration::from_secs(arguments.drain_timeout),
        page: (!arguments.no_web).then_some(PageOwner::Tokens),
    })
    .await?;
    if server.endpoint.hub.store().tokens().await.map_err(store::failed)?.is_empty() {
        tracing::warn!("no client can connect yet: make a token with `bowline serve token add NAME`");
    }
    print(&format!("Serving on {scheme}://{}/acp\n", server.address))?;
    server.serve().await;
    Ok(ExitCode::SUCCESS)
}

/// Whose page a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageOwner {
    /// The page of everyone with a token.
    Tokens,
    /// The page of the user who started the server.
    LocalUser,
}

/// What a server needs.
pub(crate) struct ServerSetup {
    pub(crate) listen: SocketAddr,
    pub(crate) listener: ListenerOptions,
    pub(crate) access: AccessOptions,
    pub(crate) store: OpenedStore,
    pub(crate) agents: OfferedAgents,
    pub(crate) options: HubOptions,
    pub(crate) drain_timeout: Duration,
    pub(crate) page: Option<PageOwner>,
}

/// A server that listens.
pub(crate) struct OpenedServer {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    listener: TcpListener,
    options: ListenerOptions,
    page: Option<WebOptions>,
    drain_timeout: Duration,
}

impl OpenedServer {
    /// Begins to listen.
    ///
    /// # Errors
    /// Explains what cannot be used.
    pub(crate) async fn open(setup: ServerSetup) -> Result<Self, CliError> {
        let OpenedStore { store, cookie_key, session_database } = setup.store;
        let access = AccessOptions { cookie_key: Some(cookie_key), ..setup.access };
        let roots = setup.options.roots.clone();
        let directory = roots.first().map_or(Path::new("/"), PathBuf::as_path);
        let agents = setup.agents.names();
        let launcher = ProgramLauncher::new(setup.agents, directory, session_database)?;
        let hub = Hub::new(store, Arc::new(launcher), Arc::new(Metrics::default()), setup.options);
        let listener = TcpListener::bind(setup.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", setup.listen))?;
        let address = listener.local_addr().context("cannot find the address")?;
        let endpoint = Endpoint { hub, access: Access::new(access).context("cannot make a key")? };
        let user_dirs = UserDirs::from_env()?;
        let page = setup.page.map(|owner| WebOptions {
            user_dirs,
            roots,
            agents,
            is_local: owner == PageOwner::LocalUser,
            assets: page_assets(),
        });
        let (options, drain_timeout) = (setup.listener, setup.drain_timeout);
        Ok(Self { endpoint, address, listener, options, page, drain_timeout })
    }

    /// Serves until a signal arrives.
    pub(crate) async fn serve(self) {
        let hub = Arc::clone(&self.endpoint.hub);
        let router = match self.page {
            Some(page) => bowline_web::router(self.endpoint, page),
            None => self.endpoint.router(),
        };
        let hub_task = bowline_task::spawn(Arc::clone(&hub).run());
        let stop = async {
            wait_for_signal().await;
            tracing::info!("stopping: no new work is accepted, and running turns may end");
            tokio::select! {
                () = hub.drain(self.drain_timeout) => {}
                // A second signal ends it at once.
                _ = wait_for_signal() => {}
            }
        };
        serve(self.listener, router, self.options, stop).await;
        hub_task.abort();
    }
}

/// Returns where the page's files come from. While one works on them, a directory.
fn page_assets() -> AssetSource {
    let directory = std::env::var_os("BOWLINE_WEB_ASSETS").filter(|_| cfg!(debug_assertions));
    directory.map_or(AssetSource::Embedded, |directory| AssetSource::Directory(directory.into()))
}

fn resolve_roots(roots: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let current = [PathBuf::from(".")];
    let roots = if roots.is_empty() { &current[..] } else { roots };
    let resolve = |root: &PathBuf| {
        root.canonicalize()
            .ok()
            .filter(|root| root.is_dir())
            .ok_or_else(|| CliError::Usage(format!("--root {}: there is no such directory", root.display())))
    };
    roots.iter().map(resolve).collect()
}

pub(crate) fn start_log(format: LogFormat) {
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_ansi(false);
    // Only this command sets one, once.
    match format {
        LogFormat::Text => builder.try_init().ok(),
        LogFormat::Json => builder.json().try_init().ok(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(parse_address("localhost:1").unwrap(), "127.0.0.1:1".parse().unwrap());
        assert_eq!(parse_address("[::1]:1").unwrap(), "[::1]:1".parse().unwrap());
        for wrong in ["0.0.0.0", "8790", "example.com:1", "127.0.0.1:99999", "localhost"] {
            parse_address(wrong).unwrap_err();
        }
    }

    #[test]
    fn an_origin_is_what_browsers_send() {
        assert_eq!(parse_origin("https://Example.com/").unwrap(), "https://example.com");
        assert_eq!(parse_origin("http://127.0.0.1:3000").unwrap(), "http://127.0.0.1:3000");
        for wrong in
            ["example.com", "https://", "*", "https://*.example.com", "https://a/b", "https://u@a", "null"]
        {
            parse_origin(wrong).unwrap_err();
        }
    }
}
