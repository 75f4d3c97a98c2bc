//! Properties of all traffic: valid, in any order and split anywhere, or garbage.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::*;

/// One line of the other side: its text, its events, and the ids that are answered together.
#[derive(Debug, Clone, Default)]
struct SentLine {
    text: String,
    events: Vec<String>,
    request_ids: Vec<RequestId>,
}

/// The kinds of messages that are valid at any time, if their ids are unique.
#[derive(Debug, Clone, Copy)]
enum TrafficKind {
    Request,
    StringRequest,
    Notification,
    Cancel,
    Response,
    ErrorResponse,
}

fn traffic_kind() -> impl Strategy<Value = TrafficKind> {
    use TrafficKind::{Cancel, ErrorResponse, Notification, Request, Response, StringRequest};
    prop::sample::select(vec![Request, StringRequest, Notification, Cancel, Response, ErrorResponse])
}

fn params() -> impl Strategy<Value = String> {
    let texts = [r#"{"a":[1, {"b":null}]}"#, r#"{"id":1,"result":2}"#, "[]", r#""\ud800 \n ключ""#, "1e400"];
    prop_oneof![
        prop::sample::select(texts.map(str::to_owned).to_vec()),
        Just(format!("[{}1]", "1,".repeat(3000)))
    ]
}

/// Lines of single messages and of batches, with blank lines and both line ends.
fn traffic() -> impl Strategy<Value = Vec<SentLine>> {
    let message = || (traffic_kind(), params());
    let line = prop_oneof![
        4 => message().prop_map(|message| (vec![message], false)),
        1 => prop::collection::vec(message(), 1..4).prop_map(|messages| (messages, true)),
        1 => Just((vec![], false)),
    ];
    let line = (line, prop::sample::select(vec!["\n", "\r\n", " \n"]));
    prop::collection::vec(line, 1..12).prop_map(|lines| {
        let mut next_id = 0;
        let mut sent = Vec::new();
        for ((messages, is_batch), end) in lines {
            let messages = messages.into_iter().map(|(kind, params)| {
                next_id += 1;
                message_line(kind, next_id - 1, &params)
            });
            sent.push(join_messages(messages.collect(), is_batch, end));
        }
        sent
    })
}

fn message_line(kind: TrafficKind, id: i64, params: &str) -> SentLine {
    let (members, event, request_id) = match kind {
        TrafficKind::Request => (
            format!(r#""id":{id},"method":"m","params":{params}"#),
            format!("request {id} m {params}"),
            Some(RequestId::Number(id)),
        ),
        TrafficKind::StringRequest => (
            format!(r#""method":"m","id":"{id}""#),
            format!(r#"request "{id}" m -"#),
            Some(RequestId::Str(id.to_string())),
        ),
        TrafficKind::Notification => {
            (format!(r#""params":{params},"method":"n""#), format!("notification n {params}"), None)
        }
        TrafficKind::Cancel => (
            format!(r#""method":"$/cancel_request","params":{{"requestId":{id}}}"#),
            format!("cancel {id}"),
            None,
        ),
        TrafficKind::Response => {
            (format!(r#""id":{id},"result":{params}"#), format!("response {id} {params}"), None)
        }
        TrafficKind::ErrorResponse => (
            format!(r#""id":{id},"error":{{"code":-1,"message":"no"}}"#),
            format!(r#"response {id} error -1 "no""#),
            None,
        ),
    };
    let text = format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
    SentLine { text, events: vec![event], request_ids: request_id.into_iter().collect() }
}

fn join_messages(messages: Vec<SentLine>, is_batch: bool, end: &str) -> SentLine {
    let texts: Vec<String> = messages.iter().map(|message| message.text.clone()).collect();
    let text = if is_batch { format!("[{}]{end}", texts.join(" , ")) } else { texts.concat() + end };
    SentLine {
        text,
        events: messages.iter().flat_map(|message| message.events.clone()).collect(),
        request_ids: messages.into_iter().flat_map(|message| message.request_ids).collect(),
    }
}

/// Where the bytes are split, how many events are taken there, and how many requests are answered.
#[derive(Debug, Clone, Copy)]
struct InputCut {
    at: Index,
    events: usize,
    answers: usize,
}

fn cuts() -> impl Strategy<Value = Vec<InputCut>> {
    let events = prop_oneof![Just(usize::MAX), 0usize..3];
    let cut = (any::<Index>(), events, 0usize..3).prop_map(|(at, events, answers)| InputCut {
        at,
        events,
        answers,
    });
    prop::collection::vec(cut, 0..12)
}

/// Whether messages in the usual form are taken without checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParseMode {
    Unchecked,
    Checked,
}

fn parse_mode() -> impl Strategy<Value = ParseMode> {
    prop::sample::select(vec![ParseMode::Unchecked, ParseMode::Checked])
}

/// An action of the other side, as far as it matters here.
struct PeerAction {
    text: String,
    kind: PeerActionKind,
}

enum PeerActionKind {
    Request(RequestId),
    Response(i64),
    Violation,
    Other,
}

impl PeerAction {
    fn from_event(event: PeerEvent<'_>) -> Self {
        let text = show_event(&event);
        let kind = match event {
            PeerEvent::Request { id, .. } => PeerActionKind::Request(id),
            PeerEvent::Response { id, .. } => PeerActionKind::Response(id),
            PeerEvent::Violation(_) => PeerActionKind::Violation,
            PeerEvent::Notification { .. } | PeerEvent::Cancel { .. } => PeerActionKind::Other,
            PeerEvent::LateResponse { .. } => panic!("nothing was cancelled"),
        };
        PeerAction { text, kind }
    }

    /// Handles a message whose body is JSON.
    fn from_unchecked(message: UncheckedMessage<'_>) -> Option<Self> {
        let body = serde_json::from_str::<&RawValue>(message.body).ok()?.get();
        Some(match message.head {
            MessageHead::Request { id, method } => {
                let text = format!("request {} {method} {body}", serde_json::to_string(&id).unwrap());
                PeerAction { text, kind: PeerActionKind::Request(id) }
            }
            MessageHead::Notification { method } => {
                PeerAction { text: format!("notification {method} {body}"), kind: PeerActionKind::Other }
            }
            MessageHead::Result { id } => {
                PeerAction { text: format!("response {id} {body}"), kind: PeerActionKind::Response(id) }
            }
        })
    }
}

/// A peer whose requests are answered now and then, and a check of everything it does.
struct TrafficChecker {
    peer: Peer,
    parse_mode: ParseMode,
    events: Vec<String>,
    /// Unanswered requests, oldest first.
    unanswered: Vec<RequestId>,
    /// Answers that were given but have not left yet: those of a batch wait for each other.
    given_responses: Vec<RequestId>,
    /// Our unanswered requests.
    waiting: Vec<i64>,
    /// The number of bad messages that have not been answered; they need not be.
    refusals: usize,
    /// The answered ids, line by line.
    answered_ids: Vec<Vec<Value>>,
}

impl TrafficChecker {
    fn new(limits: ConnectionLimits, requests: i64, parse_mode: ParseMode) -> Self {
        let mut peer = Peer::new(limits);
        let waiting = (0..requests).map(|_| peer.request("m", JsonBody::empty_object()).unwrap()).collect();
        peer.take_output();
        TrafficChecker {
            peer,
            parse_mode,
            events: vec![],
            unanswered: vec![],
            given_responses: vec![],
            waiting,
            refusals: 0,
            answered_ids: vec![],
        }
    }

    fn receive_in_chunks(&mut self, bytes: &[u8], cuts: &[InputCut]) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| (cut.at.index(bytes.len() + 1), cut)).collect();
        cuts.sort_unstable_by_key(|(at, _)| *at);
        let mut from = 0;
        for (at, cut) in cuts {
            self.receive(&bytes[from..at], cut.events);
            self.answer_oldest(cut.answers);
            from = at;
        }
        self.receive(&bytes[from..], usize::MAX);
    }

    fn receive(&mut self, bytes: &[u8], max_events: usize) {
        self.peer.receive(bytes);
        for _ in 0..max_events {
            let handle = |message: UncheckedMessage<'_>| {
                if self.parse_mode == ParseMode::Unchecked {
                    PeerAction::from_unchecked(message)
                } else {
                    None
                }
            };
            let action = match self.peer.next_message(handle) {
                Some(NextMessage::Handled(action)) => action,
                Some(NextMessage::Event(event)) => PeerAction::from_event(event),
                None => break,
            };
            self.events.push(action.text);
            match action.kind {
                PeerActionKind::Request(id) => {
                    assert!(!self.unanswered.contains(&id), "{id} came while it was owed");
                    self.unanswered.push(id);
                }
                PeerActionKind::Response(id) => {
                    let at = self.waiting.iter().position(|waiting| *waiting == id);
                    self.waiting.remove(at.expect("only what was asked is answered, and once"));
                }
                PeerActionKind::Violation => self.refusals += 1,
                PeerActionKind::Other => {}
            }
            self.check_output();
        }
        self.check_output();
        assert_eq!(self.peer.unanswered_count(), self.unanswered.len());
    }

    fn answer_oldest(&mut self, count: usize) {
        for id in self.unanswered.drain(..count.min(self.unanswered.len())) {
            let duplicate = JsonBody::from_value("again").unwrap();
            self.peer.respond(&id, Ok(JsonBody::empty_object())).unwrap();
            assert_eq!(self.peer.respond(&id, Ok(duplicate)), Err(RespondError(id.clone())));
            self.given_responses.push(id);
        }
        self.check_output();
    }

    /// Checks that every line is an answer, or a batch of them, that was given or reports a bad message.
    fn check_output(&mut self) {
        let output = String::from_utf8(self.peer.take_output()).unwrap();
        assert!(output.is_empty() || output.ends_with('\n'));
        for line in output.lines() {
            let answers = match serde_json::from_str(line).unwrap() {
                Value::Array(answers) => answers,
                answer => vec![answer],
            };
            assert!(!answers.is_empty());
            let is_batch = line.starts_with('[');
            let ids = answers.into_iter().map(|answer| self.check_response(answer, is_batch)).collect();
            self.answered_ids.push(ids);
        }
    }

    fn check_response(&mut self, answer: Value, is_batch: bool) -> Value {
        let members: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(members == ["jsonrpc", "id", "result"] || members == ["jsonrpc", "id", "error"], "{answer}");
        assert_eq!(answer["jsonrpc"], "2.0");
        let id: RequestId = serde_json::from_value(answer["id"].clone()).unwrap();
        if answer.get("result").is_some() {
            let at = self.given_responses.iter().position(|response| *response == id);
            self.given_responses.remove(at.expect("an answer that was given"));
        } else {
            // A refusal in a batch waits for the rest of it, and a new request may have the same id.
            assert!(is_batch || !self.unanswered.contains(&id), "{id} is owed an answer, and another came");
            assert!(self.refusals > 0, "nothing was wrong: {answer}");
            self.refusals -= 1;
        }
        answer["id"].clone()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_order_and_chunking_of_valid_traffic_gives_the_same_events(
        traffic in traffic(),
        cuts in cuts(),
        parse_mode in parse_mode(),
    ) {
        let text: String = traffic.iter().map(|line| line.text.as_str()).collect();
        let mut checker = TrafficChecker::new(ConnectionLimits::DEFAULT, 48, parse_mode);
        checker.receive_in_chunks(text.as_bytes(), &cuts);
        checker.answer_oldest(usize::MAX);

        let events: Vec<_> = traffic.iter().flat_map(|line| line.events.clone()).collect();
        prop_assert_eq!(checker.events, events);
        let requested = traffic.iter().map(|line| line.request_ids.clone()).filter(|ids| !ids.is_empty());
        let mut requested: Vec<_> = requested.map(|ids| serde_json::to_string(&ids).unwrap()).collect();
        let mut answered: Vec<_> = checker.answered_ids.iter().map(|ids| serde_json::to_string(ids).unwrap()).collect();
        requested.sort_unstable();
        answered.sort_unstable();
        prop_assert_eq!(answered, requested);
        prop_assert_eq!(checker.given_responses, vec![]);
    }

    #[test]
    fn no_garbage_is_answered_twice_or_stops_what_comes_after_it(
        garbage in garbage(),
        cuts in cuts(),
        parse_mode in parse_mode(),
    ) {
        let mut checker = TrafficChecker::new(SMALL_LIMITS, 2, parse_mode);
        checker.receive_in_chunks(&garbage, &cuts);
        checker.receive(b"\n", usize::MAX);
        checker.answer_oldest(usize::MAX);
        checker.receive(b"{\"jsonrpc\":\"2.0\",\"id\":\"after\",\"method\":\"m\"}\n", usize::MAX);
        prop_assert_eq!(checker.events.last().map(String::as_str), Some(r#"request "after" m -"#));
        checker.answer_oldest(usize::MAX);
        prop_assert_eq!(checker.answered_ids.last().unwrap(), &[Value::from("after")]);
        prop_assert_eq!(checker.given_responses, vec![]);
    }

    #[test]
    fn haste_changes_nothing(garbage in garbage(), cuts in cuts()) {
        let [unchecked, checked] = [ParseMode::Unchecked, ParseMode::Checked].map(|parse_mode| {
            let mut checker = TrafficChecker::new(SMALL_LIMITS, 2, parse_mode);
            checker.receive_in_chunks(&garbage, &cuts);
            (checker.events, checker.answered_ids)
        });
        prop_assert_eq!(unchecked, checked);
    }
}

/// Meaningless bytes, and valid lines after some corruption.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let lines = prop::collection::vec((traffic_kind(), 0i64..6, any::<bool>()), 1..8).prop_map(|messages| {
        let line = |(kind, id, is_batch)| {
            join_messages(vec![message_line(kind, id, r#"{"a":["b"]}"#)], is_batch, "\n").text
        };
        messages.into_iter().map(line).collect::<String>().into_bytes()
    });
    let corrupted =
        (lines, prop::collection::vec(corruption(), 0..6)).prop_map(|(mut bytes, corruptions)| {
            for (at, length, replacement) in corruptions {
                let at = at.index(bytes.len() + 1);
                let end = bytes.len().min(at + length);
                bytes.splice(at..end, replacement);
            }
            bytes
        });
    prop::collection::vec(prop_oneof![1 => noise, 4 => corrupted], 1..4).prop_map(|parts| parts.concat())
}

/// An offset, the number of bytes lost there, and their replacement.
fn corruption() -> impl Strategy<Value = (Index, usize, Vec<u8>)> {
    let parts: Vec<&[u8]> = vec![
        b"", b"\n", b"\"", b"{", b"}", b"[", b"]", b",", b"\\", b"\xff", b"\0", b"1", b"null", b"\"id\":1,",
    ];
    let replacement = prop_oneof![
        prop::sample::select(parts).prop_map(<[u8]>::to_vec),
        Just(vec![b' '; SMALL_LIMITS.max_line]),
        any::<u8>().prop_map(|byte| vec![byte]),
    ];
    (any::<Index>(), 0usize..4, replacement)
}
