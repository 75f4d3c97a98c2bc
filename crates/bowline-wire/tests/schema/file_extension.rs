//! Tests of the documented examples of the file extension against its schema file.

use jsonschema::Validator;
use serde_json::{Value, json};

const DOCUMENT: &str = include_str!("../../../../docs/extensions.md");
const SCHEMA: &str = include_str!("../../../../docs/extensions.schema.json");

/// Returns a validator for a part of the schema file.
fn validator(schema: &Value, part: &Value) -> Validator {
    assert!(part.is_object(), "the schema file lacks a part");
    jsonschema::validator_for(&json!({ "allOf": [part], "$defs": schema["$defs"] })).expect("a JSON schema")
}

fn validate(schema: &Value, part: &Value, value: &Value) {
    if let Err(error) = validator(schema, part).validate(value) {
        panic!("{value} does not match {part} at {}: {error}", error.instance_path());
    }
}

#[test]
fn documented_examples_match_the_schema_file() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let blocks = DOCUMENT.split("```json\n").skip(1).filter_map(|block| block.split("```").next());
    let mut method = Value::Null;
    for line in blocks.flat_map(str::lines) {
        let example: Value = serde_json::from_str(line).unwrap();
        if let Some(called) = example["method"].as_str() {
            method = schema["x-methods"][called].clone();
            validate(&schema, &method["params"], &example["params"]);
        } else if example["result"].is_object() {
            validate(&schema, &method["result"], &example["result"]);
        } else if example["error"].is_object() {
            validate(&schema, &schema["x-errorData"], &example["error"]["data"]);
        } else {
            let bowline = &example["clientCapabilities"]["_meta"]["bowline"];
            validate(&schema, &schema["x-capability"], bowline);
        }
    }
}

#[test]
fn the_schema_file_refuses_what_the_types_refuse() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for (method, params) in [
        ("_bowline/fs/list", json!({ "sessionId": "s" })),
        ("_bowline/fs/stat", json!({ "path": "/a" })),
        ("_bowline/fs/read", json!({ "sessionId": "s", "path": "/a", "encoding": "hex" })),
        ("_bowline/fs/read", json!({ "sessionId": "s", "path": "/a", "offset": -1 })),
        ("_bowline/fs/write", json!({ "sessionId": "s", "path": "/a" })),
        ("_bowline/fs/batch", json!({ "sessionId": "s", "operations": [{ "op": "link" }] })),
        ("_bowline/fs/batch", json!({ "sessionId": "s", "operations": [{ "op": "move", "from": "/a" }] })),
        ("_bowline/fs/unwatch", json!({ "sessionId": "s" })),
    ] {
        let part = &schema["x-methods"][method]["params"];
        assert!(!validator(&schema, part).is_valid(&params), "{method} {params}");
    }
}
