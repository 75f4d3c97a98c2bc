//! Bytes whose text was not asked for yet. Most of a long output is never shown, and is dropped without being read.
//!
//! That takes two things to be known without reading it: that what came after it has more text than is kept, and what
//! state the stream is in then. The first is counted in a way that is quick and never too high; the second is known at every
//! ESC, which begins a sequence whatever was before it.

use std::collections::VecDeque;

use memchr::{memchr, memchr_iter};

use super::ESC;

/// Shorter pieces are read at once: a program that says little is watched.
const MIN_PIECE: usize = 16 * 1024;

/// As many bytes are counted at a time: twice as many fit into a byte.
const BLOCK: usize = 64;

/// Pieces that wait to be read.
#[derive(Debug, Clone, Default)]
pub(super) struct Deferred {
    pieces: VecDeque<Piece>,
    // How many bytes they are, and how many of text are in them at least.
    bytes: usize,
    text: usize,
    // Whether pieces before the first were dropped, so that it has to be read from its first ESC.
    dropped: bool,
}

/// Bytes in which no string begins.
#[derive(Debug, Clone)]
struct Piece {
    bytes: Vec<u8>,
    text: usize,
}

impl Deferred {
    /// Takes in bytes if they can be deferred. Returns whether they were.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(text) = least_text(bytes) else { return false };
        self.pieces.push_back(Piece { bytes: bytes.to_vec(), text });
        self.bytes += bytes.len();
        self.text += text;
        true
    }

    /// Drops what cannot be among the last `limit` bytes of text. Returns whether anything was.
    pub(super) fn drop_beyond(&mut self, limit: usize) -> bool {
        let mut dropped = false;
        while let Some(first) = self.pieces.front()
            && self.text - first.text > limit
        {
            self.bytes -= first.bytes.len();
            self.text -= first.text;
            self.pieces.pop_front();
            (dropped, self.dropped) = (true, true);
        }
        dropped
    }

    /// Returns how many bytes wait.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// Says whether so much waits that it should be read: there may be little text in it.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.bytes > 4 * (limit + MIN_PIECE)
    }

    /// Returns the bytes that are still to be read, piece by piece.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let Self { mut pieces, dropped, .. } = std::mem::take(self);
        if let (true, Some(first)) = (dropped, pieces.front_mut()) {
            let begin = memchr(ESC, &first.bytes).unwrap_or(first.bytes.len());
            first.bytes.drain(..begin);
        }
        pieces.into_iter().map(|piece| piece.bytes)
    }
}

/// Returns how many bytes of text a piece has at least, from its first ESC on. None if it cannot be deferred.
///
/// Of the bytes from `@` to `~`, a sequence that is no string takes two at most: the one after ESC and its last. One that begins
/// with a byte that is not ASCII takes one. All the others are text.
fn least_text(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < MIN_PIECE || begins_string(bytes) {
        return None;
    }
    let bytes = &bytes[memchr(ESC, bytes)?..];
    let (mut letters, mut taken) = (0, 0);
    for block in bytes.chunks(BLOCK) {
        let (mut block_letters, mut block_taken) = (0_u8, 0_u8);
        for &byte in block {
            block_letters += u8::from(byte.cast_signed() >= b'@'.cast_signed());
            block_taken += u8::from(!byte.is_ascii()) + 2 * u8::from(byte == ESC);
        }
        letters += usize::from(block_letters);
        taken += usize::from(block_taken);
    }
    Some(letters.saturating_sub(taken))
}

/// Returns whether a string begins in a piece.
fn begins_string(bytes: &[u8]) -> bool {
    // What follows the last byte is not in the piece.
    let next = |at: usize| bytes.get(at + 1).copied().unwrap_or_default();
    memchr_iter(ESC, bytes).any(|at| matches!(next(at), b']' | b'P' | b'X' | b'^' | b'_'))
        || memchr_iter(C1, bytes).any(|at| matches!(next(at), 0x80..0xa0))
}

/// The first byte of the characters that are control characters too, some of which begin strings.
const C1: u8 = 0xc2;
