//! What serves the other side's messages, and the signal that tells a handler to stop.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use agent_client_protocol_schema::v1::{Error, RequestId};
use bowline_state::failure::Failure;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::body::Body;
use crate::methods;
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
    ///
    /// # Errors
    /// Fails if the params are a guess and cannot be read; then the request is offered again with care. Nothing may
    /// have changed.
    fn request(&mut self, request: Incoming<'_>) -> Result<Answer, Unproven>;

    /// Takes a notification. The next notification waits until the future is done.
    ///
    /// # Errors
    /// Fails as [`Service::request`] does.
    fn notification(&mut self, method: &str, params: Params<'_>) -> Result<Option<BoxFuture<()>>, Unproven>;

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
    pub params: Params<'a>,
    /// Fires when the answer is no longer wanted.
    pub cancel: CancelSignal,
}

/// The params of a message, unread.
#[derive(Debug, Clone, Copy)]
pub enum Params<'a> {
    /// They are JSON.
    Checked(&'a RawValue),
    /// There are none.
    Missing,
    /// They should be JSON, and are if they can be read as a whole.
    Guess(&'a str),
}

/// The params were a guess and could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the params are not what they were guessed to be")]
pub struct Unproven;

impl<'a> Params<'a> {
    /// Returns the params as text; an empty object if there are none.
    #[must_use]
    pub fn text(self) -> &'a str {
        match self {
            Params::Checked(params) => params.get(),
            Params::Missing => "{}",
            Params::Guess(params) => params,
        }
    }

    /// Reads the params. What is wrong with them is only known when they are no guess.
    ///
    /// # Errors
    /// Fails if a guess could not be read.
    pub fn read<T: DeserializeOwned>(self) -> Result<Result<T, serde_json::Error>, Unproven> {
        match methods::decode(self.text()) {
            Err(_) if matches!(self, Params::Guess(_)) => Err(Unproven),
            read => Ok(read),
        }
    }

    /// Fails if the params are a guess: for whoever does not read them.
    ///
    /// # Errors
    /// Fails if the params are a guess.
    pub fn checked(self) -> Result<Self, Unproven> {
        match self {
            Params::Guess(_) => Err(Unproven),
            checked => Ok(checked),
        }
    }
}

impl<'a> From<Option<&'a RawValue>> for Params<'a> {
    fn from(params: Option<&'a RawValue>) -> Self {
        params.map_or(Params::Missing, Params::Checked)
    }
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
    answered: AtomicBool,
    waiting_for_answer: Notify,
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

    /// Says that the request's answer is on its way: whatever is sent from now on leaves after it.
    pub(crate) fn settle(&self) {
        if !self.state.answered.swap(true, Ordering::AcqRel) {
            self.state.waiting_for_answer.notify_waiters();
        }
    }

    /// Waits until the request's answer is on its way.
    pub(crate) async fn settled(&self) {
        let notified = self.state.waiting_for_answer.notified();
        if !self.state.answered.load(Ordering::Acquire) {
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
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(Err(panicked())))
    }
}

/// Runs a part of the service. A panic in it must not end the connection.
pub(crate) fn guard<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// The answer to a request whose handler panicked.
pub(crate) fn panicked() -> Error {
    Failure::Internal { reason: "the handler of this request failed unexpectedly".to_owned() }.into()
}
