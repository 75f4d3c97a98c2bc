//! Tests of the accumulator: wire text in, a rendering of the session out.

use std::fmt::Write as _;
use std::sync::mpsc;

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, SessionModeState, SessionUpdate, ToolCall,
};
use expect_test::{Expect, expect};

use super::persistent_vec::work;
use super::*;

/// Applies one notification per line, `<session> <update>` or only the update for session `s`, and shows the effect of
/// each and the final state. A line `-` starts a turn.
fn check(wire: &str, expected: Expect) {
    check_with(AccumulatorOptions::default(), wire, expected);
}

fn check_with(options: AccumulatorOptions, wire: &str, expected: Expect) {
    let mut session = SessionAccumulator::with_options(options);
    let mut out = String::new();
    for line in wire.trim().lines() {
        if line == "-" {
            session.mark_turn_boundary();
            continue;
        }
        let before = describe_snapshot(&session.snapshot());
        match session.apply(&notification(line)) {
            Ok(change) => {
                writeln!(out, "{change:?}").unwrap();
                let snapshot = session.snapshot();
                if let SessionChange::MessageStarted(message) | SessionChange::MessageContinued(message) =
                    change
                    && snapshot.messages().count() > 0
                {
                    let message = snapshot.message(message).unwrap();
                    assert_eq!(
                        format!("{:?}", message.kind),
                        message_kind_name(line),
                        "the change names its message"
                    );
                }
            }
            Err(violation) => {
                writeln!(out, "! {violation}").unwrap();
                assert_eq!(describe_snapshot(&session.snapshot()), before, "a breach changes nothing");
            }
        }
    }
    out.push_str("--\n");
    out.push_str(&describe_snapshot(&session.snapshot()));
    expected.assert_eq(&out);
}

fn notification(line: &str) -> SessionNotification {
    let (session, update) = if line.starts_with('{') { ("s", line) } else { line.split_once(' ').unwrap() };
    let session = session.trim_matches('"').to_owned();
    SessionNotification::new(session, serde_json::from_str::<SessionUpdate>(update).unwrap())
}

fn message_kind_name(line: &str) -> &str {
    [("user_message", "User"), ("agent_message", "Agent"), ("agent_thought", "Thought")]
        .iter()
        .find_map(|(kind, name)| line.contains(kind).then_some(*name))
        .unwrap()
}

fn describe_snapshot(snapshot: &SessionSnapshot) -> String {
    let mut out = String::new();
    let json = |blocks: &[ContentBlock]| serde_json::to_string(blocks).unwrap();
    for entry in snapshot.timeline() {
        match entry {
            TimelineEntry::Message(message) => {
                write!(out, "{:?}", message.kind).unwrap();
                if let Some(id) = &message.id {
                    write!(out, " {id}").unwrap();
                    let found = snapshot.message_with_id(message.kind, id).unwrap();
                    assert_eq!(found.text(), message.text());
                }
                match message.body.blocks().as_slice() {
                    [ContentBlock::Text(text)] => writeln!(out, " {:?}", text.text),
                    blocks => writeln!(out, " {}", json(blocks)),
                }
                .unwrap();
            }
            TimelineEntry::ToolCall(call) => {
                assert_eq!(snapshot.tool_call(&call.id).unwrap().order, call.order);
                writeln!(out, "{}", serde_json::to_string(&call.to_tool_call()).unwrap()).unwrap();
            }
            TimelineEntry::Compaction(compaction) => {
                let Compaction { id, status, summary, error, meta, .. } = compaction;
                writeln!(out, "compaction {id} {status:?} {} {error:?} {meta:?}", json(&summary.blocks()))
                    .unwrap();
            }
        }
    }
    for entry in snapshot.plan() {
        writeln!(out, "plan {:?} {:?} {}", entry.status, entry.priority, entry.content).unwrap();
    }
    for command in snapshot.commands() {
        writeln!(out, "/{}", command.name).unwrap();
    }
    if let Some(mode) = snapshot.current_mode() {
        let offered: Vec<_> = snapshot.modes().iter().map(|mode| mode.id.to_string()).collect();
        writeln!(out, "mode {mode} of {offered:?}").unwrap();
    }
    for option in snapshot.config_options() {
        writeln!(out, "option {} {}", option.id, serde_json::to_string(&option.kind).unwrap()).unwrap();
    }
    if let Some(usage) = snapshot.usage() {
        writeln!(out, "usage {}", serde_json::to_string(usage).unwrap()).unwrap();
    }
    if snapshot.title().is_some() || snapshot.updated_at().is_some() {
        writeln!(out, "title {:?} at {:?}", snapshot.title(), snapshot.updated_at()).unwrap();
    }
    for notice in snapshot.notices() {
        writeln!(out, "notice {:?} {} ({})", notice.severity, notice.title, snapshot.notice_count()).unwrap();
    }
    if snapshot.evictions() != SessionEvictions::default() {
        let SessionEvictions { messages, tool_calls, compactions } = snapshot.evictions();
        for (name, lost) in [("messages", messages), ("tool calls", tool_calls), ("compactions", compactions)]
        {
            writeln!(out, "lost {name} {} {}", lost.items, lost.bytes).unwrap();
        }
    }
    out
}

fn list_limits(items: u64, bytes: u64) -> ListLimits {
    ListLimits { items, bytes }
}

fn options_with_limits(change: impl FnOnce(&mut AccumulatorLimits)) -> AccumulatorOptions {
    let mut options = AccumulatorOptions::default();
    change(&mut options.limits);
    options
}

#[test]
fn a_call_is_merged_field_by_field() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Run tests","kind":"execute","rawInput":{"a":1},"_meta":{"m":1}}
{"sessionUpdate":"tool_call","toolCallId":"t2","title":"Read","name":"read_file","status":"in_progress"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"one"}}]}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","content":[{"type":"content","content":{"type":"text","text":"two"}}],"locations":[{"path":"/a","line":3}]}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Ran tests","name":"bash","kind":"other","rawInput":{"a":2},"rawOutput":"ok","_meta":{"m":2}}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":null}
"#,
        expect![[r#"
            ToolCallAdded(ToolCallId("t1"))
            ToolCallAdded(ToolCallId("t2"))
            ToolCallUpdated(ToolCallId("t1"))
            ToolCallUpdated(ToolCallId("t1"))
            ToolCallUpdated(ToolCallId("t1"))
            ToolCallFinished(ToolCallId("t1"))
            --
            {"toolCallId":"t1","title":"Ran tests","name":"bash","status":"completed","content":[{"type":"content","content":{"type":"text","text":"two"}}],"locations":[{"path":"/a","line":3}],"rawInput":{"a":2},"rawOutput":"ok","_meta":{"m":2}}
            {"toolCallId":"t2","title":"Read","name":"read_file","status":"in_progress"}
        "#]],
    );
}

#[test]
fn a_finished_call_stays_finished() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Run tests","kind":"execute"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"failed"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"in_progress","title":"Again"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"pending"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","rawOutput":1}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
{"sessionUpdate":"tool_call","toolCallId":"t2","title":"Done at once","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"t2","status":"completed"}
"#,
        expect![[r#"
            ToolCallAdded(ToolCallId("t1"))
            ToolCallFinished(ToolCallId("t1"))
            ! tool call t1 is already Failed, it cannot become InProgress
            ! tool call t1 is already Failed, it cannot become Pending
            ToolCallUpdated(ToolCallId("t1"))
            ToolCallUpdated(ToolCallId("t1"))
            ToolCallAdded(ToolCallId("t2"))
            ToolCallUpdated(ToolCallId("t2"))
            --
            {"toolCallId":"t1","title":"Run tests","kind":"execute","status":"completed","rawOutput":1}
            {"toolCallId":"t2","title":"Done at once","status":"completed"}
        "#]],
    );
}

#[test]
fn a_call_is_announced_once_and_before_it_is_updated() {
    check(
        r#"
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"in_progress"}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"One"}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Two"}
{"sessionUpdate":"tool_call","toolCallId":"","title":"None"}
{"sessionUpdate":"tool_call_update","toolCallId":"","title":"None"}
"#,
        expect![[r#"
            ! tool call t1 was updated before it was announced
            ToolCallAdded(ToolCallId("t1"))
            ! tool call t1 was announced twice
            ! the tool call id is empty
            ! the tool call id is empty
            --
            {"toolCallId":"t1","title":"One"}
        "#]],
    );
}

#[test]
fn a_first_update_with_a_title_announces_its_call() {
    check(
        r#"
{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Edit","kind":"edit","status":"completed","_meta":{"m":1}}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit"}
"#,
        expect![[r#"
            ToolCallAdded(ToolCallId("t1"))
            ! tool call t1 was announced twice
            --
            {"toolCallId":"t1","title":"Edit","kind":"edit","status":"completed","_meta":{"m":1}}
        "#]],
    );
}

#[test]
fn an_update_of_a_call_that_had_to_go_is_no_breach() {
    check_with(
        options_with_limits(|limits| limits.tool_calls = list_limits(2, 10_000)),
        r#"
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"One"}
{"sessionUpdate":"tool_call","toolCallId":"t2","title":"Two"}
{"sessionUpdate":"tool_call","toolCallId":"t3","title":"Three"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"t3","status":"completed"}
"#,
        expect![[r#"
            ToolCallAdded(ToolCallId("t1"))
            ToolCallAdded(ToolCallId("t2"))
            ToolCallAdded(ToolCallId("t3"))
            ToolCallEvicted(ToolCallId("t1"))
            ToolCallFinished(ToolCallId("t3"))
            --
            {"toolCallId":"t2","title":"Two"}
            {"toolCallId":"t3","title":"Three","status":"completed"}
            lost messages 0 0
            lost tool calls 1 261
            lost compactions 0 0
        "#]],
    );
}

#[test]
fn the_oldest_calls_go_when_all_are_too_large() {
    // Each counts 256 bytes, its id and its title; t3 also counts its output.
    check_with(
        options_with_limits(|limits| limits.tool_calls = list_limits(10, 797)),
        r#"
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"One"}
{"sessionUpdate":"tool_call","toolCallId":"t2","title":"Two"}
{"sessionUpdate":"tool_call","toolCallId":"t3","title":"Three"}
{"sessionUpdate":"tool_call_update","toolCallId":"t3","rawOutput":"0123456789"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"t3","rawOutput":"01234567890"}
"#,
        expect![[r#"
            ToolCallAdded(ToolCallId("t1"))
            ToolCallAdded(ToolCallId("t2"))
            ToolCallAdded(ToolCallId("t3"))
            ToolCallUpdated(ToolCallId("t3"))
            ToolCallFinished(ToolCallId("t1"))
            ToolCallUpdated(ToolCallId("t3"))
            --
            {"toolCallId":"t2","title":"Two"}
            {"toolCallId":"t3","title":"Three","rawOutput":"01234567890"}
            lost messages 0 0
            lost tool calls 1 261
            lost compactions 0 0
        "#]],
    );
}

#[test]
fn a_call_counts_for_what_it_holds_and_not_for_what_it_held() {
    let mut session = SessionAccumulator::new();
    for line in [
        r#"{"sessionUpdate":"tool_call","toolCallId":"t1","title":"A title","rawInput":"0123"}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"A longer title","name":"long","rawInput":"01234567","rawOutput":[0,1,2],"locations":[{"path":"/a"},{"path":"/b"}],"content":[{"type":"terminal","terminalId":"abc"}],"_meta":{"m":"0123"}}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"B","name":"longer","rawInput":0,"rawOutput":[0,1],"locations":[{"path":"/a"}],"content":[],"_meta":{"m":"01234567"}}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}"#,
    ] {
        session.apply(&notification(line)).unwrap();
        let snapshot = session.snapshot();
        let call = snapshot.tool_calls().next().unwrap();
        let ToolCall { title, name, content, locations, raw_input, raw_output, meta, .. } =
            call.to_tool_call();
        let json = |value: serde_json::Value| if value.is_null() { 0 } else { value.to_string().len() };
        let fields = title.len()
            + name.map_or(0, |name| name.len())
            + json(serde_json::to_value(content).unwrap())
            + json(serde_json::to_value(locations).unwrap())
            + json(serde_json::to_value(raw_input).unwrap())
            + json(serde_json::to_value(raw_output).unwrap())
            + json(serde_json::to_value(meta).unwrap());
        // Two empty lists have no size, but serialise as two brackets each.
        assert_eq!(
            bounded_list::ListItem::bytes(call),
            256 + "t1".len() as u64 + fields as u64 - 4,
            "{line}"
        );
    }
}

#[test]
fn chunks_with_one_id_are_one_message_wherever_they_come() {
    check(
        r#"
{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"Hel"}}
{"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":"Two"}}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read"}
{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"lo"}}
{"sessionUpdate":"agent_thought_chunk","messageId":"m1","content":{"type":"text","text":"Hm"}}
{"sessionUpdate":"user_message_chunk","messageId":"m1","content":{"type":"text","text":"Hi"}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"no id"}}
{"sessionUpdate":"agent_message_chunk","messageId":"","content":{"type":"text","text":", nor here"}}
"#,
        expect![[r#"
            MessageStarted(MessageRef(0))
            MessageStarted(MessageRef(1))
            ToolCallAdded(ToolCallId("t1"))
            MessageContinued(MessageRef(0))
            MessageStarted(MessageRef(2))
            MessageStarted(MessageRef(3))
            MessageStarted(MessageRef(4))
            MessageContinued(MessageRef(4))
            --
            Agent m1 "Hello"
            Agent m2 "Two"
            {"toolCallId":"t1","title":"Read"}
            Thought m1 "Hm"
            User m1 "Hi"
            Agent "no id, nor here"
        "#]],
    );
}

#[test]
fn chunks_without_an_id_are_one_message_until_something_comes_between() {
    check(
        r#"
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"Do "}}
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"it"}}
{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Let me"}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I "}}
{"sessionUpdate":"usage_update","used":1,"size":2}
{"sessionUpdate":"plan","entries":[]}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"will"}}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read"}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Rea"}}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"ding"}}
{"sessionUpdate":"tool_call_update","toolCallId":"t2","title":"Edit"}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Edited"}}
{"sessionUpdate":"compaction_update","compactionId":"c1","status":"completed"}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"End"}}
{"sessionUpdate":"compaction_update","compactionId":"c1","status":"failed"}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":" of turn"}}
-
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Next turn"}}
{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"Named"}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":" and on"}}
"#,
        expect![[r#"
            MessageStarted(MessageRef(0))
            MessageContinued(MessageRef(0))
            MessageStarted(MessageRef(1))
            MessageStarted(MessageRef(2))
            Usage
            Plan
            MessageContinued(MessageRef(2))
            ToolCallAdded(ToolCallId("t1"))
            MessageStarted(MessageRef(3))
            ToolCallFinished(ToolCallId("t1"))
            MessageContinued(MessageRef(3))
            ToolCallAdded(ToolCallId("t2"))
            MessageStarted(MessageRef(4))
            CompactionAdded(CompactionId("c1"))
            MessageStarted(MessageRef(5))
            CompactionUpdated(CompactionId("c1"))
            MessageContinued(MessageRef(5))
            MessageStarted(MessageRef(6))
            MessageStarted(MessageRef(7))
            MessageContinued(MessageRef(7))
            --
            User "Do it"
            Thought "Let me"
            Agent "I will"
            {"toolCallId":"t1","title":"Read","status":"completed"}
            Agent "Reading"
            {"toolCallId":"t2","title":"Edit"}
            Agent "Edited"
            compaction c1 Failed [] None None
            Agent "End of turn"
            Agent "Next turn"
            Agent m1 "Named and on"
            usage {"used":1,"size":2}
        "#]],
    );
}

#[test]
fn blocks_that_are_not_text_keep_their_place() {
    check(
        r#"
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"See "}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"this:"}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","name":"a","uri":"file:///a"}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"!"}}
"#,
        expect![[r#"
            MessageStarted(MessageRef(0))
            MessageContinued(MessageRef(0))
            MessageContinued(MessageRef(0))
            MessageContinued(MessageRef(0))
            --
            Agent [{"type":"text","text":"See this:"},{"type":"resource_link","name":"a","uri":"file:///a"},{"type":"text","text":"!"}]
        "#]],
    );
}

#[test]
fn the_oldest_messages_go_and_are_cut_at_the_front() {
    let text = |id: &str, length: usize| {
        format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{{"type":"text","text":"{}"}}}}"#,
            id.repeat(length)
        )
    };
    check_with(
        options_with_limits(|limits| limits.messages = list_limits(2, 100_000)),
        &[text("a", 1), text("b", 1), text("c", 1), text("a", 2)].join("\n"),
        expect![[r#"
            MessageStarted(MessageRef(0))
            MessageStarted(MessageRef(1))
            MessageStarted(MessageRef(2))
            MessageStarted(MessageRef(3))
            --
            Agent c "c"
            Agent a "aa"
            lost messages 2 388
            lost tool calls 0 0
            lost compactions 0 0
        "#]],
    );
    check_with(
        options_with_limits(|limits| limits.messages = list_limits(10, 1100)),
        &[text("a", 300), text("a", 300), text("b", 30), text("b", 300)].join("\n"),
        expect![[r#"
            MessageStarted(MessageRef(0))
            MessageContinued(MessageRef(0))
            MessageStarted(MessageRef(1))
            MessageContinued(MessageRef(1))
            --
            Agent a "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            Agent b "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
            lost messages 0 364
            lost tool calls 0 0
            lost compactions 0 0
        "#]],
    );
}

#[test]
fn a_chunk_without_an_id_of_a_message_that_had_to_go_starts_another() {
    check_with(
        options_with_limits(|limits| limits.messages = list_limits(0, 0)),
        r#"
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"b"}}
"#,
        expect![[r#"
            MessageStarted(MessageRef(0))
            MessageStarted(MessageRef(1))
            --
            lost messages 2 386
            lost tool calls 0 0
            lost compactions 0 0
        "#]],
    );
}

#[test]
fn what_is_sent_whole_is_replaced_whole() {
    check(
        r#"
{"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"pending"},{"content":"two","priority":"low","status":"pending"}]}
{"sessionUpdate":"plan","entries":[{"content":"three","priority":"medium","status":"in_progress"}]}
{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"old","description":""}]}
{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"test","description":""},{"name":"web","description":""}]}
{"sessionUpdate":"current_mode_update","currentModeId":"ask"}
{"sessionUpdate":"current_mode_update","currentModeId":"code"}
{"sessionUpdate":"config_option_update","configOptions":[{"id":"old","name":"Old","type":"select","currentValue":"a","options":[]}]}
{"sessionUpdate":"config_option_update","configOptions":[{"id":"model","name":"Model","type":"select","currentValue":"a","options":[{"value":"a","name":"A"}]}]}
{"sessionUpdate":"usage_update","used":1,"size":10,"cost":{"amount":0.5,"currency":"USD"}}
{"sessionUpdate":"usage_update","used":2,"size":10}
"#,
        expect![[r#"
            Plan
            Plan
            Commands
            Commands
            Mode
            Mode
            ConfigOptions
            ConfigOptions
            Usage
            Usage
            --
            plan InProgress Medium three
            /test
            /web
            mode code of []
            option model {"type":"select","currentValue":"a","options":[{"value":"a","name":"A"}]}
            usage {"used":2,"size":10}
        "#]],
    );
}

#[test]
fn session_info_changes_what_it_names_and_clears_what_is_null() {
    check(
        r#"
{"sessionUpdate":"session_info_update","title":"One","updatedAt":"2025-01-01T00:00:00Z"}
{"sessionUpdate":"session_info_update","title":"Two"}
"#,
        expect![[r#"
            Info
            Info
            --
            title Some("Two") at Some("2025-01-01T00:00:00Z")
        "#]],
    );
    check(
        r#"
{"sessionUpdate":"session_info_update","title":"One","updatedAt":"2025-01-01T00:00:00Z"}
{"sessionUpdate":"session_info_update","title":null,"updatedAt":"2025-01-02T00:00:00Z"}
"#,
        expect![[r#"
            Info
            Info
            --
            title None at Some("2025-01-02T00:00:00Z")
        "#]],
    );
}

#[test]
fn notices_are_kept_lately_and_counted() {
    check_with(
        options_with_limits(|limits| limits.notices = list_limits(2, 200)),
        r#"
{"sessionUpdate":"notice","severity":"info","title":"one"}
{"sessionUpdate":"notice","severity":"warning","title":"two","description":"why"}
{"sessionUpdate":"notice","severity":"_custom","title":"three"}
"#,
        expect![[r#"
            Notice
            Notice
            Notice
            --
            notice Warning two (3)
            notice Other("_custom") three (3)
        "#]],
    );
    check_with(
        options_with_limits(|limits| limits.notices = list_limits(10, 90)),
        r#"
{"sessionUpdate":"notice","severity":"info","title":"one"}
{"sessionUpdate":"notice","severity":"info","title":"two"}
{"sessionUpdate":"notice","severity":"info","title":"three"}
"#,
        expect![[r#"
            Notice
            Notice
            Notice
            --
            notice Info two (3)
            notice Info three (3)
        "#]],
    );
}

#[test]
fn a_compaction_is_changed_in_place_and_its_summary_grows() {
    check(
        r#"
{"sessionUpdate":"compaction_summary_chunk","compactionId":"c1","content":{"type":"text","text":"We "}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"after"}}
{"sessionUpdate":"compaction_summary_chunk","compactionId":"c1","content":{"type":"text","text":"did"}}
{"sessionUpdate":"compaction_update","compactionId":"c1","status":"failed","error":"full","_meta":{"m":1}}
{"sessionUpdate":"compaction_update","compactionId":"c2","status":"completed","summary":[{"type":"text","text":"whole"}],"error":"e","_meta":{"m":1}}
{"sessionUpdate":"compaction_update","compactionId":"c2","status":"_odd","summary":null,"error":null,"_meta":null}
{"sessionUpdate":"compaction_update","compactionId":"c1","status":"completed"}
{"sessionUpdate":"compaction_update","compactionId":"","status":"completed"}
{"sessionUpdate":"compaction_summary_chunk","compactionId":"","content":{"type":"text","text":"did"}}
"#,
        expect![[r#"
            CompactionAdded(CompactionId("c1"))
            MessageStarted(MessageRef(0))
            CompactionUpdated(CompactionId("c1"))
            CompactionUpdated(CompactionId("c1"))
            CompactionAdded(CompactionId("c2"))
            CompactionUpdated(CompactionId("c2"))
            CompactionUpdated(CompactionId("c1"))
            ! the compaction id is empty
            ! the compaction id is empty
            --
            compaction c1 Completed [{"type":"text","text":"We did"}] Some("full") Some({"m": Number(1)})
            Agent "after"
            compaction c2 Other("_odd") [] None None
        "#]],
    );
}

#[test]
fn the_oldest_compactions_go_and_their_summaries_are_cut_at_the_front() {
    let zeros = "0".repeat(300);
    let chunk = format!(
        r#"{{"sessionUpdate":"compaction_summary_chunk","compactionId":"c2","content":{{"type":"text","text":"{zeros}"}}}}"#
    );
    check_with(
        options_with_limits(|limits| limits.compactions = list_limits(10, 800)),
        &[
            r#"{"sessionUpdate":"compaction_update","compactionId":"c1","status":"_abc","error":"0123456789","_meta":{"m":1}}"#,
            &chunk,
            &chunk,
            &chunk,
        ]
        .join("\n"),
        expect![[r#"
            CompactionAdded(CompactionId("c1"))
            CompactionAdded(CompactionId("c2"))
            CompactionUpdated(CompactionId("c2"))
            CompactionUpdated(CompactionId("c2"))
            --
            compaction c2 InProgress [{"type":"text","text":"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"}] None None
            lost messages 0 0
            lost tool calls 0 0
            lost compactions 1 879
        "#]],
    );
}

#[test]
fn a_message_of_another_session_is_followed() {
    check(
        r#"
s1 {"sessionUpdate":"session_info_update","title":"One"}
s1 {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read"}
s2 {"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
"" {"sessionUpdate":"session_info_update","title":"None"}
s1 {"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
s2 {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}
s2 {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"!"}}
"#,
        expect![[r#"
            Info
            ToolCallAdded(ToolCallId("t1"))
            ! tool call t1 was updated before it was announced
            ! the session id is empty
            ToolCallFinished(ToolCallId("t1"))
            Switched
            MessageContinued(MessageRef(0))
            --
            Agent "Hi!"
        "#]],
    );
}

#[test]
fn a_message_of_another_session_is_refused_if_so_told() {
    check_with(
        AccumulatorOptions { other_session: OtherSessionBehavior::Refuse, ..AccumulatorOptions::default() },
        r#"
s1 {"sessionUpdate":"session_info_update","title":"One"}
s2 {"sessionUpdate":"session_info_update","title":"Two"}
s1 {"sessionUpdate":"session_info_update","updatedAt":"now"}
"#,
        expect![[r#"
            Info
            ! session s2 is not the session s1 that is followed here
            Info
            --
            title Some("One") at Some("now")
        "#]],
    );
}

#[test]
fn the_answer_that_opens_a_session_gives_modes_and_options() {
    let modes: SessionModeState = serde_json::from_str(
        r#"{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code"}]}"#,
    )
    .unwrap();
    let options: Vec<SessionConfigOption> =
        serde_json::from_str(r#"[{"id":"b","name":"B","type":"select","currentValue":"x","options":[]}]"#)
            .unwrap();
    let mut session = SessionAccumulator::new();
    session.apply(&notification(r#"s1 {"sessionUpdate":"session_info_update","title":"One"}"#)).unwrap();
    session.apply_session_setup(&"s1".into(), Some(&modes), Some(&options)).unwrap();
    session.apply_session_setup(&"s1".into(), None, None).unwrap();
    session
        .apply(&notification(r#"s1 {"sessionUpdate":"current_mode_update","currentModeId":"code"}"#))
        .unwrap();
    expect![[r#"
        mode code of ["ask", "code"]
        option b {"type":"select","currentValue":"x","options":[]}
        title Some("One") at None
    "#]]
    .assert_eq(&describe_snapshot(&session.snapshot()));
    session.apply_session_setup(&"s2".into(), None, Some(&options)).unwrap();
    assert_eq!(session.snapshot().session_id(), Some(&"s2".into()));
    expect![[r#"
        option b {"type":"select","currentValue":"x","options":[]}
    "#]]
    .assert_eq(&describe_snapshot(&session.snapshot()));
    assert_eq!(
        session.apply_session_setup(&"".into(), None, None),
        Err(SessionViolation::EmptyId(IdKind::Session))
    );
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let mut session = SessionAccumulator::new();
    let mut kept = Vec::new();
    for at in 0..200 {
        let line = match at % 4 {
            0 => format!(r#"{{"sessionUpdate":"tool_call","toolCallId":"t{at}","title":"Read"}}"#),
            1 => r#"{"sessionUpdate":"tool_call_update","toolCallId":"t0","status":"in_progress"}"#.to_owned(),
            2 => r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"word "}}"#
                .to_owned(),
            _ => format!(r#"{{"sessionUpdate":"session_info_update","title":"{at}"}}"#),
        };
        session.apply(&notification(&line)).unwrap();
        kept.push((session.snapshot(), describe_snapshot(&session.snapshot())));
    }
    session.reset();
    for (snapshot, shown) in kept {
        assert_eq!(describe_snapshot(&snapshot), shown);
    }
}

#[test]
fn a_subscriber_hears_of_each_message_that_is_taken_in_until_it_leaves() {
    let (sender, receiver) = mpsc::channel();
    let mut session = SessionAccumulator::new();
    let mut subscribe = |name: &'static str| {
        let sender = sender.clone();
        let callback = move |snapshot: &SessionSnapshot, notification: &SessionNotification| {
            sender.send(format!("{name} {} {:?}", notification.session_id, snapshot.title())).unwrap();
        };
        session.subscribe(callback).unwrap()
    };
    let (first, second) = (subscribe("first"), subscribe("second"));
    let title = |session: &mut SessionAccumulator, title: &str| {
        session
            .apply(&notification(&format!(r#"{{"sessionUpdate":"session_info_update","title":"{title}"}}"#)))
            .unwrap();
    };
    title(&mut session, "one");
    session
        .apply(&notification(r#"{"sessionUpdate":"tool_call_update","toolCallId":"t"}"#))
        .expect_err("not announced");
    assert!(session.unsubscribe(first));
    assert!(!session.unsubscribe(first));
    title(&mut session, "two");
    session.reset();
    title(&mut session, "three");
    assert!(session.unsubscribe(second));
    title(&mut session, "four");
    expect![[r#"
        first s Some("one")
        second s Some("one")
        second s Some("two")
        second s Some("three")"#]]
    .assert_eq(&receiver.try_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_number_of_subscribers_is_capped() {
    let mut session = SessionAccumulator::new();
    let ids: Vec<_> = (0..MAX_SUBSCRIBERS).map(|_| session.subscribe(|_, _| {}).unwrap()).collect();
    assert_eq!(session.subscribe(|_, _| {}), Err(TooManySubscribersError));
    assert_eq!(TooManySubscribersError.to_string(), "there are already 64 subscribers");
    assert!(session.unsubscribe(ids[3]));
    let new = session.subscribe(|_, _| {}).unwrap();
    assert!(!ids.contains(&new));
    assert!(format!("{session:?}").contains("subscribers: 64"));
}

#[test]
fn a_reset_forgets_everything() {
    let mut session = SessionAccumulator::new();
    session
        .apply(&notification(r#"{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read"}"#))
        .unwrap();
    session.reset();
    assert_eq!(describe_snapshot(&session.snapshot()), "");
    assert_eq!(session.snapshot().session_id(), None);
}

/// Folds updates while holding a snapshot, so that nothing can be changed in place. Checks that the last quarter causes
/// no more work than the second, by which the limits are already reached, and that no single update causes much. Work
/// is slots and bytes copied.
fn check_linear(count: u64, update: impl Fn(u64) -> SessionUpdate) {
    let mut session =
        SessionAccumulator::with_options(options_with_limits(|limits| limits.messages.items = 4096));
    let mut held = session.snapshot();
    let mut work_of_quarter = |quarter: u64| {
        let before = work::total();
        for at in quarter * count / 4..(quarter + 1) * count / 4 {
            session.apply(&SessionNotification::new("s", update(at))).unwrap();
            held = session.snapshot();
        }
        work::total() - before
    };
    let work: Vec<u64> = (0..4).map(&mut work_of_quarter).collect();
    assert!(work[3] <= work[1] * 12 / 10, "{work:?}");
    assert!(work.iter().all(|work| work / (count / 4) <= 500), "{work:?}");
    assert!(held.session_id().is_some());
}

fn message_chunk(id: Option<String>, text: &str) -> SessionUpdate {
    let id = id.map(agent_client_protocol_schema::v1::MessageId::from);
    SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()).message_id(id))
}

#[test]
fn chunks_of_one_message_cost_the_same_however_long_it_is() {
    check_linear(100_000, |_| message_chunk(None, "word "));
}

#[test]
fn messages_cost_the_same_however_many_there_are() {
    check_linear(20_000, |at| message_chunk(Some(at.to_string()), "word "));
}

#[test]
fn tool_calls_cost_the_same_however_many_there_are() {
    check_linear(20_000, |at| SessionUpdate::ToolCall(ToolCall::new(at.to_string(), "Read")));
}

#[test]
fn a_change_of_a_call_does_not_copy_what_it_holds() {
    let mut session = SessionAccumulator::new();
    let output = "0".repeat(1 << 20);
    let call =
        ToolCall::new("t", "Read").raw_output(serde_json::Value::from(output)).content(vec!["a".into()]);
    session.apply(&SessionNotification::new("s", SessionUpdate::ToolCall(call))).unwrap();
    let before = session.snapshot();
    session
        .apply(&notification(r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}"#))
        .unwrap();
    let after = session.snapshot();
    let (before, after) = (before.tool_calls().next().unwrap(), after.tool_calls().next().unwrap());
    assert!(!before.is_finished() && after.is_finished());
    assert!(Arc::ptr_eq(before.raw_output.as_ref().unwrap(), after.raw_output.as_ref().unwrap()));
    assert!(Arc::ptr_eq(&before.content, &after.content));
}

#[test]
fn the_text_of_a_message_is_that_of_its_chunks() {
    let mut session = SessionAccumulator::new();
    for text in ["Hel", "lo"] {
        let chunk = serde_json::json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        let notification = serde_json::json!({"sessionId": "s", "update": chunk});
        session.apply(&serde_json::from_value(notification).unwrap()).unwrap();
    }
    let texts: Vec<String> = session.snapshot().messages().map(|message| message.text()).collect();
    assert_eq!(texts, ["Hello"]);
}

#[test]
fn cancelling_marks_the_calls_that_have_not_finished() {
    let mut session = SessionAccumulator::new();
    let apply = |session: &mut SessionAccumulator, update: &str| {
        let update = format!(r#"{{"sessionId":"s","update":{update}}}"#);
        session.apply(&serde_json::from_str(&update).unwrap()).unwrap();
    };
    apply(
        &mut session,
        r#"{"sessionUpdate":"tool_call","toolCallId":"done","title":"a","status":"completed"}"#,
    );
    apply(
        &mut session,
        r#"{"sessionUpdate":"tool_call","toolCallId":"open","title":"b","status":"in_progress"}"#,
    );
    apply(&mut session, r#"{"sessionUpdate":"tool_call","toolCallId":"last","title":"c"}"#);
    session.cancel_open_tool_calls();
    let cancelled = |session: &SessionAccumulator| -> Vec<String> {
        let snapshot = session.snapshot();
        snapshot.tool_calls().filter(|call| call.cancelled).map(|call| call.id.0.to_string()).collect()
    };
    assert_eq!(cancelled(&session), ["open", "last"]);
    apply(&mut session, r#"{"sessionUpdate":"tool_call_update","toolCallId":"open","title":"still b"}"#);
    apply(&mut session, r#"{"sessionUpdate":"tool_call_update","toolCallId":"last","status":"completed"}"#);
    assert_eq!(cancelled(&session), ["open"]);
}
