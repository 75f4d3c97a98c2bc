//! Messages to and from a server that is a program, one per line.

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
use super::decode::{Decoded, decode, instead};
use super::ring::Ring;

/// How much is read at once.
const READ: usize = 64 * 1024;
/// How much of a line that is no message is kept for people.
const MAX_NOISE: usize = 400;

/// The standard input and output of a server.
///
/// What is no message is noted and else ignored. A line that is too long ends the calls that wait: one of them was
/// answered by it.
pub(super) struct Stdio {
    read: BufReader<OwnedReadHalf>,
    // Invariant: at most MAX_MESSAGE bytes.
    line: Vec<u8>,
    // Whether the rest of a line that is too long is being skipped.
    skipping: bool,
    // The SDK sends several messages at the same time, each in a task of its own; none when closed.
    write: Arc<Mutex<Option<OwnedWriteHalf>>>,
    // The requests without an answer: no more than there are calls.
    waiting: HashSet<RequestId>,
    ready: VecDeque<ServerJsonRpcMessage>,
    ring: Arc<Ring>,
}

impl Stdio {
    pub(super) fn new(talk: UnixStream, ring: Arc<Ring>) -> Self {
        let (read, write) = talk.into_split();
        Self {
            read: BufReader::with_capacity(READ, read),
            line: Vec::new(),
            skipping: false,
            write: Arc::new(Mutex::new(Some(write))),
            waiting: HashSet::new(),
            ready: VecDeque::new(),
            ring,
        }
    }

    /// Reads on to the end of a line. Dropped, it goes on where it was.
    async fn read_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.read.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            let too_long = self.line.len() + taken > MAX_MESSAGE;
            if !self.skipping && !too_long {
                self.line.extend_from_slice(&available[..taken]);
            }
            self.read.consume(taken);
            if too_long && !self.skipping {
                self.skipping = true;
                self.line = Vec::new();
            }
            match (end, self.skipping) {
                (None, _) => {}
                (Some(_), false) => return Ok(Some(Line::Whole)),
                (Some(_), true) => {
                    self.skipping = false;
                    return Ok(Some(Line::TooLong));
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
            Decoded::Message(message) => {
                match &*message {
                    ServerJsonRpcMessage::Response(response) => _ = self.waiting.remove(&response.id),
                    ServerJsonRpcMessage::Error(error) => {
                        _ = error.id.as_ref().map(|id| self.waiting.remove(id))
                    }
                    ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {}
                }
                self.ready.push_back(*message);
            }
            Decoded::Broken(id) if self.waiting.remove(&id) => {
                self.ready.push_back(instead(id, "the answer of the server cannot be read".to_owned()));
            }
            Decoded::Broken(_) | Decoded::Noise => {
                let start = String::from_utf8_lossy(&text[..text.len().min(MAX_NOISE)]);
                self.ring.note(&format!("(stdout) {start}"));
            }
        }
    }

    fn give_up_waiting(&mut self) {
        let why = format!("the server sent a line of more than {MAX_MESSAGE} bytes");
        self.ring.note(&why);
        self.ready.extend(self.waiting.drain().map(|id| instead(id, why.clone())));
    }
}

enum Line {
    Whole,
    TooLong,
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &message {
            ClientJsonRpcMessage::Request(request) => _ = self.waiting.insert(request.id.clone()),
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.waiting.remove(id);
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
            // What is no message costs its turn as well: thousands of lines come with one read.
            consume_budget().await;
            match self.read_line().await {
                Ok(Some(Line::Whole)) => self.take_line(),
                Ok(Some(Line::TooLong)) => self.give_up_waiting(),
                // What is left is no whole message.
                Ok(None) | Err(_) => return None,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // The server sees the end of its input, unless another message is stuck in it.
        if let Ok(mut write) = self.write.try_lock() {
            drop(write.take());
        }
        Ok(())
    }
}
