//! The interface between a host and its user: one trait, for a terminal, a window or a test.

use bowline_access::approvals::{Approver, BoxFuture};
use bowline_history::changes::ChangeId;
use bowline_history::ledger::WriteVerdict;
use bowline_policy::operation::CommandSpec;
use bowline_policy::question::{Question, QuestionReply};
use bowline_protocol::accumulator::{SessionChange, SessionSnapshot};
use bowline_protocol::schema::v1::{
    CreateElicitationRequest, ElicitationAction, ElicitationId, SessionId, SessionNotification, StopReason,
    TerminalId,
};
use bowline_protocol::terminal::CommandExit;
use bowline_workspace::terminals::LocalTerminals;

/// A front end, which shows sessions to the user and asks for answers.
///
/// The events of a session arrive one after the other, on a task of the connection: a front end with much work to do
/// should hand them off.
pub trait FrontEnd: Approver {
    /// Shows an event.
    fn show(&self, event: HostEvent<'_>);

    /// Shows the progress of a long operation, such as the number of files scanned; `None` when it has ended.
    fn show_progress(&self, activity: &str, done: Option<u64>) {
        let _unused = (activity, done);
    }

    /// Lets the user fill in a form, or visit a page that the user has agreed to visit; `agent` is the agent that asks.
    /// If the agent withdraws the request, the future is dropped.
    ///
    /// [`Form`] and [`ElicitationUrl`] describe what to show; the host has parsed them before, so this succeeds. An
    /// accepted form that does not pass [`Form::check`] is not sent: the agent receives a cancellation.
    ///
    /// [`Form`]: bowline_protocol::elicitation::Form
    /// [`Form::check`]: bowline_protocol::elicitation::Form::check
    /// [`ElicitationUrl`]: bowline_protocol::elicitation::ElicitationUrl
    fn elicit<'a>(
        &'a self,
        agent: Option<&'a str>,
        request: &'a CreateElicitationRequest,
    ) -> BoxFuture<'a, ElicitationAction> {
        let _unused = (agent, request);
        Box::pin(std::future::ready(ElicitationAction::Cancel))
    }
}

/// An event for the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostEvent<'a> {
    /// A session was opened.
    SessionOpened {
        /// The agent's id of the session.
        session: &'a SessionId,
        /// Its name in the journal, in rules and in questions.
        name: &'a str,
    },
    /// A session has ended.
    SessionEnded {
        /// The session.
        session: &'a SessionId,
    },
    /// An agent sent an update of its session.
    Update {
        /// The update as received.
        notification: &'a SessionNotification,
        /// The change that it made.
        change: &'a SessionChange,
        /// The session after it.
        snapshot: SessionSnapshot,
    },
    /// An agent sent a message that the protocol does not allow; it was not applied.
    Violation {
        /// The session, if it is known.
        session: Option<&'a SessionId>,
        /// A description that is safe to display.
        description: &'a str,
    },
    /// A turn has begun.
    TurnStarted {
        /// The session.
        session: &'a SessionId,
        /// The turn, counted from 1.
        turn: u64,
    },
    /// A turn has ended.
    TurnEnded {
        /// The session.
        session: &'a SessionId,
        /// The turn.
        turn: u64,
        /// Why the agent stopped; `None` if it failed to answer.
        stop: Option<StopReason>,
        /// Changes found on disk that did not pass through the host.
        observed: &'a [ChangeId],
    },
    /// A file was written through the host.
    FileWritten {
        /// The session.
        session: &'a SessionId,
        /// The canonical path of the file.
        path: &'a str,
        /// The change in the journal; `None` if the file already held the text.
        change: Option<ChangeId>,
        /// How the text came about: the agent's text may have been merged with the user's changes.
        verdict: Option<WriteVerdict>,
    },
    /// A command was started. Its output can be followed at the session's terminals.
    TerminalStarted {
        /// The session.
        session: &'a SessionId,
        /// The terminal.
        terminal: &'a TerminalId,
        /// The command.
        command: &'a CommandSpec,
        /// The session's terminals, to follow this one.
        terminals: &'a LocalTerminals,
    },
    /// A command has ended.
    TerminalEnded {
        /// The session.
        session: &'a SessionId,
        /// The terminal.
        terminal: &'a TerminalId,
        /// How it ended.
        exit: &'a CommandExit,
        /// The changes on disk attributed to it.
        observed: &'a [ChangeId],
    },
    /// The page of an elicitation is complete: the user need not wait for it any more.
    ElicitationCompleted {
        /// The elicitation.
        id: &'a ElicitationId,
    },
    /// A notice for the owner of the workspace.
    Notice {
        /// The text.
        text: &'a str,
    },
}

/// A front end that shows nothing and has no user to ask: operations that no rule allows are denied.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuietFrontEnd;

impl Approver for QuietFrontEnd {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, QuestionReply> {
        Box::pin(std::future::ready(QuestionReply::NoUser))
    }
}

impl FrontEnd for QuietFrontEnd {
    fn show(&self, _: HostEvent<'_>) {}
}
