//! Contents by their hash: compressed or as a difference where that helps, verified whenever they are read.
//!
//! What is known of a content and its bytes are in two tables, so that adding up what all of them take does not read
//! them. The first is one tree by hash, its rows are short; the second one by number, its rows may be large.

use bowline_state::changes::ContentHash;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Statement, params};

use super::error::{Fault, JournalError};
use super::rows::Hash;
use super::seal::{OVERHEAD, Seal};
use super::{MAX_CONTENT_BYTES, delta};

const RAW: i64 = 0;
const LZ4: i64 = 1;
const DELTA: i64 = 2;
/// Compression has to save one byte in this many, or else the bytes are stored as they are.
const WORTHWHILE: usize = 16;
/// Up to this many bytes are stored as they are.
const SMALL: usize = 4096;

/// At most so many differences are applied, one after the other, to make a content of one that is kept whole.
const MAX_DEPTH: i64 = 16;

/// Puts contents into the journal, any number of them in one transaction.
pub(super) struct Keeper<'c> {
    depth: CachedStatement<'c>,
    insert_content: CachedStatement<'c>,
    insert: CachedStatement<'c>,
    // How many bytes were added.
    added: u64,
}

/// How a content is kept that differs little from another one, which is kept.
pub(super) struct Built {
    pub(super) base: ContentHash,
    pub(super) delta: Vec<u8>,
}

impl<'c> Keeper<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Self, Fault> {
        Ok(Self {
            depth: connection.prepare_cached("SELECT depth FROM blobs WHERE hash = ?1")?,
            insert_content: connection.prepare_cached("INSERT INTO contents (data) VALUES (?1)")?,
            insert: connection.prepare_cached(
                "INSERT INTO blobs (hash, size, codec, stored, content, base, depth) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?,
            added: 0,
        })
    }

    /// Returns how many bytes the contents take that were not kept before.
    pub(super) fn bytes_added(&self) -> u64 {
        self.added
    }

    /// Makes sure that a content is kept. One that is there already is not read again: what is damaged is found when it
    /// is asked for.
    pub(super) fn put(&mut self, hash: &ContentHash, bytes: &[u8]) -> Result<(), Fault> {
        self.put_as(hash, bytes, None, || compress(bytes))
    }

    /// Does so with a content that is stored encrypted. Bytes that are stored raw and are longer than the content are that.
    pub(super) fn put_sealed(&mut self, hash: &ContentHash, bytes: &[u8], seal: &Seal) -> Result<(), Fault> {
        if self.depth(hash)?.is_some() {
            return Ok(());
        }
        self.insert(hash, bytes.len(), (RAW, &seal.seal(hash, bytes)?), None)
    }

    /// Does so with the difference from another content, if there is one, or with bytes that somebody else compresses.
    pub(super) fn put_as(
        &mut self,
        hash: &ContentHash,
        bytes: &[u8],
        built: Option<&Built>,
        compressed: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<(), Fault> {
        if self.depth(hash)?.is_some() {
            return Ok(());
        }
        if let Some(Built { base, delta }) = built
            && let Some(depth) = self.depth(base)?.filter(|depth| *depth < MAX_DEPTH)
        {
            return self.insert(hash, bytes.len(), (DELTA, delta), Some((base, depth + 1)));
        }
        match compressed() {
            Some(compressed) => self.insert(hash, bytes.len(), (LZ4, &compressed), None),
            None => self.insert(hash, bytes.len(), (RAW, bytes), None),
        }
    }

    /// Returns how many differences a content is made of, none if it is not kept.
    fn depth(&mut self, hash: &ContentHash) -> Result<Option<i64>, Fault> {
        Ok(self.depth.query_row([hash.as_bytes()], |row| row.get(0)).optional()?)
    }

    fn insert(
        &mut self,
        hash: &ContentHash,
        size: usize,
        (codec, data): (i64, &[u8]),
        base: Option<(&ContentHash, i64)>,
    ) -> Result<(), Fault> {
        let content = self.insert_content.insert([data])?;
        let (base, depth) = base.map_or((None, 0), |(base, depth)| (Some(base.as_bytes()), depth));
        let (size, stored) = (as_i64(size), as_i64(data.len()));
        self.insert.execute(params![hash.as_bytes(), size, codec, stored, content, base, depth])?;
        self.added += data.len() as u64;
        Ok(())
    }
}

/// Returns the difference between two contents, if the second is better kept as that.
pub(super) fn difference(base: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    // What is small takes a page or a few either way.
    if bytes.len() <= SMALL { None } else { delta::encode(base, bytes) }
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
pub(super) fn get(
    connection: &Connection,
    hash: &ContentHash,
    seal: impl FnOnce() -> Option<Seal>,
) -> Result<Option<Vec<u8>>, Fault> {
    match load(&mut connection.prepare(GET)?, hash, seal)? {
        Some(bytes) if ContentHash::of(&bytes) != *hash => Err(JournalError::Damaged(*hash).into()),
        kept => Ok(kept),
    }
}

const HAS: &str = "SELECT 1 FROM blobs WHERE hash = ?1";

const GET: &str = "SELECT size, codec, data, base FROM blobs LEFT JOIN contents ON contents.id = blobs.content \
     WHERE hash = ?1";

/// Returns the bytes that are kept under a hash, whether or not they have it.
fn load(
    get: &mut Statement<'_>,
    hash: &ContentHash,
    seal: impl FnOnce() -> Option<Seal>,
) -> Result<Option<Vec<u8>>, Fault> {
    let damaged = || Fault::from(JournalError::Damaged(*hash));
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
        // The size is what a reader has to make room for, and it may be the very number that is damaged.
        if size > MAX_CONTENT_BYTES {
            return Err(damaged());
        }
        let mut bytes = match codec {
            RAW if data.len() == size + OVERHEAD => {
                seal().and_then(|seal| seal.unseal(&next, data)).ok_or_else(damaged)?
            }
            RAW => data.to_vec(),
            LZ4 => lz4_flex::block::decompress(data, size).map_err(|_| damaged())?,
            // More of them than are ever put one upon the other: a damaged one may lead back to itself.
            DELTA if as_i64(differences.len()) == MAX_DEPTH => return Err(damaged()),
            DELTA => {
                differences.push((data.to_vec(), size));
                Hash(next) = row.get(3).map_err(|_| damaged())?;
                continue;
            }
            // A newer format may have more of them; this one does not.
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
