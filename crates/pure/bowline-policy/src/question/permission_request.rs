//! A question as a permission request to an editor's user, for a tool call of its own.

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, ToolCall, ToolCallId, ToolCallLocation, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};

use super::{AnswerChoice, AnswerLifetime, Question, QuestionReply};
use crate::operation::{OperationKind, OperationTarget};
use crate::policy::{RuleMatcher, RuleSuggestion};
use bowline_protocol::builders;
use bowline_protocol::permission::{rejection_reason, unanswered_reason};
use bowline_protocol::relay::PROXY_ID_PREFIX;
use bowline_text::display;

const ALLOW_ONCE: &str = "allow";
const ALLOW_SESSION: &str = "allow-session";
const ALLOW_PROJECT: &str = "allow-project";
const REJECT: &str = "reject";

/// The maximum length of a title, in bytes.
const MAX_TITLE: usize = 200;

/// The maximum length of the text that says what a lasting option covers, in bytes.
const MAX_COVERAGE: usize = 300;

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
        let options = self.editor_options().into_iter().map(|(option, _)| option).collect();
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
    /// Returns the reply that an editor's answer stands for. Only an option that was offered is a yes; everything else
    /// is a no.
    #[must_use]
    pub fn reply_from_editor(&self, response: &RequestPermissionResponse) -> QuestionReply {
        if unanswered_reason(response).is_some() {
            return QuestionReply::NoUser;
        }
        let selected = match &response.outcome {
            RequestPermissionOutcome::Selected(selected) => Some(&selected.option_id),
            _ => None,
        };
        let offered =
            self.editor_options().into_iter().find(|(option, _)| Some(&option.option_id) == selected);
        match offered {
            Some((_, Some(lifetime))) => QuestionReply::answer(AnswerChoice::Allow, lifetime),
            _ => QuestionReply::deny_because(rejection_reason(response)),
        }
    }

    /// Returns the options for the editor's user, each with how long it allows; `None` rejects. Lasting options make
    /// the narrowest rules, and are offered only if these cover every operation. The shorter one comes first, because
    /// some editors select by kind.
    fn editor_options(&self) -> Vec<(PermissionOption, Option<AnswerLifetime>)> {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let option = |id: &'static str, name: &str, kind| PermissionOption::new(id, name, kind);
        let mut options = vec![(option(ALLOW_ONCE, "Allow once", AllowOnce), Some(AnswerLifetime::Once))];
        if let Some(coverage) = self.lasting_coverage() {
            let name = format!("Allow {coverage} in this session");
            options.push((option(ALLOW_SESSION, &name, AllowAlways), Some(AnswerLifetime::Session)));
            let name = format!("Always allow {coverage} in this project");
            options.push((option(ALLOW_PROJECT, &name, AllowAlways), Some(AnswerLifetime::Project)));
        }
        options.push((option(REJECT, "Reject", RejectOnce), None));
        options
    }

    /// Describes what the narrowest rules for all operations cover, in the words of the question, which shows them in
    /// full; `None` if they do not cover all.
    fn lasting_coverage(&self) -> Option<String> {
        let verb = |kind| match kind {
            OperationKind::Read => "reading",
            OperationKind::Write => "edits of",
            OperationKind::Delete => "deleting",
            OperationKind::Execute => "running",
            OperationKind::Fetch => "fetching",
        };
        let is_path = |suggestion: &RuleSuggestion| matches!(suggestion.matcher, RuleMatcher::Path(_));
        match (self.items.as_slice(), self.suggestions.as_slice()) {
            // For one operation the suggestions are alternatives; for several, each has its own.
            ([item], [narrowest, ..]) => Some(match &narrowest.matcher {
                RuleMatcher::Path(_) => format!("{} this file", verb(item.operation.kind)),
                RuleMatcher::Exact(_) => "exactly this command".to_owned(),
                _ => display::escape_line(&narrowest.description, MAX_COVERAGE),
            }),
            ([first, rest @ ..], suggestions) if suggestions.len() == self.items.len() => {
                let kind = first.operation.kind;
                let is_same = rest.iter().all(|item| item.operation.kind == kind);
                Some(if is_same && suggestions.iter().all(is_path) {
                    format!("{} these {} files", verb(kind), self.items.len())
                } else {
                    format!("these {} operations", self.items.len())
                })
            }
            _ => None,
        }
    }
}
