//! The user's policy file, stored outside every workspace.
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
//! A rule with `path` or `everything` needs `kinds`. A workspace's rules apply to that directory alone, not to
//! directories below it. Anything that cannot be parsed is an error, so that a typo never weakens a rule; while the
//! file has an error, nothing is allowed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_history::observation::KnownFile;
use bowline_policy::policy::{MAX_RULES, Policy, Preset, Rule, RuleError, RuleLifetime};
use bowline_text::display::quote;

mod edit;
mod parse;
mod path;

use parse::PolicyLayers;
pub use parse::{parse_plain_words, parse_timestamp};
use path::PolicyPath;

/// The maximum size of a policy file, in bytes.
pub const MAX_POLICY_BYTES: u64 = 1 << 20;
/// The timeout for another process that edits the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The policy of a file, and the preset that the file states, if any. Without one, the policy has the default preset.
type PolicyAndPreset = (Arc<Policy>, Option<Preset>);

/// A policy as last read from the file.
#[derive(Debug)]
struct CachedPolicy {
    /// The state of the file; `None` if it did not exist.
    known: Option<KnownFile>,
    policy: PolicyAndPreset,
}

/// The user's policy file, as it applies to one workspace.
#[derive(Debug)]
pub struct PolicyFile {
    path: PolicyPath,
    // Invariant: canonical and not empty; the first is the workspace's own directory.
    roots: Vec<String>,
    cache: Mutex<Option<CachedPolicy>>,
}

/// The scope of a rule in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// This workspace.
    Workspace,
    /// Every workspace.
    Global,
}

/// Why the policy cannot be used or changed. While it cannot be used, nothing is allowed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The path of the file, or a root, is relative or not UTF-8.
    #[error("{} is not an absolute path in UTF-8", quote(.0))]
    InvalidPath(String),
    /// The file is where an agent can write.
    #[error(
        "the rules in {} lie inside the workspace {}, where an agent could change them: keep them elsewhere",
        quote(.path),
        quote(.root)
    )]
    InsideWorkspace {
        /// The file.
        path: String,
        /// The workspace's root.
        root: String,
    },
    /// Other users may write to it.
    #[error("{} can be written by others: take that away (chmod go-w)", quote(.0))]
    WritableByOthers(String),
    /// It belongs to another user.
    #[error("{} belongs to another user: make it yours, or keep the rules elsewhere", quote(.0))]
    NotOwned(String),
    /// It is not a regular file.
    #[error("{} is not a regular file", quote(.0))]
    NotRegularFile(String),
    /// It is larger than [`MAX_POLICY_BYTES`].
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
    /// It has a syntax error.
    #[error("{}:{line}:{column}: {why}", quote(.path))]
    Syntax {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The error and its remedy.
        why: String,
    },
    /// It has too many rules.
    #[error("{} has {MAX_RULES} rules, which is the most there can be: remove some", quote(.0))]
    TooManyRules(String),
    /// Another process held the lock until the timeout.
    #[error("another process keeps {} locked: try again", quote(.0))]
    Locked(String),
    /// A rule for a turn or a session cannot be saved in a file.
    #[error("a rule for one turn or session is not kept in a file")]
    NotPersistent,
    /// The rule is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The layout of the file does not allow the edit.
    #[error("{} cannot be edited as it is written: edit it by hand", quote(.0))]
    CannotEdit(String),
    /// The system reported an error.
    #[error("cannot {action} {}: {why}", quote(.path))]
    System {
        /// The attempted action.
        action: &'static str,
        /// The file or directory.
        path: String,
        /// The system's error.
        why: std::io::Error,
    },
}

impl PolicyFile {
    /// Opens the policy file for a workspace. The roots are canonical paths, the workspace's own directory first. The
    /// file may be missing.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used.
    pub fn open(path: &Path, roots: &[PathBuf]) -> Result<Self, PolicyError> {
        let roots: Vec<String> = roots.iter().map(|root| to_absolute_utf8(root)).collect::<Result<_, _>>()?;
        if roots.is_empty() {
            return Err(PolicyError::InvalidPath(String::new()));
        }
        let file = Self { path: PolicyPath::new(path)?, roots, cache: Mutex::new(None) };
        file.policy()?;
        Ok(file)
    }

    /// Returns the policy on disk, reading the file again if it changed.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used. Then nothing is allowed, even if an earlier version allowed it.
    pub fn policy(&self) -> Result<Arc<Policy>, PolicyError> {
        Ok(self.policy_and_preset()?.0)
    }

    /// Returns the policy, and the preset that the file states for the workspace, if any.
    ///
    /// # Errors
    /// Fails as [`policy`](Self::policy) does.
    pub fn policy_and_preset(&self) -> Result<(Arc<Policy>, Option<Preset>), PolicyError> {
        let mut last = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.path.stamp()?;
        if let Some(looked) = &*last
            && looked.known.as_ref().map(|known| known.stamp) == stamp
            && !looked.known.as_ref().is_some_and(|known| known.is_racy)
        {
            return Ok(looked.policy.clone());
        }
        // A failure must not leave the previous rules in force.
        *last = None;
        let (known, layers) = self.read()?;
        let stated = (Arc::new(layers.policy(&self.roots)), layers.stated_preset(&self.roots));
        *last = Some(CachedPolicy { known, policy: stated.clone() });
        Ok(stated)
    }

    /// Returns the rules that apply to the workspace, the global ones first.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used.
    pub fn rules(&self) -> Result<Vec<Rule>, PolicyError> {
        Ok(self.policy()?.rules.clone())
    }

    /// Adds a rule to the file, unless it is already there. Comments and formatting are preserved, and so are edits by
    /// others since the file was read.
    ///
    /// # Errors
    /// Returns an error if the rule was not added. The file is unchanged then.
    pub fn add_rule(&self, rule: &Rule, scope: RuleScope) -> Result<(), PolicyError> {
        if !matches!(rule.spec().lifetime, RuleLifetime::Project | RuleLifetime::Always) {
            return Err(PolicyError::NotPersistent);
        }
        let _lock = self.path.lock(LOCK_TIMEOUT, &self.roots)?;
        let (before, layers) = self.read_text()?;
        let workspace = self.workspace_in_scope(scope);
        if layers.rules(workspace).iter().any(|known| edit::is_same_rule(known, rule)) {
            return Ok(());
        }
        if layers.rule_count() >= MAX_RULES {
            return Err(PolicyError::TooManyRules(self.path.display()));
        }
        let after = edit::add_rule(&before, rule, workspace).ok_or_else(|| self.cannot_edit())?;
        // The edited text must parse as the old rules plus the new one, and nothing else.
        let read = self.parse(&after)?;
        let mut expected = layers.rules(workspace).to_vec();
        expected.push(rule.clone());
        self.check_edit(&layers, &read, workspace, &expected)?;
        self.replace(&after)
    }

    /// Removes a rule from the file. Returns whether it was there.
    ///
    /// # Errors
    /// Returns an error if the rule was not removed. The file is unchanged then.
    pub fn remove_rule(&self, rule: &Rule, scope: RuleScope) -> Result<bool, PolicyError> {
        let _lock = self.path.lock(LOCK_TIMEOUT, &self.roots)?;
        let (before, layers) = self.read_text()?;
        let workspace = self.workspace_in_scope(scope);
        let rules = layers.rules(workspace);
        let Some(at) = rules.iter().position(|known| edit::is_same_rule(known, rule)) else {
            return Ok(false);
        };
        let after = edit::remove_rule(&before, at, workspace).ok_or_else(|| self.cannot_edit())?;
        let read = self.parse(&after)?;
        let mut expected = rules.to_vec();
        expected.remove(at);
        self.check_edit(&layers, &read, workspace, &expected)?;
        self.replace(&after)?;
        Ok(true)
    }

    /// Writes the file, and drops the cached policy, so that the next caller reads the new one.
    fn replace(&self, text: &str) -> Result<(), PolicyError> {
        let replaced = self.path.replace(text);
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = None;
        replaced
    }

    /// Sets or removes the preset that applies where no rule matches. Returns whether that changed anything.
    ///
    /// # Errors
    /// Returns an error if the preset was not changed. The file is unchanged then.
    pub fn set_preset(&self, preset: Option<Preset>, scope: RuleScope) -> Result<bool, PolicyError> {
        let _lock = self.path.lock(LOCK_TIMEOUT, &self.roots)?;
        let (before, layers) = self.read_text()?;
        let workspace = self.workspace_in_scope(scope);
        if layers.preset(workspace) == preset {
            return Ok(false);
        }
        let after = edit::set_preset(&before, preset, workspace).ok_or_else(|| self.cannot_edit())?;
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
    /// Returns an error if the policy cannot be used.
    pub fn preset(&self, scope: RuleScope) -> Result<Option<Preset>, PolicyError> {
        let (_, layers) = self.read()?;
        Ok(layers.preset(self.workspace_in_scope(scope)))
    }

    fn workspace_in_scope(&self, scope: RuleScope) -> Option<&str> {
        match scope {
            RuleScope::Workspace => self.roots.first().map(String::as_str),
            RuleScope::Global => None,
        }
    }

    fn cannot_edit(&self) -> PolicyError {
        PolicyError::CannotEdit(self.path.display())
    }

    fn check_edit(
        &self,
        before: &PolicyLayers,
        after: &PolicyLayers,
        workspace: Option<&str>,
        expected: &[Rule],
    ) -> Result<(), PolicyError> {
        let found = after.rules(workspace);
        let is_as_meant = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, expected)| edit::is_same_rule(found, expected))
            && before.differs_only_in_rules(after, workspace);
        if is_as_meant { Ok(()) } else { Err(self.cannot_edit()) }
    }

    fn read(&self) -> Result<(Option<KnownFile>, PolicyLayers), PolicyError> {
        let (known, text) = self.path.read(&self.roots)?;
        Ok((known, self.parse(&text)?))
    }

    fn read_text(&self) -> Result<(String, PolicyLayers), PolicyError> {
        let (_, text) = self.path.read(&self.roots)?;
        let layers = self.parse(&text)?;
        Ok((text, layers))
    }

    fn parse(&self, text: &str) -> Result<PolicyLayers, PolicyError> {
        PolicyLayers::parse(text, &self.path.display())
    }
}

fn to_absolute_utf8(path: &Path) -> Result<String, PolicyError> {
    match path.to_str() {
        Some(text) if path.is_absolute() => Ok(text.to_owned()),
        _ => Err(PolicyError::InvalidPath(path.to_string_lossy().into_owned())),
    }
}
