//! Contents of secret files, encrypted: neither the database nor a copy of it holds them in plain text.
//!
//! The key is 32 random bytes in a file beside the database that only its owner can read. It is created when the first
//! secret is stored. A process that can read both files can read the secrets, as can one that can read the secret files
//! themselves.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bowline_policy::paths::{Access, LexicalPath, find_protection};
use bowline_text::hash::ContentHash;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::JournalError;
use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{FileError, OpenMode, open_private, sync_directory};

const KEY_BYTES: usize = 32;
/// How much longer an encrypted content is than the content: the nonce and the authentication tag.
pub(super) const OVERHEAD_BYTES: usize = NONCE_LEN + 16;

/// The key of a journal.
#[derive(Debug)]
pub(super) struct JournalKey {
    key: LessSafeKey,
}

/// Returns whether a file's contents are encrypted: those of read-protected files are.
pub(crate) fn is_secret(path: &str) -> bool {
    LexicalPath::parse(path).is_ok_and(|path| find_protection(&path, Access::Read).is_some())
}

impl JournalKey {
    /// Returns the key in a directory, if there is one.
    pub(super) fn find(directory: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        File::open(key_path(directory)).ok()?.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
        Self::new(&bytes)
    }

    /// Returns the key in a directory, or creates one. The caller holds the journal's lock.
    pub(super) fn find_or_create(directory: &Path) -> Result<Self, JournalError> {
        if let Some(seal) = Self::find(directory) {
            return Ok(seal);
        }
        let path = key_path(directory);
        let mut bytes = [0; KEY_BYTES];
        fill_random(&mut bytes).map_err(FileError::io_error("make a key for", &path))?;
        let mut file = open_private(&path, OpenMode::Overwrite, &DiskCalls::default())?;
        // An incomplete key has encrypted nothing: a key is durable before it is used.
        let written = file.set_len(0).and_then(|()| file.write_all(&bytes)).and_then(|()| file.sync_all());
        written.map_err(FileError::io_error("write", &path))?;
        sync_directory(directory, &DiskCalls::default())?;
        let unusable = || std::io::Error::other("the key cannot be used");
        Self::new(&bytes).ok_or_else(|| FileError::io_error("use", &path)(unusable()).into())
    }

    fn new(bytes: &[u8]) -> Option<Self> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).ok()?;
        Some(Self { key: LessSafeKey::new(key) })
    }

    pub(super) fn encrypt(&self, hash: &ContentHash, bytes: &[u8]) -> Result<Vec<u8>, JournalError> {
        let failed = |_| JournalError::EncryptionFailed;
        let mut unique = [0; NONCE_LEN];
        fill_random(&mut unique).map_err(|_| JournalError::EncryptionFailed)?;
        let mut sealed = Vec::with_capacity(bytes.len() + OVERHEAD_BYTES);
        sealed.extend_from_slice(&unique);
        let mut text = bytes.to_vec();
        let nonce = Nonce::assume_unique_for_key(unique);
        self.key.seal_in_place_append_tag(nonce, Aad::from(hash.as_bytes()), &mut text).map_err(failed)?;
        sealed.append(&mut text);
        Ok(sealed)
    }

    /// Decrypts a content; returns `None` if it is damaged.
    pub(super) fn decrypt(&self, hash: &ContentHash, sealed: &[u8]) -> Option<Vec<u8>> {
        let (unique, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(unique).ok()?;
        let mut text = text.to_vec();
        let length = self.key.open_in_place(nonce, Aad::from(hash.as_bytes()), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

fn key_path(directory: &Path) -> std::path::PathBuf {
    directory.join("secrets.key")
}

fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::io::retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()))?;
    }
    Ok(())
}
