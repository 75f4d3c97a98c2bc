//! The tidy test: rules of the house that neither the compiler nor clippy keeps.
//!
//! Every rule is a function from a [`Repo`] to its [`Finding`]s, with no disk in between, and is shown to fail on
//! a made-up repository in its own tests. `xtask/tests/tidy.rs` holds the real repository against all of them.

mod copies;
mod directions;
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
pub use length::files_stay_short;
pub use machine::nothing_names_a_machine;
pub use module_docs::{every_file_starts_with_its_subject, no_mod_rs};
pub use readme::readme_commands_are_tested;
pub use side_effects::libraries_leave_the_process_alone;
pub use source::{Line, Source};
pub use test_habits::{no_ignored_tests, no_sleeping_tests};
pub use tree::{File, Tree};

/// A repository as the rules see it: every file as text, and the Rust files also line by line.
#[derive(Debug)]
pub struct Repo {
    /// All text files.
    pub tree: Tree,
    /// The Rust files among them.
    pub sources: Vec<Source>,
}

impl Repo {
    /// Prepares the files of a repository for the rules.
    pub fn new(tree: Tree) -> Self {
        let sources = Source::all(&tree);
        Self { tree, sources }
    }
}

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root of the repository.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub advice: String,
}

impl Finding {
    /// Names a place and what to do about it.
    pub fn new(path: impl Into<String>, line: usize, advice: impl Into<String>) -> Self {
        Self { path: path.into(), line, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}
