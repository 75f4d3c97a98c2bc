//! A reply written as a plain async function.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use futures_util::stream;
use tokio::sync::mpsc;

use super::{Event, ModelError, Reply};

/// Where a reply is spoken to.
#[derive(Debug)]
pub(super) struct Voice {
    events: mpsc::Sender<Event>,
}

impl Voice {
    /// Gives an event to whoever listens, and waits until there is room for the next one.
    pub(super) async fn say(&mut self, event: Event) {
        // The listener is the one that polls this: while it runs, there is one.
        let _gone = self.events.send(event).await;
    }

    /// Says more text; nothing if there is none.
    pub(super) async fn text(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.say(Event::Text(text)).await;
        }
    }
}

/// Returns the reply that `speak` gives. It runs inside of the reply: nothing happens before that is polled, and dropping
/// the reply drops whatever `speak` is at.
pub(super) fn reply<F, S>(speak: F) -> Reply
where
    F: FnOnce(Voice) -> S,
    S: Future<Output = Result<(), ModelError>> + Send + 'static,
{
    let (sender, mut events) = mpsc::channel(1);
    let mut speaking: Option<Pin<Box<S>>> = Some(Box::pin(speak(Voice { events: sender })));
    let mut failure = None;
    Box::pin(stream::poll_fn(move |cx| {
        if let Some(running) = &mut speaking
            && let Poll::Ready(outcome) = running.as_mut().poll(cx)
        {
            failure = outcome.err();
            speaking = None;
        }
        // The channel is closed when `speak` has ended: what it still holds comes first, then the failure.
        events.poll_recv(cx).map(|event| event.map(Ok).or_else(|| failure.take().map(Err)))
    }))
}
