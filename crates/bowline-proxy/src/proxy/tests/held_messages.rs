//! Messages that are held: how many, and where they go on.

use super::*;

fn prompt(id: usize, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"overtake","x":"{text}"}}}}"#
    )
}

#[tokio::test]
async fn a_held_message_does_not_go_on_in_the_middle_of_a_long_line() {
    let answer = || Deed::Answer(Ok(RawValue::from_string("\"no\"".to_owned()).unwrap()));
    for deed in [Deed::Pass, Deed::Instead(Vec::new()), answer()] {
        let is_answer = matches!(deed, Deed::Answer(_));
        let (deeds, script) = tokio::sync::mpsc::unbounded_channel();
        let mut stage =
            stage_with(Scripted(script), Settings { look: 1 << 10, ..Settings::default() }, 64 << 10);
        stage.editor.say(&prompt(1, "")).await;
        // The long line goes where the held message goes: to the agent, or with the answer to the editor.
        let long = format!(r#"{{"jsonrpc":"2.0","method":"_long","params":"{}"}}"#, "x".repeat(5000));
        let Stage { editor, agent, .. } = &mut stage;
        let (from, to) = if is_answer { (agent, editor) } else { (editor, agent) };
        from.writes.write_all(&long.as_bytes()[..3000]).await.unwrap();
        let mut begun = vec![0; 1024];
        to.reads.read_exact(&mut begun).await.unwrap();
        deeds.send(deed).unwrap();
        // Once this has passed the other way, the proxy has looked at what it holds.
        to.say(r#"{"jsonrpc":"2.0","method":"other way"}"#).await;
        assert_eq!(from.hear().await, r#"{"jsonrpc":"2.0","method":"other way"}"#);
        from.say(&long[3000..]).await;
        assert_eq!(to.hear().await, long[1024..]);
        let held = to.hear().await;
        assert_eq!(
            held,
            if is_answer { r#"{"jsonrpc":"2.0","id":1,"result":"no"}"#.to_owned() } else { prompt(1, "") }
        );
    }
}

/// Holds every prompt for ever, and counts them.
struct Holding(Arc<AtomicUsize>);

impl Between for Holding {
    fn look(&mut self, passing: Passing<'_>) -> Decision {
        let Fact::TurnBegins(_) = passing.fact else { return Decision::PASS };
        self.0.fetch_add(1, Ordering::Relaxed);
        Decision::Later(Order::Overtake, Box::pin(std::future::pending()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_side_whose_messages_are_all_held_is_not_read_any_further() {
    let settings = Settings { backlog: 100_000, ..Settings::default() };
    for (length, most) in [(0, MAX_HELD), (10_000, 10)] {
        let held = Arc::new(AtomicUsize::new(0));
        let mut stage = stage_with(Holding(held.clone()), settings, 1 << 10);
        let flood = async {
            for id in 0..1000 {
                stage.editor.say(&prompt(id, &"x".repeat(length))).await;
            }
        };
        // Time stands still until nothing else can move.
        tokio::time::timeout(Duration::from_secs(1), flood).await.expect_err("all of it was taken");
        assert_eq!(held.load(Ordering::Relaxed), most);
    }
}
