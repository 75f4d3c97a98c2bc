//! The editor of the demo: a front end with a simulated user who answers questions.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bowline_access::approvals::{Approver, BoxFuture};
use bowline_host::{FrontEnd, HostEvent};
use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionReply};
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::Workspace;
use tokio::sync::oneshot;

/// The simulated editor and its user.
#[derive(Default)]
pub(crate) struct DemoEditor {
    // The project, once it is open.
    workspace: OnceLock<Workspace>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_denying: bool,
    // The text that the user types, and its file, while a question waits for the answer.
    pending_edit: Option<(String, String)>,
    questions: Vec<String>,
    notices: Vec<String>,
    message_sender: Option<oneshot::Sender<()>>,
}

impl DemoEditor {
    /// Sets the open project.
    pub(crate) fn set_workspace(&self, workspace: &Workspace) {
        self.workspace.get_or_init(|| workspace.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a document and types a text into it, without saving.
    pub(crate) fn type_unsaved(&self, path: &str, text: &str) -> Result<(), FilesError> {
        let Some(workspace) = self.workspace.get() else { return Ok(()) };
        let document = match workspace.document(path)? {
            Some(document) => document,
            None => workspace.open_document(path)?,
        };
        workspace.change_document(path, text.to_owned(), document.revision)?;
        Ok(())
    }

    /// Has the user type a text while the next question waits for an answer.
    pub(crate) fn type_when_asked(&self, path: &str, text: String) {
        self.state().pending_edit = Some((path.to_owned(), text));
    }

    /// Sets the user's answer from now on.
    pub(crate) fn set_answer(&self, choice: AnswerChoice) {
        self.state().is_denying = choice == AnswerChoice::Deny;
    }

    /// Returns a receiver that resolves when the agent starts to send its message.
    pub(crate) fn wait_for_message(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.state().message_sender = Some(sender);
        receiver
    }

    /// Returns the questions since the last call, as the user saw them.
    pub(crate) fn take_questions(&self) -> Vec<String> {
        std::mem::take(&mut self.state().questions)
    }

    /// Returns the notices shown to the user: the agent's protocol violations, and errors.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.state().notices.clone()
    }
}

impl Approver for DemoEditor {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        let pending_edit = {
            let mut state = self.state();
            state.questions.push(question.to_text());
            state.pending_edit.take()
        };
        if let Some((path, text)) = pending_edit
            && let Err(error) = self.type_unsaved(&path, &text)
        {
            self.state().notices.push(error.to_string());
        }
        let choice = if self.state().is_denying { AnswerChoice::Deny } else { AnswerChoice::Allow };
        Box::pin(std::future::ready(QuestionReply::answer(choice, AnswerLifetime::Once)))
    }
}

impl FrontEnd for DemoEditor {
    fn show(&self, event: HostEvent<'_>) {
        let mut state = self.state();
        match event {
            HostEvent::Violation { description, .. } => state.notices.push(description.to_owned()),
            HostEvent::Notice { text } => state.notices.push(text.to_owned()),
            HostEvent::Update { .. } => {
                if let Some(sender) = state.message_sender.take() {
                    // Only the turn that is to be cancelled waits for this.
                    sender.send(()).ok();
                }
            }
            _ => {}
        }
    }
}
