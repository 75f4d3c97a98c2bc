//! Tests of a peer: its events, and its output.

mod properties;

use expect_test::{Expect, expect};

use super::*;
use crate::limits::MAX_REFUSALS;
use crate::message::envelope::MessageHead;

/// Small enough that a script can reach every one of them.
const SMALL_LIMITS: ConnectionLimits = ConnectionLimits {
    max_line: 200,
    max_batch: 4,
    max_incoming: 3,
    max_outgoing: 2,
    ..ConnectionLimits::DEFAULT
};

/// Runs a script, and shows the events and the output (`>`) after each of its lines:
/// - `< TEXT`: the other side sends a line, in which `\xff` stands for that byte
/// - `<< TEXT`: the other side sends a line without its newline, and ends
/// - `answer ID JSON`, `fail ID REASON`: its request is answered
/// - `ask METHOD JSON`, `tell METHOD JSON`, `cancel ID`: a request, a notification, a cancellation of ours
///
/// A request for `now` is answered as soon as it is seen.
fn check(script: &str, expected: Expect) {
    let mut peer = Peer::new(SMALL_LIMITS);
    let steps = script.lines().map(str::trim).filter(|step| !step.is_empty());
    let output: String = steps.map(|step| run_step(&mut peer, step)).collect();
    expected.assert_eq(&output);
}

fn run_step(peer: &mut Peer, step: &str) -> String {
    let (verb, rest) = step.split_once(' ').unwrap();
    let (name, text) = rest.split_once(' ').unwrap_or((rest, "{}"));
    let id = || serde_json::from_str::<RequestId>(name).unwrap();
    let body = || JsonBody::from_raw(serde_json::from_str(text).unwrap());
    let mut output = match verb {
        "<" => {
            peer.receive(&[&to_bytes(rest)[..], b"\n"].concat());
            String::new()
        }
        "<<" => {
            peer.receive(&to_bytes(rest));
            peer.end_input();
            String::new()
        }
        "answer" => peer.respond(&id(), Ok(body())).map_or_else(show_error, |()| String::new()),
        "fail" => peer.respond(&id(), Err(Error::new(-1, text))).map_or_else(show_error, |()| String::new()),
        "ask" => peer.request(name, body()).map_or_else(show_error, |_| String::new()),
        "tell" => {
            peer.notify(name, body());
            String::new()
        }
        "cancel" => {
            peer.cancel(name.parse().unwrap());
            String::new()
        }
        _ => panic!("no such step: {verb}"),
    };
    while let Some(event) = peer.next_event() {
        output += &(show_event(&event) + "\n");
        if let PeerEvent::Request { id, method, .. } = event
            && method == "now"
        {
            peer.respond(&id, Ok(JsonBody::empty_object())).unwrap();
        }
    }
    for line in String::from_utf8(peer.take_output()).unwrap().lines() {
        output += &format!("> {line}\n");
    }
    output
}

fn show_error(error: impl std::error::Error) -> String {
    format!("! {error}\n")
}

fn to_bytes(text: &str) -> Vec<u8> {
    text.split(r"\xff").map(str::as_bytes).collect::<Vec<_>>().join(&0xff)
}

fn show_event(event: &PeerEvent<'_>) -> String {
    let id_text = |id: &RequestId| serde_json::to_string(id).unwrap();
    let params = |params: &Option<&RawValue>| params.map_or("-".to_owned(), |params| params.get().to_owned());
    match event {
        PeerEvent::Request { id, method, params: raw } => {
            format!("request {} {method} {}", id_text(id), params(raw))
        }
        PeerEvent::Notification { method, params: raw } => format!("notification {method} {}", params(raw)),
        PeerEvent::Response { id, outcome: Ok(result) } => format!("response {id} {}", result.get()),
        PeerEvent::Response { id, outcome: Err(error) } => {
            format!("response {id} error {} {:?}", i32::from(error.code), error.message)
        }
        PeerEvent::LateResponse { id } => format!("late response {id}"),
        PeerEvent::Cancel { id } => format!("cancel {}", id_text(id)),
        PeerEvent::Violation(violation) => format!("breach: {violation}"),
    }
}

#[test]
fn a_request_is_answered_with_its_own_id() {
    check(
        r#"
        < {"jsonrpc":"2.0","id":7,"method":"fs/read","params":{"path":"/a"}}
        < {"jsonrpc":"2.0","id":"7","method":"_vendor/x"}
        < {"jsonrpc":"2.0","id":"ключ\"\n","method":"unknown/method","params":[]}
        answer "7" {"b":2}
        answer 7 {"a":1}
        fail "ключ\"\n" no
        "#,
        expect![[r#"
            request 7 fs/read {"path":"/a"}
            request "7" _vendor/x -
            request "ключ\"\n" unknown/method []
            > {"jsonrpc":"2.0","id":"7","result":{"b":2}}
            > {"jsonrpc":"2.0","id":7,"result":{"a":1}}
            > {"jsonrpc":"2.0","id":"ключ\"\n","error":{"code":-1,"message":"no"}}
        "#]],
    );
}

#[test]
fn a_notification_gets_no_answer() {
    check(
        r#"
        < {"jsonrpc":"2.0","method":"session/update","params":{"text":"hi"}}
        < {"jsonrpc":"2.0","method":"unknown/method"}
        < {"jsonrpc":"2.0","method":"_vendor/x","params":null}
        "#,
        expect![[r#"
            notification session/update {"text":"hi"}
            notification unknown/method -
            notification _vendor/x null
        "#]],
    );
}

#[test]
fn requests_and_notifications_of_ours_leave_in_order() {
    check(
        r#"
        ask initialize {"protocolVersion":1}
        tell session/update {"n":1}
        ask quote"d {}
        < {"jsonrpc":"2.0","id":1,"result":null}
        < {"jsonrpc":"2.0","id":"0","error":{"code":-32000,"message":"log in","data":[1]}}
        "#,
        expect![[r#"
            > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}
            > {"jsonrpc":"2.0","method":"session/update","params":{"n":1}}
            > {"jsonrpc":"2.0","id":1,"method":"quote\"d","params":{}}
            response 1 null
            response 0 error -32000 "log in"
        "#]],
    );
}

#[test]
fn an_id_is_free_again_after_its_answer() {
    check(
        r#"
        < {"jsonrpc":"2.0","id":1,"method":"a"}
        answer 1 "first"
        < {"jsonrpc":"2.0","id":1,"method":"b"}
        answer 1 "second"
        "#,
        expect![[r#"
            request 1 a -
            > {"jsonrpc":"2.0","id":1,"result":"first"}
            request 1 b -
            > {"jsonrpc":"2.0","id":1,"result":"second"}
        "#]],
    );
}

#[test]
fn only_open_requests_are_answered_and_only_once() {
    check(
        r#"
        < {"jsonrpc":"2.0","id":1,"method":"a"}
        answer 2 {}
        answer "1" {}
        answer null {}
        answer 1 {}
        answer 1 {}
        fail 1 again
        "#,
        expect![[r#"
            request 1 a -
            ! no answer is owed to the request id 2
            ! no answer is owed to the request id 1
            ! no answer is owed to the request id null
            > {"jsonrpc":"2.0","id":1,"result":{}}
            ! no answer is owed to the request id 1
            ! no answer is owed to the request id 1
        "#]],
    );
}

#[test]
fn an_id_that_is_in_use_is_refused_and_the_first_request_keeps_its_answer() {
    check(
        r#"
        < {"jsonrpc":"2.0","id":1,"method":"first"}
        < {"jsonrpc":"2.0","id":1,"method":"second"}
        < {"jsonrpc":"2.0","id":1,"method":5}
        < {"jsonrpc":"2.0","id":1,"method":"third","params":"\xff"}
        < {"jsonrpc":"2.0","id":"1","method":"another id"}
        answer 1 {}
        answer 1 {}
        "#,
        expect![[r#"
            request 1 first -
            breach: the request id 1 is in use already
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the request id 1 is in use already"}}
            breach: "method" must be a string
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"\"method\" must be a string"}}
            breach: the message is not valid UTF-8
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid UTF-8"}}
            request "1" another id -
            > {"jsonrpc":"2.0","id":1,"result":{}}
            ! no answer is owed to the request id 1
        "#]],
    );
}

#[test]
fn a_request_over_the_limit_is_refused_as_busy() {
    check(
        r#"
        < {"jsonrpc":"2.0","id":1,"method":"a"}
        < {"jsonrpc":"2.0","id":2,"method":"a"}
        < {"jsonrpc":"2.0","id":3,"method":"a"}
        < {"jsonrpc":"2.0","id":4,"method":"a"}
        < {"jsonrpc":"2.0","method":"still heard"}
        answer 2 {}
        < {"jsonrpc":"2.0","id":4,"method":"a"}
        "#,
        expect![[r#"
            request 1 a -
            request 2 a -
            request 3 a -
            breach: more than 3 requests wait for an answer
            > {"jsonrpc":"2.0","id":4,"error":{"code":-32029,"message":"too many requests at once, the limit is 3","data":{"limit":3}}}
            notification still heard -
            > {"jsonrpc":"2.0","id":2,"result":{}}
            request 4 a -
        "#]],
    );
}

#[test]
fn the_other_side_may_cancel_a_request_and_is_still_owed_its_answer() {
    check(
        r#"
        < {"jsonrpc":"2.0","id":1,"method":"long"}
        < {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}
        < {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}
        fail 1 cancelled
        < {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}
        < {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"never came"}}
        < {"jsonrpc":"2.0","method":"$/cancel_request","params":{}}
        < {"jsonrpc":"2.0","method":"$/cancel_request"}
        "#,
        expect![[r#"
            request 1 long -
            cancel 1
            cancel 1
            > {"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"cancelled"}}
            cancel 1
            cancel "never came"
            notification $/cancel_request {}
            notification $/cancel_request -
        "#]],
    );
}

#[test]
fn after_a_cancel_the_first_answer_is_late_and_the_next_unknown() {
    check(
        r#"
        ask a
        cancel 0
        cancel 0
        < {"jsonrpc":"2.0","id":0,"error":{"code":-32800,"message":"cancelled"}}
        < {"jsonrpc":"2.0","id":0,"result":{}}
        ask b
        < {"jsonrpc":"2.0","id":1,"result":{}}
        cancel 1
        "#,
        expect![[r#"
            > {"jsonrpc":"2.0","id":0,"method":"a","params":{}}
            > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}
            late response 0
            breach: an answer came for the id 0, which no request waits for
            > {"jsonrpc":"2.0","id":1,"method":"b","params":{}}
            response 1 {}
        "#]],
    );
}

#[test]
fn an_unexpected_answer_changes_nothing() {
    check(
        r#"
        ask a
        < {"jsonrpc":"2.0","id":5,"result":{}}
        < {"jsonrpc":"2.0","id":"x","result":{}}
        < {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}
        < {"jsonrpc":"2.0","id":0,"result":1}
        < {"jsonrpc":"2.0","id":0,"result":2}
        "#,
        expect![[r#"
            > {"jsonrpc":"2.0","id":0,"method":"a","params":{}}
            breach: an answer came for the id 5, which no request waits for
            breach: an answer came for the id x, which no request waits for
            breach: an answer came for the id null, which no request waits for
            response 0 1
            breach: an answer came for the id 0, which no request waits for
        "#]],
    );
}

#[test]
fn a_broken_answer_is_the_end_of_the_request_it_names() {
    check(
        r#"
        ask a
        ask b
        < {"jsonrpc":"2.0","id":0,"result":{oops}}
        < {"jsonrpc":"2.0","id":0,"result":{}}
        < {"jsonrpc":"2.0","result":"\xff","id":1}
        ask c
        < {"jsonrpc":"2.0","id":2,"result":1,"error":{"code":1,"message":"both"}}
        ask d
        < {"jsonrpc":"2.0","id":3,"error":"no object"}
        ask e
        < {"jsonrpc":"2.0","id":4,"result":"0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789"}
        ask f
        cancel 5
        < {"jsonrpc":"2.0","id":5,"result":oops}
        < {"jsonrpc":"2.0","id":1.5,"result":{}}
        < {"jsonrpc":"2.0","result":{}}
        "#,
        expect![[r#"
            > {"jsonrpc":"2.0","id":0,"method":"a","params":{}}
            > {"jsonrpc":"2.0","id":1,"method":"b","params":{}}
            response 0 error -32603 "the answer cannot be read: the message is not valid JSON"
            breach: an answer came for the id 0, which no request waits for
            response 1 error -32603 "the answer cannot be read: the message is not valid UTF-8"
            > {"jsonrpc":"2.0","id":2,"method":"c","params":{}}
            response 2 error -32603 "the answer cannot be read: a message has a \"method\", or an \"id\" with either a \"result\" or an \"error\""
            > {"jsonrpc":"2.0","id":3,"method":"d","params":{}}
            response 3 error -32603 "the peer's error cannot be read"
            > {"jsonrpc":"2.0","id":4,"method":"e","params":{}}
            response 4 error -32603 "the answer cannot be read: a message of 211 bytes is over the limit of 200 bytes"
            > {"jsonrpc":"2.0","id":5,"method":"f","params":{}}
            > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}
            late response 5
            breach: an id is a string of at most 1024 bytes or an integer
            breach: a message has a "method", or an "id" with either a "result" or an "error"
        "#]],
    );
}

#[test]
fn only_so_many_requests_of_ours_may_wait() {
    check(
        r#"
        ask a
        ask b
        ask c
        cancel 0
        ask d
        ask e
        < {"jsonrpc":"2.0","id":0,"result":{}}
        ask f
        < {"jsonrpc":"2.0","id":1,"result":{}}
        ask g
        "#,
        expect![[r#"
            > {"jsonrpc":"2.0","id":0,"method":"a","params":{}}
            > {"jsonrpc":"2.0","id":1,"method":"b","params":{}}
            ! 2 requests wait for an answer already
            > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}
            > {"jsonrpc":"2.0","id":3,"method":"d","params":{}}
            ! 2 requests wait for an answer already
            late response 0
            ! 2 requests wait for an answer already
            response 1 {}
            > {"jsonrpc":"2.0","id":6,"method":"g","params":{}}
        "#]],
    );
}

#[test]
fn a_caller_may_choose_an_id_that_is_free() {
    let mut peer = Peer::new(SMALL_LIMITS);
    let mut ask = |id| peer.request_with_id(id, "m", JsonBody::empty_object());
    assert_eq!([ask(1), ask(1)], [Ok(()), Err(SendRequestError::IdInUse(1))]);
    assert_eq!(peer.request("m", JsonBody::empty_object()), Ok(0));
    peer.receive(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n");
    assert!(matches!(peer.next_event(), Some(PeerEvent::Response { id: 0, .. })));
    assert_eq!(peer.request("m", JsonBody::empty_object()), Ok(2));
}

#[test]
fn every_bad_message_gets_one_error_and_the_next_is_served() {
    check(
        r#"
        < nonsense
        < {"jsonrpc":"2.0","id":1,"method":"cut","params":{
        < {"jsonrpc":"2.0","id":2,"method":"text","params":"\xff"}
        < \xff\xff
        < {"jsonrpc":"2.0","id":3,"method":5}
        < {"jsonrpc":"2.0","id":1.5,"method":"a"}
        < {"jsonrpc":"2.0","id":null,"method":"a"}
        < {"id":4,"method":"a"}
        < {"jsonrpc":"2.0","id":5}
        < 7
        < {"jsonrpc":"2.0","id":6,"id":7,"method":"twice"}
        < {"jsonrpc":"2.0","id":8,"method":"long","params":"0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789"}
        < {"jsonrpc":"2.0","id":9,"method":"surrogate","params":"\ud800"}
        answer 9 {}
        "#,
        expect![[r#"
            breach: the message is not valid JSON
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid JSON"}}
            breach: the message is not valid JSON
            > {"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"the message is not valid JSON"}}
            breach: the message is not valid UTF-8
            > {"jsonrpc":"2.0","id":2,"error":{"code":-32700,"message":"the message is not valid UTF-8"}}
            breach: the message is not valid UTF-8
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid UTF-8"}}
            breach: "method" must be a string
            > {"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"\"method\" must be a string"}}
            breach: an id is a string of at most 1024 bytes or an integer
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"an id is a string of at most 1024 bytes or an integer"}}
            breach: an id is a string of at most 1024 bytes or an integer
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"an id is a string of at most 1024 bytes or an integer"}}
            breach: "jsonrpc" must be "2.0"
            > {"jsonrpc":"2.0","id":4,"error":{"code":-32600,"message":"\"jsonrpc\" must be \"2.0\""}}
            breach: an answer came for the id 5, which no request waits for
            breach: a message is a JSON object
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message is a JSON object"}}
            breach: the message is not valid JSON
            > {"jsonrpc":"2.0","id":7,"error":{"code":-32700,"message":"the message is not valid JSON"}}
            breach: a message of 216 bytes is over the limit of 200 bytes
            > {"jsonrpc":"2.0","id":8,"error":{"code":-32600,"message":"a message of 216 bytes is over the limit of 200 bytes"}}
            request 9 surrogate "\ud800"
            > {"jsonrpc":"2.0","id":9,"result":{}}
        "#]],
    );
}

#[test]
fn the_last_message_needs_no_newline() {
    check(
        r#"
        << {"jsonrpc":"2.0","id":1,"method":"last"}
        answer 1 {}
        "#,
        expect![[r#"
            request 1 last -
            > {"jsonrpc":"2.0","id":1,"result":{}}
        "#]],
    );
    check(
        r#"
        << {"jsonrpc":"2.0","id":1
        "#,
        expect![[r#"
            breach: the message is not valid JSON
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid JSON"}}
        "#]],
    );
}

#[test]
fn the_answers_to_a_batch_leave_together() {
    check(
        r#"
        ask a
        < [{"jsonrpc":"2.0","id":1,"method":"a"}, {"jsonrpc":"2.0","method":"n"}, {"jsonrpc":"2.0","id":0,"result":{}}, {"jsonrpc":"2.0","id":2,"method":"b"}]
        answer 2 "b"
        < {"jsonrpc":"2.0","id":3,"method":"meanwhile"}
        answer 3 "c"
        fail 1 no
        answer 2 "again"
        "#,
        expect![[r#"
            > {"jsonrpc":"2.0","id":0,"method":"a","params":{}}
            request 1 a -
            notification n -
            response 0 {}
            request 2 b -
            request 3 meanwhile -
            > {"jsonrpc":"2.0","id":3,"result":"c"}
            > [{"jsonrpc":"2.0","id":2,"result":"b"},{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}]
            ! no answer is owed to the request id 2
        "#]],
    );
}

#[test]
fn an_answer_waits_for_the_rest_of_a_batch_that_is_still_being_read() {
    check(
        r#"
        < [{"jsonrpc":"2.0","id":1,"method":"now"},{"jsonrpc":"2.0","id":2,"method":"now"}]
        < [{"jsonrpc":"2.0","id":1,"method":"now"},7,{"jsonrpc":"2.0","id":2,"method":"later"}]
        answer 2 {}
        "#,
        expect![[r#"
            request 1 now -
            request 2 now -
            > [{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]
            request 1 now -
            breach: a message is a JSON object
            request 2 later -
            > [{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message is a JSON object"}},{"jsonrpc":"2.0","id":2,"result":{}}]
        "#]],
    );
}

#[test]
fn a_batch_of_notifications_and_answers_gets_no_answer() {
    check(
        r#"
        ask a
        < [{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","method":"n"}]
        < [{"jsonrpc":"2.0","id":0,"result":{}}]
        < [{"jsonrpc":"2.0","id":0,"result":{}}]
        "#,
        expect![[r#"
            > {"jsonrpc":"2.0","id":0,"method":"a","params":{}}
            notification n -
            notification n -
            response 0 {}
            breach: an answer came for the id 0, which no request waits for
        "#]],
    );
}

#[test]
fn errors_of_a_batch_are_part_of_its_answer() {
    check(
        r#"
        < [1, [{"jsonrpc":"2.0","id":1,"method":"nested"}], {"jsonrpc":"2.0","id":2,"method":5}]
        < [{"jsonrpc":"2.0","id":3,"method":"a"}, {"jsonrpc":"2.0","id":3,"method":"b"}, {}]
        answer 3 "a"
        < [{"jsonrpc":"2.0","id":4,"method":"a"},{"jsonrpc":"2.0","id":5,"method":"a"},{"jsonrpc":"2.0","id":6,"method":"a"},{"jsonrpc":"2.0","id":7,"method":"a"}]
        answer 6 {}
        answer 4 {}
        answer 5 {}
        "#,
        expect![[r#"
            breach: a message is a JSON object
            breach: a message is a JSON object
            breach: "method" must be a string
            > [{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message is a JSON object"}},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message is a JSON object"}},{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"\"method\" must be a string"}}]
            request 3 a -
            breach: the request id 3 is in use already
            breach: "jsonrpc" must be "2.0"
            > [{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the request id 3 is in use already"}},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"\"jsonrpc\" must be \"2.0\""}},{"jsonrpc":"2.0","id":3,"result":"a"}]
            request 4 a -
            request 5 a -
            request 6 a -
            breach: more than 3 requests wait for an answer
            > [{"jsonrpc":"2.0","id":7,"error":{"code":-32029,"message":"too many requests at once, the limit is 3","data":{"limit":3}}},{"jsonrpc":"2.0","id":6,"result":{}},{"jsonrpc":"2.0","id":4,"result":{}},{"jsonrpc":"2.0","id":5,"result":{}}]
        "#]],
    );
}

#[test]
fn a_batch_that_is_wrong_as_a_whole_gets_one_error() {
    check(
        r#"
        < []
        < [1,2,3,4,5]
        < [{"jsonrpc":"2.0","id":1,"method":"a"},
        < [{"jsonrpc":"2.0","id":1,"method":"a"}] 2
        < [{"jsonrpc":"2.0","id":1,"method":"\xff"}]
        < {"jsonrpc":"2.0","id":1,"method":"still served"}
        "#,
        expect![[r#"
            breach: a batch must not be empty
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a batch must not be empty"}}
            breach: a batch of 5 messages is over the limit of 4
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a batch of 5 messages is over the limit of 4"}}
            breach: the message is not valid JSON
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid JSON"}}
            breach: the message is not valid JSON
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid JSON"}}
            breach: the message is not valid UTF-8
            > {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid UTF-8"}}
            request 1 still served -
        "#]],
    );
}

#[test]
fn bytes_may_come_while_a_batch_is_being_read() {
    let mut peer = Peer::new(ConnectionLimits::DEFAULT);
    let notifications = |names: &[&str]| {
        let message = |name: &&str| format!(r#"{{"jsonrpc":"2.0","method":"{name}"}}"#);
        format!("[{}]\n", names.iter().map(message).collect::<Vec<_>>().join(","))
    };
    peer.receive(notifications(&["a", "b"]).as_bytes());
    let mut output = Vec::new();
    for batch in [&["c"][..], &["d", "e"]] {
        output.extend(peer.next_event().map(|event| show_event(&event)));
        peer.receive(notifications(batch).as_bytes());
        assert!(!peer.read_buffer().is_empty());
    }
    while let Some(event) = peer.next_event() {
        output.push(show_event(&event));
    }
    expect![[r#"
        notification a -
        notification b -
        notification c -
        notification d -
        notification e -"#]]
    .assert_eq(&output.join("\n"));
}

#[test]
fn a_body_leaves_on_one_line() {
    let raw = |text: &str| serde_json::from_str::<Box<RawValue>>(text).unwrap();
    let pretty = raw("{\n  \"a\": [\r\n1,\n\"two\\nlines\"\r]\n}");
    let mut peer = Peer::new(ConnectionLimits::DEFAULT);
    peer.notify("raw", JsonBody::from_raw(&pretty));
    peer.notify("inside", JsonBody::from_value(&[&pretty]).unwrap());
    expect![[r#"
        {"jsonrpc":"2.0","method":"raw","params":{   "a": [  1, "two\nlines" ] }}
        {"jsonrpc":"2.0","method":"inside","params":[{   "a": [  1, "two\nlines" ] }]}
    "#]]
    .assert_eq(&String::from_utf8(peer.take_output()).unwrap());
}

#[test]
fn a_flood_of_refusals_is_seen_until_they_have_left() {
    for (line, refusals_each) in [("1\n", 1), ("[1]\n", 1), ("[1,2]\n", 2)] {
        let mut peer = Peer::new(ConnectionLimits::DEFAULT);
        let receive = |peer: &mut Peer| {
            peer.receive(line.as_bytes());
            while peer.next_event().is_some() {}
        };
        for _ in 0..MAX_REFUSALS / refusals_each {
            assert!(!peer.is_flooded(), "{line}");
            receive(&mut peer);
        }
        assert!(peer.is_flooded(), "{line}");

        let length = peer.output_len() * refusals_each / MAX_REFUSALS;
        peer.consume_output(length - 1);
        assert!(peer.is_flooded(), "{line}");
        peer.consume_output(1);
        assert!(!peer.is_flooded(), "{line}");

        receive(&mut peer);
        assert!(peer.is_flooded(), "{line}");
        peer.take_output();
        assert!(!peer.is_flooded(), "{line}");
    }
}

/// Nothing obliges the other side to answer a cancelled request.
#[test]
fn only_so_many_cancelled_requests_are_remembered() {
    let mut peer = Peer::new(ConnectionLimits::DEFAULT);
    for id in 0..=1024 {
        peer.request_with_id(id, "m", JsonBody::empty_object()).unwrap();
        peer.cancel(id);
    }
    peer.take_output();
    let output: Vec<_> = ["0", "1", "1024"]
        .map(|id| run_step(&mut peer, &format!(r#"< {{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)))
        .to_vec();
    expect![[r#"
        breach: an answer came for the id 0, which no request waits for
        late response 1
        late response 1024
    "#]]
    .assert_eq(&output.concat());
}

/// A batch may wait long for its requests. Refusals in it wait with them, up to a limit.
#[test]
fn only_so_many_refusals_wait_for_the_rest_of_their_batch() {
    let mut peer = Peer::new(ConnectionLimits::DEFAULT);
    let bad = ",0".repeat(255);
    for id in 0..20 {
        peer.receive(format!("[{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}{bad}]\n").as_bytes());
        while peer.next_event().is_some() {}
    }
    let left_at_once = String::from_utf8(peer.take_output()).unwrap().lines().count();
    assert_eq!(left_at_once, 20 * 255 - MAX_REFUSALS);
    for id in 0..20 {
        peer.respond(&RequestId::Number(id), Ok(JsonBody::empty_object())).unwrap();
    }
    assert!(peer.is_flooded());
    let answers: usize = String::from_utf8(peer.take_output())
        .unwrap()
        .lines()
        .map(|batch| serde_json::from_str::<Vec<serde_json::Value>>(batch).unwrap().len())
        .sum();
    assert_eq!(answers, 20 + MAX_REFUSALS);
    assert!(!peer.is_flooded());

    peer.receive(b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"},0]\n");
    while peer.next_event().is_some() {}
    assert_eq!(peer.output_len(), 0);
}

#[test]
fn a_batch_that_waits_holds_only_so_much_of_its_answers() {
    let mut limits = ConnectionLimits::DEFAULT;
    limits.high_water = 30;
    let mut peer = Peer::new(limits);
    peer.receive(
        br#"[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"},{"jsonrpc":"2.0","id":3,"method":"m"}]"#,
    );
    peer.receive(b"\n");
    while peer.next_event().is_some() {}
    for (id, answer) in [(1, "twenty characters...."), (2, "twenty characters...."), (3, "short")] {
        peer.respond(&RequestId::Number(id), Ok(JsonBody::from_value(answer).unwrap())).unwrap();
    }
    expect![[r#"
        {"jsonrpc":"2.0","id":2,"result":"twenty characters...."}
        [{"jsonrpc":"2.0","id":1,"result":"twenty characters...."},{"jsonrpc":"2.0","id":3,"result":"short"}]
    "#]]
    .assert_eq(&String::from_utf8(peer.take_output()).unwrap());
}
