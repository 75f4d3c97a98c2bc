//! The result of verifying a log: the defects, their positions, and whether a crash explains them.

use std::fmt;

use super::MAX_FINDINGS;

/// The position of a finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The file's name.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A defect of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditDefect {
    /// A line was altered.
    #[error("entry {seq} was changed")]
    Changed {
        /// Its number.
        seq: u64,
    },
    /// A line does not have the form of an entry.
    #[error("the line is not an entry: it was overwritten or put in")]
    Unreadable,
    /// Lines are missing.
    #[error("{} removed before this line", describe_entries(*.from, *.to))]
    Removed {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// A line follows lines that were written later.
    #[error("entry {seq} was moved: it stands after entry {after}")]
    Reordered {
        /// Its number.
        seq: u64,
        /// The number of the line before it.
        after: u64,
    },
    /// A line appears twice.
    #[error("entry {seq} is there a second time")]
    Duplicated {
        /// Its number.
        seq: u64,
    },
    /// Two different lines have the same number.
    #[error("there are two entries {seq} that differ: one was put in")]
    Inserted {
        /// Their number.
        seq: u64,
    },
    /// A line has the number of a much earlier one.
    #[error("entry {seq} is there again, long after its place")]
    Repeated {
        /// Its number.
        seq: u64,
    },
    /// A line does not link to its predecessor.
    #[error("entry {seq} does not belong to the entry before it: one of them was replaced")]
    Unlinked {
        /// Its number.
        seq: u64,
    },
    /// The chain is consistent, but it is not the chain of the anchor.
    #[error("entry {seq} is not the one in the anchor: the log was replaced or written anew")]
    Replaced {
        /// Its number.
        seq: u64,
    },
    /// The oldest lines are missing, and rotation did not drop them.
    #[error("{} removed from the start, and not by rotation", describe_entries(*.from, *.to))]
    StartRemoved {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The newest lines are missing.
    #[error("{} cut off the end, which the anchor knows", describe_entries(*.from, *.to))]
    TailRemoved {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The newest lines are missing from the anchor although it should cover them: they are not reads, or are too many.
    #[error(
        "{} written after the anchor: {}", describe_entries(*.from, *.to),
        if .from == .to { "a crash leaves one" } else { "a crash of the machine may leave some, a hand any" }
    )]
    Unanchored {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The last line is unterminated.
    #[error(
        "the last line is torn: {}",
        if *.whole { "its entry is whole, only the line end is missing" }
        else { "a crash leaves it so; had it been cut by hand, its entry would be in the anchor" }
    )]
    Torn {
        /// Whether only the newline is missing.
        whole: bool,
    },
    /// No anchor is available for comparison.
    #[error(
        "the anchor is missing or unreadable: whether the end was cut off or all was written anew cannot be told"
    )]
    NoAnchor,
}

fn describe_entries(from: u64, to: u64) -> String {
    if from == to { format!("entry {from} was") } else { format!("entries {from} to {to} were") }
}

impl AuditDefect {
    /// Returns whether killing a process between two system calls can cause this defect. In that case no anchored entry
    /// is missing or altered.
    #[must_use]
    pub fn is_crash_artifact(&self) -> bool {
        match self {
            AuditDefect::Torn { .. } => true,
            AuditDefect::Unanchored { from, to } => from == to,
            _ => false,
        }
    }
}

/// A defect and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFinding {
    /// The line at which it was noticed; `None` if the log is empty.
    pub position: Option<LogPosition>,
    /// The defect.
    pub defect: AuditDefect,
}

impl fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.position {
            Some(position) => write!(f, "{position}: {}", self.defect),
            None => self.defect.fmt(f),
        }
    }
}

/// A repair entry: the log's own record of an unexpected state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairNote {
    /// The position of the repair entry.
    pub position: LogPosition,
    /// The number of the entry.
    pub seq: u64,
    /// Its text.
    pub text: String,
}

/// The result of verifying a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerificationReport {
    /// The number of files read.
    pub files: u64,
    /// The number of intact entries.
    pub entries: u64,
    /// The numbers of the oldest and the newest intact entry.
    pub range: Option<(u64, u64)>,
    /// The findings, by position; at most [`MAX_FINDINGS`].
    pub findings: Vec<AuditFinding>,
    /// The number of findings left out.
    pub omitted_findings: u64,
    /// The repair entries that record crashes and gaps met during use; at most [`MAX_FINDINGS`].
    pub notes: Vec<RepairNote>,
}

impl VerificationReport {
    /// Returns whether the log has no defects.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.findings.is_empty() && self.omitted_findings == 0
    }

    /// Returns whether every defect can result from a process crash.
    #[must_use]
    pub fn has_only_crash_artifacts(&self) -> bool {
        self.omitted_findings == 0 && self.findings.iter().all(|finding| finding.defect.is_crash_artifact())
    }

    pub(super) fn add_finding(&mut self, position: Option<LogPosition>, defect: AuditDefect) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(AuditFinding { position, defect });
        } else {
            self.omitted_findings += 1;
        }
    }
}
