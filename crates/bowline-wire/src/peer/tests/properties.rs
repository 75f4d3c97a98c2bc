//! What holds for all traffic: valid, in any order and cut anywhere, or garbage.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::*;

/// One line of the other side: its text, the events it stands for, and the ids that are owed an answer together.
#[derive(Debug, Clone, Default)]
struct Sent {
    text: String,
    events: Vec<String>,
    asked: Vec<RequestId>,
}

/// The kinds of messages that are valid at any time, given that each has an id of its own.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Request,
    StringRequest,
    Notification,
    Cancel,
    Response,
    ErrorResponse,
}

fn kind() -> impl Strategy<Value = Kind> {
    use Kind::{Cancel, ErrorResponse, Notification, Request, Response, StringRequest};
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
fn traffic() -> impl Strategy<Value = Vec<Sent>> {
    let message = || (kind(), params());
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
                one(kind, next_id - 1, &params)
            });
            sent.push(together(messages.collect(), is_batch, end));
        }
        sent
    })
}

fn one(kind: Kind, id: i64, params: &str) -> Sent {
    let (members, event, asked) = match kind {
        Kind::Request => (
            format!(r#""id":{id},"method":"m","params":{params}"#),
            format!("request {id} m {params}"),
            Some(RequestId::Number(id)),
        ),
        Kind::StringRequest => (
            format!(r#""method":"m","id":"{id}""#),
            format!(r#"request "{id}" m -"#),
            Some(RequestId::Str(id.to_string())),
        ),
        Kind::Notification => {
            (format!(r#""params":{params},"method":"n""#), format!("notification n {params}"), None)
        }
        Kind::Cancel => (
            format!(r#""method":"$/cancel_request","params":{{"requestId":{id}}}"#),
            format!("cancel {id}"),
            None,
        ),
        Kind::Response => {
            (format!(r#""id":{id},"result":{params}"#), format!("response {id} {params}"), None)
        }
        Kind::ErrorResponse => (
            format!(r#""id":{id},"error":{{"code":-1,"message":"no"}}"#),
            format!(r#"response {id} error -1 "no""#),
            None,
        ),
    };
    let text = format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
    Sent { text, events: vec![event], asked: asked.into_iter().collect() }
}

fn together(messages: Vec<Sent>, is_batch: bool, end: &str) -> Sent {
    let texts: Vec<String> = messages.iter().map(|message| message.text.clone()).collect();
    let text = if is_batch { format!("[{}]{end}", texts.join(" , ")) } else { texts.concat() + end };
    Sent {
        text,
        events: messages.iter().flat_map(|message| message.events.clone()).collect(),
        asked: messages.into_iter().flat_map(|message| message.asked).collect(),
    }
}

/// Where the bytes are cut, how many events are looked at there, and how many requests are answered.
#[derive(Debug, Clone, Copy)]
struct Cut {
    at: Index,
    events: usize,
    answers: usize,
}

fn cuts() -> impl Strategy<Value = Vec<Cut>> {
    let events = prop_oneof![Just(usize::MAX), 0usize..3];
    let cut =
        (any::<Index>(), events, 0usize..3).prop_map(|(at, events, answers)| Cut { at, events, answers });
    prop::collection::vec(cut, 0..12)
}

/// Whether messages in the usual form are taken without being read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Haste {
    Yes,
    No,
}

fn haste() -> impl Strategy<Value = Haste> {
    prop::sample::select(vec![Haste::Yes, Haste::No])
}

/// What the other side did, as far as it matters here.
struct Deed {
    text: String,
    kind: DeedKind,
}

enum DeedKind {
    Request(RequestId),
    Response(i64),
    Breach,
    Other,
}

impl Deed {
    fn read(event: Event<'_>) -> Self {
        let text = show(&event);
        let kind = match event {
            Event::Request { id, .. } => DeedKind::Request(id),
            Event::Response { id, .. } => DeedKind::Response(id),
            Event::Breach(_) => DeedKind::Breach,
            Event::Notification { .. } | Event::Cancel { .. } => DeedKind::Other,
            Event::LateResponse { .. } => panic!("nothing was cancelled"),
        };
        Deed { text, kind }
    }

    /// Takes a message whose body is JSON.
    fn guessed(guess: Guess<'_>) -> Option<Self> {
        let body = serde_json::from_str::<&RawValue>(guess.body).ok()?.get();
        Some(match guess.head {
            Head::Request { id, method } => {
                let text = format!("request {} {method} {body}", serde_json::to_string(&id).unwrap());
                Deed { text, kind: DeedKind::Request(id) }
            }
            Head::Notification { method } => {
                Deed { text: format!("notification {method} {body}"), kind: DeedKind::Other }
            }
            Head::Result { id } => {
                Deed { text: format!("response {id} {body}"), kind: DeedKind::Response(id) }
            }
        })
    }
}

/// A peer whose requests are answered now and then, and a check of all that it does.
struct Judge {
    peer: Peer,
    haste: Haste,
    events: Vec<String>,
    /// Requests that came and are not answered yet, oldest first.
    owed: Vec<RequestId>,
    /// Answers that were given and have not left yet: those of a batch wait for each other.
    given: Vec<RequestId>,
    /// Our requests that wait for an answer.
    waiting: Vec<i64>,
    /// How many bad messages have not been answered; they need not be.
    refusals: usize,
    /// The ids that were answered, line by line.
    answered: Vec<Vec<Value>>,
}

impl Judge {
    fn new(limits: Limits, requests: i64, haste: Haste) -> Self {
        let mut peer = Peer::new(limits);
        let waiting = (0..requests).map(|_| peer.request("m", Body::empty_object()).unwrap()).collect();
        peer.take_output();
        Judge {
            peer,
            haste,
            events: vec![],
            owed: vec![],
            given: vec![],
            waiting,
            refusals: 0,
            answered: vec![],
        }
    }

    fn receive_in_chunks(&mut self, bytes: &[u8], cuts: &[Cut]) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| (cut.at.index(bytes.len() + 1), cut)).collect();
        cuts.sort_unstable_by_key(|(at, _)| *at);
        let mut from = 0;
        for (at, cut) in cuts {
            self.receive(&bytes[from..at], cut.events);
            self.answer(cut.answers);
            from = at;
        }
        self.receive(&bytes[from..], usize::MAX);
    }

    fn receive(&mut self, bytes: &[u8], most_events: usize) {
        self.peer.receive(bytes);
        for _ in 0..most_events {
            let take = |guess: Guess<'_>| if self.haste == Haste::Yes { Deed::guessed(guess) } else { None };
            let deed = match self.peer.next(take) {
                Some(Next::Taken(deed)) => deed,
                Some(Next::Event(event)) => Deed::read(event),
                None => break,
            };
            self.events.push(deed.text);
            match deed.kind {
                DeedKind::Request(id) => {
                    assert!(!self.owed.contains(&id), "{id} came while it was owed");
                    self.owed.push(id);
                }
                DeedKind::Response(id) => {
                    let at = self.waiting.iter().position(|waiting| *waiting == id);
                    self.waiting.remove(at.expect("only what was asked is answered, and once"));
                }
                DeedKind::Breach => self.refusals += 1,
                DeedKind::Other => {}
            }
            self.look_at_output();
        }
        self.look_at_output();
        assert_eq!(self.peer.owed(), self.owed.len());
    }

    fn answer(&mut self, count: usize) {
        for id in self.owed.drain(..count.min(self.owed.len())) {
            let again = Body::of("again").unwrap();
            self.peer.respond(&id, Ok(Body::empty_object())).unwrap();
            assert_eq!(self.peer.respond(&id, Ok(again)), Err(NotOwed(id.clone())));
            self.given.push(id);
        }
        self.look_at_output();
    }

    /// Every line is an answer, or a batch of them, that was given or tells of a bad message.
    fn look_at_output(&mut self) {
        let output = String::from_utf8(self.peer.take_output()).unwrap();
        assert!(output.is_empty() || output.ends_with('\n'));
        for line in output.lines() {
            let answers = match serde_json::from_str(line).unwrap() {
                Value::Array(answers) => answers,
                answer => vec![answer],
            };
            assert!(!answers.is_empty());
            let is_batch = line.starts_with('[');
            let ids = answers.into_iter().map(|answer| self.look_at_answer(answer, is_batch)).collect();
            self.answered.push(ids);
        }
    }

    fn look_at_answer(&mut self, answer: Value, is_batch: bool) -> Value {
        let members: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(members == ["jsonrpc", "id", "result"] || members == ["jsonrpc", "id", "error"], "{answer}");
        assert_eq!(answer["jsonrpc"], "2.0");
        let id: RequestId = serde_json::from_value(answer["id"].clone()).unwrap();
        if answer.get("result").is_some() {
            let given = self.given.iter().position(|given| *given == id);
            self.given.remove(given.expect("an answer that was given"));
        } else {
            // What was wrong in a batch waits for the rest of it, and a new request may have the same id.
            assert!(is_batch || !self.owed.contains(&id), "{id} is owed an answer, and another came");
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
        haste in haste(),
    ) {
        let text: String = traffic.iter().map(|sent| sent.text.as_str()).collect();
        let mut judge = Judge::new(Limits::DEFAULT, 48, haste);
        judge.receive_in_chunks(text.as_bytes(), &cuts);
        judge.answer(usize::MAX);

        let events: Vec<_> = traffic.iter().flat_map(|sent| sent.events.clone()).collect();
        prop_assert_eq!(judge.events, events);
        let asked = traffic.iter().map(|sent| sent.asked.clone()).filter(|ids| !ids.is_empty());
        let mut asked: Vec<_> = asked.map(|ids| serde_json::to_string(&ids).unwrap()).collect();
        let mut answered: Vec<_> = judge.answered.iter().map(|ids| serde_json::to_string(ids).unwrap()).collect();
        asked.sort_unstable();
        answered.sort_unstable();
        prop_assert_eq!(answered, asked);
        prop_assert_eq!(judge.given, vec![]);
    }

    #[test]
    fn no_garbage_is_answered_twice_or_stops_what_comes_after_it(
        garbage in garbage(),
        cuts in cuts(),
        haste in haste(),
    ) {
        let mut judge = Judge::new(SMALL, 2, haste);
        judge.receive_in_chunks(&garbage, &cuts);
        judge.receive(b"\n", usize::MAX);
        judge.answer(usize::MAX);
        judge.receive(b"{\"jsonrpc\":\"2.0\",\"id\":\"after\",\"method\":\"m\"}\n", usize::MAX);
        prop_assert_eq!(judge.events.last().map(String::as_str), Some(r#"request "after" m -"#));
        judge.answer(usize::MAX);
        prop_assert_eq!(judge.answered.last().unwrap(), &[Value::from("after")]);
        prop_assert_eq!(judge.given, vec![]);
    }

    #[test]
    fn haste_changes_nothing(garbage in garbage(), cuts in cuts()) {
        let [hasty, careful] = [Haste::Yes, Haste::No].map(|haste| {
            let mut judge = Judge::new(SMALL, 2, haste);
            judge.receive_in_chunks(&garbage, &cuts);
            (judge.events, judge.answered)
        });
        prop_assert_eq!(hasty, careful);
    }
}

/// Bytes that mean nothing, and valid lines after some accidents.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let lines = prop::collection::vec((kind(), 0i64..6, any::<bool>()), 1..8).prop_map(|messages| {
        let line =
            |(kind, id, is_batch)| together(vec![one(kind, id, r#"{"a":["b"]}"#)], is_batch, "\n").text;
        messages.into_iter().map(line).collect::<String>().into_bytes()
    });
    let hurt = (lines, prop::collection::vec(accident(), 0..6)).prop_map(|(mut bytes, accidents)| {
        for (at, length, instead) in accidents {
            let at = at.index(bytes.len() + 1);
            let end = bytes.len().min(at + length);
            bytes.splice(at..end, instead);
        }
        bytes
    });
    prop::collection::vec(prop_oneof![1 => noise, 4 => hurt], 1..4).prop_map(|parts| parts.concat())
}

/// A place, how many bytes are lost there, and what comes instead.
fn accident() -> impl Strategy<Value = (Index, usize, Vec<u8>)> {
    let parts: Vec<&[u8]> = vec![
        b"",
        b"\n",
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"\\",
        b"\xff",
        b"\0",
        b"1",
        b"null",
        b"\"id\":1,",
    ];
    let instead = prop_oneof![
        prop::sample::select(parts).prop_map(<[u8]>::to_vec),
        Just(vec![b' '; SMALL.max_line]),
        any::<u8>().prop_map(|byte| vec![byte]),
    ];
    (any::<Index>(), 0usize..4, instead)
}
