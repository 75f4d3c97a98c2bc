//! The proxy task: forwards messages between an editor, an agent and the proxy's own end, and owns all their state.
//!
//! Each direction has a bound on queued bytes. A side that does not read blocks only the reading of the other side: the
//! two directions are independent, and answers to our own calls are still read while the agent is slow.

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_protocol::relay::{ProxySide, Relay, RelayEvent};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{Error, RequestId};
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

mod cancel;
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
    driver: BoxFuture<std::io::Result<()>>,
    editor_updates: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Proxy {
    /// Returns a caller for our own calls, and the proxy. `service` answers the messages that are handled locally.
    pub fn new(
        between: impl Interceptor + 'static,
        service: impl Service,
        settings: ProxyOptions,
    ) -> (Caller, Self) {
        let (ours, theirs) = (tokio::io::duplex(OWN_BUFFER_SIZE), tokio::io::duplex(OWN_BUFFER_SIZE));
        let limits = ConnectionLimits::DEFAULT.with_max_line(settings.max_line);
        let (caller, driver) = Driver::new(theirs.1, ours.0, limits);
        let own = PeerStreams { reader: Box::new(ours.1), writer: Box::new(theirs.0) };
        let serving = Box::pin(driver.run(service));
        (
            caller,
            Self {
                interceptor: Box::new(between),
                options: settings,
                own_streams: own,
                driver: serving,
                editor_updates: None,
            },
        )
    }

    /// Sends lines to the editor, each before any held message that is released after it was queued.
    #[must_use]
    pub fn with_editor_updates(self, told: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { editor_updates: Some(told), ..self }
    }

    /// Forwards messages until one side is gone or `stop` completes. When the agent is gone, `farewell` describes how
    /// it ended, and every open request of the editor is answered with that.
    pub async fn run(
        self,
        editor: PeerStreams,
        agent: PeerStreams,
        farewell: impl Future<Output = String>,
        stop: impl Future<Output = ()>,
    ) -> ProxyEndReason {
        let (mut farewell, mut stop) = (pin!(farewell), pin!(stop));
        let serving = AbortOnDrop(tokio::spawn(self.driver));
        let ends = [editor, agent, self.own_streams].map(|ends| ProxyEnd {
            input: LineInput::new(ends.reader),
            output: OutputQueue::new(ends.writer),
            long_line: None,
            blocked_by: None,
            drain_timer: None,
        });
        let mut core = ProxyCore {
            relay: Relay::default(),
            interceptor: self.interceptor,
            options: self.options,
            editor_updates: self.editor_updates,
            ends,
            held_messages: FuturesUnordered::new(),
            held_bytes: [0; 3],
            phase: ProxyPhase::Open,
            deadline: None,
            end_reason: None,
        };
        let ended = poll_fn(|cx| core.poll(cx, farewell.as_mut(), stop.as_mut())).await;
        drop(serving);
        ended
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
    disposition: BoxFuture<Disposition>,
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
        let Poll::Ready(deed) = self.disposition.as_mut().poll(cx) else { return Poll::Pending };
        let RoutedMessage { from, kind, .. } = self.message;
        let nothing = RoutedMessage { from, kind, id: None, renamed: None, line: Bytes::new() };
        Poll::Ready((std::mem::replace(&mut self.message, nothing), deed))
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
    editor_updates: Option<mpsc::Receiver<Vec<u8>>>,
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
        mut farewell: Pin<&mut impl Future<Output = String>>,
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
            has_moved |= self.poll_phase(cx, farewell.as_mut());
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
            let Some(piece) = self.ends[from].input.next_chunk(self.options.max_line) else { break };
            has_moved = true;
            match piece {
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
        let mut has_moved = self.poll_editor_updates(cx);
        for from in [EDITOR, AGENT] {
            let Some(waiting) = &mut self.ends[from].blocked_by else { continue };
            if let Poll::Ready((held, deed)) = Pin::new(waiting).poll(cx) {
                self.ends[from].blocked_by = None;
                self.release(held, deed);
                has_moved = true;
            }
        }
        while let Poll::Ready(Some((held, deed))) = Pin::new(&mut self.held_messages).poll_next(cx) {
            self.held_bytes[held.from] -= held.line.len();
            self.release(held, deed);
            has_moved = true;
        }
        has_moved
    }

    /// Queues the engine's updates for the editor, unless the editor does not read.
    fn poll_editor_updates(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while self.ends[EDITOR].output.size() < self.options.high_water
            && let Some(told) = &mut self.editor_updates
            && let Poll::Ready(line) = told.poll_recv(cx)
        {
            has_moved = true;
            match line {
                Some(line) => self.ends[EDITOR].output.push_line(line),
                None => self.editor_updates = None,
            }
        }
        has_moved
    }

    /// Writes the pending updates before the agent's next message is processed, which may refer to the same tool call.
    fn flush_editor_updates(&mut self) {
        while let Some(told) = &mut self.editor_updates
            && let Ok(line) = told.try_recv()
        {
            self.ends[EDITOR].output.push_line(line);
        }
    }

    /// Passes a message of interest to the interceptor.
    fn intercept(&mut self, held: RoutedMessage, fact: &RelayEvent) {
        if held.from == AGENT {
            self.flush_editor_updates();
        }
        // The answer to a renamed request is identified by its sender's original id.
        let id =
            held.renamed.as_ref().filter(|_| held.kind == RoutedMessageKind::Response).or(held.id.as_ref());
        let passing = InterceptedMessage { from: side_of(held.from), fact, id, line: &held.line };
        match self.interceptor.intercept(passing) {
            // Our answer would land in the middle of a line.
            InterceptDecision::Now(deed @ Disposition::Answer(_))
                if self.is_receiving_long_line(held.from) =>
            {
                self.hold(held, Box::pin(ready(deed)));
            }
            InterceptDecision::Now(deed) => self.apply_disposition(held, deed),
            InterceptDecision::Later(MessageOrder::Keep, deed) => {
                let from = held.from;
                self.ends[from].blocked_by = Some(HeldMessage { message: held, disposition: deed });
            }
            InterceptDecision::Later(MessageOrder::Overtake, deed) => self.hold(held, deed),
        }
    }

    /// Handles the end of a side. Returns whether there was progress.
    fn poll_phase(&mut self, cx: &mut Context<'_>, farewell: Pin<&mut impl Future<Output = String>>) -> bool {
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
                let Poll::Ready(how) = farewell.poll(cx) else { return false };
                self.cancel_own_calls(None);
                for id in self.relay.take_open_requests(ProxySide::Editor) {
                    let error: Error = RpcError::Internal { reason: how.clone() }.into();
                    self.ends[EDITOR].output.push_line(error_response(&json!(id), &error));
                }
                self.end_reason.get_or_insert(ProxyEndReason::AgentExited(how));
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
                let deaf = end.drain_timer.get_or_insert_with(|| Box::pin(sleep(self.options.drain_timeout)));
                if deaf.as_mut().poll(cx).is_ready() {
                    end.input.stop();
                }
            }
        }
    }

    fn is_finished(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase == ProxyPhase::Closing && self.ends[EDITOR].output.is_closed() {
            return true;
        }
        self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
    }
}

/// Returns an error response.
fn error_response(id: &serde_json::Value, error: &Error) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes()
}

#[cfg(test)]
pub(crate) mod tests;
