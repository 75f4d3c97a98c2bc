//! The client of the demo: a small editor with a project on disk, unsaved documents and a person who answers.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_state::accumulator::{SessionAccumulator, Snapshot};
use bowline_state::failure::Failure;
use bowline_state::ledger::Verdict;
use bowline_state::lines::Window;
use bowline_state::paths::PathFault;
use bowline_state::permission::{self, Decision};
use bowline_wire::schema::v1::{
    Error, ReadTextFileRequest, ReadTextFileResponse, RequestPermissionRequest, RequestPermissionResponse,
    SessionNotification, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_wire::{AgentHandle, Client, ClientContext};
use bowline_workspace::error::FilesError;
use bowline_workspace::files::{Asker, Files, LocalFiles};
use bowline_workspace::workspace::Session;

/// An editor with one project open.
pub(crate) struct Editor {
    files: LocalFiles,
    state: Mutex<State>,
}

struct State {
    session: SessionAccumulator,
    person: Decision,
    // What the person types, and where, while a question waits for the answer.
    typing: Option<(String, String)>,
    asked: Vec<RequestPermissionRequest>,
    breaches: Vec<String>,
    waiting: Option<tokio::sync::oneshot::Sender<()>>,
    turn: u64,
    verdict: Option<Verdict>,
}

impl Editor {
    pub(crate) fn new(files: Session, person: Decision) -> Self {
        let state = State {
            session: SessionAccumulator::new(),
            person,
            typing: None,
            asked: Vec::new(),
            breaches: Vec::new(),
            waiting: None,
            turn: 0,
            verdict: None,
        };
        Editor { files: LocalFiles::new(files), state: Mutex::new(state) }
    }

    /// Returns the project's files as the agent's session sees them.
    pub(crate) fn files(&self) -> &Session {
        self.files.session()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a document and types a text into it, without saving.
    pub(crate) fn type_unsaved(&self, path: &str, text: &str) -> Result<(), FilesError> {
        let workspace = self.files().workspace();
        let shown = match workspace.document(path)? {
            Some(shown) => shown,
            None => workspace.open_document(path)?,
        };
        workspace.change_document(path, text.to_owned(), shown.revision)?;
        Ok(())
    }

    /// Lets the person type a text while the next question waits for an answer.
    pub(crate) fn type_when_asked(&self, path: &str, text: String) {
        self.state().typing = Some((path.to_owned(), text));
    }

    /// How the last write came about.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.state().verdict
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
        state.turn += 1;
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
}

impl Client for Editor {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let typing = self.state().typing.take();
        if let Some((path, text)) = typing {
            self.type_unsaved(&path, &text).map_err(Failure::from)?;
        }
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
        let window = Window { line: request.line, limit: request.limit };
        let read = self.files.read(text_of(&request.path)?, window).await?;
        Ok(ReadTextFileResponse::new(read.text.as_str()))
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        _: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        let asker = Asker { turn: Some(self.state().turn), call: None };
        let written = self.files.write(text_of(&request.path)?, request.content, &asker).await?;
        self.state().verdict = written.verdict;
        Ok(WriteTextFileResponse::new())
    }

    fn breach(&self, breach: bowline_wire::peer::Breach) {
        self.state().breaches.push(breach.to_string());
    }
}

/// Returns the path as text, which every path of the protocol is.
fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| PathFault::NotUtf8.into())
}
