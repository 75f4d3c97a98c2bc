//! What would allow something that was denied. Every flag and every rule is tried on the policy in force before it is named.

use bowline_host::Host;
use bowline_state::audit::{Action, Entry, Subject};
use bowline_state::changes::Moment;
use bowline_state::display;
use bowline_state::operation::{Invocation, Kind, Operation, Target};
use bowline_state::paths::Access;
use bowline_state::policy::{
    Context, Effect, Lifetime, Matcher, Policy, Preset, Rule, RuleSpec, Source, Suggestion, suggest,
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
}

impl Hint {
    /// Returns what would have allowed all of it, beyond the level that was given.
    pub(crate) fn of(host: &Host, operations: &[Operation], session: &str, given: Option<Preset>) -> Self {
        let context = Context { session: session.to_owned(), turn: None, now: Moment(0) };
        let flag = flag(host, operations, &context, given);
        Self { flag, rules: rules(host, operations, &context, given) }
    }
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.flag, &self.rules) {
            (Some(flag), _) => write!(f, "{flag} would allow it"),
            (None, Some(rules)) => {
                let does = if rules.len() == 1 { "does" } else { "do" };
                write!(f, "no flag allows it, but {} {does}", rules.join(" and "))
            }
            (None, None) => f.write_str("no flag and no rule allows it"),
        }
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
        Subject::Command { line, cwd, .. } => {
            let invocation = Invocation::Shell(line.clone());
            Target::Command(looked_at_within(roots, invocation, cwd.clone(), Vec::new()))
        }
        Subject::Url(url) => Target::Url(url.clone()),
        Subject::Text(text) => Target::Described(text.clone()),
        Subject::None => return None,
    };
    Some(Operation { kind, target })
}
