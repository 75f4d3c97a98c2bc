//! Tests of transcripts: wire text of a session in, its replay out; conversations in a short notation, cut and
//! repaired.

use std::fmt::Write as _;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CompactionSummaryChunk, MessageId, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    SessionNotification, ToolCallLocation, ToolCallUpdateFields, ToolKind,
};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::conversation::{ConversationMessage, MessagePart, MessageRole, ToolResult, ToolUse, ToolUseInput};
use bowline_protocol::accumulator::{Compaction, SessionAccumulator, SessionSnapshot, TimelineEntry};

/// Shows the replay of updates, given one per line.
fn check(wire: &str, expected: Expect) {
    let updates = wire.trim().lines().map(|line| serde_json::from_str::<SessionUpdate>(line).unwrap());
    let shown = |update: SessionUpdate| serde_json::to_string(&update).unwrap() + "\n";
    expected.assert_eq(&replay(updates).into_iter().map(shown).collect::<String>());
}

#[test]
fn chunks_of_a_message_become_one_and_its_calls_tell_how_they_ended() {
    check(
        r#"
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"fix it"}}
{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"I "}}
{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"look"}}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit","kind":"edit","rawInput":{"path":"/a"}}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"in_progress","locations":[{"path":"/a","line":3}]}
{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":" on"}}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"diff","path":"/a","oldText":"x","newText":"y"}],"rawOutput":"ok"}
{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"ward"}}
{"sessionUpdate":"usage_update","used":1,"size":2}
{"sessionUpdate":"current_mode_update","currentModeId":"ask"}
"#,
        expect![[r#"
            {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"fix it"}}
            {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I look"},"messageId":"m1"}
            {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit","kind":"edit","status":"completed","content":[{"type":"diff","path":"/a","oldText":"x","newText":"y"}],"locations":[{"path":"/a","line":3}],"rawInput":{"path":"/a"},"rawOutput":"ok"}
            {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":" onward"},"messageId":"m1"}
        "#]],
    );
}

#[test]
fn a_call_that_was_open_when_the_program_ended_has_failed() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Wait"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"in_progress"}
{"sessionUpdate":"compaction_update","compactionId":"c1","status":"in_progress"}
{"sessionUpdate":"compaction_summary_chunk","compactionId":"c1","content":{"type":"text","text":"so far"}}
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Wait","status":"failed"}
            {"sessionUpdate":"compaction_update","compactionId":"c1","status":"failed","summary":[{"type":"text","text":"so far"}]}
        "#]],
    );
}

#[test]
fn a_terminal_that_is_gone_is_replaced_by_its_output() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"ls","status":"completed","content":[{"type":"terminal","terminalId":"x"}],"rawOutput":{"output":"a b","exitCode":0}}
{"sessionUpdate":"tool_call","toolCallId":"t2","title":"ls","status":"completed","content":[{"type":"terminal","terminalId":"x"}]}
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"t1","title":"ls","status":"completed","content":[{"type":"content","content":{"type":"text","text":"a b"}}],"rawOutput":{"output":"a b","exitCode":0}}
            {"sessionUpdate":"tool_call","toolCallId":"t2","title":"ls","status":"completed"}
        "#]],
    );
}

#[test]
fn only_the_last_plan_of_a_turn_is_kept() {
    check(
        r#"
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"one"}}
{"sessionUpdate":"plan","entries":[]}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}
{"sessionUpdate":"plan","entries":[{"content":"x","priority":"high","status":"completed"}]}
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"two"}}
{"sessionUpdate":"plan","entries":[{"content":"y","priority":"low","status":"pending"}]}
"#,
        expect![[r#"
            {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"one"}}
            {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}
            {"sessionUpdate":"plan","entries":[{"content":"x","priority":"high","status":"completed"}]}
            {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"two"}}
            {"sessionUpdate":"plan","entries":[{"content":"y","priority":"low","status":"pending"}]}
        "#]],
    );
}

#[test]
fn updates_of_unannounced_calls_are_left_out() {
    check(
        r#"
{"sessionUpdate":"tool_call_update","toolCallId":"t0","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Read","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"pending","title":"no"}
{"sessionUpdate":"tool_call_update","toolCallId":"t2","title":"early"}
{"sessionUpdate":"tool_call","toolCallId":"t2","title":"Write"}
{"sessionUpdate":"tool_call","toolCallId":"t2","title":"again"}
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read","status":"completed"}
            {"sessionUpdate":"tool_call","toolCallId":"t2","title":"Write","status":"failed"}
        "#]],
    );
}

/// Shows the history of a session as a client sees it.
fn show_snapshot(snapshot: &SessionSnapshot) -> String {
    let mut out = String::new();
    for entry in snapshot.timeline() {
        match entry {
            TimelineEntry::Message(message) => {
                writeln!(out, "{:?} {:?} {:?}", message.kind, message.id, message.body.blocks()).unwrap();
            }
            TimelineEntry::ToolCall(call) => writeln!(out, "{:?}", call.to_tool_call()).unwrap(),
            TimelineEntry::Compaction(Compaction { id, status, summary, error, meta, .. }) => {
                writeln!(out, "{id} {status:?} {:?} {error:?} {meta:?}", summary.blocks()).unwrap();
            }
        }
    }
    writeln!(out, "{:?}", snapshot.plan()).unwrap();
    out
}

fn apply(session: &mut SessionAccumulator, update: &SessionUpdate) -> bool {
    session.apply(&SessionNotification::new("s", update.clone())).is_ok()
}

fn fold_updates(updates: &[SessionUpdate]) -> String {
    let mut session = SessionAccumulator::new();
    for update in updates {
        assert!(apply(&mut session, update), "{update:?}");
    }
    show_snapshot(&session.snapshot())
}

fn block() -> impl Strategy<Value = ContentBlock> {
    prop_oneof![
        4 => "[a-c]{0,3}".prop_map(ContentBlock::from),
        1 => Just(serde_json::from_value(json!({"type": "image", "data": "eA==", "mimeType": "image/png"})).unwrap()),
        1 => Just(serde_json::from_value(json!({"type": "text", "text": "x", "annotations": {"priority": 1.0}})).unwrap()),
    ]
}

fn chunk() -> impl Strategy<Value = ContentChunk> {
    (block(), proptest::option::of("[mn]?"), any::<bool>()).prop_map(|(block, id, meta)| {
        let meta = (meta && id.is_some()).then(|| serde_json::Map::from_iter([("k".to_owned(), json!(1))]));
        ContentChunk::new(block).message_id(id.map(MessageId::from)).meta(meta)
    })
}

fn fields() -> impl Strategy<Value = ToolCallUpdateFields> {
    let status = proptest::option::of(prop_oneof![
        Just(ToolCallStatus::Pending),
        Just(ToolCallStatus::InProgress),
        Just(ToolCallStatus::Completed),
        Just(ToolCallStatus::Failed)
    ]);
    let text = || proptest::option::of("[a-z]{1,3}");
    (status, text(), text(), text(), text(), any::<bool>()).prop_map(
        |(status, title, name, content, raw, kind)| {
            ToolCallUpdateFields::new()
                .status(status)
                .title(title)
                .name(name)
                .kind(kind.then_some(ToolKind::Edit))
                .content(content.clone().map(|text| vec![ToolCallContent::from(text)]))
                .locations(content.map(|path| vec![ToolCallLocation::new(path)]))
                .raw_input(raw.clone().map(Value::from))
                .raw_output(raw.map(|raw| json!({ "output": raw })))
        },
    )
}

fn update() -> impl Strategy<Value = SessionUpdate> {
    let id = || "[st]";
    prop_oneof![
        2 => chunk().prop_map(SessionUpdate::UserMessageChunk),
        4 => chunk().prop_map(SessionUpdate::AgentMessageChunk),
        2 => chunk().prop_map(SessionUpdate::AgentThoughtChunk),
        2 => (id(), fields()).prop_map(|(id, fields)| {
            let mut call = ToolCall::new(id, "title");
            call.update(fields);
            SessionUpdate::ToolCall(call)
        }),
        6 => (id(), fields(), any::<bool>()).prop_map(|(id, fields, meta)| {
            let meta = meta.then(|| serde_json::Map::from_iter([("k".to_owned(), json!(2))]));
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields).meta(meta))
        }),
        1 => "[a-z]{1,2}".prop_map(|text| {
            let entry = PlanEntry::new(text, PlanEntryPriority::Low, PlanEntryStatus::Pending);
            SessionUpdate::Plan(Plan::new(vec![entry]))
        }),
        1 => (any::<bool>(), proptest::option::of(block())).prop_map(|(done, block)| {
            let status = if done { CompactionStatus::Completed } else { CompactionStatus::InProgress };
            let update = CompactionUpdate::new("c", status);
            SessionUpdate::CompactionUpdate(match block {
                Some(block) => update.summary(vec![block]),
                None => update,
            })
        }),
        1 => block().prop_map(|block| SessionUpdate::CompactionSummaryChunk(CompactionSummaryChunk::new("c", block))),
    ]
}

/// What a client saw of a session, and what it sees afterwards of everything that was open when the program ended.
fn any_live_session() -> impl Strategy<Value = (Vec<SessionUpdate>, String)> {
    proptest::collection::vec(update(), 0..40).prop_map(|mut updates| {
        let mut session = SessionAccumulator::new();
        updates.retain(|update| apply(&mut session, update));
        let snapshot = session.snapshot();
        for call in snapshot.tool_calls().filter(|call| !call.is_finished()) {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Failed);
            let failed = ToolCallUpdate::new(call.id.clone(), fields);
            assert!(apply(&mut session, &SessionUpdate::ToolCallUpdate(failed)));
        }
        for compaction in
            snapshot.compactions().filter(|compaction| compaction.status == CompactionStatus::InProgress)
        {
            let failed = CompactionUpdate::new(compaction.id.clone(), CompactionStatus::Failed);
            assert!(apply(&mut session, &SessionUpdate::CompactionUpdate(failed)));
        }
        (updates, show_snapshot(&session.snapshot()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_loaded_session_looks_like_the_live_one((updates, expected) in any_live_session()) {
        let replayed = replay(updates);
        prop_assert_eq!(fold_updates(&replayed), expected);
        // Replaying is idempotent.
        prop_assert_eq!(&replay(replayed.clone()), &replayed);
    }

    #[test]
    fn what_is_kept_in_pieces_replays_the_same(
        (updates, expected) in any_live_session(),
        cuts in proptest::collection::vec(1..10_usize, 40),
    ) {
        let mut rest = updates.as_slice();
        let mut kept = Vec::new();
        for cut in cuts {
            let (piece, later) = rest.split_at(cut.min(rest.len()));
            kept.extend(condense(piece.to_vec()));
            rest = later;
        }
        kept.extend(condense(rest.to_vec()));
        prop_assert_eq!(fold_updates(&replay(kept)), expected);
    }
}

/// Parses messages, one per line: `user`, `model` or `tool` and its parts. `?x` is a thought, `!x` a call, `x=y` the
/// answer to a call, `#` an image, `-` an empty text, anything else text.
fn conversation(text: &str) -> Vec<ConversationMessage> {
    let message = |line: &str| {
        let mut words = line.split_whitespace();
        let role = match words.next() {
            Some("user") => MessageRole::User,
            Some("model") => MessageRole::Assistant,
            _ => MessageRole::Tool,
        };
        ConversationMessage { role, parts: words.map(part).collect() }
    };
    text.trim().lines().map(message).collect()
}

fn part(word: &str) -> MessagePart {
    let name = "tool".to_owned();
    if let Some(text) = word.strip_prefix('?') {
        MessagePart::Thought { text: text.to_owned(), signature: Some("s".to_owned()) }
    } else if let Some(id) = word.strip_prefix('!') {
        MessagePart::Call(ToolUse { id: id.to_owned(), name, input: ToolUseInput::Value(json!({})) })
    } else if let Some((id, text)) = word.split_once('=') {
        MessagePart::Result(ToolResult {
            id: id.to_owned(),
            name,
            text: text.to_owned(),
            images: Vec::new(),
            failed: false,
        })
    } else if word == "#" {
        MessagePart::Image { mime: "image/png".to_owned(), data: Arc::from("eA==") }
    } else {
        MessagePart::Text { text: word.trim_matches('-').to_owned() }
    }
}

fn show_conversation(messages: &[ConversationMessage]) -> String {
    let mut out = String::new();
    for ConversationMessage { role, parts } in messages {
        out.push_str(match role {
            MessageRole::User => "user",
            MessageRole::Assistant => "model",
            MessageRole::Tool => "tool",
        });
        for part in parts {
            match part {
                MessagePart::Text { text } => write!(out, " {text}"),
                MessagePart::Image { .. } => write!(out, " #"),
                MessagePart::Thought { text, .. } => write!(out, " ?{text}"),
                MessagePart::Call(call) => write!(out, " !{}", call.id),
                MessagePart::Result(result) if result.text == INTERRUPTED_RESULT && result.failed => {
                    write!(out, " {}=?", result.id)
                }
                MessagePart::Result(result) => write!(out, " {}={}", result.id, result.text),
            }
            .unwrap();
        }
        out.push('\n');
    }
    out
}

fn check_repaired(messages: &str, expected: Expect) {
    expected.assert_eq(&show_conversation(&repair_conversation(conversation(messages))));
}

#[test]
fn calls_without_an_answer_are_answered() {
    check_repaired(
        "
user hi
model ?hm ok !a !b !c
tool b=done
user go on
model !d
",
        expect![[r#"
            user hi
            model ?hm ok !a !b !c
            tool b=done a=? c=?
            user go on
            model !d
            tool d=?
        "#]],
    );
}

#[test]
fn answers_without_a_call_are_removed() {
    check_repaired(
        "
tool x=early
user hi x=odd !odd
model ok y=odd # !a !a
tool a=1 a=2 z=3 text
tool a=4
tool
user then
tool a=5
",
        expect![[r#"
            user hi
            model ok !a
            tool a=1
            user then
        "#]],
    );
}

#[test]
fn messages_of_one_speaker_become_one() {
    check_repaired(
        "
user hi
user there #
model one
model ?so two
model !a
tool a=1
model
user -
user bye
",
        expect![[r#"
            user hi there #
            model one ?so two !a
            tool a=1
            user bye
        "#]],
    );
}

#[test]
fn trailing_thoughts_are_removed() {
    check_repaired(
        "
user hi
model ?well
user hello
model ?well yes ?but
user ok
model !a ?still
",
        expect![[r#"
            user hi hello
            model ?well yes
            user ok
            model !a ?still
            tool a=?
        "#]],
    );
}

#[test]
fn a_conversation_begins_with_the_user() {
    check_repaired(
        "
model hello
user hi
",
        expect![[r#"
            user (the beginning of the conversation is lost)
            model hello
            user hi
        "#]],
    );
}

/// Describes what a provider would reject.
fn find_violation(messages: &[ConversationMessage]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut before = None;
    for message in messages {
        let allowed = match before {
            None => message.role == MessageRole::User,
            Some(MessageRole::Assistant) if !open.is_empty() => message.role == MessageRole::Tool,
            Some(role) => role != message.role && (message.role != MessageRole::Tool),
        };
        if !allowed || message.parts.is_empty() {
            return Some(format!("{:?} after {before:?}", message.role));
        }
        for part in &message.parts {
            match (message.role, part) {
                (MessageRole::Assistant, MessagePart::Call(call)) => open.push(&call.id),
                (MessageRole::Tool, MessagePart::Result(result)) => {
                    match open.iter().position(|id| *id == result.id) {
                        Some(at) => drop(open.remove(at)),
                        None => return Some(format!("{} was not called", result.id)),
                    }
                }
                (MessageRole::User | MessageRole::Assistant, MessagePart::Text { text })
                    if !text.is_empty() => {}
                (MessageRole::User, MessagePart::Image { .. })
                | (MessageRole::Assistant, MessagePart::Thought { .. }) => {}
                other => return Some(format!("{other:?}")),
            }
        }
        if message.role == MessageRole::Tool && !open.is_empty() {
            return Some(format!("{open:?} have no answer"));
        }
        before = Some(message.role);
    }
    (!open.is_empty()).then(|| format!("{open:?} have no answer"))
}

/// A complete conversation of a program that answers calls one by one, in any order and number of messages.
fn any_complete_conversation() -> impl Strategy<Value = Vec<ConversationMessage>> {
    let reply = (0..4_usize, any::<bool>(), any::<bool>());
    let turn = (1..3_usize, proptest::collection::vec(reply, 1..4));
    proptest::collection::vec(turn, 0..4).prop_map(|turns| {
        let mut text = String::new();
        let mut id = 0;
        for (prompts, replies) in turns {
            (0..prompts).for_each(|_| text.push_str("user hi\n"));
            for (calls, thinks, together) in replies {
                text.push_str(if thinks { "model ?so yes" } else { "model yes" });
                let ids: Vec<_> = (id..id + calls).collect();
                id += calls;
                ids.iter().for_each(|id| write!(text, " !{id}").unwrap());
                let separator = if together { " " } else { "\ntool " };
                let answers: Vec<_> = ids.iter().map(|id| format!("{id}=ok")).collect();
                if !answers.is_empty() {
                    write!(text, "\ntool {}", answers.join(separator)).unwrap();
                }
                text.push('\n');
            }
        }
        conversation(&text)
    })
}

fn any_message() -> impl Strategy<Value = ConversationMessage> {
    let role = prop_oneof![Just(MessageRole::User), Just(MessageRole::Assistant), Just(MessageRole::Tool)];
    let word = prop_oneof!["[?!]?[ab]", "[ab]=x", Just("#".to_owned()), Just("-".to_owned())];
    (role, proptest::collection::vec(word, 0..4)).prop_map(|(role, words)| ConversationMessage {
        role,
        parts: words.iter().map(|word| part(word)).collect(),
    })
}

proptest! {
    #[test]
    fn a_conversation_cut_anywhere_is_mended(messages in any_complete_conversation()) {
        for cut in 0..=messages.len() {
            let repaired = repair_conversation(messages[..cut].to_vec());
            prop_assert_eq!(find_violation(&repaired), None, "{}", show_conversation(&messages[..cut]));
            prop_assert_eq!(&repair_conversation(repaired.clone()), &repaired);
            // No content is lost.
            let parts = |messages: &[ConversationMessage]| -> usize {
                messages.iter().flat_map(|message| &message.parts).filter(|part| {
                    !matches!(part, MessagePart::Result(result) if result.text == INTERRUPTED_RESULT)
                }).count()
            };
            prop_assert_eq!(parts(&repaired), parts(&messages[..cut]));
        }
    }

    #[test]
    fn any_conversation_is_repaired(messages in proptest::collection::vec(any_message(), 0..12)) {
        let repaired = repair_conversation(messages.clone());
        prop_assert_eq!(find_violation(&repaired), None, "{}", show_conversation(&messages));
        prop_assert_eq!(&repair_conversation(repaired.clone()), &repaired);
    }
}
