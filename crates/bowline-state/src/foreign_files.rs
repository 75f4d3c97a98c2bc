//! Files that other programs keep beside a project: sessions of agents, transcripts, backups and swap files of editors.
//!
//! Such a file that is found changed on disk is not work on the project: it is not recorded as a change of the agent,
//! and so neither listed nor undone. What is written through Bowline is recorded whatever the file is called.

use globset::{GlobBuilder, GlobSet};
use serde::Deserialize;

/// What is passed over in any case. Only data: what a program executes or is configured by stays visible, such as the agent
/// cards in `.fast-agent`.
pub const BUILT_IN: &[&str] = &[
    // fast-agent keeps its sessions and its log in the project.
    ".fast-agent/sessions/",
    ".fast-agent/fast-agent-log.jsonl",
    // The transcripts of Emacs's agent-shell.
    ".agent-shell/",
    // Backups of Emacs and Vim; locks and unsaved text of Emacs.
    "*~",
    ".#*",
    "#*#",
    // Swap files of Vim, and the file by which it tries whether it may write to a directory.
    ".*.sw?",
    "4913",
];

/// So many patterns may be added.
const MAX_PATTERNS: usize = 256;

/// The patterns of such files: the built-in ones, and those that the user added.
///
/// A pattern matches at any depth; one that begins with `/` matches only at the root. One that ends with `/` matches what is
/// below a directory of that name, any other also the file itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct ForeignFiles {
    globs: GlobSet,
}

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is not a glob.
    #[error("the pattern {pattern:?} cannot be used: {why}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// It matches every file.
    #[error("the pattern {0:?} matches every file: name the files to pass over")]
    Everything(String),
    /// There are too many.
    #[error("there are {0} patterns, and at most {MAX_PATTERNS} can be used")]
    TooMany(usize),
}

impl ForeignFiles {
    /// Returns the built-in patterns and these.
    ///
    /// # Errors
    /// Fails if a pattern is not a glob, or matches everything.
    pub fn with<P: AsRef<str>>(added: &[P]) -> Result<Self, PatternError> {
        if added.len() > MAX_PATTERNS {
            return Err(PatternError::TooMany(added.len()));
        }
        let mut globs = GlobSet::builder();
        for pattern in BUILT_IN.iter().copied().chain(added.iter().map(AsRef::as_ref)) {
            let fault = |why: &globset::Error| PatternError::Glob {
                pattern: pattern.to_owned(),
                why: why.kind().to_string(),
            };
            let bare = pattern.trim_matches('/');
            if bare.chars().all(|c| matches!(c, '*' | '/')) {
                return Err(PatternError::Everything(pattern.to_owned()));
            }
            let anywhere = if pattern.starts_with('/') { "" } else { "**/" };
            let itself = (!pattern.ends_with('/')).then(|| format!("{anywhere}{bare}"));
            for glob in itself.into_iter().chain([format!("{anywhere}{bare}/**")]) {
                globs
                    .add(GlobBuilder::new(&glob).literal_separator(true).build().map_err(|why| fault(&why))?);
            }
        }
        let globs = globs.build().map_err(|why| PatternError::Glob {
            pattern: "ignore-changes".to_owned(),
            why: why.kind().to_string(),
        })?;
        Ok(Self { globs })
    }

    /// Says whether a file is such a one. `path` is relative to its root.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.globs.is_match(path)
    }
}

impl Default for ForeignFiles {
    fn default() -> Self {
        Self::with::<&str>(&[]).unwrap_or_else(|_| Self { globs: GlobSet::empty() })
    }
}

impl TryFrom<Vec<String>> for ForeignFiles {
    type Error = PatternError;

    fn try_from(added: Vec<String>) -> Result<Self, PatternError> {
        Self::with(&added)
    }
}

#[cfg(test)]
mod tests;
