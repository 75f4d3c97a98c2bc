//! A runtime on a thread of its own, for servers that answer while a test blocks its own thread.

use std::future::Future;
use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The runtime. Dropping it ends everything that it runs, without waiting for it.
#[derive(Debug)]
pub struct BackgroundRuntime {
    handle: Handle,
    // Its thread ends once this is dropped.
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl BackgroundRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the system denies it a thread or a handle.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            // The error says that the sender is gone, as it should be.
            runtime.block_on(stopped).ok();
        };
        let thread = thread::Builder::new().name("background-runtime".to_owned()).spawn(run)?;
        Ok(Self { handle, stop, thread })
    }

    /// Runs a task.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(task)
    }

    /// Ends everything that it runs, and waits for that.
    pub fn shut_down(self) {
        drop(self.stop);
        // A thread that panicked has ended as well.
        self.thread.join().ok();
    }
}
