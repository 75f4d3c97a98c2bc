//! Tests of lenient parsing: which slightly wrong texts are accepted, and which are not.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::messages::{self, MessageSpecKind};
use crate::{golden, official_schema};

/// For each line, a message and a text, shows whether the schema allows the text and what is written after reading it.
fn check(script: &str, expected: Expect) {
    let mut output = String::new();
    for line in script.lines().filter(|line| !line.is_empty()) {
        let (name, text) = line.split_once(' ').unwrap();
        let allowed = if official_schema::is_valid(name, &serde_json::from_str(text).unwrap()) {
            "allowed"
        } else {
            "wrong"
        };
        let outcome = messages::find_message(name).rewrite(text).unwrap_or_else(|error| format!("! {error}"));
        output += &format!("{allowed}: {outcome}\n");
    }
    expected.assert_eq(&output);
}

#[test]
fn unknown_fields_are_never_an_error() {
    const UNKNOWN: &str = "fromTheFuture";
    for (name, text) in golden::golden_texts() {
        let value: Value = serde_json::from_str(text).unwrap();
        let mut extended = value.clone();
        for described in official_schema::described_objects(name, &value) {
            extended.pointer_mut(&described.object).unwrap()[UNKNOWN] = json!({ "x": [1, null] });
        }
        assert_ne!(extended, value);
        official_schema::validate(name, &extended);
        // An unknown kind of elicitation keeps its fields; other types drop unknown fields.
        let mut written = messages::find_message(name).rewrite_json(&extended);
        remove(&mut written, UNKNOWN);
        assert_eq!(written, value);
    }
}

fn remove(value: &mut Value, key: &str) {
    match value {
        Value::Object(object) => {
            object.remove(key);
            object.values_mut().for_each(|value| remove(value, key));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| remove(value, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn metadata_survives_untouched_on_everything_that_has_it() {
    let meta = json!({
        "": null,
        "zed.dev/\"x\"\n\u{2028}": ["\u{0}\u{1f}", "\u{10ffff}", -0.5, u64::MAX, i64::MIN, true],
        "_meta": { "_meta": {} },
        "sessionUpdate": "plan",
        "type": 7,
        "requestId": null,
        "b": [],
        "a": [[], {}, [{ "deep": [[[[[["x"]]]]]] }]],
    });
    let mut count = 0;
    for (name, text) in golden::golden_texts() {
        let mut value: Value = serde_json::from_str(text).unwrap();
        for described in official_schema::described_objects(name, &value) {
            if described.properties().contains_key("_meta") {
                value.pointer_mut(&described.object).unwrap()["_meta"] = meta.clone();
                count += 1;
            }
        }
        let message = messages::find_message(name);
        let written = message.rewrite_json(&value);
        assert_eq!(written, value);
        // The keys in it keep their order, too.
        assert_eq!(metas(&written), metas(&value));
        message.carry(&value.to_string());
    }
    assert!(count > 300, "only {count} objects were tried");
}

/// Returns the text of every `_meta`.
fn metas(value: &Value) -> Vec<String> {
    match value {
        Value::Object(object) => {
            let own_meta = object.get("_meta").map(Value::to_string);
            let mut metas: Vec<_> = own_meta.into_iter().chain(object.values().flat_map(metas)).collect();
            metas.sort_unstable();
            metas
        }
        Value::Array(items) => items.iter().flat_map(metas).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// The library sends `{}`; some peers send `null`, as the protocol's documents once had it.
#[test]
fn an_answer_that_says_nothing_may_be_null_or_an_empty_object() {
    let mut output = String::new();
    for message in messages::all_messages().iter().filter(|message| message.kind == MessageSpecKind::Response)
    {
        let read = |text: &str| message.rewrite(text).unwrap_or_else(|_| "!".to_owned());
        output += &format!("{} {} {}\n", message.method, read("null"), read("{}"));
    }
    expect![[r#"
        initialize ! !
        authenticate {} {}
        logout {} {}
        session/new ! !
        session/load {} {}
        session/resume {} {}
        session/fork ! !
        session/list ! !
        session/close {} {}
        session/delete {} {}
        session/set_mode {} {}
        session/set_config_option ! !
        session/prompt ! !
        session/request_permission ! !
        fs/read_text_file ! !
        fs/write_text_file {} {}
        terminal/create ! !
        terminal/output ! !
        terminal/wait_for_exit {} {}
        terminal/kill {} {}
        terminal/release {} {}
        elicitation/create ! !
        mcp/message ! !
    "#]]
    .assert_eq(&output);
}

#[test]
fn unknown_kinds_are_errors_and_no_panics() {
    check(
        r#"
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"subagent_update","x":1}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"_own"}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":7}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":null}}
SessionNotification {"sessionId":"s","update":{}}
SessionNotification {"sessionId":"s","update":[]}
SessionNotification {"sessionId":"s","update":null}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"video","data":""}}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"text":"x"}}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t"}}
SessionNotification null
PromptRequest {"sessionId":"s","prompt":[{"type":"text","text":"x"},{"type":"video"}]}
PromptResponse {"stopReason":"bored"}
PromptResponse {}
RequestPermissionRequest {"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"O","kind":"allow_forever"}]}
RequestPermissionResponse {"outcome":{"outcome":"maybe"}}
RequestPermissionResponse {"outcome":{"outcome":"selected"}}
SetSessionConfigOptionRequest {"sessionId":"s","configId":"c","value":7}
"#,
        expect![[r#"
            wrong: ! unknown variant `subagent_update`, expected one of `user_message_chunk`, `agent_message_chunk`, `agent_thought_chunk`, `tool_call`, `tool_call_update`, `plan`, `available_commands_update`, `current_mode_update`, `config_option_update`, `session_info_update`, `usage_update`, `notice`, `compaction_update`, `compaction_summary_chunk` at line 1 column 60
            wrong: ! unknown variant `_own`, expected one of `user_message_chunk`, `agent_message_chunk`, `agent_thought_chunk`, `tool_call`, `tool_call_update`, `plan`, `available_commands_update`, `current_mode_update`, `config_option_update`, `session_info_update`, `usage_update`, `notice`, `compaction_update`, `compaction_summary_chunk` at line 1 column 49
            wrong: ! invalid type: integer `7`, expected variant identifier at line 1 column 44
            wrong: ! invalid type: null, expected variant identifier at line 1 column 47
            wrong: ! missing field `sessionUpdate` at line 1 column 28
            wrong: ! missing field `sessionUpdate` at line 1 column 28
            wrong: ! invalid type: null, expected internally tagged enum SessionUpdate at line 1 column 30
            wrong: ! unknown variant `video`, expected one of `text`, `image`, `audio`, `resource_link`, `resource` at line 1 column 103
            wrong: ! missing field `type` at line 1 column 89
            wrong: ! missing field `title` at line 1 column 73
            wrong: ! invalid type: null, expected struct SessionNotification at line 1 column 4
            wrong: ! unknown variant `video`, expected one of `text`, `image`, `audio`, `resource_link`, `resource` at line 1 column 69
            wrong: ! unknown variant `bored`, expected one of `end_turn`, `max_tokens`, `max_turn_requests`, `refusal`, `cancelled` at line 1 column 21
            wrong: ! missing field `stopReason` at line 1 column 2
            wrong: ! unknown variant `allow_forever`, expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at line 1 column 107
            wrong: ! unknown variant `maybe`, expected `cancelled` or `selected` at line 1 column 29
            wrong: ! missing field `optionId` at line 1 column 34
            wrong: ! data did not match any variant of untagged enum SessionConfigOptionValue at line 1 column 42
        "#]],
    );
}

/// As the schema requires (`x-deserialize-default-on-error` and the like), an invalid optional field is dropped.
#[test]
fn an_invalid_optional_field_is_dropped() {
    check(
        r#"
InitializeRequest {"protocolVersion":1,"clientCapabilities":"junk","clientInfo":7,"_meta":[]}
NewSessionRequest {"cwd":"/a","mcpServers":null}
NewSessionRequest {"cwd":"/a","mcpServers":[{"junk":1}]}
NewSessionResponse {"sessionId":"s","modes":7,"configOptions":[{"id":"o","name":"O","type":"slider"},{"id":"b","name":"B","type":"boolean","currentValue":true}]}
CreateTerminalRequest {"sessionId":"s","command":"c","args":null,"env":null}
CreateTerminalRequest {"sessionId":"s","command":"c","cwd":7}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","kind":"cook","status":"burnt","content":[{"type":"text","text":"x"},{"type":"terminal","terminalId":"t"}],"locations":{}}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"cook","status":"burnt","title":7}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"plan","entries":[{"content":"x"},{"content":"y","priority":"low","status":"pending"}]}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"x","description":"","input":{"form":[]}}]}}
TerminalOutputResponse {"output":"","truncated":false,"exitStatus":{"exitCode":-1,"signal":9}}
WaitForTerminalExitResponse {"exitCode":-9}
"#,
        expect![[r#"
            wrong: {"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,"auth":{"terminal":false}}}
            wrong: {"cwd":"/a","mcpServers":[]}
            wrong: ! data did not match any variant of untagged enum McpServer at line 1 column 37
            wrong: {"sessionId":"s","configOptions":[{"id":"b","name":"B","type":"boolean","currentValue":true}]}
            wrong: {"sessionId":"s","command":"c"}
            wrong: ! invalid type: integer `7`, expected path string at line 1 column 38
            wrong: {"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","content":[{"type":"terminal","terminalId":"t"}]}}
            wrong: {"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"other"}}
            wrong: {"sessionId":"s","update":{"sessionUpdate":"plan","entries":[{"content":"y","priority":"low","status":"pending"}]}}
            wrong: {"sessionId":"s","update":{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"x","description":""}]}}
            wrong: {"output":"","truncated":false,"exitStatus":{}}
            wrong: {}
        "#]],
    );
}

/// A number in the schema has no upper bound and, even if integral, may be written with a fraction.
#[test]
fn numbers_that_the_schema_allows_can_be_too_much_for_the_types() {
    check(
        r#"
InitializeRequest {"protocolVersion":1.0}
InitializeRequest {"protocolVersion":65536}
InitializeRequest {"protocolVersion":"1"}
ReadTextFileRequest {"sessionId":"s","path":"/a","line":10.0}
ReadTextFileRequest {"sessionId":"s","path":"/a","limit":4294967296}
ReadTextFileRequest {"sessionId":"s","path":"/a","line":-1}
CreateTerminalRequest {"sessionId":"s","command":"c","outputByteLimit":1e6}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","locations":[{"path":"/a","line":4294967296}]}}
SessionNotification {"sessionId":"s","update":{"sessionUpdate":"usage_update","used":1.0,"size":2}}
TerminalOutputResponse {"output":"","truncated":false,"exitStatus":{"exitCode":4294967296}}
CreateElicitationResponse {"action":"accept","content":{"n":1.0,"m":18446744073709551615}}
"#,
        expect![[r#"
            allowed: ! invalid type: floating point `1.0`, expected u16 at line 1 column 22
            wrong: ! invalid value: integer `65536`, expected u16 at line 1 column 24
            wrong: ! invalid type: string "1", expected u16 at line 1 column 22
            allowed: ! invalid type: floating point `10.0`, expected u32 at line 1 column 40
            allowed: ! invalid value: integer `4294967296`, expected u32 at line 1 column 47
            wrong: ! invalid value: integer `-1`, expected u32 at line 1 column 38
            allowed: ! invalid type: floating point `1000000.0`, expected u64 at line 1 column 52
            allowed: {"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","locations":[{"path":"/a"}]}}
            allowed: ! invalid type: floating point `1.0`, expected u64 at line 1 column 79
            allowed: {"output":"","truncated":false,"exitStatus":{}}
            allowed: {"action":"accept","content":{"m":1.8446744073709552e+19,"n":1.0}}
        "#]],
    );
}
