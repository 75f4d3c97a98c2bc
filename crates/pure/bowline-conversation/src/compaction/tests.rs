//! Tests of compacting overlong conversations, with properties.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::conversation::{MessagePart, ToolResult, ToolUse, ToolUseInput};

/// Parses a conversation: `U` the user, `A` the model, `T` its thought, `C ID NAME PATH` a call, `R ID` its result,
/// `!R` a failure. `*N` at the end of a line repeats its text.
fn parse_conversation(text: &str) -> Vec<ConversationMessage> {
    let mut messages: Vec<ConversationMessage> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (kind, rest) = line.split_once(' ').unwrap();
        let (rest, times) = match rest.rsplit_once('*') {
            Some((rest, times)) => (rest, times.parse().unwrap()),
            None => (rest, 1),
        };
        let words: Vec<&str> = rest.splitn(3, ' ').collect();
        let (role, part) = match kind {
            "U" => (MessageRole::User, MessagePart::Text { text: rest.repeat(times) }),
            "A" => (MessageRole::Assistant, MessagePart::Text { text: rest.repeat(times) }),
            "T" => (
                MessageRole::Assistant,
                MessagePart::Thought { text: rest.repeat(times), signature: Some("s".into()) },
            ),
            "C" => {
                let input = ToolUseInput::Value(json!({ "path": words[2].repeat(times) }));
                (
                    MessageRole::Assistant,
                    MessagePart::Call(ToolUse { id: words[0].into(), name: words[1].into(), input }),
                )
            }
            "R" | "!R" => {
                let text = words[2..].concat().repeat(times);
                let failed = kind == "!R";
                let (id, name, images) = (words[0].into(), words[1].into(), Vec::new());
                (MessageRole::Tool, MessagePart::Result(ToolResult { id, name, text, images, failed }))
            }
            other => panic!("{other}"),
        };
        match messages.last_mut() {
            Some(last) if last.role == role && role != MessageRole::User => last.parts.push(part),
            _ => messages.push(ConversationMessage { role, parts: vec![part] }),
        }
    }
    messages
}

fn describe_messages(messages: &[ConversationMessage]) -> String {
    let mut out = String::new();
    let brief = |text: &str| {
        let text = text.replace('\n', "⏎");
        let long = text.chars().count() > 150;
        let cut: String = text.chars().take(if long { 100 } else { 150 }).collect();
        if long { format!("{cut}… ({} bytes)", text.len()) } else { cut }
    };
    for message in messages {
        for part in &message.parts {
            match part {
                MessagePart::Text { text } => writeln!(out, "{:?}: {}", message.role, brief(text)),
                MessagePart::Image { .. } => writeln!(out, "{:?}: a picture", message.role),
                MessagePart::Thought { text, .. } => {
                    writeln!(out, "{:?} thinks: {}", message.role, brief(text))
                }
                MessagePart::Call(call) => match &call.input {
                    ToolUseInput::Value(value) => {
                        writeln!(out, "call {} {} {}", call.id, call.name, brief(&value.to_string()))
                    }
                    ToolUseInput::Broken { text, .. } => {
                        writeln!(out, "call {} {} broken {text}", call.id, call.name)
                    }
                },
                MessagePart::Result(result) => writeln!(out, "answer {}: {}", result.id, brief(&result.text)),
            }
            .unwrap();
        }
    }
    out
}

fn budget(window: u64) -> TokenBudget {
    TokenBudget { window, fixed_tokens: 0, calibration: TokenCalibration::default() }
}

fn carry_out(plan: CompactionPlan) -> Vec<ConversationMessage> {
    match plan {
        CompactionPlan::Trimmed(messages) => messages,
        CompactionPlan::Summarise(plan) => {
            let summary = plan.mechanical_summary();
            plan.apply(&summary, "/w/a: known")
        }
    }
}

fn check(window: u64, text: &str, expected: Expect) {
    let messages = parse_conversation(text);
    let budget = budget(window);
    let mut out = format!("{} of {}\n", budget.request_tokens(&messages), budget.request_limit());
    match plan_compaction(&messages, &budget) {
        None => out.push_str("nothing to do\n"),
        Some(plan) => {
            let kind = if matches!(plan, CompactionPlan::Trimmed(_)) { "trimmed" } else { "summed up" };
            let after = carry_out(plan);
            writeln!(out, "{kind}: {}", budget.request_tokens(&after)).unwrap();
            out.push_str(&describe_messages(&after));
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn what_fits_is_left_alone() {
    check(
        4000,
        "U hello\nA hi*3000",
        expect![[r#"
        1518 of 3200
        nothing to do
    "#]],
    );
}

#[test]
fn old_outputs_are_cut_before_anything_is_summed_up() {
    check(
        4000,
        "
        U what is in a
        T hm
        C 1 read_text_file /w/a
        R 1 read_text_file line⏎*1200
        A that
        U and in b
        T hm
        C 2 read_text_file /w/b
        R 2 read_text_file abcd*200
        ",
        expect![[r#"
            3296 of 3200
            trimmed: 384
            User: what is in a
            call 1 read_text_file {"path":"/w/a"}
            answer 1: line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎line⏎… (273 bytes)
            Assistant: that
            User: and in b
            Assistant thinks: hm
            call 2 read_text_file {"path":"/w/b"}
            answer 2: abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcd… (800 bytes)
        "#]],
    );
}

#[test]
fn what_is_old_is_summed_up_and_recent_turns_stay() {
    check(
        2048,
        "
        U rename foo to bar everywhere
        C 1 search_text foo
        R 1 search_text hit *100
        C 2 edit_text_file /w/a
        !R 2 edit_text_file the text is not there
        A I renamed it in one place. *99
        U now explain the parser. *99
        A It parses. *100
        U and the lexer?
        A It lexes. *20
        U thanks, next
        ",
        expect![[r#"
            1817 of 1639
            summed up: 377
            User: [The conversation before this was too long and has been summed up. The user's first request was:]⏎rename foo to bar everywhere
            User: [Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]⏎/w/a: known
            User: [Summary of what happened since:]⏎Requests:⏎- rename foo to bar everywhere⏎- now explain the parser.… (809 bytes)
            Assistant: I have read the summary and go on from there.
            User: and the lexer?
            Assistant: It lexes. It lexes. It lexes. It lexes. It lexes. It lexes. It lexes. It lexes. It lexes. It lexes. … (200 bytes)
            User: thanks, next
        "#]],
    );
}

#[test]
fn a_turn_that_is_too_long_is_split_between_its_steps() {
    check(
        2048,
        "
        U first things first
        A ok
        U read all of them
        C 1 read_text_file /w/1
        R 1 read_text_file one *350
        C 2 read_text_file /w/2
        R 2 read_text_file two *350
        C 3 read_text_file /w/3
        R 3 read_text_file three *350
        C 4 read_text_file /w/4
        C 5 read_text_file /w/5
        R 4 read_text_file four *200
        R 5 read_text_file five *200
        C 6 read_text_file /w/6
        R 6 read_text_file six *350
        ",
        expect![[r#"
            2263 of 1639
            summed up: 1063
            User: [The conversation before this was too long and has been summed up. The user's first request was:]⏎first things first
            User: [The user's latest request, which is being worked on:]⏎read all of them
            User: [Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]⏎/w/a: known
            User: [Summary of what happened since:]⏎Requests:⏎- first things first⏎- read all of them⏎Tool calls:⏎- re… (193 bytes)
            call 4 read_text_file {"path":"/w/4"}
            call 5 read_text_file {"path":"/w/5"}
            answer 4: four four four four four four four four four four four four four four four four four four four four … (1000 bytes)
            answer 5: five five five five five five five five five five five five five five five five five five five five … (1000 bytes)
            call 6 read_text_file {"path":"/w/6"}
            answer 6: six six six six six six six six six six six six six six six six six six six six six six six six six … (1400 bytes)
        "#]],
    );
}

#[test]
fn the_requests_survive_a_second_summary() {
    let mut messages = parse_conversation(
        "U make it fast\nA yes*900\nU read them\nC 1 read /w/1\nR 1 read 1*900\nA hm *900",
    );
    messages.extend(parse_conversation("C 2 read /w/2\nR 2 read 2*2000"));
    let budget = budget(2048);
    let mut out = String::new();
    for round in 3..6 {
        let plan = plan_compaction(&messages, &budget).expect("due");
        messages = carry_out(plan);
        out.push_str(&describe_messages(&messages));
        out.push('\n');
        messages.extend(parse_conversation(&format!(
            "A so *900\nC {round} read /w/{round}\nR {round} read x*2000"
        )));
    }
    expect![[r#"
        User: [The conversation before this was too long and has been summed up. The user's first request was:]⏎make it fast
        User: [The user's latest request, which is being worked on:]⏎read them
        User: [Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]⏎/w/a: known
        User: [Summary of what happened since:]⏎Requests:⏎- make it fast⏎- read them⏎Tool calls:⏎- read /w/1⏎Said … (736 bytes)
        call 2 read {"path":"/w/2"}
        answer 2: 2222222222222222222222222222222222222222222222222222222222222222222222222222222222222222222222222222… (2000 bytes)

        User: [The conversation before this was too long and has been summed up. The user's first request was:]⏎make it fast
        User: [The user's latest request, which is being worked on:]⏎read them
        User: [Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]⏎/w/a: known
        User: [Summary of what happened since:]⏎Requests:⏎- make it fast⏎- read them⏎Tool calls:⏎- read /w/1⏎Said … (270 bytes)
        Assistant: so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so s… (2700 bytes)
        call 3 read {"path":"/w/3"}
        answer 3: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (1121 bytes)

        User: [The conversation before this was too long and has been summed up. The user's first request was:]⏎make it fast
        User: [The user's latest request, which is being worked on:]⏎read them
        User: [Files, as this session knows them. Read a file again before you edit it if it is not listed as known:]⏎/w/a: known
        User: [Summary of what happened since:]⏎Requests:⏎- make it fast⏎- read them⏎Tool calls:⏎- read /w/1⏎Said … (834 bytes)
        Assistant: so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so so s… (2700 bytes)
        call 4 read {"path":"/w/4"}
        answer 4: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (1121 bytes)

    "#]].assert_eq(&out);
}

#[test]
fn one_output_that_fills_the_window_is_cut() {
    check(
        2048,
        "U read it\nC 1 read_text_file /w/a\nR 1 read_text_file word *9000",
        expect![[r#"
        11287 of 1639
        trimmed: 604
        User: read it
        call 1 read_text_file {"path":"/w/a"}
        answer 1: word word word word word word word word word word word word word word word word word word word word … (2272 bytes)
    "#]],
    );
    check(
        2048,
        "U a very long question *3000",
        expect![[r#"
            15758 of 1639
            trimmed: 570
            User: a very long question a very long question a very long question a very long question a very long ques… (2251 bytes)
        "#]],
    );
}

#[test]
fn the_user_can_want_it_at_any_time() {
    let budget = budget(100_000);
    let messages = parse_conversation("U build it\nA built. *500\nU test it\nA tested. *20");
    let plan = plan_requested_summary(&messages, &budget).unwrap();
    let summary = plan.mechanical_summary();
    let after = plan.apply(&summary, "");
    expect![[r#"
        User: [The conversation before this was too long and has been summed up. The user's first request was:]⏎build it
        User: [Summary of what happened since:]⏎Requests:⏎- build it⏎Said last:⏎built. built. built. built. built.… (690 bytes)
        Assistant: I have read the summary and go on from there.
        User: test it
        Assistant: tested. tested. tested. tested. tested. tested. tested. tested. tested. tested. tested. tested. test… (160 bytes)
    "#]].assert_eq(&describe_messages(&after));
    assert_eq!(plan_requested_summary(&after, &budget), None);
    assert_eq!(plan_requested_summary(&parse_conversation("U hello\nA hi"), &budget), None);
    assert_eq!(plan_requested_summary(&[], &budget), None);
}

#[test]
fn a_transcript_says_who_said_what() {
    let messages =
        parse_conversation("U do it\nT hm\nA now\nC 1 read /w/a\n!R 1 read gone\nA no *2000\nU next");
    let plan = plan_requested_summary(&messages, &budget(100_000)).unwrap();
    expect![[r#"
        USER: do it
        ASSISTANT: now
        CALL read {"path":"/w/a"}
        RESULT of read FAILED: gone
        ASSISTANT: no no no no no no no no no no no no 
        [5901 bytes left out]
        no no no no no no no no no no no no no no no no no no no no no 
    "#]]
    .assert_eq(&plan.render_transcript(60));
}

#[test]
fn counts_of_the_provider_move_the_estimate() {
    let mut calibration = TokenCalibration::default();
    let used = |input| TokenUsage { input, ..TokenUsage::default() };
    let mut estimates = Vec::new();
    for (estimated, counted) in [(1000, 1500), (1000, 0), (0, 1000), (1000, 1), (1000, u64::MAX)] {
        calibration.record_usage(estimated, &used(counted));
        estimates.push(calibration.to_provider_tokens(1000));
    }
    assert_eq!(estimates, [1500, 1500, 1500, 500, 4000]);
    let mut calibration = TokenCalibration::default();
    calibration.record_overflow(5000, 8000);
    assert_eq!(calibration.to_provider_tokens(5000), 10_000);
    calibration.record_overflow(0, u64::MAX);
    assert_eq!(calibration.to_provider_tokens(u64::MAX), u64::MAX / 1000);
}

#[test]
fn estimates_are_about_right() {
    assert_eq!(estimate_text("fn main() {}"), 3);
    assert_eq!(estimate_text("日本語"), 5);
    let image = ConversationMessage {
        role: MessageRole::User,
        parts: vec![MessagePart::Image { mime: "image/png".into(), data: Arc::from("x".repeat(99_999)) }],
    };
    assert_eq!(estimate_messages(&[image]), 1608);
    let tool =
        ToolSpec { name: "read".into(), description: "Reads.".into(), schema: json!({"type": "object"}) };
    assert_eq!(estimate_fixed_tokens("You are.", &[tool]), 19);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z \\n]{0,40}",
        ("[a-zä日 \\n]{1,8}", 1..500_usize).prop_map(|(text, times)| text.repeat(times)),
    ]
}

/// One turn: a request, steps with some calls each, and perhaps a reply.
fn any_turns() -> impl Strategy<Value = Vec<ConversationMessage>> {
    let step = (
        proptest::option::of(any_text()),
        proptest::collection::vec((any_text(), any_text(), any::<bool>()), 1..3),
    );
    let turn = (any_text(), proptest::collection::vec(step, 0..4), proptest::option::of(any_text()));
    proptest::collection::vec(turn, 1..6).prop_map(|turns| {
        let mut messages = Vec::new();
        let mut id = 0;
        for (request, steps, answer) in turns {
            messages.push(ConversationMessage::from_text(MessageRole::User, request));
            for (thought, calls) in steps {
                let mut parts: Vec<MessagePart> =
                    thought.into_iter().map(|text| MessagePart::Thought { text, signature: None }).collect();
                let mut results = Vec::new();
                for (input, text, failed) in calls {
                    id += 1;
                    let input = ToolUseInput::Value(json!({ "path": input }));
                    let call = ToolUse { id: id.to_string(), name: "tool".into(), input };
                    results
                        .push(MessagePart::Result(ToolResult { failed, ..ToolResult::success(&call, text) }));
                    parts.push(MessagePart::Call(call));
                }
                messages.push(ConversationMessage { role: MessageRole::Assistant, parts });
                messages.push(ConversationMessage { role: MessageRole::Tool, parts: results });
            }
            messages.extend(answer.map(|text| ConversationMessage::from_text(MessageRole::Assistant, text)));
        }
        messages
    })
}

/// Returns whether a provider would accept it: it begins with the user, every call is answered at once, no message is
/// empty.
fn is_valid_conversation(messages: &[ConversationMessage]) -> bool {
    let ids = |message: &ConversationMessage| -> (HashSet<String>, HashSet<String>) {
        let calls = message.tool_uses().map(|call| call.id.clone()).collect();
        let results = message.parts.iter().filter_map(|part| match part {
            MessagePart::Result(result) => Some(result.id.clone()),
            _ => None,
        });
        (calls, results.collect())
    };
    let answered = (0..messages.len()).all(|at| {
        let calls = ids(&messages[at]).0;
        let results = messages.get(at + 1).map(|next| ids(next).1).unwrap_or_default();
        calls == results
    });
    let starts_with_user = messages.first().is_none_or(|first| first.role == MessageRole::User);
    answered && starts_with_user && messages.iter().all(|message| !message.parts.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_comes_of_it_is_valid_smaller_and_enough(messages in any_turns(), window in 2048..6000_u64, summary in any_text()) {
        let budget = budget(window);
        prop_assert!(is_valid_conversation(&messages));
        let Some(plan) = plan_compaction(&messages, &budget) else {
            prop_assert!(budget.request_tokens(&messages) <= budget.request_limit());
            return Ok(());
        };
        let after = match plan {
            CompactionPlan::Trimmed(after) => after,
            CompactionPlan::Summarise(plan) => plan.apply(&summary, &summary),
        };
        prop_assert!(is_valid_conversation(&after), "{}", describe_messages(&after));
        prop_assert!(budget.request_tokens(&after) < budget.request_tokens(&messages));
        prop_assert!(budget.request_tokens(&after) <= budget.request_limit(), "{}", describe_messages(&after));
        prop_assert_eq!(plan_compaction(&after, &budget), None);
        // The last turn stays verbatim unless it is too large by itself.
        let last = messages.iter().rposition(|message| message.role == MessageRole::User).unwrap();
        if estimate_messages(&messages[last..]) <= budget.message_room() * 6 / 10 {
            prop_assert!(after.ends_with(&messages[last..]));
        }
    }

    #[test]
    fn what_goes_with_every_request_counts_too(
        messages in any_turns(), window in 6000..12_000_u64, part in 0..25_u64, counted in 700..1500_u64,
    ) {
        let mut calibration = TokenCalibration::default();
        calibration.record_usage(1000, &TokenUsage { input: counted, ..TokenUsage::default() });
        let budget = TokenBudget { window, fixed_tokens: window * part / 100, calibration };
        let after = plan_compaction(&messages, &budget).map_or_else(|| messages.clone(), carry_out);
        prop_assert!(budget.request_tokens(&after) <= budget.request_limit());
        prop_assert_eq!(plan_compaction(&after, &budget), None);
    }

    #[test]
    fn a_wanted_summary_is_smaller_too(messages in any_turns(), summary in any_text()) {
        let budget = budget(6000);
        if let Some(plan) = plan_requested_summary(&messages, &budget) {
            let after = plan.apply(&summary, &summary);
            prop_assert!(is_valid_conversation(&after));
            prop_assert!(estimate_messages(&after) < estimate_messages(&messages));
        }
    }

    #[test]
    fn to_trim_again_changes_nothing(messages in any_turns()) {
        let trimmed = trim::trim_old_messages(&messages);
        prop_assert_eq!(trim::trim_old_messages(&trimmed), trimmed);
    }
}
