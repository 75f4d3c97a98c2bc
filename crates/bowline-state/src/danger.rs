//! What is dangerous in an operation, in words for a person.
//!
//! This helps a person to decide and decides nothing: what is not named here is not safe for that. Rules and the
//! confinement of commands are what protects.

mod commands;
mod tables;
mod words;

use std::fmt;

use crate::display::{confusables, foreign_letters, line};
use crate::operation::{Command, Kind, Leads, Operation, Target};
use crate::paths::LexicalPath;

/// So many dangers are named, the worst first.
pub const MAX_DANGERS: usize = 20;
/// So many operations are looked at one by one; of more, only the number is told.
pub const MAX_LOOKED_AT: usize = 1000;
/// How much of a name is shown, in bytes.
const SHOWN: usize = 200;
/// From so many files on it is worth saying that they are changed.
const MANY_FILES: usize = 10;

/// How bad it can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It may harm the machine or what lies outside the workspace, or cannot be taken back.
    Grave,
    /// It runs something later, reaches others, or removes much.
    Serious,
    /// It is good to know.
    Mild,
}

/// One thing to know before saying yes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Danger {
    /// How bad it can get.
    pub severity: Severity,
    /// What it is, on one line that is fit to be shown.
    pub text: String,
}

impl Danger {
    fn new(severity: Severity, text: impl Into<String>) -> Self {
        Self { severity, text: text.into() }
    }
}

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns what is dangerous in operations that are asked for together, the worst first. `roots` are the workspace's
/// directories by their own names.
#[must_use]
pub fn dangers(operations: &[Operation], roots: &[String]) -> Vec<Danger> {
    let mut found = Found { roots, dangers: Vec::new() };
    let count = |kind: Kind| operations.iter().filter(|operation| operation.kind == kind).count();
    match count(Kind::Delete) {
        0 | 1 => {}
        several => found.add(Severity::Serious, format!("deletes {several} files")),
    }
    match count(Kind::Write) {
        many if many >= MANY_FILES => found.add(Severity::Mild, format!("changes {many} files")),
        _ => {}
    }
    let single = operations.len() == 1;
    for operation in operations.iter().take(MAX_LOOKED_AT) {
        found.operation(operation, single);
    }
    if operations.len() > MAX_LOOKED_AT {
        found
            .add(Severity::Serious, format!("does {} things at once, too many to look at", operations.len()));
    }
    let mut dangers = found.dangers;
    // Within a severity they stay in the order in which they were found.
    dangers.sort_by_key(|danger| danger.severity);
    let mut seen = std::collections::HashSet::new();
    dangers.retain(|danger| seen.insert(danger.text.clone()));
    dangers.truncate(MAX_DANGERS);
    dangers
}

/// What was found so far, and what is needed to judge.
struct Found<'a> {
    roots: &'a [String],
    dangers: Vec<Danger>,
}

impl Found<'_> {
    fn add(&mut self, severity: Severity, text: impl Into<String>) {
        self.dangers.push(Danger::new(severity, text));
    }

    fn operation(&mut self, operation: &Operation, single: bool) {
        let kind = operation.kind;
        match &operation.target {
            Target::File { asked, resolved, protection } => {
                if let Some(protection) = protection {
                    self.add(Severity::Serious, format!("{} ({})", protection.reason(), shown(resolved)));
                }
                let outside = !self.is_inside(resolved);
                if outside {
                    self.outside(kind, resolved);
                }
                let plain = LexicalPath::parse(asked).is_ok_and(|path| path.as_str() == resolved);
                if !plain && asked != resolved {
                    let severity = if outside { Severity::Grave } else { Severity::Serious };
                    self.add(severity, format!("{} leads to {}", shown(asked), shown(resolved)));
                }
                if kind == Kind::Delete && single {
                    self.add(Severity::Serious, format!("deletes {}", shown(resolved)));
                }
                self.looks(asked);
            }
            Target::Elsewhere { asked } => {
                self.outside(kind, asked);
                self.looks(asked);
            }
            Target::Command(command) => self.command(command),
            Target::Url(url) => self.url(url),
            Target::Described(text) => self.looks(text),
        }
    }

    fn outside(&mut self, kind: Kind, path: &str) {
        let severity = if kind == Kind::Read { Severity::Serious } else { Severity::Grave };
        self.add(severity, format!("outside the workspace: {}", shown(path)));
    }

    fn command(&mut self, command: &Command) {
        if !self.is_inside(&command.cwd) {
            self.add(Severity::Serious, format!("runs outside the workspace, in {}", shown(&command.cwd)));
        }
        self.reaches(command);
        commands::scan(self, command);
    }

    /// Looks at files that a shell opens through links, which the text does not tell.
    fn reaches(&mut self, command: &Command) {
        for reached in &command.reaches {
            let asked = shown(&reached.asked);
            match &reached.leads {
                Leads::Inside { resolved, protection } if *resolved != reached.asked => {
                    if let Some(protection) = protection {
                        self.add(
                            Severity::Serious,
                            format!("{asked} leads to {}: {}", shown(resolved), protection.reason()),
                        );
                    }
                }
                Leads::Elsewhere if self.is_inside(&reached.asked) => {
                    self.add(Severity::Grave, format!("{asked} leads outside the workspace"));
                }
                Leads::ReadOnly => {
                    self.add(
                        Severity::Serious,
                        format!("writes {asked}, in a directory that may only be read"),
                    );
                }
                Leads::Inside { .. } | Leads::Elsewhere => {}
            }
        }
    }

    fn url(&mut self, url: &str) {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        if let Some(warning) = foreign_letters(host) {
            self.add(Severity::Serious, warning.to_string());
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let local = ["localhost", "::1", "0.0.0.0"].contains(&name)
            || ["127.", "10.", "192.168.", "169.254."].iter().any(|start| name.starts_with(start));
        if local {
            self.add(Severity::Serious, format!("reaches this machine or its network: {}", shown(host)));
        }
        if url.to_ascii_lowercase().starts_with("http://") && !local {
            self.add(Severity::Mild, format!("is not encrypted: {}", shown(url)));
        }
        if authority.contains('@') {
            self.add(Severity::Mild, "names a user before the host: the host is what follows the @");
        }
    }

    /// Warns of letters that look like others.
    fn looks(&mut self, text: &str) {
        if let Some(warning) = confusables(text) {
            self.add(Severity::Serious, warning.to_string());
        }
    }

    fn is_inside(&self, path: &str) -> bool {
        self.roots.iter().any(|root| {
            let root = root.trim_end_matches('/');
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

fn shown(text: &str) -> String {
    line(text, SHOWN)
}

#[cfg(test)]
mod tests;
