//! Tests of an editor that floods an agent which does not read: nothing is lost, and the limits hold.

use super::*;

/// An editor that sends numbered lines as fast as they are read, up to a last one, and then the bytes of a stream.
struct NumberedLinesReader {
    next: usize,
    last: usize,
    read_count: Arc<AtomicUsize>,
    then: DuplexStream,
}

fn numbered_line(number: usize) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"_flood\",\"params\":{{\"n\":{number}}}}}\n")
}

impl AsyncRead for NumberedLinesReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // Yields to other tasks, as a pipe would.
        ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
        if self.next >= self.last {
            return Pin::new(&mut self.then).poll_read(cx, buffer);
        }
        while self.next < self.last {
            let line = numbered_line(self.next);
            if buffer.remaining() < line.len() {
                break;
            }
            buffer.put_slice(line.as_bytes());
            self.read_count.fetch_add(line.len(), Ordering::Relaxed);
            self.next += 1;
        }
        Poll::Ready(Ok(()))
    }
}

/// How far the reads may exceed the limits of all buffers together.
const SLACK: usize = 4 << 20;

#[tokio::test]
async fn an_editor_that_floods_a_stalled_agent_waits_and_loses_nothing() {
    const LINES: usize = 250_000;
    let settings = ProxyOptions::default();
    let ((mut editor, editor_streams), (mut agent, agent_streams)) = (peer_pair(1 << 10), peer_pair(1 << 10));
    let read_count = Arc::new(AtomicUsize::new(0));
    let (_open, then) = tokio::io::duplex(1);
    let flood = NumberedLinesReader { next: 0, last: LINES, read_count: read_count.clone(), then };
    let editor_streams = PeerStreams { reader: Box::new(flood), ..editor_streams };
    let (_caller, proxy) = Proxy::new(None::<ServerInjector>, EchoService, settings);
    let running = tokio::spawn(proxy.run(
        editor_streams,
        agent_streams,
        async { String::new() },
        std::future::pending(),
    ));
    let all: String = (0..LINES).map(numbered_line).collect();
    let limit = settings.high_water + SLACK;
    assert!(all.len() > 2 * limit, "{} bytes are no flood", all.len());
    // The agent reads nothing, yet its own messages arrive in order.
    for number in 0..100 {
        let message = format!(r#"{{"jsonrpc":"2.0","method":"n{number}"}}"#);
        agent.send(&message).await;
        assert_eq!(editor.receive().await, message);
        assert!(read_count.load(Ordering::Relaxed) < limit, "{} bytes", read_count.load(Ordering::Relaxed));
    }
    let mut received = vec![0; all.len()];
    agent.reader.read_exact(&mut received).await.unwrap();
    assert!(received == all.as_bytes());
    running.abort();
}

#[tokio::test]
async fn an_answer_to_a_call_of_ours_is_heard_behind_a_flood_that_the_agent_does_not_read() {
    // More than the limit without a call of our own, and less than the limit with one.
    let (mut last, mut all) = (0, String::new());
    let settings = ProxyOptions::default();
    while all.len() < (settings.high_water + settings.backlog) / 2 {
        all += &numbered_line(last);
        last += 1;
    }
    let ((mut editor, editor_streams), (mut agent, agent_streams)) = (peer_pair(1 << 10), peer_pair(1 << 10));
    let (mut answers, then) = tokio::io::duplex(1 << 10);
    let flood = NumberedLinesReader { next: 0, last, read_count: Arc::default(), then };
    let editor_streams = PeerStreams { reader: Box::new(flood), ..editor_streams };
    let (caller, proxy) = Proxy::new(None::<ServerInjector>, EchoService, settings);
    let running = tokio::spawn(proxy.run(
        editor_streams,
        agent_streams,
        async { String::new() },
        std::future::pending(),
    ));
    let call =
        tokio::spawn(async move { caller.call_raw("x", JsonBody::from_value(&json!({})).unwrap()).await });
    let request: serde_json::Value = serde_json::from_str(&editor.receive().await).unwrap();
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": "heard" });
    answers.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().get(), "\"heard\"");
    let mut received = vec![0; all.len()];
    agent.reader.read_exact(&mut received).await.unwrap();
    assert!(received == all.as_bytes());
    running.abort();
}
