//! Inflating zlib streams (RFC 1950 and RFC 1951), as git compresses its objects.
//!
//! The checksum at a stream's end is not verified: git identifies an object by a hash.

/// The bytes are not a zlib stream of the expected size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a zlib stream of the expected size")]
pub struct InflateError;

/// The longest code, in bits.
const MAX_BITS: usize = 15;
/// Codes up to this many bits are found by one look into a table.
const FAST_BITS: u32 = 9;
/// The number of literals and lengths that a code can have.
const MAX_SYMBOLS: usize = 288;

/// The order in which the lengths of the code of code lengths are stored.
const LENGTH_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const LENGTH_BASE: [u16; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
    227, 258,
];
const LENGTH_BITS: [u8; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_BASE: [u16; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
    4097, 6145, 8193, 12289, 16385, 24577,
];
const DISTANCE_BITS: [u8; 30] =
    [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];

/// Returns the content of a zlib stream, which must have exactly `size` bytes. Bytes after the stream are ignored.
///
/// # Errors
/// Fails if the stream is invalid, is cut off, or has another size.
pub fn inflate(stream: &[u8], size: usize) -> Result<Vec<u8>, InflateError> {
    let [method, flags, rest @ ..] = stream else { return Err(InflateError) };
    let is_header = method & 0x0f == 8
        && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
        // A preset dictionary is not supported.
        && flags & 0x20 == 0;
    if !is_header {
        return Err(InflateError);
    }
    let mut bits = BitReader { rest, buffer: 0, count: 0 };
    // A stream expands at most 1032 times, so a wrong size does not allocate much more than the stream has.
    let mut out = Vec::with_capacity(size.min(stream.len().saturating_mul(1032)));
    loop {
        let is_last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => copy_stored(&mut bits, &mut out, size)?,
            1 => {
                let (literals, distances) = fixed_codes()?;
                inflate_block(&mut bits, &literals, &distances, &mut out, size)?;
            }
            2 => {
                let (literals, distances) = read_codes(&mut bits)?;
                inflate_block(&mut bits, &literals, &distances, &mut out, size)?;
            }
            _ => return Err(InflateError),
        }
        if is_last {
            return if out.len() == size { Ok(out) } else { Err(InflateError) };
        }
    }
}

struct BitReader<'a> {
    rest: &'a [u8],
    // Invariant: bits from `count` on are zero.
    buffer: u64,
    count: u32,
}

impl BitReader<'_> {
    fn refill(&mut self) {
        while self.count <= 56 {
            let Some((byte, rest)) = self.rest.split_first() else { return };
            self.buffer |= u64::from(*byte) << self.count;
            self.count += 8;
            self.rest = rest;
        }
    }

    fn drop(&mut self, count: u32) -> Result<(), InflateError> {
        self.count = self.count.checked_sub(count).ok_or(InflateError)?;
        self.buffer >>= count;
        Ok(())
    }

    /// Returns the next bits, at most 16.
    fn take(&mut self, count: u32) -> Result<usize, InflateError> {
        if self.count < count {
            self.refill();
        }
        let value = self.buffer & ((1 << count) - 1);
        self.drop(count)?;
        Ok(value as usize)
    }
}

/// A canonical prefix code.
struct PrefixCode {
    // By the next `FAST_BITS` bits: length and symbol of a code, or 0 if the code is longer.
    fast: [u16; 1 << FAST_BITS],
    // How many codes there are of each length.
    counts: [u16; MAX_BITS + 1],
    // The symbols, in the order of their codes.
    symbols: [u16; MAX_SYMBOLS],
}

impl PrefixCode {
    /// Returns the code with the given lengths by symbol; 0 means that a symbol has no code.
    fn new(lengths: &[u8]) -> Result<Self, InflateError> {
        let mut counts = [0; MAX_BITS + 1];
        for length in lengths {
            *counts.get_mut(usize::from(*length)).ok_or(InflateError)? += 1;
        }
        counts[0] = 0;
        // The first code and the first symbol of each length.
        let (mut codes, mut firsts) = ([0_u32; MAX_BITS + 1], [0_u16; MAX_BITS + 1]);
        for length in 1..=MAX_BITS {
            codes[length] = (codes[length - 1] + u32::from(counts[length - 1])) << 1;
            firsts[length] = firsts[length - 1] + counts[length - 1];
            // There are more codes than bits can tell apart.
            if codes[length] + u32::from(counts[length]) > 1 << length {
                return Err(InflateError);
            }
        }
        let mut code = Self { fast: [0; 1 << FAST_BITS], counts, symbols: [0; MAX_SYMBOLS] };
        for (symbol, length) in (0_u16..).zip(lengths).filter(|(_, length)| **length > 0) {
            let (bits, at) = (u32::from(*length), usize::from(*length));
            code.symbols[usize::from(firsts[at])] = symbol;
            firsts[at] += 1;
            if bits <= FAST_BITS {
                // Codes are stored with their first bit lowest.
                let start = codes[at].reverse_bits() >> (u32::BITS - bits);
                for slot in (start as usize..code.fast.len()).step_by(1 << bits) {
                    code.fast[slot] = u16::from(*length) << FAST_BITS | symbol;
                }
            }
            codes[at] += 1;
        }
        Ok(code)
    }

    /// Returns the next symbol.
    fn decode(&self, bits: &mut BitReader<'_>) -> Result<usize, InflateError> {
        if bits.count < MAX_BITS as u32 {
            bits.refill();
        }
        let entry = self.fast[(bits.buffer & ((1 << FAST_BITS) - 1)) as usize];
        if entry > 0 {
            bits.drop(u32::from(entry >> FAST_BITS))?;
            return Ok(usize::from(entry & ((1 << FAST_BITS) - 1)));
        }
        let (mut code, mut first, mut index) = (0_u32, 0_u32, 0_u32);
        for length in 1..=MAX_BITS {
            code |= (bits.buffer >> (length - 1) & 1) as u32;
            let count = u32::from(self.counts[length]);
            if let Some(nth) = code.checked_sub(first).filter(|nth| *nth < count) {
                bits.drop(length as u32)?;
                return self
                    .symbols
                    .get((index + nth) as usize)
                    .map(|it| usize::from(*it))
                    .ok_or(InflateError);
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(InflateError)
    }
}

fn copy_stored(bits: &mut BitReader<'_>, out: &mut Vec<u8>, size: usize) -> Result<(), InflateError> {
    bits.drop(bits.count % 8)?;
    let length = bits.take(16)?;
    if length != bits.take(16)? ^ 0xffff || length > size - out.len() {
        return Err(InflateError);
    }
    for _ in 0..length {
        out.push(bits.take(8)? as u8);
    }
    Ok(())
}

fn fixed_codes() -> Result<(PrefixCode, PrefixCode), InflateError> {
    let mut lengths = [8; MAX_SYMBOLS];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    Ok((PrefixCode::new(&lengths)?, PrefixCode::new(&[5; 30])?))
}

/// Reads the codes for literals with lengths, and for distances.
fn read_codes(bits: &mut BitReader<'_>) -> Result<(PrefixCode, PrefixCode), InflateError> {
    let (literals, distances, ordered) = (bits.take(5)? + 257, bits.take(5)? + 1, bits.take(4)? + 4);
    let mut lengths = [0; 19];
    for place in &LENGTH_ORDER[..ordered] {
        lengths[*place] = bits.take(3)? as u8;
    }
    let code = PrefixCode::new(&lengths)?;
    let mut lengths = Vec::with_capacity(MAX_SYMBOLS + 32);
    while lengths.len() < literals + distances {
        let (length, times) = match code.decode(bits)? {
            16 => (*lengths.last().ok_or(InflateError)?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length as u8, 1),
        };
        lengths.resize(lengths.len() + times, length);
    }
    // 287 and 288 literals can be stated, but have no meaning.
    if lengths.len() != literals + distances || literals > 286 {
        return Err(InflateError);
    }
    let (literals, distances) = lengths.split_at(literals);
    Ok((PrefixCode::new(literals)?, PrefixCode::new(distances)?))
}

fn inflate_block(
    bits: &mut BitReader<'_>,
    literals: &PrefixCode,
    distances: &PrefixCode,
    out: &mut Vec<u8>,
    size: usize,
) -> Result<(), InflateError> {
    loop {
        let symbol = literals.decode(bits)?;
        match symbol {
            256 => return Ok(()),
            literal @ 0..256 if out.len() < size => out.push(literal as u8),
            length => {
                let length =
                    length.checked_sub(257).filter(|at| *at < LENGTH_BASE.len()).ok_or(InflateError)?;
                let length = usize::from(LENGTH_BASE[length]) + bits.take(u32::from(LENGTH_BITS[length]))?;
                let distance = distances.decode(bits)?;
                let base = *DISTANCE_BASE.get(distance).ok_or(InflateError)?;
                let distance = usize::from(base) + bits.take(u32::from(DISTANCE_BITS[distance]))?;
                let start = out.len().checked_sub(distance).ok_or(InflateError)?;
                if length > size - out.len() {
                    return Err(InflateError);
                }
                // The copied bytes may overlap those that they are copied to.
                for at in start..start + length {
                    out.push(out[at]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
