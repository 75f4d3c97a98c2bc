//! The workspace of one MCP session: a session of the host, with its unsaved texts and its changes to be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bowline_host::{BoxFuture, Host, LocalSession};
use bowline_mcp::server::{Client, Described, News, Place, Resources, file_uri};
use bowline_state::lines::Window;
use bowline_state::undo::{Selection, Who};
use bowline_workspace::files::Files;
use tokio::sync::broadcast;

use super::desk::Desk;

/// What the session has changed.
pub(super) const CHANGES: &str = "bowline://changes";

/// The workspace of one MCP session.
pub(super) struct LocalPlace {
    root: String,
    session: LocalSession,
    shelf: Shelf,
    desk: Arc<Desk>,
}

impl LocalPlace {
    pub(super) fn open(
        host: Host,
        desk: Arc<Desk>,
        client: Client,
    ) -> BoxFuture<'static, Result<Self, String>> {
        Box::pin(async move {
            let opened = host.local_session(&name(), Some(client.name().to_owned())).await;
            let session = opened.map_err(|error| format!("the workspace cannot be used: {error}"))?;
            let news = desk.sits(session.name(), client);
            let root = host.workspace().roots().cwd().to_owned();
            let shelf = Shelf { session: session.clone(), news };
            Ok(Self { root, session, shelf, desk })
        })
    }
}

/// Returns a name for a session that says when it was, and is no other's.
fn name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("mcp-{}-{}-{count}", since.as_secs(), std::process::id())
}

impl Place for LocalPlace {
    type Files = LocalSession;
    type Terminals = LocalSession;

    fn root(&self) -> &str {
        &self.root
    }

    fn files(&self) -> &LocalSession {
        &self.session
    }

    fn terminals(&self) -> &LocalSession {
        &self.session
    }

    fn resources(&self) -> Option<&dyn Resources> {
        Some(&self.shelf)
    }

    async fn close(&self) {
        self.desk.leaves(self.session.name());
        self.session.end().await;
    }
}

struct Shelf {
    session: LocalSession,
    news: broadcast::Sender<News>,
}

impl Resources for Shelf {
    fn list(&self) -> BoxFuture<'_, Vec<Described>> {
        let mut documents = self.session.files().workspace().open_documents();
        documents.sort_by(|one, other| one.path.cmp(&other.path));
        let mut listed = vec![Described {
            uri: CHANGES.to_owned(),
            name: "changes".to_owned(),
            description: "What this session has changed and is not undone, as a patch that git reads"
                .to_owned(),
            mime_type: "text/x-diff".to_owned(),
        }];
        listed.extend(documents.into_iter().map(|document| Described {
            uri: file_uri(&document.path),
            name: document.path.rsplit('/').next().unwrap_or_default().to_owned(),
            description: match document.dirty {
                true => "Open in the editor, with changes that are not saved".to_owned(),
                false => "Open in the editor".to_owned(),
            },
            mime_type: "text/plain".to_owned(),
        }));
        Box::pin(std::future::ready(listed))
    }

    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async move {
            let workspace = self.session.files().workspace().clone();
            if uri == CHANGES {
                let who = Who::Session(self.session.name().to_owned());
                let selection = Selection { who, ..Selection::default() };
                let diff = tokio::task::spawn_blocking(move || workspace.diff(&selection)).await;
                let diff = diff.map_err(|ended| ended.to_string())?;
                return diff.map(Some).map_err(|error| error.to_string());
            }
            let open =
                workspace.open_documents().into_iter().find(|document| file_uri(&document.path) == uri);
            let Some(document) = open else { return Ok(None) };
            // Through the rules, like every read.
            let read = Files::read(&self.session, &document.path, Window::default()).await;
            read.map(|read| Some(read.text.as_str().to_owned())).map_err(|failure| failure.to_string())
        })
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }
}
