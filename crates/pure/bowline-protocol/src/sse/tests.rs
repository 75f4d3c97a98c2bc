//! Tests of server-sent events.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const LIMIT: usize = 1 << 20;

fn check(pieces: &[&str], expected: &Expect) {
    let mut decoder = SseDecoder::new(LIMIT);
    let mut shown = String::new();
    for piece in pieces {
        for event in decoder.push(piece.as_bytes()).unwrap() {
            let SseEvent { event, data, id, retry } = event;
            let data = data.map(|data| String::from_utf8(data).unwrap());
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
    let too_large = Err(EventTooLargeError { limit: LIMIT });
    let mut decoder = SseDecoder::new(LIMIT);
    let piece = vec![b'x'; 1 << 16];
    decoder.push(b"data: ").unwrap();
    let pushed = (0..20).try_for_each(|_| decoder.push(&piece).map(drop));
    assert_eq!(pushed, too_large);
    let mut decoder = SseDecoder::new(LIMIT);
    let line = format!("data: {}\n", "x".repeat(1 << 16));
    let pushed = (0..20).try_for_each(|_| decoder.push(line.as_bytes()).map(drop));
    assert_eq!(pushed, too_large);
}

#[test]
fn data_need_not_be_text() {
    let events = SseDecoder::new(LIMIT).push(b"data: \xff\n\n").unwrap();
    assert_eq!(events, [SseEvent { data: Some(vec![0xff]), ..SseEvent::default() }]);
}

proptest! {
    #[test]
    fn where_bytes_are_split_changes_nothing(
        bytes in prop::collection::vec(prop::sample::select(&b"data: id\r\n\xff{"[..]), 0..200),
        at in any::<prop::sample::Index>(),
    ) {
        let whole = SseDecoder::new(LIMIT).push(&bytes).unwrap();
        let (first, second) = bytes.split_at(at.index(bytes.len() + 1));
        let mut decoder = SseDecoder::new(LIMIT);
        let mut split = decoder.push(first).unwrap();
        split.extend(decoder.push(second).unwrap());
        prop_assert_eq!(whole, split);
    }
}
