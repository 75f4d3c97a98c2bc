//! Recent runs of events, in one table in the order of their commits, before they are moved to their sessions.
//!
//! A session's events lie together, so that its history can be read at once. But then a commit with events of many
//! sessions writes pages of each of them. Instead it adds one row with all runs to this table. Once the rows take much
//! room, each commit moves a part of them; before anything reads what they change, all are moved. Small runs of a session
//! are joined then.

use std::collections::{BTreeMap, HashMap};
use std::iter;

use bowline_storage::TransactionError;
use bowline_storage::clock::now;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::MAX_SESSION_BYTES;
use super::{SqlResult, drop_oldest, from_sql, read_events, to_sql};
use crate::event::{Event, SessionId, append_run, compress_run, decompress_run, encode_lines, encode_run};

/// How much room the rows may take before they are moved. While they are, as many bytes may be added.
const MAX_RECENT_BYTES: usize = 2 << 20;
/// How many of these bytes a commit reads or moves at least: about a millisecond's work, for which every session waits.
const MIN_PART_BYTES: usize = 32 << 10;

/// The latest position of a session: its generation, and the number of its last event.
type Position = (u64, u64);

/// The rows of the table, as this process knows them.
#[derive(Debug, Default)]
pub(super) struct RecentRuns {
    // The sessions with runs in the table, except in rows that are being moved.
    positions: HashMap<SessionId, Position>,
    bytes: usize,
    // Whether the table has no other rows. Another process, or a transaction that failed, may have left some.
    is_complete: bool,
    moving: Option<RowMove>,
}

/// The move of some rows to their sessions. If it is not finished, the next one skips what this one has moved.
#[derive(Debug)]
struct RowMove {
    last_row: i64,
    last_read_row: i64,
    // What another process's change of the file changes.
    data_version: i64,
    // The sessions with runs in these rows.
    positions: HashMap<SessionId, Position>,
    // What was read, and is still to be moved.
    sessions: BTreeMap<SessionId, SessionRuns>,
    session_count: usize,
}

/// The runs of a session that are moved.
#[derive(Debug)]
struct SessionRuns {
    // When the last one was committed.
    at: i64,
    // The last event that was moved before.
    moved_seq: u64,
    runs: Vec<RunRow>,
}

impl RecentRuns {
    /// Returns whether the table may have runs of a session.
    pub(super) fn may_have(&self, session: &SessionId) -> bool {
        !self.is_complete || self.position(session).is_some()
    }

    /// Returns whether the table has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.is_complete && self.bytes == 0 && self.moving.is_none()
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
        let position = match self.position(session) {
            Some(position) => Some(position),
            None => find_position(transaction, session)?,
        };
        let Some((_, last_seq)) = position.filter(|(found, _)| *found == generation) else {
            return Ok(false);
        };
        if first.seq == last_seq + 1 {
            let run = encode_run(events);
            row.add(session, &RunRow { generation, first: first.seq, last: last.seq, run: &run });
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

    fn position(&self, session: &SessionId) -> Option<Position> {
        let moving = self.moving.as_ref();
        let position = self.positions.get(session).or_else(|| moving?.positions.get(session));
        position.copied()
    }

    /// Writes the row of a commit, and moves a part of the earlier ones if they take much room.
    pub(super) fn insert(&mut self, transaction: &Connection, row: RecentRow) -> SqlResult<()> {
        if row.0.is_empty() {
            return Ok(());
        }
        let runs = row.encode();
        let added = runs.len();
        self.bytes += added;
        let mut insert = transaction.prepare_cached("INSERT INTO recent_runs(at, runs) VALUES(?1, ?2)")?;
        insert.execute(params![now().0, runs])?;
        let is_full = self.bytes > MAX_RECENT_BYTES;
        match &self.moving {
            Some(_) if is_full => self.finish_move(transaction),
            // Rows are read, and their runs then moved, in less time than so many are added again.
            Some(_) => self.move_part(transaction, MIN_PART_BYTES.max(4 * added)),
            None if is_full => self.begin_move(transaction),
            None => Ok(()),
        }
    }

    /// Moves all rows to their sessions.
    pub(super) fn move_all(&mut self, transaction: &Connection) -> SqlResult<()> {
        self.finish_move(transaction)?;
        self.begin_move(transaction)?;
        self.finish_move(transaction)?;
        self.is_complete = true;
        Ok(())
    }

    fn finish_move(&mut self, transaction: &Connection) -> SqlResult<()> {
        while self.moving.is_some() {
            self.move_part(transaction, MAX_RECENT_BYTES)?;
        }
        Ok(())
    }

    /// Begins to move the rows that the table has now.
    fn begin_move(&mut self, transaction: &Connection) -> SqlResult<()> {
        let mut last_row = transaction.prepare_cached("SELECT ifnull(max(id), 0) FROM recent_runs")?;
        let mut positions = self.moving.take().map(|earlier| earlier.positions).unwrap_or_default();
        positions.extend(self.positions.drain());
        self.bytes = 0;
        self.moving = Some(RowMove {
            last_row: last_row.query_row([], |row| row.get(0))?,
            last_read_row: 0,
            data_version: data_version(transaction)?,
            positions,
            sessions: BTreeMap::new(),
            session_count: 0,
        });
        Ok(())
    }

    /// Goes on with the move: reads so many bytes of rows, or moves the runs of as large a part of the sessions.
    fn move_part(&mut self, transaction: &Connection, bytes: usize) -> SqlResult<()> {
        let Some(moving) = &mut self.moving else { return Ok(()) };
        if data_version(transaction)? != moving.data_version {
            // Another process may have moved all rows, and the numbers of rows begin again.
            return self.begin_move(transaction);
        }
        if moving.last_read_row < moving.last_row {
            moving.read_part(transaction, bytes)?;
            moving.session_count = moving.sessions.len();
            return Ok(());
        }
        let count = (moving.session_count * bytes).div_ceil(MAX_RECENT_BYTES);
        let sessions = &mut moving.sessions;
        for (session, runs) in iter::from_fn(|| sessions.pop_first()).take(count) {
            move_runs(transaction, &session, runs)?;
        }
        if moving.sessions.is_empty() {
            transaction.execute("DELETE FROM recent_runs WHERE id <= ?1", [moving.last_row])?;
            self.moving = None;
        }
        Ok(())
    }
}

impl RowMove {
    /// Reads the next rows.
    fn read_part(&mut self, transaction: &Connection, max_bytes: usize) -> SqlResult<()> {
        let mut rows = transaction.prepare_cached(
            "SELECT id, at, runs FROM recent_runs WHERE id BETWEEN ?1 + 1 AND ?2 ORDER BY id",
        )?;
        let mut rows = rows.query(params![self.last_read_row, self.last_row])?;
        let mut bytes = 0;
        while bytes < max_bytes {
            let Some(row) = rows.next()? else {
                self.last_read_row = self.last_row;
                break;
            };
            let (id, at, stored) = (row.get(0)?, row.get(1)?, row.get::<_, Vec<u8>>(2)?);
            bytes += stored.len();
            let damaged =
                || TransactionError::Damaged("a row of the table recent_runs is damaged".to_owned());
            let runs = decompress_run(&stored.into()).map_err(|_| damaged())?;
            for (session, run) in RecentRow::decode(&runs).ok_or_else(damaged)? {
                self.add(transaction, session, at, run)?;
            }
            self.last_read_row = id;
        }
        Ok(())
    }

    fn add(&mut self, transaction: &Connection, session: &str, at: i64, run: RunRef<'_>) -> SqlResult<()> {
        if let Some(found) = self.sessions.get_mut(session) {
            found.add(at, run);
            return Ok(());
        }
        // The runs of a session that is gone are dropped.
        let moved_seq = find_position(transaction, session)?.map_or(u64::MAX, |(_, last_seq)| last_seq);
        let mut runs = SessionRuns { at, moved_seq, runs: Vec::new() };
        runs.add(at, run);
        self.sessions.insert(session.into(), runs);
        Ok(())
    }
}

impl SessionRuns {
    /// Adds the next run: joined to the last one if both are small.
    fn add(&mut self, at: i64, next: RunRef<'_>) {
        if next.last <= self.moved_seq {
            return;
        }
        self.at = at;
        if let Some(last) = self.runs.last_mut()
            && last.generation == next.generation
            && append_run(&mut last.run, next.run)
        {
            last.last = next.last;
        } else {
            self.runs.push(next.to_owned());
        }
    }
}

fn data_version(transaction: &Connection) -> SqlResult<i64> {
    Ok(transaction.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

fn find_position(transaction: &Connection, session: &str) -> SqlResult<Option<Position>> {
    let mut find = transaction.prepare_cached("SELECT generation, last_seq FROM sessions WHERE id = ?1")?;
    let position = find.query_row([session], |row| Ok((from_sql(row.get(0)?), from_sql(row.get(1)?))));
    Ok(position.optional()?)
}

fn move_runs(transaction: &Connection, session: &SessionId, moved: SessionRuns) -> SqlResult<()> {
    let SessionRuns { at, runs, .. } = moved;
    let Some(last_seq) = runs.last().map(|run| run.last) else { return Ok(()) };
    let compress = |row: RunRow| RunRow { run: compress_run(row.run), ..row };
    let runs: Vec<_> = runs.into_iter().map(compress).collect();
    let size: u64 = runs.iter().map(|row| row.run.len() as u64).sum();
    let bytes: i64 = transaction
        .prepare_cached(
            "UPDATE sessions SET last_seq = ?1, bytes = bytes + ?2, updated_at = max(updated_at, ?3)
             WHERE id = ?4 RETURNING bytes",
        )?
        .query_row(params![to_sql(last_seq), to_sql(size), at, &**session], |row| row.get(0))?;
    for RunRow { generation, first, last, run } in runs {
        transaction
            .prepare_cached(
                "INSERT INTO events(session, first_seq, last_seq, generation, run) VALUES(?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![&**session, to_sql(first), to_sql(last), to_sql(generation), run])?;
    }
    if from_sql(bytes) > MAX_SESSION_BYTES {
        drop_oldest(transaction, session, bytes)?;
    }
    Ok(())
}

/// A run of events of a session in a generation, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunRow<Run = Vec<u8>> {
    generation: u64,
    first: u64,
    last: u64,
    run: Run,
}

/// A run that belongs to a row.
type RunRef<'a> = RunRow<&'a [u8]>;

impl RunRef<'_> {
    fn to_owned(&self) -> RunRow {
        let Self { generation, first, last, run } = *self;
        RunRow { generation, first, last, run: run.to_vec() }
    }
}

/// The runs of one commit, each after its session's id. Texts and runs begin with their length in four bytes, numbers
/// have eight, all little-endian. A stored row begins with [`ROW_MARK`], unless it is compressed: chunks of several
/// sessions resemble each other, too.
#[derive(Debug, Default)]
pub(super) struct RecentRow(Vec<u8>);

/// The first byte of a row, which no compressed one has.
const ROW_MARK: u8 = b'r';

impl RecentRow {
    fn add(&mut self, session: &str, run: &RunRef<'_>) {
        self.add_bytes(session.as_bytes());
        for number in [run.generation, run.first, run.last] {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
        self.add_bytes(run.run);
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

    /// Returns the runs of a row that is not compressed; `None` if it is damaged.
    fn decode(row: &[u8]) -> Option<Vec<(&str, RunRef<'_>)>> {
        let mut rest = row.strip_prefix(&[ROW_MARK])?;
        let mut runs = Vec::new();
        while !rest.is_empty() {
            let session = str::from_utf8(take_bytes(&mut rest)?).ok()?;
            let mut number = || rest.split_off(..8)?.try_into().ok().map(u64::from_le_bytes);
            let (generation, first, last) = (number()?, number()?, number()?);
            let run = take_bytes(&mut rest)?;
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

    fn row_of(runs: &[(String, RunRow)]) -> RecentRow {
        let mut row = RecentRow::default();
        for (session, RunRow { generation, first, last, run }) in runs {
            let (generation, first, last) = (*generation, *first, *last);
            row.add(session, &RunRow { generation, first, last, run });
        }
        row
    }

    fn decode(stored: Vec<u8>) -> Option<Vec<(String, RunRow)>> {
        let row = decompress_run(&stored.into()).ok()?;
        let runs = RecentRow::decode(&row)?.into_iter();
        Some(runs.map(|(session, run)| (session.to_owned(), run.to_owned())).collect())
    }

    #[test]
    fn rows_come_back_or_are_damaged() {
        let run = |first, last, run: &[u8]| RunRow { generation: 2, first, last, run: run.to_vec() };
        let runs = [("s".to_owned(), run(1, 3, b"u*\ta\n")), ("longer".to_owned(), run(u64::MAX, 0, b""))];
        let stored = row_of(&runs).encode();
        assert_eq!(decode(stored.clone()).as_deref(), Some(&runs[..]));
        // Between two runs, a row may as well end.
        let first = 1 + 4 + 1 + 24 + 4 + 5;
        for end in (0..stored.len()).filter(|end| ![1, first].contains(end)) {
            assert_eq!(decode(stored[..end].to_vec()), None, "{end}");
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
        let runs: Vec<_> = (1..=50).map(|number| (format!("session-{number}"), chunk(number))).collect();
        let row = row_of(&runs);
        let plain = row.0.len();
        let stored = row.encode();
        assert!(stored.len() * 3 < plain, "{} of {plain}", stored.len());
        assert_eq!(decode(stored), Some(runs));
    }
}
