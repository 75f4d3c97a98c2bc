//! One session: its state, its prompt queue, its turns, and how they are saved.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_conversation::compaction::TokenCalibration;
use bowline_conversation::conversation::{ConversationMessage, ThinkingLevel, TokenUsage, ToolSpec};
use bowline_conversation::slash_command;
use bowline_conversation::turn::{ReplyError, TurnOutcome};
use bowline_mcp::client::McpServers;
use bowline_policy::mode::AgentMode;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    ContentBlock, ContentChunk, Cost, MessageId, PromptResponse, SessionId, SessionInfoUpdate, SessionUpdate,
    StopReason,
};
use bowline_wire::service::CancelSignal;
use bowline_wire::{CallError, ClientHandle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::agent_options::AgentOptions;
use crate::model::offline::NAME as OFFLINE;
use crate::model::{Model, Price};
use crate::prompt::instructions::Instructions;
use crate::prompt::{self, AttachmentLimits, PromptContext};
use crate::reporter::Reporter;
use crate::session::config_options::{ConfigChange, ConfigView};
use crate::session::slash_commands as commands;
use crate::store::{Durability, SessionLease, SessionMeta, SessionRecord, StoreError};
use crate::tools::{CallContext, Toolbox};
use crate::turn::{self, TurnCancellation};

pub mod config_options;
mod mcp_servers;
mod notes;
mod open;
pub mod slash_commands;
mod unavailable_model;

use notes::PendingNotes;
pub(crate) use open::{AgentResources, OpenMethod, SessionDirectories};

/// The most prompts of one session that wait for the current turn; further ones are refused.
pub const MAX_WAITING_PROMPTS: usize = 8;

/// The time limit for cleaning up after a cancelled turn before it is answered.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_millis(600);

/// The time limit for reading the project's instructions.
const INSTRUCTIONS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long closing a session waits for pending saves.
const SAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A session.
pub(crate) struct AgentSession {
    id: SessionId,
    directories: SessionDirectories,
    resources: Arc<AgentResources>,
    client: ClientHandle,
    toolbox: Toolbox,
    mcp_servers: Arc<McpServers>,
    // `None` once the session is closed.
    lease: Mutex<Option<Arc<Box<dyn SessionLease>>>>,
    config: Mutex<SessionConfig>,
    // The instructions of the project and the user, as last read.
    instructions: Mutex<Arc<Instructions>>,
    // Owned by the running turn.
    conversation: tokio::sync::Mutex<SessionConversation>,
    prompt_slots: Semaphore,
    closed: CancelSignal,
    // Shown to the user with the next turn.
    notes: Mutex<PendingNotes>,
}

/// The user's choices for a session.
#[derive(Clone)]
pub(crate) struct SessionConfig {
    pub(crate) mode: AgentMode,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) thinking: ThinkingLevel,
    pub(crate) title: Option<String>,
}

/// The conversation of a session, and its usage.
#[derive(Default)]
pub(crate) struct SessionConversation {
    pub(crate) messages: Vec<ConversationMessage>,
    /// The number of the running turn, or of the last one.
    pub(crate) turn: u64,
    pub(crate) last_usage: Option<TokenUsage>,
    /// The correction of token estimates.
    pub(crate) gauge: TokenCalibration,
    total_usage: TokenUsage,
    cost: Option<f64>,
    unsaved_records: Vec<SessionRecord>,
    // The save that runs concurrently with the turn.
    save_task: Option<JoinHandle<()>>,
}

impl SessionConversation {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: ConversationMessage) {
        self.unsaved_records.push(SessionRecord::Message(message.clone()));
        self.messages.push(message);
    }

    /// Replaces the conversation by a shorter one.
    pub(crate) fn replace(&mut self, messages: Vec<ConversationMessage>) {
        self.unsaved_records.push(SessionRecord::Compacted(messages.clone()));
        self.messages = messages;
        self.last_usage = None;
    }

    /// Adds the usage of a request.
    pub(crate) fn record_usage(&mut self, usage: &TokenUsage, price: Option<&Price>) {
        self.last_usage = Some(*usage);
        self.total_usage.input += usage.input;
        self.total_usage.output += usage.output;
        self.total_usage.cache_read += usage.cache_read;
        self.total_usage.cache_write += usage.cache_write;
        self.total_usage.thought += usage.thought;
        if let Some(price) = price {
            *self.cost.get_or_insert(0.0) += request_cost(usage, price);
        }
    }

    /// Waits for the pending save.
    pub(crate) async fn wait_until_saved(&mut self) {
        if let Some(saving) = &mut self.save_task {
            // A failed task has logged the reason.
            saving.await.unwrap_or_default();
            self.save_task = None;
        }
    }

    /// Returns the session's cost, as sent to the client.
    pub(crate) fn wire_cost(&self) -> Option<Cost> {
        self.cost.map(|amount| Cost::new(amount, "USD"))
    }
}

impl AgentSession {
    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn directories(&self) -> &SessionDirectories {
        &self.directories
    }

    pub(crate) fn options(&self) -> &AgentOptions {
        &self.resources.options
    }

    pub(crate) fn resources(&self) -> &AgentResources {
        &self.resources
    }

    pub(crate) fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    pub(crate) fn mcp_servers(&self) -> &McpServers {
        &self.mcp_servers
    }

    /// Returns the number of turns, after the running one has ended.
    pub(crate) async fn turn_count(&self) -> u64 {
        self.conversation.lock().await.turn
    }

    pub(crate) fn config(&self) -> SessionConfig {
        self.config_mut().clone()
    }

    fn config_mut(&self) -> MutexGuard<'_, SessionConfig> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log_line(&self, line: &str) {
        self.resources.options.log.write_line(format!("session {}: {}", self.id.0, line.trim_end()));
    }

    /// Returns the tools offered to a model in a mode.
    pub(crate) fn tool_specs(&self, mode: AgentMode) -> Arc<[ToolSpec]> {
        self.toolbox.offered_specs(mode)
    }

    /// Returns the system prompt and the offered tools.
    pub(crate) fn system_prompt_and_tools(&self, config: &SessionConfig) -> (Arc<str>, Arc<[ToolSpec]>) {
        let instructions = self.instructions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let tools = self.tool_specs(config.mode);
        (open::build_system_prompt(self, config, &tools, &instructions).into(), tools)
    }

    /// Reads the project's instructions; keeps the previous ones if that takes too long.
    async fn read_instructions(&self) {
        match timeout(INSTRUCTIONS_TIMEOUT, open::load_instructions(self)).await {
            Ok(instructions) => {
                *self.instructions.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(instructions)
            }
            Err(_) => self.log_line("the project's instructions could not be read in time"),
        }
    }

    /// Runs a function on the session's config options.
    pub(crate) fn with_config_view<T>(&self, f: impl FnOnce(ConfigView<'_>) -> T) -> T {
        let SessionConfig { mode, model, thinking, .. } = self.config();
        let models = self.resources.offered_models();
        let widest_mode = self.resources.options.widest_mode;
        f(ConfigView { mode, widest_mode, model: model.info(), models: &models, thinking })
    }

    /// Changes the configuration, and notifies the client.
    ///
    /// # Errors
    /// Fails if the model cannot be used.
    pub(crate) async fn apply_config_change(&self, change: ConfigChange) -> Result<(), RpcError> {
        match &change {
            ConfigChange::Mode(mode) => {
                self.config_mut().mode = *mode;
                self.toolbox.permissions().set_mode(*mode);
            }
            ConfigChange::Model(name) => {
                let model = self.resources.open_model(name).map_err(open::model_failure)?;
                self.config_mut().model = model;
            }
            ConfigChange::Thinking(thinking) => self.config_mut().thinking = *thinking,
        }
        let config = self.config();
        self.log_line(&format!("mode {}, model {}", config.mode.id(), config.model.info().name));
        let SessionConfig { mode, model, thinking, .. } = config;
        let model = model.info().name.clone();
        let saved = self.update_meta(move |meta| {
            (meta.mode, meta.model, meta.thinking) = (mode, Some(model), thinking);
        });
        if let Err(error) = saved.await {
            self.log_line(&format!("what was chosen could not be saved: {error}"));
        }
        for update in self.with_config_view(|view| view.updates_for(&change)) {
            self.send_update(update).await;
        }
        Ok(())
    }

    /// Sends an update outside of a turn. Failures are only logged: the client may be gone, or not support it.
    pub(crate) async fn send_update(&self, update: SessionUpdate) {
        if let Err(error) = self.client.update(self.id.clone(), update).await {
            self.log_line(&format!("the client was not told: {error}"));
        }
    }

    /// Replays the history to the client, until its end or a disconnect.
    pub(crate) async fn replay_history(&self, history: Vec<SessionUpdate>) {
        for update in history {
            if let Err(CallError::Closed) = self.client.update(self.id.clone(), update).await {
                return;
            }
        }
    }

    /// Answers a prompt. Prompts of one session are answered in order.
    ///
    /// # Errors
    /// Fails if the turn cannot start, cannot continue, or cannot be saved.
    pub(crate) async fn prompt(
        &self,
        prompt: Vec<ContentBlock>,
        signal: &CancelSignal,
    ) -> Result<PromptResponse, RpcError> {
        let Ok(_slot) = self.prompt_slots.try_acquire() else {
            return Err(RpcError::Busy { limit: MAX_WAITING_PROMPTS as u64 });
        };
        let cancellation =
            TurnCancellation { cancel_signal: signal, close_signal: &self.closed, client: &self.client };
        let Some(mut conversation) = cancellation.run_until_cancelled(self.conversation.lock()).await else {
            return Ok(PromptResponse::new(StopReason::Cancelled));
        };
        if self.closed.is_fired() {
            return Err(RpcError::SessionNotFound { session_id: self.id.clone() });
        }
        conversation.turn += 1;
        // Saved before the number is used: a turn that is cut off must not share it with the next.
        let turn = conversation.turn;
        let turn_saved =
            cancellation.run_until_cancelled(self.update_meta(move |meta| meta.turns = turn)).await;
        if let Some(Err(error)) = &turn_saved {
            self.log_line(&format!("the beginning of the turn could not be saved: {error}"));
        }
        let reporter = Reporter::new(self.client.clone(), self.id.clone(), conversation.turn);
        for block in &prompt {
            let chunk = ContentChunk::new(block.clone())
                .message_id(MessageId::new(format!("turn{}-0", conversation.turn)));
            reporter.record_update(SessionUpdate::UserMessageChunk(chunk));
        }
        let title = prompt::session_title(&prompt);
        let outcome = match turn_saved {
            Some(_) => self.run_turn(&mut conversation, &reporter, &cancellation, prompt).await,
            None => Ok(TurnOutcome::Cancelled),
        };
        if let Some(title) = title {
            self.toolbox.runtime().record_turn_title(turn, title).await;
        }
        self.finish_turn(&mut conversation, &reporter, outcome).await
    }

    async fn run_turn(
        &self,
        conversation: &mut SessionConversation,
        reporter: &Reporter,
        cancellation: &TurnCancellation<'_>,
        prompt: Vec<ContentBlock>,
    ) -> Result<TurnOutcome, RpcError> {
        let prompt = match slash_command::parse(&prompt) {
            Some(command) => {
                match commands::run_slash_command(self, conversation, reporter, cancellation, command).await {
                    commands::SlashOutcome::Finished(end) => return Ok(end),
                    commands::SlashOutcome::Prompt(prompt) => prompt,
                }
            }
            None => prompt,
        };
        if self.config().title.is_none()
            && let Some(title) = prompt::session_title(&prompt)
        {
            self.config_mut().title = Some(title.clone());
            let info = SessionInfoUpdate::new().title(title);
            if cancellation
                .run_until_cancelled(self.send_update(SessionUpdate::SessionInfoUpdate(info)))
                .await
                .is_none()
            {
                return Ok(TurnOutcome::Cancelled);
            }
        }
        // A link may lead to one of these servers.
        if cancellation
            .run_until_cancelled(self.prepare_mcp_servers(reporter, conversation.turn))
            .await
            .is_none()
        {
            return Ok(TurnOutcome::Cancelled);
        }
        let model = self.config().model;
        if self.resources.check_model_usable(model.info()).is_ok()
            && cancellation.run_until_cancelled(model.fetch_info()).await.is_none()
        {
            return Ok(TurnOutcome::Cancelled);
        }
        let context = PromptContext {
            cwd: self.toolbox.runtime().cwd(),
            supports_images: model.info().supports_images,
            limits: AttachmentLimits::for_window(model.info().context_window),
        };
        let linked_files =
            self.toolbox.linked_files(CallContext { reporter: reporter.clone(), turn: conversation.turn });
        let read = match cancellation
            .run_until_cancelled(prompt::read_prompt(&prompt, &linked_files, context))
            .await
        {
            Some(read) if !linked_files.is_cancelled() => read?,
            _ => return Ok(TurnOutcome::Cancelled),
        };
        for note in &read.notes {
            self.log_line(note);
        }
        for file in read.shown_files {
            self.toolbox.record_shown_file(&file.path, file.text);
        }
        let preparation = async {
            self.send_notes(reporter, conversation.turn).await;
            // The offline model follows only the user's commands.
            if model.info().name != OFFLINE {
                self.read_instructions().await;
            }
        };
        if cancellation.run_until_cancelled(preparation).await.is_none() {
            return Ok(TurnOutcome::Cancelled);
        }
        Ok(turn::run_turn(self, conversation, reporter, cancellation, read.parts).await)
    }

    /// Cleans up after a turn, saves it, and returns its result.
    async fn finish_turn(
        &self,
        conversation: &mut SessionConversation,
        reporter: &Reporter,
        outcome: Result<TurnOutcome, RpcError>,
    ) -> Result<PromptResponse, RpcError> {
        let cancelled = matches!(outcome, Ok(TurnOutcome::Cancelled));
        // Concurrently: a client that does not read must not keep commands alive.
        let commands = async {
            match cancelled {
                true => self.toolbox.end_turn(conversation.turn).await,
                false => self.toolbox.clean_up().await,
            }
        };
        let cleanup = async { tokio::join!(commands, reporter.fail_open_calls()) };
        if timeout(CLEAN_UP_TIMEOUT, cleanup).await.is_err() {
            self.log_line("cleaning up after the turn took too long; what is left goes on by itself");
        }
        self.toolbox.permissions().end_turn(conversation.turn);
        let saved = self.save_turn(conversation, reporter, cancelled).await;
        if let Err(error) = &saved {
            self.log_line(&format!("the turn could not be saved: {error}"));
        }
        let end = outcome?;
        self.log_line(&format!("turn {} ended: {end:?}", conversation.turn));
        let reason = match end {
            // A cancelled turn is never an error, regardless of other failures.
            TurnOutcome::Cancelled => return Ok(PromptResponse::new(StopReason::Cancelled)),
            TurnOutcome::Done => StopReason::EndTurn,
            TurnOutcome::LengthLimit => StopReason::MaxTokens,
            TurnOutcome::Refused => StopReason::Refusal,
            TurnOutcome::TooManyRequests => StopReason::MaxTurnRequests,
            TurnOutcome::Failed(ReplyError::Unauthorized(reason)) => {
                return Err(open::auth_required(&reason));
            }
            TurnOutcome::Failed(ReplyError::TooLong(reason) | ReplyError::Failed(reason)) => {
                return Err(RpcError::Internal { reason });
            }
        };
        saved?;
        Ok(PromptResponse::new(reason))
    }

    /// Saves unsaved records concurrently with the turn. While a save is running, new records wait for the next one.
    pub(crate) fn save_in_background(&self, conversation: &mut SessionConversation, reporter: &Reporter) {
        if conversation.save_task.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return;
        }
        let records = take_records(conversation, reporter);
        let Ok(lease) = self.lease() else { return };
        let (id, log) = (self.id.clone(), self.resources.options.log.clone());
        let closed = self.closed.clone();
        conversation.save_task = Some(bowline_task::spawn(async move {
            if let Err(error) = lease.append(records, Durability::Deferred).await {
                if let StoreError::Lost(_) = error {
                    // Another agent continues the session: this one must not run another call.
                    closed.fire();
                }
                log.write_line(format!("session {}: not saved: {error}", id.0));
            }
        }));
    }

    /// Saves a turn durably. A save that exceeds the time limit continues in the background.
    async fn save_turn(
        &self,
        conversation: &mut SessionConversation,
        reporter: &Reporter,
        briefly: bool,
    ) -> Result<(), RpcError> {
        let (previous_save, records) = (conversation.save_task.take(), take_records(conversation, reporter));
        let (turn, total, cost, title) =
            (conversation.turn, conversation.total_usage, conversation.cost, self.config().title);
        let lease = self.lease()?;
        let (id, log) = (self.id.clone(), self.resources.options.log.clone());
        let (sender, receiver) = oneshot::channel();
        conversation.save_task = Some(bowline_task::spawn(async move {
            if let Some(previous_save) = previous_save {
                // It logs its own failure, and records that it could not save are retried.
                previous_save.await.unwrap_or_default();
            }
            let meta_update = lease.update_meta(Box::new(move |meta| {
                (meta.turns, meta.usage, meta.cost, meta.title) = (turn, total, cost, title);
            }));
            let saved = match meta_update.await {
                Ok(_) => lease.append(records, Durability::Synced).await,
                Err(error) => Err(error),
            };
            if let Err(Err(error)) = sender.send(saved) {
                log.write_line(format!("session {}: not saved: {error}", id.0));
            }
        }));
        let limit = if briefly { Duration::from_millis(300) } else { Duration::from_secs(30) };
        let save_error = |cause: String| RpcError::Internal {
            reason: format!("the session could not be saved ({cause}); what the turn did stands"),
        };
        match timeout(limit, receiver).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(save_error(error.to_string())),
            Ok(Err(error)) => Err(save_error(error.to_string())),
            Err(_) => Err(save_error("the disk does not answer".to_owned())),
        }
    }

    /// Ends the session and everything it runs. The record stays.
    pub(crate) async fn close(&self) {
        self.closed.fire();
        // The caller has already cancelled the running turn.
        match timeout(Duration::from_secs(3), self.conversation.lock()).await {
            Err(_) => self.log_line("a turn goes on although the session is closed"),
            Ok(mut conversation) => {
                // A cancelled turn is answered before a slow disk has saved it.
                if timeout(SAVE_TIMEOUT, conversation.wait_until_saved()).await.is_err() {
                    self.log_line("the session is closed before all of it is saved");
                }
            }
        }
        self.toolbox.end_session().await;
        self.mcp_servers.shutdown().await;
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A save in progress holds the other reference, and releases the lease when it is done.
        if let Some(lease) = lease.and_then(Arc::into_inner)
            && let Err(error) = lease.close().await
        {
            self.log_line(&format!("the end of the session could not be saved: {error}"));
        }
        self.log_line("closed");
    }

    fn lease(&self) -> Result<Arc<Box<dyn SessionLease>>, StoreError> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lease.ok_or(StoreError::Stopped)
    }

    async fn update_meta(
        &self,
        change: impl FnOnce(&mut SessionMeta) + Send + 'static,
    ) -> Result<(), StoreError> {
        self.lease()?.update_meta(Box::new(change)).await.map(drop)
    }
}

fn take_records(conversation: &mut SessionConversation, reporter: &Reporter) -> Vec<SessionRecord> {
    let mut records: Vec<SessionRecord> =
        reporter.take_unsaved().into_iter().map(SessionRecord::Update).collect();
    records.append(&mut conversation.unsaved_records);
    records
}

/// Returns the cost of a request, in US dollars.
fn request_cost(usage: &TokenUsage, price: &Price) -> f64 {
    let uncached_input = usage.input.saturating_sub(usage.cache_read + usage.cache_write);
    let parts = [
        (uncached_input, price.input),
        (usage.cache_read, price.cache_read),
        (usage.cache_write, price.cache_write),
        (usage.output, price.output),
    ];
    #[expect(clippy::cast_precision_loss, reason = "no reply has so many tokens that a cent would be lost")]
    let total: f64 = parts.into_iter().map(|(tokens, price)| tokens as f64 * price).sum();
    total / 1_000_000.0
}

impl SessionDirectories {
    /// Returns the directories of the session; the first is the base of relative paths.
    pub(crate) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.cwd).chain(&self.additional_directories)
    }
}
