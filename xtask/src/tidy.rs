//! The tidy test: house rules that neither the compiler nor clippy checks.
//!
//! Every rule is a pure function from a [`Repo`] to its [`TidyFinding`]s, and its own tests show it failing on a
//! made-up repository. `xtask/tests/tidy.rs` applies all rules to the real repository.

mod copies;
mod directions;
mod impl_files;
mod length;
mod machine;
mod mask;
mod module_docs;
mod readme;
mod side_effects;
mod source;
mod test_habits;
mod tree;
mod words;

#[cfg(test)]
mod fixture;

use std::fmt;

pub use copies::no_copied_code;
pub use directions::crates_depend_in_one_direction;
pub use impl_files::methods_stand_together;
pub use length::files_stay_short;
pub use machine::nothing_names_a_machine;
pub use module_docs::{every_file_starts_with_its_subject, no_mod_rs};
pub use readme::readme_commands_are_tested;
pub use side_effects::libraries_leave_the_process_alone;
pub use source::{RustSource, SourceLine};
pub use test_habits::{no_ignored_tests, no_sleeping_tests};
pub use tree::{RepoFile, RepoTree};

/// A repository as the rules see it: every text file, and the Rust files also line by line.
#[derive(Debug)]
pub struct Repo {
    /// All text files.
    pub tree: RepoTree,
    /// The Rust files among them, line by line.
    pub sources: Vec<RustSource>,
}

impl Repo {
    /// Prepares the files of a repository for the rules.
    pub fn new(tree: RepoTree) -> Self {
        let sources = RustSource::read_all(&tree);
        Self { tree, sources }
    }
}

/// A line that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TidyFinding {
    /// The file, relative to the root of the repository.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong, and how to fix it.
    pub advice: String,
}

impl TidyFinding {
    /// Reports a line, with advice.
    pub fn new(path: impl Into<String>, line: usize, advice: impl Into<String>) -> Self {
        Self { path: path.into(), line, advice: advice.into() }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}
