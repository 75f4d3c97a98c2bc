//! Negotiation of the protocol version.
//!
//! The client names the latest version that it speaks; the agent answers with that version if it speaks it too, and
//! otherwise with its own latest. A version is never just echoed: the answer is a promise to speak it.

use agent_client_protocol_schema::ProtocolVersion;

/// Every version this build speaks, the latest last.
pub const SUPPORTED: [ProtocolVersion; 1] = [LATEST];

/// The latest version this build speaks: what a client asks for in `initialize`.
pub const LATEST: ProtocolVersion = ProtocolVersion::V1;

/// An agent chose a version that this client does not speak. The connection is unusable and should be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the agent answered protocol version {answered}, which is not spoken here (latest: {LATEST})")]
pub struct UnsupportedVersionError {
    /// The version the agent answered.
    pub answered: ProtocolVersion,
}

/// Returns the version an agent answers to a client that asked for `requested`: the same if it is supported, else the
/// latest.
#[must_use]
pub fn negotiate(requested: ProtocolVersion) -> ProtocolVersion {
    if SUPPORTED.contains(&requested) { requested } else { LATEST }
}

/// Checks the version an agent answered.
///
/// # Errors
/// Returns [`UnsupportedVersionError`] when this client does not speak it; the client should then close the
/// connection and tell the user.
pub fn check_version(answered: ProtocolVersion) -> Result<(), UnsupportedVersionError> {
    if SUPPORTED.contains(&answered) { Ok(()) } else { Err(UnsupportedVersionError { answered }) }
}

#[cfg(test)]
mod tests;
