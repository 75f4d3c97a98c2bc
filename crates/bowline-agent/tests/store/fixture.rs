//! Sessions in a few words.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bowline_agent::store::{Meta, Record, Retention, SqliteSessionStore, Stored};
use bowline_state::conversation::Part;
use bowline_state::schema::v1::{ContentBlock, ContentChunk, SessionId, SessionUpdate};
use tempfile::TempDir;

/// An empty directory. Memory will do for a disk, and costs less.
pub(crate) fn directory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// The sessions of a directory, as a process that starts has them.
pub(crate) fn store(directory: impl AsRef<Path>) -> SqliteSessionStore {
    SqliteSessionStore::new(directory.as_ref(), Retention::default())
}

pub(crate) fn at(id: &'static str) -> SessionId {
    SessionId::from(id)
}

pub(crate) fn meta(id: impl Into<String>, cwd: &str) -> Meta {
    Meta::new(SessionId::from(id.into()), cwd.into())
}

/// Something the client was told.
pub(crate) fn said(text: impl Into<String>) -> Record {
    Record::Update(SessionUpdate::AgentMessageChunk(ContentChunk::new(ContentBlock::from(text.into()))))
}

/// The texts that the client was told.
pub(crate) fn texts(stored: &Stored) -> Vec<&str> {
    let text = |update| match update {
        &SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(ref text), .. }) => {
            text.text.as_str()
        }
        other => panic!("nobody said {other:?}"),
    };
    stored.updates.iter().map(text).collect()
}

/// What the client was told and the conversation, one a line.
pub(crate) fn shown(stored: &Stored) -> String {
    let mut out: String = texts(stored).iter().map(|text| format!("{text:?}\n")).collect();
    for message in &stored.messages {
        write!(out, "{:?}", message.role).unwrap();
        for part in &message.parts {
            let Part::Text { text } = part else { panic!("nobody said {part:?}") };
            write!(out, " {text}").unwrap();
        }
        out.push('\n');
    }
    out
}

/// Every file below a directory with its permissions.
pub(crate) fn files(directory: &Path) -> String {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        let entries: Vec<PathBuf> = next.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        open.extend(entries.iter().filter(|path| path.is_dir()).cloned());
        found.extend(entries);
    }
    found.sort();
    let line = |path: &PathBuf| {
        let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
        format!("{mode:04o} {}\n", path.strip_prefix(directory).unwrap().display())
    };
    found.iter().map(line).collect()
}
