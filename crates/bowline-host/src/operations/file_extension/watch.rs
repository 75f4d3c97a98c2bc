//! Serves `_bowline/fs/watch` and `unwatch`, and sends `changed`.
//!
//! One task owns all watches of a session. It starts with the first watch and ends with the session. When something
//! changes, it waits for [`COALESCE_WINDOW`] and then reports everything at once. It reports in order and one
//! notification at a time: if the agent does not read, changes pile up in the kernel's bounded queue, and the agent
//! learns that some were left out.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bowline_access::approvals::BoxFuture;
use bowline_protocol::file_extension::operations::WatchOperation;
use bowline_protocol::file_extension::{
    FileError, FilesChangedNotification, UnwatchFilesRequest, UnwatchFilesResponse, WatchFilesRequest,
    WatchFilesResponse, WatchId,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::SessionId;
use bowline_wire::ClientContext;
use bowline_workspace::workspace::{
    FileWatches, WatchContext, WatchOptions, WatchReport, WatchSignal, WatchTarget,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::{LIMITS, operation_context};
use crate::operations::browse::{can_read, run_as_read};
use crate::operations::{OperationContext, run_blocking};
use crate::session::SessionInner;

/// How long changes are gathered before they are reported.
const COALESCE_WINDOW: Duration = Duration::from_millis(100);

/// How many requests wait for the task; further ones wait to be queued.
const MAX_QUEUED_REQUESTS: usize = 16;

/// Sends a notification to the agent. Returns whether the agent is still there.
pub type FilesChangedSender = Arc<dyn Fn(FilesChangedNotification) -> BoxFuture<'static, bool> + Send + Sync>;

/// Serves `_bowline/fs/watch`.
pub(crate) async fn watch(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: WatchFilesRequest,
    cx: ClientContext,
) -> Result<WatchFilesResponse, FileError> {
    let operation = request.into_operation()?;
    let context = operation_context(&session, agent, &[operation.path.as_str()], &cx);
    let handle = cx.agent().clone();
    let sender: FilesChangedSender = Arc::new(move |notification| {
        let handle = handle.clone();
        Box::pin(async move { handle.notify_files_changed(&notification).await.is_ok() })
    });
    start_watch(session, context, operation, (sender, Box::pin(async move { cx.answered().await }))).await
}

/// Starts a watch, authorized and recorded. Its changes are sent after the request is answered; those of all watches of
/// the session go to the sender of the first one.
pub(crate) async fn start_watch(
    session: Arc<SessionInner>,
    context: OperationContext,
    operation: WatchOperation,
    (sender, answered): (FilesChangedSender, BoxFuture<'static, ()>),
) -> Result<WatchFilesResponse, FileError> {
    let path = operation.path.as_str().to_owned();
    let title = format!("watch {path}");
    let watched = run_as_read(session.clone(), context, path, title, move |files, admitted, _| {
        WatchTarget::new(files, admitted, &operation)
    });
    let (target, approval) = watched.await?;
    let requests = session.watches.start(&session, sender)?;
    let was_asked = approval.is_bound_to_operation();
    let add = |reply| WatchRequest::Add { target, was_asked, answered, reply };
    let id = send_request(&requests, add).await??;
    Ok(WatchFilesResponse::new(id))
}

/// Serves `_bowline/fs/unwatch`.
pub(crate) async fn unwatch(
    session: Arc<SessionInner>,
    request: UnwatchFilesRequest,
) -> Result<UnwatchFilesResponse, FileError> {
    let watch_id = request.watch_id;
    let Some(requests) = session.watches.requests() else {
        return Err(FileError::UnknownWatch { watch_id });
    };
    send_request(&requests, |reply| WatchRequest::Remove { watch_id, reply }).await??;
    Ok(UnwatchFilesResponse::default())
}

/// Sends a request to the task, and returns its answer. The task ends only with the session.
async fn send_request<T>(
    requests: &mpsc::Sender<WatchRequest>,
    request: impl FnOnce(oneshot::Sender<T>) -> WatchRequest,
) -> Result<T, FileError> {
    let (reply, answer) = oneshot::channel();
    requests.send(request(reply)).await.map_err(|_| RpcError::Cancelled)?;
    Ok(answer.await.map_err(|_| RpcError::Cancelled)?)
}

/// The handle of a session's watch task.
#[derive(Debug, Default)]
pub(crate) struct SessionWatches {
    // `None` until the first watch.
    task: Mutex<Option<WatchTaskHandle>>,
}

#[derive(Debug)]
struct WatchTaskHandle {
    requests: mpsc::Sender<WatchRequest>,
    task: JoinHandle<()>,
}

enum WatchRequest {
    Add {
        target: WatchTarget,
        was_asked: bool,
        answered: BoxFuture<'static, ()>,
        reply: oneshot::Sender<Result<WatchId, FileError>>,
    },
    Remove {
        watch_id: WatchId,
        reply: oneshot::Sender<Result<(), FileError>>,
    },
}

impl SessionWatches {
    /// Starts the task unless it is running, and returns its queue.
    fn start(
        &self,
        session: &Arc<SessionInner>,
        sender: FilesChangedSender,
    ) -> Result<mpsc::Sender<WatchRequest>, FileError> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*task {
            return Ok(running.requests.clone());
        }
        let watches = FileWatches::new(&session.files, WatchOptions::with_limits(&LIMITS))?;
        let signal = watches.signal()?;
        let (requests, received) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let watch_task =
            WatchTask { session: Arc::downgrade(session), session_id: session.id.clone(), sender };
        let handle = bowline_task::spawn(watch_task.run(watches, signal, received, session.ended()));
        *task = Some(WatchTaskHandle { requests: requests.clone(), task: handle });
        Ok(requests)
    }

    fn requests(&self) -> Option<mpsc::Sender<WatchRequest>> {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.as_ref().map(|running| running.requests.clone())
    }

    /// Waits until the task has ended, after the session has.
    pub(crate) async fn join(&self) {
        let running = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            // If the task failed, it has ended all the same.
            running.task.await.ok();
        }
    }
}

/// The task that watches files for a session.
struct WatchTask {
    // Weak, so that the task does not keep the session from ending.
    session: Weak<SessionInner>,
    session_id: SessionId,
    sender: FilesChangedSender,
}

impl WatchTask {
    /// Serves requests and reports changes until the session has ended, or the agent is gone.
    async fn run(
        self,
        mut watches: FileWatches,
        mut signal: WatchSignal,
        mut requests: mpsc::Receiver<WatchRequest>,
        ended: impl Future<Output = ()> + Send,
    ) {
        let mut ended = pin!(ended);
        // When to report changes, if there may be some.
        let mut due: Option<Instant> = None;
        loop {
            tokio::select! {
                biased;
                () = &mut ended => return,
                Some(request) = requests.recv() => {
                    let Ok((returned, unanswered)) =
                        run_blocking(move || handle_request(watches, request)).await
                    else {
                        return;
                    };
                    watches = returned;
                    due.get_or_insert_with(|| Instant::now() + COALESCE_WINDOW);
                    // The answer names the watch, so it leaves before the notifications.
                    if let Some(answered) = unanswered
                        && run_until(ended.as_mut(), answered).await.is_none()
                    {
                        return;
                    }
                }
                () = wait_until(due), if due.is_some() => {
                    due = None;
                    let session = self.session.clone();
                    let Ok((returned, reports)) = run_blocking(move || collect(watches, &session)).await
                    else {
                        return;
                    };
                    watches = returned;
                    for report in reports {
                        if run_until(ended.as_mut(), self.send(report)).await != Some(true) {
                            return;
                        }
                    }
                }
                () = signal.wait(), if due.is_none() => due = Some(Instant::now() + COALESCE_WINDOW),
            }
        }
    }

    /// Sends a notification. Returns whether the agent is still there.
    async fn send(&self, report: WatchReport) -> bool {
        let WatchReport { watch_id, changes, overflow } = report;
        let notification = FilesChangedNotification::new(self.session_id.clone(), watch_id, changes);
        (self.sender)(notification.overflow(overflow)).await
    }
}

async fn wait_until(due: Option<Instant>) {
    if let Some(due) = due {
        sleep_until(due).await;
    }
}

/// Runs a future, unless the session ends first.
async fn run_until<T>(
    ended: Pin<&mut (impl Future<Output = ()> + Send)>,
    future: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        () = ended => None,
        value = future => Some(value),
    }
}

/// Adds or removes a watch. For a new watch, returns when its request is answered. Blocks on the disk.
fn handle_request(
    mut watches: FileWatches,
    request: WatchRequest,
) -> (FileWatches, Option<BoxFuture<'static, ()>>) {
    match request {
        WatchRequest::Add { target, was_asked, answered, reply } => {
            let added = watches.add(target, was_asked);
            let id = added.as_ref().ok().cloned();
            match (reply.send(added), id) {
                (Ok(()), Some(_)) => return (watches, Some(answered)),
                (Ok(()), None) => {}
                // The agent is not told of the watch any more, so it cannot end it.
                (Err(_), id) => id.iter().for_each(|id| drop(watches.remove(id))),
            }
        }
        WatchRequest::Remove { watch_id, reply } => drop(reply.send(watches.remove(&watch_id))),
    }
    (watches, None)
}

/// Returns what changed and the session may know of. Blocks on the disk.
fn collect(mut watches: FileWatches, session: &Weak<SessionInner>) -> (FileWatches, Vec<WatchReport>) {
    let Some(session) = session.upgrade() else { return (watches, Vec::new()) };
    let holder = session.holder(session.turn_status());
    let context = WatchContext {
        can_read: &|path, was_asked| can_read(&session, &holder, path, was_asked),
        is_command_running: &|| session.unscanned_commands.load(Ordering::Relaxed) > 0,
    };
    let reports = watches.collect(&context);
    (watches, reports)
}
