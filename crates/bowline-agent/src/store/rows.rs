//! The rows of sessions and records.

use bowline_protocol::schema::v1::SessionId;
use bowline_text::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, Statement, params};

use super::codec::{COMPACTED, EncodedRecord, UPDATE, digest};
use super::error::{StoreError, StoreTransactionError};
use super::metadata::SessionColumns;
use super::{ROOM_DIVISOR, SessionMeta, SessionPage, StoredSession};

/// The number of record keys reserved for each session.
const KEYS_PER_SESSION: i64 = 1 << 32;

/// A session as its row describes it.
#[derive(Debug)]
pub(super) struct SessionRow {
    pub(super) number: i64,
    pub(super) meta: SessionMeta,
    pub(super) touched: i64,
    pub(super) next_record: i64,
    pub(super) records: i64,
    pub(super) bytes: i64,
    pub(super) dropped: i64,
}

/// Returns a session's text columns: directory, details, and their checksum.
fn columns_with_checksum(meta: &SessionMeta) -> Result<(SessionColumns, [u8; 8]), StoreError> {
    let columns = SessionColumns::from_meta(meta)?;
    let checksum = session_checksum(&meta.id.0, &columns.cwd, meta.created_at.0, &columns.details);
    Ok((columns, checksum))
}

fn session_checksum(id: &str, cwd: &str, created: i64, details: &str) -> [u8; 8] {
    digest(&[id.as_bytes(), cwd.as_bytes(), &created.to_le_bytes(), details.as_bytes()])
}

const SESSION_COLUMNS: &str =
    "number, id, cwd, touched, created, updated, details, sum, next, records, bytes, dropped";

/// Reads a session. A checksum mismatch is damage.
pub(super) fn read_session(row: &Row<'_>) -> Result<SessionRow, StoreTransactionError> {
    let (id, cwd, details): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(6)?);
    let (created, checksum): (i64, [u8; 8]) = (row.get(4)?, row.get(7)?);
    if checksum != session_checksum(&id, &cwd, created, &details) {
        return Err(StoreTransactionError::Damaged(format!(
            "what is known of session {id:?} is not what was written"
        )));
    }
    let columns = SessionColumns { cwd, details };
    let meta = columns.into_meta(SessionId::from(id), Timestamp(created), Timestamp(row.get(5)?));
    Ok(SessionRow {
        number: row.get(0)?,
        meta,
        touched: row.get(3)?,
        next_record: row.get(8)?,
        records: row.get(9)?,
        bytes: row.get(10)?,
        dropped: row.get(11)?,
    })
}

/// Finds a session.
pub(super) fn find_session(
    connection: &Connection,
    id: &SessionId,
) -> Result<SessionRow, StoreTransactionError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?1"))?;
    let mut rows = statement.query([&*id.0])?;
    match rows.next()? {
        Some(row) => read_session(row),
        None => Err(StoreError::NotFound(id.clone()).into()),
    }
}

/// Selects every session by number, and so without an index.
pub(super) fn select_sessions<'c>(
    connection: &'c Connection,
    order: &str,
) -> rusqlite::Result<Statement<'c>> {
    connection.prepare(&format!("SELECT {SESSION_COLUMNS} FROM sessions ORDER BY number {order}"))
}

/// Inserts a session without records.
pub(super) fn insert_session(
    connection: &Connection,
    meta: &SessionMeta,
) -> Result<i64, StoreTransactionError> {
    let exists = connection.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?.exists([&*meta.id.0])?;
    if exists {
        return Err(StoreError::Exists(meta.id.clone()).into());
    }
    let (SessionColumns { cwd, details }, checksum) = columns_with_checksum(meta)?;
    let number = connection
        .prepare_cached(
            "INSERT INTO sessions (id, cwd, touched, created, updated, details, sum, next, records, bytes, dropped) \
             VALUES (?1, ?2, (SELECT ifnull(max(touched), 0) + 1 FROM sessions), ?3, ?4, ?5, ?6, 0, 0, 0, 0)",
        )?
        .insert(params![&*meta.id.0, cwd, meta.created_at.0, meta.updated_at.0, details, checksum])?;
    Ok(number)
}

/// Inserts a session as it was in another database, without its records.
pub(super) fn reinsert_session(
    connection: &Connection,
    session: &SessionRow,
) -> Result<(), StoreTransactionError> {
    let (SessionColumns { cwd, details }, checksum) = columns_with_checksum(&session.meta)?;
    let SessionRow { number, meta, touched, next_record, dropped, .. } = session;
    connection
        .prepare_cached(&format!(
            "INSERT INTO sessions ({SESSION_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, ?10)"
        ))?
        .execute(params![
            number, &*meta.id.0, cwd, touched, meta.created_at.0, meta.updated_at.0, details, checksum,
            next_record, dropped
        ])?;
    Ok(())
}

/// Replaces a session's metadata, including the directory it is listed under.
pub(super) fn update_session(
    connection: &Connection,
    number: i64,
    meta: &SessionMeta,
) -> Result<(), StoreTransactionError> {
    let (SessionColumns { cwd, details }, checksum) = columns_with_checksum(meta)?;
    let changed = connection
        .prepare_cached("UPDATE sessions SET cwd = ?3, details = ?4, sum = ?5, updated = ?6 WHERE number = ?1 AND id = ?2")?
        .execute(params![number, &*meta.id.0, cwd, details, checksum, meta.updated_at.0])?;
    if changed == 0 { Err(StoreError::NotFound(meta.id.clone()).into()) } else { Ok(()) }
}

/// Appends records to a session, and drops old ones to stay within the size limit.
pub(super) fn append_records(
    connection: &Connection,
    id: &SessionId,
    records: &[EncodedRecord],
    max_bytes: u64,
    now: Timestamp,
) -> Result<(), StoreTransactionError> {
    let mut session = find_session(connection, id)?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO records (key, kind, codec, size, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut compacted_at = None;
    for record in records {
        let EncodedRecord { kind, codec, size, data, checksum } = record;
        insert.execute(params![
            session.number * KEYS_PER_SESSION + session.next_record,
            kind,
            codec,
            size,
            data,
            checksum
        ])?;
        compacted_at = if *kind == COMPACTED { Some(session.next_record) } else { compacted_at };
        session.next_record += 1;
        session.records += 1;
        session.bytes += size;
    }
    if let Some(position) = compacted_at {
        // The conversation restarts with these: earlier messages are obsolete.
        drop_records(connection, &mut session, position, |kind| kind != UPDATE, i64::MAX)?;
    }
    let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    if session.bytes > max_bytes {
        let (before, excess) = (session.records, session.bytes - (max_bytes - max_bytes / ROOM_DIVISOR));
        drop_records(connection, &mut session, KEYS_PER_SESSION, |kind| kind == UPDATE, excess)?;
        session.dropped += before - session.records;
    }
    if session.bytes > max_bytes {
        return Err(StoreError::SessionFull { id: id.clone(), bytes: session.bytes.unsigned_abs() }.into());
    }
    let SessionRow { number, next_record, records: count, bytes, dropped, .. } = session;
    // The time must always change: SQLite neither writes nor syncs a commit that changes nothing, and earlier commits
    // would not become durable.
    connection
        .prepare_cached(
            "UPDATE sessions SET next = ?2, records = ?3, bytes = ?4, dropped = ?5, updated = max(?6, updated + 1) \
             WHERE number = ?1",
        )?
        .execute(params![number, next_record, count, bytes, dropped, now.0])?;
    if !records.is_empty() {
        connection
            .prepare_cached(
                "UPDATE sessions SET touched = (SELECT max(touched) + 1 FROM sessions) \
                 WHERE number = ?1 AND touched < (SELECT max(touched) FROM sessions)",
            )?
            .execute([number])?;
    }
    Ok(())
}

/// Drops the oldest records of some kinds before a position, until enough bytes are free.
fn drop_records(
    connection: &Connection,
    session: &mut SessionRow,
    before: i64,
    predicate: impl Fn(i64) -> bool,
    excess: i64,
) -> Result<(), StoreTransactionError> {
    let first = session.number * KEYS_PER_SESSION;
    let mut oldest = connection
        .prepare_cached("SELECT key, kind, size FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key")?;
    let mut rows = oldest.query([first, first + before])?;
    let mut keys = Vec::new();
    let mut freed = 0;
    while freed < excess
        && let Some(row) = rows.next()?
    {
        let (key, kind, size): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if predicate(kind) {
            keys.push(key);
            freed += size;
        }
    }
    drop(rows);
    let mut delete = connection.prepare_cached("DELETE FROM records WHERE key = ?1")?;
    for key in &keys {
        delete.execute([key])?;
    }
    session.records -= i64::try_from(keys.len()).unwrap_or(i64::MAX);
    session.bytes -= freed;
    Ok(())
}

/// Passes each record of a session to `visit`, in order, until it stops.
pub(super) fn for_each_record(
    connection: &Connection,
    number: i64,
    mut visit: impl FnMut(i64, EncodedRecord) -> Result<bool, StoreTransactionError>,
) -> Result<(), StoreTransactionError> {
    let mut statement = connection.prepare_cached(
        "SELECT key, kind, codec, size, data, sum FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key",
    )?;
    let mut rows = statement.query([number * KEYS_PER_SESSION, (number + 1) * KEYS_PER_SESSION])?;
    while let Some(row) = rows.next()? {
        if !visit(row.get(0)?, read_record(row)?)? {
            break;
        }
    }
    Ok(())
}

fn read_record(row: &Row<'_>) -> rusqlite::Result<EncodedRecord> {
    let (kind, codec, size) = (row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(EncodedRecord { kind, codec, size, data: row.get(4)?, checksum: row.get(5)? })
}

/// Inserts a record under the key it had in another database.
pub(super) fn insert_record(
    connection: &Connection,
    key: i64,
    record: &EncodedRecord,
) -> rusqlite::Result<()> {
    let EncodedRecord { kind, codec, size, data, checksum } = record;
    connection
        .prepare_cached(
            "INSERT INTO records (key, kind, codec, size, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![key, kind, codec, size, data, checksum])?;
    connection
        .prepare_cached("UPDATE sessions SET records = records + 1, bytes = bytes + ?2 WHERE number = ?1")?
        .execute(params![key / KEYS_PER_SESSION, size])?;
    Ok(())
}

/// Reads a session with all its records.
pub(super) fn load_session(
    connection: &Connection,
    id: &SessionId,
) -> Result<StoredSession, StoreTransactionError> {
    let session = find_session(connection, id)?;
    let mut stored = StoredSession::without_records(session.meta, session.dropped.unsigned_abs());
    let mut count = 0;
    for_each_record(connection, session.number, |_, record| {
        count += 1;
        stored.push_record(record)?;
        Ok(true)
    })?;
    if count != session.records {
        return Err(StoreTransactionError::Damaged(format!(
            "session {id} has {count} records and should have {}",
            session.records
        )));
    }
    Ok(stored)
}

/// Inserts a session that begins with the records of another.
pub(super) fn fork_session(
    connection: &Connection,
    parent: &SessionId,
    meta: &SessionMeta,
) -> Result<i64, StoreTransactionError> {
    let old = find_session(connection, parent)?;
    let number = insert_session(connection, meta)?;
    connection
        .prepare_cached(
            "INSERT INTO records (key, kind, codec, size, data, sum) \
             SELECT key + ?3, kind, codec, size, data, sum FROM records WHERE key >= ?1 AND key < ?2",
        )?
        .execute([
            old.number * KEYS_PER_SESSION,
            (old.number + 1) * KEYS_PER_SESSION,
            (number - old.number) * KEYS_PER_SESSION,
        ])?;
    connection
        .prepare_cached(
            "UPDATE sessions SET next = ?2, records = ?3, bytes = ?4, dropped = ?5 WHERE number = ?1",
        )?
        .execute([number, old.next_record, old.records, old.bytes, old.dropped])?;
    Ok(number)
}

/// Removes a session with all its records, and returns whether it existed.
pub(super) fn delete_session(connection: &Connection, id: &SessionId) -> Result<bool, StoreTransactionError> {
    let number: Option<i64> = connection
        .prepare_cached("DELETE FROM sessions WHERE id = ?1 RETURNING number")?
        .query_row([&*id.0], |row| row.get(0))
        .optional()?;
    let Some(number) = number else { return Ok(false) };
    connection
        .prepare_cached("DELETE FROM records WHERE key >= ?1 AND key < ?2")?
        .execute([number * KEYS_PER_SESSION, (number + 1) * KEYS_PER_SESSION])?;
    Ok(true)
}

/// Lists sessions used before the cursor, most recent first.
pub(super) fn list_sessions(
    connection: &Connection,
    cwd: Option<&str>,
    before: i64,
    page_size: usize,
) -> Result<SessionPage, StoreTransactionError> {
    let filter = if cwd.is_some() { "cwd = ?3 AND" } else { "?3 IS NULL AND" };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE {filter} touched < ?1 ORDER BY touched DESC LIMIT ?2"
    ))?;
    let limit = i64::try_from(page_size).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = statement.query(params![before, limit, cwd])?;
    let mut page = SessionPage { sessions: Vec::new(), next_cursor: None };
    let mut last = before;
    while let Some(row) = rows.next()? {
        if page.sessions.len() == page_size {
            page.next_cursor = Some(super::cursor::format_cursor(last));
            break;
        }
        let session = read_session(row)?;
        last = session.touched;
        page.sessions.push(session.meta);
    }
    Ok(page)
}

/// Checks the content of all rows, and describes the first fault.
pub(super) fn verify_rows(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut statement = select_sessions(connection, "ASC")?;
    let mut rows = statement.query([])?;
    let mut expected = 0;
    while let Some(row) = rows.next()? {
        match read_session(row) {
            Ok(session) => expected += session.records,
            Err(StoreTransactionError::Sql(error)) => return Err(error),
            Err(StoreTransactionError::Damaged(reason)) => return Ok(Some(reason)),
            Err(StoreTransactionError::Caller(error)) => return Ok(Some(error.to_string())),
        }
    }
    let mut records =
        connection.prepare("SELECT key, kind, codec, size, data, sum FROM records ORDER BY key")?;
    let mut rows = records.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        if !read_record(row)?.is_intact() {
            return Ok(Some("a record is not what was written".to_owned()));
        }
        count += 1;
    }
    Ok((count != expected).then(|| format!("there are {count} records and should be {expected}")))
}
