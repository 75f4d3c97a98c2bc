//! The MCP servers of a session as a source of tools.

use std::sync::Arc;

use bowline_mcp::client::{McpError, Servers, WorkspaceServer};
use bowline_state::conversation::ToolSpec;
use bowline_state::mcp_tools::{CallOutput, labelled};
use bowline_workspace::approvals::BoxFuture;
use serde_json::{Map, Value};

use crate::tools::mcp::{McpAnswer, McpSource};

/// The servers of a session.
pub(super) struct Source(pub(super) Arc<Servers>);

impl McpSource for Source {
    fn specs(&self) -> Vec<ToolSpec> {
        let tools = self.0.tools().into_iter();
        tools
            .map(|tool| ToolSpec { name: tool.name, description: tool.description, schema: tool.schema })
            .collect()
    }

    fn call<'a>(
        &'a self,
        name: &'a str,
        input: &'a Value,
        progress: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, McpAnswer> {
        Box::pin(async move {
            let arguments = input.as_object().cloned().unwrap_or_default();
            match self.0.call(name, arguments, progress).await {
                Ok(output) => {
                    let tool = self.0.tools().into_iter().find(|tool| tool.name == name);
                    let (server, tool) = tool.map(|tool| (tool.server, tool.tool)).unwrap_or_default();
                    let text = labelled(&server, &tool, &output);
                    McpAnswer { text, images: output.images, failed: output.is_error }
                }
                Err(error) => McpAnswer { text: error.to_string(), images: Vec::new(), failed: true },
            }
        })
    }

    fn workspace(&self) -> Option<WorkspaceServer> {
        self.0.workspace()
    }

    fn call_workspace<'a>(
        &'a self,
        server: &'a WorkspaceServer,
        tool: &'a str,
        arguments: Map<String, Value>,
        progress: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, Result<CallOutput, McpError>> {
        Box::pin(self.0.call_of(&server.in_names, tool, arguments, progress))
    }
}
