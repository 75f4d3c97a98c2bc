//! The record of a turn.

use bowline_protocol::builders;
use bowline_protocol::schema::v1::{SessionUpdate, ToolCall, ToolCallStatus, ToolCallUpdateFields};
use expect_test::expect;
use test_support::editor::EditorCapabilities;

use crate::fixture::ToolboxFixture;

#[tokio::test]
async fn a_long_command_is_recorded_with_what_it_showed_last() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    let reporter = &fixture.cx.reporter;
    let show = |text: String| ToolCallUpdateFields::new().content(vec![builders::text(text)]);
    reporter.start_call("1", |id| ToolCall::new(id, "Run make")).await.unwrap();
    let in_progress = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
    reporter.update_call("1", in_progress).await.unwrap();
    for second in 0..1000 {
        let text = format!("{}{second}", "x".repeat(16 << 10));
        reporter.update_call("1", show(text)).await.unwrap();
    }
    reporter.finish_call("1", ToolCallStatus::Completed, show("all".to_owned())).await.unwrap();
    let out: String = reporter.take_unsaved().iter().map(|update| format_update(update) + "\n").collect();
    expect![[r#"
        Completed [Content(Content { content: Text(TextContent { annotations: None, text: "all", meta: None }), meta: None })]
    "#]]
    .assert_eq(&out);
}

#[tokio::test]
async fn what_waits_to_be_saved_is_counted_as_it_is() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    let reporter = &fixture.cx.reporter;
    for call in ["1", "2", "3", "4", "5"] {
        let input = serde_json::json!({ "content": "x".repeat(1 << 20) });
        reporter.start_call(call, |id| ToolCall::new(id, "Write").raw_input(input)).await.unwrap();
    }
    assert!(reporter.should_save());
}

fn format_update(update: &SessionUpdate) -> String {
    match update {
        SessionUpdate::ToolCall(call) => format!("{:?} {:?}", call.status, call.content),
        other => format!("{other:?}"),
    }
}
