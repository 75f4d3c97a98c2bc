//! Where the rules are: whose the file is, whether an agent could reach it, and how it is replaced.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bowline_state::observation::{Known, Stamp};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::{MAX_POLICY_BYTES, PolicyError, text};
use crate::file_clock;

/// Between two tries to lock.
const PAUSE: Duration = Duration::from_millis(10);
/// Write permission for the group and for others.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The path of a file of rules.
#[derive(Debug)]
pub(super) struct Place {
    // Invariant: absolute, with a name at its end.
    path: PathBuf,
}

impl Place {
    pub(super) fn new(path: &Path) -> Result<Self, PolicyError> {
        text(path)?;
        if path.file_name().is_none() || path.parent().is_none() {
            return Err(PolicyError::BadPath(path.to_string_lossy().into_owned()));
        }
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn shown(&self) -> String {
        shown(&self.path)
    }

    /// Returns what the file's metadata say; nothing if there is none.
    pub(super) fn stamp(&self) -> Result<Option<Stamp>, PolicyError> {
        match fs::metadata(&self.path) {
            Ok(found) => Ok(Some(stamp(&found))),
            // A link that leads nowhere is not no file: somebody wanted rules to be there.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && self.path.symlink_metadata().is_err() =>
            {
                Ok(None)
            }
            Err(error) => Err(system("look at", &self.path)(error)),
        }
    }

    /// Reads the file, if it is the user's own and out of an agent's reach. No file is an empty one.
    pub(super) fn read(&self, roots: &[String]) -> Result<(Option<Known>, String), PolicyError> {
        self.keep_out(roots)?;
        if self.stamp()?.is_none() {
            return Ok((None, String::new()));
        }
        let real = self.path.canonicalize().map_err(system("find", &self.path))?;
        outside(&real, roots)?;
        let now = file_clock::now_ns();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = options.open(&real).map_err(system("open", &real))?;
        let found = file.metadata().map_err(system("look at", &real))?;
        if !found.is_file() {
            return Err(PolicyError::NotAFile(shown(&real)));
        }
        is_own(&real, &found)?;
        if let Some(directory) = real.parent() {
            is_own(directory, &directory.metadata().map_err(system("look at", directory))?)?;
        }
        if found.len() > MAX_POLICY_BYTES {
            return Err(PolicyError::TooLarge { path: shown(&real), bytes: found.len() });
        }
        let mut bytes = Vec::new();
        // It may grow while it is read.
        let read = file.take(MAX_POLICY_BYTES + 1).read_to_end(&mut bytes).map_err(system("read", &real))?;
        if read as u64 > MAX_POLICY_BYTES {
            return Err(PolicyError::TooLarge { path: shown(&real), bytes: read as u64 });
        }
        let text = String::from_utf8(bytes).map_err(|_| PolicyError::NotUtf8(shown(&real)))?;
        Ok((Some(Known::new(stamp(&found), None, now)), text))
    }

    /// Makes sure that neither the name nor what it leads to lies in a workspace.
    fn keep_out(&self, roots: &[String]) -> Result<(), PolicyError> {
        outside(&self.path, roots)?;
        // Of a directory that is not there yet the nearest one that is decides.
        let nearest = self.path.ancestors().skip(1).find_map(|directory| directory.canonicalize().ok());
        nearest.map_or(Ok(()), |directory| outside(&directory, roots))
    }

    /// Takes the lock between processes that edit the file, and makes its directory if there is none.
    pub(super) fn lock(&self, wait: Duration, roots: &[String]) -> Result<File, PolicyError> {
        self.keep_out(roots)?;
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(system("make the directory", directory))?;
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".lock");
        let path = directory.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(&path).map_err(system("open", &path))?;
        let end = Instant::now() + wait;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(PolicyError::Held(self.shown())),
                Err(error) => return Err(system("lock", &path)(error.into())),
            }
        }
    }

    /// Puts a text in the file's place: whoever reads it finds the old one or the new one, whole. The caller holds the
    /// lock.
    pub(super) fn replace(&self, text: &str) -> Result<(), PolicyError> {
        // A link stays one: what it leads to is replaced.
        let real = match self.stamp()? {
            Some(_) => self.path.canonicalize().map_err(system("find", &self.path))?,
            None => self.path.clone(),
        };
        let directory = real.parent().unwrap_or(Path::new("/"));
        let mut name = real.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let temporary = directory.join(name);
        // Only what a process left behind when it was killed can be there, because of the lock.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(system("remove", &temporary)(error));
            }
            _ => {}
        }
        let written = write(&temporary, text).and_then(|()| fs::rename(&temporary, &real));
        if let Err(error) = written {
            // The first failure is the one to tell of.
            drop(fs::remove_file(&temporary));
            return Err(system("write", &real)(error));
        }
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(system("write", directory))
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn outside(path: &Path, roots: &[String]) -> Result<(), PolicyError> {
    match roots.iter().find(|root| path.starts_with(root)) {
        Some(root) => Err(PolicyError::InsideWorkspace { path: shown(path), root: root.clone() }),
        None => Ok(()),
    }
}

/// Makes sure that nobody else can change a file, or what lies in a directory.
fn is_own(path: &Path, found: &Metadata) -> Result<(), PolicyError> {
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user && found.uid() != 0 {
        return Err(PolicyError::Foreign(shown(path)));
    }
    let is_shared = found.mode() & OTHERS_WRITE != 0 && !(found.is_dir() && found.mode() & STICKY != 0);
    if is_shared { Err(PolicyError::WritableByOthers(shown(path))) } else { Ok(()) }
}

fn stamp(found: &Metadata) -> Stamp {
    let time =
        |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
    Stamp {
        device: found.dev(),
        inode: found.ino(),
        size: found.len(),
        mtime_ns: time(found.mtime(), found.mtime_nsec()),
        ctime_ns: time(found.ctime(), found.ctime_nsec()),
        mode: found.mode(),
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PolicyError {
    let path = shown(path);
    move |why| PolicyError::System { what, path, why }
}
