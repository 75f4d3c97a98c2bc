//! What messages that matter say, as far as a proxy needs it.
//!
//! A message that cannot be read as what it should be says nothing, and is passed on: to refuse it is for whom it is meant. Of a
//! request that rules may have to judge, that it is one is said all the same.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    AgentCapabilities, ClientCapabilities, InitializeRequest, InitializeResponse, RequestId, SessionId,
    ToolCallId, ToolCallStatus, ToolKind,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::Method;
use crate::diagnostics;

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The editor says hello, and what it serves.
    Initialize(Box<ClientCapabilities>),
    /// The agent answers, and says what it can.
    Initialized(Box<AgentCapabilities>),
    /// The editor opens a session: `session/new`, `load`, `resume` or `fork`.
    Opening(Opening),
    /// The agent has opened it.
    Opened(Opened),
    /// The agent did not open it.
    NotOpened(Opening),
    /// A turn begins: `session/prompt`.
    TurnBegins(SessionId),
    /// A turn has ended, with an answer or with an error.
    TurnEnded(SessionId),
    /// The agent tells of a tool call.
    ToolCall(ToolCallSeen),
    /// The agent asks the user for permission.
    Permission(SessionId, ToolCallId),
    /// The user's answer to that, which may be an error.
    Permitted(SessionId, ToolCallId),
    /// The agent asks for a file or a terminal of the editor, or the proxy's MCP server. What it reads is told.
    Asked(Method, Option<SessionId>, Option<Read>),
    /// The editor cancels what goes on in a session.
    Cancelled(SessionId),
    /// The editor closes or deletes a session.
    Closing(Method, SessionId),
    /// The agent has.
    Closed(Method, SessionId),
    /// The editor shares what is wrong in a file.
    Diagnostics(diagnostics::Shared),
}

/// A session that is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// By which method.
    pub method: Method,
    /// The session that there is already, but with `session/new`.
    pub session: Option<SessionId>,
    /// Its directory.
    pub cwd: PathBuf,
    /// More directories of it.
    pub more: Vec<PathBuf>,
}

/// A session that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its id.
    pub session: SessionId,
    /// How it was asked for.
    pub opening: Opening,
}

/// What an agent reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: String,
    /// Whether it wants all of it.
    pub is_whole: bool,
}

/// A `tool_call` or a `tool_call_update`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallSeen {
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call: ToolCallId,
    /// Whether it is announced by this, not updated.
    pub is_new: bool,
    /// Its status, if that is told.
    pub status: Option<ToolCallStatus>,
    /// Its kind, if that is told.
    pub kind: Option<ToolKind>,
    /// Whether a diff is among what is told.
    pub has_diff: bool,
}

impl Fact {
    /// Returns the session that it is about.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Initialize(_) | Self::Initialized(_) => None,
            Self::Opening(opening) | Self::NotOpened(opening) => opening.session.as_ref(),
            Self::Opened(opened) => Some(&opened.session),
            Self::ToolCall(call) => Some(&call.session),
            Self::Asked(_, session, _) => session.as_ref(),
            Self::Diagnostics(shared) => shared.session_id.as_ref(),
            Self::TurnBegins(session)
            | Self::TurnEnded(session)
            | Self::Permission(session, _)
            | Self::Permitted(session, _)
            | Self::Cancelled(session)
            | Self::Closing(_, session)
            | Self::Closed(_, session) => Some(session),
        }
    }

    /// Says whether the answer is read with it.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self, Self::Initialize(_) | Self::Asked(..))
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
struct OfSession {
    session_id: SessionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PerhapsOfSession {
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reading {
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
struct Place {
    cwd: PathBuf,
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    additional_directories: Option<Vec<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
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
    #[serde(default)]
    kind: Option<ToolKind>,
    #[serde(default)]
    content: Option<Vec<Content>>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Permission {
    session_id: SessionId,
    tool_call: PermittedCall,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermittedCall {
    tool_call_id: ToolCallId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled {
    request_id: RequestId,
}

fn params<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice::<WithParams<T>>(line).ok().map(|message| message.params)
}

fn result<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice::<WithResult<T>>(line).ok().map(|message| message.result)
}

/// Returns the first text of a prompt: what a turn is asked to do.
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
    params::<Prompt>(line)?.prompt.into_iter().find_map(|block| block.text)
}

fn session_of(line: &[u8]) -> Option<SessionId> {
    params::<PerhapsOfSession>(line)?.session_id
}

/// Returns what a request says.
pub(super) fn asked(method: Method, line: &[u8]) -> Option<Fact> {
    Some(match method {
        Method::Initialize => {
            Fact::Initialize(Box::new(params::<InitializeRequest>(line)?.client_capabilities))
        }
        Method::New | Method::Load | Method::Resume | Method::Fork => {
            let place: Place = params(line)?;
            Fact::Opening(Opening {
                method,
                session: place.session_id,
                cwd: place.cwd,
                more: place.additional_directories.unwrap_or_default(),
            })
        }
        Method::Close | Method::Delete => Fact::Closing(method, params::<OfSession>(line)?.session_id),
        Method::Prompt => Fact::TurnBegins(params::<OfSession>(line)?.session_id),
        Method::Permission => {
            let asked: Permission = params(line)?;
            Fact::Permission(asked.session_id, asked.tool_call.tool_call_id)
        }
        // Too long to be looked at.
        _ if method.is_judged() && line.is_empty() => return None,
        Method::Read => match params::<Reading>(line) {
            Some(Reading { session_id, path, line, limit }) => {
                let read = path.map(|path| Read { path, is_whole: line.is_none() && limit.is_none() });
                Fact::Asked(method, session_id, read)
            }
            None => Fact::Asked(method, session_of(line), None),
        },
        Method::Write | Method::CreateTerminal => Fact::Asked(method, session_of(line), None),
        Method::Terminal | Method::Mcp => {
            Fact::Asked(method, params::<PerhapsOfSession>(line)?.session_id, None)
        }
        // These are notifications; a request of such a name is something else.
        Method::Cancel | Method::CancelRequest | Method::Update | Method::Diagnostics => return None,
    })
}

/// Returns what a notification says.
pub(super) fn told(method: Method, line: &[u8]) -> Option<Fact> {
    match method {
        Method::Update => {
            let Update { session_id, update } = params(line)?;
            let is_new = match update.session_update.as_str() {
                "tool_call" => true,
                "tool_call_update" => false,
                _ => return None,
            };
            let has_diff = update.content.iter().flatten().any(|content| content.kind == "diff");
            Some(Fact::ToolCall(ToolCallSeen {
                session: session_id,
                call: update.tool_call_id,
                is_new,
                status: update.status,
                kind: update.kind,
                has_diff,
            }))
        }
        Method::Cancel => Some(Fact::Cancelled(params::<OfSession>(line)?.session_id)),
        Method::Diagnostics => {
            let params: Box<RawValue> = params(line)?;
            diagnostics::Shared::read(params.get()).ok().map(Fact::Diagnostics)
        }
        Method::Mcp => Some(Fact::Asked(method, params::<PerhapsOfSession>(line)?.session_id, None)),
        _ => None,
    }
}

/// Returns what an answer says to a request of which that was kept which it is read with.
pub(super) fn answered(
    method: Method,
    asked: Option<Box<Fact>>,
    is_error: bool,
    line: &[u8],
) -> Option<Fact> {
    if method == Method::Initialize {
        return Some(Fact::Initialized(Box::new(result::<InitializeResponse>(line)?.agent_capabilities)));
    }
    match *asked? {
        Fact::Opening(opening) if is_error => Some(Fact::NotOpened(opening)),
        Fact::Opening(opening) => {
            // Only what makes a session tells its id.
            let made = result::<PerhapsOfSession>(line).and_then(|answer| answer.session_id);
            let session = match method {
                Method::New | Method::Fork => made,
                _ => opening.session.clone(),
            };
            Some(match session {
                Some(session) => Fact::Opened(Opened { session, opening }),
                None => Fact::NotOpened(opening),
            })
        }
        Fact::TurnBegins(session) => Some(Fact::TurnEnded(session)),
        Fact::Permission(session, call) => Some(Fact::Permitted(session, call)),
        Fact::Closing(_, _) if is_error => None,
        Fact::Closing(method, session) => Some(Fact::Closed(method, session)),
        _ => None,
    }
}

/// Returns the request that a cancellation names.
pub(super) fn cancelled(line: &[u8]) -> Option<RequestId> {
    params::<Cancelled>(line).map(|cancelled| cancelled.request_id)
}
