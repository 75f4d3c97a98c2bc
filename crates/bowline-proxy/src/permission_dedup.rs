//! One question per edit: the agent's permission request for a tool of the injected server is answered here, because
//! the tool itself asks, and with more detail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_mcp::server::OfferedTools;
use bowline_policy::own_tools::{self, OwnTools, PolicyStatus, PromptBehavior};
use bowline_protocol::relay::ToolCallMessage;
use bowline_protocol::schema::v1::{
    Meta, RequestPermissionOutcome, RequestPermissionResponse, SelectedPermissionOutcome,
};
use serde_json::json;

use crate::engine_interceptor::policy::permission_answer;
use crate::interceptor::Disposition;

/// The tools of one session's server.
pub(crate) struct PermissionDedup {
    tools: OwnTools,
    // Whether the agent has connected to the server. Only then does the name certainly refer to this server.
    is_connected: Arc<AtomicBool>,
}

impl PermissionDedup {
    /// Returns the tools offered by a server, under the name that the agent was given. The flag is set once the agent has
    /// connected to it.
    pub(crate) fn new(name: &str, offered_tools: OfferedTools, is_connected: Arc<AtomicBool>) -> Self {
        Self { tools: OwnTools::new(name.to_owned(), offered_tools.tools()), is_connected }
    }

    /// Records the agent's update of a tool call.
    pub(crate) fn update_tool_call(&mut self, message: &ToolCallMessage, line: &[u8]) {
        self.tools.record_tool_call(message, line);
    }

    /// Returns the answer to a permission request, if it is answered here.
    pub(crate) fn answer_request(&self, line: &[u8], rules: PolicyStatus) -> Option<Disposition> {
        if !self.is_connected.load(Ordering::Relaxed) {
            return None;
        }
        let own_tools::OwnToolApproval { tool, prompt_behavior, option } =
            self.tools.answer_permission_request(line, rules)?;
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option));
        let behavior = if prompt_behavior == PromptBehavior::Never { "only looks" } else { "asks by itself" };
        let reason = format!("{tool}, a tool of the proxy, {behavior}");
        let mut meta = Meta::new();
        meta.insert("bowline".to_owned(), json!({ "reason": reason }));
        Some(permission_answer(RequestPermissionResponse::new(outcome).meta(meta)))
    }
}
