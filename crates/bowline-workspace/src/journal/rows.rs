//! Changes as rows: writing drafts and reading changes.

use std::thread;

use bowline_history::changes::{
    Change, ChangeId, ChangeOrigin, ChangeOutcome, ChangeSource, FileState, KEPT_TEXT_CALL, Reversal,
};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use rusqlite::types::{FromSql, FromSqlError, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};

use super::blobs::{BlobWriter, DeltaBlob, compress_if_smaller, delta_if_smaller, get_blob};
use super::encryption::{JournalKey, is_secret};
use super::error::{JournalError, JournalTransactionError};
use super::recent_hashes::RecentHashes;
use super::{
    ApplyMethod, ChangeDraft, ChangeFilter, DraftContent, DraftSide, JournalEntry, MAX_COMMAND_BYTES,
    MAX_CONTENT_BYTES, MAX_TEXT_BYTES, PendingChange,
};

const PENDING: i64 = 0;
const DONE: i64 = 1;
const ABANDONED: i64 = 2;
const UNKNOWN: i64 = 3;

const COLUMNS: &str = "id, at, state, source, manner, temp, session, turn, call, command, path, before_hash, \
    before_size, before_mode, after_hash, after_size, after_mode, reverses, moved_from";

/// Texts from this many bytes on are compressed on a separate thread.
const MIN_PARALLEL_BYTES: usize = 64 << 10;

/// Inserts drafts as one batch, in order, with their contents. Also returns the stored size of the contents.
pub(super) fn insert_drafts(
    connection: &Connection,
    recent: &mut RecentHashes,
    drafts: &[ChangeDraft<'_>],
    outcome: Option<ChangeOutcome>,
    now: Timestamp,
    seal: Option<&JournalKey>,
) -> Result<(Vec<ChangeId>, u64), JournalTransactionError> {
    let next = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'changes'), 0) + 1";
    let batch: i64 = connection.prepare_cached(next)?.query_row([], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO changes (batch, at, state, source, manner, temp, session, turn, call, command, path, \
         before_hash, before_size, before_mode, after_hash, after_size, after_mode, reverses, moved_from) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    )?;
    let mut keeper = BlobWriter::new(connection)?;
    let mut ids = Vec::with_capacity(drafts.len());
    for draft in drafts {
        check_draft(draft)?;
        let (before, after) = match seal.filter(|_| is_secret(draft.path)) {
            Some(seal) => store_sides_encrypted(&mut keeper, draft, seal)?,
            None => store_sides(&mut keeper, recent, draft, drafts.len())?,
        };
        let (manner, temp) = match &draft.method {
            ApplyMethod::Rename { temp } => (0, Some(temp)),
            ApplyMethod::InPlace | ApplyMethod::Tail(_) => (1, None),
            ApplyMethod::AlreadyApplied => (2, None),
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
            draft.origin.command.as_deref().map(truncate_command),
            draft.path,
            before.as_ref().map(|state| state.hash.as_bytes()),
            before.map(|state| state.size.cast_signed()),
            before.map(|state| state.mode),
            after.as_ref().map(|state| state.hash.as_bytes()),
            after.map(|state| state.size.cast_signed()),
            after.map(|state| state.mode),
            format_reversals(draft.reverses),
            draft.moved_from,
        ])?;
        let id = ChangeId(connection.last_insert_rowid());
        if let ApplyMethod::Tail(bytes) = &draft.method {
            let hash = ContentHash::digest(bytes);
            match seal.filter(|_| is_secret(draft.path)) {
                Some(seal) => keeper.store_encrypted(&hash, bytes, seal)?,
                None => keeper.store(&hash, bytes)?,
            }
            let sql = "INSERT INTO tails (change, hash) VALUES (?1, ?2)";
            connection.prepare_cached(sql)?.execute(params![id.0, hash.as_bytes()])?;
        }
        ids.push(id);
    }
    Ok((ids, keeper.bytes_added()))
}

/// Sets the outcome of a change. An unknown outcome may be replaced later; any other is final.
pub(super) fn settle_change(
    connection: &Connection,
    id: ChangeId,
    outcome: ChangeOutcome,
) -> Result<(), JournalTransactionError> {
    let sql = "UPDATE changes SET state = ?2 WHERE id = ?1 AND state IN (0, 3, ?2)";
    if connection.prepare_cached(sql)?.execute(params![id.0, state_number(Some(outcome))])? == 1 {
        return Ok(());
    }
    match find_change(connection, id)? {
        Some(_) => Err(JournalError::AlreadySettled(id).into()),
        None => Err(JournalError::NoSuchChange(id).into()),
    }
}

/// Returns one change, regardless of its outcome.
pub(super) fn find_change(
    connection: &Connection,
    id: ChangeId,
) -> Result<Option<JournalEntry>, JournalTransactionError> {
    let sql = format!("SELECT {COLUMNS} FROM changes WHERE id = ?1");
    Ok(query_entries(connection, &sql, &[id.0.into()])?.pop().map(|(entry, _)| entry))
}

/// Returns the change with the given temporary file name, regardless of its outcome.
pub(super) fn find_change_by_temp(
    connection: &Connection,
    temp: &str,
) -> Result<Option<JournalEntry>, JournalTransactionError> {
    let sql = format!("SELECT {COLUMNS} FROM changes WHERE temp = ?1");
    Ok(query_entries(connection, &sql, &[temp.to_owned().into()])?.pop().map(|(entry, _)| entry))
}

/// Returns the pending changes, in order.
pub(super) fn list_pending(
    connection: &Connection,
    seal: impl Fn() -> Option<JournalKey>,
) -> Result<Vec<PendingChange>, JournalTransactionError> {
    let sql = format!("SELECT {COLUMNS} FROM changes WHERE state = 0 ORDER BY id");
    let rows = query_entries(connection, &sql, &[])?;
    let to_pending = |(entry, method): (JournalEntry, ApplyMethod)| {
        let tail = match method {
            // Without its bytes the outcome cannot be determined, as for a lost text.
            ApplyMethod::InPlace => match find_tail(connection, entry.change.id, &seal) {
                Err(JournalTransactionError::Caller(JournalError::Damaged(_))) => None,
                tail => tail?,
            },
            ApplyMethod::Rename { .. } | ApplyMethod::Tail(_) | ApplyMethod::AlreadyApplied => None,
        };
        Ok(PendingChange { change: entry.change, method: tail.map_or(method, ApplyMethod::Tail) })
    };
    rows.into_iter().map(to_pending).collect()
}

/// Returns the bytes that a change added to the end of its file or removed from there, if only these are stored.
pub(super) fn find_tail(
    connection: &Connection,
    id: ChangeId,
    seal: impl FnOnce() -> Option<JournalKey>,
) -> Result<Option<Vec<u8>>, JournalTransactionError> {
    let mut statement = connection.prepare_cached("SELECT hash FROM tails WHERE change = ?1")?;
    let hash = statement.query_row([id.0], |row| row.get::<_, HashColumn>(0)).optional()?;
    let Some(HashColumn(hash)) = hash else { return Ok(None) };
    match get_blob(connection, &hash, seal)? {
        Some(bytes) => Ok(Some(bytes)),
        // A tail stays as long as its change has one.
        None => Err(JournalError::Damaged(hash).into()),
    }
}

/// Returns the newest change of a file that was not abandoned. Texts that are only kept are not changes of the file.
pub(super) fn find_newest_change(
    connection: &Connection,
    path: &str,
) -> Result<Option<JournalEntry>, JournalTransactionError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM changes WHERE path = ?1 AND state <> {ABANDONED} \
         AND NOT (session IS NULL AND coalesce(call, '') = ?2) ORDER BY id DESC LIMIT 1"
    );
    let values = [path.to_owned().into(), KEPT_TEXT_CALL.to_owned().into()];
    Ok(query_entries(connection, &sql, &values)?.pop().map(|(entry, _)| entry))
}

/// Returns the changes that were applied, or may have been, in order.
pub(super) fn list_changes(
    connection: &Connection,
    filter: &ChangeFilter<'_>,
) -> Result<Vec<JournalEntry>, JournalTransactionError> {
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
    let mut entries: Vec<_> =
        query_entries(connection, &sql, &values)?.into_iter().map(|(entry, _)| entry).collect();
    entries.reverse();
    Ok(entries)
}

/// Returns the newest change that was applied, or may have been.
pub(super) fn find_last_change(connection: &Connection) -> Result<Option<ChangeId>, JournalTransactionError> {
    let sql = "SELECT id FROM changes WHERE state IN (1, 3) ORDER BY id DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row([], |row| Ok(ChangeId(row.get(0)?))).optional()?)
}

fn query_entries(
    connection: &Connection,
    sql: &str,
    values: &[Value],
) -> Result<Vec<(JournalEntry, ApplyMethod)>, JournalTransactionError> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let id = ChangeId(row.get("id")?);
        entries.push(read_entry(row, id).ok_or(JournalError::DamagedChange(id))?);
    }
    Ok(entries)
}

/// Reads one row; returns `None` if it has an invalid value.
fn read_entry(row: &Row<'_>, id: ChangeId) -> Option<(JournalEntry, ApplyMethod)> {
    let outcome = match row.get("state").ok()? {
        PENDING => None,
        DONE => Some(ChangeOutcome::Done),
        ABANDONED => Some(ChangeOutcome::Abandoned),
        UNKNOWN => Some(ChangeOutcome::Unknown),
        _ => return None,
    };
    let source = match row.get("source").ok()? {
        0 => ChangeSource::Written,
        1 => ChangeSource::Observed,
        2 => ChangeSource::Claimed,
        _ => return None,
    };
    let manner = match row.get("manner").ok()? {
        0 => ApplyMethod::Rename { temp: row.get("temp").ok()? },
        1 => ApplyMethod::InPlace,
        2 => ApplyMethod::AlreadyApplied,
        _ => return None,
    };
    let change = Change {
        id,
        at: Timestamp(row.get("at").ok()?),
        origin: ChangeOrigin {
            session: row.get("session").ok()?,
            turn: row.get::<_, Option<i64>>("turn").ok()?.map(i64::cast_unsigned),
            call: row.get("call").ok()?,
            command: row.get("command").ok()?,
        },
        source,
        path: row.get("path").ok()?,
        before: read_file_state(row, ["before_hash", "before_size", "before_mode"])?,
        after: read_file_state(row, ["after_hash", "after_size", "after_mode"])?,
        moved_from: row.get("moved_from").ok()?,
        reverses: parse_reversals(row.get::<_, Option<String>>("reverses").ok()?.as_deref())?,
    };
    Some((JournalEntry { change, outcome }, manner))
}

fn read_file_state(row: &Row<'_>, [hash, size, mode]: [&str; 3]) -> Option<Option<FileState>> {
    let Some(HashColumn(hash)) = row.get(hash).ok()? else { return Some(None) };
    let size = row.get::<_, i64>(size).ok()?.cast_unsigned();
    Some(Some(FileState { hash, size, mode: row.get(mode).ok()? }))
}

/// A column that holds a hash.
pub(super) struct HashColumn(pub(super) ContentHash);

impl FromSql for HashColumn {
    fn column_result(value: ValueRef<'_>) -> Result<Self, FromSqlError> {
        <[u8; 32]>::column_result(value).map(|bytes| Self(ContentHash::from(bytes)))
    }
}

/// Stores both sides of a draft: the new one as a delta to the old one, if that is small. Otherwise, a single large one
/// is compressed while both are hashed.
fn store_sides(
    keeper: &mut BlobWriter<'_>,
    recent: &mut RecentHashes,
    draft: &ChangeDraft<'_>,
    drafts: usize,
) -> Result<(Option<FileState>, Option<FileState>), JournalTransactionError> {
    let (before, after) = (side_bytes(draft, draft.before)?, side_bytes(draft, draft.after)?);
    let delta = before.zip(after).and_then(|(before, after)| delta_if_smaller(before, after));
    let large = after.filter(|after| delta.is_none() && drafts == 1 && after.len() >= MIN_PARALLEL_BYTES);
    thread::scope(|scope| {
        let compressing = large.map(|bytes| scope.spawn(|| compress_if_smaller(bytes)));
        let (before_hash, after_hash) = recent.hashes(before, after);
        if let Some((hash, bytes)) = before_hash.as_ref().zip(before) {
            keeper.store(hash, bytes)?;
        }
        if let Some((hash, bytes)) = after_hash.as_ref().zip(after) {
            let built = before_hash.zip(delta).map(|(base, delta)| DeltaBlob { base, delta });
            // If the other thread failed, the bytes are stored raw.
            let compressed = || {
                compressing.map_or_else(
                    || compress_if_smaller(bytes),
                    |compressing| compressing.join().ok().flatten(),
                )
            };
            keeper.store_encoded(hash, bytes, built.as_ref(), compressed)?;
        }
        Ok((side_state(draft.before, before_hash), side_state(draft.after, after_hash)))
    })
}

/// Stores both sides of a secret file's draft separately: a delta to a secret would itself be secret.
fn store_sides_encrypted(
    keeper: &mut BlobWriter<'_>,
    draft: &ChangeDraft<'_>,
    seal: &JournalKey,
) -> Result<(Option<FileState>, Option<FileState>), JournalTransactionError> {
    let mut keep = |side: Option<DraftSide<'_>>| {
        let bytes = side_bytes(draft, side)?;
        let hash = bytes.map(ContentHash::digest);
        if let Some((hash, bytes)) = hash.as_ref().zip(bytes) {
            keeper.store_encrypted(hash, bytes, seal)?;
        }
        Ok::<_, JournalTransactionError>(side_state(side, hash))
    };
    Ok((keep(draft.before)?, keep(draft.after)?))
}

/// Returns the bytes of a side, if they are to be stored.
fn side_bytes<'a>(
    draft: &ChangeDraft<'_>,
    side: Option<DraftSide<'a>>,
) -> Result<Option<&'a [u8]>, JournalError> {
    match side.map(|side| side.content) {
        Some(DraftContent::Bytes(bytes)) if bytes.len() > MAX_CONTENT_BYTES => {
            Err(JournalError::TooLarge { path: draft.path.to_owned(), bytes: bytes.len() })
        }
        Some(DraftContent::Bytes(bytes)) => Ok(Some(bytes)),
        Some(DraftContent::HashOnly { .. }) | None => Ok(None),
    }
}

fn side_state(side: Option<DraftSide<'_>>, hashed: Option<ContentHash>) -> Option<FileState> {
    let DraftSide { content, mode } = side?;
    let (hash, size) = match content {
        DraftContent::HashOnly { hash, size } => (hash, size),
        DraftContent::Bytes(bytes) => (hashed?, bytes.len() as u64),
    };
    Some(FileState { hash, size, mode })
}

fn check_draft(draft: &ChangeDraft<'_>) -> Result<(), JournalError> {
    let temp = match &draft.method {
        ApplyMethod::Rename { temp } => Some(temp.as_str()),
        ApplyMethod::InPlace | ApplyMethod::Tail(_) | ApplyMethod::AlreadyApplied => None,
    };
    if let ApplyMethod::Tail(bytes) = &draft.method
        && bytes.len() > MAX_CONTENT_BYTES
    {
        return Err(JournalError::TooLarge { path: draft.path.to_owned(), bytes: bytes.len() });
    }
    let names = [
        ("path", Some(draft.path)),
        ("path of the moved file", draft.moved_from),
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

/// A command is only displayed: its beginning is enough.
fn truncate_command(command: &str) -> &str {
    &command[..command.floor_char_boundary(MAX_COMMAND_BYTES)]
}

fn state_number(outcome: Option<ChangeOutcome>) -> i64 {
    match outcome {
        None => PENDING,
        Some(ChangeOutcome::Done) => DONE,
        Some(ChangeOutcome::Abandoned) => ABANDONED,
        Some(ChangeOutcome::Unknown) => UNKNOWN,
    }
}

fn source_number(source: ChangeSource) -> i64 {
    match source {
        ChangeSource::Written => 0,
        ChangeSource::Observed => 1,
        ChangeSource::Claimed => 2,
    }
}

/// Formats reversals as `12 13:0,2`: change 12 as a whole, and two hunks of change 13.
fn format_reversals(reversals: &[Reversal]) -> Option<String> {
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

pub(super) fn parse_reversals(text: Option<&str>) -> Option<Vec<Reversal>> {
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
