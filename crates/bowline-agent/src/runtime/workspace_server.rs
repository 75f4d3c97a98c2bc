//! The client's workspace server that a session has adopted: what it serves, and its texts for display.

use std::sync::Arc;

use bowline_access::approvals::BoxFuture;
use bowline_mcp::client::{McpError, McpServers, WorkspaceServer};
use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::LineWindow;
use bowline_tools::mcp_tools::McpCallOutput;
use bowline_tools::mcp_tools::workspace::{READ_TOOL, WorkspaceToolset};
use serde_json::{Map, Value, json};

use super::{Backend, BackendChoice, RuntimeError};

/// The most pages read of a file that is wanted whole.
const MAX_PAGES: usize = 16;

/// A workspace server that serves a session until it ends: replacing it unasked would happen behind the user's back.
pub struct AdoptedWorkspace {
    server: WorkspaceServer,
    servers: Arc<McpServers>,
}

impl std::fmt::Debug for AdoptedWorkspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adopted").field("server", &self.server).finish_non_exhaustive()
    }
}

impl AdoptedWorkspace {
    pub(super) fn new(server: WorkspaceServer, servers: Arc<McpServers>) -> Self {
        Self { server, servers }
    }

    /// Returns the server.
    #[must_use]
    pub fn server(&self) -> &WorkspaceServer {
        &self.server
    }

    /// Calls one of its tools.
    pub fn call_tool<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
        progress: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, Result<McpCallOutput, McpError>> {
        Box::pin(self.servers.call_server_tool(&self.server.tool_prefix, tool, arguments, progress))
    }

    /// Reads a file, with the line endings the server shows to models. Also returns whether this is the whole file.
    pub(super) async fn read(
        &self,
        path: &str,
        window: LineWindow,
    ) -> Result<(Arc<String>, bool), RuntimeError> {
        let (mut text, mut line) = (String::new(), window.line);
        for _ in 0..MAX_PAGES {
            let mut arguments = Map::from_iter([("path".to_owned(), path.into())]);
            let numbers = [("line", line), ("limit", window.limit)];
            arguments.extend(
                numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))),
            );
            let output = self.call_tool(READ_TOOL, arguments, &|_| ()).await;
            let output = output.map_err(|error| RpcError::Internal { reason: error.to_string() })?;
            if output.is_error {
                return Err(RpcError::InvalidParams { reason: output.text }.into());
            }
            // The first line is a header, and the last one says where to continue.
            let page = output.text.split_once('\n').map_or("", |(_, page)| page);
            let next = page.rsplit_once("\n[continue with line=").and_then(|(before, number)| {
                Some((before, number.trim_end().strip_suffix(']')?.parse::<u32>().ok()?))
            });
            let Some((before, number)) = next else {
                text.push_str(page);
                return Ok((Arc::new(text), window == LineWindow::default()));
            };
            text.push_str(before);
            text.push('\n');
            if window.limit.is_some() {
                return Ok((Arc::new(text), false));
            }
            line = Some(number);
        }
        Ok((Arc::new(text), false))
    }
}

impl BackendChoice {
    /// Returns the choice with a workspace server for methods that the client does not serve itself.
    #[must_use]
    pub fn with_workspace(self, serves: WorkspaceToolset, shell: bool) -> Self {
        let choose = |backend: Backend, is_served: bool| match backend {
            Backend::Local if is_served => Backend::Workspace,
            backend => backend,
        };
        let read = choose(self.read, true);
        // Where the client has the files, this machine does the rest: a server of the same editor would ask once more.
        let is_file_server = read == Backend::Workspace;
        Self {
            read,
            write: choose(self.write, serves.can_write),
            terminal: choose(self.terminal, serves.can_run && shell),
            list: choose(self.list, is_file_server),
            stat: choose(self.stat, serves.can_stat && is_file_server),
            batch: choose(self.batch, serves.can_batch && is_file_server),
        }
    }
}
