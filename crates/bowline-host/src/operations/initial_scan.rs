//! The initial scan of a project: it records the existing files, so that later changes can be found and undone.
//!
//! It takes seconds in a large project, so it runs alongside the turn. Only a command waits for it. An agent that does
//! not write through the host alone waits for a small project's, and the end of its turn for any, so that its changes
//! are recorded; the user is told which files it changed before they were scanned.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowline_task::spawn_blocking;
use bowline_text::display::quote;
use bowline_workspace::error::FilesError;
use bowline_workspace::observer::{ObserverOptions, PROGRESS_EVERY};
use bowline_workspace::workspace::{ObserveStartReport, WatchMode};
use tokio::time::timeout;

use crate::error::HostError;
use crate::front_end::HostEvent;
use crate::host::HostInner;

/// What the user is told of the scan while it runs.
const ACTIVITY: &str = "looking at the project's files";

/// The number of files from which a project is too large to scan before a turn.
const MIN_LARGE_PROJECT: u64 = 2 * PROGRESS_EVERY;

/// The maximum number of unrestorable files that a notice names.
const MAX_NAMED_FILES: usize = 5;

/// The state of the initial scan.
#[derive(Debug, Clone, Default)]
pub(crate) enum InitialScan {
    #[default]
    NotStarted,
    Running {
        /// Whether the project has at least `MIN_LARGE_PROJECT` files.
        is_large: bool,
    },
    Done,
    /// It can be started again.
    Failed(Arc<FilesError>),
}

/// Starts the initial scan, if it is enabled and not yet started. It ends early if the host is dropped.
pub(crate) fn start(shared: &Arc<HostInner>) {
    let is_starting = shared.options.observe
        && shared.initial_scan.send_if_modified(|state| {
            let is_starting = matches!(state, InitialScan::NotStarted | InitialScan::Failed(_));
            if is_starting {
                *state = InitialScan::Running { is_large: false };
            }
            is_starting
        });
    if !is_starting {
        return;
    }
    let (workspace, host) = (shared.workspace.clone(), Arc::downgrade(shared));
    let scan = spawn_blocking(move || {
        let mut progress = |files| match host.upgrade() {
            Some(shared) => {
                shared.initial_scan.send_if_modified(|state| match state {
                    InitialScan::Running { is_large } if files >= MIN_LARGE_PROJECT => {
                        !std::mem::replace(is_large, true)
                    }
                    _ => false,
                });
                shared.front_end.show_progress(ACTIVITY, Some(files));
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        };
        workspace.start_observing(ObserverOptions::default(), WatchMode::IfPossible, &mut progress)
    });
    let host = Arc::downgrade(shared);
    bowline_task::spawn(async move {
        let result = scan.await;
        let Some(shared) = host.upgrade() else { return };
        shared.front_end.show_progress(ACTIVITY, None);
        let state = match result {
            Ok(Ok(started)) => {
                report_started(&shared, &started);
                InitialScan::Done
            }
            Ok(Err(error)) => InitialScan::Failed(Arc::new(error)),
            // The scan panicked, or the runtime is shutting down.
            Err(_) => InitialScan::NotStarted,
        };
        shared.initial_scan.send_replace(state);
    });
}

/// Waits until the initial scan is done, starting it if necessary.
///
/// # Errors
/// Fails if the journal cannot be used.
pub(crate) async fn wait_until_done(shared: &Arc<HostInner>) -> Result<(), HostError> {
    wait_while(shared, |state| matches!(state, InitialScan::Running { .. })).await
}

/// Waits for the initial scan in one of its states, starting it if necessary.
async fn wait_while(
    shared: &Arc<HostInner>,
    mut is_waiting: impl FnMut(&InitialScan) -> bool,
) -> Result<(), HostError> {
    start(shared);
    if !shared.options.observe {
        return Ok(());
    }
    let mut state = shared.initial_scan.subscribe();
    let state = state.wait_for(|state| !is_waiting(state)).await;
    match state.as_deref() {
        Ok(InitialScan::Failed(error)) => Err(HostError::InitialScan(error.clone())),
        Ok(InitialScan::Done | InitialScan::Running { .. }) => Ok(()),
        _ => Err(HostError::Internal("the first look at the project's files ended early".to_owned())),
    }
}

/// Starts the initial scan before a turn, and waits for a small project's if the agent may change files unseen.
///
/// # Errors
/// Fails if the journal cannot be used.
pub(crate) async fn prepare_turn(shared: &Arc<HostInner>) -> Result<(), HostError> {
    if shared.options.writes_through_host_only {
        start(shared);
        return Ok(());
    }
    let ready = wait_while(shared, |state| matches!(state, InitialScan::Running { is_large: false }));
    match timeout(shared.options.initial_scan_timeout, ready).await {
        Ok(ready) => {
            shared.proceeded_without_scan.fetch_or(!is_done(shared), Ordering::Relaxed);
            ready
        }
        Err(_) => {
            report_proceeding(shared, "the agent");
            Ok(())
        }
    }
}

/// Waits for the initial scan at the end of a turn if the agent may have changed files unseen: without it, they would
/// not be found.
pub(crate) async fn finish_turn(shared: &Arc<HostInner>) {
    if !shared.options.writes_through_host_only {
        wait_or_proceed(shared, "the agent").await;
    }
}

/// Waits for the initial scan, with a timeout. Shows a notice if `actor` proceeds without it, or if it failed.
pub(crate) async fn wait_or_proceed(shared: &Arc<HostInner>, actor: &str) {
    match timeout(shared.options.initial_scan_timeout, wait_until_done(shared)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.front_end.show(HostEvent::Notice { text: &error.to_string() }),
        Err(_) => report_proceeding(shared, actor),
    }
}

fn report_proceeding(shared: &HostInner, actor: &str) {
    shared.proceeded_without_scan.store(true, Ordering::Relaxed);
    let text = format!(
        "the first look at the project's files takes longer than {} s: what {actor} changes before it is over may not be found \
         or undone",
        shared.options.initial_scan_timeout.as_secs()
    );
    shared.front_end.show(HostEvent::Notice { text: &text });
}

/// Returns whether the initial scan is done.
pub(crate) fn is_done(shared: &HostInner) -> bool {
    matches!(*shared.initial_scan.borrow(), InitialScan::Done)
}

fn report_started(shared: &HostInner, started: &ObserveStartReport) {
    let notice = |text: String| shared.front_end.show(HostEvent::Notice { text: &text });
    if let Some(error) = &started.watcher_error {
        notice(error.to_string());
    }
    if let Some(text) = describe_unnamed(started.report.walk.not_utf8) {
        notice(text);
    }
    if let Some(text) = describe_unrestorable(&started.unrestorable)
        .filter(|_| shared.proceeded_without_scan.load(Ordering::Relaxed))
    {
        notice(text);
    }
}

/// Describes files whose names no message can express.
fn describe_unnamed(count: u64) -> Option<String> {
    let names = match count {
        0 => return None,
        1 => "1 name here is".to_owned(),
        count => format!("{count} names here are"),
    };
    Some(format!("{names} not UTF-8: what commands do there is neither followed nor undone"))
}

/// Describes files that changed before the scan reached them.
fn describe_unrestorable(paths: &[String]) -> Option<String> {
    let named: Vec<String> = paths.iter().take(MAX_NAMED_FILES).map(|path| quote(path)).collect();
    let more = match paths.len().saturating_sub(MAX_NAMED_FILES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| {
        format!(
            "changed before the first look at the project's files came to them, so that what they held before cannot be \
             restored: {}{more}",
            named.join(", ")
        )
    })
}
