//! The way to the other side: requests that wait for their answer, and notifications.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent_client_protocol_schema::v1::{Error, RequestId};
use bowline_state::capabilities::NotAdvertised;
use bowline_state::failure::Failure;
use bowline_state::version::UnsupportedVersion;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::body::Body;
use crate::methods::{self, Notification, Request};
use crate::peer::NotSent;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The other side answered with an error.
    #[error("{}", .0.message)]
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
    /// A notification handler waits for this answer, and the answer is behind notifications that wait for the
    /// handler.
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

/// Sends requests and notifications to the other side. Clones send on the same connection.
#[derive(Debug, Clone)]
pub struct Caller {
    pub(crate) commands: mpsc::Sender<Command>,
    // Holds at most one message for each outstanding request, and those are bounded.
    control: mpsc::UnboundedSender<Control>,
    next_id: Arc<AtomicI64>,
}

/// What the connection is asked to send.
#[derive(Debug)]
pub(crate) enum Command {
    Call { id: i64, method: Cow<'static, str>, params: Body, reply: Reply, order: Order },
    Notify { method: Cow<'static, str>, params: Body },
    Answer { id: RequestId, answer: Result<Body, Error> },
}

/// What the connection is told at once, however full its queue is.
#[derive(Debug)]
pub(crate) enum Control {
    Cancel(i64),
    Close,
}

/// When an answer is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// After every notification that came before it has been handled.
    AfterNotifications,
    /// At once.
    AtOnce,
    /// At once, and a notification handler waits for it.
    InsideNotification,
}

/// Hands an answer to whoever waits for it.
pub(crate) struct Reply(Box<dyn Waiter>);

impl Reply {
    pub(crate) fn send(self, outcome: Result<&RawValue, CallError>) {
        self.0.answer(outcome);
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
    fn is_gone(&self) -> bool;
}

/// Reads the answer with `read` and sends it.
struct Reading<T, F> {
    method: Cow<'static, str>,
    sender: oneshot::Sender<Result<T, CallError>>,
    read: F,
}

impl<T, F> Waiter for Reading<T, F>
where
    T: Send,
    F: FnOnce(&Cow<'static, str>, &RawValue) -> Result<T, CallError> + Send,
{
    fn answer(self: Box<Self>, outcome: Result<&RawValue, CallError>) {
        let Reading { method, sender, read } = *self;
        // Nobody listens any more when the call was dropped.
        drop(sender.send(outcome.and_then(|answer| read(&method, answer))));
    }

    fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }
}

tokio::task_local! {
    /// Set while a notification handler is polled.
    pub(crate) static IN_NOTIFICATION: ();
}

impl Caller {
    pub(crate) fn new(queue: usize) -> (Self, mpsc::Receiver<Command>, mpsc::UnboundedReceiver<Control>) {
        let (commands, commands_out) = mpsc::channel(queue.max(1));
        let (control, control_out) = mpsc::unbounded_channel();
        (Caller { commands, control, next_id: Arc::default() }, commands_out, control_out)
    }

    /// Sends a request and waits for its answer. Dropping the future cancels the request and tells the other side.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, CallError> {
        let order = if R::AFTER_NOTIFICATIONS { Order::AfterNotifications } else { Order::AtOnce };
        self.send(Cow::Borrowed(R::METHOD), order, || Body::of(request), read_answer).await
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
        let keep = |_: &Cow<'static, str>, answer: &RawValue| Ok(answer.to_owned());
        self.send(method.into(), Order::AtOnce, || Ok(params), keep).await
    }

    /// Sends a notification. Waits while too much is queued; then it is on its way.
    ///
    /// # Errors
    /// Fails when the connection is closed.
    pub async fn notify<N: Notification>(&self, notification: &N) -> Result<(), CallError> {
        let permit = self.commands.reserve().await.map_err(|_| CallError::Closed)?;
        let params = Body::of(notification).map_err(CallError::Params)?;
        permit.send(Command::Notify { method: Cow::Borrowed(N::METHOD), params });
        Ok(())
    }

    /// Sends a notification that the protocol does not define.
    ///
    /// # Errors
    /// Fails when the connection is closed.
    pub async fn notify_raw(&self, method: impl Into<Cow<'static, str>>, params: Body) -> Result<(), CallError> {
        let command = Command::Notify { method: method.into(), params };
        self.commands.send(command).await.map_err(|_| CallError::Closed)
    }

    /// Ends the connection once what is queued has been written.
    pub fn close(&self) {
        // If the connection is gone already, it is closed.
        drop(self.control.send(Control::Close));
    }

    /// Waits until the connection is closed, by whichever side.
    pub async fn closed(&self) {
        self.commands.closed().await;
    }

    async fn send<T: Send + 'static>(
        &self,
        method: Cow<'static, str>,
        order: Order,
        params: impl FnOnce() -> Result<Body, serde_json::Error>,
        read: impl FnOnce(&Cow<'static, str>, &RawValue) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let order = if IN_NOTIFICATION.try_with(|()| ()).is_ok() { Order::InsideNotification } else { order };
        let permit = self.commands.reserve().await.map_err(|_| CallError::Closed)?;
        let params = params().map_err(CallError::Params)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let reply = Reply(Box::new(Reading { method: method.clone(), sender, read }));
        permit.send(Command::Call { id, method, params, reply, order });
        let mut unanswered = CancelOnDrop { id, control: Some(&self.control) };
        let answer = receiver.await;
        unanswered.control = None;
        answer.unwrap_or(Err(CallError::Closed))
    }
}

/// Cancels a request that is dropped before its answer came.
struct CancelOnDrop<'a> {
    id: i64,
    control: Option<&'a mpsc::UnboundedSender<Control>>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(control) = self.control {
            // If the connection is gone already, there is nobody to tell.
            drop(control.send(Control::Cancel(self.id)));
        }
    }
}

fn read_answer<T: DeserializeOwned>(method: &Cow<'static, str>, answer: &RawValue) -> Result<T, CallError> {
    methods::decode(Some(answer)).map_err(|error| CallError::Unreadable {
        method: method.clone(),
        reason: methods::reason(&error),
        answer: answer.to_owned(),
    })
}
