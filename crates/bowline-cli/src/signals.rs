//! Signals that must not end the program.

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a write past the file size limit (`ulimit -f`) fail with an error, instead of killing the program in the
/// middle of it.
///
/// The handler stays for the lifetime of the program, even after the runtime is gone. Child processes get the default
/// disposition, as for every signal with a handler.
pub(crate) fn survive_file_size_limit(runtime: &Runtime) -> anyhow::Result<()> {
    let _guard = runtime.enter();
    let result = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
    result.map(drop).context("cannot handle the signal SIGXFSZ")
}
