//! What a call came to, as the model reads it.

use bowline_state::failure::Failure;
use bowline_workspace::approvals::{BY_SETTINGS, NOBODY};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;

use super::{Advise, DeniedTool};

/// What a call came to.
#[derive(Debug)]
pub(crate) struct Done {
    /// What the model reads.
    pub(crate) text: String,
    /// The same for programs: all of it, because some clients show a model nothing else.
    pub(crate) structured: Option<Value>,
    /// Whether the call failed.
    pub(crate) failed: bool,
}

impl Done {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), structured: None, failed: false }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), structured: None, failed: true }
    }

    pub(crate) fn result(self) -> CallToolResult {
        let content = vec![ContentBlock::text(self.text)];
        let mut result =
            if self.failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
        result.structured_content = self.structured;
        result
    }
}

/// Returns a failure as a model reads it: what it is about, what happened, what to do.
pub(crate) fn failure(
    advise: Option<&Advise>,
    tool: Option<&DeniedTool<'_>>,
    about: &str,
    failure: &Failure,
) -> String {
    match failure {
        // Where a person or a rule said no, nothing is to be done about it.
        Failure::Denied { why } if [NOBODY, BY_SETTINGS].contains(&why.as_str()) => {
            let advice = advise.zip(tool).and_then(|(advise, tool)| advise(tool));
            let advice = advice.map_or_else(String::new, |advice| format!(". {advice}"));
            format!("{about}: denied: {why}{advice}")
        }
        Failure::Denied { why } => format!("{about}: denied: {why}"),
        Failure::ResourceNotFound { .. } => {
            format!("{about} does not exist: list the directory to see what is there")
        }
        Failure::OutsideRoots { .. } => {
            format!("{about} is outside the workspace: only its own directories can be used")
        }
        Failure::TooLarge { bytes, .. } => {
            format!(
                "{about} is too large to be read at once ({bytes} bytes): read a window with line and limit"
            )
        }
        Failure::Busy { limit } => {
            format!("{about}: {limit} of these are under way already: wait for one of them, then call again")
        }
        other => format!("{about}: {other}"),
    }
}
