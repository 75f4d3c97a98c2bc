//! The last session of each agent in a workspace, for agents that cannot list their sessions.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The maximum number of agents remembered per workspace.
const MAX_AGENTS: usize = 64;
/// The maximum size of the file, in bytes.
const MAX_BYTES: u64 = 256 << 10;

/// The last sessions of one workspace.
#[derive(Debug, Clone)]
pub(crate) struct LastSessions {
    file: PathBuf,
}

impl LastSessions {
    /// Returns the last sessions stored in a workspace's own state directory.
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Self { file: directory.join("last-sessions.json") }
    }

    /// Returns the last session of an agent, if known.
    pub(crate) fn last_session(&self, agent: &str) -> Option<String> {
        self.read().remove(agent)
    }

    /// Remembers a session.
    ///
    /// # Errors
    /// Returns why it cannot be remembered.
    pub(crate) fn remember(&self, agent: &str, session: &str) -> std::io::Result<()> {
        let mut sessions = self.read();
        if sessions.get(agent).is_some_and(|known| known == session) {
            return Ok(());
        }
        while sessions.len() >= MAX_AGENTS && !sessions.contains_key(agent) {
            sessions.pop_first();
        }
        sessions.insert(agent.to_owned(), session.to_owned());
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(serde_json::to_string(&sessions)?.as_bytes())?;
        file.persist(&self.file)?;
        Ok(())
    }

    /// Reads all of them. An unreadable file counts as empty.
    fn read(&self) -> BTreeMap<String, String> {
        let mut text = String::new();
        let Ok(file) = std::fs::File::open(&self.file) else { return BTreeMap::new() };
        if file.take(MAX_BYTES).read_to_string(&mut text).is_err() {
            return BTreeMap::new();
        }
        serde_json::from_str(&text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_session_of_each_agent_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let last = LastSessions::in_directory(directory.path());
        assert_eq!(last.last_session("a"), None);
        last.remember("a", "1").unwrap();
        last.remember("b --acp", "2").unwrap();
        last.remember("a", "3").unwrap();
        assert_eq!(
            (last.last_session("a").as_deref(), last.last_session("b --acp").as_deref()),
            (Some("3"), Some("2"))
        );
        for number in 0..200 {
            last.remember(&format!("{number}"), "x").unwrap();
        }
        assert!(last.read().len() <= MAX_AGENTS);
        std::fs::write(&last.file, "not json").unwrap();
        assert_eq!(last.last_session("a"), None);
    }
}
