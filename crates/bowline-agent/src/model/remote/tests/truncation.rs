//! Replies truncated at any byte, which must never be taken as complete.

use futures_util::StreamExt as _;

use super::server::streaming_bytes;
use super::*;

/// Truncates a stream at every byte (or every few), by closing and by resetting. Before `complete_at`, no reply may
/// have a call or an end; from there on the complete reply was sent.
async fn cut_everywhere(provider: Provider, stream: &'static str, every: usize, complete_at: usize) {
    let closed = (0..stream.len()).step_by(every).map(|cut_at| (cut_at, false));
    let reset = (0..stream.len()).step_by(13).map(|cut_at| (cut_at, true));
    let retries = RetryLimits { attempts: 1, ..RetryLimits::default() };
    let http = &HttpClients::new(Timeouts::default(), retries);
    let checks = closed.chain(reset).map(|(cut_at, reset)| async move {
        let mut answer = vec![ConnectionStep::Send(streaming_bytes(&stream.as_bytes()[..cut_at]))];
        if reset {
            answer.push(ConnectionStep::Reset);
        }
        let server = MisbehavingServer::start([answer]).await;
        let reply = ask_once(http, provider, &server).await;
        let ended = reply.lines().any(|line| line.starts_with("end "));
        let called = reply.lines().any(|line| line.starts_with("call "));
        let failed = reply.lines().any(|line| line.starts_with("! "));
        assert!(ended != failed, "cut at {cut_at} of {}: {reply}", stream.len());
        assert!(!called || ended, "cut at {cut_at} of {}: {reply}", stream.len());
        assert!(!ended || cut_at >= complete_at, "cut at {cut_at} of {}: {reply}", stream.len());
    });
    futures_util::stream::iter(checks).buffer_unordered(16).collect::<Vec<()>>().await;
}

fn position_after(stream: &str, part: &str) -> usize {
    stream.find(part).unwrap() + part.len()
}

#[tokio::test]
async fn openai() {
    let complete_at = position_after(streams::OPENAI, r#""finish_reason":"tool_calls"}]}"#);
    cut_everywhere(Provider::OpenAi, streams::OPENAI, 1, complete_at).await;
}

#[tokio::test]
async fn anthropic() {
    let complete_at = position_after(streams::ANTHROPIC, r#"{"type":"message_stop"}"#);
    cut_everywhere(Provider::Anthropic, streams::ANTHROPIC, 1, complete_at).await;
}

#[tokio::test]
async fn gemini() {
    cut_everywhere(Provider::Gemini, streams::GEMINI, 7, streams::GEMINI.trim_end().len()).await;
}

#[tokio::test]
async fn ollama() {
    let complete_at = position_after(streams::OLLAMA, r#""finish_reason":"tool_calls"}]}"#);
    cut_everywhere(Provider::Ollama, streams::OLLAMA, 7, complete_at).await;
}
