//! The command line of `bench-agent`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// How `bench-agent` is called.
const USAGE: &str = "bench-agent [--quick] --data DIRECTORY --agent NAME COMMAND PROMPT --agent NAME COMMAND PROMPT\n\
                     COMMAND is a JSON list; PROMPT makes the agent run one command; ours comes first";

/// An agent, and how to make it act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// What it is called.
    pub name: String,
    /// The command that starts it.
    pub command: Vec<String>,
    /// What makes it run one command.
    pub prompt: String,
}

/// What to measure, and where.
#[derive(Debug)]
pub struct Options {
    /// Whether to end within about a minute.
    pub quick: bool,
    /// Where files are made for the time of the run.
    pub data: PathBuf,
    /// Ours and theirs.
    pub agents: [Agent; 2],
}

impl Options {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    /// Says how the program is called.
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
                    agents.push(Agent { name, command, prompt });
                }
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        let data = data.with_context(|| format!("no --data\nusage: {USAGE}"))?;
        match <[Agent; 2]>::try_from(agents) {
            Ok(agents) => Ok(Self { quick, data, agents }),
            Err(agents) => bail!("{} agents instead of two\nusage: {USAGE}", agents.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::Options;

    fn check(arguments: &[&str], expect: Expect) {
        let text = match Options::parse(arguments.iter().map(ToString::to_string)) {
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
                r#"Options { quick: true, data: "d", agents: [Agent { name: "a", command: ["/a b", "c"], prompt: "run echo" }, Agent { name: "a", command: ["/a b", "c"], prompt: "run echo" }] }"#
            ]],
        );
        check(&[&["--data", "d"][..], &ours].concat(), expect!["! 1 agents instead of two"]);
        check(&["--data", "d", "--agent", "a"], expect!["! --agent needs more values"]);
        check(&["--data", "d", "--agent", "a", "b", "c"], expect!["! b is no list"]);
        check(&["--quick"], expect!["! no --data"]);
    }
}
