//! The decision on a hypothetical request of an agent, and its reasons.

use std::fmt::Write as _;

use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::Access;
use bowline_policy::policy::{Effect, Policy, PolicyContext, PolicyDecision, PolicyReason, ReasonBasis};
use bowline_protocol::terminal;
use bowline_workspace::approvals::{PolicyFallback, list_unreviewed};
use bowline_workspace::policy::RuleScope;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::resolve_command_in;
use serde_json::json;

use super::rules::format_rule;
use super::{KindArgument, failed, open_policy};
use crate::changes::WorkspaceArguments;
use crate::client::config::Config;
use crate::client::options;
use crate::common::console::{OutputStyle, TextStyle, escape_line, print};
use crate::common::workspace_location::WorkspaceLocation;
use crate::error::CliError;
use bowline_workspace::clock::now;

/// A hypothetical request, and the decision on it.
struct Explanation {
    subject: String,
    ruling: PolicyDecision,
    /// The decision in `run` and `chat`, if the user's configuration changes it there.
    client_effect: Option<Effect>,
}

/// Prints the decision and its reasons.
///
/// # Errors
/// Names the request that cannot be evaluated.
pub(super) fn run(
    kind: KindArgument,
    what: &[String],
    env: Vec<(String, String)>,
    json: bool,
    place: &WorkspaceArguments,
) -> Result<(), CliError> {
    if kind != KindArgument::Execute && !env.is_empty() {
        return Err(CliError::Usage("--env is for execute alone".to_owned()));
    }
    let (here, file) = open_policy(place, RuleScope::Workspace)?;
    let unreviewed = list_unreviewed(&here.audit_log_dir());
    let (current, stated) = file.policy_and_preset().map_err(failed)?;
    let policy = Policy { unreviewed_files: unreviewed, ..Policy::clone(&current) };
    let config = here.dirs.policy.parent().map(Config::read).transpose()?.unwrap_or_default();
    let in_clients = config.approve.map(|approve| {
        let preset = PolicyFallback::UnlessRestricted(options::approval_preset(approve)).preset(stated);
        Policy { preset, ..policy.clone() }
    });
    let roots = Roots::open(&RootSpec::writable(here.root.as_str()), &[]).map_err(failed)?;
    let roots = roots.with_reserved_paths([&here.dirs.state, &here.dirs.anchors, &here.dirs.policy]);
    let judge = |what: String, operation: &Operation| {
        let context = PolicyContext { session: String::new(), turn: None, now: now() };
        let in_clients = in_clients.as_ref().map(|policy| policy.evaluate(operation, &context).effect);
        let ruling = policy.evaluate(operation, &context);
        let differs = |effect: &Effect| *effect != ruling.effect;
        Explanation { subject: what, client_effect: in_clients.filter(differs), ruling }
    };
    let kind = OperationKind::from(kind);
    let single = || match what {
        [one] if one.trim().is_empty() => {
            Err(CliError::Usage(format!("name something to {}", kind.as_str())))
        }
        [one] => Ok(one.as_str()),
        _ => Err(CliError::Usage(format!("name one thing to {}, there are {}", kind.as_str(), what.len()))),
    };
    let judged = match kind {
        OperationKind::Execute => {
            let (program, arguments) =
                what.split_first().ok_or_else(|| CliError::Usage("name a command".to_owned()))?;
            let invocation = terminal::parse_invocation(program, arguments)
                .map_err(|why| CliError::Usage(why.to_string()))?;
            let shown = bowline_protocol::terminal::format_invocation(&invocation).into_owned();
            let command = resolve_command_in(&roots, invocation, here.root.clone(), env);
            judge(shown, &Operation { kind, target: OperationTarget::Command(command) })
        }
        OperationKind::Fetch => {
            let url = single()?;
            // A bare host, as rules name it.
            let url = if url.contains("://") { url.to_owned() } else { format!("https://{url}/") };
            judge(url.clone(), &Operation { kind, target: OperationTarget::Url(url) })
        }
        OperationKind::Read | OperationKind::Write | OperationKind::Delete => {
            let path = here.absolute_path(single()?.as_ref())?;
            judge(here.relative_name(&path).to_owned(), &file_operation(&roots, kind, path.clone()))
        }
    };
    print(&if json {
        to_json(&policy, &here, &judged)
    } else {
        to_text(&policy, &judged, OutputStyle::for_stdout())
    })
}

fn file_operation(roots: &Roots, kind: OperationKind, path: String) -> Operation {
    let access = if kind == OperationKind::Read { Access::Read } else { Access::Write };
    match roots.admit(&path, access) {
        Ok(admitted) => admitted.operation(kind),
        Err(_) => Operation { kind, target: OperationTarget::OutsideRoots { requested: path } },
    }
}

/// Formats the decision and every reason: for a line of several commands, at least one reason per command.
fn to_text(policy: &Policy, judged: &Explanation, look: OutputStyle) -> String {
    let shown = |effect| match effect {
        Effect::Allow => (TextStyle::Good, "allowed"),
        Effect::Ask => (TextStyle::Highlight, "asked about"),
        Effect::Deny => (TextStyle::Bad, "denied"),
    };
    let (ink, word) = shown(judged.ruling.effect);
    let mut text = format!("{}: {}\n", look.paint(ink, word), escape_line(&judged.subject));
    for reason in &judged.ruling.reasons {
        // Writing to a string cannot fail.
        _ = writeln!(text, "  {}", describe_reason(policy, reason));
    }
    if let Some((ink, word)) = judged.client_effect.map(shown) {
        let word = look.paint(ink, word);
        _ = writeln!(text, "in run and chat: {word}, because of `approve` in your config.toml");
    }
    text
}

/// Describes a reason. Rules are numbered as in `bowline policy show`.
fn describe_reason(policy: &Policy, reason: &PolicyReason) -> String {
    let ReasonBasis::Rule { index, .. } = reason.basis else { return escape_line(&reason.to_string()) };
    let Some(rule) = policy.rules.get(index) else { return escape_line(&reason.to_string()) };
    let of =
        reason.subject.as_ref().map_or_else(String::new, |subject| format!("`{}`: ", escape_line(subject)));
    format!("{}: {of}rule {}, {}", reason.effect, index + 1, format_rule(rule, OutputStyle::PLAIN))
}

fn to_json(policy: &Policy, here: &WorkspaceLocation, judged: &Explanation) -> String {
    let because = judged.ruling.reasons.iter().map(|reason| {
        json!({"effect": reason.effect.as_str(), "subject": reason.subject, "text": describe_reason(policy, reason)})
    });
    let told = json!({
        "workspace": here.root,
        "preset": policy.preset.as_str(),
        "what": judged.subject,
        "effect": judged.ruling.effect.as_str(),
        "because": because.collect::<Vec<_>>(),
        "run_and_chat": judged.client_effect.unwrap_or(judged.ruling.effect).as_str(),
    });
    format!("{told}\n")
}
