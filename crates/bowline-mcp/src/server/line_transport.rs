//! The line transport over pipes: one message per line, every request answered, and none accepted before `initialize`.

use std::collections::VecDeque;
use std::future::Future;
use std::io;

use futures_util::future::BoxFuture;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};

use super::batches;
use super::invalid_message::{self, ID_SEARCH_BYTES};

/// The longest message, in bytes: a longer one is dropped, and answered if its id can be found.
pub(crate) const MAX_LINE: usize = 32 << 20;

/// How many bytes are read at a time.
const READ_SIZE: usize = 64 << 10;

/// The transport's own reply to a line, if any.
type DirectReply = Option<Box<TxJsonRpcMessage<RoleServer>>>;

type SendFuture = BoxFuture<'static, io::Result<()>>;

/// A client at the other end of two pipes.
pub(crate) struct LineTransport {
    // Boxed, so that a server is compiled once and not for each kind of pipe.
    reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    writer: AsyncRwTransport<RoleServer, Empty, Box<dyn AsyncWrite + Send + Unpin>>,
    // Invariant: at most `MAX_LINE` bytes, without a line end; for an overlong line, its beginning.
    line: Vec<u8>,
    // The end of an overlong line while it is being read: at most `ID_SEARCH_BYTES` and one read.
    too_long: Option<Vec<u8>>,
    // A reply that is not written yet. Kept here because `receive` may be cancelled at any moment.
    pending_reply: Option<SendFuture>,
    is_initialized: bool,
    // The remaining messages of a batch. Invariant: at most `batches::MAX_BATCH`.
    batch: VecDeque<Box<RawValue>>,
    accepts_batches: bool,
}

impl LineTransport {
    pub(crate) fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self {
            reader: BufReader::with_capacity(READ_SIZE, Box::new(reader)),
            writer: AsyncRwTransport::new_server(tokio::io::empty(), Box::new(writer)),
            line: Vec::new(),
            too_long: None,
            pending_reply: None,
            is_initialized: false,
            batch: VecDeque::new(),
            accepts_batches: false,
        }
    }

    /// Queues a reply, which is written before anything else is read.
    pub(crate) fn queue_reply(&mut self, answer: TxJsonRpcMessage<RoleServer>) {
        self.pending_reply = Some(Box::pin(self.writer.send(answer)));
    }

    /// Reads to the end of a line. Returns whether there is one.
    async fn read_line(&mut self) -> bool {
        loop {
            let available = match self.reader.fill_buf().await {
                // A failing pipe counts as closed.
                Ok([]) | Err(_) => return false,
                Ok(available) => available,
            };
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            match &mut self.too_long {
                Some(tail) => {
                    tail.extend_from_slice(part);
                    tail.drain(..tail.len().saturating_sub(ID_SEARCH_BYTES));
                }
                None if self.line.len() + part.len() > MAX_LINE => {
                    self.line.extend_from_slice(part);
                    let tail = self.line.split_off(self.line.len().saturating_sub(ID_SEARCH_BYTES));
                    self.line.truncate(ID_SEARCH_BYTES);
                    self.line.shrink_to_fit();
                    self.too_long = Some(tail);
                }
                None => self.line.extend_from_slice(part),
            }
            let consumed = end.map_or(available.len(), |end| end + 1);
            self.reader.consume(consumed);
            if end.is_some() {
                return true;
            }
        }
    }

    /// Returns the message in the current line, or the transport's own reply to it.
    fn parse_line(&mut self) -> Result<RxJsonRpcMessage<RoleServer>, DirectReply> {
        let line = std::mem::take(&mut self.line);
        if let Some(tail) = self.too_long.take() {
            return Err(Some(Box::new(invalid_message::too_long_error(&line, &tail, MAX_LINE))));
        }
        let text = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line).trim_ascii();
        if text.is_empty() {
            return Err(None);
        }
        if let Some(parts) = batches::split_batch(text) {
            self.batch = parts.into();
            return Err(None);
        }
        self.parse_message(text)
    }

    fn parse_message(&mut self, text: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, DirectReply> {
        let message =
            serde_json::from_slice(text).map_err(|_| invalid_message::answer_invalid(text).map(Box::new))?;
        self.require_initialize(message)
    }

    /// Returns the next message of a batch, or the transport's own reply to it.
    fn parse_batch_part(&mut self, part: &RawValue) -> Result<RxJsonRpcMessage<RoleServer>, DirectReply> {
        if self.accepts_batches {
            self.parse_message(part.get().as_bytes())
        } else {
            Err(batches::refuse_part(part).map(Box::new))
        }
    }

    /// Rejects all messages except `ping` before `initialize`.
    fn require_initialize(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Result<RxJsonRpcMessage<RoleServer>, DirectReply> {
        if self.is_initialized {
            return Ok(message);
        }
        match &message {
            JsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::InitializeRequest(initialize) => {
                    self.is_initialized = true;
                    self.accepts_batches = batches::is_supported_by(&initialize.params.protocol_version);
                    Ok(message)
                }
                ClientRequest::PingRequest(_) => Ok(message),
                other => {
                    let error =
                        invalid_message::not_initialized_error(other.method(), Some(request.id.clone()));
                    Err(Some(Box::new(error)))
                }
            },
            _ => Err(None),
        }
    }
}

impl Transport<RoleServer> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.writer.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(reply) = &mut self.pending_reply {
                let result = reply.await;
                self.pending_reply = None;
                result.ok()?;
            }
            let received = match self.batch.pop_front() {
                Some(part) => self.parse_batch_part(&part),
                None if self.read_line().await => self.parse_line(),
                None => return None,
            };
            match received {
                Ok(message) => return Some(message),
                Err(Some(answer)) => self.queue_reply(*answer),
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
