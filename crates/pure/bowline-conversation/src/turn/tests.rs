//! Tests of turns: events in, actions out.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::{ReplyEnd, ReplyError, TurnAction, TurnEvent, TurnMachine, TurnOutcome};
use crate::conversation::{ConversationMessage, MessagePart, MessageRole, ToolResult, ToolUse, ToolUseInput};

/// Plays a script: `text WORDS`, `thought WORDS`, `call ID`, `end`, `length`, `refused`, `too long`, `fail`, `done ID`,
/// `failed ID`, `compacted`, `cancel`, `cut off`.
fn check(max_requests: u32, script: &str, expected: Expect) {
    run_script(
        TurnMachine::begin(&[ConversationMessage::from_text(MessageRole::User, "go")], max_requests),
        script,
        expected,
    );
}

fn run_script((mut turn, first): (TurnMachine, Vec<TurnAction>), script: &str, expected: Expect) {
    let mut shown = String::new();
    show_actions(&mut shown, "begin", &first);
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let actions = turn.handle_event(event(line));
        show_actions(&mut shown, line, &actions);
    }
    expected.assert_eq(&shown);
}

fn event(line: &str) -> TurnEvent {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match (word, rest) {
        ("text", text) => TurnEvent::Text(text.to_owned()),
        ("thought", text) => TurnEvent::Thought { text: text.to_owned(), signature: None },
        ("signed", text) => {
            TurnEvent::Thought { text: text.to_owned(), signature: Some("signature".to_owned()) }
        }
        ("call", id) => TurnEvent::Call(call(id)),
        ("end", _) => TurnEvent::ReplyEnded(ReplyEnd::Done),
        ("length", _) => TurnEvent::ReplyEnded(ReplyEnd::LengthLimit),
        ("refused", _) => TurnEvent::ReplyEnded(ReplyEnd::Refused),
        ("too", _) => TurnEvent::ReplyFailed(ReplyError::TooLong("too long".to_owned())),
        ("fail", reason) => TurnEvent::ReplyFailed(ReplyError::Failed(reason.to_owned())),
        ("done", id) => TurnEvent::CallFinished(ToolResult::success(&call(id), "fine")),
        ("failed", id) => TurnEvent::CallFinished(ToolResult::failure(&call(id), "no")),
        ("compacted", _) => TurnEvent::Compacted,
        ("cancel", _) => TurnEvent::Cancelled,
        ("cut", _) => TurnEvent::Interrupted,
        other => panic!("unknown event {other:?}"),
    }
}

fn call(id: &str) -> ToolUse {
    ToolUse { id: id.to_owned(), name: "read".to_owned(), input: ToolUseInput::Value(json!({})) }
}

fn show_actions(shown: &mut String, label: &str, actions: &[TurnAction]) {
    use std::fmt::Write as _;
    writeln!(shown, "{label}").unwrap();
    for action in actions {
        let text = match action {
            TurnAction::Record(message) => format!("record {}", message_text(message)),
            TurnAction::RunTool(call) => format!("run {}", call.id),
            TurnAction::End(end) => format!("end {end:?}"),
            other => format!("{other:?}").to_lowercase(),
        };
        writeln!(shown, "  {text}").unwrap();
    }
}

fn message_text(message: &ConversationMessage) -> String {
    let parts = message.parts.iter().map(|part| match part {
        MessagePart::Text { text } => format!("{text:?}"),
        MessagePart::Thought { text, signature } => format!("thought {text:?} {signature:?}"),
        MessagePart::Call(call) => format!("call {}", call.id),
        MessagePart::Result(result) => format!("{}={:?}", result.id, result.text),
        MessagePart::Image { .. } => "image".to_owned(),
    });
    format!("{:?}: {}", message.role, parts.collect::<Vec<_>>().join(", "))
}

#[test]
fn a_reply_without_calls_ends_the_turn() {
    check(
        9,
        "
        thought hm,
        signed well
        thought more
        text Hel
        text lo
        end
        text late
        cancel
        ",
        expect![[r#"
            begin
              askmodel
            thought hm,
            signed well
            thought more
            text Hel
            text lo
            end
              record Assistant: thought "hm,well" Some("signature"), thought "more" None, "Hello"
              end Done
            text late
            cancel
        "#]],
    );
}

#[test]
fn calls_are_run_one_after_the_other_and_answered_together() {
    check(
        9,
        "
        call a
        call a
        end
        done b
        done a
        failed a~2
        text done
        end
        ",
        expect![[r#"
            begin
              askmodel
            call a
            call a
            end
              record Assistant: call a, call a~2
              run a
            done b
            done a
              run a~2
            failed a~2
              record Tool: a="fine", a~2="no"
              askmodel
            text done
            end
              record Assistant: "done"
              end Done
        "#]],
    );
}

#[test]
fn a_cancelled_turn_answers_every_call() {
    check(
        9,
        "
        text I will
        call a
        call b
        call c
        end
        done a
        cancel
        done b
        ",
        expect![[r#"
            begin
              askmodel
            text I will
            call a
            call b
            call c
            end
              record Assistant: "I will", call a, call b, call c
              run a
            done a
              run b
            cancel
              record Tool: a="fine", b="Cancelled by the user before it was begun.", c="Cancelled by the user before it was begun."
              end Cancelled
            done b
        "#]],
    );
}

#[test]
fn the_outcome_of_an_interrupted_call_is_unknown() {
    check(
        9,
        "
        call a
        call b
        end
        cut off
        ",
        expect![[r#"
            begin
              askmodel
            call a
            call b
            end
              record Assistant: call a, call b
              run a
            cut off
              record Tool: a="The turn was cancelled while it ran: it may have been done in part, in full or not at all. Look before you repeat it.", b="Cancelled by the user before it was begun."
              end Cancelled
        "#]],
    );
}

#[test]
fn only_the_text_of_an_interrupted_reply_is_kept() {
    check(
        9,
        "
        thought hm
        text I will
        call a
        cancel
        ",
        expect![[r#"
            begin
              askmodel
            thought hm
            text I will
            call a
            cancel
              record Assistant: "I will"
              end Cancelled
        "#]],
    );
    check(
        9,
        "
        call a
        fail connection lost
        ",
        expect![[r#"
            begin
              askmodel
            call a
            fail connection lost
              record Assistant: "(This turn failed before there was an answer.)"
              end Failed(Failed("connection lost"))
        "#]],
    );
}

#[test]
fn calls_of_a_reply_that_was_too_long_are_not_run() {
    check(
        9,
        "
        call a
        length
        text shorter
        length
        ",
        expect![[r#"
            begin
              askmodel
            call a
            length
              record Assistant: call a
              record Tool: a="Not run: the reply was cut off before its end. Send the call again, in smaller parts."
              askmodel
            text shorter
            length
              record Assistant: "shorter"
              end LengthLimit
        "#]],
    );
    check(
        9,
        "
        call a
        refused
        ",
        expect![[r#"
            begin
              askmodel
            call a
            refused
              record Assistant: call a
              record Tool: a="Not run: the reply was cut off before its end. Send the call again, in smaller parts."
              end Refused
        "#]],
    );
}

#[test]
fn a_model_whose_replies_are_always_cut_off_is_not_asked_for_ever() {
    let mut turn = TurnMachine::begin(&[], 100).0;
    let mut requests = 1;
    loop {
        assert_eq!(turn.handle_event(event("call a")), []);
        let actions = turn.handle_event(event("length"));
        match actions.last() {
            Some(TurnAction::AskModel) => requests += 1,
            Some(TurnAction::End(TurnOutcome::LengthLimit)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(requests, super::MAX_CUT_REPLIES);
}

#[test]
fn what_is_too_long_is_summed_up_once() {
    check(
        9,
        "
        text par
        too long
        text late
        compacted
        too long
        ",
        expect![[r#"
            begin
              askmodel
            text par
            too long
              compact
            text late
            compacted
              askmodel
            too long
              record Assistant: "(This turn failed before there was an answer.)"
              end Failed(TooLong("too long"))
        "#]],
    );
}

#[test]
fn a_turn_has_only_so_many_requests() {
    check(
        1,
        "
        call a
        end
        done a
        ",
        expect![[r#"
            begin
              askmodel
            call a
            end
              record Assistant: call a
              run a
            done a
              record Tool: a="fine"
              end TooManyRequests
        "#]],
    );
}

#[test]
fn a_model_that_says_nothing_is_asked_once_more() {
    let check = |max_requests, script: &str, expected| {
        let (mut turn, first) =
            TurnMachine::begin(&[ConversationMessage::from_text(MessageRole::User, "go")], max_requests);
        turn.allow_empty_reply_retry();
        run_script((turn, first), script, expected);
    };
    check(
        9,
        "call a\nend\ndone a\nthought hm\nend\ntext It is.\nend",
        expect![[r#"
            begin
              askmodel
            call a
            end
              record Assistant: call a
              run a
            done a
              record Tool: a="fine"
              askmodel
            thought hm
            end
              record Assistant: thought "hm" None
              askmodelagain
            text It is.
            end
              record Assistant: "It is."
              end Done
        "#]],
    );
    check(
        9,
        "end\nend",
        expect![[r#"
            begin
              askmodel
            end
              askmodelagain
            end
              record Assistant: "(There was no answer.)"
              end Done
        "#]],
    );
    check(
        1,
        "end",
        expect![[r#"
            begin
              askmodel
            end
              record Assistant: "(There was no answer.)"
              end Done
        "#]],
    );
    check(
        2,
        "end\ncall a\nend\ndone a",
        expect![[r#"
            begin
              askmodel
            end
              askmodelagain
            call a
            end
              record Assistant: call a
              run a
            done a
              record Tool: a="fine"
              end TooManyRequests
        "#]],
    );
    check(
        9,
        "length",
        expect![[r#"
            begin
              askmodel
            length
              record Assistant: "(There was no answer.)"
              end LengthLimit
        "#]],
    );
}

#[test]
fn the_same_failure_again_and_again_ends_the_turn() {
    let mut turn = TurnMachine::begin(&[], 100).0;
    let mut actions = Vec::new();
    for _ in 0..5 {
        assert_eq!(actions.iter().filter(|action| matches!(action, TurnAction::End(_))).count(), 0);
        let _asked = turn.handle_event(event("call a"));
        let started = turn.handle_event(event("end"));
        let Some(TurnAction::RunTool(call)) = started.last() else { panic!("nothing to run: {started:?}") };
        actions = turn.handle_event(TurnEvent::CallFinished(ToolResult::failure(call, "no")));
    }
    let Some(TurnAction::End(TurnOutcome::Failed(_))) = actions.last() else {
        panic!("it goes on: {actions:?}")
    };
}

fn any_event() -> impl Strategy<Value = TurnEvent> {
    let lines = [
        "text a", "thought b", "signed c", "call x", "call y", "end", "length", "refused", "too long",
        "fail z", "done x", "failed x", "done y", "done x~2", "compacted", "cancel", "cut off",
    ];
    proptest::sample::select(lines.to_vec()).prop_map(event)
}

proptest! {
    /// For any events in any order: the turn ends at most once, and in the recorded conversation every call has
    /// exactly one answer in the following message.
    #[test]
    fn every_call_is_answered_and_a_turn_ends_once(events in proptest::collection::vec(any_event(), 0..60)) {
        let (mut turn, mut actions) = TurnMachine::begin(&[], 20);
        for event in events {
            actions.extend(turn.handle_event(event));
        }
        actions.extend(turn.handle_event(TurnEvent::Cancelled));
        let ends = actions.iter().filter(|action| matches!(action, TurnAction::End(_))).count();
        prop_assert_eq!(ends, 1);
        prop_assert!(matches!(actions.last(), Some(TurnAction::End(_))));
        let messages: Vec<&ConversationMessage> =
            actions.iter().filter_map(|action| if let TurnAction::Record(m) = action { Some(m) } else { None }).collect();
        let is_reply = |part: &MessagePart| matches!(part, MessagePart::Text { .. } | MessagePart::Call(_));
        prop_assert!(messages.iter().any(|message| message.parts.iter().any(is_reply)), "{:?}", messages);
        for (at, message) in messages.iter().enumerate() {
            let mut called: Vec<&str> = message.tool_uses().map(|call| call.id.as_str()).collect();
            if called.is_empty() {
                continue;
            }
            let answers = messages.get(at + 1).map(|next| next.parts.as_slice()).unwrap_or_default();
            let mut answered: Vec<&str> = answers
                .iter()
                .filter_map(|part| if let MessagePart::Result(result) = part { Some(result.id.as_str()) } else { None })
                .collect();
            called.sort_unstable();
            answered.sort_unstable();
            prop_assert_eq!(called, answered);
        }
    }
}
