//! What a server tells of its own accord: progress of calls, and that its tools changed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_state::mcp_tools::progress_title;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
    ProtocolVersion,
};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::{Notify, mpsc};

/// So many words of progress wait for whoever called; more are left out.
const MAX_PROGRESS: usize = 16;

/// Takes in what a server tells.
#[derive(Debug, Default)]
pub(super) struct Handler {
    /// Woken when the server says that its tools changed.
    pub(super) tools_changed: Notify,
    // The calls that are being made: an entry lives as long as its call.
    calls: Mutex<HashMap<ProgressToken, mpsc::Sender<String>>>,
}

impl Handler {
    /// Returns where the progress of a call is told.
    pub(super) fn watch(&self, token: ProgressToken) -> Watch<'_> {
        let (sender, titles) = mpsc::channel(MAX_PROGRESS);
        self.calls().insert(token.clone(), sender);
        Watch { handler: self, token, titles }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<String>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress of a call.
pub(super) struct Watch<'a> {
    handler: &'a Handler,
    token: ProgressToken,
    titles: mpsc::Receiver<String>,
}

impl Watch<'_> {
    /// Returns the next word of progress.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.titles.recv().await
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.handler.calls().remove(&self.token);
    }
}

/// A handler that the SDK and the owner of a connection share.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(pub(super) std::sync::Arc<Handler>);

impl ClientHandler for Shared {
    fn get_info(&self) -> ClientConfig {
        let this = Implementation::new("bowline", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), this)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let calls = self.0.calls();
        if let Some(call) = calls.get(&progress.progress_token) {
            let title = progress_title(progress.progress, progress.total, progress.message.as_deref());
            // A call that has not taken the last ones will hardly miss this one.
            call.try_send(title).unwrap_or_default();
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.tools_changed.notify_one();
    }
}
