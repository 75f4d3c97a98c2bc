//! What each actor did and when, one line an event, in files that outlive the actor.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The style of an event that concerns every file.
pub(super) const EVERY_FILE: &str = "*";

/// Returns the time in microseconds: the same clock for all processes.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Appends events to a file.
#[derive(Debug)]
pub(super) struct Recorder {
    file: File,
}

impl Recorder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)? })
    }

    /// Appends an event at once: a process that is killed next has recorded it.
    pub(super) fn record(&mut self, style: &str, text: &str) -> io::Result<()> {
        let line = format!("{} {style} {}\n", now(), text.replace('\n', " "));
        self.file.write_all(line.as_bytes())
    }
}

/// Something that an actor did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) actor: String,
    pub(super) style: String,
    pub(super) text: String,
}

/// Returns the events of an actor; none if it never recorded any.
pub(super) fn read_events(path: &Path, actor: &str) -> Vec<Event> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let event = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let at = words.next()?.parse().ok()?;
        let style = words.next()?.to_owned();
        Some(Event { at, actor: actor.to_owned(), style, text: words.next()?.to_owned() })
    };
    text.lines().filter_map(event).collect()
}
