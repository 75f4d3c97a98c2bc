//! Runs a [`Peer`] over a reader and a writer on tokio.
//!
//! One task owns the whole connection: it takes what local callers queue, writes, reads, and calls the
//! [`Service`]. It never waits for a handler, so that both sides may call each other from inside their handlers.
//! Callers wait while too much output is queued, and reading stops while too many notifications wait for their
//! handler, so a slow or stopped peer costs bounded memory.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use agent_client_protocol_schema::v1::{Error, RequestId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use crate::body::Body;
use crate::caller::{CallError, Caller, Command, Order, Reply, Urgent};
use crate::eager::Eager;
use crate::lane::Lane;
use crate::limits::Limits;
use crate::peer::{Event, Next, Peer};
use crate::service::{Answer, CancelSignal, Incoming, NoPanic, Service, guard, panicked};

mod taking;

use taking::{Taken, take};

/// How many pieces of output go into one write.
const SLICES: usize = 16;

/// Output that has grown this long while messages are being served is written at once, so that the other side can
/// work on it meanwhile.
const WRITE_EARLY: usize = 4 << 10;

/// A connection that is ready to run.
pub struct Driver<R, W> {
    reader: R,
    writer: W,
    link: Link,
    lane: Lane,
    commands: mpsc::Receiver<Command>,
    /// Whether reading has stopped because notifications wait for their handler.
    jammed: watch::Sender<bool>,
    waker: Waker,
    caller: Caller,
    handlers: JoinSet<()>,
    limits: Limits,
    phase: Phase,
    drain: Option<Pin<Box<Sleep>>>,
    unflushed: bool,
    /// Whether something was written since the input was last looked for.
    wrote: bool,
    // Invariant: what `jammed` was last told.
    is_jammed: bool,
    /// Whether the other side can no longer be written to. What it wrote before is still read.
    write_failed: bool,
    eager: Option<Eager>,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Both sides may send.
    Open,
    /// The other side has ended; handlers finish.
    Draining,
    /// The handlers have been told to stop.
    Stopping,
    /// What is queued is written, and that is all.
    Closing,
}

/// The peer, and who waits for what.
struct Link {
    peer: Peer,
    replies: HashMap<i64, (Reply, Order)>,
    /// Handlers that had to wait, by the request that they serve.
    running: HashMap<RequestId, CancelSignal>,
    /// Whether a handler has ended since the last time anybody looked.
    answered: bool,
    open: bool,
    urgent: Arc<Urgent>,
}

impl<R, W> Driver<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    /// Makes a connection over two halves of a stream. It does nothing until it runs.
    pub fn new(reader: R, writer: W, limits: Limits) -> (Caller, Self) {
        // With nothing allowed at all nothing would ever move.
        let limits =
            Limits { high_water: limits.high_water.max(1), max_backlog: limits.max_backlog.max(1), ..limits };
        let (caller, commands, urgent, jammed) = Caller::new(limits.queue);
        let driver = Driver {
            reader,
            writer,
            link: Link {
                peer: Peer::new(limits),
                replies: HashMap::new(),
                running: HashMap::new(),
                answered: false,
                open: true,
                urgent,
            },
            lane: Lane::default(),
            commands,
            jammed,
            waker: Waker::noop().clone(),
            caller: caller.clone(),
            handlers: JoinSet::new(),
            limits,
            phase: Phase::Open,
            drain: None,
            unflushed: false,
            wrote: false,
            is_jammed: false,
            write_failed: false,
            eager: None,
        };
        (caller, driver)
    }

    /// Lets the connection look for answers before it waits for them.
    pub(crate) fn eager(mut self, eager: Option<Eager>) -> Self {
        self.eager = eager;
        self
    }

    /// Serves until the other side ends, [`Caller::close`] is called, or reading or writing fails.
    ///
    /// # Errors
    /// Fails when reading or writing does. That the other side is gone is no error.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with time enabled.
    pub async fn run(mut self, mut service: impl Service) -> io::Result<()> {
        let result = poll_fn(|cx| self.poll(&mut service, cx)).await;
        self.lane.hand_over();
        self.link.close();
        // Calls still in the queue must not wait for ever.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.link.command(command);
        }
        match result {
            Err(error) if is_gone(&error) => Ok(()),
            result => result,
        }
    }

    fn poll(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waker.will_wake(cx.waker()) {
            self.waker = cx.waker().clone();
            self.link.urgent.wake(&self.waker);
        }
        // A source that has nothing more to give wakes this task when it has, so it is not asked twice.
        let (mut queue_waits, mut input_waits) = (false, false);
        loop {
            self.heed();
            queue_waits = queue_waits || self.take_commands(cx).is_pending();
            self.lane.poll(cx);
            self.poll_write(cx)?;
            let asked = !input_waits && self.may_read();
            let read = asked && self.poll_read(service, cx)?.is_ready();
            // Input that may not be taken now has not said that it will wake this task.
            input_waits = input_waits || asked && !read;
            if self.poll_end(cx) {
                return Poll::Ready(Ok(()));
            }
            let room = self.link.peer.output_len() < self.limits.high_water;
            if !read && (queue_waits || !room) && !self.look(service, cx)? {
                return Poll::Pending;
            }
        }
    }

    /// Acts on what callers need done at once.
    fn heed(&mut self) {
        if let Some((cancelled, close)) = self.link.urgent.take() {
            cancelled.into_iter().for_each(|id| self.link.cancel(id));
            if close && self.phase != Phase::Closing {
                self.phase = Phase::Closing;
                self.commands.close();
                self.link.close();
                self.link.running.values().for_each(CancelSignal::fire);
                self.drain = Some(Box::pin(tokio::time::sleep(self.limits.drain)));
            }
        }
    }

    /// Takes what callers have queued, as long as there is room for it.
    fn take_commands(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.link.peer.output_len() < self.limits.high_water {
            match self.commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.link.command(command),
                // The queue has ended only when the connection is closing, and then it is not waited for.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.link.peer.output_len() > 0 {
            if self.write_failed {
                drop(self.link.peer.take_output());
                self.unflushed = false;
                return Ok(());
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.link.peer.output(&mut slices);
            // One piece is the usual case, and the system takes it faster as such.
            let writer = Pin::new(&mut self.writer);
            let write = match &slices[..filled] {
                [piece] => writer.poll_write(cx, piece),
                pieces => writer.poll_write_vectored(cx, pieces),
            };
            match write {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) if is_gone(&error) => {
                    self.write_failed = true;
                    self.drain.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.limits.drain)));
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    self.link.peer.consume_output(n);
                    self.unflushed = true;
                    self.wrote = true;
                }
            }
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.writer).poll_flush(cx)
        {
            flushed?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// Whether more input may be taken. If not, something else must move first, and wakes this task.
    fn may_read(&mut self) -> bool {
        let jammed = self.lane.size() >= self.limits.max_backlog;
        if jammed != self.is_jammed {
            self.is_jammed = jammed;
            self.jammed.send_replace(jammed);
        }
        self.phase == Phase::Open && !jammed && !self.link.peer.is_flooded()
    }

    fn poll_read(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let read = pin!(self.reader.read_buf(self.link.peer.room())).poll(cx);
        let Poll::Ready(read) = read else { return Ok(Poll::Pending) };
        if read? == 0 {
            self.link.peer.end();
            self.phase = Phase::Draining;
            self.drain = Some(Box::pin(tokio::time::sleep(self.limits.drain)));
        }
        self.serve(service, cx)?;
        if self.phase != Phase::Open {
            self.link.close();
        }
        Ok(Poll::Ready(()))
    }

    /// Looks for input that should come soon. Returns whether it came.
    fn look(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> io::Result<bool> {
        let expecting = std::mem::take(&mut self.wrote) && !self.link.replies.is_empty() && self.may_read();
        let Some(eager) = self.eager.as_mut().filter(|_| expecting) else { return Ok(false) };
        let came = eager.look(self.link.peer.room());
        if came {
            self.serve(service, cx)?;
        }
        Ok(came)
    }

    /// Acts on everything that has been read.
    fn serve(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.link.peer.output_len() >= WRITE_EARLY {
                self.poll_write(cx)?;
            }
            let Link { peer, replies, .. } = &mut self.link;
            let Some(next) = peer.next(|guess| take(guess, service, replies, self.lane.is_idle())) else {
                return Ok(());
            };
            match next {
                Next::Taken(Taken::Request(id, answer, cancel)) => self.answer(id, answer, cancel, cx),
                Next::Taken(Taken::Notification(handler, size)) => self.lane.notification(handler, size, cx),
                Next::Taken(Taken::Done) | Next::Event(Event::LateResponse { .. }) => {}
                Next::Event(Event::Request { id, method, params }) => {
                    let cancel = CancelSignal::new();
                    let (given, fired) = (params.into(), cancel.clone());
                    let incoming = Incoming { id: id.clone(), method: &method, params: given, cancel: fired };
                    let answer = guard(|| service.request(incoming)).and_then(Result::ok);
                    self.answer(id, answer.unwrap_or(Answer::Now(Err(panicked()))), cancel, cx);
                }
                Next::Event(Event::Notification { method, params }) => {
                    let size = params.map_or(0, |params| params.get().len());
                    if let Some(Ok(Some(handler))) = guard(|| service.notification(&method, params.into())) {
                        self.lane.notification(handler, size, cx);
                    }
                }
                Next::Event(Event::Response { id, outcome }) => {
                    let outcome = outcome.map_err(CallError::Refused);
                    match replies.remove(&id) {
                        Some((reply, Order::AfterNotifications)) => self.lane.answer(reply, outcome),
                        Some((reply, _)) => reply.send(outcome),
                        None => {}
                    }
                }
                Next::Event(Event::Cancel { id }) => {
                    self.link.running.get(&id).into_iter().for_each(CancelSignal::fire);
                }
                Next::Event(Event::Breach(breach)) => {
                    guard(|| service.breach(breach));
                }
            }
        }
    }

    /// Answers a request now, or has it answered when its handler is done.
    fn answer(&mut self, id: RequestId, answer: Answer, cancel: CancelSignal, cx: &mut Context<'_>) {
        let mut handler = match answer {
            Answer::Now(answer) => return self.answer_now(id, answer, cancel),
            Answer::Later(handler) => NoPanic(handler),
        };
        match Pin::new(&mut handler).poll(cx) {
            Poll::Ready(answer) => self.answer_now(id, answer, cancel),
            Poll::Pending => {
                self.link.running.insert(id.clone(), cancel);
                let caller = self.caller.clone();
                self.handlers.spawn(async move { caller.answer(id, handler.await).await });
            }
        }
    }

    fn answer_now(&mut self, id: RequestId, answer: Result<Body, Error>, signal: CancelSignal) {
        // What the handler sent before it answered must leave before the answer does.
        while self.link.peer.output_len() < self.limits.high_water {
            match self.commands.try_recv() {
                Ok(command) => self.link.command(command),
                Err(_) => {
                    self.link.respond(&id, answer);
                    return signal.settle();
                }
            }
        }
        self.link.running.insert(id.clone(), signal);
        let caller = self.caller.clone();
        self.handlers.spawn(async move { caller.answer(id, answer).await });
    }

    /// Whether the connection is over.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> bool {
        if std::mem::take(&mut self.link.answered) {
            while self.handlers.try_join_next().is_some() {}
        }
        if self.phase == Phase::Open {
            if !self.write_failed || !self.drained(cx) {
                return false;
            }
            // Whoever does not listen is as good as gone: handlers are told, and may end in order.
            self.phase = Phase::Draining;
            self.link.close();
        }
        let written = self.link.peer.output_len() == 0 && !self.unflushed;
        if self.phase == Phase::Closing {
            return written && self.commands.is_empty() || self.drained(cx);
        }
        while let Poll::Ready(Some(_)) = self.handlers.poll_join_next(cx) {}
        if self.handlers.is_empty() && self.lane.is_idle() && self.commands.is_empty() && written {
            return true;
        }
        while self.drained(cx) {
            if self.phase == Phase::Stopping {
                return true;
            }
            self.phase = Phase::Stopping;
            self.link.running.values().for_each(CancelSignal::fire);
            self.drain = Some(Box::pin(tokio::time::sleep(self.limits.drain)));
        }
        false
    }

    /// Whether the time to finish is over.
    fn drained(&mut self, cx: &mut Context<'_>) -> bool {
        self.drain.as_mut().is_some_and(|drain| drain.as_mut().poll(cx).is_ready())
    }
}

impl Link {
    fn command(&mut self, command: Command) {
        match command {
            Command::Call { id, method, params, reply, order } => {
                if reply.is_unwanted() {
                    return;
                }
                if !self.open {
                    return reply.send(Err(CallError::Closed));
                }
                match self.peer.request_as(id, &method, params) {
                    Ok(()) => drop(self.replies.insert(id, (reply, order))),
                    Err(not_sent) => reply.send(Err(not_sent.into())),
                }
            }
            // A client may have closed its end and still read ours.
            Command::Notify { method, params } => self.peer.notify(&method, params),
            Command::Answer { id, answer } => {
                self.answered = true;
                let signal = self.running.remove(&id);
                self.respond(&id, answer);
                if let Some(signal) = signal {
                    signal.settle();
                }
            }
        }
    }

    fn respond(&mut self, id: &RequestId, answer: Result<Body, Error>) {
        let owed = self.peer.respond(id, answer);
        debug_assert!(owed.is_ok(), "a request is answered once: {owed:?}");
    }

    fn cancel(&mut self, id: i64) {
        // A call that is still in the queue, or was answered, is not among them.
        if self.replies.remove(&id).is_some() {
            self.peer.cancel(id);
        }
    }

    /// Fails every call that waits, and every later one. What is not a call still leaves.
    fn close(&mut self) {
        self.open = false;
        self.urgent.deafen();
        for (_, (reply, _)) in self.replies.drain() {
            reply.send(Err(CallError::Closed));
        }
    }
}

/// Whether the error only says that the other side is no longer there.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}
