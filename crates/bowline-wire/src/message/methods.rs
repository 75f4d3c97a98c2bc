//! The method and types of every message of the protocol and of the file extension.

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AuthenticateRequest, AuthenticateResponse, CLIENT_METHOD_NAMES, CancelNotification,
    CloseSessionRequest, CloseSessionResponse, CompleteElicitationNotification, CreateElicitationRequest,
    CreateElicitationResponse, CreateTerminalRequest, CreateTerminalResponse, DeleteSessionRequest,
    DeleteSessionResponse, ForkSessionRequest, ForkSessionResponse, InitializeRequest, InitializeResponse,
    KillTerminalRequest, KillTerminalResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, LogoutRequest, LogoutResponse, MessageMcpNotification, MessageMcpRequest,
    MessageMcpResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse,
    RequestPermissionRequest, RequestPermissionResponse, ResumeSessionRequest, ResumeSessionResponse,
    SessionId, SessionNotification, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
    SetSessionModeRequest, SetSessionModeResponse, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_protocol::file_extension::{
    BATCH_METHOD, BatchFilesRequest, BatchFilesResponse, CHANGED_METHOD, FilesChangedNotification,
    LIST_METHOD, ListDirectoryRequest, ListDirectoryResponse, READ_METHOD, ReadFileRequest, ReadFileResponse,
    STAT_METHOD, StatFileRequest, StatFileResponse, UNWATCH_METHOD, UnwatchFilesRequest,
    UnwatchFilesResponse, WATCH_METHOD, WRITE_METHOD, WatchFilesRequest, WatchFilesResponse,
    WriteFileRequest, WriteFileResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::message::body::JsonBody;

/// The params of a request, with its method and response type.
///
/// The messages below write out the methods that parse and serialise, so that their code is compiled here, once, and not
/// again in each crate that uses them.
pub trait RpcRequest: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name on the wire.
    const METHOD: &'static str;
    /// Whether notifications belong to the answer, so that it is delivered after them.
    const AFTER_NOTIFICATIONS: bool = false;
    /// Whether errors have a `data.kind`, as those of the file extension.
    const HAS_ERROR_KIND: bool = false;
    /// The type of the answer.
    type Response: Serialize + DeserializeOwned + Send + 'static;

    /// Parses the params.
    ///
    /// # Errors
    /// Fails if they are invalid.
    fn from_json(params: &str) -> Result<Self, serde_json::Error> {
        decode(params)
    }

    /// Serialises the params.
    ///
    /// # Errors
    /// Fails as [`JsonBody::from_value`] does.
    fn to_body(&self) -> Result<JsonBody, serde_json::Error> {
        JsonBody::from_value(self)
    }

    /// Parses an answer.
    ///
    /// # Errors
    /// Fails if it is invalid.
    fn response_from_json(result: &str) -> Result<Self::Response, serde_json::Error> {
        decode(result)
    }

    /// Serialises an answer.
    ///
    /// # Errors
    /// Fails as [`JsonBody::from_value`] does.
    fn response_to_body(response: &Self::Response) -> Result<JsonBody, serde_json::Error> {
        JsonBody::from_value(response)
    }
}

/// The params of a notification, with its method.
pub trait RpcNotification: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name on the wire.
    const METHOD: &'static str;

    /// Parses the params.
    ///
    /// # Errors
    /// Fails if they are invalid.
    fn from_json(params: &str) -> Result<Self, serde_json::Error> {
        decode(params)
    }

    /// Serialises the params.
    ///
    /// # Errors
    /// Fails as [`JsonBody::from_value`] does.
    fn to_body(&self) -> Result<JsonBody, serde_json::Error> {
        JsonBody::from_value(self)
    }
}

/// The older request to switch models, which agents and clients in use still send. The schema dropped it in favour of
/// config options, so it is declared here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetSessionModelRequest {
    /// The session.
    pub session_id: SessionId,
    /// The model to use from the next turn on.
    pub model_id: String,
}

/// The answer to [`SetSessionModelRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSessionModelResponse {}

/// The name of the older method to switch models.
pub const SESSION_SET_MODEL: &str = "session/set_model";

macro_rules! params_methods {
    () => {
        fn from_json(params: &str) -> Result<Self, serde_json::Error> {
            decode(params)
        }

        fn to_body(&self) -> Result<JsonBody, serde_json::Error> {
            JsonBody::from_value(self)
        }
    };
}

macro_rules! requests {
    ($($request:ident => $response:ident, $method:expr $(, $flag:ident)*;)*) => {
        $(impl RpcRequest for $request {
            const METHOD: &'static str = $method;
            $(const $flag: bool = true;)*
            type Response = $response;

            params_methods!();

            fn response_from_json(result: &str) -> Result<$response, serde_json::Error> {
                decode(result)
            }

            fn response_to_body(response: &$response) -> Result<JsonBody, serde_json::Error> {
                JsonBody::from_value(response)
            }
        })*
    };
}

requests! {
    InitializeRequest => InitializeResponse, AGENT_METHOD_NAMES.initialize;
    AuthenticateRequest => AuthenticateResponse, AGENT_METHOD_NAMES.authenticate;
    LogoutRequest => LogoutResponse, AGENT_METHOD_NAMES.logout;
    NewSessionRequest => NewSessionResponse, AGENT_METHOD_NAMES.session_new;
    LoadSessionRequest => LoadSessionResponse, AGENT_METHOD_NAMES.session_load, AFTER_NOTIFICATIONS;
    ResumeSessionRequest => ResumeSessionResponse, AGENT_METHOD_NAMES.session_resume;
    ListSessionsRequest => ListSessionsResponse, AGENT_METHOD_NAMES.session_list;
    ForkSessionRequest => ForkSessionResponse, AGENT_METHOD_NAMES.session_fork;
    CloseSessionRequest => CloseSessionResponse, AGENT_METHOD_NAMES.session_close;
    DeleteSessionRequest => DeleteSessionResponse, AGENT_METHOD_NAMES.session_delete;
    SetSessionModeRequest => SetSessionModeResponse, AGENT_METHOD_NAMES.session_set_mode;
    SetSessionConfigOptionRequest => SetSessionConfigOptionResponse, AGENT_METHOD_NAMES.session_set_config_option;
    SetSessionModelRequest => SetSessionModelResponse, SESSION_SET_MODEL;
    PromptRequest => PromptResponse, AGENT_METHOD_NAMES.session_prompt, AFTER_NOTIFICATIONS;

    RequestPermissionRequest => RequestPermissionResponse, CLIENT_METHOD_NAMES.session_request_permission;
    ReadTextFileRequest => ReadTextFileResponse, CLIENT_METHOD_NAMES.fs_read_text_file;
    WriteTextFileRequest => WriteTextFileResponse, CLIENT_METHOD_NAMES.fs_write_text_file;
    CreateTerminalRequest => CreateTerminalResponse, CLIENT_METHOD_NAMES.terminal_create;
    TerminalOutputRequest => TerminalOutputResponse, CLIENT_METHOD_NAMES.terminal_output;
    WaitForTerminalExitRequest => WaitForTerminalExitResponse, CLIENT_METHOD_NAMES.terminal_wait_for_exit;
    KillTerminalRequest => KillTerminalResponse, CLIENT_METHOD_NAMES.terminal_kill;
    ReleaseTerminalRequest => ReleaseTerminalResponse, CLIENT_METHOD_NAMES.terminal_release;
    CreateElicitationRequest => CreateElicitationResponse, CLIENT_METHOD_NAMES.elicitation_create;
    MessageMcpRequest => MessageMcpResponse, CLIENT_METHOD_NAMES.mcp_message, AFTER_NOTIFICATIONS;

    ListDirectoryRequest => ListDirectoryResponse, LIST_METHOD, HAS_ERROR_KIND;
    StatFileRequest => StatFileResponse, STAT_METHOD, HAS_ERROR_KIND;
    ReadFileRequest => ReadFileResponse, READ_METHOD, HAS_ERROR_KIND;
    WriteFileRequest => WriteFileResponse, WRITE_METHOD, HAS_ERROR_KIND;
    BatchFilesRequest => BatchFilesResponse, BATCH_METHOD, HAS_ERROR_KIND;
    WatchFilesRequest => WatchFilesResponse, WATCH_METHOD, HAS_ERROR_KIND;
    UnwatchFilesRequest => UnwatchFilesResponse, UNWATCH_METHOD, AFTER_NOTIFICATIONS, HAS_ERROR_KIND;
}

macro_rules! notifications {
    ($($notification:ident, $method:expr;)*) => {
        $(impl RpcNotification for $notification {
            const METHOD: &'static str = $method;

            params_methods!();
        })*
    };
}

notifications! {
    CancelNotification, AGENT_METHOD_NAMES.session_cancel;
    MessageMcpNotification, AGENT_METHOD_NAMES.mcp_message;
    SessionNotification, CLIENT_METHOD_NAMES.session_update;
    CompleteElicitationNotification, CLIENT_METHOD_NAMES.elicitation_complete;
    FilesChangedNotification, CHANGED_METHOD;
}

/// Parses params or a result. `null` counts as an empty object where the type requires one.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    match text {
        "null" => serde_json::from_str("null").or_else(|_| serde_json::from_str("{}")),
        text => serde_json::from_str(text),
    }
}

/// Parses the params of an update: it is large, and is parsed where it stays.
pub(crate) fn decode_update(params: &str) -> Result<Box<SessionNotification>, serde_json::Error> {
    decode(params)
}
