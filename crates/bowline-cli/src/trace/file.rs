//! Reading a trace from its file, line by line.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use bowline_state::failure::quote;
use bowline_state::trace::{Entry, Gap, Reader, Reading};

use crate::ending::Ending;
use crate::records::showing::{count, note};

/// What was read beside the messages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// When the trace began, in milliseconds since 1970.
    pub(super) began: Option<i64>,
    /// How many messages there are.
    pub(super) messages: usize,
    /// What the trace tells that it is missing.
    pub(super) lost: Gap,
    /// How many lines are not to be understood.
    pub(super) unreadable: usize,
}

/// Reads a file, or stdin if it is `-`, and gives what it has to `take` in its order: a message, or what is missing in a place.
///
/// # Errors
/// Says why it cannot be read, and that it has no messages.
pub(super) fn read(
    path: &Path,
    mut take: impl FnMut(Result<Entry, Gap>) -> Result<(), Ending>,
) -> Result<Read, Ending> {
    let shown = quote(&path.display().to_string());
    let cannot = |error: io::Error| Ending::Usage(format!("cannot read the trace {shown}: {error}"));
    let source: Box<dyn io::Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).map_err(cannot)?),
    };
    let mut lines = BufReader::with_capacity(1 << 16, source);
    let (mut reader, mut found) = (Reader::default(), Read::default());
    let mut line = Vec::new();
    let mut later = false;
    while lines.read_until(b'\n', &mut line).map_err(cannot)? > 0 {
        match reader.read(line.strip_suffix(b"\n").unwrap_or(&line)) {
            None => {}
            Some(Reading::Head(began)) => found.began = found.began.or(began),
            Some(Reading::Later(_)) => later = true,
            Some(Reading::Message(entry)) => {
                found.messages += 1;
                take(Ok(entry))?;
            }
            Some(Reading::Lost(gap)) => {
                found.lost = found.lost.and(gap);
                take(Err(gap))?;
            }
            Some(Reading::Unreadable(_)) => found.unreadable += 1,
        }
        line.clear();
    }
    if found.messages == 0 && found.unreadable > 0 {
        return Err(Ending::Usage(format!("{shown} has no messages: is it a file that --trace wrote?")));
    }
    if later {
        note("the trace is of a later version of bowline: some of it may be missing here");
    }
    if found.unreadable > 0 {
        let lines = count(found.unreadable, "line", "lines");
        note(&format!("{lines} of the trace cannot be read: cut off, or written by something else"));
    }
    Ok(found)
}

/// Returns what is missing, in words.
pub(super) fn lost(gap: Gap) -> String {
    let messages = count(usize::try_from(gap.messages).unwrap_or(usize::MAX), "message", "messages");
    let bytes = count(usize::try_from(gap.bytes).unwrap_or(usize::MAX), "byte", "bytes");
    format!("{messages} lost here, {bytes}: the disk was full or too slow")
}
