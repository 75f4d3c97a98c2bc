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

/// Says that everything was built before the tests: to ask cargo once more for each would take longer than most of them.
const BUILT: &str = "BOWLINE_BUILT";

/// Returns a program that another package of the workspace makes, building it if that has not been done.
pub(crate) fn program(name: &str, build: &[&str]) -> PathBuf {
    let program = built().join(name);
    if std::env::var_os(BUILT).is_some() {
        assert!(program.is_file(), "{BUILT} is set, but there is no {}", program.display());
        return program;
    }
    let mut command = Command::new(env!("CARGO"));
    // What cargo says of this package to its tests would have it build some crates anew, and again afterwards.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_"))
    {
        command.env_remove(name);
    }
    command
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_MANIFEST_PATH")
        .env_remove("CARGO_MANIFEST_LINKS");
    let status = command.args(build).current_dir(root()).status().expect("cargo");
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
