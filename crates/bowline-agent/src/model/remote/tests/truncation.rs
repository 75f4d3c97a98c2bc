//! Replies truncated at any byte, which must never be taken as complete.

use futures_util::StreamExt as _;

use super::server::streaming_bytes;
use super::*;

/// Truncates a stream at every byte (or every few), by closing and by resetting. Before `whole`, no reply may have a
/// call or an end; from there on the complete reply was sent.
async fn cut_everywhere(provider: Provider, stream: &'static str, every: usize, whole: usize) {
    let closed = (0..stream.len()).step_by(every).map(|at| (at, false));
    let reset = (0..stream.len()).step_by(13).map(|at| (at, true));
    let retries = RetryLimits { attempts: 1, ..RetryLimits::default() };
    let net = &HttpClients::new(Timeouts::default(), retries);
    let checks = closed.chain(reset).map(|(at, reset)| async move {
        let mut answer = vec![ConnectionStep::Send(streaming_bytes(&stream.as_bytes()[..at]))];
        if reset {
            answer.push(ConnectionStep::Reset);
        }
        let server = MisbehavingServer::start([answer]).await;
        let told = ask_once(net, provider, &server).await;
        let ended = told.lines().any(|line| line.starts_with("end "));
        let called = told.lines().any(|line| line.starts_with("call "));
        let failed = told.lines().any(|line| line.starts_with("! "));
        assert!(ended != failed, "cut at {at} of {}: {told}", stream.len());
        assert!(!called || ended, "cut at {at} of {}: {told}", stream.len());
        assert!(!ended || at >= whole, "cut at {at} of {}: {told}", stream.len());
    });
    futures_util::stream::iter(checks).buffer_unordered(16).collect::<Vec<()>>().await;
}

fn position_after(stream: &str, piece: &str) -> usize {
    stream.find(piece).unwrap() + piece.len()
}

#[tokio::test]
async fn openai() {
    let whole = position_after(streams::OPENAI, r#""finish_reason":"tool_calls"}]}"#);
    cut_everywhere(Provider::OpenAi, streams::OPENAI, 1, whole).await;
}

#[tokio::test]
async fn anthropic() {
    let whole = position_after(streams::ANTHROPIC, r#"{"type":"message_stop"}"#);
    cut_everywhere(Provider::Anthropic, streams::ANTHROPIC, 1, whole).await;
}

#[tokio::test]
async fn gemini() {
    cut_everywhere(Provider::Gemini, streams::GEMINI, 7, streams::GEMINI.trim_end().len()).await;
}

#[tokio::test]
async fn ollama() {
    let whole = position_after(streams::OLLAMA, r#""finish_reason":"tool_calls"}]}"#);
    cut_everywhere(Provider::Ollama, streams::OLLAMA, 7, whole).await;
}
