//! What would allow something that was denied. Every flag and every rule is tried on the policy in force before it is named.

use bowline_host::Host;
use bowline_state::audit::{Action, Entry, Subject};
use bowline_state::changes::Moment;
use bowline_state::display;
use bowline_state::operation::{Invocation, Kind, Operation, Target};
use bowline_state::paths::Access;
use bowline_state::policy::{
    Context, Effect, Ground, Law, Lifetime, Matcher, Policy, Preset, Rule, RuleSpec, Source, Suggestion,
    suggest,
};
use bowline_workspace::approvals::Fallback;
use bowline_workspace::terminals::looked_at_within;

/// What would have allowed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hint {
    /// A flag.
    pub(crate) flag: Option<&'static str>,
    /// The commands that add rules, each quoted; as many as it takes.
    pub(crate) rules: Option<Vec<String>>,
    /// The commands that allow a write as well, where reads are denied: agents read what they are about to change.
    pub(crate) to_write: Option<Vec<String>>,
}

impl Hint {
    /// Returns what would have allowed all of it, beyond the level that was given.
    pub(crate) fn of(host: &Host, operations: &[Operation], session: &str, given: Option<Preset>) -> Self {
        let context = Context { session: session.to_owned(), turn: None, now: Moment(0) };
        let flag = flag(host, operations, &context, given);
        let rules = |operations: &[Operation]| rules(host, operations, &context, given);
        let is_read = |operation: &Operation| operation.kind == Kind::Read;
        let to_write = (flag.is_none() && operations.iter().all(is_read)).then(|| {
            let write = |operation: &Operation| Operation { kind: Kind::Write, ..operation.clone() };
            rules(&operations.iter().map(write).collect::<Vec<_>>())
        });
        Self { flag, rules: rules(operations), to_write: to_write.flatten() }
    }
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.flag, &self.rules) {
            (Some(flag), _) => write!(f, "{flag} would allow it"),
            (None, Some(rules)) => {
                let does = if rules.len() == 1 { "does" } else { "do" };
                write!(f, "no flag allows it, but {} {does}", rules.join(" and "))?;
                match &self.to_write {
                    Some(rules) => write!(f, "; to change it takes {} as well", rules.join(" and ")),
                    None => Ok(()),
                }
            }
            (None, None) => f.write_str("no flag and no rule allows it"),
        }
    }
}

/// Returns what would have allowed something that rules allow, to an agent that takes a yes for always only.
pub(crate) fn always_hint(host: &Host) -> &'static str {
    match host.approvals().policy_with(Fallback::Unless(Preset::Full)) {
        Ok(policy) if policy.preset == Preset::Full => "--approve all would allow it",
        _ => "`bowline chat` lets you say that",
    }
}

/// Returns the flag that would have allowed it all: one that allows more than the one that was given.
fn flag(
    host: &Host,
    operations: &[Operation],
    context: &Context,
    given: Option<Preset>,
) -> Option<&'static str> {
    let presets = [
        (Preset::ReadOnly, "--approve reads"),
        (Preset::AcceptEdits, "--approve edits"),
        (Preset::Full, "--approve all"),
    ];
    let allows_more =
        |preset: Preset| given.is_none_or(|given| preset != given && given.stricter(preset) == given);
    presets.into_iter().filter(|(preset, _)| allows_more(*preset)).find_map(|(preset, flag)| {
        let policy = host.approvals().policy_with(Fallback::Unless(preset)).ok()?;
        let allows = |operation| allows(&policy, operation, context);
        (!operations.is_empty() && operations.iter().all(allows)).then_some(flag)
    })
}

/// Returns the rules that would have allowed it all, as the commands that add them.
fn rules(
    host: &Host,
    operations: &[Operation],
    context: &Context,
    given: Option<Preset>,
) -> Option<Vec<String>> {
    let fallback = given.map_or(Fallback::File, Fallback::Unless);
    let mut policy = host.approvals().policy_with(fallback).ok()?;
    let mut commands: Vec<String> = Vec::new();
    for operation in operations {
        if allows(&policy, operation, context) {
            continue;
        }
        // Variables need rules of their own, whatever the command is.
        for suggestion in unruled_variables(&policy, operation, context) {
            commands.push(format!("`{}`", command(&suggestion, &policy.roots)?));
            policy.rules.push(rule(&suggestion)?);
        }
        if allows(&policy, operation, context) {
            continue;
        }
        let suggestions = suggest(operation, &policy.roots);
        let (command, with_rule) = suggestions.iter().find_map(|suggestion| {
            let command = command(suggestion, &policy.roots)?;
            let mut with_rule = policy.clone();
            with_rule.rules.push(rule(suggestion)?);
            allows(&with_rule, operation, context).then_some((command, with_rule))
        })?;
        commands.push(format!("`{command}`"));
        policy = with_rule;
    }
    (!commands.is_empty()).then_some(commands)
}

/// Returns a rule for each variable that a command sets and no rule allows.
fn unruled_variables(policy: &Policy, operation: &Operation, context: &Context) -> Vec<Suggestion> {
    let mut found: Vec<Suggestion> = Vec::new();
    for reason in policy.judge(operation, context).because {
        let Ground::Law(Law::RunsCode(_) | Law::UnknownVariable) = reason.ground else { continue };
        let Some(name) = reason.subject else { continue };
        let text = format!("the variable {name}");
        let suggestion = Suggestion { kinds: Kind::Execute.into(), matcher: Matcher::Variable(name), text };
        if !found.contains(&suggestion) {
            found.push(suggestion);
        }
    }
    found
}

fn allows(policy: &Policy, operation: &Operation, context: &Context) -> bool {
    policy.judge(operation, context).effect == Effect::Allow
}

fn rule(suggestion: &Suggestion) -> Option<Rule> {
    let spec = RuleSpec {
        effect: Effect::Allow,
        kinds: suggestion.kinds,
        matcher: suggestion.matcher.clone(),
        lifetime: Lifetime::Project,
        expires: None,
        source: Source::Flag,
        note: None,
    };
    Rule::new(spec).ok()
}

/// Returns the command that adds a rule; none if it cannot be shown so that it can be copied.
fn command(suggestion: &Suggestion, roots: &[String]) -> Option<String> {
    let kinds: Vec<&str> = suggestion.kinds.iter().map(Kind::word).collect();
    let mut words = vec!["bowline".to_owned(), "policy".into(), "allow".into(), kinds.join(",")];
    match &suggestion.matcher {
        Matcher::Path(pattern) => {
            let below = roots.first().and_then(|root| pattern.strip_prefix(root)?.strip_prefix('/'));
            words.push(below.unwrap_or(pattern).to_owned());
        }
        Matcher::Host(host) => words.push(host.clone()),
        Matcher::Variable(name) => words.extend(["--env".to_owned(), name.clone()]),
        Matcher::Command(given) => words.extend(given.iter().cloned()),
        Matcher::Exact(Invocation::Argv(given)) => {
            words.push("--exact".to_owned());
            words.extend(given.iter().cloned());
        }
        Matcher::Exact(Invocation::Shell(line)) => words.extend(["--exact".to_owned(), line.clone()]),
        Matcher::Everything => return None,
    }
    let line = shlex::try_join(words.iter().map(String::as_str)).ok()?;
    (display::line(&line, MAX_COMMAND) == line).then_some(line)
}

/// A longer command is not shown.
const MAX_COMMAND: usize = 300;

/// Stands for the value of a variable that is not known.
const UNKNOWN_VALUE: &str = "?";

/// Returns what an entry is about, as rules judge it.
pub(crate) fn operation(host: &Host, entry: &Entry) -> Option<Operation> {
    let roots = host.workspace().roots();
    let kind = match (&entry.action, &entry.subject) {
        (Action::Read, _) => Kind::Read,
        (Action::Delete, _) => Kind::Delete,
        (Action::Fetch, _) | (_, Subject::Url(_)) => Kind::Fetch,
        (_, Subject::Path { .. }) => Kind::Write,
        _ => Kind::Execute,
    };
    let target = match &entry.subject {
        Subject::Path { asked, .. } => {
            let access = if kind == Kind::Read { Access::Read } else { Access::Write };
            return roots.admit(asked, access).ok().map(|admitted| admitted.operation(kind));
        }
        Subject::Command { line, cwd, env } => {
            let invocation = Invocation::Shell(line.clone());
            // The log has no values. Without them a variable is judged as the worse that it may be.
            let env = env.iter().map(|name| (name.clone(), UNKNOWN_VALUE.to_owned())).collect();
            Target::Command(looked_at_within(roots, invocation, cwd.clone(), env))
        }
        Subject::Url(url) => Target::Url(url.clone()),
        Subject::Text(text) => Target::Described(text.clone()),
        Subject::None => return None,
    };
    Some(Operation { kind, target })
}
