//! A running agent, which serves the sessions of one principal's clients with equal capabilities.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_protocol::schema::v1::RequestId;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, oneshot};

use super::message::InheritedEvent;
use crate::event::{ConnectionId, SessionId};

/// The most bytes that wait for an agent that does not read.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// How much more may wait of what an agent itself waits for. An agent that lets that much wait is stopped.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// How long an agent may leave its input unread before it is stopped.
const INPUT_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest line of an agent.
const MAX_LINE_BYTES: usize = 64 << 20;
/// How much is read from an agent at a time.
const READ_BYTES: usize = 64 << 10;
/// The largest buffer that is kept for what follows.
const MAX_IDLE_BYTES: usize = 1 << 20;
/// The most bytes of lines that share their memory: one of them that is kept keeps all of them.
const MAX_SHARED_BYTES: usize = 2 << 10;

/// The most updates kept of sessions that are being created, and the size of each.
const MAX_EARLY_UPDATES: usize = 256;
const MAX_EARLY_BYTES: usize = 64 << 10;

/// Starts agents.
pub trait AgentLauncher: std::fmt::Debug + Send + Sync {
    /// Starts an agent for the principal with a name: the named agent, or without a name the server's usual one. The
    /// error says what to do, also if the server offers no agent of that name.
    fn launch(&self, principal: &str, agent: Option<&str>) -> BoxFuture<'_, Result<AgentStreams, String>>;
}

/// A started agent. Dropping `process` ends it.
pub struct AgentStreams {
    /// Its stdout.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// Its stdin.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Describes how it ended, once its stdout has.
    pub exit: BoxFuture<'static, String>,
    /// The process.
    pub process: Box<dyn Any + Send>,
}

impl std::fmt::Debug for AgentStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentStreams").finish_non_exhaustive()
    }
}

/// The number of a running agent.
pub(super) type WorkerId = u64;

/// What clients share an agent: the same principal, with the same capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WorkerKey {
    pub(super) principal: String,
    pub(super) capabilities: String,
    // The agent's name; `None` for the server's usual one.
    pub(super) agent: Option<String>,
}

/// A running agent.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) key: WorkerKey,
    pub(super) input: Arc<LineQueue>,
    // The result of `initialize`.
    pub(super) description: Arc<Value>,
    pub(super) next_id: u64,
    // The requests that the agent has not answered, by the id they have there.
    pub(super) open: HashMap<u64, OpenRequest>,
    // The agent's own open requests, by their id there, as the id they have here.
    pub(super) agent_requests: HashMap<RequestId, String>,
    pub(super) sessions: HashSet<SessionId>,
    // Sessions that are being loaded: their updates repeat what the log has.
    pub(super) loading: HashSet<SessionId>,
    // Updates of sessions that are being created, which some agents send before they answer `session/new`.
    pub(super) early_updates: Vec<(SessionId, Bytes)>,
    pub(super) idle_since: Instant,
}

/// A request that an agent has not answered.
#[derive(Debug)]
pub(super) enum OpenRequest {
    /// A client's request about a session, or about its connection.
    Client {
        connection: ConnectionId,
        id: RequestId,
        method: String,
        session: Option<SessionId>,
        params: Option<Value>,
    },
    /// A client's `session/new` or `session/fork`, with the history that the new session begins with.
    NewSession {
        connection: ConnectionId,
        id: RequestId,
        cwd: std::path::PathBuf,
        history: Vec<InheritedEvent>,
    },
    /// The server's own request, and the session that it opens. `Err` has the agent's error.
    Own { sender: oneshot::Sender<Result<Value, Value>>, opens: Option<SessionId> },
}

impl Worker {
    pub(super) fn new(key: WorkerKey, input: Arc<LineQueue>) -> Self {
        Self {
            key,
            input,
            description: Arc::default(),
            next_id: 0,
            open: HashMap::new(),
            agent_requests: HashMap::new(),
            sessions: HashSet::new(),
            loading: HashSet::new(),
            early_updates: Vec::new(),
            idle_since: Instant::now(),
        }
    }

    /// Notes a request, and returns the id it has at the agent.
    pub(super) fn add_request(&mut self, request: OpenRequest) -> u64 {
        self.next_id += 1;
        self.open.insert(self.next_id, request);
        self.next_id
    }

    /// Keeps an update of a session that is being created, within limits.
    pub(super) fn keep_early_update(&mut self, session: SessionId, update: &[u8]) {
        let is_creating = self.open.values().any(|open| matches!(open, OpenRequest::NewSession { .. }));
        if !is_creating {
            self.early_updates.clear();
        } else if self.early_updates.len() < MAX_EARLY_UPDATES && update.len() <= MAX_EARLY_BYTES {
            self.early_updates.push((session, Bytes::copy_from_slice(update)));
        }
    }

    /// Notes in what clients are told about a session which agent it has, and what that agent accepts in prompts. The
    /// server's usual agent is described in the answer to `initialize`.
    pub(super) fn note_agent(&self, setup: &mut Value) {
        let Some(name) = &self.key.agent else {
            // An agent does not choose where its session is opened the next time.
            if let Some(meta) = setup.pointer_mut("/_meta/bowline").and_then(Value::as_object_mut) {
                meta.remove("agent");
            }
            return;
        };
        if !setup.is_object() {
            return;
        }
        if !setup["_meta"].is_object() {
            setup["_meta"] = json!({});
        }
        let meta = &mut setup["_meta"];
        if !meta["bowline"].is_object() {
            meta["bowline"] = json!({});
        }
        meta["bowline"]["agent"] = json!({
            "name": name,
            "info": self.description["agentInfo"],
            "promptCapabilities": self.description["agentCapabilities"]["promptCapabilities"],
        });
    }

    /// Returns whether the agent can load a session again.
    pub(super) fn can_load(&self) -> bool {
        self.description["agentCapabilities"]["loadSession"] == true
    }

    /// Returns whether the agent can resume a session without its history.
    pub(super) fn can_resume(&self) -> bool {
        self.session_capability("resume")
    }

    /// Returns whether the agent offers something about sessions.
    pub(super) fn session_capability(&self, name: &str) -> bool {
        self.description["agentCapabilities"]["sessionCapabilities"]
            .get(name)
            .is_some_and(|value| !value.is_null())
    }
}

/// Lines that wait to be written to an agent.
#[derive(Debug, Default)]
pub(super) struct LineQueue {
    state: Mutex<LineQueueState>,
    changed: Notify,
    killed: Notify,
}

#[derive(Debug, Default)]
struct LineQueueState {
    lines: VecDeque<Bytes>,
    bytes: usize,
    is_closed: bool,
    // Whether more waits than an agent may leave unread.
    is_stuck: bool,
}

/// Why no more is written to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputEnd {
    /// The queue was closed, or the agent closed its input.
    Closed,
    /// The agent does not read.
    Stuck,
    /// The agent is to be ended at once.
    Killed,
}

impl LineQueue {
    fn lock(&self) -> MutexGuard<'_, LineQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line without its line feed. Returns whether there was room.
    pub(super) fn push(&self, line: Bytes) -> bool {
        let mut state = self.lock();
        if state.is_closed || state.bytes + line.len() > MAX_QUEUED_BYTES {
            return false;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Queues an answer or a cancellation, for which the agent waits. If there is no room for it, the agent is stopped.
    pub(super) fn push_always(&self, line: Bytes) {
        let mut state = self.lock();
        if state.bytes + line.len() > MAX_QUEUED_BYTES + MAX_ANSWER_BYTES {
            state.is_stuck = true;
        } else {
            state.bytes += line.len();
            state.lines.push_back(line);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the agent at once, without what is queued.
    pub(super) fn kill(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.lines.clear();
        drop(state);
        self.killed.notify_one();
    }

    /// Waits until the agent is to be ended at once.
    pub(super) async fn killed(&self) {
        self.killed.notified().await;
    }

    /// Closes the agent's input after what is queued.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Writes lines until the queue is closed or the agent no longer reads. An agent that cannot read, because
    /// `may_read` says no, is waited for.
    pub(super) async fn write_to(
        &self,
        mut writer: Box<dyn AsyncWrite + Send + Unpin>,
        may_read: impl Fn() -> bool,
    ) -> InputEnd {
        loop {
            let changed = self.changed.notified();
            let (lines, is_closed) = {
                let mut state = self.lock();
                state.bytes = 0;
                (std::mem::take(&mut state.lines), state.is_closed)
            };
            if lines.is_empty() {
                if is_closed {
                    return InputEnd::Closed;
                }
                changed.await;
                continue;
            }
            let mut batch = BytesMut::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
            for line in lines {
                batch.extend_from_slice(&line);
                batch.extend_from_slice(b"\n");
            }
            while !batch.is_empty() {
                match tokio::time::timeout(INPUT_TIMEOUT, writer.write_buf(&mut batch)).await {
                    Ok(Ok(written)) if written > 0 => {}
                    Err(_) if !may_read() => {}
                    Err(_) => return self.end(InputEnd::Stuck),
                    Ok(_) => return self.end(InputEnd::Closed),
                }
                if self.lock().is_stuck {
                    return self.end(InputEnd::Stuck);
                }
            }
            if writer.flush().await.is_err() {
                return self.end(InputEnd::Closed);
            }
        }
    }

    fn end(&self, end: InputEnd) -> InputEnd {
        self.close();
        end
    }
}

/// The lines of an agent's output.
pub(super) struct LineReader {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    buffer: BytesMut,
    // How much of the buffer has no line feed.
    searched: usize,
}

impl LineReader {
    pub(super) fn new(reader: Box<dyn AsyncRead + Send + Unpin>) -> Self {
        Self { reader, buffer: BytesMut::new(), searched: 0 }
    }

    /// Waits for lines, and returns all that have arrived; none at the end, or after a line that is too long.
    pub(super) async fn next(&mut self) -> Vec<Bytes> {
        loop {
            if let Some(found) = memchr::memrchr(b'\n', &self.buffer[self.searched..]) {
                let end = self.searched + found + 1;
                let lines = copy_lines(&self.buffer[..end]);
                self.buffer.advance(end);
                if self.buffer.is_empty() && self.buffer.capacity() > MAX_IDLE_BYTES {
                    self.buffer = BytesMut::new();
                }
                if !lines.is_empty() {
                    self.searched = self.buffer.len();
                    return lines;
                }
            }
            self.searched = self.buffer.len();
            self.buffer.reserve(READ_BYTES);
            let is_over = self.buffer.len() > MAX_LINE_BYTES;
            if is_over || !self.reader.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0) {
                return Vec::new();
            }
        }
    }
}

/// Returns the lines of a text that ends with a line feed, without blank ones. Short lines share their memory.
fn copy_lines(mut text: &[u8]) -> Vec<Bytes> {
    let mut lines = Vec::new();
    while !text.is_empty() {
        let shared = memchr::memrchr(b'\n', &text[..text.len().min(MAX_SHARED_BYTES)]);
        let end = shared.or_else(|| memchr::memchr(b'\n', text)).map_or(text.len(), |found| found + 1);
        let (group, rest) = text.split_at(end);
        let group = Bytes::copy_from_slice(group);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &group) {
            let line = &group[start..end];
            let length = line.strip_suffix(b"\r").unwrap_or(line).len();
            if length > 0 {
                lines.push(group.slice(start..start + length));
            }
            start = end + 1;
        }
        text = rest;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_split_wherever_reads_end() {
        let (mut theirs, ours) = tokio::io::duplex(7);
        let write = bowline_task::spawn(async move {
            theirs
                .write_all(b"{\"a\":1}\n\r\n\n{\"long\":\"abcdefghij\"}\r\nx\nrest without an end")
                .await
                .unwrap();
        });
        let mut reader = LineReader::new(Box::new(ours));
        let mut all = Vec::new();
        loop {
            let lines = reader.next().await;
            if lines.is_empty() {
                break;
            }
            all.extend(lines);
        }
        write.await.unwrap();
        assert_eq!(all, ["{\"a\":1}", "{\"long\":\"abcdefghij\"}", "x"]);
    }

    #[test]
    fn short_lines_share_memory_and_long_ones_do_not() {
        let lines: Vec<String> = [1, 1000, 1000, 100, 3000, 5, 5].map(|length| "x".repeat(length)).into();
        let copied = copy_lines((lines.join("\n") + "\n").as_bytes());
        assert_eq!(copied, lines);
        let is_next = |pair: &[Bytes]| pair[0].as_ptr().wrapping_add(pair[0].len() + 1) == pair[1].as_ptr();
        let shared: Vec<bool> = copied.windows(2).map(is_next).collect();
        assert_eq!(shared, [true, true, false, false, false, true]);
    }

    #[tokio::test]
    async fn a_queue_has_a_bound_and_an_end() {
        let queue = LineQueue::default();
        assert!(queue.push(Bytes::from(vec![b'x'; MAX_QUEUED_BYTES])));
        assert!(!queue.push(Bytes::from_static(b"y")));
        queue.close();
        let (mut theirs, ours) = tokio::io::duplex(1 << 20);
        let (end, read) = tokio::join!(queue.write_to(Box::new(ours), || true), async {
            let mut read = Vec::new();
            theirs.read_to_end(&mut read).await.unwrap();
            read.len()
        });
        assert_eq!((end, read), (InputEnd::Closed, MAX_QUEUED_BYTES + 1));
        assert!(!queue.push(Bytes::from_static(b"y")), "closed");
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_read_is_given_up() {
        let (_theirs, ours) = tokio::io::duplex(4);
        let queue = LineQueue::default();
        queue.push_always(Bytes::from_static(b"more than four bytes"));
        let waits = std::cell::Cell::new(2);
        let may_read = || waits.replace(waits.get() - 1) == 0;
        assert_eq!(queue.write_to(Box::new(ours), may_read).await, InputEnd::Stuck);
        assert_eq!(waits.get(), -1, "it waits while the agent's own output waits");
        assert!(!queue.push(Bytes::from_static(b"y")), "closed");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_wait_are_bounded() {
        let (_theirs, ours) = tokio::io::duplex(4);
        let queue = LineQueue::default();
        let answer = Bytes::from(vec![b'x'; MAX_ANSWER_BYTES / 2]);
        for _ in 0..1000 {
            queue.push_always(answer.clone());
        }
        assert_eq!(queue.lock().bytes, MAX_QUEUED_BYTES + MAX_ANSWER_BYTES);
        assert_eq!(queue.write_to(Box::new(ours), || true).await, InputEnd::Stuck);
    }
}
