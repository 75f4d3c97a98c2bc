//! Retention: what is pruned from a journal, what never is, and returning its space.
//!
//! The texts of a change are dropped before its row: a change without texts is still listed, and undoing it reports
//! that they were pruned. In such a row the hashes are [`ContentHash::UNKNOWN`]. Only rows beyond the maximum number
//! are removed, and those of one turn together, so that no turn is known in part.
//!
//! Never pruned, regardless of size and age: the latest turn of each running session (`live_sessions`) and of the most
//! recently active session, and texts that exist only in the journal. If these leave no room, an agent's write is
//! refused before the disk is touched. A text is dropped only when no other is stored as a delta to it.

use std::collections::HashSet;

use bowline_history::changes::KEPT_TEXT_CALL;
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Statement, ToSql, Transaction, params};

use super::Retention;
use super::error::{JournalError, JournalTransactionError};
use super::live_sessions::RunningSessions;
use super::rows::parse_reversals;

/// How many contents are processed per batch.
const BATCH_SIZE: usize = 256;
/// How many free pages (4 MiB) stay in the file for later writes; the rest is returned to the file system.
const SPARE_PAGES: i64 = 1024;
/// How many pages (16 MiB) are returned per transaction, so that others can write in between.
const PAGES_PER_TRANSACTION: i64 = 4096;
/// When a write finds the journal full, this fraction of it (one in `FREED_DIVISOR`) is freed at once, because
/// measuring is slow.
const FREED_DIVISOR: u64 = 8;

/// What was pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// How many changes that were applied, or may have been, lost their texts or were removed.
    pub changes: u64,
    /// How many contents were dropped.
    pub blobs: u64,
    /// Their size in bytes, compressed.
    pub bytes: u64,
}

/// How far contents may grow before they must be measured again, which visits each of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoomEstimate {
    last_measurement: Option<RoomMeasurement>,
}

#[derive(Debug, Clone, Copy)]
struct RoomMeasurement {
    // The size of the database at that time; growth by other processes shows in it.
    bytes_used: u64,
    // How many bytes of contents there was room for at that time, and how many this process has added since.
    spare: u64,
    added: u64,
}

impl RoomEstimate {
    /// Counts added contents, and returns whether there is certainly room for them.
    fn has_room_for(&mut self, added: u64, bytes_used: u64) -> bool {
        self.last_measurement.as_mut().is_some_and(|measured| {
            measured.added = measured.added.saturating_add(added);
            measured.added.max(bytes_used.saturating_sub(measured.bytes_used)) <= measured.spare
        })
    }
}

/// Makes room for contents of `added` bytes that were just inserted, by dropping old changes.
///
/// # Errors
/// Returns [`JournalError::NoRoom`] if what undo needs exceeds the journal's limit and `may_refuse` is set.
pub(super) fn make_room(
    transaction: &Transaction<'_>,
    retention: &Retention,
    room: &mut RoomEstimate,
    added: u64,
    running: impl FnOnce() -> Result<RunningSessions, JournalError>,
    may_refuse: bool,
) -> Result<(), JournalTransactionError> {
    let max = retention.max_bytes;
    let used = database_bytes(transaction)?;
    // Contents are never larger than their database.
    if used <= max || room.has_room_for(added, used) {
        return Ok(());
    }
    let mut held = prunable_bytes(transaction)?;
    if held > max {
        let mut pruned = PruneReport::default();
        drop_abandoned(transaction, &mut pruned)?;
        let promised = protected_changes(transaction, &running()?)?;
        let goal = max - max / FREED_DIVISOR;
        let excess = prunable_bytes(transaction)?.saturating_sub(goal);
        drop_texts(transaction, &promised, PruneTarget::Bytes(excess), &mut pruned)?;
        held = held.saturating_sub(pruned.bytes);
    }
    // A change that adds no content, such as the deletion of a known file, needs no room.
    if held > max && may_refuse && added > 0 {
        return Err(JournalError::NoRoom { max_bytes: max }.into());
    }
    let bytes_used = database_bytes(transaction)?;
    room.last_measurement =
        max.checked_sub(held).map(|spare| RoomMeasurement { bytes_used, spare, added: 0 });
    Ok(())
}

/// Prunes to the retention limits, but keeps what undo still needs.
pub(super) fn drop_old(
    transaction: &Transaction<'_>,
    retention: &Retention,
    running: impl FnOnce() -> Result<RunningSessions, JournalError>,
    now: Timestamp,
) -> Result<PruneReport, JournalTransactionError> {
    let mut pruned = PruneReport::default();
    drop_abandoned(transaction, &mut pruned)?;
    let oldest_allowed = now.0.saturating_sub(retention.max_age_ms);
    let is_aged: bool = transaction.query_row(
        "SELECT EXISTS (SELECT 1 FROM changes WHERE at < ?1 AND state IN (1, 3) \
         AND (before_hash <> zeroblob(32) OR after_hash <> zeroblob(32)))",
        [oldest_allowed],
        |row| row.get(0),
    )?;
    let rows = count(transaction, "SELECT count(*) FROM changes")?;
    let is_too_much = prunable_bytes(transaction)? > retention.max_bytes;
    if !is_aged && !is_too_much && rows <= retention.max_changes {
        return Ok(pruned);
    }
    let promised = protected_changes(transaction, &running()?)?;
    drop_texts(transaction, &promised, PruneTarget::OlderThan(oldest_allowed), &mut pruned)?;
    remove_rows(transaction, &promised, rows.saturating_sub(retention.max_changes), &mut pruned)?;
    drop_unreferenced(transaction, &mut pruned)?;
    // Contents that the baseline refers to would stay even if every change were dropped.
    let excess = prunable_bytes(transaction)?.saturating_sub(retention.max_bytes);
    drop_texts(transaction, &promised, PruneTarget::Bytes(excess), &mut pruned)?;
    Ok(pruned)
}

/// Removes the rows of abandoned changes, and contents that are then unreferenced.
fn drop_abandoned(
    transaction: &Transaction<'_>,
    pruned: &mut PruneReport,
) -> Result<(), JournalTransactionError> {
    transaction.execute("DELETE FROM changes WHERE state = 2", [])?;
    drop_unreferenced(transaction, pruned)
}

/// Returns the changes that are never pruned, regardless of age and size: pending ones and the most recent batch; the
/// latest turn of every running session and of the most recently active one, with what came after it; texts that exist
/// only in the journal; and the undos and redos of all these.
fn protected_changes(
    transaction: &Transaction<'_>,
    running: &RunningSessions,
) -> Result<HashSet<i64>, JournalTransactionError> {
    let ids = |sql: &str, values: &[&dyn ToSql]| -> Result<HashSet<i64>, JournalTransactionError> {
        let mut statement = transaction.prepare_cached(sql)?;
        Ok(statement.query_map(values, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    };
    let mut promised =
        ids("SELECT id FROM changes WHERE state = 0 OR batch = (SELECT max(batch) FROM changes)", &[])?;
    let mut only_here =
        ids("SELECT id FROM changes WHERE session IS NULL AND call = ?1", &[&KEPT_TEXT_CALL])?;
    let last: Option<String> = transaction
        .query_row(
            "SELECT session FROM changes WHERE session IS NOT NULL ORDER BY id DESC LIMIT 1",
            [],
            |row| row.get(0),
        )
        .optional()?;
    let mut sessions =
        transaction.prepare("SELECT DISTINCT session FROM changes WHERE session IS NOT NULL")?;
    let sessions = sessions.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    // A session without turns counts as one turn.
    let latest = "SELECT id FROM changes WHERE session = ?1 AND id >= coalesce(\
         (SELECT min(id) FROM changes WHERE session = ?1 AND turn = \
         (SELECT max(turn) FROM changes WHERE session = ?1)), 0)";
    for session in sessions {
        if last.as_ref() == Some(&session) || running.contains(&session) {
            promised.extend(ids(latest, &[&session])?);
        }
    }
    let mut reversals =
        transaction.prepare("SELECT id, reverses FROM changes WHERE reverses IS NOT NULL ORDER BY id")?;
    let mut rows = reversals.query([])?;
    while let Some(row) = rows.next()? {
        // A damaged list is reported when the change is read.
        let reversed = parse_reversals(row.get_ref(1)?.as_str().ok()).unwrap_or_default();
        if reversed.iter().any(|reversal| promised.contains(&reversal.change.0)) {
            promised.insert(row.get(0)?);
        }
        // A restored text is, or was, in its file.
        reversed.iter().for_each(|reversal| _ = only_here.remove(&reversal.change.0));
    }
    promised.extend(only_here);
    Ok(promised)
}

/// Selects the changes that lose their texts.
#[derive(Debug, Clone, Copy)]
enum PruneTarget {
    /// Those recorded before this time.
    OlderThan(i64),
    /// The oldest, until this many bytes are free. A content that contents of newer changes are based on is freed only
    /// with them, so this may take a few more changes.
    Bytes(u64),
}

/// Drops the texts of unprotected changes, oldest first.
fn drop_texts(
    transaction: &Transaction<'_>,
    promised: &HashSet<i64>,
    excess: PruneTarget,
    pruned: &mut PruneReport,
) -> Result<(), JournalTransactionError> {
    let (before, goal) = match excess {
        PruneTarget::OlderThan(moment) => (moment, u64::MAX),
        PruneTarget::Bytes(bytes) => (i64::MAX, pruned.bytes.saturating_add(bytes)),
    };
    let mut kept = transaction.prepare(
        "SELECT id, before_hash, after_hash FROM changes WHERE id > ?1 AND at < ?2 AND state IN (1, 3) \
         AND (before_hash <> zeroblob(32) OR after_hash <> zeroblob(32)) ORDER BY id LIMIT ?3",
    )?;
    let mut forget = transaction.prepare(
        "UPDATE changes SET before_hash = iif(before_hash IS NULL, NULL, ?2), \
         after_hash = iif(after_hash IS NULL, NULL, ?2) WHERE id = ?1",
    )?;
    let mut forget_tail = transaction.prepare("DELETE FROM tails WHERE change = ?1 RETURNING hash")?;
    let mut releaser = BlobReleaser::new(transaction)?;
    let mut last = 0;
    loop {
        type Texts = (i64, Option<Vec<u8>>, Option<Vec<u8>>);
        let some: Vec<Texts> = kept
            .query_map(params![last, before, BATCH_SIZE as i64], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        let Some((newest, ..)) = some.last() else { return Ok(()) };
        last = *newest;
        for (id, before, after) in some {
            if pruned.bytes >= goal {
                return Ok(());
            }
            if promised.contains(&id) {
                continue;
            }
            forget.execute(params![id, ContentHash::UNKNOWN.as_bytes()])?;
            pruned.changes += 1;
            let tail: Option<Vec<u8>> = forget_tail.query_row([id], |row| row.get(0)).optional()?;
            for hash in [before, after, tail].into_iter().flatten() {
                releaser.release(&hash, pruned)?;
            }
        }
    }
}

/// Removes the `excess` oldest unprotected rows, and with each the rest of its turn.
fn remove_rows(
    transaction: &Transaction<'_>,
    promised: &HashSet<i64>,
    excess: u64,
    pruned: &mut PruneReport,
) -> Result<(), JournalTransactionError> {
    if excess == 0 {
        return Ok(());
    }
    let mut oldest = transaction.prepare("SELECT id, session, turn FROM changes ORDER BY id")?;
    let mut of_turn = transaction.prepare("SELECT id FROM changes WHERE session = ?1 AND turn = ?2")?;
    let mut remove = transaction.prepare("DELETE FROM changes WHERE id = ?1")?;
    let mut removed = HashSet::new();
    let mut rows = oldest.query([])?;
    while let Some(row) = rows.next()? {
        if removed.len() as u64 >= excess {
            break;
        }
        let (id, session, turn): (i64, Option<String>, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if promised.contains(&id) || removed.contains(&id) {
            continue;
        }
        removed.insert(id);
        if let (Some(session), Some(turn)) = (session, turn) {
            let ids = of_turn.query_map(params![session, turn], |row| row.get(0))?;
            let ids = ids.collect::<rusqlite::Result<Vec<i64>>>()?;
            removed.extend(ids.into_iter().filter(|id| !promised.contains(id)));
        }
    }
    drop(rows);
    for id in &removed {
        remove.execute([id])?;
    }
    pruned.changes += removed.len() as u64;
    Ok(())
}

/// Returns the size of the contents that pruning changes can free.
fn prunable_bytes(connection: &Connection) -> Result<u64, JournalTransactionError> {
    count(
        connection,
        "SELECT coalesce(sum(stored), 0) FROM blobs \
         WHERE NOT EXISTS (SELECT 1 FROM baseline WHERE baseline.hash = blobs.hash)",
    )
}

/// Returns the size of the database without its free pages.
fn database_bytes(connection: &Connection) -> Result<u64, JournalTransactionError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    Ok(pages.saturating_mul(pragma("page_size")?).unsigned_abs())
}

fn count(connection: &Connection, sql: &str) -> Result<u64, JournalTransactionError> {
    Ok(connection.query_row(sql, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

/// Drops every unreferenced content, and tails of changes that are gone.
fn drop_unreferenced(
    transaction: &Transaction<'_>,
    pruned: &mut PruneReport,
) -> Result<(), JournalTransactionError> {
    transaction.execute(
        "DELETE FROM tails WHERE NOT EXISTS (SELECT 1 FROM changes WHERE changes.id = tails.change)",
        [],
    )?;
    let mut unreferenced = transaction.prepare(
        "SELECT hash FROM blobs WHERE hash > ?1 \
         AND NOT EXISTS (SELECT 1 FROM changes WHERE before_hash = blobs.hash) \
         AND NOT EXISTS (SELECT 1 FROM changes WHERE after_hash = blobs.hash) \
         AND NOT EXISTS (SELECT 1 FROM baseline WHERE baseline.hash = blobs.hash) \
         AND NOT EXISTS (SELECT 1 FROM tails WHERE tails.hash = blobs.hash) \
         AND NOT EXISTS (SELECT 1 FROM blobs AS built WHERE built.base = blobs.hash) \
         ORDER BY hash LIMIT ?2",
    )?;
    let mut releaser = BlobReleaser::new(transaction)?;
    let mut last = Vec::new();
    loop {
        let hashes = unreferenced
            .query_map(params![last, BATCH_SIZE as i64], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<Vec<u8>>>>()?;
        for hash in &hashes {
            releaser.release(hash, pruned)?;
        }
        match hashes.into_iter().next_back() {
            Some(hash) => last = hash,
            None => return Ok(()),
        }
    }
}

/// Drops contents that are no longer referenced.
struct BlobReleaser<'c> {
    delete_blob: Statement<'c>,
    delete_content: Statement<'c>,
}

impl<'c> BlobReleaser<'c> {
    fn new(connection: &'c Connection) -> Result<Self, JournalTransactionError> {
        let blob = connection.prepare(
            "DELETE FROM blobs WHERE hash = ?1 \
             AND NOT EXISTS (SELECT 1 FROM changes WHERE before_hash = ?1) \
             AND NOT EXISTS (SELECT 1 FROM changes WHERE after_hash = ?1) \
             AND NOT EXISTS (SELECT 1 FROM baseline WHERE hash = ?1) \
             AND NOT EXISTS (SELECT 1 FROM tails WHERE hash = ?1) \
             AND NOT EXISTS (SELECT 1 FROM blobs AS built WHERE built.base = ?1) \
             RETURNING stored, content, base",
        )?;
        Ok(Self {
            delete_blob: blob,
            delete_content: connection.prepare("DELETE FROM contents WHERE id = ?1")?,
        })
    }

    /// Drops one content, unless it is referenced or another is based on it; then its own base, if that was kept only
    /// for it.
    fn release(&mut self, hash: &[u8], pruned: &mut PruneReport) -> Result<(), JournalTransactionError> {
        let mut next = Some(hash.to_owned());
        while let Some(hash) = next {
            let dropped: Option<(i64, i64, Option<Vec<u8>>)> = self
                .delete_blob
                .query_row([hash], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let Some((stored, content, base)) = dropped else { break };
            self.delete_content.execute([content])?;
            pruned.blobs += 1;
            pruned.bytes += stored.cast_unsigned();
            next = base;
        }
        Ok(())
    }
}

/// Returns free pages to the file system, except for a reserve.
pub(super) fn release_free_pages(connection: &Connection) -> Result<(), JournalTransactionError> {
    let mut before = i64::MAX;
    loop {
        let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        // Another process may be using the freed pages: stop when there is no progress.
        if free <= SPARE_PAGES || free >= before {
            break;
        }
        before = free;
        let pages = (free - SPARE_PAGES).min(PAGES_PER_TRANSACTION);
        connection.pragma(None, "incremental_vacuum", pages, |_| Ok(()))?;
    }
    if before != i64::MAX {
        // The file shrinks once the log is checkpointed. Readers may delay that; then it happens later.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    }
    Ok(())
}
