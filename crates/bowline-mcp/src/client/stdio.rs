//! The transport to a server program: one message per line.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::task::consume_budget;

use super::MAX_MESSAGE;
use super::decode::{DecodedLine, decode, error_answer};
use super::output_tail::OutputTail;

/// How many bytes are read at once.
const READ_SIZE: usize = 64 * 1024;
/// How many bytes of a line that is not a message are kept for display.
const MAX_NOISE: usize = 400;

/// The standard input and output of a server.
///
/// Lines that are not messages are recorded and otherwise ignored. A line that is too long fails all pending calls,
/// because it may have been the answer to any of them.
pub(super) struct StdioTransport {
    read: BufReader<OwnedReadHalf>,
    // Invariant: at most MAX_MESSAGE bytes.
    line: Vec<u8>,
    // Whether the rest of a line that is too long is being skipped.
    is_skipping: bool,
    // The SDK sends several messages concurrently, each in its own task. `None` once closed.
    write: Arc<Mutex<Option<OwnedWriteHalf>>>,
    // The unanswered requests: bounded by the number of calls.
    pending_ids: HashSet<RequestId>,
    ready: VecDeque<ServerJsonRpcMessage>,
    output: Arc<OutputTail>,
}

impl StdioTransport {
    pub(super) fn new(socket: UnixStream, output: Arc<OutputTail>) -> Self {
        let (read, write) = socket.into_split();
        Self {
            read: BufReader::with_capacity(READ_SIZE, read),
            line: Vec::new(),
            is_skipping: false,
            write: Arc::new(Mutex::new(Some(write))),
            pending_ids: HashSet::new(),
            ready: VecDeque::new(),
            output,
        }
    }

    /// Reads to the end of a line. Cancel-safe: the next call continues where this one stopped.
    async fn read_line(&mut self) -> io::Result<Option<LineStatus>> {
        loop {
            let available = self.read.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let consumed = end.map_or(available.len(), |end| end + 1);
            let too_long = self.line.len() + consumed > MAX_MESSAGE;
            if !self.is_skipping && !too_long {
                self.line.extend_from_slice(&available[..consumed]);
            }
            self.read.consume(consumed);
            if too_long && !self.is_skipping {
                self.is_skipping = true;
                self.line = Vec::new();
            }
            match (end, self.is_skipping) {
                (None, _) => {}
                (Some(_), false) => return Ok(Some(LineStatus::Whole)),
                (Some(_), true) => {
                    self.is_skipping = false;
                    return Ok(Some(LineStatus::TooLong));
                }
            }
        }
    }

    fn take_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        if text.is_empty() {
            return;
        }
        match decode(text) {
            DecodedLine::Message(message) => {
                match &*message {
                    ServerJsonRpcMessage::Response(response) => _ = self.pending_ids.remove(&response.id),
                    ServerJsonRpcMessage::Error(error) => {
                        _ = error.id.as_ref().map(|id| self.pending_ids.remove(id))
                    }
                    ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {}
                }
                self.ready.push_back(*message);
            }
            DecodedLine::UnreadableAnswer(id) if self.pending_ids.remove(&id) => {
                self.ready.push_back(error_answer(id, "the answer of the server cannot be read".to_owned()));
            }
            DecodedLine::UnreadableAnswer(_) | DecodedLine::Noise => {
                let start = String::from_utf8_lossy(&text[..text.len().min(MAX_NOISE)]);
                self.output.push_line(&format!("(stdout) {start}"));
            }
        }
    }

    fn fail_pending(&mut self) {
        let reason = format!("the server sent a line of more than {MAX_MESSAGE} bytes");
        self.output.push_line(&reason);
        self.ready.extend(self.pending_ids.drain().map(|id| error_answer(id, reason.clone())));
    }
}

enum LineStatus {
    Whole,
    TooLong,
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &message {
            ClientJsonRpcMessage::Request(request) => _ = self.pending_ids.insert(request.id.clone()),
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.pending_ids.remove(id);
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
        let write = Arc::clone(&self.write);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            match &mut *write.lock().await {
                Some(write) => write.write_all(&line).await,
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            // Lines that are not messages count against the budget as well: one read can bring thousands.
            consume_budget().await;
            match self.read_line().await {
                Ok(Some(LineStatus::Whole)) => self.take_line(),
                Ok(Some(LineStatus::TooLong)) => self.fail_pending(),
                // The remaining bytes are not a complete message.
                Ok(None) | Err(_) => return None,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // The server sees the end of its input, unless another message is still being written.
        if let Ok(mut write) = self.write.try_lock() {
            drop(write.take());
        }
        Ok(())
    }
}
