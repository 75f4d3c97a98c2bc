//! What a user is told with the next turn: servers that are awaited or cannot be used, and what was noted before.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::Duration;

use bowline_mcp::client::State;
use bowline_state::display;
use bowline_state::mcp_tools::MAX_TOOL_DEPTH;
use bowline_state::schema::v1::MessageId;

use super::Session;
use crate::reporter::Reporter;

/// How long a turn waits for MCP servers that are still starting.
const SERVERS_START: Duration = Duration::from_secs(15);

/// How long it waits for them without a word.
const SHORTLY: Duration = Duration::from_millis(500);

/// As much is told of the names of tools, in bytes.
const MAX_NAMED: usize = 400;

/// What the user is told with the next turn.
#[derive(Default)]
pub(super) struct Notes {
    waiting: Vec<String>,
    // MCP servers whose failure was told. Invariant: names of servers of the session.
    servers: HashSet<String>,
    // MCP servers of which tools were left out, and the user was told. Invariant: names of servers of the session.
    left_out: HashSet<String>,
}

impl Session {
    /// Keeps something to be told with the next turn.
    pub(crate) fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).waiting.push(text);
    }

    /// Tells what was noted, and which MCP servers cannot be used.
    pub(super) async fn tell_notes(&self, reporter: &Reporter, turn: u64) {
        let told = {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            let mut told = std::mem::take(&mut notes.waiting);
            for server in self.servers.status() {
                if !server.too_deep.is_empty() && notes.left_out.insert(server.name.clone()) {
                    let tools = display::line(&server.too_deep.join(", "), MAX_NAMED);
                    told.push(format!(
                        "The MCP server {} has tools that are nested deeper than {MAX_TOOL_DEPTH} levels and are left \
                         out: {tools}.",
                        server.name
                    ));
                }
                if let State::Failed(why) = server.state
                    && notes.servers.insert(server.name.clone())
                {
                    told.push(format!("The MCP server {} cannot be used: {why}.", server.name));
                }
            }
            told
        };
        for text in told {
            self.log(&text);
            let message = MessageId::new(format!("turn{turn}-note"));
            if reporter.thought(&message, format!("{text}\n")).await.is_err() {
                return;
            }
        }
    }

    /// Waits for MCP servers that are still starting, and lets one that is a workspace serve what the client does not.
    pub(super) async fn meet_servers(&self, reporter: &Reporter, turn: u64) {
        self.wait_for_servers(reporter, turn).await;
        for line in self.toolbox.adopt_workspace().into_iter().flatten() {
            self.log(&line);
        }
    }

    /// Waits for MCP servers that are still starting, and says so if it takes a moment.
    async fn wait_for_servers(&self, reporter: &Reporter, turn: u64) {
        self.servers.ready(SHORTLY).await;
        let starting = self.servers.status().into_iter();
        let starting =
            starting.filter(|server| matches!(server.state, State::Starting | State::Restarting(_)));
        let names: Vec<String> = starting.map(|server| server.name).collect();
        if names.is_empty() {
            return;
        }
        let message = MessageId::new(format!("turn{turn}-note"));
        let text = format!("Waiting for MCP servers to start: {}.\n", names.join(", "));
        // A client that is gone is noticed by the turn itself.
        reporter.thought(&message, text).await.unwrap_or_default();
        self.servers.ready(SERVERS_START).await;
    }
}
