//! Retention: what is dropped from a journal, what never is, and giving its space back.
//!
//! The texts of a change are dropped before its row: a change without texts is listed, and its undo says that they were
//! pruned instead of restoring something else. In such a row the hashes are [`ContentHash::UNKNOWN`]. Only rows beyond
//! the permitted number are removed, and those of one turn together, so that no turn is known in part.

use std::collections::HashSet;

use bowline_state::changes::{ContentHash, KEPT_CALL, Moment};
use rusqlite::{Connection, OptionalExtension as _, Statement, ToSql, Transaction, params};

use super::Retention;
use super::error::{Fault, JournalError};
use super::live::Running;
use super::rows::read_reversals;

/// How many contents are looked at in one go.
const STRIDE: usize = 256;
/// This many free pages (4 MiB) stay in the file for what comes next; the rest is given back.
const SPARE_PAGES: i64 = 1024;
/// This many pages (16 MiB) are given back in one transaction, so that others can write in between.
const PAGES_AT_ONCE: i64 = 4096;
/// When a write finds the journal full, one in so many parts of it is freed at once: measuring it takes time.
const FREED_SHARE: u64 = 8;

/// What was dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// So many changes that had been made, or may have been, lost their texts or were removed.
    pub changes: u64,
    /// So many contents.
    pub blobs: u64,
    /// The room they took, compressed.
    pub bytes: u64,
}

/// How far contents may grow before they have to be measured again, which takes a look at each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Room {
    measured: Option<Measured>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    // What the database took then; what others add to it shows in its size.
    bytes_used: u64,
    // How many bytes of contents there was room for then, and how many this process has added since.
    spare: u64,
    added: u64,
}

impl Room {
    /// Counts contents that were added, and says whether there certainly is room for them.
    fn takes(&mut self, added: u64, bytes_used: u64) -> bool {
        self.measured.as_mut().is_some_and(|measured| {
            measured.added = measured.added.saturating_add(added);
            measured.added.max(bytes_used.saturating_sub(measured.bytes_used)) <= measured.spare
        })
    }
}

/// Makes room for contents of so many bytes that were just inserted, by dropping old changes.
///
/// # Errors
/// Returns [`JournalError::NoRoom`] if what undo needs takes more than the journal may keep, and `may_refuse`.
pub(super) fn make_room(
    transaction: &Transaction<'_>,
    retention: &Retention,
    room: &mut Room,
    added: u64,
    running: impl FnOnce() -> Result<Running, JournalError>,
    may_refuse: bool,
) -> Result<(), Fault> {
    let max = retention.max_bytes;
    let used = bytes_used(transaction)?;
    // Contents take no more than the database that holds them.
    if used <= max || room.takes(added, used) {
        return Ok(());
    }
    let mut held = bytes_held(transaction)?;
    if held > max {
        let mut pruned = Pruned::default();
        drop_abandoned(transaction, &mut pruned)?;
        let promised = promised(transaction, &running()?)?;
        let goal = max - max / FREED_SHARE;
        let excess = bytes_held(transaction)?.saturating_sub(goal);
        forget(transaction, &promised, Excess::Bytes(excess), &mut pruned)?;
        held = held.saturating_sub(pruned.bytes);
    }
    // What adds nothing, such as the deletion of a file that is known, needs no room.
    if held > max && may_refuse && added > 0 {
        return Err(JournalError::NoRoom { max_bytes: max }.into());
    }
    let bytes_used = bytes_used(transaction)?;
    room.measured = max.checked_sub(held).map(|spare| Measured { bytes_used, spare, added: 0 });
    Ok(())
}

/// Drops what retention does not cover, but nothing that undo still promises.
pub(super) fn drop_old(
    transaction: &Transaction<'_>,
    retention: &Retention,
    running: impl FnOnce() -> Result<Running, JournalError>,
    now: Moment,
) -> Result<Pruned, Fault> {
    let mut pruned = Pruned::default();
    drop_abandoned(transaction, &mut pruned)?;
    let oldest_allowed = now.0.saturating_sub(retention.max_age_ms);
    let is_aged: bool = transaction.query_row(
        "SELECT EXISTS (SELECT 1 FROM changes WHERE at < ?1 AND state IN (1, 3) \
         AND (before_hash <> zeroblob(32) OR after_hash <> zeroblob(32)))",
        [oldest_allowed],
        |row| row.get(0),
    )?;
    let rows = count(transaction, "SELECT count(*) FROM changes")?;
    let is_too_much = bytes_held(transaction)? > retention.max_bytes;
    if !is_aged && !is_too_much && rows <= retention.max_changes {
        return Ok(pruned);
    }
    let promised = promised(transaction, &running()?)?;
    forget(transaction, &promised, Excess::OlderThan(oldest_allowed), &mut pruned)?;
    remove_rows(transaction, &promised, rows.saturating_sub(retention.max_changes), &mut pruned)?;
    sweep(transaction, &mut pruned)?;
    // What the baseline refers to would not go if every change did.
    let excess = bytes_held(transaction)?.saturating_sub(retention.max_bytes);
    forget(transaction, &promised, Excess::Bytes(excess), &mut pruned)?;
    Ok(pruned)
}

/// Removes the rows of changes that were not made, and what nothing refers to then.
fn drop_abandoned(transaction: &Transaction<'_>, pruned: &mut Pruned) -> Result<(), Fault> {
    transaction.execute("DELETE FROM changes WHERE state = 2", [])?;
    sweep(transaction, pruned)
}

/// Returns the changes that are never dropped, however old or large: those that are pending or came last; the latest turn
/// of every running session and of the session that worked last, with what came after it; texts that only the journal
/// has; and the undos and redos of all these.
fn promised(transaction: &Transaction<'_>, running: &Running) -> Result<HashSet<i64>, Fault> {
    let ids = |sql: &str, values: &[&dyn ToSql]| -> Result<HashSet<i64>, Fault> {
        let mut statement = transaction.prepare_cached(sql)?;
        Ok(statement.query_map(values, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    };
    let mut promised =
        ids("SELECT id FROM changes WHERE state = 0 OR batch = (SELECT max(batch) FROM changes)", &[])?;
    let mut only_here = ids("SELECT id FROM changes WHERE session IS NULL AND call = ?1", &[&KEPT_CALL])?;
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
    // Where a session has no turns, all of it is one.
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
        let reversed = read_reversals(row.get_ref(1)?.as_str().ok()).unwrap_or_default();
        if reversed.iter().any(|reversal| promised.contains(&reversal.change.0)) {
            promised.insert(row.get(0)?);
        }
        // A text that was restored is in its file, or was.
        reversed.iter().for_each(|reversal| _ = only_here.remove(&reversal.change.0));
    }
    promised.extend(only_here);
    Ok(promised)
}

/// Which changes lose their texts.
#[derive(Debug, Clone, Copy)]
enum Excess {
    /// Those that were recorded before a moment.
    OlderThan(i64),
    /// The oldest, until so many bytes are free. A content on which those of newer changes are built is free once these
    /// are, so a few more changes than its own may be needed.
    Bytes(u64),
}

/// Drops the texts of changes that are not promised, from the oldest on.
fn forget(
    transaction: &Transaction<'_>,
    promised: &HashSet<i64>,
    excess: Excess,
    pruned: &mut Pruned,
) -> Result<(), Fault> {
    let (before, goal) = match excess {
        Excess::OlderThan(moment) => (moment, u64::MAX),
        Excess::Bytes(bytes) => (i64::MAX, pruned.bytes.saturating_add(bytes)),
    };
    let mut kept = transaction.prepare(
        "SELECT id, before_hash, after_hash FROM changes WHERE id > ?1 AND at < ?2 AND state IN (1, 3) \
         AND (before_hash <> zeroblob(32) OR after_hash <> zeroblob(32)) ORDER BY id LIMIT ?3",
    )?;
    let mut forget = transaction.prepare(
        "UPDATE changes SET before_hash = iif(before_hash IS NULL, NULL, ?2), \
         after_hash = iif(after_hash IS NULL, NULL, ?2) WHERE id = ?1",
    )?;
    let mut releaser = Releaser::new(transaction)?;
    let mut last = 0;
    loop {
        type Texts = (i64, Option<Vec<u8>>, Option<Vec<u8>>);
        let some: Vec<Texts> = kept
            .query_map(params![last, before, STRIDE as i64], |row| {
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
            for hash in [before, after].into_iter().flatten() {
                releaser.release(&hash, pruned)?;
            }
        }
    }
}

/// Removes so many of the oldest rows that are not promised, and with each the rest of its turn.
fn remove_rows(
    transaction: &Transaction<'_>,
    promised: &HashSet<i64>,
    excess: u64,
    pruned: &mut Pruned,
) -> Result<(), Fault> {
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

/// Returns how many bytes the contents take that would go with the changes.
fn bytes_held(connection: &Connection) -> Result<u64, Fault> {
    count(
        connection,
        "SELECT coalesce(sum(stored), 0) FROM blobs \
         WHERE NOT EXISTS (SELECT 1 FROM baseline WHERE baseline.hash = blobs.hash)",
    )
}

/// Returns how many bytes the database takes, but for its free pages.
fn bytes_used(connection: &Connection) -> Result<u64, Fault> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    Ok(pages.saturating_mul(pragma("page_size")?).unsigned_abs())
}

fn count(connection: &Connection, sql: &str) -> Result<u64, Fault> {
    Ok(connection.query_row(sql, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

/// Drops every content that nothing refers to.
fn sweep(transaction: &Transaction<'_>, pruned: &mut Pruned) -> Result<(), Fault> {
    let mut unreferenced = transaction.prepare(
        "SELECT hash FROM blobs WHERE hash > ?1 \
         AND NOT EXISTS (SELECT 1 FROM changes WHERE before_hash = blobs.hash) \
         AND NOT EXISTS (SELECT 1 FROM changes WHERE after_hash = blobs.hash) \
         AND NOT EXISTS (SELECT 1 FROM baseline WHERE baseline.hash = blobs.hash) \
         AND NOT EXISTS (SELECT 1 FROM blobs AS built WHERE built.base = blobs.hash) \
         ORDER BY hash LIMIT ?2",
    )?;
    let mut releaser = Releaser::new(transaction)?;
    let mut last = Vec::new();
    loop {
        let hashes = unreferenced
            .query_map(params![last, STRIDE as i64], |row| row.get(0))?
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

/// Drops contents that nothing refers to any more.
struct Releaser<'c> {
    blob: Statement<'c>,
    content: Statement<'c>,
}

impl<'c> Releaser<'c> {
    fn new(connection: &'c Connection) -> Result<Self, Fault> {
        let blob = connection.prepare(
            "DELETE FROM blobs WHERE hash = ?1 \
             AND NOT EXISTS (SELECT 1 FROM changes WHERE before_hash = ?1) \
             AND NOT EXISTS (SELECT 1 FROM changes WHERE after_hash = ?1) \
             AND NOT EXISTS (SELECT 1 FROM baseline WHERE hash = ?1) \
             AND NOT EXISTS (SELECT 1 FROM blobs AS built WHERE built.base = ?1) \
             RETURNING stored, content, base",
        )?;
        Ok(Self { blob, content: connection.prepare("DELETE FROM contents WHERE id = ?1")? })
    }

    /// Drops one content, unless something refers to it or is built on it; then what it was built on, if that was all
    /// that it was kept for.
    fn release(&mut self, hash: &[u8], pruned: &mut Pruned) -> Result<(), Fault> {
        let mut next = Some(hash.to_owned());
        while let Some(hash) = next {
            let dropped: Option<(i64, i64, Option<Vec<u8>>)> =
                self.blob.query_row([hash], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
            let Some((stored, content, base)) = dropped else { break };
            self.content.execute([content])?;
            pruned.blobs += 1;
            pruned.bytes += stored.cast_unsigned();
            next = base;
        }
        Ok(())
    }
}

/// Gives free pages back to the file system, but for some that will be needed soon.
pub(super) fn give_back(connection: &Connection) -> Result<(), Fault> {
    let mut before = i64::MAX;
    loop {
        let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        // Another process may be filling what is being freed: stop when there is no progress.
        if free <= SPARE_PAGES || free >= before {
            break;
        }
        before = free;
        let pages = (free - SPARE_PAGES).min(PAGES_AT_ONCE);
        connection.pragma(None, "incremental_vacuum", pages, |_| Ok(()))?;
    }
    if before != i64::MAX {
        // The file itself shrinks once the log is in it. Readers may hold that up; then it happens later.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    }
    Ok(())
}
