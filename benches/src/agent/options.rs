//! The command line of `bench-agent`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The usage text of `bench-agent`.
const USAGE: &str = "bench-agent [--quick] --data DIRECTORY --agent NAME COMMAND PROMPT --agent NAME COMMAND PROMPT\n\
                     COMMAND is a JSON list; PROMPT makes the agent run one command; ours comes first";

/// An agent to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchAgent {
    /// Its name in the report.
    pub name: String,
    /// The command that starts it.
    pub command: Vec<String>,
    /// The prompt that makes it run one command.
    pub prompt: String,
}

/// The options of the agent benchmark.
#[derive(Debug)]
pub struct AgentBenchOptions {
    /// Whether to end within about a minute.
    pub quick: bool,
    /// The directory for temporary files.
    pub data: PathBuf,
    /// Our agent, and theirs.
    pub agents: [BenchAgent; 2],
}

impl AgentBenchOptions {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Fails with the usage text.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let (mut quick, mut data, mut agents) = (false, None, Vec::new());
        while let Some(name) = given.next() {
            let mut value =
                || given.next().with_context(|| format!("{name} needs more values\nusage: {USAGE}"));
            match name.as_str() {
                "--quick" => quick = true,
                "--data" => data = Some(PathBuf::from(value()?)),
                "--agent" => {
                    let (name, command, prompt) = (value()?, value()?, value()?);
                    let command = serde_json::from_str(&command)
                        .with_context(|| format!("{command} is no list\nusage: {USAGE}"))?;
                    agents.push(BenchAgent { name, command, prompt });
                }
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        let data = data.with_context(|| format!("no --data\nusage: {USAGE}"))?;
        match <[BenchAgent; 2]>::try_from(agents) {
            Ok(agents) => Ok(Self { quick, data, agents }),
            Err(agents) => bail!("{} agents instead of two\nusage: {USAGE}", agents.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::AgentBenchOptions;

    fn check(arguments: &[&str], expect: Expect) {
        let text = match AgentBenchOptions::parse(arguments.iter().map(ToString::to_string)) {
            Ok(options) => format!("{options:?}"),
            Err(error) => format!("! {}", error.to_string().lines().next().unwrap_or_default()),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn two_agents_are_measured() {
        let ours = ["--agent", "a", r#"["/a b", "c"]"#, "run echo"];
        check(
            &[&["--data", "d", "--quick"][..], &ours, &ours].concat(),
            expect![[
                r#"AgentBenchOptions { quick: true, data: "d", agents: [BenchAgent { name: "a", command: ["/a b", "c"], prompt: "run echo" }, BenchAgent { name: "a", command: ["/a b", "c"], prompt: "run echo" }] }"#
            ]],
        );
        check(&[&["--data", "d"][..], &ours].concat(), expect!["! 1 agents instead of two"]);
        check(&["--data", "d", "--agent", "a"], expect!["! --agent needs more values"]);
        check(&["--data", "d", "--agent", "a", "b", "c"], expect!["! b is no list"]);
        check(&["--quick"], expect!["! no --data"]);
    }
}
