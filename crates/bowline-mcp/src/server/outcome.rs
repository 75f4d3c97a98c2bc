//! The outcome of a tool call, as text for the model.

use bowline_access::approvals::{DENIED_BY_SETTINGS, NO_APPROVER};
use bowline_protocol::rpc_error::RpcError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;

use super::{DenialAdvisor, DeniedOperation};

/// The outcome of a tool call.
#[derive(Debug)]
pub(crate) struct ToolOutcome {
    /// The text for the model.
    pub(crate) text: String,
    /// The same information for programs, in full, because some clients show a model nothing else.
    pub(crate) structured: Option<Value>,
    /// Content besides the text: an image or other bytes.
    pub(crate) attachment: Option<ContentBlock>,
    /// Whether the call failed.
    pub(crate) is_error: bool,
}

impl ToolOutcome {
    pub(crate) fn from_text(text: impl Into<String>) -> Self {
        Self { text: text.into(), structured: None, attachment: None, is_error: false }
    }

    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::from_text(text) }
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let content = std::iter::once(ContentBlock::text(self.text)).chain(self.attachment).collect();
        let mut result =
            if self.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
        result.structured_content = self.structured;
        result
    }
}

/// Describes a failure for the model: what it concerns, what happened, and what to do.
pub(crate) fn describe_failure(
    advisor: Option<&DenialAdvisor>,
    tool: Option<&DeniedOperation<'_>>,
    subject: &str,
    failure: &RpcError,
) -> String {
    match failure {
        // Advice is given only if no approver was available or the settings denied it. A denial by a person or a rule
        // is final.
        RpcError::Denied { reason } if [NO_APPROVER, DENIED_BY_SETTINGS].contains(&reason.as_str()) => {
            let advice = advisor.zip(tool).and_then(|(advisor, tool)| advisor(tool));
            let advice = advice.map_or_else(String::new, |advice| format!(". {advice}"));
            format!("{subject}: denied: {reason}{advice}")
        }
        RpcError::Denied { reason } => format!("{subject}: denied: {reason}"),
        RpcError::ResourceNotFound { .. } => {
            format!("{subject} does not exist: list the directory to see what is there")
        }
        RpcError::OutsideRoots { .. } => {
            format!("{subject} is outside the workspace: only its own directories can be used")
        }
        RpcError::TooLarge { bytes, .. } => {
            format!(
                "{subject} is too large to be read at once ({bytes} bytes): read a window with line and limit"
            )
        }
        RpcError::Busy { limit } => {
            format!(
                "{subject}: {limit} of these are under way already: wait for one of them, then call again"
            )
        }
        other => format!("{subject}: {other}"),
    }
}
