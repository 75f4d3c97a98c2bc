//! Asking the client's user before something is done.
//!
//! A client that decides by itself (see [`ClientGate::decides`]) judges and records what it serves: nothing is asked and
//! recorded twice. For everything else the user's own rules decide first, and what the mode says where none matches; what
//! they leave open is asked through the client, and everything is recorded in the audit log.
//!
//! [`ClientGate::decides`]: bowline_state::capabilities::ClientGate::decides

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bowline_state::audit::{Action, By, Decision, Entry, Subject};
use bowline_state::changes::ContentHash;
use bowline_state::conversation::ToolUse;
use bowline_state::grants::Holder;
use bowline_state::mode::Mode;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::policy::{Effect, Preset, Ruling};
use bowline_state::question::{Choice, Item, Occasion};
use bowline_workspace::approvals::{Approvals, Cleared, Fallback, Refused, Request, Rulebook};
use bowline_workspace::audit::AuditLog;
use bowline_workspace::clock::now;
use bowline_workspace::policy::{PolicyError, PolicyFile};
use bowline_workspace::workspace::Workspace;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

mod asking;
mod pass;

use crate::runtime::{Runtimes, Server};
use crate::tools::Calling;
use asking::{Editor, Special};
use pass::PassLog;
pub(crate) use pass::{Became, Pass};

/// So many answers are kept for the session that no rule can be made of; then what was allowed first is asked about again.
const MAX_KEPT: usize = 256;

/// What stands before every operation of a session. Clones are the same one.
#[derive(Clone)]
pub struct Permissions {
    inner: Arc<Inner>,
}

struct Inner {
    runtimes: Runtimes,
    editor: Arc<Editor>,
    approvals: OnceCell<Approvals>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    // How much may be done without asking.
    mode: Mode,
    // What the user said for the session of something that only has a description, the first first. Invariant: at most
    // `MAX_KEPT`, each description once.
    described: VecDeque<KeptAnswer>,
    // The preset that the log says holds the mode back.
    limit: Option<Preset>,
}

/// An answer for the session about something that only has a description.
struct KeptAnswer {
    description: String,
    // The definition of the tool that the user was asked about. A server can change its tools at any moment.
    definition: Option<ContentHash>,
    choice: Choice,
}

impl std::fmt::Debug for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permissions").finish_non_exhaustive()
    }
}

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    /// What the log calls it.
    pub(crate) action: Action,
    /// What a person is told it is.
    pub(crate) title: String,
    /// What rules judge and a person is shown.
    pub(crate) item: Item,
}

/// Why something may not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum No {
    /// The turn is cancelled.
    Cancelled,
    /// It is denied.
    Denied {
        /// What the model is told.
        told: String,
        /// What the user is told beside it.
        why: Option<String>,
    },
}

impl Permissions {
    /// Returns what stands before the operations of a session. Nothing is opened before it is needed.
    #[must_use]
    pub fn new(runtimes: Runtimes) -> Self {
        let editor = Arc::new(Editor::new(&runtimes));
        let inner = Inner { runtimes, editor, approvals: OnceCell::new(), state: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Changes what holds where no rule matches. Questions that wait are judged again.
    pub fn set_mode(&self, mode: Mode) {
        let changed = std::mem::replace(&mut self.state().mode, mode) != mode;
        if let Some(approvals) = self.inner.approvals.get().filter(|_| changed) {
            approvals.set_fallback(Fallback::Within(mode.preset()));
        }
    }

    /// Returns how much may be done without asking, as it is at this moment.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.state().mode
    }

    /// Returns the preset of the user's rules that holds in place of the mode's, if there is one: the stricter of the two
    /// does.
    pub async fn limit(&self) -> Option<Preset> {
        let approvals = self.approvals().await.ok()?.clone();
        let preset =
            spawn_blocking(move || approvals.policy().map(|policy| policy.preset)).await.ok()?.ok()?;
        (preset != self.mode().preset()).then_some(preset)
    }

    /// Ends a turn: its rules are void.
    pub fn end_turn(&self, turn: u64) {
        if let Some(approvals) = self.inner.approvals.get() {
            approvals.end_turn(&self.holder(Some(turn)));
        }
    }

    /// Ends the session, and makes its log durable.
    pub async fn end(&self) {
        let Some(approvals) = self.inner.approvals.get().cloned() else { return };
        approvals.end_session(&self.holder(None).session);
        let synced = spawn_blocking(move || approvals.audit().sync());
        if let Ok(Err(error)) = synced.await {
            self.log(&error.to_string());
        }
    }

    /// Returns the rules and the log, opened at the first use.
    ///
    /// # Errors
    /// Returns why they cannot be used. Then nothing may be done.
    pub async fn approvals(&self) -> Result<&Approvals, String> {
        let open = || async {
            let names = self.inner.runtimes.root_names().await;
            let roots = self.inner.runtimes.roots().await.ok().cloned();
            let (settings, person) = (self.inner.runtimes.settings().clone(), self.inner.editor.clone());
            let fallback = Fallback::Within(self.mode().preset());
            let opened = spawn_blocking(move || {
                let directories: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
                let file = PolicyFile::open(&settings.places.policy, &directories)
                    .map_err(|why| format!("the user's rules cannot be used: {why}"))?;
                let place = match &roots {
                    Some(roots) => Workspace::journal_directory(&settings.places.state, roots),
                    None => Workspace::remote_directory(&settings.places.state, &names),
                };
                let (log, anchor) = AuditLog::locate(&place, &settings.places.anchors);
                let log = AuditLog::open(&log, &anchor, Default::default())
                    .map_err(|why| format!("the audit log cannot be used: {why}"))?;
                let rules = Rulebook { file: Some(file), fallback, rules: Vec::new(), roots: names };
                Ok(Approvals::new(rules, log, person))
            });
            let opened = opened.await.map_err(|ended| ended.to_string()).and_then(|opened| opened);
            opened.inspect_err(|why| self.log(why))
        };
        self.inner.approvals.get_or_try_init(open).await
    }

    /// Says what rules alone come to, for what no call of a model's does. Nobody is asked.
    pub(crate) async fn by_rules(&self, by: Server, turn: Option<u64>, wish: &Wish) -> Result<ByRules, No> {
        if self.is_decided_by_client(by) {
            return Ok(ByRules::Allowed(self.pass_to_client()));
        }
        let holder = self.holder(turn);
        let mut pass = self.pass(&holder, wish).await?;
        let approvals = self.approvals().await.map_err(unusable)?;
        let ruling = self.judge(approvals, &holder, &wish.item.operation).await?;
        match ruling.effect {
            Effect::Allow => {
                pass.set_by(Cleared::by_rules(&ruling).by());
                Ok(ByRules::Allowed(pass))
            }
            Effect::Ask => Ok(ByRules::Open(pass)),
            Effect::Deny => Err(pass.denied("the user's rules or settings deny it".to_owned(), None).await),
        }
    }

    /// Refuses what cannot be done whatever anybody says, and records that.
    pub(crate) async fn refuse(&self, cx: &Calling, wish: &Wish, told: String) -> No {
        match self.pass(&self.holder(Some(cx.turn)), wish).await {
            Ok(mut pass) => pass.denied(told, None).await,
            Err(no) => no,
        }
    }

    /// Says whether the client judges and records what a server does.
    fn is_decided_by_client(&self, by: Server) -> bool {
        by == Server::Client && self.inner.runtimes.client().gate().decides()
    }

    /// Returns the pass of an operation that the client judges and records when it is asked for it.
    fn pass_to_client(&self) -> Pass {
        Pass { permissions: self.clone(), log: None, is_bound: false }
    }

    async fn pass(&self, holder: &Holder, wish: &Wish) -> Result<Pass, No> {
        let approvals = self.approvals().await.map_err(unusable)?.clone();
        let mut entry = Entry::new(now(), wish.action.clone());
        (entry.session, entry.turn) = (Some(holder.session.clone()), holder.turn);
        entry.subject = Subject::from(&wish.item.operation.target);
        let log = Some(Box::new(PassLog { approvals, entry, started: Instant::now() }));
        Ok(Pass { permissions: self.clone(), log, is_bound: false })
    }

    /// Lets an operation pass that a server is to do, or says why not.
    pub(crate) async fn clear(
        &self,
        by: Server,
        call: &ToolUse,
        cx: &Calling,
        wish: Wish,
    ) -> Result<Pass, No> {
        if self.is_decided_by_client(by) {
            let mut pass = self.pass_to_client();
            if wish.item.operation.kind != Kind::Read {
                pass.may_change().await?;
            }
            return Ok(pass);
        }
        self.clear_defined(call, cx, wish, None).await
    }

    /// Lets a tool of an MCP server be called, or says why not. What the user allows holds for this definition of it.
    pub(crate) async fn clear_tool(
        &self,
        call: &ToolUse,
        cx: &Calling,
        wish: Wish,
        definition: ContentHash,
    ) -> Result<Pass, No> {
        self.clear_defined(call, cx, wish, Some(definition)).await
    }

    async fn clear_defined(
        &self,
        call: &ToolUse,
        cx: &Calling,
        wish: Wish,
        definition: Option<ContentHash>,
    ) -> Result<Pass, No> {
        let holder = self.holder(Some(cx.turn));
        let mut pass = self.pass(&holder, &wish).await?;
        if let Some(log) = &mut pass.log {
            log.entry.call = cx.reporter.id(&call.id).ok().map(|id| id.0.to_string());
        }
        let operation = wish.item.operation.clone();
        if operation.kind != Kind::Read {
            pass.may_change().await?;
        }
        let approvals = self.approvals().await.map_err(unusable)?.clone();
        let ruling = self.judge(&approvals, &holder, &operation).await?;
        if ruling.effect == Effect::Allow {
            pass.set_by(Cleared::by_rules(&ruling).by());
            return Ok(pass);
        }
        // What was denied since then stays so.
        let mut warnings = Vec::new();
        if ruling.effect == Effect::Ask
            && let Some((choice, was_definition)) = self.kept_answer(&operation)
        {
            pass.set_by(By::Client);
            match choice {
                Choice::Allow if was_definition == definition => return Ok(pass),
                Choice::Allow => warnings.push(
                    "its server changed the description or the schema of this tool since you allowed it for the session"
                        .to_owned(),
                ),
                Choice::Deny => {
                    return Err(pass
                        .denied("the user said no to this for the whole session".to_owned(), None)
                        .await);
                }
            }
        }
        let request = Request {
            holder,
            call: Some(call.id.clone()),
            agent: None,
            occasion: Occasion::Act,
            title: wish.title,
            items: vec![wish.item],
            warnings,
            offers: Vec::new(),
            deeds: Vec::new(),
        };
        let asking = self.inner.editor.enter(&call.id, &cx.reporter);
        let cleared = approvals.clear(&request).await;
        let special = asking.special();
        if let Some(Special::ForSession(choice)) = special
            && matches!(
                (choice, &cleared),
                (Choice::Allow, Ok(_)) | (Choice::Deny, Err(Refused::Person { .. }))
            )
        {
            self.keep_answer(&operation, choice, definition);
        }
        match (cleared, special) {
            (Ok(cleared), _) => {
                pass.is_bound = cleared.is_bound();
                pass.set_by(cleared.by());
                Ok(pass)
            }
            (Err(_), Some(Special::Cancelled)) => {
                pass.record(Decision::Cancelled, Some("the turn was cancelled".to_owned())).await.ok();
                Err(No::Cancelled)
            }
            (Err(refused), special) => {
                pass.set_by(refused.by());
                let (told, why) = match special {
                    Some(Special::Unable(why)) => (why, None),
                    _ => told(&refused),
                };
                Err(pass.denied(told, why).await)
            }
        }
    }

    /// Returns what the rules come to, where waiting for the disk is allowed.
    async fn judge(
        &self,
        approvals: &Approvals,
        holder: &Holder,
        operation: &Operation,
    ) -> Result<Ruling, No> {
        let (approvals, holder, operation) = (approvals.clone(), holder.clone(), operation.clone());
        let judged = spawn_blocking(move || {
            let ruling = approvals.judge(&holder, &operation)?;
            Ok::<_, PolicyError>((ruling, approvals.policy()?.preset))
        });
        let judged = judged.await.map_err(|ended| unusable(ended.to_string()))?;
        let (ruling, preset) =
            judged.map_err(|why| unusable(format!("the user's rules cannot be used: {why}")))?;
        self.note_limit(preset);
        Ok(ruling)
    }

    /// Returns what the user said for the session, and of which definition.
    fn kept_answer(&self, operation: &Operation) -> Option<(Choice, Option<ContentHash>)> {
        let Target::Described(text) = &operation.target else { return None };
        let state = self.state();
        let kept = state.described.iter().find(|kept| kept.description == *text)?;
        Some((kept.choice, kept.definition))
    }

    fn keep_answer(&self, operation: &Operation, choice: Choice, definition: Option<ContentHash>) {
        if let Target::Described(text) = &operation.target {
            let described = &mut self.state().described;
            described.retain(|kept| kept.description != *text);
            if described.len() >= MAX_KEPT {
                // A no is never what makes room.
                let oldest = described.iter().position(|kept| kept.choice == Choice::Allow).unwrap_or(0);
                described.remove(oldest);
            }
            described.push_back(KeptAnswer { description: text.clone(), definition, choice });
        }
    }

    /// Says in the log that the user's rules hold the mode back, once for each time that they come to.
    fn note_limit(&self, preset: Preset) {
        let mut state = self.state();
        let limit = (preset != state.mode.preset()).then_some(preset);
        let is_news = std::mem::replace(&mut state.limit, limit) != limit;
        let mode = state.mode;
        drop(state);
        if let Some(preset) = limit.filter(|_| is_news) {
            self.log(&format!(
                "the user's rules state the preset {preset}, which is stricter than the mode {} and holds in its place",
                mode.id()
            ));
        }
    }

    fn holder(&self, turn: Option<u64>) -> Holder {
        Holder { session: self.inner.runtimes.session().0.to_string(), turn }
    }

    fn log(&self, line: &str) {
        self.inner.runtimes.settings().log.line(line);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What rules alone come to.
pub(crate) enum ByRules {
    /// It may be done.
    Allowed(Pass),
    /// A person has to say.
    Open(Pass),
}

/// Returns what a model is told of a refusal, and what its user is told beside that.
fn told(refused: &Refused) -> (String, Option<String>) {
    match refused {
        Refused::Person { reason: None, .. } => {
            ("the user said no; do something else, or ask what to do instead".to_owned(), None)
        }
        Refused::Rules { told, text, .. } if refused.is_by_rule() => ((*told).to_owned(), Some(text.clone())),
        Refused::Rules { told, text, .. } => (format!("{told} ({text})"), None),
        Refused::Rulebook(why) => ("the user's rules cannot be used".to_owned(), Some(why.clone())),
        refused => (refused.to_string(), None),
    }
}

/// Returns that nothing may be done, because what decides it cannot be used.
fn unusable(why: String) -> No {
    let told =
        "nothing was done: the user's rules or the audit log cannot be used, and the user has to see to that";
    No::Denied { told: told.to_owned(), why: Some(why) }
}
