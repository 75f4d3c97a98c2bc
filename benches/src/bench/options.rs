//! The command line of `bench-wire`.

use anyhow::{Context, Result, bail, ensure};

/// How `bench-wire` is called.
const USAGE: &str = "bench-wire [--quick] (--peer NAME --agent COMMAND --client COMMAND)…";

/// What to measure.
#[derive(Debug)]
pub struct Options {
    /// Whether to end within a minute.
    pub quick: bool,
    /// The pairs, in the order of the table.
    pub pairs: Vec<Pair>,
}

/// An agent and a client that are built on the same thing.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    /// The name in the table and in the summary; `bowline`, `rust` and `floor` are what ratios are made of.
    pub name: String,
    /// The agent's program and arguments. Its process must be the agent itself: its memory is measured.
    pub agent: Vec<String>,
    /// The client's program and arguments, to which the contract's own are added.
    pub client: Vec<String>,
}

impl Options {
    /// Reads the arguments after the program's name.
    ///
    /// A command is a JSON array of strings, or words between spaces.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { quick: false, pairs: Vec::new() };
        while let Some(name) = given.next() {
            if name == "--quick" {
                options.quick = true;
                continue;
            }
            let value = given.next().with_context(|| format!("{name} needs a value\nusage: {USAGE}"))?;
            match (name.as_str(), options.pairs.last_mut()) {
                ("--peer", _) => {
                    options.pairs.push(Pair { name: value, agent: Vec::new(), client: Vec::new() });
                }
                ("--agent", Some(pair)) => pair.agent = command(&value)?,
                ("--client", Some(pair)) => pair.client = command(&value)?,
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        ensure!(!options.pairs.is_empty(), "no peers\nusage: {USAGE}");
        for (at, pair) in options.pairs.iter().enumerate() {
            ensure!(
                !pair.agent.is_empty() && !pair.client.is_empty(),
                "{} needs --agent and --client\nusage: {USAGE}",
                pair.name
            );
            ensure!(
                options.pairs[..at].iter().all(|other| other.name != pair.name),
                "{} is there twice",
                pair.name
            );
        }
        Ok(options)
    }
}

fn command(text: &str) -> Result<Vec<String>> {
    if text.starts_with('[') {
        return serde_json::from_str(text).with_context(|| format!("cannot read the command {text}"));
    }
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::Options;

    fn check(arguments: &[&str], expect: Expect) {
        let text = match Options::parse(arguments.iter().map(|&argument| argument.to_owned())) {
            Ok(options) => {
                let mut lines = vec![format!("quick {}", options.quick)];
                lines
                    .extend(options.pairs.iter().map(|p| format!("{} {:?} {:?}", p.name, p.agent, p.client)));
                lines.join("\n")
            }
            Err(error) => format!("! {error}"),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn a_command_is_words_or_a_json_array() {
        check(
            &["--peer", "a", "--agent", "node a.mjs", "--client", r#"["/my dir/c"]"#, "--quick"],
            expect![[r#"
                quick true
                a ["node", "a.mjs"] ["/my dir/c"]"#]],
        );
    }

    #[test]
    fn a_pair_has_both_ends_and_a_name_of_its_own() {
        check(
            &["--peer", "a", "--agent", "x"],
            expect![[r#"
                ! a needs --agent and --client
                usage: bench-wire [--quick] (--peer NAME --agent COMMAND --client COMMAND)…"#]],
        );
        let twice = ["--peer", "a", "--agent", "x", "--client", "y"].repeat(2);
        check(&twice, expect!["! a is there twice"]);
    }
}
