//! The agent's log: lines with their time, in a file of the user's choice.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use bowline_agent::settings::Log;
use bowline_state::display;

/// A line has at most so many bytes.
const MAX_LINE: usize = 4096;

/// Returns a log that is added to a file.
pub(super) fn to(path: &Path) -> Result<Log> {
    let file = open(path).with_context(|| format!("cannot write the log {}", path.display()))?;
    let file = Mutex::new(file);
    Ok(Log::new(move |line| write(&file, line)))
}

/// Opens a file to add to, for the user alone.
pub(super) fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.create(true).append(true).open(path)
}

/// A log that cannot be written is no reason to stop.
fn write(file: &Mutex<File>, line: &str) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut text = format!("{}.{:03} ", since.as_secs(), since.subsec_millis());
    text.push_str(&display::line(line, MAX_LINE));
    text.push('\n');
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.write_all(text.as_bytes()).unwrap_or_default();
}
