//! A filter for the steps of a recorded connection.

use globset::{GlobBuilder, GlobMatcher};

use super::{TraceStep, UnansweredRequest};

/// Selects steps by session and method.
#[derive(Debug, Default)]
pub struct TraceFilter {
    session: Option<String>,
    method: Option<GlobMatcher>,
}

impl TraceFilter {
    /// Creates a filter for steps of the session whose id is or begins with `session`, with a method that matches a
    /// pattern such as `session/*`.
    ///
    /// # Errors
    /// Returns what is wrong with the pattern.
    pub fn new(session: Option<&str>, method: Option<&str>) -> Result<Self, globset::Error> {
        let matcher = |text: &str| GlobBuilder::new(text).build().map(|glob| glob.compile_matcher());
        Ok(Self { session: session.map(str::to_owned), method: method.map(matcher).transpose()? })
    }

    /// Returns whether a step is selected.
    #[must_use]
    pub fn matches_step(&self, step: &TraceStep) -> bool {
        self.matches(step.session.as_deref(), step.kind.method())
    }

    /// Returns whether an unanswered request is selected.
    #[must_use]
    pub fn matches_unanswered(&self, open: &UnansweredRequest) -> bool {
        self.matches(open.session.as_deref(), Some(&open.method))
    }

    fn matches(&self, session: Option<&str>, method: Option<&str>) -> bool {
        let is_session =
            |prefix: &String| session.is_some_and(|session| session.starts_with(prefix.as_str()));
        let is_method = |glob: &GlobMatcher| method.is_some_and(|method| glob.is_match(method));
        self.session.as_ref().is_none_or(is_session) && self.method.as_ref().is_none_or(is_method)
    }
}
