//! Recent runs of events, in one table in the order of their commits, before they are moved to their sessions.
//!
//! A session's events lie together, so that its history can be read at once. But then a commit with events of many
//! sessions writes pages of each of them. Instead it adds one row with all runs to this table. The rows are moved once
//! they take much room, and before anything reads what they change; small runs of a session are joined then.

use std::collections::{BTreeMap, HashMap};

use bowline_storage::TransactionError;
use bowline_storage::clock::now;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::MAX_SESSION_BYTES;
use super::{SqlResult, drop_oldest, from_sql, read_events, to_sql};
use crate::event::{Event, SessionId, append_run, compress_run, decompress_run, encode_lines, encode_run};

/// How much room the rows may take.
const MAX_RECENT_BYTES: usize = 8 << 20;

/// The latest position of a session: its generation, and the number of its last event.
type Position = (u64, u64);

/// The rows of the table, as this process knows them.
#[derive(Debug, Default)]
pub(super) struct RecentRuns {
    // The sessions with runs in the table.
    positions: HashMap<SessionId, Position>,
    bytes: usize,
    // Whether the table has no other rows. Another process, or a transaction that failed, may have left some.
    is_complete: bool,
}

impl RecentRuns {
    /// Returns whether the table may have runs of a session.
    pub(super) fn may_have(&self, session: &SessionId) -> bool {
        !self.is_complete || self.positions.contains_key(session)
    }

    /// Returns whether the table has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.is_complete && self.bytes == 0
    }

    /// Forgets what it knows of the table, because a transaction failed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Moves all rows, unless they are all known.
    pub(super) fn complete(&mut self, transaction: &Connection) -> SqlResult<()> {
        if self.is_complete { Ok(()) } else { self.move_all(transaction) }
    }

    /// Adds events of a session to the row of a commit. Returns whether they are stored then: not if the session is in
    /// another generation. Events that are there already, because the answer of an earlier commit was lost, are not
    /// added again.
    pub(super) fn add(
        &mut self,
        transaction: &Connection,
        row: &mut RecentRow,
        session: &SessionId,
        generation: u64,
        events: &[Event],
    ) -> SqlResult<bool> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(true) };
        let position = match self.positions.get(session) {
            Some(position) => Some(*position),
            None => find_position(transaction, session)?,
        };
        let Some((_, last_seq)) = position.filter(|(found, _)| *found == generation) else {
            return Ok(false);
        };
        if first.seq == last_seq + 1 {
            let run = encode_run(events);
            row.add(session, RunRow { generation, first: first.seq, last: last.seq, run });
            self.positions.insert(session.clone(), (generation, last.seq));
            return Ok(true);
        }
        if last.seq > last_seq {
            return Ok(false);
        }
        self.insert(transaction, std::mem::take(row))?;
        self.move_all(transaction)?;
        let run = encode_lines(events);
        let mut stored = read_events(transaction, session, first.seq - 1, run.len())?;
        stored.truncate(events.len());
        Ok(encode_lines(&stored) == run)
    }

    /// Writes the row of a commit.
    pub(super) fn insert(&mut self, transaction: &Connection, row: RecentRow) -> SqlResult<()> {
        if row.0.is_empty() {
            return Ok(());
        }
        let runs = row.encode();
        self.bytes += runs.len();
        let mut insert = transaction.prepare_cached("INSERT INTO recent_runs(at, runs) VALUES(?1, ?2)")?;
        insert.execute(params![now().0, runs])?;
        if self.bytes > MAX_RECENT_BYTES {
            self.move_all(transaction)?;
        }
        Ok(())
    }

    /// Moves all rows to their sessions.
    pub(super) fn move_all(&mut self, transaction: &Connection) -> SqlResult<()> {
        let mut sessions: BTreeMap<SessionId, (i64, Vec<RunRow>)> = BTreeMap::new();
        let mut rows = transaction.prepare_cached("SELECT at, runs FROM recent_runs ORDER BY id")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (at, runs) = (row.get(0)?, row.get::<_, Vec<u8>>(1)?);
            let runs = RecentRow::decode(runs).ok_or_else(|| {
                TransactionError::Damaged("a row of the table recent_runs is damaged".to_owned())
            })?;
            for (session, run) in runs {
                let moved = sessions.entry(session).or_default();
                moved.0 = at;
                join_run(&mut moved.1, run);
            }
        }
        for (session, (at, runs)) in sessions {
            move_runs(transaction, &session, at, runs)?;
        }
        transaction.execute("DELETE FROM recent_runs", [])?;
        *self = Self { is_complete: true, ..Self::default() };
        Ok(())
    }
}

fn find_position(transaction: &Connection, session: &SessionId) -> SqlResult<Option<Position>> {
    let mut find = transaction.prepare_cached("SELECT generation, last_seq FROM sessions WHERE id = ?1")?;
    let position = find.query_row([&**session], |row| Ok((from_sql(row.get(0)?), from_sql(row.get(1)?))));
    Ok(position.optional()?)
}

/// Adds a run to those of its session: joined to the last one if both are small.
fn join_run(runs: &mut Vec<RunRow>, next: RunRow) {
    if let Some(last) = runs.last_mut()
        && last.generation == next.generation
        && append_run(&mut last.run, &next.run)
    {
        last.last = next.last;
    } else {
        runs.push(next);
    }
}

fn move_runs(transaction: &Connection, session: &SessionId, at: i64, runs: Vec<RunRow>) -> SqlResult<()> {
    let Some(last_seq) = runs.last().map(|run| run.last) else { return Ok(()) };
    let mut size = 0;
    for RunRow { generation, first, last, run } in runs {
        let run = compress_run(run);
        size += run.len() as u64;
        transaction
            .prepare_cached(
                "INSERT INTO events(session, first_seq, last_seq, generation, run) VALUES(?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![&**session, to_sql(first), to_sql(last), to_sql(generation), run])?;
    }
    let bytes: i64 = transaction
        .prepare_cached(
            "UPDATE sessions SET last_seq = ?1, bytes = bytes + ?2, updated_at = max(updated_at, ?3)
             WHERE id = ?4 RETURNING bytes",
        )?
        .query_row(params![to_sql(last_seq), to_sql(size), at, &**session], |row| row.get(0))?;
    if from_sql(bytes) > MAX_SESSION_BYTES {
        drop_oldest(transaction, session, bytes)?;
    }
    Ok(())
}

/// A run of events of a session in a generation, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunRow {
    generation: u64,
    first: u64,
    last: u64,
    run: Vec<u8>,
}

/// The runs of one commit, each after its session's id. Texts and runs begin with their length in four bytes, numbers
/// have eight, all little-endian. A stored row begins with [`ROW_MARK`], unless it is compressed: chunks of several
/// sessions resemble each other, too.
#[derive(Debug, Default)]
pub(super) struct RecentRow(Vec<u8>);

/// The first byte of a row, which no compressed one has.
const ROW_MARK: u8 = b'r';

impl RecentRow {
    fn add(&mut self, session: &SessionId, RunRow { generation, first, last, run }: RunRow) {
        self.add_bytes(session.as_bytes());
        for number in [generation, first, last] {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
        self.add_bytes(&run);
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        // A message has at most 64 MiB, and an id far less.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn encode(mut self) -> Vec<u8> {
        self.0.insert(0, ROW_MARK);
        compress_run(self.0)
    }

    /// Returns the runs of a stored row; `None` if it is damaged.
    fn decode(stored: Vec<u8>) -> Option<Vec<(SessionId, RunRow)>> {
        let row = decompress_run(&stored.into()).ok()?;
        let mut rest = row.strip_prefix(&[ROW_MARK])?;
        let mut runs = Vec::new();
        while !rest.is_empty() {
            let session = str::from_utf8(take_bytes(&mut rest)?).ok()?.into();
            let mut number = || rest.split_off(..8)?.try_into().ok().map(u64::from_le_bytes);
            let (generation, first, last) = (number()?, number()?, number()?);
            let run = take_bytes(&mut rest)?.to_vec();
            runs.push((session, RunRow { generation, first, last, run }));
        }
        Some(runs)
    }
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = rest.split_off(..4)?.try_into().ok().map(u32::from_le_bytes)?;
    rest.split_off(..usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_or_are_damaged() {
        let run = |first, last, run: &[u8]| RunRow { generation: 2, first, last, run: run.to_vec() };
        let runs: Vec<(SessionId, RunRow)> =
            vec![("s".into(), run(1, 3, b"u*\ta\n")), ("longer".into(), run(u64::MAX, 0, b""))];
        let mut row = RecentRow::default();
        for (session, run) in &runs {
            row.add(session, run.clone());
        }
        let stored = row.encode();
        assert_eq!(RecentRow::decode(stored.clone()), Some(runs));
        // Between two runs, a row may as well end.
        let first = 1 + 4 + 1 + 24 + 4 + 5;
        for end in (0..stored.len()).filter(|end| ![1, first].contains(end)) {
            assert_eq!(RecentRow::decode(stored[..end].to_vec()), None, "{end}");
        }
    }

    #[test]
    fn rows_of_similar_runs_are_compressed() {
        let chunk = |number: u64| RunRow {
            generation: 1,
            first: number,
            last: number,
            run: format!("u*\t{}{number}\n", r#"{"sessionUpdate":"agent_message_chunk"}"#).into_bytes(),
        };
        let runs: Vec<(SessionId, RunRow)> =
            (1..=50).map(|number| (format!("session-{number}").into(), chunk(number))).collect();
        let mut row = RecentRow::default();
        for (session, run) in &runs {
            row.add(session, run.clone());
        }
        let plain = row.0.len();
        let stored = row.encode();
        assert!(stored.len() * 3 < plain, "{} of {plain}", stored.len());
        assert_eq!(RecentRow::decode(stored), Some(runs));
    }
}
