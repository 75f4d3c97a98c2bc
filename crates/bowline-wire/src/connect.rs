//! Puts an agent or a client on a connection.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::agent::{Agent, AgentService};
use crate::agent_handle::AgentHandle;
use crate::caller::Caller;
use crate::client::{Client, ClientService};
use crate::client_handle::ClientHandle;
use crate::driver::Driver;
use crate::limits::Limits;
use crate::stdio;
use crate::tap::{Direction, Tap, Tapped};

/// Puts an agent on a connection to a client. Returns the client, and the future that serves until the client ends.
pub fn connect_agent<A, R, W>(
    agent: Arc<A>,
    reader: R,
    writer: W,
    limits: Limits,
) -> (ClientHandle, impl Future<Output = io::Result<()>> + Send)
where
    A: Agent,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    attach_agent(agent, Driver::new(reader, writer, limits))
}

fn attach_agent<A, R, W>(
    agent: Arc<A>,
    (caller, driver): (Caller, Driver<R, W>),
) -> (ClientHandle, impl Future<Output = io::Result<()>> + Send)
where
    A: Agent,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let client = ClientHandle::new(caller);
    let service = AgentService::new(agent, client.clone());
    (client, driver.run(service))
}

/// Puts a client on a connection to an agent. Returns the agent, and the future that serves until the agent ends or
/// the connection is closed.
pub fn connect_client<C, R, W>(
    client: Arc<C>,
    reader: R,
    writer: W,
    limits: Limits,
) -> (AgentHandle, impl Future<Output = io::Result<()>> + Send)
where
    C: Client,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    attach_client(client, Driver::new(reader, writer, limits))
}

/// Puts a client on a connection to an agent as [`connect_client`] does, with somebody who hears every message.
pub fn connect_client_tapped<C, R, W>(
    client: Arc<C>,
    reader: R,
    writer: W,
    limits: Limits,
    tap: Arc<dyn Tap>,
) -> (AgentHandle, impl Future<Output = io::Result<()>> + Send)
where
    C: Client,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let reader = Tapped::new(reader, tap.clone(), Direction::Received, limits.max_line);
    let writer = Tapped::new(writer, tap, Direction::Sent, limits.max_line);
    attach_client(client, Driver::new(reader, writer, limits))
}

pub(crate) fn attach_client<C, R, W>(
    client: Arc<C>,
    (caller, driver): (Caller, Driver<R, W>),
) -> (AgentHandle, impl Future<Output = io::Result<()>> + Send)
where
    C: Client,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let agent = AgentHandle::new(caller);
    let service = ClientService::new(client, agent.clone());
    (agent, driver.run(service))
}

/// Runs an agent on stdin and stdout until the client closes stdin. Nothing else may write to stdout.
///
/// Handlers run on the current tokio runtime; one with a single thread answers fastest.
///
/// # Errors
/// Fails when stdin or stdout does. That the client is gone is no error.
///
/// # Panics
/// Panics outside of a tokio runtime with IO and time enabled.
pub async fn run_agent(agent: impl Agent) -> io::Result<()> {
    let (reader, eager) = stdio::reader();
    let (caller, driver) = Driver::new(reader, stdio::writer(), Limits::DEFAULT);
    let (_client, serving) = attach_agent(Arc::new(agent), (caller, driver.eager(eager)));
    // As a task of its own the connection is woken by its handlers without a detour over the runtime's driver.
    tokio::spawn(serving).await.map_err(io::Error::other)?
}
