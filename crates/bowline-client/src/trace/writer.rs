//! The trace file, on a disk that may be full.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use bowline_protocol::trace::{self, BacklogItem, TRACE_PREFIX, TraceGap};

/// The line prefixes of older traces without times: to the agent, and from it.
const OLD_MARKS: [&[u8]; 2] = [b"> ", b"< "];

/// The storage of a trace.
pub(super) trait TraceStorage: Send {
    /// Writes all bytes at an offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Truncates at an offset.
    fn truncate(&self, offset: u64) -> io::Result<()>;
}

impl TraceStorage for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn truncate(&self, offset: u64) -> io::Result<()> {
        self.set_len(offset)
    }
}

/// Writes the lines of a trace, one after the other.
pub(super) struct TraceWriter {
    store: Box<dyn TraceStorage>,
    // Invariant: everything before it is whole lines.
    end: u64,
    // What was lost since the last line that was written.
    lost: TraceGap,
}

impl TraceWriter {
    /// Opens a new file, or an existing one that is empty or a trace, and begins it.
    pub(super) fn begin(path: &Path, began_ms: i64) -> io::Result<Self> {
        Self::with_storage(Box::new(open(path)?), began_ms)
    }

    /// Begins a trace.
    pub(super) fn with_storage(store: Box<dyn TraceStorage>, began_ms: i64) -> io::Result<Self> {
        let head = trace::encode_header(began_ms);
        store.write_at(&head, 0)?;
        Ok(Self { store, end: u64::try_from(head.len()).unwrap_or(u64::MAX), lost: TraceGap::default() })
    }

    /// Writes a line. Lost lines are counted and reported before the next line that is written.
    pub(super) fn write(&mut self, item: BacklogItem) {
        match item {
            BacklogItem::Gap(gap) => self.lost = self.lost.merge(gap),
            BacklogItem::Message(entry) => {
                let bytes = u64::try_from(entry.bytes.len()).unwrap_or(u64::MAX);
                let mut line = self.gap_line();
                line.extend(trace::encode_entry(&entry));
                match self.append(&line) {
                    true => self.lost = TraceGap::default(),
                    false => self.lost = self.lost.merge(TraceGap { messages: 1, bytes }),
                }
            }
        }
    }

    /// Writes the final gap, and returns it if even that cannot be written.
    pub(super) fn finish(mut self) -> Option<TraceGap> {
        let line = self.gap_line();
        (!self.append(&line)).then_some(self.lost)
    }

    /// Returns the line that reports the gap, if there is one.
    fn gap_line(&self) -> Vec<u8> {
        if self.lost.messages == 0 { Vec::new() } else { trace::encode_gap(self.lost) }
    }

    fn append(&mut self, line: &[u8]) -> bool {
        if self.store.write_at(line, self.end).is_ok() {
            self.end += u64::try_from(line.len()).unwrap_or(u64::MAX);
            return true;
        }
        // Part of the line may be written. If truncating fails, the next line overwrites it, and readers skip the rest.
        self.store.truncate(self.end).unwrap_or_default();
        false
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    options.custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        opened => return opened,
    }
    let already_exists = || io::Error::from(ErrorKind::AlreadyExists);
    // A link, a directory or a device is refused, too.
    let mut file = options.open(path).map_err(|_| already_exists())?;
    if !file.metadata()?.is_file() {
        return Err(already_exists());
    }
    let mut prefix = Vec::new();
    (&mut file).take(TRACE_PREFIX.len() as u64).read_to_end(&mut prefix)?;
    let is_old = OLD_MARKS.iter().any(|mark| prefix.starts_with(mark));
    if !prefix.is_empty() && !is_old && prefix != TRACE_PREFIX {
        return Err(already_exists());
    }
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}
