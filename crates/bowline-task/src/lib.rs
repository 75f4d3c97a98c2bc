//! Starting tasks without compiling tokio's task for each of them.
//!
//! tokio compiles about 5 KB of code for every type of future or closure that is started, most of it the same. Here all
//! of them have one type, because they are boxed. Starting a task allocates anyway.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::{JoinError, JoinHandle};

type BoxedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type BoxedResult = Box<dyn Any + Send>;
type BoxedClosure = Box<dyn FnOnce() -> BoxedResult + Send>;

/// Like [`tokio::spawn`], for a future without a result.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    spawn_boxed(Box::pin(future))
}

fn spawn_boxed(future: BoxedFuture) -> JoinHandle<()> {
    tokio::spawn(future)
}

/// Like [`tokio::task::spawn_blocking`].
pub fn spawn_blocking<T: Send + 'static>(operation: impl FnOnce() -> T + Send + 'static) -> BlockingTask<T> {
    let task = spawn_boxed_blocking(Box::new(move || Box::new(operation())));
    BlockingTask { task, result: PhantomData }
}

fn spawn_boxed_blocking(operation: BoxedClosure) -> JoinHandle<BoxedResult> {
    tokio::task::spawn_blocking(operation)
}

/// A closure on a thread for blocking work. Awaiting this returns its result; dropping it does not stop the closure.
pub struct BlockingTask<T> {
    // Invariant: returns a `T`.
    task: JoinHandle<BoxedResult>,
    result: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for BlockingTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockingTask").field(&self.task).finish()
    }
}

impl<T: 'static> Future for BlockingTask<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.task).poll(cx))?;
        match result.downcast() {
            Ok(result) => Poll::Ready(Ok(*result)),
            Err(_) => unreachable!("the closure returns a T"),
        }
    }
}

#[cfg(test)]
mod tests;
