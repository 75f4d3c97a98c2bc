//! The gate before every call that changes the disk, so that each can be made to fail.
//!
//! A writer that claims to survive a failure at any call has to be tried with a failure at every call. In use the gate
//! is open and costs a test of a pointer.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The calls that change the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// A directory is created.
    CreateDirectory,
    /// A temporary file is created.
    CreateTemp,
    /// A file is opened to be written in place.
    OpenInPlace,
    /// Bytes are written.
    Write,
    /// A file is cut to its length.
    Truncate,
    /// The mode is set.
    SetMode,
    /// The owner is set.
    SetOwner,
    /// An extended attribute is set.
    SetAttribute,
    /// A file's bytes are made durable.
    Sync,
    /// Two names change places.
    Exchange,
    /// A name is given to a file.
    Rename,
    /// A name is removed.
    Remove,
    /// A directory's names are made durable.
    SyncDirectory,
}

/// Says whether a call may be made, and how many of a write's bytes at most.
pub trait Gate: Send + Sync {
    /// Is asked before every call. For [`Call::Write`] it may allow fewer bytes than `bytes`, for others it is 0.
    ///
    /// # Errors
    /// Returns the error that the call is to fail with.
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize>;
}

/// What every call that changes the disk goes through.
#[derive(Clone, Default)]
pub struct Calls {
    gate: Option<Arc<dyn Gate>>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.gate.is_some() { "Calls(gated)" } else { "Calls" })
    }
}

impl Calls {
    /// Returns calls that ask a gate first.
    #[must_use]
    pub fn gated(gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate) }
    }

    /// Asks whether a call may be made.
    pub(crate) fn pass(&self, call: Call) -> io::Result<()> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate.pass(call, 0).map(|_| ()))
    }

    /// Asks how many bytes may be written.
    pub(crate) fn pass_bytes(&self, bytes: usize) -> io::Result<usize> {
        self.gate
            .as_ref()
            .map_or(Ok(bytes), |gate| gate.pass(Call::Write, bytes).map(|allowed| allowed.clamp(1, bytes)))
    }
}
