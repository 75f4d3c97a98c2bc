//! Tests of the envelope: the kind of a text, or why it is not a message and which id is answered.

use expect_test::{Expect, expect};

use super::*;
use crate::message::salvage::salvage;

/// Parses every line, and shows the line and the result.
fn check(texts: &str, expected: Expect) {
    let texts = texts.lines().map(str::trim).filter(|text| !text.is_empty());
    let output: String = texts.map(|text| format!("{text}\n    {}\n", show(text))).collect();
    expected.assert_eq(&output);
}

/// Uses each text as the id of a request, and shows the result.
fn check_ids(ids: &str, expected: Expect) {
    let show =
        |id: &str| format!("{id}: {}\n", show(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)));
    expected.assert_eq(&ids.split_whitespace().map(show).collect::<String>());
}

fn show(text: &str) -> String {
    let params =
        |params: Option<&RawValue>| params.map_or(String::new(), |params| format!(" {}", params.get()));
    match parse(text) {
        Ok(RpcMessage::Request { id, method, params: raw }) => {
            format!("request {id:?} {method:?}{}", params(raw))
        }
        Ok(RpcMessage::Notification { method, params: raw }) => {
            format!("notification {method:?}{}", params(raw))
        }
        Ok(RpcMessage::Response { id, outcome: Ok(result) }) => format!("response {id:?} {}", result.get()),
        Ok(RpcMessage::Response { id, outcome: Err(error) }) => {
            format!("response {id:?} error {}", error.get())
        }
        Err(malformed) => format!("! {malformed:?}, {:?}", salvage(text.as_bytes())),
    }
}

#[test]
fn an_id_is_an_integer_or_a_string() {
    check_ids(
        r#"
        0 -5 9007199254740991 9223372036854775807 -9223372036854775808
        "" "a" "ключ" "\u006b\n" "7"
        "#,
        expect![[r#"
            0: request Number(0) "m"
            -5: request Number(-5) "m"
            9007199254740991: request Number(9007199254740991) "m"
            9223372036854775807: request Number(9223372036854775807) "m"
            -9223372036854775808: request Number(-9223372036854775808) "m"
            "": request Str("") "m"
            "a": request Str("a") "m"
            "ключ": request Str("ключ") "m"
            "\u006b\n": request Str("k\n") "m"
            "7": request Str("7") "m"
        "#]],
    );
}

#[test]
fn nothing_else_is_the_id_of_a_request() {
    check_ids(
        r#"
        null true {} {"id":1} [1] 1.5 1.0 1e3 -0
        9223372036854775808 -9223372036854775809 18446744073709551616 1e400 "\ud800"
        "#,
        expect![[r#"
            null: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            true: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            {}: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            {"id":1}: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            [1]: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            1.5: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            1.0: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            1e3: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            -0: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            9223372036854775808: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            -9223372036854775809: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            18446744073709551616: ! InvalidId, SalvagedMessage { id: None, is_response: false }
            1e400: ! NotJson, SalvagedMessage { id: None, is_response: false }
            "\ud800": ! NotJson, SalvagedMessage { id: None, is_response: false }
        "#]],
    );
}

#[test]
fn an_id_has_a_longest_length() {
    let request = |length| format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "é".repeat(length / 2));
    let is_request = |text: &str| matches!(parse(text), Ok(RpcMessage::Request { .. }));
    assert!(is_request(&request(MAX_ID)));
    expect!["! InvalidId, SalvagedMessage { id: None, is_response: false }"]
        .assert_eq(&show(&request(MAX_ID + 2)));
}

#[test]
fn a_message_is_a_request_or_a_notification_or_a_response() {
    check(
        r#"
        {"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1, 2]}}
        { "params" : [ 1 ] , "method" : "m" , "id" : "x" , "jsonrpc" : "2.0" }
        {"jsonrpc":"2.0","method":"m"}
        {"jsonrpc":"2.0","method":"m","params":null}
        {"jsonrpc":"2.0","method":"_vendor/any thing"}
        {"jsonrpc":"2.0","method":""}
        {"jsonrpc":"2.0","method":"a\u002fb\"c"}
        {"jsonrpc":"2.0","id":1,"result":{}}
        {"jsonrpc":"2.0","id":1,"result":null}
        {"jsonrpc":"2.0","id":"1","error":{"code":1,"message":"no"}}
        {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}
        {"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"no"}}
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1, 2]}}
                request Number(1) "m" {"a":[1, 2]}
            { "params" : [ 1 ] , "method" : "m" , "id" : "x" , "jsonrpc" : "2.0" }
                request Str("x") "m" [ 1 ]
            {"jsonrpc":"2.0","method":"m"}
                notification "m"
            {"jsonrpc":"2.0","method":"m","params":null}
                notification "m" null
            {"jsonrpc":"2.0","method":"_vendor/any thing"}
                notification "_vendor/any thing"
            {"jsonrpc":"2.0","method":""}
                notification ""
            {"jsonrpc":"2.0","method":"a\u002fb\"c"}
                notification "a/b\"c"
            {"jsonrpc":"2.0","id":1,"result":{}}
                response Number(1) {}
            {"jsonrpc":"2.0","id":1,"result":null}
                response Number(1) null
            {"jsonrpc":"2.0","id":"1","error":{"code":1,"message":"no"}}
                response Str("1") error {"code":1,"message":"no"}
            {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}
                response Null error {"code":1,"message":"no"}
            {"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"no"}}
                response Number(1) error {"code":1,"message":"no"}
        "#]],
    );
}

#[test]
fn members_with_other_names_are_passed_over() {
    check(
        r#"
        {"jsonrpc":"2.0","id":1,"method":"m","_meta":{"id":2},"extra":[1e400]}
        {"jsonrpc":"2.0","method":"m","ID":7,"":0}
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"method":"m","_meta":{"id":2},"extra":[1e400]}
                request Number(1) "m"
            {"jsonrpc":"2.0","method":"m","ID":7,"":0}
                notification "m"
        "#]],
    );
}

#[test]
fn a_message_must_have_the_shape_of_one() {
    check(
        r#"
        {}
        {"jsonrpc":"2.0"}
        {"jsonrpc":"2.0","id":1}
        {"jsonrpc":"2.0","id":1,"method":"m","result":1}
        {"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"no"}}
        {"jsonrpc":"2.0","result":1}
        {"jsonrpc":"2.0","id":[],"result":1}
        {"id":1,"method":"m"}
        {"jsonrpc":"1.0","id":1,"method":"m"}
        {"jsonrpc":2.0,"method":"m"}
        {"jsonrpc":"2.0","id":1,"method":7}
        {"jsonrpc":"2.0","id":1,"method":["m",{"id":2}]}
        {"id":1,"result":1}
        "#,
        expect![[r#"
            {}
                ! WrongVersion, SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0"}
                ! InvalidShape, SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0","id":1}
                response Number(1) null
            {"jsonrpc":"2.0","id":1,"method":"m","result":1}
                ! InvalidShape, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"no"}}
                ! InvalidShape, SalvagedMessage { id: Some(Number(1)), is_response: true }
            {"jsonrpc":"2.0","result":1}
                ! InvalidShape, SalvagedMessage { id: None, is_response: true }
            {"jsonrpc":"2.0","id":[],"result":1}
                ! InvalidId, SalvagedMessage { id: None, is_response: true }
            {"id":1,"method":"m"}
                ! WrongVersion, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"1.0","id":1,"method":"m"}
                ! WrongVersion, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":2.0,"method":"m"}
                ! WrongVersion, SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0","id":1,"method":7}
                ! InvalidMethod, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":["m",{"id":2}]}
                ! InvalidMethod, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"id":1,"result":1}
                response Number(1) 1
        "#]],
    );
}

#[test]
fn a_text_that_is_no_object_is_no_message() {
    check(
        r#"
        1
        "text"
        null
        [{"jsonrpc":"2.0","id":1,"method":"m"}]
        nonsense
        "cut
        "#,
        expect![[r#"
            1
                ! NotAnObject, SalvagedMessage { id: None, is_response: false }
            "text"
                ! NotAnObject, SalvagedMessage { id: None, is_response: false }
            null
                ! NotAnObject, SalvagedMessage { id: None, is_response: false }
            [{"jsonrpc":"2.0","id":1,"method":"m"}]
                ! NotAnObject, SalvagedMessage { id: None, is_response: false }
            nonsense
                ! NotJson, SalvagedMessage { id: None, is_response: false }
            "cut
                ! NotJson, SalvagedMessage { id: None, is_response: false }
        "#]],
    );
}

#[test]
fn what_is_broken_is_still_answered_where_its_id_can_be_read() {
    check(
        r#"
        {"jsonrpc":"2.0","id":1,"method":"m"}}
        {"jsonrpc":"2.0","id":1,"method":"m"} {"jsonrpc":"2.0","id":2,"method":"m"}
        {"jsonrpc":"2.0","id":1,"method":"m",}
        {"jsonrpc":"2.0","id":1,"method":"m","params":{oops}}
        {"jsonrpc":"2.0","id":1,"method":"m","params":[1,2
        {"jsonrpc":"2.0","id":1,"method":"\ud800"}
        {"jsonrpc":"2.0","id":1,"method":1e400}
        {"jsonrpc":"2.0","params":"\q","id":"a\nb","method":"m"}
        {"jsonrpc":"2.0","id":1,"result":"\q"}
        {"jsonrpc":"2.0","result":tru,"id":1}
        {"jsonrpc":"2.0","error":
        {'jsonrpc':'2.0','id':1}
        {"jsonrpc":"2.0","id":12
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"method":"m"}}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":"m"} {"jsonrpc":"2.0","id":2,"method":"m"}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":"m",}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":"m","params":{oops}}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":"m","params":[1,2
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":"\ud800"}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":1e400}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","params":"\q","id":"a\nb","method":"m"}
                ! NotJson, SalvagedMessage { id: Some(Str("a\nb")), is_response: false }
            {"jsonrpc":"2.0","id":1,"result":"\q"}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: true }
            {"jsonrpc":"2.0","result":tru,"id":1}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: true }
            {"jsonrpc":"2.0","error":
                ! NotJson, SalvagedMessage { id: None, is_response: true }
            {'jsonrpc':'2.0','id':1}
                ! NotJson, SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0","id":12
                ! NotJson, SalvagedMessage { id: None, is_response: false }
        "#]],
    );
}

#[test]
fn a_member_that_comes_twice_breaks_the_message() {
    check(
        r#"
        {"jsonrpc":"2.0","id":1,"id":2,"method":"m"}
        {"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}
        {"jsonrpc":"2.0","id":1,"method":"m","method":"n"}
        {"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}
        {"jsonrpc":"2.0","id":1,"result":1,"result":2}
        {"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":2}}
        {"jsonrpc":"2.0","id":1,"method":"m","_x":1,"_x":2}
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"id":2,"method":"m"}
                ! NotJson, SalvagedMessage { id: Some(Number(2)), is_response: false }
            {"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":"m","method":"n"}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","id":1,"result":1,"result":2}
                ! NotJson, SalvagedMessage { id: Some(Number(1)), is_response: true }
            {"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":2}}
                request Number(1) "m" {"a":1,"a":2}
            {"jsonrpc":"2.0","id":1,"method":"m","_x":1,"_x":2}
                request Number(1) "m"
        "#]],
    );
}

#[test]
fn what_params_hold_is_not_looked_at() {
    check(
        r#"
        {"jsonrpc":"2.0","id":1,"method":"m","params":"\ud800"}
        {"jsonrpc":"2.0","id":1,"method":"m","params":[1e400,-0]}
        {"jsonrpc":"2.0","id":1,"method":"m","params":{"id":2,"method":"n"}}
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"method":"m","params":"\ud800"}
                request Number(1) "m" "\ud800"
            {"jsonrpc":"2.0","id":1,"method":"m","params":[1e400,-0]}
                request Number(1) "m" [1e400,-0]
            {"jsonrpc":"2.0","id":1,"method":"m","params":{"id":2,"method":"n"}}
                request Number(1) "m" {"id":2,"method":"n"}
        "#]],
    );
}

#[test]
fn the_depth_of_params_does_not_matter() {
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        format!(r#"{{"jsonrpc":"2.0","params":{open}1{close},"id":1,"method":"m"}}"#)
    };
    for text in [deep("[", "]"), deep(r#"{"a":"#, "}")] {
        assert!(matches!(parse(&text), Ok(RpcMessage::Request { id: RequestId::Number(1), .. })));
    }
    // Unclosed brackets, and a value that is nested too deep for an id.
    let texts =
        [deep("[", ""), deep("", "]"), deep("[", "]").replace("params", "id").replace("\"id\":1", "\"x\":1")];
    expect![[r#"
        ! NotJson, SalvagedMessage { id: None, is_response: false }
        ! NotJson, SalvagedMessage { id: None, is_response: false }
        ! InvalidId, SalvagedMessage { id: None, is_response: false }
    "#]]
    .assert_eq(&texts.map(|text| show(&text) + "\n").concat());
}

#[test]
fn a_batch_has_at_least_one_message_and_no_more_than_allowed() {
    let show = |text: &str| match parse_batch(text, 3) {
        Ok(messages) => {
            format!("{text}: {:?}\n", messages.iter().map(|message| message.get()).collect::<Vec<_>>())
        }
        Err(malformed) => format!("{text}: ! {malformed:?}\n"),
    };
    let texts = ["[]", "[ ]", "[1, {\"id\" : 2} ,[3]]", "[1,2,3,4]", "[1,2,3,4,", "[1,]", "[1] 2", "["];
    expect![[r#"
        []: ! EmptyBatch
        [ ]: ! EmptyBatch
        [1, {"id" : 2} ,[3]]: ["1", "{\"id\" : 2}", "[3]"]
        [1,2,3,4]: ! BatchTooLarge { count: 4, limit: 3 }
        [1,2,3,4,: ! NotJson
        [1,]: ! NotJson
        [1] 2: ! NotJson
        [: ! NotJson
    "#]]
    .assert_eq(&texts.map(show).concat());
}

/// The unchecked split of a message is right, or there is none.
#[test]
fn a_guess_whose_body_is_json_is_the_message() {
    let show_unchecked = |text: &str| {
        let message = split_unchecked(text)
            .filter(|message| serde_json::from_str::<IgnoredAny>(message.body).is_ok())?;
        Some(match message.head {
            MessageHead::Request { id, method } => format!("request {id:?} {method:?} {}", message.body),
            MessageHead::Notification { method } => format!("notification {method:?} {}", message.body),
            MessageHead::Result { id } => format!("response {:?} {}", RequestId::Number(id), message.body),
        })
    };
    let texts = r#"
        {"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}
        {"jsonrpc":"2.0","id":"x","method":"m","params":[]}
        {"jsonrpc":"2.0","method":"ключ","params":null}
        {"jsonrpc":"2.0","id":0,"result":{}}
        {"jsonrpc":"2.0","id":9223372036854775807,"result":"}"}
        {"jsonrpc":"2.0","id":9223372036854775808,"result":{}}
        {"jsonrpc":"2.0","id":01,"result":{}}
        {"jsonrpc":"2.0","id":,"result":{}}
        {"jsonrpc":"2.0","id":-1,"result":{}}
        {"jsonrpc":"2.0","id":1.5,"result":{}}
        {"jsonrpc":"2.0","id":"1","result":{}}
        {"jsonrpc":"2.0","id":1,"error":{}}
        {"jsonrpc":"2.0","id":"\n","method":"m","params":{}}
        {"jsonrpc":"2.0","id":1,"method":"\u006d","params":{}}
        {"jsonrpc":"2.0","id":1,"method":"m"}
        {"jsonrpc":"2.0","id":1,"method":"m","params":{},"id":2}
        {"jsonrpc":"2.0","id":1,"method":"m","params":{}}}
        {"jsonrpc":"2.0","id":1,"method":"m","params":}
        {"jsonrpc":"2.0","id":1,"result":{},"error":{}}
        {"jsonrpc":"2.0","method":"m","params":[
        {"jsonrpc": "2.0","method":"m","params":[]}
    "#;
    let mut output = String::new();
    for text in texts.lines().map(str::trim).filter(|text| !text.is_empty()) {
        let unchecked = show_unchecked(text);
        assert!(unchecked.as_ref().is_none_or(|unchecked| *unchecked == show(text)), "{text}");
        output += &format!("{text}\n    {}\n", unchecked.unwrap_or("no guess".to_owned()));
    }
    expect![[r#"
        {"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}
            request Number(1) "m" {"a":1}
        {"jsonrpc":"2.0","id":"x","method":"m","params":[]}
            request Str("x") "m" []
        {"jsonrpc":"2.0","method":"ключ","params":null}
            notification "ключ" null
        {"jsonrpc":"2.0","id":0,"result":{}}
            response Number(0) {}
        {"jsonrpc":"2.0","id":9223372036854775807,"result":"}"}
            response Number(9223372036854775807) "}"
        {"jsonrpc":"2.0","id":9223372036854775808,"result":{}}
            no guess
        {"jsonrpc":"2.0","id":01,"result":{}}
            no guess
        {"jsonrpc":"2.0","id":,"result":{}}
            no guess
        {"jsonrpc":"2.0","id":-1,"result":{}}
            no guess
        {"jsonrpc":"2.0","id":1.5,"result":{}}
            no guess
        {"jsonrpc":"2.0","id":"1","result":{}}
            no guess
        {"jsonrpc":"2.0","id":1,"error":{}}
            no guess
        {"jsonrpc":"2.0","id":"\n","method":"m","params":{}}
            no guess
        {"jsonrpc":"2.0","id":1,"method":"\u006d","params":{}}
            no guess
        {"jsonrpc":"2.0","id":1,"method":"m"}
            no guess
        {"jsonrpc":"2.0","id":1,"method":"m","params":{},"id":2}
            no guess
        {"jsonrpc":"2.0","id":1,"method":"m","params":{}}}
            no guess
        {"jsonrpc":"2.0","id":1,"method":"m","params":}
            no guess
        {"jsonrpc":"2.0","id":1,"result":{},"error":{}}
            no guess
        {"jsonrpc":"2.0","method":"m","params":[
            no guess
        {"jsonrpc": "2.0","method":"m","params":[]}
            no guess
    "#]]
    .assert_eq(&output);
    let too_long = "x".repeat(MAX_ID + 1);
    let text = format!(r#"{{"jsonrpc":"2.0","id":"{too_long}","method":"m","params":[]}}"#);
    assert_eq!(show_unchecked(&text), None);
}
