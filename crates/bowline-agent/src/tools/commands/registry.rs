//! The running commands of a session, so that none outlives the call that waits for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_protocol::capabilities::ClientMethod;
use bowline_protocol::schema::v1::TerminalId;
use bowline_workspace::terminals::CommandRequest;
use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::runtime::{RuntimeError, RuntimeTerminalOutput, RuntimeTerminals};

/// The most background commands at once.
pub(crate) const MAX_BACKGROUND: usize = 16;

/// The most abandoned terminals that may still be created late, to be killed then; beyond it the oldest are no longer
/// awaited.
const MAX_LATE_CREATIONS: usize = 64;

/// The timeout of one step of cleaning up. Slower steps continue in the background.
const STEP_TIMEOUT: Duration = Duration::from_millis(500);

/// The commands of a session. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandRegistry {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    commands: Vec<RegisteredCommand>,
    last_key: u64,
    last_background_number: u64,
    // The tasks that await abandoned terminals, to kill them. Invariant: at most `MAX_LATE_CREATIONS`.
    late_creations: VecDeque<AbortHandle>,
}

#[derive(Debug)]
struct RegisteredCommand {
    key: u64,
    terminals: RuntimeTerminals,
    terminal: Option<TerminalId>,
    // The task that creates the terminal. It kills the terminal itself if the command was removed meanwhile.
    creation: Option<TerminalCreation>,
    background: Option<BackgroundCommand>,
    // Whether the call that waited for it was dropped.
    is_orphan: bool,
}

#[derive(Debug)]
struct TerminalCreation {
    task: AbortHandle,
    // Dropped when the terminal is no longer wanted.
    _wanted: oneshot::Sender<()>,
}

/// A background command.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundCommand {
    /// Its name for the model.
    pub(crate) name: String,
    /// The command, for display.
    pub(crate) label: String,
    /// The output that the model has seen.
    pub(crate) seen_output: String,
    /// The turn that started it, and ends it if cancelled.
    pub(crate) turn: u64,
}

/// A background command, with access to its terminal.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundHandle {
    pub(crate) key: u64,
    pub(crate) terminals: RuntimeTerminals,
    pub(crate) terminal: TerminalId,
    pub(crate) background: BackgroundCommand,
}

/// A terminal owned by a call. If it is dropped without being released or detached, the command is to be killed.
#[derive(Debug)]
pub(crate) struct OwnedTerminal {
    registry: CommandRegistry,
    key: u64,
    /// The terminals of its backend.
    pub(crate) terminals: RuntimeTerminals,
    /// The terminal.
    pub(crate) terminal: TerminalId,
    // Whether it runs on without an owner.
    is_detached: bool,
}

/// Marks a command as orphaned when dropped.
struct OrphanGuard<'b> {
    registry: &'b CommandRegistry,
    key: u64,
    is_armed: bool,
}

impl Drop for OrphanGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.registry.mark_orphaned(self.key);
        }
    }
}

impl CommandRegistry {
    /// Starts a command. If the future is dropped, the next [`CommandRegistry::clean_up`] kills the command.
    pub(crate) async fn create_terminal(
        &self,
        terminals: &RuntimeTerminals,
        request: CommandRequest,
    ) -> Result<OwnedTerminal, RuntimeError> {
        let key = {
            let mut state = self.state();
            state.last_key += 1;
            let key = state.last_key;
            state.commands.push(RegisteredCommand {
                key,
                terminals: terminals.clone(),
                terminal: None,
                creation: None,
                background: None,
                is_orphan: false,
            });
            key
        };
        let mut guard = OrphanGuard { registry: self, key, is_armed: true };
        let (registry, task_terminals) = (self.clone(), terminals.clone());
        let (sender, receiver) = oneshot::channel::<()>();
        let mut task = tokio::spawn(async move {
            // No value is ever sent: dropping the sender is the signal.
            let cancelled = async { receiver.await.unwrap_or_default() };
            let created = task_terminals.create(request, cancelled).await;
            if !registry.record_created(key, created.as_ref().ok())
                && let Ok(terminal) = &created
            {
                // The call was dropped in the meantime.
                kill_and_release(&task_terminals, terminal).await;
            }
            created
        });
        let creation = TerminalCreation { task: task.abort_handle(), _wanted: sender };
        self.update_command(key, |command| command.creation = Some(creation));
        let created = match terminals.create_timeout() {
            Some(limit) => timeout(limit, &mut task).await.map_err(|_| limit),
            None => Ok((&mut task).await),
        };
        guard.is_armed = false;
        match created {
            Ok(Ok(Ok(terminal))) => {
                let (registry, terminals) = (self.clone(), terminals.clone());
                Ok(OwnedTerminal { registry, key, terminals, terminal, is_detached: false })
            }
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(error)) => {
                self.remove(key);
                Err(RuntimeError::EngineUnavailable(error.to_string()))
            }
            Err(after) => {
                if let Some(command) = self.remove(key) {
                    self.abandon(command).await;
                }
                Err(RuntimeError::TimedOut { method: ClientMethod::CreateTerminal.wire_name(), after })
            }
        }
    }

    /// Kills a command removed from the registry: now, or once its terminal exists.
    async fn abandon(&self, command: RegisteredCommand) {
        let RegisteredCommand { terminals, terminal, creation, .. } = command;
        if let Some(terminal) = terminal {
            let cleanup = bowline_task::spawn(async move { kill_and_release(&terminals, &terminal).await });
            timeout(STEP_TIMEOUT, cleanup).await.ok();
        } else if let Some(TerminalCreation { task, .. }) = creation {
            let mut state = self.state();
            state.late_creations.retain(|handle| !handle.is_finished());
            if state.late_creations.len() >= MAX_LATE_CREATIONS
                && let Some(oldest) = state.late_creations.pop_front()
            {
                oldest.abort();
            }
            state.late_creations.push_back(task);
        }
    }

    /// Records that a terminal was created, or will not be. Returns whether the command is still registered.
    fn record_created(&self, key: u64, terminal: Option<&TerminalId>) -> bool {
        let was_registered = match terminal {
            Some(terminal) => self.update_command(key, |command| command.terminal = Some(terminal.clone())),
            None => self.remove(key).is_some(),
        };
        self.inner.changed.notify_waiters();
        was_registered
    }

    /// Returns a name for a background command; `None` if there are too many. Ended ones make room.
    pub(crate) async fn reserve_background_name(&self) -> Option<String> {
        if self.background_names().len() >= MAX_BACKGROUND {
            self.release_ended().await;
        }
        let mut state = self.state();
        let count = state.commands.iter().filter(|command| command.background.is_some()).count();
        if count >= MAX_BACKGROUND {
            return None;
        }
        state.last_background_number += 1;
        Some(format!("bg{}", state.last_background_number))
    }

    /// Releases the terminals of background commands that have ended.
    async fn release_ended(&self) {
        let backgrounds = self.backgrounds();
        join_all(backgrounds.iter().map(|handle| async {
            let output = timeout(STEP_TIMEOUT, handle.terminals.output(&handle.terminal)).await;
            if matches!(output, Ok(Ok(RuntimeTerminalOutput { end: Some(_), .. }))) {
                // A terminal that the client does not release in time stays registered.
                timeout(STEP_TIMEOUT, self.release(handle.key)).await.ok();
            }
        }))
        .await;
    }

    /// Finds a background command.
    pub(crate) fn find_background(&self, name: &str) -> Option<BackgroundHandle> {
        self.backgrounds().into_iter().find(|handle| handle.background.name == name)
    }

    fn backgrounds(&self) -> Vec<BackgroundHandle> {
        let state = self.state();
        let handles = state.commands.iter().filter_map(|command| {
            Some(BackgroundHandle {
                key: command.key,
                terminals: command.terminals.clone(),
                terminal: command.terminal.clone()?,
                background: command.background.clone()?,
            })
        });
        handles.collect()
    }

    /// Returns the names of the background commands.
    pub(crate) fn background_names(&self) -> Vec<String> {
        let state = self.state();
        let names = state.commands.iter().filter_map(|command| command.background.as_ref());
        names.map(|background| background.name.clone()).collect()
    }

    /// Records the output of a command that the model has seen.
    pub(crate) fn record_seen_output(&self, key: u64, text: String) {
        self.update_command(key, |command| {
            if let Some(background) = &mut command.background {
                background.seen_output = text;
            }
        });
    }

    /// Releases a terminal, within the client's timeout.
    pub(crate) async fn release(&self, key: u64) -> Result<(), RuntimeError> {
        let entry = self
            .state()
            .commands
            .iter()
            .find(|command| command.key == key)
            .and_then(|command| Some((command.terminals.clone(), command.terminal.clone()?)));
        let Some((terminals, terminal)) = entry else { return Ok(()) };
        let released = terminals.release(&terminal).await;
        self.remove(key);
        released
    }

    /// Kills orphaned commands, within about a second; slower ones end in the background.
    pub(crate) async fn clean_up(&self) {
        self.end_matching(|command| command.is_orphan).await;
    }

    /// Kills the commands of a cancelled turn, including background commands, and orphaned ones as
    /// [`CommandRegistry::clean_up`] does.
    pub(crate) async fn end_turn(&self, turn: u64) {
        let is_of_turn = |command: &RegisteredCommand| {
            command.background.as_ref().is_some_and(|background| background.turn == turn)
        };
        self.end_matching(|command| command.is_orphan || is_of_turn(command)).await;
    }

    /// Kills every command.
    pub(crate) async fn end_all(&self) {
        self.end_matching(|_| true).await;
    }

    async fn end_matching(&self, predicate: impl Fn(&RegisteredCommand) -> bool) {
        let keys: Vec<u64> = self
            .state()
            .commands
            .iter()
            .filter(|command| predicate(command))
            .map(|command| command.key)
            .collect();
        join_all(keys.into_iter().map(|key| self.end_one(key))).await;
    }

    async fn end_one(&self, key: u64) {
        // A terminal in creation may exist in a moment, and can then be killed.
        timeout(STEP_TIMEOUT, self.wait_until_created(key)).await.ok();
        if let Some(command) = self.remove(key) {
            self.abandon(command).await;
        }
    }

    async fn wait_until_created(&self, key: u64) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let is_creating =
                self.state().commands.iter().any(|command| command.key == key && command.terminal.is_none());
            if !is_creating {
                return;
            }
            changed.await;
        }
    }

    fn mark_orphaned(&self, key: u64) {
        self.update_command(key, |command| command.is_orphan = true);
    }

    /// Changes a command. Returns whether it exists.
    fn update_command(&self, key: u64, change: impl FnOnce(&mut RegisteredCommand)) -> bool {
        let mut state = self.state();
        let command = state.commands.iter_mut().find(|command| command.key == key);
        command.map(change).is_some()
    }

    fn remove(&self, key: u64) -> Option<RegisteredCommand> {
        let mut state = self.state();
        let index = state.commands.iter().position(|command| command.key == key)?;
        Some(state.commands.swap_remove(index))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills a command and releases its terminal. Errors mean that it has ended, or is gone with its client.
async fn kill_and_release(commands: &RuntimeTerminals, terminal: &TerminalId) {
    commands.kill(terminal).await.ok();
    commands.release(terminal).await.ok();
}

impl OwnedTerminal {
    /// Lets the command run on in the background.
    pub(crate) fn detach(mut self, background: BackgroundCommand) {
        self.registry.update_command(self.key, |command| command.background = Some(background));
        self.is_detached = true;
    }

    /// Releases the terminal.
    pub(crate) async fn release(self) -> Result<(), RuntimeError> {
        self.registry.release(self.key).await
    }
}

impl Drop for OwnedTerminal {
    fn drop(&mut self) {
        if !self.is_detached {
            self.registry.mark_orphaned(self.key);
        }
    }
}
