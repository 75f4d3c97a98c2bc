//! The pre-release of the Python SDK, whose transports for HTTP and WebSocket drive `bowline serve` and `bowline connect`
//! in tests. Its programs are those of the released version.

use super::{PeerDirs, SdkPeer, install_requirements, is_current, missing_python};
use crate::RepoContext;
use crate::summary::StepOutcome;
use std::path::Path;

/// The Python package `agent-client-protocol[http]`, with the server that its documentation names.
#[derive(Debug, Clone, Copy)]
pub struct PythonWeb;

impl PythonWeb {
    /// Its name, which is also the name of its folders.
    pub const NAME: &'static str = "python-web";

    /// Returns the command that starts the agent, which serves with `--listen`.
    pub fn agent_command(root: &Path) -> Vec<String> {
        Self::program(root, "agent.py")
    }

    /// Returns the command that starts the client. Callers append its own arguments.
    pub fn client_command(root: &Path) -> Vec<String> {
        Self::program(root, "client.py")
    }

    fn program(root: &Path, script: &str) -> Vec<String> {
        let interpreter = Self::dirs(root).target.join("bin/python");
        let script = PeerDirs::for_sdk(SdkPeer::Python, root).source.join(script);
        [interpreter, script].iter().map(|word| word.display().to_string()).collect()
    }

    fn dirs(root: &Path) -> PeerDirs {
        PeerDirs::for_name(Self::NAME, root)
    }

    /// Installs the packages, unless they are up to date.
    pub(super) fn install(world: &RepoContext) -> StepOutcome {
        if let Some(missing) = missing_python() {
            return StepOutcome::missing(format!("needs {missing}"), world.is_ci);
        }
        let PeerDirs { source, target } = Self::dirs(&world.root);
        let requirements = source.join("requirements.txt");
        StepOutcome::from_result(install_requirements(
            "python3".as_ref(),
            &requirements,
            &target,
            &["--no-deps"],
        ))
    }

    /// Returns whether the installed packages match the pinned ones.
    pub(super) fn is_installed(root: &Path) -> bool {
        let places = Self::dirs(root);
        is_current(&places, "requirements.txt") && places.target.join("bin/python").exists()
    }
}

#[cfg(test)]
mod tests {
    use super::PythonWeb;
    use crate::peers::{PeerDirs, write_stamp};
    use std::fs;
    use std::path::Path;

    #[test]
    fn its_programs_are_those_of_the_released_version() {
        let command = PythonWeb::agent_command(Path::new("/r")).join(" ");
        assert_eq!(command, "/r/target/peers/python-web/bin/python /r/tests/peers/python/agent.py");
    }

    #[test]
    fn it_is_installed_once_its_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let places = PeerDirs::for_name(PythonWeb::NAME, root.path());
        fs::create_dir_all(&places.source).unwrap();
        fs::create_dir_all(places.target.join("bin")).unwrap();
        fs::write(places.source.join("requirements.txt"), "agent-client-protocol==1\n").unwrap();
        fs::write(places.target.join("bin/python"), "").unwrap();
        assert!(!PythonWeb::is_installed(root.path()), "its packages are not there");
        write_stamp(&places, "requirements.txt").unwrap();
        assert!(PythonWeb::is_installed(root.path()));
    }
}
