//! The checker of histories finds each kind of fault.

use bowline_serve::event::{Event, EventKind, Recipient};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::checker::{History, Record, Run, find_faults};

/// Three runs of a session in two generations, with a response to the subscriber `c1`.
fn sound_history() -> History {
    let event = |seq: u64| {
        let (kind, recipient, body) = match seq {
            4 => (EventKind::Response, Recipient::Only("c1".into()), json!({ "id": 7, "result": {} })),
            _ => (EventKind::Update, Recipient::All, json!({ "n": seq })),
        };
        Event { seq, at: None, kind, recipient, body: body.to_string().into() }
    };
    let run = |numbers: std::ops::RangeInclusive<u64>, generation| Run {
        last: *numbers.end(),
        generation,
        events: numbers.map(event).collect(),
    };
    History { runs: vec![run(1..=2, 1), run(3..=4, 1), run(5..=5, 2)], unanswered: Vec::new() }
}

/// What `c1` saw of it.
fn sound_record() -> Record {
    let message = |seq: u64| match seq {
        4 => json!({ "id": 7, "result": {} }),
        _ => json!({ "n": seq }),
    };
    Record {
        connections: vec!["c1".to_owned()],
        after: 0,
        history_until: 0,
        seen: (1..=5).map(|seq| (seq, message(seq))).collect(),
    }
}

/// Checks what is found after a change of a sound history.
fn check(change: impl Fn(&mut History, &mut Vec<(u64, Value)>), expected: Expect) {
    let (mut history, mut record) = (sound_history(), sound_record());
    change(&mut history, &mut record.seen);
    expected.assert_eq(&find_faults(&history, &[record]).join("\n"));
}

#[test]
fn a_sound_history_has_no_fault() {
    check(|_, _| {}, expect![""]);
    // A subscriber may be behind.
    check(|_, seen| seen.truncate(3), expect![""]);
}

#[test]
fn gaps_are_found() {
    check(
        |history, seen| {
            history.runs.remove(1);
            seen.truncate(2)
        },
        expect!["event 5 where 3 is expected"],
    );
    check(
        |history, seen| {
            history.runs[1].events.pop();
            seen.truncate(2)
        },
        expect![[r#"
            a run ends with event 3 and not 4
            event 5 where 4 is expected"#]],
    );
    check(|_, seen| drop(seen.remove(2)), expect!["c1 saw [1, 2, 4, 5] and not [1, 2, 3, 4, 5]"]);
}

#[test]
fn duplicates_are_found() {
    check(
        |history, _| {
            let again = history.runs[1].events[0].clone();
            history.runs[1].events.insert(1, again);
        },
        expect!["event 3 where 4 is expected"],
    );
    check(
        |_, seen| seen.insert(3, seen[2].clone()),
        expect!["c1 saw [1, 2, 3, 3, 4, 5] and not [1, 2, 3, 4, 5]"],
    );
}

#[test]
fn mixed_generations_are_found() {
    check(|history, _| history.runs[1].generation = 3, expect!["generation 2 after 3"]);
}

#[test]
fn lost_and_double_answers_are_found() {
    check(
        |history, _| history.unanswered.push(("c1".to_owned(), json!(8))),
        expect!["no response to request 8 of c1"],
    );
    check(|_, seen| drop(seen.remove(3)), expect!["c1 saw [1, 2, 3, 5] and not [1, 2, 3, 4, 5]"]);
    check(
        |history, seen| {
            let mut again = history.runs[1].events[1].clone();
            again.seq = 6;
            history.runs[2].events.push(again);
            history.runs[2].last = 6;
            seen.push((6, json!({ "id": 7, "result": {} })));
        },
        expect![[r#"two responses: Only("c1") 7"#]],
    );
}

#[test]
fn another_text_than_is_stored_is_found() {
    check(|_, seen| seen[0].1 = json!({ "n": 0 }), expect!["c1 saw another event 1 than is stored"]);
}

#[test]
fn messages_for_others_are_found() {
    check(
        |history, _| history.runs[0].events[1].recipient = Recipient::Only("c2".into()),
        expect!["c1 saw [1, 2, 3, 4, 5] and not [1, 3, 4, 5]"],
    );
}
