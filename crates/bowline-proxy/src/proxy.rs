//! The proxy task: forwards messages between an editor, an agent and the proxy's own end, and owns all their state.
//!
//! Each direction has a bound on queued bytes. A side that does not read blocks only the reading of the other side: the
//! two directions are independent, and answers to our own calls are still read while the agent is slow.
//!
//! Held requests, and our own calls to the editor, are cancelled when their sender no longer waits.

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_protocol::relay::{Method, ProxySide, Relay, RelayEvent};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId};
use bowline_wire::driver::Driver;
use bowline_wire::service::Service;
use bowline_wire::{Caller, ConnectionLimits};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use crate::interceptor::{
    BoxFuture, Disposition, InterceptDecision, InterceptedMessage, Interceptor, MessageOrder,
};
use crate::line_io::{BoxReader, BoxWriter, LineChunk, LineInput, OutputQueue};

mod canonicalize;
mod route;

/// Limits and deadlines of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyOptions {
    /// The longest line that is inspected, in bytes. A longer one is forwarded in pieces, however long it is, unless it
    /// is the agent's and `canonicalize` is set; as the answer to one of the proxy's own calls it fails the call.
    pub max_line: usize,
    /// Whether rules apply to the agent's messages: then each is forwarded in the canonical form that was judged, and
    /// lines that cannot be inspected are rejected.
    pub canonicalize: bool,
    /// The most bytes that wait for a side that does not read; beyond that, the other side is not read. One read or one
    /// message may exceed it.
    pub high_water: usize,
    /// The same limit while our own calls wait for answers that may be behind those bytes. Twice as many may wait for
    /// the agent before our own end is blocked.
    pub backlog: usize,
    /// How long the agent may continue after the editor is gone.
    pub grace_period: Duration,
    /// The deadline for writing the last messages, and for a side that no longer reads.
    pub drain_timeout: Duration,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            max_line: 64 << 20,
            canonicalize: false,
            high_water: 1 << 20,
            backlog: 16 << 20,
            grace_period: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(2),
        }
    }
}

/// The most messages that are held while others overtake them; beyond that, reading stops.
const MAX_HELD_MESSAGES: usize = 64;

/// The size of the buffers between the proxy and its own end, in bytes.
const OWN_BUFFER_SIZE: usize = 256 << 10;

/// The two streams of an end.
pub struct PeerStreams {
    /// The stream from the peer.
    pub reader: BoxReader,
    /// The stream to the peer.
    pub writer: BoxWriter,
}

/// Why a proxy ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyEndReason {
    /// The agent ended by itself; how, as reported to the editor.
    AgentExited(String),
    /// The editor is gone.
    EditorGone,
    /// It was stopped.
    Stopped,
}

/// A proxy that is ready to run.
pub struct Proxy {
    interceptor: Box<dyn Interceptor>,
    options: ProxyOptions,
    own_streams: PeerStreams,
    driver: BoxFuture<'static, std::io::Result<()>>,
    // Lines for the editor and for the agent.
    updates: [Option<mpsc::Receiver<Vec<u8>>>; 2],
}

impl Proxy {
    /// Returns a caller for our own calls, and the proxy. `service` answers the messages that are handled locally.
    pub fn new(
        interceptor: impl Interceptor + 'static,
        service: impl Service,
        settings: ProxyOptions,
    ) -> (Caller, Self) {
        let (from_driver, to_driver) =
            (tokio::io::duplex(OWN_BUFFER_SIZE), tokio::io::duplex(OWN_BUFFER_SIZE));
        let limits = ConnectionLimits::DEFAULT.with_max_line(settings.max_line);
        let (caller, driver) = Driver::new(to_driver.1, from_driver.0, limits);
        let own_streams = PeerStreams { reader: Box::new(from_driver.1), writer: Box::new(to_driver.0) };
        let driver = Box::pin(driver.run(service));
        (
            caller,
            Self {
                interceptor: Box::new(interceptor),
                options: settings,
                own_streams,
                driver,
                updates: [None, None],
            },
        )
    }

    /// Sends lines to the editor, each before any held message that is released after it was queued.
    #[must_use]
    pub fn with_editor_updates(mut self, updates: mpsc::Receiver<Vec<u8>>) -> Self {
        self.updates[EDITOR] = Some(updates);
        self
    }

    /// Sends lines to the agent, each before any answer to the agent that is given after it was queued.
    #[must_use]
    pub fn with_agent_updates(mut self, updates: mpsc::Receiver<Vec<u8>>) -> Self {
        self.updates[AGENT] = Some(updates);
        self
    }

    /// Forwards messages until one side is gone or `stop` completes. When the agent is gone, `agent_exit` describes how
    /// it ended, and every open request of the editor is answered with that.
    pub async fn run(
        self,
        editor: PeerStreams,
        agent: PeerStreams,
        agent_exit: impl Future<Output = String>,
        stop: impl Future<Output = ()>,
    ) -> ProxyEndReason {
        let (mut agent_exit, mut stop) = (pin!(agent_exit), pin!(stop));
        let driver_task = AbortOnDrop(tokio::spawn(self.driver));
        let ends = [editor, agent, self.own_streams].map(|streams| ProxyEnd {
            input: LineInput::new(streams.reader),
            output: OutputQueue::new(streams.writer),
            long_line: None,
            blocked_by: None,
            drain_timer: None,
        });
        let mut core = ProxyCore {
            relay: Relay::default(),
            interceptor: self.interceptor,
            options: self.options,
            updates: self.updates,
            ends,
            held_messages: FuturesUnordered::new(),
            held_bytes: [0; 3],
            phase: ProxyPhase::Open,
            deadline: None,
            end_reason: None,
        };
        let end_reason = poll_fn(|cx| core.poll(cx, agent_exit.as_mut(), stop.as_mut())).await;
        drop(driver_task);
        end_reason
    }
}

/// The connection of the proxy's own end, aborted when the proxy ends.
struct AbortOnDrop(tokio::task::JoinHandle<std::io::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const EDITOR: usize = 0;
const AGENT: usize = 1;
const OWN_END: usize = 2;

fn side_of(end: usize) -> ProxySide {
    if end == AGENT { ProxySide::Agent } else { ProxySide::Editor }
}

fn end_index(side: ProxySide) -> usize {
    match side {
        ProxySide::Editor => EDITOR,
        ProxySide::Agent => AGENT,
    }
}

/// One end: a side, or the proxy itself.
struct ProxyEnd {
    input: LineInput,
    output: OutputQueue,
    // The target of the long line that is arriving here.
    long_line: Option<LongLineTarget>,
    // The held message that must be released before further input of this end is processed.
    blocked_by: Option<HeldMessage>,
    // How long a peer that no longer reads may still send, or how long the held requests of an agent that is gone may
    // continue.
    drain_timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LongLineTarget {
    Forward(usize),
    Discard,
}

/// A held message, with its future disposition.
struct HeldMessage {
    message: RoutedMessage,
    disposition: BoxFuture<'static, Disposition>,
}

/// A message that is routed through the interceptor.
struct RoutedMessage {
    from: usize,
    kind: RoutedMessageKind,
    id: Option<RequestId>,
    // The id that replaces `id` on the other side.
    renamed: Option<RequestId>,
    line: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoutedMessageKind {
    Request,
    Response,
    Notification,
}

impl Future for HeldMessage {
    type Output = (RoutedMessage, Disposition);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(disposition) = self.disposition.as_mut().poll(cx) else { return Poll::Pending };
        let RoutedMessage { from, kind, .. } = self.message;
        let placeholder = RoutedMessage { from, kind, id: None, renamed: None, line: Bytes::new() };
        Poll::Ready((std::mem::replace(&mut self.message, placeholder), disposition))
    }
}

/// The phase of the proxy's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyPhase {
    /// Both sides are connected.
    Open,
    /// The editor is gone; the agent is ending.
    EditorGone,
    /// The agent is gone; how it ended is not known yet.
    AgentGone,
    /// Only the queued output remains to be written.
    Closing,
}

struct ProxyCore {
    relay: Relay,
    interceptor: Box<dyn Interceptor>,
    options: ProxyOptions,
    // Lines for the editor and for the agent.
    updates: [Option<mpsc::Receiver<Vec<u8>>>; 2],
    ends: [ProxyEnd; 3],
    held_messages: FuturesUnordered<HeldMessage>,
    // The number of bytes in `held_messages`, by end.
    held_bytes: [usize; 3],
    phase: ProxyPhase,
    deadline: Option<Pin<Box<Sleep>>>,
    end_reason: Option<ProxyEndReason>,
}

impl ProxyCore {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut agent_exit: Pin<&mut impl Future<Output = String>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<ProxyEndReason> {
        if self.end_reason.is_none() && stop.as_mut().poll(cx).is_ready() {
            self.end_reason = Some(ProxyEndReason::Stopped);
            self.ends[EDITOR].input.stop();
        }
        loop {
            let mut has_moved = false;
            for end in &mut self.ends {
                has_moved |= end.output.write_available(cx);
            }
            has_moved |= self.poll_held(cx);
            for from in [EDITOR, AGENT, OWN_END] {
                has_moved |= self.forward_input(from);
                if self.can_read_from(from) && self.ends[from].input.poll_read(cx).is_ready() {
                    has_moved = true;
                    self.forward_input(from);
                }
            }
            has_moved |= self.poll_phase(cx, agent_exit.as_mut());
            if self.is_finished(cx) {
                return Poll::Ready(self.end_reason.take().unwrap_or(ProxyEndReason::EditorGone));
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
    }

    /// Returns whether more input of an end may be processed. If not, other progress must come first.
    fn can_read_from(&self, from: usize) -> bool {
        let ProxyOptions { high_water, backlog, .. } = self.options;
        let is_free = |to: usize| {
            let limit = match (from, to) {
                (EDITOR, AGENT) if self.relay.has_own_calls(ProxySide::Editor) => backlog,
                // Our requests to the editor do not wait for an agent that does not read: it may itself wait for their
                // outcome.
                (OWN_END, AGENT) => 2 * backlog,
                _ => high_water,
            };
            let is_between_lines = (0..3).all(|other| {
                other == from || self.ends[other].long_line != Some(LongLineTarget::Forward(to))
            });
            self.ends[to].output.size() < limit && is_between_lines
        };
        let is_held = self.ends[from].blocked_by.is_some()
            || self.held_bytes[from] >= backlog
            || self.held_messages.len() >= MAX_HELD_MESSAGES
                && from != OWN_END
                && !self.relay.has_own_calls(ProxySide::Editor);
        !is_held && (0..3).filter(|to| *to != from).all(is_free)
    }

    /// Forwards the input of an end as far as the limits allow. Returns whether there was progress.
    fn forward_input(&mut self, from: usize) -> bool {
        let mut has_moved = false;
        while self.can_read_from(from) {
            let Some(chunk) = self.ends[from].input.next_chunk(self.options.max_line) else { break };
            has_moved = true;
            match chunk {
                LineChunk::Line(length) => self.route_line(from, length, true),
                LineChunk::LongBegins(length) => self.route_line(from, length, false),
                LineChunk::More(length) => self.forward_long_line(from, length),
                LineChunk::LongEnds(length) => {
                    self.forward_long_line(from, length);
                    self.flush_forwarded(from);
                    self.ends[from].long_line = None;
                }
            }
        }
        self.flush_forwarded(from);
        has_moved
    }

    fn forward_long_line(&mut self, from: usize, length: usize) {
        match self.ends[from].long_line {
            Some(LongLineTarget::Forward(to)) => {
                self.flush_forwarded(from);
                let part = self.ends[from].input.take_chunk(length);
                self.ends[to].output.push(part);
            }
            Some(LongLineTarget::Discard) | None => {
                self.flush_forwarded(from);
                drop(self.ends[from].input.take_chunk(length));
            }
        }
    }

    /// Moves the bytes that are forwarded unchanged to the output of the other side.
    fn flush_forwarded(&mut self, from: usize) {
        if let Some(passed) = self.ends[from].input.take_forwarded() {
            self.ends[end_index(side_of(from).other())].output.push(passed);
        }
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ends.iter().any(|end| matches!(end.long_line, Some(LongLineTarget::Forward(_)))) {
            // A released message would land in the middle of a line. This task is woken again when the line ends.
            return false;
        }
        let mut has_moved = self.poll_updates(EDITOR, cx);
        for from in [EDITOR, AGENT] {
            let Some(waiting) = &mut self.ends[from].blocked_by else { continue };
            if let Poll::Ready((message, disposition)) = Pin::new(waiting).poll(cx) {
                self.ends[from].blocked_by = None;
                self.release(message, disposition);
                has_moved = true;
            }
        }
        while let Poll::Ready(Some((message, disposition))) = Pin::new(&mut self.held_messages).poll_next(cx)
        {
            self.held_bytes[message.from] -= message.line.len();
            self.release(message, disposition);
            has_moved = true;
        }
        has_moved | self.poll_updates(AGENT, cx)
    }

    /// Queues the engine's updates for a side, unless that side does not read.
    fn poll_updates(&mut self, to: usize, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while self.ends[to].output.size() < self.options.high_water
            && let Some(updates) = &mut self.updates[to]
            && let Poll::Ready(line) = updates.poll_recv(cx)
        {
            has_moved = true;
            match line {
                Some(line) => self.ends[to].output.push_line(line),
                None => self.updates[to] = None,
            }
        }
        has_moved
    }

    /// Writes the pending updates for a side: for the editor before the agent's next message, which may refer to the same
    /// tool call, and for the agent before an answer, which may end them.
    fn flush_updates(&mut self, to: usize) {
        while let Some(updates) = &mut self.updates[to]
            && let Ok(line) = updates.try_recv()
        {
            self.ends[to].output.push_line(line);
        }
    }

    /// Passes a message of interest to the interceptor.
    fn intercept(&mut self, message: RoutedMessage, fact: &RelayEvent) {
        if message.from == AGENT {
            self.flush_updates(EDITOR);
        }
        // The answer to a renamed request is identified by its sender's original id.
        let id = message
            .renamed
            .as_ref()
            .filter(|_| message.kind == RoutedMessageKind::Response)
            .or(message.id.as_ref());
        let intercepted = InterceptedMessage { from: side_of(message.from), fact, id, line: &message.line };
        match self.interceptor.intercept(intercepted) {
            // Our answer would land in the middle of a line.
            InterceptDecision::Now(disposition @ Disposition::Answer(_))
                if self.is_receiving_long_line(message.from) =>
            {
                self.hold(message, Box::pin(ready(disposition)));
            }
            InterceptDecision::Now(disposition) => self.apply_disposition(message, disposition),
            InterceptDecision::Later(MessageOrder::Keep, disposition) => {
                let from = message.from;
                self.ends[from].blocked_by = Some(HeldMessage { message, disposition });
            }
            InterceptDecision::Later(MessageOrder::Overtake, disposition) => self.hold(message, disposition),
        }
    }

    /// Returns whether a line of our own would land in the middle of another.
    fn is_receiving_long_line(&self, at: usize) -> bool {
        self.ends.iter().any(|end| end.long_line == Some(LongLineTarget::Forward(at)))
    }

    /// Holds a message that others may overtake.
    fn hold(&mut self, message: RoutedMessage, disposition: BoxFuture<'static, Disposition>) {
        if let Some(id) = message.id.as_ref().filter(|_| is_request(&message)) {
            self.relay.mark_held(side_of(message.from), id);
        }
        self.held_bytes[message.from] += message.line.len();
        self.held_messages.push(HeldMessage { message, disposition });
    }

    /// Cancels a held request at the request of its sender: its future is dropped, and the request is answered as
    /// cancelled.
    fn cancel_held_request(&mut self, from: usize, id: &RequestId) {
        for mut waiting in std::mem::take(&mut self.held_messages) {
            let message = &waiting.message;
            if message.from == from && message.id.as_ref() == Some(id) && is_request(message) {
                waiting.disposition = Box::pin(ready(Disposition::Answer(Err(RpcError::Cancelled.into()))));
            }
            self.held_messages.push(waiting);
        }
    }

    /// Handles the end of a side. Returns whether there was progress.
    fn poll_phase(
        &mut self,
        cx: &mut Context<'_>,
        agent_exit: Pin<&mut impl Future<Output = String>>,
    ) -> bool {
        self.close_unresponsive_ends(cx);
        if self.cancel_for_gone_agent(cx) {
            return true;
        }
        match self.phase {
            ProxyPhase::Open | ProxyPhase::EditorGone if self.is_drained(AGENT) => {
                self.phase = ProxyPhase::AgentGone;
                self.ends[AGENT].output.abandon();
                true
            }
            ProxyPhase::Open if self.is_drained(EDITOR) => {
                self.phase = ProxyPhase::EditorGone;
                self.end_reason.get_or_insert(ProxyEndReason::EditorGone);
                // Our own calls can no longer be answered, and the agent sees its input end.
                self.ends[OWN_END].output.close();
                self.ends[AGENT].output.close();
                self.deadline = Some(Box::pin(sleep(self.options.grace_period)));
                true
            }
            ProxyPhase::AgentGone => {
                let Poll::Ready(exit) = agent_exit.poll(cx) else { return false };
                self.cancel_own_calls(None);
                for id in self.relay.take_open_requests(ProxySide::Editor) {
                    let error: Error = RpcError::Internal { reason: exit.clone() }.into();
                    self.ends[EDITOR].output.push_line(error_response(&json!(id), &error));
                }
                self.end_reason.get_or_insert(ProxyEndReason::AgentExited(exit));
                self.ends[EDITOR].output.close();
                self.phase = ProxyPhase::Closing;
                self.deadline = Some(Box::pin(sleep(self.options.drain_timeout)));
                true
            }
            ProxyPhase::Open | ProxyPhase::EditorGone | ProxyPhase::Closing => false,
        }
    }

    /// Returns whether an end's input has ended and all of it has been processed.
    fn is_drained(&self, from: usize) -> bool {
        self.ends[from].input.has_ended()
            && self.ends[from].blocked_by.is_none()
            && self.held_bytes[from] == 0
            && self.ends[from].input.is_empty()
    }

    /// Treats a side that still sends, but whose output has been closed for too long, as gone.
    fn close_unresponsive_ends(&mut self, cx: &mut Context<'_>) {
        for at in [EDITOR, AGENT] {
            let end = &mut self.ends[at];
            if end.output.is_closed() && !end.input.has_ended() && self.phase == ProxyPhase::Open {
                let timer =
                    end.drain_timer.get_or_insert_with(|| Box::pin(sleep(self.options.drain_timeout)));
                if timer.as_mut().poll(cx).is_ready() {
                    end.input.stop();
                }
            }
        }
    }

    /// Returns whether the agent's input has ended; it no longer reads then, either.
    fn is_agent_gone(&self) -> bool {
        self.ends[AGENT].input.has_ended()
    }

    /// Cancels the work for an agent that is gone: permission prompts at once, its held requests after a while. Returns
    /// whether anything was cancelled.
    fn cancel_for_gone_agent(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.is_agent_gone() || self.phase == ProxyPhase::Closing {
            return false;
        }
        if !self.is_receiving_long_line(EDITOR) && self.cancel_own_calls(Some(Method::Permission)) {
            return true;
        }
        if self.held_bytes[AGENT] == 0 {
            return false;
        }
        let drain = self.options.drain_timeout;
        let timer = self.ends[AGENT].drain_timer.get_or_insert_with(|| Box::pin(sleep(drain)));
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        let before = self.held_messages.len();
        for waiting in std::mem::take(&mut self.held_messages) {
            if waiting.message.from == AGENT && is_request(&waiting.message) {
                self.held_bytes[AGENT] -= waiting.message.line.len();
            } else {
                self.held_messages.push(waiting);
            }
        }
        self.held_messages.len() < before
    }

    /// Cancels our own calls to the editor, of one method or all, and fails them for their callers.
    fn cancel_own_calls(&mut self, method: Option<Method>) -> bool {
        let abandoned = self.relay.abandon_own_calls(ProxySide::Editor, method);
        for (own_id, id) in &abandoned {
            let method = PROTOCOL_LEVEL_METHOD_NAMES.cancel_request;
            let cancel = json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": id } });
            self.ends[EDITOR].output.push_line(cancel.to_string().into_bytes());
            self.refuse_own_call(*own_id);
        }
        !abandoned.is_empty()
    }

    /// Answers one of our own calls as cancelled.
    fn refuse_own_call(&mut self, own_id: i64) {
        let cancelled: Error = RpcError::Cancelled.into();
        self.ends[OWN_END].output.push_line(error_response(&json!(own_id), &cancelled));
    }

    fn is_finished(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase == ProxyPhase::Closing && self.ends[EDITOR].output.is_closed() {
            return true;
        }
        self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
    }
}

fn is_request(message: &RoutedMessage) -> bool {
    message.kind == RoutedMessageKind::Request
}

/// Returns an error response.
fn error_response(id: &serde_json::Value, error: &Error) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes()
}

#[cfg(test)]
pub(crate) mod tests;
