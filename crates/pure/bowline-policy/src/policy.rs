//! Policies: which operations an agent may perform, which need a person's approval, and which are refused.
//!
//! A [`Policy`] is a list of rules and a preset for operations that no rule matches. [`Policy::evaluate`] compares an
//! operation with every rule, and the strongest effect decides: deny before ask before allow. Some guards are built
//! in and apply under any rules: a protected name is allowed only by a rule that names it, a shell line that cannot
//! be parsed is never allowed by its first words, and a variable that makes programs run code is allowed only by a
//! rule that names it.

use std::fmt;
use std::str::FromStr;

use crate::operation::{Operation, OperationKind, OperationTarget};
use crate::paths::{Access, LexicalPath, Protection};
use bowline_text::display::quote;
use bowline_text::time::Timestamp;

mod arguments;
mod commands;
mod decision;
mod environment;
mod exec_options;
mod executed_files;
mod explicit_match;
mod rule;
pub mod shell;
mod suggest;
mod targets;
mod visible_commands;
mod wrappers;

pub use commands::{canonical_invocation, canonical_invocation_in};
pub use decision::{BuiltInRule, MAX_REASONS, PolicyDecision, PolicyReason, ReasonBasis};
pub use environment::{EnvironmentRisk, assess_variable};
pub use rule::{
    MAX_EXACT_BYTES, MAX_NOTE_BYTES, MAX_PATTERN_BYTES, MAX_PREFIX_WORDS, OperationKinds, Rule, RuleError,
    RuleLifetime, RuleMatcher, RuleSource, RuleSpec,
};
pub use suggest::{RuleSuggestion, suggest_rules};
pub use targets::{FileTarget, file_targets};

/// The maximum number of rules in a policy. People write tens.
pub const MAX_RULES: usize = 2_000;

/// The effect of a policy on an operation, from weakest to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// It is performed.
    Allow,
    /// A person is asked.
    Ask,
    /// It is refused.
    Deny,
}

/// The effects that apply where no rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Reads are allowed; everything else is asked about.
    #[default]
    Ask,
    /// Reads and writes are allowed; everything else is asked about.
    AcceptEdits,
    /// Reads are allowed; everything else is refused.
    ReadOnly,
    /// Everything is allowed, including arbitrary code. Protected names and variables that run code are still asked
    /// about, unless a rule names them.
    Full,
    /// Everything is refused.
    Deny,
}

/// The rules in force in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Applies where no rule matches.
    pub preset: Preset,
    /// The rules. Their order does not matter.
    pub rules: Vec<Rule>,
    /// The directories of the workspace, in normal form: the base of relative globs and relative names.
    pub roots: Vec<String>,
    /// Files that tools execute and that agents wrote without a person's approval, by resolved name. A command that
    /// may execute one is asked about even if a rule allows it, unless arbitrary code is allowed.
    pub unreviewed_files: Vec<String>,
}

/// The session, turn and time of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyContext {
    /// The session.
    pub session: String,
    /// The turn, counted from 1; `None` between turns.
    pub turn: Option<u64>,
    /// The time.
    pub now: Timestamp,
}

/// A text that names no preset or effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not one of {known}", quote(.text))]
pub struct UnknownKeywordError {
    /// The text.
    pub text: String,
    /// The accepted words.
    pub known: &'static str,
}

impl Effect {
    /// Returns its keyword, as written in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Effect {
    type Err = UnknownKeywordError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Allow, Self::Ask, Self::Deny]
            .into_iter()
            .find(|effect| effect.as_str() == text)
            .ok_or_else(|| UnknownKeywordError { text: text.to_owned(), known: "allow, ask, deny" })
    }
}

impl Preset {
    /// Every preset, in the order that help lists them.
    pub const ALL: [Self; 5] = [Self::Ask, Self::AcceptEdits, Self::ReadOnly, Self::Full, Self::Deny];

    /// Returns its keyword, as written in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::AcceptEdits => "accept-edits",
            Self::ReadOnly => "read-only",
            Self::Full => "full",
            Self::Deny => "deny",
        }
    }

    /// Returns its effect on an ordinary operation.
    #[must_use]
    pub fn effect(self, kind: OperationKind) -> Effect {
        match (self, kind) {
            (Self::Full, _)
            | (Self::Ask | Self::AcceptEdits | Self::ReadOnly, OperationKind::Read)
            | (Self::AcceptEdits, OperationKind::Write) => Effect::Allow,
            (Self::Ask | Self::AcceptEdits, _) => Effect::Ask,
            (Self::ReadOnly | Self::Deny, _) => Effect::Deny,
        }
    }

    /// Returns the stricter of two presets: for every kind of operation it allows no more than the other.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if self.strictness() < other.strictness() { other } else { self }
    }

    fn strictness(self) -> u8 {
        match self {
            Self::Full => 0,
            Self::AcceptEdits => 1,
            Self::Ask => 2,
            Self::ReadOnly => 3,
            Self::Deny => 4,
        }
    }

    /// Returns its effect on an operation that is never allowed by default.
    fn guarded_effect(self, kind: OperationKind) -> Effect {
        self.effect(kind).max(Effect::Ask)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Preset {
    type Err = UnknownKeywordError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|preset| preset.as_str() == text).ok_or_else(|| UnknownKeywordError {
            text: text.to_owned(),
            known: "ask, accept-edits, read-only, full, deny",
        })
    }
}

impl Policy {
    /// Decides what happens with an operation, and why. It has no side effects, so it can be used to try out rules.
    #[must_use]
    pub fn evaluate(&self, operation: &Operation, context: &PolicyContext) -> PolicyDecision {
        let kind = operation.kind;
        let reasons = match &operation.target {
            OperationTarget::File { requested, resolved, protection } => {
                self.evaluate_file(kind, requested, resolved, *protection, context)
            }
            OperationTarget::OutsideRoots { requested } => {
                self.evaluate_outside_path(kind, requested, context)
            }
            OperationTarget::Command(command) => commands::evaluate_command(self, kind, command, context),
            OperationTarget::Url(url) => self.evaluate_url(kind, url, context),
            OperationTarget::Described(_) => self.evaluate_opaque(kind, BuiltInRule::OnlyDescribed, context),
        };
        PolicyDecision::from_reasons(reasons)
    }

    /// Returns the active rules for a kind, with their indices.
    fn active_rules<'p>(
        &'p self,
        kind: OperationKind,
        context: &'p PolicyContext,
    ) -> impl Iterator<Item = (usize, &'p Rule)> {
        self.rules
            .iter()
            .enumerate()
            .filter(move |(_, rule)| rule.spec().kinds.contains(kind) && rule.is_active(context))
    }

    fn evaluate_file(
        &self,
        kind: OperationKind,
        requested: &str,
        resolved: &str,
        protection: Option<Protection>,
        context: &PolicyContext,
    ) -> Vec<PolicyReason> {
        // The requested name may take another route than the resolved one; a rule against either counts.
        let is_normal = requested.split('/').skip(1).all(|name| !matches!(name, "" | "." | ".."));
        let normal = if is_normal { None } else { LexicalPath::parse(requested).ok() };
        let access = if kind == OperationKind::Read { Access::Read } else { Access::Write };
        // Most names are the same in all forms, and are compared once.
        let others = [Some(requested), normal.as_ref().map(LexicalPath::as_str)];
        let others = others.map(|other| other.filter(|other| *other != resolved));
        let mut reasons = Vec::new();
        let mut named = false;
        for (index, rule) in self.active_rules(kind, context) {
            let by_path = rule.covers_path(resolved, &self.roots);
            let matches = match (&rule.spec().matcher, rule.effect()) {
                (RuleMatcher::Everything, Effect::Allow) => protection.is_none(),
                (RuleMatcher::Everything, _) => true,
                (RuleMatcher::Path(_), Effect::Allow) => by_path,
                (RuleMatcher::Path(_), _) => {
                    by_path || others.iter().flatten().any(|path| rule.covers_path(path, &self.roots))
                }
                _ => false,
            };
            if matches {
                named |= rule.effect() == Effect::Allow
                    && rule.names_path_explicitly(resolved, access, &self.roots);
                reasons.push(rule_reason(index, rule));
            }
        }
        if let Some(protection) = protection.filter(|_| !named) {
            reasons.push(PolicyReason::built_in(
                self.preset.guarded_effect(kind),
                BuiltInRule::ProtectedPath(protection),
            ));
        }
        if reasons.is_empty() {
            reasons.push(self.preset_reason(kind));
        }
        reasons
    }

    fn evaluate_outside_path(
        &self,
        kind: OperationKind,
        requested: &str,
        context: &PolicyContext,
    ) -> Vec<PolicyReason> {
        let normal = LexicalPath::parse(requested)
            .map_or_else(|_| requested.to_owned(), |path| path.as_str().to_owned());
        let mut reasons: Vec<PolicyReason> = self
            .active_rules(kind, context)
            .filter(|(_, rule)| rule.effect() != Effect::Allow)
            .filter(|(_, rule)| {
                rule.spec().matcher == RuleMatcher::Everything
                    || [requested, normal.as_str()].iter().any(|path| rule.covers_path(path, &self.roots))
            })
            .map(|(index, rule)| rule_reason(index, rule))
            .collect();
        let effect =
            if kind == OperationKind::Read { self.preset.guarded_effect(kind) } else { Effect::Deny };
        reasons.push(PolicyReason::built_in(effect, BuiltInRule::OutsideWorkspace));
        reasons
    }

    fn evaluate_url(&self, kind: OperationKind, url: &str, context: &PolicyContext) -> Vec<PolicyReason> {
        let Some(host) = parse_host(url) else {
            return self.evaluate_opaque(kind, BuiltInRule::AmbiguousUrl, context);
        };
        let mut reasons: Vec<PolicyReason> = self
            .active_rules(kind, context)
            .filter(|(_, rule)| rule.spec().matcher == RuleMatcher::Everything || rule.covers_host(&host))
            .map(|(index, rule)| rule_reason(index, rule))
            .collect();
        if reasons.is_empty() {
            reasons.push(self.preset_reason(kind));
        }
        reasons
    }

    /// Evaluates an operation that can only be compared with catch-all rules. It is never allowed where a narrower
    /// rule that denies or asks might match it.
    fn evaluate_opaque(
        &self,
        kind: OperationKind,
        rule: BuiltInRule,
        context: &PolicyContext,
    ) -> Vec<PolicyReason> {
        let mut reasons = self.catch_all_reasons(kind, context);
        let is_allowed = match reasons.iter().map(|reason| reason.effect).max() {
            Some(effect) => effect == Effect::Allow,
            None => self.preset == Preset::Full,
        };
        if is_allowed && self.has_narrower_restriction(kind, context) {
            reasons.push(PolicyReason::built_in(Effect::Ask, BuiltInRule::Incomparable));
        } else if reasons.is_empty() && is_allowed {
            reasons.push(self.preset_reason(kind));
        } else if reasons.is_empty() {
            reasons.push(PolicyReason::built_in(self.preset.guarded_effect(kind), rule));
        }
        reasons
    }

    fn catch_all_reasons(&self, kind: OperationKind, context: &PolicyContext) -> Vec<PolicyReason> {
        self.active_rules(kind, context)
            .filter(|(_, rule)| rule.spec().matcher == RuleMatcher::Everything)
            .map(|(index, rule)| rule_reason(index, rule))
            .collect()
    }

    /// Returns whether a rule denies or asks about some, but not all, operations of a kind.
    fn has_narrower_restriction(&self, kind: OperationKind, context: &PolicyContext) -> bool {
        self.active_rules(kind, context)
            .any(|(_, rule)| rule.effect() != Effect::Allow && rule.spec().matcher != RuleMatcher::Everything)
    }

    fn preset_reason(&self, kind: OperationKind) -> PolicyReason {
        PolicyReason::new(self.preset.effect(kind), ReasonBasis::Preset { preset: self.preset, kind })
    }
}

fn rule_reason(index: usize, rule: &Rule) -> PolicyReason {
    PolicyReason::new(rule.effect(), ReasonBasis::Rule { index, text: rule.to_string() })
}

/// Returns the host of a URL, in lower case, if every URL parser would find the same one.
fn parse_host(url: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    if !url.bytes().all(is_plain) {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')) {
        return None;
    }
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (inner, port) = inner.split_once(']')?;
            let is_address =
                inner.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
            (
                is_address.then(|| format!("[{inner}]"))?,
                port.strip_prefix(':').or(port.is_empty().then_some(""))?,
            )
        }
        None => {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            (host.strip_suffix('.').unwrap_or(host).to_owned(), port)
        }
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_host = !host.is_empty() && (host.starts_with('[') || host.bytes().all(is_name));
    (is_host && port.bytes().all(|byte| byte.is_ascii_digit())).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
