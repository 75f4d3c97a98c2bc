//! Tests of truncation: what is cut, and what stays as it is.

use std::borrow::Cow;

use super::{MAX_DEPTH, cut_deep_values};

fn nested(depth: usize) -> String {
    format!("{}1{}", r#"{"a\\\"[":["#.repeat(depth / 2), "]}".repeat(depth / 2))
}

#[test]
fn what_is_not_too_deep_stays_as_it_is() {
    for text in ["", "{}", "]]]]{{", r#""[[[""#, "{\"a\":\"\\", &nested(MAX_DEPTH)] {
        assert!(
            matches!(cut_deep_values(text.as_bytes()), Cow::Borrowed(same) if same == text.as_bytes()),
            "{text}"
        );
    }
    serde_json::from_str::<serde_json::Value>(&nested(MAX_DEPTH)).unwrap();
}

#[test]
fn what_is_too_deep_becomes_null_and_all_around_it_stays() {
    let deep = nested(MAX_DEPTH + 100_000);
    let text = format!(r#"{{"before":[1,{{}}],"deep":{deep},"twice":[{deep},{deep}],"after":"]}}"}}"#);
    let read: serde_json::Value = serde_json::from_slice(&cut_deep_values(text.as_bytes())).unwrap();
    assert_eq!((&read["before"][0], &read["after"]), (&1.into(), &"]}".into()));
    assert!(read["deep"].is_object() && read["twice"][1].is_object());
}
