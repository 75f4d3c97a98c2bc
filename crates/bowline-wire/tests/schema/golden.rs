//! Tests of the golden texts: complete, valid, and written as they were read.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{messages, official_schema};

/// Returns each text with the name of its message.
pub(crate) fn golden_texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    let sections = include_str!("../golden/messages.txt").split("//- ").skip(1);
    sections.flat_map(|section| {
        let mut lines = section.lines().filter(|line| !line.is_empty());
        let name = lines.next().expect("a section has a name");
        lines.map(move |line| (name, line))
    })
}

/// Valid texts that are written differently from how they were read: the message, what is read, what is written, and
/// why.
///
/// A `null` in an optional field is read as a missing field everywhere, which has its own test.
const NORMALISED: &[(&str, &str, &str, &str)] = &[
    (
        "InitializeRequest",
        r#"{"protocolVersion":1}"#,
        r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,"auth":{"terminal":false}}}"#,
        "capabilities that are no object of their own are always spelled out",
    ),
    (
        "InitializeRequest",
        r#"{"protocolVersion":1,"clientCapabilities":{}}"#,
        r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,"auth":{"terminal":false}}}"#,
        "capabilities that are no object of their own are always spelled out",
    ),
    (
        "InitializeRequest",
        r#"{"protocolVersion":1,"clientCapabilities":{"fs":{},"auth":{}}}"#,
        r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,"auth":{"terminal":false}}}"#,
        "capabilities that are no object of their own are always spelled out",
    ),
    (
        "InitializeResponse",
        r#"{"protocolVersion":1}"#,
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}},"authMethods":[]}"#,
        "capabilities that are no object of their own are always spelled out, and so is the list of login methods",
    ),
    (
        "InitializeResponse",
        r#"{"protocolVersion":1,"agentCapabilities":{}}"#,
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}},"authMethods":[]}"#,
        "capabilities that are no object of their own are always spelled out",
    ),
    (
        "InitializeResponse",
        r#"{"protocolVersion":1,"agentCapabilities":{"promptCapabilities":{},"mcpCapabilities":{}}}"#,
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}},"authMethods":[]}"#,
        "capabilities that are no object of their own are always spelled out",
    ),
    (
        "InitializeResponse",
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}},"authMethods":[{"type":"agent","id":"a","name":"A"},{"type":"terminal","id":"t","name":"T","args":[],"env":{}}]}"#,
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}},"authMethods":[{"id":"a","name":"A"},{"type":"terminal","id":"t","name":"T"}]}"#,
        "a login method without a type is the agent's; empty args and env are omitted",
    ),
    (
        "NewSessionRequest",
        r#"{"cwd":"/a","additionalDirectories":[],"mcpServers":[{"type":"stdio","name":"n","command":"c","args":[],"env":[]}]}"#,
        r#"{"cwd":"/a","mcpServers":[{"name":"n","command":"c","args":[],"env":[]}]}"#,
        "no further directories is the default; an MCP server without a type is on stdio",
    ),
    (
        "LoadSessionRequest",
        r#"{"mcpServers":[],"cwd":"/a","additionalDirectories":[],"sessionId":"s"}"#,
        r#"{"mcpServers":[],"cwd":"/a","sessionId":"s"}"#,
        "no further directories is the default",
    ),
    (
        "ResumeSessionRequest",
        r#"{"sessionId":"s","cwd":"/a","additionalDirectories":[],"mcpServers":[]}"#,
        r#"{"sessionId":"s","cwd":"/a"}"#,
        "no further directories and no MCP servers are the default here, unlike in session/new",
    ),
    (
        "ForkSessionRequest",
        r#"{"sessionId":"s","cwd":"/a","additionalDirectories":[],"mcpServers":[]}"#,
        r#"{"sessionId":"s","cwd":"/a"}"#,
        "no further directories and no MCP servers are the default here, unlike in session/new",
    ),
    (
        "ListSessionsResponse",
        r#"{"sessions":[{"sessionId":"s","cwd":"/a","additionalDirectories":[]}]}"#,
        r#"{"sessions":[{"sessionId":"s","cwd":"/a"}]}"#,
        "no further directories is the default",
    ),
    (
        "SetSessionConfigOptionRequest",
        r#"{"sessionId":"s","configId":"c","type":"value_id","value":"v"}"#,
        r#"{"sessionId":"s","configId":"c","value":"v"}"#,
        "a value without a type is the id of a value",
    ),
    (
        "SessionNotification",
        r#"{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","kind":"other","status":"pending","content":[],"locations":[]}}"#,
        r#"{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x"}}"#,
        "a tool call starts pending, of no particular kind and without content; only an update spells these out",
    ),
    (
        "SessionNotification",
        r#"{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","rawInput":null,"rawOutput":null}}"#,
        r#"{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x"}}"#,
        "raw input and output that are null count as none",
    ),
    (
        "SessionNotification",
        r#"{"sessionId":"s","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1,"currency":"USD"}}}"#,
        r#"{"sessionId":"s","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1.0,"currency":"USD"}}}"#,
        "a number that may have a fraction is written with one",
    ),
    (
        "CreateTerminalRequest",
        r#"{"sessionId":"s","command":"c","args":[],"env":[]}"#,
        r#"{"sessionId":"s","command":"c"}"#,
        "no arguments and no variables are the default",
    ),
    (
        "CreateElicitationRequest",
        r#"{"mode":"form","sessionId":"s","requestedSchema":{},"message":"m"}"#,
        r#"{"mode":"form","sessionId":"s","requestedSchema":{"type":"object","properties":{}},"message":"m"}"#,
        "a form is always an object with properties",
    ),
];

/// Where `null` differs from a missing field: it removes an earlier value.
const KEEPS_NULL: &[(&str, &str)] = &[
    ("session_info_update", "title"),
    ("session_info_update", "updatedAt"),
    ("compaction_update", "summary"),
    ("compaction_update", "error"),
    ("compaction_update", "_meta"),
];

/// Fails for each message without a text, and for each text without a message.
#[test]
fn every_message_has_its_texts() {
    let messages: BTreeSet<_> = messages::all_messages().into_iter().map(|message| message.name).collect();
    let texts: BTreeSet<_> = golden_texts().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(texts, messages);
}

#[test]
fn every_text_is_valid_and_is_written_as_it_was_read() {
    for message in messages::all_messages() {
        for (_, text) in golden_texts().filter(|(name, _)| *name == message.name) {
            let value: Value = serde_json::from_str(text).unwrap();
            official_schema::validate(&message.name, &value);
            assert_eq!(message.rewrite_json(&value), value);
        }
    }
}

#[test]
fn every_other_valid_text_has_one_form_that_it_is_written_in() {
    for (name, read, written, reason) in NORMALISED {
        let message = messages::find_message(name);
        let [read, written]: [Value; 2] = [read, written].map(|text| serde_json::from_str(text).unwrap());
        official_schema::validate(name, &read);
        official_schema::validate(name, &written);
        assert_ne!(read, written, "{reason}");
        assert_eq!(message.rewrite_json(&read), written, "{reason}");
        assert_eq!(message.rewrite_json(&written), written, "{reason}");
    }
}

#[test]
fn the_texts_show_every_field_and_every_variant_of_the_schema() {
    let normalised = NORMALISED.iter().map(|(name, read, ..)| (*name, *read));
    let covered: BTreeSet<_> = golden_texts()
        .chain(normalised)
        .flat_map(|(name, text)| official_schema::covered_by(name, &serde_json::from_str(text).unwrap()))
        .collect();
    let required = official_schema::required_coverage();
    assert!(required.len() > 500, "the schema was not understood: {required:?}");
    let missing: Vec<_> = required.difference(&covered).map(String::as_str).collect();
    assert!(missing.is_empty(), "no text shows:\n{}\n", missing.join("\n"));
}

#[test]
fn null_in_an_optional_field_is_read_as_if_it_were_missing() {
    let mut count = 0;
    for (name, text) in golden_texts() {
        let (message, value) = (messages::find_message(name), serde_json::from_str::<Value>(text).unwrap());
        for described in official_schema::described_objects(name, &value) {
            for (field, _) in described.properties().iter().filter(|(_, schema)| allows_null(schema)) {
                let (mut with_null, mut without) = (value.clone(), value.clone());
                let object = with_null.pointer_mut(&described.object).unwrap();
                let kind = object["sessionUpdate"].as_str().unwrap_or_default().to_owned();
                object[field] = Value::Null;
                without.pointer_mut(&described.object).and_then(Value::as_object_mut).unwrap().remove(field);
                official_schema::validate(name, &with_null);
                let keeps_null = KEEPS_NULL.contains(&(kind.as_str(), field));
                assert_eq!(message.rewrite_json(&with_null), if keeps_null { with_null } else { without });
                count += 1;
            }
        }
    }
    assert!(count > 500, "only {count} fields were tried");
}

/// Returns whether a field's schema allows null.
fn allows_null(schema: &Value) -> bool {
    let null = Value::from("null");
    let listed = schema["type"].as_array().is_some_and(|types| types.contains(&null));
    let branch =
        schema["anyOf"].as_array().is_some_and(|any| any.iter().any(|branch| branch["type"] == null));
    listed || branch
}
