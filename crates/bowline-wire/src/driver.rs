//! The tokio driver, which runs a [`Peer`] over a reader and a writer.
//!
//! One task owns the whole connection: it takes messages from the callers' queue, writes, reads, and calls the
//! [`Service`]. It never waits for a handler, so that both sides may call each other from inside their handlers.
//! Callers wait while too much output is queued, and reading pauses while too many notifications wait for their
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

use crate::caller::{CallError, Caller, ControlSignals, OutgoingMessage, ResponseOrder, ResponseSender};
use crate::driver::notification_queue::NotificationQueue;
use crate::limits::ConnectionLimits;
use crate::message::body::JsonBody;
use crate::peer::{NextMessage, Peer, PeerEvent};
use crate::service::{
    CancelSignal, CatchPanic, IncomingRequest, Service, ServiceResponse, catch_panic, panic_error,
};
use crate::stream::eager_reader::EagerReader;

pub(crate) mod notification_queue;
mod unchecked;

use unchecked::{UncheckedOutcome, take_unchecked};

/// The maximum number of pieces of output in one write.
const MAX_SLICES: usize = 16;

/// The size of output, in bytes, that is written at once while messages are still being served, so that the other
/// side can work on it meanwhile.
const EARLY_WRITE_BYTES: usize = 4 << 10;

/// The number of handlers that wait together before they are polled again, so that the other side has answers to work on
/// while the rest of the input is processed.
const MAX_NEW_HANDLERS: usize = 16;

/// A connection that is ready to run.
pub struct Driver<R, W> {
    reader: R,
    writer: W,
    state: DriverState,
    notifications: NotificationQueue,
    outgoing: mpsc::Receiver<OutgoingMessage>,
    /// Whether reading is paused because notifications wait for their handler.
    reading_paused: watch::Sender<bool>,
    waker: Waker,
    caller: Caller,
    handlers: JoinSet<()>,
    /// Handlers that had to wait when they were called, until all input has been processed.
    new_handlers: Vec<(RequestId, CatchPanic<JsonBody>)>,
    limits: ConnectionLimits,
    phase: ConnectionPhase,
    drain_timer: Option<Pin<Box<Sleep>>>,
    has_unflushed_output: bool,
    /// Whether something was written since the input was last checked.
    has_written: bool,
    // Invariant: the last value sent to `reading_paused`.
    is_reading_paused: bool,
    /// Whether writing to the other side has failed. Its earlier messages are still read.
    write_failed: bool,
    eager_reader: Option<EagerReader>,
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Both sides may send.
    Open,
    /// The other side has closed its end; handlers finish.
    Draining,
    /// The handlers have been told to stop.
    Stopping,
    /// Only queued output is still written.
    Closing,
}

/// The peer, and the pending calls and handlers.
struct DriverState {
    peer: Peer,
    replies: HashMap<i64, (ResponseSender, ResponseOrder)>,
    /// Handlers that run as tasks, by request.
    running_handlers: HashMap<RequestId, CancelSignal>,
    /// Whether a handler has ended since the last check.
    has_finished_handler: bool,
    is_open: bool,
    control: Arc<ControlSignals>,
}

impl<R, W> Driver<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    /// Creates a connection over the two halves of a stream. It does nothing until it runs.
    pub fn new(reader: R, writer: W, limits: ConnectionLimits) -> (Caller, Self) {
        // With a limit of zero nothing would ever move.
        let limits = ConnectionLimits {
            high_water: limits.high_water.max(1),
            max_backlog: limits.max_backlog.max(1),
            ..limits
        };
        let (caller, outgoing, control, reading_paused) = Caller::new(limits.queue_capacity);
        let driver = Driver {
            reader,
            writer,
            state: DriverState {
                peer: Peer::new(limits),
                replies: HashMap::new(),
                running_handlers: HashMap::new(),
                has_finished_handler: false,
                is_open: true,
                control,
            },
            notifications: NotificationQueue::default(),
            outgoing,
            reading_paused,
            waker: Waker::noop().clone(),
            caller: caller.clone(),
            handlers: JoinSet::new(),
            new_handlers: Vec::new(),
            limits,
            phase: ConnectionPhase::Open,
            drain_timer: None,
            has_unflushed_output: false,
            has_written: false,
            is_reading_paused: false,
            write_failed: false,
            eager_reader: None,
        };
        (caller, driver)
    }

    /// Lets the connection poll for answers before it waits for them.
    pub(crate) fn with_eager_reader(mut self, eager_reader: Option<EagerReader>) -> Self {
        self.eager_reader = eager_reader;
        self
    }

    /// Serves until the other side ends, [`Caller::close`] is called, or reading or writing fails.
    ///
    /// # Errors
    /// Fails if reading or writing does. A peer that disconnects is not an error.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with time enabled.
    pub async fn run(mut self, mut service: impl Service) -> io::Result<()> {
        let result = poll_fn(|cx| self.poll(&mut service, cx)).await;
        self.notifications.deliver_responses();
        self.state.close();
        // Calls that are still queued must not wait for ever.
        self.outgoing.close();
        while let Ok(command) = self.outgoing.try_recv() {
            self.state.send_message(command);
        }
        match result {
            Err(error) if is_disconnect(&error) => Ok(()),
            result => result,
        }
    }

    fn poll(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waker.will_wake(cx.waker()) {
            self.waker = cx.waker().clone();
            self.state.control.set_waker(&self.waker);
        }
        // A pending source has registered this task's waker, so it is not polled twice.
        let (mut queue_waits, mut input_waits) = (false, false);
        loop {
            self.handle_control_signals();
            queue_waits = queue_waits || self.take_outgoing(cx).is_pending();
            self.notifications.poll(cx);
            self.poll_write(cx)?;
            let should_read = !input_waits && self.can_read();
            let read = should_read && self.poll_read(service, cx)?.is_ready();
            // Input that may not be read now has not registered the waker.
            input_waits = input_waits || should_read && !read;
            if self.poll_finished(cx) {
                return Poll::Ready(Ok(()));
            }
            let has_capacity = self.state.peer.output_len() < self.limits.high_water;
            if !read && (queue_waits || !has_capacity) && !self.read_eagerly(service, cx)? {
                return Poll::Pending;
            }
        }
    }

    /// Handles urgent signals from callers.
    fn handle_control_signals(&mut self) {
        if let Some((cancelled, close)) = self.state.control.take() {
            cancelled.into_iter().for_each(|id| self.state.cancel(id));
            if close && self.phase != ConnectionPhase::Closing {
                self.phase = ConnectionPhase::Closing;
                self.outgoing.close();
                self.state.close();
                self.state.running_handlers.values().for_each(CancelSignal::fire);
                self.drain_timer = Some(Box::pin(tokio::time::sleep(self.limits.drain_timeout)));
            }
        }
    }

    /// Takes messages from the callers' queue, as long as there is room.
    fn take_outgoing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.state.peer.output_len() < self.limits.high_water {
            match self.outgoing.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.state.send_message(command),
                // The queue ends only when the connection is closing, and then it is not waited for.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.state.peer.output_len() > 0 {
            if self.write_failed {
                drop(self.state.peer.take_output());
                self.has_unflushed_output = false;
                return Ok(());
            }
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let filled = self.state.peer.output_slices(&mut slices);
            // A single piece is the usual case, and a plain write is faster.
            let writer = Pin::new(&mut self.writer);
            let write = match &slices[..filled] {
                [piece] => writer.poll_write(cx, piece),
                pieces => writer.poll_write_vectored(cx, pieces),
            };
            match write {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) if is_disconnect(&error) => {
                    self.write_failed = true;
                    self.drain_timer
                        .get_or_insert_with(|| Box::pin(tokio::time::sleep(self.limits.drain_timeout)));
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    self.state.peer.consume_output(n);
                    self.has_unflushed_output = true;
                    self.has_written = true;
                }
            }
        }
        if self.has_unflushed_output
            && let Poll::Ready(flushed) = Pin::new(&mut self.writer).poll_flush(cx)
        {
            flushed?;
            self.has_unflushed_output = false;
        }
        Ok(())
    }

    /// Returns whether more input may be read. If not, another event has to come first, and wakes this task.
    fn can_read(&mut self) -> bool {
        let is_paused = self.notifications.size() >= self.limits.max_backlog;
        if is_paused != self.is_reading_paused {
            self.is_reading_paused = is_paused;
            self.reading_paused.send_replace(is_paused);
        }
        self.phase == ConnectionPhase::Open && !is_paused && !self.state.peer.is_flooded()
    }

    fn poll_read(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let read = pin!(self.reader.read_buf(self.state.peer.read_buffer())).poll(cx);
        let Poll::Ready(read) = read else { return Ok(Poll::Pending) };
        if read? == 0 {
            self.state.peer.end_input();
            self.phase = ConnectionPhase::Draining;
            self.drain_timer = Some(Box::pin(tokio::time::sleep(self.limits.drain_timeout)));
        }
        self.process_input(service, cx)?;
        if self.phase != ConnectionPhase::Open {
            self.state.close();
        }
        Ok(Poll::Ready(()))
    }

    /// Polls for input that should come soon. Returns whether it came.
    fn read_eagerly(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> io::Result<bool> {
        let expects_answer =
            std::mem::take(&mut self.has_written) && !self.state.replies.is_empty() && self.can_read();
        let Some(reader) = self.eager_reader.as_mut().filter(|_| expects_answer) else { return Ok(false) };
        let has_read = reader.try_read(self.state.peer.read_buffer());
        if has_read {
            self.process_input(service, cx)?;
        }
        Ok(has_read)
    }

    /// Processes everything that has been read.
    fn process_input(&mut self, service: &mut impl Service, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.new_handlers.len() >= MAX_NEW_HANDLERS {
                self.poll_new_handlers(cx);
            }
            if self.state.peer.output_len() >= EARLY_WRITE_BYTES {
                self.poll_write(cx)?;
            }
            let DriverState { peer, replies, .. } = &mut self.state;
            let Some(next) = peer.next_message(|message| {
                take_unchecked(message, service, replies, self.notifications.is_idle())
            }) else {
                self.poll_new_handlers(cx);
                return Ok(());
            };
            match next {
                NextMessage::Handled(UncheckedOutcome::Request(id, answer, cancel)) => {
                    self.respond(id, answer, cancel, cx)
                }
                NextMessage::Handled(UncheckedOutcome::Notification(handler, size)) => {
                    self.notifications.push_notification(handler, size, cx)
                }
                NextMessage::Handled(UncheckedOutcome::Handled)
                | NextMessage::Event(PeerEvent::LateResponse { .. }) => {}
                NextMessage::Event(PeerEvent::Request { id, method, params }) => {
                    let cancel = CancelSignal::new();
                    let (raw_params, signal) = (params.into(), cancel.clone());
                    let incoming = IncomingRequest {
                        id: id.clone(),
                        method: &method,
                        params: raw_params,
                        cancel: signal,
                    };
                    let answer = catch_panic(|| service.handle_request(incoming)).and_then(Result::ok);
                    self.respond(
                        id,
                        answer.unwrap_or(ServiceResponse::Ready(Err(panic_error()))),
                        cancel,
                        cx,
                    );
                }
                NextMessage::Event(PeerEvent::Notification { method, params }) => {
                    let size = params.map_or(0, |params| params.get().len());
                    if let Some(Ok(Some(handler))) =
                        catch_panic(|| service.handle_notification(&method, params.into()))
                    {
                        self.notifications.push_notification(handler, size, cx);
                    }
                }
                NextMessage::Event(PeerEvent::Response { id, outcome }) => {
                    let outcome = outcome.map_err(CallError::ErrorResponse);
                    match replies.remove(&id) {
                        Some((reply, ResponseOrder::AfterNotifications)) => {
                            self.notifications.push_response(reply, outcome)
                        }
                        Some((reply, _)) => reply.send(outcome),
                        None => {}
                    }
                }
                NextMessage::Event(PeerEvent::Cancel { id }) => {
                    self.state.running_handlers.get(&id).into_iter().for_each(CancelSignal::fire);
                }
                NextMessage::Event(PeerEvent::Violation(violation)) => {
                    catch_panic(|| service.handle_violation(violation));
                }
            }
        }
    }

    /// Answers a request now, or when its handler completes.
    fn respond(
        &mut self,
        id: RequestId,
        answer: ServiceResponse,
        cancel: CancelSignal,
        cx: &mut Context<'_>,
    ) {
        let mut handler = match answer {
            ServiceResponse::Ready(answer) => return self.respond_now(id, answer, cancel),
            ServiceResponse::Deferred(handler) => CatchPanic(handler),
        };
        match Pin::new(&mut handler).poll(cx) {
            Poll::Ready(answer) => self.respond_now(id, answer, cancel),
            Poll::Pending => {
                self.state.running_handlers.insert(id.clone(), cancel);
                self.new_handlers.push((id, handler));
            }
        }
    }

    /// Polls handlers once more after all requests that arrived together were called: some only wait for each other's
    /// work, and need no task of their own.
    fn poll_new_handlers(&mut self, cx: &mut Context<'_>) {
        for (id, mut handler) in std::mem::take(&mut self.new_handlers) {
            match Pin::new(&mut handler).poll(cx) {
                Poll::Ready(answer) => {
                    if let Some(cancel) = self.state.running_handlers.remove(&id) {
                        self.respond_now(id, answer, cancel);
                    }
                }
                Poll::Pending => {
                    let caller = self.caller.clone();
                    self.handlers.spawn(async move { caller.respond(id, handler.await).await });
                }
            }
        }
    }

    fn respond_now(&mut self, id: RequestId, answer: Result<JsonBody, Error>, signal: CancelSignal) {
        // Messages that the handler sent before it answered must be sent before the answer.
        while self.state.peer.output_len() < self.limits.high_water {
            match self.outgoing.try_recv() {
                Ok(command) => self.state.send_message(command),
                Err(_) => {
                    self.state.respond(&id, answer);
                    return signal.mark_answered();
                }
            }
        }
        self.state.running_handlers.insert(id.clone(), signal);
        let caller = self.caller.clone();
        self.handlers.spawn(async move { caller.respond(id, answer).await });
    }

    /// Returns whether the connection is finished.
    fn poll_finished(&mut self, cx: &mut Context<'_>) -> bool {
        if std::mem::take(&mut self.state.has_finished_handler) {
            while self.handlers.try_join_next().is_some() {}
        }
        if self.phase == ConnectionPhase::Open {
            if !self.write_failed || !self.is_drain_over(cx) {
                return false;
            }
            // A peer that no longer reads is as good as gone: handlers are told, and may finish in order.
            self.phase = ConnectionPhase::Draining;
            self.state.close();
        }
        let written = self.state.peer.output_len() == 0 && !self.has_unflushed_output;
        if self.phase == ConnectionPhase::Closing {
            return written && self.outgoing.is_empty() || self.is_drain_over(cx);
        }
        while let Poll::Ready(Some(_)) = self.handlers.poll_join_next(cx) {}
        if self.handlers.is_empty() && self.notifications.is_idle() && self.outgoing.is_empty() && written {
            return true;
        }
        while self.is_drain_over(cx) {
            if self.phase == ConnectionPhase::Stopping {
                return true;
            }
            self.phase = ConnectionPhase::Stopping;
            self.state.running_handlers.values().for_each(CancelSignal::fire);
            self.drain_timer = Some(Box::pin(tokio::time::sleep(self.limits.drain_timeout)));
        }
        false
    }

    /// Returns whether the drain timeout has passed.
    fn is_drain_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.drain_timer.as_mut().is_some_and(|drain| drain.as_mut().poll(cx).is_ready())
    }
}

impl DriverState {
    fn send_message(&mut self, command: OutgoingMessage) {
        match command {
            OutgoingMessage::Request { id, method, params, reply, order } => {
                if reply.is_cancelled() {
                    return;
                }
                if !self.is_open {
                    return reply.send(Err(CallError::Closed));
                }
                match self.peer.request_with_id(id, &method, params) {
                    Ok(()) => drop(self.replies.insert(id, (reply, order))),
                    Err(error) => reply.send(Err(error.into())),
                }
            }
            // A client may have closed its end and still read ours.
            OutgoingMessage::Notification { method, params } => self.peer.notify(&method, params),
            OutgoingMessage::Response { id, result: answer } => {
                self.has_finished_handler = true;
                let signal = self.running_handlers.remove(&id);
                self.respond(&id, answer);
                if let Some(signal) = signal {
                    signal.mark_answered();
                }
            }
        }
    }

    fn respond(&mut self, id: &RequestId, answer: Result<JsonBody, Error>) {
        let result = self.peer.respond(id, answer);
        debug_assert!(result.is_ok(), "a request is answered once: {result:?}");
    }

    fn cancel(&mut self, id: i64) {
        // Answered calls and calls that are still queued are not in the map.
        if self.replies.remove(&id).is_some() {
            self.peer.cancel(id);
        }
    }

    /// Fails every pending call, and every later one. Other messages are still sent.
    fn close(&mut self) {
        self.is_open = false;
        self.control.set_remote_closed();
        for (_, (reply, _)) in self.replies.drain() {
            reply.send(Err(CallError::Closed));
        }
    }
}

/// Returns whether the error only means that the other side is gone.
fn is_disconnect(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}
