//! Results, panics and aborts of boxed tasks.

use tokio::sync::oneshot;

use super::{spawn, spawn_blocking};

#[tokio::test]
async fn results_and_panics_reach_the_caller() {
    assert_eq!(spawn_blocking(|| "done".to_owned()).await.unwrap(), "done");
    let panicked = spawn_blocking(|| -> u32 { panic!("on purpose") }).await.unwrap_err();
    assert_eq!(panicked.into_panic().downcast_ref(), Some(&"on purpose"));
    let (sender, receiver) = oneshot::channel();
    spawn(async { sender.send(1).unwrap() }).await.unwrap();
    assert_eq!(receiver.await, Ok(1));
    let task = spawn(std::future::pending());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
}
