//! The events and actions of a conversation.

use std::sync::Arc;

use bowline_conversation::slash_command::UndoTarget;
use bowline_history::undo::ChangeSelection;
use bowline_host::{Question, QuestionReply};
use bowline_policy::policy::Preset;
use bowline_policy::question::QuestionId;
use bowline_protocol::accumulator::SessionSnapshot;
use bowline_protocol::schema::v1::{
    CreateElicitationRequest, ElicitationAction, SessionConfigId, SessionConfigOption,
    SessionConfigOptionValue, SessionId, SessionInfo, SessionModeId, StopReason, TerminalId,
};
use crossterm::event::KeyEvent;

use crate::panes::changes;
use crate::panes::conversation::NoteLevel;

/// An event.
#[derive(Debug)]
pub(crate) enum ChatEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The wheel was turned by some lines; negative is up.
    MouseWheel(isize),
    /// Time has passed.
    Tick,
    /// An agent was started and a session opened.
    SessionOpened(Box<OpenedChatSession>),
    /// No session was opened. A previously open session stays open.
    SessionOpenFailed {
        /// The reason.
        reason: String,
        /// Whether the agent is running.
        is_agent_running: bool,
    },
    /// The command line's request cannot be met, with the reason: the conversation cannot start.
    StartRefused(String),
    /// The new snapshot of a session.
    SessionUpdated(SessionId, SessionSnapshot),
    /// A note, such as on files that were attached to a prompt or could not be.
    Note(NoteLevel, String),
    /// A permission question for the user.
    PermissionRequested(Arc<Question>),
    /// The question no longer needs an answer.
    PermissionWithdrawn(QuestionId),
    /// A form to fill in or a page to visit.
    ElicitationRequested {
        /// Its number.
        id: u64,
        /// The agent that asks.
        agent: Option<String>,
        /// The request.
        request: Arc<CreateElicitationRequest>,
    },
    /// The elicitation no longer needs an answer.
    ElicitationWithdrawn(u64),
    /// The page of an elicitation has completed.
    ElicitationCompleted,
    /// The turn has ended: the agent's stop reason, or the error.
    TurnEnded(Result<StopReason, String>),
    /// The agent has exited, with its last output.
    AgentExited(String),
    /// The agent's list of sessions.
    SessionsListed(Result<Vec<SessionInfo>, String>),
    /// The changes made here.
    ChangesListed(Result<changes::RecentChanges, String>),
    /// An undo or redo has finished, with its result.
    UndoFinished(Result<String, String>),
    /// The files of the workspace: all of them, or the first ones.
    FilesListed {
        /// Their names; those of directories end with a `/`.
        names: Vec<String>,
        /// Whether there are more.
        truncated: bool,
    },
    /// The user's shell command has ended: its output, or why it could not be run.
    ShellEnded(Result<String, String>),
    /// The new options of the session.
    ConfigOptionsChanged(Vec<SessionConfigOption>),
    /// The new mode of the session.
    ModeChanged(SessionModeId),
    /// A terminal command has started.
    TerminalStarted(TerminalId),
    /// A terminal command has written output.
    TerminalOutput(TerminalId, Vec<u8>),
    /// A terminal command has ended.
    TerminalEnded(TerminalId, String),
    /// Progress of a long operation.
    Progress(String, u64),
}

/// A session that was opened.
#[derive(Debug)]
pub(crate) struct OpenedChatSession {
    /// Its id.
    pub(crate) session: SessionId,
    /// The agent's name for itself.
    pub(crate) agent: String,
    /// The session's state.
    pub(crate) snapshot: SessionSnapshot,
    /// Whether the items shown before stay: the agent was restarted and cannot replay them.
    pub(crate) keeps_transcript: bool,
    /// A note for the user.
    pub(crate) note: Option<String>,
    /// What the agent can do.
    pub(crate) session_features: SessionFeatures,
}

/// What an agent can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionFeatures {
    /// It can list its sessions.
    pub(crate) can_list: bool,
    /// It can reopen earlier sessions.
    pub(crate) can_reopen: bool,
}

/// What Bowline itself allows an agent, independent of the agent's own mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PermissionSummary {
    /// The preset that applies where no rule does.
    pub(crate) preset: Preset,
    /// Whether the command line denies all changes.
    pub(crate) is_read_only: bool,
    /// The number of rules.
    pub(crate) rule_count: usize,
}

/// An action to carry out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ChatAction {
    /// Send a prompt.
    SendPrompt(String),
    /// Cancel the turn.
    CancelTurn,
    /// End the agent, because it does not end its turn.
    EndAgent,
    /// Stop opening a session: the previous one stays.
    AbandonOpening,
    /// Answer a question.
    AnswerPermission(QuestionId, QuestionReply),
    /// Answer an elicitation.
    AnswerElicitation(u64, ElicitationAction),
    /// List the changes made here.
    ListChanges,
    /// Undo changes.
    Undo(ChangeSelection),
    /// Undo the session's changes: by turns, one file or all.
    UndoTurns(UndoTarget),
    /// Redo undone changes.
    Redo(ChangeSelection),
    /// Ask the agent for its sessions.
    ListSessions,
    /// Open an earlier session, or a new one, in place of this one.
    OpenSession(Option<SessionId>),
    /// List the workspace's files.
    ListFiles,
    /// Set an option of the session.
    SetOption(SessionConfigId, SessionConfigOptionValue),
    /// Set the mode of the session.
    SetMode(SessionModeId),
    /// Restart the agent, with the session that was open or a new one.
    Restart(RestartTarget),
    /// Run the user's shell command.
    RunShell(String),
    /// End the shell command.
    EndShell,
    /// Open the prompt in an editor.
    OpenEditor,
    /// Ring the terminal bell.
    RingBell,
    /// Quit.
    Quit,
}

/// The session that a restarted agent opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartTarget {
    /// The session that was open.
    SameSession,
    /// A new one.
    NewSession,
}
