//! Authorization of operations: the policy, the mode, and questions to the client's user.
//!
//! A client that authorizes operations itself (see [`ClientCapabilityGate::authorizes_operations`]) judges and records
//! those that it serves: nothing is asked or recorded twice. For all others the user's rules decide first, and the
//! mode's preset where no rule matches; undecided operations are put to the user through the client, and every
//! operation is recorded in the audit log.
//!
//! [`ClientCapabilityGate::authorizes_operations`]: bowline_protocol::capabilities::ClientCapabilityGate::authorizes_operations

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bowline_access::approvals::{
    ApprovalError, ApprovalRequest, Approvals, OperationApproval, PolicyFallback, PolicySources,
};
use bowline_access::audit::AuditLog;
use bowline_access::policy::{PolicyError, PolicyFile};
use bowline_conversation::conversation::ToolUse;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry, AuditSubject, DecisionSource};
use bowline_policy::danger::Danger;
use bowline_policy::grants::GrantHolder;
use bowline_policy::mode::AgentMode;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::policy::{Effect, PolicyDecision, Preset};
use bowline_policy::question::{AnswerChoice, Question, QuestionItem};
use bowline_storage::clock::now;
use bowline_task::spawn_blocking;
use bowline_text::hash::ContentHash;
use bowline_workspace::workspace::Workspace;
use tokio::sync::OnceCell;

mod authorization;
mod prompter;

use crate::runtime::{Backend, SessionRuntime};
use crate::tools::CallContext;
use authorization::AuthorizationLog;
pub(crate) use authorization::{Authorization, OperationOutcome};
use prompter::{PermissionPrompter, SpecialAnswer};

/// The most session answers kept for operations that no rule can describe; beyond it the oldest approval is asked about
/// again.
const MAX_SESSION_ANSWERS: usize = 256;

/// The permissions checked before every operation of a session. Clones share their state.
#[derive(Clone)]
pub struct Permissions {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: SessionRuntime,
    prompter: Arc<PermissionPrompter>,
    approvals: OnceCell<Approvals>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    // The mode decides what needs no question.
    mode: AgentMode,
    // The user's answers for the session about operations that have only a description, oldest first. Invariant: at
    // most `MAX_SESSION_ANSWERS`, each description once.
    session_answers: VecDeque<SessionAnswer>,
    // The stricter preset that was last reported in the log.
    logged_limit: Option<Preset>,
}

/// An answer for the session about an operation that has only a description.
struct SessionAnswer {
    description: String,
    // The tool definition that the user was asked about. A server can change its tools at any moment.
    definition: Option<ContentHash>,
    choice: AnswerChoice,
}

impl std::fmt::Debug for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permissions").finish_non_exhaustive()
    }
}

/// An operation to authorize.
#[derive(Debug, Clone)]
pub(crate) struct OperationRequest {
    /// Its action in the audit log.
    pub(crate) action: AuditAction,
    /// Its title for a person.
    pub(crate) title: String,
    /// The operations that the policy judges and a person is shown. Each has to be allowed.
    // Invariant: at least one.
    pub(crate) items: Vec<QuestionItem>,
}

impl OperationRequest {
    fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.items.iter().map(|item| &item.operation)
    }

    /// Returns whether it changes or runs something.
    fn is_mutating(&self) -> bool {
        self.operations().any(|operation| operation.kind != OperationKind::Read)
    }
}

/// Why an operation may not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The turn is cancelled.
    Cancelled,
    /// It is denied.
    Denied {
        /// The message for the model.
        model_message: String,
        /// An additional message for the user.
        user_message: Option<String>,
    },
}

impl Permissions {
    /// Returns the permissions of a session. Resources are opened when they are needed.
    #[must_use]
    pub fn new(runtime: SessionRuntime) -> Self {
        let prompter = Arc::new(PermissionPrompter::new(&runtime));
        let inner = Inner { runtime, prompter, approvals: OnceCell::new(), state: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Changes the mode, which applies where no rule matches. Pending questions are judged again.
    pub fn set_mode(&self, mode: AgentMode) {
        let changed = std::mem::replace(&mut self.state().mode, mode) != mode;
        if let Some(approvals) = self.inner.approvals.get().filter(|_| changed) {
            approvals.set_fallback(PolicyFallback::AtMost(mode.preset()));
        }
    }

    /// Returns the current mode.
    #[must_use]
    pub fn mode(&self) -> AgentMode {
        self.state().mode
    }

    /// Returns the preset of the user's rules if it differs from the mode's: the stricter of the two applies.
    pub async fn stricter_preset(&self) -> Option<Preset> {
        let approvals = self.approvals().await.ok()?.clone();
        let preset =
            spawn_blocking(move || approvals.policy().map(|policy| policy.preset)).await.ok()?.ok()?;
        (preset != self.mode().preset()).then_some(preset)
    }

    /// Ends a turn: its grants expire.
    pub fn end_turn(&self, turn: u64) {
        if let Some(approvals) = self.inner.approvals.get() {
            approvals.end_turn(&self.holder(Some(turn)));
        }
    }

    /// Ends the session, and makes its log durable.
    pub async fn end_session(&self) {
        let Some(approvals) = self.inner.approvals.get().cloned() else { return };
        approvals.end_session(&self.holder(None).session);
        let synced = spawn_blocking(move || approvals.audit().sync());
        if let Ok(Err(error)) = synced.await {
            self.log_line(&error.to_string());
        }
    }

    /// Returns the policy and the audit log, opened on first use.
    ///
    /// # Errors
    /// Fails if they cannot be used. No operation may be done then.
    pub async fn approvals(&self) -> Result<&Approvals, String> {
        let open = || async {
            let names = self.inner.runtime.root_names().await;
            let roots = self.inner.runtime.roots().await.ok().cloned();
            let (options, prompter) = (self.inner.runtime.options().clone(), self.inner.prompter.clone());
            let fallback = PolicyFallback::AtMost(self.mode().preset());
            let opened = spawn_blocking(move || {
                let directories: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
                let file = PolicyFile::open(&options.paths.policy_file, &directories)
                    .map_err(|error| format!("the user's rules cannot be used: {error}"))?;
                let directory = match &roots {
                    Some(roots) => Workspace::journal_directory(&options.paths.state_dir, roots),
                    None => Workspace::remote_directory(&options.paths.state_dir, &names),
                };
                let (log, anchor) = AuditLog::locate(&directory, &options.paths.anchors_dir);
                let log = AuditLog::open(&log, &anchor, Default::default())
                    .map_err(|error| format!("the audit log cannot be used: {error}"))?
                    .with_principal(options.principal.clone());
                let rules = PolicySources { file: Some(file), fallback, rules: Vec::new(), roots: names };
                Ok(Approvals::new(rules, log, prompter))
            });
            let opened = opened.await.map_err(|error| error.to_string()).and_then(|opened| opened);
            opened.inspect_err(|error| self.log_line(error))
        };
        self.inner.approvals.get_or_try_init(open).await
    }

    /// Authorizes an operation by rules alone, for reads without a call of the model. The user is not asked.
    pub(crate) async fn authorize_by_rules(
        &self,
        backend: Backend,
        turn: Option<u64>,
        request: &OperationRequest,
    ) -> Result<RulesOutcome, Denial> {
        if self.is_decided_by_client(backend) {
            return Ok(RulesOutcome::Allowed(self.client_authorization()));
        }
        let holder = self.holder(turn);
        let mut authorization = self.new_authorization(&holder, request).await?;
        let approvals = self.approvals().await.map_err(rules_unusable)?;
        let ruling = self.judge_operations(approvals, &holder, request).await?;
        match ruling.effect {
            Effect::Allow => {
                authorization.set_decider(OperationApproval::from_ruling(&ruling).decision_source());
                Ok(RulesOutcome::Allowed(authorization))
            }
            Effect::Ask => Ok(RulesOutcome::Undecided(authorization)),
            Effect::Deny => {
                Err(authorization.deny("the user's rules or settings deny it".to_owned(), None).await)
            }
        }
    }

    /// Refuses an operation that no permission makes possible, and records the refusal.
    pub(crate) async fn record_refusal(
        &self,
        cx: &CallContext,
        request: &OperationRequest,
        message: String,
    ) -> Denial {
        match self.new_authorization(&self.holder(Some(cx.turn)), request).await {
            Ok(mut authorization) => authorization.deny(message, None).await,
            Err(denial) => denial,
        }
    }

    /// Returns whether the client judges and records the operations of a backend.
    fn is_decided_by_client(&self, backend: Backend) -> bool {
        backend == Backend::Client && self.inner.runtime.client().gate().authorizes_operations()
    }

    /// Returns the authorization of an operation that the client judges and records itself.
    fn client_authorization(&self) -> Authorization {
        Authorization { permissions: self.clone(), log: None, is_exact: false }
    }

    async fn new_authorization(
        &self,
        holder: &GrantHolder,
        request: &OperationRequest,
    ) -> Result<Authorization, Denial> {
        let approvals = self.approvals().await.map_err(rules_unusable)?.clone();
        let mut entry = AuditEntry::new(now(), request.action.clone());
        (entry.session, entry.turn) = (Some(holder.session.clone()), holder.turn);
        if let Some(operation) = request.operations().next() {
            entry.subject = AuditSubject::from(&operation.target);
        }
        let log = Some(Box::new(AuthorizationLog { approvals, entry, started: Instant::now() }));
        Ok(Authorization { permissions: self.clone(), log, is_exact: false })
    }

    /// Authorizes an operation of a backend.
    pub(crate) async fn authorize(
        &self,
        backend: Backend,
        call: &ToolUse,
        cx: &CallContext,
        request: OperationRequest,
    ) -> Result<Authorization, Denial> {
        if self.is_decided_by_client(backend) {
            let mut authorization = self.client_authorization();
            if request.is_mutating() {
                authorization.check_mode_allows_changes().await?;
            }
            return Ok(authorization);
        }
        self.authorize_with_definition(call, cx, request, None).await
    }

    /// Authorizes an operation that the client does not decide. An approval of an MCP server's tool holds for this
    /// definition of the tool.
    pub(crate) async fn authorize_with_definition(
        &self,
        call: &ToolUse,
        cx: &CallContext,
        request: OperationRequest,
        definition: Option<ContentHash>,
    ) -> Result<Authorization, Denial> {
        let holder = self.holder(Some(cx.turn));
        let mut authorization = self.new_authorization(&holder, &request).await?;
        if let Some(log) = &mut authorization.log {
            log.entry.call = cx.reporter.wire_id(&call.id).ok().map(|id| id.0.to_string());
        }
        if request.is_mutating() {
            authorization.check_mode_allows_changes().await?;
        }
        let approvals = self.approvals().await.map_err(rules_unusable)?.clone();
        let ruling = self.judge_operations(&approvals, &holder, &request).await?;
        if ruling.effect == Effect::Allow {
            authorization.set_decider(OperationApproval::from_ruling(&ruling).decision_source());
            return Ok(authorization);
        }
        // An earlier session answer counts only where the rules still ask: a later denial wins.
        let mut dangers = Vec::new();
        if ruling.effect == Effect::Ask
            && let Some((choice, answered_definition)) = self.find_session_answer(&request)
        {
            authorization.set_decider(DecisionSource::Client);
            match choice {
                AnswerChoice::Allow if answered_definition == definition => return Ok(authorization),
                AnswerChoice::Allow => dangers.push(Danger::serious(
                    "its server changed the description or the schema of this tool since you allowed it for the session",
                )),
                AnswerChoice::Deny => {
                    return Err(authorization
                        .deny("the user said no to this for the whole session".to_owned(), None)
                        .await);
                }
            }
        }
        let question = Question {
            call: Some(call.id.clone()),
            dangers,
            ..Question::new(holder, request.title.clone(), request.items.clone())
        };
        let approval_request = ApprovalRequest { question, resolved_operations: Vec::new() };
        let guard = self.inner.prompter.register_call(&call.id, &cx.reporter);
        let approval = approvals.authorize(&approval_request).await;
        let special = guard.special_answer();
        let by_person = |source| match (source, guard.answered_by()) {
            (DecisionSource::Person, Some(name)) => DecisionSource::Principal(name),
            (source, _) => source,
        };
        if let Some(SpecialAnswer::ForSession(choice)) = special
            && matches!(
                (choice, &approval),
                (AnswerChoice::Allow, Ok(_)) | (AnswerChoice::Deny, Err(ApprovalError::Person { .. }))
            )
        {
            self.store_session_answer(&request, choice, definition);
        }
        match (approval, special) {
            (Ok(approval), _) => {
                authorization.is_exact = approval.is_bound_to_operation();
                authorization.set_decider(by_person(approval.decision_source()));
                Ok(authorization)
            }
            (Err(_), Some(SpecialAnswer::Cancelled)) => {
                authorization
                    .record(AuditDecision::Cancelled, Some("the turn was cancelled".to_owned()))
                    .await
                    .ok();
                Err(Denial::Cancelled)
            }
            (Err(error), special) => {
                authorization.set_decider(by_person(error.decision_source()));
                let (model_message, user_message) = match special {
                    Some(SpecialAnswer::NotAsked(reason)) => (reason, None),
                    _ => describe_refusal(&error),
                };
                Err(authorization.deny(model_message, user_message).await)
            }
        }
    }

    /// Returns the strictest ruling of the policy, from a thread that may block on the disk.
    async fn judge_operations(
        &self,
        approvals: &Approvals,
        holder: &GrantHolder,
        request: &OperationRequest,
    ) -> Result<PolicyDecision, Denial> {
        let (approvals, holder) = (approvals.clone(), holder.clone());
        let operations: Vec<Operation> = request.operations().cloned().collect();
        let judged = spawn_blocking(move || {
            let mut strictest: Option<PolicyDecision> = None;
            for operation in &operations {
                let ruling = approvals.judge(&holder, operation)?;
                if strictest.as_ref().is_none_or(|known| ruling.effect > known.effect) {
                    strictest = Some(ruling);
                }
            }
            Ok::<_, PolicyError>((strictest, approvals.policy()?.preset))
        });
        let judged = judged.await.map_err(|error| rules_unusable(error.to_string()))?;
        let (ruling, preset) =
            judged.map_err(|error| rules_unusable(format!("the user's rules cannot be used: {error}")))?;
        self.log_stricter_preset(preset);
        ruling.ok_or_else(|| rules_unusable("there is nothing to judge".to_owned()))
    }

    /// Returns the user's answer for the session, and the tool definition it was about.
    fn find_session_answer(&self, request: &OperationRequest) -> Option<(AnswerChoice, Option<ContentHash>)> {
        let text = described_operation(request)?;
        let state = self.state();
        let answer = state.session_answers.iter().find(|answer| answer.description == text)?;
        Some((answer.choice, answer.definition))
    }

    fn store_session_answer(
        &self,
        request: &OperationRequest,
        choice: AnswerChoice,
        definition: Option<ContentHash>,
    ) {
        if let Some(text) = described_operation(request) {
            let answers = &mut self.state().session_answers;
            answers.retain(|answer| answer.description != text);
            if answers.len() >= MAX_SESSION_ANSWERS {
                // Denials are evicted last.
                let oldest =
                    answers.iter().position(|answer| answer.choice == AnswerChoice::Allow).unwrap_or(0);
                answers.remove(oldest);
            }
            answers.push_back(SessionAnswer { description: text.to_owned(), definition, choice });
        }
    }

    /// Logs that the user's rules are stricter than the mode, once per change.
    fn log_stricter_preset(&self, preset: Preset) {
        let mut state = self.state();
        let limit = (preset != state.mode.preset()).then_some(preset);
        let has_changed = std::mem::replace(&mut state.logged_limit, limit) != limit;
        let mode = state.mode;
        drop(state);
        if let Some(preset) = limit.filter(|_| has_changed) {
            self.log_line(&format!(
                "the user's rules state the preset {preset}, which is stricter than the mode {} and holds in its place",
                mode.id()
            ));
        }
    }

    fn holder(&self, turn: Option<u64>) -> GrantHolder {
        GrantHolder { session: self.inner.runtime.session().0.to_string(), turn }
    }

    fn log_line(&self, line: &str) {
        self.inner.runtime.options().log.write_line(line);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the description of an operation that no rule can describe.
fn described_operation(request: &OperationRequest) -> Option<&str> {
    match request.items.as_slice() {
        [QuestionItem { operation: Operation { target: OperationTarget::Described(text), .. }, .. }] => {
            Some(text)
        }
        _ => None,
    }
}

/// The outcome of the rules alone.
pub(crate) enum RulesOutcome {
    /// The operation is allowed.
    Allowed(Authorization),
    /// The user has to decide.
    Undecided(Authorization),
}

/// Returns the messages of a refusal for the model and for the user.
fn describe_refusal(error: &ApprovalError) -> (String, Option<String>) {
    match error {
        ApprovalError::Person { reason: None, .. } => {
            ("the user said no; do something else, or ask what to do instead".to_owned(), None)
        }
        ApprovalError::Rules { agent_message, reason, .. } if error.is_denied_by_rule() => {
            ((*agent_message).to_owned(), Some(reason.clone()))
        }
        ApprovalError::Rules { agent_message, reason, .. } => (format!("{agent_message} ({reason})"), None),
        ApprovalError::PolicyUnusable(reason) => {
            ("the user's rules cannot be used".to_owned(), Some(reason.clone()))
        }
        error => (error.to_string(), None),
    }
}

/// Returns the denial for a policy or audit log that cannot be used.
fn rules_unusable(reason: String) -> Denial {
    let message =
        "nothing was done: the user's rules or the audit log cannot be used, and the user has to see to that";
    Denial::Denied { model_message: message.to_owned(), user_message: Some(reason) }
}
