//! What stands before every operation: rules, grants, a person, and the audit log.
//!
//! Whoever serves an agent describes what it wants ([`Request`]) and asks [`Approvals::clear`]. A rule decides, or a grant
//! that was given for exactly this, or a person. No person and no rule means no. A question is withdrawn by dropping the
//! future that waits for its answer; an answer that comes later finds nobody.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::audit::Entry;
use bowline_state::changes::Moment;
use bowline_state::danger::{Danger, Severity, dangers};
use bowline_state::failure::quote;
use bowline_state::grants::{Deed, Grants, Holder, Taken};
use bowline_state::operation::Operation;
use bowline_state::policy::{Context, Effect, Lifetime, Policy, Rule, Ruling, suggest};
use bowline_state::question::{Answer, Choice, Item, Keep, Occasion, Offer, Question, QuestionId, Reply};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::audit::{AuditError, AuditLog, Pending};
use crate::clock::now;
use crate::policy::{PolicyFile, Scope};

mod elsewhere;
mod fallback;
mod judging;
mod outcome;
mod review;
mod unreviewed_list;

pub use fallback::Fallback;
pub use outcome::{BY_SETTINGS, Cleared, NOBODY, NOBODY_BY_RULE, Refused, because};
use outcome::{decided, unasked};
use review::is_unreviewed;
pub use review::unreviewed;
use unreviewed_list::UnreviewedList;

/// As many questions wait for a person at once; what is asked beyond that is refused as busy.
pub const MAX_WAITING: usize = 32;

/// The texts of questions that wait have at most so many bytes in all; a single question may have more.
pub const MAX_WAITING_BYTES: usize = 256 << 20;

/// As many files that tools execute may be changed without a person's approval; what goes beyond is asked about.
pub const MAX_UNREVIEWED: usize = 1000;

/// As many rules are kept for turns and sessions; the oldest go, but for those that deny. Those only a person adds.
pub const MAX_KEPT_RULES: usize = 1000;

/// A future that somebody else made.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever can be asked.
pub trait Person: Send + Sync + 'static {
    /// Asks, and waits for the answer. If the question is withdrawn, this is dropped.
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply>;

    /// Tells of something that does not need an answer: a rule that could not be kept, for one.
    fn tell(&self, text: &str) {
        let _unused = text;
    }

    /// Tells that an answer became a rule in the user's file, which holds until it is taken out again.
    fn rule_saved(&self, rule: &Rule) {
        let _unused = rule;
    }
}

/// There is nobody: what no rule allows is denied.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPerson;

impl Person for NoPerson {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Reply> {
        Box::pin(std::future::ready(Reply::Nobody))
    }
}

/// What an agent wants, as far as it is known before it is done.
#[derive(Debug, Clone)]
pub struct Request {
    /// The session and turn.
    pub holder: Holder,
    /// The tool call, if it is known.
    pub call: Option<String>,
    /// How the agent calls itself.
    pub agent: Option<String>,
    /// Why there may be a question.
    pub occasion: Occasion,
    /// What it is about, in words.
    pub title: String,
    /// What would be done.
    pub items: Vec<Item>,
    /// What a person should be warned of beside what the operations themselves tell.
    pub warnings: Vec<String>,
    /// The answers that the agent offers, if it asks.
    pub offers: Vec<Offer>,
    /// The same, bound to what it does exactly: what an approval is for. Where this cannot be told, it is left out, and
    /// the act itself is asked about.
    pub deeds: Vec<Deed>,
}

/// Where rules come from.
#[derive(Debug, Default)]
pub struct Rulebook {
    /// The user's file.
    pub file: Option<PolicyFile>,
    /// What holds where no rule matches.
    pub fallback: Fallback,
    /// More rules, from a command line for one.
    pub rules: Vec<Rule>,
    /// The directories of the workspace, by their own names.
    pub roots: Vec<String>,
}

/// What stands before every operation. Clones are the same one.
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
    person: Arc<dyn Person>,
    unreviewed: UnreviewedList,
    state: Mutex<State>,
    // Counts the changes of rules, so that questions that wait are judged again.
    changed: watch::Sender<u64>,
    questions: AtomicU64,
}

struct State {
    fallback: Fallback,
    // Directories that sessions have beside the workspace's.
    roots: Vec<String>,
    // Rules that are in no file: of turns, sessions and the command line. Invariant: at most `MAX_KEPT_RULES`, or all deny.
    kept: Vec<Rule>,
    grants: Grants,
    // Files that tools execute, changed by agents as rules allow it, and approved by no person since; with the number of the
    // last change. Invariant: at most `MAX_UNREVIEWED`.
    unreviewed: BTreeMap<String, u64>,
    unreviewed_changes: u64,
    // How many questions wait, and how many bytes of texts they show.
    waiting: usize,
    waiting_bytes: usize,
    // The file's rules that the whole was made of, and the whole.
    whole: Option<(Arc<Policy>, Arc<Policy>)>,
}

impl Approvals {
    /// Returns approvals that go by `rules`, ask `person`, and record in `audit`.
    #[must_use]
    pub fn new(rules: Rulebook, audit: AuditLog, person: Arc<dyn Person>) -> Self {
        let Rulebook { file, fallback, rules, roots } = rules;
        let unreviewed = UnreviewedList::beside(audit.places().0);
        let state = State {
            fallback,
            roots: Vec::new(),
            kept: rules,
            grants: Grants::default(),
            unreviewed: unreviewed.read(),
            unreviewed_changes: 0,
            waiting: 0,
            waiting_bytes: 0,
            whole: None,
        };
        let inner = Inner {
            file,
            roots,
            audit,
            person,
            unreviewed,
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            questions: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Adds directories of a session. They are inside for rules; whether a session may use them is for its roots to say.
    pub fn add_roots(&self, roots: impl IntoIterator<Item = String>) {
        let mut state = self.state();
        for root in roots {
            if !state.roots.contains(&root) && !self.inner.roots.contains(&root) {
                state.roots.push(root);
            }
        }
        state.whole = None;
    }

    /// Changes what holds where no rule matches. Questions that wait are judged again.
    pub fn set_fallback(&self, fallback: Fallback) {
        let mut state = self.state();
        state.fallback = fallback;
        state.whole = None;
        drop(state);
        self.changed();
    }

    /// Lets an operation pass, or says why not. Waits for a person where the rules want it.
    ///
    /// What an agent asks permission for becomes a grant for each of its deeds, if it passes by more than a rule.
    ///
    /// # Errors
    /// Returns why it may not be done.
    pub async fn clear(&self, request: &Request) -> Result<Cleared, Refused> {
        // Before the first look, so that no change is missed in between.
        let mut changed = self.inner.changed.subscribe();
        let (ruling, policy) = self.ruling_beside(request).await?;
        if let Some(decided) = decided(&ruling) {
            return decided;
        }
        // What was approved did not execute what an agent has written since.
        let is_as_approved = || !ruling.because.iter().any(is_unreviewed);
        if request.occasion == Occasion::Act
            && is_as_approved()
            && let Some(taken) = self.take_grant(request)
        {
            return Ok(Cleared::Grant { call: taken.call });
        }
        let _place = self.wait_in_line(request)?;
        let (its, asked) = (self.clone(), request.clone());
        let unasked_for = unasked(&ruling);
        let executed = self.unreviewed(request, &policy);
        let question = spawn_blocking(move || its.question(&asked, &ruling, &policy));
        let question = question.await.map_err(|ended| Refused::Failed(ended.to_string()))?;
        let mut asking = self.inner.person.ask(&question);
        loop {
            tokio::select! {
                biased;
                reply = &mut asking => {
                    let answered = self.answered(request, &question, reply, unasked_for).await?;
                    self.review(request, &executed)?;
                    return Ok(answered);
                }
                news = changed.changed() => {
                    let (ruling, _) = self.ruling_beside(request).await?;
                    if news.is_err() {
                        return Err(unasked(&ruling));
                    }
                    if let Some(decided) = decided(&ruling) {
                        return decided;
                    }
                }
            }
        }
    }

    fn ruling(&self, request: &Request) -> Result<(Ruling, Arc<Policy>), Refused> {
        let policy = self.policy().map_err(|why| Refused::Rulebook(why.to_string()))?;
        let context = context(&request.holder);
        let judge = |item: &Item| self.noted(&policy, &item.operation, &context);
        let rulings = request.items.iter().map(judge);
        // The strictest of all; nothing at all is asked about.
        let strictest = rulings.reduce(|one, other| if other.effect > one.effect { other } else { one });
        let nothing = || Ruling { effect: Effect::Ask, because: Vec::new() };
        Ok((strictest.unwrap_or_else(nothing), policy))
    }

    /// Judges where waiting for the disk is allowed: the file of rules may have to be read again.
    async fn ruling_beside(&self, request: &Request) -> Result<(Ruling, Arc<Policy>), Refused> {
        let (its, request) = (self.clone(), request.clone());
        let judged = spawn_blocking(move || its.ruling(&request));
        judged.await.map_err(|ended| Refused::Failed(ended.to_string()))?
    }

    /// Uses up the grant for what is about to be done.
    fn take_grant(&self, request: &Request) -> Option<Taken> {
        let [deed] = request.deeds.as_slice() else { return None };
        self.state().grants.take(&request.holder, deed)
    }

    /// Takes a place among the questions that wait. So that their texts do not fill the memory, these have a bound as well.
    fn wait_in_line(&self, request: &Request) -> Result<InLine, Refused> {
        let texts = request.items.iter().filter_map(|item| item.change.as_ref());
        let bytes: usize = texts
            .map(|change| change.after.len() + change.before.as_ref().map_or(0, |before| before.len()))
            .sum();
        let mut state = self.state();
        if state.waiting >= MAX_WAITING
            || (state.waiting > 0 && state.waiting_bytes + bytes > MAX_WAITING_BYTES)
        {
            return Err(Refused::Busy);
        }
        state.waiting += 1;
        state.waiting_bytes += bytes;
        Ok(InLine { approvals: self.clone(), bytes })
    }

    fn question(&self, request: &Request, ruling: &Ruling, policy: &Policy) -> Question {
        let id = QuestionId(self.inner.questions.fetch_add(1, Ordering::Relaxed) + 1);
        let like = |deed| self.state().grants.has_like(&request.holder, deed);
        let occasion = match request.occasion {
            Occasion::Act if request.deeds.iter().any(like) => Occasion::Changed,
            occasion => occasion,
        };
        let operations: Vec<Operation> = request.items.iter().map(|item| item.operation.clone()).collect();
        let suggestions = match operations.as_slice() {
            [operation] => suggest(operation, &policy.roots),
            operations => {
                operations.iter().filter_map(|each| suggest(each, &policy.roots).into_iter().next()).collect()
            }
        };
        let warnings = request.warnings.iter();
        let context = context(&request.holder);
        let executed = operations.iter().flat_map(|operation| policy.unreviewed_runs(operation, &context));
        let executed = executed.map(|file| Danger {
            severity: Severity::Serious,
            text: format!("may execute {}, which an agent changed without your approval", quote(&file)),
        });
        let warnings = warnings.map(|text| Danger { severity: Severity::Serious, text: text.clone() });
        Question {
            id,
            holder: request.holder.clone(),
            call: request.call.clone(),
            agent: request.agent.clone(),
            occasion,
            title: request.title.clone(),
            items: request.items.clone(),
            dangers: executed.chain(warnings).chain(dangers(&operations, &policy.roots)).collect(),
            because: because(ruling),
            offers: Offer::to_choose(request.offers.clone(), !suggestions.is_empty()),
            suggestions,
        }
    }

    async fn answered(
        &self,
        request: &Request,
        question: &Question,
        reply: Reply,
        unasked: Refused,
    ) -> Result<Cleared, Refused> {
        let Reply::Answered(answer) = reply else { return Err(unasked) };
        // A person may have denied it by a rule while the question was open.
        let (ruling, _) = self.ruling_beside(request).await?;
        if ruling.effect == Effect::Deny {
            return decided(&ruling).unwrap_or(Err(Refused::Person { reason: None, option: None }));
        }
        if answer.keep != Keep::Once {
            let (its, question, answer) = (self.clone(), question.clone(), answer.clone());
            // The file of rules may be locked for a while. If this is given up meanwhile, the answer is kept all the same.
            spawn_blocking(move || its.remember(&question, &answer)).await.ok();
        }
        match answer.choice {
            Choice::Deny => Err(Refused::Person { reason: answer.reason, option: answer.option }),
            Choice::Allow => {
                if request.occasion == Occasion::Request {
                    let mut state = self.state();
                    let deeds = request.deeds.iter().cloned();
                    state.grants.give(&request.holder, request.call.as_deref(), deeds);
                }
                Cleared::by_person(question, answer)
            }
        }
    }

    /// Makes rules of an answer that holds for longer. What cannot be kept in the file holds for the session: the person
    /// has answered, and should not be asked again and again because a disk is full.
    fn remember(&self, question: &Question, answer: &Answer) {
        let Ok(rules) = question.rules(answer, &self.inner.roots) else { return };
        if rules.is_empty() {
            return;
        }
        for rule in rules {
            let scope = match rule.spec().lifetime {
                Lifetime::Project => Some(Scope::Workspace),
                Lifetime::Always => Some(Scope::Everywhere),
                _ => None,
            };
            let kept = scope.zip(self.inner.file.as_ref()).map(|(scope, file)| file.remember(&rule, scope));
            match kept {
                Some(Ok(())) => self.inner.person.rule_saved(&rule),
                Some(Err(why)) => {
                    let text = format!("the rule holds only until the end of this program: {why}");
                    self.inner.person.tell(&text);
                    self.keep(rule);
                }
                None => self.keep(rule),
            }
        }
        self.changed();
    }

    /// Adds a rule that is kept in no file: it holds as long as this does, or for its turn or session.
    pub fn keep(&self, rule: Rule) {
        let mut state = self.state();
        if state.kept.contains(&rule) {
            return;
        }
        if state.kept.len() >= MAX_KEPT_RULES {
            // A rule that denies is never what makes room, and goes in whether or not there is any.
            match state.kept.iter().position(|kept| kept.effect() != Effect::Deny) {
                Some(oldest) => drop(state.kept.remove(oldest)),
                None if rule.effect() == Effect::Deny => {}
                None => return,
            }
        }
        state.kept.push(rule);
        state.whole = None;
        drop(state);
        self.changed();
    }

    /// Records something in the audit log.
    ///
    /// # Errors
    /// Returns why that could not be done. Then nothing else should be.
    pub fn record(&self, entry: &Entry) -> Result<(), AuditError> {
        self.inner.audit.append(entry).map(drop)
    }

    /// As [`Approvals::record`], for a task that waits for the outcome.
    pub fn submit(&self, entry: Entry) -> Pending {
        self.inner.audit.submit(entry)
    }

    /// Returns the audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditLog {
        &self.inner.audit
    }

    /// Voids what was approved for a tool call that is asked about again.
    pub fn supersede(&self, session: &str, call: &str) {
        self.state().grants.supersede(session, call);
    }

    /// Ends a turn: what was approved for it and not used is void, and so are its rules.
    pub fn end_turn(&self, holder: &Holder) {
        let mut state = self.state();
        state.grants.end_turn(holder);
        let ended = |rule: &Rule| match &rule.spec().lifetime {
            Lifetime::Turn { session, turn } => *session == holder.session && Some(*turn) == holder.turn,
            _ => false,
        };
        state.forget(ended);
    }

    /// Ends a session, likewise.
    pub fn end_session(&self, id: &str) {
        let mut state = self.state();
        state.grants.end_session(id);
        state.forget(|rule| match &rule.spec().lifetime {
            Lifetime::Turn { session, .. } | Lifetime::Session { session } => session == id,
            _ => false,
        });
    }

    fn changed(&self) {
        self.inner.changed.send_modify(|count| *count += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self, ended: impl Fn(&Rule) -> bool) {
        let before = self.kept.len();
        self.kept.retain(|rule| !ended(rule));
        if self.kept.len() != before {
            self.whole = None;
        }
    }
}

/// A place among the questions that wait.
struct InLine {
    approvals: Approvals,
    bytes: usize,
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut state = self.approvals.state();
        state.waiting -= 1;
        state.waiting_bytes -= self.bytes;
    }
}

fn context(holder: &Holder) -> Context {
    let now: Moment = now();
    Context { session: holder.session.clone(), turn: holder.turn, now }
}
