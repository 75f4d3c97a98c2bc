//! Tests of what is abandoned after a cancellation, and after the agent's end.

use std::sync::OnceLock;

use super::*;

/// Asks the editor's user about every file request, like rules that leave it to a person.
struct AskingInterceptor(Arc<OnceLock<Caller>>);

impl Interceptor for AskingInterceptor {
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision {
        if !matches!(message.fact, RelayEvent::AgentRequest(..)) {
            return InterceptDecision::PASS;
        }
        let caller = self.0.get().unwrap().clone();
        InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let params = JsonBody::from_value(&json!({ "sessionId": "s" })).unwrap();
                match caller.call_raw("session/request_permission", params).await {
                    Ok(_) => Disposition::Pass,
                    Err(_) => Disposition::Answer(Err(Error::internal_error())),
                }
            }),
        )
    }
}

fn start_asking_proxy() -> ProxyHarness {
    let caller = Arc::new(OnceLock::new());
    let harness = start_proxy_with(AskingInterceptor(caller.clone()), ProxyOptions::default(), 64 << 10);
    caller.set(harness.caller.clone()).unwrap();
    harness
}

const READ_REQUEST: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}"#;
const CANCEL_REQUEST: &str = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}"#;
const MARKER: &str = r#"{"jsonrpc":"2.0","method":"after"}"#;

#[tokio::test]
async fn a_request_that_is_held_is_cancelled_with_what_was_asked_for_it() {
    let mut harness = start_asking_proxy();
    harness.agent.send(READ_REQUEST).await;
    let mut transcript = vec![format!("editor: {}", harness.editor.receive().await)];
    harness.agent.send(CANCEL_REQUEST).await;
    transcript.push(format!("agent: {}", harness.agent.receive().await));
    transcript.push(format!("editor: {}", harness.editor.receive().await));
    // A yes comes too late, and so does a second cancellation, which is forwarded like one for any unknown request.
    harness.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-2","result":{}}"#).await;
    harness.agent.send(CANCEL_REQUEST).await;
    harness.agent.send(MARKER).await;
    for _ in 0..2 {
        transcript.push(format!("editor: {}", harness.editor.receive().await));
    }
    harness.editor.send(MARKER).await;
    transcript.push(format!("agent: {}", harness.agent.receive().await));
    expect![[r#"
        editor: {"jsonrpc":"2.0","id":"bowline-proxy-2","method":"session/request_permission","params":{"sessionId":"s"}}
        agent: {"jsonrpc":"2.0","id":7,"error":{"code":-32800,"message":"Request cancelled"}}
        editor: {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-2"}}
        editor: {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}
        editor: {"jsonrpc":"2.0","method":"after"}
        agent: {"jsonrpc":"2.0","method":"after"}"#]]
    .assert_eq(&transcript.join("\n"));
}

#[tokio::test]
async fn a_request_that_went_on_is_cancelled_at_the_editor() {
    let mut harness = start_asking_proxy();
    harness.agent.send(READ_REQUEST).await;
    harness.editor.receive().await;
    harness.editor.send(r#"{"jsonrpc":"2.0","id":"bowline-proxy-2","result":{}}"#).await;
    assert_eq!(harness.editor.receive().await, READ_REQUEST);
    harness.agent.send(CANCEL_REQUEST).await;
    assert_eq!(harness.editor.receive().await, CANCEL_REQUEST);
}

#[tokio::test]
async fn when_the_agent_is_gone_its_questions_are_taken_back_before_the_editor_hears_the_end() {
    let mut harness = start_asking_proxy();
    harness
        .editor
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#)
        .await;
    harness.agent.receive().await;
    // A request of the agent, a question of an injected tool, and a call of ours that is not a question.
    harness.agent.send(READ_REQUEST).await;
    let mut transcript = vec![harness.editor.receive().await];
    let mut calls = Vec::new();
    for method in ["session/request_permission", "fs/write_text_file"] {
        let caller = harness.caller.clone();
        let body = JsonBody::from_value(&json!({})).unwrap();
        calls.push(tokio::spawn(async move { caller.call_raw(method, body).await.map(drop) }));
        transcript.push(harness.editor.receive().await);
    }
    drop(harness.agent);
    let last = String::from_utf8(harness.editor.receive_all().await).unwrap();
    transcript.extend(last.lines().map(str::to_owned));
    assert_eq!(
        harness.running.await.unwrap(),
        ProxyEndReason::AgentExited("the agent has ended with exit code 7".to_owned())
    );
    for call in calls {
        transcript.push(format!("{:?}", call.await.unwrap().is_err()));
    }
    expect![[r#"
        {"jsonrpc":"2.0","id":"bowline-proxy-3","method":"session/request_permission","params":{"sessionId":"s"}}
        {"jsonrpc":"2.0","id":"bowline-proxy-4","method":"session/request_permission","params":{}}
        {"jsonrpc":"2.0","id":"bowline-proxy-5","method":"fs/write_text_file","params":{}}
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-3"}}
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-4"}}
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-5"}}
        {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the agent has ended with exit code 7"}}
        true
        true"#]]
    .assert_eq(&transcript.join("\n"));
}

/// Holds every file request forever, like a wait for a command.
struct FileHoldingInterceptor;

impl Interceptor for FileHoldingInterceptor {
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision {
        match message.fact {
            RelayEvent::AgentRequest(..) => {
                InterceptDecision::Later(MessageOrder::Overtake, Box::pin(std::future::pending()))
            }
            _ => InterceptDecision::PASS,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_that_is_gone_asked_for_is_not_waited_for_for_ever() {
    let mut harness = start_proxy_with(FileHoldingInterceptor, ProxyOptions::default(), 64 << 10);
    harness.agent.send(READ_REQUEST).await;
    harness.agent.send(MARKER).await;
    assert_eq!(harness.editor.receive().await, MARKER);
    drop(harness.agent);
    assert_eq!(harness.editor.receive_all().await, b"");
    assert_eq!(
        harness.running.await.unwrap(),
        ProxyEndReason::AgentExited("the agent has ended with exit code 7".to_owned())
    );
}
