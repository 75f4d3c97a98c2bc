//! A question as an editor's user is asked it: as a permission request for a tool call of its own.

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
    ToolCall, ToolCallId, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};

use super::{Choice, Keep, Question, Reply};
use crate::builders;
use crate::display;
use crate::operation::{Kind, Target};
use crate::relay::PREFIX;

const ONCE: &str = "allow";
const SESSION: &str = "allow-session";
const REJECT: &str = "reject";

/// The longest title, in bytes.
const MAX_TITLE: usize = 200;

/// The texts that are shown have so many bytes in all; beyond that there is what the question itself shows.
const MAX_SHOWN: usize = 4 << 20;

impl Question {
    /// Returns the tool call that stands for what is asked about, to be announced before.
    #[must_use]
    pub fn tool_call(&self) -> ToolCall {
        let items = || self.items.iter();
        let kind = match items().map(|item| item.operation.kind).max() {
            Some(Kind::Read) => ToolKind::Read,
            Some(Kind::Write) => ToolKind::Edit,
            Some(Kind::Delete) => ToolKind::Delete,
            Some(Kind::Execute) => ToolKind::Execute,
            Some(Kind::Fetch) => ToolKind::Fetch,
            None => ToolKind::Other,
        };
        let named = items().filter_map(|item| match &item.operation.target {
            Target::File { asked, .. } | Target::Elsewhere { asked } => Some((asked, item.change.as_ref())),
            _ => None,
        });
        let mut room = MAX_SHOWN;
        let mut content = vec![builders::text(self.text())];
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
        ToolCall::new(self.tool_call_id(), display::line(&self.title, MAX_TITLE))
            .kind(kind)
            .status(ToolCallStatus::Pending)
            .content(content)
            .locations(locations)
    }

    /// Returns what the editor is asked.
    #[must_use]
    pub fn request(&self, session: SessionId) -> RequestPermissionRequest {
        let call = self.tool_call();
        let fields = ToolCallUpdateFields::new()
            .title(call.title)
            .kind(call.kind)
            .status(call.status)
            .content(call.content)
            .locations(call.locations);
        let options = vec![
            PermissionOption::new(ONCE, "Allow once", PermissionOptionKind::AllowOnce),
            PermissionOption::new(SESSION, "Allow for this session", PermissionOptionKind::AllowAlways),
            PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
        ];
        RequestPermissionRequest::new(session, ToolCallUpdate::new(call.tool_call_id, fields), options)
    }

    /// Returns how the editor is told what became of it.
    #[must_use]
    pub fn told(&self, reply: &Reply) -> ToolCallUpdate {
        let is_yes = matches!(reply, Reply::Answered(answer) if answer.choice == Choice::Allow);
        let status = if is_yes { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        ToolCallUpdate::new(self.tool_call_id(), ToolCallUpdateFields::new().status(status))
    }

    fn tool_call_id(&self) -> ToolCallId {
        ToolCallId::new(format!("{PREFIX}{}-{}", self.holder.session, self.id.0))
    }
}

impl Reply {
    /// Returns what an editor's answer says. Whatever is no yes is a no.
    #[must_use]
    pub fn of_editor(outcome: &RequestPermissionOutcome) -> Self {
        match outcome {
            RequestPermissionOutcome::Selected(selected) if &*selected.option_id.0 == ONCE => Self::allow(),
            RequestPermissionOutcome::Selected(selected) if &*selected.option_id.0 == SESSION => {
                Self::answer(Choice::Allow, Keep::Session)
            }
            _ => Self::deny(),
        }
    }
}
