//! The workspace of one MCP session: a session of the host, with its unsaved texts and its changes as resources.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline_host::{BoxFuture, Host, LocalSession};
use bowline_mcp::server::{ClientPeer, ResourceProvider, WorkspaceBackend, WorkspaceResources};
use bowline_storage::clock::since_epoch;
use bowline_workspace::files::FileBackend;
use bowline_workspace::terminals::TerminalBackend;

use super::client_registry::ClientRegistry;

/// The workspace of one MCP session.
pub(super) struct HostSessionBackend {
    root: String,
    session: LocalSession,
    resources: WorkspaceResources<LocalSession>,
    clients: Arc<ClientRegistry>,
}

impl HostSessionBackend {
    pub(super) fn open(
        host: Host,
        clients: Arc<ClientRegistry>,
        client: ClientPeer,
    ) -> BoxFuture<'static, Result<Box<dyn WorkspaceBackend>, String>> {
        Box::pin(async move {
            let opened = host.local_session(&new_session_name(), Some(client.name().to_owned())).await;
            let session = opened.map_err(|error| format!("the workspace cannot be used: {error}"))?;
            let events = clients.register(session.name(), client);
            let root = host.workspace().roots().cwd().to_owned();
            let resources =
                WorkspaceResources::new(host.workspace().clone(), session.name(), session.clone(), events);
            let backend: Box<dyn WorkspaceBackend> = Box::new(Self { root, session, resources, clients });
            Ok(backend)
        })
    }
}

/// Returns a unique name for a session that includes its time.
fn new_session_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("mcp-{}-{}-{count}", since_epoch().as_secs(), std::process::id())
}

impl WorkspaceBackend for HostSessionBackend {
    fn root(&self) -> &str {
        &self.root
    }

    fn files(&self) -> &dyn FileBackend {
        &self.session
    }

    fn terminals(&self) -> &dyn TerminalBackend {
        &self.session
    }

    fn resources(&self) -> Option<&dyn ResourceProvider> {
        Some(&self.resources)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.clients.unregister(self.session.name());
            self.session.end().await;
        })
    }
}
