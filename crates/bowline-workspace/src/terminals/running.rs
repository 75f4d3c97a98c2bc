//! One terminal: the task that owns a command's output, and talks to its supervisor.

use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::schema::v1::TerminalId;
use bowline_state::terminal::{Exit, Output, signal_name};
use rustix::process::{Pid, Signal};
use tokio::net::unix::pipe;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, sleep_until, timeout};

use super::job::{Descriptors, Failed, Job, Report};
use super::spawn::{SupervisorPool, SupervisorProcess};
use super::watcher::{MAX_WAITING, Piece, Watcher};
use super::{PATIENCE, Shown, VARIABLE, tree};

// How much is read at once: as much as a pipe holds.
const READ: usize = 64 * 1024;

// As many reads are made before others get their turn.
const READS: usize = 16;

// How long output is read after the command ended before that is told, if what it left in the background goes on.
const TAIL: Duration = Duration::from_millis(200);

// As often what is left of a command without a supervisor is looked for.
const SWEEPS: usize = 100;

// How long a supervisor without its keeper has in between to see that all that it owned has ended.
const SWEEP: Duration = Duration::from_millis(10);

/// How far a command has come.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// How the command itself ended.
    pub(super) exit: Option<Exit>,
    /// Whether nothing of it runs any more.
    pub(super) gone: bool,
}

/// What a terminal is asked.
#[derive(Debug)]
pub(super) enum Request {
    Output(oneshot::Sender<Shown>),
    Watch(oneshot::Sender<Watcher>),
    Kill,
    Release,
}

/// A terminal.
pub(super) struct Terminal {
    id: TerminalId,
    job: Job,
    output: Output,
    // None when it has ended.
    pipe: Option<pipe::Receiver>,
    buffer: Vec<u8>,
    live: Option<broadcast::Sender<Piece>>,
    // What the command gets; none when the supervisor has accepted it.
    descriptors: Option<Descriptors>,
    // None when nothing of the command is left.
    supervisor: Option<SupervisorProcess>,
    pool: Arc<SupervisorPool>,
    progress: watch::Sender<Progress>,
    // Answered when the command runs, or does not.
    started: Option<oneshot::Sender<Result<(), Failed>>>,
    // Whether the command ran.
    ran: bool,
    // The inner supervisor, if it has told.
    inner: Option<Pid>,
    // Whether nobody has the terminal any more.
    released: bool,
    // When the supervisor, asked to end the command, is taken for one that does not work.
    late: Option<Instant>,
}

enum Event {
    Asked(Option<Request>),
    Reported(Option<Report>),
    Read(io::Result<usize>),
    Late,
}

impl Terminal {
    pub(super) fn new(
        id: TerminalId,
        job: Job,
        output: Output,
        (pipe, descriptors): (pipe::Receiver, Descriptors),
        (supervisor, pool): (SupervisorProcess, Arc<SupervisorPool>),
        progress: watch::Sender<Progress>,
        started: oneshot::Sender<Result<(), Failed>>,
    ) -> Self {
        Self {
            id,
            job,
            output,
            pipe: Some(pipe),
            buffer: vec![0; READ],
            live: Some(broadcast::channel(MAX_WAITING).0),
            descriptors: Some(descriptors),
            supervisor: Some(supervisor),
            pool,
            progress,
            started: Some(started),
            ran: false,
            inner: None,
            released: false,
            late: None,
        }
    }

    /// Runs until the terminal is released and nothing of the command is left. Returns what it shows at the end, unless
    /// the command never ran.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) -> Option<(TerminalId, Shown)> {
        self.send_job().await;
        let mut wanted = true;
        while !(self.released && self.progress.borrow().gone) {
            let event = tokio::select! {
                biased;
                request = requests.recv(), if wanted => Event::Asked(request),
                report = next_report(&mut self.supervisor) => Event::Reported(report),
                read = read(&self.pipe, &mut self.buffer) => Event::Read(read),
                () = at(self.late) => Event::Late,
            };
            match event {
                Event::Asked(Some(request)) => self.answer(request),
                Event::Asked(None) => {
                    wanted = false;
                    self.answer(Request::Release);
                }
                Event::Reported(Some(report)) => self.take_report(report).await,
                Event::Reported(None) if self.replace_supervisor() => self.send_job().await,
                Event::Reported(None) => self.lost().await,
                Event::Read(read) => {
                    self.take_read(read);
                    self.read_on(READS);
                    yield_now().await;
                }
                Event::Late => self.give_up().await,
            }
        }
        let shown = self.shown();
        self.ran.then_some((self.id, shown))
    }

    async fn send_job(&mut self) {
        if let (Some(supervisor), Some(descriptors)) = (&mut self.supervisor, &self.descriptors) {
            // A supervisor that does not accept the job closes the channel, which is seen in `run`.
            supervisor.run(&self.job, descriptors).await.unwrap_or_default();
        }
    }

    fn answer(&mut self, request: Request) {
        match request {
            // Whoever asked may have gone.
            Request::Output(answer) => answer.send(self.shown()).map_or_else(drop, drop),
            Request::Watch(answer) => {
                let pieces = match &self.live {
                    Some(live) => live.subscribe(),
                    // Nothing more comes: the watcher ends at once.
                    None => broadcast::channel(1).1,
                };
                let watcher = Watcher { shown: self.shown(), pieces, at: self.output.bytes(), next: None };
                answer.send(watcher).map_or_else(drop, drop);
            }
            Request::Kill => self.order_end(),
            Request::Release => {
                self.released = true;
                self.order_end();
            }
        }
    }

    fn order_end(&mut self) {
        if let (Some(supervisor), None) = (&mut self.supervisor, self.late) {
            supervisor.kill();
            self.late = Some(Instant::now() + self.job.grace + PATIENCE);
        }
    }

    fn shown(&mut self) -> Shown {
        let (text, truncated) = (self.output.text().to_owned(), self.output.truncated());
        Shown { text, truncated, exit: self.progress.borrow().exit.clone() }
    }

    async fn take_report(&mut self, report: Report) {
        match report {
            // From now on only the command holds them open.
            Report::Accepted => self.descriptors = None,
            Report::Started(supervisor) => {
                (self.ran, self.inner) = (true, Pid::from_raw(supervisor));
                self.tell_start(Ok(()));
            }
            Report::Failed(failed) => {
                self.tell_start(Err(failed));
                self.dismiss().await;
                self.end(None).await;
            }
            Report::Exited(ended) => {
                self.read_tail().await;
                self.progress.send_modify(|progress| progress.exit = Some(ended.into()));
            }
            Report::Exceeded(what) => self.take(format!("\n{what}: it was ended\n").as_bytes()),
            Report::Gone => {
                self.dismiss().await;
                self.end(None).await;
            }
        }
    }

    fn tell_start(&mut self, started: Result<(), Failed>) {
        if let Some(answer) = self.started.take() {
            // Whoever does not wait for it any more has dropped the terminal too.
            answer.send(started).map_or_else(drop, drop);
        }
    }

    /// Lets the supervisor, which has nothing left to do, run another command.
    async fn dismiss(&mut self) {
        let Some(supervisor) = self.supervisor.take() else { return };
        let extra = match self.job.leaves_supervisor() {
            true => self.pool.give_back(supervisor),
            false => Some(supervisor),
        };
        if let Some(extra) = extra {
            extra.end().await;
        }
    }

    /// Ends a supervisor that does not end the command; what it ran is looked for after that.
    async fn give_up(&mut self) {
        self.late = None;
        let Some(supervisor) = &mut self.supervisor else { return };
        if let Some(keeper) = supervisor.id() {
            let swept = spawn_blocking(move || tree::kill(&tree::stop(keeper), keeper));
            swept.await.unwrap_or_default();
        }
        supervisor.keeper().start_kill().unwrap_or_default();
    }

    /// Starts another supervisor if this one was killed while it waited for a command. Says whether it did.
    fn replace_supervisor(&mut self) -> bool {
        let is_reused = self.supervisor.as_ref().is_some_and(SupervisorProcess::is_reused);
        // A command that was to end need not begin.
        if !is_reused || self.descriptors.is_none() || self.late.is_some() {
            return false;
        }
        let Ok(fresh) = self.pool.start() else { return false };
        self.supervisor = Some(fresh);
        true
    }

    /// Cleans up after a supervisor that ended before the command did: it was killed.
    async fn lost(&mut self) {
        let Some(mut supervisor) = self.supervisor.take() else { return };
        let (keeper, inner) = (supervisor.id(), self.inner);
        // The keeper kills what is left, unless it was killed or stopped too.
        if timeout(PATIENCE, supervisor.keeper().wait()).await.is_err() {
            supervisor.keeper().start_kill().unwrap_or_default();
        }
        let status = supervisor.keeper().wait().await.ok();
        let variable = format!("{VARIABLE}={}", self.id);
        let scratch = self.job.scratch.clone();
        let swept = spawn_blocking(move || {
            if let (Some(leader), Some(inner)) = (keeper, inner) {
                // If the inner one lives, what it owns is still to be found.
                for _ in 0..SWEEPS {
                    if !tree::runs(inner, leader) {
                        break;
                    }
                    tree::kill(&tree::stop(inner), inner);
                    tree::signal(&[inner], Signal::CONT);
                    std::thread::sleep(SWEEP);
                }
            }
            for _ in 0..SWEEPS {
                let left = keeper.map(|leader| tree::left_behind(leader, inner, &variable));
                let left = left.unwrap_or_default();
                if left.is_empty() {
                    break;
                }
                tree::kill(&left, rustix::process::getpid());
            }
            if let Some(scratch) = scratch {
                // The supervisor may have removed it.
                std::fs::remove_dir_all(scratch).unwrap_or_default();
            }
        });
        swept.await.unwrap_or_default();
        let signal =
            status.and_then(|status| status.signal()).map_or_else(|| "SIGKILL".to_owned(), signal_name);
        self.end(Some(Exit::Signal(signal))).await;
    }

    /// Takes note that nothing of the command is left. If it is not known how the command ended, `otherwise` is how.
    async fn end(&mut self, otherwise: Option<Exit>) {
        self.late = None;
        self.descriptors = None;
        self.read_tail().await;
        self.close_pipe();
        self.started = None;
        self.progress.send_modify(|progress| {
            progress.exit = progress.exit.take().or(otherwise);
            progress.gone = true;
        });
    }

    /// Reads what is in the pipe already: what a command wrote before it ended is.
    async fn read_tail(&mut self) {
        let end = Instant::now() + TAIL;
        while self.read_on(READS) && Instant::now() < end {
            yield_now().await;
        }
    }

    /// Reads so many times what is there to be read. Returns whether there may be more.
    ///
    /// The pipe itself is asked: the runtime may not have heard yet of what came last.
    fn read_on(&mut self, times: usize) -> bool {
        for _ in 0..times {
            let Some(pipe) = &self.pipe else { return false };
            match rustix::io::read(pipe, &mut self.buffer[..]) {
                Err(rustix::io::Errno::AGAIN) => return false,
                read => self.take_read(read.map_err(Into::into)),
            }
        }
        true
    }

    fn take_read(&mut self, read: io::Result<usize>) {
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => self.close_pipe(),
            Ok(read) => {
                let buffer = std::mem::take(&mut self.buffer);
                self.take(&buffer[..read]);
                self.buffer = buffer;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if let Some(live) = self.live.as_ref().filter(|live| live.receiver_count() > 0) {
            // There may be no watcher any more.
            let piece = Piece { at: self.output.bytes(), bytes: bytes.into() };
            live.send(piece).map_or_else(drop, drop);
        }
        self.output.push(bytes);
    }

    /// Takes note that no more output comes. A terminal that is kept for its text needs no buffer.
    fn close_pipe(&mut self) {
        self.pipe = None;
        self.live = None;
        self.buffer = Vec::new();
        self.output.finish();
    }
}

async fn next_report(supervisor: &mut Option<SupervisorProcess>) -> Option<Report> {
    match supervisor {
        Some(supervisor) => supervisor.report().await,
        None => pending().await,
    }
}

async fn read(pipe: &Option<pipe::Receiver>, buffer: &mut [u8]) -> io::Result<usize> {
    let Some(pipe) = pipe else { return pending().await };
    loop {
        pipe.readable().await?;
        match pipe.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
