//! Contents by their hash: compressed where that helps, verified whenever they are read.
//!
//! What is known of a content and its bytes are in two tables, so that adding up what all of them take does not read
//! them. The first is one tree by hash, its rows are short; the second one by number, its rows may be large.

use bowline_state::changes::ContentHash;
use rusqlite::{Connection, Statement, params};

use super::MAX_CONTENT_BYTES;
use super::error::{Fault, JournalError};

const RAW: i64 = 0;
const LZ4: i64 = 1;
/// Compression has to save one byte in this many, or else the bytes are stored as they are.
const WORTHWHILE: usize = 16;
/// Up to this many bytes are stored as they are.
const SMALL: usize = 4096;

/// Puts contents into the journal, any number of them in one transaction.
pub(super) struct Keeper<'c> {
    has: Statement<'c>,
    insert_content: Statement<'c>,
    insert: Statement<'c>,
}

impl<'c> Keeper<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Self, Fault> {
        Ok(Self {
            has: connection.prepare(HAS)?,
            insert_content: connection.prepare("INSERT INTO contents (data) VALUES (?1)")?,
            insert: connection.prepare(
                "INSERT INTO blobs (hash, size, codec, stored, content) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
        })
    }

    /// Makes sure that a content is kept. One that is there already is not read again: what is damaged is found when it
    /// is asked for.
    pub(super) fn put(&mut self, hash: &ContentHash, bytes: &[u8]) -> Result<(), Fault> {
        self.put_compressed(hash, bytes, || compress(bytes))
    }

    /// Does so with bytes that somebody else compresses.
    pub(super) fn put_compressed(
        &mut self,
        hash: &ContentHash,
        bytes: &[u8],
        compressed: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<(), Fault> {
        if self.has.exists([hash.as_bytes()])? {
            return Ok(());
        }
        let compressed = compressed();
        let (codec, data) =
            compressed.as_ref().map_or((RAW, bytes), |compressed| (LZ4, compressed.as_slice()));
        let content = self.insert_content.insert([data])?;
        let (size, stored) = (as_i64(bytes.len()), as_i64(data.len()));
        self.insert.execute(params![hash.as_bytes(), size, codec, stored, content])?;
        Ok(())
    }
}

/// Compresses bytes, if that is worth it.
pub(super) fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    // What is small takes a page or a few either way.
    if bytes.len() <= SMALL {
        return None;
    }
    let compressed = lz4_flex::block::compress(bytes);
    (compressed.len() < bytes.len() - bytes.len() / WORTHWHILE).then_some(compressed)
}

/// Says whether a content is kept.
pub(super) fn has(connection: &Connection, hash: &ContentHash) -> Result<bool, Fault> {
    Ok(connection.prepare(HAS)?.exists([hash.as_bytes()])?)
}

/// Returns a content if it is kept.
pub(super) fn get(connection: &Connection, hash: &ContentHash) -> Result<Option<Vec<u8>>, Fault> {
    match load(&mut connection.prepare(GET)?, hash)? {
        Some(bytes) if ContentHash::of(&bytes) != *hash => Err(JournalError::Damaged(*hash).into()),
        kept => Ok(kept),
    }
}

const HAS: &str = "SELECT 1 FROM blobs WHERE hash = ?1";

const GET: &str =
    "SELECT size, codec, data FROM blobs LEFT JOIN contents ON contents.id = blobs.content WHERE hash = ?1";

/// Returns the bytes that are kept under a hash, whether or not they have it.
fn load(get: &mut Statement<'_>, hash: &ContentHash) -> Result<Option<Vec<u8>>, Fault> {
    let damaged = || Fault::from(JournalError::Damaged(*hash));
    let mut rows = get.query([hash.as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let size = usize::try_from(row.get::<_, i64>(0)?).map_err(|_| damaged())?;
    let codec: i64 = row.get(1)?;
    let data = row.get_ref(2)?.as_blob_or_null().map_err(|_| damaged())?.ok_or_else(damaged)?;
    // The size is what a reader has to make room for, and it may be the very number that is damaged.
    if size > MAX_CONTENT_BYTES {
        return Err(damaged());
    }
    match codec {
        RAW => Ok(Some(data.to_vec())),
        LZ4 => lz4_flex::block::decompress(data, size).map(Some).map_err(|_| damaged()),
        // A newer format may have more of them; this one does not.
        _ => Err(damaged()),
    }
}

fn as_i64(count: usize) -> i64 {
    // Contents are capped far below.
    i64::try_from(count).unwrap_or(i64::MAX)
}
