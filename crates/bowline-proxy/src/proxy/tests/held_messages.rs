//! Tests of held messages: how many, and where they continue.

use super::*;

fn prompt_line(id: usize, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"overtake","x":"{text}"}}}}"#
    )
}

#[tokio::test]
async fn a_held_message_does_not_go_on_in_the_middle_of_a_long_line() {
    let answer = || Disposition::Answer(Ok(RawValue::from_string("\"no\"".to_owned()).unwrap()));
    for disposition in [Disposition::Pass, Disposition::Replace(Vec::new()), answer()] {
        let is_answer = matches!(disposition, Disposition::Answer(_));
        let (dispositions, script) = tokio::sync::mpsc::unbounded_channel();
        let mut harness = start_proxy_with(
            ScriptedInterceptor(script),
            ProxyOptions { max_line: 1 << 10, ..ProxyOptions::default() },
            64 << 10,
        );
        harness.editor.send(&prompt_line(1, "")).await;
        // The long line goes to the same end as the held message: to the agent, or with the answer to the editor.
        let long = format!(r#"{{"jsonrpc":"2.0","method":"_long","params":"{}"}}"#, "x".repeat(5000));
        let ProxyHarness { editor, agent, .. } = &mut harness;
        let (from, to) = if is_answer { (agent, editor) } else { (editor, agent) };
        from.writer.write_all(&long.as_bytes()[..3000]).await.unwrap();
        let mut head = vec![0; 1024];
        to.reader.read_exact(&mut head).await.unwrap();
        dispositions.send(disposition).unwrap();
        // Once this has passed in the other direction, the proxy has polled its held messages.
        to.send(r#"{"jsonrpc":"2.0","method":"other way"}"#).await;
        assert_eq!(from.receive().await, r#"{"jsonrpc":"2.0","method":"other way"}"#);
        from.send(&long[3000..]).await;
        assert_eq!(to.receive().await, long[1024..]);
        let released = to.receive().await;
        assert_eq!(
            released,
            if is_answer {
                r#"{"jsonrpc":"2.0","id":1,"result":"no"}"#.to_owned()
            } else {
                prompt_line(1, "")
            }
        );
    }
}

/// Holds every prompt forever, and counts them.
struct PromptHoldingInterceptor(Arc<AtomicUsize>);

impl Interceptor for PromptHoldingInterceptor {
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision {
        let RelayEvent::TurnStarted(_) = message.fact else { return InterceptDecision::PASS };
        self.0.fetch_add(1, Ordering::Relaxed);
        InterceptDecision::Later(MessageOrder::Overtake, Box::pin(std::future::pending()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_side_whose_messages_are_all_held_is_not_read_any_further() {
    let settings = ProxyOptions { backlog: 100_000, ..ProxyOptions::default() };
    for (length, limit) in [(0, MAX_HELD_MESSAGES), (10_000, 10)] {
        let held_count = Arc::new(AtomicUsize::new(0));
        let mut harness = start_proxy_with(PromptHoldingInterceptor(held_count.clone()), settings, 1 << 10);
        let flood = async {
            for id in 0..1000 {
                harness.editor.send(&prompt_line(id, &"x".repeat(length))).await;
            }
        };
        // Paused time advances only when nothing else can make progress.
        tokio::time::timeout(Duration::from_secs(1), flood).await.expect_err("all of it was taken");
        assert_eq!(held_count.load(Ordering::Relaxed), limit);
    }
}
