//! Dispatch of messages in the usual form, straight from the input.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::RequestId;

use crate::caller::{ResponseOrder, ResponseSender};
use crate::message::envelope::{MessageHead, UncheckedMessage};
use crate::service::{
    BoxFuture, CancelSignal, IncomingRequest, RawParams, Service, ServiceResponse, catch_panic, panic_error,
};

/// The result of dispatching a message in the usual form.
pub(super) enum UncheckedOutcome {
    Request(RequestId, ServiceResponse, CancelSignal),
    Notification(BoxFuture<'static, ()>, usize),
    Handled,
}

/// Dispatches a message in the usual form, if its body parses as the expected type.
pub(super) fn take_unchecked(
    message: UncheckedMessage<'_>,
    service: &mut impl Service,
    replies: &mut HashMap<i64, (ResponseSender, ResponseOrder)>,
    is_idle: bool,
) -> Option<UncheckedOutcome> {
    let params = RawParams::Unchecked(message.body);
    match message.head {
        MessageHead::Request { id, method } => {
            let cancel = CancelSignal::new();
            let incoming = IncomingRequest { id: id.clone(), method, params, cancel: cancel.clone() };
            let answer = match catch_panic(|| service.handle_request(incoming)) {
                Some(answer) => answer.ok()?,
                None => ServiceResponse::Ready(Err(panic_error())),
            };
            Some(UncheckedOutcome::Request(id, answer, cancel))
        }
        MessageHead::Notification { method } => {
            match catch_panic(|| service.handle_notification(method, params)) {
                Some(Err(_)) => None,
                Some(Ok(Some(handler))) => Some(UncheckedOutcome::Notification(handler, message.body.len())),
                Some(Ok(None)) | None => Some(UncheckedOutcome::Handled),
            }
        }
        MessageHead::Result { id } => {
            let (reply, order) = replies.remove(&id)?;
            if order == ResponseOrder::AfterNotifications && !is_idle {
                replies.insert(id, (reply, order));
                return None;
            }
            match reply.try_send(message.body) {
                Ok(()) => Some(UncheckedOutcome::Handled),
                Err(reply) => {
                    replies.insert(id, (reply, order));
                    None
                }
            }
        }
    }
}
