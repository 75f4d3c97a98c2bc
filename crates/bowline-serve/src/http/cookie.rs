//! The cookies of browsers: who they belong to and until when, signed with a key of the server.
//!
//! Nothing is remembered for a cookie, so it survives a restart of the server if the key does.

use std::io::Read as _;
use std::path::Path;

use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{FileError, OpenMode, create_directory, open_private, replace_file, with_suffix};
use bowline_text::time::Timestamp;
use ring::hmac;

use crate::token::{TokenError, random_hex};

/// The file of the key, in the server's directory.
const KEY_FILE: &str = "cookie.key";
/// The number of hexadecimal digits of a key.
const KEY_DIGITS: usize = 64;

/// The key that signs cookies.
#[derive(Clone)]
pub struct CookieKey(hmac::Key);

impl std::fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieKey")
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum CookieKeyError {
    /// Its file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system has no random numbers.
    #[error(transparent)]
    Random(#[from] TokenError),
}

impl CookieKey {
    /// Returns a new key. Its cookies end with the process.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn generate() -> Result<Self, TokenError> {
        Ok(Self::from_text(&random_hex::<32>()?))
    }

    /// Returns the key of a server's directory, made by the first call.
    ///
    /// # Errors
    /// Fails if its file cannot be read or written.
    pub fn load(directory: &Path) -> Result<Self, CookieKeyError> {
        let path = directory.join(KEY_FILE);
        let calls = DiskCalls::default();
        if path.exists() {
            let mut text = String::new();
            let mut file = open_private(&path, OpenMode::Read, &calls)?;
            // A file that is not a key is replaced: its cookies were not valid either.
            if file.read_to_string(&mut text).is_ok() && text.len() == KEY_DIGITS {
                return Ok(Self::from_text(&text));
            }
        }
        create_directory(directory, &calls)?;
        let text = random_hex::<32>()?;
        replace_file(&path, &with_suffix(&path, ".new"), text.as_bytes())?;
        Ok(Self::from_text(&text))
    }

    fn from_text(text: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()))
    }

    /// Returns the value of a cookie for a token's id, which has no colon.
    pub(super) fn sign(&self, token: &str, expires_at: Timestamp) -> String {
        let content = format!("{token}:{}", expires_at.0);
        let signature = hmac::sign(&self.0, content.as_bytes());
        let digits: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{content}:{digits}")
    }

    /// Returns the id of the token in a cookie, if this key signed it and it has not expired.
    pub(super) fn verify<'c>(&self, cookie: &'c str, now: Timestamp) -> Option<&'c str> {
        let (content, digits) = cookie.rsplit_once(':')?;
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let signature: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>()?;
        hmac::verify(&self.0, content.as_bytes(), &signature).ok()?;
        let (token, expires_at) = content.rsplit_once(':')?;
        (now.0 < expires_at.parse().ok()?).then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unchanged_cookie_of_this_key_counts_until_it_expires() {
        let (key, other) = (CookieKey::generate().unwrap(), CookieKey::generate().unwrap());
        let cookie = key.sign("me", Timestamp(100));
        assert_eq!(key.verify(&cookie, Timestamp(99)), Some("me"));
        assert_eq!(key.verify(&cookie, Timestamp(100)), None);
        assert_eq!(other.verify(&cookie, Timestamp(99)), None);
        let later = cookie.replace(":100:", ":101:");
        let admin = cookie.replacen("me", "admin", 1);
        for wrong in [&*later, &*admin, "", ":", "me:100", "me:100:", "me:100:é", "me:100:0"] {
            assert_eq!(key.verify(wrong, Timestamp(0)), None, "{wrong}");
        }
    }

    #[test]
    fn a_directory_keeps_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let cookie = CookieKey::load(directory.path()).unwrap().sign("me", Timestamp(1));
        let again = CookieKey::load(directory.path()).unwrap();
        assert_eq!(again.verify(&cookie, Timestamp(0)), Some("me"));
        // A damaged key is replaced.
        std::fs::write(directory.path().join(KEY_FILE), "").unwrap();
        let new = CookieKey::load(directory.path()).unwrap();
        assert_eq!(new.verify(&cookie, Timestamp(0)), None);
    }
}
