//! Signals that must not end the program.

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a write past the limit of file sizes (`ulimit -f`) an error of that write, instead of the end of the program in the
/// middle of it.
///
/// The handler stays for as long as the program runs, also after the runtime is gone. Programs that are started from here
/// get the default back, as they do for every signal with a handler.
pub(crate) fn survive_file_size_limit(runtime: &Runtime) -> anyhow::Result<()> {
    let _entered = runtime.enter();
    let handled = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
    handled.map(drop).context("cannot handle the signal SIGXFSZ")
}
