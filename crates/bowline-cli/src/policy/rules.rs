//! Rules: listing, adding and removing them.

use std::fmt::Write as _;
use std::path::Path;

use bowline_access::policy::{PolicyFile, RuleScope, parse_plain_words};
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::LexicalPath;
use bowline_policy::policy::{Effect, OperationKinds, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec};
use bowline_protocol::terminal;
use bowline_protocol::terminal::Invocation;
use bowline_storage::clock::format_iso8601;
use serde_json::json;

use super::{KindArgument, RuleArguments, describe_scope, failed, open_policy};
use crate::changes::WorkspaceArguments;
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, pluralize, print};
use bowline_client::common::rules::describe_matcher;
use bowline_client::common::times::{format_time, parse_time};
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::error::CliError;
use bowline_storage::clock::now;

impl From<KindArgument> for OperationKind {
    fn from(kind: KindArgument) -> Self {
        match kind {
            KindArgument::Read => Self::Read,
            KindArgument::Write => Self::Write,
            KindArgument::Delete => Self::Delete,
            KindArgument::Execute => Self::Execute,
            KindArgument::Fetch => Self::Fetch,
        }
    }
}

/// Formats the rules in force.
///
/// # Errors
/// Returns why they cannot be used.
pub(super) fn format_rules(
    file: &PolicyFile,
    location: &WorkspaceLocation,
    json: bool,
    style: OutputStyle,
) -> Result<String, CliError> {
    let policy = file.policy().map_err(failed)?;
    let workspace_preset = file.preset(RuleScope::Workspace).map_err(failed)?;
    let global_preset = file.preset(RuleScope::Global).map_err(failed)?;
    let origin = match (workspace_preset, global_preset) {
        (Some(_), _) => "this workspace's own",
        (None, Some(_)) => "that of every workspace",
        (None, None) => "the usual one; your file states none",
    };
    let path = location.dirs.policy.to_string_lossy().into_owned();
    if json {
        let rules: Vec<_> =
            policy.rules.iter().enumerate().map(|(number, rule)| rule_to_json(number + 1, rule)).collect();
        let output = json!({
            "workspace": location.root,
            "file": path,
            "exists": location.dirs.policy.exists(),
            "preset": policy.preset.as_str(),
            "preset_of_workspace": workspace_preset.map(|preset| preset.as_str()),
            "preset_of_all": global_preset.map(|preset| preset.as_str()),
            "rules": rules,
        });
        return Ok(format!("{output}\n"));
    }
    let suffix = if location.dirs.policy.exists() { "" } else { " (not there yet)" };
    let mut text = format!(
        "workspace {}\nrules in  {}{suffix}\npreset    {}: {origin}\n",
        escape_line(&location.root),
        escape_line(&path),
        style.paint(TextStyle::Heading, policy.preset.as_str())
    );
    if policy.rules.is_empty() {
        text.push_str("\nno rules: `bowline policy allow`, `ask` and `deny` add some\n");
        return Ok(text);
    }
    text.push('\n');
    let digits = policy.rules.len().to_string().len();
    for (number, rule) in policy.rules.iter().enumerate() {
        // Writing to a string cannot fail.
        _ = writeln!(text, "{:>digits$}  {}", number + 1, format_rule(rule, style));
    }
    Ok(text)
}

/// Formats a rule on one line.
pub(super) fn format_rule(rule: &Rule, style: OutputStyle) -> String {
    let spec = rule.spec();
    let text_style = match spec.effect {
        Effect::Allow => TextStyle::Good,
        Effect::Ask => TextStyle::Highlight,
        Effect::Deny => TextStyle::Bad,
    };
    let effect = style.paint(text_style, spec.effect.as_str());
    let mut text = format!("{effect} {}: {}", spec.kinds, describe_matcher(&spec.matcher));
    let mut details = vec![
        match &spec.lifetime {
            RuleLifetime::Project => "this workspace",
            // A file contains no rules of other lifetimes.
            _ => "every workspace",
        }
        .to_owned(),
    ];
    if let Some(end) = spec.expires {
        details.push(if end <= now() {
            format!("ended {}", format_time(end))
        } else {
            format!("until {}", format_time(end))
        });
    }
    if let Some(note) = spec.note.as_ref().filter(|note| !note.is_empty()) {
        details.push(escape_line(note));
    }
    _ = write!(text, "  {}", style.paint(TextStyle::Faint, &format!("({})", details.join("; "))));
    text
}

fn rule_to_json(number: usize, rule: &Rule) -> serde_json::Value {
    let spec = rule.spec();
    let pattern = match &spec.matcher {
        RuleMatcher::Everything => json!(true),
        RuleMatcher::Path(text) | RuleMatcher::Host(text) | RuleMatcher::Variable(text) => json!(text),
        RuleMatcher::Command(words) | RuleMatcher::Exact(Invocation::Argv(words)) => json!(words),
        RuleMatcher::Exact(Invocation::Shell(line)) => json!(line),
    };
    json!({
        "number": number,
        "effect": spec.effect.as_str(),
        "kinds": spec.kinds.iter().map(OperationKind::as_str).collect::<Vec<_>>(),
        spec.matcher.as_str(): pattern,
        "scope": if spec.lifetime == RuleLifetime::Project { "project" } else { "always" },
        "expires": spec.expires.map(format_iso8601),
        "note": spec.note,
    })
}

/// Adds a rule to the user's file.
///
/// # Errors
/// Explains what is wrong with the rule, or why it cannot be saved.
pub(super) fn add_rule(arguments: &RuleArguments, effect: Effect) -> Result<(), CliError> {
    let scope = arguments.scope.scope();
    let expires = arguments.expires.as_deref().map(|text| parse_time(text, now(), 1)).transpose()?;
    if expires.is_some_and(|end| end <= now()) {
        return Err(CliError::Usage("--expires is in the past: the rule would never hold".to_owned()));
    }
    let rule = Rule::new(RuleSpec {
        effect,
        kinds: arguments.kinds,
        matcher: parse_matcher(arguments)?,
        lifetime: if scope == RuleScope::Workspace { RuleLifetime::Project } else { RuleLifetime::Always },
        expires,
        source: RuleSource::CommandLine,
        note: arguments.note.clone(),
    });
    let rule = rule.map_err(|error| CliError::Usage(error.to_string()))?;
    let (location, file) = open_policy(&arguments.workspace, scope)?;
    if let Some(directory) = unreachable_directory(rule.spec(), &location.root) {
        let directory =
            escape_line(&bowline_protocol::terminal::format_invocation(&Invocation::Argv(vec![format!(
                "{directory}:ro"
            )])));
        return Err(CliError::Usage(format!(
            "the rule would have no effect: agents read nothing outside of {}, whatever rules say; to let one read there, start it with --add-dir {directory}",
            escape_line(&location.root),
        )));
    }
    file.add_rule(&rule, scope).map_err(failed)?;
    let rules = file.rules().map_err(failed)?;
    let is_same = |known: &&Rule| {
        let (known, rule) = (known.spec(), rule.spec());
        (known.effect, known.kinds, &known.matcher, &known.lifetime, known.expires)
            == (rule.effect, rule.kinds, &rule.matcher, &rule.lifetime, rule.expires)
    };
    let number = rules
        .iter()
        .position(|known| is_same(&known))
        .map_or_else(String::new, |index| format!("{}  ", index + 1));
    print(&format!(
        "{number}{}\nholds for {}\n",
        format_rule(&rule, OutputStyle::for_stdout()),
        describe_scope(&location, scope)
    ))
}

/// Returns the directory of a rule that would allow reads outside the workspace. Such a rule has no effect: rules
/// cannot open directories that are not offered, and offered ones are read without a rule.
fn unreachable_directory(rule: &RuleSpec, root: &str) -> Option<String> {
    let RuleMatcher::Path(pattern) = &rule.matcher else { return None };
    let is_read_rule = rule.effect == Effect::Allow
        && rule.kinds == OperationKinds::from(OperationKind::Read)
        && rule.lifetime == RuleLifetime::Project;
    let literal = pattern.split(['*', '?', '[', '{']).next().unwrap_or_default();
    let parent = match literal.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((parent, _)) => parent,
        None => "",
    };
    let directory = LexicalPath::parse(Path::new(root).join(parent)).ok()?;
    let is_inside = Path::new(directory.as_str()).starts_with(root);
    (is_read_rule && !is_inside).then(|| directory.as_str().to_owned())
}

/// Parses the matcher of a rule from the command line.
fn parse_matcher(arguments: &RuleArguments) -> Result<RuleMatcher, CliError> {
    let kinds = arguments.kinds;
    let single = |noun: &str| match arguments.pattern.as_slice() {
        [pattern] => Ok(pattern.clone()),
        _ => Err(CliError::Usage(format!(
            "there are {} patterns, a rule has one: write {noun} in quotes, one rule each",
            arguments.pattern.len()
        ))),
    };
    let is_for = |kind| kinds.contains(kind);
    if let Some(name) = &arguments.env {
        // Other kinds are refused along with the rule.
        return Ok(RuleMatcher::Variable(name.clone()));
    }
    if kinds == OperationKinds::from(OperationKind::Execute) {
        let words = match arguments.pattern.as_slice() {
            [pattern] if pattern == "*" => return Ok(RuleMatcher::Everything),
            [line] if arguments.exact => {
                let exact = terminal::parse_invocation(line, &[]).map_err(|error| CliError::Usage(error.to_string()))?;
                return Ok(RuleMatcher::Exact(exact));
            }
            [line] if line.trim().is_empty() => {
                return Err(CliError::Usage("the command is empty: write its first words".to_owned()));
            }
            [line] => parse_plain_words(line).ok_or_else(|| {
                CliError::Usage(format!(
                    "{} is more than the words of one command: name each command in a rule of its own, or use --exact",
                    escape_line(line)
                ))
            })?,
            words => words.to_vec(),
        };
        return Ok(if arguments.exact {
            RuleMatcher::Exact(Invocation::Argv(words))
        } else {
            RuleMatcher::Command(words)
        });
    }
    if arguments.exact {
        return Err(CliError::Usage("--exact is for execute alone".to_owned()));
    }
    if kinds == OperationKinds::from(OperationKind::Fetch) {
        return Ok(RuleMatcher::Host(single("a host")?));
    }
    if is_for(OperationKind::Execute) || is_for(OperationKind::Fetch) {
        return Err(CliError::Usage(
            "files, commands and hosts have patterns of their own: make a rule for each".to_owned(),
        ));
    }
    Ok(RuleMatcher::Path(single("a glob")?))
}

/// Removes a rule from the user's file, by its number or its pattern.
///
/// # Errors
/// Reports that the rule does not exist, is ambiguous, or cannot be removed.
pub(super) fn forget_rule(name: &str, workspace: &WorkspaceArguments) -> Result<(), CliError> {
    let (_, file) = open_policy(workspace, RuleScope::Workspace)?;
    let rules = file.rules().map_err(failed)?;
    let by_number = name.parse::<usize>().ok().and_then(|number| rules.get(number.checked_sub(1)?));
    let matches: Vec<&Rule> = match by_number {
        Some(rule) => vec![rule],
        None => rules.iter().filter(|rule| matches_name(&rule.spec().matcher, name)).collect(),
    };
    let [rule] = matches.as_slice() else {
        return Err(match matches.len() {
            0 => failed(anyhow::anyhow!(
                "there is no rule {} here, there are {}: `bowline policy show` lists them",
                escape_line(name),
                pluralize(rules.len(), "rule", "rules")
            )),
            number => CliError::Usage(format!(
                "{number} rules are for {}: name one by its number in `bowline policy show`",
                escape_line(name)
            )),
        });
    };
    let scope =
        if rule.spec().lifetime == RuleLifetime::Project { RuleScope::Workspace } else { RuleScope::Global };
    if !file.remove_rule(rule, scope).map_err(failed)? {
        return Err(failed(anyhow::anyhow!("the rule was already removed")));
    }
    print(&format!("forgotten: {}\n", format_rule(rule, OutputStyle::for_stdout())))
}

fn matches_name(matcher: &RuleMatcher, name: &str) -> bool {
    match matcher {
        RuleMatcher::Everything => name == "*",
        RuleMatcher::Path(text) | RuleMatcher::Host(text) | RuleMatcher::Variable(text) => text == name,
        RuleMatcher::Command(words) => {
            words.join(" ") == name || parse_plain_words(name).as_ref() == Some(words)
        }
        RuleMatcher::Exact(invocation) => bowline_protocol::terminal::format_invocation(invocation) == name,
    }
}
