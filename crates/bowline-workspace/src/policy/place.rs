//! Where the rules are: whose the file is, whether an agent could reach it, and how it is replaced.

use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_state::observation::{Known, Stamp};
use rustix::io::Errno;

use super::{MAX_POLICY_BYTES, PolicyError, text};
use crate::calls::Calls;
use crate::file_clock;
use crate::storage::{
    FileError, FileLock, OpenMode, Sharing, create_directory, open_private, replace_file, with_suffix,
};
use crate::walker::stamp;

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
        match rustix::fs::stat(&self.path) {
            Ok(found) => Ok(Some(stamp(&found))),
            // A link that leads nowhere is not no file: somebody wanted rules to be there.
            Err(Errno::NOENT) if self.path.symlink_metadata().is_err() => Ok(None),
            Err(error) => Err(system("look at", &self.path)(error.into())),
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
        let file = open_private(&real, OpenMode::Read, &Calls::default())?;
        let found = file.metadata().map_err(system("look at", &real))?;
        let stamp = stamp(&rustix::fs::fstat(&file).map_err(|error| system("look at", &real)(error.into()))?);
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
        Ok((Some(Known::new(stamp, None, now)), text))
    }

    /// Makes sure that neither the name nor what it leads to lies in a workspace.
    fn keep_out(&self, roots: &[String]) -> Result<(), PolicyError> {
        outside(&self.path, roots)?;
        // Of a directory that is not there yet the nearest one that is decides.
        let nearest = self.path.ancestors().skip(1).find_map(|directory| directory.canonicalize().ok());
        nearest.map_or(Ok(()), |directory| outside(&directory, roots))
    }

    /// Takes the lock between processes that edit the file, and makes its directory if there is none.
    pub(super) fn lock(&self, wait: Duration, roots: &[String]) -> Result<FileLock, PolicyError> {
        self.keep_out(roots)?;
        create_directory(self.path.parent().unwrap_or(Path::new("/")), &Calls::default())?;
        let lock = FileLock::acquire(&with_suffix(&self.path, ".lock"), Sharing::Alone, wait)?;
        lock.ok_or_else(|| PolicyError::Held(self.shown()))
    }

    /// Puts a text in the file's place: whoever reads it finds the old one or the new one, whole. The caller holds the
    /// lock.
    pub(super) fn replace(&self, text: &str) -> Result<(), PolicyError> {
        // A link stays one: what it leads to is replaced.
        let real = match self.stamp()? {
            Some(_) => self.path.canonicalize().map_err(system("find", &self.path))?,
            None => self.path.clone(),
        };
        Ok(replace_file(&real, &with_suffix(&real, ".new"), text.as_bytes())?)
    }
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

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PolicyError {
    move |why| FileError::of(what, path)(why).into()
}

impl From<FileError> for PolicyError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotPlain { path, .. } => Self::NotAFile(shown(&path)),
            FileError::Io { doing, path, why } => Self::System { what: doing, path: shown(&path), why },
        }
    }
}
