//! The command line of `bench-proxy`.

use anyhow::{Context, Result, bail, ensure};

use crate::bench::Pair;

/// How `bench-proxy` is called.
const USAGE: &str = "bench-proxy [--quick] --client COMMAND --none COMMAND (--between NAME COMMAND)…\n\
                     COMMAND is a JSON list; --none is the agent itself, --between starts it behind a program";

/// A way from the client to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The name in the table and in the summary: `none`, `bowline` or `conductor`.
    pub name: String,
    /// What the client starts.
    pub agent: Vec<String>,
    /// Whether a program stands between. Its process is the one that is started.
    pub is_between: bool,
}

impl Way {
    pub(super) fn pair(&self, client: &[String]) -> Pair {
        Pair { name: self.name.clone(), agent: self.agent.clone(), client: client.to_vec() }
    }
}

/// What to measure.
#[derive(Debug, Default)]
pub struct Options {
    /// Whether to end within a minute or two.
    pub quick: bool,
    /// The client's program and arguments.
    pub client: Vec<String>,
    /// The ways, in the order of the table.
    pub ways: Vec<Way>,
}

impl Options {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    /// Says how the program is called.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(name) = given.next() {
            let mut value =
                || given.next().with_context(|| format!("{name} needs more values\nusage: {USAGE}"));
            let list = |text: String| -> Result<Vec<String>> {
                serde_json::from_str(&text).with_context(|| format!("{text} is no list\nusage: {USAGE}"))
            };
            match name.as_str() {
                "--quick" => options.quick = true,
                "--client" => options.client = list(value()?)?,
                "--none" => {
                    let agent = list(value()?)?;
                    options.ways.push(Way { name: "none".to_owned(), agent, is_between: false });
                }
                "--between" => {
                    let (name, agent) = (value()?, list(value()?)?);
                    options.ways.push(Way { name, agent, is_between: true });
                }
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        ensure!(!options.client.is_empty() && !options.ways.is_empty(), "nothing to measure\nusage: {USAGE}");
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::Options;

    #[test]
    fn ways_have_names_and_lists() {
        let told = |words: &[&str]| match Options::parse(words.iter().map(ToString::to_string)) {
            Ok(options) => format!("{options:?}\n"),
            Err(error) => format!("! {}\n", error.to_string().lines().next().unwrap_or_default()),
        };
        let all = [
            told(&[
                "--quick",
                "--client",
                r#"["c d"]"#,
                "--none",
                r#"["a"]"#,
                "--between",
                "b",
                r#"["x", "a"]"#,
            ]),
            told(&["--client", "c"]),
            told(&["--between", "b"]),
            told(&["--other"]),
            told(&["--quick"]),
        ];
        expect![[r#"
            Options { quick: true, client: ["c d"], ways: [Way { name: "none", agent: ["a"], is_between: false }, Way { name: "b", agent: ["x", "a"], is_between: true }] }
            ! c is no list
            ! --between needs more values
            ! unexpected --other
            ! nothing to measure
        "#]]
        .assert_eq(&all.concat());
    }
}
