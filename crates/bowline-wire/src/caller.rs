//! The way to the other side: requests that wait for their answer, and notifications.

use std::borrow::Cow;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use bowline_state::capabilities::NotAdvertised;
use bowline_state::failure::{self, Failure};
use bowline_state::version::UnsupportedVersion;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::body::Body;
use crate::methods::{self, Notification, Request};
use crate::peer::NotSent;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The other side answered with an error.
    #[error("{}", failure::error_text(.0))]
    Refused(Error),
    /// The other side did not say that it offers this, so it was not asked.
    #[error(transparent)]
    NotAdvertised(#[from] NotAdvertised),
    /// The other side speaks no version of the protocol that we do.
    #[error(transparent)]
    Version(#[from] UnsupportedVersion),
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// The request was not sent.
    #[error(transparent)]
    NotSent(#[from] NotSent),
    /// The answer came, but is not what the method answers. It is kept as it came.
    #[error("the answer to {method} cannot be read: {reason}")]
    Unreadable {
        /// The method that was called.
        method: Cow<'static, str>,
        /// What is wrong with the answer.
        reason: String,
        /// The answer.
        answer: Box<RawValue>,
    },
    /// The params cannot be written as JSON.
    #[error("the params cannot be sent: {0}")]
    Params(serde_json::Error),
    /// A notification handler waits for this, while reading has stopped because too many notifications wait for the
    /// handler. A task that the handler has spawned is not told.
    #[error("the answer is behind notifications that wait for the caller")]
    Jammed,
}

impl From<CallError> for Error {
    /// What a handler answers when a call that it needed failed.
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(error) => error,
            CallError::NotAdvertised(missing) => Failure::from(missing).into(),
            other => Failure::Internal { reason: other.to_string() }.into(),
        }
    }
}

/// Sends requests and notifications to the other side. Clones send on the same connection, and are cheap.
#[derive(Debug, Clone)]
pub struct Caller {
    line: Arc<Line>,
}

/// The way to the task that owns the connection.
#[derive(Debug)]
struct Line {
    commands: mpsc::Sender<Command>,
    urgent: Arc<Urgent>,
    jammed: watch::Receiver<bool>,
    next_id: AtomicI64,
}

/// What the connection must learn however full its queue is.
#[derive(Debug, Default)]
pub(crate) struct Urgent {
    // Lets the connection look without taking the lock.
    some: AtomicBool,
    notes: Mutex<Notes>,
    // Whether no call will be answered any more. The other way round than the rest: the connection says it.
    deaf: AtomicBool,
}

#[derive(Debug, Default)]
struct Notes {
    // Holds at most one entry for each outstanding request, and those are bounded.
    cancelled: Vec<i64>,
    close: bool,
    waker: Option<Waker>,
}

impl Urgent {
    fn note(&self, note: impl FnOnce(&mut Notes)) {
        let mut notes = self.lock();
        note(&mut notes);
        self.some.store(true, Ordering::Release);
        if let Some(waker) = &notes.waker {
            waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that no call will be answered any more.
    pub(crate) fn deafen(&self) {
        self.deaf.store(true, Ordering::Release);
    }

    /// Sets who is woken by the next note.
    pub(crate) fn wake(&self, waker: &Waker) {
        self.lock().waker = Some(waker.clone());
    }

    /// Returns the calls that were cancelled and whether the connection is to be closed, since the last time.
    pub(crate) fn take(&self) -> Option<(Vec<i64>, bool)> {
        if !self.some.load(Ordering::Acquire) {
            return None;
        }
        let mut notes = self.lock();
        self.some.store(false, Ordering::Release);
        Some((std::mem::take(&mut notes.cancelled), notes.close))
    }
}

/// What the connection is asked to send.
#[derive(Debug)]
pub(crate) enum Command {
    Call { id: i64, method: Cow<'static, str>, params: Body, reply: Reply, order: Order },
    Notify { method: Cow<'static, str>, params: Body },
    Answer { id: RequestId, answer: Result<Body, Error> },
}

/// When an answer is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// After every notification that came before it has been handled.
    AfterNotifications,
    /// At once.
    AtOnce,
}

/// Hands an answer to whoever waits for it.
pub(crate) struct Reply(Box<dyn Waiter>);

impl Reply {
    pub(crate) fn send(self, outcome: Result<&RawValue, CallError>) {
        self.0.answer(outcome);
    }

    /// Hands over a text that should be the answer. Returns the reply if the text could not be read.
    pub(crate) fn offer(self, text: &str) -> Result<(), Reply> {
        self.0.offer(text).map_err(Reply)
    }

    /// Whether the call was dropped.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.0.is_gone()
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

/// Somebody who waits for an answer, of whatever type.
trait Waiter: Send {
    fn answer(self: Box<Self>, outcome: Result<&RawValue, CallError>);
    fn offer(self: Box<Self>, text: &str) -> Result<(), Box<dyn Waiter>>;
    fn is_gone(&self) -> bool;
}

/// Reads the answer with `read` and sends it.
struct Reading<T> {
    method: Cow<'static, str>,
    sender: oneshot::Sender<Result<T, CallError>>,
    read: fn(&str) -> Result<T, serde_json::Error>,
}

impl<T: Send + 'static> Waiter for Reading<T> {
    fn answer(self: Box<Self>, outcome: Result<&RawValue, CallError>) {
        let Reading { method, sender, read } = *self;
        let answer = outcome.and_then(|answer| {
            read(answer.get()).map_err(|error| CallError::Unreadable {
                method,
                reason: methods::reason(&error),
                answer: answer.to_owned(),
            })
        });
        // Nobody listens any more when the call was dropped.
        drop(sender.send(answer));
    }

    fn offer(self: Box<Self>, text: &str) -> Result<(), Box<dyn Waiter>> {
        match (self.read)(text) {
            Ok(answer) => {
                drop(self.sender.send(Ok(answer)));
                Ok(())
            }
            Err(_) => Err(self),
        }
    }

    fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }
}

tokio::task_local! {
    /// Set while a notification handler is polled.
    pub(crate) static IN_NOTIFICATION: ();
}

fn is_in_notification() -> bool {
    IN_NOTIFICATION.try_with(|()| ()).is_ok()
}

impl Caller {
    pub(crate) fn new(queue: usize) -> (Self, mpsc::Receiver<Command>, Arc<Urgent>, watch::Sender<bool>) {
        let (commands, commands_out) = mpsc::channel(queue.max(1));
        let urgent = Arc::new(Urgent::default());
        let (jam, jammed) = watch::channel(false);
        let line = Line { commands, urgent: Arc::clone(&urgent), jammed, next_id: AtomicI64::new(0) };
        (Caller { line: Arc::new(line) }, commands_out, urgent, jam)
    }

    /// Queues the answer of a handler. When the connection is gone, nobody waits for it.
    pub(crate) async fn answer(&self, id: RequestId, answer: Result<Body, Error>) {
        drop(self.line.commands.send(Command::Answer { id, answer }).await);
    }

    /// Sends a request and waits for its answer. Dropping the future cancels the request and tells the other side.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, CallError> {
        let order = if R::AFTER_NOTIFICATIONS { Order::AfterNotifications } else { Order::AtOnce };
        self.send(Cow::Borrowed(R::METHOD), order, || Body::of(request), methods::decode).await
    }

    /// Sends a request and waits for its answer, also once `given_up` is done: then the other side is told that the request
    /// is cancelled, and what it answers all the same is still returned. So nothing is lost that it made and names in its
    /// answer.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn call_until<R: Request>(
        &self,
        request: &R,
        given_up: impl Future<Output = ()>,
    ) -> Result<R::Response, CallError> {
        let order = if R::AFTER_NOTIFICATIONS { Order::AfterNotifications } else { Order::AtOnce };
        let (id, mut receiver) =
            self.post(Cow::Borrowed(R::METHOD), order, || Body::of(request), methods::decode).await?;
        let mut unanswered = CancelOnDrop { id, urgent: Some(&self.line.urgent) };
        let answer = tokio::select! {
            biased;
            answer = &mut receiver => answer,
            () = given_up => {
                let cancel = CancelRequestNotification::new(RequestId::Number(id));
                let params = Body::of(&cancel).map_err(CallError::Params)?;
                self.notify_raw(PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, params).await?;
                receiver.await
            }
        };
        unanswered.urgent = None;
        answer.unwrap_or(Err(CallError::Closed))
    }

    /// Sends a request that the protocol does not define, and waits for its answer as it comes.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn call_raw(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Body,
    ) -> Result<Box<RawValue>, CallError> {
        self.send(method.into(), Order::AtOnce, || Ok(params), |answer| serde_json::from_str(answer)).await
    }

    /// Sends a notification. Waits while too much is queued; then it is on its way.
    ///
    /// # Errors
    /// Fails when the connection is closed, or as [`CallError::Jammed`] says.
    pub async fn notify<N: Notification>(&self, notification: &N) -> Result<(), CallError> {
        let permit = self.room().await?;
        let params = Body::of(notification).map_err(CallError::Params)?;
        permit.send(Command::Notify { method: Cow::Borrowed(N::METHOD), params });
        Ok(())
    }

    /// Sends a notification that the protocol does not define.
    ///
    /// # Errors
    /// Fails when the connection is closed.
    pub async fn notify_raw(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Body,
    ) -> Result<(), CallError> {
        self.room().await?.send(Command::Notify { method: method.into(), params });
        Ok(())
    }

    /// Ends the connection once what is queued has been written, or the time to drain is over. Requests of the other
    /// side that are not answered by then are not answered any more; their handlers are told to stop.
    pub fn close(&self) {
        self.line.urgent.note(|notes| notes.close = true);
    }

    /// Says whether no call will be answered any more, because the other side has closed its end. It may still read ours.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.line.urgent.deaf.load(Ordering::Acquire)
    }

    /// Waits until the connection is closed, by whichever side.
    pub async fn closed(&self) {
        self.line.commands.closed().await;
    }

    /// Waits for room in the queue. A notification handler does not wait while reading has stopped for its sake.
    async fn room(&self) -> Result<mpsc::Permit<'_, Command>, CallError> {
        let room = self.line.commands.reserve();
        if is_in_notification() {
            let mut jammed = self.line.jammed.clone();
            return tokio::select! {
                biased;
                room = room => room.map_err(|_| CallError::Closed),
                Ok(_) = jammed.wait_for(|jammed| *jammed) => Err(CallError::Jammed),
            };
        }
        room.await.map_err(|_| CallError::Closed)
    }

    async fn send<T: Send + 'static>(
        &self,
        method: Cow<'static, str>,
        order: Order,
        params: impl FnOnce() -> Result<Body, serde_json::Error>,
        read: fn(&str) -> Result<T, serde_json::Error>,
    ) -> Result<T, CallError> {
        let inside = is_in_notification();
        // Its answer cannot wait for the notification that the caller handles.
        let order = if inside { Order::AtOnce } else { order };
        let (id, receiver) = self.post(method, order, params, read).await?;
        let mut unanswered = CancelOnDrop { id, urgent: Some(&self.line.urgent) };
        let answer = if inside {
            let mut jammed = self.line.jammed.clone();
            tokio::select! {
                biased;
                answer = receiver => answer,
                Ok(_) = jammed.wait_for(|jammed| *jammed) => return Err(CallError::Jammed),
            }
        } else {
            receiver.await
        };
        unanswered.urgent = None;
        answer.unwrap_or(Err(CallError::Closed))
    }

    /// Puts a request on its way. Returns its id, and where its answer will come.
    async fn post<T: Send + 'static>(
        &self,
        method: Cow<'static, str>,
        order: Order,
        params: impl FnOnce() -> Result<Body, serde_json::Error>,
        read: fn(&str) -> Result<T, serde_json::Error>,
    ) -> Result<(i64, oneshot::Receiver<Result<T, CallError>>), CallError> {
        let permit = self.room().await?;
        let params = params().map_err(CallError::Params)?;
        let id = self.line.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let reply = Reply(Box::new(Reading { method: method.clone(), sender, read }));
        permit.send(Command::Call { id, method, params, reply, order });
        Ok((id, receiver))
    }
}

/// Cancels a request that is dropped before its answer came.
struct CancelOnDrop<'a> {
    id: i64,
    urgent: Option<&'a Urgent>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(urgent) = self.urgent {
            urgent.note(|notes| notes.cancelled.push(self.id));
        }
    }
}
