//! Two peers joined by nothing but bytes.

use std::fmt::Debug;

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use bowline_wire::Limits;
use bowline_wire::body::Body;
use bowline_wire::peer::{Event, Peer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A side that asks and a side that answers.
pub(crate) struct Pair {
    asks: Peer,
    answers: Peer,
}

impl Default for Pair {
    fn default() -> Self {
        Pair { asks: Peer::new(Limits::DEFAULT), answers: Peer::new(Limits::DEFAULT) }
    }
}

/// What arrives has to equal what was sent.
pub(crate) trait Same: Serialize + DeserializeOwned + PartialEq + Debug {}

impl<T: Serialize + DeserializeOwned + PartialEq + Debug> Same for T {}

impl Pair {
    /// Sends a request and returns its line.
    pub(crate) fn carry_request<T: Same>(&mut self, method: &str, params: &T) -> String {
        let id = self.asks.request(method, body(params)).expect("few requests wait");
        self.ask(method, id, params)
    }

    /// Sends a request with this id and returns its line.
    pub(crate) fn carry_request_as<T: Same>(&mut self, id: i64, method: &str, params: &T) -> String {
        self.asks.request_as(id, method, body(params)).expect("few requests wait");
        self.ask(method, id, params)
    }

    fn ask<T: Same>(&mut self, method: &str, sent: i64, params: &T) -> String {
        let line = line(&mut self.asks);
        self.answers.receive(line.as_bytes());
        match self.answers.next_event() {
            Some(Event::Request { id, method: got, params: raw }) => {
                assert_eq!((id, &*got), (RequestId::Number(sent), method));
                assert_eq!(&read::<T>(raw.expect("params")), params);
            }
            other => panic!("{other:?} instead of the request {line}"),
        }
        assert!(self.answers.next_event().is_none(), "a line is one message");
        line
    }

    /// Sends a notification and returns its line.
    pub(crate) fn carry_notification<T: Same>(&mut self, method: &str, params: &T) -> String {
        self.asks.notify(method, body(params));
        let line = line(&mut self.asks);
        self.answers.receive(line.as_bytes());
        match self.answers.next_event() {
            Some(Event::Notification { method: got, params: raw }) => {
                assert_eq!(got, method);
                assert_eq!(&read::<T>(raw.expect("params")), params);
            }
            other => panic!("{other:?} instead of the notification {line}"),
        }
        line
    }

    /// Sends the notification that the peers themselves understand and returns its line.
    pub(crate) fn carry_cancel(&mut self, params: &CancelRequestNotification) -> String {
        self.asks.notify(PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, body(params));
        let line = line(&mut self.asks);
        self.answers.receive(line.as_bytes());
        match self.answers.next_event() {
            Some(Event::Cancel { id }) => assert_eq!(id, params.request_id),
            other => panic!("{other:?} instead of the cancellation {line}"),
        }
        line
    }

    /// Asks for something, answers it, and returns the line of the answer.
    pub(crate) fn carry_response<T: Same>(&mut self, method: &str, result: &T) -> String {
        let id = self.asks.request(method, Body::empty_object()).expect("few requests wait");
        self.deliver_request();
        self.answer(id, result)
    }

    /// Answers the request with this id and returns the line.
    pub(crate) fn answer<T: Same>(&mut self, id: i64, result: &T) -> String {
        self.answers.respond(&RequestId::Number(id), Ok(body(result))).expect("the answer is owed");
        let line = line(&mut self.answers);
        self.asks.receive(line.as_bytes());
        match self.asks.next_event() {
            Some(Event::Response { id: got, outcome: Ok(raw) }) => {
                assert_eq!(got, id);
                assert_eq!(&read::<T>(raw), result);
            }
            other => panic!("{other:?} instead of the answer {line}"),
        }
        line
    }

    /// Asks for something, refuses it, and returns the line of the error.
    pub(crate) fn carry_error(&mut self, method: &str, error: &Error) -> String {
        let id = self.asks.request(method, Body::empty_object()).expect("few requests wait");
        self.deliver_request();
        self.answers.respond(&RequestId::Number(id), Err(error.clone())).expect("the answer is owed");
        let line = line(&mut self.answers);
        self.asks.receive(line.as_bytes());
        match self.asks.next_event() {
            Some(Event::Response { id: got, outcome: Err(got_error) }) => {
                assert_eq!((got, &got_error), (id, error));
            }
            other => panic!("{other:?} instead of the error {line}"),
        }
        line
    }

    /// Gives up on a request that was made and returns the line that says so.
    pub(crate) fn cancel(&mut self, id: i64) -> String {
        self.asks.cancel(id);
        let line = line(&mut self.asks);
        self.answers.receive(line.as_bytes());
        match self.answers.next_event() {
            Some(Event::Cancel { id: got }) => assert_eq!(got, RequestId::Number(id)),
            other => panic!("{other:?} instead of the cancellation {line}"),
        }
        line
    }

    /// Takes a text that somebody else wrote as a request, and returns its id and its params.
    pub(crate) fn hear_request<T: DeserializeOwned>(&mut self, text: &str) -> (RequestId, String, T) {
        self.answers.receive(one_line(text).as_bytes());
        match self.answers.next_event() {
            Some(Event::Request { id, method, params }) => {
                (id, method.into_owned(), read(params.expect("params")))
            }
            other => panic!("{other:?} instead of a request: {text}"),
        }
    }

    /// Takes a text that somebody else wrote as the answer to the request with this id.
    pub(crate) fn hear_response<T: DeserializeOwned>(&mut self, id: i64, text: &str) -> T {
        self.asks.request_as(id, "x", Body::empty_object()).expect("few requests wait");
        self.asks.take_output();
        self.asks.receive(one_line(text).as_bytes());
        match self.asks.next_event() {
            Some(Event::Response { id: got, outcome: Ok(raw) }) => {
                assert_eq!(got, id);
                read(raw)
            }
            other => panic!("{other:?} instead of an answer: {text}"),
        }
    }

    /// Takes a text that somebody else wrote as a notification, and returns its method and its params.
    pub(crate) fn hear_notification<T: DeserializeOwned>(&mut self, text: &str) -> (String, T) {
        self.answers.receive(one_line(text).as_bytes());
        match self.answers.next_event() {
            Some(Event::Notification { method, params }) => {
                (method.into_owned(), read(params.expect("params")))
            }
            other => panic!("{other:?} instead of a notification: {text}"),
        }
    }

    fn deliver_request(&mut self) {
        let output = self.asks.take_output();
        self.answers.receive(&output);
        assert!(matches!(self.answers.next_event(), Some(Event::Request { .. })));
    }
}

/// Takes the output of a peer, which has to be one line.
fn line(peer: &mut Peer) -> String {
    let output = String::from_utf8(peer.take_output()).expect("UTF-8");
    assert_eq!(output.find('\n'), Some(output.len() - 1), "one line: {output:?}");
    assert!(!output.contains('\r'), "{output:?}");
    output
}

fn one_line(text: &str) -> String {
    format!("{}\n", text.replace('\n', " "))
}

fn body<T: Serialize>(value: &T) -> Body {
    Body::of(value).expect("a message can be JSON")
}

fn read<T: DeserializeOwned>(raw: &RawValue) -> T {
    serde_json::from_str(raw.get()).unwrap_or_else(|error| panic!("{error}: {raw}"))
}
