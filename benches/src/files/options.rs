//! The command line of `bench-files`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::memory::Operation;

/// How `bench-files` is called.
const USAGE: &str = "bench-files [--quick] --data DIRECTORY";

/// What to measure, and where.
#[derive(Debug)]
pub struct Options {
    /// Whether to end within about a minute.
    pub quick: bool,
    /// Where the files are made, and found by the next run.
    pub data: PathBuf,
}

/// What the program is to do.
#[derive(Debug)]
pub enum Task {
    /// To measure.
    Measure(Options),
    /// To do one thing and tell by how much memory it grew: what a measuring process calls itself for.
    Grow(Operation),
}

impl Task {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    /// Says how the program is called.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let mut quick = false;
        let mut data = None;
        while let Some(name) = given.next() {
            match name.as_str() {
                "--grow" => return Ok(Self::Grow(Operation::from_arguments(given)?)),
                "--quick" => quick = true,
                "--data" => {
                    let value =
                        given.next().with_context(|| format!("--data needs a value\nusage: {USAGE}"))?;
                    data = Some(PathBuf::from(value));
                }
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        let data = data.with_context(|| format!("no --data\nusage: {USAGE}"))?;
        Ok(Self::Measure(Options { quick, data }))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::Task;

    fn check(arguments: &[&str], expect: Expect) {
        let text = match Task::parse(arguments.iter().map(|&argument| argument.to_owned())) {
            Ok(task) => format!("{task:?}"),
            Err(error) => format!("! {error}"),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn there_is_no_measuring_without_a_place_for_it() {
        check(
            &["--quick", "--data", "/my dir"],
            expect![[r#"Measure(Options { quick: true, data: "/my dir" })"#]],
        );
        check(
            &["--quick"],
            expect![[r"
                ! no --data
                usage: bench-files [--quick] --data DIRECTORY"]],
        );
        check(
            &["--fast"],
            expect![[r"
                ! unexpected --fast
                usage: bench-files [--quick] --data DIRECTORY"]],
        );
    }

    #[test]
    fn a_child_is_told_one_operation() {
        check(
            &["--grow", "window 7 200", "/my dir/a", "/state"],
            expect![[
                r#"Grow(Operation { what: Window { line: 7, limit: 200 }, path: "/my dir/a", state: "/state" })"#
            ]],
        );
        check(&["--grow", "dance", "/a", "/state"], expect!["! nothing is called dance"]);
        check(&["--grow"], expect!["! --grow is for the program itself"]);
    }
}
