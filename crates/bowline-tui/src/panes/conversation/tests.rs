//! Tests of the conversation: what is visible, and in which order.

use std::time::Instant;

use bowline_protocol::accumulator::SessionAccumulator;
use bowline_protocol::schema::v1::{ContentChunk, MessageId, SessionNotification, SessionUpdate, ToolCall};

use super::*;

fn line_texts(lines: &[Line<'_>]) -> Vec<String> {
    lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
}

fn apply_update(session: &mut SessionAccumulator, update: SessionUpdate) {
    session.apply(&SessionNotification::new("s1", update)).unwrap();
}

fn agent_chunk(text: &str) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()))
}

fn user_chunk(text: &str) -> SessionUpdate {
    SessionUpdate::UserMessageChunk(ContentChunk::new(text.into()))
}

/// A conversation of `count` messages of one line each.
fn conversation_with(count: usize) -> (SessionAccumulator, Conversation) {
    let mut session = SessionAccumulator::new();
    for number in 0..count {
        let chunk = ContentChunk::new(format!("message {number}").into())
            .message_id(MessageId::new(format!("m{number}")));
        apply_update(&mut session, SessionUpdate::AgentMessageChunk(chunk));
    }
    let mut conversation = Conversation::default();
    conversation.update(session.snapshot(), Duration::ZERO);
    (session, conversation)
}

#[test]
fn what_the_person_said_stands_where_it_was_said() {
    let mut session = SessionAccumulator::new();
    let mut conversation = Conversation::default();
    conversation.add_prompt("one?".to_owned());
    apply_update(&mut session, agent_chunk("one!"));
    conversation.update(session.snapshot(), Duration::ZERO);
    session.mark_turn_boundary();
    conversation.add_prompt("two?".to_owned());
    conversation.add_note(NoteLevel::Info, "by the way");
    apply_update(&mut session, agent_chunk("two!"));
    conversation.update(session.snapshot(), Duration::ZERO);
    let (lines, _) = conversation.visible_lines(40, 20);
    assert_eq!(line_texts(&lines), ["❯ one?", "", "one!", "", "❯ two?", "", "· by the way", "", "two!"]);
}

#[test]
fn a_prompt_that_the_agent_repeats_is_shown_once() {
    let mut session = SessionAccumulator::new();
    let mut conversation = Conversation::default();
    conversation.add_prompt("one?".to_owned());
    apply_update(&mut session, user_chunk("one?"));
    apply_update(&mut session, agent_chunk("one!"));
    conversation.update(session.snapshot(), Duration::ZERO);
    let (lines, _) = conversation.visible_lines(40, 20);
    assert_eq!(line_texts(&lines), ["❯ one?", "", "one!"]);
}

#[test]
fn only_what_is_in_sight_is_laid_out() {
    let (_, mut conversation) = conversation_with(9_000);
    let (lines, _) = conversation.visible_lines(80, 20);
    assert_eq!(line_texts(&lines).last().map(String::as_str), Some("message 8999"));
    assert!(conversation.layout_cache.len() <= 21, "{} were laid out", conversation.layout_cache.len());
    conversation.scroll_to_start();
    let (lines, _) = conversation.visible_lines(80, 20);
    assert_eq!(line_texts(&lines)[0], "message 0");
    assert!(conversation.layout_cache.len() <= 42);
    let started = Instant::now();
    for _ in 0..30 {
        conversation.visible_lines(80, 20);
    }
    // The limit allows for a slow machine without optimisation.
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[test]
fn one_can_go_up_and_down_line_by_line() {
    let (_, mut conversation) = conversation_with(50);
    conversation.visible_lines(80, 10);
    for _ in 0..500 {
        conversation.scroll(-1);
        conversation.visible_lines(80, 10);
    }
    let (lines, _) = conversation.visible_lines(80, 10);
    assert_eq!(line_texts(&lines)[0], "message 0");
    let mut seen = Vec::new();
    while !conversation.is_following() {
        let (lines, _) = conversation.visible_lines(80, 10);
        seen.extend(line_texts(&lines));
        conversation.scroll(1);
        conversation.visible_lines(80, 10);
    }
    for number in 0..50 {
        assert!(seen.contains(&format!("message {number}")), "message {number} was never in sight");
    }
}

#[test]
fn what_is_selected_comes_in_sight() {
    let (mut session, _) = conversation_with(100);
    apply_update(&mut session, SessionUpdate::ToolCall(ToolCall::new("t1", "the call")));
    for number in 0..100 {
        let chunk = ContentChunk::new(format!("later {number}").into())
            .message_id(MessageId::new(format!("l{number}")));
        apply_update(&mut session, SessionUpdate::AgentMessageChunk(chunk));
    }
    let mut conversation = Conversation::default();
    conversation.update(session.snapshot(), Duration::ZERO);
    conversation.visible_lines(80, 10);
    assert!(conversation.move_selection(true));
    let (lines, selected_row) = conversation.visible_lines(80, 10);
    let selected_row = selected_row.expect("it is in sight");
    assert!(line_texts(&lines)[selected_row].contains("the call"));
    conversation.toggle_selected();
    let (lines, _) = conversation.visible_lines(80, 10);
    assert!(line_texts(&lines).iter().any(|line| line.contains("nothing to show")));
}

#[test]
fn a_huge_message_is_shown_from_its_end() {
    let mut session = SessionAccumulator::new();
    for number in 0..40_000 {
        apply_update(&mut session, agent_chunk(&format!("paragraph number {number}\n\n")));
    }
    let mut conversation = Conversation::default();
    conversation.update(session.snapshot(), Duration::ZERO);
    let (lines, _) = conversation.visible_lines(80, 10);
    assert!(line_texts(&lines).iter().any(|line| line == "paragraph number 39999"));
    conversation.scroll_to_start();
    let (lines, _) = conversation.visible_lines(80, 10);
    assert!(line_texts(&lines)[0].contains("bytes before this are not shown"), "{:?}", line_texts(&lines));
}

#[test]
fn output_is_put_together_over_characters_that_came_in_parts() {
    let mut terminals = TerminalViews::default();
    terminals.add("t".into());
    for bytes in [&b"a\xe6\x97"[..], b"\xa5b\xff\r\n", b"\x1b[3", b"1mred"] {
        terminals.feed(&"t".into(), bytes);
    }
    let lines = terminals.get(&"t".into()).unwrap().output.lines();
    assert_eq!(line_texts(&lines), ["a日b\u{fffd}", "red"]);
}

#[test]
fn the_time_of_a_call_is_that_of_its_work() {
    let mut session = SessionAccumulator::new();
    let mut conversation = Conversation::default();
    let mut render_at = |seconds: u64, update: &str| {
        apply_update(&mut session, serde_json::from_str(update).unwrap());
        conversation.update(session.snapshot(), Duration::from_secs(seconds));
        let (lines, _) = conversation.visible_lines(40, 10);
        line_texts(&lines)[0].clone()
    };
    render_at(0, r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"T","status":"pending"}"#);
    render_at(50, r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress"}"#);
    let line = render_at(54, r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}"#);
    assert_eq!(line, "▸ ✓ tool   T                        4.0s");
}

#[test]
fn a_text_is_found_above_and_below_and_marked() {
    let (_, mut conversation) = conversation_with(200);
    let mut find = |text: &str, direction| {
        let is_found = conversation.find_text(text, direction);
        let (lines, match_row) = conversation.visible_lines(40, 10);
        (is_found, match_row.map(|row| lines[row].to_string()).unwrap_or_default())
    };
    let message = |number: usize| (true, format!("message {number}"));
    assert_eq!(find("MESSAGE 1", SearchDirection::Older), message(199));
    assert_eq!(find("age 17", SearchDirection::Older), message(179));
    assert_eq!(find("age 17", SearchDirection::Older), message(178));
    assert_eq!(find("age 17", SearchDirection::Newer), message(179));
    assert!(!find("age 17", SearchDirection::Newer).0, "there is none below");
    assert!(!find("nowhere", SearchDirection::Older).0);
    assert_eq!(
        find("age 17", SearchDirection::Older),
        message(178),
        "it goes on from the last that was found"
    );
    conversation.end_search();
    assert_eq!(conversation.visible_lines(40, 10).1, None);
}

#[test]
fn no_time_counts_while_a_person_is_asked_or_after_the_turn() {
    let mut session = SessionAccumulator::new();
    let mut conversation = Conversation::default();
    let seconds = Duration::from_secs;
    conversation.set_time(seconds(0), true);
    for (id, status) in [("t", "pending"), ("u", "in_progress")] {
        let update =
            format!(r#"{{"sessionUpdate":"tool_call","toolCallId":"{id}","title":"T","status":"{status}"}}"#);
        apply_update(&mut session, serde_json::from_str(&update).unwrap());
    }
    conversation.update(session.snapshot(), seconds(0));
    let render_at = |conversation: &mut Conversation, elapsed: u64, is_turn_running: bool| {
        conversation.set_time(seconds(elapsed), is_turn_running);
        line_texts(&conversation.visible_lines(40, 10).0)
    };
    let during = ["▸ ○ tool   T", "▸ ◐ tool   T                        5.0s"];
    assert_eq!(render_at(&mut conversation, 5, true), during);
    let after = render_at(&mut conversation, 7, false);
    assert_eq!(after[1], "▸ ◐ tool   T                        7.0s");
    assert_eq!(render_at(&mut conversation, 60, false), after, "it stands still");
}
