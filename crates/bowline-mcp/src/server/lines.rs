//! The messages of a pipe: one a line, each answered that asks for something, and none before the one that begins.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;

use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};

use super::batches;
use super::unreadable::{self, KEPT};

/// One message has at most so many bytes: what is longer is dropped, and answered if its id can be found.
pub(crate) const MAX_LINE: usize = 32 << 20;

/// So much is read at a time.
const READ: usize = 64 << 10;

/// What is answered to a line by itself, if anything.
type OwnAnswer = Option<Box<TxJsonRpcMessage<RoleServer>>>;

type Sending = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// A client at the other end of two pipes.
pub(crate) struct Lines<R, W: AsyncWrite> {
    reader: BufReader<R>,
    writer: AsyncRwTransport<RoleServer, Empty, W>,
    // Invariant: at most `MAX_LINE`, without a line end; of a line that is too long the beginning.
    line: Vec<u8>,
    // The end of a line that is too long, as long as it goes on; at most `KEPT` and one read.
    too_long: Option<Vec<u8>>,
    // An answer that is not written yet. Whoever waits for a message may stop waiting at any moment.
    owed: Option<Sending>,
    has_begun: bool,
    // The rest of a batch. Invariant: at most `batches::MAX_BATCH`.
    batch: VecDeque<Box<RawValue>>,
    takes_batches: bool,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(reader: R, writer: W) -> Self {
        Self {
            reader: BufReader::with_capacity(READ, reader),
            writer: AsyncRwTransport::new_server(tokio::io::empty(), writer),
            line: Vec::new(),
            too_long: None,
            owed: None,
            has_begun: false,
            batch: VecDeque::new(),
            takes_batches: false,
        }
    }

    /// Writes an answer before anything else is read.
    pub(crate) fn owes(&mut self, answer: TxJsonRpcMessage<RoleServer>) {
        self.owed = Some(Box::pin(self.writer.send(answer)));
    }

    /// Reads on to the end of a line; says whether there is one.
    async fn fill(&mut self) -> bool {
        loop {
            let some = match self.reader.fill_buf().await {
                // A pipe that fails is a pipe that has ended.
                Ok([]) | Err(_) => return false,
                Ok(some) => some,
            };
            let end = some.iter().position(|byte| *byte == b'\n');
            let part = &some[..end.unwrap_or(some.len())];
            match &mut self.too_long {
                Some(tail) => {
                    tail.extend_from_slice(part);
                    tail.drain(..tail.len().saturating_sub(KEPT));
                }
                None if self.line.len() + part.len() > MAX_LINE => {
                    self.line.extend_from_slice(part);
                    let tail = self.line.split_off(self.line.len().saturating_sub(KEPT));
                    self.line.truncate(KEPT);
                    self.line.shrink_to_fit();
                    self.too_long = Some(tail);
                }
                None => self.line.extend_from_slice(part),
            }
            let taken = end.map_or(some.len(), |end| end + 1);
            self.reader.consume(taken);
            if end.is_some() {
                return true;
            }
        }
    }

    /// Returns the message of the line that was read, or what is answered to it by itself.
    fn take(&mut self) -> Result<RxJsonRpcMessage<RoleServer>, OwnAnswer> {
        let line = std::mem::take(&mut self.line);
        if let Some(tail) = self.too_long.take() {
            return Err(Some(Box::new(unreadable::too_long(&line, &tail, MAX_LINE))));
        }
        let text = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line).trim_ascii();
        if text.is_empty() {
            return Err(None);
        }
        if let Some(parts) = batches::parts(text) {
            self.batch = parts.into();
            return Err(None);
        }
        self.read(text)
    }

    fn read(&mut self, text: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, OwnAnswer> {
        let message = serde_json::from_slice(text).map_err(|_| unreadable::answer(text).map(Box::new))?;
        self.begin(message)
    }

    /// Returns the next message of a batch, or what is answered to it by itself.
    fn next_of_batch(&mut self, part: &RawValue) -> Result<RxJsonRpcMessage<RoleServer>, OwnAnswer> {
        if self.takes_batches {
            self.read(part.get().as_bytes())
        } else {
            Err(batches::refused(part).map(Box::new))
        }
    }

    /// Lets nothing pass before what begins a session.
    fn begin(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Result<RxJsonRpcMessage<RoleServer>, OwnAnswer> {
        if self.has_begun {
            return Ok(message);
        }
        match &message {
            JsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::InitializeRequest(hello) => {
                    self.has_begun = true;
                    self.takes_batches = batches::are_in(&hello.params.protocol_version);
                    Ok(message)
                }
                ClientRequest::PingRequest(_) => Ok(message),
                other => {
                    let early = unreadable::too_early(other.method(), Some(request.id.clone()));
                    Err(Some(Box::new(early)))
                }
            },
            _ => Err(None),
        }
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.writer.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(owed) = &mut self.owed {
                let sent = owed.await;
                self.owed = None;
                sent.ok()?;
            }
            let taken = match self.batch.pop_front() {
                Some(part) => self.next_of_batch(&part),
                None if self.fill().await => self.take(),
                None => return None,
            };
            match taken {
                Ok(message) => return Some(message),
                Err(Some(answer)) => self.owes(*answer),
                Err(None) => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.writer.close().await
    }
}

#[cfg(test)]
mod tests;
