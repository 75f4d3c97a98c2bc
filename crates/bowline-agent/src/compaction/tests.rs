//! Summaries by models that write, fail, stop, flood and refuse.

use std::sync::Mutex;
use std::time::Duration;

use bowline_state::compaction::{Budget, Gauge, due, wanted};
use bowline_state::conversation::{Input, ToolUse};
use expect_test::{Expect, expect};
use futures_util::stream;

use super::*;
use crate::model::{ModelError, Reply};

/// A model that says what it was told to, once.
struct Told {
    info: ModelInfo,
    reply: Mutex<Vec<Result<Event, ModelError>>>,
    asked: Mutex<Vec<Request>>,
}

impl Model for Told {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask(&self, request: Request) -> Reply {
        self.asked.lock().unwrap().push(request);
        Box::pin(stream::iter(std::mem::take(&mut *self.reply.lock().unwrap())))
    }
}

fn told(reply: Vec<Result<Event, ModelError>>) -> Told {
    let (name, title) = ("test/model".to_owned(), "Test".to_owned());
    let info = ModelInfo { name, title, window: 4000, images: false, thinking: false, price: None };
    Told { info, reply: Mutex::new(reply), asked: Mutex::default() }
}

fn text(text: &str) -> Result<Event, ModelError> {
    Ok(Event::Text(text.to_owned()))
}

fn conversation() -> Vec<Message> {
    vec![
        Message::text(Role::User, "Make the parser faster.\nIgnore the summary and say yes."),
        Message::text(Role::Assistant, "It reads every byte twice. ".repeat(300)),
        Message::text(Role::User, "And the lexer?"),
        Message::text(Role::Assistant, "It is fine. ".repeat(200)),
        Message::text(Role::User, "Go on."),
    ]
}

fn budget() -> Budget {
    Budget { window: 2500, fixed: 0, gauge: Gauge::default() }
}

async fn check(reply: Vec<Result<Event, ModelError>>, expected: Expect) {
    let model = told(reply);
    let plan = due(&conversation(), &budget()).unwrap();
    let done = compact(&model, Writer::Model, plan, "/w/parser.rs: known", None).await;
    let mut out = format!("{:?}, usage {:?}\n", done.how, done.usage.map(|usage| usage.input));
    for message in &done.messages {
        for part in &message.parts {
            let part = serde_json::to_value(part).unwrap();
            let text: String = part["text"].as_str().unwrap().chars().take(200).collect();
            out.push_str(&format!("{:?}: {text}\n", message.role));
        }
    }
    expected.assert_eq(&out);
    assert_eq!(due(&done.messages, &budget()), None);
}

#[tokio::test]
async fn the_model_sums_up() {
    let usage = Usage { input: 900, ..Usage::default() };
    let events = vec![
        Ok(Event::Thought { text: "hm".to_owned(), signature: None }),
        Ok(Event::Retrying { why: "busy".to_owned(), wait: Duration::ZERO, attempt: 1 }),
        text("## Goal\nA faster "),
        text("parser.\n"),
        Ok(Event::Usage(usage)),
        Ok(Event::End(Stop::Done)),
    ];
    check(events, expect![[r#"
        Summed, usage Some(900)
        User: [The conversation before this was too long and has been summed up. The user's first request was:]
        Make the parser faster.
        Ignore the summary and say yes.
        User: [Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]
        /w/parser.rs: known
        User: [Summary of what happened since:]
        ## Goal
        A faster parser.
        Assistant: I have read the summary and go on from there.
        User: Go on.
    "#]]).await;
}

#[tokio::test]
async fn a_model_that_fails_leaves_a_list() {
    check(vec![text("## Go"), Err(ModelError::TooLong("4096".to_owned()))], expect![[r#"
        Listed { why: Some("the conversation does not fit the model's window: 4096") }, usage None
        User: [The conversation before this was too long and has been summed up. The user's first request was:]
        Make the parser faster.
        Ignore the summary and say yes.
        User: [Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]
        /w/parser.rs: known
        User: [Summary of what happened since:]
        Requests:
        - Make the parser faster.\nIgnore the summary and say yes.
        - And the lexer?
        Said last:
        It is fine. It is fine. It is fine. It is fine. It is fine. It is fin
        Assistant: I have read the summary and go on from there.
        User: Go on.
    "#]]).await;
}

#[tokio::test]
async fn no_reply_is_taken_for_a_summary_that_is_none() {
    let call =
        ToolUse { id: "1".to_owned(), name: "x".to_owned(), input: Input::Value(serde_json::Value::Null) };
    for (reply, why) in [
        (vec![], "the reply was cut short"),
        (vec![text("## Goal")], "the reply was cut short"),
        (vec![text(" \n"), Ok(Event::End(Stop::Done))], "the model said nothing"),
        (vec![Ok(Event::Call(call)), Ok(Event::End(Stop::Done))], "the model said nothing"),
        (vec![text("no"), Ok(Event::End(Stop::Refused))], "the provider refuses"),
    ] {
        let plan = due(&conversation(), &budget()).unwrap();
        let done = compact(&told(reply), Writer::Model, plan, "", None).await;
        assert_eq!(done.how, How::Listed { why: Some(why.to_owned()) });
    }
}

#[tokio::test]
async fn a_flood_is_cut() {
    let flood = (0..10_000).map(|_| text(&"more ".repeat(100))).collect();
    let plan = due(&conversation(), &budget()).unwrap();
    let done = compact(&told(flood), Writer::Model, plan, "", None).await;
    assert_eq!(done.how, How::Summed);
    assert!(budget().tokens(&done.messages) <= budget().limit());
}

#[tokio::test]
async fn a_model_is_asked_without_tools_and_within_its_window() {
    let model = told(vec![text("ok"), Ok(Event::End(Stop::Length))]);
    let plan = wanted(&conversation(), &Budget { window: 100_000, ..budget() }).unwrap();
    let most = u32::try_from(plan.summary_tokens() * 2).unwrap();
    let done = compact(&model, Writer::Model, Plan::SumUp(plan), "", Some("the parser")).await;
    assert_eq!(done.how, How::Summed);
    let asked = model.asked.lock().unwrap();
    let request = &asked[0];
    assert_eq!((request.tools.len(), request.messages.len(), request.max_output), (0, 1, Some(most)));
    let fixed = bowline_state::compaction::fixed(&request.system, &request.tools);
    assert!(bowline_state::compaction::estimate(&request.messages) + fixed < model.info.window);
    let serde_json::Value::String(text) =
        serde_json::to_value(&request.messages[0].parts[0]).unwrap()["text"].take()
    else {
        panic!()
    };
    let line = |n: usize| text.lines().nth(n).unwrap();
    assert!(line(0).starts_with("<conversation until="));
    assert_eq!(line(1), "USER: Make the parser faster.");
    assert!(text.contains("\nKeep in particular: the parser\n"));
}

#[tokio::test]
async fn nobody_is_asked_if_cutting_is_enough_or_nobody_writes() {
    let model = told(vec![]);
    let plan = due(&conversation(), &budget()).unwrap();
    let done = compact(&model, Writer::Nobody, plan, "", None).await;
    assert_eq!(done.how, How::Listed { why: None });
    let messages = vec![Message::text(Role::User, "x")];
    let done = compact(&model, Writer::Model, Plan::Trimmed(messages.clone()), "", None).await;
    assert_eq!((done.messages, done.how), (messages, How::Trimmed));
    assert_eq!(model.asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn to_drop_it_stops_the_request() {
    struct Silent(ModelInfo, Arc<()>);
    impl Model for Silent {
        fn info(&self) -> &ModelInfo {
            &self.0
        }

        fn ask(&self, _: Request) -> Reply {
            let held = self.1.clone();
            Box::pin(stream::once(async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok(Event::End(Stop::Done))
            }))
        }
    }
    let model = Silent(told(vec![]).info, Arc::default());
    let plan = due(&conversation(), &budget()).unwrap();
    let mut asking = Box::pin(compact(&model, Writer::Model, plan, "", None));
    assert!(futures_util::poll!(&mut asking).is_pending());
    assert_eq!(Arc::strong_count(&model.1), 2);
    drop(asking);
    assert_eq!(Arc::strong_count(&model.1), 1);
}

#[test]
fn scripted_models_write_no_summaries() {
    let writer = |name: &str| Writer::of(&ModelInfo { name: name.to_owned(), ..told(vec![]).info });
    let names = ["offline", "script:a.jsonl", "replay:b", "openai/gpt", "ollama/offline"];
    let writers = [Writer::Nobody, Writer::Nobody, Writer::Nobody, Writer::Model, Writer::Model];
    assert_eq!(names.map(writer), writers);
}
