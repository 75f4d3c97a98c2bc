//! Notifications in the order they came, one handled after the other, and the answers that must come after them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use serde_json::value::RawValue;

use crate::caller::{CallError, IN_NOTIFICATION, Reply};
use crate::service::BoxFuture;

/// The notification that is being handled, and what waits behind it.
#[derive(Default)]
pub(crate) struct Lane {
    current: Option<BoxFuture<()>>,
    waiting: VecDeque<(Item, usize)>,
    // Invariant: the sum of the sizes in `waiting`.
    size: usize,
}

enum Item {
    Notification(BoxFuture<()>),
    Answer(Reply, Result<Box<RawValue>, CallError>),
}

impl Lane {
    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// How many bytes of messages wait behind the notification that is being handled.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Takes a notification's handler in. It runs at once if nothing is before it.
    pub(crate) fn notification(&mut self, handler: BoxFuture<()>, size: usize, cx: &mut Context<'_>) {
        if self.is_idle() {
            self.current = Some(handler);
            self.is_busy(cx);
        } else {
            let size = size + size_of_val(&*handler);
            self.push(Item::Notification(handler), size);
        }
    }

    /// Hands an answer over after the notifications before it.
    pub(crate) fn answer(&mut self, reply: Reply, outcome: Result<&RawValue, CallError>) {
        if self.is_idle() {
            reply.send(outcome);
        } else {
            let size = match &outcome {
                Ok(answer) => answer.get().len(),
                Err(error) => size_of_error(error),
            };
            self.push(Item::Answer(reply, outcome.map(ToOwned::to_owned)), size);
        }
    }

    /// Hands over the answers that wait. What was to be handled before them is given up.
    pub(crate) fn hand_over(&mut self) {
        self.current = None;
        for (item, _) in self.waiting.drain(..) {
            if let Item::Answer(reply, outcome) = item {
                match outcome {
                    Ok(answer) => reply.send(Ok(&answer)),
                    Err(error) => reply.send(Err(error)),
                }
            }
        }
        self.size = 0;
    }

    fn push(&mut self, item: Item, size: usize) {
        // An item costs something even when its message is tiny.
        let size = size + size_of::<Item>();
        self.size += size;
        self.waiting.push_back((item, size));
    }

    /// Goes on as far as it can.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.is_busy(cx) {
            let Some((item, size)) = self.waiting.pop_front() else { return };
            self.size -= size;
            match item {
                Item::Notification(handler) => self.current = Some(handler),
                Item::Answer(reply, Ok(answer)) => reply.send(Ok(&answer)),
                Item::Answer(reply, Err(error)) => reply.send(Err(error)),
            }
        }
    }

    /// Polls the handler of the current notification and returns whether it has to wait.
    fn is_busy(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(handler) = &mut self.current else { return false };
        let polled =
            catch_unwind(AssertUnwindSafe(|| IN_NOTIFICATION.sync_scope((), || handler.as_mut().poll(cx))));
        // A handler that panicked is done: there is nobody to tell.
        let busy = polled.unwrap_or(Poll::Ready(())).is_pending();
        if !busy {
            self.current = None;
        }
        busy
    }
}

/// About how much memory an error takes.
fn size_of_error(error: &CallError) -> usize {
    match error {
        CallError::Refused(error) => {
            error.message.len() + error.data.as_ref().map_or(0, |data| data.to_string().len())
        }
        _ => 0,
    }
}
