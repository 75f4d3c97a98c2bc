//! The command line of `bench-host`, which is also the agent, both clients and the supervisor of terminals.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// How `bench-host` is called.
const USAGE: &str = "bench-host [--quick] --data DIRECTORY";

/// What to measure, and where.
#[derive(Debug)]
pub struct Options {
    /// Whether to end within about a minute.
    pub quick: bool,
    /// Where files are made for the time of the run.
    pub data: PathBuf,
}

/// Who serves an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// A host for the project in this directory, with all that it keeps beside it.
    Host(PathBuf),
    /// A handler on the same wire that reads and writes files with the standard library.
    Bare,
    /// A handler that answers every read with the same text of 4 KiB.
    Memory,
}

/// What the program is to do.
#[derive(Debug)]
pub enum Task {
    /// To measure.
    Measure(Options),
    /// To start an agent and serve it, step by step as stdin says.
    Serve(Side),
    /// To be that agent.
    Agent,
    /// To own the processes of a command.
    Supervise,
}

impl Side {
    /// Returns what [`Task::parse`] reads.
    pub(super) fn arguments(&self) -> Vec<String> {
        match self {
            Self::Host(place) => vec!["--host".to_owned(), place.display().to_string()],
            Self::Bare => vec!["--bare".to_owned()],
            Self::Memory => vec!["--memory".to_owned()],
        }
    }
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
            let mut value = || {
                let value = given.next().with_context(|| format!("{name} needs a value\nusage: {USAGE}"));
                value.map(PathBuf::from)
            };
            match name.as_str() {
                "--supervise" => return Ok(Self::Supervise),
                "--agent" => return Ok(Self::Agent),
                "--host" => return Ok(Self::Serve(Side::Host(value()?))),
                "--bare" => return Ok(Self::Serve(Side::Bare)),
                "--memory" => return Ok(Self::Serve(Side::Memory)),
                "--quick" => quick = true,
                "--data" => data = Some(value()?),
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

    use super::{Side, Task};

    fn check(arguments: &[String], expect: Expect) {
        let text = match Task::parse(arguments.iter().cloned()) {
            Ok(task) => format!("{task:?}"),
            Err(error) => format!("! {error}"),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn a_side_is_started_as_it_is_told() {
        check(&Side::Host("/my dir".into()).arguments(), expect![[r#"Serve(Host("/my dir"))"#]]);
        check(&Side::Bare.arguments(), expect!["Serve(Bare)"]);
        check(&Side::Memory.arguments(), expect!["Serve(Memory)"]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        check(
            &["--data".to_owned()],
            expect![[r"
                ! --data needs a value
                usage: bench-host [--quick] --data DIRECTORY"]],
        );
        check(
            &["--quick".to_owned()],
            expect![[r"
                ! no --data
                usage: bench-host [--quick] --data DIRECTORY"]],
        );
    }
}
