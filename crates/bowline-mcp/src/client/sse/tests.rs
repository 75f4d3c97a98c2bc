//! Tests of server-sent events.

use expect_test::{Expect, expect};

use super::*;

fn check(pieces: &[&str], expected: &Expect) {
    let mut decoder = Decoder::default();
    let mut shown = String::new();
    for piece in pieces {
        for event in decoder.push(piece.as_bytes()).unwrap() {
            let Sse { event, data, id, retry } = event;
            shown.push_str(&format!("{event:?} {data:?} {id:?} {retry:?}\n"));
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn events_end_with_an_empty_line_of_any_kind() {
    let text = "data: a\n\ndata:b\r\n\r\ndata: c\r\rdata: d\ndata\n\n";
    let bytes: Vec<String> = text.chars().map(String::from).collect();
    let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
    let expected = expect![[r#"
        None Some("a") None None
        None Some("b") None None
        None Some("c") None None
        None Some("d\n") None None
    "#]];
    check(&[text], &expected);
    check(&bytes, &expected);
}

#[test]
fn what_is_not_understood_is_skipped() {
    check(
        &[
            "\u{feff}event: x\nevent: y\nid: 1\nid: 2\nretry: soon\nfoo: bar\n:note\ndata:  two\n\nevent: alone\n\n",
            "data: cut",
        ],
        &expect![[r#"
            Some("y") Some(" two") Some("2") None
        "#]],
    );
}

#[test]
fn an_event_has_an_end() {
    let mut decoder = Decoder::default();
    let piece = vec![b'x'; 1 << 20];
    decoder.push(b"data: ").unwrap();
    let pushed = (0..20).try_for_each(|_| decoder.push(&piece).map(drop));
    assert_eq!(pushed, Err(TooLarge));
    let mut decoder = Decoder::default();
    let line = format!("data: {}\n", "x".repeat(1 << 20));
    let pushed = (0..20).try_for_each(|_| decoder.push(line.as_bytes()).map(drop));
    assert_eq!(pushed, Err(TooLarge));
}

#[test]
fn a_message_that_is_nested_too_deep_is_read_as_far_as_it_can_be_used() {
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    for (result, read) in [
        (format!(r#"{{"tools":[{{"name":"a","inputSchema":{{"x":{deep}}}}}]}}"#), r#""name":"a""#),
        (format!(r#"{{"content":{deep}}}"#), "cannot be read"),
    ] {
        let message = make_readable(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        serde_json::from_str::<rmcp::model::ServerJsonRpcMessage>(&message).unwrap();
        assert!(message.contains(read), "{message}");
    }
}
