//! The commands that run for a session, so that none outlives whoever waits for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_state::capabilities::ClientMethod;
use bowline_state::schema::v1::TerminalId;
use bowline_workspace::terminals::Asked;
use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::runtime::{Commands, Fault, Output};

/// So many commands run in the background at once.
pub(crate) const MAX_BACKGROUND: usize = 16;

/// So many terminals that nobody waits for any more may still be created late, and are ended then; of more, the first are
/// not waited for.
const MAX_LATE: usize = 64;

/// How long one step of cleaning up is waited for. What takes longer goes on by itself.
const STEP: Duration = Duration::from_millis(500);

/// The commands of a session. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    running: Vec<Running>,
    last: u64,
    last_background: u64,
    // Whoever waits for terminals that nobody wants any more, to end them. Invariant: at most `MAX_LATE`.
    late: VecDeque<AbortHandle>,
}

#[derive(Debug)]
struct Running {
    key: u64,
    commands: Commands,
    terminal: Option<TerminalId>,
    // Whoever creates the terminal. It ends by itself what nobody knows of when it is there.
    creating: Option<Creating>,
    background: Option<Background>,
    // Nobody waits for it any more.
    is_orphan: bool,
}

#[derive(Debug)]
struct Creating {
    task: AbortHandle,
    // Dropped when nobody wants the terminal any more.
    _wanted: oneshot::Sender<()>,
}

/// A command in the background.
#[derive(Debug, Clone)]
pub(crate) struct Background {
    /// What the model calls it.
    pub(crate) name: String,
    /// The command, to be told.
    pub(crate) line: String,
    /// The output that the model has seen.
    pub(crate) seen: String,
    /// The turn that began it, and ends it if it is cancelled.
    pub(crate) turn: u64,
}

/// A command in the background, to be asked.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) key: u64,
    pub(crate) commands: Commands,
    pub(crate) terminal: TerminalId,
    pub(crate) background: Background,
}

/// A terminal that somebody waits for. If that ends without a word, the command is to be ended.
#[derive(Debug)]
pub(crate) struct Owned {
    book: Book,
    key: u64,
    /// Who serves it.
    pub(crate) commands: Commands,
    /// The terminal.
    pub(crate) terminal: TerminalId,
    // It runs on without anybody who waits.
    is_left: bool,
}

/// Marks a command as nobody's if it is dropped.
struct Guard<'b> {
    book: &'b Book,
    key: u64,
    armed: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.book.orphan(self.key);
        }
    }
}

impl Book {
    /// Runs a command. If this is dropped, the terminal is not lost: it is ended with the next [`Book::clean_up`].
    pub(crate) async fn create(&self, commands: &Commands, asked: Asked) -> Result<Owned, Fault> {
        let key = {
            let mut state = self.state();
            state.last += 1;
            let key = state.last;
            state.running.push(Running {
                key,
                commands: commands.clone(),
                terminal: None,
                creating: None,
                background: None,
                is_orphan: false,
            });
            key
        };
        let mut guard = Guard { book: self, key, armed: true };
        let (book, its) = (self.clone(), commands.clone());
        let (wanted, unwanted) = oneshot::channel::<()>();
        let mut task = tokio::spawn(async move {
            // Nothing is ever sent: that the sender is dropped is the news.
            let given_up = async { unwanted.await.unwrap_or_default() };
            let created = its.create(asked, given_up).await;
            if !book.created(key, created.as_ref().ok())
                && let Ok(terminal) = &created
            {
                // It was given up meanwhile.
                end(&its, terminal).await;
            }
            created
        });
        let creating = Creating { task: task.abort_handle(), _wanted: wanted };
        self.change(key, |running| running.creating = Some(creating));
        let created = match commands.limit() {
            Some(limit) => timeout(limit, &mut task).await.map_err(|_| limit),
            None => Ok((&mut task).await),
        };
        guard.armed = false;
        match created {
            Ok(Ok(Ok(terminal))) => {
                let (book, commands) = (self.clone(), commands.clone());
                Ok(Owned { book, key, commands, terminal, is_left: false })
            }
            Ok(Ok(Err(fault))) => Err(fault),
            Ok(Err(ended)) => {
                self.remove(key);
                Err(Fault::Unusable(ended.to_string()))
            }
            Err(after) => {
                if let Some(running) = self.remove(key) {
                    self.give_up(running).await;
                }
                Err(Fault::TimedOut { method: ClientMethod::CreateTerminal.wire_name(), after })
            }
        }
    }

    /// Ends a command that nobody knows of any more: now, or when its terminal is there.
    async fn give_up(&self, running: Running) {
        let Running { commands, terminal, creating, .. } = running;
        if let Some(terminal) = terminal {
            let ending = tokio::spawn(async move { end(&commands, &terminal).await });
            timeout(STEP, ending).await.ok();
        } else if let Some(Creating { task, .. }) = creating {
            let mut state = self.state();
            state.late.retain(|late| !late.is_finished());
            if state.late.len() >= MAX_LATE
                && let Some(oldest) = state.late.pop_front()
            {
                oldest.abort();
            }
            state.late.push_back(task);
        }
    }

    /// Notes that a terminal is there, or will not be. Says whether anybody knows of it.
    fn created(&self, key: u64, terminal: Option<&TerminalId>) -> bool {
        let known = match terminal {
            Some(terminal) => self.change(key, |running| running.terminal = Some(terminal.clone())),
            None => self.remove(key).is_some(),
        };
        self.inner.changed.notify_waiters();
        known
    }

    /// Returns a name for a command in the background; none if there are too many. Those that have ended make room.
    pub(crate) async fn background_name(&self) -> Option<String> {
        if self.names().len() >= MAX_BACKGROUND {
            self.drop_ended().await;
        }
        let mut state = self.state();
        let there = state.running.iter().filter(|running| running.background.is_some()).count();
        if there >= MAX_BACKGROUND {
            return None;
        }
        state.last_background += 1;
        Some(format!("bg{}", state.last_background))
    }

    /// Gives up the terminals of commands in the background that have ended.
    async fn drop_ended(&self) {
        let there = self.backgrounds();
        join_all(there.iter().map(|found| async {
            let shown = timeout(STEP, found.commands.output(&found.terminal)).await;
            if matches!(shown, Ok(Ok(Output { ending: Some(_), .. }))) {
                // A client that does not give it up in time keeps its place.
                timeout(STEP, self.release(found.key)).await.ok();
            }
        }))
        .await;
    }

    /// Finds a command in the background.
    pub(crate) fn find(&self, name: &str) -> Option<Found> {
        self.backgrounds().into_iter().find(|found| found.background.name == name)
    }

    fn backgrounds(&self) -> Vec<Found> {
        let state = self.state();
        let found = state.running.iter().filter_map(|running| {
            Some(Found {
                key: running.key,
                commands: running.commands.clone(),
                terminal: running.terminal.clone()?,
                background: running.background.clone()?,
            })
        });
        found.collect()
    }

    /// Returns the names of the commands in the background.
    pub(crate) fn names(&self) -> Vec<String> {
        let state = self.state();
        let names = state.running.iter().filter_map(|running| running.background.as_ref());
        names.map(|background| background.name.clone()).collect()
    }

    /// Notes what the model has seen of a command's output.
    pub(crate) fn saw(&self, key: u64, text: String) {
        self.change(key, |running| {
            if let Some(background) = &mut running.background {
                background.seen = text;
            }
        });
    }

    /// Gives a terminal up, and waits for that as long as the client may take.
    pub(crate) async fn release(&self, key: u64) -> Result<(), Fault> {
        let its = self
            .state()
            .running
            .iter()
            .find(|running| running.key == key)
            .and_then(|running| Some((running.commands.clone(), running.terminal.clone()?)));
        let Some((commands, terminal)) = its else { return Ok(()) };
        let released = commands.release(&terminal).await;
        self.remove(key);
        released
    }

    /// Ends the commands that nobody waits for: within a second or so, and what takes longer by itself.
    pub(crate) async fn clean_up(&self) {
        self.end_those(|running| running.is_orphan).await;
    }

    /// Ends the commands of a turn that is cancelled, those in the background too; and as [`Book::clean_up`] does.
    pub(crate) async fn end_turn(&self, turn: u64) {
        let is_its = |running: &Running| running.background.as_ref().is_some_and(|its| its.turn == turn);
        self.end_those(|running| running.is_orphan || is_its(running)).await;
    }

    /// Ends every command.
    pub(crate) async fn end(&self) {
        self.end_those(|_| true).await;
    }

    async fn end_those(&self, which: impl Fn(&Running) -> bool) {
        let keys: Vec<u64> =
            self.state().running.iter().filter(|running| which(running)).map(|running| running.key).collect();
        join_all(keys.into_iter().map(|key| self.end_one(key))).await;
    }

    async fn end_one(&self, key: u64) {
        // A terminal that is being created may be there in a moment, and then it can be ended.
        timeout(STEP, self.until_created(key)).await.ok();
        if let Some(running) = self.remove(key) {
            self.give_up(running).await;
        }
    }

    async fn until_created(&self, key: u64) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let is_creating =
                self.state().running.iter().any(|running| running.key == key && running.terminal.is_none());
            if !is_creating {
                return;
            }
            changed.await;
        }
    }

    fn orphan(&self, key: u64) {
        self.change(key, |running| running.is_orphan = true);
    }

    /// Changes a command. Says whether there is one.
    fn change(&self, key: u64, change: impl FnOnce(&mut Running)) -> bool {
        let mut state = self.state();
        let running = state.running.iter_mut().find(|running| running.key == key);
        running.map(change).is_some()
    }

    fn remove(&self, key: u64) -> Option<Running> {
        let mut state = self.state();
        let at = state.running.iter().position(|running| running.key == key)?;
        Some(state.running.swap_remove(at))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a command and gives its terminal up. It may have ended, or be gone with its client: then nothing is to be done.
async fn end(commands: &Commands, terminal: &TerminalId) {
    commands.kill(terminal).await.ok();
    commands.release(terminal).await.ok();
}

impl Owned {
    /// Lets the command run on in the background.
    pub(crate) fn leave(mut self, background: Background) {
        self.book.change(self.key, |running| running.background = Some(background));
        self.is_left = true;
    }

    /// Gives the terminal up.
    pub(crate) async fn release(self) -> Result<(), Fault> {
        self.book.release(self.key).await
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.is_left {
            self.book.orphan(self.key);
        }
    }
}
