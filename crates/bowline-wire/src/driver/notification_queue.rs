//! The notification queue: notifications handled one by one in order, and the answers that must come after them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use serde_json::value::RawValue;

use crate::caller::{CallError, IN_NOTIFICATION, ResponseSender};
use crate::service::BoxFuture;

/// The notification being handled, and the items that wait behind it.
#[derive(Default)]
pub(crate) struct NotificationQueue {
    current: Option<BoxFuture<'static, ()>>,
    waiting: VecDeque<(QueuedItem, usize)>,
    // Invariant: the sum of the sizes in `waiting`.
    size: usize,
}

enum QueuedItem {
    Notification(BoxFuture<'static, ()>),
    Response(ResponseSender, Result<Box<RawValue>, CallError>),
}

impl NotificationQueue {
    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// Returns the size of the waiting messages, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Adds a notification's handler. It runs at once if the queue is idle.
    pub(crate) fn push_notification(
        &mut self,
        handler: BoxFuture<'static, ()>,
        size: usize,
        cx: &mut Context<'_>,
    ) {
        if self.is_idle() {
            self.current = Some(handler);
            self.poll_current(cx);
        } else {
            let size = size + size_of_val(&*handler);
            self.push(QueuedItem::Notification(handler), size);
        }
    }

    /// Delivers an answer after the preceding notifications.
    pub(crate) fn push_response(&mut self, reply: ResponseSender, outcome: Result<&RawValue, CallError>) {
        if self.is_idle() {
            reply.send(outcome);
        } else {
            let size = match &outcome {
                Ok(answer) => answer.get().len(),
                Err(error) => size_of_error(error),
            };
            self.push(QueuedItem::Response(reply, outcome.map(ToOwned::to_owned)), size);
        }
    }

    /// Delivers the waiting answers. Unhandled notifications are dropped.
    pub(crate) fn deliver_responses(&mut self) {
        self.current = None;
        for (item, _) in self.waiting.drain(..) {
            if let QueuedItem::Response(reply, outcome) = item {
                match outcome {
                    Ok(answer) => reply.send(Ok(&answer)),
                    Err(error) => reply.send(Err(error)),
                }
            }
        }
        self.size = 0;
    }

    fn push(&mut self, item: QueuedItem, size: usize) {
        // An item has a cost even when its message is tiny.
        let size = size + size_of::<QueuedItem>();
        self.size += size;
        self.waiting.push_back((item, size));
    }

    /// Makes as much progress as possible.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.poll_current(cx) {
            let Some((item, size)) = self.waiting.pop_front() else { return };
            self.size -= size;
            match item {
                QueuedItem::Notification(handler) => self.current = Some(handler),
                QueuedItem::Response(reply, Ok(answer)) => reply.send(Ok(&answer)),
                QueuedItem::Response(reply, Err(error)) => reply.send(Err(error)),
            }
        }
    }

    /// Polls the current handler and returns whether it is still pending.
    fn poll_current(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(handler) = &mut self.current else { return false };
        let polled =
            catch_unwind(AssertUnwindSafe(|| IN_NOTIFICATION.sync_scope((), || handler.as_mut().poll(cx))));
        // A handler that panicked is done: a notification has no answer to report that in.
        let busy = polled.unwrap_or(Poll::Ready(())).is_pending();
        if !busy {
            self.current = None;
        }
        busy
    }
}

/// Returns the approximate memory size of an error.
fn size_of_error(error: &CallError) -> usize {
    match error {
        CallError::ErrorResponse(error) => {
            error.message.len() + error.data.as_ref().map_or(0, |data| data.to_string().len())
        }
        _ => 0,
    }
}
