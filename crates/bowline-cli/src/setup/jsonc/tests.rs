//! Tests of edits to realistic texts: whole texts, and properties.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn entry() -> Value {
    json!({"command": "/bin/bowline", "args": ["agent", "--shell"], "env": {}})
}

fn check(text: &str, expected: Expect) {
    let output = match add(text, "agent_servers", "Bowline", &entry()) {
        Ok(JsoncEdit::Changed(edited)) => {
            assert_eq!(add(&edited, "agent_servers", "Bowline", &entry()), Ok(JsoncEdit::Unchanged));
            edited
        }
        Ok(JsoncEdit::Unchanged) => "same".to_owned(),
        Err(error) => format!("! {error}"),
    };
    expected.assert_eq(&output.replace('\r', "␍").replace(BOM, "␟"));
}

#[test]
fn an_empty_file_gets_all_of_it() {
    check(
        "",
        expect![[r#"
        {
          "agent_servers": {
            "Bowline": {
              "command": "/bin/bowline",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }
    "#]],
    );
    check(
        "// Zed settings",
        expect![[r#"
        // Zed settings
        {
          "agent_servers": {
            "Bowline": {
              "command": "/bin/bowline",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }
    "#]],
    );
    check(
        "\u{feff}\r\n",
        expect![[r#"
            ␟{␍
              "agent_servers": {␍
                "Bowline": {␍
                  "command": "/bin/bowline",␍
                  "args": ["agent", "--shell"],␍
                  "env": {}␍
                }␍
              }␍
            }␍
        "#]],
    );
    check(
        "{}",
        expect![[r#"
        {
          "agent_servers": {
            "Bowline": {
              "command": "/bin/bowline",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }"#]],
    );
    check(
        "{\n}\n",
        expect![[r#"
        {
          "agent_servers": {
            "Bowline": {
              "command": "/bin/bowline",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }
    "#]],
    );
}

#[test]
fn comments_commas_and_indentation_stay() {
    check(
        r#"// Zed settings
{
    "theme": "One Dark", // dark
    "vim_mode": true // always, since 1998
    /* nothing else */
}
// the end
"#,
        expect![[r#"
            // Zed settings
            {
                "theme": "One Dark", // dark
                "vim_mode": true, // always, since 1998
                "agent_servers": {
                    "Bowline": {
                        "command": "/bin/bowline",
                        "args": ["agent", "--shell"],
                        "env": {}
                    }
                }
                /* nothing else */
            }
            // the end
        "#]],
    );
    check(
        r#"{
	"a": [1, 2,], // tabs
	// "agent_servers": { "not": "this" },
	"agent_servers": {
		"Other": { "command": "x" }, // mine
	},
}
"#,
        expect![[r#"
            {
            	"a": [1, 2,], // tabs
            	// "agent_servers": { "not": "this" },
            	"agent_servers": {
            		"Other": { "command": "x" }, // mine
            		"Bowline": {
            			"command": "/bin/bowline",
            			"args": ["agent", "--shell"],
            			"env": {},
            		},
            	},
            }
        "#]],
    );
    check(
        "{\r\n  \"a\": 1\r\n}\r\n",
        expect![[r#"
        {␍
          "a": 1,␍
          "agent_servers": {␍
            "Bowline": {␍
              "command": "/bin/bowline",␍
              "args": ["agent", "--shell"],␍
              "env": {}␍
            }␍
          }␍
        }␍
    "#]],
    );
    check(
        r#"{ "a": "\"}{", "agent_servers": {} }"#,
        expect![[r#"
            { "a": "\"}{", "agent_servers": {
                "Bowline": {
                  "command": "/bin/bowline",
                  "args": ["agent", "--shell"],
                  "env": {}
                }
              } }"#]],
    );
    check(
        "{\"agent_servers\":{\"a\":{}},\n\"z\":0}",
        expect![[r#"
            {"agent_servers":{
                "a":{},
                "Bowline": {
                  "command": "/bin/bowline",
                  "args": ["agent", "--shell"],
                  "env": {}
                }
              },
            "z":0}"#]],
    );
    check(
        "{\"a\":1}",
        expect![[r#"
            {
              "a":1,
              "agent_servers": {
                "Bowline": {
                  "command": "/bin/bowline",
                  "args": ["agent", "--shell"],
                  "env": {}
                }
              }
            }"#]],
    );
    check(
        "{\n  \"a\": 1, // last\n}",
        expect![[r#"
            {
              "a": 1, // last
              "agent_servers": {
                "Bowline": {
                  "command": "/bin/bowline",
                  "args": ["agent", "--shell"],
                  "env": {},
                },
              },
            }"#]],
    );
}

#[test]
fn what_is_there_is_told() {
    check(
        r#"{"agent_servers": {"Bowline": {"env": {}, /* any order */ "command": "/bin/bowline", "args": ["agent", "--shell"]}}}"#,
        expect!["same"],
    );
    check(
        r#"{"agent_servers": {"Bowline": {"command": "/old/bowline"}}}"#,
        expect![[
            r#"! "Bowline" is there already, and says something else: remove it, or choose another --agent-name"#
        ]],
    );
}

#[test]
fn what_cannot_be_understood_is_refused() {
    for (text, expected) in [
        ("[]", expect!["! it is no JSON object"]),
        ("{", expect!["! line 1, column 1: Unterminated object"]),
        ("{} x", expect!["! line 1, column 4: Text cannot contain more than one JSON value"]),
        ("{'a': 1}", expect!["! line 1, column 2: Single-quoted strings are not allowed"]),
        ("{a: 1}", expect!["! line 1, column 2: Expected string for object property"]),
        ("{\n  \"a\": 1\n  \"b\": 2\n}", expect!["! line 2, column 9: Expected comma"]),
        ("{\"a\": }", expect!["! line 1, column 7: Unexpected close brace"]),
        (
            "{\"a\" 1}",
            expect!["! line 1, column 6: Expected colon after the string or word in object property"],
        ),
        ("{,}", expect!["! line 1, column 2: Unexpected token in object"]),
        (
            "{\"a\": \"\n\"}",
            expect![[r#"
            {
              "a": "
            ",
              "agent_servers": {
                "Bowline": {
                  "command": "/bin/bowline",
                  "args": ["agent", "--shell"],
                  "env": {}
                }
              }
            }"#]],
        ),
        ("{\"a\": \"\\", expect!["! line 1, column 7: Unterminated string literal"]),
        ("{\"a\": \"\\é", expect!["! line 1, column 8: Invalid escape"]),
        ("{\"a\": 0x10}", expect!["! line 1, column 7: Hexadecimal numbers are not allowed"]),
        ("{ /* }", expect!["! line 1, column 3: Unterminated comment block"]),
        ("{ // a\r }\n}", expect!["! line 3, column 1: Text cannot contain more than one JSON value"]),
        ("{\"agent_servers\": []}", expect![[r#"! "agent_servers" is no JSON object"#]]),
        (
            "{\"agent_servers\": {}, \"agent_servers\": {}}",
            expect![[r#"! "agent_servers" is there more than once"#]],
        ),
        (
            "{\"agent_servers\": {\"Bowline\": 1, \"Bowline\": 2}}",
            expect![[r#"! "Bowline" is there more than once"#]],
        ),
    ] {
        check(text, expected);
    }
    check(&"[".repeat(1_000_000), expect!["! line 1, column 513: Maximum nesting depth exceeded"]);
    assert_eq!(add(&" ".repeat(MAX_BYTES + 1), "a", "b", &entry()), Err(JsoncError::TooLong));
}

#[test]
fn a_removal_leaves_the_rest() {
    let check = |text: &str, expected: Expect| {
        let output = match remove(text, "agent_servers", "Bowline") {
            Ok(JsoncEdit::Changed(without)) => without,
            Ok(JsoncEdit::Unchanged) => "same".to_owned(),
            Err(error) => format!("! {error}"),
        };
        expected.assert_eq(&output);
    };
    check("", expect!["same"]);
    check("{\"a\": 1}", expect!["same"]);
    check("{\"agent_servers\": {\"Other\": {}}}", expect!["same"]);
    check("[]", expect!["! it is no JSON object"]);
    check(
        "{\"agent_servers\": {\"Bowline\": 1, \"Bowline\": 2}}",
        expect![[r#"! "Bowline" is there more than once"#]],
    );
    check("{\"agent_servers\": {\"Bowline\": {\"command\": \"b\"}}}", expect!["{}"]);
    check("{\"agent_servers\": {\"a\": 1, \"Bowline\": 2}}", expect![[r#"{"agent_servers": {"a": 1}}"#]]);
    check("{\"agent_servers\": {\"Bowline\": 2, \"a\": 1}}", expect![[r#"{"agent_servers": { "a": 1}}"#]]);
    check(
        "{\n  // mine\n  \"agent_servers\": {\n    \"a\": {}, // first\n    // ours\n    \"Bowline\": {\n      \"env\": {}\n    }\n  }\n}\n",
        expect![[r#"
            {
              // mine
              "agent_servers": {
                "a": {} // first
                // ours
              }
            }
        "#]],
    );
    check(
        "{\n  \"agent_servers\": {\n    \"Bowline\": {} /* one */, // two\n    \"b\": {},\n  }\n}\n",
        expect![[r#"
            {
              "agent_servers": {
                "b": {},
              }
            }
        "#]],
    );
}

/// Returns whether all of `old` is in `new`, in order. Whitespace may differ.
fn contains_in_order(old: &str, new: &str) -> bool {
    let mut rest = new.bytes();
    old.bytes().filter(|byte| !byte.is_ascii_whitespace()).all(|byte| rest.any(|other| other == byte))
}

fn any_blank() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            Just(" "),
            Just("\n"),
            Just("\t"),
            Just("\r\n"),
            Just("// a \" } note\n"),
            Just("/* { , */"),
            Just("  ")
        ],
        0..4,
    )
    .prop_map(|parts| parts.concat())
}

/// A value as a user might have typed it.
fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<i32>().prop_map(|number| number.to_string()),
        ".{0,8}".prop_map(|text| Value::from(text).to_string()),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let comma = any::<bool>();
        let list = (proptest::collection::vec((any_blank(), inner.clone(), any_blank()), 0..4), comma).prop_map(|(items, comma)| {
            let items: Vec<String> = items.into_iter().map(|(a, b, c)| a + &b + &c).collect();
            format!("[{}{}]", items.join(","), if comma && !items.is_empty() { "," } else { "" })
        });
        let name = prop_oneof![3 => "[a-c]{0,2}", 1 => Just("agent_servers".to_owned()), 1 => Just("Bowline".to_owned())];
        let member = (any_blank(), name, any_blank(), any_blank(), inner, any_blank());
        let object = (proptest::collection::vec(member, 0..4), any_blank(), any::<bool>()).prop_map(|(members, end, comma)| {
            let members: Vec<String> = members
                .into_iter()
                .map(|(a, name, b, c, value, d)| format!("{a}{}{b}:{c}{value}{d}", Value::from(name)))
                .collect();
            format!("{{{}{}{end}}}", members.join(","), if comma && !members.is_empty() { "," } else { "" })
        });
        prop_oneof![list, object]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_byte_is_lost_and_only_the_addition_is_new(before in any_blank(), value in any_value(), after in any_blank()) {
        let text = before + &value + &after;
        let old = parse_value(&text);
        prop_assert!(old.is_some(), "{text:?}");
        if let Ok(JsoncEdit::Changed(new)) = add(&text, "agent_servers", "Bowline", &entry()) {
            prop_assert!(contains_in_order(&text, &new), "{new}");
            let mut expected = old.unwrap();
            expected["agent_servers"]["Bowline"] = entry();
            prop_assert_eq!(parse_value(&new), Some(expected));
            prop_assert_eq!(add(&new, "agent_servers", "Bowline", &entry()), Ok(JsoncEdit::Unchanged));
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[{}\\[\\],:\"/*\\\\ntru1 \r\n\té\u{feff}-]{0,40}") {
        if let Ok(JsoncEdit::Changed(new)) = add(&text, "a", "b", &entry()) {
            prop_assert!(contains_in_order(&text, &new));
        }
    }

    #[test]
    fn what_was_added_can_be_removed(before in any_blank(), value in any_value(), after in any_blank()) {
        let text = before + &value + &after;
        let Ok(JsoncEdit::Changed(with)) = add(&text, "agent_servers", "Bowline", &entry()) else { return Ok(()) };
        let Ok(JsoncEdit::Changed(without)) = remove(&with, "agent_servers", "Bowline") else {
            return Err(TestCaseError::fail(format!("not removed from {with:?}")));
        };
        // An object that is left empty may be removed.
        let members = |text: &str| {
            let mut value = parse_value(text).unwrap_or_else(|| json!({}));
            if value["agent_servers"].as_object().is_none_or(serde_json::Map::is_empty) {
                value.as_object_mut().unwrap().remove("agent_servers");
            }
            value
        };
        prop_assert_eq!(members(&without), members(&text), "{:?}", without);
    }
}
