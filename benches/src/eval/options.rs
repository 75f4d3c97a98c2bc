//! The command line of `eval`, which is also the supervisor of its terminals.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::TaskSet;

/// The usage text of `eval`.
const USAGE: &str = "eval --agent BOWLINE --model NAME [--base-url URL] [--seed N] [--set tuning|held-out] [--only TASK] \
     [--limit SECONDS of each task]";

/// Some tasks take a weak model on two cores minutes.
const DEFAULT_LIMIT: Duration = Duration::from_secs(900);

/// The options of the evaluation.
#[derive(Debug)]
pub struct EvalBenchOptions {
    /// The program `bowline`.
    pub agent: PathBuf,
    /// The model, as `bowline agent --model` takes it.
    pub model: String,
    /// The base URL of the model, if not the default.
    pub base_url: Option<String>,
    /// The seed of names, numbers and wording.
    pub seed: u64,
    /// The set to take the tasks from; both if not given.
    pub set: Option<TaskSet>,
    /// The only task to run, if given.
    pub only: Option<String>,
    /// The time limit of a task.
    pub limit: Duration,
}

/// The mode in which the program runs.
#[derive(Debug)]
pub enum EvalCommand {
    /// Gives tasks to an agent.
    Evaluate(EvalBenchOptions),
    /// Supervises the processes of a command.
    Supervise,
}

impl EvalCommand {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Fails with the usage text.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let (mut agent, mut model, mut base_url, mut only) = (None, None, None, None);
        let (mut seed, mut set, mut limit) = (1, None, DEFAULT_LIMIT);
        while let Some(name) = given.next() {
            if name == "--supervise" {
                return Ok(Self::Supervise);
            }
            let mut value = || given.next().with_context(|| format!("{name} needs a value\nusage: {USAGE}"));
            match name.as_str() {
                "--agent" => agent = Some(PathBuf::from(value()?)),
                "--model" => model = Some(value()?),
                "--base-url" => base_url = Some(value()?),
                "--only" => only = Some(value()?),
                "--seed" => seed = value()?.parse().context("--seed is a number")?,
                "--set" => {
                    let name = value()?;
                    let found =
                        [TaskSet::Tuning, TaskSet::HeldOut].into_iter().find(|set| set.name() == name);
                    set = Some(found.with_context(|| format!("no set {name}\nusage: {USAGE}"))?);
                }
                "--limit" => {
                    let seconds = value()?.parse();
                    limit = Duration::from_secs(seconds.context("--limit is a number of seconds")?);
                }
                _ => bail!("unexpected {name}\nusage: {USAGE}"),
            }
        }
        let agent = agent.with_context(|| format!("no --agent\nusage: {USAGE}"))?;
        let model = model.with_context(|| format!("no --model\nusage: {USAGE}"))?;
        Ok(Self::Evaluate(EvalBenchOptions { agent, model, base_url, seed, set, only, limit }))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::EvalCommand;

    fn check(arguments: &str, expect: Expect) {
        let text = match EvalCommand::parse(arguments.split_whitespace().map(str::to_owned)) {
            Ok(task) => format!("{task:?}"),
            Err(error) => format!("! {error}"),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn an_agent_and_a_model_are_needed() {
        check(
            "--agent a --model m --base-url u --seed 3 --set held-out --only fix --limit 5",
            expect![[
                r#"Evaluate(EvalBenchOptions { agent: "a", model: "m", base_url: Some("u"), seed: 3, set: Some(HeldOut), only: Some("fix"), limit: 5s })"#
            ]],
        );
        check("--supervise", expect!["Supervise"]);
        check(
            "--agent a",
            expect![[r#"
                ! no --model
                usage: eval --agent BOWLINE --model NAME [--base-url URL] [--seed N] [--set tuning|held-out] [--only TASK] [--limit SECONDS of each task]"#]],
        );
        check("--agent a --model m --limit soon", expect!["! --limit is a number of seconds"]);
        check(
            "--agent a --models m",
            expect![[r#"
                ! unexpected --models
                usage: eval --agent BOWLINE --model NAME [--base-url URL] [--seed N] [--set tuning|held-out] [--only TASK] [--limit SECONDS of each task]"#]],
        );
    }
}
