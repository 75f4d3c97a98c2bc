//! Tests of the canonical form, and that different parsers read the same from it.

use std::collections::BTreeMap;
use std::fmt;

use expect_test::expect;
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{MAX_DEPTH, canonicalize};

#[test]
fn of_equal_names_the_last_counts_and_all_else_is_kept() {
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"id":2,"method":"b"}}"#,
        "\u{feff} {\t\"method\" : \"a\" ,\r \"params\":[ 1 , { } , [ ] ] }\r\n",
        r#"{"id":1,"method":"a","method":"b"}"#,
        r#"{"id":1,"method":"a","m\u0065thod":"b","\u0069d":2}"#,
        r#"{"method":"a","params":{"path":"x","_x":[{"p":1,"q":2,"p":3}],"p\u0061th":"y"},"params2":1}"#,
        r#"{"id":1,"result":{"a":[1,"}"]},"_x":1,"_x":2,"error":null}"#,
        // Numbers, and strings that are not valid text, stay as they are.
        r#"{"id":1,"result":[1.50,-0,1E400,123456789012345678901234567890,"\ud83d","\ud83d\ude00"]}"#,
        r#"{"method":"fs\/write\u005ftext_file","params":"\u000a\u0000é\u00e9"}"#,
        r#"{"_id":1,"method":"a","日本":"é","a\\\"b":1}"#,
    ];
    let output = lines.map(|line| String::from_utf8(canonicalize(line.as_bytes()).expect(line)).unwrap());
    expect![[r#"
        {"jsonrpc":"2.0","id":1,"method":"a","params":{"id":2,"method":"b"}}
        {"method":"a","params":[1,{},[]]}
        {"id":1,"method":"b"}
        {"id":2,"method":"b"}
        {"method":"a","params":{"path":"y","_x":[{"p":3,"q":2}]},"params2":1}
        {"id":1,"result":{"a":[1,"}"]},"_x":2,"error":null}
        {"id":1,"result":[1.50,-0,1E400,123456789012345678901234567890,"\ud83d","😀"]}
        {"method":"fs/write_text_file","params":"\n\u0000éé"}
        {"_id":1,"method":"a","日本":"é","a\\\"b":1}
    "#]]
    .assert_eq(&output.concat());
}

#[test]
fn what_is_not_one_message_for_every_reader_has_no_form() {
    let deep = |depth: usize| {
        format!(r#"{{"method":"a","params":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert!(canonicalize(deep(MAX_DEPTH).as_bytes()).is_some());
    let too_deep = deep(MAX_DEPTH + 1);
    let lines: &[&[u8]] = &[
        br#"{"id":1,"method":"a","Method":"b"}"#,
        br#"{"ID":1,"method":"a"}"#,
        br#"{"method":"a","method ":"b"}"#,
        br#"{"method":"a","method\u0000x":"b"}"#,
        b"{\"method\":\"a\",\"meth\xe2\x80\x8bod\":\"b\"}",
        br#"{"id":1,"result":{},"method":"a"}"#,
        br#"{"id":1,"method":["a"]}"#,
        br#"{"id":1,"method":null}"#,
        br#"{"id":1,"method":"a\ud800"}"#,
        br#"{"id":1,"method":"a","params":{"\ud800":1}}"#,
        br#"{"id":1,"method":"a"}{"id":2,"method":"b"}"#,
        b"[]\r{\"id\":1,\"method\":\"a\"}",
        b"\xc2\xa0{\"method\":\"a\"}",
        b"{\"method\":\"a\",\"params\":\"\xff\"}",
        b"{\"method\":\"a\",\"params\":\"\t\"}",
        br#"[{"id":1,"method":"a"}]"#,
        br#"{"id":1,"method":"a""#,
        br#"{"id":1,"method":"a",}"#,
        br#"{"id":1,"method":"a","params":01}"#,
        br#"{"id":1}"#,
        b"{}",
        b"7",
        b"",
        too_deep.as_bytes(),
    ];
    for line in lines {
        assert_eq!(canonicalize(line), None, "{}", line.escape_ascii());
    }
}

/// Which of duplicate names counts to a parser.
#[derive(Clone, Copy)]
enum DuplicateRule {
    First,
    Last,
}

/// A value as a parser reads it.
#[derive(Debug, PartialEq)]
enum JsonTree {
    Object(BTreeMap<String, JsonTree>),
    Array(Vec<JsonTree>),
    Text(String),
    // A number, a word, or a string that is not valid text.
    Raw(String),
}

/// The members of an object, as written.
struct ObjectMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = ObjectMembers<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(ObjectMembers(members))
            }
        }
        from.deserialize_map(MembersVisitor)
    }
}

fn read_tree(text: &str, rule: DuplicateRule) -> JsonTree {
    let text = text.trim();
    match text.as_bytes()[0] {
        b'{' => {
            let ObjectMembers(mut members) = serde_json::from_str(text).unwrap();
            if matches!(rule, DuplicateRule::First) {
                members.reverse();
            }
            let members = members.into_iter().map(|(name, value)| (name, read_tree(value.get(), rule)));
            JsonTree::Object(members.collect())
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            JsonTree::Array(items.into_iter().map(|item| read_tree(item.get(), rule)).collect())
        }
        b'"' => serde_json::from_str(text).map_or_else(|_| JsonTree::Raw(text.to_owned()), JsonTree::Text),
        _ => JsonTree::Raw(text.to_owned()),
    }
}

fn select_text(from: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    proptest::sample::select(from.to_vec()).prop_map(str::to_owned)
}

/// A name, often that of another member with different escapes.
fn name() -> impl Strategy<Value = String> {
    select_text(&[
        r#""path""#,
        r#""p\u0061th""#,
        r#""\u0070\u0061\u0074\u0068""#,
        r#""a\/b""#,
        r#""a/b""#,
        r#""é""#,
    ])
}

fn blank() -> impl Strategy<Value = String> {
    select_text(&["", "", "", " ", "\t", "\r"])
}

/// The text of a value.
fn value() -> impl Strategy<Value = String> {
    let leaf = select_text(&[
        "0", "-0", "1.50", "1e400", "12345678901234567890123", "null", "true", r#""""#, r#""a""#,
        r#""\u0061""#, r#""\/\n\u000a\u2028\u0000""#, r#""\ud83d\ude00 \ud83d""#, r#""\"path\":{}""#,
        "\"é\u{2028}\"",
    ]);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let array = proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| items.join(","));
        prop_oneof![
            (array, blank()).prop_map(|(items, blank)| format!("[{blank}{items}]")),
            members(inner).prop_map(|members| format!("{{{members}}}")),
        ]
    })
}

/// The members of an object, as written between its brackets.
fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member =
        (name(), blank(), value).prop_map(|(name, blank, value)| format!("{name}{blank}:{blank}{value}"));
    proptest::collection::vec(member, 0..5).prop_map(|members| members.join(" ,"))
}

/// A message, with each of its names once or more often.
fn message() -> impl Strategy<Value = String> {
    let names = select_text(&[r#""params""#, r#""par\u0061ms""#, r#""_x""#, r#""id""#, r#""\u0069d""#]);
    let others = proptest::collection::vec((names, value()), 0..5);
    let methods =
        proptest::collection::vec(select_text(&[r#""method":"a""#, r#""m\u0065thod":"\u0062""#]), 1..3);
    (others, methods)
        .prop_flat_map(|(others, methods)| {
            let others = others.into_iter().map(|(name, value)| format!("{name}: {value}"));
            Just(others.chain(methods).collect::<Vec<_>>()).prop_shuffle()
        })
        .prop_map(|members| format!("{{{}}}", members.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn readers_that_differ_read_the_same_from_what_is_written(line in message()) {
        let written = String::from_utf8(canonicalize(line.as_bytes()).unwrap()).unwrap();
        let expected = read_tree(&line, DuplicateRule::Last);
        prop_assert_eq!(&read_tree(&written, DuplicateRule::First), &expected);
        prop_assert_eq!(&read_tree(&written, DuplicateRule::Last), &expected);
        prop_assert_eq!(canonicalize(written.as_bytes()).unwrap(), written.as_bytes());
        prop_assert_eq!(written.find(['\n', '\r']), Some(written.len() - 1));
    }
}
