//! The engine's resources other than files, for clients that may connect before the session is known.

use bowline_mcp::server::{ResourceEvent, ResourceInfo, ResourceProvider, builtin_resources};
use bowline_workspace::approvals::BoxFuture;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::session::BackendSession;

/// The most events that wait for a slow client; beyond that, it is asked to read everything again.
const MAX_EVENTS: usize = 256;

/// The engine's resources, available once the session is open.
pub(crate) struct EngineResources {
    session: BackendSession,
    events: broadcast::Sender<ResourceEvent>,
    forwarder: JoinHandle<()>,
}

impl EngineResources {
    /// Returns the resources of a session. Must be called within a runtime.
    pub(crate) fn new(known: BackendSession) -> Self {
        let news = broadcast::Sender::new(MAX_EVENTS);
        let passing = tokio::spawn(forward_events(known.clone(), news.clone()));
        Self { session: known, events: news, forwarder: passing }
    }
}

impl Drop for EngineResources {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

async fn forward_events(known: BackendSession, news: broadcast::Sender<ResourceEvent>) {
    if known.wait_until_open().await.is_none() {
        return;
    }
    let Ok(mut theirs) = known.engine().await.map(|engine| engine.resources().subscribe()) else { return };
    // Clients that listed the resources before must list them again.
    let mut told = ResourceEvent::Lagged;
    loop {
        // Usually there are no subscribers.
        news.send(told).ok();
        told = match theirs.recv().await {
            Ok(told) => told,
            Err(RecvError::Lagged(_)) => ResourceEvent::Lagged,
            Err(RecvError::Closed) => return,
        };
    }
}

impl ResourceProvider for EngineResources {
    fn list(&self) -> BoxFuture<'_, Vec<ResourceInfo>> {
        Box::pin(async {
            // An agent may list resources before it opens the session.
            if self.session.is_open()
                && let Ok(engine) = self.session.engine().await
            {
                return engine.resources().list().await;
            }
            builtin_resources()
        })
    }

    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async move {
            let engine = self.session.engine().await.map_err(|failure| failure.to_string())?;
            engine.resources().read(uri).await
        })
    }

    fn subscribe(&self) -> broadcast::Receiver<ResourceEvent> {
        self.events.subscribe()
    }
}
