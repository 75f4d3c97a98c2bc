//! Tests of peeking at lines, valid and invalid.

use expect_test::expect;

use super::{PeekedMessage, parse_id, peek, replace_id};

fn describe_peek(line: &[u8]) -> String {
    match peek(line) {
        PeekedMessage::Request { id, method } => format!("request {} {method}", String::from_utf8_lossy(id)),
        PeekedMessage::Notification { method } => format!("notification {method}"),
        PeekedMessage::Response { id, is_error } => {
            format!("answer {} {is_error}", String::from_utf8_lossy(id))
        }
        PeekedMessage::Other => "other".to_owned(),
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
    let output: String = lines.iter().map(|line| format!("{}\n", describe_peek(line))).collect();
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
    .assert_eq(&output);
}

#[test]
fn an_id_is_a_string_or_an_integer() {
    let ids = ["7", "0", "07", "-3", "\"a\\u00e9\"", "null", "1.5", "99999999999999999999", "{}", ""];
    let output: String = ids.iter().map(|raw| format!("{raw} {:?}\n", parse_id(raw.as_bytes()))).collect();
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
    .assert_eq(&output);
}

#[test]
fn another_id_changes_nothing_else() {
    let line = b"{ \"id\" : 7 , \"method\":\"a\",\"params\":{\"id\":7}}\n";
    let PeekedMessage::Request { id, .. } = peek(line) else { panic!("not a request") };
    let output = String::from_utf8(replace_id(line, id, "\"x\"")).unwrap();
    expect![[r#"
        { "id" : "x" , "method":"a","params":{"id":7}}
    "#]]
    .assert_eq(&output);
}
