//! The resources that a workspace shares with one session: unsaved texts, changes, and the editor's diagnostics.
//!
//! Changes are forwarded to subscribers. A subscriber that lags is asked to read everything again.

use bowline_access::approvals::BoxFuture;
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_policy::paths::{Access, LexicalPath, find_protection};
use bowline_text::lines::LineWindow;
use bowline_workspace::files::FileBackend;
use bowline_workspace::workspace::{Workspace, WorkspaceNotification};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::diagnostics;
use super::resources::{ResourceEvent, ResourceInfo, ResourceProvider, file_uri};

/// The URI of the session's changes.
pub const CHANGES_URI: &str = "bowline://changes";

/// The URI of the editor's diagnostics.
pub const DIAGNOSTICS_URI: &str = "bowline://diagnostics";

/// The resources that a workspace shares with one session.
///
/// Changes to documents and diagnostics, and undo, are forwarded to clients automatically; the code that writes for the
/// session must announce its changes with [`ResourceEvent::Updated`] of [`CHANGES_URI`].
#[derive(Debug)]
pub struct WorkspaceResources<F> {
    workspace: Workspace,
    session: String,
    files: F,
    events: broadcast::Sender<ResourceEvent>,
    _forwarder: DropGuard,
}

impl<F: FileBackend> WorkspaceResources<F> {
    /// Returns the resources of a workspace for the session of that name. Texts are read through `files`, so that rules
    /// apply. Events are sent to `events` until the value is dropped. Must be called within a runtime.
    #[must_use]
    pub fn new(
        workspace: Workspace,
        session: &str,
        files: F,
        events: broadcast::Sender<ResourceEvent>,
    ) -> Self {
        let end = CancellationToken::new();
        let forwarder = forward_events(workspace.subscribe(), events.clone());
        tokio::spawn(end.clone().run_until_cancelled_owned(forwarder));
        Self { workspace, session: session.to_owned(), files, events, _forwarder: end.drop_guard() }
    }

    /// Returns the session's changes as a patch.
    async fn changes(&self) -> Result<String, String> {
        let (workspace, owner) = (self.workspace.clone(), ChangeOwner::Session(self.session.clone()));
        let selection = ChangeSelection { owner, ..ChangeSelection::default() };
        let diff = bowline_task::spawn_blocking(move || workspace.diff(&selection)).await;
        diff.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Returns the diagnostics of all files except protected ones, because diagnostics quote the file.
    fn diagnostics(&self) -> String {
        let (by_file, root) = (self.workspace.diagnostics(), self.workspace.roots().cwd());
        let is_open = |path: &str| {
            let relative = path.strip_prefix(root).unwrap_or(path);
            LexicalPath::parse(relative).is_ok_and(|path| find_protection(&path, Access::Read).is_none())
        };
        let entries = by_file.iter().map(|(path, diagnostics)| (path.as_str(), diagnostics));
        diagnostics::diagnostics_to_json(entries.filter(|(path, _)| is_open(path)))
    }
}

async fn forward_events(
    mut shared: broadcast::Receiver<WorkspaceNotification>,
    events: broadcast::Sender<ResourceEvent>,
) {
    loop {
        let event = match shared.recv().await {
            Ok(WorkspaceNotification::Document(path)) => ResourceEvent::Updated(file_uri(&path)),
            Ok(WorkspaceNotification::Documents) => ResourceEvent::ListChanged,
            Ok(WorkspaceNotification::Diagnostics(_)) => ResourceEvent::Updated(DIAGNOSTICS_URI.to_owned()),
            Ok(WorkspaceNotification::Changes | WorkspaceNotification::TextsKept) => {
                ResourceEvent::Updated(CHANGES_URI.to_owned())
            }
            Err(RecvError::Lagged(_)) => ResourceEvent::Lagged,
            Err(RecvError::Closed) => return,
        };
        // Usually there are no subscribers.
        events.send(event).ok();
    }
}

fn resource_info(uri: &str, name: &str, description: &str, mime_type: &str) -> ResourceInfo {
    ResourceInfo {
        uri: uri.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        mime_type: mime_type.to_owned(),
    }
}

/// Returns the resources that every session has.
#[must_use]
pub fn builtin_resources() -> Vec<ResourceInfo> {
    let changes = "What this session has changed and is not undone, as a patch that git reads";
    let diagnostics = "What the editor knows to be wrong, by file: ranges count lines and UTF-16 units from 0; what is stale \
                       was found before the file was changed";
    vec![
        resource_info(CHANGES_URI, "changes", changes, "text/x-diff"),
        resource_info(DIAGNOSTICS_URI, "diagnostics", diagnostics, "application/json"),
    ]
}

impl<F: FileBackend> ResourceProvider for WorkspaceResources<F> {
    fn list(&self) -> BoxFuture<'_, Vec<ResourceInfo>> {
        let mut documents = self.workspace.open_documents();
        documents.sort_by(|a, b| a.path.cmp(&b.path));
        let mut resources = builtin_resources();
        resources.extend(documents.into_iter().map(|document| {
            let name = document.path.rsplit('/').next().unwrap_or_default();
            let description = match document.is_dirty {
                true => "Open in the editor, with changes that are not saved",
                false => "Open in the editor",
            };
            resource_info(&file_uri(&document.path), name, description, "text/plain")
        }));
        Box::pin(std::future::ready(resources))
    }

    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async move {
            match uri {
                CHANGES_URI => return self.changes().await.map(Some),
                DIAGNOSTICS_URI => return Ok(Some(self.diagnostics())),
                _ => {}
            }
            let documents = self.workspace.open_documents();
            let open = documents.into_iter().find(|document| file_uri(&document.path) == uri);
            let Some(document) = open else { return Ok(None) };
            let read = self.files.read(&document.path, LineWindow::default()).await;
            read.map(|read| Some(read.text.as_str().to_owned())).map_err(|failure| failure.to_string())
        })
    }

    fn subscribe(&self) -> broadcast::Receiver<ResourceEvent> {
        self.events.subscribe()
    }
}
