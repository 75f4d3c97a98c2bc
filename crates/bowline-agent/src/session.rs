//! One session: what it knows, who may use it, its turns.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_mcp::client::Servers;
use bowline_state::compaction::Gauge;
use bowline_state::conversation::{Message, Thinking, ToolSpec, Usage};
use bowline_state::failure::Failure;
use bowline_state::mode::Mode;
use bowline_state::schema::v1::{
    ContentBlock, ContentChunk, Cost, MessageId, PromptResponse, SessionId, SessionInfoUpdate, SessionUpdate,
    StopReason,
};
use bowline_state::slash;
use bowline_state::turn::{End, ReplyFault};
use bowline_wire::service::CancelSignal;
use bowline_wire::{CallError, ClientHandle};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::instructions::Instructions;
use crate::model::offline::NAME as OFFLINE;
use crate::model::{Model, Price};
use crate::options::{Change, Choices};
use crate::prompting::{self, Caps, Reading};
use crate::reporter::Reporter;
use crate::settings::Settings;
use crate::slash as commands;
use crate::store::{Meta, Record, SessionLease, StoreError};
use crate::tools::{Calling, Toolbox};
use crate::turn::{self, Halt};

mod notes;
mod opening;
mod saving;
mod servers;
mod unavailable;

use notes::Notes;
pub(crate) use opening::{How, Place, Shared};

/// As many prompts of one session wait for the one that is being answered; those beyond are refused.
pub const MAX_WAITING_PROMPTS: usize = 8;

/// How long cleaning up after a cancelled turn may take before it is answered.
const CLEAN_UP: Duration = Duration::from_millis(600);

/// How long reading the project's instructions may take.
const INSTRUCTIONS: Duration = Duration::from_secs(3);

/// How long the end of a session waits for what is being saved.
const SAVING: Duration = Duration::from_secs(2);

/// A session.
pub(crate) struct Session {
    id: SessionId,
    place: Place,
    shared: Arc<Shared>,
    client: ClientHandle,
    toolbox: Toolbox,
    servers: Arc<Servers>,
    // None once the session is closed.
    lease: Mutex<Option<Arc<Box<dyn SessionLease>>>>,
    choice: Mutex<Choice>,
    // What the project and the user want models to know, as it was last read.
    instructions: Mutex<Arc<Instructions>>,
    // Owned by the turn that runs.
    talk: tokio::sync::Mutex<Talk>,
    prompts: Semaphore,
    closed: CancelSignal,
    // What the user is told with the next turn.
    notes: Mutex<Notes>,
}

/// What the user has chosen for a session.
#[derive(Clone)]
pub(crate) struct Choice {
    pub(crate) mode: Mode,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) thinking: Thinking,
    pub(crate) title: Option<String>,
}

/// The conversation of a session, and what it took.
#[derive(Default)]
pub(crate) struct Talk {
    pub(crate) messages: Vec<Message>,
    /// The number of the turn that runs, or of the last one.
    pub(crate) turn: u64,
    pub(crate) last_usage: Option<Usage>,
    /// How far estimates of tokens are off.
    pub(crate) gauge: Gauge,
    total: Usage,
    cost: Option<f64>,
    unsaved: Vec<Record>,
    // What is being saved beside the turn.
    saving: Option<JoinHandle<()>>,
}

impl Talk {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: Message) {
        self.unsaved.push(Record::Message(message.clone()));
        self.messages.push(message);
    }

    /// Puts a shorter conversation in place of the one there is.
    pub(crate) fn replace(&mut self, messages: Vec<Message>) {
        self.unsaved.push(Record::Compacted(messages.clone()));
        self.messages = messages;
        self.last_usage = None;
    }

    /// Counts what a request took.
    pub(crate) fn used(&mut self, usage: &Usage, price: Option<&Price>) {
        self.last_usage = Some(*usage);
        self.total.input += usage.input;
        self.total.output += usage.output;
        self.total.cache_read += usage.cache_read;
        self.total.cache_write += usage.cache_write;
        self.total.thought += usage.thought;
        if let Some(price) = price {
            *self.cost.get_or_insert(0.0) += cost(usage, price);
        }
    }

    /// Waits until what was given to be saved is.
    pub(crate) async fn saved(&mut self) {
        if let Some(saving) = &mut self.saving {
            // A task that ended early has said why.
            saving.await.unwrap_or_default();
            self.saving = None;
        }
    }

    /// Returns what the session has cost, as a client is told it.
    pub(crate) fn cost_told(&self) -> Option<Cost> {
        self.cost.map(|amount| Cost::new(amount, "USD"))
    }
}

impl Session {
    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    pub(crate) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Returns how many turns there have been, once none is going on.
    pub(crate) async fn turns(&self) -> u64 {
        self.talk.lock().await.turn
    }

    pub(crate) fn choice(&self) -> Choice {
        self.choice_mut().clone()
    }

    fn choice_mut(&self) -> MutexGuard<'_, Choice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log(&self, line: &str) {
        self.shared.settings.log.line(format!("session {}: {}", self.id.0, line.trim_end()));
    }

    /// Returns the tools that a model is offered in a mode.
    pub(crate) fn tools(&self, mode: Mode) -> Arc<[ToolSpec]> {
        self.toolbox.specs(mode)
    }

    /// Returns what the model is told first, and the tools that it is offered.
    pub(crate) fn briefing(&self, choice: &Choice) -> (Arc<str>, Arc<[ToolSpec]>) {
        let instructions = self.instructions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let tools = self.tools(choice.mode);
        (opening::system_prompt(self, choice, &tools, &instructions).into(), tools)
    }

    /// Reads what the project wants models to know; if that takes too long, what is known holds on.
    async fn read_instructions(&self) {
        match timeout(INSTRUCTIONS, opening::instructions(self)).await {
            Ok(read) => *self.instructions.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(read),
            Err(_) => self.log("the project's instructions could not be read in time"),
        }
    }

    /// Does something with what the client can choose, and what is chosen.
    pub(crate) fn choices<T>(&self, with: impl FnOnce(Choices<'_>) -> T) -> T {
        let Choice { mode, model, thinking, .. } = self.choice();
        let models = self.shared.offered();
        let widest = self.shared.settings.widest;
        with(Choices { mode, widest, model: model.info(), models: &models, thinking })
    }

    /// Changes what is chosen, and tells the client.
    ///
    /// # Errors
    /// Returns why the model cannot be used.
    pub(crate) async fn choose(&self, change: Change) -> Result<(), Failure> {
        match &change {
            Change::Mode(mode) => {
                self.choice_mut().mode = *mode;
                self.toolbox.permissions().set_mode(*mode);
            }
            Change::Model(name) => {
                let model = self.shared.model(name).map_err(opening::refused)?;
                self.choice_mut().model = model;
            }
            Change::Thinking(thinking) => self.choice_mut().thinking = *thinking,
        }
        let choice = self.choice();
        self.log(&format!("mode {}, model {}", choice.mode.id(), choice.model.info().name));
        let Choice { mode, model, thinking, .. } = choice;
        let model = model.info().name.clone();
        let saved = self.set_meta(move |meta| {
            (meta.mode, meta.model, meta.thinking) = (mode, Some(model), thinking);
        });
        if let Err(error) = saved.await {
            self.log(&format!("what was chosen could not be saved: {error}"));
        }
        for update in self.choices(|choices| choices.updates(&change)) {
            self.tell(update).await;
        }
        Ok(())
    }

    /// Tells the client something that is not part of a turn. A client that is gone, or does not want it, need not know.
    pub(crate) async fn tell(&self, update: SessionUpdate) {
        if let Err(error) = self.client.update(self.id.clone(), update).await {
            self.log(&format!("the client was not told: {error}"));
        }
    }

    /// Shows the client what was, up to its end or the client's.
    pub(crate) async fn replay(&self, history: Vec<SessionUpdate>) {
        for update in history {
            if let Err(CallError::Closed) = self.client.update(self.id.clone(), update).await {
                return;
            }
        }
    }

    /// Answers a prompt. Prompts of one session are answered one after the other.
    ///
    /// # Errors
    /// Returns why there is no turn, or why it could not go on or be saved.
    pub(crate) async fn prompt(
        &self,
        prompt: Vec<ContentBlock>,
        signal: &CancelSignal,
    ) -> Result<PromptResponse, Failure> {
        let Ok(_place) = self.prompts.try_acquire() else {
            return Err(Failure::Busy { limit: MAX_WAITING_PROMPTS as u64 });
        };
        let halt = Halt { signal, closed: &self.closed, client: &self.client };
        let Some(mut talk) = halt.or(self.talk.lock()).await else {
            return Ok(PromptResponse::new(StopReason::Cancelled));
        };
        if self.closed.is_fired() {
            return Err(Failure::SessionNotFound { session_id: self.id.clone() });
        }
        talk.turn += 1;
        // Before anything bears its number: a turn that is cut off must not have it again.
        let turn = talk.turn;
        let numbered = halt.or(self.set_meta(move |meta| meta.turns = turn)).await;
        if let Some(Err(error)) = &numbered {
            self.log(&format!("the beginning of the turn could not be saved: {error}"));
        }
        let reporter = Reporter::new(self.client.clone(), self.id.clone(), talk.turn);
        for block in &prompt {
            let chunk =
                ContentChunk::new(block.clone()).message_id(MessageId::new(format!("turn{}-0", talk.turn)));
            reporter.keep(SessionUpdate::UserMessageChunk(chunk));
        }
        let ended = match numbered {
            Some(_) => self.turn(&mut talk, &reporter, &halt, prompt).await,
            None => Ok(End::Cancelled),
        };
        self.finish(&mut talk, &reporter, ended).await
    }

    async fn turn(
        &self,
        talk: &mut Talk,
        reporter: &Reporter,
        halt: &Halt<'_>,
        prompt: Vec<ContentBlock>,
    ) -> Result<End, Failure> {
        let prompt = match slash::parse(&prompt) {
            Some(command) => match commands::run(self, talk, reporter, halt, command).await {
                commands::Done::Over(end) => return Ok(end),
                commands::Done::Prompt(prompt) => prompt,
            },
            None => prompt,
        };
        if self.choice().title.is_none()
            && let Some(title) = prompting::title(&prompt)
        {
            self.choice_mut().title = Some(title.clone());
            let info = SessionInfoUpdate::new().title(title);
            if halt.or(self.tell(SessionUpdate::SessionInfoUpdate(info))).await.is_none() {
                return Ok(End::Cancelled);
            }
        }
        // What is linked may be at one of them.
        if halt.or(self.meet_servers(reporter, talk.turn)).await.is_none() {
            return Ok(End::Cancelled);
        }
        let model = self.choice().model;
        if self.shared.may_use(model.info()).is_ok() && halt.or(model.learn()).await.is_none() {
            return Ok(End::Cancelled);
        }
        let reading = Reading {
            cwd: self.toolbox.runtimes().cwd(),
            images: model.info().images,
            caps: Caps::of_window(model.info().window),
        };
        let linked = self.toolbox.linked(Calling { reporter: reporter.clone(), turn: talk.turn });
        let read = match halt.or(prompting::read(&prompt, &linked, reading)).await {
            Some(read) if !linked.is_cancelled() => read?,
            _ => return Ok(End::Cancelled),
        };
        for note in &read.notes {
            self.log(note);
        }
        for shown in read.shown {
            self.toolbox.saw(&shown.path, shown.text);
        }
        let prepared = async {
            self.tell_notes(reporter, talk.turn).await;
            // The offline model does what it is told by the user alone.
            if model.info().name != OFFLINE {
                self.read_instructions().await;
            }
        };
        if halt.or(prepared).await.is_none() {
            return Ok(End::Cancelled);
        }
        Ok(turn::run(self, talk, reporter, halt, read.parts).await)
    }

    /// Cleans up after a turn, saves it, and says how it ended.
    async fn finish(
        &self,
        talk: &mut Talk,
        reporter: &Reporter,
        ended: Result<End, Failure>,
    ) -> Result<PromptResponse, Failure> {
        let cancelled = matches!(ended, Ok(End::Cancelled));
        // Beside each other: a client that does not read must not keep commands alive.
        let commands = async {
            match cancelled {
                true => self.toolbox.end_turn(talk.turn).await,
                false => self.toolbox.clean_up().await,
            }
        };
        let clean = async { tokio::join!(commands, reporter.fail_open()) };
        if timeout(CLEAN_UP, clean).await.is_err() {
            self.log("cleaning up after the turn took too long; what is left goes on by itself");
        }
        self.toolbox.permissions().end_turn(talk.turn);
        let saved = self.save(talk, reporter, cancelled).await;
        if let Err(error) = &saved {
            self.log(&format!("the turn could not be saved: {error}"));
        }
        let end = ended?;
        self.log(&format!("turn {} ended: {end:?}", talk.turn));
        let reason = match end {
            // That a turn was cancelled is never an error, whatever else went wrong.
            End::Cancelled => return Ok(PromptResponse::new(StopReason::Cancelled)),
            End::Done => StopReason::EndTurn,
            End::Length => StopReason::MaxTokens,
            End::Refused => StopReason::Refusal,
            End::TooManyRequests => StopReason::MaxTurnRequests,
            End::Failed(ReplyFault::Unauthorized(why)) => return Err(opening::auth_required(&why)),
            End::Failed(ReplyFault::TooLong(why) | ReplyFault::Failed(why)) => {
                return Err(Failure::Internal { reason: why });
            }
        };
        saved?;
        Ok(PromptResponse::new(reason))
    }

    /// Ends the session: whatever it runs is stopped. The record stays.
    pub(crate) async fn close(&self) {
        self.closed.fire();
        // The turn that runs was told to stop by whoever closes the session.
        match timeout(Duration::from_secs(3), self.talk.lock()).await {
            Err(_) => self.log("a turn goes on although the session is closed"),
            Ok(mut talk) => {
                // A turn that was cancelled is answered before a slow disk has it.
                if timeout(SAVING, talk.saved()).await.is_err() {
                    self.log("the session is closed before all of it is saved");
                }
            }
        }
        self.toolbox.end().await;
        self.servers.shutdown().await;
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Whoever saves at this moment gives it back when that is done.
        if let Some(lease) = lease.and_then(Arc::into_inner)
            && let Err(error) = lease.close().await
        {
            self.log(&format!("the end of the session could not be saved: {error}"));
        }
        self.log("closed");
    }

    fn lease(&self) -> Result<Arc<Box<dyn SessionLease>>, StoreError> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lease.ok_or(StoreError::Stopped)
    }

    async fn set_meta(&self, change: impl FnOnce(&mut Meta) + Send + 'static) -> Result<(), StoreError> {
        self.lease()?.set_meta(Box::new(change)).await.map(drop)
    }
}

/// Returns what a request cost, in US dollars.
fn cost(usage: &Usage, price: &Price) -> f64 {
    let plain = usage.input.saturating_sub(usage.cache_read + usage.cache_write);
    let parts = [
        (plain, price.input),
        (usage.cache_read, price.cache_read),
        (usage.cache_write, price.cache_write),
        (usage.output, price.output),
    ];
    #[expect(clippy::cast_precision_loss, reason = "no reply has so many tokens that a cent would be lost")]
    let total: f64 = parts.into_iter().map(|(tokens, price)| tokens as f64 * price).sum();
    total / 1_000_000.0
}

impl Place {
    /// Returns the directories of the session, the first of which relative paths start from.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.cwd).chain(&self.additional)
    }
}
