//! Keys and other input of the user's terminal.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures_util::task::AtomicWaker;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::oneshot;

/// The time limit for the reading thread to end. It may be waiting for the rest of an incomplete key sequence.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream of terminal input that can be stopped while another program reads the terminal.
///
/// [`EventStream`] reads on a thread. Dropping the stream only asks that thread to end; until it does, it takes the
/// input that the next reader waits for, and holds a lock that the next stream needs.
#[derive(Default)]
pub(crate) struct KeyStream {
    reader: Option<KeyReader>,
}

struct KeyReader {
    events: EventStream,
    waker: Arc<KeyWaker>,
    ended: oneshot::Receiver<()>,
}

/// Wakes the task that waits for input. The reading thread keeps a reference for as long as it reads.
struct KeyWaker {
    task: AtomicWaker,
    // Dropped with the last reference, which ends the wait of `KeyStream::stop`.
    _ended: oneshot::Sender<()>,
}

impl KeyStream {
    /// Stops reading, so that the terminal's input belongs to others. The next poll starts again.
    pub(crate) async fn stop(&mut self) {
        let Some(KeyReader { events, waker, ended }) = self.reader.take() else { return };
        drop(events);
        drop(waker);
        tokio::time::timeout(STOP_TIMEOUT, ended).await.ok();
    }
}

impl Stream for KeyStream {
    type Item = io::Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = self.reader.get_or_insert_with(|| {
            let (sender, ended) = oneshot::channel();
            let waker = Arc::new(KeyWaker { task: AtomicWaker::new(), _ended: sender });
            KeyReader { events: EventStream::new(), waker, ended }
        });
        reader.waker.task.register(context.waker());
        let waker = Waker::from(reader.waker.clone());
        reader.events.poll_next_unpin(&mut Context::from_waker(&waker))
    }
}

impl Wake for KeyWaker {
    fn wake(self: Arc<Self>) {
        self.task.wake();
    }
}
