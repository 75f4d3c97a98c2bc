//! Chores of the repository: every check in one command, peers, a model, benchmarks, torture, tools, and the tidy test.
//!
//! Progress goes to stderr; stdout carries results only, so that a benchmark's last line stays the last.
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
pub mod steps;
pub mod summary;
pub mod tidy;
pub mod tools;
pub mod torture;

use std::path::{Path, PathBuf};

/// What every chore needs to know of the world.
#[derive(Debug, Clone)]
pub struct World {
    /// The root of the repository.
    pub root: PathBuf,
    /// Whether nobody watches (`CI=true`): what a person is told was skipped is then a failure.
    pub ci: bool,
}

impl World {
    /// Reads `CI` and finds the repository that this program was built from.
    pub fn from_env() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_owned();
        let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        Self { root, ci }
    }
}
