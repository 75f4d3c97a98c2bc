//! One rule: what it speaks of, for how long, and where it is from.

use std::fmt;
use std::sync::Arc;

use globset::{GlobBuilder, GlobSet};

use super::{Context, Effect, canonical, shell};
use crate::changes::Moment;
use crate::failure::quote;
use crate::operation::{Invocation, Kind};

/// A pattern is at most this long, in bytes; so is a command, all its words together.
pub const MAX_PATTERN: usize = 1024;
/// An exact command is at most this long, in bytes.
pub const MAX_EXACT: usize = 16 << 10;
/// A prefix has at most this many words.
pub const MAX_PREFIX_WORDS: usize = 64;
/// A note is at most this long, in bytes.
pub const MAX_NOTE: usize = 1024;

/// A set of kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

/// What a rule speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matcher {
    /// Everything of its kinds.
    Everything,
    /// Files by name: a glob, absolute or relative to any directory of the session. One that names a directory covers what
    /// is below.
    Path(String),
    /// Commands that start with these words.
    Command(Vec<String>),
    /// One command, word for word.
    Exact(Invocation),
    /// Addresses by host: a name, `*.name` for what is below it, or `*`.
    Host(String),
    /// A variable that a command sets for a program, by name. It says nothing of the command itself.
    Variable(String),
}

/// How long a rule holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// For one operation. That is a grant, and no rule: it never matches here.
    Once,
    /// For a turn.
    Turn {
        /// Of which session.
        session: String,
        /// Which turn, counted from 1.
        turn: u64,
    },
    /// For a session.
    Session {
        /// Which.
        session: String,
    },
    /// For a workspace.
    Project,
    /// For every workspace.
    Always,
}

/// Where a rule is from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A file of rules.
    File {
        /// Which.
        path: String,
        /// For which workspace; none if for all.
        workspace: Option<String>,
        /// Which rule of those that hold for the workspace, counted from 1, those for every workspace first.
        number: usize,
    },
    /// A person's answer.
    Answer {
        /// In which session.
        session: String,
    },
    /// The command line.
    Flag,
}

/// What a rule is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSpec {
    /// What it comes to.
    pub effect: Effect,
    /// What it holds for.
    pub kinds: Kinds,
    /// What it speaks of.
    pub matcher: Matcher,
    /// How long it holds.
    pub lifetime: Lifetime,
    /// When it ends, whatever its lifetime.
    pub expires: Option<Moment>,
    /// Where it is from.
    pub source: Source,
    /// What its owner wants to remember of it.
    pub note: Option<String>,
}

/// A rule that can be compared with operations.
#[derive(Clone)]
pub struct Rule {
    spec: RuleSpec,
    // Invariant: there if the matcher is a path; it takes letters of either case unless the rule allows.
    globs: Option<Arc<GlobSet>>,
}

/// Why a rule cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// It holds for nothing.
    #[error("the rule holds for no kind: name one of read, write, delete, execute, fetch")]
    NoKinds,
    /// It can never match.
    #[error("a rule by {matcher} cannot hold for {kind}: leave that kind out")]
    WrongKind {
        /// By what it matches.
        matcher: &'static str,
        /// The kind that has no such thing.
        kind: &'static str,
    },
    /// There is no text.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// There is too much text.
    #[error("the {what} has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The prefix has too many words.
    #[error("the command has {0} words, at most {MAX_PREFIX_WORDS} are allowed")]
    TooManyWords(usize),
    /// A text has control characters.
    #[error("the {0} has a control character")]
    Control(&'static str),
    /// A path starts with `~`.
    #[error("the path {} starts with ~: write the directory's whole name", quote(.0))]
    Home(String),
    /// A path has `.`, `..` or `//` in it.
    #[error("the path {} has an empty part, . or .. in it: no file is named so", quote(.0))]
    NotNormal(String),
    /// A glob is malformed.
    #[error("the path {} is no glob: {why}", quote(.path))]
    Glob {
        /// The glob.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A host is malformed.
    #[error("the host {} is none: write a name such as example.org, *.example.org for those below it, or *", quote(.0))]
    Host(String),
    /// A text names no variable.
    #[error("{} is not the name of a variable: write one such as NODE_OPTIONS", quote(.0))]
    Variable(String),
}

impl Kinds {
    /// Every kind.
    pub const ALL: Self = Self(0b1_1111);
    /// The kinds that files have.
    pub const FILES: Self = Self(0b111);

    /// Says whether a kind is in the set.
    #[must_use]
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & bit(kind) != 0
    }

    /// Returns the kinds in the set, in their usual order.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// Says whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

fn bit(kind: Kind) -> u8 {
    match kind {
        Kind::Read => 1,
        Kind::Write => 2,
        Kind::Delete => 4,
        Kind::Execute => 8,
        Kind::Fetch => 16,
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |set, kind| set | bit(kind)))
    }
}

impl From<Kind> for Kinds {
    fn from(kind: Kind) -> Self {
        Self(bit(kind))
    }
}

/// The words, with commas between them.
impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Kind::word).collect();
        f.write_str(&words.join(", "))
    }
}

impl Matcher {
    /// Returns the word for what it matches by, as settings have it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Matcher::Everything => "everything",
            Matcher::Path(_) => "path",
            Matcher::Command(_) => "command",
            Matcher::Exact(_) => "exact",
            Matcher::Host(_) => "host",
            Matcher::Variable(_) => "variable",
        }
    }

    /// Returns the kinds that it can match at all.
    #[must_use]
    pub fn kinds(&self) -> Kinds {
        match self {
            Matcher::Everything => Kinds::ALL,
            Matcher::Path(_) => Kinds::FILES,
            Matcher::Command(_) | Matcher::Exact(_) | Matcher::Variable(_) => Kind::Execute.into(),
            Matcher::Host(_) => Kind::Fetch.into(),
        }
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for Rule {}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl Rule {
    /// Makes a rule.
    ///
    /// # Errors
    /// Returns what is wrong with it. A rule is never made weaker than it was written.
    pub fn new(mut spec: RuleSpec) -> Result<Self, RuleFault> {
        if spec.kinds.is_empty() {
            return Err(RuleFault::NoKinds);
        }
        let possible = spec.matcher.kinds();
        if let Some(kind) = spec.kinds.iter().find(|kind| !possible.contains(*kind)) {
            return Err(RuleFault::WrongKind { matcher: spec.matcher.word(), kind: kind.word() });
        }
        if let Some(note) = &spec.note {
            bounded("note", note, MAX_NOTE)?;
        }
        let mut globs = None;
        match &mut spec.matcher {
            Matcher::Everything => {}
            Matcher::Path(pattern) => {
                bounded("path", pattern, MAX_PATTERN)?;
                globs = Some(Arc::new(compile(pattern, spec.effect)?));
            }
            Matcher::Command(words) => check_words(words)?,
            Matcher::Exact(invocation) => {
                check_exact(invocation)?;
                *invocation = canonical(invocation);
            }
            Matcher::Host(host) => {
                bounded("host", host, MAX_PATTERN)?;
                check_host(host)?;
                *host = host.to_ascii_lowercase();
            }
            Matcher::Variable(name) => {
                bounded("variable", name, MAX_PATTERN)?;
                shell::is_name(name).then_some(()).ok_or_else(|| RuleFault::Variable(name.clone()))?;
            }
        }
        Ok(Self { spec, globs })
    }

    /// Returns the rule with its number among all that hold for a workspace, if it is from a file.
    #[must_use]
    pub fn numbered(mut self, among_all: usize) -> Self {
        if let Source::File { number, .. } = &mut self.spec.source {
            *number = among_all;
        }
        self
    }

    /// Returns what it is made of.
    #[must_use]
    pub fn spec(&self) -> &RuleSpec {
        &self.spec
    }

    /// Returns what it comes to.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.spec.effect
    }

    /// Says whether it holds at all where and when something is done.
    #[must_use]
    pub fn is_live(&self, context: &Context) -> bool {
        let in_time = self.spec.expires.is_none_or(|end| context.now < end);
        in_time
            && match &self.spec.lifetime {
                Lifetime::Once => false,
                Lifetime::Turn { session, turn } => {
                    *session == context.session && Some(*turn) == context.turn
                }
                Lifetime::Session { session } => *session == context.session,
                Lifetime::Project | Lifetime::Always => true,
            }
    }

    /// Says whether it speaks of a file by name. The roots are those of the session.
    pub(super) fn covers_path(&self, path: &str, roots: &[String]) -> bool {
        let (Some(globs), Matcher::Path(pattern)) = (&self.globs, &self.spec.matcher) else { return false };
        let hit =
            |path: &str| globs.is_match(path) || (!path.is_ascii() && globs.is_match(path.to_lowercase()));
        if pattern.starts_with('/') {
            return hit(path);
        }
        // What is not below a root has no name that a relative glob could speak of, unless it is relative itself.
        (!path.starts_with('/') && hit(path)) || roots.iter().filter_map(|root| below(path, root)).any(hit)
    }

    /// Says whether it speaks of a variable. Some programs take a name in either case, so only a rule that allows is strict.
    pub(super) fn covers_variable(&self, variable: &str) -> bool {
        let Matcher::Variable(name) = &self.spec.matcher else { return false };
        name == variable || (self.effect() != Effect::Allow && name.eq_ignore_ascii_case(variable))
    }

    /// Says whether it speaks of a host.
    pub(super) fn covers_host(&self, host: &str) -> bool {
        let Matcher::Host(pattern) = &self.spec.matcher else { return false };
        match pattern.strip_prefix("*.") {
            _ if pattern == "*" => true,
            Some(parent) => {
                host.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            None => host == pattern,
        }
    }
}

/// Returns what is left of a path below a root, if it is the root or lies below it.
pub(super) fn below<'p>(path: &'p str, root: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

fn bounded(what: &'static str, text: &str, limit: usize) -> Result<(), RuleFault> {
    if text.is_empty() && what != "note" {
        return Err(RuleFault::Empty(what));
    }
    if text.len() > limit {
        return Err(RuleFault::TooLong { what, bytes: text.len(), limit });
    }
    if what != "note" && text.chars().any(char::is_control) {
        return Err(RuleFault::Control(what));
    }
    Ok(())
}

fn check_words(words: &[String]) -> Result<(), RuleFault> {
    if words.first().is_none_or(String::is_empty) {
        return Err(RuleFault::Empty("command"));
    }
    if words.len() > MAX_PREFIX_WORDS {
        return Err(RuleFault::TooManyWords(words.len()));
    }
    let bytes = words.iter().map(String::len).sum();
    if bytes > MAX_PATTERN {
        return Err(RuleFault::TooLong { what: "command", bytes, limit: MAX_PATTERN });
    }
    if words.iter().any(|word| word.contains('\0')) { Err(RuleFault::Control("command")) } else { Ok(()) }
}

fn check_exact(invocation: &Invocation) -> Result<(), RuleFault> {
    let bytes = match invocation {
        Invocation::Argv(words) => {
            if words.first().is_none_or(String::is_empty) {
                return Err(RuleFault::Empty("command"));
            }
            words.iter().map(String::len).sum()
        }
        Invocation::Shell(line) if line.trim().is_empty() => return Err(RuleFault::Empty("command")),
        Invocation::Shell(line) => line.len(),
    };
    if bytes > MAX_EXACT {
        return Err(RuleFault::TooLong { what: "command", bytes, limit: MAX_EXACT });
    }
    Ok(())
}

fn check_host(host: &str) -> Result<(), RuleFault> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_name = !name.is_empty()
        && !name.starts_with('.')
        && !name.ends_with('.')
        && name.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
        });
    if host == "*" || is_name { Ok(()) } else { Err(RuleFault::Host(host.to_owned())) }
}

fn compile(pattern: &str, effect: Effect) -> Result<GlobSet, RuleFault> {
    if pattern.starts_with('~') {
        return Err(RuleFault::Home(pattern.to_owned()));
    }
    // A slash at the end says that it is a directory, which changes nothing: what is below is covered anyway.
    let named = pattern.strip_suffix('/').unwrap_or(pattern);
    let parts = named.strip_prefix('/').unwrap_or(named);
    if pattern != "/" && parts.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(RuleFault::NotNormal(pattern.to_owned()));
    }
    let wide = effect != Effect::Allow;
    let mut globs = vec![named.to_owned(), format!("{named}/**")];
    if wide && !named.is_ascii() {
        // The glob itself folds only the letters of ASCII.
        let lower = named.to_lowercase();
        globs.extend([lower.clone(), format!("{lower}/**")]);
    }
    let fault =
        |why: globset::Error| RuleFault::Glob { path: pattern.to_owned(), why: why.kind().to_string() };
    let mut set = GlobSet::builder();
    for glob in &globs {
        let glob = GlobBuilder::new(glob)
            .literal_separator(true)
            .case_insensitive(wide)
            .backslash_escape(true)
            .build();
        set.add(glob.map_err(fault)?);
    }
    set.build().map_err(fault)
}

/// What it says and where it is from: "rule 3 of /…/policy.toml (deny execute: command `rm`)".
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        match &spec.source {
            Source::File { path, workspace, number } => {
                write!(f, "rule {number} of {}", quote(path))?;
                if workspace.is_some() {
                    f.write_str(" for this workspace")?;
                }
            }
            Source::Answer { .. } => f.write_str("a rule from an answer")?,
            Source::Flag => f.write_str("a rule from the command line")?,
        }
        match &spec.lifetime {
            Lifetime::Turn { .. } => f.write_str(" for this turn")?,
            Lifetime::Session { .. } => f.write_str(" for this session")?,
            Lifetime::Once | Lifetime::Project | Lifetime::Always => {}
        }
        write!(f, " ({} {}: ", spec.effect, spec.kinds)?;
        match &spec.matcher {
            Matcher::Everything => f.write_str("everything")?,
            Matcher::Path(pattern) => write!(f, "path `{}`", quote(pattern))?,
            Matcher::Command(words) => write!(f, "command `{}`", quote(&words.join(" ")))?,
            Matcher::Exact(Invocation::Argv(words)) => write!(f, "exactly `{}`", quote(&words.join(" ")))?,
            Matcher::Exact(Invocation::Shell(line)) => write!(f, "exactly `{}`", quote(line))?,
            Matcher::Host(host) => write!(f, "host `{}`", quote(host))?,
            Matcher::Variable(name) => write!(f, "variable `{name}`")?,
        }
        f.write_str(")")?;
        match spec.note.as_deref() {
            Some(note) if !note.is_empty() => write!(f, ", noted: {}", quote(note)),
            _ => Ok(()),
        }
    }
}
