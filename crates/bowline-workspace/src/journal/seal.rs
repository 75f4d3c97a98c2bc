//! Contents of secret files, encrypted: neither the database nor a copy of it holds them in plain text.
//!
//! The key is 32 random bytes in a file of its own beside the database, which only its owner can read. It is made when the
//! first secret has to be kept. Who can read both files can read the secrets; so can who can read the secret files.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bowline_state::changes::ContentHash;
use bowline_state::paths::{Access, LexicalPath, protected};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::JournalError;
use crate::calls::Calls;
use crate::storage::{FileError, OpenMode, open_private, sync_directory};

const KEY_BYTES: usize = 32;
/// A sealed content is so much longer than the content: what makes it unique, and what proves it.
pub(super) const OVERHEAD: usize = NONCE_LEN + 16;

/// The key of a journal.
#[derive(Debug)]
pub(super) struct Seal {
    key: LessSafeKey,
}

/// Says whether a file's contents are sealed: what is protected from being read.
pub(crate) fn is_secret(path: &str) -> bool {
    LexicalPath::parse(path).is_ok_and(|path| protected(&path, Access::Read).is_some())
}

impl Seal {
    /// Returns the key that lies in a directory, if there is one.
    pub(super) fn find(directory: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        File::open(file(directory)).ok()?.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
        Self::new(&bytes)
    }

    /// Returns the key that lies in a directory, or makes one. The caller holds the journal's lock.
    pub(super) fn find_or_make(directory: &Path) -> Result<Self, JournalError> {
        if let Some(seal) = Self::find(directory) {
            return Ok(seal);
        }
        let path = file(directory);
        let mut bytes = [0; KEY_BYTES];
        random(&mut bytes).map_err(FileError::of("make a key for", &path))?;
        let mut file = open_private(&path, OpenMode::Overwrite, &Calls::default())?;
        // Nothing was sealed with a key that is not whole: it is on the disk before it is used.
        let written = file.set_len(0).and_then(|()| file.write_all(&bytes)).and_then(|()| file.sync_all());
        written.map_err(FileError::of("write", &path))?;
        sync_directory(directory, &Calls::default())?;
        let unusable = || std::io::Error::other("the key cannot be used");
        Self::new(&bytes).ok_or_else(|| FileError::of("use", &path)(unusable()).into())
    }

    fn new(bytes: &[u8]) -> Option<Self> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).ok()?;
        Some(Self { key: LessSafeKey::new(key) })
    }

    /// Encrypts a content.
    pub(super) fn seal(&self, hash: &ContentHash, bytes: &[u8]) -> Result<Vec<u8>, JournalError> {
        let failed = |_| JournalError::Unsealable;
        let mut unique = [0; NONCE_LEN];
        random(&mut unique).map_err(|_| JournalError::Unsealable)?;
        let mut sealed = Vec::with_capacity(bytes.len() + OVERHEAD);
        sealed.extend_from_slice(&unique);
        let mut text = bytes.to_vec();
        let nonce = Nonce::assume_unique_for_key(unique);
        self.key.seal_in_place_append_tag(nonce, Aad::from(hash.as_bytes()), &mut text).map_err(failed)?;
        sealed.append(&mut text);
        Ok(sealed)
    }

    /// Decrypts what was encrypted; none if it is not what it was.
    pub(super) fn unseal(&self, hash: &ContentHash, sealed: &[u8]) -> Option<Vec<u8>> {
        let (unique, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(unique).ok()?;
        let mut text = text.to_vec();
        let length = self.key.open_in_place(nonce, Aad::from(hash.as_bytes()), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

fn file(directory: &Path) -> std::path::PathBuf {
    directory.join("secrets.key")
}

fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::io::retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()))?;
    }
    Ok(())
}
