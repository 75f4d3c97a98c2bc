//! `bowline mcp-bridge`: connects an agent that starts its MCP servers itself to its proxy.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tokio::io::{AsyncWriteExt as _, copy};
use tokio::net::UnixStream;

use bowline_client::error::CliError;

/// Where the proxy is.
#[derive(Args, Debug)]
pub(crate) struct McpBridgeArguments {
    /// The socket of the proxy, as given by the proxy
    socket: PathBuf,
}

/// Forwards bytes both ways until the proxy closes the connection.
pub(crate) async fn run(arguments: McpBridgeArguments) -> Result<ExitCode, CliError> {
    let shown = arguments.socket.display();
    let result = UnixStream::connect(&arguments.socket).await;
    let stream =
        result.with_context(|| format!("cannot reach the proxy at {shown}: is it still running?"))?;
    let (mut from_proxy, mut to_proxy) = stream.into_split();
    let (mut stdin, mut stdout) = bowline_wire::standard_streams();
    let up = bowline_task::spawn(async move {
        copy(&mut stdin, &mut to_proxy).await.map_or_else(drop, drop);
        // The proxy answers the requests it has read, and then closes its end.
        to_proxy.shutdown().await.unwrap_or_default();
    });
    let down = copy(&mut from_proxy, &mut stdout).await;
    up.abort();
    down.context("the agent does not take what its server says")?;
    Ok(ExitCode::SUCCESS)
}
