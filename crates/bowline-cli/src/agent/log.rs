//! The agent's log: timestamped lines in a file that the user names.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use bowline_agent::agent_options::LogSink;
use bowline_storage::clock::since_epoch;
use bowline_text::display;

/// The maximum length of a line, in bytes.
const MAX_LINE: usize = 4096;

/// Returns a log sink that appends to a file.
pub(super) fn log_to_file(path: &Path) -> Result<LogSink> {
    let file = open_for_append(path).with_context(|| format!("cannot write the log {}", path.display()))?;
    let file = Mutex::new(file);
    Ok(LogSink::new(move |line| write_log_line(&file, line)))
}

/// Opens a file for appending, readable by the user only.
pub(super) fn open_for_append(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.create(true).append(true).open(path)
}

/// Appends a line. A log that cannot be written does not stop the agent.
fn write_log_line(file: &Mutex<File>, line: &str) {
    let since = since_epoch();
    let mut text = format!("{}.{:03} ", since.as_secs(), since.subsec_millis());
    text.push_str(&display::escape_line(line, MAX_LINE));
    text.push('\n');
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.write_all(text.as_bytes()).unwrap_or_default();
}
