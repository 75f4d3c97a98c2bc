//! A question as a permission request to an editor's user, for a tool call of its own.

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
    ToolCall, ToolCallId, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};

use super::{AnswerChoice, AnswerLifetime, Question, QuestionReply};
use crate::operation::{OperationKind, OperationTarget};
use bowline_protocol::builders;
use bowline_protocol::relay::PROXY_ID_PREFIX;
use bowline_text::display;

const ALLOW_ONCE: &str = "allow";
const ALLOW_SESSION: &str = "allow-session";
const REJECT: &str = "reject";

/// The maximum length of a title, in bytes.
const MAX_TITLE: usize = 200;

/// The maximum total size of the diffs shown, in bytes; beyond it the question's own text is shown.
const MAX_DIFF_BYTES: usize = 4 << 20;

impl Question {
    /// Returns the tool call that represents the question, to be announced before the request.
    #[must_use]
    pub fn tool_call(&self) -> ToolCall {
        let items = || self.items.iter();
        let kind = match items().map(|item| item.operation.kind).max() {
            Some(OperationKind::Read) => ToolKind::Read,
            Some(OperationKind::Write) => ToolKind::Edit,
            Some(OperationKind::Delete) => ToolKind::Delete,
            Some(OperationKind::Execute) => ToolKind::Execute,
            Some(OperationKind::Fetch) => ToolKind::Fetch,
            None => ToolKind::Other,
        };
        let named = items().filter_map(|item| match &item.operation.target {
            OperationTarget::File { requested, .. } | OperationTarget::OutsideRoots { requested } => {
                Some((requested, item.change.as_ref()))
            }
            _ => None,
        });
        let mut room = MAX_DIFF_BYTES;
        let mut content = vec![builders::text(self.to_text())];
        for (path, change) in named.clone() {
            let Some(change) = change else { continue };
            let size = change.after.len() + change.before.as_ref().map_or(0, |before| before.len());
            if size <= room {
                room -= size;
                let before = change.before.as_deref().map(String::as_str);
                content.push(builders::diff(path, before, change.after.as_str()));
            }
        }
        let locations = named.map(|(path, _)| ToolCallLocation::new(path.as_str())).collect();
        ToolCall::new(self.tool_call_id(), display::escape_line(&self.title, MAX_TITLE))
            .kind(kind)
            .status(ToolCallStatus::Pending)
            .content(content)
            .locations(locations)
    }

    /// Returns the request to the editor.
    #[must_use]
    pub fn permission_request(&self, session: SessionId) -> RequestPermissionRequest {
        let call = self.tool_call();
        let fields = ToolCallUpdateFields::new()
            .title(call.title)
            .kind(call.kind)
            .status(call.status)
            .content(call.content)
            .locations(call.locations);
        let options = vec![
            PermissionOption::new(ALLOW_ONCE, "Allow once", PermissionOptionKind::AllowOnce),
            PermissionOption::new(ALLOW_SESSION, "Allow for this session", PermissionOptionKind::AllowAlways),
            PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
        ];
        RequestPermissionRequest::new(session, ToolCallUpdate::new(call.tool_call_id, fields), options)
    }

    /// Returns the update that reports the outcome to the editor.
    #[must_use]
    pub fn outcome_update(&self, reply: &QuestionReply) -> ToolCallUpdate {
        let is_yes = matches!(reply, QuestionReply::Answered(answer) if answer.choice == AnswerChoice::Allow);
        let status = if is_yes { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        ToolCallUpdate::new(self.tool_call_id(), ToolCallUpdateFields::new().status(status))
    }

    fn tool_call_id(&self) -> ToolCallId {
        ToolCallId::new(format!("{PROXY_ID_PREFIX}{}-{}", self.holder.session, self.id.0))
    }
}

impl QuestionReply {
    /// Returns the reply that an editor's outcome stands for. Everything but a yes is a no.
    #[must_use]
    pub fn from_editor_outcome(outcome: &RequestPermissionOutcome) -> Self {
        match outcome {
            RequestPermissionOutcome::Selected(selected) if &*selected.option_id.0 == ALLOW_ONCE => {
                Self::allow()
            }
            RequestPermissionOutcome::Selected(selected) if &*selected.option_id.0 == ALLOW_SESSION => {
                Self::answer(AnswerChoice::Allow, AnswerLifetime::Session)
            }
            _ => Self::deny(),
        }
    }
}
