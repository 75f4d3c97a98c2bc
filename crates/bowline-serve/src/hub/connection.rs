//! A client's connection: who it is, what it is attached to, and what waits to be sent to it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_protocol::schema::v1::RequestId;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Notify;

use super::attachment::Attachment;
use super::worker::WorkerKey;
use crate::event::{ConnectionId, SessionId};
use crate::log::EventLog;
use crate::store::{Mutation, ServerId, ServerMessage, ServerMessageContent};
use crate::token::Principal;

/// The most bytes that wait for a client that does not read its connection's stream.
const MAX_UNSENT_BYTES: usize = 16 << 20;
/// The most bytes of sent messages kept for a client whose stream was cut.
const MAX_SENT_BYTES: usize = 256 << 10;
/// How many ids of requests are remembered, so that a request that is sent again is not done again.
const MAX_SEEN_REQUESTS: usize = 1024;

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) principal: Principal,
    pub(super) capabilities: Value,
    pub(super) worker_key: WorkerKey,
    // Its own id first, then those of connections that it took over.
    pub(super) ids: Vec<ConnectionId>,
    pub(super) outbox: Arc<Outbox>,
    // The sessions it is attached to, and where each begins for it.
    pub(super) attached: HashMap<SessionId, Attachment>,
    // Wakes streams of sessions that wait to be attached.
    pub(super) attach_changed: Arc<Notify>,
    // The open session streams, with a number that tells an older stream of the same session that it was replaced.
    pub(super) session_streams: HashMap<SessionId, u64>,
    pub(super) has_merged_streams: bool,
    // The server of a client that is connected to another one; its outbox goes there.
    pub(super) home: Option<ServerId>,
    pub(super) seen: SeenRequests,
    // When the last stream closed or the last message came.
    pub(super) idle_since: Instant,
    pub(super) open_streams: usize,
}

impl Connection {
    /// Returns the connection of a client of this server.
    pub(super) fn new(
        principal: Principal,
        capabilities: Value,
        worker_key: WorkerKey,
        ids: Vec<ConnectionId>,
    ) -> Self {
        Self {
            principal,
            capabilities,
            worker_key,
            ids,
            outbox: Arc::default(),
            attached: HashMap::new(),
            attach_changed: Arc::default(),
            session_streams: HashMap::new(),
            has_merged_streams: false,
            home: None,
            seen: SeenRequests::default(),
            idle_since: Instant::now(),
            open_streams: 0,
        }
    }

    /// Returns whether its client is told how turns of others ended.
    pub(super) fn wants_turn_ends(&self) -> bool {
        self.capabilities["_meta"]["bowline"]["turnEnds"].is_object()
    }

    /// Returns whether it belongs to a client of another server.
    pub(super) fn is_remote(&self) -> bool {
        self.home.is_some()
    }

    /// Returns whether it belongs to a client of this server that is the principal.
    pub(super) fn is_client_of(&self, principal: &Principal) -> bool {
        !self.is_remote() && self.principal.name == principal.name
    }

    /// Sends the responses that wait for a history, if the stream that showed it has been gone for some time: a client
    /// that does not open it again must not wait for ever.
    pub(super) fn release_responses(&mut self, now: Instant, timeout: Duration) {
        if now.duration_since(self.idle_since) < timeout {
            return;
        }
        for (session, attachment) in &mut self.attached {
            if !self.session_streams.contains_key(session)
                && let Some(response) = attachment.held_response.take()
            {
                self.outbox.push(OutboxItem::Message(response));
            }
        }
    }
}

/// The ids of requests that a connection has sent, the newest ones.
#[derive(Debug, Default)]
pub(super) struct SeenRequests {
    order: VecDeque<RequestId>,
    known: HashSet<RequestId>,
}

impl SeenRequests {
    /// Notes a request, and returns whether it is new.
    pub(super) fn insert(&mut self, id: &RequestId) -> bool {
        if !self.known.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id.clone());
        if self.order.len() > MAX_SEEN_REQUESTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

impl SeenRequests {
    /// Forgets a request that was not accepted.
    pub(super) fn forget(&mut self, id: Option<&RequestId>) {
        if let Some(id) = id {
            self.known.remove(id);
            self.order.retain(|known| known != id);
        }
    }
}

/// Something to send on a connection's own stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutboxItem {
    /// A message.
    Message(Bytes),
    /// The updates of a session up to an event, from its beginning.
    History {
        /// The session.
        session: SessionId,
        /// The number of the last event.
        until: u64,
    },
    /// From here on, the session's events after a number, if this stream carries everything (WebSocket).
    Subscribe {
        /// The session.
        session: SessionId,
        /// The number.
        after: u64,
    },
}

/// What waits for a connection's own stream, numbered from 1. The last sent items are kept for a stream that was cut.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    changed: Notify,
    // Where the messages to a client of another server go.
    relay: Option<Relay>,
}

/// The way to a client of another server: through the store.
#[derive(Debug)]
struct Relay {
    log: Arc<EventLog>,
    server: ServerId,
    connection: ConnectionId,
}

#[derive(Debug, Default)]
struct OutboxState {
    items: VecDeque<(u64, OutboxItem)>,
    last: u64,
    sent: u64,
    // Of all items, and of those that were sent.
    bytes: usize,
    sent_bytes: usize,
    is_closed: bool,
    // Whether the stream ends after what is here.
    is_finished: bool,
    // Counts readers: only the newest is served.
    reader: u64,
}

/// The next step of a reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutboxStep {
    /// Send this, the item with this number.
    Send(u64, OutboxItem),
    /// The connection ended, or another reader took over.
    End,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the outbox of a client of another server. Its messages are stored in order with everything else, so that
    /// what is committed later, as the end of this server's work, never overtakes them.
    pub(super) fn relay(log: Arc<EventLog>, server: ServerId, connection: ConnectionId) -> Self {
        Self { relay: Some(Relay { log, server, connection }), ..Self::default() }
    }

    /// Adds an item. A client that lets too much wait is cut off.
    pub(super) fn push(&self, item: OutboxItem) {
        if let Some(Relay { log, server, connection }) = &self.relay {
            if let OutboxItem::Message(message) = item {
                let content = ServerMessageContent::ToClient { connection: connection.clone(), message };
                log.mutate(Mutation::Send(Box::new(ServerMessage { server: server.clone(), content })));
            }
            return;
        }
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        state.last += 1;
        let number = state.last;
        state.bytes += size(&item);
        state.items.push_back((number, item));
        state.is_closed = state.bytes > MAX_UNSENT_BYTES + MAX_SENT_BYTES;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends the stream after what it has.
    pub(super) fn finish(&self) {
        self.lock().is_finished = true;
        self.changed.notify_waiters();
    }

    /// Ends the stream.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Begins to read after an item, or after the last one sent; an earlier reader ends. Returns the reader's number.
    pub(super) fn begin(&self, after: Option<u64>) -> (u64, u64) {
        let mut state = self.lock();
        state.reader += 1;
        let first = state.items.front().map_or(state.last, |(number, _)| number - 1);
        // Items before the first are gone, because the client is known to have them.
        let after = after.map_or(state.sent, |after| after.clamp(first.min(state.sent), state.sent));
        let reader = state.reader;
        drop(state);
        self.changed.notify_waiters();
        (reader, after)
    }

    /// Waits for the item after `after`.
    pub(super) async fn next(&self, reader: u64, after: u64) -> OutboxStep {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            {
                let mut state = self.lock();
                if state.is_closed || state.reader != reader {
                    return OutboxStep::End;
                }
                let first = state.items.front().map_or(0, |(number, _)| *number);
                let index = usize::try_from((after + 1).saturating_sub(first)).unwrap_or(usize::MAX);
                if let Some((number, item)) = state.items.get(index).cloned() {
                    state.mark_sent(number, size(&item));
                    return OutboxStep::Send(number, item);
                }
                if state.is_finished {
                    return OutboxStep::End;
                }
            }
            changed.await;
        }
    }
}

impl OutboxState {
    fn mark_sent(&mut self, number: u64, bytes: usize) {
        if number > self.sent {
            (self.sent, self.sent_bytes) = (number, self.sent_bytes + bytes);
        }
        while self.sent_bytes > MAX_SENT_BYTES
            && let Some((number, item)) = self.items.front()
            && *number < self.sent
        {
            let bytes = size(item);
            (self.sent_bytes, self.bytes) = (self.sent_bytes - bytes, self.bytes - bytes);
            self.items.pop_front();
        }
    }
}

fn size(item: &OutboxItem) -> usize {
    // A message has some cost however short it is.
    64 + if let OutboxItem::Message(message) = item { message.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> OutboxItem {
        OutboxItem::Message(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[tokio::test]
    async fn a_cut_stream_continues_after_the_last_item_received() {
        let outbox = Outbox::default();
        for text in ["a", "b", "c"] {
            outbox.push(message(text));
        }
        let (reader, after) = outbox.begin(None);
        assert_eq!(outbox.next(reader, after).await, OutboxStep::Send(1, message("a")));
        assert_eq!(outbox.next(reader, 1).await, OutboxStep::Send(2, message("b")));
        // The client received only the first.
        let (second, after) = outbox.begin(Some(1));
        assert_eq!(outbox.next(reader, 2).await, OutboxStep::End, "the older reader ends");
        assert_eq!(outbox.next(second, after).await, OutboxStep::Send(2, message("b")));
        // Without a number it continues after what was sent.
        let (third, after) = outbox.begin(None);
        assert_eq!(outbox.next(third, after).await, OutboxStep::Send(3, message("c")));
        outbox.close();
        assert_eq!(outbox.next(third, 3).await, OutboxStep::End);
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let outbox = Outbox::default();
        let (reader, mut after) = outbox.begin(None);
        for _ in 0..100 {
            outbox.push(message(&"x".repeat(64 << 10)));
            let OutboxStep::Send(number, _) = outbox.next(reader, after).await else { panic!() };
            after = number;
        }
        assert!(outbox.lock().bytes <= MAX_SENT_BYTES + (65 << 10), "sent items are dropped");
        for _ in 0..400 {
            outbox.push(message(&"x".repeat(64 << 10)));
        }
        assert!(outbox.is_closed(), "a client that does not read is cut off");
        assert!(outbox.lock().bytes <= MAX_UNSENT_BYTES + MAX_SENT_BYTES + (65 << 10));
    }

    #[test]
    fn the_newest_requests_are_remembered() {
        let mut seen = SeenRequests::default();
        assert!(seen.insert(&RequestId::Number(0)));
        assert!(!seen.insert(&RequestId::Number(0)));
        for id in 1..=1024 {
            assert!(seen.insert(&RequestId::Number(id)));
        }
        assert!(seen.insert(&RequestId::Number(0)), "the oldest is forgotten");
        assert!(!seen.insert(&RequestId::Number(1024)));
    }
}
