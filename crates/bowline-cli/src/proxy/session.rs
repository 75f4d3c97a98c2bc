//! One session beside the editor's: what the proxy asks of it, done by a session of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_host::LocalSession;
use bowline_mcp::server::{CHANGES, News, Resources, Shelf};
use bowline_proxy::{Act, Again, BoxFuture, EditorWrites, EngineSession, Judged, Recorded};
use bowline_state::accumulator::ToolCallView;
use bowline_state::changes::{ChangeId, Reversal};
use bowline_state::diagnostics::Diagnostic;
use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::merge::Conflict;
use bowline_state::schema::v1::{Error, PermissionOption, RequestPermissionOutcome, ToolCallId};
use bowline_state::undo::Selection;
use bowline_state::unsaved;
use bowline_state::watching::{Found, Owners, Place};
use bowline_workspace::files::Files;
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace::Workspace;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, broadcast};

use super::asking::Desk;
use super::engine::say;
use super::serving;

/// So much news waits for a client that does not take it; then it is told to look at everything.
const MAX_NEWS: usize = 256;

/// A session beside the editor's.
pub(super) struct Beside {
    session: LocalSession,
    workspace: Workspace,
    asked: String,
    desk: Arc<Desk>,
    over: AtomicBool,
    shelf: Arc<Shelf<LocalSession>>,
    news: broadcast::Sender<News>,
    // One place: a change that is put back and neither written nor done again has it.
    routing: Arc<Semaphore>,
}

impl Beside {
    pub(super) fn new(session: LocalSession, workspace: Workspace, asked: String, desk: Arc<Desk>) -> Self {
        let news = broadcast::Sender::new(MAX_NEWS);
        let shelf = Shelf::new(workspace.clone(), session.name(), session.clone(), news.clone());
        Self {
            session,
            workspace,
            asked,
            desk,
            over: AtomicBool::new(false),
            shelf: Arc::new(shelf),
            news,
            routing: Arc::new(Semaphore::new(1)),
        }
    }

    /// Begins to look at what is there, so that the first turn need not wait for it.
    pub(super) fn starts(&self) {
        let session = self.session.clone();
        tokio::spawn(async move {
            if let Err(error) = session.starts_looking().await {
                say(&error.to_string());
            }
        });
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends it, once what was changed last is recorded, and what was put back is there again.
    pub(super) async fn end(&self) {
        if self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        let _routed = self.routing.acquire().await;
        found(self.session.turn_ends(None, |_| None).await);
        self.desk.leaves(self.session.name());
        self.session.end().await;
    }
}

/// Returns what was found; that nothing could be is said.
fn found(found: Result<Vec<Found>, bowline_host::HostError>) -> Vec<Found> {
    found.unwrap_or_else(|error| {
        say(&error.to_string());
        Vec::new()
    })
}

/// Tells that the session has changed something. That nobody listens is usual.
fn tell(news: &broadcast::Sender<News>) {
    news.send(News::Updated(CHANGES.to_owned())).ok();
}

/// Returns what was found, and tells of it.
fn told(news: &broadcast::Sender<News>, found: Vec<Found>) -> Vec<Found> {
    if !found.is_empty() {
        tell(news);
    }
    found
}

fn whose(owners: Owners) -> impl Fn(&str) -> Option<String> + Send + 'static {
    move |path| owners.of(path).map(|call| call.0.to_string())
}

/// Returns what a file holds on disk; none if there is no such file.
async fn on_disk(session: &LocalSession, path: &str) -> Result<Option<String>, Failure> {
    let (files, asked) = (session.files().clone(), path.to_owned());
    let read = tokio::task::spawn_blocking(move || files.read(&asked, Window::default())).await;
    let read = read.map_err(|ended| Failure::Internal { reason: ended.to_string() })?;
    match read.map_err(Failure::from) {
        Ok(read) => Ok(Some(read.text.as_str().to_owned())),
        Err(Failure::ResourceNotFound { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn conflicting(path: &str, conflict: &Conflict) -> Failure {
    let why = "the user has typed in the same lines, and not saved: read the file through the editor, and write again";
    let hunks = conflict.hunks.clone();
    Failure::Conflict { path: path.to_owned(), why: why.to_owned(), hunks }
}

impl EngineSession for Beside {
    fn place(&self) -> Place {
        Place { asked: self.asked.clone(), own: self.session.files().roots().cwd().to_owned() }
    }

    fn turn_begins(&self, prompt: Option<String>) -> BoxFuture<()> {
        let session = self.session.clone();
        Box::pin(async move {
            match (session.turn_begins().await, prompt) {
                (Err(error), _) => say(&error.to_string()),
                (Ok(turn), Some(prompt)) => {
                    let files = session.files();
                    files.workspace().record_turn_title(session.name(), turn, &prompt);
                }
                (Ok(_), None) => {}
            }
        })
    }

    fn turn_ends(&self, owners: Owners) -> BoxFuture<Vec<Found>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move { told(&news, found(session.turn_ends(None, whose(owners)).await)) })
    }

    fn cancels(&self) -> BoxFuture<()> {
        let session = self.session.clone();
        Box::pin(async move { session.cancels().await })
    }

    fn looks(&self, owners: Owners) -> BoxFuture<Vec<Found>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move { told(&news, found(session.looks(whose(owners)).await)) })
    }

    fn judges(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> BoxFuture<Result<Judged, Failure>> {
        let session = self.session.clone();
        Box::pin(async move { session.judges(call, options).await })
    }

    fn permitted(&self, call: ToolCallId, outcome: RequestPermissionOutcome) -> BoxFuture<()> {
        let session = self.session.clone();
        Box::pin(async move {
            if let Err(failure) = session.permitted(&call, outcome).await {
                say(&failure.to_string());
            }
        })
    }

    fn left_to_tool(&self, call: ToolCallId) -> BoxFuture<()> {
        let session = self.session.clone();
        Box::pin(async move {
            if let Err(failure) = session.left_to_tool(&call).await {
                say(&failure.to_string());
            }
        })
    }

    fn lets(&self, act: Act, call: Option<String>) -> BoxFuture<Result<(), Failure>> {
        let session = self.session.clone();
        Box::pin(async move { session.lets(act, call.as_deref()).await })
    }

    fn editor_writes(&self, write: EditorWrites) -> BoxFuture<Result<Recorded, Failure>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move {
            let EditorWrites { path, had, wants, has_read, call } = write;
            let text = match &had {
                // The agent knows what the disk has, and not what is typed.
                Some(had) if !has_read => {
                    let base = on_disk(&session, &path).await?;
                    let merged = unsaved::merged(&base.unwrap_or_default(), had, &wants);
                    merged.map_err(|conflict| conflicting(&path, &conflict))?.text(wants)
                }
                _ => wants,
            };
            let turn = session.turn();
            let recorded = session.editor_writes(&path, had, text.clone(), turn, call.as_deref()).await?;
            tell(&news);
            let undone = Box::pin(async move {
                if let Err(failure) = session.editor_did_not_write(recorded, turn, call.as_deref()).await {
                    say(&failure.to_string());
                }
                tell(&news);
            });
            Ok(Recorded { text, undone })
        })
    }

    fn puts_back(&self, change: ChangeId) -> BoxFuture<Option<Again>> {
        let (files, turn) = (self.session.files().clone(), self.session.turn());
        let routing = self.routing.clone();
        Box::pin(async move {
            let place = routing.acquire_owned().await.ok()?;
            let change = Some(Reversal { change, hunks: None });
            let selection = Selection { change, ..Selection::default() };
            let origin = files.origin(turn, None);
            let (its, what, who) = (files.clone(), selection.clone(), origin.clone());
            let undone = tokio::task::spawn_blocking(move || its.undo(&what, &who)).await;
            if let Ok(Err(error)) = &undone {
                say(&format!(
                    "a change stays as the agent made it, and is not sent through the editor: {error}"
                ));
            }
            let path = undone.ok()?.ok()?.files.into_iter().next().map(|file| file.path).unwrap_or_default();
            let again: Again = Box::new(move |why| {
                Box::pin(async move {
                    let _until_done = place;
                    let redone = tokio::task::spawn_blocking(move || files.redo(&selection, &origin)).await;
                    match redone {
                        Ok(Err(error)) => say(&format!(
                            "what the agent wrote to {path} did not go through the editor: {why}. It is in the journal \
                             (`bowline redo`): {error}"
                        )),
                        // That of a program that is ending is done or in the journal.
                        Ok(Ok(_)) | Err(_) => say(&format!(
                            "what the agent wrote to {path} did not go through the editor: {why}. The file is as the agent \
                             made it (`bowline undo` takes that back)"
                        )),
                    }
                })
            });
            Some(again)
        })
    }

    fn serves(
        &self,
        method: String,
        params: Box<RawValue>,
        call: Option<String>,
    ) -> BoxFuture<Result<Box<RawValue>, Error>> {
        let (session, news) = (self.session.clone(), self.news.clone());
        Box::pin(async move {
            let may_change = serving::may_change(&method);
            let served = serving::serve(session, method, params, call).await;
            if may_change && served.is_ok() {
                tell(&news);
            }
            served
        })
    }

    fn lists(&self, path: String, options: ListOptions) -> BoxFuture<Result<Listing, Failure>> {
        let session = self.session.clone();
        Box::pin(async move { session.list(&path, options).await })
    }

    fn searches(
        &self,
        query: SearchQuery,
        below: Option<String>,
    ) -> BoxFuture<Result<SearchResult, Failure>> {
        let session = self.session.clone();
        Box::pin(async move { session.search(query, below).await })
    }

    fn diagnosed(&self, path: String, diagnostics: Vec<Diagnostic>) -> BoxFuture<()> {
        let workspace = self.workspace.clone();
        Box::pin(async move {
            let shared =
                tokio::task::spawn_blocking(move || workspace.share_diagnostics(&path, diagnostics)).await;
            // An editor has files open that are none of this project.
            shared.map_or_else(drop, drop);
        })
    }

    fn shelf(&self) -> Arc<dyn Resources> {
        self.shelf.clone()
    }

    fn ends(&self) -> BoxFuture<()> {
        // What ends a session is done to its end, whoever waits for it.
        let (session, desk) = (self.session.clone(), self.desk.clone());
        let is_first = !self.over.swap(true, Ordering::Relaxed);
        Box::pin(async move {
            if is_first {
                found(session.turn_ends(None, |_| None).await);
                desk.leaves(session.name());
                session.end().await;
            }
        })
    }
}
