//! The encoding of objects in a pack: the header of an entry, and the difference from another object.

use super::GitObjectId;

/// The kind of an entry in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A file's bytes.
    Blob,
    /// The difference from an entry this many bytes earlier in the pack.
    OffsetDelta(u64),
    /// The difference from an object.
    ObjectDelta(GitObjectId),
}

/// The header of an entry in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHeader {
    pub(super) kind: EntryKind,
    /// The number of bytes that the entry inflates to.
    pub(super) size: u64,
    /// The number of bytes in the header itself.
    pub(super) length: usize,
}

/// Parses the header at the start of the given bytes. Commits, trees and tags have none here: they are no files.
pub(super) fn parse_header(bytes: &[u8]) -> Option<EntryHeader> {
    let mut rest = bytes;
    let first = take_byte(&mut rest)?;
    let high = if first & 0x80 == 0 { 0 } else { take_number(&mut rest)? };
    let size = high.checked_mul(16)?.checked_add(u64::from(first & 0x0f))?;
    let kind = match first >> 4 & 7 {
        3 => EntryKind::Blob,
        6 => EntryKind::OffsetDelta(take_offset(&mut rest)?),
        7 => {
            let (id, after) = rest.split_first_chunk()?;
            rest = after;
            EntryKind::ObjectDelta(GitObjectId(*id))
        }
        _ => return None,
    };
    Some(EntryHeader { kind, size, length: bytes.len() - rest.len() })
}

/// Applies a difference to its base. Returns `None` if it is not one to this base, or makes more than `max_bytes`.
pub(super) fn apply_delta(base: &[u8], mut delta: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
    if take_number(&mut delta)? != base.len() as u64 {
        return None;
    }
    let size = take_number(&mut delta).filter(|size| *size <= max_bytes)?;
    let size = usize::try_from(size).ok()?;
    let mut out = Vec::with_capacity(size);
    while let Some(command) = take_byte(&mut delta) {
        let piece = if command & 0x80 == 0 {
            // 0 is reserved.
            let (piece, rest) = delta.split_at_checked(usize::from(command)).filter(|_| command > 0)?;
            delta = rest;
            piece
        } else {
            let mut field = |bits: std::ops::Range<u32>| {
                bits.zip([0, 8, 16, 24]).try_fold(0_usize, |value, (bit, shift)| {
                    let byte = if command >> bit & 1 == 1 { take_byte(&mut delta)? } else { 0 };
                    Some(value | usize::from(byte) << shift)
                })
            };
            let (start, length) = (field(0..4)?, field(4..7)?);
            let length = if length == 0 { 0x10000 } else { length };
            base.get(start..start.checked_add(length)?)?
        };
        if piece.len() > size - out.len() {
            return None;
        }
        out.extend_from_slice(piece);
    }
    (out.len() == size).then_some(out)
}

fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}

/// Takes a number in groups of seven bits, the lowest first.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let byte = take_byte(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes an offset in groups of seven bits, the highest first, where each further group adds one.
fn take_offset(bytes: &mut &[u8]) -> Option<u64> {
    let mut byte = take_byte(bytes)?;
    let mut offset = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = take_byte(bytes)?;
        offset = offset.checked_add(1)?.checked_mul(128)? | u64::from(byte & 0x7f);
    }
    Some(offset)
}
