//! Helpers for concise tests of sessions.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bowline_agent::store::{
    PostgresSessionStore, SessionMeta, SessionRecord, SessionRetention, SessionStore, SqliteSessionStore,
    StoredSession,
};
use bowline_conversation::conversation::MessagePart;
use bowline_protocol::schema::v1::{ContentBlock, ContentChunk, SessionId, SessionUpdate};
use tempfile::TempDir;
use test_support::postgres::TestPostgres;

/// An empty directory, in memory where possible, which is faster than a disk.
pub(crate) fn new_directory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// One of the places where sessions are stored, empty at first.
pub(crate) enum TestStores {
    Sqlite(TempDir),
    Postgres { server: TestPostgres, database: String },
}

impl TestStores {
    /// Opens the sessions, as a new process does.
    pub(crate) fn open(&self) -> Box<dyn SessionStore> {
        self.open_with(SessionRetention::default())
    }

    /// Opens the sessions with other limits.
    pub(crate) fn open_with(&self, retention: SessionRetention) -> Box<dyn SessionStore> {
        match self {
            Self::Sqlite(directory) => Box::new(SqliteSessionStore::new(directory.path(), retention)),
            Self::Postgres { server, database } => {
                Box::new(PostgresSessionStore::new(server.url(database).parse().unwrap(), retention))
            }
        }
    }
}

/// Runs a check with each implementation of the store.
pub(crate) async fn with_each_store(check: impl AsyncFn(TestStores)) {
    check(TestStores::Sqlite(new_directory())).await;
    if let Some(server) = TestPostgres::start() {
        let database = server.create_database();
        check(TestStores::Postgres { server, database }).await;
    }
}

/// Opens the sessions of a directory, as a new process does.
pub(crate) fn open_store(directory: impl AsRef<Path>) -> SqliteSessionStore {
    SqliteSessionStore::new(directory.as_ref(), SessionRetention::default())
}

pub(crate) fn session_id(id: &'static str) -> SessionId {
    SessionId::from(id)
}

pub(crate) fn session_meta(id: impl Into<String>, cwd: &str) -> SessionMeta {
    SessionMeta::new(SessionId::from(id.into()), cwd.into())
}

/// An update sent to the client.
pub(crate) fn agent_text(text: impl Into<String>) -> SessionRecord {
    SessionRecord::Update(SessionUpdate::AgentMessageChunk(ContentChunk::new(ContentBlock::from(
        text.into(),
    ))))
}

/// The texts sent to the client.
pub(crate) fn agent_texts(stored: &StoredSession) -> Vec<&str> {
    let text = |update| match update {
        &SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(ref text), .. }) => {
            text.text.as_str()
        }
        other => panic!("unexpected update {other:?}"),
    };
    stored.updates.iter().map(text).collect()
}

/// Formats the updates and the conversation, one per line.
pub(crate) fn format_session(stored: &StoredSession) -> String {
    let mut out: String = agent_texts(stored).iter().map(|text| format!("{text:?}\n")).collect();
    for message in &stored.messages {
        write!(out, "{:?}", message.role).unwrap();
        for part in &message.parts {
            let MessagePart::Text { text } = part else { panic!("unexpected part {part:?}") };
            write!(out, " {text}").unwrap();
        }
        out.push('\n');
    }
    out
}

/// Lists every file below a directory with its permissions.
pub(crate) fn list_files(directory: &Path) -> String {
    let mut paths = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(current) = pending.pop() {
        let entries: Vec<PathBuf> = current.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        pending.extend(entries.iter().filter(|path| path.is_dir()).cloned());
        paths.extend(entries);
    }
    paths.sort();
    let line = |path: &PathBuf| {
        let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
        format!("{mode:04o} {}\n", path.strip_prefix(directory).unwrap().display())
    };
    paths.iter().map(line).collect()
}
