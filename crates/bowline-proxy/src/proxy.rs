//! Passing messages between an editor, an agent and the proxy's own end: one task owns all of it.
//!
//! Each way has a bound on what waits. A side that does not read stops the other from being read, and nothing else: the two
//! ways do not wait for each other, and answers to calls of our own are read on while an agent is slow.

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_state::failure::Failure;
use bowline_state::relay::{Fact, Relay, Side};
use bowline_state::schema::v1::{Error, RequestId};
use bowline_wire::driver::Driver;
use bowline_wire::service::Service;
use bowline_wire::{Caller, Limits};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use crate::between::{Between, BoxFuture, Decision, Deed, Order, Passing};
use crate::lane::{Input, Output, Piece, Reader, Writer};

mod canonical;
mod giving_up;
mod routing;

/// What may wait, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The longest line that is looked at, in bytes. A longer one is passed on in pieces, however long it is, unless it is the
    /// agent's and `strict` holds; of the proxy's own calls it fails the call.
    pub look: usize,
    /// Whether rules are applied to what the agent says: then each of its messages goes on as it was judged, written anew,
    /// and nothing goes on that cannot be looked at.
    pub strict: bool,
    /// So many bytes wait for a side that does not read; then the other is not read. What one read or one message brings
    /// may go over it.
    pub high_water: usize,
    /// So many, while calls of our own wait for answers that may stand behind them; twice as many before our own end waits
    /// for the agent.
    pub backlog: usize,
    /// How long the agent may go on when the editor is gone.
    pub grace: Duration,
    /// How long the last messages may take to be written, and a side that does not take any is waited for.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            look: 64 << 20,
            strict: false,
            high_water: 1 << 20,
            backlog: 16 << 20,
            grace: Duration::from_secs(5),
            drain: Duration::from_secs(2),
        }
    }
}

/// So many messages are held at once, over which others may go on; beyond that nothing more is read.
const MAX_HELD: usize = 64;

/// The room between the proxy and its own end, in bytes.
const OWN: usize = 256 << 10;

/// The two halves of an end.
pub struct Ends {
    /// What comes from there.
    pub reader: Reader,
    /// What goes there.
    pub writer: Writer,
}

/// Why a proxy ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The agent ended by itself: how, as the editor was told.
    Agent(String),
    /// The editor is gone.
    Editor,
    /// It was told to.
    Stopped,
}

/// A proxy that is ready to run.
pub struct Proxy {
    between: Box<dyn Between>,
    settings: Settings,
    own: Ends,
    serving: BoxFuture<std::io::Result<()>>,
    told: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Proxy {
    /// Makes a proxy, and returns the way to make calls of our own. `service` answers what was taken.
    pub fn new(between: impl Between + 'static, service: impl Service, settings: Settings) -> (Caller, Self) {
        let (ours, theirs) = (tokio::io::duplex(OWN), tokio::io::duplex(OWN));
        let limits = Limits::DEFAULT.with_max_line(settings.look);
        let (caller, driver) = Driver::new(theirs.1, ours.0, limits);
        let own = Ends { reader: Box::new(ours.1), writer: Box::new(theirs.0) };
        let serving = Box::pin(driver.run(service));
        (caller, Self { between: Box::new(between), settings, own, serving, told: None })
    }

    /// Passes lines on to the editor, each before whatever is held and goes on after it was given.
    #[must_use]
    pub fn telling(self, told: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { told: Some(told), ..self }
    }

    /// Passes messages on until one side is gone, or `stop` is done. When the agent is, `farewell` says how it ended, and
    /// every request of the editor that is open is answered with that.
    pub async fn run(
        self,
        editor: Ends,
        agent: Ends,
        farewell: impl Future<Output = String>,
        stop: impl Future<Output = ()>,
    ) -> Ended {
        let (mut farewell, mut stop) = (pin!(farewell), pin!(stop));
        let serving = AbortOnDrop(tokio::spawn(self.serving));
        let ends = [editor, agent, self.own].map(|ends| End {
            input: Input::new(ends.reader),
            output: Output::new(ends.writer),
            long: None,
            stalled: None,
            deaf: None,
        });
        let mut core = Core {
            relay: Relay::default(),
            between: self.between,
            settings: self.settings,
            told: self.told,
            ends,
            overtaken: FuturesUnordered::new(),
            held: [0; 3],
            phase: Phase::Open,
            deadline: None,
            ended: None,
        };
        let ended = poll_fn(|cx| core.poll(cx, farewell.as_mut(), stop.as_mut())).await;
        drop(serving);
        ended
    }
}

/// The own end's connection, for as long as the proxy runs.
struct AbortOnDrop(tokio::task::JoinHandle<std::io::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const EDITOR: usize = 0;
const AGENT: usize = 1;
const OWN_END: usize = 2;

fn side(end: usize) -> Side {
    if end == AGENT { Side::Agent } else { Side::Editor }
}

fn end_of(side: Side) -> usize {
    match side {
        Side::Editor => EDITOR,
        Side::Agent => AGENT,
    }
}

/// One end: a side, or the proxy itself.
struct End {
    input: Input,
    output: Output,
    // Where the long line goes that is coming in here.
    long: Option<Long>,
    // What has to go on before anything else of this end is looked at.
    stalled: Option<Waiting>,
    // Until when somebody may still say something who takes nothing any more, or what it asked for is still done that says
    // nothing any more.
    deaf: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Long {
    To(usize),
    Nowhere,
}

/// A message that is held, with what becomes of it.
struct Waiting {
    held: Held,
    deed: BoxFuture<Deed>,
}

/// A message that somebody looked at.
struct Held {
    from: usize,
    kind: Kind,
    id: Option<RequestId>,
    // What stands in the place of the id on the other side.
    renamed: Option<RequestId>,
    line: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Answer,
    Told,
}

impl Future for Waiting {
    type Output = (Held, Deed);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(deed) = self.deed.as_mut().poll(cx) else { return Poll::Pending };
        let Held { from, kind, .. } = self.held;
        let nothing = Held { from, kind, id: None, renamed: None, line: Bytes::new() };
        Poll::Ready((std::mem::replace(&mut self.held, nothing), deed))
    }
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Both sides are there.
    Open,
    /// The editor is gone; the agent ends.
    EditorGone,
    /// The agent is gone; how it ended is not known yet.
    AgentGone,
    /// All that is left is to write what waits.
    Closing,
}

struct Core {
    relay: Relay,
    between: Box<dyn Between>,
    settings: Settings,
    told: Option<mpsc::Receiver<Vec<u8>>>,
    ends: [End; 3],
    overtaken: FuturesUnordered<Waiting>,
    // How many bytes of each end are among `overtaken`.
    held: [usize; 3],
    phase: Phase,
    deadline: Option<Pin<Box<Sleep>>>,
    ended: Option<Ended>,
}

impl Core {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut farewell: Pin<&mut impl Future<Output = String>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<Ended> {
        if self.ended.is_none() && stop.as_mut().poll(cx).is_ready() {
            self.ended = Some(Ended::Stopped);
            self.ends[EDITOR].input.end();
        }
        loop {
            let mut has_moved = false;
            for end in &mut self.ends {
                has_moved |= end.output.write(cx);
            }
            has_moved |= self.poll_held(cx);
            for from in [EDITOR, AGENT, OWN_END] {
                has_moved |= self.serve(from);
                if self.may_take(from) && self.ends[from].input.poll_read(cx).is_ready() {
                    has_moved = true;
                    self.serve(from);
                }
            }
            has_moved |= self.poll_phase(cx, farewell.as_mut());
            if self.is_over(cx) {
                return Poll::Ready(self.ended.take().unwrap_or(Ended::Editor));
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
    }

    /// Says whether more of what an end sends may be taken. If not, something else moves first.
    fn may_take(&self, from: usize) -> bool {
        let Settings { high_water, backlog, .. } = self.settings;
        let is_free = |to: usize| {
            let limit = match (from, to) {
                (EDITOR, AGENT) if self.relay.has_own(Side::Editor) => backlog,
                // What we ask the editor does not wait for an agent that does not read: it may wait for the answer.
                (OWN_END, AGENT) => 2 * backlog,
                _ => high_water,
            };
            let is_between_lines =
                (0..3).all(|other| other == from || self.ends[other].long != Some(Long::To(to)));
            self.ends[to].output.size() < limit && is_between_lines
        };
        let is_held = self.ends[from].stalled.is_some()
            || self.held[from] >= backlog
            || self.overtaken.len() >= MAX_HELD && from != OWN_END && !self.relay.has_own(Side::Editor);
        !is_held && (0..3).filter(|to| *to != from).all(is_free)
    }

    /// Passes on what has come in at an end, as far as it may go on.
    fn serve(&mut self, from: usize) -> bool {
        let mut has_moved = false;
        while self.may_take(from) {
            let Some(piece) = self.ends[from].input.next(self.settings.look) else { break };
            has_moved = true;
            match piece {
                Piece::Line(length) => self.route(from, length, true),
                Piece::LongBegins(length) => self.route(from, length, false),
                Piece::More(length) => self.more(from, length),
                Piece::LongEnds(length) => {
                    self.more(from, length);
                    self.flush(from);
                    self.ends[from].long = None;
                }
            }
        }
        self.flush(from);
        has_moved
    }

    fn more(&mut self, from: usize, length: usize) {
        match self.ends[from].long {
            Some(Long::To(to)) => {
                self.flush(from);
                let part = self.ends[from].input.take(length);
                self.ends[to].output.push(part);
            }
            Some(Long::Nowhere) | None => {
                self.flush(from);
                drop(self.ends[from].input.take(length));
            }
        }
    }

    /// Hands over what goes on as it is.
    fn flush(&mut self, from: usize) {
        if let Some(passed) = self.ends[from].input.passed() {
            self.ends[end_of(side(from).other())].output.push(passed);
        }
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ends.iter().any(|end| matches!(end.long, Some(Long::To(_)))) {
            // It would land in the middle of a line. The end of that wakes this task.
            return false;
        }
        let mut has_moved = self.poll_told(cx);
        for from in [EDITOR, AGENT] {
            let Some(waiting) = &mut self.ends[from].stalled else { continue };
            if let Poll::Ready((held, deed)) = Pin::new(waiting).poll(cx) {
                self.ends[from].stalled = None;
                self.release(held, deed);
                has_moved = true;
            }
        }
        while let Poll::Ready(Some((held, deed))) = Pin::new(&mut self.overtaken).poll_next(cx) {
            self.held[held.from] -= held.line.len();
            self.release(held, deed);
            has_moved = true;
        }
        has_moved
    }

    /// Takes what the editor is to be told beside what passes, unless it does not read.
    fn poll_told(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while self.ends[EDITOR].output.size() < self.settings.high_water
            && let Some(told) = &mut self.told
            && let Poll::Ready(line) = told.poll_recv(cx)
        {
            has_moved = true;
            match line {
                Some(line) => self.ends[EDITOR].output.push_line(line),
                None => self.told = None,
            }
        }
        has_moved
    }

    /// Writes what the editor is to be told before the next message of the agent is looked at, which may say more of it.
    fn write_told(&mut self) {
        while let Some(told) = &mut self.told
            && let Ok(line) = told.try_recv()
        {
            self.ends[EDITOR].output.push_line(line);
        }
    }

    /// Shows a message that matters to whoever stands between.
    fn look(&mut self, held: Held, fact: &Fact) {
        if held.from == AGENT {
            self.write_told();
        }
        // An answer that was renamed on its way is known to whoever asked by the id it gets back.
        let id = held.renamed.as_ref().filter(|_| held.kind == Kind::Answer).or(held.id.as_ref());
        let passing = Passing { from: side(held.from), fact, id, line: &held.line };
        match self.between.look(passing) {
            // An answer of ours would land in the middle of a line.
            Decision::Now(deed @ Deed::Answer(_)) if self.takes_a_long_line(held.from) => {
                self.hold(held, Box::pin(ready(deed)));
            }
            Decision::Now(deed) => self.apply(held, deed),
            Decision::Later(Order::Keep, deed) => {
                let from = held.from;
                self.ends[from].stalled = Some(Waiting { held, deed });
            }
            Decision::Later(Order::Overtake, deed) => self.hold(held, deed),
        }
    }

    /// Notes who is gone, and what follows from it. Returns whether something did.
    fn poll_phase(&mut self, cx: &mut Context<'_>, farewell: Pin<&mut impl Future<Output = String>>) -> bool {
        self.drop_the_deaf(cx);
        if self.give_up_for_nobody(cx) {
            return true;
        }
        match self.phase {
            Phase::Open | Phase::EditorGone if self.is_done(AGENT) => {
                self.phase = Phase::AgentGone;
                self.ends[AGENT].output.abandon();
                true
            }
            Phase::Open if self.is_done(EDITOR) => {
                self.phase = Phase::EditorGone;
                self.ended.get_or_insert(Ended::Editor);
                // Nobody answers calls of ours any more, and the agent hears that nobody is there.
                self.ends[OWN_END].output.close();
                self.ends[AGENT].output.close();
                self.deadline = Some(Box::pin(sleep(self.settings.grace)));
                true
            }
            Phase::AgentGone => {
                let Poll::Ready(how) = farewell.poll(cx) else { return false };
                self.give_up_own(None);
                for id in self.relay.abandon(Side::Editor) {
                    let error: Error = Failure::Internal { reason: how.clone() }.into();
                    self.ends[EDITOR].output.push_line(refusal(&json!(id), &error));
                }
                self.ended.get_or_insert(Ended::Agent(how));
                self.ends[EDITOR].output.close();
                self.phase = Phase::Closing;
                self.deadline = Some(Box::pin(sleep(self.settings.drain)));
                true
            }
            Phase::Open | Phase::EditorGone | Phase::Closing => false,
        }
    }

    /// Says whether all that an end sent has gone on, and nothing more comes.
    fn is_done(&self, from: usize) -> bool {
        self.ends[from].input.has_ended()
            && self.ends[from].stalled.is_none()
            && self.held[from] == 0
            && self.ends[from].input.is_empty()
    }

    /// Takes a side that has not taken anything for long enough, though it is there, as gone.
    fn drop_the_deaf(&mut self, cx: &mut Context<'_>) {
        for at in [EDITOR, AGENT] {
            let end = &mut self.ends[at];
            if end.output.is_closed() && !end.input.has_ended() && self.phase == Phase::Open {
                let deaf = end.deaf.get_or_insert_with(|| Box::pin(sleep(self.settings.drain)));
                if deaf.as_mut().poll(cx).is_ready() {
                    end.input.end();
                }
            }
        }
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase == Phase::Closing && self.ends[EDITOR].output.is_closed() {
            return true;
        }
        self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
    }
}

/// Returns an answer that says why there is no other.
fn refusal(id: &serde_json::Value, error: &Error) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes()
}

#[cfg(test)]
pub(crate) mod tests;
