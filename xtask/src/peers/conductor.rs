//! The official conductor, which passes messages between a client and an agent as our proxy does.

use super::agents::{Built, install_crate};
use super::{Extent, Places};
use crate::World;
use crate::summary::Outcome;
use std::path::{Path, PathBuf};

/// Has no lock file of its own here: the crate carries one.
const CRATE: &str = "agent-client-protocol-conductor@5.0.0";

/// The program of the crate `agent-client-protocol-conductor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conductor;

impl Conductor {
    /// Its name, which is also that of its folder.
    pub const NAME: &'static str = "conductor";

    /// Returns the command that starts an agent behind it. It takes the agent's command as one text.
    pub fn command(root: &Path, agent: &[String]) -> Vec<String> {
        let words: Vec<String> = agent.iter().map(|word| quoted(word)).collect();
        vec![program(root).display().to_string(), "agent".to_owned(), words.join(" ")]
    }

    /// Builds it to be fast, unless that was done before, or takes too long for what is to be installed.
    pub fn install(world: &World, extent: Extent) -> Outcome {
        if extent == Extent::Usual && !program(&world.root).is_file() {
            return Outcome::Skipped("takes minutes to build: `cargo xtask peers --all` installs it".into());
        }
        Outcome::of(install_crate(
            &world.root,
            &Places::named(Self::NAME, &world.root),
            CRATE,
            Built::ToBeFast,
        ))
    }
}

fn program(root: &Path) -> PathBuf {
    Places::named(Conductor::NAME, root).target.join("bin/agent-client-protocol-conductor")
}

/// Returns a word as a shell would need it.
fn quoted(word: &str) -> String {
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
