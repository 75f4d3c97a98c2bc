//! Danger warnings for an operation, worded for a person.
//!
//! The warnings inform a decision and make none: an operation without a warning is not thereby safe. Protection comes
//! from the policy rules and the confinement of commands.

mod commands;
mod shell_words;
mod tables;

use std::fmt;

use crate::operation::{CommandSpec, Operation, OperationKind, OperationTarget, PathResolution};
use crate::paths::{LexicalPath, path_below};
use bowline_text::display::{check_mixed_scripts, check_non_ascii, escape_line};

/// The maximum number of dangers listed, the worst first.
pub const MAX_DANGERS: usize = 20;
/// The maximum number of operations examined individually; beyond it only their number is reported.
pub const MAX_SCANNED_OPERATIONS: usize = 1000;
/// The maximum displayed length of a name, in bytes.
const MAX_SHOWN_BYTES: usize = 200;
/// The number of changed files from which a warning is given.
const MANY_FILES: usize = 10;

/// The severity of a danger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DangerSeverity {
    /// It may harm the machine or files outside the workspace, or cannot be undone.
    Grave,
    /// It runs something later, affects others, or removes a lot.
    Serious,
    /// It is worth knowing.
    Mild,
}

/// A warning to read before approving.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Danger {
    /// Its severity.
    pub severity: DangerSeverity,
    /// Its description, on one line, escaped for display.
    pub text: String,
}

impl Danger {
    /// Creates a serious danger.
    #[must_use]
    pub fn serious(text: impl Into<String>) -> Self {
        Self::new(DangerSeverity::Serious, text)
    }

    fn new(severity: DangerSeverity, text: impl Into<String>) -> Self {
        Self { severity, text: text.into() }
    }
}

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the dangers of operations that are requested together, the worst first. `roots` are the canonical paths of
/// the workspace's directories.
#[must_use]
pub fn find_dangers(operations: &[Operation], roots: &[String]) -> Vec<Danger> {
    let mut scan = DangerScan { roots, dangers: Vec::new() };
    let count = |kind: OperationKind| operations.iter().filter(|operation| operation.kind == kind).count();
    match count(OperationKind::Delete) {
        0 | 1 => {}
        several => scan.add(DangerSeverity::Serious, format!("deletes {several} files")),
    }
    match count(OperationKind::Write) {
        many if many >= MANY_FILES => scan.add(DangerSeverity::Mild, format!("changes {many} files")),
        _ => {}
    }
    let single = operations.len() == 1;
    for operation in operations.iter().take(MAX_SCANNED_OPERATIONS) {
        scan.scan_operation(operation, single);
    }
    if operations.len() > MAX_SCANNED_OPERATIONS {
        scan.add(
            DangerSeverity::Serious,
            format!("does {} things at once, too many to look at", operations.len()),
        );
    }
    let mut dangers = scan.dangers;
    // The sort is stable: within a severity, dangers stay in the order of discovery.
    dangers.sort_by_key(|danger| danger.severity);
    let mut seen = std::collections::HashSet::new();
    dangers.retain(|danger| seen.insert(danger.text.clone()));
    dangers.truncate(MAX_DANGERS);
    dangers
}

/// The dangers found so far, and the context needed to find more.
struct DangerScan<'a> {
    roots: &'a [String],
    dangers: Vec<Danger>,
}

impl DangerScan<'_> {
    fn add(&mut self, severity: DangerSeverity, text: impl Into<String>) {
        self.dangers.push(Danger::new(severity, text));
    }

    fn scan_operation(&mut self, operation: &Operation, single: bool) {
        let kind = operation.kind;
        match &operation.target {
            OperationTarget::File { requested, resolved, protection } => {
                if let Some(protection) = protection {
                    self.add(
                        DangerSeverity::Serious,
                        format!("{} ({})", protection.reason(), escape_name(resolved)),
                    );
                }
                let outside = !self.is_inside_roots(resolved);
                if outside {
                    self.add_outside_path(kind, resolved);
                }
                let plain = LexicalPath::parse(requested).is_ok_and(|path| path.as_str() == resolved);
                if !plain && requested != resolved {
                    let severity = if outside { DangerSeverity::Grave } else { DangerSeverity::Serious };
                    self.add(
                        severity,
                        format!("{} leads to {}", escape_name(requested), escape_name(resolved)),
                    );
                }
                if kind == OperationKind::Delete && single {
                    self.add(DangerSeverity::Serious, format!("deletes {}", escape_name(resolved)));
                }
                self.check_confusables(requested);
            }
            OperationTarget::OutsideRoots { requested } => {
                self.add_outside_path(kind, requested);
                self.check_confusables(requested);
            }
            OperationTarget::Command(command) => self.scan_command(command),
            OperationTarget::Url(url) => self.scan_url(url),
            OperationTarget::Described(text) => self.check_confusables(text),
        }
    }

    fn add_outside_path(&mut self, kind: OperationKind, path: &str) {
        let severity =
            if kind == OperationKind::Read { DangerSeverity::Serious } else { DangerSeverity::Grave };
        self.add(severity, format!("outside the workspace: {}", escape_name(path)));
    }

    fn scan_command(&mut self, command: &CommandSpec) {
        if !self.is_inside_roots(&command.cwd) {
            self.add(
                DangerSeverity::Serious,
                format!("runs outside the workspace, in {}", escape_name(&command.cwd)),
            );
        }
        self.scan_reached_files(command);
        commands::scan_command(self, command);
    }

    /// Checks the files that a shell opens through links, which the command text does not show.
    fn scan_reached_files(&mut self, command: &CommandSpec) {
        for reached in &command.named_paths {
            let requested = escape_name(&reached.requested);
            match &reached.resolution {
                PathResolution::InsideRoot { resolved, protection } if *resolved != reached.requested => {
                    if let Some(protection) = protection {
                        self.add(
                            DangerSeverity::Serious,
                            format!(
                                "{requested} leads to {}: {}",
                                escape_name(resolved),
                                protection.reason()
                            ),
                        );
                    }
                }
                PathResolution::OutsideRoots if self.is_inside_roots(&reached.requested) => {
                    self.add(DangerSeverity::Grave, format!("{requested} leads outside the workspace"));
                }
                PathResolution::ReadOnlyRoot => {
                    self.add(
                        DangerSeverity::Serious,
                        format!("writes {requested}, in a directory that may only be read"),
                    );
                }
                PathResolution::InsideRoot { .. } | PathResolution::OutsideRoots => {}
            }
        }
    }

    fn scan_url(&mut self, url: &str) {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        if let Some(warning) = check_non_ascii(host) {
            self.add(DangerSeverity::Serious, warning.to_string());
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let local = ["localhost", "::1", "0.0.0.0"].contains(&name)
            || ["127.", "10.", "192.168.", "169.254."].iter().any(|start| name.starts_with(start));
        if local {
            self.add(
                DangerSeverity::Serious,
                format!("reaches this machine or its network: {}", escape_name(host)),
            );
        }
        if url.to_ascii_lowercase().starts_with("http://") && !local {
            self.add(DangerSeverity::Mild, format!("is not encrypted: {}", escape_name(url)));
        }
        if authority.contains('@') {
            self.add(DangerSeverity::Mild, "names a user before the host: the host is what follows the @");
        }
    }

    /// Warns of confusable letters.
    fn check_confusables(&mut self, text: &str) {
        if let Some(warning) = check_mixed_scripts(text) {
            self.add(DangerSeverity::Serious, warning.to_string());
        }
    }

    fn is_inside_roots(&self, path: &str) -> bool {
        self.roots.iter().any(|root| path_below(path, root).is_some())
    }
}

fn escape_name(text: &str) -> String {
    escape_line(text, MAX_SHOWN_BYTES)
}

#[cfg(test)]
mod tests;
