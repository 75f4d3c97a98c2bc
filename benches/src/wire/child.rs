//! A child process with a time limit.

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, ensure};

/// The interval at which a child is polled for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A child whose output is read by this process. It is killed at the time limit, and on drop.
pub(crate) struct TimedChild {
    // Shared with the thread that kills the child at the limit. Waiting polls, so neither holds the lock for long.
    child: Arc<Mutex<Child>>,
    begun: Instant,
    limit: Duration,
    /// Dropped with the child, which ends the thread.
    _alive: SyncSender<()>,
}

/// Our ends of a child's pipes; `stdin` only if the command pipes it.
pub(crate) struct ChildPipes {
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl TimedChild {
    /// Starts the command with its stdout piped.
    pub(crate) fn start(command: &mut Command, limit: Duration) -> Result<(Self, ChildPipes)> {
        let begun = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("no pipe from the child")?;
        let pipes =
            ChildPipes { stdin: child.stdin.take(), stdout: BufReader::with_capacity(64 * 1024, stdout) };
        let child = Arc::new(Mutex::new(child));
        let (alive, dropped) = sync_channel(0);
        let watched = Arc::clone(&child);
        std::thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Fails only if the child has already exited.
                lock(&watched).kill().ok();
            }
        });
        Ok((Self { child, begun, limit, _alive: alive }, pipes))
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Returns an error that says why the child's output ended early.
    pub(crate) fn early_end_error(&self) -> Error {
        if self.begun.elapsed() >= self.limit {
            return anyhow!("given up after {} s", self.limit.as_secs());
        }
        match lock(&self.child).try_wait() {
            Ok(Some(status)) => anyhow!("ended early with {status}"),
            Ok(None) => anyhow!("closed its output early"),
            Err(error) => Error::new(error).context("cannot tell how it ended"),
        }
    }

    /// Waits for the child, which must succeed within the limit.
    pub(crate) fn end(self) -> Result<()> {
        loop {
            if let Some(status) = lock(&self.child).try_wait()? {
                ensure!(status.success(), "ended with {status}");
                return Ok(());
            }
            ensure!(self.begun.elapsed() < self.limit, "did not end within {} s", self.limit.as_secs());
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for TimedChild {
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        // Both calls fail only if the child has already exited.
        child.kill().ok();
        child.wait().ok();
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
