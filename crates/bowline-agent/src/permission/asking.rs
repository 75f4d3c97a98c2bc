//! The user at the other end of `session/request_permission`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_state::display;
use bowline_state::failure;
use bowline_state::operation::{Invocation, Kind, Target};
use bowline_state::permission::{Ask, PermissionBroker, Verdict};
use bowline_state::policy::{Matcher, Suggestion};
use bowline_state::question::{Answer, Choice, Keep, Question, Reply};
use bowline_state::schema::v1::{
    ErrorCode, PermissionOption, PermissionOptionKind, RequestPermissionResponse, SessionId,
};
use bowline_wire::CallError;
use bowline_workspace::approvals::{BoxFuture, Person};

use crate::reporter::Reporter;
use crate::runtime::Runtimes;
use crate::settings::Log;

/// The longest reason of a user that a model is told, in bytes.
const MAX_REASON: usize = 2000;

/// The longest name of an option, in bytes.
const MAX_NAME: usize = 300;

/// As much of it says what is covered, at most. What needs more has no option, so that none covers more than it says.
const MAX_COVERED: usize = 160;

/// Asks the client about the calls that are under way.
pub(super) struct Editor {
    session: SessionId,
    cwd: String,
    log: Log,
    // Invariant: the calls that wait for permission, each with who reports it.
    asking: Mutex<HashMap<String, Asking>>,
}

struct Asking {
    reporter: Reporter,
    special: Option<Special>,
}

/// What an answer was beside yes and no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Special {
    /// The turn is cancelled.
    Cancelled,
    /// The client did not ask; why.
    Unable(String),
    /// It holds for the session, for something that no rule can be made of.
    ForSession(Choice),
}

impl Editor {
    pub(super) fn new(runtimes: &Runtimes) -> Self {
        Self {
            session: runtimes.session().clone(),
            cwd: runtimes.cwd().to_owned(),
            log: runtimes.settings().log.clone(),
            asking: Mutex::default(),
        }
    }

    /// Notes who reports a call, as long as what is returned lives.
    pub(super) fn enter<'e>(&'e self, call: &str, reporter: &Reporter) -> Entered<'e> {
        let asking = Asking { reporter: reporter.clone(), special: None };
        self.asking().insert(call.to_owned(), asking);
        Entered { editor: self, call: call.to_owned() }
    }

    fn note(&self, call: &str, special: Special) {
        if let Some(asking) = self.asking().get_mut(call) {
            asking.special = Some(special);
        }
    }

    fn asking(&self) -> MutexGuard<'_, HashMap<String, Asking>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn put(&self, question: &Question) -> Reply {
        let Some(call) = question.call.as_deref() else { return Reply::Nobody };
        let Some(reporter) = self.asking().get(call).map(|asking| asking.reporter.clone()) else {
            return Reply::Nobody;
        };
        let offers = offers(question, &self.cwd);
        let options: Vec<PermissionOption> = offers.iter().map(|offer| offer.option.clone()).collect();
        let warning = question.dangers.iter().map(|danger| format!("Careful: {danger}"));
        let warning = warning.collect::<Vec<_>>().join("\n");
        let ask = Ask {
            description: (!warning.is_empty()).then_some(warning),
            content: Vec::new(),
            options: Some(options.clone()),
        };
        let request = match reporter.ask(&PermissionBroker::new(self.session.clone()), call, ask) {
            Ok(request) => request,
            Err(error) => return self.unable(call, error.to_string()),
        };
        let response = match reporter.client().request_permission(request).await {
            Ok(response) => response,
            Err(error) => return self.unable(call, why_not_asked(&error)),
        };
        match Verdict::of(&options, &response.outcome) {
            Ok(Verdict::Cancelled) => {
                self.note(call, Special::Cancelled);
                Reply::Nobody
            }
            Ok(Verdict::Approved { option_id, .. } | Verdict::Rejected { option_id, .. }) => {
                let Some(offer) = offers.iter().find(|offer| offer.option.option_id == option_id) else {
                    return Reply::deny();
                };
                if offer.for_session {
                    self.note(call, Special::ForSession(offer.choice));
                }
                Reply::Answered(Answer {
                    choice: offer.choice,
                    keep: offer.keep,
                    scope: offer.scope.clone(),
                    reason: reason(&response),
                    option: None,
                    text: None,
                })
            }
            Err(breach) => self.unable(call, format!("the editor's answer is no permission: {breach}")),
        }
    }

    fn unable(&self, call: &str, why: String) -> Reply {
        self.log.line(format!("permission was not given: {why}"));
        self.note(call, Special::Unable(why));
        Reply::Nobody
    }
}

impl Person for Editor {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        Box::pin(self.put(question))
    }

    fn tell(&self, text: &str) {
        self.log.line(text);
    }
}

/// A call that waits for permission.
pub(super) struct Entered<'e> {
    editor: &'e Editor,
    call: String,
}

impl Entered<'_> {
    pub(super) fn special(&self) -> Option<Special> {
        self.editor.asking().get(&self.call).and_then(|asking| asking.special.clone())
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.editor.asking().remove(&self.call);
    }
}

/// An option, and what it means.
struct Offer {
    option: PermissionOption,
    choice: Choice,
    keep: Keep,
    scope: Vec<Suggestion>,
    for_session: bool,
}

/// Returns what a user can choose: once and always, each named by what it covers. There is at most one option of a kind, the
/// narrow one: some editors show one per kind, the last.
fn offers(question: &Question, cwd: &str) -> Vec<Offer> {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
    let offer = |id: &'static str, name: &str, kind| Offer {
        option: PermissionOption::new(id, display::line(name, MAX_NAME), kind),
        choice: if matches!(kind, AllowOnce | AllowAlways) { Choice::Allow } else { Choice::Deny },
        keep: Keep::Once,
        scope: Vec::new(),
        for_session: false,
    };
    let lasting =
        |offer: Offer, scope: &Suggestion| Offer { keep: Keep::Project, scope: vec![scope.clone()], ..offer };
    let kind = question.items.first().map_or(Kind::Execute, |item| item.operation.kind);
    let described = question.items.iter().find_map(|item| match &item.operation.target {
        Target::Described(text) => Some(text.as_str()),
        _ => None,
    });
    let mut offers = vec![offer("allow_once", "Allow once", AllowOnce)];
    let narrow = question.suggestions.first().and_then(|each| Some((each, covers(each, kind, cwd)?)));
    if let Some((narrow, covered)) = &narrow {
        let name = format!("Always allow {covered}");
        offers.push(lasting(offer("allow_always", &name, AllowAlways), narrow));
    } else if let Some(text) = described {
        let name = format!("Allow in this session, with any arguments: {text}");
        offers.push(Offer { for_session: true, ..offer("allow_session", &name, AllowAlways) });
    }
    offers.push(offer("reject_once", "Reject", RejectOnce));
    if let Some((narrow, covered)) = &narrow {
        let name = format!("Always reject {covered}");
        offers.push(lasting(offer("reject_always", &name, RejectAlways), narrow));
    } else if let Some(text) = described {
        let name = format!("Reject in this session, with any arguments: {text}");
        offers.push(Offer { for_session: true, ..offer("reject_session", &name, RejectAlways) });
    }
    offers
}

/// Returns what a rule would cover, in words that leave nothing out; none if there is no room for that.
fn covers(suggestion: &Suggestion, kind: Kind, cwd: &str) -> Option<String> {
    let whole = |text: &str| {
        let line = display::line(text, usize::MAX);
        (line.len() <= MAX_COVERED).then_some(line)
    };
    // A rule for a command does not know where it runs.
    let anywhere = "in any directory of the project";
    Some(match &suggestion.matcher {
        // The call shows it in full.
        Matcher::Exact(invocation) => match whole(&display::invocation(invocation)) {
            Some(line) => format!("exactly `{line}` {anywhere}"),
            None => format!("exactly this command {anywhere}"),
        },
        Matcher::Command(words) => {
            let line = whole(&display::invocation(&Invocation::Argv(words.clone())))?;
            format!("commands that start with `{line}` {anywhere}")
        }
        Matcher::Path(_) => {
            // Names below the session's directory are shorter without it.
            let below = |start: &str| {
                let rest = suggestion.text.strip_prefix(start)?.strip_prefix(cwd)?.strip_prefix('/')?;
                Some(format!("{start}{rest}"))
            };
            let text = below("the file ").or_else(|| below("files in "));
            let text = whole(text.as_ref().unwrap_or(&suggestion.text)).filter(|text| !text.contains('…'))?;
            let does = match kind {
                Kind::Read => "reading",
                Kind::Write => "edits of",
                Kind::Delete => "deleting",
                Kind::Execute | Kind::Fetch => kind.word(),
            };
            format!("{does} {text}")
        }
        Matcher::Host(_) | Matcher::Variable(_) | Matcher::Everything => whole(&suggestion.text)?,
    })
}

fn why_not_asked(error: &CallError) -> String {
    match error {
        CallError::Refused(refused) if refused.code == ErrorCode::MethodNotFound => {
            "the editor cannot ask its user for permission (it does not know session/request_permission); a mode \
             that asks less, or a rule of the user's, would allow it"
                .to_owned()
        }
        CallError::Refused(refused) => {
            format!("the editor could not ask its user: {}", failure::error_text(refused))
        }
        CallError::Closed => "the connection to the editor is closed".to_owned(),
        error => format!("the editor could not ask its user: {error}"),
    }
}

/// Returns why the user said no, if the client tells: the protocol has no place for it but `_meta`.
fn reason(response: &RequestPermissionResponse) -> Option<String> {
    let reason = response.meta.as_ref()?.get("bowline")?.get("reason")?.as_str()?;
    let reason = reason.strip_prefix("the user said no").unwrap_or(reason).trim_start_matches(':').trim();
    (!reason.is_empty()).then(|| display::line(reason, MAX_REASON))
}
