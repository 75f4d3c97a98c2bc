//! The decision on a hypothetical request of an agent, and its reasons.

use std::fmt::Write as _;

use bowline_access::approvals::{PolicyFallback, list_unreviewed};
use bowline_access::policy::RuleScope;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::Access;
use bowline_policy::policy::{
    BuiltInRule, Effect, Policy, PolicyContext, PolicyDecision, PolicyReason, ReasonBasis,
};
use bowline_protocol::terminal;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::resolve_command;
use serde_json::json;

use super::rules::format_rule;
use super::{KindArgument, failed, open_policy};
use crate::changes::WorkspaceArguments;
use bowline_client::arguments::options;
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, print};
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::config::Config;
use bowline_client::error::CliError;
use bowline_storage::clock::now;

/// A hypothetical request, and the decision on it.
struct Explanation {
    subject: String,
    ruling: PolicyDecision,
    /// The decision in `run` and `chat`, if the user's configuration changes it there.
    client_effect: Option<Effect>,
    /// The decision if an agent asks for permission to use its own tools, if that differs.
    own_tools_effect: Option<Effect>,
}

impl Explanation {
    /// Returns the explanation for a path that Bowline itself never opens, whatever the rules say.
    fn with_refusal(mut self) -> Self {
        let effect = self.client_effect.take().unwrap_or(self.ruling.effect);
        self.own_tools_effect = (effect != Effect::Deny).then_some(effect);
        self.ruling.effect = Effect::Deny;
        for reason in &mut self.ruling.reasons {
            if reason.basis == ReasonBasis::BuiltIn(BuiltInRule::OutsideWorkspace) {
                reason.effect = Effect::Deny;
            }
        }
        self
    }
}

/// Prints the decision and its reasons.
///
/// # Errors
/// Names the request that cannot be evaluated.
pub(super) fn run(
    kind: KindArgument,
    words: &[String],
    env: Vec<(String, String)>,
    json: bool,
    workspace: &WorkspaceArguments,
) -> Result<(), CliError> {
    if kind != KindArgument::Execute && !env.is_empty() {
        return Err(CliError::Usage("--env is for execute alone".to_owned()));
    }
    let (location, file) = open_policy(workspace, RuleScope::Workspace)?;
    let unreviewed = list_unreviewed(&location.audit_log_dir());
    let (current, stated_preset) = file.policy_and_preset().map_err(failed)?;
    let policy = Policy { unreviewed_files: unreviewed, ..Policy::clone(&current) };
    let config = location.dirs.policy.parent().map(Config::read).transpose()?.unwrap_or_default();
    let client_policy = config.approve.map(|approve| {
        let preset =
            PolicyFallback::UnlessRestricted(options::approval_preset(approve)).preset(stated_preset);
        Policy { preset, ..policy.clone() }
    });
    let roots = Roots::open(&RootSpec::writable(location.root.as_str()), &[]).map_err(failed)?;
    let roots =
        roots.with_reserved_paths([&location.dirs.state, &location.dirs.anchors, &location.dirs.policy]);
    let judge = |subject: String, operation: &Operation| {
        let context = PolicyContext { session: String::new(), turn: None, now: now() };
        let client_effect = client_policy.as_ref().map(|policy| policy.evaluate(operation, &context).effect);
        let ruling = policy.evaluate(operation, &context);
        let differs = |effect: &Effect| *effect != ruling.effect;
        let client_effect = client_effect.filter(differs);
        Explanation { subject, client_effect, own_tools_effect: None, ruling }
    };
    let kind = OperationKind::from(kind);
    let single = || match words {
        [word] if word.trim().is_empty() => {
            Err(CliError::Usage(format!("name something to {}", kind.as_str())))
        }
        [word] => Ok(word.as_str()),
        _ => Err(CliError::Usage(format!("name one thing to {}, there are {}", kind.as_str(), words.len()))),
    };
    let explanation = match kind {
        OperationKind::Execute => {
            let (program, arguments) =
                words.split_first().ok_or_else(|| CliError::Usage("name a command".to_owned()))?;
            let invocation = terminal::parse_invocation(program, arguments)
                .map_err(|error| CliError::Usage(error.to_string()))?;
            let text = bowline_protocol::terminal::format_invocation(&invocation).into_owned();
            let command = resolve_command(&roots, invocation, location.root.clone(), env);
            judge(text, &Operation { kind, target: OperationTarget::Command(command) })
        }
        OperationKind::Fetch => {
            let url = single()?;
            // A bare host, as rules name it.
            let url = if url.contains("://") { url.to_owned() } else { format!("https://{url}/") };
            judge(url.clone(), &Operation { kind, target: OperationTarget::Url(url) })
        }
        OperationKind::Read | OperationKind::Write | OperationKind::Delete => {
            let path = location.absolute_path(single()?.as_ref())?;
            let subject = location.relative_name(&path).to_owned();
            let access = if kind == OperationKind::Read { Access::Read } else { Access::Write };
            match roots.admit(&path, access) {
                Ok(admitted) => judge(subject, &admitted.operation(kind)),
                Err(_) => {
                    let target = OperationTarget::OutsideRoots { requested: path.clone() };
                    judge(subject, &Operation { kind, target }).with_refusal()
                }
            }
        }
    };
    print(&if json {
        to_json(&policy, &location, &explanation)
    } else {
        to_text(&policy, &explanation, OutputStyle::for_stdout())
    })
}

/// Formats the decision and every reason: for a line of several commands, at least one reason per command.
fn to_text(policy: &Policy, explanation: &Explanation, style: OutputStyle) -> String {
    let describe_effect = |effect| match effect {
        Effect::Allow => (TextStyle::Good, "allowed"),
        Effect::Ask => (TextStyle::Highlight, "asked about"),
        Effect::Deny => (TextStyle::Bad, "denied"),
    };
    let (text_style, word) = describe_effect(explanation.ruling.effect);
    let mut text = format!("{}: {}\n", style.paint(text_style, word), escape_line(&explanation.subject));
    for reason in &explanation.ruling.reasons {
        // Writing to a string cannot fail.
        _ = writeln!(text, "  {}", describe_reason(policy, reason));
    }
    if let Some((text_style, word)) = explanation.client_effect.map(describe_effect) {
        let word = style.paint(text_style, word);
        _ = writeln!(text, "in run and chat: {word}, because of `approve` in your config.toml");
    }
    if let Some((text_style, word)) = explanation.own_tools_effect.map(describe_effect) {
        let word = style.paint(text_style, word);
        _ = writeln!(text, "if an agent asks for permission to use its own tools: {word}");
    }
    text
}

/// Describes a reason. Rules are numbered as in `bowline policy show`.
fn describe_reason(policy: &Policy, reason: &PolicyReason) -> String {
    let ReasonBasis::Rule { index, .. } = reason.basis else { return escape_line(&reason.to_string()) };
    let Some(rule) = policy.rules.get(index) else { return escape_line(&reason.to_string()) };
    let prefix =
        reason.subject.as_ref().map_or_else(String::new, |subject| format!("`{}`: ", escape_line(subject)));
    format!("{}: {prefix}rule {}, {}", reason.effect, index + 1, format_rule(rule, OutputStyle::PLAIN))
}

fn to_json(policy: &Policy, location: &WorkspaceLocation, explanation: &Explanation) -> String {
    let reasons = explanation.ruling.reasons.iter().map(|reason| {
        json!({"effect": reason.effect.as_str(), "subject": reason.subject, "text": describe_reason(policy, reason)})
    });
    let output = json!({
        "workspace": location.root,
        "preset": policy.preset.as_str(),
        "what": explanation.subject,
        "effect": explanation.ruling.effect.as_str(),
        "because": reasons.collect::<Vec<_>>(),
        "run_and_chat": explanation.client_effect.unwrap_or(explanation.ruling.effect).as_str(),
        "own_tools": explanation.own_tools_effect.map(|effect| effect.as_str()),
    });
    format!("{output}\n")
}
