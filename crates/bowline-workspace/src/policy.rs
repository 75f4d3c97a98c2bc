//! The user's rules on disk, outside every workspace.
//!
//! One TOML file has the rules for all workspaces and those for each:
//!
//! ```toml
//! preset = "ask"                  # ask, accept-edits, read-only, full or deny
//!
//! [[rules]]
//! effect = "deny"                 # allow, ask or deny
//! command = "git push"            # words as in a shell, or a list of words
//! note = "releases are made by hand"
//!
//! [workspaces."/projects/boat"]
//! preset = "accept-edits"
//!
//! [[workspaces."/projects/boat".rules]]
//! effect = "allow"
//! kinds = ["write", "delete"]     # read, write, delete, execute, fetch
//! path = "target/**"              # or: exact = "…", host = "…", everything = true
//! expires = 2027-01-01T00:00:00Z
//! ```
//!
//! A rule needs `kinds` if it is by `path` or for `everything`. A workspace's rules hold for that directory alone, not for
//! what is below it. Whatever is not understood is an error, so that a slip of the pen never makes a rule weaker, and where
//! there is an error nothing is allowed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_state::failure::quote;
use bowline_state::observation::Known;
use bowline_state::policy::{Lifetime, MAX_RULES, Policy, Preset, Rule, RuleFault};

mod document;
mod edit;
mod place;

use document::Layers;
pub use document::{moment, plain_words};
use place::Place;

/// A file of rules is at most this long, in bytes.
pub const MAX_POLICY_BYTES: u64 = 1 << 20;
/// How long another process that edits the file is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The rules of a file, and the preset that it states, if it does: where it does not, the rules have the usual one.
type Stated = (Arc<Policy>, Option<Preset>);

/// A look at a file of rules.
#[derive(Debug)]
struct Looked {
    /// What the file was; none if there was none.
    known: Option<Known>,
    stated: Stated,
}

/// The user's rules, as they hold for one workspace.
#[derive(Debug)]
pub struct PolicyFile {
    place: Place,
    // Invariant: canonical; one at least, and the first is the workspace's own.
    roots: Vec<String>,
    last: Mutex<Option<Looked>>,
}

/// Where a rule is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// For this workspace.
    Workspace,
    /// For every workspace.
    Everywhere,
}

/// Why the rules cannot be used, or not be changed. While they cannot be used, nothing is allowed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The path of the file, or a root, is relative or not UTF-8.
    #[error("{} is not an absolute path in UTF-8", quote(.0))]
    BadPath(String),
    /// The file lies where an agent can write.
    #[error(
        "the rules in {} lie inside the workspace {}, where an agent could change them: keep them elsewhere",
        quote(.path),
        quote(.root)
    )]
    InsideWorkspace {
        /// The file.
        path: String,
        /// The workspace's directory.
        root: String,
    },
    /// Others may write to it.
    #[error("{} can be written by others: take that away (chmod go-w)", quote(.0))]
    WritableByOthers(String),
    /// It belongs to somebody else.
    #[error("{} belongs to another user: make it yours, or keep the rules elsewhere", quote(.0))]
    Foreign(String),
    /// It is no regular file.
    #[error("{} is not a regular file", quote(.0))]
    NotAFile(String),
    /// It is longer than [`MAX_POLICY_BYTES`].
    #[error("{} has {bytes} bytes, a file of rules has at most {MAX_POLICY_BYTES}", quote(.path))]
    TooLarge {
        /// The file.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// It is not UTF-8.
    #[error("{} is not UTF-8", quote(.0))]
    NotUtf8(String),
    /// It is not understood.
    #[error("{}:{line}:{column}: {why}", quote(.path))]
    Syntax {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong, and what to do.
        why: String,
    },
    /// There are too many rules.
    #[error("{} has {MAX_RULES} rules, which is the most there can be: remove some", quote(.0))]
    TooManyRules(String),
    /// Another process has the file for too long.
    #[error("another process keeps {} locked: try again", quote(.0))]
    Held(String),
    /// A rule for a turn or a session is not for a file.
    #[error("a rule for one turn or session is not kept in a file")]
    NotLasting,
    /// The rule cannot be.
    #[error(transparent)]
    Rule(#[from] RuleFault),
    /// The file is written in a form that cannot be added to.
    #[error("{} cannot be edited as it is written: edit it by hand", quote(.0))]
    CannotEdit(String),
    /// The system refuses.
    #[error("cannot {what} {}: {why}", quote(.path))]
    System {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: String,
        /// What the system says.
        why: std::io::Error,
    },
}

impl PolicyFile {
    /// Opens the rules for a workspace. Its directories are given by their own names, with no link on the way, its own
    /// first. There may be no file yet.
    ///
    /// # Errors
    /// Returns why the rules cannot be used.
    pub fn open(path: &Path, roots: &[PathBuf]) -> Result<Self, PolicyError> {
        let roots: Vec<String> = roots.iter().map(|root| text(root)).collect::<Result<_, _>>()?;
        if roots.is_empty() {
            return Err(PolicyError::BadPath(String::new()));
        }
        let file = Self { place: Place::new(path)?, roots, last: Mutex::new(None) };
        file.current()?;
        Ok(file)
    }

    /// Returns the rules as they are on disk: the file is read again if it changed.
    ///
    /// # Errors
    /// Returns why they cannot be used. Then nothing is allowed, whatever they were before.
    pub fn current(&self) -> Result<Arc<Policy>, PolicyError> {
        Ok(self.stated()?.0)
    }

    /// Returns the same, and the preset that the file itself states for the workspace, if it states one.
    ///
    /// # Errors
    /// As [`current`](Self::current) does.
    pub fn stated(&self) -> Result<(Arc<Policy>, Option<Preset>), PolicyError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.place.stamp()?;
        if let Some(looked) = &*last
            && looked.known.as_ref().map(|known| known.stamp) == stamp
            && !looked.known.as_ref().is_some_and(|known| known.racy)
        {
            return Ok(looked.stated.clone());
        }
        // What fails must not leave the rules of before in force.
        *last = None;
        let (known, layers) = self.read()?;
        let stated = (Arc::new(layers.policy(&self.roots)), layers.stated(&self.roots));
        *last = Some(Looked { known, stated: stated.clone() });
        Ok(stated)
    }

    /// Returns the rules that hold for the workspace, those for every workspace first.
    ///
    /// # Errors
    /// Returns why they cannot be used.
    pub fn rules(&self) -> Result<Vec<Rule>, PolicyError> {
        Ok(self.current()?.rules.clone())
    }

    /// Adds a rule to the file, unless it is there. Comments and all else stay as they are, and so does what others
    /// wrote since the file was read.
    ///
    /// # Errors
    /// Returns why it was not added. The file is as it was.
    pub fn remember(&self, rule: &Rule, scope: Scope) -> Result<(), PolicyError> {
        if !matches!(rule.spec().lifetime, Lifetime::Project | Lifetime::Always) {
            return Err(PolicyError::NotLasting);
        }
        let _lock = self.place.lock(LOCK_WAIT, &self.roots)?;
        let (before, layers) = self.read_text()?;
        let workspace = self.workspace(scope);
        if layers.rules(workspace).iter().any(|known| edit::same(known, rule)) {
            return Ok(());
        }
        if layers.count() >= MAX_RULES {
            return Err(PolicyError::TooManyRules(self.place.shown()));
        }
        let after = edit::add(&before, rule, workspace).ok_or_else(|| self.cannot_edit())?;
        // What was written must read as what was meant, and as nothing else.
        let read = self.parse(&after)?;
        let mut expected = layers.rules(workspace).to_vec();
        expected.push(rule.clone());
        self.expect(&layers, &read, workspace, &expected)?;
        self.replace(&after)
    }

    /// Takes a rule out of the file, and says whether it was there.
    ///
    /// # Errors
    /// Returns why it was not taken out. The file is as it was.
    pub fn forget(&self, rule: &Rule, scope: Scope) -> Result<bool, PolicyError> {
        let _lock = self.place.lock(LOCK_WAIT, &self.roots)?;
        let (before, layers) = self.read_text()?;
        let workspace = self.workspace(scope);
        let rules = layers.rules(workspace);
        let Some(at) = rules.iter().position(|known| edit::same(known, rule)) else { return Ok(false) };
        let after = edit::remove(&before, at, workspace).ok_or_else(|| self.cannot_edit())?;
        let read = self.parse(&after)?;
        let mut expected = rules.to_vec();
        expected.remove(at);
        self.expect(&layers, &read, workspace, &expected)?;
        self.replace(&after)?;
        Ok(true)
    }

    /// Writes the file, and forgets what it was: whoever asks from now on is told what it is.
    fn replace(&self, text: &str) -> Result<(), PolicyError> {
        let replaced = self.place.replace(text);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
        replaced
    }

    /// States what holds where no rule matches, or takes the statement out of the file. Says whether that changed
    /// anything.
    ///
    /// # Errors
    /// Returns why it was not done. The file is as it was.
    pub fn state_preset(&self, preset: Option<Preset>, scope: Scope) -> Result<bool, PolicyError> {
        let _lock = self.place.lock(LOCK_WAIT, &self.roots)?;
        let (before, layers) = self.read_text()?;
        let workspace = self.workspace(scope);
        if layers.preset(workspace) == preset {
            return Ok(false);
        }
        let after = edit::state(&before, preset, workspace).ok_or_else(|| self.cannot_edit())?;
        let read = self.parse(&after)?;
        let is_as_meant = read.preset(workspace) == preset && layers.differs_only_in_preset(&read, workspace);
        if !is_as_meant {
            return Err(self.cannot_edit());
        }
        self.replace(&after)?;
        Ok(true)
    }

    /// Returns the preset that the file states for the workspace alone, or for every workspace.
    ///
    /// # Errors
    /// Returns why the rules cannot be used.
    pub fn preset(&self, scope: Scope) -> Result<Option<Preset>, PolicyError> {
        let (_, layers) = self.read()?;
        Ok(layers.preset(self.workspace(scope)))
    }

    fn workspace(&self, scope: Scope) -> Option<&str> {
        match scope {
            Scope::Workspace => self.roots.first().map(String::as_str),
            Scope::Everywhere => None,
        }
    }

    fn cannot_edit(&self) -> PolicyError {
        PolicyError::CannotEdit(self.place.shown())
    }

    fn expect(
        &self,
        before: &Layers,
        after: &Layers,
        workspace: Option<&str>,
        expected: &[Rule],
    ) -> Result<(), PolicyError> {
        let found = after.rules(workspace);
        let is_as_meant = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, expected)| edit::same(found, expected))
            && before.differs_only_in(after, workspace);
        if is_as_meant { Ok(()) } else { Err(self.cannot_edit()) }
    }

    fn read(&self) -> Result<(Option<Known>, Layers), PolicyError> {
        let (known, text) = self.place.read(&self.roots)?;
        Ok((known, self.parse(&text)?))
    }

    fn read_text(&self) -> Result<(String, Layers), PolicyError> {
        let (_, text) = self.place.read(&self.roots)?;
        let layers = self.parse(&text)?;
        Ok((text, layers))
    }

    fn parse(&self, text: &str) -> Result<Layers, PolicyError> {
        Layers::parse(text, &self.place.shown())
    }
}

fn text(path: &Path) -> Result<String, PolicyError> {
    match path.to_str() {
        Some(text) if path.is_absolute() => Ok(text.to_owned()),
        _ => Err(PolicyError::BadPath(path.to_string_lossy().into_owned())),
    }
}
