//! The events of a stream, made readable for clients of older revisions.
//!
//! Since revision 2025-11-25 a stream begins with an event that has an id and no data, so that a client can resume the
//! stream. A client of an older revision takes the empty data for an invalid message, and some then abandon the server.

use hyper::body::Bytes;

/// The first revision with events that have no data.
const FIRST_REVISION: &str = "2025-11-25";

/// Whether events without data can be sent to a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum EmptyEventSupport {
    /// It takes the empty data for a message.
    #[default]
    Unsupported,
    /// It ignores events without data.
    Supported,
}

impl EmptyEventSupport {
    /// Returns the support of a client that requests a revision.
    pub(crate) fn from_revision(revision: &str) -> Self {
        if revision >= FIRST_REVISION { Self::Supported } else { Self::Unsupported }
    }
}

/// Removes the data lines of an event if they are empty: readers then keep its id and dispatch no message.
pub(crate) fn strip_empty_data(event: Bytes) -> Bytes {
    let is_empty = |line: &[u8]| line.strip_prefix(b"data:").is_some_and(|data| data.trim_ascii().is_empty());
    // Only short events have empty data: the others hold whole files.
    if event.len() > 256 || !event.split(|byte| *byte == b'\n').any(is_empty) {
        return event;
    }
    let lines = event.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_empty(line));
    lines.flatten().copied().collect()
}

#[cfg(test)]
mod tests;
