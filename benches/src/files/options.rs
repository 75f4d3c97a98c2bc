//! The command line of `bench-files`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::memory::MemoryOperation;

/// The usage text of `bench-files`.
const USAGE: &str = "bench-files [--quick] [--extension | --growth] --data DIRECTORY";

/// The options of the files benchmark.
#[derive(Debug)]
pub struct FilesBenchOptions {
    /// Whether to end within about a minute.
    pub quick: bool,
    /// The only part to measure.
    pub only: Option<FilesBenchPart>,
    /// The directory of the data, which later runs reuse.
    pub data: PathBuf,
}

/// A part of the files benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesBenchPart {
    /// The file extension.
    Extension,
    /// Large repositories, and journals of many changes.
    Growth,
}

/// The mode in which the program runs.
#[derive(Debug)]
pub enum FilesBenchCommand {
    /// Measures.
    Measure(FilesBenchOptions),
    /// Runs one operation and reports its memory growth: the mode in which a measuring process starts itself.
    Grow(MemoryOperation),
}

impl FilesBenchCommand {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Fails with the usage text.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let (mut quick, mut only) = (false, None);
        let mut data = None;
        while let Some(name) = given.next() {
            match name.as_str() {
                "--grow" => return Ok(Self::Grow(MemoryOperation::from_arguments(given)?)),
                "--quick" => quick = true,
                "--extension" => only = Some(FilesBenchPart::Extension),
                "--growth" => only = Some(FilesBenchPart::Growth),
                "--data" => {
                    let value =
                        given.next().with_context(|| format!("--data needs a value\nusage: {USAGE}"))?;
                    data = Some(PathBuf::from(value));
                }
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        let data = data.with_context(|| format!("no --data\nusage: {USAGE}"))?;
        Ok(Self::Measure(FilesBenchOptions { quick, only, data }))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::FilesBenchCommand;

    fn check(arguments: &[&str], expect: Expect) {
        let text = match FilesBenchCommand::parse(arguments.iter().map(|&argument| argument.to_owned())) {
            Ok(task) => format!("{task:?}"),
            Err(error) => format!("! {error}"),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn there_is_no_measuring_without_a_place_for_it() {
        check(
            &["--quick", "--data", "/my dir"],
            expect![[r#"Measure(FilesBenchOptions { quick: true, only: None, data: "/my dir" })"#]],
        );
        check(
            &["--quick"],
            expect![[r"
                ! no --data
                usage: bench-files [--quick] [--extension | --growth] --data DIRECTORY"]],
        );
        check(
            &["--fast"],
            expect![[r"
                ! unexpected --fast
                usage: bench-files [--quick] [--extension | --growth] --data DIRECTORY"]],
        );
    }

    #[test]
    fn a_child_is_told_one_operation() {
        check(
            &["--grow", "window 7 200", "/my dir/a", "/state"],
            expect![[
                r#"Grow(MemoryOperation { kind: Window { line: 7, limit: 200 }, path: "/my dir/a", state: "/state" })"#
            ]],
        );
        check(&["--grow", "dance", "/a", "/state"], expect!["! nothing is called dance"]);
        check(&["--grow"], expect!["! --grow is for the program itself"]);
    }
}
