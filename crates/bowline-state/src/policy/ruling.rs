//! What a policy says of an operation, and why.

use std::fmt;

use super::{Effect, Preset};
use crate::failure::quote;
use crate::operation::Kind;
use crate::paths::Protection;

/// A ruling names at most this many reasons; the strongest come first.
pub const MAX_REASONS: usize = 32;

/// What a policy says of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// What is to happen.
    pub effect: Effect,
    /// Why, the strongest first. The first has the ruling's own effect.
    pub because: Vec<Reason>,
}

/// One reason for a ruling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What it alone would come to.
    pub effect: Effect,
    /// What it speaks of, if that is not the whole: a part of a line, a file, a variable.
    pub subject: Option<String>,
    /// What it rests on.
    pub ground: Ground,
}

/// What a reason rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// A rule.
    Rule {
        /// Its place in the policy, from 0.
        index: usize,
        /// What it says and where it is from.
        text: String,
    },
    /// No rule matched, so the preset holds.
    Preset {
        /// Which.
        preset: Preset,
        /// For what.
        kind: Kind,
    },
    /// What holds whatever the rules are.
    Law(Law),
}

/// What holds whatever the rules are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Law {
    /// The name is protected.
    Protected(Protection),
    /// It lies outside the workspace.
    Outside,
    /// It would be written, and lies where this session may only read.
    ReadOnly,
    /// The command runs outside the workspace.
    RunsOutside,
    /// The text cannot be taken apart.
    Unparsed(String),
    /// Some rules deny or ask, and what was asked for cannot be compared to them.
    Incomparable,
    /// It runs something that the rules that match it do not speak of.
    RunsOther,
    /// A variable makes programs run code.
    RunsCode(&'static str),
    /// Nobody knows what a variable does.
    UnknownVariable,
    /// The file's name is made up by the shell, or depends on where the line has gone.
    UncertainTarget,
    /// It writes files whose names do not stand in it.
    UnseenTargets,
    /// It only says what it does.
    Described,
    /// The address cannot be read with certainty.
    UnclearAddress,
    /// It changes to a directory of the workspace.
    Moves,
    /// It executes this file, which an agent wrote without a person's approval.
    Unreviewed(String),
}

impl Ruling {
    /// Returns the ruling that a list of reasons comes to. No reason at all denies.
    pub(super) fn from_reasons(mut because: Vec<Reason>) -> Self {
        because.sort_by_key(|reason| std::cmp::Reverse(reason.effect));
        because.dedup();
        because.truncate(MAX_REASONS);
        Self { effect: because.first().map_or(Effect::Deny, |reason| reason.effect), because }
    }
}

impl Reason {
    pub(super) fn new(effect: Effect, ground: Ground) -> Self {
        Self { effect, subject: None, ground }
    }

    pub(super) fn law(effect: Effect, law: Law) -> Self {
        Self::new(effect, Ground::Law(law))
    }

    pub(super) fn of(mut self, subject: &str) -> Self {
        self.subject.get_or_insert_with(|| quote(subject));
        self
    }
}

/// One line for each reason, such as "deny: `rm -rf /`: rule 3 …".
impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, reason) in self.because.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.effect)?;
        if let Some(subject) = &self.subject {
            write!(f, "`{subject}`: ")?;
        }
        match &self.ground {
            Ground::Rule { text, .. } => f.write_str(text),
            Ground::Preset { preset, kind } => {
                write!(f, "no rule covers it, and preset {preset} {} {}", verb(self.effect), plural(*kind))
            }
            Ground::Law(law) => write!(f, "{law}"),
        }
    }
}

fn verb(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allows",
        Effect::Ask => "asks before",
        Effect::Deny => "denies",
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "reads",
        Kind::Write => "writes",
        Kind::Delete => "deletions",
        Kind::Execute => "commands",
        Kind::Fetch => "fetches",
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Law::Protected(protection) => {
                write!(f, "it {}; only a rule that names it allows it", protection.reason())
            }
            Law::Outside => f.write_str("it lies outside the workspace"),
            Law::ReadOnly => f.write_str("it lies in a directory that may only be read"),
            Law::RunsOutside => f.write_str("it runs outside the workspace"),
            Law::Unparsed(why) => write!(f, "the line {why}, so its commands cannot be told apart"),
            Law::Incomparable => {
                f.write_str("there are rules that deny or ask, and this cannot be compared to them")
            }
            Law::RunsOther => f.write_str("it runs something else that no rule covers"),
            Law::RunsCode(how) => write!(f, "the variable is set, and {how}"),
            Law::UnknownVariable => f.write_str("the variable is set, and what it does is not known"),
            Law::UncertainTarget => f.write_str("which file this is depends on the shell"),
            Law::UnseenTargets => {
                f.write_str("it writes files that it does not name: those of an archive or a patch")
            }
            Law::Described => f.write_str("the agent only describes what it does"),
            Law::UnclearAddress => f.write_str("the address cannot be read with certainty"),
            Law::Unreviewed(file) => {
                write!(f, "it may execute {}, which an agent changed without your approval", quote(file))
            }
            Law::Moves => f.write_str("it changes to a directory of the workspace"),
        }
    }
}
