//! The file of a trace, on a disk that may be full.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use bowline_state::trace::{self, Gap, Item, MARK};

/// How traces began that had no times: what went to the agent, and what came from there.
const OLD_MARKS: [&[u8]; 2] = [b"> ", b"< "];

/// What takes the bytes of a trace.
pub(super) trait Store: Send {
    /// Writes all of the bytes from a place on.
    fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<()>;
    /// Cuts what is behind a place.
    fn cut(&self, place: u64) -> io::Result<()>;
}

impl Store for File {
    fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<()> {
        self.write_all_at(bytes, place)
    }

    fn cut(&self, place: u64) -> io::Result<()> {
        self.set_len(place)
    }
}

/// Writes the lines of a trace, one after the other.
pub(super) struct Writer {
    store: Box<dyn Store>,
    // Invariant: all before it is whole lines.
    end: u64,
    // What the disk did not take since the last line that it took.
    lost: Gap,
}

impl Writer {
    /// Opens a new file, or an old one that is empty or a trace, and begins it.
    pub(super) fn begin(path: &Path, began_ms: i64) -> io::Result<Self> {
        Self::on(Box::new(open(path)?), began_ms)
    }

    /// Begins a trace.
    pub(super) fn on(store: Box<dyn Store>, began_ms: i64) -> io::Result<Self> {
        let head = trace::head(began_ms);
        store.write_at(&head, 0)?;
        Ok(Self { store, end: u64::try_from(head.len()).unwrap_or(u64::MAX), lost: Gap::default() })
    }

    /// Writes a line. What the disk does not take is counted before the next that it takes.
    pub(super) fn write(&mut self, item: Item) {
        match item {
            Item::Lost(gap) => self.lost = self.lost.and(gap),
            Item::Message(entry) => {
                let bytes = u64::try_from(entry.bytes.len()).unwrap_or(u64::MAX);
                let mut line = self.gap();
                line.extend(trace::encode(&entry));
                match self.append(&line) {
                    true => self.lost = Gap::default(),
                    false => self.lost = self.lost.and(Gap { messages: 1, bytes }),
                }
            }
        }
    }

    /// Tells what is missing at the end, and returns it if the disk does not even take that.
    pub(super) fn finish(mut self) -> Option<Gap> {
        let line = self.gap();
        (!self.append(&line)).then_some(self.lost)
    }

    /// Returns the line that tells what is missing, if something is.
    fn gap(&self) -> Vec<u8> {
        if self.lost.messages == 0 { Vec::new() } else { trace::lost(self.lost) }
    }

    fn append(&mut self, line: &[u8]) -> bool {
        if self.store.write_at(line, self.end).is_ok() {
            self.end += u64::try_from(line.len()).unwrap_or(u64::MAX);
            return true;
        }
        // A part of it may be there. If it stays, the next line is written over it, and readers pass over the rest.
        self.store.cut(self.end).unwrap_or_default();
        false
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let link = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    options.custom_flags(i32::try_from(link.bits()).unwrap_or_default());
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        opened => return opened,
    }
    let taken = || io::Error::from(ErrorKind::AlreadyExists);
    // Also a link, a directory or a device.
    let mut file = options.open(path).map_err(|_| taken())?;
    if !file.metadata()?.is_file() {
        return Err(taken());
    }
    let mut begins = Vec::new();
    (&mut file).take(MARK.len() as u64).read_to_end(&mut begins)?;
    let is_old = OLD_MARKS.iter().any(|mark| begins.starts_with(mark));
    if !begins.is_empty() && !is_old && begins != MARK {
        return Err(taken());
    }
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}
