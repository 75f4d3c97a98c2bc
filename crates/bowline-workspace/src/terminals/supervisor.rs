//! The supervisor: the process between a host and a command, which owns everything the command starts and outlives all
//! of it.
//!
//! It is a separate process because only a process can adopt the orphans of another one: everything that a command
//! starts, however it tries to escape, is a descendant of the supervisor. The host communicates with it over a socket,
//! which is its standard input. When the host dies, however suddenly, the socket closes, and the supervisor kills the
//! command. When no process of a command is left, it waits for the next one: most commands are so short that starting a
//! supervisor would take several times as long.
//!
//! A command can kill its supervisor. There are therefore two of them: the outer one, the *keeper*, only waits for the
//! inner one to end, and kills the processes that it left.
//!
//! The command does not affect the supervisor's own environment, which is empty, and kernel limits are set for the
//! command alone where possible.
//!
//! A command that finds and kills both processes at the same moment can leave processes behind: those that left the
//! Unix session and no longer have `BOWLINE_TERMINAL` in their environment are not found. A confined command can signal
//! neither of them where the kernel has Landlock's signal scope. Other commands do not get that scope, because stopping
//! a server that another terminal started is ordinary work. Descriptors that the host inherited without close-on-exec
//! reach commands.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, chdir, fchdir, getpid, getpriority_process, getrlimit,
    set_child_subreaper, set_parent_process_death_signal, setpgid, setpriority_process, setrlimit, wait,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::process_tree;
use super::protocol::{
    CommandDescriptors, CommandInput, CommandJob, ProcessExit, RequestReader, ResourceLimits, StartError,
    SupervisorReport, SupervisorRequest,
};

mod confine;
mod event_source;
mod keeper;

pub use confine::ConfinementSupport;
use event_source::{Event, EventSource};

// The interval of limit checks: it doubles after each check, unless the command approaches a limit.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(50);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);

// The pause before killed processes are listed again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Runs a supervisor: the only thing a program does if it was started as its own
/// [`SupervisorProgram`](super::SupervisorProgram).
///
/// The caller returns the code from `main`, and passes the arguments of the program, its name first, with which the
/// keeper starts the program once more. Standard input and output are channels to the host.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match supervise(arguments.into_iter().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        // A message would have no reader: the host sees the channel close.
        Err(_) => ExitCode::FAILURE,
    }
}

fn supervise(arguments: Vec<OsString>) -> io::Result<()> {
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A keeper passes it to its supervisor; a supervisor uses it to detect the end of its keeper.
    let other_channel = io::stdout().as_fd().try_clone_to_owned()?;
    // Only this process holds the channels open, so that a closed channel means a dead peer.
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    set_child_subreaper(Some(getpid()))?;
    // A command may stop its supervisor. It is continued at the latest when its parent dies, and then detects that.
    set_parent_process_death_signal(Some(Signal::CONT))?;

    let mut orders = RequestReader::new(channel.try_clone()?);
    match orders.next()? {
        Some(SupervisorRequest::Keep) => keeper::run_keeper(&arguments, channel, other_channel),
        Some(SupervisorRequest::Run(first)) => serve_commands(channel, orders, other_channel.into(), first),
        Some(SupervisorRequest::Kill) | None => Ok(()),
    }
}

/// Runs commands, one after the other, until the host or the keeper is gone.
fn serve_commands(
    mut control: UnixStream,
    requests: RequestReader,
    keeper: UnixStream,
    first: Box<(CommandJob, CommandDescriptors)>,
) -> io::Result<()> {
    let mut events = EventSource::new(requests, keeper)?;
    let oom_score = OomScore::open();
    let priority = getpriority_process(None)?;
    let mut next = first;
    loop {
        let (job, descriptors) = *next;
        write_reports(&mut control, &[SupervisorReport::Accepted])?;
        // If both are killed, the keeper's Unix session identifies the processes left.
        setpgid(None, None)?;
        fchdir(&descriptors.directory)?;
        if let Some(scratch) = &job.scratch {
            fs::DirBuilder::new().mode(0o700).create(scratch)?;
        }
        let is_alone = run_command(&job, descriptors, &mut control, &mut events, &oom_score)?;
        // Killing a command may have raised the priority, which the next command must not inherit.
        setpriority_process(None, priority).unwrap_or_default();
        if let Some(scratch) = &job.scratch {
            fs::remove_dir_all(scratch)?;
        }
        if is_alone || !job.can_reuse_supervisor() {
            return Ok(());
        }
        next = loop {
            match events.next(None)? {
                Event::Request(SupervisorRequest::Run(next)) => break next,
                Event::Orphaned => return Ok(()),
                // A request for a command that had already ended.
                _ => {}
            }
        };
    }
}

/// Runs a command until none of its processes is left, and reports to the host. Returns whether the host or the keeper
/// is gone.
fn run_command(
    job: &CommandJob,
    descriptors: CommandDescriptors,
    control: &mut UnixStream,
    events: &mut EventSource,
    oom_score: &OomScore,
) -> io::Result<bool> {
    let started = start_command(job, descriptors, oom_score);
    // The supervisor should not keep the command's directory in use.
    chdir("/")?;
    let command = match started {
        Ok(command) => command,
        Err(failed) => {
            write_reports(control, &[SupervisorReport::Failed(failed)])?;
            return Ok(false);
        }
    };
    write_reports(control, &[SupervisorReport::Started(getpid().as_raw_pid())])?;
    let (limits, grace) = (job.limits, job.grace);
    let mut owner = CommandOwner { command, control, limits, grace, kill_at: None, is_orphaned: false };
    owner.run(events)?;
    Ok(owner.is_orphaned)
}

/// Owns a running command until none of its processes is left.
struct CommandOwner<'a> {
    command: Pid,
    control: &'a mut UnixStream,
    limits: ResourceLimits,
    grace: Duration,
    // After a request to end the command, the time from which it is killed.
    kill_at: Option<Instant>,
    // Whether the host or the keeper is gone. No more reports are sent then: the host sees the channel close.
    is_orphaned: bool,
}

impl CommandOwner<'_> {
    fn run(&mut self, events: &mut EventSource) -> io::Result<()> {
        let mut pause = FIRST_CHECK_INTERVAL;
        let mut look = Instant::now() + pause;
        loop {
            match events.next(Some(self.kill_at.unwrap_or(look)))? {
                // A host sends no job before the report that the previous one is gone.
                Event::Request(SupervisorRequest::Run(_)) => return Err(io::ErrorKind::InvalidData.into()),
                Event::Request(SupervisorRequest::Kill | SupervisorRequest::Keep) => self.terminate(),
                Event::Orphaned => {
                    self.is_orphaned = true;
                    self.terminate();
                }
                Event::ChildExited | Event::Timeout => {}
            }
            if self.reap_children() {
                return Ok(());
            }
            let now = Instant::now();
            if self.kill_at.is_some_and(|end| now >= end) {
                kill_all();
                self.kill_at = Some(now + RETRY_PAUSE);
            }
            if now >= look {
                pause = if self.check_limits() {
                    FIRST_CHECK_INTERVAL
                } else {
                    (2 * pause).min(MAX_CHECK_INTERVAL)
                };
                look = now + pause;
            }
        }
    }

    /// Reaps every descendant that has exited, reports what has ended, and returns whether none is left: orphans become
    /// children, so without children there are no descendants.
    fn reap_children(&mut self) -> bool {
        let mut reports = Vec::new();
        let is_gone = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.command => {
                    let code = status.exit_status().map(ProcessExit::Code);
                    let signal = || status.terminating_signal().map(ProcessExit::Signal);
                    let exit = code.or_else(signal).unwrap_or(ProcessExit::Code(-1));
                    reports.push(SupervisorReport::Exited(exit));
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        reports.extend(is_gone.then_some(SupervisorReport::Gone));
        self.send_reports(&reports);
        is_gone
    }

    /// Sends SIGTERM to all processes, and schedules their kill after the grace period.
    fn terminate(&mut self) {
        if self.kill_at.is_none() {
            let processes = process_tree::descendants(getpid());
            process_tree::send_signal(&processes, Signal::TERM);
            // A stopped process has to continue to receive it.
            process_tree::send_signal(&processes, Signal::CONT);
            self.kill_at = Some(Instant::now() + self.grace);
        }
    }

    /// Kills the command if it exceeds a limit. Returns whether to check again soon.
    fn check_limits(&mut self) -> bool {
        let Some(limit) = self.limits.processes.filter(|_| self.kill_at.is_none()) else { return false };
        let count = process_tree::descendants(getpid()).len() as u64;
        if count <= limit {
            return count > limit / 4;
        }
        // A graceful end would give it time to take even more.
        kill_all();
        self.kill_at = Some(Instant::now());
        let exceeded = format!("the command had {count} processes, the limit is {limit}");
        self.send_reports(&[SupervisorReport::Exceeded(exceeded)]);
        false
    }

    /// Sends reports to the host. A host that is gone is detected by its channel.
    fn send_reports(&mut self, reports: &[SupervisorReport]) {
        if !self.is_orphaned {
            write_reports(self.control, reports).unwrap_or_default();
        }
    }
}

/// Kills every descendant. All are stopped first, so that none can start others meanwhile.
fn kill_all() {
    // Among thousands of runnable processes, the supervisor would hardly be scheduled. Raising the priority may not be
    // permitted.
    setpriority_process(None, -10).unwrap_or_default();
    process_tree::kill_processes(&process_tree::stop_descendants(getpid()), getpid());
}

/// Writes reports at once, so that the host is woken once.
fn write_reports(control: &mut UnixStream, reports: &[SupervisorReport]) -> io::Result<()> {
    let mut lines = Vec::new();
    for report in reports {
        serde_json::to_writer(&mut lines, report).map_err(io::Error::other)?;
        lines.push(b'\n');
    }
    control.write_all(&lines)
}

/// How likely the system is to kill this process and those that it starts if memory runs out.
struct OomScore(Option<(fs::File, Vec<u8>)>);

impl OomScore {
    fn open() -> Self {
        let file = fs::File::options().read(true).write(true).open("/proc/self/oom_score_adj");
        Self(file.ok().and_then(|file| {
            let mut own = Vec::new();
            (&file).read_to_end(&mut own).ok()?;
            Some((file, own))
        }))
    }

    /// Starts a command that the system kills rather than its host.
    fn start_with_high_score<T>(&self, start: impl FnOnce() -> T) -> T {
        let set = |score: &(fs::File, Vec<u8>)| score.0.write_all_at(b"500", 0).is_ok();
        let raised = self.0.as_ref().filter(|score| set(score));
        let started = start();
        if let Some((file, own)) = raised {
            file.write_all_at(own, 0).unwrap_or_default();
        }
        started
    }
}

/// Starts the command.
fn start_command(
    job: &CommandJob,
    descriptors: CommandDescriptors,
    oom_score: &OomScore,
) -> Result<Pid, StartError> {
    let CommandDescriptors { output, stderr: errors, input, .. } = descriptors;
    let system = |error: io::Error| StartError::System(error.to_string());
    let (program, args) = job.argv.split_first().ok_or(StartError::NotFound)?;
    apply_limits(&job.limits);
    let mut command = Command::new(find_program(program, &job.env).as_deref().unwrap_or(Path::new(program)));
    command.arg0(program).args(args).env_clear().envs(job.env.iter().map(|(name, value)| (name, value)));
    command.process_group(0);
    let input = match (job.input, input) {
        (CommandInput::Pipe, Some(input)) => input.into(),
        (CommandInput::Output, _) => output.try_clone().map_err(system)?.into(),
        _ => Stdio::null(),
    };
    command.stdin(input).stdout(output).stderr(errors);
    let spawned = oom_score.start_with_high_score(|| match &job.confinement {
        None => command.spawn().map_err(|error| to_start_error(&error)),
        Some(confinement) => confine::spawn_confined(&mut command, confinement, job.scratch.as_deref()),
    });
    let pid = i32::try_from(spawned?.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| StartError::System("the command has no process id".to_owned()))
}

/// Resolves a program name on the command's own PATH. Spawning a program by its path needs no copy of this process, and
/// so takes a fraction of the time.
fn find_program(program: &str, env: &[(String, String)]) -> Option<PathBuf> {
    if program.is_empty() || program.contains('/') {
        return None;
    }
    let (_, path) = env.iter().rfind(|(name, _)| name == "PATH")?;
    let mut directories = path.split(':').map(Path::new);
    if !directories.clone().all(Path::is_absolute) {
        return None;
    }
    let is_executable = |file: &PathBuf| access(file, Access::EXEC_OK).is_ok() && file.is_file();
    // A script without an interpreter line is left to the system's own search.
    let is_program = |file: &PathBuf| {
        let mut start = [0; 4];
        let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && (start == *b"\x7fELF" || start.starts_with(b"#!"))
    };
    directories.find_map(|directory| Some(directory.join(program)).filter(is_executable)).filter(is_program)
}

fn to_start_error(error: &io::Error) -> StartError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StartError::NotFound,
        io::ErrorKind::PermissionDenied => StartError::Denied,
        _ => StartError::System(error.to_string()),
    }
}

/// Lowers the limits of this process, which everything it starts inherits. Limits that are already lower stay.
fn apply_limits(limits: &ResourceLimits) {
    let set = |resource, limit: Option<u64>| {
        let Some(limit) = limit else { return };
        let now = getrlimit(resource);
        let lower = |now: Option<u64>| Some(now.map_or(limit, |now| now.min(limit)));
        // A system that refuses to lower a limit has a stricter rule already.
        setrlimit(resource, Rlimit { current: lower(now.current), maximum: lower(now.maximum) })
            .unwrap_or_default();
    };
    set(Resource::Core, Some(0));
    set(Resource::Nofile, limits.open_files);
}
