//! Functions that connect an agent or a client to the other side.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::agent::handle::AgentHandle;
use crate::agent::{Agent, AgentDispatcher};
use crate::caller::Caller;
use crate::client::handle::ClientHandle;
use crate::client::{Client, ClientDispatcher};
use crate::driver::Driver;
use crate::limits::ConnectionLimits;
use crate::stream::eager_reader::EagerReader;
use crate::stream::recorder::{Direction, RecordedStream, WireRecorder};
use crate::stream::stdio;

/// Connects an agent to a client. Returns the client, and the future that serves until the client closes.
pub fn connect_agent<A, R, W>(
    agent: Arc<A>,
    reader: R,
    writer: W,
    limits: ConnectionLimits,
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
    let service = AgentDispatcher::new(agent, client.clone());
    (client, driver.run(service))
}

/// Connects a client to an agent. Returns the agent, and the future that serves until the agent ends or the
/// connection is closed.
pub fn connect_client<C, R, W>(
    client: Arc<C>,
    reader: R,
    writer: W,
    limits: ConnectionLimits,
) -> (AgentHandle, impl Future<Output = io::Result<()>> + Send)
where
    C: Client,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    connect_client_recorded(client, reader, writer, limits, None)
}

/// Connects a client to an agent as [`connect_client`] does. The recorder, if there is one, receives every message.
pub fn connect_client_recorded<C, R, W>(
    client: Arc<C>,
    reader: R,
    writer: W,
    limits: ConnectionLimits,
    recorder: Option<Arc<dyn WireRecorder>>,
) -> (AgentHandle, impl Future<Output = io::Result<()>> + Send)
where
    C: Client,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    connect_client_eagerly(client, reader, writer, limits, recorder, None)
}

/// Connects a client to an agent. The connection polls for answers with the eager reader before it waits for them.
pub(crate) fn connect_client_eagerly<C, R, W>(
    client: Arc<C>,
    reader: R,
    writer: W,
    limits: ConnectionLimits,
    recorder: Option<Arc<dyn WireRecorder>>,
    eager_reader: Option<EagerReader>,
) -> (AgentHandle, impl Future<Output = io::Result<()>> + Send)
where
    C: Client,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let reader = RecordedStream::new(reader, recorder.clone(), Direction::Received, limits.max_line);
    let writer = RecordedStream::new(writer, recorder, Direction::Sent, limits.max_line);
    let (caller, driver) = Driver::new(reader, writer, limits);
    let agent = AgentHandle::new(caller);
    let service = ClientDispatcher::new(client, agent.clone());
    (agent, driver.with_eager_reader(eager_reader).run(service))
}

/// Runs an agent on stdin and stdout until the client closes stdin. Nothing else may write to stdout.
///
/// Handlers run on the current tokio runtime; one with a single thread answers fastest.
///
/// # Errors
/// Fails if stdin or stdout does. A client that disconnects is not an error.
///
/// # Panics
/// Panics outside of a tokio runtime with IO and time enabled.
pub async fn run_agent(agent: impl Agent) -> io::Result<()> {
    let (reader, eager_reader) = stdio::open_stdin();
    let (caller, driver) = Driver::new(reader, stdio::open_stdout(), ConnectionLimits::DEFAULT);
    let (_client, serving) = attach_agent(Arc::new(agent), (caller, driver.with_eager_reader(eager_reader)));
    // As its own task the connection is woken by its handlers without a detour through the runtime's driver.
    tokio::spawn(serving).await.map_err(io::Error::other)?
}
