//! The routing of a proxy's messages: forwarded as is, forwarded under another id, handled by the proxy, or inspected
//! first.
//!
//! The proxy makes calls of its own to both the editor and the agent. [`Relay`] keeps the three parties apart by ids.
//! It tracks open requests, so that each gets exactly one answer when a side dies, and parses the messages that
//! matter into a [`RelayEvent`]. All others are not parsed.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::RequestId;
use memchr::memmem;

mod event;
pub mod mcp_servers;
mod method;

pub use event::{
    FileRead, RelayEvent, RelayedSession, SessionOpening, ToolCallMessage, parse_params, parse_result,
    prompt_text,
};
pub use method::{Method, is_lookalike_member};

/// The prefix of ids that the proxy assigns. A peer's id with this prefix is replaced by an assigned one.
pub const PROXY_ID_PREFIX: &str = "bowline-proxy-";

/// The maximum number of open requests tracked for each side. Further requests are forwarded, but get no answer if
/// the other side dies.
pub const MAX_OPEN_REQUESTS: usize = 16_384;

/// The maximum length of the id of a tracked request, in bytes.
pub const MAX_ID_BYTES: usize = 1024;

/// One of the two sides of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxySide {
    /// The client, which has the files and the user.
    Editor,
    /// The agent.
    Agent,
}

impl ProxySide {
    /// Returns the other side.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Editor => Self::Agent,
            Self::Agent => Self::Editor,
        }
    }
}

/// The parts of a message that the proxy looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayedMessage<'a> {
    /// A request.
    Request(&'a RequestId, &'a str),
    /// A notification.
    Notification(&'a str),
    /// An answer, and whether it is an error.
    Answer(&'a RequestId, bool),
}

/// The destination of a message.
#[derive(Debug, PartialEq)]
pub enum Route {
    /// To the other side, unchanged.
    Forward,
    /// To the other side, after the interceptor has inspected it. With another id, if given.
    Inspect(Box<RelayEvent>, Option<RequestId>),
    /// To the other side, with another id.
    ForwardRenamed(RequestId),
    /// To the other side, with another id in its params: the cancellation of a renamed request.
    ForwardCancel(RequestId),
    /// To the proxy itself: the answer to its own call with this id.
    OwnAnswer(i64),
    /// To the proxy itself, which has taken the cancelled request.
    CancelOwn,
    /// Nowhere: the cancelled request is held, and is never forwarded.
    CancelHeld(RequestId),
    /// Nowhere: the answer to a call that the proxy has abandoned.
    Discard,
}

/// A request that awaits its answer.
#[derive(Debug)]
struct OpenRequest {
    number: u64,
    method: Option<Method>,
    // The event of the request, needed to interpret its answer.
    request_event: Option<Box<RelayEvent>>,
    holder: RequestHolder,
}

/// The party that holds a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestHolder {
    /// The other side.
    OtherSide,
    /// The interceptor, which has not decided on it yet.
    Interceptor,
    /// The proxy's own end, which answers it.
    Proxy,
}

/// The owner of the request behind an assigned id.
#[derive(Debug)]
enum IdOwner {
    Proxy(i64, Option<Method>),
    Peer(RequestId),
}

/// The requests of one side to the other, and the proxy's own requests in the same direction.
#[derive(Debug, Default)]
struct RequestTable {
    // Invariant: at most `MAX_OPEN_REQUESTS`, by the side's own id.
    open: HashMap<RequestId, OpenRequest>,
    // Invariant: keys begin with `PROXY_ID_PREFIX`. At most `MAX_OPEN_REQUESTS` belong to peers; the caller bounds
    // the proxy's own.
    assigned_ids: HashMap<RequestId, IdOwner>,
    // Invariant: the number of the proxy's own ids in `assigned_ids`.
    own_count: usize,
}

/// The requests in flight through a proxy.
#[derive(Debug, Default)]
pub struct Relay {
    // Requests from the editor to the agent.
    editor_requests: RequestTable,
    // Requests from the agent to the editor.
    agent_requests: RequestTable,
    last_number: u64,
}

impl Relay {
    /// Decides the destination of a message from a side. `line` is the whole message, or empty if it is too long to
    /// inspect.
    pub fn route(&mut self, from: ProxySide, message: RelayedMessage<'_>, line: &[u8]) -> Route {
        match message {
            RelayedMessage::Request(id, name) => self.route_request(from, id, Method::from_name(name), line),
            RelayedMessage::Notification(name) => {
                self.route_notification(from, Method::from_name(name), line)
            }
            RelayedMessage::Answer(id, is_error) => self.route_answer(from, id, is_error, line),
        }
    }

    /// Registers a call of the proxy to a side and returns the id to send it under.
    pub fn register_own_call(&mut self, to: ProxySide, id: i64, method: Option<Method>) -> RequestId {
        let assigned = self.assign_id();
        let table = self.table_mut(to.other());
        table.assigned_ids.insert(assigned.clone(), IdOwner::Proxy(id, method));
        table.own_count += 1;
        assigned
    }

    /// Returns the id under which a side knows a call of the proxy, to cancel it. The answer is still awaited.
    #[must_use]
    pub fn own_call_id(&self, to: ProxySide, id: i64) -> Option<RequestId> {
        let table = if to == ProxySide::Editor { &self.agent_requests } else { &self.editor_requests };
        let mut assigned = table.assigned_ids.iter();
        assigned
            .find(|(_, owner)| matches!(owner, IdOwner::Proxy(number, _) if *number == id))
            .map(|(assigned, _)| assigned.clone())
    }

    /// Abandons calls of the proxy to a side: those of one method, or all. Returns each with the proxy's id and the
    /// id that the side knows, in call order. Late answers to them are discarded.
    pub fn abandon_own_calls(&mut self, to: ProxySide, method: Option<Method>) -> Vec<(i64, RequestId)> {
        let table = self.table_mut(to.other());
        let mut abandoned = Vec::new();
        table.assigned_ids.retain(|assigned, owner| match owner {
            IdOwner::Proxy(number, call_method) if method.is_none() || *call_method == method => {
                abandoned.push((*number, assigned.clone()));
                false
            }
            _ => true,
        });
        table.own_count -= abandoned.len();
        abandoned.sort_unstable_by_key(|(number, _)| *number);
        abandoned
    }

    /// Returns whether calls of the proxy to a side are open.
    #[must_use]
    pub fn has_own_calls(&self, to: ProxySide) -> bool {
        if to == ProxySide::Editor {
            self.agent_requests.own_count > 0
        } else {
            self.editor_requests.own_count > 0
        }
    }

    /// Records that the proxy answered a side's request instead of forwarding it.
    pub fn mark_answered(&mut self, from: ProxySide, id: &RequestId) {
        let table = self.table_mut(from);
        table.open.remove(id);
        table.assigned_ids.retain(|_, owner| !matches!(owner, IdOwner::Peer(peer_id) if peer_id == id));
    }

    /// Records that a side's request goes to the proxy's own end, which answers it.
    pub fn mark_taken(&mut self, from: ProxySide, id: &RequestId) {
        self.set_holder(from, id, RequestHolder::Proxy);
    }

    /// Records that a side's request is held.
    pub fn mark_held(&mut self, from: ProxySide, id: &RequestId) {
        self.set_holder(from, id, RequestHolder::Interceptor);
    }

    /// Records that a held request is forwarded to the other side.
    pub fn mark_forwarded(&mut self, from: ProxySide, id: &RequestId) {
        self.set_holder(from, id, RequestHolder::OtherSide);
    }

    fn set_holder(&mut self, from: ProxySide, id: &RequestId, at: RequestHolder) {
        if let Some(open) = self.table_mut(from).open.get_mut(id) {
            open.holder = at;
        }
    }

    /// Returns a side's open requests, in the order they came, and forgets them.
    pub fn take_open_requests(&mut self, from: ProxySide) -> Vec<RequestId> {
        let table = self.table_mut(from);
        let mut open: Vec<(u64, RequestId)> =
            table.open.drain().map(|(id, open)| (open.number, id)).collect();
        open.sort_unstable();
        table.assigned_ids.clear();
        table.own_count = 0;
        open.into_iter().map(|(_, id)| id).collect()
    }

    fn table_mut(&mut self, side: ProxySide) -> &mut RequestTable {
        match side {
            ProxySide::Editor => &mut self.editor_requests,
            ProxySide::Agent => &mut self.agent_requests,
        }
    }

    fn assign_id(&mut self) -> RequestId {
        self.last_number += 1;
        RequestId::Str(format!("{PROXY_ID_PREFIX}{}", self.last_number))
    }

    fn route_request(
        &mut self,
        from: ProxySide,
        id: &RequestId,
        method: Option<Method>,
        line: &[u8],
    ) -> Route {
        let number = self.last_number;
        self.last_number += 1;
        let renamed = is_proxy_id(id).then(|| self.assign_id());
        let event = method.and_then(|method| event::event_from_request(method, line));
        let table = self.table_mut(from);
        if let Some(assigned) = &renamed {
            table.assigned_ids.insert(assigned.clone(), IdOwner::Peer(id.clone()));
        }
        let is_short = !matches!(id, RequestId::Str(text) if text.len() > MAX_ID_BYTES);
        if is_short && table.open.len() < MAX_OPEN_REQUESTS {
            let request_event =
                event.as_ref().filter(|event| event.is_needed_for_answer()).cloned().map(Box::new);
            // Reusing an open id is the sender's fault; the first answer serves both requests.
            table.open.insert(
                id.clone(),
                OpenRequest { number, method, request_event, holder: RequestHolder::OtherSide },
            );
        }
        match (event, renamed) {
            (Some(event), renamed) => Route::Inspect(Box::new(event), renamed),
            (None, Some(assigned)) => Route::ForwardRenamed(assigned),
            (None, None) => Route::Forward,
        }
    }

    fn route_notification(&mut self, from: ProxySide, method: Option<Method>, line: &[u8]) -> Route {
        match method {
            None => Route::Forward,
            Some(Method::CancelRequest) => {
                let Some(id) = event::cancelled_request_id(line) else { return Route::Forward };
                let table = self.table_mut(from);
                match table.open.get(&id).map(|open| open.holder) {
                    Some(RequestHolder::Proxy) => return Route::CancelOwn,
                    Some(RequestHolder::Interceptor) => return Route::CancelHeld(id),
                    Some(RequestHolder::OtherSide) | None => {}
                }
                let mut assigned = table.assigned_ids.iter();
                match assigned.find(|(_, owner)| matches!(owner, IdOwner::Peer(peer_id) if *peer_id == id)) {
                    Some((assigned, _)) => Route::ForwardCancel(assigned.clone()),
                    None => Route::Forward,
                }
            }
            // Text arrives in large volumes and is not parsed; tool calls are.
            Some(Method::Update) if memmem::find(line, b"\"tool_call").is_none() => Route::Forward,
            Some(method) => match event::event_from_notification(method, line) {
                Some(event) => Route::Inspect(Box::new(event), None),
                None => Route::Forward,
            },
        }
    }

    fn route_answer(&mut self, from: ProxySide, id: &RequestId, is_error: bool, line: &[u8]) -> Route {
        let table = self.table_mut(from.other());
        let renamed = if is_proxy_id(id) {
            match table.assigned_ids.remove(id) {
                Some(IdOwner::Proxy(number, _)) => {
                    table.own_count -= 1;
                    return Route::OwnAnswer(number);
                }
                Some(IdOwner::Peer(peer_id)) => Some(peer_id),
                None => return Route::Discard,
            }
        } else {
            None
        };
        let open = table.open.remove(renamed.as_ref().unwrap_or(id));
        let event =
            open.and_then(|open| event::event_from_answer(open.method?, open.request_event, is_error, line));
        match (event, renamed) {
            (Some(event), renamed) => Route::Inspect(Box::new(event), renamed),
            (None, Some(peer_id)) => Route::ForwardRenamed(peer_id),
            (None, None) => Route::Forward,
        }
    }
}

fn is_proxy_id(id: &RequestId) -> bool {
    matches!(id, RequestId::Str(text) if text.starts_with(PROXY_ID_PREFIX))
}

pub mod operation;
#[cfg(test)]
mod tests;
