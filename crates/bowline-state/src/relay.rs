//! What a proxy does with each message that passes it: on as it is, on under another id, to the proxy itself, or first to
//! whoever wants to look at it.
//!
//! Between an editor and an agent a third one talks: the proxy, with calls of its own to both. [`Relay`] keeps the three
//! apart by ids. It knows which requests are open, so that each gets its one answer when a side dies, and reads of the
//! messages that matter what they say ([`Fact`]). All others are not read.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::RequestId;
use memchr::memmem;

mod fact;
mod method;
pub mod own_tools;
pub mod servers;

pub use fact::{Fact, Opened, Opening, Read, ToolCallSeen, prompt_text};
pub use method::{Method, is_lookalike_name};

/// How ids begin that the proxy gives out. An id of a peer that begins so is exchanged for one of these.
pub const PREFIX: &str = "bowline-proxy-";

/// So many open requests of each side are known. What is beyond that is passed on all the same, and has no answer if the
/// other side dies.
pub const MAX_OPEN: usize = 16_384;

/// The longest id, in bytes, of a request that is known.
pub const MAX_ID: usize = 1024;

/// One of the two sides that a proxy stands between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client: who has the files and the user.
    Editor,
    /// The agent.
    Agent,
}

impl Side {
    /// Returns the other side.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Editor => Self::Agent,
            Self::Agent => Self::Editor,
        }
    }
}

/// A message, as far as it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'a> {
    /// A request.
    Request(&'a RequestId, &'a str),
    /// A notification.
    Notification(&'a str),
    /// An answer, and whether it is an error.
    Answer(&'a RequestId, bool),
}

/// Where a message goes.
#[derive(Debug, PartialEq)]
pub enum Route {
    /// On to the other side, as it is.
    On,
    /// On, once whoever wants to has looked at it. With another id, if there is one.
    Look(Box<Fact>, Option<RequestId>),
    /// On, with another id.
    Renamed(RequestId),
    /// On, with another id in its params: a cancellation of a request that was renamed.
    Cancel(RequestId),
    /// To the proxy itself: the answer to its own call with this id.
    Own(i64),
    /// To the proxy itself, which took the request that is cancelled.
    Taken,
    /// Nowhere: the request that is cancelled is held, and never goes on.
    GivenUp(RequestId),
    /// Nowhere: the answer to a call of the proxy that it no longer waits for.
    Late,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Open {
    number: u64,
    method: Option<Method>,
    // What the request said that its answer is read with.
    asked: Option<Box<Fact>>,
    at: At,
}

/// Who has a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The other side.
    Other,
    /// Whoever stands between, who has not decided yet what becomes of it.
    Held,
    /// The proxy's own end, which answers it.
    Taken,
}

/// Whose request an id of ours stands for.
#[derive(Debug)]
enum Owner {
    Proxy(i64, Option<Method>),
    Peer(RequestId),
}

/// The requests of one side to the other, and those of the proxy beside them.
#[derive(Debug, Default)]
struct Book {
    // Invariant: at most `MAX_OPEN`, by the id that the side itself uses.
    open: HashMap<RequestId, Open>,
    // Invariant: keys begin with `PREFIX`. At most `MAX_OPEN` of peers; those of the proxy are bounded by who calls.
    given: HashMap<RequestId, Owner>,
    // Invariant: how many of `given` are the proxy's.
    own: usize,
}

/// The messages that pass a proxy.
#[derive(Debug, Default)]
pub struct Relay {
    // What the editor asks of the agent.
    editor: Book,
    // What the agent asks of the editor.
    agent: Book,
    count: u64,
}

impl Relay {
    /// Decides where a message goes that a side sent. `line` is all of it, or none if it is too long to be looked at.
    pub fn see(&mut self, from: Side, seen: Seen<'_>, line: &[u8]) -> Route {
        match seen {
            Seen::Request(id, name) => self.request(from, id, Method::of(name), line),
            Seen::Notification(name) => self.notification(from, Method::of(name), line),
            Seen::Answer(id, is_error) => self.answer(from, id, is_error, line),
        }
    }

    /// Returns the id that a call of the proxy itself to a side goes by.
    pub fn own(&mut self, to: Side, id: i64, method: Option<Method>) -> RequestId {
        let given = self.give();
        let book = self.book(to.other());
        book.given.insert(given.clone(), Owner::Proxy(id, method));
        book.own += 1;
        given
    }

    /// Returns the id by which a side knows the proxy's call, which is cancelled. Its answer still comes.
    #[must_use]
    pub fn own_id(&self, to: Side, id: i64) -> Option<RequestId> {
        let book = if to == Side::Editor { &self.agent } else { &self.editor };
        let mut given = book.given.iter();
        given
            .find(|(_, owner)| matches!(owner, Owner::Proxy(own, _) if *own == id))
            .map(|(given, _)| given.clone())
    }

    /// Gives up calls of the proxy to a side: those of one method, or all. Returns each by the proxy's id and by the one
    /// that the side knows, in the order they were made. Their answers are nobody's.
    pub fn give_up_own(&mut self, to: Side, method: Option<Method>) -> Vec<(i64, RequestId)> {
        let book = self.book(to.other());
        let mut given_up = Vec::new();
        book.given.retain(|given, owner| match owner {
            Owner::Proxy(own, its) if method.is_none() || *its == method => {
                given_up.push((*own, given.clone()));
                false
            }
            _ => true,
        });
        book.own -= given_up.len();
        given_up.sort_unstable_by_key(|(own, _)| *own);
        given_up
    }

    /// Says whether calls of the proxy to a side are open.
    #[must_use]
    pub fn has_own(&self, to: Side) -> bool {
        if to == Side::Editor { self.agent.own > 0 } else { self.editor.own > 0 }
    }

    /// Notes that a request of a side does not go on, but is answered by the proxy.
    pub fn answered(&mut self, from: Side, id: &RequestId) {
        let book = self.book(from);
        book.open.remove(id);
        book.given.retain(|_, owner| !matches!(owner, Owner::Peer(theirs) if theirs == id));
    }

    /// Notes that a request of a side goes to the proxy's own end, which answers it.
    pub fn taken(&mut self, from: Side, id: &RequestId) {
        self.is_at(from, id, At::Taken);
    }

    /// Notes that a request of a side is held.
    pub fn held(&mut self, from: Side, id: &RequestId) {
        self.is_at(from, id, At::Held);
    }

    /// Notes that a request of a side that was held goes on to the other.
    pub fn goes_on(&mut self, from: Side, id: &RequestId) {
        self.is_at(from, id, At::Other);
    }

    fn is_at(&mut self, from: Side, id: &RequestId, at: At) {
        if let Some(open) = self.book(from).open.get_mut(id) {
            open.at = at;
        }
    }

    /// Returns the requests of a side that wait for the other, in the order they came, and forgets them.
    pub fn abandon(&mut self, from: Side) -> Vec<RequestId> {
        let book = self.book(from);
        let mut open: Vec<(u64, RequestId)> = book.open.drain().map(|(id, open)| (open.number, id)).collect();
        open.sort_unstable();
        book.given.clear();
        book.own = 0;
        open.into_iter().map(|(_, id)| id).collect()
    }

    fn book(&mut self, side: Side) -> &mut Book {
        match side {
            Side::Editor => &mut self.editor,
            Side::Agent => &mut self.agent,
        }
    }

    fn give(&mut self) -> RequestId {
        self.count += 1;
        RequestId::Str(format!("{PREFIX}{}", self.count))
    }

    fn request(&mut self, from: Side, id: &RequestId, method: Option<Method>, line: &[u8]) -> Route {
        let number = self.count;
        self.count += 1;
        let renamed = is_ours(id).then(|| self.give());
        let fact = method.and_then(|method| fact::asked(method, line));
        let book = self.book(from);
        if let Some(given) = &renamed {
            book.given.insert(given.clone(), Owner::Peer(id.clone()));
        }
        let is_short = !matches!(id, RequestId::Str(text) if text.len() > MAX_ID);
        if is_short && book.open.len() < MAX_OPEN {
            let asked = fact.as_ref().filter(|fact| fact.is_kept()).cloned().map(Box::new);
            // An id that is in use is the sender's fault; the answer that comes first is for both.
            book.open.insert(id.clone(), Open { number, method, asked, at: At::Other });
        }
        match (fact, renamed) {
            (Some(fact), renamed) => Route::Look(Box::new(fact), renamed),
            (None, Some(given)) => Route::Renamed(given),
            (None, None) => Route::On,
        }
    }

    fn notification(&mut self, from: Side, method: Option<Method>, line: &[u8]) -> Route {
        match method {
            None => Route::On,
            Some(Method::CancelRequest) => {
                let Some(id) = fact::cancelled(line) else { return Route::On };
                let book = self.book(from);
                match book.open.get(&id).map(|open| open.at) {
                    Some(At::Taken) => return Route::Taken,
                    Some(At::Held) => return Route::GivenUp(id),
                    Some(At::Other) | None => {}
                }
                let mut given = book.given.iter();
                match given.find(|(_, owner)| matches!(owner, Owner::Peer(theirs) if *theirs == id)) {
                    Some((given, _)) => Route::Cancel(given.clone()),
                    None => Route::On,
                }
            }
            // Text comes in floods, and is not read; tool calls are.
            Some(Method::Update) if memmem::find(line, b"\"tool_call").is_none() => Route::On,
            Some(method) => match fact::told(method, line) {
                Some(fact) => Route::Look(Box::new(fact), None),
                None => Route::On,
            },
        }
    }

    fn answer(&mut self, from: Side, id: &RequestId, is_error: bool, line: &[u8]) -> Route {
        let book = self.book(from.other());
        let renamed = if is_ours(id) {
            match book.given.remove(id) {
                Some(Owner::Proxy(own, _)) => {
                    book.own -= 1;
                    return Route::Own(own);
                }
                Some(Owner::Peer(theirs)) => Some(theirs),
                None => return Route::Late,
            }
        } else {
            None
        };
        let open = book.open.remove(renamed.as_ref().unwrap_or(id));
        let fact = open.and_then(|open| fact::answered(open.method?, open.asked, is_error, line));
        match (fact, renamed) {
            (Some(fact), renamed) => Route::Look(Box::new(fact), renamed),
            (None, Some(theirs)) => Route::Renamed(theirs),
            (None, None) => Route::On,
        }
    }
}

fn is_ours(id: &RequestId) -> bool {
    matches!(id, RequestId::Str(text) if text.starts_with(PREFIX))
}

#[cfg(test)]
mod tests;
