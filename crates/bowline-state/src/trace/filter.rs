//! Which steps of a recorded wire are wanted.

use globset::{GlobBuilder, GlobMatcher};

use super::{Open, Step};

/// Steps of a session, or with a method.
#[derive(Debug, Default)]
pub struct Filter {
    session: Option<String>,
    method: Option<GlobMatcher>,
}

impl Filter {
    /// Wants steps of the session whose id is `session` or begins so, with a method that the pattern fits, such as
    /// `session/*`.
    ///
    /// # Errors
    /// Says what is wrong with the pattern.
    pub fn new(session: Option<&str>, method: Option<&str>) -> Result<Self, globset::Error> {
        let matcher = |text: &str| GlobBuilder::new(text).build().map(|glob| glob.compile_matcher());
        Ok(Self { session: session.map(str::to_owned), method: method.map(matcher).transpose()? })
    }

    /// Says whether a step is wanted.
    #[must_use]
    pub fn takes(&self, step: &Step) -> bool {
        self.fits(step.session.as_deref(), step.kind.method())
    }

    /// Says whether a request that has no answer is wanted.
    #[must_use]
    pub fn takes_open(&self, open: &Open) -> bool {
        self.fits(open.session.as_deref(), Some(&open.method))
    }

    fn fits(&self, session: Option<&str>, method: Option<&str>) -> bool {
        let begins = |wanted: &String| session.is_some_and(|session| session.starts_with(wanted.as_str()));
        let is_so = |wanted: &GlobMatcher| method.is_some_and(|method| wanted.is_match(method));
        self.session.as_ref().is_none_or(begins) && self.method.as_ref().is_none_or(is_so)
    }
}
