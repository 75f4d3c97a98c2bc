//! The command line of `bench-host`, which is also the agent, both clients and the supervisor of terminals.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The usage text of `bench-host`.
const USAGE: &str = "bench-host [--quick] --data DIRECTORY";

/// The options of the host benchmark.
#[derive(Debug)]
pub struct HostBenchOptions {
    /// Whether to end within about a minute.
    pub quick: bool,
    /// The directory for temporary files.
    pub data: PathBuf,
}

/// The server of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerKind {
    /// A host for the project in this directory, with its state next to it.
    Host(PathBuf),
    /// A handler on the same wire that reads and writes files with the standard library.
    Bare,
    /// A handler that answers every read with the same text of 4 KiB.
    Memory,
}

/// The mode in which the program runs.
#[derive(Debug)]
pub enum HostBenchCommand {
    /// Measures.
    Measure(HostBenchOptions),
    /// Starts an agent and serves it, one step per line of stdin.
    Serve(ServerKind),
    /// Runs as that agent.
    Agent,
    /// Supervises the processes of a command.
    Supervise,
}

impl ServerKind {
    /// Returns the arguments that [`HostBenchCommand::parse`] parses.
    pub(super) fn arguments(&self) -> Vec<String> {
        match self {
            Self::Host(place) => vec!["--host".to_owned(), place.display().to_string()],
            Self::Bare => vec!["--bare".to_owned()],
            Self::Memory => vec!["--memory".to_owned()],
        }
    }
}

impl HostBenchCommand {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Fails with the usage text.
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
                "--host" => return Ok(Self::Serve(ServerKind::Host(value()?))),
                "--bare" => return Ok(Self::Serve(ServerKind::Bare)),
                "--memory" => return Ok(Self::Serve(ServerKind::Memory)),
                "--quick" => quick = true,
                "--data" => data = Some(value()?),
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        let data = data.with_context(|| format!("no --data\nusage: {USAGE}"))?;
        Ok(Self::Measure(HostBenchOptions { quick, data }))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::{HostBenchCommand, ServerKind};

    fn check(arguments: &[String], expect: Expect) {
        let text = match HostBenchCommand::parse(arguments.iter().cloned()) {
            Ok(task) => format!("{task:?}"),
            Err(error) => format!("! {error}"),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn a_side_is_started_as_it_is_told() {
        check(&ServerKind::Host("/my dir".into()).arguments(), expect![[r#"Serve(Host("/my dir"))"#]]);
        check(&ServerKind::Bare.arguments(), expect!["Serve(Bare)"]);
        check(&ServerKind::Memory.arguments(), expect!["Serve(Memory)"]);
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
