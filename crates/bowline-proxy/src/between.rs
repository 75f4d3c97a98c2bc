//! Whoever stands between: sees the messages that matter, and holds, changes, answers or takes them.

use bowline_state::relay::{Fact, Side};
use bowline_state::schema::v1::{Error, RequestId};
use bytes::Bytes;
use serde_json::value::RawValue;

pub use bowline_wire::service::BoxFuture;

/// A message that matters, before it goes on.
#[derive(Debug)]
pub struct Passing<'a> {
    /// Who sent it.
    pub from: Side,
    /// What it says.
    pub fact: &'a Fact,
    /// The id of the request, or of the one that is answered, as whoever asked knows it.
    pub id: Option<&'a RequestId>,
    /// The whole line, with its end: cheap to clone.
    pub line: &'a Bytes,
}

/// What becomes of a message.
#[derive(Debug)]
pub enum Deed {
    /// It goes on as it is.
    Pass,
    /// These lines go on in its place, in this order: with it among them something is added before or after it. A request
    /// has to keep its id. Without any, a notification or an answer is dropped; a request must not be.
    Instead(Vec<Vec<u8>>),
    /// The request does not go on: its sender gets this answer.
    Answer(Result<Box<RawValue>, Error>),
    /// The message goes to the proxy's own end, whose service answers it if it is a request.
    Take,
}

/// Whether what the same side sends later may go on before a message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// No: nothing of that side is looked at until then. What waits so must not wait for that side itself.
    Keep,
    /// Yes.
    Overtake,
}

/// What is decided about a message.
pub enum Decision {
    /// This becomes of it.
    Now(Deed),
    /// What becomes of it is known when the future is done; until then it waits.
    Later(Order, BoxFuture<Deed>),
}

impl Decision {
    /// It goes on as it is.
    pub const PASS: Self = Self::Now(Deed::Pass);
}

/// Whoever stands between the editor and the agent. It is called in the order of the messages, by the task that passes
/// them on, and should not take long: what does goes into [`Decision::Later`].
pub trait Between: Send {
    /// Looks at a message that matters.
    fn look(&mut self, passing: Passing<'_>) -> Decision;
}

/// Several, one behind the other: each sees a message until one decides something else than to pass it.
#[derive(Default)]
pub struct Chain(pub Vec<Box<dyn Between>>);

impl Between for Chain {
    fn look(&mut self, passing: Passing<'_>) -> Decision {
        for link in &mut self.0 {
            let Passing { from, fact, id, line } = passing;
            match link.look(Passing { from, fact, id, line }) {
                Decision::Now(Deed::Pass) => {}
                decided => return decided,
            }
        }
        Decision::PASS
    }
}
