//! The command line of `bench-serve`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

/// The usage text of `bench-serve`.
const USAGE: &str = "bench-serve [--quick] --data DIR --bowline PROGRAM --agent COMMAND --pace COMMAND \
                     [--sdk COMMAND] [--store DIR|URL]\n\
                     COMMAND is a JSON list; --agent is served and run on stdio, --pace has many sessions, --sdk is a \
                     server with an agent of its own";

/// The options of the server benchmark.
#[derive(Debug, Default)]
pub struct ServeBenchOptions {
    /// Whether to end within a minute or two.
    pub quick: bool,
    /// The directory of the servers' files.
    pub data: PathBuf,
    /// The program `bowline`.
    pub bowline: PathBuf,
    /// The agent's program and arguments.
    pub agent: Vec<String>,
    /// The program and arguments of the agent with many sessions.
    pub pace: Vec<String>,
    /// The program and arguments of the other server.
    pub sdk: Option<Vec<String>>,
    /// Where our server keeps its sessions; below `data` if absent.
    pub store: Option<String>,
}

impl ServeBenchOptions {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Fails with the usage text.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(name) = given.next() {
            if name == "--quick" {
                options.quick = true;
                continue;
            }
            let value = given.next().with_context(|| format!("{name} needs a value\nusage: {USAGE}"))?;
            let list = || -> Result<Vec<String>> {
                serde_json::from_str(&value).with_context(|| format!("{value} is no list\nusage: {USAGE}"))
            };
            match name.as_str() {
                "--agent" => options.agent = list()?,
                "--pace" => options.pace = list()?,
                "--sdk" => options.sdk = Some(list()?),
                "--data" => options.data = value.into(),
                "--bowline" => options.bowline = value.into(),
                "--store" => options.store = Some(value),
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        let has_paths = !options.data.as_os_str().is_empty() && !options.bowline.as_os_str().is_empty();
        let has_agents = !options.agent.is_empty() && !options.pace.is_empty();
        ensure!(has_paths && has_agents, "nothing to measure\nusage: {USAGE}");
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::ServeBenchOptions;

    #[test]
    fn commands_are_lists() {
        let parse = |words: &str| match ServeBenchOptions::parse(words.split(' ').map(str::to_owned)) {
            Ok(options) => format!("{options:?}\n"),
            Err(error) => format!("! {}\n", error.to_string().lines().next().unwrap_or_default()),
        };
        let all = [
            parse(r#"--quick --data d --bowline b --agent ["a"] --pace ["p","q"] --sdk ["s"] --store u"#),
            parse("--agent a"),
            parse("--store"),
            parse("--other x"),
            parse("--quick"),
        ];
        expect![[r#"
            ServeBenchOptions { quick: true, data: "d", bowline: "b", agent: ["a"], pace: ["p", "q"], sdk: Some(["s"]), store: Some("u") }
            ! a is no list
            ! --store needs a value
            ! unexpected --other
            ! nothing to measure
        "#]].assert_eq(&all.concat());
    }
}
