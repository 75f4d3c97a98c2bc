//! Patterns and globs, compiled within bounds.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::{Case, Pattern, SearchQuery};

/// A pattern or a glob is at most this long, in bytes.
const MAX_PATTERN_BYTES: usize = 4096;
/// A search has at most this many globs of a kind.
const MAX_GLOBS: usize = 64;
/// A compiled pattern takes at most this much memory, and so do its tables while it runs.
const MAX_COMPILED_BYTES: usize = 10 << 20;
/// Groups of a pattern lie at most this deep in one another.
const MAX_NESTING: u32 = 100;

/// What is wrong with a search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// There is no pattern.
    #[error("the pattern is empty, send what to search for")]
    Empty,
    /// The pattern or a glob is too long.
    #[error("a pattern of {bytes} bytes is too long, at most {MAX_PATTERN_BYTES} are allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// There is no such directory or file.
    #[error("there is no {0}")]
    NotFound(String),
    /// The pattern is none, or too costly.
    #[error("the pattern cannot be searched for: {0}")]
    Pattern(String),
    /// A glob is none.
    #[error("the glob {glob:?} cannot be used: {why}")]
    Glob {
        /// Which.
        glob: String,
        /// Why not.
        why: String,
    },
    /// There are too many globs.
    #[error("{0} globs are too many, at most {MAX_GLOBS} are allowed")]
    TooManyGlobs(usize),
}

fn check_length(pattern: &str) -> Result<(), SearchError> {
    match pattern.len() {
        0 => Err(SearchError::Empty),
        bytes if bytes > MAX_PATTERN_BYTES => Err(SearchError::TooLong { bytes }),
        _ => Ok(()),
    }
}

/// Compiles a pattern.
pub(super) fn matcher(query: &SearchQuery) -> Result<RegexMatcher, SearchError> {
    check_length(&query.pattern)?;
    RegexMatcherBuilder::new()
        .fixed_strings(query.kind == Pattern::Literal)
        .case_insensitive(query.case == Case::Insensitive)
        .case_smart(query.case == Case::Smart)
        .multi_line(true)
        .crlf(true)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(MAX_NESTING)
        .build(&query.pattern)
        .map_err(|why| SearchError::Pattern(why.to_string()))
}

/// Which files are searched, by the way from their root.
pub(super) struct Globs {
    // None means all.
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl Globs {
    pub(super) fn new(include: &[String], exclude: &[String]) -> Result<Self, SearchError> {
        let included = if include.is_empty() { None } else { Some(compile(include)?) };
        Ok(Self { include: included, exclude: compile(exclude)? })
    }

    pub(super) fn want(&self, way: &str) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(way)) && !self.exclude.is_match(way)
    }
}

fn compile(globs: &[String]) -> Result<GlobSet, SearchError> {
    if globs.len() > MAX_GLOBS {
        return Err(SearchError::TooManyGlobs(globs.len()));
    }
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        check_length(glob)?;
        let failed =
            |why: globset::Error| SearchError::Glob { glob: glob.clone(), why: why.kind().to_string() };
        let glob = GlobBuilder::new(&from_root(glob)).literal_separator(true).build().map_err(failed)?;
        set.add(glob);
    }
    set.build().map_err(|why| SearchError::Glob { glob: globs.join(" "), why: why.kind().to_string() })
}

/// Returns a glob for the whole way from the root.
fn from_root(glob: &str) -> String {
    let (glob, inside) = match glob.strip_suffix('/') {
        Some(directory) => (directory, "/**"),
        None => (glob, ""),
    };
    match glob.strip_prefix('/') {
        Some(anchored) => format!("{anchored}{inside}"),
        None if glob.contains('/') => format!("{glob}{inside}"),
        None => format!("**/{glob}{inside}"),
    }
}
