//! The first look at a project: it learns what is there, so that what changes later can be found and undone.
//!
//! In a large project it takes seconds, so it goes on beside the turn. Only what may change files unseen waits for it: a
//! command, and an agent that does not write through the host alone.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_state::failure::quote;
use bowline_workspace::error::FilesError;
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::workspace::{Started, Watching};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::HostError;
use crate::front_end::Event;
use crate::host::Shared;

/// How long a command or an agent waits for the first look.
const PATIENCE: Duration = Duration::from_secs(30);

/// So many files are named of those that cannot be restored.
const MAX_NAMED: usize = 5;

/// How far the first look is.
#[derive(Debug, Clone, Default)]
pub(crate) enum FirstLook {
    #[default]
    NotBegun,
    Running,
    Done,
    /// It can be begun again.
    Failed(Arc<FilesError>),
}

/// Begins the first look, if it is wanted and was not begun yet. It ends early if the host does.
pub(crate) fn begin(shared: &Arc<Shared>) {
    let begins = shared.settings.observe
        && shared.first_look.send_if_modified(|state| {
            let begins = matches!(state, FirstLook::NotBegun | FirstLook::Failed(_));
            if begins {
                *state = FirstLook::Running;
            }
            begins
        });
    if !begins {
        return;
    }
    let (workspace, host) = (shared.workspace.clone(), Arc::downgrade(shared));
    let look = spawn_blocking(move || {
        let mut progress = |files| match host.upgrade() {
            Some(shared) => {
                shared.front_end.progress("looking at the project's files", files);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        };
        workspace.start_observing(ObserverOptions::default(), Watching::IfPossible, &mut progress)
    });
    let host = Arc::downgrade(shared);
    tokio::spawn(async move {
        let looked = look.await;
        let Some(shared) = host.upgrade() else { return };
        let state = match looked {
            Ok(Ok(started)) => {
                tell(&shared, &started);
                FirstLook::Done
            }
            Ok(Err(error)) => FirstLook::Failed(Arc::new(error)),
            // It panicked, or the runtime ends.
            Err(_) => FirstLook::NotBegun,
        };
        shared.first_look.send_replace(state);
    });
}

/// Returns when the first look is over.
///
/// # Errors
/// Fails if the journal cannot be used.
pub(crate) async fn done(shared: &Arc<Shared>) -> Result<(), HostError> {
    begin(shared);
    if !shared.settings.observe {
        return Ok(());
    }
    let mut state = shared.first_look.subscribe();
    let state = state.wait_for(|state| !matches!(state, FirstLook::Running)).await;
    match state.as_deref() {
        Ok(FirstLook::Failed(error)) => Err(HostError::FirstLook(error.clone())),
        Ok(FirstLook::Done) => Ok(()),
        _ => Err(HostError::Internal("the first look at the project's files ended early".to_owned())),
    }
}

/// Has the first look begin before a turn does, and waits for it where the agent may change files unseen.
///
/// # Errors
/// Fails if the journal cannot be used.
pub(crate) async fn before_turn(shared: &Arc<Shared>) -> Result<(), HostError> {
    if shared.settings.writes_here_only {
        begin(shared);
        return Ok(());
    }
    match timeout(PATIENCE, done(shared)).await {
        Ok(done) => done,
        Err(_) => {
            go_on(shared, "the agent");
            Ok(())
        }
    }
}

/// Waits for the first look, but not for ever. Says so if `who` goes on without it, or if it failed.
pub(crate) async fn wait(shared: &Arc<Shared>, who: &str) {
    match timeout(PATIENCE, done(shared)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.front_end.show(Event::Notice { text: &error.to_string() }),
        Err(_) => go_on(shared, who),
    }
}

fn go_on(shared: &Shared, who: &str) {
    shared.went_on.store(true, Ordering::Relaxed);
    let text = format!(
        "the first look at the project's files takes longer than {} s: what {who} changes before it is over may not be found \
         or undone",
        PATIENCE.as_secs()
    );
    shared.front_end.show(Event::Notice { text: &text });
}

/// Says whether the first look is over.
pub(crate) fn is_done(shared: &Shared) -> bool {
    matches!(*shared.first_look.borrow(), FirstLook::Done)
}

fn tell(shared: &Shared, started: &Started) {
    let notice = |text: String| shared.front_end.show(Event::Notice { text: &text });
    if let Some(why) = &started.not_watched {
        notice(why.to_string());
    }
    if let Some(text) = unnamed(started.report.walk.not_utf8) {
        notice(text);
    }
    if let Some(text) = unrestorable(&started.unrestorable).filter(|_| shared.went_on.load(Ordering::Relaxed))
    {
        notice(text);
    }
}

/// Returns what to tell of files that no message can name.
fn unnamed(count: u64) -> Option<String> {
    let names = match count {
        0 => return None,
        1 => "1 name here is".to_owned(),
        count => format!("{count} names here are"),
    };
    Some(format!("{names} not UTF-8: what commands do there is neither followed nor undone"))
}

/// Returns what to tell of files that changed before they were looked at.
fn unrestorable(paths: &[String]) -> Option<String> {
    let named: Vec<String> = paths.iter().take(MAX_NAMED).map(|path| quote(path)).collect();
    let more = match paths.len().saturating_sub(MAX_NAMED) {
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
