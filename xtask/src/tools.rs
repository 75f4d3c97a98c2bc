//! Tools that are compiled before use, each with its own command: cargo-deny, cargo-mutants, cargo-fuzz.
//!
//! They are installed at pinned versions under `target/tools`; cargo does nothing when the pinned version is installed.

use crate::RepoContext;
use crate::command::{cargo, run, run_as_progress, succeeds};
use crate::summary::{RunSummary, StepOutcome, SummaryRow};
use anyhow::{Context, ensure};
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

const DENY: &str = "cargo-deny@0.20.2";
const MUTANTS: &str = "cargo-mutants@27.1.0";
const FUZZ: &str = "cargo-fuzz@0.13.2";

/// The crate to mutate, unless the arguments name another.
const DEFAULT_MUTATED_CRATE: &str = "bowline-policy";

/// Checks licences, bans, sources and known vulnerabilities of every dependency against `deny.toml`.
///
/// # Errors
/// Fails when cargo-deny cannot be installed.
pub fn run_cargo_deny(world: &RepoContext) -> anyhow::Result<RunSummary> {
    install_tool(&world.root, DENY)?;
    let offline =
        || StepOutcome::from_result(run_deny(&world.root, &["check", "licenses", "bans", "sources"]));
    let advisories = || {
        // Fetched separately, so that a missing database is not mistaken for the absence of vulnerabilities.
        if let Err(error) = run_deny(&world.root, &["fetch", "db"]) {
            eprintln!(
                "SKIPPED: known vulnerabilities were NOT checked: the database could not be fetched: {error:#}"
            );
            return StepOutcome::missing(
                "NOT checked: the advisory database could not be fetched",
                world.is_ci,
            );
        }
        StepOutcome::from_result(run_deny(&world.root, &["check", "--disable-fetch", "advisories"]))
    };
    Ok(RunSummary {
        rows: vec![
            SummaryRow::timed("licenses, bans, sources", offline),
            SummaryRow::timed("advisories", advisories),
        ],
    })
}

fn run_deny(root: &Path, args: &[&str]) -> anyhow::Result<()> {
    run_as_progress(with_tools_in_path(root, cargo(root, &["deny", "--locked"]))?.args(args))
}

/// Mutates the code, and reports the mutants that no test catches.
///
/// # Errors
/// Fails when cargo-mutants cannot be installed or reports a surviving mutant.
pub fn run_mutants(world: &RepoContext, args: &[String]) -> anyhow::Result<()> {
    install_tool(&world.root, MUTANTS)?;
    let mut mutants = with_tools_in_path(&world.root, cargo(&world.root, &["mutants"]))?;
    if !names_packages(args) {
        mutants.args(["--package", DEFAULT_MUTATED_CRATE]);
    }
    run(mutants.args(args))
}

fn names_packages(args: &[String]) -> bool {
    let flags = ["-p", "--package", "--workspace"];
    args.iter().any(|arg| flags.contains(&arg.as_str()) || arg.starts_with("--package="))
}

/// Runs one fuzz target, or each in turn, for the given number of seconds.
///
/// # Errors
/// Fails when the target does not exist, when nightly Rust is missing, or when a target crashes on an input.
pub fn run_fuzz(world: &RepoContext, target: Option<&str>, seconds: u32) -> anyhow::Result<()> {
    let targets = fuzz_targets(&world.root.join("fuzz/fuzz_targets"))?;
    let chosen: Vec<&String> =
        targets.iter().filter(|name| target.is_none_or(|target| *name == target)).collect();
    ensure!(
        !chosen.is_empty(),
        "no fuzz target `{}`; there are: {}",
        target.unwrap_or("*"),
        targets.join(", ")
    );
    let nightly = succeeds(Command::new("rustup").args(["run", "nightly", "cargo", "--version"]));
    ensure!(nightly, "fuzzing needs nightly Rust: run `rustup toolchain install nightly`");
    install_tool(&world.root, FUZZ)?;
    for target in chosen {
        let mut fuzz = with_tools_in_path(&world.root, Command::new("rustup"))?;
        fuzz.current_dir(&world.root).args(["run", "nightly", "cargo", "fuzz", "run", target, "--"]);
        run(fuzz.arg(format!("-max_total_time={seconds}")))?;
    }
    Ok(())
}

fn fuzz_targets(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("there are no fuzz targets in {}", folder.display()))?;
    let mut targets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}

fn install_tool(root: &Path, tool: &str) -> anyhow::Result<()> {
    run_as_progress(&mut cargo(root, &["install", "--locked", "--root", "target/tools", tool]))
}

/// Puts the installed tools first on the command's search path.
fn with_tools_in_path(root: &Path, mut command: Command) -> anyhow::Result<Command> {
    let tools = root.join("target/tools/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(tools).chain(env::split_paths(&path));
    command.env("PATH", env::join_paths(paths)?);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::{fuzz_targets, names_packages};
    use std::fs;

    #[test]
    fn mutants_are_made_in_the_state_unless_a_package_is_named() {
        let names = |args: &[&str]| names_packages(&args.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(!names(&[]));
        assert!(!names(&["--list", "--file", "src/tracker.rs"]));
        assert!(names(&["-p", "bowline-wire"]));
        assert!(names(&["--package=bowline-wire", "--list"]));
        assert!(names(&["--workspace"]));
    }

    #[test]
    fn a_fuzz_target_is_a_rust_file_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["peer.rs", "notes.md", "lines.rs"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(fuzz_targets(folder.path()).unwrap(), ["lines", "peer"]);
        let missing = folder.path().join("missing");
        let error = fuzz_targets(&missing).unwrap_err();
        assert_eq!(error.to_string(), format!("there are no fuzz targets in {}", missing.display()));
    }
}
