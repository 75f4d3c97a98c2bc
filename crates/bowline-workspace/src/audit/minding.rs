//! Giving back a lock that was kept for the next read, when there is none.
//!
//! It takes a thread: whoever read last may have nothing more to do, or do something else for long.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use super::appending::Writer;
use super::hold;

/// A lock is kept at least so long after a read, and less than twice as long.
const IDLE: Duration = Duration::from_millis(1);

/// Who gives back the lock of one log. Its thread is started with the first lock that is kept, and ends with the log.
#[derive(Debug, Default)]
pub(super) struct Minder {
    // None inside if no thread could be had.
    calls: OnceLock<Option<SyncSender<()>>>,
}

impl Minder {
    /// Calls for the thread. Says whether there is one.
    pub(super) fn mind(&self, writer: &Arc<Mutex<Writer>>) -> bool {
        let start = || {
            let (calls, called) = sync_channel(1);
            let writer = Arc::downgrade(writer);
            let thread = thread::Builder::new().name("audit-lock".to_owned());
            thread.spawn(move || stand_by(&writer, &called)).ok().map(|_| calls)
        };
        // A call that waits already is as good as another.
        self.calls.get_or_init(start).as_ref().is_some_and(|calls| calls.try_send(()).is_ok())
    }
}

fn stand_by(writer: &Weak<Mutex<Writer>>, called: &Receiver<()>) {
    while called.recv().is_ok() {
        loop {
            thread::sleep(IDLE);
            let Some(writer) = writer.upgrade() else { return };
            if hold(&writer).let_go_if_idle() {
                break;
            }
        }
    }
}
