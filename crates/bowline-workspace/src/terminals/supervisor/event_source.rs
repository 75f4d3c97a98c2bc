//! The events of a supervisor, all from descriptors that one thread waits for.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGCHLD;
use signal_hook::low_level::pipe;

use super::super::protocol::{RequestReader, SupervisorRequest};

/// What a supervisor waits for.
pub(super) enum Event {
    /// The host requests something.
    Request(SupervisorRequest),
    /// The host or the keeper is gone.
    Orphaned,
    /// A child may have exited.
    ChildExited,
    /// The time is over.
    Timeout,
}

/// The sources of a supervisor's events.
pub(super) struct EventSource {
    requests: RequestReader,
    keeper: UnixStream,
    // Whether the host or the keeper is gone, which is reported once.
    is_orphaned: bool,
    // Has a byte after each exit of a child, unless it already has many.
    exits: UnixStream,
}

impl EventSource {
    /// Returns the sources, before any child is started.
    pub(super) fn new(requests: RequestReader, keeper: UnixStream) -> io::Result<Self> {
        let (exits, signals) = UnixStream::pair()?;
        exits.set_nonblocking(true)?;
        pipe::register(SIGCHLD, signals)?;
        Ok(Self { requests, keeper, is_orphaned: false, exits })
    }

    /// Waits for the next event, until a deadline if there is one.
    pub(super) fn next(&mut self, deadline: Option<Instant>) -> io::Result<Event> {
        loop {
            if !self.is_orphaned {
                match self.requests.take_request() {
                    Ok(Some(request)) => return Ok(Event::Request(request)),
                    Ok(None) => {}
                    // A host that does not speak the protocol is as good as gone.
                    Err(_) => return Ok(self.become_orphan()),
                }
            }
            // Exits come last: a command that forks without end must not keep requests waiting.
            let [requests, keeper, exits] = self.poll(deadline)?;
            if requests && !self.requests.receive().unwrap_or(false) || keeper && self.is_keeper_gone() {
                return Ok(self.become_orphan());
            }
            if exits {
                // Bytes that are left only lead to another event.
                self.exits.read(&mut [0; 64]).map_or_else(drop, drop);
                return Ok(Event::ChildExited);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(Event::Timeout);
            }
        }
    }

    fn become_orphan(&mut self) -> Event {
        self.is_orphaned = true;
        Event::Orphaned
    }

    /// Waits until a descriptor is ready or the deadline has passed, and returns which ones are.
    fn poll(&self, deadline: Option<Instant>) -> io::Result<[bool; 3]> {
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        // The end of an orphan's channels is known, and would be reported again and again.
        let peers = [self.requests.channel(), &self.keeper].map(|peer| (!self.is_orphaned).then_some(peer));
        let sources = [peers[0], peers[1], Some(&self.exits)];
        let mut polled: Vec<PollFd<'_>> = sources
            .iter()
            .flatten()
            .map(|source| PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            // The signal handler has written its byte.
            Err(Errno::INTR) => return Ok([false; 3]),
            Err(error) => return Err(error.into()),
        }
        let mut polled = polled.iter();
        Ok(sources.map(|source| {
            source.is_some() && polled.next().is_some_and(|polled| !polled.revents().is_empty())
        }))
    }

    /// Reads from the keeper's channel, which carries no data. Returns whether it has ended.
    fn is_keeper_gone(&mut self) -> bool {
        match self.keeper.read(&mut [0; 64]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        }
    }
}
