//! The signals that end the program, and one that must not.

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

/// Waits for a termination signal and returns its number.
pub(crate) async fn wait_for_signal() -> u8 {
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut signal) => drop(signal.recv().await),
            // If signals cannot be awaited, their default action ends the program.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::hangup()) => 1,
        () = wait(SignalKind::interrupt()) => 2,
        () = wait(SignalKind::terminate()) => 15,
    }
}
