//! Output bytes that are not decoded yet. Most of a long output is never shown, and is dropped without being decoded.
//!
//! Dropping a piece undecoded requires two facts: that the bytes after it hold more text than is kept, and the
//! stream's state after it. The first is estimated by a fast count that is never too high; the second is known at
//! every ESC, which begins a sequence in any state.

use std::collections::VecDeque;

use memchr::memchr;

use super::ESC;

/// The minimum length of a deferred piece: a program that prints little is being watched, so its output is decoded at
/// once.
const MIN_PIECE: usize = 16 * 1024;

/// The number of bytes counted at a time: counts of up to twice as many fit into a byte.
const BLOCK: usize = 64;

/// Pieces that wait to be decoded.
#[derive(Debug, Clone, Default)]
pub(super) struct DeferredBytes {
    pieces: VecDeque<DeferredPiece>,
    // The total length of the pieces, and a lower bound of their text.
    bytes: usize,
    min_text: usize,
    // Whether pieces before the first were dropped, so that it has to be decoded from its first ESC.
    has_dropped: bool,
    // The buffer of a dropped piece, for the next bytes.
    spare: Option<Vec<u8>>,
}

/// Bytes in which no control string begins.
#[derive(Debug, Clone)]
struct DeferredPiece {
    bytes: Vec<u8>,
    min_text: usize,
}

impl DeferredBytes {
    /// Returns whether there are so many bytes that they may be deferred.
    pub(super) fn may_defer(bytes: &[u8]) -> bool {
        bytes.len() >= MIN_PIECE
    }

    /// Adds the bytes of a buffer if they can be deferred, and exchanges the buffer. Returns whether they were.
    pub(super) fn push(&mut self, buffer: &mut Vec<u8>) -> bool {
        let Some(min_text) = min_text_len(buffer) else { return false };
        // A buffer that is mostly empty would take more memory than is counted.
        let bytes = if buffer.len() < buffer.capacity() / 2 {
            buffer.clone()
        } else {
            std::mem::replace(buffer, self.spare.take().unwrap_or_default())
        };
        buffer.clear();
        self.bytes += bytes.len();
        self.min_text += min_text;
        self.pieces.push_back(DeferredPiece { bytes, min_text });
        true
    }

    /// Drops pieces that cannot be among the last `limit` bytes of text. Returns whether any were dropped.
    pub(super) fn drop_beyond(&mut self, limit: usize) -> bool {
        let mut dropped = false;
        while let Some(first) = self.pieces.front()
            && self.min_text - first.min_text > limit
        {
            self.bytes -= first.bytes.len();
            self.min_text -= first.min_text;
            self.spare = self.pieces.pop_front().map(|piece| piece.bytes);
            (dropped, self.has_dropped) = (true, true);
        }
        dropped
    }

    /// Returns the number of deferred bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// Returns whether enough is deferred that it should be decoded: there may be little text in it.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.bytes > 4 * (limit + MIN_PIECE)
    }

    /// Returns the remaining bytes, piece by piece.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let Self { mut pieces, has_dropped, .. } = std::mem::take(self);
        if let (true, Some(first)) = (has_dropped, pieces.front_mut()) {
            let begin = memchr(ESC, &first.bytes).unwrap_or(first.bytes.len());
            first.bytes.drain(..begin);
        }
        pieces.into_iter().map(|piece| piece.bytes)
    }
}

/// Returns a lower bound of a piece's text in bytes, from its first ESC on. Returns `None` if the piece cannot be
/// deferred.
///
/// Of the bytes from `@` to `~`, a sequence other than a control string takes at most two: the one after ESC and its
/// last. One that begins with a byte that is not ASCII takes one. All others are text.
fn min_text_len(bytes: &[u8]) -> Option<usize> {
    if !DeferredBytes::may_defer(bytes) {
        return None;
    }
    let bytes = &bytes[memchr(ESC, bytes)?..];
    let (mut letters, mut consumed, mut may_begin_string) = (0, 0, false);
    // What does not fill a block is left out, and so is less text than there is.
    for (firsts, seconds) in bytes.as_chunks().0.iter().zip(bytes[1..].as_chunks().0) {
        let block = BlockCount::new(firsts, seconds);
        letters += usize::from(block.letters);
        consumed += usize::from(block.consumed);
        may_begin_string |= block.may_begin_string;
    }
    (!may_begin_string || !begins_string(bytes)).then(|| letters.saturating_sub(consumed))
}

/// The counts of one block.
struct BlockCount {
    letters: u8,
    consumed: u8,
    // Whether a sequence other than a control sequence may begin.
    may_begin_string: bool,
}

impl BlockCount {
    /// Counts in a block, whose bytes have their successors in `seconds`. The loops are written so that the compiler
    /// turns them into vector instructions.
    fn new(firsts: &[u8; BLOCK], seconds: &[u8; BLOCK]) -> Self {
        let (mut letters, mut consumed, mut begins) = (0, 0, 0);
        for byte in *firsts {
            letters += u8::from(byte.cast_signed() >= b'@'.cast_signed());
            consumed += u8::from(!byte.is_ascii()) + 2 * u8::from(byte == ESC);
        }
        for (first, second) in std::iter::zip(*firsts, *seconds) {
            begins |= u8::from(first == ESC) & u8::from(second != b'[') | u8::from(first == C1);
        }
        Self { letters, consumed, may_begin_string: begins != 0 }
    }
}

/// Returns whether a control string begins in some bytes.
fn begins_string(bytes: &[u8]) -> bool {
    // The byte after the last one is not among them.
    bytes.windows(2).any(|pair| match pair[0] {
        ESC => matches!(pair[1], b']' | b'P' | b'X' | b'^' | b'_'),
        C1 => matches!(pair[1], 0x80..0xa0),
        _ => false,
    })
}

/// The first byte of the C1 control characters in UTF-8, some of which begin control strings.
const C1: u8 = 0xc2;
