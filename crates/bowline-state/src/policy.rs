//! Rules: what an agent may do by itself, what a person is asked about, what is refused.
//!
//! A [`Policy`] is a list of rules and a preset for what no rule speaks of. [`Policy::judge`] compares an operation with
//! all of them, and the strongest decides: deny before ask before allow. Some things hold whatever the rules are: a
//! protected name is only allowed by a rule that names it, a line that cannot be taken apart is never allowed for its first
//! words, a variable that makes programs run code is only allowed by a rule that names it.

use std::fmt;
use std::str::FromStr;

use crate::changes::Moment;
use crate::failure::quote;
use crate::operation::{Kind, Operation, Target};
use crate::paths::{Access, LexicalPath, Protection};

mod arguments;
mod commands;
mod environment;
mod executed;
mod hooks;
mod naming;
mod rule;
mod ruling;
mod seen;
pub mod shell;
mod suggest;
mod targets;
mod wrappers;

pub use commands::{canonical, canonical_in};
pub use environment::{EnvironmentRisk, environment};
pub use rule::{
    Kinds, Lifetime, MAX_EXACT, MAX_NOTE, MAX_PATTERN, MAX_PREFIX_WORDS, Matcher, Rule, RuleFault, RuleSpec,
    Source,
};
pub use ruling::{Ground, Law, MAX_REASONS, Reason, Ruling};
pub use suggest::{Suggestion, suggest};
pub use targets::{Named, targets};

/// A policy has at most this many rules. People write tens.
pub const MAX_RULES: usize = 2_000;

/// What is to happen with an operation. The later is the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// It is done.
    Allow,
    /// A person is asked.
    Ask,
    /// It is refused.
    Deny,
}

/// What holds where no rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Reads are allowed, all else is asked about.
    #[default]
    Ask,
    /// Reads and writes are allowed, all else is asked about.
    AcceptEdits,
    /// Reads are allowed, all else is refused.
    ReadOnly,
    /// Everything is allowed: arbitrary code runs. Protected names and variables that run code are still asked about, unless
    /// a rule names them.
    Full,
    /// Everything is refused.
    Deny,
}

/// The rules that hold in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// What holds where no rule matches.
    pub preset: Preset,
    /// The rules. Their order decides nothing.
    pub rules: Vec<Rule>,
    /// The directories of the workspace, in normal form: what relative globs and relative names start from.
    pub roots: Vec<String>,
    /// Files that tools execute, by their own names, as far as agents wrote them without a person's approval. A command that
    /// may execute one is asked about, whatever rule allows it, unless arbitrary code is allowed.
    pub unreviewed: Vec<String>,
}

/// Where and when something is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// In which session.
    pub session: String,
    /// In which turn, counted from 1; none between turns.
    pub turn: Option<u64>,
    /// When.
    pub now: Moment,
}

/// A text that names no preset, or no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not one of {known}", quote(.text))]
pub struct UnknownWord {
    /// The text.
    pub text: String,
    /// What it could be.
    pub known: &'static str,
}

impl Effect {
    /// Returns the word for it, as settings have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Effect {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Allow, Self::Ask, Self::Deny]
            .into_iter()
            .find(|effect| effect.word() == text)
            .ok_or_else(|| UnknownWord { text: text.to_owned(), known: "allow, ask, deny" })
    }
}

impl Preset {
    /// Every preset, in the order that help lists them.
    pub const ALL: [Self; 5] = [Self::Ask, Self::AcceptEdits, Self::ReadOnly, Self::Full, Self::Deny];

    /// Returns the word for it, as settings have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::AcceptEdits => "accept-edits",
            Self::ReadOnly => "read-only",
            Self::Full => "full",
            Self::Deny => "deny",
        }
    }

    /// Returns what it says of an ordinary operation.
    #[must_use]
    pub fn effect(self, kind: Kind) -> Effect {
        match (self, kind) {
            (Self::Full, _)
            | (Self::Ask | Self::AcceptEdits | Self::ReadOnly, Kind::Read)
            | (Self::AcceptEdits, Kind::Write) => Effect::Allow,
            (Self::Ask | Self::AcceptEdits, _) => Effect::Ask,
            (Self::ReadOnly | Self::Deny, _) => Effect::Deny,
        }
    }

    /// Returns the stricter of two: of any kind of operation it allows no more than the other does.
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

    /// Returns what it says of an operation that is never allowed by itself.
    fn guarded(self, kind: Kind) -> Effect {
        self.effect(kind).max(Effect::Ask)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Preset {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|preset| preset.word() == text).ok_or_else(|| UnknownWord {
            text: text.to_owned(),
            known: "ask, accept-edits, read-only, full, deny",
        })
    }
}

impl Policy {
    /// Says what is to happen with an operation, and why. Nothing is done, so rules can be tried with it.
    #[must_use]
    pub fn judge(&self, operation: &Operation, context: &Context) -> Ruling {
        let kind = operation.kind;
        let reasons = match &operation.target {
            Target::File { asked, resolved, protection } => {
                self.judge_file(kind, asked, resolved, *protection, context)
            }
            Target::Elsewhere { asked } => self.judge_elsewhere(kind, asked, context),
            Target::Command(command) => commands::judge(self, kind, command, context),
            Target::Url(url) => self.judge_url(kind, url, context),
            Target::Described(_) => self.judge_unseen(kind, Law::Described, context),
        };
        Ruling::from_reasons(reasons)
    }

    /// Returns the rules that hold for a kind, with their places.
    fn live<'p>(&'p self, kind: Kind, context: &'p Context) -> impl Iterator<Item = (usize, &'p Rule)> {
        self.rules
            .iter()
            .enumerate()
            .filter(move |(_, rule)| rule.spec().kinds.contains(kind) && rule.is_live(context))
    }

    fn judge_file(
        &self,
        kind: Kind,
        asked: &str,
        resolved: &str,
        protection: Option<Protection>,
        context: &Context,
    ) -> Vec<Reason> {
        // As asked for, a name may go ways that the resolved one does not; a rule against either counts.
        let is_normal = asked.split('/').skip(1).all(|name| !matches!(name, "" | "." | ".."));
        let normal = if is_normal { None } else { LexicalPath::parse(asked).ok() };
        let access = if kind == Kind::Read { Access::Read } else { Access::Write };
        // Most names are the same in every way, and are compared once.
        let others = [Some(asked), normal.as_ref().map(LexicalPath::as_str)];
        let others = others.map(|other| other.filter(|other| *other != resolved));
        let mut reasons = Vec::new();
        let mut named = false;
        for (index, rule) in self.live(kind, context) {
            let by_path = rule.covers_path(resolved, &self.roots);
            let matches = match (&rule.spec().matcher, rule.effect()) {
                (Matcher::Everything, Effect::Allow) => protection.is_none(),
                (Matcher::Everything, _) => true,
                (Matcher::Path(_), Effect::Allow) => by_path,
                (Matcher::Path(_), _) => {
                    by_path || others.iter().flatten().any(|path| rule.covers_path(path, &self.roots))
                }
                _ => false,
            };
            if matches {
                named |= rule.effect() == Effect::Allow && rule.names_path(resolved, access, &self.roots);
                reasons.push(because(index, rule));
            }
        }
        if let Some(protection) = protection.filter(|_| !named) {
            reasons.push(Reason::law(self.preset.guarded(kind), Law::Protected(protection)));
        }
        if reasons.is_empty() {
            reasons.push(self.by_preset(kind));
        }
        reasons
    }

    fn judge_elsewhere(&self, kind: Kind, asked: &str, context: &Context) -> Vec<Reason> {
        let normal =
            LexicalPath::parse(asked).map_or_else(|_| asked.to_owned(), |path| path.as_str().to_owned());
        let mut reasons: Vec<Reason> = self
            .live(kind, context)
            .filter(|(_, rule)| rule.effect() != Effect::Allow)
            .filter(|(_, rule)| {
                rule.spec().matcher == Matcher::Everything
                    || [asked, normal.as_str()].iter().any(|path| rule.covers_path(path, &self.roots))
            })
            .map(|(index, rule)| because(index, rule))
            .collect();
        let effect = if kind == Kind::Read { self.preset.guarded(kind) } else { Effect::Deny };
        reasons.push(Reason::law(effect, Law::Outside));
        reasons
    }

    fn judge_url(&self, kind: Kind, url: &str, context: &Context) -> Vec<Reason> {
        let Some(host) = host(url) else { return self.judge_unseen(kind, Law::UnclearAddress, context) };
        let mut reasons: Vec<Reason> = self
            .live(kind, context)
            .filter(|(_, rule)| rule.spec().matcher == Matcher::Everything || rule.covers_host(&host))
            .map(|(index, rule)| because(index, rule))
            .collect();
        if reasons.is_empty() {
            reasons.push(self.by_preset(kind));
        }
        reasons
    }

    /// Judges what cannot be compared with any rule but those for everything. It is never allowed where a rule denies
    /// or asks about something that it might be.
    fn judge_unseen(&self, kind: Kind, law: Law, context: &Context) -> Vec<Reason> {
        let mut reasons = self.for_everything(kind, context);
        let is_free = match reasons.iter().map(|reason| reason.effect).max() {
            Some(effect) => effect == Effect::Allow,
            None => self.preset == Preset::Full,
        };
        if is_free && self.has_narrower(kind, context) {
            reasons.push(Reason::law(Effect::Ask, Law::Incomparable));
        } else if reasons.is_empty() && is_free {
            reasons.push(self.by_preset(kind));
        } else if reasons.is_empty() {
            reasons.push(Reason::law(self.preset.guarded(kind), law));
        }
        reasons
    }

    fn for_everything(&self, kind: Kind, context: &Context) -> Vec<Reason> {
        self.live(kind, context)
            .filter(|(_, rule)| rule.spec().matcher == Matcher::Everything)
            .map(|(index, rule)| because(index, rule))
            .collect()
    }

    /// Says whether some rule denies or asks about a part of what there is of a kind.
    fn has_narrower(&self, kind: Kind, context: &Context) -> bool {
        self.live(kind, context)
            .any(|(_, rule)| rule.effect() != Effect::Allow && rule.spec().matcher != Matcher::Everything)
    }

    fn by_preset(&self, kind: Kind) -> Reason {
        Reason::new(self.preset.effect(kind), Ground::Preset { preset: self.preset, kind })
    }
}

fn because(index: usize, rule: &Rule) -> Reason {
    Reason::new(rule.effect(), Ground::Rule { index, text: rule.to_string() })
}

/// Returns the host of an address, in lower case, if every reader of addresses would find the same one there.
fn host(url: &str) -> Option<String> {
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
