//! Ids of new sessions.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use bowline_protocol::schema::v1::SessionId;

/// Returns an id that no other session has: 128 random bits.
#[must_use]
pub fn new_session_id() -> SessionId {
    let random = || RandomState::new().build_hasher().finish();
    SessionId::new(format!("{:016x}{:016x}", random(), random()))
}
