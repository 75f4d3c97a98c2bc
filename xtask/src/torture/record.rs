//! The event records of the actors: one line per event with its time, in files that outlive the actor.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The style of an event that concerns every file.
pub(super) const ALL_FILES: &str = "*";

/// Returns the time in microseconds, from a clock that all processes share.
pub(super) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Appends events to a file.
#[derive(Debug)]
pub(super) struct EventRecorder {
    file: File,
}

impl EventRecorder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)? })
    }

    /// Writes an event immediately, so that it is recorded even if the process is killed next.
    pub(super) fn record(&mut self, style: &str, text: &str) -> io::Result<()> {
        let line = format!("{} {style} {}\n", now_micros(), text.replace('\n', " "));
        self.file.write_all(line.as_bytes())
    }
}

/// A recorded event of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TortureEvent {
    pub(super) at: u64,
    pub(super) actor: String,
    pub(super) style: String,
    pub(super) text: String,
}

/// Returns the events of an actor, or an empty list if it recorded none.
pub(super) fn read_events(path: &Path, actor: &str) -> Vec<TortureEvent> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let event = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let at = words.next()?.parse().ok()?;
        let style = words.next()?.to_owned();
        Some(TortureEvent { at, actor: actor.to_owned(), style, text: words.next()?.to_owned() })
    };
    text.lines().filter_map(event).collect()
}
