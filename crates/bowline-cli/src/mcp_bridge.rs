//! `bowline mcp-bridge`: connects an agent that starts its MCP servers itself to the proxy that it runs behind.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tokio::io::{AsyncWriteExt as _, copy};
use tokio::net::UnixStream;

use crate::ending::Ending;

/// Where the proxy is.
#[derive(Args, Debug)]
pub(crate) struct BridgeArguments {
    /// The socket that the proxy listens at, which it names itself
    socket: PathBuf,
}

/// Passes bytes on, both ways, until the proxy is done.
pub(crate) async fn run(arguments: BridgeArguments) -> Result<ExitCode, Ending> {
    let shown = arguments.socket.display();
    let connected = UnixStream::connect(&arguments.socket).await;
    let stream =
        connected.with_context(|| format!("cannot reach the proxy at {shown}: is it still running?"))?;
    let (mut from_proxy, mut to_proxy) = stream.into_split();
    let (mut stdin, mut stdout) = bowline_wire::standard_streams();
    let up = tokio::spawn(async move {
        copy(&mut stdin, &mut to_proxy).await.map_or_else(drop, drop);
        // The proxy answers what it has read, and closes its end.
        to_proxy.shutdown().await.unwrap_or_default();
    });
    let down = copy(&mut from_proxy, &mut stdout).await;
    up.abort();
    down.context("the agent does not take what its server says")?;
    Ok(ExitCode::SUCCESS)
}
