//! The service that handles the other side's messages, and the signal that tells a handler to stop.

pub(crate) mod context;
pub(crate) mod dispatch;

pub use futures_util::future::BoxFuture;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use agent_client_protocol_schema::v1::{Error, RequestId};
use bowline_protocol::rpc_error::RpcError;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::message::body::JsonBody;
use crate::peer::RpcViolation;

/// A service's response to a request.
pub enum ServiceResponse {
    /// An immediate answer.
    Ready(Result<JsonBody, Error>),
    /// The answer is this future's result. If it panics, the request is answered with an error.
    Deferred(BoxFuture<'static, Result<JsonBody, Error>>),
}

/// Handles the messages of the other side. The connection owns it and calls it in the order of arrival.
///
/// A returned future is first polled on the connection's own task, so that a quick answer costs no task switch; only
/// when it is pending does it become its own task. Long computations belong in `tokio::task::spawn_blocking`.
pub trait Service: Send + 'static {
    /// Handles a request.
    ///
    /// # Errors
    /// Fails if the params are unchecked and cannot be parsed; the request is then offered again with checked params.
    /// The state must be unchanged.
    fn handle_request(
        &mut self,
        request: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError>;

    /// Handles a notification. The next notification waits until the future completes.
    ///
    /// # Errors
    /// Fails as [`Service::handle_request`] does.
    fn handle_notification(
        &mut self,
        method: &str,
        params: RawParams<'_>,
    ) -> Result<Option<BoxFuture<'static, ()>>, UncheckedParamsError>;

    /// Handles a protocol violation by the other side.
    fn handle_violation(&mut self, violation: RpcViolation) {
        drop(violation);
    }
}

/// A request of the other side.
#[derive(Debug)]
pub struct IncomingRequest<'a> {
    /// The id.
    pub id: RequestId,
    /// The method.
    pub method: &'a str,
    /// The params as they came.
    pub params: RawParams<'a>,
    /// Fires when the answer is no longer wanted.
    pub cancel: CancelSignal,
}

/// The params of a message, unparsed.
#[derive(Debug, Clone, Copy)]
pub enum RawParams<'a> {
    /// Valid JSON.
    Checked(&'a RawValue),
    /// No params.
    Missing,
    /// Presumed JSON, which is proven only by parsing it as a whole.
    Unchecked(&'a str),
}

/// The params were unchecked and could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the params are not what they were guessed to be")]
pub struct UncheckedParamsError;

impl<'a> RawParams<'a> {
    /// Returns the params as text; an empty object if there are none.
    #[must_use]
    pub fn text(self) -> &'a str {
        match self {
            RawParams::Checked(params) => params.get(),
            RawParams::Missing => "{}",
            RawParams::Unchecked(params) => params,
        }
    }

    /// Parses the params with a function. Its errors are only reported for checked params.
    ///
    /// # Errors
    /// Fails if unchecked params could not be parsed.
    pub fn parse_with<T>(
        self,
        parse: impl FnOnce(&str) -> Result<T, serde_json::Error>,
    ) -> Result<Result<T, serde_json::Error>, UncheckedParamsError> {
        match parse(self.text()) {
            Err(_) if matches!(self, RawParams::Unchecked(_)) => Err(UncheckedParamsError),
            read => Ok(read),
        }
    }

    /// Requires checked params, for callers that do not parse them.
    ///
    /// # Errors
    /// Fails if the params are unchecked.
    pub fn require_checked(self) -> Result<Self, UncheckedParamsError> {
        match self {
            RawParams::Unchecked(_) => Err(UncheckedParamsError),
            checked => Ok(checked),
        }
    }
}

impl<'a> From<Option<&'a RawValue>> for RawParams<'a> {
    fn from(params: Option<&'a RawValue>) -> Self {
        params.map_or(RawParams::Missing, RawParams::Checked)
    }
}

/// Tells a handler that its answer is no longer wanted.
#[derive(Debug, Clone, Default)]
pub struct CancelSignal {
    state: Arc<CancelSignalState>,
}

#[derive(Debug, Default)]
struct CancelSignalState {
    is_fired: AtomicBool,
    cancel_waiters: Notify,
    is_answered: AtomicBool,
    answer_waiters: Notify,
}

impl CancelSignal {
    /// Creates a signal that has not fired.
    #[must_use]
    pub fn new() -> Self {
        CancelSignal::default()
    }

    /// Fires the signal. Firing is idempotent.
    pub fn fire(&self) {
        if !self.state.is_fired.swap(true, Ordering::AcqRel) {
            self.state.cancel_waiters.notify_waiters();
        }
    }

    /// Returns whether the signal has fired.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.state.is_fired.load(Ordering::Acquire)
    }

    /// Waits until the signal fires.
    pub async fn fired(&self) {
        let notified = self.state.cancel_waiters.notified();
        if !self.is_fired() {
            notified.await;
        }
    }

    /// Marks the request as answered: messages sent from now on leave after the answer.
    pub(crate) fn mark_answered(&self) {
        if !self.state.is_answered.swap(true, Ordering::AcqRel) {
            self.state.answer_waiters.notify_waiters();
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.state.is_answered.load(Ordering::Acquire)
    }

    /// Waits until the request is answered.
    pub(crate) async fn answered(&self) {
        let notified = self.state.answer_waiters.notified();
        if !self.is_answered() {
            notified.await;
        }
    }
}

/// Runs a handler and turns its panic into an error. The panic message is not sent: it may quote secrets.
pub(crate) struct CatchPanic<T>(pub(crate) BoxFuture<'static, Result<T, Error>>);

impl<T> Future for CatchPanic<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(Err(panic_error())))
    }
}

/// Runs a part of the service. A panic in it must not end the connection.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Returns the answer to a request whose handler panicked.
pub(crate) fn panic_error() -> Error {
    RpcError::Internal { reason: "the handler of this request failed unexpectedly".to_owned() }.into()
}
