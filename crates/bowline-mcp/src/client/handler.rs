//! The handler of a server's notifications: the progress of calls, and changes to its tools.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_tools::mcp_tools::format_progress_title;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
    ProtocolVersion,
};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::{Notify, mpsc};

/// The most progress messages that wait for a caller; further ones are dropped.
const MAX_PROGRESS: usize = 16;

/// Handles a server's notifications.
#[derive(Debug, Default)]
pub(super) struct NotificationHandler {
    /// Woken when the server reports that its tools changed.
    pub(super) tools_changed: Notify,
    // The calls in progress: an entry lives as long as its call.
    calls: Mutex<HashMap<ProgressToken, mpsc::Sender<String>>>,
}

impl NotificationHandler {
    /// Returns a watch on the progress of a call.
    pub(super) fn watch_progress(&self, token: ProgressToken) -> ProgressWatch<'_> {
        let (sender, titles) = mpsc::channel(MAX_PROGRESS);
        self.calls().insert(token.clone(), sender);
        ProgressWatch { handler: self, token, titles }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<String>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress of a call.
pub(super) struct ProgressWatch<'a> {
    handler: &'a NotificationHandler,
    token: ProgressToken,
    titles: mpsc::Receiver<String>,
}

impl ProgressWatch<'_> {
    /// Returns the next progress message.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.titles.recv().await
    }
}

impl Drop for ProgressWatch<'_> {
    fn drop(&mut self) {
        self.handler.calls().remove(&self.token);
    }
}

/// A handler that the SDK and the owner of a connection share.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedHandler(pub(super) std::sync::Arc<NotificationHandler>);

impl ClientHandler for SharedHandler {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("bowline", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let calls = self.0.calls();
        if let Some(call) = calls.get(&progress.progress_token) {
            let title = format_progress_title(progress.progress, progress.total, progress.message.as_deref());
            // A caller that has not read the queued messages can do without this one.
            call.try_send(title).unwrap_or_default();
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.tools_changed.notify_one();
    }
}
