//! Checks a session's history: what is stored, and what each subscriber saw of it.

use bowline_serve::event::{Event, EventKind, SessionId, decode_run};
use serde_json::Value;
use test_support::postgres::TestPostgres;

/// What a subscriber saw: a connection's messages with their numbers.
#[derive(Debug)]
pub(crate) struct Record {
    // Its connection, and those it took over.
    pub(crate) connections: Vec<String>,
    // The last event before it subscribed.
    pub(crate) after: u64,
    // The last event that can have been there when it loaded the session. Of those, it gets updates only.
    pub(crate) history_until: u64,
    pub(crate) seen: Vec<(u64, Value)>,
}

/// Reads the events of a session from the database.
///
/// # Panics
/// Panics if numbers are missing or occur twice, or if an earlier generation follows a later one.
pub(crate) fn read_history(postgres: &TestPostgres, database: &str, session: &str) -> Vec<Event> {
    let sql = format!(
        "SELECT first_seq, last_seq, generation, encode(run, 'hex') FROM events WHERE session = '{session}' ORDER BY last_seq"
    );
    let (mut events, mut newest) = (Vec::<Event>::new(), 0);
    for row in postgres.run(database, &sql).lines() {
        let columns: Vec<&str> = row.split('|').collect();
        let number = |column: usize| columns[column].parse::<u64>().unwrap();
        let run: Vec<u8> = (0..columns[3].len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&columns[3][at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(number(0), events.len() as u64 + 1, "numbers without gaps");
        assert!(number(2) >= newest, "generation {} after {newest}", number(2));
        newest = number(2);
        events.extend(decode_run(number(0), &run.into()).unwrap());
        assert_eq!(number(1), events.len() as u64);
    }
    events
}

/// Checks that each subscriber saw a prefix of what the history has for it, without gaps, duplicates or differences, and
/// that each request in the history has one response.
pub(crate) fn check_history(postgres: &TestPostgres, database: &str, session: &str, records: &[Record]) {
    let history = read_history(postgres, database, session);
    for record in records {
        let ids: Vec<SessionId> = record.connections.iter().map(|id| id.as_str().into()).collect();
        let last = record.seen.last().map_or(record.after, |(seq, _)| *seq);
        let seen: Vec<u64> = record.seen.iter().map(|(seq, _)| *seq).collect();
        let expected: Vec<u64> = history
            .iter()
            .filter(|event| event.seq > record.after && event.seq <= last && event.recipient.includes(&ids))
            .filter(|event| {
                let is_history = event.seq <= record.history_until && event.kind != EventKind::Update;
                // Questions that are answered are not sent again.
                seen.contains(&event.seq) || !(is_history || event.kind == EventKind::Question)
            })
            .map(|event| event.seq)
            .collect();
        assert_eq!(seen, expected, "{:?} saw a prefix", record.connections);
        for (seq, message) in &record.seen {
            let stored: Value = serde_json::from_slice(&history[*seq as usize - 1].body).unwrap();
            assert_eq!(*message, stored, "event {seq}");
        }
    }
    let mut responses: Vec<String> = history
        .iter()
        .filter(|event| event.kind == EventKind::Response)
        .map(|event| {
            let message: Value = serde_json::from_slice(&event.body).unwrap();
            format!("{:?} {}", event.recipient, message["id"])
        })
        .collect();
    let all = responses.len();
    responses.sort();
    responses.dedup();
    assert_eq!(responses.len(), all, "one response for each request");
}
