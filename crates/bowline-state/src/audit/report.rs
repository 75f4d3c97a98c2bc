//! What verifying a log found: what is wrong, where, and whether a crash leaves it so.

use std::fmt;

use super::MAX_FINDINGS;

/// Where something was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A line is not what was written.
    #[error("entry {seq} was changed")]
    Changed {
        /// Its number.
        seq: u64,
    },
    /// A line has not the form of an entry.
    #[error("the line is not an entry: it was overwritten or put in")]
    Unreadable,
    /// Lines are missing.
    #[error("{} removed before this line", entries(*.from, *.to))]
    Removed {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// A line stands after others that were written later.
    #[error("entry {seq} was moved: it stands after entry {after}")]
    Reordered {
        /// Its number.
        seq: u64,
        /// What it stands after.
        after: u64,
    },
    /// A line is there a second time.
    #[error("entry {seq} is there a second time")]
    Duplicated {
        /// Its number.
        seq: u64,
    },
    /// Two lines that differ have the same number.
    #[error("there are two entries {seq} that differ: one was put in")]
    Inserted {
        /// Their number.
        seq: u64,
    },
    /// A line has a number that an earlier one had.
    #[error("entry {seq} is there again, long after its place")]
    Repeated {
        /// Its number.
        seq: u64,
    },
    /// A line does not go with the one before.
    #[error("entry {seq} does not belong to the entry before it: one of them was replaced")]
    Unlinked {
        /// Its number.
        seq: u64,
    },
    /// The chain holds, but it is not the one that the anchor is of.
    #[error("entry {seq} is not the one in the anchor: the log was replaced or written anew")]
    Replaced {
        /// Its number.
        seq: u64,
    },
    /// The oldest lines are missing, and no rotation dropped them.
    #[error("{} removed from the start, and not by rotation", entries(*.from, *.to))]
    StartRemoved {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The newest lines are missing.
    #[error("{} cut off the end, which the anchor knows", entries(*.from, *.to))]
    TailCut {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The newest lines are not in the anchor, and it should know them: they are no reads, or too many.
    #[error(
        "{} written after the anchor: {}", entries(*.from, *.to),
        if .from == .to { "a crash leaves one" } else { "a crash of the machine may leave some, a hand any" }
    )]
    Unanchored {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The last line has no end.
    #[error(
        "the last line is torn: {}",
        if *.whole { "its entry is whole, only the line end is missing" }
        else { "a crash leaves it so; had it been cut by hand, its entry would be in the anchor" }
    )]
    Torn {
        /// Only the line end is missing.
        whole: bool,
    },
    /// There is no anchor to compare with.
    #[error(
        "the anchor is missing or unreadable: whether the end was cut off or all was written anew cannot be told"
    )]
    NoAnchor,
}

fn entries(from: u64, to: u64) -> String {
    if from == to { format!("entry {from} was") } else { format!("entries {from} to {to} were") }
}

impl Fault {
    /// Says whether a process that is killed between two calls to the system leaves this behind. Nothing that was
    /// anchored is missing or changed then.
    #[must_use]
    pub fn is_of_a_crash(&self) -> bool {
        match self {
            Fault::Torn { .. } => true,
            Fault::Unanchored { from, to } => from == to,
            _ => false,
        }
    }
}

/// Something that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The line it was noticed at; none if the log has no line.
    pub place: Option<Place>,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.fault),
            None => self.fault.fmt(f),
        }
    }
}

/// What the log itself says about a state it was found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Where it says so.
    pub place: Place,
    /// The number of the entry.
    pub seq: u64,
    /// What it says.
    pub text: String,
}

/// What verifying a log came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many files were read.
    pub files: u64,
    /// How many entries are whole.
    pub entries: u64,
    /// The numbers of the oldest and the newest of them.
    pub range: Option<(u64, u64)>,
    /// What is wrong, by place; at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// How many findings are not told.
    pub more: u64,
    /// What the log says of crashes and gaps that were met while it was in use; at most [`MAX_FINDINGS`].
    pub notes: Vec<Note>,
}

impl Report {
    /// Says whether nothing is wrong.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.findings.is_empty() && self.more == 0
    }

    /// Says whether nothing is wrong but what the crash of a process leaves.
    #[must_use]
    pub fn is_unharmed(&self) -> bool {
        self.more == 0 && self.findings.iter().all(|finding| finding.fault.is_of_a_crash())
    }

    pub(super) fn add(&mut self, place: Option<Place>, fault: Fault) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { place, fault });
        } else {
            self.more += 1;
        }
    }
}
