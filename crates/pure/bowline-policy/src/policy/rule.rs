//! A single rule: what it matches, how long it lasts, and where it comes from.

use std::fmt;
use std::sync::Arc;

use globset::{GlobBuilder, GlobSet};

use super::{Effect, PolicyContext, canonical_invocation, shell};
use crate::operation::OperationKind;
use crate::paths::path_below;
use bowline_protocol::terminal::Invocation;
use bowline_text::display::quote;
use bowline_text::time::Timestamp;

/// The maximum length of a pattern in bytes, and of all words of a command prefix together.
pub const MAX_PATTERN_BYTES: usize = 1024;
/// The maximum length of an exact command, in bytes.
pub const MAX_EXACT_BYTES: usize = 16 << 10;
/// The maximum number of words in a prefix.
pub const MAX_PREFIX_WORDS: usize = 64;
/// The maximum length of a note, in bytes.
pub const MAX_NOTE_BYTES: usize = 1024;

/// A set of operation kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OperationKinds(u8);

/// The operations that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleMatcher {
    /// Everything of its kinds.
    Everything,
    /// Files by name: a glob, absolute or relative to any directory of the session. A glob that names a directory
    /// covers its content.
    Path(String),
    /// Commands that start with these words.
    Command(Vec<String>),
    /// One command, word for word.
    Exact(Invocation),
    /// URLs by host: a name, `*.name` for its subdomains, or `*`.
    Host(String),
    /// A variable that a command sets for a program, by name. It does not match the command itself.
    Variable(String),
}

/// How long a rule lasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RuleLifetime {
    /// For one operation. That is a grant, not a rule: it never matches here.
    Once,
    /// For a turn.
    Turn {
        /// The session.
        session: String,
        /// The turn, counted from 1.
        turn: u64,
    },
    /// For a session.
    Session {
        /// The session.
        session: String,
    },
    /// For a workspace.
    Project,
    /// For every workspace.
    Always,
}

/// The source of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RuleSource {
    /// A rule file.
    File {
        /// Its path.
        path: String,
        /// The workspace it applies to; `None` if it applies to all.
        workspace: Option<String>,
        /// The rule's number among those in force for the workspace, counted from 1, with the rules for every
        /// workspace first.
        number: usize,
    },
    /// A person's answer.
    UserAnswer {
        /// The session.
        session: String,
    },
    /// The command line.
    CommandLine,
}

/// The content of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSpec {
    /// Its effect.
    pub effect: Effect,
    /// The kinds of operation it applies to.
    pub kinds: OperationKinds,
    /// The operations it matches.
    pub matcher: RuleMatcher,
    /// How long it lasts.
    pub lifetime: RuleLifetime,
    /// When it expires, regardless of its lifetime.
    pub expires: Option<Timestamp>,
    /// Its source.
    pub source: RuleSource,
    /// Its owner's note.
    pub note: Option<String>,
}

/// A rule that can be compared with operations.
#[derive(Clone)]
pub struct Rule {
    spec: RuleSpec,
    // Invariant: `Some` if the matcher is a path; case-insensitive unless the rule allows.
    globs: Option<Arc<GlobSet>>,
}

/// Why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It applies to no kind.
    #[error("the rule holds for no kind: name one of read, write, delete, execute, fetch")]
    NoKinds,
    /// It can never match.
    #[error("a rule by {matcher} cannot hold for {kind}: leave that kind out")]
    WrongKind {
        /// The matcher.
        matcher: &'static str,
        /// The kind that the matcher cannot match.
        kind: &'static str,
    },
    /// A text is empty.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A text is too long.
    #[error("the {text} has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// The kind of text.
        text: &'static str,
        /// Its length.
        bytes: usize,
        /// The maximum length.
        limit: usize,
    },
    /// The prefix has too many words.
    #[error("the command has {0} words, at most {MAX_PREFIX_WORDS} are allowed")]
    TooManyWords(usize),
    /// A text has control characters.
    #[error("the {0} has a control character")]
    ControlCharacter(&'static str),
    /// A path starts with `~`.
    #[error("the path {} starts with ~: write the directory's whole name", quote(.0))]
    HomeRelative(String),
    /// A path has `.`, `..` or `//` in it.
    #[error("the path {} has an empty part, . or .. in it: no file is named so", quote(.0))]
    NotNormal(String),
    /// A glob is malformed.
    #[error("the path {} is no glob: {reason}", quote(.path))]
    InvalidGlob {
        /// The glob.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// A host is malformed.
    #[error("the host {} is none: write a name such as example.org, *.example.org for those below it, or *", quote(.0))]
    InvalidHost(String),
    /// The text is not the name of a variable.
    #[error("{} is not the name of a variable: write one such as NODE_OPTIONS", quote(.0))]
    InvalidVariable(String),
}

impl OperationKinds {
    /// Every kind.
    pub const ALL: Self = Self(0b1_1111);
    /// The kinds of operation on files.
    pub const FILES: Self = Self(0b111);

    /// Returns whether a kind is in the set.
    #[must_use]
    pub fn contains(self, kind: OperationKind) -> bool {
        self.0 & kind_bit(kind) != 0
    }

    /// Returns the kinds in the set, in their usual order.
    pub fn iter(self) -> impl Iterator<Item = OperationKind> {
        OperationKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

fn kind_bit(kind: OperationKind) -> u8 {
    match kind {
        OperationKind::Read => 1,
        OperationKind::Write => 2,
        OperationKind::Delete => 4,
        OperationKind::Execute => 8,
        OperationKind::Fetch => 16,
    }
}

impl FromIterator<OperationKind> for OperationKinds {
    fn from_iter<I: IntoIterator<Item = OperationKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |set, kind| set | kind_bit(kind)))
    }
}

impl From<OperationKind> for OperationKinds {
    fn from(kind: OperationKind) -> Self {
        Self(kind_bit(kind))
    }
}

/// The kinds' words, separated by commas.
impl fmt::Display for OperationKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(OperationKind::as_str).collect();
        f.write_str(&words.join(", "))
    }
}

impl RuleMatcher {
    /// Returns the word for the matcher, as written in settings.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            RuleMatcher::Everything => "everything",
            RuleMatcher::Path(_) => "path",
            RuleMatcher::Command(_) => "command",
            RuleMatcher::Exact(_) => "exact",
            RuleMatcher::Host(_) => "host",
            RuleMatcher::Variable(_) => "variable",
        }
    }

    /// Returns the kinds that it can match.
    #[must_use]
    pub fn kinds(&self) -> OperationKinds {
        match self {
            RuleMatcher::Everything => OperationKinds::ALL,
            RuleMatcher::Path(_) => OperationKinds::FILES,
            RuleMatcher::Command(_) | RuleMatcher::Exact(_) | RuleMatcher::Variable(_) => {
                OperationKind::Execute.into()
            }
            RuleMatcher::Host(_) => OperationKind::Fetch.into(),
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
    /// Creates a rule.
    ///
    /// # Errors
    /// Returns what is wrong with it. A rule is never made weaker than written.
    pub fn new(mut spec: RuleSpec) -> Result<Self, RuleError> {
        if spec.kinds.is_empty() {
            return Err(RuleError::NoKinds);
        }
        let possible = spec.matcher.kinds();
        if let Some(kind) = spec.kinds.iter().find(|kind| !possible.contains(*kind)) {
            return Err(RuleError::WrongKind { matcher: spec.matcher.as_str(), kind: kind.as_str() });
        }
        if let Some(note) = &spec.note {
            check_text("note", note, MAX_NOTE_BYTES)?;
        }
        let mut globs = None;
        match &mut spec.matcher {
            RuleMatcher::Everything => {}
            RuleMatcher::Path(pattern) => {
                check_text("path", pattern, MAX_PATTERN_BYTES)?;
                globs = Some(Arc::new(compile_globs(pattern, spec.effect)?));
            }
            RuleMatcher::Command(words) => check_words(words)?,
            RuleMatcher::Exact(invocation) => {
                check_exact(invocation)?;
                *invocation = canonical_invocation(invocation);
            }
            RuleMatcher::Host(host) => {
                check_text("host", host, MAX_PATTERN_BYTES)?;
                check_host(host)?;
                *host = host.to_ascii_lowercase();
            }
            RuleMatcher::Variable(name) => {
                check_text("variable", name, MAX_PATTERN_BYTES)?;
                shell::is_variable_name(name)
                    .then_some(())
                    .ok_or_else(|| RuleError::InvalidVariable(name.clone()))?;
            }
        }
        Ok(Self { spec, globs })
    }

    /// Returns the rule with its number among all rules in force for a workspace, if it comes from a file.
    #[must_use]
    pub fn with_number(mut self, position: usize) -> Self {
        if let RuleSource::File { number, .. } = &mut self.spec.source {
            *number = position;
        }
        self
    }

    /// Returns its content.
    #[must_use]
    pub fn spec(&self) -> &RuleSpec {
        &self.spec
    }

    /// Returns its effect.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.spec.effect
    }

    /// Returns whether it is in force in this session and turn, at this time.
    #[must_use]
    pub fn is_active(&self, context: &PolicyContext) -> bool {
        let is_unexpired = self.spec.expires.is_none_or(|end| context.now < end);
        is_unexpired
            && match &self.spec.lifetime {
                RuleLifetime::Once => false,
                RuleLifetime::Turn { session, turn } => {
                    *session == context.session && Some(*turn) == context.turn
                }
                RuleLifetime::Session { session } => *session == context.session,
                RuleLifetime::Project | RuleLifetime::Always => true,
            }
    }

    /// Returns whether it matches a file by name. The roots are the session's.
    pub(super) fn covers_path(&self, path: &str, roots: &[String]) -> bool {
        let (Some(globs), RuleMatcher::Path(pattern)) = (&self.globs, &self.spec.matcher) else {
            return false;
        };
        let is_match =
            |path: &str| globs.is_match(path) || (!path.is_ascii() && globs.is_match(path.to_lowercase()));
        if pattern.starts_with('/') {
            return is_match(path);
        }
        // A path outside every root has no relative name that a relative glob could match, unless it is relative
        // itself.
        (!path.starts_with('/') && is_match(path))
            || roots.iter().filter_map(|root| path_below(path, root)).any(is_match)
    }

    /// Returns whether it matches a variable. Some programs ignore the case of names, so only a rule that allows is
    /// case-sensitive.
    pub(super) fn covers_variable(&self, variable: &str) -> bool {
        let RuleMatcher::Variable(name) = &self.spec.matcher else { return false };
        name == variable || (self.effect() != Effect::Allow && name.eq_ignore_ascii_case(variable))
    }

    /// Returns whether it matches a host.
    pub(super) fn covers_host(&self, host: &str) -> bool {
        let RuleMatcher::Host(pattern) = &self.spec.matcher else { return false };
        match pattern.strip_prefix("*.") {
            _ if pattern == "*" => true,
            Some(parent) => {
                host.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            None => host == pattern,
        }
    }
}

fn check_text(field: &'static str, text: &str, limit: usize) -> Result<(), RuleError> {
    if text.is_empty() && field != "note" {
        return Err(RuleError::Empty(field));
    }
    if text.len() > limit {
        return Err(RuleError::TooLong { text: field, bytes: text.len(), limit });
    }
    if field != "note" && text.chars().any(char::is_control) {
        return Err(RuleError::ControlCharacter(field));
    }
    Ok(())
}

fn check_words(words: &[String]) -> Result<(), RuleError> {
    if words.first().is_none_or(String::is_empty) {
        return Err(RuleError::Empty("command"));
    }
    if words.len() > MAX_PREFIX_WORDS {
        return Err(RuleError::TooManyWords(words.len()));
    }
    let bytes = words.iter().map(String::len).sum();
    if bytes > MAX_PATTERN_BYTES {
        return Err(RuleError::TooLong { text: "command", bytes, limit: MAX_PATTERN_BYTES });
    }
    if words.iter().any(|word| word.contains('\0')) {
        Err(RuleError::ControlCharacter("command"))
    } else {
        Ok(())
    }
}

fn check_exact(invocation: &Invocation) -> Result<(), RuleError> {
    let bytes = match invocation {
        Invocation::Argv(words) => {
            if words.first().is_none_or(String::is_empty) {
                return Err(RuleError::Empty("command"));
            }
            words.iter().map(String::len).sum()
        }
        Invocation::Shell(line) if line.trim().is_empty() => return Err(RuleError::Empty("command")),
        Invocation::Shell(line) => line.len(),
    };
    if bytes > MAX_EXACT_BYTES {
        return Err(RuleError::TooLong { text: "command", bytes, limit: MAX_EXACT_BYTES });
    }
    Ok(())
}

fn check_host(host: &str) -> Result<(), RuleError> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_name = !name.is_empty()
        && !name.starts_with('.')
        && !name.ends_with('.')
        && name.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
        });
    if host == "*" || is_name { Ok(()) } else { Err(RuleError::InvalidHost(host.to_owned())) }
}

fn compile_globs(pattern: &str, effect: Effect) -> Result<GlobSet, RuleError> {
    if pattern.starts_with('~') {
        return Err(RuleError::HomeRelative(pattern.to_owned()));
    }
    // A trailing slash marks a directory and changes nothing, because its content is covered anyway.
    let named = pattern.strip_suffix('/').unwrap_or(pattern);
    let parts = named.strip_prefix('/').unwrap_or(named);
    if pattern != "/" && parts.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(RuleError::NotNormal(pattern.to_owned()));
    }
    let wide = effect != Effect::Allow;
    let mut globs = vec![named.to_owned(), format!("{named}/**")];
    if wide && !named.is_ascii() {
        // The glob itself folds only ASCII letters.
        let lower = named.to_lowercase();
        globs.extend([lower.clone(), format!("{lower}/**")]);
    }
    let invalid_glob = |error: globset::Error| RuleError::InvalidGlob {
        path: pattern.to_owned(),
        reason: error.kind().to_string(),
    };
    let mut set = GlobSet::builder();
    for glob in &globs {
        let glob = GlobBuilder::new(glob)
            .literal_separator(true)
            .case_insensitive(wide)
            .backslash_escape(true)
            .build();
        set.add(glob.map_err(invalid_glob)?);
    }
    set.build().map_err(invalid_glob)
}

/// Its content and source: "rule 3 of /…/policy.toml (deny execute: command `rm`)".
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        match &spec.source {
            RuleSource::File { path, workspace, number } => {
                write!(f, "rule {number} of {}", quote(path))?;
                if workspace.is_some() {
                    f.write_str(" for this workspace")?;
                }
            }
            RuleSource::UserAnswer { .. } => f.write_str("a rule from an answer")?,
            RuleSource::CommandLine => f.write_str("a rule from the command line")?,
        }
        match &spec.lifetime {
            RuleLifetime::Turn { .. } => f.write_str(" for this turn")?,
            RuleLifetime::Session { .. } => f.write_str(" for this session")?,
            RuleLifetime::Once | RuleLifetime::Project | RuleLifetime::Always => {}
        }
        write!(f, " ({} {}: ", spec.effect, spec.kinds)?;
        match &spec.matcher {
            RuleMatcher::Everything => f.write_str("everything")?,
            RuleMatcher::Path(pattern) => write!(f, "path `{}`", quote(pattern))?,
            RuleMatcher::Command(words) => write!(f, "command `{}`", quote(&words.join(" ")))?,
            RuleMatcher::Exact(Invocation::Argv(words)) => {
                write!(f, "exactly `{}`", quote(&words.join(" ")))?
            }
            RuleMatcher::Exact(Invocation::Shell(line)) => write!(f, "exactly `{}`", quote(line))?,
            RuleMatcher::Host(host) => write!(f, "host `{}`", quote(host))?,
            RuleMatcher::Variable(name) => write!(f, "variable `{name}`")?,
        }
        f.write_str(")")?;
        match spec.note.as_deref() {
            Some(note) if !note.is_empty() => write!(f, ", noted: {}", quote(note)),
            _ => Ok(()),
        }
    }
}
