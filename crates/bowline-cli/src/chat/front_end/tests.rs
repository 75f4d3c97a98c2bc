//! What waits for the conversation, and how much of it.

use bowline_host::{Event as Shown, FrontEnd as _, Person as _};
use bowline_state::accumulator::SessionAccumulator;
use bowline_state::schema::v1::{ContentChunk, SessionNotification, SessionUpdate};

use super::*;
use crate::chat::app::tests::question;

fn asked() -> Arc<Question> {
    match question(7) {
        Event::Asked(question) => question,
        other => panic!("{other:?}"),
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
        inbox.show(Shown::Update {
            notification: &notification,
            change: &change,
            snapshot: session.snapshot(),
        });
    }
    inbox.came().await;
    match &inbox.take()[..] {
        [Event::Updated(_, snapshot)] => {
            assert!(snapshot.messages().next().unwrap().text().ends_with("49999 "));
        }
        other => panic!("{other:?}"),
    }
    assert!(inbox.take().is_empty());
}

#[test]
fn remarks_and_output_have_their_caps() {
    let inbox = Inbox::default();
    // The oldest of all, and no remark.
    inbox.push(Event::TurnEnded(Err("over".to_owned())));
    for number in 0..5000 {
        inbox.tell(&format!("remark {number}"));
    }
    for number in 0..100_u8 {
        inbox.output(&"t".into(), &vec![number; 100_000]);
    }
    let events = inbox.take();
    let (mut remarks, mut others, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Remark(_, text) => remarks.push(text),
            Event::TerminalOutput(_, bytes) => output.push(bytes),
            other => others.push(other),
        }
    }
    assert!(matches!(&others[..], [Event::TurnEnded(_)]), "what matters is there: {others:?}");
    let newest: Vec<String> = (5001 - MAX_WAITING..5000).map(|number| format!("remark {number}")).collect();
    assert_eq!(remarks, newest);
    let newest: Vec<u8> = (97..100).flat_map(|number| vec![number; 100_000]).collect();
    assert_eq!(output, [&newest[newest.len() - MAX_OUTPUT..]]);
}

#[test]
fn lines_that_nobody_would_see_are_left_out() {
    let inbox = Inbox::default();
    for number in 0..5000 {
        inbox.output(&"t".into(), format!("line {number}\n").as_bytes());
    }
    inbox.output(&"t".into(), b"half");
    match &inbox.take()[..] {
        [Event::TerminalOutput(_, bytes)] => {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert_eq!(text.lines().count(), MAX_LINES + 1);
            assert_eq!(text.lines().next(), Some(format!("line {}", 5000 - MAX_LINES).as_str()));
            assert!(text.ends_with("line 4999\nhalf"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_question_is_answered() {
    let inbox = Inbox::default();
    let question = asked();
    let asking = inbox.ask(&question);
    let answering = async {
        inbox.came().await;
        assert!(matches!(&inbox.take()[..], [Event::Asked(_)]));
        inbox.answer(question.id, Reply::allow());
    };
    let (reply, ()) = tokio::join!(asking, answering);
    assert_eq!(reply, Reply::allow());
    assert!(inbox.take().is_empty(), "it was answered, not withdrawn");
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_is_withdrawn() {
    let inbox = Inbox::default();
    let question = asked();
    let mut asking = inbox.ask(&question);
    assert!(futures_util::poll!(&mut asking).is_pending());
    drop(asking);
    assert!(matches!(&inbox.take()[..], [Event::Asked(_), Event::Withdrawn(QuestionId(7))]));
    inbox.answer(question.id, Reply::allow());
    assert!(inbox.waiting().questions.is_empty());
}

#[tokio::test]
async fn a_session_is_open_before_its_state_comes() {
    let inbox = Inbox::default();
    let mut session = SessionAccumulator::new();
    session.opened(&"s1".into(), None, None).unwrap();
    inbox.push(Event::Updated("s1".into(), session.snapshot()));
    inbox.push(Event::Opened(Box::new(crate::chat::event::Opened {
        session: "s1".into(),
        agent: String::new(),
        snapshot: session.snapshot(),
        goes_on: false,
        remark: None,
        can: crate::chat::event::Can::default(),
    })));
    assert!(matches!(&inbox.take()[..], [Event::Opened(_), Event::Updated(..)]));
}
