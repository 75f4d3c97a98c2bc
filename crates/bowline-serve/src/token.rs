//! Access tokens: `bow_ID_SECRET`. The store has a hash of the secret, never the secret itself.

use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

#[cfg(test)]
mod tests;

const PREFIX: &str = "bow_";
const MAX_NAME_BYTES: usize = 64;

/// What a principal may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See all sessions, change none.
    Observer,
    /// Open sessions, and use those of its own.
    User,
    /// See and use all sessions.
    Admin,
}

impl Role {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::User => "user",
            Self::Admin => "admin",
        }
    }

    /// Returns the role with a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Observer, Self::User, Self::Admin].into_iter().find(|role| role.name() == name)
    }
}

/// Who uses the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The id of its token.
    pub token: String,
}

impl Principal {
    /// Returns whether it may see a session of `owner`.
    #[must_use]
    pub fn may_see(&self, owner: &str) -> bool {
        self.role != Role::User || self.name == owner
    }

    /// Returns whether it may use a session of `owner`: prompt, answer, change.
    #[must_use]
    pub fn may_use(&self, owner: &str) -> bool {
        match self.role {
            Role::Observer => false,
            Role::User => self.name == owner,
            Role::Admin => true,
        }
    }
}

/// A token as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredToken {
    /// The public part of the token.
    pub id: String,
    /// The principal's name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The SHA-256 of the secret part.
    pub secret_hash: [u8; 32],
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// Why a token cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The name is unusable.
    #[error("a name has 1 to {MAX_NAME_BYTES} letters, digits, dots, hyphens or underscores")]
    Name,
    /// The system has no random numbers.
    #[error("the system's random numbers are not available")]
    Random,
}

impl StoredToken {
    /// Makes a token, and returns it with its text, which is not kept.
    ///
    /// # Errors
    /// Fails if the name is unusable.
    pub fn generate(
        name: &str,
        role: Role,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Result<(Self, String), TokenError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_allowed) {
            return Err(TokenError::Name);
        }
        let (id, secret) = (random_hex::<8>()?, random_hex::<32>()?);
        let text = format!("{PREFIX}{id}_{secret}");
        let secret_hash = hash(&secret);
        Ok((Self { id, name: name.to_owned(), role, secret_hash, created_at: now, expires_at }, text))
    }

    /// Returns the principal, if `secret` is the token's and it has not expired. The comparison takes the same time
    /// wherever the difference is.
    #[must_use]
    pub fn verify(&self, secret: &str, now: Timestamp) -> Option<Principal> {
        let is_right = bool::from(hash(secret).ct_eq(&self.secret_hash));
        self.principal(now).filter(|_| is_right)
    }

    /// Returns the principal, if the token has not expired.
    #[must_use]
    pub fn principal(&self, now: Timestamp) -> Option<Principal> {
        let is_valid = self.expires_at.is_none_or(|end| now < end);
        is_valid.then(|| Principal { name: self.name.clone(), role: self.role, token: self.id.clone() })
    }
}

/// Splits the text of a token into its id and its secret.
#[must_use]
pub fn parse_token(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(PREFIX)?.split_once('_')
}

/// Returns `N` random bytes as hexadecimal digits.
///
/// # Errors
/// Fails if the system has no random numbers.
pub fn random_hex<const N: usize>() -> Result<String, TokenError> {
    use std::fmt::Write as _;
    let mut bytes = [0u8; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::Random)?;
    Ok(bytes.iter().fold(String::with_capacity(2 * N), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").ok();
        text
    }))
}

/// Returns the SHA-256 of a secret.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    *ContentHash::digest(secret.as_bytes()).as_bytes()
}
