//! The client of the demo: a small editor with a project on disk, unsaved documents and a person who answers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_state::accumulator::{SessionAccumulator, Snapshot};
use bowline_state::failure::Failure;
use bowline_state::lines::{self, Window};
use bowline_state::paths::{Access, LexicalPath, Roots};
use bowline_state::permission::{self, Decision};
use bowline_wire::schema::v1::{
    Error, ReadTextFileRequest, ReadTextFileResponse, RequestPermissionRequest, RequestPermissionResponse,
    SessionNotification, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_wire::{AgentHandle, Client, ClientContext};

/// An editor with one project open.
pub(crate) struct Editor {
    roots: Roots,
    state: Mutex<State>,
}

struct State {
    /// The unsaved text of open documents.
    documents: HashMap<PathBuf, String>,
    session: SessionAccumulator,
    person: Decision,
    asked: Vec<RequestPermissionRequest>,
    breaches: Vec<String>,
    waiting: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Editor {
    pub(crate) fn new(roots: Roots, person: Decision) -> Self {
        let state = State {
            documents: HashMap::new(),
            session: SessionAccumulator::new(),
            person,
            asked: Vec::new(),
            breaches: Vec::new(),
            waiting: None,
        };
        Editor { roots, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a document and types a text into it, without saving.
    pub(crate) fn type_unsaved(&self, path: PathBuf, text: &str) {
        self.state().documents.insert(path, text.to_owned());
    }

    /// Decides how the person answers from now on.
    pub(crate) fn person_says(&self, decision: Decision) {
        self.state().person = decision;
    }

    /// Starts a turn and returns what tells that the agent has begun to speak in it.
    pub(crate) fn turn(&self) -> tokio::sync::oneshot::Receiver<()> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut state = self.state();
        state.session.turn_boundary();
        state.waiting = Some(sender);
        receiver
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.state().session.snapshot()
    }

    /// How often the person was asked.
    pub(crate) fn questions(&self) -> usize {
        self.state().asked.len()
    }

    /// What the agent did that the protocol forbids.
    pub(crate) fn breaches(&self) -> Vec<String> {
        self.state().breaches.clone()
    }

    fn admit(&self, path: &std::path::Path, access: Access) -> Result<PathBuf, Failure> {
        let path = LexicalPath::parse(path)?;
        Ok(PathBuf::from(self.roots.admit(&path, access)?.path().as_str()))
    }
}

impl Client for Editor {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let mut state = self.state();
        let outcome =
            permission::answer(&request.options, state.person).map_err(Error::into_internal_error)?;
        state.asked.push(request);
        Ok(RequestPermissionResponse::new(outcome))
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        let mut state = self.state();
        if let Err(breach) = state.session.apply(&notification) {
            state.breaches.push(breach.to_string());
        }
        if let Some(waiting) = state.waiting.take() {
            // Only the turn that is to be cancelled waits for this.
            waiting.send(()).ok();
        }
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        _: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        let path = self.admit(&request.path, Access::Read)?;
        let unsaved = self.state().documents.get(&path).cloned();
        let text = match unsaved {
            Some(text) => text,
            None => {
                tokio::fs::read_to_string(&path).await.map_err(|error| unreadable(&request.path, &error))?
            }
        };
        let window = Window { line: request.line, limit: request.limit };
        let text = lines::slice(&text, window).map_err(Failure::from)?;
        Ok(ReadTextFileResponse::new(text))
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        _: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        let path = self.admit(&request.path, Access::Write)?;
        tokio::fs::write(&path, &request.content).await.map_err(|error| unreadable(&request.path, &error))?;
        // What was unsaved is saved now.
        self.state().documents.remove(&path);
        Ok(WriteTextFileResponse::new())
    }

    fn breach(&self, breach: bowline_wire::peer::Breach) {
        self.state().breaches.push(breach.to_string());
    }
}

fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure::ResourceNotFound { uri: Some(path.display().to_string()) },
        kind => Failure::Internal { reason: format!("{}: {kind}", path.display()) },
    }
}
