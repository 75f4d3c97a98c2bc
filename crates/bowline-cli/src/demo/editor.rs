//! The editor of the demo: a host on a project, and a person who answers.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bowline_host::{Event, FrontEnd};
use bowline_state::question::{Choice, Keep, Question, Reply};
use bowline_workspace::approvals::{BoxFuture, Person};
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::Workspace;
use tokio::sync::oneshot;

/// What a person sees and does.
#[derive(Default)]
pub(crate) struct Editor {
    // The project, once it is open.
    workspace: OnceLock<Workspace>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    refuses: bool,
    // What the person types, and where, while a question waits for the answer.
    typing: Option<(String, String)>,
    asked: Vec<String>,
    notices: Vec<String>,
    speaking: Option<oneshot::Sender<()>>,
}

impl Editor {
    /// Shows a project.
    pub(crate) fn shows(&self, workspace: &Workspace) {
        self.workspace.get_or_init(|| workspace.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a document and types a text into it, without saving.
    pub(crate) fn type_unsaved(&self, path: &str, text: &str) -> Result<(), FilesError> {
        let Some(workspace) = self.workspace.get() else { return Ok(()) };
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

    /// Decides how the person answers from now on.
    pub(crate) fn answers(&self, choice: Choice) {
        self.state().refuses = choice == Choice::Deny;
    }

    /// Returns what tells that the agent has begun to speak.
    pub(crate) fn speaking(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.state().speaking = Some(sender);
        receiver
    }

    /// Returns the questions since this was last called, as the person saw them.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    /// Returns what the person was told of: what the agent did that the protocol forbids, and what went wrong.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.state().notices.clone()
    }
}

impl Person for Editor {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        let typing = {
            let mut state = self.state();
            state.asked.push(question.text());
            state.typing.take()
        };
        if let Some((path, text)) = typing
            && let Err(error) = self.type_unsaved(&path, &text)
        {
            self.state().notices.push(error.to_string());
        }
        let choice = if self.state().refuses { Choice::Deny } else { Choice::Allow };
        Box::pin(std::future::ready(Reply::answer(choice, Keep::Once)))
    }
}

impl FrontEnd for Editor {
    fn show(&self, event: Event<'_>) {
        let mut state = self.state();
        match event {
            Event::Breach { what, .. } => state.notices.push(what.to_owned()),
            Event::Notice { text } => state.notices.push(text.to_owned()),
            Event::Update { .. } => {
                if let Some(speaking) = state.speaking.take() {
                    // Only the turn that is to be cancelled waits for this.
                    speaking.send(()).ok();
                }
            }
            _ => {}
        }
    }
}
