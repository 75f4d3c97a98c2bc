//! A reply that is cut at any byte is never taken as whole.

use futures_util::StreamExt as _;

use super::server::begun;
use super::*;

/// Cuts a stream at every byte (or every few), by closing and by resetting. Before `whole`, no reply may have a call or
/// an end; from there on all of the reply was sent.
async fn cut_everywhere(provider: Provider, stream: &'static str, every: usize, whole: usize) {
    let closed = (0..stream.len()).step_by(every).map(|at| (at, false));
    let reset = (0..stream.len()).step_by(13).map(|at| (at, true));
    let retries = Limits { attempts: 1, ..Limits::default() };
    let net = &Net::new(Timeouts::default(), retries);
    let checks = closed.chain(reset).map(|(at, reset)| async move {
        let mut answer = vec![Do::Send(begun(&stream.as_bytes()[..at]))];
        if reset {
            answer.push(Do::Reset);
        }
        let server = Server::start([answer]).await;
        let told = asked(net, provider, &server).await;
        let ended = told.lines().any(|line| line.starts_with("end "));
        let called = told.lines().any(|line| line.starts_with("call "));
        let failed = told.lines().any(|line| line.starts_with("! "));
        assert!(ended != failed, "cut at {at} of {}: {told}", stream.len());
        assert!(!called || ended, "cut at {at} of {}: {told}", stream.len());
        assert!(!ended || at >= whole, "cut at {at} of {}: {told}", stream.len());
    });
    futures_util::stream::iter(checks).buffer_unordered(16).collect::<Vec<()>>().await;
}

fn after(stream: &str, piece: &str) -> usize {
    stream.find(piece).unwrap() + piece.len()
}

#[tokio::test]
async fn openai() {
    let whole = after(streams::OPENAI, r#""finish_reason":"tool_calls"}]}"#);
    cut_everywhere(Provider::OpenAi, streams::OPENAI, 1, whole).await;
}

#[tokio::test]
async fn anthropic() {
    let whole = after(streams::ANTHROPIC, r#"{"type":"message_stop"}"#);
    cut_everywhere(Provider::Anthropic, streams::ANTHROPIC, 1, whole).await;
}

#[tokio::test]
async fn gemini() {
    cut_everywhere(Provider::Gemini, streams::GEMINI, 7, streams::GEMINI.trim_end().len()).await;
}

#[tokio::test]
async fn ollama() {
    let whole = after(streams::OLLAMA, r#""finish_reason":"tool_calls"}]}"#);
    cut_everywhere(Provider::Ollama, streams::OLLAMA, 7, whole).await;
}
