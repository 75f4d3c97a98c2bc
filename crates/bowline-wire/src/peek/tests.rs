//! What is seen of lines, good and bad.

use expect_test::expect;
use proptest::prelude::*;

use super::{Peek, id, is_plain, peek, with_id};

fn seen(line: &[u8]) -> String {
    match peek(line) {
        Peek::Request { id, method } => format!("request {} {method}", String::from_utf8_lossy(id)),
        Peek::Notification { method } => format!("notification {method}"),
        Peek::Answer { id, is_error } => format!("answer {} {is_error}", String::from_utf8_lossy(id)),
        Peek::Other => "other".to_owned(),
    }
}

#[test]
fn a_line_is_known_by_what_stands_in_it_in_any_order() {
    let lines: &[&[u8]] = &[
        b"",
        b"\n",
        b"nonsense",
        b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}]",
        b"{\"jsonrpc\":\"2.0\"}",
        b"{\"method\":7}",
        b"{\"method\":\"cut",
        b"{\"method\":\"no end\",\"params\":{}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\xff",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{\"id\":3,\"t\":\"}\\\"\"}}",
        b"\xEF\xBB\xBF {\"params\":[{\"method\":\"inner\"}], \"method\" : \"a\" , \"id\" : \"x\"}\r\n",
        b"{\"method\":\"session\\/update\",\"id\":null}",
        b"{\"id\":\"q\",\"result\":{\"method\":1}}",
        b"{\"error\":{\"code\":1},\"id\":2}",
        b"{\"result\":\"\xff\",\"id\":2}",
        b"{\"id\":null,\"result\":1}",
    ];
    let told: String = lines.iter().map(|line| format!("{}\n", seen(line))).collect();
    expect![[r#"
        other
        other
        other
        other
        other
        other
        other
        other
        request 1 a
        notification a
        request "x" a
        notification session/update
        answer "q" false
        answer 2 true
        answer 2 false
        other
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_line_that_two_readers_may_take_for_two_things_is_not_plain() {
    let lines: &[(&str, bool)] = &[
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"id":2,"method":"b"}}"#, true),
        ("\u{feff}{\"method\":\"a\"}\r\n", true),
        (r#"{"id":1,"result":{"a":[1,"}"]},"_x":1,"_x":2}"#, true),
        (r#"{"id":1,"method":"a","method":"b"}"#, false),
        (r#"{"id":1,"method":"a","id":2}"#, false),
        (r#"{"id":1,"method":"a","params":{},"params":{}}"#, false),
        (r#"{"id":1,"method":"a","m\u0065thod":"b"}"#, false),
        (r#"{"method":"a","_\u0069d":1}"#, false),
        (r#"{"id":1,"method":"a","Method":"b"}"#, false),
        (r#"{"ID":1,"method":"a"}"#, false),
        (r#"{"id":1,"result":{},"method":"a"}"#, false),
        (r#"{"id":1,"result":{},"error":{}}"#, true),
        (r#"{"id":1,"method":"a"}{"id":2,"method":"b"}"#, false),
        (r#"[{"id":1,"method":"a"}]"#, false),
        (r#"{"id":1,"method":"a""#, false),
        (r#"{"id":1}"#, false),
        ("{}", false),
        ("", false),
    ];
    for (line, expected) in lines {
        assert_eq!(is_plain(line.as_bytes()), *expected, "{line}");
    }
}

#[test]
fn an_id_is_a_string_or_an_integer() {
    let ids = ["7", "0", "07", "-3", "\"a\\u00e9\"", "null", "1.5", "99999999999999999999", "{}", ""];
    let told: String = ids.iter().map(|raw| format!("{raw} {:?}\n", id(raw.as_bytes()))).collect();
    expect![[r#"
        7 Some(Number(7))
        0 Some(Number(0))
        07 None
        -3 Some(Number(-3))
        "a\u00e9" Some(Str("aé"))
        null None
        1.5 None
        99999999999999999999 None
        {} None
         None
    "#]]
    .assert_eq(&told);
}

#[test]
fn another_id_changes_nothing_else() {
    let line = b"{ \"id\" : 7 , \"method\":\"a\",\"params\":{\"id\":7}}\n";
    let Peek::Request { id, .. } = peek(line) else { panic!("not a request") };
    let told = String::from_utf8(with_id(line, id, "\"x\"")).unwrap();
    expect![[r#"
        { "id" : "x" , "method":"a","params":{"id":7}}
    "#]]
    .assert_eq(&told);
}

/// Returns pieces that lines are put together from, so that names come twice, escaped, in capitals and out of place.
fn pieces() -> impl Strategy<Value = String> {
    let pieces = [
        r#""id":1"#,
        r#""id":null"#,
        r#""method":"a""#,
        r#""method":"b""#,
        r#""method":null"#,
        r#""m\u0065thod":"b""#,
        r#""Method":"b""#,
        r#""result":{}"#,
        r#""error":null"#,
        r#""params":{"method":"c","id":[2,"}"]}"#,
        r#""_x":"\"method\":\"b\"""#,
        r#""a\\":{"b":[{}]}"#,
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        " ",
        "\u{feff}",
        "\u{a0}",
    ];
    let inner = proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 1..6);
    (inner, any::<bool>()).prop_map(|(inner, object)| match object {
        true => format!("{{{}}}", inner.join(",")),
        false => inner.concat(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_is_plain_and_json_is_what_was_seen_of_it(line in pieces()) {
        let read = serde_json::from_str::<serde_json::Value>(line.trim_start_matches('\u{feff}'));
        if let (true, Ok(read)) = (is_plain(line.as_bytes()), read) {
            let named = |name: &str| read.get(name).filter(|value| !value.is_null());
            let (method, id) = (named("method").and_then(|method| method.as_str()), named("id").is_some());
            match peek(line.as_bytes()) {
                Peek::Request { method: seen, .. } => prop_assert_eq!((Some(&*seen), true), (method, id)),
                Peek::Notification { method: seen } => prop_assert_eq!((Some(&*seen), false), (method, id)),
                Peek::Answer { .. } => prop_assert_eq!((None, true), (method, id)),
                Peek::Other => prop_assert!(method.is_none(), "{:?}", method),
            }
        }
    }
}
