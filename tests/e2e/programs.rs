//! The programs under test: where they are, and how they run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The root of the repository.
pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in a folder of it").to_owned()
}

/// Returns the directory of the programs that cargo built with this test.
pub(crate) fn build_dir() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.ancestors().nth(2).expect("target/PROFILE/deps").to_owned()
}

/// Set if everything was built before the tests: asking cargo again for each program would take longer than most tests.
const PREBUILT_VARIABLE: &str = "BOWLINE_BUILT";

/// Returns a program of another package in the workspace, building it if necessary.
pub(crate) fn build_program(name: &str, build: &[&str]) -> PathBuf {
    let program = build_dir().join(name);
    if std::env::var_os(PREBUILT_VARIABLE).is_some() {
        assert!(program.is_file(), "{PREBUILT_VARIABLE} is set, but there is no {}", program.display());
        return program;
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(build).current_dir(workspace_root());
    let status = without_package_variables(&mut command).status().expect("cargo");
    assert!(
        status.success() && program.is_file(),
        "cargo {} does not make {}",
        build.join(" "),
        program.display()
    );
    program
}

/// Removes the variables of the test's package. They would make cargo rebuild some crates, now and again afterwards.
pub(crate) fn without_package_variables(command: &mut Command) -> &mut Command {
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Runs a command to completion and returns its output.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns everything that a program printed, and its exit status.
pub(crate) fn transcript(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut text = stdout.into_owned();
    if !stderr.trim().is_empty() {
        text += &format!("--- stderr\n{stderr}");
    }
    text + &format!("--- {}\n", output.status)
}
