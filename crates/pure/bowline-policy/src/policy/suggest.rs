//! Rule suggestions: what "always" could mean for an operation that a person was asked about, from narrow to wide.

use super::commands::canonical_invocation;
use super::rule::{MAX_EXACT_BYTES, MAX_PATTERN_BYTES};
use super::wrappers::{base_name, runs_other_programs};
use super::{OperationKinds, RuleMatcher, parse_host};
use crate::operation::{Operation, OperationTarget};
use crate::paths::path_below;
use bowline_protocol::terminal::Invocation;
use bowline_text::display::quote;

/// A rule that a person could make from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSuggestion {
    /// The kinds of operation it would apply to.
    pub kinds: OperationKinds,
    /// The operations it would match.
    pub matcher: RuleMatcher,
    /// Its description: "commands that start with `cargo test`".
    pub description: String,
}

/// Programs whose second word is a subcommand.
const SUBCOMMAND_PROGRAMS: &[&str] = &[
    "git", "cargo", "npm", "pnpm", "yarn", "bun", "go", "docker", "podman", "kubectl", "pip", "pip3", "uv",
    "poetry", "dotnet", "gh", "brew", "apt", "apt-get", "rustup", "make", "just", "mix", "bundle", "rails",
    "terraform", "helm", "systemctl", "jj", "hg", "svn", "gradle", "gradlew", "mvn", "swift", "zig", "deno",
    "nix", "conda",
];
/// Subcommands whose own argument says what is run.
const RUNNER_SUBCOMMANDS: &[&str] = &["run", "exec", "compose", "xtask", "x", "tool", "dlx"];
/// Programs that destroy data or have far-reaching effects with any arguments.
const NEVER_SUGGESTED: &[&str] = &[
    "rm", "rmdir", "unlink", "shred", "dd", "mkfs", "chmod", "chown", "chgrp", "kill", "killall", "pkill",
    "mv", "cp", "ln", "install", "truncate", "tee", "curl", "wget", "shutdown", "reboot", "mount", "umount",
    "passwd", "useradd", "scp", "rsync",
];
/// Subcommands with the same effects.
const NEVER_SUGGESTED_SUBCOMMANDS: &[(&str, &str)] = &[
    ("git", "push"),
    ("git", "clean"),
    ("git", "reset"),
    ("git", "config"),
    ("git", "checkout"),
    ("git", "restore"),
    ("git", "rm"),
    ("npm", "publish"),
    ("cargo", "publish"),
    ("docker", "run"),
    ("docker", "exec"),
    ("kubectl", "delete"),
    ("kubectl", "exec"),
    ("terraform", "apply"),
    ("terraform", "destroy"),
];

/// Returns rules that would have allowed an operation, from narrow to wide. They never include a catch-all rule, nor
/// a prefix for programs that run others, destroy data or have far-reaching effects.
#[must_use]
pub fn suggest_rules(operation: &Operation, roots: &[String]) -> Vec<RuleSuggestion> {
    let kinds = OperationKinds::from(operation.kind);
    let mut suggestions = match &operation.target {
        OperationTarget::Command(command) => suggest_for_command(&canonical_invocation(&command.invocation)),
        OperationTarget::File { resolved, protection, .. } => {
            suggest_for_file(resolved, protection.is_none(), roots)
        }
        OperationTarget::Url(url) => parse_host(url).map_or_else(Vec::new, |host| {
            let text = format!("addresses at {host}");
            vec![(RuleMatcher::Host(host), text)]
        }),
        OperationTarget::OutsideRoots { .. } | OperationTarget::Described(_) => Vec::new(),
    };
    suggestions.retain(|(matcher, _)| is_valid_suggestion(matcher, kinds));
    suggestions
        .into_iter()
        .map(|(matcher, description)| RuleSuggestion { kinds, matcher, description })
        .collect()
}

fn is_valid_suggestion(matcher: &RuleMatcher, kinds: OperationKinds) -> bool {
    let fits = match matcher {
        RuleMatcher::Path(pattern) => pattern.len() <= MAX_PATTERN_BYTES,
        RuleMatcher::Exact(Invocation::Argv(words)) => {
            words.iter().map(String::len).sum::<usize>() <= MAX_EXACT_BYTES
        }
        RuleMatcher::Exact(Invocation::Shell(line)) => line.len() <= MAX_EXACT_BYTES,
        RuleMatcher::Command(words) => words.iter().map(String::len).sum::<usize>() <= MAX_PATTERN_BYTES,
        RuleMatcher::Host(_) | RuleMatcher::Variable(_) | RuleMatcher::Everything => true,
    };
    fits && kinds.iter().all(|kind| matcher.kinds().contains(kind))
}

fn suggest_for_command(invocation: &Invocation) -> Vec<(RuleMatcher, String)> {
    let shown = match invocation {
        Invocation::Argv(words) => words.join(" "),
        Invocation::Shell(line) => line.clone(),
    };
    let mut found =
        vec![(RuleMatcher::Exact(invocation.clone()), format!("exactly the command `{}`", quote(&shown)))];
    if let Invocation::Argv(words) = invocation
        && let Some(prefix) = command_prefix(words)
    {
        let text = format!("commands that start with `{}`", quote(&prefix.join(" ")));
        found.push((RuleMatcher::Command(prefix), text));
    }
    found
}

/// Returns the words that say what a command does, without its operands.
fn command_prefix(words: &[String]) -> Option<Vec<String>> {
    let program = words.first()?;
    let name = base_name(program);
    if runs_other_programs(program) || NEVER_SUGGESTED.contains(&name.as_str()) {
        return None;
    }
    if !SUBCOMMAND_PROGRAMS.contains(&name.as_str()) {
        return Some(vec![program.clone()]);
    }
    let second = words.get(1).filter(|word| is_plain_word(word))?;
    if NEVER_SUGGESTED_SUBCOMMANDS.contains(&(name.as_str(), second.as_str())) {
        return None;
    }
    let mut prefix = vec![program.clone(), second.clone()];
    if RUNNER_SUBCOMMANDS.contains(&second.as_str()) {
        prefix.push(words.get(2).filter(|word| is_plain_word(word))?.clone());
    }
    Some(prefix)
}

fn is_plain_word(word: &str) -> bool {
    !word.starts_with('-')
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_:.+".contains(letter))
}

fn suggest_for_file(path: &str, is_ordinary: bool, roots: &[String]) -> Vec<(RuleMatcher, String)> {
    let mut found = vec![(RuleMatcher::Path(globset::escape(path)), format!("the file {}", quote(path)))];
    let directory =
        path.rsplit_once('/').map(|(directory, _)| directory).filter(|directory| !directory.is_empty());
    if let Some(directory) = directory
        && is_ordinary
        && roots.iter().any(|root| path_below(directory, root).is_some())
    {
        let matcher = RuleMatcher::Path(format!("{}/**", globset::escape(directory)));
        found.push((matcher, format!("files in {} and below", quote(directory))));
    }
    found
}
