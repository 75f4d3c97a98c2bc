//! Changes as rows: how a draft becomes one and how a change is read back.

use std::thread;

use bowline_state::changes::{Change, ChangeId, ContentHash, FileState, Moment, Origin, Reversal, Source};
use rusqlite::types::{FromSql, FromSqlError, Value, ValueRef};
use rusqlite::{Connection, Row, params, params_from_iter};

use super::blobs::{Built, Keeper, compress, difference};
use super::error::{Fault, JournalError};
use super::recent::Recent;
use super::seal::{Seal, is_secret};
use super::{
    Draft, Entry, Filter, MAX_COMMAND_BYTES, MAX_CONTENT_BYTES, MAX_TEXT_BYTES, Manner, Outcome, Pending,
    Side, SideContent,
};

const PENDING: i64 = 0;
const DONE: i64 = 1;
const ABANDONED: i64 = 2;
const UNKNOWN: i64 = 3;

const COLUMNS: &str = "id, at, state, source, manner, temp, session, turn, call, command, path, before_hash, \
    before_size, before_mode, after_hash, after_size, after_mode, reverses";

/// From this many bytes on a text is compressed by a thread of its own.
const LARGE: usize = 64 << 10;

/// Inserts drafts as one batch, in order, with their contents. Returns how many bytes these take, too.
pub(super) fn insert(
    connection: &Connection,
    recent: &mut Recent,
    drafts: &[Draft<'_>],
    outcome: Option<Outcome>,
    now: Moment,
    seal: Option<&Seal>,
) -> Result<(Vec<ChangeId>, u64), Fault> {
    let next = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'changes'), 0) + 1";
    let batch: i64 = connection.prepare_cached(next)?.query_row([], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO changes (batch, at, state, source, manner, temp, session, turn, call, command, path, \
         before_hash, before_size, before_mode, after_hash, after_size, after_mode, reverses) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    )?;
    let mut keeper = Keeper::new(connection)?;
    let mut ids = Vec::with_capacity(drafts.len());
    for draft in drafts {
        check(draft)?;
        let (before, after) = match seal.filter(|_| is_secret(draft.path)) {
            Some(seal) => sealed_states(&mut keeper, draft, seal)?,
            None => states(&mut keeper, recent, draft, drafts.len())?,
        };
        let (manner, temp) = match &draft.manner {
            Manner::Rename { temp } => (0, Some(temp)),
            Manner::InPlace => (1, None),
            Manner::Found => (2, None),
        };
        statement.execute(params![
            batch,
            now.0,
            state_number(outcome),
            source_number(draft.source),
            manner,
            temp,
            draft.origin.session,
            draft.origin.turn.map(u64::cast_signed),
            draft.origin.call,
            draft.origin.command.as_deref().map(shortened),
            draft.path,
            before.as_ref().map(|state| state.hash.as_bytes()),
            before.map(|state| state.size.cast_signed()),
            before.map(|state| state.mode),
            after.as_ref().map(|state| state.hash.as_bytes()),
            after.map(|state| state.size.cast_signed()),
            after.map(|state| state.mode),
            reversals_text(draft.reverses),
        ])?;
        ids.push(ChangeId(connection.last_insert_rowid()));
    }
    Ok((ids, keeper.bytes_added()))
}

/// Gives a change its outcome. One whose outcome is unknown may get another later, any other keeps its own.
pub(super) fn settle(connection: &Connection, id: ChangeId, outcome: Outcome) -> Result<(), Fault> {
    let sql = "UPDATE changes SET state = ?2 WHERE id = ?1 AND state IN (0, 3, ?2)";
    if connection.prepare_cached(sql)?.execute(params![id.0, state_number(Some(outcome))])? == 1 {
        return Ok(());
    }
    match one(connection, id)? {
        Some(_) => Err(JournalError::Settled(id).into()),
        None => Err(JournalError::NoSuchChange(id).into()),
    }
}

/// Returns one change, whatever became of it.
pub(super) fn one(connection: &Connection, id: ChangeId) -> Result<Option<Entry>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM changes WHERE id = ?1");
    Ok(read(connection, &sql, &[id.0.into()])?.pop().map(|(entry, _)| entry))
}

/// Returns the change whose temporary file has a name, whatever became of it.
pub(super) fn by_temp(connection: &Connection, temp: &str) -> Result<Option<Entry>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM changes WHERE temp = ?1");
    Ok(read(connection, &sql, &[temp.to_owned().into()])?.pop().map(|(entry, _)| entry))
}

/// Returns the changes that have no outcome yet, in order.
pub(super) fn pending(connection: &Connection) -> Result<Vec<Pending>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM changes WHERE state = 0 ORDER BY id");
    let rows = read(connection, &sql, &[])?;
    Ok(rows.into_iter().map(|(entry, manner)| Pending { change: entry.change, manner }).collect())
}

/// Returns the changes that were made, or may have been, in order.
pub(super) fn list(connection: &Connection, filter: &Filter<'_>) -> Result<Vec<Entry>, Fault> {
    let text = |text: Option<&str>| text.map(|text| Value::from(text.to_owned()));
    let conditions = [
        (" AND session = ?", text(filter.session)),
        (" AND turn = ?", filter.turn.map(|turn| Value::from(turn.cast_signed()))),
        (" AND call = ?", text(filter.call)),
        (" AND path = ?", text(filter.path)),
        (" AND id > ?", filter.after.map(|id| Value::from(id.0))),
        (" AND id < ?", filter.before.map(|id| Value::from(id.0))),
    ];
    let mut sql = format!("SELECT {COLUMNS} FROM changes WHERE state IN (1, 3)");
    let mut values = Vec::new();
    for (condition, value) in conditions {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(value);
        }
    }
    // Newest first, so that the limit keeps the newest.
    sql.push_str(" ORDER BY id DESC LIMIT ?");
    values.push(filter.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX)).into());
    let mut entries: Vec<_> = read(connection, &sql, &values)?.into_iter().map(|(entry, _)| entry).collect();
    entries.reverse();
    Ok(entries)
}

fn read(connection: &Connection, sql: &str, values: &[Value]) -> Result<Vec<(Entry, Manner)>, Fault> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let id = ChangeId(row.get("id")?);
        entries.push(entry(row, id).ok_or(JournalError::DamagedChange(id))?);
    }
    Ok(entries)
}

/// Reads one row; none if a value in it is none that was ever written.
fn entry(row: &Row<'_>, id: ChangeId) -> Option<(Entry, Manner)> {
    let outcome = match row.get("state").ok()? {
        PENDING => None,
        DONE => Some(Outcome::Done),
        ABANDONED => Some(Outcome::Abandoned),
        UNKNOWN => Some(Outcome::Unknown),
        _ => return None,
    };
    let source = match row.get("source").ok()? {
        0 => Source::Written,
        1 => Source::Observed,
        2 => Source::Claimed,
        _ => return None,
    };
    let manner = match row.get("manner").ok()? {
        0 => Manner::Rename { temp: row.get("temp").ok()? },
        1 => Manner::InPlace,
        2 => Manner::Found,
        _ => return None,
    };
    let change = Change {
        id,
        at: Moment(row.get("at").ok()?),
        origin: Origin {
            session: row.get("session").ok()?,
            turn: row.get::<_, Option<i64>>("turn").ok()?.map(i64::cast_unsigned),
            call: row.get("call").ok()?,
            command: row.get("command").ok()?,
        },
        source,
        path: row.get("path").ok()?,
        before: read_state(row, ["before_hash", "before_size", "before_mode"])?,
        after: read_state(row, ["after_hash", "after_size", "after_mode"])?,
        reverses: read_reversals(row.get::<_, Option<String>>("reverses").ok()?.as_deref())?,
    };
    Some((Entry { change, outcome }, manner))
}

fn read_state(row: &Row<'_>, [hash, size, mode]: [&str; 3]) -> Option<Option<FileState>> {
    let Some(Hash(hash)) = row.get(hash).ok()? else { return Some(None) };
    let size = row.get::<_, i64>(size).ok()?.cast_unsigned();
    Some(Some(FileState { hash, size, mode: row.get(mode).ok()? }))
}

/// A hash in a column.
pub(super) struct Hash(pub(super) ContentHash);

impl FromSql for Hash {
    fn column_result(value: ValueRef<'_>) -> Result<Self, FromSqlError> {
        <[u8; 32]>::column_result(value).map(|bytes| Self(ContentHash::from(bytes)))
    }
}

/// Keeps both sides of a draft: the new one as what differs from the old one, if that is little. Else, if it is a single
/// large one, it is compressed while both are hashed.
fn states(
    keeper: &mut Keeper<'_>,
    recent: &mut Recent,
    draft: &Draft<'_>,
    drafts: usize,
) -> Result<(Option<FileState>, Option<FileState>), Fault> {
    let (before, after) = (bytes(draft, draft.before)?, bytes(draft, draft.after)?);
    let delta = before.zip(after).and_then(|(before, after)| difference(before, after));
    let large = after.filter(|after| delta.is_none() && drafts == 1 && after.len() >= LARGE);
    thread::scope(|scope| {
        let compressing = large.map(|bytes| scope.spawn(|| compress(bytes)));
        let (before_hash, after_hash) = recent.hashes(before, after);
        if let Some((hash, bytes)) = before_hash.as_ref().zip(before) {
            keeper.put(hash, bytes)?;
        }
        if let Some((hash, bytes)) = after_hash.as_ref().zip(after) {
            let built = before_hash.zip(delta).map(|(base, delta)| Built { base, delta });
            // Stored as they are, should the other thread have failed.
            let compressed = || {
                compressing.map_or_else(|| compress(bytes), |compressing| compressing.join().ok().flatten())
            };
            keeper.put_as(hash, bytes, built.as_ref(), compressed)?;
        }
        Ok((state(draft.before, before_hash), state(draft.after, after_hash)))
    })
}

/// Keeps both sides of a draft of a secret file, each by itself: what differs little from a secret is one.
fn sealed_states(
    keeper: &mut Keeper<'_>,
    draft: &Draft<'_>,
    seal: &Seal,
) -> Result<(Option<FileState>, Option<FileState>), Fault> {
    let mut keep = |side: Option<Side<'_>>| {
        let bytes = bytes(draft, side)?;
        let hash = bytes.map(ContentHash::of);
        if let Some((hash, bytes)) = hash.as_ref().zip(bytes) {
            keeper.put_sealed(hash, bytes, seal)?;
        }
        Ok::<_, Fault>(state(side, hash))
    };
    Ok((keep(draft.before)?, keep(draft.after)?))
}

/// Returns the bytes of a side, if they are to be kept.
fn bytes<'a>(draft: &Draft<'_>, side: Option<Side<'a>>) -> Result<Option<&'a [u8]>, JournalError> {
    match side.map(|side| side.content) {
        Some(SideContent::Bytes(bytes)) if bytes.len() > MAX_CONTENT_BYTES => {
            Err(JournalError::TooLarge { path: draft.path.to_owned(), bytes: bytes.len() })
        }
        Some(SideContent::Bytes(bytes)) => Ok(Some(bytes)),
        Some(SideContent::Known { .. }) | None => Ok(None),
    }
}

fn state(side: Option<Side<'_>>, hashed: Option<ContentHash>) -> Option<FileState> {
    let Side { content, mode } = side?;
    let (hash, size) = match content {
        SideContent::Known { hash, size } => (hash, size),
        SideContent::Bytes(bytes) => (hashed?, bytes.len() as u64),
    };
    Some(FileState { hash, size, mode })
}

fn check(draft: &Draft<'_>) -> Result<(), JournalError> {
    let temp = match &draft.manner {
        Manner::Rename { temp } => Some(temp.as_str()),
        Manner::InPlace | Manner::Found => None,
    };
    let names = [
        ("path", Some(draft.path)),
        ("name of the temporary file", temp),
        ("session's id", draft.origin.session.as_deref()),
        ("tool call's id", draft.origin.call.as_deref()),
    ];
    for (what, name) in names {
        let bytes = name.map_or(0, str::len);
        if bytes > MAX_TEXT_BYTES {
            return Err(JournalError::TooLong { what, bytes });
        }
    }
    Ok(())
}

/// A command is there to be shown: its beginning will do.
fn shortened(command: &str) -> &str {
    &command[..command.floor_char_boundary(MAX_COMMAND_BYTES)]
}

fn state_number(outcome: Option<Outcome>) -> i64 {
    match outcome {
        None => PENDING,
        Some(Outcome::Done) => DONE,
        Some(Outcome::Abandoned) => ABANDONED,
        Some(Outcome::Unknown) => UNKNOWN,
    }
}

fn source_number(source: Source) -> i64 {
    match source {
        Source::Written => 0,
        Source::Observed => 1,
        Source::Claimed => 2,
    }
}

/// Writes reversals as `12 13:0,2`: the whole of change 12, and two hunks of change 13.
fn reversals_text(reversals: &[Reversal]) -> Option<String> {
    let text = |reversal: &Reversal| match &reversal.hunks {
        None => reversal.change.to_string(),
        Some(hunks) => {
            let hunks: Vec<_> = hunks.iter().map(usize::to_string).collect();
            format!("{}:{}", reversal.change, hunks.join(","))
        }
    };
    let texts: Vec<_> = reversals.iter().map(text).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

pub(super) fn read_reversals(text: Option<&str>) -> Option<Vec<Reversal>> {
    let Some(text) = text else { return Some(Vec::new()) };
    let reversal = |word: &str| {
        let (change, hunks) = match word.split_once(':') {
            None => (word, None),
            Some((change, "")) => (change, Some(Vec::new())),
            Some((change, hunks)) => {
                (change, Some(hunks.split(',').map(str::parse).collect::<Result<_, _>>().ok()?))
            }
        };
        Some(Reversal { change: ChangeId(change.parse().ok()?), hunks })
    };
    text.split(' ').map(reversal).collect()
}
