//! Output bytes that are not decoded yet. Most of a long output is never shown, and is dropped without being decoded.
//!
//! Dropping a piece undecoded requires two facts: that the bytes after it hold more text than is kept, and the
//! stream's state after it. The first is estimated by a fast count that is never too high; the second is known at
//! every ESC, which begins a sequence in any state.

use std::collections::VecDeque;

use memchr::{memchr, memchr_iter};

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
}

/// Bytes in which no control string begins.
#[derive(Debug, Clone)]
struct DeferredPiece {
    bytes: Vec<u8>,
    min_text: usize,
}

impl DeferredBytes {
    /// Adds bytes if they can be deferred. Returns whether they were.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(min_text) = min_text_len(bytes) else { return false };
        self.pieces.push_back(DeferredPiece { bytes: bytes.to_vec(), min_text });
        self.bytes += bytes.len();
        self.min_text += min_text;
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
            self.pieces.pop_front();
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
    if bytes.len() < MIN_PIECE || begins_string(bytes) {
        return None;
    }
    let bytes = &bytes[memchr(ESC, bytes)?..];
    let (mut letters, mut consumed) = (0, 0);
    for block in bytes.chunks(BLOCK) {
        let (mut block_letters, mut block_consumed) = (0_u8, 0_u8);
        for &byte in block {
            block_letters += u8::from(byte.cast_signed() >= b'@'.cast_signed());
            block_consumed += u8::from(!byte.is_ascii()) + 2 * u8::from(byte == ESC);
        }
        letters += usize::from(block_letters);
        consumed += usize::from(block_consumed);
    }
    Some(letters.saturating_sub(consumed))
}

/// Returns whether a control string begins in a piece.
fn begins_string(bytes: &[u8]) -> bool {
    // The byte after the last one is not in the piece.
    let next = |at: usize| bytes.get(at + 1).copied().unwrap_or_default();
    memchr_iter(ESC, bytes).any(|at| matches!(next(at), b']' | b'P' | b'X' | b'^' | b'_'))
        || memchr_iter(C1, bytes).any(|at| matches!(next(at), 0x80..0xa0))
}

/// The first byte of the C1 control characters in UTF-8, some of which begin control strings.
const C1: u8 = 0xc2;
