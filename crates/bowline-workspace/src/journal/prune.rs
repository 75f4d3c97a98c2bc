//! Retention: what is dropped from a journal, and giving its space back.

use bowline_state::changes::Moment;
use rusqlite::{Connection, OptionalExtension as _, Statement, Transaction, params};

use super::Retention;
use super::error::Fault;

/// How many changes are looked at in one go.
const STRIDE: usize = 256;
/// This many free pages (4 MiB) stay in the file for what comes next; the rest is given back.
const SPARE_PAGES: i64 = 1024;
/// This many pages (16 MiB) are given back in one transaction, so that others can write in between.
const PAGES_AT_ONCE: i64 = 4096;

/// What was dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// So many changes that had been made, or may have been.
    pub changes: u64,
    /// So many contents.
    pub blobs: u64,
    /// The room they took, compressed.
    pub bytes: u64,
}

/// Drops what retention does not cover. The changes of the newest batch stay, whatever their age and size.
pub(super) fn drop_old(
    transaction: &Transaction<'_>,
    retention: &Retention,
    now: Moment,
) -> Result<Pruned, Fault> {
    let mut pruned = Pruned::default();
    transaction.execute("DELETE FROM changes WHERE state = 2", [])?;
    let newest: Option<i64> =
        transaction.query_row("SELECT max(batch) FROM changes", [], |row| row.get(0))?;
    let Some(newest) = newest else {
        sweep(transaction, &mut pruned)?;
        return Ok(pruned);
    };

    let oldest_allowed = now.0.saturating_sub(retention.max_age_ms);
    let aged = transaction.execute(
        "DELETE FROM changes WHERE state IN (1, 3) AND batch <> ?1 AND at < ?2",
        params![newest, oldest_allowed],
    )?;
    let count = |sql| transaction.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned);
    let excess = count("SELECT count(*) FROM changes")?.saturating_sub(retention.max_changes);
    let surplus = transaction.execute(
        "DELETE FROM changes WHERE id IN \
         (SELECT id FROM changes WHERE state IN (1, 3) AND batch <> ?1 ORDER BY id LIMIT ?2)",
        params![newest, i64::try_from(excess).unwrap_or(i64::MAX)],
    )?;
    pruned.changes += (aged + surplus) as u64;
    sweep(transaction, &mut pruned)?;

    // What the baseline refers to would not go if every change did.
    let held = count(
        "SELECT coalesce(sum(stored), 0) FROM blobs \
         WHERE NOT EXISTS (SELECT 1 FROM baseline WHERE baseline.hash = blobs.hash)",
    )?;
    shrink(transaction, newest, held.saturating_sub(retention.max_bytes), &mut pruned)?;
    Ok(pruned)
}

/// Drops changes from the oldest on, each with what only it referred to, until so many bytes are free. A content on which
/// those of newer changes are built is free once these are gone, so a few more changes than its own may go.
fn shrink(transaction: &Transaction<'_>, newest: i64, excess: u64, pruned: &mut Pruned) -> Result<(), Fault> {
    let goal = pruned.bytes + excess;
    let mut oldest = transaction
        .prepare("SELECT id FROM changes WHERE state IN (1, 3) AND batch <> ?1 ORDER BY id LIMIT ?2")?;
    let mut delete =
        transaction.prepare("DELETE FROM changes WHERE id = ?1 RETURNING before_hash, after_hash")?;
    let mut releaser = Releaser::new(transaction)?;
    while pruned.bytes < goal {
        let ids = oldest
            .query_map(params![newest, STRIDE as i64], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        if ids.is_empty() {
            break;
        }
        for id in ids {
            if pruned.bytes >= goal {
                break;
            }
            let hashes: (Option<Vec<u8>>, Option<Vec<u8>>) =
                delete.query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
            pruned.changes += 1;
            for hash in [hashes.0, hashes.1].into_iter().flatten() {
                releaser.release(&hash, pruned)?;
            }
        }
    }
    Ok(())
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
