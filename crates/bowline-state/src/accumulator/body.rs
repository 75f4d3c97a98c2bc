//! Streamed content: text that grows chunk by chunk, with other blocks between.

use std::io;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{ContentBlock, TextContent};

use super::series::{Series, work};

/// Text chunks are gathered into pieces of up to this many bytes. Appending copies at most one piece, so a smaller
/// one copies less and a larger one makes fewer parts.
const PIECE: usize = 256;

/// What a part counts beside its content, so that a peer cannot pile up empty ones.
const PART_BYTES: u64 = 64;

/// The content of one message, in order. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Body {
    parts: Series<Part>,
    // Invariant: the sum of `Part::bytes` over `parts`.
    bytes: u64,
    cut: u64,
}

#[derive(Debug, Clone)]
enum Part {
    Text(Arc<str>),
    Block(Arc<ContentBlock>, u64),
}

/// A stretch of content, borrowed from a [`Body`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Piece<'a> {
    /// Some text. It goes on in the next piece, if that is text too.
    Text(&'a str),
    /// A block that is not plain text, as it came.
    Block(&'a ContentBlock),
}

impl Body {
    /// Returns the content piece by piece, oldest first. Read from the back, it gives the newest text without a walk
    /// through the whole.
    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = Piece<'_>> {
        self.parts.iter().map(|(_, part)| match part {
            Part::Text(text) => Piece::Text(text),
            Part::Block(block, _) => Piece::Block(block),
        })
    }

    /// Returns all text, put together. Blocks that are not text leave no trace in it.
    #[must_use]
    pub fn text(&self) -> String {
        self.pieces()
            .filter_map(|piece| match piece {
                Piece::Text(text) => Some(text),
                Piece::Block(ContentBlock::Text(text)) => Some(text.text.as_str()),
                Piece::Block(_) => None,
            })
            .collect()
    }

    /// Returns the content as blocks, each run of plain text as one.
    #[must_use]
    pub fn blocks(&self) -> Vec<ContentBlock> {
        let mut blocks = Vec::new();
        let mut run = String::new();
        for piece in self.pieces() {
            match piece {
                Piece::Text(text) => run.push_str(text),
                Piece::Block(block) => {
                    flush(&mut run, &mut blocks);
                    blocks.push(block.clone());
                }
            }
        }
        flush(&mut run, &mut blocks);
        blocks
    }

    /// Returns how many bytes were cut from the front to make room for what came later.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Returns what the content counts against a cap. With [`cut`](Self::cut) it tells a view whether anything has come
    /// since it last looked: content grows at its end and is cut at its front, and nothing else.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a block. Text that says more than its words (`annotations`, `_meta`) stays a block of its own.
    pub(super) fn push(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Text(TextContent { text, annotations: None, meta: None, .. }) => {
                self.push_text(text);
            }
            block => {
                let bytes = PART_BYTES + json_size(|to| serde_json::to_writer(to, block));
                self.parts.push(Part::Block(Arc::new(block.clone()), bytes));
                self.bytes += bytes;
            }
        }
    }

    /// Gives up the oldest part.
    pub(super) fn shrink(&mut self) {
        if let Some((_, part)) = self.parts.pop_front() {
            self.bytes -= part.bytes();
            self.cut += part.bytes();
        }
    }

    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let last = self.parts.iter().next_back().map(|(position, part)| (position, part.clone()));
        if let Some((position, Part::Text(piece))) = last
            && piece.len() + text.len() <= PIECE
        {
            work::add(piece.len());
            *self.parts.entry(position) = Some(Part::Text([&piece, text].concat().into()));
            self.bytes += text.len() as u64;
        } else {
            let part = Part::Text(text.into());
            self.bytes += part.bytes();
            self.parts.push(part);
        }
    }
}

impl<'a> FromIterator<&'a ContentBlock> for Body {
    fn from_iter<I: IntoIterator<Item = &'a ContentBlock>>(blocks: I) -> Self {
        let mut body = Body::default();
        blocks.into_iter().for_each(|block| body.push(block));
        body
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        match self {
            Part::Text(text) => PART_BYTES + text.len() as u64,
            Part::Block(_, bytes) => *bytes,
        }
    }
}

fn flush(run: &mut String, blocks: &mut Vec<ContentBlock>) {
    if !run.is_empty() {
        blocks.push(ContentBlock::from(std::mem::take(run)));
    }
}

/// Returns the length of what `write` writes: the size of a value as JSON, without the JSON.
pub(super) fn json_size(write: impl FnOnce(&mut Count) -> serde_json::Result<()>) -> u64 {
    let mut count = Count(0);
    // The protocol's own types always serialise; one that did not would count for what it gave until then.
    match write(&mut count) {
        Ok(()) | Err(_) => count.0,
    }
}

/// A writer that only counts.
pub(super) struct Count(u64);

impl io::Write for Count {
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
