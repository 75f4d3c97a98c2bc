//! Replies produced by a plain async function.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use futures_util::stream;
use tokio::sync::mpsc;

use super::{ModelError, ReplyEvent, ReplyStream};

/// The sending end of a reply.
#[derive(Debug)]
pub(super) struct ReplySender {
    events: mpsc::Sender<ReplyEvent>,
}

impl ReplySender {
    /// Sends an event, and waits until there is room for the next one.
    pub(super) async fn send(&mut self, event: ReplyEvent) {
        // The receiver polls this future, so it exists as long as this runs.
        let _result = self.events.send(event).await;
    }

    /// Sends text, unless it is empty.
    pub(super) async fn send_text(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.send(ReplyEvent::Text(text)).await;
        }
    }
}

/// Returns the reply that `produce` sends. `produce` runs inside the reply: nothing happens before the reply is
/// polled, and dropping the reply drops `produce`.
pub(super) fn reply_from_fn<F, S>(produce: F) -> ReplyStream
where
    F: FnOnce(ReplySender) -> S,
    S: Future<Output = Result<(), ModelError>> + Send + 'static,
{
    let (sender, mut events) = mpsc::channel(1);
    let mut producer: Option<Pin<Box<S>>> = Some(Box::pin(produce(ReplySender { events: sender })));
    let mut failure = None;
    Box::pin(stream::poll_fn(move |cx| {
        if let Some(future) = &mut producer
            && let Poll::Ready(outcome) = future.as_mut().poll(cx)
        {
            failure = outcome.err();
            producer = None;
        }
        // The channel closes when `produce` ends: its remaining events come first, then the failure.
        events.poll_recv(cx).map(|event| event.map(Ok).or_else(|| failure.take().map(Err)))
    }))
}
