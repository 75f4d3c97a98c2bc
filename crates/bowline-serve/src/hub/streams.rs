//! What a client is sent: the stream of its connection, the stream of a session, or everything on one stream.

use super::*;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

use crate::log::Subscription;
use crate::store::StoreError;

/// A message on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamMessage {
    /// The number by which a client continues; `None` for one that is sent again.
    pub id: Option<u64>,
    /// The message.
    pub body: Bytes,
}

/// Counts a stream of a connection for as long as it is open.
struct OpenStream {
    hub: Arc<Hub>,
    connection: ConnectionId,
}

impl OpenStream {
    fn new(hub: &Arc<Hub>, state: &mut HubState, connection: &ConnectionId) -> Result<Self, ReceiveError> {
        let found = state.connections.get_mut(connection).ok_or(ReceiveError::UnknownConnection)?;
        // One for each session, and its own.
        if found.open_streams > hub.options.max_sessions {
            return Err(ReceiveError::Overloaded("this connection has too many open streams".to_owned()));
        }
        found.open_streams += 1;
        Ok(Self { hub: Arc::clone(hub), connection: connection.clone() })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(connection) = self.hub.lock().connections.get_mut(&self.connection) {
            connection.open_streams -= 1;
            connection.idle_since = Instant::now();
        }
        self.hub.progress.notify_waiters();
    }
}

/// Returns the messages for a connection among some events, which a subscription has returned, with the requests that
/// it was not sent since the one with the number `sent`. None if the client has loaded the session again since `loads`:
/// they are sent after its history.
fn messages_of(
    hub: &Hub,
    connection: &str,
    subscription: &Subscription,
    loads: Option<u64>,
    events: &[Event],
    sent: &mut u64,
) -> Vec<StreamMessage> {
    let session = subscription.session();
    let is_elsewhere = hub.is_elsewhere(session);
    let mut state = hub.lock();
    if let Some(attachment) = state.attachment(connection, session) {
        if loads.is_some_and(|loads| loads != attachment.loads) {
            return Vec::new();
        }
        if let Some(last) = events.last() {
            // A client that comes back without a number gets what follows what was sent.
            attachment.after = last.seq;
        }
    }
    state.deliverable(connection, session, (events, subscription.cursor()), is_elsewhere, sent)
}

/// Sends the response that waited for a session's history.
fn release_response(hub: &Hub, connection: &ConnectionId, session: &SessionId) {
    let mut state = hub.lock();
    let attachment = state.attachment(connection, session);
    if let Some(response) = attachment.and_then(|attachment| attachment.held_response.take()) {
        hub.push(&state, connection, OutboxItem::Message(response));
    }
}

/// The stream of a connection.
pub struct ConnectionStream {
    open: OpenStream,
    outbox: Arc<Outbox>,
    reader: u64,
    cursor: u64,
    // A history that is being sent, and its last event.
    history: Option<(Subscription, u64)>,
}

/// What a connection's stream has next.
enum OwnStep {
    Messages(Vec<StreamMessage>),
    Subscribe(SessionId, u64),
    End,
}

impl ConnectionStream {
    /// Opens the stream of a connection, after the last message that the client has. An earlier one ends.
    ///
    /// # Errors
    /// Fails if the connection is unknown.
    pub fn open(
        hub: &Arc<Hub>,
        connection: &ConnectionId,
        last_event: Option<u64>,
    ) -> Result<Self, ReceiveError> {
        let mut state = hub.lock();
        let open = OpenStream::new(hub, &mut state, connection)?;
        let found = state.connections.get(connection).ok_or(ReceiveError::UnknownConnection)?;
        let outbox = Arc::clone(&found.outbox);
        let (reader, cursor) = outbox.begin(last_event);
        Ok(Self { open, outbox, reader, cursor, history: None })
    }

    /// Waits for messages; `None` at the end.
    pub async fn next(&mut self) -> Option<Vec<StreamMessage>> {
        loop {
            match self.step().await {
                OwnStep::Messages(messages) => return Some(messages),
                // The session has a stream of its own.
                OwnStep::Subscribe(..) => {}
                OwnStep::End => return None,
            }
        }
    }

    /// Waits for the next step. Nothing is lost if it is dropped while it waits.
    async fn step(&mut self) -> OwnStep {
        loop {
            if let Some((subscription, until)) = &mut self.history {
                let until = *until;
                let Ok(events) = subscription.next_until(until).await else { return OwnStep::End };
                let Some(events) = events else {
                    self.history = None;
                    continue;
                };
                if subscription.cursor() >= until {
                    self.history = None;
                }
                return OwnStep::Messages(self.history_of(&events, until));
            }
            match self.outbox.next(self.reader, self.cursor).await {
                OutboxStep::End => return OwnStep::End,
                OutboxStep::Send(number, item) => {
                    self.cursor = number;
                    match item {
                        OutboxItem::Message(body) => {
                            return OwnStep::Messages(vec![StreamMessage { id: Some(number), body }]);
                        }
                        OutboxItem::History { session, until } => {
                            if until > 0 {
                                self.history = Some((self.open.hub.log.subscribe(&session, 0), until));
                            }
                        }
                        OutboxItem::Subscribe { session, after } => {
                            return OwnStep::Subscribe(session, after);
                        }
                    }
                }
            }
        }
    }
}

impl ConnectionStream {
    /// Returns the updates and ends of turns among events up to a number. They have no numbers on this stream.
    fn history_of(&self, events: &[Event], until: u64) -> Vec<StreamMessage> {
        let state = self.open.hub.lock();
        let Some(connection) = state.connections.get(&self.open.connection) else { return Vec::new() };
        let is_shown = |event: &&Event| {
            let is_history = match event.kind {
                EventKind::Update => true,
                EventKind::TurnEnd => connection.wants_turn_ends(),
                _ => false,
            };
            is_history && event.seq <= until && event.recipient.includes_in_history(&connection.ids)
        };
        let shown = events.iter().filter(is_shown);
        shown.map(|event| StreamMessage { id: None, body: event.body.clone() }).collect()
    }
}

/// The stream of a session, for one connection.
pub struct SessionStream {
    open: OpenStream,
    session: SessionId,
    number: u64,
    changed: Arc<Notify>,
    position: Option<Position>,
}

struct Position {
    subscription: Subscription,
    loads: u64,
    // Whether the response after the history, and the open questions, were sent.
    is_caught_up: bool,
    // The number of the last request that was sent.
    sent_request: u64,
}

impl SessionStream {
    /// Opens the stream of a session for a connection, after the last event that the client has. An earlier one ends.
    /// Without a last event it begins once the client has opened the session.
    ///
    /// # Errors
    /// Fails if the connection is unknown.
    pub async fn open(
        hub: &Arc<Hub>,
        connection: &ConnectionId,
        session: &SessionId,
        last_event: Option<u64>,
    ) -> Result<Self, ReceiveError> {
        let principal = hub.principal_of(connection).ok_or(ReceiveError::UnknownConnection)?;
        if session.len() > MAX_ID_BYTES {
            return Err(ReceiveError::Invalid(format!("an id has at most {MAX_ID_BYTES} bytes")));
        }
        if let Some(after) = last_event {
            let stored = hub.store.session(session).await;
            let stored = stored.map_err(|error| ReceiveError::Overloaded(error.to_string()))?;
            if let Some(stored) = stored.filter(|stored| principal.may_see(&stored.principal)) {
                let mut state = hub.lock();
                if !stored.pending.is_empty() && !state.sessions.contains_key(session) {
                    // An earlier server left requests unanswered, for which the client still waits.
                    hub.begin_opening(&mut state, connection, session, Vec::new());
                }
                let attachment =
                    Attachment::reconnect(state.attachment(connection, session).as_deref(), after);
                hub.attach(&mut state, connection, session, attachment);
            }
        }
        let mut state = hub.lock();
        let open = OpenStream::new(hub, &mut state, connection)?;
        state.last_stream += 1;
        let number = state.last_stream;
        let found = state.connections.get_mut(connection).ok_or(ReceiveError::UnknownConnection)?;
        found.session_streams.insert(session.clone(), number);
        let changed = Arc::clone(&found.attach_changed);
        changed.notify_waiters();
        Ok(Self { open, session: session.clone(), number, changed, position: None })
    }

    /// Waits for messages; `None` at the end.
    pub async fn next(&mut self) -> Option<Vec<StreamMessage>> {
        let hub = Arc::clone(&self.open.hub);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            let (attachment, has_ended) = {
                let state = hub.lock();
                let connection = state.connections.get(&self.open.connection)?;
                if connection.session_streams.get(&self.session) != Some(&self.number) {
                    return None;
                }
                (connection.attached.get(&self.session).cloned(), state.has_ended)
            };
            let Some(attachment) = attachment else {
                if has_ended {
                    return None;
                }
                self.position = None;
                changed.await;
                continue;
            };
            // Loading the session begins again.
            let position = self.position.take_if(|position| position.loads == attachment.loads);
            let position = self.position.insert(position.unwrap_or_else(|| Position {
                subscription: hub.log.subscribe(&self.session, attachment.after),
                loads: attachment.loads,
                is_caught_up: false,
                sent_request: 0,
            }));
            let cursor = position.subscription.cursor();
            if !position.is_caught_up && cursor >= attachment.history_until {
                // Nothing has changed yet if this is dropped while it waits.
                let open = hub.open_questions(&self.open.connection, &self.session, cursor).await;
                position.is_caught_up = true;
                release_response(&hub, &self.open.connection, &self.session);
                let mut messages: Vec<StreamMessage> =
                    open.into_iter().map(|body| StreamMessage { id: None, body }).collect();
                let Position { subscription, loads, sent_request, .. } = position;
                let connection = &self.open.connection;
                messages.extend(messages_of(&hub, connection, subscription, Some(*loads), &[], sent_request));
                if !messages.is_empty() {
                    return Some(messages);
                }
            }
            let Position { subscription, loads, sent_request, .. } = position;
            let events = async {
                match has_ended {
                    true => subscription.next_until(u64::MAX).await,
                    false => subscription.next().await.map(Some),
                }
            };
            tokio::select! {
                events = events => {
                    // Nothing is left, or the store cannot be read.
                    let events = events.ok()??;
                    let connection = &self.open.connection;
                    let messages =
                        messages_of(&hub, connection, subscription, Some(*loads), &events, sent_request);
                    if !messages.is_empty() {
                        return Some(messages);
                    }
                }
                () = changed => {}
            }
        }
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        let mut state = self.open.hub.lock();
        let Some(connection) = state.connections.get_mut(&self.open.connection) else { return };
        if connection.session_streams.get(&self.session) == Some(&self.number) {
            connection.session_streams.remove(&self.session);
        }
    }
}

/// The number of a subscription, open questions that are sent again, and the next events.
type NextEvents = BoxFuture<'static, (u64, Subscription, Vec<Bytes>, Result<Vec<Event>, StoreError>)>;

/// Everything for one connection on one stream.
pub struct MergedStream {
    own: ConnectionStream,
    sessions: FuturesUnordered<NextEvents>,
    // The newest subscription to each session.
    current: HashMap<SessionId, MergedPosition>,
    last: u64,
    // Whether the connection's own stream has sent everything.
    is_own_finished: bool,
}

/// A subscription of a merged stream, by number, and the last event and request that it has sent.
#[derive(Clone, Copy)]
struct MergedPosition {
    number: u64,
    cursor: u64,
    sent_request: u64,
}

impl MergedStream {
    /// Opens one stream for everything, for a connection that has just been made.
    ///
    /// # Errors
    /// Fails if the connection is unknown.
    pub fn open(hub: &Arc<Hub>, connection: &ConnectionId) -> Result<Self, ReceiveError> {
        let own = ConnectionStream::open(hub, connection, None)?;
        Ok(Self {
            own,
            sessions: FuturesUnordered::new(),
            current: HashMap::new(),
            last: 0,
            is_own_finished: false,
        })
    }

    /// Waits for messages; `None` at the end. Nothing is lost if it is dropped while it waits.
    pub async fn next(&mut self) -> Option<Vec<StreamMessage>> {
        let hub = Arc::clone(&self.own.open.hub);
        loop {
            let connection = self.own.open.connection.clone();
            if self.is_own_finished
                && self.current.iter().all(|(session, position)| position.cursor >= hub.log.last_seq(session))
            {
                return None;
            }
            tokio::select! {
                step = self.own.step(), if !self.is_own_finished => match step {
                    OwnStep::End if hub.lock().has_ended => self.is_own_finished = true,
                    OwnStep::End => return None,
                    OwnStep::Messages(messages) => return Some(messages),
                    OwnStep::Subscribe(session, after) => {
                        self.last += 1;
                        // An earlier subscription goes on where it is: what it has not sent may be a response.
                        let cursor = self.current.get(&session).map_or(after, |earlier| earlier.cursor);
                        let position = MergedPosition { number: self.last, cursor, sent_request: 0 };
                        self.current.insert(session.clone(), position);
                        let subscription = hub.log.subscribe(&session, cursor);
                        self.sessions.push(first_events(&hub, &connection, self.last, subscription));
                    }
                },
                Some((number, subscription, open, events)) = self.sessions.next() => {
                    let session = subscription.session().clone();
                    let is_attached =
                        hub.lock().connections.get(&connection)?.attached.contains_key(&session);
                    let current = self.current.get(&session).filter(|current| current.number == number);
                    let Some(mut sent_request) = current.map(|current| current.sent_request) else { continue };
                    if !is_attached {
                        self.current.remove(&session);
                        continue;
                    }
                    let mut messages: Vec<StreamMessage> =
                        open.into_iter().map(|body| StreamMessage { id: None, body }).collect();
                    let events = events.ok()?;
                    messages.extend(messages_of(&hub, &connection, &subscription, None, &events, &mut sent_request));
                    let cursor = subscription.cursor();
                    self.current.insert(session, MergedPosition { number, cursor, sent_request });
                    self.sessions.push(next_events(number, subscription));
                    if !messages.is_empty() {
                        return Some(messages);
                    }
                }
                else => return None,
            }
        }
    }
}

fn next_events(number: u64, mut subscription: Subscription) -> NextEvents {
    Box::pin(async move {
        let events = subscription.next().await;
        (number, subscription, Vec::new(), events)
    })
}

/// Begins with the open questions before the subscription, if there are any.
fn first_events(
    hub: &Arc<Hub>,
    connection: &ConnectionId,
    number: u64,
    subscription: Subscription,
) -> NextEvents {
    let (hub, connection) = (Arc::clone(hub), connection.clone());
    Box::pin(async move {
        let open = hub.open_questions(&connection, subscription.session(), subscription.cursor()).await;
        if open.is_empty() {
            return next_events(number, subscription).await;
        }
        (number, subscription, open, Ok(Vec::new()))
    })
}

macro_rules! debug_as_name {
    ($($name:ident),*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}
debug_as_name!(ConnectionStream, SessionStream, MergedStream);

#[cfg(test)]
mod tests;
