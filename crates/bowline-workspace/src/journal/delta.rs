//! A content as what differs from another one: how many bytes they begin with and end with in common, and those between.
//!
//! Most writes of an agent change a few lines of a file. What is kept of such a write is these lines, and neither
//! compressing nor storing the whole text has to be waited for.

/// The two counts before the bytes.
const HEAD: usize = 8;
/// The bytes between have to be at most one in this many, or else the content is kept whole.
const WORTHWHILE: usize = 8;

/// Returns the difference, if it is small.
pub(super) fn encode(base: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let prefix = common(base.chunks(CHUNK).zip(bytes.chunks(CHUNK)), |one, other| {
        one.iter().zip(other).take_while(|(one, other)| one == other).count()
    });
    let (base, rest) = (&base[prefix..], &bytes[prefix..]);
    let suffix = common(base.rchunks(CHUNK).zip(rest.rchunks(CHUNK)), |one, other| {
        one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
    });
    let between = &rest[..rest.len() - suffix];
    if between.len() > bytes.len() / WORTHWHILE {
        return None;
    }
    let mut delta = Vec::with_capacity(HEAD + between.len());
    delta.extend_from_slice(&u32::try_from(prefix).ok()?.to_le_bytes());
    delta.extend_from_slice(&u32::try_from(suffix).ok()?.to_le_bytes());
    delta.extend_from_slice(between);
    Some(delta)
}

/// Makes the content of its base. Returns whether that could be: if not, the base or the difference is not what it was.
pub(super) fn apply(base: &mut Vec<u8>, delta: &[u8], size: usize) -> bool {
    let count = |at: usize| {
        let bytes = delta.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let (Some(prefix), Some(suffix), Some(between)) = (count(0), count(4), delta.get(HEAD..)) else {
        return false;
    };
    let end = base.len().checked_sub(suffix).filter(|end| prefix <= *end);
    let (Some(end), true) = (end, prefix.checked_add(between.len() + suffix) == Some(size)) else {
        return false;
    };
    base.splice(prefix..end, between.iter().copied());
    true
}

/// This many bytes are compared at a time, as fast as memory is.
const CHUNK: usize = 4096;

/// Returns in how many bytes a row of pairs is equal; `count` says so of a pair that is not.
fn common<'a>(
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
