//! The evaluation: small tasks for the agent with a model, by default the local one that `cargo xtask model` installs.

use crate::RepoContext;
use crate::bench::target_dir;
use crate::command::{cargo, run, run_as_progress};
use crate::model::{self, LocalModelServer};
use anyhow::ensure;
use std::path::Path;
use std::process::Command;

/// Which tasks to give to which model.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct EvalOptions {
    /// As `bowline agent --model` takes it; `offline` solves every task by hand and needs no model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the model is served
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// Draw names, numbers and wording from another seed than 1
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Give only the tasks of this set: tuning or held-out
    #[arg(long, value_name = "SET")]
    set: Option<String>,
    /// Give only this task
    #[arg(long, value_name = "TASK")]
    only: Option<String>,
    /// How long each task may take
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u32>,
}

/// Builds the agent and gives it the tasks. Serves the local model for the duration unless another model is named.
///
/// # Errors
/// Fails when a program cannot be built or started. An unsolved task is not a failure.
pub fn run_evaluation(world: &RepoContext, evaluation: &EvalOptions) -> anyhow::Result<()> {
    let serves = evaluation.model.is_none();
    ensure!(
        !serves || model::is_installed(world),
        "the local model is not there: `cargo xtask model` puts it together (1.1 GB), or name another by --model"
    );
    let build =
        "build --release --locked --package bowline-cli --package bowline-benches --bin bowline --bin eval";
    run_as_progress(&mut cargo(&world.root, &build.split(' ').collect::<Vec<_>>()))?;
    let serving = serves.then(|| LocalModelServer::start(world, None)).transpose()?;
    let programs = target_dir(&world.root).join("release");
    let url = serving.as_ref().map(LocalModelServer::url);
    let mut command = Command::new(programs.join("eval"));
    run(command.args(eval_arguments(&programs, evaluation, url)).current_dir(&world.root))
}

fn eval_arguments(programs: &Path, evaluation: &EvalOptions, served: Option<&str>) -> Vec<String> {
    let local = format!("compatible/{}", model::MODEL_NAME);
    let agent = programs.join("bowline").display().to_string();
    let model = evaluation.model.as_deref().unwrap_or(&local);
    let limit = evaluation.limit.map(|seconds| seconds.to_string());
    let seed = evaluation.seed.map(|seed| seed.to_string());
    let pairs = [
        ("--agent", Some(agent.as_str())),
        ("--model", Some(model)),
        ("--base-url", evaluation.base_url.as_deref().or(served)),
        ("--seed", seed.as_deref()),
        ("--set", evaluation.set.as_deref()),
        ("--only", evaluation.only.as_deref()),
        ("--limit", limit.as_deref()),
    ];
    let given = pairs.into_iter().filter_map(|(name, value)| Some([name, value?]));
    given.flatten().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{EvalOptions, eval_arguments};
    use expect_test::{Expect, expect};
    use std::path::Path;

    fn check(evaluation: &EvalOptions, served: Option<&str>, expected: Expect) {
        expected.assert_eq(&eval_arguments(Path::new("/out"), evaluation, served).join(" "));
    }

    #[test]
    fn the_local_model_is_asked_where_it_is_served() {
        check(
            &EvalOptions::default(),
            Some("http://127.0.0.1:1/v1"),
            expect![
                "--agent /out/bowline --model compatible/qwen2.5-coder-1.5b-instruct --base-url http://127.0.0.1:1/v1"
            ],
        );
    }

    #[test]
    fn another_model_is_asked_as_it_is_named() {
        let evaluation = EvalOptions {
            model: Some("compatible/large".to_owned()),
            base_url: Some("http://127.0.0.1:2/v1".to_owned()),
            seed: Some(2),
            set: Some("tuning".to_owned()),
            only: Some("fix".to_owned()),
            limit: Some(60),
        };
        check(
            &evaluation,
            None,
            expect![
                "--agent /out/bowline --model compatible/large --base-url http://127.0.0.1:2/v1 --seed 2 --set tuning --only fix --limit 60"
            ],
        );
    }
}
