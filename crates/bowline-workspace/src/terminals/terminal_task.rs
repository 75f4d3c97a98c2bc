//! The task of one terminal, which owns a command's output and communicates with its supervisor.

use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::schema::v1::TerminalId;
use bowline_protocol::terminal::{CommandExit, TerminalOutput, signal_name};
use bowline_task::spawn_blocking;
use rustix::process::{Pid, Signal};
use tokio::net::unix::pipe;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::output_subscription::{MAX_BUFFERED_CHUNKS, OutputChunk, OutputSubscription};
use super::protocol::{CommandDescriptors, CommandJob, StartError, SupervisorReport};
use super::spawn::{SupervisorPool, SupervisorProcess};
use super::{KILL_TIMEOUT, TERMINAL_ID_VARIABLE, TerminalSnapshot, process_tree};

// The number of bytes read at once: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

// The number of reads before the task yields.
const READS_PER_TURN: usize = 16;

// How long output is read after the command's exit before the exit is reported, if background processes keep writing.
const TAIL_TIMEOUT: Duration = Duration::from_millis(200);

// The maximum number of sweeps for processes left by a command without a supervisor.
const MAX_SWEEPS: usize = 100;

// The pause in which a supervisor without its keeper can notice that its processes have ended.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// The progress of a command.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandProgress {
    /// The exit of the command itself.
    pub(super) exit: Option<CommandExit>,
    /// Whether none of its processes is left.
    pub(super) is_gone: bool,
}

/// A request to a terminal.
#[derive(Debug)]
pub(super) enum TerminalTaskRequest {
    Output(oneshot::Sender<TerminalSnapshot>),
    Subscribe(oneshot::Sender<OutputSubscription>),
    Kill,
    Release,
}

/// The state of a terminal's task.
pub(super) struct TerminalTask {
    id: TerminalId,
    job: CommandJob,
    output: TerminalOutput,
    // `None` at the end of the output.
    pipe: Option<pipe::Receiver>,
    // Empty between reads.
    buffer: Vec<u8>,
    chunk_sender: Option<broadcast::Sender<OutputChunk>>,
    // The command's descriptors; `None` once the supervisor has accepted the job.
    descriptors: Option<CommandDescriptors>,
    // `None` when no process of the command is left.
    supervisor: Option<SupervisorProcess>,
    pool: Arc<SupervisorPool>,
    progress: watch::Sender<CommandProgress>,
    // Receives whether the command started.
    start_reply: Option<oneshot::Sender<Result<(), StartError>>>,
    // Whether the command has started.
    has_run: bool,
    // The process id of the inner supervisor, once reported.
    inner_supervisor: Option<Pid>,
    // Whether the terminal was released.
    released: bool,
    // The deadline for the supervisor to end the command; after it, the supervisor counts as broken.
    kill_deadline: Option<Instant>,
}

enum Event {
    Request(Option<TerminalTaskRequest>),
    Report(Option<SupervisorReport>),
    Readable,
    Overdue,
}

impl TerminalTask {
    pub(super) fn new(
        id: TerminalId,
        job: CommandJob,
        output: TerminalOutput,
        (pipe, descriptors): (pipe::Receiver, CommandDescriptors),
        (supervisor, pool): (SupervisorProcess, Arc<SupervisorPool>),
        progress: watch::Sender<CommandProgress>,
        started: oneshot::Sender<Result<(), StartError>>,
    ) -> Self {
        Self {
            id,
            job,
            output,
            pipe: Some(pipe),
            buffer: Vec::new(),
            chunk_sender: Some(broadcast::channel(MAX_BUFFERED_CHUNKS).0),
            descriptors: Some(descriptors),
            supervisor: Some(supervisor),
            pool,
            progress,
            start_reply: Some(started),
            has_run: false,
            inner_supervisor: None,
            released: false,
            kill_deadline: None,
        }
    }

    /// Runs until the terminal is released and no process of the command is left. Returns the last snapshot, unless the
    /// command never ran.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<TerminalTaskRequest>,
    ) -> Option<(TerminalId, TerminalSnapshot)> {
        self.send_job().await;
        let mut wanted = true;
        while !(self.released && self.progress.borrow().is_gone) {
            let event = tokio::select! {
                biased;
                request = requests.recv(), if wanted => Event::Request(request),
                report = next_report(&mut self.supervisor) => Event::Report(report),
                () = wait_readable(&self.pipe) => Event::Readable,
                () = sleep_until_deadline(self.kill_deadline) => Event::Overdue,
            };
            match event {
                Event::Request(Some(request)) => self.handle_request(request),
                Event::Request(None) => {
                    wanted = false;
                    self.handle_request(TerminalTaskRequest::Release);
                }
                Event::Report(Some(report)) => self.handle_report(report).await,
                Event::Report(None) if self.replace_supervisor() => self.send_job().await,
                Event::Report(None) => self.handle_lost_supervisor().await,
                Event::Readable => {
                    self.read_announced();
                    self.read_available(READS_PER_TURN);
                    yield_now().await;
                }
                Event::Overdue => self.kill_supervisor().await,
            }
        }
        let shown = self.snapshot();
        self.has_run.then_some((self.id, shown))
    }

    async fn send_job(&mut self) {
        if let (Some(supervisor), Some(descriptors)) = (&mut self.supervisor, &self.descriptors) {
            // A supervisor that does not accept the job closes the channel, which `run` detects.
            supervisor.send_job(&self.job, descriptors).await.unwrap_or_default();
        }
    }

    fn handle_request(&mut self, request: TerminalTaskRequest) {
        match request {
            // The requester may be gone.
            TerminalTaskRequest::Output(answer) => answer.send(self.snapshot()).map_or_else(drop, drop),
            TerminalTaskRequest::Subscribe(answer) => {
                let pieces = match &self.chunk_sender {
                    Some(live) => live.subscribe(),
                    // No more output comes: the subscription ends at once.
                    None => broadcast::channel(1).1,
                };
                let watcher = OutputSubscription {
                    snapshot: self.snapshot(),
                    chunks: pieces,
                    offset: self.output.total_bytes(),
                    pending_chunk: None,
                };
                answer.send(watcher).map_or_else(drop, drop);
            }
            TerminalTaskRequest::Kill => self.request_kill(),
            TerminalTaskRequest::Release => {
                self.released = true;
                self.request_kill();
            }
        }
    }

    fn request_kill(&mut self) {
        if let (Some(supervisor), None) = (&mut self.supervisor, self.kill_deadline) {
            supervisor.kill();
            self.kill_deadline = Some(Instant::now() + self.job.grace + KILL_TIMEOUT);
        }
    }

    fn snapshot(&mut self) -> TerminalSnapshot {
        let (text, truncated) = (self.output.text().to_owned(), self.output.is_truncated());
        TerminalSnapshot { text, truncated, exit: self.progress.borrow().exit.clone() }
    }

    async fn handle_report(&mut self, report: SupervisorReport) {
        match report {
            // From now on, only the command holds them open.
            SupervisorReport::Accepted => self.descriptors = None,
            SupervisorReport::Started(supervisor) => {
                (self.has_run, self.inner_supervisor) = (true, Pid::from_raw(supervisor));
                self.reply_started(Ok(()));
            }
            SupervisorReport::Failed(failed) => {
                self.reply_started(Err(failed));
                self.release_supervisor().await;
                self.finish(None).await;
            }
            SupervisorReport::Exited(ended) => {
                self.read_tail().await;
                self.progress.send_modify(|progress| progress.exit = Some(ended.into()));
            }
            SupervisorReport::Exceeded(what) => {
                self.buffer.extend_from_slice(format!("\n{what}: it was ended\n").as_bytes());
                self.push_output();
            }
            SupervisorReport::Gone => {
                self.release_supervisor().await;
                self.finish(None).await;
            }
        }
    }

    fn reply_started(&mut self, started: Result<(), StartError>) {
        if let Some(answer) = self.start_reply.take() {
            // A receiver that is gone has dropped the terminal, too.
            answer.send(started).map_or_else(drop, drop);
        }
    }

    /// Returns the supervisor to the pool, or shuts it down.
    async fn release_supervisor(&mut self) {
        let Some(supervisor) = self.supervisor.take() else { return };
        let extra = match self.job.can_reuse_supervisor() {
            true => self.pool.return_idle(supervisor),
            false => Some(supervisor),
        };
        if let Some(extra) = extra {
            extra.shut_down().await;
        }
    }

    /// Kills a supervisor that does not end the command; its processes are swept afterwards.
    async fn kill_supervisor(&mut self) {
        self.kill_deadline = None;
        let Some(supervisor) = &mut self.supervisor else { return };
        if let Some(keeper) = supervisor.keeper_id() {
            let swept = spawn_blocking(move || {
                process_tree::kill_processes(&process_tree::stop_descendants(keeper), keeper)
            });
            swept.await.unwrap_or_default();
        }
        supervisor.keeper().start_kill().unwrap_or_default();
    }

    /// Starts another supervisor if this one was killed while idle. Returns whether it did.
    fn replace_supervisor(&mut self) -> bool {
        let is_reused = self.supervisor.as_ref().is_some_and(SupervisorProcess::is_reused);
        // A command that is to be killed is not started any more.
        if !is_reused || self.descriptors.is_none() || self.kill_deadline.is_some() {
            return false;
        }
        let Ok(fresh) = self.pool.start() else { return false };
        self.supervisor = Some(fresh);
        true
    }

    /// Cleans up after a supervisor that was killed before the command ended.
    async fn handle_lost_supervisor(&mut self) {
        let Some(mut supervisor) = self.supervisor.take() else { return };
        let (keeper, inner) = (supervisor.keeper_id(), self.inner_supervisor);
        // The keeper kills the processes left, unless it was killed or stopped too.
        if timeout(KILL_TIMEOUT, supervisor.keeper().wait()).await.is_err() {
            supervisor.keeper().start_kill().unwrap_or_default();
        }
        let status = supervisor.keeper().wait().await.ok();
        let variable = format!("{TERMINAL_ID_VARIABLE}={}", self.id);
        let scratch = self.job.scratch.clone();
        let swept = spawn_blocking(move || {
            if let (Some(leader), Some(inner)) = (keeper, inner) {
                // While the inner supervisor lives, its descendants can still be found.
                for _ in 0..MAX_SWEEPS {
                    if !process_tree::is_supervisor_running(inner, leader) {
                        break;
                    }
                    process_tree::kill_processes(&process_tree::stop_descendants(inner), inner);
                    process_tree::send_signal(&[inner], Signal::CONT);
                    std::thread::sleep(SWEEP_PAUSE);
                }
            }
            for _ in 0..MAX_SWEEPS {
                let left = keeper.map(|leader| process_tree::find_leftovers(leader, &variable));
                let left = left.unwrap_or_default();
                if left.is_empty() {
                    break;
                }
                process_tree::kill_processes(&left, rustix::process::getpid());
            }
            if let Some(scratch) = scratch {
                // The supervisor may have removed it already.
                std::fs::remove_dir_all(scratch).unwrap_or_default();
            }
        });
        swept.await.unwrap_or_default();
        let signal =
            status.and_then(|status| status.signal()).map_or_else(|| "SIGKILL".to_owned(), signal_name);
        self.finish(Some(CommandExit::Signal(signal))).await;
    }

    /// Records that no process of the command is left. `otherwise` is the exit if none was reported.
    async fn finish(&mut self, otherwise: Option<CommandExit>) {
        self.kill_deadline = None;
        self.descriptors = None;
        self.read_tail().await;
        self.close_pipe();
        self.start_reply = None;
        self.progress.send_modify(|progress| {
            progress.exit = progress.exit.take().or(otherwise);
            progress.is_gone = true;
        });
    }

    /// Reads what the pipe holds, which includes everything the command wrote before its exit.
    async fn read_tail(&mut self) {
        let end = Instant::now() + TAIL_TIMEOUT;
        while self.read_available(READS_PER_TURN) && Instant::now() < end {
            yield_now().await;
        }
    }

    /// Reads available output up to `times` times. Returns whether there may be more.
    ///
    /// Reads from the pipe itself, because the runtime may not yet know of the latest output.
    fn read_available(&mut self, times: usize) -> bool {
        for _ in 0..times {
            let Some(pipe) = &self.pipe else { return false };
            self.buffer.reserve(READ_BYTES);
            let buffer = &mut self.buffer;
            let read = || rustix::io::read(pipe, rustix::buffer::spare_capacity(buffer));
            let read = rustix::io::retry_on_intr(read);
            if !self.handle_read(read.map_err(Into::into)) {
                return false;
            }
        }
        true
    }

    /// Reads the output that the runtime knows of. If there is none, the runtime waits for more.
    fn read_announced(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        self.buffer.reserve(READ_BYTES);
        let read = pipe.try_read_buf(&mut self.buffer);
        self.handle_read(read);
    }

    /// Handles a read into the buffer. Returns whether there may be more.
    fn handle_read(&mut self, read: io::Result<usize>) -> bool {
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => self.close_pipe(),
            Ok(_) => self.push_output(),
        }
        true
    }

    /// Adds what is in the buffer to the output.
    fn push_output(&mut self) {
        if let Some(live) = self.chunk_sender.as_ref().filter(|live| live.receiver_count() > 0) {
            // The last subscriber may have gone meanwhile.
            let piece =
                OutputChunk { offset: self.output.total_bytes(), bytes: self.buffer.as_slice().into() };
            live.send(piece).map_or_else(drop, drop);
        }
        self.output.push_buffer(&mut self.buffer);
    }

    /// Closes the output. A terminal that is kept for its text needs no buffer.
    fn close_pipe(&mut self) {
        self.pipe = None;
        self.chunk_sender = None;
        self.buffer = Vec::new();
        self.output.finish();
    }
}

async fn next_report(supervisor: &mut Option<SupervisorProcess>) -> Option<SupervisorReport> {
    match supervisor {
        Some(supervisor) => supervisor.next_report().await,
        None => pending().await,
    }
}

/// Waits until there may be output, or until the pipe has failed, which the next read reports.
async fn wait_readable(pipe: &Option<pipe::Receiver>) {
    match pipe {
        Some(pipe) => pipe.readable().await.unwrap_or_default(),
        None => pending().await,
    }
}

async fn sleep_until_deadline(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
