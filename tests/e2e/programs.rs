//! Where the programs under test are, and how they are run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in a folder of it").to_owned()
}

/// Where cargo has put what it built with this test.
pub(crate) fn built() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.ancestors().nth(2).expect("target/PROFILE/deps").to_owned()
}

/// Returns a program that another package of the workspace makes, building it if that has not been done.
pub(crate) fn program(name: &str, build: &[&str]) -> PathBuf {
    let program = built().join(name);
    let status = Command::new(env!("CARGO")).args(build).current_dir(root()).status().expect("cargo");
    assert!(
        status.success() && program.is_file(),
        "cargo {} does not make {}",
        build.join(" "),
        program.display()
    );
    program
}

/// Runs a command to its end and returns what it said.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Everything that a program wrote, and how it ended.
pub(crate) fn transcript(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut text = stdout.into_owned();
    if !stderr.trim().is_empty() {
        text += &format!("--- stderr\n{stderr}");
    }
    text + &format!("--- {}\n", output.status)
}
