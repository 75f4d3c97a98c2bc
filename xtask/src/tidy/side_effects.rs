//! Only programs print, exit and read the environment. A library gets values: in an agent, stdout is the wire.

use super::words::first_word;
use super::{Finding, Repo};

/// The crates below `crates/` that are no libraries: the binary, and what only tests use.
const PROGRAMS: [&str; 3] =
    ["crates/bowline-cli/", "crates/test-support/", "crates/bowline-workspace/src/bin/"];

const PRINTS: [&str; 5] = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];
const EXITS: [&str; 2] = ["process::exit(", "process::abort("];
const READS: [&str; 5] = ["env::var", "env::args", "env::home_dir", "env::set_var", "env::remove_var"];

/// No library crate prints, ends the process, or reads its environment.
pub fn libraries_leave_the_process_alone(repo: &Repo) -> Vec<Finding> {
    let library =
        |path: &str| path.starts_with("crates/") && !PROGRAMS.iter().any(|program| path.starts_with(program));
    let mut findings = Vec::new();
    for source in repo.sources.iter().filter(|source| library(&source.path)) {
        for line in source.production() {
            for (needles, advice) in [
                (&PRINTS[..], "in a library: return the text; only bowline-cli prints"),
                (&EXITS[..], "in a library: return an error; only bowline-cli exits"),
                (
                    &READS[..],
                    "in a library: take the value as a parameter; only bowline-cli reads the environment",
                ),
            ] {
                if let Some(found) = first_word(&line.code, needles) {
                    findings.push(Finding::new(&source.path, line.number, format!("`{found}` {advice}")));
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
