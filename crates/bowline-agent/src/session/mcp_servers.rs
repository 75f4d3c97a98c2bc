//! The MCP servers of a session as a source of tools.

use std::sync::Arc;

use bowline_access::approvals::BoxFuture;
use bowline_conversation::conversation::ToolSpec;
use bowline_mcp::client::McpServers;
use bowline_tools::mcp_tools::label_output;
use serde_json::Value;

use crate::tools::mcp::{McpAnswer, McpSource};

/// The servers of a session.
pub(super) struct SessionMcpSource(pub(super) Arc<McpServers>);

impl McpSource for SessionMcpSource {
    fn specs(&self) -> Vec<ToolSpec> {
        let tools = self.0.tools().into_iter();
        tools
            .map(|tool| ToolSpec { name: tool.name, description: tool.description, schema: tool.schema })
            .collect()
    }

    fn call_tool<'a>(
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
                    let text = label_output(&server, &tool, &output);
                    McpAnswer { text, images: output.images, failed: output.is_error }
                }
                Err(error) => McpAnswer { text: error.to_string(), images: Vec::new(), failed: true },
            }
        })
    }
}
