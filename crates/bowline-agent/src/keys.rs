//! Keys of model providers: from the environment or stored for the user alone.
//!
//! Whoever starts the agent reads the environment and gives the values; the stored ones are in a file of the user's that
//! nobody else can read. A key that was given comes before one that is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bowline_workspace::calls::Calls;
use bowline_workspace::storage::{FileError, create_directory, replace_file};

use crate::model::provider::Provider;

/// No file of keys is longer, in bytes.
pub const MAX_FILE: u64 = 64 << 10;
/// No key is longer, in bytes.
pub const MAX_KEY: usize = 8 << 10;

/// A piece of a key that is at least so long is not told, in bytes.
const MIN_PIECE: usize = 8;

/// A key. It is shown by nothing but [`reveal`](Self::reveal).
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Returns a key, without the blanks around it that copying leaves.
    ///
    /// # Errors
    /// Refuses what can be no key.
    pub fn new(text: &str) -> Result<Self, KeysError> {
        let text = text.trim();
        let fits =
            !text.is_empty() && text.len() <= MAX_KEY && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(KeysError::NoKey) }
    }

    /// Returns the key itself, to be sent to its provider.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns a text in which `…` stands for the key and for pieces of its beginning and of its end: servers quote keys
    /// in their errors. A key that is too short to be a secret, which people give to servers that want none, stays.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        let (Some(first), Some(last)) =
            (self.0.get(..MIN_PIECE), self.0.len().checked_sub(MIN_PIECE).and_then(|at| self.0.get(at..)))
        else {
            return text.to_owned();
        };
        let (bytes, key) = (text.as_bytes(), self.0.as_bytes());
        let same = |at: usize| bytes[at..].iter().zip(key).take_while(|(a, b)| a == b).count();
        let same_before =
            |end: usize| bytes[..end].iter().rev().zip(key.iter().rev()).take_while(|(a, b)| a == b).count();
        let begins = text.match_indices(first).map(|(at, _)| at..at + same(at));
        let ends = text.match_indices(last).map(|(at, _)| at + MIN_PIECE);
        let ends = ends.map(|end| end - same_before(end)..end);
        let mut pieces: Vec<_> = begins.chain(ends).collect();
        pieces.sort_by_key(|piece| piece.start);
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for piece in pieces {
            if piece.start >= done {
                out.push_str(&text[done..piece.start]);
                out.push('…');
            }
            done = done.max(piece.end);
        }
        out.push_str(&text[done..]);
        out
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Where a key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It was given by whoever started the agent.
    Given,
    /// It is stored.
    Stored,
}

/// What is wrong with keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// What was given is no key.
    #[error("this is no key: it must be printable, without blanks, and not empty")]
    NoKey,
    /// What a variable holds is no key.
    #[error("{0} is set, but holds no key: a key is printable and has no blanks; set it again or unset it")]
    Variable(&'static str),
    /// There is no place for keys.
    #[error("there is no place to store keys in: set the variable {0} instead")]
    Nowhere(&'static str),
    /// Others can read the file.
    #[error("{path} can be read by others, so it is not used: run `chmod 600 {path}` and replace the keys in it", path = .0.display())]
    Exposed(PathBuf),
    /// Others can write into the directory.
    #[error("{path} can be changed by others, so no key is stored there: run `chmod 700 {path}`", path = .0.display())]
    Open(PathBuf),
    /// The file is something else.
    #[error("{path} is no file of keys: {why}; repair or remove it", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The disk does not do what is asked.
    #[error("cannot use {path}: {error}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The keys that an agent has.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    given: BTreeMap<Provider, Key>,
    // What was given for these is no key.
    unusable: BTreeSet<Provider>,
    file: Option<PathBuf>,
}

impl Keyring {
    /// Returns a keyring with the keys that are stored in this file, which need not exist.
    #[must_use]
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file, ..Self::default() }
    }

    /// Gives a key. An empty one is none; what can be no key is [told](Self::problem).
    #[must_use]
    pub fn with(mut self, provider: Provider, key: &str) -> Self {
        match Key::new(key) {
            Ok(key) => drop(self.given.insert(provider, key)),
            Err(_) if key.trim().is_empty() => (),
            Err(_) => drop(self.unusable.insert(provider)),
        }
        self
    }

    /// Returns the key of a provider, and where it comes from.
    ///
    /// # Errors
    /// Fails if what is given is no key, or if nothing is given and the file cannot be used.
    pub fn key(&self, provider: Provider) -> Result<Option<(Key, Source)>, KeysError> {
        if let Some(key) = self.given.get(&provider) {
            return Ok(Some((key.clone(), Source::Given)));
        }
        if self.unusable.contains(&provider) {
            return Err(KeysError::Variable(provider.variable()));
        }
        Ok(self.stored()?.remove(&provider).map(|key| (key, Source::Stored)))
    }

    /// Returns the providers that there are keys of, and where those come from. What cannot be used is left out here;
    /// [`problem`](Self::problem) tells of it.
    #[must_use]
    pub fn providers(&self) -> BTreeMap<Provider, Source> {
        let stored = self.stored().unwrap_or_default().into_keys().map(|provider| (provider, Source::Stored));
        stored.chain(self.given.keys().map(|provider| (*provider, Source::Given))).collect()
    }

    /// Returns why there may be fewer keys than the user thinks: a file or a variable that cannot be used.
    #[must_use]
    pub fn problem(&self) -> Option<KeysError> {
        let variable = self.unusable.first().map(|provider| KeysError::Variable(provider.variable()));
        self.stored().err().or(variable)
    }

    /// Stores a key.
    ///
    /// # Errors
    /// Fails if there is no place for it that is the user's alone.
    pub fn store(&self, provider: Provider, key: &str) -> Result<(), KeysError> {
        let key = Key::new(key)?;
        let path = self.file.as_deref().ok_or(KeysError::Nowhere(provider.variable()))?;
        let mut keys = self.stored()?;
        keys.insert(provider, key);
        write(path, &keys)
    }

    /// Forgets a stored key; says whether there was one.
    ///
    /// # Errors
    /// Fails if the file cannot be used.
    pub fn forget(&self, provider: Provider) -> Result<bool, KeysError> {
        let Some(path) = self.file.as_deref() else { return Ok(false) };
        let mut keys = self.stored()?;
        let had = keys.remove(&provider).is_some();
        if had {
            write(path, &keys)?;
        }
        Ok(had)
    }

    fn stored(&self) -> Result<BTreeMap<Provider, Key>, KeysError> {
        self.file.as_deref().map_or_else(|| Ok(BTreeMap::new()), read)
    }
}

fn read(path: &Path) -> Result<BTreeMap<Provider, Key>, KeysError> {
    let unreadable = |why: String| KeysError::Unreadable { path: path.to_owned(), why };
    let io = |error| KeysError::Io { path: path.to_owned(), error };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(io(error)),
    };
    if !metadata.is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    if exposes(&metadata, 0o077) {
        return Err(KeysError::Exposed(path.to_owned()));
    }
    if metadata.len() > MAX_FILE {
        return Err(unreadable(format!("it has more than {MAX_FILE} bytes")));
    }
    let text = fs::read(path).map_err(io)?;
    // The text of an error could quote a key, so only the place is told.
    let texts: BTreeMap<Provider, String> = serde_json::from_slice(&text)
        .map_err(|error| unreadable(format!("it is not as expected at line {}", error.line())))?;
    let keys = texts.into_iter().filter_map(|(provider, text)| Some((provider, Key::new(&text).ok()?)));
    Ok(keys.collect())
}

/// Replaces the file by one with these keys, in one step.
fn write(path: &Path, keys: &BTreeMap<Provider, Key>) -> Result<(), KeysError> {
    let io = |error| KeysError::Io { path: path.to_owned(), error };
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let failed = |error: FileError| io(error.into());
    create_directory(directory, &Calls::default()).map_err(failed)?;
    if exposes(&fs::metadata(directory).map_err(io)?, 0o022) {
        return Err(KeysError::Open(directory.to_owned()));
    }
    let texts: BTreeMap<Provider, &str> =
        keys.iter().map(|(provider, key)| (*provider, key.reveal())).collect();
    let mut text = serde_json::to_vec_pretty(&texts).map_err(|error| io(error.into()))?;
    text.push(b'\n');
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Other processes may write theirs at the same time.
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    replace_file(path, &temporary, &text).map_err(failed)
}

fn exposes(metadata: &fs::Metadata, bits: u32) -> bool {
    metadata.permissions().mode() & bits != 0
}

#[cfg(test)]
mod tests;
