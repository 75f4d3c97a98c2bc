//! The comparison of the client's text with the disk's: which of them is the file, decided without accessing either.
//!
//! An editor may have unsaved text, or may not have noticed a command's change. In both cases its text differs from the
//! disk's. The base, the disk's text at the last consistent comparison, tells them apart: if the disk still has it, the
//! editor has unsaved text; if not, the two are merged over the base.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bowline_text::merge::merge;
use bowline_text::text::{self, fit_line_endings};
use bowline_text::unsaved_text::is_equivalent_text;

/// File times move in steps, and lag behind the clock by up to one step.
const FILE_TIME_STEP: Duration = Duration::from_millis(50);

/// The content on this machine's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiskContent {
    /// A file with these bytes, and its modification time.
    File(Vec<u8>, SystemTime),
    /// No file.
    Missing,
    /// Unknown: the project is not on this machine, or the file is too large to compare.
    Unknown,
}

/// The disk's text at the last consistent comparison, and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComparisonBase {
    pub(crate) text: Arc<String>,
    pub(crate) checked_at: SystemTime,
}

/// When commands ran that may have changed files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CommandTimes {
    pub(crate) first: Option<SystemTime>,
    pub(crate) last: Option<SystemTime>,
    // The latest time shown by the clock.
    latest_clock: Option<SystemTime>,
    // Whether the clock was set back: then times give no order.
    is_clock_set_back: bool,
}

impl CommandTimes {
    /// Records that a command runs.
    pub(crate) fn record_run(&mut self, now: SystemTime) {
        self.record_clock(now);
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Records the clock's time.
    pub(crate) fn record_clock(&mut self, now: SystemTime) {
        self.is_clock_set_back |= self.latest_clock.is_some_and(|latest| now + FILE_TIME_STEP < latest);
        self.latest_clock = self.latest_clock.max(Some(now));
    }

    /// Returns whether a command may have run after this time.
    fn may_have_run_after(self, time: SystemTime) -> bool {
        self.last.is_some_and(|last| self.is_clock_set_back || last + FILE_TIME_STEP >= time)
    }

    /// Returns whether a command may have made a change at this time.
    fn may_have_changed_at(self, changed_at: SystemTime) -> bool {
        self.first.is_some_and(|first| self.is_clock_set_back || changed_at + FILE_TIME_STEP >= first)
    }
}

/// Which text is the file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskComparison {
    /// The served text: it includes everything on disk.
    UpToDate,
    /// This merged text: the client has not loaded a change on disk.
    Merged(Arc<String>),
    /// Neither: the client has not loaded a change on disk, which cannot be merged with its text.
    Stale,
    /// Neither: the file was deleted on disk, and the client still has its text.
    Deleted,
    /// Neither: the client could not decode the file as text, and replaced or dropped bytes.
    Lossy,
}

/// Decides which text is the file's.
pub(crate) fn compare_with_disk(
    client: &str,
    disk: &DiskContent,
    base: Option<&ComparisonBase>,
    command_times: CommandTimes,
) -> DiskComparison {
    let (bytes, changed_at) = match disk {
        DiskContent::File(bytes, changed_at) => (bytes, *changed_at),
        _ if has_replacement_characters(client) => return DiskComparison::Lossy,
        DiskContent::Missing if base.is_some() => return DiskComparison::Deleted,
        DiskContent::Missing | DiskContent::Unknown => return DiskComparison::UpToDate,
    };
    if bytes == client.as_bytes() {
        return DiskComparison::UpToDate;
    }
    let utf8_text = std::str::from_utf8(bytes).ok();
    let is_lossy = match utf8_text {
        Some(text) => has_replacement_characters(client) && !is_equivalent_text(text, client),
        None => has_replacement_characters(client) || has_dropped_bytes(bytes, client),
    };
    if is_lossy {
        return DiskComparison::Lossy;
    }
    let Some(disk_text) = decode_text(bytes) else { return DiskComparison::UpToDate };
    if is_equivalent_text(&disk_text, client) {
        return DiskComparison::UpToDate;
    }
    let Some(base) = base else {
        // It is unknown whether the file changed while the client had it open, but a command may have changed it.
        return if command_times.may_have_changed_at(changed_at) {
            DiskComparison::Stale
        } else {
            DiskComparison::UpToDate
        };
    };
    if is_equivalent_text(&disk_text, &base.text) {
        return DiskComparison::UpToDate;
    }
    match merge(&fit_line_endings(&base.text, client), client, &fit_line_endings(&disk_text, client)) {
        Ok(merged) if merged == client => DiskComparison::UpToDate,
        Ok(merged) => DiskComparison::Merged(Arc::new(merged)),
        Err(_) if command_times.may_have_run_after(base.checked_at) => DiskComparison::Stale,
        // No command ran, so the user changed it, by saving the client's text in the meantime.
        Err(_) => DiskComparison::UpToDate,
    }
}

/// Decodes a file's text, in any supported encoding.
pub(crate) fn decode_text(bytes: &[u8]) -> Option<String> {
    Some(text::decode(bytes.to_vec()).ok()?.text)
}

/// Returns whether a text has the characters that clients substitute for undecodable bytes.
fn has_replacement_characters(text: &str) -> bool {
    text.contains(['\u{fffd}', '\0'])
}

/// Returns whether a text is the bytes without those that are not UTF-8.
fn has_dropped_bytes(bytes: &[u8], text: &str) -> bool {
    let mut valid_chunks = bytes.utf8_chunks().map(|chunk| chunk.valid());
    let mut rest = text;
    valid_chunks.all(|part| match rest.strip_prefix(part) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    }) && rest.is_empty()
}

#[cfg(test)]
mod tests;
