//! Files that other programs keep in a project: agent sessions, transcripts, and editors' backups and swap files.
//!
//! A change of such a file on disk is not work on the project: it is not recorded as a change by the agent, and so
//! neither listed nor undone. Writes through Bowline are recorded regardless of the file's name.

use globset::{GlobBuilder, GlobSet};
use serde::Deserialize;

/// The built-in patterns. They cover data only: files that a program executes or reads as configuration stay visible,
/// such as the agent cards in `.fast-agent`.
pub const BUILT_IN_PATTERNS: &[&str] = &[
    // fast-agent keeps its sessions and its log in the project.
    ".fast-agent/sessions/",
    ".fast-agent/fast-agent-log.jsonl",
    // Transcripts of Emacs's agent-shell.
    ".agent-shell/",
    // Backups of Emacs and Vim; lock and auto-save files of Emacs.
    "*~",
    ".#*",
    "#*#",
    // Vim's swap files, and the file with which it tests whether a directory is writable.
    ".*.sw?",
    "4913",
];

/// The maximum number of added patterns.
const MAX_PATTERNS: usize = 256;

/// The patterns of foreign files: the built-in ones and the user's.
///
/// A pattern matches at any depth, or only at the root if it begins with `/`. A pattern that ends with `/` matches
/// everything below a directory of that name; any other also matches the file itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct ForeignFiles {
    globs: GlobSet,
}

/// An invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is not a valid glob.
    #[error("the pattern {pattern:?} cannot be used: {reason}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// The glob error.
        reason: String,
    },
    /// It matches every file.
    #[error("the pattern {0:?} matches every file: name the files to pass over")]
    MatchesEverything(String),
    /// There are too many patterns.
    #[error("there are {0} patterns, and at most {MAX_PATTERNS} can be used")]
    TooManyPatterns(usize),
}

impl ForeignFiles {
    /// Returns the built-in patterns plus the given ones.
    ///
    /// # Errors
    /// Fails if a pattern is not a valid glob or matches everything, or if there are too many.
    pub fn with_patterns<P: AsRef<str>>(added: &[P]) -> Result<Self, PatternError> {
        if added.len() > MAX_PATTERNS {
            return Err(PatternError::TooManyPatterns(added.len()));
        }
        let mut globs = GlobSet::builder();
        for pattern in BUILT_IN_PATTERNS.iter().copied().chain(added.iter().map(AsRef::as_ref)) {
            let invalid_glob = |error: &globset::Error| PatternError::Glob {
                pattern: pattern.to_owned(),
                reason: error.kind().to_string(),
            };
            let bare = pattern.trim_matches('/');
            if bare.chars().all(|c| matches!(c, '*' | '/')) {
                return Err(PatternError::MatchesEverything(pattern.to_owned()));
            }
            let anywhere = if pattern.starts_with('/') { "" } else { "**/" };
            let itself = (!pattern.ends_with('/')).then(|| format!("{anywhere}{bare}"));
            for glob in itself.into_iter().chain([format!("{anywhere}{bare}/**")]) {
                globs.add(
                    GlobBuilder::new(&glob)
                        .literal_separator(true)
                        .build()
                        .map_err(|error| invalid_glob(&error))?,
                );
            }
        }
        let globs = globs.build().map_err(|error| PatternError::Glob {
            pattern: "ignore-changes".to_owned(),
            reason: error.kind().to_string(),
        })?;
        Ok(Self { globs })
    }

    /// Returns whether a file is foreign. `path` is relative to its root.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.globs.is_match(path)
    }
}

impl Default for ForeignFiles {
    fn default() -> Self {
        Self::with_patterns::<&str>(&[]).unwrap_or_else(|_| Self { globs: GlobSet::empty() })
    }
}

impl TryFrom<Vec<String>> for ForeignFiles {
    type Error = PatternError;

    fn try_from(added: Vec<String>) -> Result<Self, PatternError> {
        Self::with_patterns(&added)
    }
}

#[cfg(test)]
mod tests;
