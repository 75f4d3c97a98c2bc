//! One MCP session: its place, what its model has seen of the files there, and its commands.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::failure::Failure;
use bowline_state::ledger::Ledger;
use bowline_state::paths::{LexicalPath, PathFault};
use bowline_state::tooling::deciding::Told as Heard;
use bowline_state::tooling::input::Fields;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncGuard, Semaphore};
use tokio_util::sync::CancellationToken;

use super::DeniedTool;
use super::commands::{self, Book};
use super::resources::MAX_SUBSCRIBED;
use super::specs::Does;
use super::told::{Done, failure};
use super::{Place, Settings, looking, reading, writing};

/// So many calls of a session are under way at once; others are refused.
const MAX_CALLS: usize = 64;

/// So many locks keep changes of one file apart. Two files may share one.
const LOCKS: usize = 64;

/// One MCP session.
pub(crate) struct Session<P: Place> {
    pub(crate) place: P,
    pub(crate) settings: Arc<Settings>,
    pub(crate) book: Book,
    known: Mutex<(Ledger, Heard)>,
    locks: Vec<AsyncMutex<()>>,
    // Invariant: at most `MAX_SUBSCRIBED`.
    subscribed: Mutex<BTreeSet<String>>,
    calls: Semaphore,
    closed: CancellationToken,
}

/// Who calls, and how they are told how far it is.
pub(crate) struct Calling {
    /// The request, as the client names it.
    pub(crate) id: String,
    pub(crate) progress: Option<(Peer<RoleServer>, ProgressToken)>,
}

impl Calling {
    /// Tells how far a call is. That nobody hears it does not matter.
    pub(crate) async fn progress(&self, done: f64, total: f64, message: String) {
        let Some((peer, token)) = &self.progress else { return };
        let mut progress = ProgressNotificationParam::new(token.clone(), done);
        (progress.total, progress.message) = (Some(total), Some(message));
        peer.notify_progress(progress).await.ok();
    }
}

impl<P: Place> Session<P> {
    pub(crate) fn new(place: P, settings: Arc<Settings>) -> Self {
        Self {
            place,
            settings,
            book: Book::default(),
            known: Mutex::default(),
            locks: (0..LOCKS).map(|_| AsyncMutex::default()).collect(),
            subscribed: Mutex::default(),
            calls: Semaphore::new(MAX_CALLS),
            closed: CancellationToken::new(),
        }
    }

    /// Does what a call asks for.
    pub(crate) async fn call(self: &Arc<Self>, does: Does, fields: Fields<'_>, calling: Calling) -> Done {
        let Ok(_place) = self.calls.try_acquire() else {
            let text =
                format!("{MAX_CALLS} calls are under way already: wait for one of them, then call again");
            return Done::failed(text);
        };
        let done = match does {
            Does::Read => reading::read(self, fields).await,
            Does::Write => writing::write(self, fields, &calling).await,
            Does::Edit => writing::edit(self, fields, &calling).await,
            Does::List => looking::list(self, fields).await,
            Does::Search => looking::search(self, fields).await,
            Does::Execute => commands::execute(self, fields, &calling).await,
            Does::Output => commands::output(self, fields).await,
            Does::Kill => commands::kill(self, fields).await,
        };
        done.unwrap_or_else(Done::failed)
    }

    /// Returns an absolute path; a relative one starts from the place's root.
    pub(crate) fn resolve(&self, path: &str) -> Result<LexicalPath, String> {
        let parsed = match LexicalPath::parse(path) {
            Err(PathFault::Relative(path)) => LexicalPath::parse(format!("{}/{path}", self.place.root())),
            parsed => parsed,
        };
        parsed.map_err(|fault| fault.to_string())
    }

    /// Returns a path as a person in the root would name it.
    pub(crate) fn shown<'p>(&self, path: &'p str) -> &'p str {
        let root = self.place.root();
        if path == root {
            return ".";
        }
        path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path)
    }

    /// Returns a failure as the model reads it.
    pub(crate) fn told(&self, tool: &DeniedTool<'_>, about: &str, why: &Failure) -> String {
        failure(self.settings.advise.as_ref(), Some(tool), about, why)
    }

    /// Uses what the model knows of files.
    pub(crate) fn knows<T>(&self, act: impl FnOnce(&mut Ledger, &mut Heard) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (ledger, heard) = &mut *known;
        act(ledger, heard)
    }

    /// Waits until nobody else changes the file.
    pub(crate) async fn alone(&self, path: &str) -> Option<AsyncGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default();
        match self.locks.get(at) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    fn subscribed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the client wants to hear of changes of a resource; says whether there is room.
    pub(crate) fn subscribe(&self, uri: String) -> bool {
        let mut subscribed = self.subscribed();
        subscribed.contains(&uri) || (subscribed.len() < MAX_SUBSCRIBED && subscribed.insert(uri))
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        self.subscribed().remove(uri);
    }

    pub(crate) fn subscriptions(&self) -> Vec<String> {
        self.subscribed().iter().cloned().collect()
    }

    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        self.subscribed().contains(uri)
    }

    /// Waits until the session is over.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Ends the session: nothing that it started runs on.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        self.book.release_all(self.place.terminals()).await;
        self.place.close().await;
    }
}
