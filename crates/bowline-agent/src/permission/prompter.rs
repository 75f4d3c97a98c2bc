//! Permission requests to the client's user, over `session/request_permission`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_access::approvals::{Approver, BoxFuture};
use bowline_policy::operation::{OperationKind, OperationTarget};
use bowline_policy::policy::{RuleMatcher, RuleSuggestion};
use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionReply};
use bowline_protocol::permission::{
    PermissionBroker, PermissionRequestDetails, PermissionVerdict, answered_by, rejection_reason,
    unanswered_reason,
};
use bowline_protocol::rpc_error;
use bowline_protocol::schema::v1::{ErrorCode, PermissionOption, PermissionOptionKind, SessionId};
use bowline_protocol::terminal::Invocation;
use bowline_text::display;
use bowline_wire::CallError;

use crate::agent_options::LogSink;
use crate::reporter::Reporter;
use crate::runtime::SessionRuntime;

/// The longest name of an option, in bytes.
const MAX_OPTION_NAME_BYTES: usize = 300;

/// The longest command that is repeated in an option. The call shows every command in full, and the options have to leave
/// room for it.
const MAX_COMMAND_BYTES: usize = 60;

/// The longest description of an option's coverage. Where that is too short there is no option, so that none covers
/// more than it says.
const MAX_COVERAGE_BYTES: usize = 160;

/// Asks the client about pending calls.
pub(super) struct PermissionPrompter {
    session: SessionId,
    cwd: String,
    log: LogSink,
    // Invariant: the calls that wait for permission, each with its reporter.
    pending: Mutex<HashMap<String, PendingCall>>,
}

struct PendingCall {
    reporter: Reporter,
    special_answer: Option<SpecialAnswer>,
    // The user who answered, if a server says that it was another one than the session's.
    answered_by: Option<String>,
}

/// An answer other than plain yes or no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SpecialAnswer {
    /// The turn is cancelled.
    Cancelled,
    /// No user answered, for this reason.
    NotAsked(String),
    /// The answer holds for the session, for an operation that no rule can describe.
    ForSession(AnswerChoice),
}

impl PermissionPrompter {
    pub(super) fn new(runtime: &SessionRuntime) -> Self {
        Self {
            session: runtime.session().clone(),
            cwd: runtime.cwd().to_owned(),
            log: runtime.options().log.clone(),
            pending: Mutex::default(),
        }
    }

    /// Registers a call's reporter, until the guard is dropped.
    pub(super) fn register_call<'e>(&'e self, call: &str, reporter: &Reporter) -> PendingCallGuard<'e> {
        let pending_call =
            PendingCall { reporter: reporter.clone(), special_answer: None, answered_by: None };
        self.pending().insert(call.to_owned(), pending_call);
        PendingCallGuard { prompter: self, call: call.to_owned() }
    }

    fn set_special_answer(&self, call: &str, special: SpecialAnswer) {
        if let Some(pending_call) = self.pending().get_mut(call) {
            pending_call.special_answer = Some(special);
        }
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, PendingCall>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask_client(&self, question: &Question) -> QuestionReply {
        let Some(call) = question.call.as_deref() else { return QuestionReply::NoUser };
        let Some(reporter) = self.pending().get(call).map(|pending_call| pending_call.reporter.clone())
        else {
            return QuestionReply::NoUser;
        };
        let offers = offered_options(question, &self.cwd);
        let options: Vec<PermissionOption> = offers.iter().map(|offer| offer.option.clone()).collect();
        let warning = question.dangers.iter().map(|danger| format!("Careful: {danger}"));
        let warning = warning.collect::<Vec<_>>().join("\n");
        let details = PermissionRequestDetails {
            description: (!warning.is_empty()).then_some(warning),
            content: Vec::new(),
            options: Some(options.clone()),
        };
        let request =
            match reporter.permission_request(&PermissionBroker::new(self.session.clone()), call, details) {
                Ok(request) => request,
                Err(error) => return self.report_not_asked(call, error.to_string()),
            };
        let response = match reporter.client().request_permission(request).await {
            Ok(response) => response,
            Err(error) => return self.report_not_asked(call, describe_ask_error(&error)),
        };
        if let Some(pending_call) = self.pending().get_mut(call) {
            pending_call.answered_by = answered_by(&response);
        }
        if let Some(reason) = unanswered_reason(&response) {
            return self.report_not_asked(call, reason);
        }
        match PermissionVerdict::from_outcome(&options, &response.outcome) {
            Ok(PermissionVerdict::Cancelled) => {
                self.set_special_answer(call, SpecialAnswer::Cancelled);
                QuestionReply::NoUser
            }
            Ok(
                PermissionVerdict::Approved { option_id, .. } | PermissionVerdict::Rejected { option_id, .. },
            ) => {
                let Some(offer) = offers.iter().find(|offer| offer.option.option_id == option_id) else {
                    return QuestionReply::deny();
                };
                if offer.is_for_session {
                    self.set_special_answer(call, SpecialAnswer::ForSession(offer.choice));
                }
                QuestionReply::Answered(QuestionAnswer {
                    scope: offer.scope.clone(),
                    reason: rejection_reason(&response),
                    ..QuestionAnswer::new(offer.choice, offer.keep)
                })
            }
            Err(violation) => {
                self.report_not_asked(call, format!("the editor's answer is no permission: {violation}"))
            }
        }
    }

    fn report_not_asked(&self, call: &str, reason: String) -> QuestionReply {
        self.log.write_line(format!("permission was not given: {reason}"));
        self.set_special_answer(call, SpecialAnswer::NotAsked(reason));
        QuestionReply::NoUser
    }
}

impl Approver for PermissionPrompter {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        Box::pin(self.ask_client(question))
    }

    fn notify(&self, text: &str) {
        self.log.write_line(text);
    }
}

/// A call that waits for permission.
pub(super) struct PendingCallGuard<'e> {
    prompter: &'e PermissionPrompter,
    call: String,
}

impl PendingCallGuard<'_> {
    pub(super) fn special_answer(&self) -> Option<SpecialAnswer> {
        self.prompter.pending().get(&self.call).and_then(|pending_call| pending_call.special_answer.clone())
    }

    pub(super) fn answered_by(&self) -> Option<String> {
        self.prompter.pending().get(&self.call).and_then(|pending_call| pending_call.answered_by.clone())
    }
}

impl Drop for PendingCallGuard<'_> {
    fn drop(&mut self) {
        self.prompter.pending().remove(&self.call);
    }
}

/// An option, and its meaning.
struct OfferedOption {
    option: PermissionOption,
    choice: AnswerChoice,
    keep: AnswerLifetime,
    scope: Vec<RuleSuggestion>,
    is_for_session: bool,
}

/// Returns the user's options: once, in this session and always, each named by its coverage, which is the narrowest.
/// Some editors show only the last one of a kind, which is "always".
fn offered_options(question: &Question, cwd: &str) -> Vec<OfferedOption> {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
    let offer = |id: &'static str, name: &str, kind| OfferedOption {
        option: PermissionOption::new(id, display::escape_line(name, MAX_OPTION_NAME_BYTES), kind),
        choice: if matches!(kind, AllowOnce | AllowAlways) {
            AnswerChoice::Allow
        } else {
            AnswerChoice::Deny
        },
        keep: AnswerLifetime::Once,
        scope: Vec::new(),
        is_for_session: false,
    };
    let lasting = |offer: OfferedOption, keep, scope: &RuleSuggestion| OfferedOption {
        keep,
        scope: vec![scope.clone()],
        ..offer
    };
    let kind = question.items.first().map_or(OperationKind::Execute, |item| item.operation.kind);
    let description = question.items.iter().find_map(|item| match &item.operation.target {
        OperationTarget::Described(text) => Some(text.as_str()),
        _ => None,
    });
    let mut offers = vec![offer("allow_once", "Allow once", AllowOnce)];
    // A rule for one file of several would allow less than it seems to.
    let narrow = question
        .suggestions
        .first()
        .filter(|_| question.items.len() == 1)
        .and_then(|suggestion| Some((suggestion, describe_coverage(suggestion, kind, cwd)?)));
    if let Some((narrow, coverage)) = &narrow {
        let name = format!("Allow {coverage}, in this session");
        offers.push(lasting(offer("allow_session", &name, AllowAlways), AnswerLifetime::Session, narrow));
        let name = format!("Always allow {coverage}");
        offers.push(lasting(offer("allow_always", &name, AllowAlways), AnswerLifetime::Project, narrow));
    } else if let Some(text) = description {
        let name = format!("Allow in this session, with any arguments: {text}");
        offers.push(OfferedOption { is_for_session: true, ..offer("allow_session", &name, AllowAlways) });
    }
    offers.push(offer("reject_once", "Reject", RejectOnce));
    if let Some((narrow, coverage)) = &narrow {
        let name = format!("Always reject {coverage}");
        offers.push(lasting(offer("reject_always", &name, RejectAlways), AnswerLifetime::Project, narrow));
    } else if let Some(text) = description {
        let name = format!("Reject in this session, with any arguments: {text}");
        offers.push(OfferedOption { is_for_session: true, ..offer("reject_session", &name, RejectAlways) });
    }
    offers
}

/// Describes a rule's coverage completely; `None` if that takes too many bytes.
fn describe_coverage(suggestion: &RuleSuggestion, kind: OperationKind, cwd: &str) -> Option<String> {
    let escape_short = |text: &str| {
        let line = display::escape_line(text, usize::MAX);
        (line.len() <= MAX_COVERAGE_BYTES).then_some(line)
    };
    // A rule for a command does not restrict its directory.
    let anywhere = "in any directory of the project";
    Some(match &suggestion.matcher {
        RuleMatcher::Exact(invocation) => {
            let line = escape_short(&bowline_protocol::terminal::format_invocation(invocation));
            match line.filter(|line| line.len() <= MAX_COMMAND_BYTES) {
                Some(line) => format!("exactly `{line}` {anywhere}"),
                None => format!("exactly this command {anywhere}"),
            }
        }
        RuleMatcher::Command(words) => {
            let line = escape_short(&bowline_protocol::terminal::format_invocation(&Invocation::Argv(
                words.clone(),
            )))?;
            format!("commands that start with `{line}` {anywhere}")
        }
        RuleMatcher::Path(_) => {
            // Paths below the session's directory are shortened.
            let shorten = |start: &str| {
                let rest =
                    suggestion.description.strip_prefix(start)?.strip_prefix(cwd)?.strip_prefix('/')?;
                Some(format!("{start}{rest}"))
            };
            let text = shorten("the file ").or_else(|| shorten("files in "));
            let text = escape_short(text.as_ref().unwrap_or(&suggestion.description))
                .filter(|text| !text.contains('…'))?;
            let action = match kind {
                OperationKind::Read => "reading",
                OperationKind::Write => "edits of",
                OperationKind::Delete => "deleting",
                OperationKind::Execute | OperationKind::Fetch => kind.as_str(),
            };
            format!("{action} {text}")
        }
        RuleMatcher::Host(_) | RuleMatcher::Variable(_) | RuleMatcher::Everything => {
            escape_short(&suggestion.description)?
        }
    })
}

fn describe_ask_error(error: &CallError) -> String {
    match error {
        CallError::ErrorResponse(error) if error.code == ErrorCode::MethodNotFound => {
            "the editor cannot ask its user for permission (it does not know session/request_permission); a mode \
             that asks less, or a rule of the user's, would allow it"
                .to_owned()
        }
        CallError::ErrorResponse(error) => {
            format!("the editor could not ask its user: {}", rpc_error::describe_error(error))
        }
        CallError::Closed => "the connection to the editor is closed".to_owned(),
        error => format!("the editor could not ask its user: {error}"),
    }
}
