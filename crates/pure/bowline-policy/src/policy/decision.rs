//! The decision of a policy on an operation, and its reasons.

use std::fmt;

use super::{Effect, Preset};
use crate::operation::OperationKind;
use crate::paths::Protection;
use bowline_text::display::quote;

/// The maximum number of reasons in a decision; the strongest come first.
pub const MAX_REASONS: usize = 32;

/// The decision of a policy on an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The resulting effect.
    pub effect: Effect,
    /// The reasons, strongest first. The first has the decision's own effect.
    pub reasons: Vec<PolicyReason>,
}

/// One reason for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyReason {
    /// The effect of this reason alone.
    pub effect: Effect,
    /// The part of the operation it concerns, if not the whole: a part of a line, a file, a variable.
    pub subject: Option<String>,
    /// Its basis.
    pub basis: ReasonBasis,
}

/// The basis of a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasonBasis {
    /// A rule.
    Rule {
        /// Its index in the policy.
        index: usize,
        /// Its content and source.
        text: String,
    },
    /// No rule matched, so the preset holds.
    Preset {
        /// The preset.
        preset: Preset,
        /// The kind of operation.
        kind: OperationKind,
    },
    /// A built-in rule, which applies under any policy.
    BuiltIn(BuiltInRule),
}

/// A rule that applies under any policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltInRule {
    /// The name is protected.
    ProtectedPath(Protection),
    /// The path lies outside the workspace.
    OutsideWorkspace,
    /// The operation writes to a root that this session may only read.
    ReadOnlyRoot,
    /// The command runs outside the workspace.
    RunsOutsideWorkspace,
    /// The text cannot be parsed.
    UnparsedCommand(String),
    /// Some rules deny or ask, and the operation cannot be compared with them.
    Incomparable,
    /// It runs a command that the matching rules do not cover.
    RunsUncoveredCommand,
    /// A variable makes programs run code.
    CodeLoadingVariable(&'static str),
    /// The effect of a variable is not known.
    UnknownVariable,
    /// The shell makes up the file's name, or the name depends on an earlier change of directory.
    UncertainTarget,
    /// It writes files that it does not name.
    UnnamedTargets,
    /// The agent only describes the operation.
    OnlyDescribed,
    /// The URL is ambiguous.
    AmbiguousUrl,
    /// It changes to a directory of the workspace.
    ChangesDirectory,
    /// It executes this file, which an agent wrote without a person's approval.
    ExecutesUnreviewedFile(String),
}

impl PolicyDecision {
    /// Returns the decision that a list of reasons amounts to. An empty list denies.
    pub(super) fn from_reasons(mut reasons: Vec<PolicyReason>) -> Self {
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.effect));
        reasons.dedup();
        reasons.truncate(MAX_REASONS);
        Self { effect: reasons.first().map_or(Effect::Deny, |reason| reason.effect), reasons }
    }
}

impl PolicyReason {
    pub(super) fn new(effect: Effect, basis: ReasonBasis) -> Self {
        Self { effect, subject: None, basis }
    }

    pub(super) fn built_in(effect: Effect, rule: BuiltInRule) -> Self {
        Self::new(effect, ReasonBasis::BuiltIn(rule))
    }

    pub(super) fn with_subject(mut self, subject: &str) -> Self {
        self.subject.get_or_insert_with(|| quote(subject));
        self
    }
}

/// One line for each reason, such as "deny: `rm -rf /`: rule 3 …".
impl fmt::Display for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, reason) in self.reasons.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PolicyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.effect)?;
        if let Some(subject) = &self.subject {
            write!(f, "`{subject}`: ")?;
        }
        match &self.basis {
            ReasonBasis::Rule { text, .. } => f.write_str(text),
            ReasonBasis::Preset { preset, kind } => {
                write!(
                    f,
                    "no rule covers it, and preset {preset} {} {}",
                    effect_verb(self.effect),
                    kind_plural(*kind)
                )
            }
            ReasonBasis::BuiltIn(rule) => write!(f, "{rule}"),
        }
    }
}

fn effect_verb(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allows",
        Effect::Ask => "asks before",
        Effect::Deny => "denies",
    }
}

fn kind_plural(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Read => "reads",
        OperationKind::Write => "writes",
        OperationKind::Delete => "deletions",
        OperationKind::Execute => "commands",
        OperationKind::Fetch => "fetches",
    }
}

impl fmt::Display for BuiltInRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuiltInRule::ProtectedPath(protection) => {
                write!(f, "it {}; only a rule that names it allows it", protection.reason())
            }
            BuiltInRule::OutsideWorkspace => f.write_str("it lies outside the workspace"),
            BuiltInRule::ReadOnlyRoot => f.write_str("it lies in a directory that may only be read"),
            BuiltInRule::RunsOutsideWorkspace => f.write_str("it runs outside the workspace"),
            BuiltInRule::UnparsedCommand(reason) => {
                write!(f, "the line {reason}, so its commands cannot be told apart")
            }
            BuiltInRule::Incomparable => {
                f.write_str("there are rules that deny or ask, and this cannot be compared to them")
            }
            BuiltInRule::RunsUncoveredCommand => f.write_str("it runs something else that no rule covers"),
            BuiltInRule::CodeLoadingVariable(reason) => write!(f, "the variable is set, and {reason}"),
            BuiltInRule::UnknownVariable => f.write_str("the variable is set, and what it does is not known"),
            BuiltInRule::UncertainTarget => f.write_str("which file this is depends on the shell"),
            BuiltInRule::UnnamedTargets => {
                f.write_str("it writes files that it does not name: those of an archive or a patch")
            }
            BuiltInRule::OnlyDescribed => f.write_str("the agent only describes what it does"),
            BuiltInRule::AmbiguousUrl => f.write_str("the address cannot be read with certainty"),
            BuiltInRule::ExecutesUnreviewedFile(file) => {
                write!(f, "it may execute {}, which an agent changed without your approval", quote(file))
            }
            BuiltInRule::ChangesDirectory => f.write_str("it changes to a directory of the workspace"),
        }
    }
}
