//! The command line of `bench-wire`.

use anyhow::{Context, Result, bail, ensure};

/// The usage text of `bench-wire`.
const USAGE: &str = "bench-wire [--quick] (--peer NAME --agent COMMAND --client COMMAND)…";

/// The options of the wire benchmark.
#[derive(Debug)]
pub struct WireBenchOptions {
    /// Whether to end within a minute.
    pub quick: bool,
    /// The pairs, in the order of the table.
    pub pairs: Vec<BenchPair>,
}

/// An agent and a client on the same implementation.
#[derive(Debug, PartialEq, Eq)]
pub struct BenchPair {
    /// The name in the table and in the summary. The ratios use `bowline`, `rust` and `floor`.
    pub name: String,
    /// The agent's program and arguments. Its process must be the agent itself, because its memory is measured.
    pub agent: Vec<String>,
    /// The client's program and arguments, to which the contract's arguments are appended.
    pub client: Vec<String>,
}

impl WireBenchOptions {
    /// Parses the arguments after the program's name.
    ///
    /// A command is a JSON array of strings, or words separated by spaces.
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
                    options.pairs.push(BenchPair { name: value, agent: Vec::new(), client: Vec::new() });
                }
                ("--agent", Some(pair)) => pair.agent = parse_command(&value)?,
                ("--client", Some(pair)) => pair.client = parse_command(&value)?,
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

fn parse_command(text: &str) -> Result<Vec<String>> {
    if text.starts_with('[') {
        return serde_json::from_str(text).with_context(|| format!("cannot read the command {text}"));
    }
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::WireBenchOptions;

    fn check(arguments: &[&str], expect: Expect) {
        let text = match WireBenchOptions::parse(arguments.iter().map(|&argument| argument.to_owned())) {
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
