//! Development tasks of the repository: all checks, peers, a local model, benchmarks, torture, tools, the tidy test.
//!
//! Progress goes to stderr and stdout carries only results, so that a benchmark's last line stays the last line of the
//! output.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people: what it prints is its purpose"
)]

pub mod bench;
pub mod command;
pub mod eval;
pub mod matrix;
pub mod model;
pub mod peers;
pub mod picture;
pub mod screenshots;
pub mod slowest;
pub mod steps;
pub mod summary;
pub mod tidy;
pub mod tools;
pub mod torture;

use std::path::{Path, PathBuf};

/// The repository and the environment, as every task needs them.
#[derive(Debug, Clone)]
pub struct RepoContext {
    /// The root of the repository.
    pub root: PathBuf,
    /// Whether this is an unattended run (`CI=true`), where a skipped step counts as a failure.
    pub is_ci: bool,
}

impl RepoContext {
    /// Reads `CI`, and locates the repository that this program was built from.
    pub fn from_env() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_owned();
        let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        Self { root, is_ci: ci }
    }
}
