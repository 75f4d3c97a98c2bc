//! What serves the other side's messages, and the signal that tells a handler to stop.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use agent_client_protocol_schema::v1::{Error, RequestId};
use bowline_state::failure::Failure;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::body::Body;
use crate::peer::Breach;

/// A future on the heap that may move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a handler makes of a request.
pub enum Answer {
    /// The answer is known at once.
    Now(Result<Body, Error>),
    /// The answer comes when this future is done. If it panics, the request is answered with an error.
    Later(BoxFuture<Result<Body, Error>>),
}

/// Serves the messages of the other side. The connection owns it and calls it in the order of arrival.
///
/// A future that is returned is first polled on the connection's own task, so that a quick answer costs no task
/// switch; only when it has to wait does it become a task of its own. Long computations belong in
/// `tokio::task::spawn_blocking`.
pub trait Service: Send + 'static {
    /// Takes a request.
    fn request(&mut self, request: Incoming<'_>) -> Answer;

    /// Takes a notification. The next notification waits until the future is done.
    fn notification(&mut self, method: &str, params: Option<&RawValue>) -> Option<BoxFuture<()>>;

    /// Learns that the other side sent something that the protocol forbids.
    fn breach(&mut self, breach: Breach) {
        drop(breach);
    }
}

/// A request of the other side.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The id it came with.
    pub id: RequestId,
    /// What is asked for.
    pub method: &'a str,
    /// The params as they came.
    pub params: Option<&'a RawValue>,
    /// Fires when the answer is no longer wanted.
    pub cancel: CancelSignal,
}

/// Tells a handler that its answer is no longer wanted.
#[derive(Debug, Clone, Default)]
pub struct CancelSignal {
    state: Arc<SignalState>,
}

/// A signal that does not keep its request alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakSignal {
    state: Weak<SignalState>,
}

#[derive(Debug, Default)]
struct SignalState {
    fired: AtomicBool,
    waiting: Notify,
}

impl CancelSignal {
    /// Makes a signal that has not fired.
    #[must_use]
    pub fn new() -> Self {
        CancelSignal::default()
    }

    /// Fires the signal. Firing it again does nothing.
    pub fn fire(&self) {
        if !self.state.fired.swap(true, Ordering::AcqRel) {
            self.state.waiting.notify_waiters();
        }
    }

    /// Whether the signal has fired.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.state.fired.load(Ordering::Acquire)
    }

    /// Waits until the signal fires.
    pub async fn fired(&self) {
        let notified = self.state.waiting.notified();
        if !self.is_fired() {
            notified.await;
        }
    }

    pub(crate) fn downgrade(&self) -> WeakSignal {
        WeakSignal { state: Arc::downgrade(&self.state) }
    }
}

impl WeakSignal {
    pub(crate) fn upgrade(&self) -> Option<CancelSignal> {
        self.state.upgrade().map(|state| CancelSignal { state })
    }
}

/// Runs a handler and makes an error of its panic. What the panic said stays here: it may quote secrets.
pub(crate) struct NoPanic<T>(pub(crate) BoxFuture<Result<T, Error>>);

impl<T> Future for NoPanic<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))).unwrap_or_else(|_| Poll::Ready(Err(panicked())))
    }
}

/// The answer to a request whose handler panicked.
pub(crate) fn panicked() -> Error {
    Failure::Internal { reason: "the handler of this request failed unexpectedly".to_owned() }.into()
}
