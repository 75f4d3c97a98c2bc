//! What a connection gets of a session: where it begins, which events are history, and where it continues after a cut.

use bytes::Bytes;

use crate::event::EventKind;

/// What a connection gets of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attachment {
    /// A stream of the session begins after this number, which follows what was sent.
    pub(super) after: u64,
    /// Events up to this number are history: only updates and responses that the client does not have are sent.
    pub(super) history_until: u64,
    /// The updates up to this number are sent on the connection's own stream.
    shown_until: u64,
    /// What the client had before it loaded the session again. These events have no number the second time, because
    /// clients skip numbers that they know, and their responses are not repeated.
    seen: u64,
    /// Counts how often the session was loaded.
    pub(super) loads: u64,
    /// The response that follows the history.
    pub(super) held_response: Option<Bytes>,
}

impl Attachment {
    /// Returns the attachment of a client that gets what follows a number.
    pub(super) fn after(after: u64) -> Self {
        Self { after, ..Self::default() }
    }

    /// Returns the attachment of a client that loads a session with `last` events. The stream of the session shows the
    /// history, and then releases the response.
    pub(super) fn load(earlier: Option<&Self>, last: u64, response: Bytes) -> Self {
        let (after, shown_until) = (0, 0);
        Self { after, shown_until, held_response: Some(response), ..Self::loaded(earlier, last) }
    }

    /// Returns the attachment of a client that loads a session with `last` events and gets the history on its
    /// connection's own stream.
    pub(super) fn load_on_connection(earlier: Option<&Self>, last: u64) -> Self {
        Self { shown_until: last, ..Self::loaded(earlier, last) }
    }

    fn loaded(earlier: Option<&Self>, last: u64) -> Self {
        let seen = earlier.map_or(0, |earlier| earlier.after.max(earlier.seen));
        Self {
            // The client's responses among what was not sent yet are no history.
            after: earlier.map_or(last, |earlier| earlier.after),
            history_until: last,
            shown_until: 0,
            seen,
            loads: earlier.map_or(0, |earlier| earlier.loads) + 1,
            held_response: None,
        }
    }

    /// Returns the attachment of a client whose stream was cut after it had received the event with a number.
    pub(super) fn reconnect(earlier: Option<&Self>, received: u64) -> Self {
        let Some(earlier) = earlier else { return Self::after(received) };
        let is_before_load = earlier.held_response.is_some() && received <= earlier.seen;
        let after = if is_before_load { 0 } else { received };
        Self { after, seen: earlier.seen.min(received), ..earlier.clone() }
    }

    /// Returns whether an event of a kind is part of the history that the client asked for.
    pub(super) fn is_history(&self, seq: u64, kind: EventKind) -> bool {
        matches!(kind, EventKind::Update | EventKind::TurnEnd) && seq <= self.history_until
    }

    /// Returns whether an event of a kind is sent on the session's stream.
    pub(super) fn includes(&self, seq: u64, kind: EventKind) -> bool {
        match kind {
            EventKind::Update | EventKind::TurnEnd => seq > self.shown_until,
            EventKind::Response => seq > self.seen,
            _ => seq > self.history_until,
        }
    }

    /// Returns the number that an event is sent with.
    pub(super) fn number(&self, seq: u64) -> Option<u64> {
        (seq > self.seen).then_some(seq)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// The events of a session: updates, with a response to the client at 3 and 6, and a question at 7.
    const KINDS: [EventKind; 8] = [
        EventKind::Update,
        EventKind::Update,
        EventKind::Response,
        EventKind::Update,
        EventKind::Update,
        EventKind::Response,
        EventKind::Question,
        EventKind::Update,
    ];

    fn show(attachment: &Attachment) -> String {
        let sent = (1..)
            .zip(KINDS)
            .filter(|(seq, kind)| *seq > attachment.after && attachment.includes(*seq, *kind));
        let shown = sent.map(|(seq, kind)| {
            let letter = format!("{kind:?}").chars().next().unwrap_or_default();
            let number = attachment.number(seq).map_or_else(|| "-".to_owned(), |seq| seq.to_string());
            format!("{number}{letter}")
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_client_is_sent() {
        let response = || Bytes::from_static(b"{}");
        let first = Attachment::load(None, 7, response());
        let again = Attachment::load(Some(&Attachment::after(5)), 7, response());
        let done = Attachment { after: 7, held_response: None, ..again.clone() };
        let on_connection = Attachment::load_on_connection(Some(&Attachment::after(2)), 7);
        let cases = [
            ("resumes", Attachment::after(5)),
            ("loads", first.clone()),
            ("loads, cut before anything", Attachment::reconnect(Some(&first), 0)),
            ("loads, cut after 4", Attachment::reconnect(Some(&first), 4)),
            ("loads again", again.clone()),
            ("loads again, cut during the part it knew", Attachment::reconnect(Some(&again), 5)),
            ("loads again, cut after 6", Attachment::reconnect(Some(&again), 6)),
            ("loads again, had received less than was sent", Attachment::reconnect(Some(&again), 4)),
            ("loads again, cut after the history", Attachment::reconnect(Some(&done), 7)),
            ("loads without a stream", Attachment::load_on_connection(None, 7)),
            ("loads again without a stream", on_connection.clone()),
            ("loads again without a stream, had 1", Attachment::reconnect(Some(&on_connection), 1)),
            ("comes back", Attachment::reconnect(None, 4)),
        ];
        let table: String =
            cases.iter().map(|(name, attachment)| format!("{name}: {}\n", show(attachment))).collect();
        expect![[r#"
            resumes: 6R 7Q 8U
            loads: 1U 2U 3R 4U 5U 6R 8U
            loads, cut before anything: 1U 2U 3R 4U 5U 6R 8U
            loads, cut after 4: 5U 6R 8U
            loads again: -U -U -U -U 6R 8U
            loads again, cut during the part it knew: -U -U -U -U 6R 8U
            loads again, cut after 6: 8U
            loads again, had received less than was sent: -U -U -U 5U 6R 8U
            loads again, cut after the history: 8U
            loads without a stream: 8U
            loads again without a stream: 3R 6R 8U
            loads again without a stream, had 1: 3R 6R 8U
            comes back: 5U 6R 7Q 8U
        "#]]
        .assert_eq(&table);
    }
}
