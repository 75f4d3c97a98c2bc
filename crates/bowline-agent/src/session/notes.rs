//! Notes for the user with the next turn: MCP servers that are still starting or have failed, and earlier notices.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::Duration;

use bowline_mcp::client::ServerState;
use bowline_protocol::schema::v1::MessageId;
use bowline_text::display;
use bowline_tools::mcp_tools::MAX_TOOL_DEPTH;

use super::AgentSession;
use crate::reporter::Reporter;

/// How long a turn waits for MCP servers that are still starting.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(15);

/// How long it waits for them before it says so.
const SILENT_WAIT: Duration = Duration::from_millis(500);

/// The longest list of tool names, in bytes.
const MAX_TOOL_NAMES_BYTES: usize = 400;

/// The notes for the next turn.
#[derive(Default)]
pub(super) struct PendingNotes {
    texts: Vec<String>,
    // MCP servers whose failure was reported. Invariant: names of servers of the session.
    reported_failures: HashSet<String>,
    // MCP servers whose omitted tools were reported. Invariant: names of servers of the session.
    reported_omissions: HashSet<String>,
}

impl AgentSession {
    /// Adds a note for the next turn.
    pub(crate) fn add_note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).texts.push(text);
    }

    /// Sends the pending notes, and reports MCP servers that cannot be used.
    pub(super) async fn send_notes(&self, reporter: &Reporter, turn: u64) {
        let texts = {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            let mut texts = std::mem::take(&mut notes.texts);
            for server in self.mcp_servers.statuses() {
                if !server.too_deep.is_empty() && notes.reported_omissions.insert(server.name.clone()) {
                    let tools = display::escape_line(&server.too_deep.join(", "), MAX_TOOL_NAMES_BYTES);
                    texts.push(format!(
                        "The MCP server {} has tools that are nested deeper than {MAX_TOOL_DEPTH} levels and are left \
                         out: {tools}.",
                        server.name
                    ));
                }
                if let ServerState::Failed(reason) = server.state
                    && notes.reported_failures.insert(server.name.clone())
                {
                    texts.push(format!("The MCP server {} cannot be used: {reason}.", server.name));
                }
            }
            texts
        };
        for text in texts {
            self.log_line(&text);
            let message = MessageId::new(format!("turn{turn}-note"));
            if reporter.send_thought(&message, format!("{text}\n")).await.is_err() {
                return;
            }
        }
    }

    /// Waits for MCP servers that are still starting, and adopts one that is a workspace for methods that the client
    /// does not serve.
    pub(super) async fn prepare_mcp_servers(&self, reporter: &Reporter, turn: u64) {
        self.wait_for_mcp_servers(reporter, turn).await;
        let backends = self.toolbox.runtime().adopt_workspace(&self.mcp_servers);
        for line in backends.into_iter().flatten() {
            self.log_line(&line);
        }
    }

    /// Waits for MCP servers that are still starting, and says so if it takes long.
    async fn wait_for_mcp_servers(&self, reporter: &Reporter, turn: u64) {
        self.mcp_servers.wait_until_ready(SILENT_WAIT).await;
        let starting = self.mcp_servers.statuses().into_iter();
        let starting = starting
            .filter(|server| matches!(server.state, ServerState::Starting | ServerState::Restarting(_)));
        let names: Vec<String> = starting.map(|server| server.name).collect();
        if names.is_empty() {
            return;
        }
        let message = MessageId::new(format!("turn{turn}-note"));
        let text = format!("Waiting for MCP servers to start: {}.\n", names.join(", "));
        // The turn itself notices a disconnected client.
        reporter.send_thought(&message, text).await.unwrap_or_default();
        self.mcp_servers.wait_until_ready(SERVER_START_TIMEOUT).await;
    }
}
