//! Contents by hash: compressed or stored as a delta where that helps, and verified whenever they are read.
//!
//! Metadata and bytes are in two tables, so that summing up sizes does not read the bytes. The first is keyed by hash
//! and has short rows; the second is keyed by number, and its rows may be large.

use bowline_text::hash::ContentHash;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Statement, params};

use super::encryption::{JournalKey, OVERHEAD_BYTES};
use super::error::{JournalError, JournalTransactionError};
use super::rows::HashColumn;
use super::{MAX_CONTENT_BYTES, delta};

const RAW: i64 = 0;
const LZ4: i64 = 1;
const DELTA: i64 = 2;
/// Compression must save at least one byte in this many; otherwise the bytes are stored raw.
const MIN_SAVING_DIVISOR: usize = 16;
/// Contents up to this many bytes are stored raw.
const MAX_RAW_BYTES: usize = 4096;

/// The maximum number of deltas between a content and one that is stored whole.
const MAX_DELTA_DEPTH: i64 = 16;

/// Stores contents in the journal, any number of them in one transaction.
pub(super) struct BlobWriter<'c> {
    select_depth: CachedStatement<'c>,
    insert_content: CachedStatement<'c>,
    insert_blob: CachedStatement<'c>,
    bytes_added: u64,
}

/// A content stored as a delta to another stored one.
pub(super) struct DeltaBlob {
    pub(super) base: ContentHash,
    pub(super) delta: Vec<u8>,
}

impl<'c> BlobWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Self, JournalTransactionError> {
        Ok(Self {
            select_depth: connection.prepare_cached("SELECT depth FROM blobs WHERE hash = ?1")?,
            insert_content: connection.prepare_cached("INSERT INTO contents (data) VALUES (?1)")?,
            insert_blob: connection.prepare_cached(
                "INSERT INTO blobs (hash, size, codec, stored, content, base, depth) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?,
            bytes_added: 0,
        })
    }

    /// Returns how many bytes the newly stored contents take.
    pub(super) fn bytes_added(&self) -> u64 {
        self.bytes_added
    }

    /// Stores a content, unless it is stored already. An existing one is not verified: damage is detected when it is
    /// read.
    pub(super) fn store(&mut self, hash: &ContentHash, bytes: &[u8]) -> Result<(), JournalTransactionError> {
        self.store_encoded(hash, bytes, None, || compress_if_smaller(bytes))
    }

    /// As `store`, but encrypted. Raw bytes that are longer than the content mark it as encrypted.
    pub(super) fn store_encrypted(
        &mut self,
        hash: &ContentHash,
        bytes: &[u8],
        seal: &JournalKey,
    ) -> Result<(), JournalTransactionError> {
        if self.depth(hash)?.is_some() {
            return Ok(());
        }
        self.insert_row(hash, bytes.len(), (RAW, &seal.encrypt(hash, bytes)?), None)
    }

    /// As `store`, but as a delta if one is given, or with compression supplied by the caller.
    pub(super) fn store_encoded(
        &mut self,
        hash: &ContentHash,
        bytes: &[u8],
        built: Option<&DeltaBlob>,
        compressed: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<(), JournalTransactionError> {
        if self.depth(hash)?.is_some() {
            return Ok(());
        }
        if let Some(DeltaBlob { base, delta }) = built
            && let Some(depth) = self.depth(base)?.filter(|depth| *depth < MAX_DELTA_DEPTH)
        {
            return self.insert_row(hash, bytes.len(), (DELTA, delta), Some((base, depth + 1)));
        }
        match compressed() {
            Some(compressed) => self.insert_row(hash, bytes.len(), (LZ4, &compressed), None),
            None => self.insert_row(hash, bytes.len(), (RAW, bytes), None),
        }
    }

    /// Returns the number of deltas a content is built from; `None` if it is not stored.
    fn depth(&mut self, hash: &ContentHash) -> Result<Option<i64>, JournalTransactionError> {
        Ok(self.select_depth.query_row([hash.as_bytes()], |row| row.get(0)).optional()?)
    }

    fn insert_row(
        &mut self,
        hash: &ContentHash,
        size: usize,
        (codec, data): (i64, &[u8]),
        base: Option<(&ContentHash, i64)>,
    ) -> Result<(), JournalTransactionError> {
        let content = self.insert_content.insert([data])?;
        let (base, depth) = base.map_or((None, 0), |(base, depth)| (Some(base.as_bytes()), depth));
        let (size, stored) = (as_i64(size), as_i64(data.len()));
        self.insert_blob.execute(params![hash.as_bytes(), size, codec, stored, content, base, depth])?;
        self.bytes_added += data.len() as u64;
        Ok(())
    }
}

/// Returns the delta between two contents, if the second is better stored as one.
pub(super) fn delta_if_smaller(base: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    // Small contents take about the same number of pages either way.
    if bytes.len() <= MAX_RAW_BYTES { None } else { delta::encode(base, bytes) }
}

/// Compresses bytes, if that saves enough.
pub(super) fn compress_if_smaller(bytes: &[u8]) -> Option<Vec<u8>> {
    // Small contents take about the same number of pages either way.
    if bytes.len() <= MAX_RAW_BYTES {
        return None;
    }
    let compressed = lz4_flex::block::compress(bytes);
    (compressed.len() < bytes.len() - bytes.len() / MIN_SAVING_DIVISOR).then_some(compressed)
}

/// Returns whether a content is stored.
pub(super) fn has_blob(connection: &Connection, hash: &ContentHash) -> Result<bool, JournalTransactionError> {
    Ok(connection.prepare(HAS_BLOB_SQL)?.exists([hash.as_bytes()])?)
}

/// Returns a content, if it is stored.
pub(super) fn get_blob(
    connection: &Connection,
    hash: &ContentHash,
    seal: impl FnOnce() -> Option<JournalKey>,
) -> Result<Option<Vec<u8>>, JournalTransactionError> {
    match load_blob(&mut connection.prepare(GET_BLOB_SQL)?, hash, seal)? {
        Some(bytes) if ContentHash::digest(&bytes) != *hash => Err(JournalError::Damaged(*hash).into()),
        kept => Ok(kept),
    }
}

const HAS_BLOB_SQL: &str = "SELECT 1 FROM blobs WHERE hash = ?1";

const GET_BLOB_SQL: &str = "SELECT size, codec, data, base FROM blobs LEFT JOIN contents ON contents.id = blobs.content \
     WHERE hash = ?1";

/// Returns the bytes stored under a hash, without verifying it.
fn load_blob(
    get: &mut Statement<'_>,
    hash: &ContentHash,
    seal: impl FnOnce() -> Option<JournalKey>,
) -> Result<Option<Vec<u8>>, JournalTransactionError> {
    let damaged = || JournalTransactionError::from(JournalError::Damaged(*hash));
    let mut differences = Vec::new();
    let mut next = *hash;
    loop {
        let mut rows = get.query([next.as_bytes()])?;
        let Some(row) = rows.next()? else {
            return if differences.is_empty() { Ok(None) } else { Err(damaged()) };
        };
        let size = usize::try_from(row.get::<_, i64>(0)?).map_err(|_| damaged())?;
        let codec: i64 = row.get(1)?;
        let data = row.get_ref(2)?.as_blob_or_null().map_err(|_| damaged())?.ok_or_else(damaged)?;
        // The reader allocates this size, and the size itself may be damaged.
        if size > MAX_CONTENT_BYTES {
            return Err(damaged());
        }
        let mut bytes = match codec {
            RAW if data.len() == size + OVERHEAD_BYTES => {
                seal().and_then(|seal| seal.decrypt(&next, data)).ok_or_else(damaged)?
            }
            RAW => data.to_vec(),
            LZ4 => lz4_flex::block::decompress(data, size).map_err(|_| damaged())?,
            // Deeper than any chain ever written: a damaged delta may refer back to itself.
            DELTA if as_i64(differences.len()) == MAX_DELTA_DEPTH => return Err(damaged()),
            DELTA => {
                differences.push((data.to_vec(), size));
                HashColumn(next) = row.get(3).map_err(|_| damaged())?;
                continue;
            }
            // A newer format may have more codecs.
            _ => return Err(damaged()),
        };
        let whole = differences.iter().rev().all(|(delta, size)| delta::apply(&mut bytes, delta, *size));
        return if whole { Ok(Some(bytes)) } else { Err(damaged()) };
    }
}

fn as_i64(count: usize) -> i64 {
    // Contents are capped far below.
    i64::try_from(count).unwrap_or(i64::MAX)
}
