//! Reading a trace from its file, line by line.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use bowline_protocol::trace::{TraceEntry, TraceGap, TraceReader, TraceRecord};
use bowline_text::display::quote;

use bowline_client::common::console::{pluralize, print_note};
use bowline_client::error::CliError;

/// What a trace contains besides its messages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceSummary {
    /// When the trace began, in milliseconds since 1970.
    pub(super) began: Option<i64>,
    /// The number of messages.
    pub(super) messages: usize,
    /// What the trace reports as missing.
    pub(super) gap: TraceGap,
    /// The number of unreadable lines.
    pub(super) unreadable: usize,
}

/// Reads a file, or stdin if it is `-`, and passes its items to `handle` in order: messages and gaps.
///
/// # Errors
/// Explains why it cannot be read, or reports that it has no messages.
pub(super) fn read_trace(
    path: &Path,
    mut handle: impl FnMut(Result<TraceEntry, TraceGap>) -> Result<(), CliError>,
) -> Result<TraceSummary, CliError> {
    let shown = quote(&path.display().to_string());
    let read_error = |error: io::Error| CliError::Usage(format!("cannot read the trace {shown}: {error}"));
    let source: Box<dyn io::Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).map_err(read_error)?),
    };
    let mut lines = BufReader::with_capacity(1 << 16, source);
    let (mut reader, mut summary) = (TraceReader::default(), TraceSummary::default());
    let mut line = Vec::new();
    let mut is_newer = false;
    while lines.read_until(b'\n', &mut line).map_err(read_error)? > 0 {
        match reader.read(line.strip_suffix(b"\n").unwrap_or(&line)) {
            None => {}
            Some(TraceRecord::Header(began)) => summary.began = summary.began.or(began),
            Some(TraceRecord::NewerVersion(_)) => is_newer = true,
            Some(TraceRecord::Message(entry)) => {
                summary.messages += 1;
                handle(Ok(entry))?;
            }
            Some(TraceRecord::Gap(gap)) => {
                summary.gap = summary.gap.merge(gap);
                handle(Err(gap))?;
            }
            Some(TraceRecord::Unreadable(_)) => summary.unreadable += 1,
        }
        line.clear();
    }
    if summary.messages == 0 && summary.unreadable > 0 {
        return Err(CliError::Usage(format!("{shown} has no messages: is it a file that --trace wrote?")));
    }
    if is_newer {
        print_note("the trace is of a later version of bowline: some of it may be missing here");
    }
    if summary.unreadable > 0 {
        let lines = pluralize(summary.unreadable, "line", "lines");
        print_note(&format!("{lines} of the trace cannot be read: cut off, or written by something else"));
    }
    Ok(summary)
}

/// Describes a gap.
pub(super) fn describe_gap(gap: TraceGap) -> String {
    let messages = pluralize(usize::try_from(gap.messages).unwrap_or(usize::MAX), "message", "messages");
    let bytes = pluralize(usize::try_from(gap.bytes).unwrap_or(usize::MAX), "byte", "bytes");
    format!("{messages} lost here, {bytes}: the disk was full or too slow")
}
