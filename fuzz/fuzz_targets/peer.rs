//! The peer target: for any input, a peer does not panic, answers each request once, and keeps its memory bounded.
//!
//! The first byte selects how the rest is split into reads, and the second whether the output is taken at once or as
//! late as possible. Bytes from 0x80 stand for whole pieces of messages, so that the fuzzer need not discover JSON-RPC
//! by chance.

#![no_main]

use bowline_wire::ConnectionLimits;
use bowline_wire::message::body::JsonBody;
use bowline_wire::limits::MAX_REFUSALS;
use bowline_wire::peer::{Peer, PeerEvent, RespondError};
use bowline_wire::schema::v1::{Error, RequestId};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The pieces that the bytes from 0x80 stand for.
const PIECES: &[&[u8]] = &[
    b"{\"jsonrpc\":\"2.0\",",
    b"\"id\":",
    b"\"id\":1,",
    b"\"id\":\"1\",",
    b"\"method\":\"now\"",
    b"\"method\":\"later\"",
    b"\"params\":",
    b"\"result\":",
    b"\"error\":{\"code\":-1,\"message\":\"no\"}",
    b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"now\",\"params\":[]}",
    b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"later\",\"params\":[]}",
    b"{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":3}}",
    b"[0,0,0,0]\n",
    b"}\n",
    b"}]\n",
    b"},",
    b"\\ud800",
    b"\\u0001\\u0001\\u0001\\u0001",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"9223372036854775807",
    b"[[[[[[[[[[[[[[[[",
    b"                                                                ",
];

fn limits() -> ConnectionLimits {
    let mut limits = ConnectionLimits::DEFAULT.with_max_line(256);
    limits.max_batch = 4;
    limits.max_incoming = 4;
    limits.max_outgoing = 2;
    limits
}

/// The longest response of the service or of the peer itself: an id with every byte escaped, and a text.
const LONGEST_ANSWER: usize = 6 * 256 + 512;

/// The code of the service's error responses.
const SERVICE_ERROR: i32 = -1;

fuzz_target!(|data: &[u8]| {
    let [cut, output, rest @ ..] = data else { return };
    let mut bytes = Vec::new();
    for byte in rest {
        match PIECES.get(usize::from(*byte).wrapping_sub(0x80)) {
            Some(piece) => bytes.extend_from_slice(piece),
            None => bytes.push(*byte),
        }
    }
    let mut judge = Judge::new(if output % 2 == 0 { Output::AtOnce } else { Output::WhenFlooded });
    for chunk in bytes.chunks(usize::from(*cut) + 1) {
        judge.receive(chunk);
    }
    judge.finish();
});

#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    AtOnce,
    WhenFlooded,
}

/// A peer with a service that answers some requests at once and others as late as possible, and the checks of both.
struct Judge {
    peer: Peer,
    output: Output,
    /// Received requests without a response, oldest first.
    owed: Vec<RequestId>,
    /// Responses that were sent and are not yet in the output.
    given: Vec<RequestId>,
    /// The number of malformed messages without a response in the output; not every one gets a response.
    refusals: usize,
    /// Our own requests that wait for a response.
    waiting: Vec<i64>,
}

impl Judge {
    fn new(output: Output) -> Self {
        let mut peer = Peer::new(limits());
        let waiting: Vec<i64> =
            (0..2).map(|_| peer.request("ask", JsonBody::empty_object()).expect("two may wait")).collect();
        peer.request("ask", JsonBody::empty_object()).expect_err("no more may wait");
        peer.take_output();
        Judge { peer, output, owed: Vec::new(), given: Vec::new(), refusals: 0, waiting }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.peer.receive(bytes);
        self.take_events();
        if self.output == Output::AtOnce || self.peer.is_flooded() || self.given.len() > 64 {
            self.take_output();
        }
        if self.owed.len() == limits().max_incoming {
            self.answer_oldest();
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.peer.next_event() {
            match event {
                PeerEvent::Request { id, method, .. } => {
                    assert!(!self.owed.contains(&id), "the id {id} is owed an answer already");
                    let now = method == "now";
                    self.owed.push(id);
                    assert!(self.owed.len() <= limits().max_incoming);
                    if now {
                        self.owed.rotate_right(1);
                        self.answer_oldest();
                    }
                }
                PeerEvent::Response { id, .. } => {
                    let at = self.waiting.iter().position(|waiting| *waiting == id);
                    self.waiting.remove(at.expect("an answer came that no request waits for"));
                }
                PeerEvent::Violation(_) => self.refusals += 1,
                PeerEvent::Notification { .. } | PeerEvent::Cancel { .. } => {}
                PeerEvent::LateResponse { .. } => panic!("nothing was cancelled"),
            }
            assert_eq!(self.peer.unanswered_count(), self.owed.len());
            let most = (self.given.len() + self.refusals.min(2 * MAX_REFUSALS)) * LONGEST_ANSWER;
            assert!(self.peer.output_len() <= most, "{} bytes of output", self.peer.output_len());
        }
    }

    fn answer_oldest(&mut self) {
        let id = self.owed.remove(0);
        let answer = if self.given.len() % 2 == 0 {
            Ok(JsonBody::empty_object())
        } else {
            Err(Error::new(SERVICE_ERROR, "no"))
        };
        self.peer.respond(&id, answer).expect("an answer is owed");
        assert_eq!(self.peer.respond(&id, Ok(JsonBody::empty_object())), Err(RespondError(id.clone())));
        self.given.push(id);
    }

    /// Checks that every line is a response that was sent, an error for a malformed message, or a batch of these.
    fn take_output(&mut self) {
        let output = String::from_utf8(self.peer.take_output()).expect("the output is text");
        assert_eq!(self.peer.output_len(), 0);
        assert!(!self.peer.is_flooded());
        assert!(output.is_empty() || output.ends_with('\n'));
        for line in output.lines() {
            match serde_json::from_str(line).expect("a line is JSON") {
                Value::Array(answers) => {
                    assert!(!answers.is_empty());
                    answers.into_iter().for_each(|answer| self.count(&answer));
                }
                answer => self.count(&answer),
            }
        }
    }

    fn count(&mut self, answer: &Value) {
        let members: Vec<&str> =
            answer.as_object().expect("an answer is an object").keys().map(String::as_str).collect();
        assert!(members == ["jsonrpc", "id", "result"] || members == ["jsonrpc", "id", "error"], "{answer}");
        let id: RequestId = serde_json::from_value(answer["id"].clone()).expect("an id");
        // The service's error code is one that the peer does not use.
        if answer.get("result").is_some() || answer["error"]["code"] == SERVICE_ERROR {
            let given = self.given.iter().position(|given| *given == id);
            self.given.remove(given.expect("an answer that was given"));
        } else {
            self.refusals = self.refusals.checked_sub(1).expect("one error for each bad message");
        }
    }

    /// Answers all outstanding requests, and checks that a new request is still served.
    fn finish(mut self) {
        self.receive(b"\n");
        while !self.owed.is_empty() {
            self.answer_oldest();
        }
        self.take_output();
        assert_eq!(self.given, [], "answers that were given and have not left");
        self.receive(b"{\"jsonrpc\":\"2.0\",\"id\":\"after\",\"method\":\"later\"}\n");
        assert_eq!(self.owed, [RequestId::Str("after".to_owned())]);
        self.answer_oldest();
        self.take_output();
        assert_eq!(self.given, []);
        self.peer.end_input();
        assert!(self.peer.next_event().is_none());
    }
}
