//! An editor that floods an agent which does not read: nothing is lost, and no more is taken than has its place.

use super::*;

/// An editor that says numbered lines as fast as they are taken, up to a last one, and then what it is told to.
struct Editor {
    next: usize,
    last: usize,
    taken: Arc<AtomicUsize>,
    then: DuplexStream,
}

fn line(number: usize) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"_flood\",\"params\":{{\"n\":{number}}}}}\n")
}

impl AsyncRead for Editor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // Lets others work, as a pipe would.
        ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
        if self.next >= self.last {
            return Pin::new(&mut self.then).poll_read(cx, buffer);
        }
        while self.next < self.last {
            let line = line(self.next);
            if buffer.remaining() < line.len() {
                break;
            }
            buffer.put_slice(line.as_bytes());
            self.taken.fetch_add(line.len(), Ordering::Relaxed);
            self.next += 1;
        }
        Poll::Ready(Ok(()))
    }
}

/// What one read may bring beyond a limit, for each of the places that bytes wait in.
const SLACK: usize = 4 << 20;

#[tokio::test]
async fn an_editor_that_floods_a_stalled_agent_waits_and_loses_nothing() {
    const LINES: usize = 250_000;
    let settings = Settings::default();
    let ((mut editor, near_editor), (mut agent, near_agent)) = (pair(1 << 10), pair(1 << 10));
    let taken = Arc::new(AtomicUsize::new(0));
    let (_open, then) = tokio::io::duplex(1);
    let flood = Editor { next: 0, last: LINES, taken: taken.clone(), then };
    let near_editor = Ends { reader: Box::new(flood), ..near_editor };
    let (_caller, proxy) = Proxy::new(Chain::default(), Echo, settings);
    let running =
        tokio::spawn(proxy.run(near_editor, near_agent, async { String::new() }, std::future::pending()));
    let all: String = (0..LINES).map(line).collect();
    let most = settings.high_water + SLACK;
    assert!(all.len() > 2 * most, "{} bytes are no flood", all.len());
    // The agent reads nothing; what it says arrives all the same, in its order.
    for number in 0..100 {
        let said = format!(r#"{{"jsonrpc":"2.0","method":"n{number}"}}"#);
        agent.say(&said).await;
        assert_eq!(editor.hear().await, said);
        assert!(taken.load(Ordering::Relaxed) < most, "{} bytes", taken.load(Ordering::Relaxed));
    }
    let mut heard = vec![0; all.len()];
    agent.reads.read_exact(&mut heard).await.unwrap();
    assert!(heard == all.as_bytes());
    running.abort();
}

#[tokio::test]
async fn an_answer_to_a_call_of_ours_is_heard_behind_a_flood_that_the_agent_does_not_read() {
    // More than waits without a call of our own, and less than does with one.
    let (mut last, mut all) = (0, String::new());
    let settings = Settings::default();
    while all.len() < (settings.high_water + settings.backlog) / 2 {
        all += &line(last);
        last += 1;
    }
    let ((mut editor, near_editor), (mut agent, near_agent)) = (pair(1 << 10), pair(1 << 10));
    let (mut answers, then) = tokio::io::duplex(1 << 10);
    let flood = Editor { next: 0, last, taken: Arc::default(), then };
    let near_editor = Ends { reader: Box::new(flood), ..near_editor };
    let (caller, proxy) = Proxy::new(Chain::default(), Echo, settings);
    let running =
        tokio::spawn(proxy.run(near_editor, near_agent, async { String::new() }, std::future::pending()));
    let call = tokio::spawn(async move { caller.call_raw("x", Body::of(&json!({})).unwrap()).await });
    let asked: serde_json::Value = serde_json::from_str(&editor.hear().await).unwrap();
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": "heard" });
    answers.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().get(), "\"heard\"");
    let mut heard = vec![0; all.len()];
    agent.reads.read_exact(&mut heard).await.unwrap();
    assert!(heard == all.as_bytes());
    running.abort();
}
