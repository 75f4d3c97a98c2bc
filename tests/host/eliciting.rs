//! Forms and pages: what reaches the person, and what the agent is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_state::schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, ElicitationAcceptAction, ElicitationAction,
    ElicitationContentValue, Error, StopReason,
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use test_support::lab::{Lab, Turn};
use tokio::sync::Notify;

use super::SUPERVISOR;

fn accept(content: Value) -> ElicitationAction {
    let content: BTreeMap<String, ElicitationContentValue> = serde_json::from_value(content).unwrap();
    ElicitationAction::Accept(ElicitationAcceptAction::new().content(content))
}

/// Sends a request past the agent's own checks, and returns the answer as it came.
async fn ask(turn: &Turn, mut request: Value) -> String {
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

/// Asks each in turn of a person who answers always the same, and returns what the agent and the person saw.
async fn check(answer: ElicitationAction, requests: Vec<Value>, expected: Expect) {
    let lab = Lab::open(SUPERVISOR, |_| {}).unwrap();
    lab.desk.fill_in(move |_| answer.clone());
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    lab.turn(move |turn| async move {
        for request in requests {
            told.send(ask(&turn, request).await).unwrap();
        }
        Ok(StopReason::EndTurn)
    })
    .await
    .unwrap();
    let mut seen = String::new();
    while let Some(answer) = heard.recv().await {
        seen += &(answer + "\n");
    }
    for shown in lab.desk.shown().iter().filter(|shown| shown.starts_with("Notice")) {
        seen += &format!("{shown}\n");
    }
    expected.assert_eq(&seen);
}

fn form(schema: Value) -> Value {
    json!({ "mode": "form", "requestedSchema": schema })
}

fn page(id: &str, url: &str) -> Value {
    json!({ "mode": "url", "elicitationId": id, "url": url })
}

#[tokio::test]
async fn a_form_that_does_not_conform_is_not_sent() {
    let name =
        json!({ "properties": { "name": { "type": "string", "minLength": 3 } }, "required": ["name"] });
    let flag = json!({ "properties": { "name": { "type": "boolean" } } });
    check(
        accept(json!({ "name": "Ada" })),
        vec![form(name), form(flag), form(json!({ "properties": {} }))],
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
        accept(json!({})),
        vec![
            json!({ "mode": "_hologram", "depth": 3 }),
            form(json!({ "properties": { "c": { "type": "_colour" } }, "required": ["c"] })),
            form(json!({ "properties": { "c": { "type": "_colour" } } })),
            page("1", "file:///etc/passwd"),
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
        accept(json!({ "password": "hunter2" })),
        vec![page("1", "https://example.com/login")],
        expect![[r#"
            {"action":"accept"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn only_a_page_that_was_agreed_to_is_completed_and_once() {
    let lab = Lab::open(SUPERVISOR, |_| {}).unwrap();
    let mut answers = [accept(json!({})), ElicitationAction::Decline].into_iter();
    lab.desk.fill_in(move |_| answers.next().unwrap());
    lab.turn(move |turn| async move {
        ask(&turn, page("agreed", "https://example.com/")).await;
        ask(&turn, page("declined", "https://example.com/")).await;
        for id in ["unknown", "declined", "agreed", "agreed"] {
            turn.client.complete_elicitation(CompleteElicitationNotification::new(id)).await?;
        }
        Ok(StopReason::EndTurn)
    })
    .await
    .unwrap();
    let completed: Vec<String> =
        lab.desk.shown().into_iter().filter(|shown| shown.contains("Completed")).collect();
    expect![[r#"ElicitationCompleted { id: ElicitationId("agreed") }"#]].assert_eq(&completed.join("\n"));
}

#[tokio::test]
async fn more_forms_than_anybody_fills_in_are_refused() {
    let lab = Lab::open(SUPERVISOR, |_| {}).unwrap();
    let release = Arc::new(Notify::new());
    let waiting = release.clone();
    lab.desk.fill_in_later(move |_| {
        let waiting = waiting.clone();
        Box::pin(async move {
            waiting.notified().await;
            waiting.notify_one();
            ElicitationAction::Decline
        })
    });
    lab.turn(move |turn| async move {
        let mut forms = tokio::task::JoinSet::new();
        for _ in 0..33 {
            let turn = turn.clone();
            forms.spawn(async move { ask(&turn, form(json!({ "properties": {} }))).await });
        }
        // The others wait until one was refused.
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
