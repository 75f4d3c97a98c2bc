//! The API keys of model providers: from the environment, or stored in a private file.
//!
//! The program that starts the agent reads the environment and provides the values; stored keys are in a file that only
//! the user can read. A provided key takes precedence over a stored one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{FileError, create_directory, replace_file};

use crate::model::provider::Provider;

/// The largest key file, in bytes.
pub const MAX_KEY_FILE_BYTES: u64 = 64 << 10;
/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 8 << 10;

/// Pieces of a key of at least this length are redacted, in bytes.
const MIN_REDACTED_BYTES: usize = 8;

/// An API key. Only [`reveal`](Self::reveal) shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Returns a key, trimmed of blanks left by copying.
    ///
    /// # Errors
    /// Fails if the text cannot be a key.
    pub fn new(text: &str) -> Result<Self, KeyringError> {
        let text = text.trim();
        let is_valid = !text.is_empty()
            && text.len() <= MAX_KEY_BYTES
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_valid { Ok(Self(text.to_owned())) } else { Err(KeyringError::InvalidKey) }
    }

    /// Returns the key itself, for its provider.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Replaces the key, and pieces of its beginning and end, by `…`: servers quote keys in their errors. A key too
    /// short to be a secret, as users give to servers that need none, stays.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let (Some(first), Some(last)) = (
            self.0.get(..MIN_REDACTED_BYTES),
            self.0.len().checked_sub(MIN_REDACTED_BYTES).and_then(|start| self.0.get(start..)),
        ) else {
            return text.to_owned();
        };
        let (bytes, key) = (text.as_bytes(), self.0.as_bytes());
        let common_prefix = |start: usize| bytes[start..].iter().zip(key).take_while(|(a, b)| a == b).count();
        let common_suffix =
            |end: usize| bytes[..end].iter().rev().zip(key.iter().rev()).take_while(|(a, b)| a == b).count();
        let prefix_ranges = text.match_indices(first).map(|(start, _)| start..start + common_prefix(start));
        let suffix_ends = text.match_indices(last).map(|(start, _)| start + MIN_REDACTED_BYTES);
        let suffix_ranges = suffix_ends.map(|end| end - common_suffix(end)..end);
        let mut ranges: Vec<_> = prefix_ranges.chain(suffix_ranges).collect();
        ranges.sort_by_key(|range| range.start);
        let mut out = String::with_capacity(text.len());
        let mut position = 0;
        for range in ranges {
            if range.start >= position {
                out.push_str(&text[position..range.start]);
                out.push('…');
            }
            position = position.max(range.end);
        }
        out.push_str(&text[position..]);
        out
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The source of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    /// The program that started the agent provided it.
    Provided,
    /// The key file.
    Stored,
}

/// An error of the keyring.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The text cannot be a key.
    #[error("invalid API key: it must be printable, without blanks, and not empty")]
    InvalidKey,
    /// The value of an environment variable cannot be a key.
    #[error("{0} is set, but holds no key: a key is printable and has no blanks; set it again or unset it")]
    InvalidVariable(&'static str),
    /// No key file is configured.
    #[error("there is no place to store keys in: set the variable {0} instead")]
    NoKeyFile(&'static str),
    /// Other users can read the file.
    #[error("{path} can be read by others, so it is not used: run `chmod 600 {path}` and replace the keys in it", path = .0.display())]
    ReadableByOthers(PathBuf),
    /// Other users can write to the directory.
    #[error("{path} can be changed by others, so no key is stored there: run `chmod 700 {path}`", path = .0.display())]
    WritableByOthers(PathBuf),
    /// The file is not a key file.
    #[error("{path} is no file of keys: {why}; repair or remove it", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// An input or output error.
    #[error("cannot use {path}: {error}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The API keys of an agent.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    provided: BTreeMap<Provider, ApiKey>,
    // The providers whose provided value cannot be a key.
    invalid: BTreeSet<Provider>,
    file: Option<PathBuf>,
}

impl Keyring {
    /// Returns a keyring with the keys stored in this file, which need not exist.
    #[must_use]
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file, ..Self::default() }
    }

    /// Adds a provided key. An empty one is ignored; [`problem`](Self::problem) reports an invalid one.
    #[must_use]
    pub fn with_key(mut self, provider: Provider, key: &str) -> Self {
        match ApiKey::new(key) {
            Ok(key) => drop(self.provided.insert(provider, key)),
            Err(_) if key.trim().is_empty() => (),
            Err(_) => drop(self.invalid.insert(provider)),
        }
        self
    }

    /// Returns the key of a provider, and its source.
    ///
    /// # Errors
    /// Fails if the provided value is invalid, or if none is provided and the file cannot be used.
    pub fn key(&self, provider: Provider) -> Result<Option<(ApiKey, KeySource)>, KeyringError> {
        if let Some(key) = self.provided.get(&provider) {
            return Ok(Some((key.clone(), KeySource::Provided)));
        }
        if self.invalid.contains(&provider) {
            return Err(KeyringError::InvalidVariable(provider.key_variable()));
        }
        Ok(self.read_stored_keys()?.remove(&provider).map(|key| (key, KeySource::Stored)))
    }

    /// Returns the providers with a key, and each key's source. Unusable keys are left out here;
    /// [`problem`](Self::problem) reports them.
    #[must_use]
    pub fn providers(&self) -> BTreeMap<Provider, KeySource> {
        let stored = self
            .read_stored_keys()
            .unwrap_or_default()
            .into_keys()
            .map(|provider| (provider, KeySource::Stored));
        stored.chain(self.provided.keys().map(|provider| (*provider, KeySource::Provided))).collect()
    }

    /// Returns why keys may be missing: a file or a variable that cannot be used.
    #[must_use]
    pub fn problem(&self) -> Option<KeyringError> {
        let variable =
            self.invalid.first().map(|provider| KeyringError::InvalidVariable(provider.key_variable()));
        self.read_stored_keys().err().or(variable)
    }

    /// Stores a key.
    ///
    /// # Errors
    /// Fails if the key is invalid, if no key file is configured, or if the file cannot be used or kept private.
    pub fn store_key(&self, provider: Provider, key: &str) -> Result<(), KeyringError> {
        let key = ApiKey::new(key)?;
        let path = self.file.as_deref().ok_or(KeyringError::NoKeyFile(provider.key_variable()))?;
        let mut keys = self.read_stored_keys()?;
        keys.insert(provider, key);
        write_key_file(path, &keys)
    }

    /// Removes a stored key; returns whether there was one.
    ///
    /// # Errors
    /// Fails if the file cannot be used.
    pub fn remove_stored_key(&self, provider: Provider) -> Result<bool, KeyringError> {
        let Some(path) = self.file.as_deref() else { return Ok(false) };
        let mut keys = self.read_stored_keys()?;
        let existed = keys.remove(&provider).is_some();
        if existed {
            write_key_file(path, &keys)?;
        }
        Ok(existed)
    }

    fn read_stored_keys(&self) -> Result<BTreeMap<Provider, ApiKey>, KeyringError> {
        self.file.as_deref().map_or_else(|| Ok(BTreeMap::new()), read_key_file)
    }
}

fn read_key_file(path: &Path) -> Result<BTreeMap<Provider, ApiKey>, KeyringError> {
    let unreadable = |why: String| KeyringError::Unreadable { path: path.to_owned(), why };
    let io = |error| KeyringError::Io { path: path.to_owned(), error };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(io(error)),
    };
    if !metadata.is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    if has_mode_bits(&metadata, 0o077) {
        return Err(KeyringError::ReadableByOthers(path.to_owned()));
    }
    if metadata.len() > MAX_KEY_FILE_BYTES {
        return Err(unreadable(format!("it has more than {MAX_KEY_FILE_BYTES} bytes")));
    }
    let text = fs::read(path).map_err(io)?;
    // The error's text could quote a key, so only the line number is reported.
    let texts: BTreeMap<Provider, String> = serde_json::from_slice(&text)
        .map_err(|error| unreadable(format!("it is not as expected at line {}", error.line())))?;
    let keys = texts.into_iter().filter_map(|(provider, text)| Some((provider, ApiKey::new(&text).ok()?)));
    Ok(keys.collect())
}

/// Replaces the file by one with these keys, atomically.
fn write_key_file(path: &Path, keys: &BTreeMap<Provider, ApiKey>) -> Result<(), KeyringError> {
    let io = |error| KeyringError::Io { path: path.to_owned(), error };
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let file_error = |error: FileError| io(error.into());
    create_directory(directory, &DiskCalls::default()).map_err(file_error)?;
    if has_mode_bits(&fs::metadata(directory).map_err(io)?, 0o022) {
        return Err(KeyringError::WritableByOthers(directory.to_owned()));
    }
    let texts: BTreeMap<Provider, &str> =
        keys.iter().map(|(provider, key)| (*provider, key.reveal())).collect();
    let mut text = serde_json::to_vec_pretty(&texts).map_err(|error| io(error.into()))?;
    text.push(b'\n');
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Other processes may write at the same time.
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    replace_file(path, &temporary, &text).map_err(file_error)
}

fn has_mode_bits(metadata: &fs::Metadata, bits: u32) -> bool {
    metadata.permissions().mode() & bits != 0
}

#[cfg(test)]
mod tests;
