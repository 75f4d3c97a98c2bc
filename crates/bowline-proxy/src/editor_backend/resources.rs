//! The engine's resources other than files, for clients that may connect before the session is known.

use bowline_access::approvals::BoxFuture;
use bowline_mcp::server::{ResourceEvent, ResourceInfo, ResourceProvider, builtin_resources};
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
    pub(crate) fn new(session: BackendSession) -> Self {
        let events = broadcast::Sender::new(MAX_EVENTS);
        let forwarder = bowline_task::spawn(forward_events(session.clone(), events.clone()));
        Self { session, events, forwarder }
    }
}

impl Drop for EngineResources {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

async fn forward_events(session: BackendSession, events: broadcast::Sender<ResourceEvent>) {
    if session.wait_until_open().await.is_none() {
        return;
    }
    let Ok(mut engine_events) = session.engine().await.map(|engine| engine.resources().subscribe()) else {
        return;
    };
    // Clients that listed the resources before must list them again.
    let mut event = ResourceEvent::Lagged;
    loop {
        // Usually there are no subscribers.
        events.send(event).ok();
        event = match engine_events.recv().await {
            Ok(event) => event,
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
