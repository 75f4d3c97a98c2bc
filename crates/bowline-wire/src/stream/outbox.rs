//! The outbox: output bytes, gathered so that many small messages leave in one write.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::message::body::{LARGE_BODY, recycle_buffer};

/// The size at which a piece stops growing.
const MAX_PIECE: usize = 64 << 10;

/// The output of a connection that has not been written yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    // Invariant: no piece is empty, `written` is less than the length of the first piece, and `queued` is the
    // number of bytes in all pieces less `written`.
    pieces: VecDeque<Vec<u8>>,
    written: usize,
    queued: usize,
    /// The number of bytes ever appended.
    appended: u64,
    spare: Vec<u8>,
}

impl Outbox {
    /// Returns the number of bytes that wait to be written.
    pub(crate) fn len(&self) -> usize {
        self.queued
    }

    /// Returns the number of bytes ever appended.
    pub(crate) fn total_appended(&self) -> u64 {
        self.appended
    }

    /// Returns the number of bytes ever written.
    pub(crate) fn total_written(&self) -> u64 {
        self.appended - self.queued as u64
    }

    /// Lets `write` append to the output.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut piece = match self.pieces.back() {
            Some(last) if last.len() < MAX_PIECE => self.pieces.pop_back().unwrap_or_default(),
            _ => std::mem::take(&mut self.spare),
        };
        let before = piece.len();
        write(&mut piece);
        let added = piece.len().saturating_sub(before);
        self.queued += added;
        self.appended += added as u64;
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    /// Appends bytes, without a copy if they are large.
    pub(crate) fn push_owned(&mut self, bytes: Vec<u8>) {
        if bytes.len() < LARGE_BODY {
            self.append(|out| out.extend_from_slice(&bytes));
        } else {
            self.queued += bytes.len();
            self.appended += bytes.len() as u64;
            self.pieces.push_back(bytes);
        }
    }

    /// Fills `slices` with the first pieces and returns the number filled.
    pub(crate) fn fill_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, piece) in slices.iter_mut().zip(&self.pieces) {
            let from = if filled == 0 { self.written } else { 0 };
            *slot = IoSlice::new(&piece[from..]);
            filled += 1;
        }
        filled
    }

    /// Removes `n` written bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        let mut left = n.min(self.queued);
        self.queued -= left;
        while let Some(first) = self.pieces.front() {
            let rest = first.len() - self.written;
            if left < rest {
                self.written += left;
                return;
            }
            left -= rest;
            self.written = 0;
            let Some(mut piece) = self.pieces.pop_front() else { return };
            if piece.capacity() <= 2 * MAX_PIECE {
                piece.clear();
                self.spare = piece;
            } else {
                recycle_buffer(piece);
            }
        }
    }

    /// Removes and returns everything, as one byte string.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.queued);
        for (nth, piece) in self.pieces.drain(..).enumerate() {
            let from = if nth == 0 { self.written } else { 0 };
            all.extend_from_slice(&piece[from..]);
        }
        self.written = 0;
        self.queued = 0;
        all
    }
}

#[cfg(test)]
mod tests;
