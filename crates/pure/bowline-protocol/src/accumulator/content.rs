//! Streamed content: text that grows chunk by chunk, interleaved with other blocks.

use std::io;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{ContentBlock, TextContent};

use super::persistent_vec::{PersistentVec, work};

/// Text chunks are merged into pieces of up to this many bytes. An append copies at most one piece: smaller pieces mean
/// less copying, larger ones fewer pieces.
const MAX_TEXT_PIECE_BYTES: usize = 256;

/// The size of a piece beyond its content, so that empty pieces also count towards the limit.
const PIECE_OVERHEAD_BYTES: u64 = 64;

/// The content of one message, in order. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct StreamedContent {
    pieces: PersistentVec<StoredPiece>,
    // Invariant: the sum of `StoredPiece::bytes` over `pieces`.
    bytes: u64,
    truncated_bytes: u64,
}

#[derive(Debug, Clone)]
enum StoredPiece {
    Text(Arc<str>),
    Block(Arc<ContentBlock>, u64),
}

/// A piece of content, borrowed from a [`StreamedContent`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ContentPiece<'a> {
    /// Plain text. It continues in the next piece if that is text too.
    Text(&'a str),
    /// A block other than plain text, unchanged.
    Block(&'a ContentBlock),
}

impl StreamedContent {
    /// Returns the pieces, oldest first. Iterating from the back yields the newest text without walking the whole list.
    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = ContentPiece<'_>> {
        self.pieces.iter().map(|(_, part)| match part {
            StoredPiece::Text(text) => ContentPiece::Text(text),
            StoredPiece::Block(block, _) => ContentPiece::Block(block),
        })
    }

    /// Returns the concatenated text. Other blocks are skipped.
    #[must_use]
    pub fn text(&self) -> String {
        self.pieces()
            .filter_map(|piece| match piece {
                ContentPiece::Text(text) => Some(text),
                ContentPiece::Block(ContentBlock::Text(text)) => Some(text.text.as_str()),
                ContentPiece::Block(_) => None,
            })
            .collect()
    }

    /// Returns the content as blocks, with each run of plain text merged into one.
    #[must_use]
    pub fn blocks(&self) -> Vec<ContentBlock> {
        let mut blocks = Vec::new();
        let mut run = String::new();
        for piece in self.pieces() {
            match piece {
                ContentPiece::Text(text) => run.push_str(text),
                ContentPiece::Block(block) => {
                    flush_text(&mut run, &mut blocks);
                    blocks.push(block.clone());
                }
            }
        }
        flush_text(&mut run, &mut blocks);
        blocks
    }

    /// Returns how many bytes were truncated from the front to stay within the limit.
    #[must_use]
    pub fn truncated_bytes(&self) -> u64 {
        self.truncated_bytes
    }

    /// Returns the size that counts towards the limit. Together with [`truncated_bytes`](Self::truncated_bytes) it
    /// shows a view whether content has arrived since its last look: content only grows at the end and is only cut at
    /// the front.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a block. Text with `annotations` or `_meta` remains a separate block.
    pub(super) fn push(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Text(TextContent { text, annotations: None, meta: None, .. }) => {
                self.push_text(text);
            }
            block => {
                let bytes = PIECE_OVERHEAD_BYTES + json_size(|writer| serde_json::to_writer(writer, block));
                self.pieces.push(StoredPiece::Block(Arc::new(block.clone()), bytes));
                self.bytes += bytes;
            }
        }
    }

    /// Drops the oldest piece.
    pub(super) fn shrink(&mut self) {
        if let Some((_, part)) = self.pieces.pop_front() {
            self.bytes -= part.bytes();
            self.truncated_bytes += part.bytes();
        }
    }

    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let last = self.pieces.iter().next_back().map(|(position, part)| (position, part.clone()));
        if let Some((position, StoredPiece::Text(piece))) = last
            && piece.len() + text.len() <= MAX_TEXT_PIECE_BYTES
        {
            work::add(piece.len());
            *self.pieces.slot_mut(position) = Some(StoredPiece::Text([&piece, text].concat().into()));
            self.bytes += text.len() as u64;
        } else {
            let part = StoredPiece::Text(text.into());
            self.bytes += part.bytes();
            self.pieces.push(part);
        }
    }
}

impl<'a> FromIterator<&'a ContentBlock> for StreamedContent {
    fn from_iter<I: IntoIterator<Item = &'a ContentBlock>>(blocks: I) -> Self {
        let mut body = StreamedContent::default();
        blocks.into_iter().for_each(|block| body.push(block));
        body
    }
}

impl StoredPiece {
    fn bytes(&self) -> u64 {
        match self {
            StoredPiece::Text(text) => PIECE_OVERHEAD_BYTES + text.len() as u64,
            StoredPiece::Block(_, bytes) => *bytes,
        }
    }
}

fn flush_text(run: &mut String, blocks: &mut Vec<ContentBlock>) {
    if !run.is_empty() {
        blocks.push(ContentBlock::from(std::mem::take(run)));
    }
}

/// Returns the number of bytes that `write` writes: the JSON size of a value, without building the JSON.
pub(super) fn json_size(write: impl FnOnce(&mut CountingWriter) -> serde_json::Result<()>) -> u64 {
    let mut count = CountingWriter(0);
    // The protocol's types always serialise; a failed one counts the bytes written before the failure.
    match write(&mut count) {
        Ok(()) | Err(_) => count.0,
    }
}

/// A writer that only counts.
pub(super) struct CountingWriter(u64);

impl io::Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
