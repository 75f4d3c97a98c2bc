//! Calls dropped at every point: nothing is left behind, and the session continues.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bowline_policy::mode::AgentMode;
use serde_json::{Value, json};
use test_support::editor::{EditorCapabilities, FakeCommand};

use crate::fixture::ToolboxFixture;

/// Allows a limited number of polls of a future.
struct PollLimited<F> {
    future: Pin<Box<F>>,
    polls_left: usize,
}

impl<F: Future> Future for PollLimited<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(remaining) = self.polls_left.checked_sub(1) else { return Poll::Ready(None) };
        self.polls_left = remaining;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if remaining == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Drops a call after its first step, its second, and so on until it ends by itself; returns the number of steps.
async fn drop_at_each_step(name: &str, input: Value, check: impl Fn(&ToolboxFixture)) -> usize {
    for steps in 1.. {
        let fixture = ToolboxFixture::open_with(EditorCapabilities::ALL, AgentMode::Ask, |_| (), None).await;
        fixture.open_document("a", "one\ntwo\n");
        fixture.editor.queue_command(FakeCommand::exited("out\n", 0));
        let call = fixture.tool_use(name, input.clone());
        let outcome =
            PollLimited { future: Box::pin(fixture.toolbox.run_call(&call, &fixture.cx)), polls_left: steps }
                .await;
        fixture.toolbox.clean_up().await;
        fixture.cx.reporter.fail_open_calls().await;
        assert_eq!(fixture.editor.open_terminals(), 0, "after {steps} steps");
        check(&fixture);
        // The session continues as if nothing had happened.
        let output = fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
        assert!(output.starts_with("= [a: "), "after {steps} steps: {output}");
        if outcome.is_some() {
            return steps;
        }
    }
    unreachable!("a call ends")
}

#[tokio::test]
async fn a_command_can_be_dropped_at_every_step() {
    let steps = drop_at_each_step("execute", json!({ "command": "make" }), |_| ()).await;
    assert!(steps > 5, "it has several steps, not {steps}");
}

#[tokio::test]
async fn a_write_can_be_dropped_at_every_step() {
    let check = |fixture: &ToolboxFixture| {
        let text = fixture.document("a");
        assert!(["one\ntwo\n", "new\n"].contains(&text.as_str()), "{text:?}");
    };
    let steps = drop_at_each_step("write_text_file", json!({ "path": "a", "content": "new\n" }), check).await;
    assert!(steps > 5, "it has several steps, not {steps}");
}
