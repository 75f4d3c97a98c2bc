//! The client's text beside what this machine's disk has: which of them is the file, decided without touching either.
//!
//! An editor may have text that is not saved, and it may not have noticed what a command changed. In both cases its text is
//! not the disk's. What tells them apart is the disk's text at the last look that found nothing wrong: if the disk still has
//! it, the editor has more; if not, the two are merged, and what the editor had then is in both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bowline_state::merge::merge;
use bowline_state::text::{self, fit};

const BOM: char = '\u{feff}';

/// The times of files move in steps, and lag behind the clock by as much.
const TIME_STEP: Duration = Duration::from_millis(50);

/// What this machine's disk has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    /// A file with these bytes, which was changed last then.
    File(Vec<u8>, SystemTime),
    /// No file.
    Missing,
    /// Nobody can say: the project is not on this machine, or the file is too large to be looked at.
    Unknown,
}

/// What the disk had at the last look that found nothing wrong, and when that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) text: Arc<String>,
    pub(crate) at: SystemTime,
}

/// When commands ran that may have changed files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Commanded {
    pub(crate) first: Option<SystemTime>,
    pub(crate) last: Option<SystemTime>,
    // The latest time that the clock has shown.
    latest: Option<SystemTime>,
    // Whether the clock was put back: then times do not tell what was before what.
    put_back: bool,
}

impl Commanded {
    /// Notes that one runs.
    pub(crate) fn runs(&mut self, now: SystemTime) {
        self.sees(now);
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Notes what the clock shows.
    pub(crate) fn sees(&mut self, now: SystemTime) {
        self.put_back |= self.latest.is_some_and(|latest| now + TIME_STEP < latest);
        self.latest = self.latest.max(Some(now));
    }

    /// Says whether one may have run after this time.
    fn after(self, time: SystemTime) -> bool {
        self.last.is_some_and(|last| self.put_back || last + TIME_STEP >= time)
    }

    /// Says whether something that was changed then may have been changed by one.
    fn before(self, changed: SystemTime) -> bool {
        self.first.is_some_and(|first| self.put_back || changed + TIME_STEP >= first)
    }
}

/// Which text is the file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Truth {
    /// The one that was served: there is nothing on disk that it does not have.
    Served,
    /// This one: the client has not taken in what was changed on disk.
    Merged(Arc<String>),
    /// Neither: the client has not taken in what was changed on disk, and that cannot be merged with its text.
    Stale,
    /// Neither: the file was deleted on disk, and the client still has its text.
    Deleted,
    /// Neither: the client could not read the file as text, and has put something in the place of what it could not read.
    Lossy,
}

/// Decides which text is the file's.
pub(crate) fn truth(client: &str, disk: &Disk, base: Option<&Base>, commanded: Commanded) -> Truth {
    let (bytes, changed) = match disk {
        Disk::File(bytes, changed) => (bytes, *changed),
        _ if is_doubtful(client) => return Truth::Lossy,
        Disk::Missing if base.is_some() => return Truth::Deleted,
        Disk::Missing | Disk::Unknown => return Truth::Served,
    };
    if bytes == client.as_bytes() {
        return Truth::Served;
    }
    let plain = std::str::from_utf8(bytes).ok();
    let is_lossy = match plain {
        Some(text) => is_doubtful(client) && !is_same(text, client),
        None => is_doubtful(client) || has_dropped(bytes, client),
    };
    if is_lossy {
        return Truth::Lossy;
    }
    let Some(now) = text_of(bytes) else { return Truth::Served };
    if is_same(&now, client) {
        return Truth::Served;
    }
    let Some(base) = base else {
        // Whether it was changed while the client had it nobody knows, but a command may have done so.
        return if commanded.before(changed) { Truth::Stale } else { Truth::Served };
    };
    if is_same(&now, &base.text) {
        return Truth::Served;
    }
    match merge(&fit(&base.text, client), client, &fit(&now, client)) {
        Ok(merged) if merged.text == client => Truth::Served,
        Ok(merged) => Truth::Merged(Arc::new(merged.text)),
        Err(_) if commanded.after(base.at) => Truth::Stale,
        // Only its user can have changed it: by saving what the client had meanwhile.
        Err(_) => Truth::Served,
    }
}

/// Returns the text of a file, whatever encoding it is in.
pub(crate) fn text_of(bytes: &[u8]) -> Option<String> {
    Some(text::decode(bytes.to_vec()).ok()?.text)
}

/// Says whether a text has what a client puts in place of bytes that it cannot read.
fn is_doubtful(text: &str) -> bool {
    text.contains(['\u{fffd}', '\0'])
}

/// Says whether a text is what is left of bytes without those that are not UTF-8.
fn has_dropped(bytes: &[u8], text: &str) -> bool {
    let mut left = bytes.utf8_chunks().map(|chunk| chunk.valid());
    let mut rest = text;
    left.all(|part| match rest.strip_prefix(part) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    }) && rest.is_empty()
}

/// Says whether two texts are the same but for what clients make of files: the byte order mark, the kind of line endings, and
/// whether the last line has one.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let lines = |text: &'_ str| {
        let text = text.strip_prefix(BOM).unwrap_or(text).to_owned();
        let text = text.replace("\r\n", "\n");
        text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
    };
    one == other || lines(one) == lines(other)
}

#[cfg(test)]
mod tests;
