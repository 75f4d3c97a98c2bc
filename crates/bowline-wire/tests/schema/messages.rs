//! Every message of the protocol: its name in the schema, its method, and the operations on its type.

use std::fmt::Debug;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AuthenticateRequest, CLIENT_METHOD_NAMES, CancelNotification,
    CancelRequestNotification, CloseSessionRequest, CompleteElicitationNotification,
    CreateElicitationRequest, CreateTerminalRequest, DeleteSessionRequest, Error, ForkSessionRequest,
    InitializeRequest, KillTerminalRequest, ListSessionsRequest, LoadSessionRequest, LogoutRequest,
    MessageMcpNotification, MessageMcpRequest, NewSessionRequest, PROTOCOL_LEVEL_METHOD_NAMES, PromptRequest,
    ReadTextFileRequest, ReleaseTerminalRequest, RequestPermissionRequest, ResumeSessionRequest,
    SessionNotification, SetSessionConfigOptionRequest, SetSessionModeRequest, TerminalOutputRequest,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use bowline_wire::message::body::JsonBody;
use bowline_wire::message::methods::{RpcNotification, RpcRequest};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::official_schema;
use crate::peer_pair::PeerPair;

/// One message of the schema.
pub(crate) struct MessageSpec {
    /// The name of its type.
    pub(crate) name: String,
    pub(crate) method: &'static str,
    pub(crate) kind: MessageSpecKind,
    /// Parses a text as the type and writes the value.
    rewrite: fn(&str) -> Result<String, serde_json::Error>,
    /// Sends the value of a text through two peers and returns the line.
    carry: fn(&str, &'static str) -> String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageSpecKind {
    Request,
    Response,
    Notification,
    /// An error, with which any request may be answered.
    Error,
}

/// The requirements on a message type.
pub(crate) trait WireType: Serialize + DeserializeOwned + JsonSchema + PartialEq + Debug {}

impl<T: Serialize + DeserializeOwned + JsonSchema + PartialEq + Debug> WireType for T {}

impl MessageSpec {
    /// Parses a text as the type and writes the value.
    pub(crate) fn rewrite(&self, text: &str) -> Result<String, serde_json::Error> {
        (self.rewrite)(text)
    }

    /// As [`MessageSpec::rewrite`], for JSON that has to parse.
    pub(crate) fn rewrite_json(&self, value: &Value) -> Value {
        let written = self.rewrite(&value.to_string());
        let written = written.unwrap_or_else(|error| panic!("{}: {error}: {value}", self.name));
        serde_json::from_str(&written).expect("what is written is JSON")
    }

    /// Sends the value of a text from one peer to another, panics unless it arrives the same, and returns the line.
    pub(crate) fn carry(&self, text: &str) -> String {
        (self.carry)(text, self.method)
    }
}

/// Returns every message, and the error that may stand in for a response.
pub(crate) fn all_messages() -> Vec<MessageSpec> {
    let mut all = Vec::new();
    macro_rules! add {
        ($add:ident: $($message:ident)*) => { $($add::<$message>(&mut all);)* };
    }
    add!(add_request: InitializeRequest AuthenticateRequest LogoutRequest NewSessionRequest LoadSessionRequest
        ResumeSessionRequest ForkSessionRequest ListSessionsRequest CloseSessionRequest DeleteSessionRequest
        SetSessionModeRequest SetSessionConfigOptionRequest PromptRequest);
    add!(add_request: RequestPermissionRequest ReadTextFileRequest WriteTextFileRequest CreateTerminalRequest
        TerminalOutputRequest WaitForTerminalExitRequest KillTerminalRequest ReleaseTerminalRequest
        CreateElicitationRequest MessageMcpRequest);
    add!(add_notification: CancelNotification SessionNotification CompleteElicitationNotification
        MessageMcpNotification);
    all.push(MessageSpec {
        name: CancelRequestNotification::schema_name().into_owned(),
        method: PROTOCOL_LEVEL_METHOD_NAMES.cancel_request,
        kind: MessageSpecKind::Notification,
        rewrite: rewrite::<CancelRequestNotification>,
        carry: |text, _| PeerPair::default().carry_cancel(&read::<CancelRequestNotification>(text)),
    });
    all.push(MessageSpec {
        name: Error::schema_name().into_owned(),
        method: AGENT_METHOD_NAMES.initialize,
        kind: MessageSpecKind::Error,
        rewrite: rewrite::<Error>,
        carry: |text, method| PeerPair::default().carry_error(method, &read::<Error>(text)),
    });
    all
}

/// Returns the message whose type has this name.
pub(crate) fn find_message(name: &str) -> MessageSpec {
    all_messages()
        .into_iter()
        .find(|message| message.name == name)
        .unwrap_or_else(|| panic!("no message {name}"))
}

fn add_request<R: RpcRequest + WireType>(all: &mut Vec<MessageSpec>)
where
    R::Response: WireType,
{
    all.push(MessageSpec {
        name: R::schema_name().into_owned(),
        method: R::METHOD,
        kind: MessageSpecKind::Request,
        rewrite: rewrite::<R>,
        carry: |text, method| PeerPair::default().carry_request(method, &read::<R>(text)),
    });
    all.push(MessageSpec {
        name: R::Response::schema_name().into_owned(),
        method: R::METHOD,
        kind: MessageSpecKind::Response,
        rewrite: rewrite::<R::Response>,
        carry: |text, method| PeerPair::default().carry_response(method, &read::<R::Response>(text)),
    });
}

fn add_notification<N: RpcNotification + WireType>(all: &mut Vec<MessageSpec>) {
    all.push(MessageSpec {
        name: N::schema_name().into_owned(),
        method: N::METHOD,
        kind: MessageSpecKind::Notification,
        rewrite: rewrite::<N>,
        carry: |text, method| PeerPair::default().carry_notification(method, &read::<N>(text)),
    });
}

fn rewrite<T: WireType>(text: &str) -> Result<String, serde_json::Error> {
    let value: T = serde_json::from_str(text)?;
    let body = JsonBody::from_value(&value)?;
    Ok(String::from_utf8(body.as_bytes().to_vec()).expect("JSON is UTF-8"))
}

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn every_message_of_the_schema_is_here_under_its_method() {
    let actual = all_messages();
    let actual = actual.iter().filter(|message| message.kind != MessageSpecKind::Error);
    let mut actual: Vec<_> = actual.map(|message| (message.name.as_str(), message.method)).collect();
    let mut official: Vec<_> = official_schema::definitions()
        .filter_map(|(name, schema)| Some((name.as_str(), schema["x-method"].as_str()?)))
        .collect();
    actual.sort_unstable();
    official.sort_unstable();
    assert_eq!(actual, official);
}

#[test]
fn every_method_name_of_either_side_has_its_messages() {
    for (side, names) in [
        ("agent", serde_json::to_value(AGENT_METHOD_NAMES).unwrap()),
        ("client", serde_json::to_value(CLIENT_METHOD_NAMES).unwrap()),
        ("protocol", serde_json::to_value(PROTOCOL_LEVEL_METHOD_NAMES).unwrap()),
    ] {
        let mut names: Vec<_> = names.as_object().unwrap().values().filter_map(Value::as_str).collect();
        let mut official: Vec<_> = official_schema::definitions()
            .filter(|(_, schema)| schema["x-side"] == side)
            .filter_map(|(_, schema)| schema["x-method"].as_str())
            .collect();
        names.sort_unstable();
        official.sort_unstable();
        official.dedup();
        assert_eq!(names, official, "{side}");
    }
}
