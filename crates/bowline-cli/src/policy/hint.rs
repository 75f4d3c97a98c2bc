//! Hints on what would allow a denied request. Every flag and rule is tried on the policy in force before it is named.

use bowline_access::approvals::PolicyFallback;
use bowline_host::Host;
use bowline_policy::audit::{AuditAction, AuditEntry, AuditSubject};
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::Access;
use bowline_policy::policy::{
    BuiltInRule, Effect, Policy, PolicyContext, Preset, ReasonBasis, Rule, RuleLifetime, RuleMatcher,
    RuleSource, RuleSpec, RuleSuggestion, suggest_rules,
};
use bowline_protocol::terminal::Invocation;
use bowline_text::display;
use bowline_text::time::Timestamp;
use bowline_workspace::terminals::resolve_command;

/// What would have allowed a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyHint {
    /// A flag.
    pub(crate) flag: Option<&'static str>,
    /// The commands that add the necessary rules, each quoted.
    pub(crate) rules: Option<Vec<String>>,
    /// The commands that would also allow a write, where reads are denied: agents read a file before they change it.
    pub(crate) write_rules: Option<Vec<String>>,
}

impl PolicyHint {
    /// Returns what would have allowed all operations, beyond the given level.
    pub(crate) fn find(
        host: &Host,
        operations: &[Operation],
        session: &str,
        current_preset: Option<Preset>,
    ) -> Self {
        let context = PolicyContext { session: session.to_owned(), turn: None, now: Timestamp(0) };
        let flag = find_flag(host, operations, &context, current_preset);
        let rules = |operations: &[Operation]| find_rules(host, operations, &context, current_preset);
        let is_read = |operation: &Operation| operation.kind == OperationKind::Read;
        let write_rules = (flag.is_none() && operations.iter().all(is_read)).then(|| {
            let write = |operation: &Operation| Operation { kind: OperationKind::Write, ..operation.clone() };
            rules(&operations.iter().map(write).collect::<Vec<_>>())
        });
        Self { flag, rules: rules(operations), write_rules: write_rules.flatten() }
    }
}

impl std::fmt::Display for PolicyHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.flag, &self.rules) {
            (Some(flag), _) => write!(f, "{flag} would allow it"),
            (None, Some(rules)) => {
                let verb = if rules.len() == 1 { "does" } else { "do" };
                write!(f, "no flag allows it, but {} {verb}", rules.join(" and "))?;
                match &self.write_rules {
                    Some(rules) => write!(f, "; to change it takes {} as well", rules.join(" and ")),
                    None => Ok(()),
                }
            }
            (None, None) => f.write_str("no flag and no rule allows it"),
        }
    }
}

/// Returns the hint for a request that rules allow, but whose agent offers only a lasting approval.
pub(crate) fn always_hint(host: &Host) -> &'static str {
    match host.approvals().policy_with_fallback(PolicyFallback::UnlessRestricted(Preset::Full)) {
        Ok(policy) if policy.preset == Preset::Full => "--approve all would allow it",
        _ => "`bowline chat` lets you say that",
    }
}

/// Returns the flag that would have allowed all operations, if it allows more than the given one.
fn find_flag(
    host: &Host,
    operations: &[Operation],
    context: &PolicyContext,
    current_preset: Option<Preset>,
) -> Option<&'static str> {
    let presets = [
        (Preset::ReadOnly, "--approve reads"),
        (Preset::AcceptEdits, "--approve edits"),
        (Preset::Full, "--approve all"),
    ];
    let allows_more = |preset: Preset| {
        current_preset.is_none_or(|current| preset != current && current.stricter(preset) == current)
    };
    presets.into_iter().filter(|(preset, _)| allows_more(*preset)).find_map(|(preset, flag)| {
        let policy = host.approvals().policy_with_fallback(PolicyFallback::UnlessRestricted(preset)).ok()?;
        let allows = |operation| is_allowed(&policy, operation, context);
        (!operations.is_empty() && operations.iter().all(allows)).then_some(flag)
    })
}

/// Returns the commands that add the rules that would have allowed all operations.
fn find_rules(
    host: &Host,
    operations: &[Operation],
    context: &PolicyContext,
    current_preset: Option<Preset>,
) -> Option<Vec<String>> {
    let fallback = current_preset.map_or(PolicyFallback::File, PolicyFallback::UnlessRestricted);
    let mut policy = host.approvals().policy_with_fallback(fallback).ok()?;
    let mut commands: Vec<String> = Vec::new();
    for operation in operations {
        if is_allowed(&policy, operation, context) {
            continue;
        }
        // Variables need their own rules, independent of the command.
        for suggestion in unruled_variables(&policy, operation, context) {
            commands.push(format!("`{}`", rule_command(&suggestion, &policy.roots)?));
            policy.rules.push(suggested_rule(&suggestion)?);
        }
        if is_allowed(&policy, operation, context) {
            continue;
        }
        let suggestions = suggest_rules(operation, &policy.roots);
        let (command, with_rule) = suggestions.iter().find_map(|suggestion| {
            let command = rule_command(suggestion, &policy.roots)?;
            let mut with_rule = policy.clone();
            with_rule.rules.push(suggested_rule(suggestion)?);
            is_allowed(&with_rule, operation, context).then_some((command, with_rule))
        })?;
        commands.push(format!("`{command}`"));
        policy = with_rule;
    }
    (!commands.is_empty()).then_some(commands)
}

/// Returns a rule for each variable that a command sets and no rule allows.
fn unruled_variables(policy: &Policy, operation: &Operation, context: &PolicyContext) -> Vec<RuleSuggestion> {
    let mut suggestions: Vec<RuleSuggestion> = Vec::new();
    for reason in policy.evaluate(operation, context).reasons {
        let ReasonBasis::BuiltIn(BuiltInRule::CodeLoadingVariable(_) | BuiltInRule::UnknownVariable) =
            reason.basis
        else {
            continue;
        };
        let Some(name) = reason.subject else { continue };
        let description = format!("the variable {name}");
        let suggestion = RuleSuggestion {
            kinds: OperationKind::Execute.into(),
            matcher: RuleMatcher::Variable(name),
            description,
        };
        if !suggestions.contains(&suggestion) {
            suggestions.push(suggestion);
        }
    }
    suggestions
}

fn is_allowed(policy: &Policy, operation: &Operation, context: &PolicyContext) -> bool {
    policy.evaluate(operation, context).effect == Effect::Allow
}

fn suggested_rule(suggestion: &RuleSuggestion) -> Option<Rule> {
    let spec = RuleSpec {
        effect: Effect::Allow,
        kinds: suggestion.kinds,
        matcher: suggestion.matcher.clone(),
        lifetime: RuleLifetime::Project,
        expires: None,
        source: RuleSource::CommandLine,
        note: None,
    };
    Rule::new(spec).ok()
}

/// Returns the command that adds a rule; `None` if it cannot be displayed in a form that can be copied.
fn rule_command(suggestion: &RuleSuggestion, roots: &[String]) -> Option<String> {
    let kinds: Vec<&str> = suggestion.kinds.iter().map(OperationKind::as_str).collect();
    let mut words = vec!["bowline".to_owned(), "policy".into(), "allow".into(), kinds.join(",")];
    let exact = || vec!["--exact".to_owned()];
    let (options, pattern) = match &suggestion.matcher {
        RuleMatcher::Path(pattern) => {
            let relative = roots.first().and_then(|root| pattern.strip_prefix(root)?.strip_prefix('/'));
            (Vec::new(), vec![relative.unwrap_or(pattern).to_owned()])
        }
        RuleMatcher::Host(host) => (Vec::new(), vec![host.clone()]),
        RuleMatcher::Variable(name) => (vec!["--env".to_owned(), name.clone()], Vec::new()),
        RuleMatcher::Command(argv) => (Vec::new(), argv.clone()),
        RuleMatcher::Exact(Invocation::Argv(argv)) => (exact(), argv.clone()),
        RuleMatcher::Exact(Invocation::Shell(line)) => (exact(), vec![line.clone()]),
        RuleMatcher::Everything => return None,
    };
    words.extend(options);
    if pattern.iter().any(|word| word.starts_with('-')) {
        // Otherwise they would be taken for options of `bowline policy`.
        words.push("--".to_owned());
    }
    words.extend(pattern);
    let line = shlex::try_join(words.iter().map(String::as_str)).ok()?;
    (display::escape_line(&line, MAX_COMMAND_BYTES) == line).then_some(line)
}

/// The maximum length of a command that is shown, in bytes.
const MAX_COMMAND_BYTES: usize = 300;

/// The placeholder for an unknown value of a variable.
const UNKNOWN_VALUE: &str = "?";

/// Returns the operation of an audit entry, as rules evaluate it.
pub(crate) fn entry_operation(host: &Host, entry: &AuditEntry) -> Option<Operation> {
    let roots = host.workspace().roots();
    let kind = match (&entry.action, &entry.subject) {
        (AuditAction::Read, _) => OperationKind::Read,
        (AuditAction::Delete, _) => OperationKind::Delete,
        (AuditAction::Fetch, _) | (_, AuditSubject::Url(_)) => OperationKind::Fetch,
        (_, AuditSubject::Path { .. }) => OperationKind::Write,
        _ => OperationKind::Execute,
    };
    let target = match &entry.subject {
        AuditSubject::Path { requested, .. } => {
            let access = if kind == OperationKind::Read { Access::Read } else { Access::Write };
            return roots.admit(requested, access).ok().map(|admitted| admitted.operation(kind));
        }
        AuditSubject::Command { line, cwd, env } => {
            let invocation = Invocation::Shell(line.clone());
            // The log has no values, so each variable is evaluated as its worst case.
            let env = env.iter().map(|name| (name.clone(), UNKNOWN_VALUE.to_owned())).collect();
            OperationTarget::Command(resolve_command(roots, invocation, cwd.clone(), env))
        }
        AuditSubject::Url(url) => OperationTarget::Url(url.clone()),
        AuditSubject::Text(text) => OperationTarget::Described(text.clone()),
        AuditSubject::None => return None,
    };
    Some(Operation { kind, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_for_a_rule_can_be_copied() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let cases = [
            (RuleMatcher::Command(words("cargo test")), "cargo test"),
            (RuleMatcher::Command(words("git push --force")), "-- git push --force"),
            (RuleMatcher::Exact(Invocation::Argv(words("rm -rf build"))), "--exact -- rm -rf build"),
            (RuleMatcher::Exact(Invocation::Shell("make | tee log".to_owned())), "--exact 'make | tee log'"),
            (RuleMatcher::Path("/srv/project/-odd".to_owned()), "-- -odd"),
            (RuleMatcher::Variable("NODE_OPTIONS".to_owned()), "--env NODE_OPTIONS"),
        ];
        for (matcher, expected) in cases {
            let kinds = OperationKind::Execute.into();
            let suggestion = RuleSuggestion { kinds, matcher, description: String::new() };
            let command = rule_command(&suggestion, &["/srv/project".to_owned()]).unwrap();
            assert_eq!(command, format!("bowline policy allow execute {expected}"));
        }
    }
}
