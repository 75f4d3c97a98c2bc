//! Interceptors: they see the messages of interest, and hold, replace, answer or handle them.

use bowline_protocol::relay::{ProxySide, RelayEvent};
use bowline_protocol::schema::v1::{Error, RequestId};
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

pub use bowline_wire::service::BoxFuture;

/// A message of interest, before it is forwarded.
#[derive(Debug, Clone, Copy)]
pub struct InterceptedMessage<'a> {
    /// The sender.
    pub from: ProxySide,
    /// Its meaning.
    pub fact: &'a RelayEvent,
    /// The id of the request, or of the request that is answered, as its sender knows it.
    pub id: Option<&'a RequestId>,
    /// The whole line, including its line end: cheap to clone.
    pub line: &'a Bytes,
}

/// What happens to a message.
#[derive(Debug)]
pub enum Disposition {
    /// It is forwarded unchanged.
    Pass,
    /// These lines are forwarded in its place, in this order; include the message itself to add lines before or after
    /// it. A request must keep its id. An empty list drops a notification or an answer; a request must not be dropped.
    Replace(Vec<Vec<u8>>),
    /// The request is not forwarded: its sender gets this answer.
    Answer(Result<Box<RawValue>, Error>),
    /// As `Answer`, and the signal is sent once the answer is queued: lines for its sender that are queued after that
    /// follow the answer.
    AnswerAndSignal(Result<Box<RawValue>, Error>, oneshot::Sender<()>),
    /// The message goes to the proxy's own end, whose service answers it if it is a request.
    HandleLocally,
}

/// Whether later messages of the same side may overtake a held message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOrder {
    /// No: nothing further of that side is processed until the future completes, so the future must not wait for that
    /// side.
    Keep,
    /// Yes.
    Overtake,
}

/// The decision about a message.
pub enum InterceptDecision {
    /// The disposition is known now.
    Now(Disposition),
    /// The disposition is known when the future completes; until then the message is held.
    Later(MessageOrder, BoxFuture<'static, Disposition>),
}

impl InterceptDecision {
    /// Forwards the message unchanged.
    pub const PASS: Self = Self::Now(Disposition::Pass);
}

/// An interceptor between the editor and the agent. The task that forwards messages calls it in message order, so it
/// must return quickly: slow work belongs in [`InterceptDecision::Later`].
pub trait Interceptor: Send {
    /// Inspects a message of interest.
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision;
}

/// An interceptor that may be absent: then every message passes.
impl<I: Interceptor> Interceptor for Option<I> {
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision {
        self.as_mut().map_or(InterceptDecision::PASS, |interceptor| interceptor.intercept(message))
    }
}
