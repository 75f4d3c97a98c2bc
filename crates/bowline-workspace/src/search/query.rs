//! Patterns and globs, compiled within limits.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::{CaseMode, PatternKind, SearchQuery};

/// The maximum length of a pattern or a glob, in bytes.
const MAX_PATTERN_BYTES: usize = 4096;
/// The maximum number of globs of a kind.
const MAX_GLOBS: usize = 64;
/// The maximum memory of a compiled pattern, and of its tables while it runs.
const MAX_COMPILED_BYTES: usize = 10 << 20;
/// The maximum nesting of groups in a pattern.
const MAX_NESTING: u32 = 100;

/// Why a query is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// The pattern is empty.
    #[error("the pattern is empty, send what to search for")]
    Empty,
    /// The pattern or a glob is too long.
    #[error("a pattern of {bytes} bytes is too long, at most {MAX_PATTERN_BYTES} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The directory or file does not exist.
    #[error("there is no {0}")]
    NotFound(String),
    /// The pattern is invalid or too costly.
    #[error("the pattern cannot be searched for: {0}")]
    Pattern(String),
    /// A glob is invalid.
    #[error("the glob {glob:?} cannot be used: {why}")]
    Glob {
        /// The glob.
        glob: String,
        /// The reason.
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
pub(super) fn compile_pattern(query: &SearchQuery) -> Result<RegexMatcher, SearchError> {
    check_length(&query.pattern)?;
    RegexMatcherBuilder::new()
        .fixed_strings(query.kind == PatternKind::Literal)
        .case_smart(query.case == CaseMode::Smart)
        .multi_line(true)
        .crlf(true)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(MAX_NESTING)
        .build(&query.pattern)
        .map_err(|why| SearchError::Pattern(why.to_string()))
}

/// Selects the files to search by their path relative to the root.
pub(super) struct SearchGlobs {
    // `None` selects all.
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl SearchGlobs {
    pub(super) fn new(include: &[String], exclude: &[String]) -> Result<Self, SearchError> {
        let included = if include.is_empty() { None } else { Some(compile_globs(include)?) };
        Ok(Self { include: included, exclude: compile_globs(exclude)? })
    }

    pub(super) fn matches(&self, way: &str) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(way)) && !self.exclude.is_match(way)
    }
}

fn compile_globs(globs: &[String]) -> Result<GlobSet, SearchError> {
    if globs.len() > MAX_GLOBS {
        return Err(SearchError::TooManyGlobs(globs.len()));
    }
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        check_length(glob)?;
        let failed =
            |why: globset::Error| SearchError::Glob { glob: glob.clone(), why: why.kind().to_string() };
        let glob = GlobBuilder::new(&anchor_glob(glob)).literal_separator(true).build().map_err(failed)?;
        set.add(glob);
    }
    set.build().map_err(|why| SearchError::Glob { glob: globs.join(" "), why: why.kind().to_string() })
}

/// Returns a glob that matches the whole path relative to the root.
fn anchor_glob(glob: &str) -> String {
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
