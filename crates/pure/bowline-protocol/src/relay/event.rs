//! The events that a proxy extracts from messages that matter to it.
//!
//! A message that cannot be parsed produces no event and is forwarded: rejecting it is up to its recipient. A request
//! that rules may have to evaluate produces an event even if its params cannot be parsed.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    AgentCapabilities, ClientCapabilities, InitializeRequest, InitializeResponse, RequestId, SessionId,
    ToolCallId, ToolCallStatus,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::Method;
use crate::diagnostics;

/// The content of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum RelayEvent {
    /// The editor sends `initialize` with its capabilities.
    Initialize(Box<ClientCapabilities>),
    /// The agent answers with its capabilities.
    Initialized(Box<AgentCapabilities>),
    /// The editor opens a session: `session/new`, `load`, `resume` or `fork`.
    SessionOpening(SessionOpening),
    /// The agent has opened it.
    SessionOpened(RelayedSession),
    /// The agent did not open it.
    SessionNotOpened(SessionOpening),
    /// A turn begins: `session/prompt`.
    TurnStarted(SessionId),
    /// A turn has ended, with an answer or with an error.
    TurnEnded(SessionId),
    /// The agent announces or updates a tool call.
    ToolCall(ToolCallMessage),
    /// The agent asks the user for permission.
    PermissionRequested(SessionId, ToolCallId),
    /// The user's answer to that request, possibly an error.
    PermissionAnswered(SessionId, ToolCallId),
    /// The agent asks for a file or a terminal of the editor, or for the proxy's MCP server. A read carries its
    /// details.
    AgentRequest(Method, Option<SessionId>, Option<FileRead>),
    /// The editor cancels the turn of a session.
    TurnCancelled(SessionId),
    /// The editor closes or deletes a session.
    SessionClosing(Method, SessionId),
    /// The agent has closed or deleted it.
    SessionClosed(Method, SessionId),
    /// The editor shares the diagnostics of a file.
    DiagnosticsShared(diagnostics::DiagnosticsNotification),
}

/// A request to open a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOpening {
    /// The method.
    pub method: Method,
    /// The existing session; `None` for `session/new`.
    pub session: Option<SessionId>,
    /// Its directory.
    pub cwd: PathBuf,
    /// Its additional directories.
    pub additional_directories: Vec<PathBuf>,
}

/// An opened session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedSession {
    /// Its id.
    pub session: SessionId,
    /// The request that opened it.
    pub opening: SessionOpening,
}

/// A read request of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRead {
    /// The file.
    pub path: String,
    /// Whether it asks for the whole file.
    pub is_whole: bool,
}

/// A `tool_call` or a `tool_call_update`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallMessage {
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call: ToolCallId,
    /// Whether this announces the call, rather than updating it.
    pub is_new: bool,
    /// Its status, if given.
    pub status: Option<ToolCallStatus>,
}

impl RelayEvent {
    /// Returns the session it concerns.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Initialize(_) | Self::Initialized(_) => None,
            Self::SessionOpening(opening) | Self::SessionNotOpened(opening) => opening.session.as_ref(),
            Self::SessionOpened(opened) => Some(&opened.session),
            Self::ToolCall(call) => Some(&call.session),
            Self::AgentRequest(_, session, _) => session.as_ref(),
            Self::DiagnosticsShared(shared) => shared.session_id.as_ref(),
            Self::TurnStarted(session)
            | Self::TurnEnded(session)
            | Self::PermissionRequested(session, _)
            | Self::PermissionAnswered(session, _)
            | Self::TurnCancelled(session)
            | Self::SessionClosing(_, session)
            | Self::SessionClosed(_, session) => Some(session),
        }
    }

    /// Returns whether it is needed to interpret the answer.
    pub(super) fn is_needed_for_answer(&self) -> bool {
        !matches!(self, Self::Initialize(_) | Self::AgentRequest(..))
    }
}

#[derive(Deserialize)]
struct WithParams<T> {
    params: T,
}

#[derive(Deserialize)]
struct WithResult<T> {
    result: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams {
    session_id: SessionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OptionalSessionParams {
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadParams {
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    line: Option<IgnoredAny>,
    #[serde(default)]
    limit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenSessionParams {
    cwd: PathBuf,
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    additional_directories: Option<Vec<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionUpdateParams {
    session_id: SessionId,
    update: CallUpdate,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallUpdate {
    session_update: String,
    tool_call_id: ToolCallId,
    #[serde(default)]
    status: Option<ToolCallStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionParams {
    session_id: SessionId,
    tool_call: PermissionToolCall,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionToolCall {
    tool_call_id: ToolCallId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelRequestParams {
    request_id: RequestId,
}

/// Returns the parameters of a message; `None` if they are missing or of another type.
#[must_use]
pub fn parse_params<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    serde_json::from_slice::<WithParams<T>>(line).ok().map(|message| message.params)
}

/// Returns the result of a response; `None` if it is missing or of another type.
#[must_use]
pub fn parse_result<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    serde_json::from_slice::<WithResult<T>>(line).ok().map(|message| message.result)
}

/// Returns the first text of a prompt: the task of the turn.
#[must_use]
pub fn prompt_text(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Prompt {
        prompt: Vec<Block>,
    }
    #[derive(Deserialize)]
    struct Block {
        text: Option<String>,
    }
    parse_params::<Prompt>(line)?.prompt.into_iter().find_map(|block| block.text)
}

fn parse_session_id(line: &[u8]) -> Option<SessionId> {
    parse_params::<OptionalSessionParams>(line)?.session_id
}

/// Returns the event of a request.
pub(super) fn event_from_request(method: Method, line: &[u8]) -> Option<RelayEvent> {
    Some(match method {
        Method::Initialize => {
            RelayEvent::Initialize(Box::new(parse_params::<InitializeRequest>(line)?.client_capabilities))
        }
        Method::New | Method::Load | Method::Resume | Method::Fork => {
            let params: OpenSessionParams = parse_params(line)?;
            RelayEvent::SessionOpening(SessionOpening {
                method,
                session: params.session_id,
                cwd: params.cwd,
                additional_directories: params.additional_directories.unwrap_or_default(),
            })
        }
        Method::Close | Method::Delete => {
            RelayEvent::SessionClosing(method, parse_params::<SessionParams>(line)?.session_id)
        }
        Method::Prompt => RelayEvent::TurnStarted(parse_params::<SessionParams>(line)?.session_id),
        Method::Permission => {
            let params: PermissionParams = parse_params(line)?;
            RelayEvent::PermissionRequested(params.session_id, params.tool_call.tool_call_id)
        }
        // The line is too long to inspect.
        _ if method.needs_policy() && line.is_empty() => return None,
        Method::Read => match parse_params::<ReadParams>(line) {
            Some(ReadParams { session_id, path, line, limit }) => {
                let read = path.map(|path| FileRead { path, is_whole: line.is_none() && limit.is_none() });
                RelayEvent::AgentRequest(method, session_id, read)
            }
            None => RelayEvent::AgentRequest(method, parse_session_id(line), None),
        },
        Method::Write | Method::CreateTerminal | Method::FileExtension => {
            RelayEvent::AgentRequest(method, parse_session_id(line), None)
        }
        Method::Terminal | Method::Mcp => {
            RelayEvent::AgentRequest(method, parse_params::<OptionalSessionParams>(line)?.session_id, None)
        }
        // These are notifications; a request of such a name is something else.
        Method::Cancel | Method::CancelRequest | Method::Update | Method::Diagnostics => return None,
    })
}

/// Returns the event of a notification.
pub(super) fn event_from_notification(method: Method, line: &[u8]) -> Option<RelayEvent> {
    match method {
        Method::Update => {
            let SessionUpdateParams { session_id, update } = parse_params(line)?;
            let is_new = match update.session_update.as_str() {
                "tool_call" => true,
                "tool_call_update" => false,
                _ => return None,
            };
            Some(RelayEvent::ToolCall(ToolCallMessage {
                session: session_id,
                call: update.tool_call_id,
                is_new,
                status: update.status,
            }))
        }
        Method::Cancel => Some(RelayEvent::TurnCancelled(parse_params::<SessionParams>(line)?.session_id)),
        Method::Diagnostics => {
            let params: Box<RawValue> = parse_params(line)?;
            diagnostics::DiagnosticsNotification::parse(params.get()).ok().map(RelayEvent::DiagnosticsShared)
        }
        Method::Mcp => Some(RelayEvent::AgentRequest(
            method,
            parse_params::<OptionalSessionParams>(line)?.session_id,
            None,
        )),
        _ => None,
    }
}

/// Returns the event of an answer, given the event kept from its request.
pub(super) fn event_from_answer(
    method: Method,
    request_event: Option<Box<RelayEvent>>,
    is_error: bool,
    line: &[u8],
) -> Option<RelayEvent> {
    if method == Method::Initialize {
        return Some(RelayEvent::Initialized(Box::new(
            parse_result::<InitializeResponse>(line)?.agent_capabilities,
        )));
    }
    match *request_event? {
        RelayEvent::SessionOpening(opening) if is_error => Some(RelayEvent::SessionNotOpened(opening)),
        RelayEvent::SessionOpening(opening) => {
            // Only methods that create a session return its id.
            let created = parse_result::<OptionalSessionParams>(line).and_then(|answer| answer.session_id);
            let session = match method {
                Method::New | Method::Fork => created,
                _ => opening.session.clone(),
            };
            Some(match session {
                Some(session) => RelayEvent::SessionOpened(RelayedSession { session, opening }),
                None => RelayEvent::SessionNotOpened(opening),
            })
        }
        RelayEvent::TurnStarted(session) => Some(RelayEvent::TurnEnded(session)),
        RelayEvent::PermissionRequested(session, call) => Some(RelayEvent::PermissionAnswered(session, call)),
        RelayEvent::SessionClosing(_, _) if is_error => None,
        RelayEvent::SessionClosing(method, session) => Some(RelayEvent::SessionClosed(method, session)),
        _ => None,
    }
}

/// Returns the id of the request that a cancellation names.
pub(super) fn cancelled_request_id(line: &[u8]) -> Option<RequestId> {
    parse_params::<CancelRequestParams>(line).map(|cancelled| cancelled.request_id)
}
