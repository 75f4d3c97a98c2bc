//! What "always" could mean for an operation that a person was asked about, from narrow to wide.

use super::commands::canonical;
use super::rule::{MAX_EXACT, MAX_PATTERN, below};
use super::wrappers::{base_name, is_special};
use super::{Kinds, Matcher, host};
use crate::failure::quote;
use crate::operation::{Invocation, Operation, Target};

/// A rule that a person could make of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What it would hold for.
    pub kinds: Kinds,
    /// What it would speak of.
    pub matcher: Matcher,
    /// What to call it: "commands that start with `cargo test`".
    pub text: String,
}

/// Programs whose second word says what they do.
const SUBCOMMANDS: &[&str] = &[
    "git",
    "cargo",
    "npm",
    "pnpm",
    "yarn",
    "bun",
    "go",
    "docker",
    "podman",
    "kubectl",
    "pip",
    "pip3",
    "uv",
    "poetry",
    "dotnet",
    "gh",
    "brew",
    "apt",
    "apt-get",
    "rustup",
    "make",
    "just",
    "mix",
    "bundle",
    "rails",
    "terraform",
    "helm",
    "systemctl",
    "jj",
    "hg",
    "svn",
    "gradle",
    "gradlew",
    "mvn",
    "swift",
    "zig",
    "deno",
    "nix",
    "conda",
];
/// Second words that only say that the third tells.
const RUNNERS: &[&str] = &["run", "exec", "compose", "xtask", "x", "tool", "dlx"];
/// Programs that destroy, or reach far, with any arguments.
const NEVER: &[&str] = &[
    "rm", "rmdir", "unlink", "shred", "dd", "mkfs", "chmod", "chown", "chgrp", "kill", "killall", "pkill",
    "mv", "cp", "ln", "install", "truncate", "tee", "curl", "wget", "shutdown", "reboot", "mount", "umount",
    "passwd", "useradd", "scp", "rsync",
];
/// Subcommands of the same sort.
const NEVER_AFTER: &[(&str, &str)] = &[
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

/// Returns rules that would have allowed an operation, from narrow to wide. A rule for everything is never among them, nor
/// a prefix for programs that run others, destroy or reach far.
#[must_use]
pub fn suggest(operation: &Operation, roots: &[String]) -> Vec<Suggestion> {
    let kinds = Kinds::from(operation.kind);
    let mut suggestions = match &operation.target {
        Target::Command(command) => commands(&canonical(&command.invocation)),
        Target::File { resolved, protection, .. } => files(resolved, protection.is_none(), roots),
        Target::Url(url) => host(url).map_or_else(Vec::new, |host| {
            let text = format!("addresses at {host}");
            vec![(Matcher::Host(host), text)]
        }),
        Target::Elsewhere { .. } | Target::Described(_) => Vec::new(),
    };
    suggestions.retain(|(matcher, _)| operation_fits(matcher, kinds));
    suggestions.into_iter().map(|(matcher, text)| Suggestion { kinds, matcher, text }).collect()
}

fn operation_fits(matcher: &Matcher, kinds: Kinds) -> bool {
    let fits = match matcher {
        Matcher::Path(pattern) => pattern.len() <= MAX_PATTERN,
        Matcher::Exact(Invocation::Argv(words)) => words.iter().map(String::len).sum::<usize>() <= MAX_EXACT,
        Matcher::Exact(Invocation::Shell(line)) => line.len() <= MAX_EXACT,
        Matcher::Command(words) => words.iter().map(String::len).sum::<usize>() <= MAX_PATTERN,
        Matcher::Host(_) | Matcher::Variable(_) | Matcher::Everything => true,
    };
    fits && kinds.iter().all(|kind| matcher.kinds().contains(kind))
}

fn commands(invocation: &Invocation) -> Vec<(Matcher, String)> {
    let shown = match invocation {
        Invocation::Argv(words) => words.join(" "),
        Invocation::Shell(line) => line.clone(),
    };
    let mut found =
        vec![(Matcher::Exact(invocation.clone()), format!("exactly the command `{}`", quote(&shown)))];
    if let Invocation::Argv(words) = invocation
        && let Some(prefix) = prefix(words)
    {
        let text = format!("commands that start with `{}`", quote(&prefix.join(" ")));
        found.push((Matcher::Command(prefix), text));
    }
    found
}

/// Returns the words that say what a command does, without those that say to what.
fn prefix(words: &[String]) -> Option<Vec<String>> {
    let program = words.first()?;
    let name = base_name(program);
    if is_special(program) || NEVER.contains(&name.as_str()) {
        return None;
    }
    if !SUBCOMMANDS.contains(&name.as_str()) {
        return Some(vec![program.clone()]);
    }
    let second = words.get(1).filter(|word| is_plain(word))?;
    if NEVER_AFTER.contains(&(name.as_str(), second.as_str())) {
        return None;
    }
    let mut prefix = vec![program.clone(), second.clone()];
    if RUNNERS.contains(&second.as_str()) {
        prefix.push(words.get(2).filter(|word| is_plain(word))?.clone());
    }
    Some(prefix)
}

fn is_plain(word: &str) -> bool {
    !word.starts_with('-')
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_:.+".contains(letter))
}

fn files(path: &str, is_ordinary: bool, roots: &[String]) -> Vec<(Matcher, String)> {
    let mut found = vec![(Matcher::Path(globset::escape(path)), format!("the file {}", quote(path)))];
    let directory =
        path.rsplit_once('/').map(|(directory, _)| directory).filter(|directory| !directory.is_empty());
    if let Some(directory) = directory
        && is_ordinary
        && roots.iter().any(|root| below(directory, root).is_some())
    {
        let matcher = Matcher::Path(format!("{}/**", globset::escape(directory)));
        found.push((matcher, format!("files in {} and below", quote(directory))));
    }
    found
}
