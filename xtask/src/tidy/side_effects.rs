//! Process-wide side effects: only programs print, exit and read the environment.
//!
//! A library receives values, and in an agent stdout is the wire.

use super::words::first_word;
use super::{Repo, TidyFinding};

/// The folders and files under `crates/` that are not libraries: programs and their parts, build scripts, and code for
/// tests only.
const PROGRAMS: [&str; 6] = [
    "crates/bowline-cli/",
    "crates/bowline-client/",
    "crates/bowline-tui/",
    "crates/test-support/",
    "crates/bowline-web/build.rs",
    "crates/bowline-workspace/src/bin/",
];

const PRINT_MACROS: [&str; 5] = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];
const EXIT_CALLS: [&str; 2] = ["process::exit(", "process::abort("];
const ENVIRONMENT_CALLS: [&str; 5] =
    ["env::var", "env::args", "env::home_dir", "env::set_var", "env::remove_var"];

/// No library crate prints, ends the process, or reads its environment.
pub fn libraries_leave_the_process_alone(repo: &Repo) -> Vec<TidyFinding> {
    let library =
        |path: &str| path.starts_with("crates/") && !PROGRAMS.iter().any(|program| path.starts_with(program));
    let mut findings = Vec::new();
    for source in repo.sources.iter().filter(|source| library(&source.path)) {
        for line in source.production_lines() {
            for (needles, advice) in [
                (&PRINT_MACROS[..], "in a library: return the text; only bowline-cli prints"),
                (&EXIT_CALLS[..], "in a library: return an error; only bowline-cli exits"),
                (
                    &ENVIRONMENT_CALLS[..],
                    "in a library: take the value as a parameter; only bowline-cli reads the environment",
                ),
            ] {
                if let Some(found) = first_word(&line.code, needles) {
                    findings.push(TidyFinding::new(&source.path, line.number, format!("`{found}` {advice}")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::libraries_leave_the_process_alone;
    use crate::tidy::fixture::check;
    use expect_test::expect;

    #[test]
    fn only_programs_print_exit_and_read_the_environment() {
        check(
            r#"
//- crates/bowline-wire/src/lib.rs
fn a() { println!("x"); }
fn b() { std::process::exit(1) }
fn c() { let home = std::env::var_os("HOME"); }
fn d() { my_println!("println!"); env!("CARGO"); } // eprintln!
#[cfg(test)]
mod tests {
    fn t() { eprintln!("seen by a person"); }
}
//- crates/bowline-cli/src/main.rs
fn main() { println!("x"); std::env::args(); }
//- crates/test-support/src/lib.rs
fn skip() { eprintln!("SKIPPED"); }
//- xtask/src/main.rs
fn main() { println!("x"); }
"#,
            libraries_leave_the_process_alone,
            expect![[r#"
                crates/bowline-wire/src/lib.rs:1: `println!` in a library: return the text; only bowline-cli prints
                crates/bowline-wire/src/lib.rs:2: `process::exit(` in a library: return an error; only bowline-cli exits
                crates/bowline-wire/src/lib.rs:3: `env::var` in a library: take the value as a parameter; only bowline-cli reads the environment"#]],
        );
    }
}
