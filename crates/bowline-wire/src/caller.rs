//! The sending half of a connection: requests that wait for their answer, and notifications.

use std::borrow::Cow;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use bowline_protocol::capabilities::CapabilityError;
use bowline_protocol::capabilities::version::UnsupportedVersionError;
use bowline_protocol::file_extension::{BatchError, FileError};
use bowline_protocol::rpc_error::{self, RpcError};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::message::body::JsonBody;
use crate::message::methods::{RpcNotification, RpcRequest};
use crate::peer::SendRequestError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The other side answered with an error.
    #[error("{}", rpc_error::describe_error(.0))]
    ErrorResponse(Error),
    /// The other side did not advertise this, so the request was not sent.
    #[error(transparent)]
    NotAdvertised(#[from] CapabilityError),
    /// The other side supports no protocol version that we support.
    #[error(transparent)]
    UnsupportedVersion(#[from] UnsupportedVersionError),
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// The request was not sent.
    #[error(transparent)]
    NotSent(#[from] SendRequestError),
    /// The answer does not match the method. It is kept as it came.
    #[error("the answer to {method} cannot be read: {reason}")]
    Unreadable {
        /// The method that was called.
        method: Cow<'static, str>,
        /// What is wrong with the answer.
        reason: String,
        /// The answer.
        answer: Box<RawValue>,
    },
    /// The params cannot be serialised as JSON.
    #[error("the params cannot be sent: {0}")]
    InvalidParams(serde_json::Error),
    /// A notification handler waits for this call while reading is paused because too many notifications wait for the
    /// handler. It is not detected in a task that the handler has spawned.
    #[error("the answer is behind notifications that wait for the caller")]
    WouldDeadlock,
}

impl CallError {
    /// Returns why the other side did not carry out a file operation; `None` if it did not answer that it failed.
    #[must_use]
    pub fn file_error(&self) -> Option<FileError> {
        self.batch_error().map(|failure| failure.error)
    }

    /// Returns why the other side did not carry out a batch, and which operation failed.
    #[must_use]
    pub fn batch_error(&self) -> Option<BatchError> {
        match self {
            CallError::ErrorResponse(error) => Some(BatchError::from_error(error)),
            CallError::NotAdvertised(_)
            | CallError::UnsupportedVersion(_)
            | CallError::Closed
            | CallError::NotSent(_)
            | CallError::Unreadable { .. }
            | CallError::InvalidParams(_)
            | CallError::WouldDeadlock => None,
        }
    }
}

impl From<CallError> for Error {
    /// Returns the error that a handler answers with when a call that it needed failed.
    fn from(error: CallError) -> Self {
        match error {
            CallError::ErrorResponse(error) => error,
            CallError::NotAdvertised(missing) => RpcError::from(missing).into(),
            other => RpcError::Internal { reason: other.to_string() }.into(),
        }
    }
}

/// Sends requests and notifications to the other side. Clones are cheap and share the connection.
#[derive(Debug, Clone)]
pub struct Caller {
    inner: Arc<CallerInner>,
}

/// The link to the task that owns the connection.
#[derive(Debug)]
struct CallerInner {
    outgoing: mpsc::Sender<OutgoingMessage>,
    control: Arc<ControlSignals>,
    reading_paused: watch::Receiver<bool>,
    next_id: AtomicI64,
}

/// Signals that must reach the connection however full its queue is.
#[derive(Debug, Default)]
pub(crate) struct ControlSignals {
    // Lets the connection check without taking the lock.
    has_pending: AtomicBool,
    pending: Mutex<PendingSignals>,
    // Whether calls are no longer answered. Unlike the others, this signal comes from the connection.
    is_remote_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct PendingSignals {
    // At most one entry for each outstanding request, whose number is bounded.
    cancelled: Vec<i64>,
    close_requested: bool,
    waker: Option<Waker>,
}

impl ControlSignals {
    fn push(&self, update: impl FnOnce(&mut PendingSignals)) {
        let mut signals = self.lock();
        update(&mut signals);
        self.has_pending.store(true, Ordering::Release);
        if let Some(waker) = &signals.waker {
            waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingSignals> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that calls are no longer answered.
    pub(crate) fn set_remote_closed(&self) {
        self.is_remote_closed.store(true, Ordering::Release);
    }

    /// Sets the waker for the next signal.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.lock().waker = Some(waker.clone());
    }

    /// Returns the cancelled calls since the last time and whether the connection is to be closed.
    pub(crate) fn take(&self) -> Option<(Vec<i64>, bool)> {
        if !self.has_pending.load(Ordering::Acquire) {
            return None;
        }
        let mut signals = self.lock();
        self.has_pending.store(false, Ordering::Release);
        Some((std::mem::take(&mut signals.cancelled), signals.close_requested))
    }
}

/// A message for the connection to send.
#[derive(Debug)]
pub(crate) enum OutgoingMessage {
    Request {
        id: i64,
        method: Cow<'static, str>,
        params: JsonBody,
        reply: ResponseSender,
        order: ResponseOrder,
    },
    Notification {
        method: Cow<'static, str>,
        params: JsonBody,
    },
    Response {
        id: RequestId,
        result: Result<JsonBody, Error>,
    },
}

/// When an answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseOrder {
    /// After every preceding notification has been handled.
    AfterNotifications,
    /// Immediately.
    Immediate,
}

/// Delivers an answer to its waiting call.
pub(crate) struct ResponseSender(Box<dyn ResponseWaiter>);

impl ResponseSender {
    pub(crate) fn send(self, outcome: Result<&RawValue, CallError>) {
        self.0.complete(outcome);
    }

    /// Tries to deliver a text as the answer. Returns the sender if the text cannot be parsed.
    pub(crate) fn try_send(self, text: &str) -> Result<(), ResponseSender> {
        self.0.try_complete(text).map_err(ResponseSender)
    }

    /// Returns whether the call was dropped.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_dropped()
    }
}

impl std::fmt::Debug for ResponseSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

/// A call that waits for an answer, of any type.
trait ResponseWaiter: Send {
    fn complete(self: Box<Self>, outcome: Result<&RawValue, CallError>);
    fn try_complete(self: Box<Self>, text: &str) -> Result<(), Box<dyn ResponseWaiter>>;
    fn is_dropped(&self) -> bool;
}

/// Parses the answer with `read` and sends it.
struct TypedResponseWaiter<T> {
    method: Cow<'static, str>,
    sender: oneshot::Sender<Result<T, CallError>>,
    read: fn(&str) -> Result<T, serde_json::Error>,
}

impl<T: Send + 'static> ResponseWaiter for TypedResponseWaiter<T> {
    fn complete(self: Box<Self>, outcome: Result<&RawValue, CallError>) {
        let TypedResponseWaiter { method, sender, read } = *self;
        let answer = outcome.and_then(|answer| {
            read(answer.get()).map_err(|error| CallError::Unreadable {
                method,
                reason: rpc_error::describe_json_error(&error),
                answer: answer.to_owned(),
            })
        });
        // Sending fails only if the call was dropped.
        drop(sender.send(answer));
    }

    fn try_complete(self: Box<Self>, text: &str) -> Result<(), Box<dyn ResponseWaiter>> {
        match (self.read)(text) {
            Ok(answer) => {
                drop(self.sender.send(Ok(answer)));
                Ok(())
            }
            Err(_) => Err(self),
        }
    }

    fn is_dropped(&self) -> bool {
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
    pub(crate) fn new(
        queue: usize,
    ) -> (Self, mpsc::Receiver<OutgoingMessage>, Arc<ControlSignals>, watch::Sender<bool>) {
        let (outgoing, receiver) = mpsc::channel(queue.max(1));
        let control = Arc::new(ControlSignals::default());
        let (pause_sender, reading_paused) = watch::channel(false);
        let inner = CallerInner {
            outgoing,
            control: Arc::clone(&control),
            reading_paused,
            next_id: AtomicI64::new(0),
        };
        (Caller { inner: Arc::new(inner) }, receiver, control, pause_sender)
    }

    /// Queues a handler's answer. If the connection is gone, the answer is dropped.
    pub(crate) async fn respond(&self, id: RequestId, answer: Result<JsonBody, Error>) {
        drop(self.inner.outgoing.send(OutgoingMessage::Response { id, result: answer }).await);
    }

    /// Sends a request and waits for its answer. Dropping the future cancels the request and notifies the other side.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn call<R: RpcRequest>(&self, request: &R) -> Result<R::Response, CallError> {
        let order =
            if R::AFTER_NOTIFICATIONS { ResponseOrder::AfterNotifications } else { ResponseOrder::Immediate };
        self.call_with(Cow::Borrowed(R::METHOD), order, || request.to_body(), R::response_from_json).await
    }

    /// Sends a request and waits for its answer. When `abandoned` completes first, the request is cancelled, but an
    /// answer that still comes is returned, so that a resource that the other side created and names in it is not
    /// lost.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn call_until<R: RpcRequest>(
        &self,
        request: &R,
        abandoned: impl Future<Output = ()>,
    ) -> Result<R::Response, CallError> {
        let order =
            if R::AFTER_NOTIFICATIONS { ResponseOrder::AfterNotifications } else { ResponseOrder::Immediate };
        let (id, mut receiver) = self
            .send_request(Cow::Borrowed(R::METHOD), order, || request.to_body(), R::response_from_json)
            .await?;
        let mut guard = CancelOnDrop { id, control: Some(&self.inner.control) };
        let answer = tokio::select! {
            biased;
            answer = &mut receiver => answer,
            () = abandoned => {
                let cancel = CancelRequestNotification::new(RequestId::Number(id));
                let params = JsonBody::from_value(&cancel).map_err(CallError::InvalidParams)?;
                self.notify_raw(PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, params).await?;
                receiver.await
            }
        };
        guard.control = None;
        answer.unwrap_or(Err(CallError::Closed))
    }

    /// Sends a request that the protocol does not define, and waits for its raw answer.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn call_raw(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: JsonBody,
    ) -> Result<Box<RawValue>, CallError> {
        self.call_with(
            method.into(),
            ResponseOrder::Immediate,
            || Ok(params),
            |answer| serde_json::from_str(answer),
        )
        .await
    }

    /// Sends a notification. Waits while the queue is full, and returns once the notification is queued.
    ///
    /// # Errors
    /// Fails when the connection is closed, or with [`CallError::WouldDeadlock`].
    pub async fn notify<N: RpcNotification>(&self, notification: &N) -> Result<(), CallError> {
        let permit = self.reserve().await?;
        let params = notification.to_body().map_err(CallError::InvalidParams)?;
        permit.send(OutgoingMessage::Notification { method: Cow::Borrowed(N::METHOD), params });
        Ok(())
    }

    /// Sends a notification that the protocol does not define.
    ///
    /// # Errors
    /// Fails when the connection is closed.
    pub async fn notify_raw(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: JsonBody,
    ) -> Result<(), CallError> {
        self.reserve().await?.send(OutgoingMessage::Notification { method: method.into(), params });
        Ok(())
    }

    /// Closes the connection once the queue has been written, or the drain timeout has passed. Requests of the other
    /// side that are unanswered by then stay unanswered; their handlers are told to stop.
    pub fn close(&self) {
        self.inner.control.push(|signals| signals.close_requested = true);
    }

    /// Returns whether calls are no longer answered because the other side has closed its end. It may still read
    /// ours.
    #[must_use]
    pub fn is_remote_closed(&self) -> bool {
        self.inner.control.is_remote_closed.load(Ordering::Acquire)
    }

    /// Waits until the connection is closed by either side.
    pub async fn closed(&self) {
        self.inner.outgoing.closed().await;
    }

    /// Waits for room in the queue. A notification handler does not wait while reading is paused on its account.
    async fn reserve(&self) -> Result<mpsc::Permit<'_, OutgoingMessage>, CallError> {
        let permit = self.inner.outgoing.reserve();
        if is_in_notification() {
            let mut paused = self.inner.reading_paused.clone();
            return tokio::select! {
                biased;
                permit = permit => permit.map_err(|_| CallError::Closed),
                Ok(_) = paused.wait_for(|paused| *paused) => Err(CallError::WouldDeadlock),
            };
        }
        permit.await.map_err(|_| CallError::Closed)
    }

    async fn call_with<T: Send + 'static>(
        &self,
        method: Cow<'static, str>,
        order: ResponseOrder,
        params: impl FnOnce() -> Result<JsonBody, serde_json::Error>,
        read: fn(&str) -> Result<T, serde_json::Error>,
    ) -> Result<T, CallError> {
        let is_nested = is_in_notification();
        // Its answer cannot wait for the notification that the caller is handling.
        let order = if is_nested { ResponseOrder::Immediate } else { order };
        let (id, receiver) = self.send_request(method, order, params, read).await?;
        let mut guard = CancelOnDrop { id, control: Some(&self.inner.control) };
        let answer = if is_nested {
            let mut paused = self.inner.reading_paused.clone();
            tokio::select! {
                biased;
                answer = receiver => answer,
                Ok(_) = paused.wait_for(|paused| *paused) => return Err(CallError::WouldDeadlock),
            }
        } else {
            receiver.await
        };
        guard.control = None;
        answer.unwrap_or(Err(CallError::Closed))
    }

    /// Queues a request. Returns its id, and the receiver of its answer.
    async fn send_request<T: Send + 'static>(
        &self,
        method: Cow<'static, str>,
        order: ResponseOrder,
        params: impl FnOnce() -> Result<JsonBody, serde_json::Error>,
        read: fn(&str) -> Result<T, serde_json::Error>,
    ) -> Result<(i64, oneshot::Receiver<Result<T, CallError>>), CallError> {
        let permit = self.reserve().await?;
        let params = params().map_err(CallError::InvalidParams)?;
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let reply = ResponseSender(Box::new(TypedResponseWaiter { method: method.clone(), sender, read }));
        permit.send(OutgoingMessage::Request { id, method, params, reply, order });
        Ok((id, receiver))
    }
}

/// Cancels a request that is dropped before its answer came.
struct CancelOnDrop<'a> {
    id: i64,
    control: Option<&'a ControlSignals>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(control) = self.control {
            control.push(|signals| signals.cancelled.push(self.id));
        }
    }
}
