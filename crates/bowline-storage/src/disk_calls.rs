//! A hook before every call that changes the disk, so that tests can make each call fail.
//!
//! A writer that claims to survive a failure of any call has to be tested with a failure of every call. In production
//! there is no injector, and the hook costs a test of a pointer.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The calls that change the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskCall {
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
    /// The bytes of all files of a file system are made durable.
    SyncFileSystem,
    /// Two names are exchanged.
    Exchange,
    /// A file is renamed.
    Rename,
    /// A name is removed.
    Remove,
    /// A directory's entries are made durable.
    SyncDirectory,
}

/// Decides whether a call may be made, and how many bytes a write may have.
pub trait DiskFaultInjector: Send + Sync {
    /// Called before every call. For [`DiskCall::Write`], it may allow fewer bytes than `bytes`; for other calls,
    /// `bytes` is 0.
    ///
    /// # Errors
    /// Returns the error that the call is to fail with.
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize>;
}

/// The hook that precedes every call that changes the disk.
#[derive(Clone, Default)]
pub struct DiskCalls {
    injector: Option<Arc<dyn DiskFaultInjector>>,
}

impl fmt::Debug for DiskCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.injector.is_some() { "Calls(gated)" } else { "Calls" })
    }
}

impl DiskCalls {
    /// Returns calls that consult an injector first.
    #[must_use]
    pub fn with_injector(gate: Arc<dyn DiskFaultInjector>) -> Self {
        Self { injector: Some(gate) }
    }

    /// Checks whether a call may be made.
    pub fn check(&self, call: DiskCall) -> io::Result<()> {
        self.injector.as_ref().map_or(Ok(()), |gate| gate.before_call(call, 0).map(|_| ()))
    }

    /// Returns how many bytes may be written.
    pub fn check_write(&self, bytes: usize) -> io::Result<usize> {
        self.injector.as_ref().map_or(Ok(bytes), |gate| {
            gate.before_call(DiskCall::Write, bytes).map(|allowed| allowed.clamp(1, bytes))
        })
    }
}
