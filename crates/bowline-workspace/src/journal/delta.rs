//! Deltas: a content as its difference from another, that is, the lengths of the common prefix and suffix, and the
//! bytes between.
//!
//! Most writes by an agent change a few lines of a file. A delta stores only those lines, and avoids compressing and
//! storing the whole text.

/// The size of the two lengths before the bytes.
const HEADER_BYTES: usize = 8;
/// The bytes between may be at most one in this many of the content; otherwise it is stored whole.
const MAX_DELTA_DIVISOR: usize = 8;

/// Returns the delta, if it is small.
pub(super) fn encode(base: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let prefix = count_common_bytes(base.chunks(CHUNK_BYTES).zip(bytes.chunks(CHUNK_BYTES)), |one, other| {
        one.iter().zip(other).take_while(|(one, other)| one == other).count()
    });
    let (base, rest) = (&base[prefix..], &bytes[prefix..]);
    let suffix =
        count_common_bytes(base.rchunks(CHUNK_BYTES).zip(rest.rchunks(CHUNK_BYTES)), |one, other| {
            one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
        });
    let between = &rest[..rest.len() - suffix];
    if between.len() > bytes.len() / MAX_DELTA_DIVISOR {
        return None;
    }
    let mut delta = Vec::with_capacity(HEADER_BYTES + between.len());
    delta.extend_from_slice(&u32::try_from(prefix).ok()?.to_le_bytes());
    delta.extend_from_slice(&u32::try_from(suffix).ok()?.to_le_bytes());
    delta.extend_from_slice(between);
    Some(delta)
}

/// Turns the base into the content. Returns false if the delta does not fit, because the base or the delta is damaged.
pub(super) fn apply(base: &mut Vec<u8>, delta: &[u8], size: usize) -> bool {
    let count = |at: usize| {
        let bytes = delta.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let (Some(prefix), Some(suffix), Some(between)) = (count(0), count(4), delta.get(HEADER_BYTES..)) else {
        return false;
    };
    let end = base.len().checked_sub(suffix).filter(|end| prefix <= *end);
    let (Some(end), true) = (end, prefix.checked_add(between.len() + suffix) == Some(size)) else {
        return false;
    };
    base.splice(prefix..end, between.iter().copied());
    true
}

/// How many bytes are compared at a time, at memory speed.
const CHUNK_BYTES: usize = 4096;

/// Returns the number of equal bytes at the start of a sequence of pairs; `count` counts them in the first unequal
/// pair.
fn count_common_bytes<'a>(
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    count: impl FnOnce(&[u8], &[u8]) -> usize,
) -> usize {
    let mut equal = 0;
    for (one, other) in pairs {
        if one != other {
            return equal + count(one, other);
        }
        equal += one.len();
    }
    equal
}

#[cfg(test)]
mod tests;
