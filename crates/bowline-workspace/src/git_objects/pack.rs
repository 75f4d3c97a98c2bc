//! One pack of a git repository: its index (version 2) and its entries, read through open files.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use rustix::fs::{FileType, Mode, OFlags};

use super::GitObjectId;
use super::delta::{EntryKind, apply_delta, parse_header};
use crate::disk::read_part;

/// The maximum size of an object, and of all differences that lead to one.
const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// The maximum number of bytes that are made on the way to an object: a small pack can ask for much work.
const MAX_WORK_BYTES: u64 = 512 << 20;
/// What a remembered object costs beside its bytes.
const RECENT_OVERHEAD: usize = 64;
/// The maximum number of differences between an object and one that is stored whole; git makes at most 4095.
const MAX_DELTAS: usize = 4096;
/// How many bytes of recent objects are remembered, since others are stored as differences from them.
const MAX_RECENT_BYTES: usize = 1 << 20;

const ID_BYTES: usize = 20;
const FANOUT_BYTES: usize = 256 * 4;
/// Where the ids begin in an index: after its signature, its version and the number of ids up to each first byte.
const IDS_START: u64 = 8 + FANOUT_BYTES as u64;
/// How many ids are read at a time. Ids are evenly distributed, so the first reading nearly always has the right one.
const IDS_PER_READ: u64 = 128;
/// How many bytes of an entry are read first; most entries have fewer.
const ENTRY_BYTES: usize = 2048;

/// An open pack.
#[derive(Debug)]
pub(super) struct Pack {
    // The path of the index, which names the pack's content: a pack never changes.
    path: String,
    index: File,
    entries: File,
    // The number of ids whose first byte is at most the position.
    fanout: Box<[u32; 256]>,
    // Objects by their offset. Invariant: at most `MAX_RECENT_BYTES` in total.
    recent: HashMap<u64, Vec<u8>>,
    recent_bytes: usize,
}

impl Pack {
    /// Opens the pack with the given index. Returns `None` if it is incomplete or of another version.
    pub(super) fn open(index: &Path) -> Option<Self> {
        let path = index.to_str()?.to_owned();
        let entries = open_regular(&index.with_extension("pack"))?;
        let index = open_regular(index)?;
        let mut start = [0; IDS_START as usize];
        index.read_exact_at(&mut start, 0).ok()?;
        let (signature, table) = start.split_at(8);
        if signature != b"\xfftOc\0\0\0\x02" {
            return None;
        }
        let mut fanout = Box::new([0; 256]);
        for (count, bytes) in fanout.iter_mut().zip(table.as_chunks().0) {
            *count = u32::from_be_bytes(*bytes);
        }
        let recent = HashMap::new();
        let is_intact = fanout.is_sorted() && is_whole(&entries, &index, fanout[255])?;
        is_intact.then(|| Self { path, index, entries, fanout, recent, recent_bytes: 0 })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn object_count(&self) -> u32 {
        self.fanout[255]
    }

    /// Returns the offset of an object in the pack, if it is there.
    pub(super) fn find(&self, id: &GitObjectId) -> Option<u64> {
        let position = self.position(id)?;
        let count = u64::from(self.object_count());
        // After the ids there is a checksum of four bytes for each object, then an offset of four bytes.
        let offsets = IDS_START + count * (ID_BYTES as u64 + 4);
        let offset = u32::from_be_bytes(self.read_index(offsets + position * 4)?);
        if offset >> 31 == 0 {
            return Some(offset.into());
        }
        // A large offset is in a table of its own.
        let nth = u64::from(offset & 0x7fff_ffff);
        Some(u64::from_be_bytes(self.read_index(offsets + count * 4 + nth * 8)?))
    }

    fn read_index<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.index.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// Returns the position of an id among all, if it is there.
    fn position(&self, id: &GitObjectId) -> Option<u64> {
        let [first, next @ ..] = id.as_bytes();
        let at = usize::from(*first);
        let mut low = at.checked_sub(1).map_or(0, |before| u64::from(self.fanout[before]));
        let mut high = u64::from(self.fanout[at]);
        let fraction = u64::from(u32::from_be_bytes(*next.first_chunk()?));
        let mut guess = low + (((high - low) * fraction) >> 32);
        let mut buffer = [0; IDS_PER_READ as usize * ID_BYTES];
        while low < high {
            let start = guess.saturating_sub(IDS_PER_READ / 2).max(low);
            let end = (start + IDS_PER_READ).min(high);
            let bytes = &mut buffer[..(end - start) as usize * ID_BYTES];
            self.index.read_exact_at(bytes, IDS_START + start * ID_BYTES as u64).ok()?;
            let ids = bytes.as_chunks::<ID_BYTES>().0;
            match ids.binary_search(id.as_bytes()) {
                Ok(found) => return Some(start + found as u64),
                Err(0) => high = start,
                Err(place) if place == ids.len() => low = end,
                Err(_) => return None,
            }
            guess = low.midpoint(high);
        }
        None
    }

    /// Returns the bytes of the file at an offset.
    pub(super) fn read_blob(&mut self, offset: u64) -> Option<Vec<u8>> {
        let (mut at, mut deltas, mut delta_bytes) = (offset, Vec::new(), 0_u64);
        let mut bytes = loop {
            if let Some(recent) = self.recent.get(&at) {
                break recent.clone();
            }
            let (kind, data) = self.read_entry(at)?;
            let base = match kind {
                EntryKind::Blob => {
                    self.remember(at, &data);
                    break data;
                }
                EntryKind::OffsetDelta(distance) => at.checked_sub(distance).filter(|base| *base < at)?,
                EntryKind::ObjectDelta(id) => self.find(&id)?,
            };
            delta_bytes += data.len() as u64;
            deltas.push((at, data));
            if deltas.len() > MAX_DELTAS || delta_bytes > MAX_OBJECT_BYTES {
                return None;
            }
            at = base;
        };
        let mut work = delta_bytes;
        for (at, delta) in deltas.iter().rev() {
            bytes = apply_delta(&bytes, delta, MAX_OBJECT_BYTES)?;
            work += bytes.len() as u64;
            if work > MAX_WORK_BYTES {
                return None;
            }
            self.remember(*at, &bytes);
        }
        Some(bytes)
    }

    fn remember(&mut self, at: u64, bytes: &[u8]) {
        if bytes.len() > MAX_RECENT_BYTES / 16 {
            return;
        }
        let cost = bytes.len() + RECENT_OVERHEAD;
        if self.recent_bytes + cost > MAX_RECENT_BYTES {
            self.recent.clear();
            self.recent_bytes = 0;
        }
        if self.recent.insert(at, bytes.to_vec()).is_none() {
            self.recent_bytes += cost;
        }
    }

    fn read_entry(&self, at: u64) -> Option<(EntryKind, Vec<u8>)> {
        let mut bytes = read_part(&self.entries, at, ENTRY_BYTES).ok()?;
        let header = parse_header(&bytes)?;
        if header.size > MAX_OBJECT_BYTES {
            return None;
        }
        let size = usize::try_from(header.size).ok()?;
        // zlib adds five bytes to each block of bytes that it cannot compress, and a few to the whole.
        let longest = header.length + size + size / 64 + 128;
        if longest > bytes.len() && bytes.len() == ENTRY_BYTES {
            bytes = read_part(&self.entries, at, longest).ok()?;
        }
        Some((header.kind, inflate(bytes.get(header.length..)?, size)?))
    }
}

/// Returns the content of a zlib stream if it has exactly `size` bytes. Bytes after the stream are ignored, and its checksum
/// is not verified: git identifies an object by a hash.
pub(super) fn inflate(stream: &[u8], size: usize) -> Option<Vec<u8>> {
    // A stream expands at most 1032 times, so a wrong size does not allocate much more than the stream has.
    let mut content = (size <= stream.len().saturating_mul(1032)).then(|| vec![0; size])?;
    let inflated = decompress_slice_iter_to_slice(&mut content, std::iter::once(stream), true, true).ok()?;
    (inflated == size).then_some(content)
}

/// Returns whether a pack has the beginning and the end that its index expects: one that was cut off has not.
fn is_whole(pack: &File, index: &File, object_count: u32) -> Option<bool> {
    let mut header = [0; 12];
    pack.read_exact_at(&mut header, 0).ok()?;
    // The pack ends with its checksum, and the index with that and its own.
    let (mut checksum, mut expected) = ([0; ID_BYTES], [0; ID_BYTES]);
    let end_of = |file: &File, bytes: usize| file.metadata().ok()?.len().checked_sub(bytes as u64);
    pack.read_exact_at(&mut checksum, end_of(pack, ID_BYTES)?).ok()?;
    index.read_exact_at(&mut expected, end_of(index, 2 * ID_BYTES)?).ok()?;
    Some(header[..4] == *b"PACK" && header[8..] == object_count.to_be_bytes() && checksum == expected)
}

/// Opens a file if it is a regular one of this user or of root: a pipe would block, and another user could change it.
fn open_regular(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid);
    (is_trusted && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| file.into())
}
