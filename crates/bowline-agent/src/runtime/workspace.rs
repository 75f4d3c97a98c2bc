//! A workspace server of the client, once there is one: what it serves, and its texts for whoever only shows them.

use std::sync::Arc;

use bowline_mcp::client::{McpError, WorkspaceServer};
use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::mcp_tools::CallOutput;
use bowline_state::mcp_tools::workspace::{READ, Workspace};
use bowline_workspace::approvals::BoxFuture;
use serde_json::{Map, Value, json};

use super::{Choice, Fault, Runtimes, Server};
use crate::settings::ToolSet;
use crate::tools::mcp::McpSource;

/// So many pages of a file are read for whoever wants all of it.
const MAX_PAGES: usize = 16;

/// A workspace server that serves a session. It does so until the session ends: whoever took its place unasked would
/// do so behind the user's back.
pub struct Adopted {
    server: WorkspaceServer,
    source: Arc<dyn McpSource>,
}

impl std::fmt::Debug for Adopted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adopted").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Adopted {
    /// Returns the server.
    #[must_use]
    pub fn server(&self) -> &WorkspaceServer {
        &self.server
    }

    /// Calls one of its tools.
    pub fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
        progress: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, Result<CallOutput, McpError>> {
        self.source.call_workspace(&self.server, tool, arguments, progress)
    }
}

impl Choice {
    /// Returns the choice with a workspace server for what the client does not serve itself.
    #[must_use]
    pub fn with_workspace(self, serves: Workspace, shell: bool) -> Self {
        let by = |served: Server, does: bool| match served {
            Server::Local if does => Server::Workspace,
            served => served,
        };
        Self {
            read: by(self.read, true),
            write: by(self.write, serves.writes),
            terminal: by(self.terminal, serves.runs && shell),
        }
    }
}

impl Runtimes {
    /// Takes a workspace server of the client for what the client does not serve itself, if it has one, and says so the
    /// first time: a line for each thing that is served. Tools that say whose machine they act on are not led elsewhere.
    pub fn adopt(&self, source: &Arc<dyn McpSource>) -> Option<Vec<String>> {
        if self.workspace().is_some() || self.settings().tools == ToolSet::Dual {
            return None;
        }
        let base = self.inner.choice;
        let server = source.workspace()?;
        if base.with_workspace(server.serves, self.settings().shell) == base {
            return None;
        }
        let adopted = Adopted { server, source: source.clone() };
        // Whoever was faster has taken the same one.
        self.inner.workspace.set(adopted).ok()?;
        Some(self.describe())
    }

    /// Returns the workspace server that serves the session, if one does.
    #[must_use]
    pub fn workspace(&self) -> Option<&Adopted> {
        self.inner.workspace.get()
    }

    /// Reads a file through the workspace server, as it is shown to a model: line ends are the usual ones. Returns whether
    /// it is all of it, too.
    pub(super) async fn read_there(&self, path: &str, window: Window) -> Result<(Arc<String>, bool), Fault> {
        let Some(adopted) = self.workspace() else {
            return Err(Fault::Unusable("there is no workspace server".to_owned()));
        };
        let (mut text, mut line) = (String::new(), window.line);
        for _ in 0..MAX_PAGES {
            let mut arguments = Map::from_iter([("path".to_owned(), path.into())]);
            let numbers = [("line", line), ("limit", window.limit)];
            arguments.extend(
                numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))),
            );
            let output = adopted.call(READ, arguments, &|_| ()).await;
            let output = output.map_err(|why| Failure::Internal { reason: why.to_string() })?;
            if output.is_error {
                return Err(Failure::InvalidParams { reason: output.text }.into());
            }
            // The first line says what follows, and the last one where to go on.
            let page = output.text.split_once('\n').map_or("", |(_, page)| page);
            let next = page.rsplit_once("\n[continue with line=").and_then(|(before, number)| {
                Some((before, number.trim_end().strip_suffix(']')?.parse::<u32>().ok()?))
            });
            let Some((before, number)) = next else {
                text.push_str(page);
                return Ok((Arc::new(text), window == Window::default()));
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
