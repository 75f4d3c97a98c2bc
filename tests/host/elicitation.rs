//! Elicitations: the forms and pages that reach the user, and the responses to the agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_protocol::schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, ElicitationAcceptAction, ElicitationAction,
    ElicitationContentValue, Error, StopReason,
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use test_support::host_harness::{AgentTurn, HostHarness};
use tokio::sync::Notify;

use super::SUPERVISOR;

fn accept_action(content: Value) -> ElicitationAction {
    let content: BTreeMap<String, ElicitationContentValue> = serde_json::from_value(content).unwrap();
    ElicitationAction::Accept(ElicitationAcceptAction::new().content(content))
}

/// Sends a request without the agent's own checks, and returns the raw response.
async fn send_elicitation(turn: &AgentTurn, mut request: Value) -> String {
    request["message"] = json!("Please");
    if request.get("requestId").is_none() && request.get("sessionId").is_none() {
        request["sessionId"] = json!(turn.session);
    }
    let request: CreateElicitationRequest = serde_json::from_value(request).unwrap();
    match turn.client.caller().call(&request).await {
        Ok(response) => serde_json::to_string(&response).unwrap(),
        Err(error) => {
            let error = Error::from(error);
            format!("! {} {}", i32::from(error.code), error.message)
        }
    }
}

/// Sends requests in turn to a user who always gives the same answer, and compares what the agent and the user saw.
async fn check(answer: ElicitationAction, requests: Vec<Value>, expected: Expect) {
    let lab = HostHarness::open(SUPERVISOR, |_| {}).unwrap();
    lab.user.fill_forms_with(move |_| answer.clone());
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    lab.run_turn(move |turn| async move {
        for request in requests {
            told.send(send_elicitation(&turn, request).await).unwrap();
        }
        Ok(StopReason::EndTurn)
    })
    .await
    .unwrap();
    let mut seen = String::new();
    while let Some(answer) = heard.recv().await {
        seen += &(answer + "\n");
    }
    for shown in lab.user.events().iter().filter(|shown| shown.starts_with("Notice")) {
        seen += &format!("{shown}\n");
    }
    expected.assert_eq(&seen);
}

fn form_request(schema: Value) -> Value {
    json!({ "mode": "form", "requestedSchema": schema })
}

fn page_request(id: &str, url: &str) -> Value {
    json!({ "mode": "url", "elicitationId": id, "url": url })
}

#[tokio::test]
async fn a_form_that_does_not_conform_is_not_sent() {
    let name =
        json!({ "properties": { "name": { "type": "string", "minLength": 3 } }, "required": ["name"] });
    let flag = json!({ "properties": { "name": { "type": "boolean" } } });
    check(
        accept_action(json!({ "name": "Ada" })),
        vec![form_request(name), form_request(flag), form_request(json!({ "properties": {} }))],
        expect![[r#"
            {"action":"accept","content":{"name":"Ada"}}
            {"action":"cancel"}
            {"action":"cancel"}
            Notice { text: "the form was not sent: name is not yes or no" }
            Notice { text: "the form was not sent: name was not asked for" }
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_is_not_known_or_cannot_be_shown_is_refused() {
    check(
        accept_action(json!({})),
        vec![
            json!({ "mode": "_hologram", "depth": 3 }),
            form_request(json!({ "properties": { "c": { "type": "_colour" } }, "required": ["c"] })),
            form_request(json!({ "properties": { "c": { "type": "_colour" } } })),
            page_request("1", "file:///etc/passwd"),
            json!({ "mode": "form", "requestedSchema": {}, "sessionId": "another" }),
            json!({ "mode": "form", "requestedSchema": {}, "requestId": 7 }),
        ],
        expect![[r#"
            ! -32602 an elicitation of another mode is not known here
            ! -32602 field c is required, and its type _colour is not known here
            {"action":"accept","content":{}}
            ! -32602 the address is not one of http:// or https://
            ! -32002 Resource not found: session another
            {"action":"accept","content":{}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn nothing_of_a_page_is_sent() {
    check(
        accept_action(json!({ "password": "hunter2" })),
        vec![page_request("1", "https://example.com/login")],
        expect![[r#"
            {"action":"accept"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn only_a_page_that_was_agreed_to_is_completed_and_once() {
    let lab = HostHarness::open(SUPERVISOR, |_| {}).unwrap();
    let mut answers = [accept_action(json!({})), ElicitationAction::Decline].into_iter();
    lab.user.fill_forms_with(move |_| answers.next().unwrap());
    lab.run_turn(move |turn| async move {
        send_elicitation(&turn, page_request("agreed", "https://example.com/")).await;
        send_elicitation(&turn, page_request("declined", "https://example.com/")).await;
        for id in ["unknown", "declined", "agreed", "agreed"] {
            turn.client.complete_elicitation(CompleteElicitationNotification::new(id)).await?;
        }
        Ok(StopReason::EndTurn)
    })
    .await
    .unwrap();
    let completed: Vec<String> =
        lab.user.events().into_iter().filter(|shown| shown.contains("Completed")).collect();
    expect![[r#"ElicitationCompleted { id: ElicitationId("agreed") }"#]].assert_eq(&completed.join("\n"));
}

#[tokio::test]
async fn more_forms_than_anybody_fills_in_are_refused() {
    let lab = HostHarness::open(SUPERVISOR, |_| {}).unwrap();
    let release = Arc::new(Notify::new());
    let waiting = release.clone();
    lab.user.fill_forms_with_async(move |_| {
        let waiting = waiting.clone();
        Box::pin(async move {
            waiting.notified().await;
            waiting.notify_one();
            ElicitationAction::Decline
        })
    });
    lab.run_turn(move |turn| async move {
        let mut forms = tokio::task::JoinSet::new();
        for _ in 0..33 {
            let turn = turn.clone();
            forms.spawn(
                async move { send_elicitation(&turn, form_request(json!({ "properties": {} }))).await },
            );
        }
        // The others wait until one is refused.
        let refused = forms.join_next().await.unwrap().unwrap();
        assert_eq!(refused, "! -32029 too many requests at once, the limit is 32");
        release.notify_one();
        while let Some(answer) = forms.join_next().await {
            assert_eq!(answer.unwrap(), r#"{"action":"decline"}"#);
        }
        Ok(StopReason::EndTurn)
    })
    .await
    .unwrap();
}
