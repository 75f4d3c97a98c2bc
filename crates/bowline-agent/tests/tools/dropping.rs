//! Calls that are dropped at every point: nothing is left behind, and the session goes on.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bowline_state::mode::Mode;
use serde_json::{Value, json};
use test_support::editor::{Offers, Run};

use crate::stage::Stage;

/// Lets a future be polled so often, and then no more.
struct Polled<F> {
    future: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for Polled<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        self.left = left;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Drops a call after its first step, its second, and so on until it ends by itself; returns how many there were.
async fn drop_at_each_step(name: &str, input: Value, check: impl Fn(&Stage)) -> usize {
    for steps in 1.. {
        let stage = Stage::with(Offers::ALL, Mode::Ask, |_| (), None).await;
        stage.put("a", "one\ntwo\n");
        stage.editor.run(Run::ended("out\n", 0));
        let call = stage.use_of(name, input.clone());
        let ran = Polled { future: Box::pin(stage.toolbox.run(&call, &stage.cx)), left: steps }.await;
        stage.toolbox.clean_up().await;
        stage.cx.reporter.fail_open().await;
        assert_eq!(stage.editor.open_terminals(), 0, "after {steps} steps");
        check(&stage);
        // The session goes on as if nothing had been.
        let told = stage.call("read_text_file", json!({ "path": "a" })).await;
        assert!(told.starts_with("= [a: "), "after {steps} steps: {told}");
        if ran.is_some() {
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
    let check = |stage: &Stage| {
        let text = stage.get("a");
        assert!(["one\ntwo\n", "new\n"].contains(&text.as_str()), "{text:?}");
    };
    let steps = drop_at_each_step("write_text_file", json!({ "path": "a", "content": "new\n" }), check).await;
    assert!(steps > 5, "it has several steps, not {steps}");
}
