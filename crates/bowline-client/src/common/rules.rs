//! How a rule is described to the user.

use bowline_policy::policy::{Rule, RuleLifetime, RuleMatcher};
use bowline_protocol::terminal::Invocation;

use super::console::escape_line;

/// Describes a rule: its effect, the kinds of operations, and what it matches.
pub fn describe_rule(rule: &Rule) -> String {
    let spec = rule.spec();
    format!("{} {}: {}", spec.effect.as_str(), spec.kinds, describe_matcher(&spec.matcher))
}

/// Describes a rule that was just saved, its scope, and how to remove it.
pub fn describe_saved_rule(rule: &Rule) -> String {
    let spec = rule.spec();
    let scope = match &spec.lifetime {
        RuleLifetime::Project => "in this project",
        _ => "in every project",
    };
    let name = match &spec.matcher {
        RuleMatcher::Everything => "*".to_owned(),
        RuleMatcher::Path(text) | RuleMatcher::Host(text) | RuleMatcher::Variable(text) => text.clone(),
        RuleMatcher::Command(words) => words.join(" "),
        RuleMatcher::Exact(invocation) => {
            bowline_protocol::terminal::format_invocation(invocation).into_owned()
        }
    };
    // A name that cannot be displayed and pasted unchanged is replaced by a hint to look it up.
    let named = Some(&name).filter(|name| name.len() <= MAX_PASTED_BYTES && escape_line(name) == **name);
    let remove = match named.and_then(|name| shlex::try_quote(name).ok()) {
        Some(name) => format!("bowline policy forget {name}"),
        None => "find its number in `bowline policy show`, then `bowline policy forget NUMBER`".to_owned(),
    };
    format!("rule saved {scope}: {}\nto remove it: {remove}", describe_rule(rule))
}

/// The maximum length of a pattern that is offered for pasting, in bytes.
const MAX_PASTED_BYTES: usize = 200;

/// Describes what a rule matches.
pub fn describe_matcher(matcher: &RuleMatcher) -> String {
    match matcher {
        RuleMatcher::Everything => "everything".to_owned(),
        RuleMatcher::Path(pattern) => escape_line(pattern),
        RuleMatcher::Host(host) => escape_line(host),
        RuleMatcher::Variable(name) => format!("variable {}", escape_line(name)),
        RuleMatcher::Command(words) => {
            format!(
                "{} …",
                escape_line(&bowline_protocol::terminal::format_invocation(&Invocation::Argv(words.clone())))
            )
        }
        RuleMatcher::Exact(invocation) => {
            format!("exactly {}", escape_line(&bowline_protocol::terminal::format_invocation(invocation)))
        }
    }
}
