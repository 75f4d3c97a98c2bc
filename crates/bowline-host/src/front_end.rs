//! How a host reaches a person: one trait, for a terminal, a window or a test.

use bowline_state::accumulator::{Change, Snapshot};
use bowline_state::changes::ChangeId;
use bowline_state::ledger::Verdict;
use bowline_state::operation::Command;
use bowline_state::question::{Question, Reply};
use bowline_state::schema::v1::{
    CreateElicitationRequest, ElicitationAction, ElicitationId, SessionId, SessionNotification, StopReason,
    TerminalId,
};
use bowline_state::terminal::Exit;
use bowline_workspace::approvals::{BoxFuture, Person};
use bowline_workspace::terminals::LocalTerminals;

/// Whoever shows a session to a person and asks for answers.
///
/// Events are told one after the other for each session, on a task of the connection: a front end that has much to do
/// passes them on.
pub trait FrontEnd: Person {
    /// Shows what happened.
    fn show(&self, event: Event<'_>);

    /// Shows how far something is that takes long: files looked at, for one.
    fn progress(&self, what: &str, done: u64) {
        let _unused = (what, done);
    }

    /// Lets a person fill in a form, or visit a page that the person has agreed to visit; `agent` is who wants it. If the agent withdraws it, this
    /// is dropped.
    ///
    /// [`Form`] and [`Page`] have what to show; the host has read them before, so that it can be done. A form that is
    /// accepted and does not pass [`Form::check`] is not sent: the agent hears that it was cancelled.
    ///
    /// [`Form`]: bowline_state::elicitation::Form
    /// [`Form::check`]: bowline_state::elicitation::Form::check
    /// [`Page`]: bowline_state::elicitation::Page
    fn elicit<'a>(
        &'a self,
        agent: Option<&'a str>,
        request: &'a CreateElicitationRequest,
    ) -> BoxFuture<'a, ElicitationAction> {
        let _unused = (agent, request);
        Box::pin(std::future::ready(ElicitationAction::Cancel))
    }
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A session was opened.
    SessionOpened {
        /// Which, as the agent names it.
        session: &'a SessionId,
        /// As journal, rules and questions name it.
        name: &'a str,
    },
    /// A session has ended.
    SessionEnded {
        /// Which.
        session: &'a SessionId,
    },
    /// An agent sent an update of its session.
    Update {
        /// The update as it came.
        notification: &'a SessionNotification,
        /// What it changed.
        change: &'a Change,
        /// The session after it.
        snapshot: Snapshot,
    },
    /// An agent sent something that the protocol does not allow; it was put aside.
    Breach {
        /// The session, if it is known.
        session: Option<&'a SessionId>,
        /// What was wrong, in words that are safe to show.
        what: &'a str,
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
        /// Why the agent stopped; none if it failed to answer.
        stop: Option<StopReason>,
        /// What was found on disk that did not pass through the host.
        observed: &'a [ChangeId],
    },
    /// A file was written through the host.
    Written {
        /// The session.
        session: &'a SessionId,
        /// The file's own name.
        path: &'a str,
        /// The change in the journal; none if the file held the text already.
        change: Option<ChangeId>,
        /// How it came about: what the agent sent may have been merged with what the user changed.
        verdict: Option<Verdict>,
    },
    /// A command was started. Its output can be watched at the session's terminals.
    TerminalStarted {
        /// The session.
        session: &'a SessionId,
        /// The terminal.
        terminal: &'a TerminalId,
        /// The command.
        command: &'a Command,
        /// The session's terminals, to watch this one.
        terminals: &'a LocalTerminals,
    },
    /// A command has ended.
    TerminalEnded {
        /// The session.
        session: &'a SessionId,
        /// The terminal.
        terminal: &'a TerminalId,
        /// How.
        exit: &'a Exit,
        /// What it changed on disk, as far as it was found.
        observed: &'a [ChangeId],
    },
    /// The page of an elicitation has done its work: a person need not wait for it any more.
    ElicitationCompleted {
        /// Which.
        id: &'a ElicitationId,
    },
    /// Something the owner of the workspace should know.
    Notice {
        /// In words.
        text: &'a str,
    },
}

/// Shows nothing and has nobody to ask: what no rule allows is denied.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Person for Quiet {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Reply> {
        Box::pin(std::future::ready(Reply::Nobody))
    }
}

impl FrontEnd for Quiet {
    fn show(&self, _: Event<'_>) {}
}
