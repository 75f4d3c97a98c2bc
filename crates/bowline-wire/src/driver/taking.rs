//! Taking a message in the usual form straight from what was read.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::RequestId;

use crate::caller::{Order, Reply};
use crate::envelope::{Guess, Head};
use crate::service::{Answer, BoxFuture, CancelSignal, Incoming, Params, Service, guard, panicked};

/// What became of a message in the usual form.
pub(super) enum Taken {
    Request(RequestId, Answer, CancelSignal),
    Notification(BoxFuture<()>, usize),
    Done,
}

/// Takes a message in the usual form, if its body can be read as what it should be.
pub(super) fn take(
    guess: Guess<'_>,
    service: &mut impl Service,
    replies: &mut HashMap<i64, (Reply, Order)>,
    lane_idle: bool,
) -> Option<Taken> {
    let params = Params::Guess(guess.body);
    match guess.head {
        Head::Request { id, method } => {
            let cancel = CancelSignal::new();
            let incoming = Incoming { id: id.clone(), method, params, cancel: cancel.clone() };
            let answer = match guard(|| service.request(incoming)) {
                Some(answer) => answer.ok()?,
                None => Answer::Now(Err(panicked())),
            };
            Some(Taken::Request(id, answer, cancel))
        }
        Head::Notification { method } => match guard(|| service.notification(method, params)) {
            Some(Err(_)) => None,
            Some(Ok(Some(handler))) => Some(Taken::Notification(handler, guess.body.len())),
            Some(Ok(None)) | None => Some(Taken::Done),
        },
        Head::Result { id } => {
            let (reply, order) = replies.remove(&id)?;
            if order == Order::AfterNotifications && !lane_idle {
                replies.insert(id, (reply, order));
                return None;
            }
            match reply.offer(guess.body) {
                Ok(()) => Some(Taken::Done),
                Err(reply) => {
                    replies.insert(id, (reply, order));
                    None
                }
            }
        }
    }
}
