//! Checks a session's history: what is stored, and what each subscriber saw of it. The tests with servers in processes of
//! their own use it, too.

use std::collections::{BTreeMap, BTreeSet};

use bowline_serve::event::{Event, EventKind, SessionId, decode_run};
use bowline_serve::store::PendingWork;
use serde_json::Value;
use test_support::postgres::TestPostgres;

/// What a subscriber saw: a connection's messages with their numbers.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    // Its connection, and those it took over.
    pub(crate) connections: Vec<String>,
    // The last event before it subscribed.
    pub(crate) after: u64,
    // The last event that can have been there when it loaded the session. Of those, it gets updates only.
    pub(crate) history_until: u64,
    pub(crate) seen: Vec<(u64, Value)>,
}

/// A run of events as stored.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) last: u64,
    pub(crate) generation: u64,
    pub(crate) events: Vec<Event>,
}

/// A session as stored.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) runs: Vec<Run>,
    // The requests without an answer: the connection and the id of each.
    pub(crate) unanswered: Vec<(String, Value)>,
}

/// Reads a session from the database.
pub(crate) fn read_history(postgres: &TestPostgres, database: &str, session: &str) -> History {
    let sql = format!(
        "SELECT first_seq, last_seq, generation, encode(run, 'hex') FROM events WHERE session = '{session}' ORDER BY last_seq"
    );
    let mut runs = Vec::new();
    for row in postgres.run(database, &sql).lines() {
        let columns: Vec<&str> = row.split('|').collect();
        let number = |column: usize| columns[column].parse::<u64>().unwrap();
        let run: Vec<u8> = (0..columns[3].len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&columns[3][at..at + 2], 16).unwrap())
            .collect();
        let events = decode_run(number(0), &run.into()).unwrap();
        runs.push(Run { last: number(1), generation: number(2), events });
    }
    let pending = postgres.run(database, &format!("SELECT pending FROM sessions WHERE id = '{session}'"));
    let pending: PendingWork = serde_json::from_str(&pending).unwrap();
    let unanswered = pending.requests.into_iter().map(|(connection, id)| (connection.to_string(), id));
    History { runs, unanswered: unanswered.collect() }
}

/// Checks a session in the database, and what subscribers saw of it.
///
/// # Panics
/// Panics if anything is wrong.
pub(crate) fn check_history(postgres: &TestPostgres, database: &str, session: &str, records: &[Record]) {
    let faults = find_faults(&read_history(postgres, database, session), records);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns what is wrong. Events are numbered without gaps or duplicates, and generations do not mix. Each subscriber saw
/// a prefix of what the history has for it, without gaps, duplicates or differences. Each request has one response.
pub(crate) fn find_faults(history: &History, records: &[Record]) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut events, mut newest) = (BTreeMap::new(), 0);
    let mut next = 1;
    for run in &history.runs {
        if run.generation < newest {
            faults.push(format!("generation {} after {newest}", run.generation));
        }
        newest = run.generation;
        for event in &run.events {
            if event.seq != next {
                faults.push(format!("event {} where {next} is expected", event.seq));
            }
            next = event.seq + 1;
            events.insert(event.seq, event);
        }
        if run.last + 1 != next {
            faults.push(format!("a run ends with event {} and not {}", next - 1, run.last));
        }
    }
    for record in records {
        faults.extend(find_subscriber_faults(&events, record));
    }
    let mut answered = BTreeSet::new();
    for event in events.values().filter(|event| event.kind == EventKind::Response) {
        let message: Value = serde_json::from_slice(&event.body).unwrap();
        let request = format!("{:?} {}", event.recipient, message["id"]);
        if !answered.insert(request.clone()) {
            faults.push(format!("two responses: {request}"));
        }
    }
    for (connection, id) in &history.unanswered {
        faults.push(format!("no response to request {id} of {connection}"));
    }
    faults
}

fn find_subscriber_faults(events: &BTreeMap<u64, &Event>, record: &Record) -> Vec<String> {
    let mut faults = Vec::new();
    let name = &record.connections[0];
    let ids: Vec<SessionId> = record.connections.iter().map(|id| id.as_str().into()).collect();
    let last = record.seen.last().map_or(record.after, |(seq, _)| *seq);
    let seen: Vec<u64> = record.seen.iter().map(|(seq, _)| *seq).collect();
    let expected: Vec<u64> = events
        .values()
        .filter(|event| event.seq > record.after && event.seq <= last && event.recipient.includes(&ids))
        // The subscribers do not ask for these.
        .filter(|event| event.kind != EventKind::TurnEnd)
        .filter(|event| {
            let is_history = event.seq <= record.history_until && event.kind != EventKind::Update;
            // Questions that are answered are not sent again.
            seen.contains(&event.seq) || !(is_history || event.kind == EventKind::Question)
        })
        .map(|event| event.seq)
        .collect();
    if seen != expected {
        faults.push(format!("{name} saw {seen:?} and not {expected:?}"));
    }
    for (seq, message) in &record.seen {
        let stored = events.get(seq).map(|event| serde_json::from_slice::<Value>(&event.body).unwrap());
        if stored.is_some_and(|stored| stored != *message) {
            faults.push(format!("{name} saw another event {seq} than is stored"));
        }
    }
    faults
}
