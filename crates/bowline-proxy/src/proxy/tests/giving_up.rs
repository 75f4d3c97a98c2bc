//! What is given up when nobody waits for it any more: by a cancellation, and by an agent's end.

use std::sync::OnceLock;

use super::*;

/// Asks the editor about every request for a file, as rules do that leave it to a person.
struct Asking(Arc<OnceLock<Caller>>);

impl Between for Asking {
    fn look(&mut self, passing: Passing<'_>) -> Decision {
        if !matches!(passing.fact, Fact::Asked(..)) {
            return Decision::PASS;
        }
        let caller = self.0.get().unwrap().clone();
        Decision::Later(
            Order::Overtake,
            Box::pin(async move {
                let asked = Body::of(&json!({ "sessionId": "s" })).unwrap();
                match caller.call_raw("session/request_permission", asked).await {
                    Ok(_) => Deed::Pass,
                    Err(_) => Deed::Answer(Err(Error::internal_error())),
                }
            }),
        )
    }
}

fn asking() -> Stage {
    let caller = Arc::new(OnceLock::new());
    let stage = stage_with(Asking(caller.clone()), Settings::default(), 64 << 10);
    caller.set(stage.caller.clone()).unwrap();
    stage
}

const READ: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}"#;
const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}"#;
const AFTER: &str = r#"{"jsonrpc":"2.0","method":"after"}"#;

#[tokio::test]
async fn a_request_that_is_held_is_cancelled_with_what_was_asked_for_it() {
    let mut stage = asking();
    stage.agent.say(READ).await;
    let mut told = vec![format!("editor: {}", stage.editor.hear().await)];
    stage.agent.say(CANCEL).await;
    told.push(format!("agent: {}", stage.agent.hear().await));
    told.push(format!("editor: {}", stage.editor.hear().await));
    // A yes comes too late, and so does a second cancellation, which is passed on like any other that nobody knows.
    stage.editor.say(r#"{"jsonrpc":"2.0","id":"bowline-proxy-2","result":{}}"#).await;
    stage.agent.say(CANCEL).await;
    stage.agent.say(AFTER).await;
    for _ in 0..2 {
        told.push(format!("editor: {}", stage.editor.hear().await));
    }
    stage.editor.say(AFTER).await;
    told.push(format!("agent: {}", stage.agent.hear().await));
    expect![[r#"
        editor: {"jsonrpc":"2.0","id":"bowline-proxy-2","method":"session/request_permission","params":{"sessionId":"s"}}
        agent: {"jsonrpc":"2.0","id":7,"error":{"code":-32800,"message":"Request cancelled"}}
        editor: {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"bowline-proxy-2"}}
        editor: {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}
        editor: {"jsonrpc":"2.0","method":"after"}
        agent: {"jsonrpc":"2.0","method":"after"}"#]]
    .assert_eq(&told.join("\n"));
}

#[tokio::test]
async fn a_request_that_went_on_is_cancelled_at_the_editor() {
    let mut stage = asking();
    stage.agent.say(READ).await;
    stage.editor.hear().await;
    stage.editor.say(r#"{"jsonrpc":"2.0","id":"bowline-proxy-2","result":{}}"#).await;
    assert_eq!(stage.editor.hear().await, READ);
    stage.agent.say(CANCEL).await;
    assert_eq!(stage.editor.hear().await, CANCEL);
}

#[tokio::test]
async fn when_the_agent_is_gone_its_questions_are_taken_back_before_the_editor_hears_the_end() {
    let mut stage = asking();
    stage
        .editor
        .say(r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#)
        .await;
    stage.agent.hear().await;
    // One that it asked for itself, one of a tool that we gave it, and one of ours that is no question.
    stage.agent.say(READ).await;
    let mut told = vec![stage.editor.hear().await];
    let mut calls = Vec::new();
    for method in ["session/request_permission", "fs/write_text_file"] {
        let caller = stage.caller.clone();
        let body = Body::of(&json!({})).unwrap();
        calls.push(tokio::spawn(async move { caller.call_raw(method, body).await.map(drop) }));
        told.push(stage.editor.hear().await);
    }
    drop(stage.agent);
    let last = String::from_utf8(stage.editor.hear_all().await).unwrap();
    told.extend(last.lines().map(str::to_owned));
    assert_eq!(stage.running.await.unwrap(), Ended::Agent("the agent has ended with exit code 7".to_owned()));
    for call in calls {
        told.push(format!("{:?}", call.await.unwrap().is_err()));
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
    .assert_eq(&told.join("\n"));
}

/// Holds every request for a file for ever, as a command does that is waited for.
struct Holding;

impl Between for Holding {
    fn look(&mut self, passing: Passing<'_>) -> Decision {
        match passing.fact {
            Fact::Asked(..) => Decision::Later(Order::Overtake, Box::pin(std::future::pending())),
            _ => Decision::PASS,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_that_is_gone_asked_for_is_not_waited_for_for_ever() {
    let mut stage = stage_with(Holding, Settings::default(), 64 << 10);
    stage.agent.say(READ).await;
    stage.agent.say(AFTER).await;
    assert_eq!(stage.editor.hear().await, AFTER);
    drop(stage.agent);
    assert_eq!(stage.editor.hear_all().await, b"");
    assert_eq!(stage.running.await.unwrap(), Ended::Agent("the agent has ended with exit code 7".to_owned()));
}
