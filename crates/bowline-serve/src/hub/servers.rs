//! Several servers on one store: leases, clients of other servers, and sessions that a server left behind.
//!
//! A session is at one server at a time. Another server that has clients of it reads its events from the store, and
//! sends its clients' messages to that server:
//!
//! ```text
//!  client ─► this server ─► inbox (store) ─► server of the session ─► agent
//!  client ◄─ this server ◄─ events (store) ◄─ server of the session ◄─ agent
//! ```

use super::*;
use std::collections::BTreeSet;

use bowline_protocol::remote::MessageHead;
use bowline_storage::clock::since_boot;
use tokio::sync::Notify;

use super::from_client::{setup_for_client, unknown_session};
use crate::log::{FIRST_RETRY, LONGEST_RETRY};
use crate::store::{
    Acquisition, ForwardOutcome, PostgresServerStore, ServerId, ServerMessage, ServerMessageContent,
    StoreError, StoredSession, Wake,
};

/// The most answers and cancellations that wait for the database, on their way to other servers.
pub(super) const MAX_UNFORWARDED: usize = 1024;
/// How long a server that stops may take to tell the others.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes part in a shared store, for as long as it is polled. Does nothing if the store is this server's own.
pub(super) async fn share_store(hub: &Arc<Hub>) {
    let Some(store) = hub.store.shared() else { return };
    let inbox = Notify::new();
    tokio::join!(
        keep_lease(hub, store),
        follow_store(hub, store, &inbox),
        read_inbox(hub, store, &inbox),
        take_over(hub, store, &inbox)
    );
}

/// Tells other servers that this one accepts no new work.
pub(super) async fn announce_draining(hub: &Hub) {
    if let Some(store) = hub.store.shared()
        && !matches!(tokio::time::timeout(LEAVE_TIMEOUT, store.mark_draining()).await, Ok(Ok(())))
    {
        tracing::warn!("other servers do not know that this one is stopping");
    }
}

/// Leaves a shared store, so that other servers need not wait for the end of the lease.
pub(super) async fn leave_store(hub: &Hub) {
    // The lease is not renewed any more.
    hub.lock().has_left = true;
    if let Some(store) = hub.store.shared()
        && !matches!(tokio::time::timeout(LEAVE_TIMEOUT, store.deregister()).await, Ok(Ok(())))
    {
        tracing::warn!("the lease could not be ended; other servers wait for its end");
    }
}

/// Renews the lease. Without it, other servers may have this one's sessions: all work on them stops.
async fn keep_lease(hub: &Arc<Hub>, store: &PostgresServerStore) {
    let length = store.options().lease;
    let mut interval = tokio::time::interval(store.options().heartbeat);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    hub.lease.renew(since_boot(), length);
    loop {
        tokio::select! {
            biased;
            // Also after a suspension, before anything else: the timer ends with the lease or with the suspension.
            () = tokio::time::sleep(hub.lease.remaining()), if hub.lease.is_valid() => {
                if !hub.lease.is_valid() {
                    lose_all_sessions(hub);
                }
                continue;
            }
            _ = interval.tick() => {}
        }
        // The lease counts from before the request: here it never ends later than in the database.
        let asked = since_boot();
        let was_valid = hub.lease.is_valid();
        let limit = if was_valid { hub.lease.remaining() } else { length };
        match tokio::time::timeout(limit, store.renew_lease()).await {
            Ok(Ok(true)) => hub.lease.renew(asked, length),
            Ok(Ok(false)) => {
                if hub.lock().has_left {
                    return;
                }
                if was_valid {
                    lose_all_sessions(hub);
                }
                match store.register().await {
                    Ok(()) => hub.lease.renew(asked, length),
                    Err(error) => tracing::warn!(%error, "cannot register with the database"),
                }
            }
            Ok(Err(_)) | Err(_) if was_valid && !hub.lease.is_valid() => lose_all_sessions(hub),
            Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
            Err(_) => tracing::warn!("cannot renew the lease in time"),
        }
    }
}

/// Kills all agents if the lease has ended, because other servers may have their sessions.
pub(super) fn check_lease(hub: &Hub) {
    if !hub.lease.is_valid() {
        lose_all_sessions(hub);
    }
}

/// Kills all agents, because other servers may have their sessions.
fn lose_all_sessions(hub: &Hub) {
    hub.lease.end();
    let workers: Vec<WorkerId> = {
        let state = hub.lock();
        // At once: what they would still do to save their work is not theirs to do.
        state.workers.values().for_each(|worker| worker.input.kill());
        state.workers.keys().copied().collect()
    };
    if workers.is_empty() {
        return;
    }
    tracing::error!(agents = workers.len(), "the lease in the database has ended: stopping all agents");
    for worker in workers {
        hub.end_worker(worker, "the server lost its lease in the database; the session can be opened again");
    }
}

/// Wakes streams of other servers' sessions.
async fn follow_store(hub: &Hub, store: &PostgresServerStore, inbox: &Notify) {
    let mut listener = store.listen();
    loop {
        match listener.next().await {
            Wake::Sessions(sessions) => hub.log.wake(&sessions),
            Wake::Inbox => inbox.notify_one(),
            Wake::Everything => {
                inbox.notify_one();
                look_for_events(hub, store).await;
            }
        }
    }
}

/// Wakes streams of other servers' sessions that have new events.
async fn look_for_events(hub: &Hub, store: &PostgresServerStore) {
    let followed = hub.log.followed();
    if followed.is_empty() {
        return;
    }
    match store.last_seqs(&followed).await {
        Ok(last) => hub.log.wake_newer(&last),
        Err(error) => tracing::warn!(%error, "cannot look for events"),
    }
}

/// Handles messages from other servers.
async fn read_inbox(hub: &Arc<Hub>, store: &PostgresServerStore, inbox: &Notify) {
    // Handled, but not yet removed from the store.
    let handled: Arc<Mutex<BTreeSet<i64>>> = Arc::default();
    loop {
        inbox.notified().await;
        loop {
            let except: Vec<i64> =
                handled.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
            let messages = match store.inbox(&except).await {
                Ok(messages) if messages.is_empty() => break,
                Ok(messages) => messages,
                Err(error) => {
                    tracing::warn!(%error, "cannot read messages from other servers");
                    break;
                }
            };
            handled.lock().unwrap_or_else(PoisonError::into_inner).extend(messages.iter().map(|(id, _)| *id));
            for (id, message) in messages {
                let receipt =
                    InboxReceipt { id: Some(id), log: Arc::clone(&hub.log), handled: Arc::clone(&handled) };
                receive_from_server(hub, message, receipt);
            }
        }
    }
}

/// A message from another server that is not handled yet. Dropping it removes the message from the store, after what
/// handling it has changed: a server that dies before has not handled it, and the next one of the session does.
#[derive(Debug)]
pub(super) struct InboxReceipt {
    // `None` if the message stays in the store.
    id: Option<i64>,
    log: Arc<EventLog>,
    handled: Arc<Mutex<BTreeSet<i64>>>,
}

impl InboxReceipt {
    /// Leaves the message in the store, for the next server of its session.
    fn leave(mut self) {
        self.id = None;
    }
}

impl Drop for InboxReceipt {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        self.log.mutate(Mutation::Received(vec![id]));
        let handled = Arc::clone(&self.handled);
        self.log.after_commit(move || {
            handled.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
    }
}

fn receive_from_server(hub: &Arc<Hub>, message: ServerMessage, receipt: InboxReceipt) {
    let ServerMessage { server, content } = message;
    let mut state = hub.lock();
    let (session, connections, principal, message) = match content {
        ServerMessageContent::ToClient { connection, message } => {
            return hub.push(&state, &connection, OutboxItem::Message(message));
        }
        ServerMessageContent::FromClient { session, connections, principal, message } => {
            (session, connections, principal, message)
        }
    };
    let (Some(connection), Ok(head)) = (connections.first().cloned(), MessageHead::parse(&message)) else {
        return;
    };
    let is_open = matches!(state.sessions.get(&session), Some(Session { stage: Stage::Open(_), .. }));
    if state.is_draining && head.method.is_some() && (head.id.is_some() || !is_open) {
        return receipt.leave();
    }
    ensure_remote_connection(hub, &mut state, server, &connection, connections, principal);
    match (head.method.as_deref(), head.id.clone()) {
        // What comes from another server is not sent on.
        (None, Some(id)) => drop(hub.take_answer(&mut state, &connection, &id, head.raw_id, &message)),
        (Some("$/cancel_request"), None) => {
            drop(hub.cancel_request(&mut state, &connection, &message));
        }
        (Some("session/delete"), Some(id)) => {
            let hub = Arc::clone(hub);
            let message = message.clone();
            drop(state);
            bowline_task::spawn(async move {
                open::delete_session(hub, connection, id, session, message).await;
                drop(receipt);
            });
        }
        (Some(_), id) => {
            let waiting = WaitingMessage { connection: connection.clone(), message, receipt: Some(receipt) };
            let received = hub.receive_for_session(state, session, waiting);
            if let (Err(error), Some(id)) = (received, id) {
                let error = message::error(&id, message::OVERLOADED, &error.to_string());
                hub.push(&hub.lock(), &connection, OutboxItem::Message(error));
            }
        }
        (None, None) => {}
    }
}

/// Adds the connection of another server's client. What is sent to it goes through that server.
fn ensure_remote_connection(
    hub: &Arc<Hub>,
    state: &mut HubState,
    server: ServerId,
    id: &ConnectionId,
    ids: Vec<ConnectionId>,
    principal: Principal,
) {
    match state.connections.get_mut(id) {
        // Its own client's, if the message was meant for a server that is gone.
        Some(found) if found.home.as_ref().is_none_or(|home| *home == server) => {
            found.idle_since = Instant::now();
            return;
        }
        // Its server has another id since.
        Some(found) => found.outbox.close(),
        None => {}
    }
    // No agent is its own.
    let key = WorkerKey { principal: String::new(), capabilities: String::new(), agent: None };
    let mut connection = Connection::new(principal, json!({}), key, ids);
    connection.outbox = Arc::new(Outbox::relay(Arc::clone(&hub.log), server.clone(), id.clone()));
    connection.home = Some(server);
    state.connections.insert(id.clone(), connection);
}

/// Settles sessions that a server left behind, takes over messages that it has not handled, and looks at everything
/// from time to time.
async fn take_over(hub: &Arc<Hub>, store: &PostgresServerStore, inbox: &Notify) {
    let mut interval = tokio::time::interval(store.options().heartbeat);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        // Also what a failed look left out.
        inbox.notify_one();
        look_for_events(hub, store).await;
        if hub.lock().is_draining {
            continue;
        }
        if let Err(error) = try_take_over(hub, store, inbox).await {
            tracing::warn!(%error, "cannot look for sessions of other servers");
        }
    }
}

async fn try_take_over(
    hub: &Arc<Hub>,
    store: &PostgresServerStore,
    inbox: &Notify,
) -> Result<(), StoreError> {
    store.remove_stale().await?;
    for waiting in store.waiting_sessions().await? {
        let (cwd, roots) = (waiting.cwd.to_string_lossy().into_owned(), hub.options.roots.clone());
        let checked =
            bowline_task::spawn_blocking(move || message::check_directory(&cwd, &roots).is_ok()).await;
        if !checked.unwrap_or(false) {
            // Another server has its directory.
            continue;
        }
        if waiting.has_messages {
            store.adopt_messages(&waiting.id).await?;
            inbox.notify_one();
        } else {
            settle_left_session(hub, &waiting.id).await?;
        }
    }
    Ok(())
}

/// Answers what a server left unanswered in a session, without opening it at an agent.
async fn settle_left_session(hub: &Arc<Hub>, session: &SessionId) -> Result<(), StoreError> {
    if !reserve_session(hub, session) {
        return Ok(());
    }
    hub.log.flush().await;
    let acquired = hub.store.acquire(session).await;
    if let Ok(Acquisition::Acquired(acquired)) = &acquired {
        tracing::info!(%session, "settling a session that another server left");
        hub.log.open(session, acquired.generation, acquired.last_seq);
        open::settle(hub, session, acquired.session.pending.clone());
        hub.log.release(session, acquired.generation);
    }
    let mut state = hub.lock();
    if let Some(Session { stage: Stage::Opening(waiting), .. }) = state.sessions.remove(session) {
        hub.open_for_waiting(&mut state, session, waiting);
    }
    acquired.map(|_| ())
}

/// Lets messages about a session wait. Returns whether it was free.
fn reserve_session(hub: &Hub, session: &SessionId) -> bool {
    let mut state = hub.lock();
    let is_free = !state.sessions.contains_key(session);
    if is_free {
        state.sessions.insert(session.clone(), Session::opening(Vec::new()));
    }
    is_free
}

/// Forwards an answer or a cancellation to the server whose session waits for it: one with `text`, the id of a
/// question or of a connection, in what it waits for. Tries again while the database fails.
///
/// # Errors
/// Fails if too many wait for the database.
pub(super) fn forward_to_waiting(
    hub: &Arc<Hub>,
    state: &HubState,
    connection: &ConnectionId,
    text: &str,
    message: &Bytes,
) -> Result<(), ReceiveError> {
    let Some(found) = state.connections.get(connection).filter(|found| !found.is_remote()) else {
        return Ok(());
    };
    if hub.store.shared().is_none() {
        return Ok(());
    }
    let (hub, text, message) = (Arc::clone(hub), text.to_owned(), message.clone());
    let (ids, principal) = (found.ids.clone(), found.principal.clone());
    // The client takes it for delivered.
    let Ok(place) = Arc::clone(&hub.unforwarded).try_acquire_owned() else {
        let why = "too many answers wait for the database".to_owned();
        return Err(ReceiveError::Overloaded(why));
    };
    bowline_task::spawn(async move {
        let Some(store) = hub.store.shared() else { return };
        let (deadline, mut pause) = (Instant::now() + hub.options.question_timeout, FIRST_RETRY);
        loop {
            let forwarded = async {
                for session in store.sessions_waiting_for(&text, &principal).await? {
                    store.forward(&session, &ids, &principal, &message).await?;
                }
                Ok::<(), StoreError>(())
            };
            let Err(error) = forwarded.await else { break };
            tracing::warn!(%error, "an answer has not reached the server that waits for it");
            if Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_RETRY);
        }
        drop(place);
    });
    Ok(())
}

/// Forwards the deletion of a session to the other server that has it. Returns whether that was possible.
pub(super) async fn forward_deletion(
    hub: &Hub,
    connection: &ConnectionId,
    stored: &StoredSession,
    message: &[u8],
) -> bool {
    let Some(store) = hub.store.shared() else { return false };
    let (ids, principal) = {
        let state = hub.lock();
        match state.connections.get(connection) {
            Some(found) if !found.is_remote() && found.principal.may_use(&stored.principal) => {
                (found.ids.clone(), found.principal.clone())
            }
            _ => return false,
        }
    };
    matches!(store.forward(&stored.id, &ids, &principal, message).await, Ok(ForwardOutcome::Sent))
}

/// Returns the open questions of another server's session that a connection may answer, up to an event.
pub(super) async fn open_questions_elsewhere(
    hub: &Hub,
    connection: &str,
    session: &SessionId,
    until: u64,
) -> Vec<Bytes> {
    let principal = hub.principal_of(connection).filter(|principal| principal.role != Role::Observer);
    let stored = hub.store.session(session).await.ok().flatten();
    let (Some(_), Some(stored)) = (principal, stored) else { return Vec::new() };
    let mut open = Vec::new();
    for question in stored.pending.questions.iter().filter(|question| question.seq <= until) {
        let events = hub.store.events_after(session, question.seq - 1, 1).await.unwrap_or_default();
        let event = events.into_iter().next().filter(|event| event.kind == EventKind::Question);
        open.extend(event.map(|event| event.body));
    }
    open
}

/// Handles the messages that waited for a session that another server has.
pub(super) async fn use_elsewhere(hub: Arc<Hub>, session: SessionId) {
    loop {
        let waiting = {
            let mut state = hub.lock();
            match state.sessions.get_mut(&session) {
                Some(Session { stage: Stage::Opening(waiting), .. }) if !waiting.is_empty() => {
                    std::mem::take(waiting)
                }
                Some(Session { stage: Stage::Opening(_), .. }) => {
                    state.sessions.remove(&session);
                    return;
                }
                _ => return,
            }
        };
        let mut waiting = waiting.into_iter();
        while let Some(next) = waiting.next() {
            let outcome = use_session_elsewhere(&hub, &next.connection, &session, &next.message).await;
            if outcome == ForwardOutcome::NotOwned {
                // That server has given it up meanwhile: this one tries again to acquire it.
                let mut state = hub.lock();
                let Some(Session { stage: Stage::Opening(newer), .. }) = state.sessions.remove(&session)
                else {
                    return;
                };
                let all = [next].into_iter().chain(waiting).chain(newer).collect();
                return hub.open_for_waiting(&mut state, &session, all);
            }
        }
    }
}

/// Handles a client's message about a session that another server has.
async fn use_session_elsewhere(
    hub: &Arc<Hub>,
    connection: &ConnectionId,
    session: &SessionId,
    message: &Bytes,
) -> ForwardOutcome {
    let outcome = try_use_session_elsewhere(hub, connection, session, message).await;
    let error = match outcome {
        Ok(ForwardOutcome::Full) => {
            Some((message::OVERLOADED, "too many messages wait for the server of this session".to_owned()))
        }
        Ok(_) => None,
        Err(ref error) => Some((message::INTERNAL, error.to_string())),
    };
    if let (Some((code, why)), Ok(MessageHead { id: Some(id), .. })) = (error, MessageHead::parse(message)) {
        let error = message::error(&id, code, &why);
        hub.respond(&mut hub.lock(), connection, None, &id, error);
    }
    outcome.unwrap_or(ForwardOutcome::Sent)
}

async fn try_use_session_elsewhere(
    hub: &Arc<Hub>,
    connection: &ConnectionId,
    session: &SessionId,
    message: &Bytes,
) -> Result<ForwardOutcome, StoreError> {
    let done = Ok(ForwardOutcome::Sent);
    let Some(store) = hub.store.shared() else { return done };
    let Ok(MessageHead { id, method: Some(method), .. }) = MessageHead::parse(message) else { return done };
    // The number first: what is appended between the two reads is sent as an event.
    let last = store.last_seqs(std::slice::from_ref(session)).await?.get(session).copied().unwrap_or(0);
    let stored = store.session(session).await?;
    let (ids, principal) = {
        let mut state = hub.lock();
        let Some(found) = state.connections.get(connection) else { return done };
        let (ids, principal) = (found.ids.clone(), found.principal.clone());
        let is_shown = matches!(&*method, "session/load" | "session/resume" | "session/close");
        let stored = stored.filter(|stored| match is_shown {
            true => principal.may_see(&stored.principal),
            false => principal.may_use(&stored.principal),
        });
        let Some(stored) = stored else {
            if let Some(id) = id {
                let error = unknown_session(&id, session);
                hub.respond(&mut state, connection, None, &id, error);
            }
            return done;
        };
        match (&*method, id) {
            ("session/load", Some(id)) => {
                let response = message::result(&id, &setup_for_client(&stored.setup));
                hub.attach_with_history(&mut state, connection, session, response, last);
                return done;
            }
            ("session/resume", Some(id)) => {
                let response = message::result(&id, &setup_for_client(&stored.setup));
                hub.attach_without_history(&mut state, connection, session, response, last);
                return done;
            }
            ("session/close", Some(id)) => {
                hub.detach(&mut state, connection, session);
                hub.respond(&mut state, connection, None, &id, message::result(&id, &json!({})));
                return done;
            }
            _ => {}
        }
        hub.ensure_attached(&mut state, connection, session, last);
        (ids, principal)
    };
    store.forward(session, &ids, &principal, message).await
}
