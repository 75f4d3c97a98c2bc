//! Two peers connected only by bytes.

use std::fmt::Debug;

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use bowline_wire::ConnectionLimits;
use bowline_wire::message::body::JsonBody;
use bowline_wire::peer::{Peer, PeerEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A side that requests and a side that answers.
pub(crate) struct PeerPair {
    requester: Peer,
    responder: Peer,
}

impl Default for PeerPair {
    fn default() -> Self {
        PeerPair {
            requester: Peer::new(ConnectionLimits::DEFAULT),
            responder: Peer::new(ConnectionLimits::DEFAULT),
        }
    }
}

/// A type whose values must arrive as they were sent.
pub(crate) trait RoundTrip: Serialize + DeserializeOwned + PartialEq + Debug {}

impl<T: Serialize + DeserializeOwned + PartialEq + Debug> RoundTrip for T {}

impl PeerPair {
    /// Sends a request and returns its line.
    pub(crate) fn carry_request<T: RoundTrip>(&mut self, method: &str, params: &T) -> String {
        let id = self.requester.request(method, body(params)).expect("few requests wait");
        self.expect_request(method, id, params)
    }

    /// Sends a request with this id and returns its line.
    pub(crate) fn carry_request_with_id<T: RoundTrip>(
        &mut self,
        id: i64,
        method: &str,
        params: &T,
    ) -> String {
        self.requester.request_with_id(id, method, body(params)).expect("few requests wait");
        self.expect_request(method, id, params)
    }

    fn expect_request<T: RoundTrip>(&mut self, method: &str, sent: i64, params: &T) -> String {
        let line = take_line(&mut self.requester);
        self.responder.receive(line.as_bytes());
        match self.responder.next_event() {
            Some(PeerEvent::Request { id, method: got, params: raw }) => {
                assert_eq!((id, &*got), (RequestId::Number(sent), method));
                assert_eq!(&parse::<T>(raw.expect("params")), params);
            }
            other => panic!("{other:?} instead of the request {line}"),
        }
        assert!(self.responder.next_event().is_none(), "a line is one message");
        line
    }

    /// Sends a notification and returns its line.
    pub(crate) fn carry_notification<T: RoundTrip>(&mut self, method: &str, params: &T) -> String {
        self.requester.notify(method, body(params));
        let line = take_line(&mut self.requester);
        self.responder.receive(line.as_bytes());
        match self.responder.next_event() {
            Some(PeerEvent::Notification { method: got, params: raw }) => {
                assert_eq!(got, method);
                assert_eq!(&parse::<T>(raw.expect("params")), params);
            }
            other => panic!("{other:?} instead of the notification {line}"),
        }
        line
    }

    /// Sends the notification that the peers themselves handle and returns its line.
    pub(crate) fn carry_cancel(&mut self, params: &CancelRequestNotification) -> String {
        self.requester.notify(PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, body(params));
        let line = take_line(&mut self.requester);
        self.responder.receive(line.as_bytes());
        match self.responder.next_event() {
            Some(PeerEvent::Cancel { id }) => assert_eq!(id, params.request_id),
            other => panic!("{other:?} instead of the cancellation {line}"),
        }
        line
    }

    /// Makes a request, answers it, and returns the line of the answer.
    pub(crate) fn carry_response<T: RoundTrip>(&mut self, method: &str, result: &T) -> String {
        let id = self.requester.request(method, JsonBody::empty_object()).expect("few requests wait");
        self.deliver_request();
        self.carry_response_to(id, result)
    }

    /// Answers the request with this id and returns the line.
    pub(crate) fn carry_response_to<T: RoundTrip>(&mut self, id: i64, result: &T) -> String {
        self.responder.respond(&RequestId::Number(id), Ok(body(result))).expect("the answer is owed");
        let line = take_line(&mut self.responder);
        self.requester.receive(line.as_bytes());
        match self.requester.next_event() {
            Some(PeerEvent::Response { id: got, outcome: Ok(raw) }) => {
                assert_eq!(got, id);
                assert_eq!(&parse::<T>(raw), result);
            }
            other => panic!("{other:?} instead of the answer {line}"),
        }
        line
    }

    /// Makes a request, refuses it, and returns the line of the error.
    pub(crate) fn carry_error(&mut self, method: &str, error: &Error) -> String {
        let id = self.requester.request(method, JsonBody::empty_object()).expect("few requests wait");
        self.deliver_request();
        self.responder.respond(&RequestId::Number(id), Err(error.clone())).expect("the answer is owed");
        let line = take_line(&mut self.responder);
        self.requester.receive(line.as_bytes());
        match self.requester.next_event() {
            Some(PeerEvent::Response { id: got, outcome: Err(got_error) }) => {
                assert_eq!((got, &got_error), (id, error));
            }
            other => panic!("{other:?} instead of the error {line}"),
        }
        line
    }

    /// Cancels an open request and returns the line of the cancellation.
    pub(crate) fn cancel(&mut self, id: i64) -> String {
        self.requester.cancel(id);
        let line = take_line(&mut self.requester);
        self.responder.receive(line.as_bytes());
        match self.responder.next_event() {
            Some(PeerEvent::Cancel { id: got }) => assert_eq!(got, RequestId::Number(id)),
            other => panic!("{other:?} instead of the cancellation {line}"),
        }
        line
    }

    /// Receives a foreign text as a request, and returns its id and its params.
    pub(crate) fn receive_request<T: DeserializeOwned>(&mut self, text: &str) -> (RequestId, String, T) {
        self.responder.receive(one_line(text).as_bytes());
        match self.responder.next_event() {
            Some(PeerEvent::Request { id, method, params }) => {
                (id, method.into_owned(), parse(params.expect("params")))
            }
            other => panic!("{other:?} instead of a request: {text}"),
        }
    }

    /// Receives a foreign text as the answer to the request with this id.
    pub(crate) fn receive_response<T: DeserializeOwned>(&mut self, id: i64, text: &str) -> T {
        self.requester.request_with_id(id, "x", JsonBody::empty_object()).expect("few requests wait");
        self.requester.take_output();
        self.requester.receive(one_line(text).as_bytes());
        match self.requester.next_event() {
            Some(PeerEvent::Response { id: got, outcome: Ok(raw) }) => {
                assert_eq!(got, id);
                parse(raw)
            }
            other => panic!("{other:?} instead of an answer: {text}"),
        }
    }

    /// Receives a foreign text as a notification, and returns its method and its params.
    pub(crate) fn receive_notification<T: DeserializeOwned>(&mut self, text: &str) -> (String, T) {
        self.responder.receive(one_line(text).as_bytes());
        match self.responder.next_event() {
            Some(PeerEvent::Notification { method, params }) => {
                (method.into_owned(), parse(params.expect("params")))
            }
            other => panic!("{other:?} instead of a notification: {text}"),
        }
    }

    fn deliver_request(&mut self) {
        let output = self.requester.take_output();
        self.responder.receive(&output);
        assert!(matches!(self.responder.next_event(), Some(PeerEvent::Request { .. })));
    }
}

/// Takes the output of a peer, which has to be one line.
fn take_line(peer: &mut Peer) -> String {
    let output = String::from_utf8(peer.take_output()).expect("UTF-8");
    assert_eq!(output.find('\n'), Some(output.len() - 1), "one line: {output:?}");
    assert!(!output.contains('\r'), "{output:?}");
    output
}

fn one_line(text: &str) -> String {
    format!("{}\n", text.replace('\n', " "))
}

fn body<T: Serialize>(value: &T) -> JsonBody {
    JsonBody::from_value(value).expect("a message can be JSON")
}

fn parse<T: DeserializeOwned>(raw: &RawValue) -> T {
    serde_json::from_str(raw.get()).unwrap_or_else(|error| panic!("{error}: {raw}"))
}
