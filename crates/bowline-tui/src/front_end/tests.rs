//! Tests of the inbox: what it queues, and how much.

use bowline_host::{Approver as _, FrontEnd as _};
use bowline_protocol::accumulator::SessionAccumulator;
use bowline_protocol::schema::v1::{ContentChunk, SessionNotification, SessionUpdate};

use super::*;
use crate::app::tests::permission_event;

fn sample_question() -> Arc<Question> {
    match permission_event(7) {
        ChatEvent::PermissionRequested(question) => question,
        event => panic!("{event:?}"),
    }
}

#[tokio::test]
async fn a_flood_of_updates_leaves_the_newest_state() {
    let inbox = Inbox::default();
    let mut session = SessionAccumulator::new();
    for number in 0..50_000 {
        let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(format!("{number} ").into()));
        let notification = SessionNotification::new("s1", update);
        let change = session.apply(&notification).unwrap();
        inbox.show(HostEvent::Update {
            notification: &notification,
            change: &change,
            snapshot: session.snapshot(),
        });
    }
    inbox.wait_for_event().await;
    match &inbox.take_events()[..] {
        [ChatEvent::SessionUpdated(_, snapshot)] => {
            assert!(snapshot.messages().next().unwrap().text().ends_with("49999 "));
        }
        events => panic!("{events:?}"),
    }
    assert!(inbox.take_events().is_empty());
}

#[test]
fn remarks_and_output_have_their_caps() {
    let inbox = Inbox::default();
    // The oldest of all, and not a note.
    inbox.push(ChatEvent::TurnEnded(Err("over".to_owned())));
    for number in 0..5000 {
        inbox.notify(&format!("remark {number}"));
    }
    for number in 0..100_u8 {
        inbox.push_output(&"t".into(), &vec![number; 100_000]);
    }
    let events = inbox.take_events();
    let (mut notes, mut others, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            ChatEvent::Note(_, text) => notes.push(text),
            ChatEvent::TerminalOutput(_, bytes) => output.push(bytes),
            event => others.push(event),
        }
    }
    assert!(matches!(&others[..], [ChatEvent::TurnEnded(_)]), "what matters is there: {others:?}");
    let newest: Vec<String> =
        (5001 - MAX_QUEUED_EVENTS..5000).map(|number| format!("remark {number}")).collect();
    assert_eq!(notes, newest);
    let newest: Vec<u8> = (97..100).flat_map(|number| vec![number; 100_000]).collect();
    assert_eq!(output, [&newest[newest.len() - MAX_OUTPUT..]]);
}

#[test]
fn output_beyond_the_visible_lines_is_dropped() {
    let inbox = Inbox::default();
    for number in 0..5000 {
        inbox.push_output(&"t".into(), format!("line {number}\n").as_bytes());
    }
    inbox.push_output(&"t".into(), b"half");
    match &inbox.take_events()[..] {
        [ChatEvent::TerminalOutput(_, bytes)] => {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert_eq!(text.lines().count(), MAX_LINES + 1);
            assert_eq!(text.lines().next(), Some(format!("line {}", 5000 - MAX_LINES).as_str()));
            assert!(text.ends_with("line 4999\nhalf"));
        }
        events => panic!("{events:?}"),
    }
}

#[tokio::test]
async fn a_question_is_answered() {
    let inbox = Inbox::default();
    let question = sample_question();
    let ask = inbox.ask(&question);
    let answer = async {
        inbox.wait_for_event().await;
        assert!(matches!(&inbox.take_events()[..], [ChatEvent::PermissionRequested(_)]));
        inbox.answer_permission(question.id, QuestionReply::allow());
    };
    let (reply, ()) = tokio::join!(ask, answer);
    assert_eq!(reply, QuestionReply::allow());
    assert!(inbox.take_events().is_empty(), "it was answered, not withdrawn");
}

#[tokio::test]
async fn a_dropped_question_is_withdrawn() {
    let inbox = Inbox::default();
    let question = sample_question();
    let mut ask = inbox.ask(&question);
    assert!(futures_util::poll!(&mut ask).is_pending());
    drop(ask);
    assert!(matches!(
        &inbox.take_events()[..],
        [ChatEvent::PermissionRequested(_), ChatEvent::PermissionWithdrawn(QuestionId(7))]
    ));
    inbox.answer_permission(question.id, QuestionReply::allow());
    assert!(inbox.lock_state().permission_replies.is_empty());
}

#[tokio::test]
async fn a_session_is_open_before_its_state_comes() {
    let inbox = Inbox::default();
    let mut session = SessionAccumulator::new();
    session.apply_session_setup(&"s1".into(), None, None).unwrap();
    inbox.push(ChatEvent::SessionUpdated("s1".into(), session.snapshot()));
    inbox.push(ChatEvent::SessionOpened(Box::new(crate::event::OpenedChatSession {
        session: "s1".into(),
        agent: String::new(),
        snapshot: session.snapshot(),
        keeps_transcript: false,
        note: None,
        session_features: crate::event::SessionFeatures::default(),
    })));
    assert!(matches!(&inbox.take_events()[..], [ChatEvent::SessionOpened(_), ChatEvent::SessionUpdated(..)]));
}
