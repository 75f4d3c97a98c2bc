//! The events of a stream, as a client of an older revision can read them.
//!
//! Since revision 2025-11-25 a stream begins with an event that has an id and no data, so that a client can come back for
//! what follows. Who does not know that takes the data for a message, and it is none: some then give the server up.

use hyper::body::Bytes;

/// The first revision with events that have no data.
const FIRST: &str = "2025-11-25";

/// Whether events without data can be sent to a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WithoutData {
    /// It takes the data for a message.
    #[default]
    Never,
    /// It knows them.
    Allowed,
}

impl WithoutData {
    /// Returns what goes for a client that wants a revision.
    pub(crate) fn of(wanted: &str) -> Self {
        if wanted >= FIRST { Self::Allowed } else { Self::Never }
    }
}

/// Returns an event without its empty data, if that is what it has: readers then keep its id, and do not show it.
pub(crate) fn without_empty_data(event: Bytes) -> Bytes {
    let is_empty = |line: &[u8]| line.strip_prefix(b"data:").is_some_and(|data| data.trim_ascii().is_empty());
    // Only those of a few lines have none: the others hold whole files.
    if event.len() > 256 || !event.split(|byte| *byte == b'\n').any(is_empty) {
        return event;
    }
    let lines = event.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_empty(line));
    lines.flatten().copied().collect()
}

#[cfg(test)]
mod tests;
