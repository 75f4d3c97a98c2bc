//! What can happen to a conversation, and what it can want done.

use std::sync::Arc;

use bowline_host::{Question, Reply};
use bowline_state::accumulator::Snapshot;
use bowline_state::policy::Preset;
use bowline_state::question::QuestionId;
use bowline_state::schema::v1::{
    CreateElicitationRequest, ElicitationAction, SessionConfigId, SessionConfigOption,
    SessionConfigOptionValue, SessionId, SessionInfo, SessionModeId, StopReason, TerminalId,
};
use bowline_state::slash::Undo;
use bowline_state::undo::Selection;
use crossterm::event::KeyEvent;

use super::changes;
use super::conversation::Tone;

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The wheel was turned, by so many lines: up if they are negative.
    Wheel(isize),
    /// Time went by.
    Tick,
    /// An agent was started, and a session opened.
    Opened(Box<Opened>),
    /// No session was opened. What was open before still is, if anything was.
    NotOpened {
        /// Why.
        why: String,
        /// Whether the agent runs.
        alive: bool,
    },
    /// What the command line asks for cannot be had, and why: there is nothing to talk about.
    Refused(String),
    /// A session stands thus now.
    Updated(SessionId, Snapshot),
    /// A prompt was sent with files, or without some that it mentions.
    Remark(Tone, String),
    /// Something is to be asked.
    Asked(Arc<Question>),
    /// It need not be answered any more.
    Withdrawn(QuestionId),
    /// A form is to be filled in, or a page to be visited.
    Elicited {
        /// Its number.
        number: u64,
        /// Who wants it.
        agent: Option<String>,
        /// What it is.
        request: Arc<CreateElicitationRequest>,
    },
    /// It need not be filled in any more.
    ElicitationWithdrawn(u64),
    /// The page of an elicitation has done its work.
    ElicitationCompleted,
    /// The turn is over: how the agent ended it, or why it failed.
    TurnEnded(Result<StopReason, String>),
    /// The agent is gone, with its last words.
    Died(String),
    /// The agent told which sessions there are.
    Sessions(Result<Vec<SessionInfo>, String>),
    /// What was changed here.
    Changes(Result<changes::Listed, String>),
    /// Changes were taken back, or not.
    TakenBack(Result<String, String>),
    /// The files of the workspace: all of them, or the first of many.
    Files {
        /// Their names; those of directories end with a `/`.
        names: Vec<String>,
        /// Whether there are more.
        truncated: bool,
    },
    /// A command of the person's own has ended: what it wrote, or why it could not be run.
    ShellEnded(Result<String, String>),
    /// The options of the session are these now.
    Options(Vec<SessionConfigOption>),
    /// The mode of the session is this now.
    Mode(SessionModeId),
    /// A command was started.
    TerminalStarted(TerminalId),
    /// A command wrote something.
    TerminalOutput(TerminalId, Vec<u8>),
    /// A command ended.
    TerminalEnded(TerminalId, String),
    /// Something is being done that takes long.
    Progress(String, u64),
}

/// A session that was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Which.
    pub(crate) session: SessionId,
    /// How the agent calls itself.
    pub(crate) agent: String,
    /// What is known of the session.
    pub(crate) snapshot: Snapshot,
    /// Whether what was shown before is to stay: the agent was started again, and cannot tell of it.
    pub(crate) goes_on: bool,
    /// What the person should know.
    pub(crate) remark: Option<String>,
    /// What the agent can do.
    pub(crate) can: Can,
}

/// What an agent can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Can {
    /// Tell which sessions there are.
    pub(crate) list: bool,
    /// Open sessions of before.
    pub(crate) reopen: bool,
}

/// What Bowline itself allows an agent, whatever that calls its own mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// What holds where no rule does.
    pub(crate) preset: Preset,
    /// Whether the command line denies what changes something.
    pub(crate) read_only: bool,
    /// How many rules there are beside that.
    pub(crate) rules: usize,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Send a prompt.
    Prompt(String),
    /// Cancel the turn.
    Cancel,
    /// End the agent: it does not end its turn.
    EndAgent,
    /// Give up opening a session: the one before stays.
    GiveUp,
    /// Answer a question.
    Answer(QuestionId, Reply),
    /// Answer an elicitation.
    Elicitation(u64, ElicitationAction),
    /// Find out what was changed here.
    ListChanges,
    /// Take changes back.
    Undo(Selection),
    /// Take back what the session changed, by turns, a file or all.
    UndoTurns(Undo),
    /// Do again what was taken back.
    Redo(Selection),
    /// Ask the agent which sessions there are.
    ListSessions,
    /// Open a session of before, or a new one, in place of this one.
    Open(Option<SessionId>),
    /// Find out which files there are.
    ListFiles,
    /// Set an option of the session.
    SetOption(SessionConfigId, SessionConfigOptionValue),
    /// Set the mode of the session.
    SetMode(SessionModeId),
    /// Start the agent again, with the session that was open or a new one.
    Restart(Restart),
    /// Run a command of the person's own.
    RunShell(String),
    /// End it.
    EndShell,
    /// Let the person write the prompt in an editor.
    Edit,
    /// Make a sound.
    Bell,
    /// Leave.
    Quit,
}

/// What an agent is started again for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    /// The session that was open.
    SameSession,
    /// A new one.
    NewSession,
}
