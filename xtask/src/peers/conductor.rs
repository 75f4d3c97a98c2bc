//! The official conductor, which relays messages between a client and an agent, as our proxy does.

use super::agents::{BuildProfile, install_crate};
use super::{InstallScope, PeerDirs};
use crate::RepoContext;
use crate::summary::StepOutcome;
use std::path::{Path, PathBuf};

/// Needs no lock file here: the published crate contains one.
const CRATE: &str = "agent-client-protocol-conductor@5.0.0";

/// The program of the crate `agent-client-protocol-conductor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conductor;

impl Conductor {
    /// The conductor's name, which is also the name of its folder.
    pub const NAME: &'static str = "conductor";

    /// Returns the command that starts an agent behind the conductor, which takes the agent's command line as one
    /// argument.
    pub fn command(root: &Path, agent: &[String]) -> Vec<String> {
        let words: Vec<String> = agent.iter().map(|word| quote(word)).collect();
        vec![program_path(root).display().to_string(), "agent".to_owned(), words.join(" ")]
    }

    /// Builds the conductor in release mode, unless it is up to date or takes too long for `extent`.
    pub fn install(world: &RepoContext, extent: InstallScope) -> StepOutcome {
        if extent == InstallScope::Usual && !program_path(&world.root).is_file() {
            return StepOutcome::Skipped(
                "takes minutes to build: `cargo xtask peers --all` installs it".into(),
            );
        }
        StepOutcome::from_result(install_crate(
            &world.root,
            &PeerDirs::for_name(Self::NAME, &world.root),
            CRATE,
            BuildProfile::Release,
        ))
    }
}

fn program_path(root: &Path) -> PathBuf {
    PeerDirs::for_name(Conductor::NAME, root).target.join("bin/agent-client-protocol-conductor")
}

/// Quotes a word for the shell, if necessary.
fn quote(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::Conductor;
    use expect_test::expect;
    use std::path::Path;

    #[test]
    fn an_agent_behind_it_is_one_text() {
        let agent = ["/my repo/agent", "--x"].map(str::to_owned);
        expect![[r#"["/my repo/target/peers/conductor/bin/agent-client-protocol-conductor", "agent", "'/my repo/agent' --x"]"#]]
            .assert_eq(&format!("{:?}", Conductor::command(Path::new("/my repo"), &agent)));
    }
}
