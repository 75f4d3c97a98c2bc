//! The requests of one connection that are not answered in full yet.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;

/// How many requests a connection has, and how many it had.
#[derive(Debug, Clone, Copy, Default)]
struct RequestCount {
    open: usize,
    total: usize,
}

/// Counts the requests of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestsInProgress(watch::Sender<RequestCount>);

impl RequestsInProgress {
    /// Counts a request until what is returned is dropped.
    pub(super) fn begin(&self) -> RequestInProgress {
        self.0.send_modify(|count| {
            count.open += 1;
            count.total += 1;
        });
        RequestInProgress(self.0.clone())
    }

    /// Waits until there was no request for some time: `first` at the beginning, then `later`. Returns whether there was
    /// one before.
    pub(super) async fn wait_for_silence(&self, first: Duration, later: Duration) -> bool {
        let mut counts = self.0.subscribe();
        loop {
            // The sender is here, so there is always another state to wait for.
            counts.wait_for(|count| count.open == 0).await.map_or_else(drop, drop);
            let before = counts.borrow_and_update().total;
            let limit = if before == 0 { first } else { later };
            let next = counts.wait_for(|count| count.total != before);
            if tokio::time::timeout(limit, next).await.is_err() {
                return before > 0;
            }
        }
    }
}

/// A request that is not answered in full yet.
#[derive(Debug)]
pub(super) struct RequestInProgress(watch::Sender<RequestCount>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.send_modify(|count| count.open -= 1);
    }
}

/// The body of a response, with which its request ends.
#[derive(Debug)]
pub(super) struct CountedBody {
    body: Body,
    _request: RequestInProgress,
}

impl CountedBody {
    pub(super) fn new(body: Body, request: RequestInProgress) -> Self {
        Self { body, _request: request }
    }
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(10);
    const LATER: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn silence_begins_when_the_last_request_has_ended() {
        let start = tokio::time::Instant::now();
        let requests = RequestsInProgress::default();
        assert!(!requests.wait_for_silence(FIRST, LATER).await);
        assert_eq!(start.elapsed(), FIRST);
        let (one, two) = (requests.begin(), requests.begin());
        let end = async {
            tokio::time::advance(Duration::from_secs(600)).await;
            drop(one);
            tokio::time::advance(Duration::from_secs(600)).await;
            drop(two);
        };
        let (had_requests, ()) = tokio::join!(requests.wait_for_silence(FIRST, LATER), end);
        assert!(had_requests);
        assert_eq!(start.elapsed(), FIRST + Duration::from_secs(1200) + LATER);
    }
}
