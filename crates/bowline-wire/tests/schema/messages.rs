//! Every message of the protocol: its name in the schema, its method, and what can be done with its type.

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
use bowline_wire::body::Body;
use bowline_wire::methods::{Notification, Request};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::official;
use crate::pair::Pair;

/// One message of the schema.
pub(crate) struct Message {
    /// The name of its type.
    pub(crate) name: String,
    pub(crate) method: &'static str,
    pub(crate) kind: Kind,
    /// Reads a text as the type and writes the value.
    rewrite: fn(&str) -> Result<String, serde_json::Error>,
    /// Sends the value of a text through two peers and returns the line.
    carry: fn(&str, &'static str) -> String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Response,
    Notification,
    /// What any request may be answered with.
    Error,
}

/// What a message type can do.
pub(crate) trait Wire: Serialize + DeserializeOwned + JsonSchema + PartialEq + Debug {}

impl<T: Serialize + DeserializeOwned + JsonSchema + PartialEq + Debug> Wire for T {}

impl Message {
    /// Reads a text as the type and writes the value.
    pub(crate) fn rewrite(&self, text: &str) -> Result<String, serde_json::Error> {
        (self.rewrite)(text)
    }

    /// As [`Message::rewrite`], for JSON that has to be readable.
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
pub(crate) fn all() -> Vec<Message> {
    let mut all = Vec::new();
    macro_rules! add {
        ($add:ident: $($message:ident)*) => { $($add::<$message>(&mut all);)* };
    }
    add!(request: InitializeRequest AuthenticateRequest LogoutRequest NewSessionRequest LoadSessionRequest
        ResumeSessionRequest ForkSessionRequest ListSessionsRequest CloseSessionRequest DeleteSessionRequest
        SetSessionModeRequest SetSessionConfigOptionRequest PromptRequest);
    add!(request: RequestPermissionRequest ReadTextFileRequest WriteTextFileRequest CreateTerminalRequest
        TerminalOutputRequest WaitForTerminalExitRequest KillTerminalRequest ReleaseTerminalRequest
        CreateElicitationRequest MessageMcpRequest);
    add!(notification: CancelNotification SessionNotification CompleteElicitationNotification
        MessageMcpNotification);
    all.push(Message {
        name: CancelRequestNotification::schema_name().into_owned(),
        method: PROTOCOL_LEVEL_METHOD_NAMES.cancel_request,
        kind: Kind::Notification,
        rewrite: rewrite::<CancelRequestNotification>,
        carry: |text, _| Pair::default().carry_cancel(&read::<CancelRequestNotification>(text)),
    });
    all.push(Message {
        name: Error::schema_name().into_owned(),
        method: AGENT_METHOD_NAMES.initialize,
        kind: Kind::Error,
        rewrite: rewrite::<Error>,
        carry: |text, method| Pair::default().carry_error(method, &read::<Error>(text)),
    });
    all
}

/// Returns the message whose type has this name.
pub(crate) fn named(name: &str) -> Message {
    all().into_iter().find(|message| message.name == name).unwrap_or_else(|| panic!("no message {name}"))
}

fn request<R: Request + Wire>(all: &mut Vec<Message>)
where
    R::Response: Wire,
{
    all.push(Message {
        name: R::schema_name().into_owned(),
        method: R::METHOD,
        kind: Kind::Request,
        rewrite: rewrite::<R>,
        carry: |text, method| Pair::default().carry_request(method, &read::<R>(text)),
    });
    all.push(Message {
        name: R::Response::schema_name().into_owned(),
        method: R::METHOD,
        kind: Kind::Response,
        rewrite: rewrite::<R::Response>,
        carry: |text, method| Pair::default().carry_response(method, &read::<R::Response>(text)),
    });
}

fn notification<N: Notification + Wire>(all: &mut Vec<Message>) {
    all.push(Message {
        name: N::schema_name().into_owned(),
        method: N::METHOD,
        kind: Kind::Notification,
        rewrite: rewrite::<N>,
        carry: |text, method| Pair::default().carry_notification(method, &read::<N>(text)),
    });
}

fn rewrite<T: Wire>(text: &str) -> Result<String, serde_json::Error> {
    let value: T = serde_json::from_str(text)?;
    let body = Body::of(&value)?;
    Ok(String::from_utf8(body.as_bytes().to_vec()).expect("JSON is UTF-8"))
}

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn every_message_of_the_schema_is_here_under_its_method() {
    let here = all();
    let here = here.iter().filter(|message| message.kind != Kind::Error);
    let mut here: Vec<_> = here.map(|message| (message.name.as_str(), message.method)).collect();
    let mut official: Vec<_> = official::definitions()
        .filter_map(|(name, schema)| Some((name.as_str(), schema["x-method"].as_str()?)))
        .collect();
    here.sort_unstable();
    official.sort_unstable();
    assert_eq!(here, official);
}

#[test]
fn every_method_name_of_either_side_has_its_messages() {
    for (side, names) in [
        ("agent", serde_json::to_value(AGENT_METHOD_NAMES).unwrap()),
        ("client", serde_json::to_value(CLIENT_METHOD_NAMES).unwrap()),
        ("protocol", serde_json::to_value(PROTOCOL_LEVEL_METHOD_NAMES).unwrap()),
    ] {
        let mut names: Vec<_> = names.as_object().unwrap().values().filter_map(Value::as_str).collect();
        let mut official: Vec<_> = official::definitions()
            .filter(|(_, schema)| schema["x-side"] == side)
            .filter_map(|(_, schema)| schema["x-method"].as_str())
            .collect();
        names.sort_unstable();
        official.sort_unstable();
        official.dedup();
        assert_eq!(names, official, "{side}");
    }
}
