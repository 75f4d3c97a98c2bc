//! `bowline web`: the web page for the current directory, on this machine.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_serve::HubOptions;
use bowline_serve::http::{Access, AccessOptions, ListenerOptions};
use bowline_serve::store::ServerStore;
use bowline_serve::token::{Principal, Role, StoredToken};
use bowline_storage::clock::now;
use bowline_text::hash::ContentHash;
use clap::Args;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::serve::{
    LogFormat, MAX_CONNECTIONS, OfferedAgents, OpenedServer, PageOwner, ServerSetup, open_directory,
    start_log,
};
use bowline_client::agents::AgentCommand;
use bowline_client::common::console::{escape_line, print, print_note};
use bowline_client::common::workspace_location::resolve_directory;
use bowline_client::config::Config;
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;

/// The directory of the stores, below the state directory: one for each workspace.
const STORE_DIRECTORY: &str = "web";
/// The name to which sessions belong.
const PRINCIPAL: &str = "local";

const EXAMPLES: &str = "\
The page shows the sessions of this directory, their conversations, approvals, changes and the audit \
log. It works with any agent; without one, with Bowline's own. New sessions can also have the agents \
of your configuration. Sessions remain when the command ends and are there again the next time.

The link can be used once, within a minute: press Enter for another one. Only this machine can reach \
the page. To use it from elsewhere, see `bowline serve`, which offers the same page.

Examples:
  bowline web                            open the page for the current directory
  bowline web -- opencode acp            use another agent
  bowline web --no-open                  only print the link
  bowline web --listen 127.0.0.1:8080    use a certain port, for example behind `ssh -L`

Exit status: 0 after a signal, 1 failure, 2 wrong usage.";

/// What is shown, and where.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WebArguments {
    /// The address to listen on, on this machine (default: a free port)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", hide_default_value = true)]
    listen: SocketAddr,
    /// Do not open a browser
    #[arg(long)]
    no_open: bool,
    /// The workspace directory (default: the current directory)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The agent's command (default: Bowline's own agent)
    #[arg(last = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

/// Serves the page until a signal arrives.
pub(crate) async fn run(arguments: WebArguments) -> Result<ExitCode, CliError> {
    if !arguments.listen.ip().is_loopback() {
        return Err(CliError::Usage(format!(
            "{} is reachable from other machines: use `bowline serve`, with TLS and tokens",
            arguments.listen
        )));
    }
    start_log(LogFormat::Text);
    let root = resolve_directory(arguments.cwd.as_deref())?;
    let name = ContentHash::digest(root.as_os_str().as_encoded_bytes()).to_string();
    let dirs = UserDirs::from_env()?;
    let named = AgentCommand::configured(&Config::read(&dirs.config)?)?;
    let store = dirs.state.join(STORE_DIRECTORY).join(name.get(..16).unwrap_or(&name));
    let server = async {
        OpenedServer::open(ServerSetup {
            listen: arguments.listen,
            listener: ListenerOptions { tls: None, max_connections: MAX_CONNECTIONS },
            access: AccessOptions { is_loopback: true, ..AccessOptions::default() },
            store: open_directory(store).await?,
            agents: OfferedAgents { usual: arguments.agent, named, has_own: true },
            options: HubOptions { roots: vec![root.clone()], ..HubOptions::default() },
            drain_timeout: Duration::from_secs(5),
            page: Some(PageOwner::LocalUser),
        })
        .await
    };
    let server = server.await.map_err(|error| match error {
        CliError::Failed(error) => {
            CliError::Failed(error.context(format!("cannot serve the page for {}", root.display())))
        }
        error => error,
    })?;
    let (access, address) = (server.endpoint.access.clone(), server.address);
    let principal = local_principal(server.endpoint.hub.store()).await?;
    let link = new_link(&access, &principal, address)?;
    let shown = escape_line(&root.to_string_lossy());
    print(&format!("The page for {shown} is at\n  {link}\nCtrl-C ends it, Enter prints a new link.\n"))?;
    if !arguments.no_open {
        open_browser(&link);
    }
    let links = async {
        let input = std::io::stdin();
        if input.is_terminal() {
            let mut lines = BufReader::new(tokio::io::stdin()).lines();
            while let Ok(Some(_)) = lines.next_line().await {
                print(&format!("  {}\n", new_link(&access, &principal, address)?))?;
            }
        }
        std::future::pending::<Result<(), CliError>>().await
    };
    tokio::select! {
        () = server.serve() => Ok(ExitCode::SUCCESS),
        failed = links => failed.map(|()| ExitCode::SUCCESS),
    }
}

/// Returns the user of the page, with a token that the first start made. Its text was not kept: only links log in.
async fn local_principal(store: &Arc<dyn ServerStore>) -> Result<Principal, CliError> {
    let tokens = store.tokens().await.context("cannot read the tokens")?;
    let token = match tokens.into_iter().find(|token| token.name == PRINCIPAL) {
        Some(token) => token,
        None => {
            let generated = StoredToken::generate(PRINCIPAL, Role::Admin, now(), None);
            let (token, _) = generated.context("cannot make a token")?;
            store.add_token(token.clone()).await.context("cannot store a token")?;
            token
        }
    };
    Ok(token.principal(now()).context("the token of the page has expired")?)
}

/// Returns a link that logs a browser in, once.
fn new_link(access: &Access, principal: &Principal, address: SocketAddr) -> Result<String, CliError> {
    let ticket = access.issue_ticket(principal.clone()).map_err(|refusal| anyhow::anyhow!(refusal.reason))?;
    Ok(format!("http://{address}/#ticket={ticket}"))
}

/// Opens a browser, if there is one that this user would see.
fn open_browser(link: &str) {
    let Some(program) = browser(|name| std::env::var_os(name)) else { return };
    let command = std::process::Command::new(&program)
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = command.with_context(|| program.to_string_lossy().into_owned()) {
        print_note(&format!("no browser was opened: {error:#}"));
    }
}

/// Returns the program that opens a browser on this user's screen.
fn browser(variable: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let is_set = |name: &&str| variable(name).is_some_and(|value| !value.is_empty());
    let is_remote = ["SSH_CONNECTION", "SSH_TTY"].iter().any(&is_set);
    if is_remote {
        return None;
    }
    if let Some(chosen) = variable("BROWSER").filter(|chosen| !chosen.is_empty()) {
        return Some(chosen);
    }
    if cfg!(target_os = "macos") {
        return Some("open".into());
    }
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(is_set);
    has_display.then(|| OsStr::new("xdg-open").to_owned())
}

#[cfg(test)]
mod tests {
    use super::browser;

    #[test]
    fn a_browser_is_opened_only_where_the_user_sees_it() {
        let found = |variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            browser(variable).map(|program| program.to_string_lossy().into_owned())
        };
        let with_display = found(&[("DISPLAY", ":0")]);
        assert_eq!(with_display.as_deref(), Some("xdg-open"));
        assert_eq!(
            found(&[("WAYLAND_DISPLAY", "wayland-0"), ("BROWSER", "firefox")]).as_deref(),
            Some("firefox")
        );
        assert_eq!(found(&[("DISPLAY", ":0"), ("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")]), None);
        assert_eq!(found(&[("BROWSER", "")]), None);
        assert_eq!(found(&[]), None);
    }
}
