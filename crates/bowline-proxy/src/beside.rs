//! What stands beside the messages that pass: an engine that looks at the disk at the boundaries of tool calls, applies
//! rules to what the agent asks for, and serves what the editor cannot.
//!
//! Messages go on as they are wherever none of this has a reason to change them. Whoever stands behind ([`Beside::new`])
//! sees each of them that is not held or answered here.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bowline_state::failure::Failure;
use bowline_state::quirks::{Quirk, QuirkMode};
use bowline_state::relay::{self, Fact, Method, Opened, Side, ToolCallSeen};
use bowline_state::schema::v1::{
    ClientCapabilities, RequestPermissionResponse, SessionId, SessionNotification,
};
use bowline_state::watching::{Boundary, Place, Watching};
use bowline_wire::Caller;
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::between::{Between, BoxFuture, Decision, Deed, Order, Passing};
use crate::engine::{Engine, EngineSession};

mod diagnosing;
mod missing_file;
mod observing;
mod routing;
pub(crate) mod ruling;
mod serving;
mod sessions;
mod unopened;
mod writing;

use diagnosing::Diagnosing;
use missing_file::MissingFiles;
use observing::Job;
pub(crate) use serving::unserved;
pub use sessions::Sessions;
use unopened::UnopenedSessions;

/// So many sessions are looked after at once; others pass, or are refused where rules are to be applied.
const MAX_SESSIONS: usize = 256;

/// How long the beginning of a turn waits for the disk to be looked at. What is not known before cannot be found changed.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// How long its end does. What is found later is recorded and shown all the same.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// How long a message that needs the engine waits for it to be opened.
const OPENING: Duration = Duration::from_secs(10);

/// So many requests are served here at once; others are refused as too many. Half of what may be held at all, so that what
/// ends them can still be heard.
const MAX_SERVED: usize = 32;

/// So many of the places for what a session's worker is to do are kept for the beginning and the end of turns.
const RESERVED: usize = 8;

/// So many files that the agent has read through the editor are remembered for a session.
const MAX_READ: usize = 4096;

/// How an editor calls itself that is Bowline's own host.
const OWN_NAME: &str = "bowline";

/// What is done beside passing messages on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Rules are applied to what the agent asks for.
    pub rules: bool,
    /// What the editor cannot is served here.
    pub host: bool,
    /// What the agent changed on disk is put back, and sent through the editor.
    pub route: bool,
    /// Whether known faults of agents are worked around.
    pub quirks: QuirkMode,
}

/// The way to the editor for updates of our own, in order with what is held: they go before it.
pub type Telling = mpsc::Sender<Vec<u8>>;

/// Calls of our own, once there is a proxy to make them.
#[derive(Debug, Clone, Default)]
pub struct Line(Arc<OnceLock<Caller>>);

impl Line {
    /// Connects it. Only the first time counts.
    pub fn connect(&self, caller: Caller) {
        self.0.set(caller).ok();
    }

    /// Returns the way to call, if there is one yet.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        self.0.get()
    }
}

/// An engine beside the messages.
pub struct Beside {
    engine: Arc<dyn Engine>,
    options: Options,
    line: Line,
    telling: Telling,
    next: Box<dyn Between>,
    editor: Editor,
    // By which the agent is told that a missing file is empty, if it is.
    missing_file: Option<&'static Quirk>,
    // Invariant: at most `MAX_SESSIONS`, and `known` has the same.
    sessions: HashMap<SessionId, Session>,
    known: Sessions,
    unopened: UnopenedSessions,
    // The places for what is served here and may take long.
    served: Arc<Semaphore>,
}

/// What the editor serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Editor {
    read: bool,
    write: bool,
    terminal: bool,
    // It is Bowline itself, which records what it writes in the same journal.
    records: bool,
}

impl Editor {
    fn of(capabilities: &ClientCapabilities, name: Option<&str>) -> Self {
        let ClientCapabilities { fs, terminal, .. } = capabilities;
        let records = name == Some(OWN_NAME);
        Self { read: fs.read_text_file, write: fs.write_text_file, terminal: *terminal, records }
    }

    fn serves(self, method: Method) -> bool {
        match method {
            Method::Read => self.read,
            Method::Write => self.write,
            Method::CreateTerminal | Method::Terminal => self.terminal,
            _ => true,
        }
    }
}

/// A session that passes.
struct Session {
    beside: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    // How many prompts of it are open: the turn goes on until the last is answered.
    prompts: usize,
    // The files that the agent has read through the editor. Invariant: at most `MAX_READ`.
    read: HashSet<String>,
}

/// What a session's worker shares with whoever sees the messages, and with the server that is added to the session.
pub(crate) struct Shared {
    id: SessionId,
    engine: watch::Receiver<Opening>,
    // Held for a moment only, and never while something is waited for.
    watching: Mutex<Watching>,
    // Likewise.
    diagnosing: Mutex<Diagnosing>,
    // Likewise.
    missing: Mutex<MissingFiles>,
    // Whether the editor records what it writes itself.
    records: bool,
}

/// Whether the engine's session is there.
#[derive(Clone)]
enum Opening {
    Begun,
    Failed,
    Open(Arc<dyn EngineSession>),
}

impl Shared {
    fn watching(&self) -> MutexGuard<'_, Watching> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missing(&self) -> MutexGuard<'_, MissingFiles> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the agent's call that a tool of the added server does something to a file for.
    pub(crate) fn call_naming(&self, path: &str) -> Option<String> {
        self.watching().call_naming(path)
    }

    /// Returns the engine that writes of the editor are recorded by; none if there is none, or the editor does that.
    pub(crate) async fn recorder(&self) -> Option<Arc<dyn EngineSession>> {
        if self.records { None } else { self.engine().await }
    }

    /// Returns the engine's session; none if it cannot be opened, or takes too long to be.
    pub(crate) async fn engine(&self) -> Option<Arc<dyn EngineSession>> {
        let mut engine = self.engine.clone();
        let opened = engine.wait_for(|opening| !matches!(opening, Opening::Begun));
        match &*timeout(OPENING, opened).await.ok()?.ok()? {
            Opening::Open(session) => Some(session.clone()),
            Opening::Begun | Opening::Failed => None,
        }
    }
}

impl Beside {
    /// Puts an engine beside what passes. `known` learns of the sessions, `telling` is where its updates go, and `next` sees
    /// the messages after it.
    pub fn new(
        engine: Arc<dyn Engine>,
        known: Sessions,
        (line, telling): (Line, Telling),
        next: impl Between + 'static,
    ) -> Self {
        Self {
            engine,
            options: known.options,
            line,
            telling,
            next: Box::new(next),
            editor: Editor::default(),
            missing_file: None,
            sessions: HashMap::new(),
            known,
            unopened: UnopenedSessions::default(),
            served: Arc::new(Semaphore::new(MAX_SERVED)),
        }
    }

    fn opened(&mut self, opened: &Opened) {
        if self.sessions.len() >= MAX_SESSIONS || self.sessions.contains_key(&opened.session) {
            return;
        }
        let (tell, engine) = watch::channel(Opening::Begun);
        let place = opened.opening.cwd.to_string_lossy().into_owned();
        let place = Place { asked: place.clone(), own: place };
        let watching = Mutex::new(Watching::new(&opened.session, place));
        let (id, diagnosing, missing) = (opened.session.clone(), Mutex::default(), Mutex::default());
        let records = self.editor.records;
        let shared = Arc::new(Shared { id, engine, watching, diagnosing, missing, records });
        self.known.opened(&shared);
        let (opening, its) = (self.engine.opens(opened), shared.clone());
        tokio::spawn(async move {
            let opened = opening.await;
            if let Some(session) = &opened {
                its.watching().is_at(session.place());
            }
            // Whoever waits for it has the other end.
            tell.send_replace(opened.map_or(Opening::Failed, Opening::Open));
        });
        let Editor { read, write, .. } = self.editor;
        let routes = (self.options.route && read && write).then(|| self.line.clone());
        let jobs = observing::start(shared.clone(), self.telling.clone(), routes);
        let session = Session { beside: shared, jobs, prompts: 0, read: HashSet::new() };
        self.sessions.insert(opened.session.clone(), session);
    }

    fn turn_begins(&mut self, id: &SessionId, passing: &Passing<'_>) -> Option<Decision> {
        let session = self.sessions.get_mut(id)?;
        session.prompts += 1;
        if session.prompts > 1 {
            return None;
        }
        let (done, begun) = oneshot::channel();
        let prompt = relay::prompt_text(passing.line);
        session.jobs.try_send(Job::TurnBegins { prompt, done }).ok()?;
        let deed = self.next_deed(passing);
        // Neither what the user says next nor a cancellation may go before it.
        Some(Decision::Later(
            Order::Keep,
            Box::pin(async move {
                timeout(FIRST_LOOK, begun).await.map_or_else(drop, drop);
                deed.await
            }),
        ))
    }

    fn turn_ended(&mut self, id: &SessionId, passing: &Passing<'_>) -> Option<Decision> {
        let session = self.sessions.get_mut(id)?;
        session.prompts = session.prompts.checked_sub(1)?;
        if session.prompts > 0 {
            return None;
        }
        let (done, ended) = oneshot::channel();
        session.jobs.try_send(Job::TurnEnds(done)).ok()?;
        let is_alone = self.sessions.values().all(|session| session.prompts == 0);
        // What the agent says in other sessions does not wait for this one's disk.
        let order = if is_alone { Order::Keep } else { Order::Overtake };
        let deed = self.next_deed(passing);
        Some(Decision::Later(
            order,
            Box::pin(async move {
                timeout(LAST_LOOK, ended).await.map_or_else(drop, drop);
                deed.await
            }),
        ))
    }

    /// Shows a message that is held to who stands behind, and returns what that wants of it.
    fn next_deed(&mut self, passing: &Passing<'_>) -> BoxFuture<Deed> {
        let Passing { from, fact, id, line } = *passing;
        match self.next.look(Passing { from, fact, id, line }) {
            Decision::Now(deed) => Box::pin(std::future::ready(deed)),
            Decision::Later(_, deed) => deed,
        }
    }

    /// Takes in what the agent tells of a call. Returns the message to pass on in its place, if it would replace diffs that
    /// were shown on the call.
    fn tool_call(&mut self, seen: &ToolCallSeen, line: &Bytes) -> Option<Vec<u8>> {
        let session = self.sessions.get_mut(&seen.session)?;
        let notification = params::<SessionNotification>(line)?;
        let mut watching = session.beside.watching();
        let boundary = watching.update(&seen.call, &notification);
        let kept = watching.keep_shown(&seen.call, line);
        drop(watching);
        // Where there is no room, one of the looks that wait finds it.
        if boundary != Boundary::Within && session.jobs.capacity() > RESERVED {
            drop(session.jobs.try_send(Job::Look(seen.call.clone())));
        }
        kept
    }

    fn closed(&mut self, id: &SessionId) {
        self.known.closed(id);
        if let Some(session) = self.sessions.remove(id) {
            tokio::spawn(async move {
                if let Some(engine) = session.beside.engine().await {
                    engine.ends().await;
                }
            });
        }
    }
}

impl Between for Beside {
    fn look(&mut self, passing: Passing<'_>) -> Decision {
        let Passing { from, fact, id, line } = passing;
        let passing = &Passing { from, fact, id, line };
        if let Some(held) = self.hold_unopened(passing) {
            return held;
        }
        let decided = match fact {
            Fact::Initialize(capabilities) => return self.initialize(capabilities, passing),
            Fact::Initialized(_) if from == Side::Agent => {
                self.met(line);
                None
            }
            Fact::Opening(opening) if from == Side::Editor => {
                self.engine.prepares(opening);
                self.unopened.add(opening);
                None
            }
            Fact::Opened(Opened { opening, .. }) | Fact::NotOpened(opening) if from == Side::Agent => {
                self.unopened.remove(opening);
                if let Fact::Opened(opened) = fact {
                    self.opened(opened);
                }
                let decided = self.next.look(Passing { from, fact, id, line });
                self.judge_waiting();
                return decided;
            }
            Fact::TurnBegins(session) if from == Side::Editor => self.turn_begins(session, passing),
            Fact::TurnEnded(session) if from == Side::Agent => self.turn_ended(session, passing),
            Fact::ToolCall(seen) if from == Side::Agent => {
                let kept = self.tool_call(seen, line);
                return match self.next.look(Passing { from, fact, id, line }) {
                    Decision::Now(Deed::Pass) => {
                        kept.map_or(Decision::PASS, |kept| Decision::Now(Deed::Instead(vec![kept])))
                    }
                    decided => decided,
                };
            }
            Fact::Permission(session, _) if from == Side::Agent => self.permission(session, passing),
            Fact::Permitted(session, call) if from == Side::Editor => {
                if let Some(response) = result::<RequestPermissionResponse>(line) {
                    self.permitted(session, call, response.outcome);
                }
                None
            }
            Fact::Asked(method, session, read) if from == Side::Agent && id.is_some() => {
                self.asked(*method, session.as_ref(), read.as_ref(), line)
            }
            Fact::Cancelled(session) => {
                self.cancelled(session);
                None
            }
            Fact::Closed(_, session) => {
                self.closed(session);
                None
            }
            Fact::Diagnostics(told) if from == Side::Editor => {
                self.diagnosed(told);
                None
            }
            _ => None,
        };
        decided.unwrap_or_else(|| self.next.look(Passing { from, fact, id, line }))
    }
}

#[derive(Deserialize)]
struct Message<T> {
    params: T,
}

#[derive(Deserialize)]
struct Answer<T> {
    result: T,
}

fn params<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    serde_json::from_slice::<Message<T>>(line).ok().map(|message| message.params)
}

fn result<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    serde_json::from_slice::<Answer<T>>(line).ok().map(|message| message.result)
}

/// Returns why something cannot be judged.
pub(crate) fn unjudged() -> Failure {
    let why =
        "rules are to be applied, and the proxy has none for this session: its stderr says why".to_owned();
    Failure::Denied { why }
}

#[cfg(test)]
mod tests;
