//! A child process that is given up when it takes too long.

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, ensure};

/// How often the end of a child is looked for.
const POLL: Duration = Duration::from_millis(1);

/// A child whose output is read here. It is killed after the limit, and on drop.
pub(crate) struct Watched {
    // Shared with the thread that kills it after the limit; whoever waits polls, so neither holds it for long.
    child: Arc<Mutex<Child>>,
    begun: Instant,
    limit: Duration,
    /// Dropped with the child, upon which the thread ends.
    _alive: SyncSender<()>,
}

/// Our ends of a child's pipes; `stdin` only if the command pipes it.
pub(crate) struct Pipes {
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl Watched {
    /// Starts the command, its stdout piped.
    pub(crate) fn start(command: &mut Command, limit: Duration) -> Result<(Self, Pipes)> {
        let begun = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("no pipe from the child")?;
        let pipes = Pipes { stdin: child.stdin.take(), stdout: BufReader::with_capacity(64 * 1024, stdout) };
        let child = Arc::new(Mutex::new(child));
        let (alive, dropped) = sync_channel(0);
        let watched = Arc::clone(&child);
        std::thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Fails only if the child has ended, which is all that is wanted.
                lock(&watched).kill().ok();
            }
        });
        Ok((Self { child, begun, limit, _alive: alive }, pipes))
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Says why the child's output ended too early.
    pub(crate) fn early_end(&self) -> Error {
        if self.begun.elapsed() >= self.limit {
            return anyhow!("given up after {} s", self.limit.as_secs());
        }
        match lock(&self.child).try_wait() {
            Ok(Some(status)) => anyhow!("ended early with {status}"),
            Ok(None) => anyhow!("closed its output early"),
            Err(error) => Error::new(error).context("cannot tell how it ended"),
        }
    }

    /// Waits for the child, which must end well and within the limit.
    pub(crate) fn end(self) -> Result<()> {
        loop {
            if let Some(status) = lock(&self.child).try_wait()? {
                ensure!(status.success(), "ended with {status}");
                return Ok(());
            }
            ensure!(self.begun.elapsed() < self.limit, "did not end within {} s", self.limit.as_secs());
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        // Both fail only if the child has ended, which is all that is wanted.
        child.kill().ok();
        child.wait().ok();
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
