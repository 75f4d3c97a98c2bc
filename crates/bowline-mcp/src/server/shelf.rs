//! What a workspace shares beside its files, for one session: unsaved texts, its changes, and what the editor knows to be
//! wrong.

use bowline_state::lines::Window;
use bowline_state::paths::{Access, LexicalPath, protected};
use bowline_state::undo::{Selection, Who};
use bowline_workspace::approvals::BoxFuture;
use bowline_workspace::files::Files;
use bowline_workspace::workspace::{SharedNews, Workspace};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::diagnosed;
use super::resources::{Described, News, Resources, file_uri};

/// The URI of what the session has changed.
pub const CHANGES: &str = "bowline://changes";

/// The URI of what the editor knows to be wrong.
pub const DIAGNOSTICS: &str = "bowline://diagnostics";

/// What a workspace shares with one session.
///
/// Clients hear of documents, diagnostics and what is taken back by themselves; whoever writes for the session tells of its
/// changes, by [`News::Updated`] of [`CHANGES`].
#[derive(Debug)]
pub struct Shelf<F> {
    workspace: Workspace,
    session: String,
    files: F,
    news: broadcast::Sender<News>,
    _listening: DropGuard,
}

impl<F: Files> Shelf<F> {
    /// Returns what a workspace shares with a session of that name. Texts are read through `files`, so that rules hold.
    /// What happens is told to `news`, as long as the shelf is there. To be called within a runtime.
    #[must_use]
    pub fn new(workspace: Workspace, session: &str, files: F, news: broadcast::Sender<News>) -> Self {
        let end = CancellationToken::new();
        let passing = pass_on(workspace.shared_news(), news.clone());
        tokio::spawn(end.clone().run_until_cancelled_owned(passing));
        Self { workspace, session: session.to_owned(), files, news, _listening: end.drop_guard() }
    }

    /// Returns what the session has changed, as a patch.
    async fn changes(&self) -> Result<String, String> {
        let (workspace, who) = (self.workspace.clone(), Who::Session(self.session.clone()));
        let selection = Selection { who, ..Selection::default() };
        let diff = tokio::task::spawn_blocking(move || workspace.diff(&selection)).await;
        diff.map_err(|ended| ended.to_string())?.map_err(|error| error.to_string())
    }

    /// Returns diagnostics of all files but those whose names protect them: what is wrong there quotes them.
    fn diagnostics(&self) -> String {
        let (known, root) = (self.workspace.diagnostics(), self.workspace.roots().cwd());
        let is_open = |path: &str| {
            let below = path.strip_prefix(root).unwrap_or(path);
            LexicalPath::parse(below).is_ok_and(|path| protected(&path, Access::Read).is_none())
        };
        let shown = known.iter().map(|(path, of_file)| (path.as_str(), of_file));
        diagnosed::text(shown.filter(|(path, _)| is_open(path)))
    }
}

async fn pass_on(mut shared: broadcast::Receiver<SharedNews>, news: broadcast::Sender<News>) {
    loop {
        let told = match shared.recv().await {
            Ok(SharedNews::Document(path)) => News::Updated(file_uri(&path)),
            Ok(SharedNews::Documents) => News::Listed,
            Ok(SharedNews::Diagnostics(_)) => News::Updated(DIAGNOSTICS.to_owned()),
            Ok(SharedNews::Changes | SharedNews::TextsKept) => News::Updated(CHANGES.to_owned()),
            Err(RecvError::Lagged(_)) => News::Missed,
            Err(RecvError::Closed) => return,
        };
        // That nobody listens is usual.
        news.send(told).ok();
    }
}

fn own(uri: &str, name: &str, description: &str, mime_type: &str) -> Described {
    Described {
        uri: uri.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        mime_type: mime_type.to_owned(),
    }
}

/// Returns what is on every shelf.
#[must_use]
pub fn always() -> Vec<Described> {
    let changes = "What this session has changed and is not undone, as a patch that git reads";
    let diagnostics = "What the editor knows to be wrong, by file: ranges count lines and UTF-16 units from 0; what is stale \
                       was found before the file was changed";
    vec![
        own(CHANGES, "changes", changes, "text/x-diff"),
        own(DIAGNOSTICS, "diagnostics", diagnostics, "application/json"),
    ]
}

impl<F: Files> Resources for Shelf<F> {
    fn list(&self) -> BoxFuture<'_, Vec<Described>> {
        let mut documents = self.workspace.open_documents();
        documents.sort_by(|one, other| one.path.cmp(&other.path));
        let mut listed = always();
        listed.extend(documents.into_iter().map(|document| {
            let name = document.path.rsplit('/').next().unwrap_or_default();
            let description = match document.dirty {
                true => "Open in the editor, with changes that are not saved",
                false => "Open in the editor",
            };
            own(&file_uri(&document.path), name, description, "text/plain")
        }));
        Box::pin(std::future::ready(listed))
    }

    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async move {
            match uri {
                CHANGES => return self.changes().await.map(Some),
                DIAGNOSTICS => return Ok(Some(self.diagnostics())),
                _ => {}
            }
            let documents = self.workspace.open_documents();
            let open = documents.into_iter().find(|document| file_uri(&document.path) == uri);
            let Some(document) = open else { return Ok(None) };
            let read = self.files.read(&document.path, Window::default()).await;
            read.map(|read| Some(read.text.as_str().to_owned())).map_err(|failure| failure.to_string())
        })
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }
}
