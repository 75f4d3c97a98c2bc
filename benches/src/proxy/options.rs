//! The command line of `bench-proxy`.

use anyhow::{Context, Result, bail, ensure};

use crate::wire::BenchPair;

/// The usage text of `bench-proxy`.
const USAGE: &str = "bench-proxy [--quick] --client COMMAND --none COMMAND (--between NAME COMMAND)…\n\
                     COMMAND is a JSON list; --none is the agent itself, --between starts it behind a program";

/// A route from the client to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchRoute {
    /// The name in the table and in the summary: `none`, `bowline` or `conductor`.
    pub name: String,
    /// The command that the client starts.
    pub agent: Vec<String>,
    /// Whether a program runs between client and agent. The client starts that program's process.
    pub has_proxy: bool,
}

impl BenchRoute {
    pub(super) fn to_pair(&self, client: &[String]) -> BenchPair {
        BenchPair { name: self.name.clone(), agent: self.agent.clone(), client: client.to_vec() }
    }
}

/// The options of the proxy benchmark.
#[derive(Debug, Default)]
pub struct ProxyBenchOptions {
    /// Whether to end within a minute or two.
    pub quick: bool,
    /// The client's program and arguments.
    pub client: Vec<String>,
    /// The routes, in the order of the table.
    pub routes: Vec<BenchRoute>,
}

impl ProxyBenchOptions {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Fails with the usage text.
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
                    options.routes.push(BenchRoute { name: "none".to_owned(), agent, has_proxy: false });
                }
                "--between" => {
                    let (name, agent) = (value()?, list(value()?)?);
                    options.routes.push(BenchRoute { name, agent, has_proxy: true });
                }
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        ensure!(
            !options.client.is_empty() && !options.routes.is_empty(),
            "nothing to measure\nusage: {USAGE}"
        );
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::ProxyBenchOptions;

    #[test]
    fn ways_have_names_and_lists() {
        let told = |words: &[&str]| match ProxyBenchOptions::parse(words.iter().map(ToString::to_string)) {
            Ok(options) => format!("{options:?}\n"),
            Err(error) => format!("! {}\n", error.to_string().lines().next().unwrap_or_default()),
        };
        let all = [
            told(&[
                "--quick", "--client", r#"["c d"]"#, "--none", r#"["a"]"#, "--between", "b", r#"["x", "a"]"#,
            ]),
            told(&["--client", "c"]),
            told(&["--between", "b"]),
            told(&["--other"]),
            told(&["--quick"]),
        ];
        expect![[r#"
            ProxyBenchOptions { quick: true, client: ["c d"], routes: [BenchRoute { name: "none", agent: ["a"], has_proxy: false }, BenchRoute { name: "b", agent: ["x", "a"], has_proxy: true }] }
            ! c is no list
            ! --between needs more values
            ! unexpected --other
            ! nothing to measure
        "#]]
        .assert_eq(&all.concat());
    }
}
