//! Approval of operations by rules, grants and the user, recorded in the audit log.
//!
//! A caller describes an agent's operation in an `ApprovalRequest` and awaits `Approvals::authorize`. A rule decides,
//! then a grant for exactly this operation, then the user. Without a matching rule and without a user, the operation is
//! denied.
//!
//! A question is a future: dropping it withdraws the question, and a later answer has no effect. At most
//! `MAX_PENDING_QUESTIONS` are pending at a time. An answer with a lasting lifetime becomes a rule, and all pending
//! questions are evaluated again. The user may also answer with an edited text to write instead.

pub use futures_util::future::BoxFuture;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_policy::audit::AuditEntry;
use bowline_policy::danger::{Danger, find_dangers};
use bowline_policy::grants::{GrantHolder, Grants, ResolvedOperation, UsedGrant};
use bowline_policy::operation::Operation;
use bowline_policy::policy::{
    Effect, Policy, PolicyContext, PolicyDecision, Rule, RuleLifetime, suggest_rules,
};
use bowline_policy::question::{
    AgentOption, AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionId, QuestionItem,
    QuestionReply, QuestionTrigger,
};
use bowline_task::spawn_blocking;
use bowline_text::display::quote;
use bowline_text::time::Timestamp;
use tokio::sync::watch;

use crate::audit::{AuditError, AuditLog, PendingAppend};
use crate::policy::{PolicyError, PolicyFile, RuleScope};
use bowline_storage::clock::now;

mod fallback;
mod outcome;
mod review;
mod unreviewed_list;

pub use fallback::PolicyFallback;
pub use outcome::{
    ApprovalError, DENIED_BY_SETTINGS, NO_APPROVER, NO_APPROVER_FOR_RULE, OperationApproval, describe_ruling,
};
use outcome::{decide_by_ruling, no_approver_error};
use review::is_unreviewed_reason;
pub use review::list_unreviewed;
use unreviewed_list::UnreviewedList;

/// The maximum number of pending questions; further requests are refused as busy.
pub const MAX_PENDING_QUESTIONS: usize = 32;

/// The maximum size of the texts of all pending questions; a single question may exceed it.
pub const MAX_PENDING_QUESTION_BYTES: usize = 256 << 20;

/// The maximum number of executed files that agents may change without the user's review; further changes are asked
/// about.
pub const MAX_UNREVIEWED_FILES: usize = 1000;

/// The maximum number of rules for turns and sessions. The oldest are evicted, except deny rules, which only the user
/// adds.
pub const MAX_TRANSIENT_RULES: usize = 1000;

/// The party that answers questions: a user, through some front end.
pub trait Approver: Send + Sync + 'static {
    /// Asks a question and waits for the answer. Withdrawing the question drops the future.
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply>;

    /// Reports something that needs no answer, such as a rule that could not be saved.
    fn notify(&self, text: &str) {
        let _unused = text;
    }

    /// Reports that an answer became a rule in the user's policy file, which stays in effect until it is removed.
    fn notify_rule_saved(&self, rule: &Rule) {
        let _unused = rule;
    }
}

/// An approver without a user: operations that no rule allows are denied.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoApprover;

impl Approver for NoApprover {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, QuestionReply> {
        Box::pin(std::future::ready(QuestionReply::NoUser))
    }
}

/// An agent's operation, as far as it is known before it is carried out.
#[derive(Debug, Clone)]
pub struct ApprovalRequest {
    /// The question to ask if no rule decides. Its dangers come in addition to those found in the operations.
    pub question: Question,
    /// The same operations resolved to their exact effect, which is what a grant covers. Empty where the effect is not
    /// yet known; the operation itself is then asked about.
    pub resolved_operations: Vec<ResolvedOperation>,
}

/// The sources of rules.
#[derive(Debug, Default)]
pub struct PolicySources {
    /// The user's policy file.
    pub file: Option<PolicyFile>,
    /// The preset that applies where no rule matches.
    pub fallback: PolicyFallback,
    /// Additional rules, for example from the command line.
    pub rules: Vec<Rule>,
    /// The root directories of the workspace, by their canonical paths.
    pub roots: Vec<String>,
}

/// The approvals of a workspace. Clones share their state.
#[derive(Clone)]
pub struct Approvals {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Approvals").finish_non_exhaustive()
    }
}

struct Inner {
    file: Option<PolicyFile>,
    roots: Vec<String>,
    audit: AuditLog,
    approver: Arc<dyn Approver>,
    unreviewed: UnreviewedList,
    state: Mutex<State>,
    // The number of rule changes; each change re-evaluates the pending questions.
    policy_changes: watch::Sender<u64>,
    question_count: AtomicU64,
}

struct State {
    fallback: PolicyFallback,
    // Root directories of sessions, in addition to the workspace's.
    roots: Vec<String>,
    // Rules that are in no file: those of turns, sessions and the command line. Invariant: at most
    // `MAX_TRANSIENT_RULES`, or all of them deny.
    transient_rules: Vec<Rule>,
    grants: Grants,
    // Executed files that agents changed under a rule and that no user has reviewed since, each with the number of its
    // last change. Invariant: at most `MAX_UNREVIEWED_FILES`.
    unreviewed: BTreeMap<String, u64>,
    unreviewed_changes: u64,
    // The number of pending questions, and the size of the texts they show.
    pending_questions: usize,
    pending_bytes: usize,
    // The policy read from the file, and the combined policy built from it.
    combined_policy: Option<(Arc<Policy>, Arc<Policy>)>,
}

impl Approvals {
    /// Returns approvals that apply `rules`, ask `person`, and record in `audit`.
    #[must_use]
    pub fn new(rules: PolicySources, audit: AuditLog, person: Arc<dyn Approver>) -> Self {
        let PolicySources { file, fallback, rules, roots } = rules;
        let unreviewed = UnreviewedList::next_to_audit_log(audit.paths().0);
        let state = State {
            fallback,
            roots: Vec::new(),
            transient_rules: rules,
            grants: Grants::default(),
            unreviewed: unreviewed.read(),
            unreviewed_changes: 0,
            pending_questions: 0,
            pending_bytes: 0,
            combined_policy: None,
        };
        let inner = Inner {
            file,
            roots,
            audit,
            approver: person,
            unreviewed,
            state: Mutex::new(state),
            policy_changes: watch::Sender::new(0),
            question_count: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Adds root directories of a session. Rules treat them as inside the workspace; the session's own roots decide
    /// whether it may use them.
    pub fn add_roots(&self, roots: impl IntoIterator<Item = String>) {
        let mut state = self.state();
        for root in roots {
            if !state.roots.contains(&root) && !self.inner.roots.contains(&root) {
                state.roots.push(root);
            }
        }
        state.combined_policy = None;
    }

    /// Changes the preset that applies where no rule matches, and re-evaluates the pending questions.
    pub fn set_fallback(&self, fallback: PolicyFallback) {
        let mut state = self.state();
        state.fallback = fallback;
        state.combined_policy = None;
        drop(state);
        self.notify_policy_changed();
    }

    /// Approves an operation or returns the reason for its denial. Waits for the user where the rules require it.
    ///
    /// When the user allows a permission request of the agent, each of its resolved operations becomes a grant.
    ///
    /// # Errors
    /// Returns the reason for the denial.
    pub async fn authorize(&self, request: &ApprovalRequest) -> Result<OperationApproval, ApprovalError> {
        // Subscribed before the first evaluation, so that no change is missed in between.
        let mut changed = self.inner.policy_changes.subscribe();
        let (ruling, policy) = self.evaluate_off_thread(request).await?;
        if let Some(decided) = decide_by_ruling(&ruling) {
            return decided;
        }
        // A grant does not cover executing a file that an agent has changed since.
        let is_as_approved = || !ruling.reasons.iter().any(is_unreviewed_reason);
        if request.question.trigger == QuestionTrigger::UnrequestedOperation
            && is_as_approved()
            && let Some(taken) = self.take_grant(request)
        {
            return Ok(OperationApproval::Grant { call: taken.call });
        }
        let _place = self.reserve_question_slot(request)?;
        let (its, asked) = (self.clone(), request.clone());
        let unasked_for = no_approver_error(&ruling);
        let executed = self.unreviewed_files(request, &policy);
        let question = spawn_blocking(move || its.build_question(&asked, &ruling, &policy));
        let question = question.await.map_err(|ended| ApprovalError::Failed(ended.to_string()))?;
        let mut asking = self.inner.approver.ask(&question);
        loop {
            tokio::select! {
                biased;
                reply = &mut asking => {
                    let answered = self.apply_reply(request, &question, reply, unasked_for).await?;
                    self.mark_reviewed(request, &executed)?;
                    return Ok(answered);
                }
                news = changed.changed() => {
                    let (ruling, _) = self.evaluate_off_thread(request).await?;
                    if news.is_err() {
                        return Err(no_approver_error(&ruling));
                    }
                    if let Some(decided) = decide_by_ruling(&ruling) {
                        return decided;
                    }
                }
            }
        }
    }

    fn evaluate(&self, request: &ApprovalRequest) -> Result<(PolicyDecision, Arc<Policy>), ApprovalError> {
        let policy = self.policy().map_err(|why| ApprovalError::PolicyUnusable(why.to_string()))?;
        let context = policy_context(&request.question.holder);
        let judge = |item: &QuestionItem| self.judge_and_track(&policy, &item.operation, &context);
        let rulings = request.question.items.iter().map(judge);
        // The strictest decision applies; a request without operations is asked about.
        let strictest = rulings.reduce(|one, other| if other.effect > one.effect { other } else { one });
        let nothing = || PolicyDecision { effect: Effect::Ask, reasons: Vec::new() };
        Ok((strictest.unwrap_or_else(nothing), policy))
    }

    /// Evaluates a request on a blocking thread, because the policy file may have to be read again.
    async fn evaluate_off_thread(
        &self,
        request: &ApprovalRequest,
    ) -> Result<(PolicyDecision, Arc<Policy>), ApprovalError> {
        let (its, request) = (self.clone(), request.clone());
        let judged = spawn_blocking(move || its.evaluate(&request));
        judged.await.map_err(|ended| ApprovalError::Failed(ended.to_string()))?
    }

    /// Consumes the grant for an operation about to be carried out.
    fn take_grant(&self, request: &ApprovalRequest) -> Option<UsedGrant> {
        let [deed] = request.resolved_operations.as_slice() else { return None };
        self.state().grants.take(&request.question.holder, deed)
    }

    /// Reserves a slot for a pending question. The total size of their texts is capped as well, to bound memory.
    fn reserve_question_slot(&self, request: &ApprovalRequest) -> Result<QuestionSlot, ApprovalError> {
        let texts = request.question.items.iter().filter_map(|item| item.change.as_ref());
        let bytes: usize = texts
            .map(|change| change.after.len() + change.before.as_ref().map_or(0, |before| before.len()))
            .sum();
        let mut state = self.state();
        if state.pending_questions >= MAX_PENDING_QUESTIONS
            || (state.pending_questions > 0 && state.pending_bytes + bytes > MAX_PENDING_QUESTION_BYTES)
        {
            return Err(ApprovalError::Busy);
        }
        state.pending_questions += 1;
        state.pending_bytes += bytes;
        Ok(QuestionSlot { approvals: self.clone(), bytes })
    }

    fn build_question(
        &self,
        request: &ApprovalRequest,
        ruling: &PolicyDecision,
        policy: &Policy,
    ) -> Question {
        let id = QuestionId(self.inner.question_count.fetch_add(1, Ordering::Relaxed) + 1);
        let like = |deed| self.state().grants.has_similar(&request.question.holder, deed);
        let mut question = request.question.clone();
        if question.trigger == QuestionTrigger::UnrequestedOperation
            && request.resolved_operations.iter().any(like)
        {
            question.trigger = QuestionTrigger::ChangedOperation;
        }
        let operations: Vec<Operation> =
            request.question.items.iter().map(|item| item.operation.clone()).collect();
        let suggestions = match operations.as_slice() {
            [operation] => suggest_rules(operation, &policy.roots),
            operations => operations
                .iter()
                .filter_map(|each| suggest_rules(each, &policy.roots).into_iter().next())
                .collect(),
        };
        let context = policy_context(&request.question.holder);
        let executed =
            operations.iter().flat_map(|operation| policy.unreviewed_executions(operation, &context));
        let executed = executed.map(|file| {
            let file = quote(&file);
            Danger::serious(format!("may execute {file}, which an agent changed without your approval"))
        });
        let found = find_dangers(&operations, &policy.roots);
        Question {
            id,
            dangers: executed.chain(question.dangers).chain(found).collect(),
            reason: describe_ruling(ruling),
            agent_options: AgentOption::selectable(question.agent_options, !suggestions.is_empty()),
            suggestions,
            ..question
        }
    }

    async fn apply_reply(
        &self,
        request: &ApprovalRequest,
        question: &Question,
        reply: QuestionReply,
        unasked: ApprovalError,
    ) -> Result<OperationApproval, ApprovalError> {
        let QuestionReply::Answered(answer) = reply else { return Err(unasked) };
        // A rule added while the question was open may deny the operation.
        let (ruling, _) = self.evaluate_off_thread(request).await?;
        if ruling.effect == Effect::Deny {
            return decide_by_ruling(&ruling)
                .unwrap_or(Err(ApprovalError::Person { reason: None, option: None }));
        }
        if answer.lifetime != AnswerLifetime::Once {
            let (its, question, answer) = (self.clone(), question.clone(), answer.clone());
            // The policy file may be locked for a while. The answer is saved even if this future is dropped meanwhile.
            spawn_blocking(move || its.remember_answer(&question, &answer)).await.ok();
        }
        match answer.choice {
            AnswerChoice::Deny => {
                Err(ApprovalError::Person { reason: answer.reason, option: answer.option_id })
            }
            AnswerChoice::Allow => {
                if request.question.trigger == QuestionTrigger::PermissionRequest {
                    let mut state = self.state();
                    let deeds = request.resolved_operations.iter().cloned();
                    state.grants.add(&request.question.holder, request.question.call.as_deref(), deeds);
                }
                OperationApproval::from_answer(question, answer)
            }
        }
    }

    /// Turns an answer with a lasting lifetime into rules. A rule that cannot be saved in the file is kept in memory:
    /// the user has answered, and should not be asked again because a disk is full.
    fn remember_answer(&self, question: &Question, answer: &QuestionAnswer) {
        let Ok(rules) = question.rules(answer, &self.inner.roots) else { return };
        if rules.is_empty() {
            return;
        }
        for rule in rules {
            let scope = match rule.spec().lifetime {
                RuleLifetime::Project => Some(RuleScope::Workspace),
                RuleLifetime::Always => Some(RuleScope::Global),
                _ => None,
            };
            let kept = scope.zip(self.inner.file.as_ref()).map(|(scope, file)| file.add_rule(&rule, scope));
            match kept {
                Some(Ok(())) => self.inner.approver.notify_rule_saved(&rule),
                Some(Err(why)) => {
                    let text = format!("the rule holds only until the end of this program: {why}");
                    self.inner.approver.notify(&text);
                    self.add_transient_rule(rule);
                }
                None => self.add_transient_rule(rule),
            }
        }
        self.notify_policy_changed();
    }

    /// Adds a rule that is in no file: it applies for the lifetime of these approvals, or of its turn or session.
    pub fn add_transient_rule(&self, rule: Rule) {
        let mut state = self.state();
        if state.transient_rules.contains(&rule) {
            return;
        }
        if state.transient_rules.len() >= MAX_TRANSIENT_RULES {
            // A deny rule is never evicted, and is added even without room.
            match state.transient_rules.iter().position(|kept| kept.effect() != Effect::Deny) {
                Some(oldest) => drop(state.transient_rules.remove(oldest)),
                None if rule.effect() == Effect::Deny => {}
                None => return,
            }
        }
        state.transient_rules.push(rule);
        state.combined_policy = None;
        drop(state);
        self.notify_policy_changed();
    }

    /// Records an entry in the audit log.
    ///
    /// # Errors
    /// Returns an error if the entry could not be recorded. The operation must not be carried out then.
    pub fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        self.inner.audit.append(entry).map(drop)
    }

    /// Like [`Approvals::record`], for a task that awaits the outcome.
    pub fn submit(&self, entry: AuditEntry) -> PendingAppend {
        self.inner.audit.submit(entry)
    }

    /// Returns the audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditLog {
        &self.inner.audit
    }

    /// Revokes the grants of a tool call that requests permission again.
    pub fn revoke_call_grants(&self, session: &str, call: &str) {
        self.state().grants.revoke_call_grants(session, call);
    }

    /// Ends a turn: its unused grants and its rules expire.
    pub fn end_turn(&self, holder: &GrantHolder) {
        let mut state = self.state();
        state.grants.end_turn(holder);
        let ended = |rule: &Rule| match &rule.spec().lifetime {
            RuleLifetime::Turn { session, turn } => *session == holder.session && Some(*turn) == holder.turn,
            _ => false,
        };
        state.drop_rules(ended);
    }

    /// Ends a session: its unused grants and its rules expire.
    pub fn end_session(&self, id: &str) {
        let mut state = self.state();
        state.grants.end_session(id);
        state.drop_rules(|rule| match &rule.spec().lifetime {
            RuleLifetime::Turn { session, .. } | RuleLifetime::Session { session } => session == id,
            _ => false,
        });
    }

    fn notify_policy_changed(&self) {
        self.inner.policy_changes.send_modify(|count| *count += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the decision of the rules alone, or `None` if they require the user to be asked, which is left to the
    /// caller.
    pub async fn decide_by_rules(
        &self,
        request: &ApprovalRequest,
    ) -> Option<Result<OperationApproval, ApprovalError>> {
        match self.evaluate_off_thread(request).await {
            Ok((ruling, _)) => decide_by_ruling(&ruling),
            Err(refused) => Some(Err(refused)),
        }
    }

    /// Adds one-time grants for operations that a user approved elsewhere.
    pub fn grant(&self, holder: &GrantHolder, call: Option<&str>, deeds: Vec<ResolvedOperation>) {
        self.state().grants.add(holder, call, deeds);
    }

    /// Returns the policy's decision on an operation. An allowed operation is assumed to be carried out: executed files
    /// that it changes count as unreviewed from then on.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used.
    pub fn judge(&self, holder: &GrantHolder, operation: &Operation) -> Result<PolicyDecision, PolicyError> {
        let policy = self.policy()?;
        Ok(self.judge_and_track(&policy, operation, &policy_context(holder)))
    }

    /// Returns the current policy: the user's rules, and those of turns and sessions.
    ///
    /// # Errors
    /// Returns an error if the user's policy file cannot be used.
    pub fn policy(&self) -> Result<Arc<Policy>, PolicyError> {
        let from_file = self.inner.file.as_ref().map(|file| file.policy_and_preset()).transpose()?;
        let (from_file, stated) = from_file.map_or((None, None), |(policy, stated)| (Some(policy), stated));
        let mut state = self.state();
        let base = from_file.unwrap_or_else(|| match &state.combined_policy {
            Some((base, _)) => base.clone(),
            None => Arc::new(Policy { roots: self.inner.roots.clone(), ..Policy::default() }),
        });
        if let Some((known, whole)) = &state.combined_policy
            && Arc::ptr_eq(known, &base)
        {
            return Ok(whole.clone());
        }
        let mut whole = Policy::clone(&base);
        whole.preset = state.fallback.preset(stated);
        whole.rules.extend(state.transient_rules.iter().cloned());
        whole.roots.extend(state.roots.iter().cloned());
        whole.unreviewed_files.extend(state.unreviewed.keys().cloned());
        let whole = Arc::new(whole);
        state.combined_policy = Some((base, whole.clone()));
        Ok(whole)
    }
}

impl State {
    fn drop_rules(&mut self, ended: impl Fn(&Rule) -> bool) {
        let before = self.transient_rules.len();
        self.transient_rules.retain(|rule| !ended(rule));
        if self.transient_rules.len() != before {
            self.combined_policy = None;
        }
    }
}

/// A slot for a pending question, released on drop.
struct QuestionSlot {
    approvals: Approvals,
    bytes: usize,
}

impl Drop for QuestionSlot {
    fn drop(&mut self) {
        let mut state = self.approvals.state();
        state.pending_questions -= 1;
        state.pending_bytes -= self.bytes;
    }
}

fn policy_context(holder: &GrantHolder) -> PolicyContext {
    let now: Timestamp = now();
    PolicyContext { session: holder.session.clone(), turn: holder.turn, now }
}
