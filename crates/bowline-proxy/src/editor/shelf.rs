//! What an engine has to be read beside files, for the clients of a server that may connect before the session is known.

use bowline_mcp::server::{Described, News, Resources, always};
use bowline_workspace::approvals::BoxFuture;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::known::Known;

/// So much news waits for a client that does not take it; then it is told to look at everything.
const MAX_NEWS: usize = 256;

/// The engine's shelf, as soon as there is one.
pub(crate) struct Shelf {
    known: Known,
    news: broadcast::Sender<News>,
    passing: JoinHandle<()>,
}

impl Shelf {
    /// Returns the shelf of a session. To be called within a runtime.
    pub(crate) fn new(known: Known) -> Self {
        let news = broadcast::Sender::new(MAX_NEWS);
        let passing = tokio::spawn(pass_on(known.clone(), news.clone()));
        Self { known, news, passing }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

async fn pass_on(known: Known, news: broadcast::Sender<News>) {
    if known.opened().await.is_none() {
        return;
    }
    let Ok(mut theirs) = known.engine().await.map(|engine| engine.shelf().news()) else { return };
    // Whoever was told what there is before that looks again.
    let mut told = News::Missed;
    loop {
        // That nobody listens is usual.
        news.send(told).ok();
        told = match theirs.recv().await {
            Ok(told) => told,
            Err(RecvError::Lagged(_)) => News::Missed,
            Err(RecvError::Closed) => return,
        };
    }
}

impl Resources for Shelf {
    fn list(&self) -> BoxFuture<'_, Vec<Described>> {
        Box::pin(async {
            // An agent may look before it has opened the session, and open it only then.
            if self.known.is_known()
                && let Ok(engine) = self.known.engine().await
            {
                return engine.shelf().list().await;
            }
            always()
        })
    }

    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async move {
            let engine = self.known.engine().await.map_err(|failure| failure.to_string())?;
            engine.shelf().read(uri).await
        })
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }
}
