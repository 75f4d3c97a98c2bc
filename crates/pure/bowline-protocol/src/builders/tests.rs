//! Tests of the builders: the JSON they produce.

use super::*;
use agent_client_protocol_schema::v1::{ImageContent, ToolCallStatus};
use expect_test::{Expect, expect};

fn check(updates: Vec<SessionUpdate>, expected: Expect) {
    let lines: Vec<String> = updates.iter().map(|update| serde_json::to_string(update).unwrap()).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn a_started_call_carries_what_its_kind_implies() {
    check(
        vec![
            start_tool_call("t1", "Think it over").into_session_update(),
            start_read("t2", "Read it", "/src/main.rs").into_session_update(),
            start_edit("t3", "Edit it", "/src/main.rs", "fn main() {}").into_session_update(),
            start_edit("t4", "Patch it", "/a", json!({ "hunks": [1] }))
                .content(vec![diff("/a", None, "new")])
                .into_session_update(),
        ],
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Think it over"}
            {"sessionUpdate":"tool_call","toolCallId":"t2","title":"Read it","kind":"read","locations":[{"path":"/src/main.rs"}],"rawInput":{"path":"/src/main.rs"}}
            {"sessionUpdate":"tool_call","toolCallId":"t3","title":"Edit it","kind":"edit","locations":[{"path":"/src/main.rs"}],"rawInput":{"path":"/src/main.rs","content":"fn main() {}"}}
            {"sessionUpdate":"tool_call","toolCallId":"t4","title":"Patch it","kind":"edit","content":[{"type":"diff","path":"/a","newText":"new"}],"locations":[{"path":"/a"}],"rawInput":{"path":"/a","content":{"hunks":[1]}}}"#]],
    );
}

#[test]
fn an_update_carries_the_named_fields_only() {
    check(
        vec![
            update_tool_call("t1", ToolCallUpdateFields::new().status(ToolCallStatus::Completed))
                .into_session_update(),
            update_tool_call(
                "t1",
                ToolCallUpdateFields::new().content(vec![
                    text("done"),
                    content(ContentBlock::Image(ImageContent::new("AAAA", "image/png"))),
                    diff("/a", Some("old"), "new"),
                    terminal("term_1"),
                ]),
            )
            .into_session_update()
            .into_session_update(),
        ],
        expect![[r#"
            {"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
            {"sessionUpdate":"tool_call_update","toolCallId":"t1","content":[{"type":"content","content":{"type":"text","text":"done"}},{"type":"content","content":{"type":"image","data":"AAAA","mimeType":"image/png"}},{"type":"diff","path":"/a","oldText":"old","newText":"new"},{"type":"terminal","terminalId":"term_1"}]}"#]],
    );
}

#[cfg(unix)]
#[test]
fn a_path_that_json_cannot_carry_does_not_break_the_message() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let path = Path::new(OsStr::from_bytes(b"/a\xffb"));
    check(
        vec![
            start_read("t1", "Read it", path).into_session_update(),
            start_edit("t2", "Edit it", path, "").content(vec![diff(path, None, "")]).into_session_update(),
        ],
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read it","kind":"read","locations":[{"path":"/a�b"}],"rawInput":{"path":"/a�b"}}
            {"sessionUpdate":"tool_call","toolCallId":"t2","title":"Edit it","kind":"edit","content":[{"type":"diff","path":"/a�b","newText":""}],"locations":[{"path":"/a�b"}],"rawInput":{"path":"/a�b","content":""}}"#]],
    );
}
