//! Tests of the capability.

use agent_client_protocol_schema::v1::Meta;
use expect_test::{Expect, expect};
use std::fmt::Write;

use crate::capabilities::authorizes_operations_meta;
use crate::file_extension::{FileCapabilities, FileLimits};

/// Shows what is read from each `_meta`: the methods, and the limits that are not the default.
fn check(metas: &str, expected: Expect) {
    let mut text = String::new();
    for line in metas.lines().filter(|line| !line.is_empty()) {
        let meta: Meta = serde_json::from_str(line).unwrap();
        let files = FileCapabilities::from_meta(&meta);
        let is_default = files.limits() == FileLimits::DEFAULT;
        let limits = if is_default { String::new() } else { format!(" {:?}", files.limits()) };
        writeln!(text, "{}{limits}", serde_json::to_string(&files).unwrap()).unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn a_client_offers_the_methods_that_it_describes() {
    check(
        r#"
{"bowline":{"version":1,"fs":{"list":{"maxEntries":10},"stat":{},"read":{"maxBytes":20},"write":{"maxBytes":30},"batch":{"maxOperations":40,"maxBytes":50},"watch":{"maxWatches":60,"maxChanges":70}}}}
{"bowline":{"version":1,"fs":{"read":{}}}}
{"bowline":{"version":1,"fs":{"list":{},"new":{"x":1}},"decides":true},"other":{}}
"#,
        expect![[r#"
            {"list":{"maxEntries":10},"stat":{},"read":{"maxBytes":20},"write":{"maxBytes":30},"batch":{"maxOperations":40,"maxBytes":50},"watch":{"maxWatches":60,"maxChanges":70}} FileLimits { list_entries: 10, read_bytes: 20, write_bytes: 30, batch_operations: 40, batch_bytes: 50, watches: 60, changes: 70 }
            {"read":{"maxBytes":16777216}}
            {"list":{"maxEntries":2000}}
        "#]],
    );
}

#[test]
fn a_client_that_says_something_else_offers_nothing() {
    check(
        r#"
{}
{"bowline":null}
{"bowline":{"decides":true}}
{"bowline":{"fs":{"stat":{}}}}
{"bowline":{"version":2,"fs":{"stat":{}}}}
{"bowline":{"version":"1","fs":{"stat":{}}}}
{"bowline":{"version":1}}
{"bowline":{"version":1,"fs":null}}
{"bowline":{"version":1,"fs":["stat"]}}
{"fs":{"stat":{}},"version":1}
"#,
        expect![[r#"
            {}
            {}
            {}
            {}
            {}
            {}
            {}
            {}
            {}
            {}
        "#]],
    );
}

#[test]
fn one_mistake_does_not_hide_the_other_methods_and_limits() {
    check(
        r#"
{"bowline":{"version":1,"fs":{"list":true,"stat":false,"read":{"maxBytes":"many"},"write":7,"batch":{"maxOperations":-1,"maxBytes":9},"watch":null}}}
{"bowline":{"version":1,"fs":{"list":{"maxEntries":0},"watch":{"maxWatches":0,"maxChanges":1}}}}
"#,
        expect![[r#"
            {"list":{"maxEntries":2000},"read":{"maxBytes":16777216},"batch":{"maxOperations":1000,"maxBytes":33554432}}
            {"list":{"maxEntries":0},"watch":{"maxWatches":0,"maxChanges":1}} FileLimits { list_entries: 2000, read_bytes: 16777216, write_bytes: 33554432, batch_operations: 1000, batch_bytes: 33554432, watches: 64, changes: 1 }
        "#]],
    );
}

#[test]
fn the_capability_is_added_to_what_a_client_says_already() {
    let limits = FileLimits { list_entries: 5, ..FileLimits::DEFAULT };
    let files = FileCapabilities::with_limits(&limits);
    let mut text = String::new();
    for mut meta in
        [Meta::new(), authorizes_operations_meta(), Meta::from_iter([("bowline".to_owned(), 7.into())])]
    {
        files.insert_into(&mut meta);
        writeln!(text, "{}", serde_json::to_string(&meta).unwrap()).unwrap();
        assert_eq!(FileCapabilities::from_meta(&meta), files);
        assert_eq!(FileCapabilities::from_meta(&meta).limits(), limits);
    }
    expect![[r#"
        {"bowline":{"version":1,"fs":{"list":{"maxEntries":5},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}
        {"bowline":{"decides":true,"version":1,"fs":{"list":{"maxEntries":5},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}
        {"bowline":{"version":1,"fs":{"list":{"maxEntries":5},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}
    "#]].assert_eq(&text);
}
