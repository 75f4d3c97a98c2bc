//! Sessions and records as rows.

use std::path::{Path, PathBuf};

use bowline_state::changes::Moment;
use bowline_state::conversation::{Thinking, Usage};
use bowline_state::mode::Mode;
use bowline_state::schema::v1::SessionId;
use rusqlite::{Connection, OptionalExtension as _, Row, Statement, params};
use serde::{Deserialize, Serialize};

use super::codec::{COMPACTED, Decoded, Encoded, UPDATE, digest};
use super::error::{Fault, StoreError};
use super::{MAX_TITLE_BYTES, Meta, Page, Stored};

/// How many places a session has for records.
const PLACES: i64 = 1 << 32;
/// The details of a session are at most this large.
const MAX_DETAILS_BYTES: usize = 1 << 20;
/// What is dropped of a session that is too large makes room for this part of it, so that it is not done every time.
const ROOM: i64 = 4;

/// A session as a row tells it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: i64,
    pub(super) meta: Meta,
    pub(super) touched: i64,
    pub(super) next: i64,
    pub(super) records: i64,
    pub(super) bytes: i64,
    pub(super) dropped: i64,
}

/// What is known of a session beside what is searched for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Details {
    additional: Vec<PathBuf>,
    title: Option<String>,
    mode: Mode,
    model: Option<String>,
    thinking: Thinking,
    turns: u64,
    usage: Usage,
    cost: Option<f64>,
}

/// A session's text columns: directory, details, and their checksum.
struct Columns {
    cwd: String,
    details: String,
    sum: [u8; 8],
}

impl Columns {
    fn of(meta: &Meta) -> Result<Self, StoreError> {
        let mut title = meta.title.clone();
        if let Some(title) = &mut title {
            title.truncate(title.floor_char_boundary(MAX_TITLE_BYTES));
        }
        let details = Details {
            additional: meta.additional.clone(),
            title,
            mode: meta.mode,
            model: meta.model.clone(),
            thinking: meta.thinking,
            turns: meta.turns,
            usage: meta.usage,
            cost: meta.cost,
        };
        let details = serde_json::to_string(&details).map_err(StoreError::Unwritable)?;
        let cwd = path_text(&meta.cwd)?.to_owned();
        let bytes = details.len() + cwd.len() + meta.id.0.len();
        if bytes > MAX_DETAILS_BYTES {
            return Err(StoreError::TooLarge { bytes });
        }
        let sum = sum_of(&meta.id.0, &cwd, meta.created.0, &details);
        Ok(Self { cwd, details, sum })
    }
}

fn sum_of(id: &str, cwd: &str, created: i64, details: &str) -> [u8; 8] {
    digest(&[id.as_bytes(), cwd.as_bytes(), &created.to_le_bytes(), details.as_bytes()])
}

/// Returns a path as the database has it.
pub(super) fn path_text(path: &Path) -> Result<&str, StoreError> {
    use serde::ser::Error as _;
    let error =
        || StoreError::Unwritable(serde_json::Error::custom(format!("{} is no text", path.display())));
    path.to_str().ok_or_else(error)
}

const COLUMNS: &str =
    "number, id, cwd, touched, created, updated, details, sum, next, records, bytes, dropped";

/// Reads a session. What does not fit its checksum is damage.
pub(super) fn session(row: &Row<'_>) -> Result<Session, Fault> {
    let (id, cwd, details): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(6)?);
    let (created, sum): (i64, [u8; 8]) = (row.get(4)?, row.get(7)?);
    if sum != sum_of(&id, &cwd, created, &details) {
        return Err(Fault::Damaged(format!("what is known of session {id:?} is not what was written")));
    }
    // Fields of a later version are left out, and what this one misses is as for a new session.
    let details: Details = serde_json::from_str(&details).unwrap_or_default();
    let meta = Meta {
        id: SessionId::from(id),
        cwd: cwd.into(),
        additional: details.additional,
        title: details.title,
        created: Moment(created),
        updated: Moment(row.get(5)?),
        mode: details.mode,
        model: details.model,
        thinking: details.thinking,
        turns: details.turns,
        usage: details.usage,
        cost: details.cost,
    };
    Ok(Session {
        number: row.get(0)?,
        meta,
        touched: row.get(3)?,
        next: row.get(8)?,
        records: row.get(9)?,
        bytes: row.get(10)?,
        dropped: row.get(11)?,
    })
}

/// Finds a session.
pub(super) fn find(connection: &Connection, id: &SessionId) -> Result<Session, Fault> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"))?;
    let mut rows = statement.query([&*id.0])?;
    match rows.next()? {
        Some(row) => session(row),
        None => Err(StoreError::NotFound(id.clone()).into()),
    }
}

/// Asks for every session, by number and so without an index.
pub(super) fn sessions<'c>(connection: &'c Connection, order: &str) -> rusqlite::Result<Statement<'c>> {
    connection.prepare(&format!("SELECT {COLUMNS} FROM sessions ORDER BY number {order}"))
}

/// Puts a session in that has no records yet.
pub(super) fn insert(connection: &Connection, meta: &Meta) -> Result<i64, Fault> {
    let taken = connection.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?.exists([&*meta.id.0])?;
    if taken {
        return Err(StoreError::Exists(meta.id.clone()).into());
    }
    let Columns { cwd, details, sum } = Columns::of(meta)?;
    let number = connection
        .prepare_cached(
            "INSERT INTO sessions (id, cwd, touched, created, updated, details, sum, next, records, bytes, dropped) \
             VALUES (?1, ?2, (SELECT ifnull(max(touched), 0) + 1 FROM sessions), ?3, ?4, ?5, ?6, 0, 0, 0, 0)",
        )?
        .insert(params![&*meta.id.0, cwd, meta.created.0, meta.updated.0, details, sum])?;
    Ok(number)
}

/// Puts a session in as it was in another database, all but its records.
pub(super) fn insert_again(connection: &Connection, session: &Session) -> Result<(), Fault> {
    let Columns { cwd, details, sum } = Columns::of(&session.meta)?;
    let Session { number, meta, touched, next, dropped, .. } = session;
    connection
        .prepare_cached(&format!(
            "INSERT INTO sessions ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, ?10)"
        ))?
        .execute(params![
            number,
            &*meta.id.0,
            cwd,
            touched,
            meta.created.0,
            meta.updated.0,
            details,
            sum,
            next,
            dropped
        ])?;
    Ok(())
}

/// Replaces what is known of a session. Its id and its directory's place in lists follow.
pub(super) fn update(connection: &Connection, number: i64, meta: &Meta) -> Result<(), Fault> {
    let Columns { cwd, details, sum } = Columns::of(meta)?;
    let changed = connection
        .prepare_cached("UPDATE sessions SET cwd = ?3, details = ?4, sum = ?5, updated = ?6 WHERE number = ?1 AND id = ?2")?
        .execute(params![number, &*meta.id.0, cwd, details, sum, meta.updated.0])?;
    if changed == 0 { Err(StoreError::NotFound(meta.id.clone()).into()) } else { Ok(()) }
}

/// Adds records to a session, and drops what they leave no room for.
pub(super) fn append(
    connection: &Connection,
    id: &SessionId,
    records: &[Encoded],
    most: u64,
    now: Moment,
) -> Result<(), Fault> {
    let mut session = find(connection, id)?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO records (key, kind, codec, size, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut anew = None;
    for record in records {
        let Encoded { kind, codec, size, data, sum } = record;
        insert.execute(params![session.number * PLACES + session.next, kind, codec, size, data, sum])?;
        anew = if *kind == COMPACTED { Some(session.next) } else { anew };
        session.next += 1;
        session.records += 1;
        session.bytes += size;
    }
    if let Some(place) = anew {
        // The conversation begins with these: the messages before are nobody's any more.
        drop_records(connection, &mut session, place, |kind| kind != UPDATE, i64::MAX)?;
    }
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    if session.bytes > most {
        let (before, excess) = (session.records, session.bytes - (most - most / ROOM));
        drop_records(connection, &mut session, PLACES, |kind| kind == UPDATE, excess)?;
        session.dropped += before - session.records;
    }
    if session.bytes > most {
        return Err(StoreError::SessionFull { id: id.clone(), bytes: session.bytes.unsigned_abs() }.into());
    }
    let Session { number, next, records: count, bytes, dropped, .. } = session;
    // Never the same time twice: SQLite neither writes nor syncs a commit that changes nothing, and what came before would
    // not be durable.
    connection
        .prepare_cached(
            "UPDATE sessions SET next = ?2, records = ?3, bytes = ?4, dropped = ?5, updated = max(?6, updated + 1) \
             WHERE number = ?1",
        )?
        .execute(params![number, next, count, bytes, dropped, now.0])?;
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

/// Drops the oldest records of some kinds before a place, until so many bytes are free.
fn drop_records(
    connection: &Connection,
    session: &mut Session,
    before: i64,
    which: impl Fn(i64) -> bool,
    excess: i64,
) -> Result<(), Fault> {
    let first = session.number * PLACES;
    let mut oldest = connection
        .prepare_cached("SELECT key, kind, size FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key")?;
    let mut rows = oldest.query([first, first + before])?;
    let mut gone = Vec::new();
    let mut freed = 0;
    while freed < excess
        && let Some(row) = rows.next()?
    {
        let (key, kind, size): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if which(kind) {
            gone.push(key);
            freed += size;
        }
    }
    drop(rows);
    let mut delete = connection.prepare_cached("DELETE FROM records WHERE key = ?1")?;
    for key in &gone {
        delete.execute([key])?;
    }
    session.records -= i64::try_from(gone.len()).unwrap_or(i64::MAX);
    session.bytes -= freed;
    Ok(())
}

/// Gives every record of a session to `take`, in order, until it has had enough.
pub(super) fn each_record(
    connection: &Connection,
    number: i64,
    mut take: impl FnMut(i64, Encoded) -> Result<bool, Fault>,
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT key, kind, codec, size, data, sum FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key",
    )?;
    let mut rows = statement.query([number * PLACES, (number + 1) * PLACES])?;
    while let Some(row) = rows.next()? {
        if !take(row.get(0)?, encoded(row)?)? {
            break;
        }
    }
    Ok(())
}

fn encoded(row: &Row<'_>) -> rusqlite::Result<Encoded> {
    let (kind, codec, size) = (row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(Encoded { kind, codec, size, data: row.get(4)?, sum: row.get(5)? })
}

/// Puts a record in at the key it had in another database.
pub(super) fn insert_record(connection: &Connection, key: i64, record: &Encoded) -> rusqlite::Result<()> {
    let Encoded { kind, codec, size, data, sum } = record;
    connection
        .prepare_cached(
            "INSERT INTO records (key, kind, codec, size, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![key, kind, codec, size, data, sum])?;
    connection
        .prepare_cached("UPDATE sessions SET records = records + 1, bytes = bytes + ?2 WHERE number = ?1")?
        .execute(params![key / PLACES, size])?;
    Ok(())
}

/// Reads a session with all its records.
pub(super) fn load(connection: &Connection, id: &SessionId) -> Result<Stored, Fault> {
    let session = find(connection, id)?;
    let mut stored = Stored {
        meta: session.meta,
        updates: Vec::new(),
        messages: Vec::new(),
        dropped: session.dropped.unsigned_abs(),
    };
    let mut count = 0;
    each_record(connection, session.number, |_, record| {
        count += 1;
        let unreadable = |why| StoreError::Unreadable { id: id.clone(), why };
        match record.decode()?.map_err(unreadable)? {
            Decoded::Update(update) => stored.updates.push(*update),
            Decoded::Unknown => stored.dropped += 1,
            Decoded::Message(message) => stored.messages.push(message),
            Decoded::Compacted(messages) => stored.messages = messages,
        }
        Ok(true)
    })?;
    if count != session.records {
        return Err(Fault::Damaged(format!(
            "session {id} has {count} records and should have {}",
            session.records
        )));
    }
    Ok(stored)
}

/// Puts a session in that begins with the records of another.
pub(super) fn fork(connection: &Connection, from: &SessionId, meta: &Meta) -> Result<i64, Fault> {
    let old = find(connection, from)?;
    let number = insert(connection, meta)?;
    connection
        .prepare_cached(
            "INSERT INTO records (key, kind, codec, size, data, sum) \
             SELECT key + ?3, kind, codec, size, data, sum FROM records WHERE key >= ?1 AND key < ?2",
        )?
        .execute([old.number * PLACES, (old.number + 1) * PLACES, (number - old.number) * PLACES])?;
    connection
        .prepare_cached(
            "UPDATE sessions SET next = ?2, records = ?3, bytes = ?4, dropped = ?5 WHERE number = ?1",
        )?
        .execute([number, old.next, old.records, old.bytes, old.dropped])?;
    Ok(number)
}

/// Removes a session with all its records, and says whether there was one.
pub(super) fn delete(connection: &Connection, id: &SessionId) -> Result<bool, Fault> {
    let number: Option<i64> = connection
        .prepare_cached("DELETE FROM sessions WHERE id = ?1 RETURNING number")?
        .query_row([&*id.0], |row| row.get(0))
        .optional()?;
    let Some(number) = number else { return Ok(false) };
    connection
        .prepare_cached("DELETE FROM records WHERE key >= ?1 AND key < ?2")?
        .execute([number * PLACES, (number + 1) * PLACES])?;
    Ok(true)
}

/// Lists sessions that were used before one, the latest first.
pub(super) fn list(
    connection: &Connection,
    cwd: Option<&str>,
    before: i64,
    page: usize,
) -> Result<Page, Fault> {
    let filter = if cwd.is_some() { "cwd = ?3 AND" } else { "?3 IS NULL AND" };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM sessions WHERE {filter} touched < ?1 ORDER BY touched DESC LIMIT ?2"
    ))?;
    let limit = i64::try_from(page).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = statement.query(params![before, limit, cwd])?;
    let mut found = Page { sessions: Vec::new(), next: None };
    let mut last = before;
    while let Some(row) = rows.next()? {
        if found.sessions.len() == page {
            found.next = Some(super::cursor::text(last));
            break;
        }
        let session = session(row)?;
        last = session.touched;
        found.sessions.push(session.meta);
    }
    Ok(found)
}

/// Says what is wrong with what the rows hold, if anything is.
pub(super) fn verify(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut all = sessions(connection, "ASC")?;
    let mut rows = all.query([])?;
    let mut expected = 0;
    while let Some(row) = rows.next()? {
        match session(row) {
            Ok(session) => expected += session.records,
            Err(Fault::Sql(error)) => return Err(error),
            Err(Fault::Damaged(why)) => return Ok(Some(why)),
            Err(Fault::Known(error)) => return Ok(Some(error.to_string())),
        }
    }
    let mut records =
        connection.prepare("SELECT key, kind, codec, size, data, sum FROM records ORDER BY key")?;
    let mut rows = records.query([])?;
    let mut found = 0;
    while let Some(row) = rows.next()? {
        if !encoded(row)?.is_whole() {
            return Ok(Some("a record is not what was written".to_owned()));
        }
        found += 1;
    }
    Ok((found != expected).then(|| format!("there are {found} records and should be {expected}")))
}
