//! `bowline connect`: an agent on a server, for editors that start agents as programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bowline_client::common::console::{note_waiting_for, print_note};
use bowline_client::error::CliError;
use bowline_remote::endpoint::Endpoint;
use bowline_remote::{RemoteError, RemoteOptions, forward};
use clap::Args;

use crate::mcp::token::read_token;
use crate::signals::wait_for_signal;

/// The environment variable with the token.
const TOKEN_VARIABLE: &str = "BOWLINE_TOKEN";

/// The longest token, in bytes. Signed tokens can be long; other servers choose their own lengths.
const MAX_TOKEN_BYTES: usize = 16 << 10;

const EXAMPLES: &str = "\
The agent works on the server, and the editor keeps its files, terminals and questions. If the \
connection is interrupted, it is made again; what cannot be continued is answered with an error.

Examples:
  bowline connect http://127.0.0.1:8040                             a server on this machine
  bowline connect https://host:8040 --token-file ~/.bowline-token
  BOWLINE_TOKEN=... bowline connect wss://host/acp                  over a WebSocket
  bowline setup zed --write --connect https://host:8040             let an editor start it
  bowline run --connect https://host:8040 'Explain this project'";

/// Which server.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectArguments {
    /// The server: http://, https://, ws:// or wss://; without a path, `/acp` is added
    url: String,
    /// The file with the server's token, readable by you only (default: BOWLINE_TOKEN)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send the token to another machine without encryption
    #[arg(long)]
    insecure: bool,
    /// How long to try to reach the server again after the connection was lost
    #[arg(long, value_name = "SECONDS", default_value_t = RemoteOptions::RECONNECT_FOR.as_secs())]
    reconnect_for: u64,
}

/// Forwards messages between stdin and stdout and the server until the editor ends or the server is lost.
pub(crate) async fn run(arguments: ConnectArguments) -> Result<ExitCode, CliError> {
    let ConnectArguments { url, token_file, insecure, reconnect_for } = arguments;
    let endpoint = Endpoint::parse(&url).map_err(|error| CliError::Usage(error.to_string()))?;
    let token = match token_file {
        Some(file) => Some(load_token(&file)?),
        None => token_from_env()?,
    };
    if token.is_some() && !insecure {
        endpoint.check_token_privacy().map_err(|error| CliError::Usage(error.to_string()))?;
    }
    note_waiting_for("an editor that speaks ACP");
    let reconnect_for = Duration::from_secs(reconnect_for);
    let (stdin, stdout) = bowline_wire::standard_streams();
    let mut signal = None;
    let stop = async { signal = Some(wait_for_signal().await) };
    let options = RemoteOptions { endpoint, token, reconnect_for };
    let forwarded = forward(options, stdin, stdout, stop, print_note).await;
    match (forwarded, signal) {
        (_, Some(signal)) => Err(CliError::Terminated(signal)),
        (Ok(()), None) => Ok(ExitCode::SUCCESS),
        (Err(error @ RemoteError::Token), None) => Err(CliError::Usage(error.to_string())),
        (Err(error), None) => Err(CliError::Failed(error.into())),
    }
}

fn load_token(file: &Path) -> Result<String, CliError> {
    let missing = || CliError::Usage(format!("--token-file {}: it is missing or empty", file.display()));
    read_token(file, 1..=MAX_TOKEN_BYTES)?.ok_or_else(missing)
}

fn token_from_env() -> Result<Option<String>, CliError> {
    let Some(value) = std::env::var_os(TOKEN_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let not_text = |_| CliError::Usage(format!("{TOKEN_VARIABLE} is not text"));
    Ok(Some(value.into_string().map_err(not_text)?.trim().to_owned()))
}
