//! The workspace of one MCP session: a session of the host, with its unsaved texts and its changes to be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bowline_host::{BoxFuture, Host, LocalSession};
use bowline_mcp::server::{Client, Place, Resources, Shelf};

use super::desk::Desk;

/// The workspace of one MCP session.
pub(super) struct LocalPlace {
    root: String,
    session: LocalSession,
    shelf: Shelf<LocalSession>,
    desk: Arc<Desk>,
}

impl LocalPlace {
    pub(super) fn open(
        host: Host,
        desk: Arc<Desk>,
        client: Client,
    ) -> BoxFuture<'static, Result<Self, String>> {
        Box::pin(async move {
            let opened = host.local_session(&name(), Some(client.name().to_owned())).await;
            let session = opened.map_err(|error| format!("the workspace cannot be used: {error}"))?;
            let news = desk.sits(session.name(), client);
            let root = host.workspace().roots().cwd().to_owned();
            let shelf = Shelf::new(host.workspace().clone(), session.name(), session.clone(), news);
            Ok(Self { root, session, shelf, desk })
        })
    }
}

/// Returns a name for a session that says when it was, and is no other's.
fn name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("mcp-{}-{}-{count}", since.as_secs(), std::process::id())
}

impl Place for LocalPlace {
    type Files = LocalSession;
    type Terminals = LocalSession;

    fn root(&self) -> &str {
        &self.root
    }

    fn files(&self) -> &LocalSession {
        &self.session
    }

    fn terminals(&self) -> &LocalSession {
        &self.session
    }

    fn resources(&self) -> Option<&dyn Resources> {
        Some(&self.shelf)
    }

    async fn close(&self) {
        self.desk.leaves(self.session.name());
        self.session.end().await;
    }
}
