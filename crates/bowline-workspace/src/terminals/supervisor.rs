//! The process between a host and a command: it owns everything that the command starts, and outlives none of it.
//!
//! It is a process of its own because only a process can take in the orphans of another one: whatever a command starts,
//! and however it tries to leave, is a descendant of the supervisor. The host talks to it over a socket, which is its
//! standard input. When the host dies, however suddenly, the socket closes, and the supervisor ends the command. When
//! nothing of a command is left, it waits for the next one: most commands are so short that starting a supervisor would
//! take several times as long as they do.
//!
//! A command can kill its supervisor. So there are two of them: the outer one, the *keeper*, only waits for the inner
//! one to end, and kills what that left.
//!
//! What it runs in itself is none of the command's doing: its environment is empty, and limits that the kernel keeps
//! are set for the command alone where that can be.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, chdir, fchdir, getpid, getpriority_process, getrlimit,
    set_child_subreaper, set_parent_process_death_signal, setpgid, setpriority_process, setrlimit, setsid,
    wait,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::job::{Descriptors, Ended, Failed, Input, Job, Order, Orders, Report, ResourceLimits};
use super::tree;

mod confine;
mod keeper;
mod pty;

pub use confine::Confinable;

// How soon it is looked at what the command takes, and how often after that: ever more seldom, unless it takes much.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_secs(1);

// How long what a pseudo-terminal holds is waited for when the command has ended but others keep it open.
const PTY_TAIL: Duration = Duration::from_millis(100);

// How long to wait before those who were killed are looked for again.
const AGAIN: Duration = Duration::from_millis(10);

/// Runs a supervisor: what a program has to do, and nothing before it, if it was started as its own
/// [`Supervisor`](super::Supervisor).
///
/// The caller returns the code from `main`, and passes on the arguments of the program, its name first: it starts itself once
/// more. Standard input and output are channels to the host.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match supervise(arguments.into_iter().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads what it would say: the host sees the channel close.
        Err(_) => ExitCode::FAILURE,
    }
}

enum Event {
    /// The host wants a command run.
    Run(Box<(Job, Descriptors)>),
    /// The host wants the command ended.
    Kill,
    /// The host or the keeper is gone.
    Alone,
    /// The command itself ended.
    Exited(Ended),
    /// There is no process left.
    Empty,
    /// Everything that was in the pseudo-terminal has been passed on. It is not to be closed before the end.
    PtyEnded(pty::Pty),
}

fn supervise(arguments: Vec<OsString>) -> io::Result<()> {
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A keeper's is for its supervisor, and a supervisor's for its keeper.
    let other_channel = io::stdout().as_fd().try_clone_to_owned()?;
    // Only this process holds the channels open, so that their ends tell when a peer is gone.
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    set_child_subreaper(Some(getpid()))?;
    // A command may stop its supervisor. It goes on at the latest when the host is gone, and sees that it is.
    set_parent_process_death_signal(Some(Signal::CONT))?;

    let mut orders = Orders::new(channel.try_clone()?);
    match orders.next()? {
        Some(Order::Keep) => keeper::keep(&arguments, channel, other_channel),
        Some(Order::Run(first)) => serve(channel, orders, other_channel.into(), first),
        Some(Order::Kill) | None => Ok(()),
    }
}

/// Runs commands, one after the other, until the host or the keeper is gone.
fn serve(
    mut control: UnixStream,
    orders: Orders,
    mut keeper: UnixStream,
    first: Box<(Job, Descriptors)>,
) -> io::Result<()> {
    let (events, received) = sync_channel(16);
    let [its, other] = [events.clone(), events.clone()];
    thread::spawn(move || obey(orders, &its));
    thread::spawn(move || {
        // Nothing comes from it but its end.
        io::copy(&mut keeper, &mut io::sink()).map_or_else(drop, drop);
        say(&other, Event::Alone);
    });
    let priority = getpriority_process(None)?;
    let mut next = first;
    loop {
        let (job, descriptors) = *next;
        tell(&mut control, &Report::Accepted)?;
        // What is left should both be killed is known by the keeper's session. A pseudo-terminal needs one of its own.
        match job.pty {
            Some(_) => drop(setsid()?),
            None => setpgid(None, None)?,
        }
        fchdir(&descriptors.directory)?;
        if let Some(scratch) = &job.scratch {
            fs::DirBuilder::new().mode(0o700).create(scratch)?;
        }
        let is_alone = run(&job, descriptors, &mut control, &events, &received)?;
        // To end a command it may have taken precedence, which the next one should not have.
        setpriority_process(None, priority).unwrap_or_default();
        if let Some(scratch) = &job.scratch {
            fs::remove_dir_all(scratch)?;
        }
        if is_alone || !job.leaves_supervisor() {
            return Ok(());
        }
        next = loop {
            match received.recv() {
                Ok(Event::Run(next)) => break next,
                Ok(Event::Alone) | Err(_) => return Ok(()),
                // The command had ended already.
                Ok(_) => {}
            }
        };
    }
}

/// Runs a command until nothing of it is left, and tells the host. Returns whether that or the keeper is gone.
fn run(
    job: &Job,
    descriptors: Descriptors,
    control: &mut UnixStream,
    events: &SyncSender<Event>,
    received: &Receiver<Event>,
) -> io::Result<bool> {
    let started = start(job, descriptors);
    // It should not be what keeps the command's directory in use.
    chdir("/")?;
    let (command, pty) = match started {
        Ok(started) => started,
        Err(failed) => {
            tell(control, &Report::Failed(failed))?;
            return Ok(false);
        }
    };
    tell(control, &Report::Started(getpid().as_raw_pid()))?;
    let copying = pty.is_some();
    if let Some(mut pty) = pty {
        let events = events.clone();
        thread::spawn(move || {
            pty.copy();
            say(&events, Event::PtyEnded(pty));
        });
    }
    let reaped = events.clone();
    thread::spawn(move || reap(command, &reaped));
    let (limits, grace) = (job.limits, job.grace);
    let mut owner =
        Owner { control, limits, grace, copying, pty: None, exit: None, end: None, is_alone: false };
    owner.own(received)?;
    Ok(owner.is_alone)
}

/// Owns a running command until nothing of it is left.
struct Owner<'a> {
    control: &'a mut UnixStream,
    limits: ResourceLimits,
    grace: Duration,
    // Whether there may still be something in a pseudo-terminal.
    copying: bool,
    pty: Option<pty::Pty>,
    // How the command ended, and when the host is told at the latest.
    exit: Option<(Ended, Instant)>,
    // When the command was asked to end, the moment from which on it is killed.
    end: Option<Instant>,
    // Whether the host or the keeper is gone. Then nothing more is said: the end of the channel tells the host.
    is_alone: bool,
}

impl Owner<'_> {
    fn own(&mut self, events: &Receiver<Event>) -> io::Result<()> {
        let mut pause = FIRST_LOOK;
        let mut look = Instant::now() + pause;
        loop {
            let wake = self.end.unwrap_or(look).min(self.exit.map_or(look, |(_, latest)| latest));
            let event = events.recv_timeout(wake.saturating_duration_since(Instant::now()));
            match event {
                Ok(Event::Kill) => self.ask_to_end(),
                Ok(Event::Alone) => {
                    self.is_alone = true;
                    self.ask_to_end();
                }
                // A host sends none before it has heard that the last one is gone.
                Ok(Event::Run(_)) => return Err(io::ErrorKind::InvalidData.into()),
                Ok(Event::Exited(ended)) => self.exit = Some((ended, Instant::now() + PTY_TAIL)),
                Ok(Event::PtyEnded(pty)) => (self.copying, self.pty) = (false, Some(pty)),
                Ok(Event::Empty) => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
            }
            let now = Instant::now();
            if self.exit.is_some_and(|(_, latest)| !self.copying || now >= latest) {
                self.tell_exit();
            }
            if self.end.is_some_and(|end| now >= end) {
                kill_all();
                self.end = Some(now + AGAIN);
            }
            if now >= look {
                pause = if self.look() { FIRST_LOOK } else { (2 * pause).min(LOOK) };
                look = now + pause;
            }
        }
        // With nobody left to hold it open, the pseudo-terminal ends by itself.
        while self.copying {
            match events.recv_timeout(Duration::from_secs(5)) {
                Ok(Event::PtyEnded(pty)) => (self.copying, self.pty) = (false, Some(pty)),
                Ok(Event::Alone) => self.is_alone = true,
                Ok(_) => {}
                Err(_) => self.copying = false,
            }
        }
        self.tell_exit();
        self.tell(&Report::Gone);
        Ok(())
    }

    fn tell_exit(&mut self) {
        if let Some((ended, _)) = self.exit.take() {
            self.tell(&Report::Exited(ended));
        }
    }

    /// Asks everybody to end, and has them killed after a grace.
    fn ask_to_end(&mut self) {
        if self.end.is_none() {
            let processes = tree::descendants(getpid());
            tree::signal(&processes, Signal::TERM);
            // One that was stopped has to run to see it.
            tree::signal(&processes, Signal::CONT);
            self.end = Some(Instant::now() + self.grace);
        }
    }

    /// Ends the command if it takes too much. Returns whether it should be looked at again soon.
    fn look(&mut self) -> bool {
        let (limits, own) = (self.limits, getpid());
        if self.end.is_some() || (limits.processes.is_none() && limits.memory.is_none()) {
            return false;
        }
        let processes = tree::descendants(own);
        let count = processes.len() as u64;
        let memory = limits.memory.map_or(0, |_| processes.iter().map(|pid| tree::memory(*pid)).sum());
        let exceeded = match (limits.processes, limits.memory) {
            (Some(limit), _) if count > limit => {
                format!("the command had {count} processes, the limit is {limit}")
            }
            (_, Some(limit)) if memory > limit => {
                format!("the command had {memory} bytes of memory in use, the limit is {limit}")
            }
            (most, largest) => {
                return most.is_some_and(|limit| count > limit / 4)
                    || largest.is_some_and(|limit| memory > limit / 4);
            }
        };
        // Asked to end, it would only take more.
        kill_all();
        self.end = Some(Instant::now());
        self.tell(&Report::Exceeded(exceeded));
        false
    }

    /// Tells the host something. If it is gone, the channel says so too.
    fn tell(&mut self, report: &Report) {
        if !self.is_alone {
            tell(self.control, report).unwrap_or_default();
        }
    }
}

/// Kills every descendant. All are stopped first, so that none can start others meanwhile.
fn kill_all() {
    // Among thousands of processes that all want to run, it would hardly get its turn. Only some users may do that.
    setpriority_process(None, -10).unwrap_or_default();
    tree::kill(&tree::stop(getpid()), getpid());
}

fn tell(control: &mut UnixStream, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report).map_err(io::Error::other)?;
    line.push(b'\n');
    control.write_all(&line)
}

/// Says something to the owner, who ends with the process: nobody is left to miss it.
fn say(events: &SyncSender<Event>, event: Event) {
    events.send(event).unwrap_or_default();
}

/// Takes note of every descendant that ends. With no child left there is no descendant, because orphans become
/// children.
fn reap(command: Pid, events: &SyncSender<Event>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                let code = status.exit_status().map(Ended::Code);
                let signal = || status.terminating_signal().map(Ended::Signal);
                say(events, Event::Exited(code.or_else(signal).unwrap_or(Ended::Code(-1))));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return say(events, Event::Empty),
        }
    }
}

/// Passes on what the host says, until it is gone.
fn obey(mut orders: Orders, events: &SyncSender<Event>) {
    loop {
        match orders.next() {
            Ok(Some(Order::Run(next))) => say(events, Event::Run(next)),
            Ok(Some(Order::Kill | Order::Keep)) => say(events, Event::Kill),
            Ok(None) | Err(_) => return say(events, Event::Alone),
        }
    }
}

/// Starts the command.
fn start(job: &Job, descriptors: Descriptors) -> Result<(Pid, Option<pty::Pty>), Failed> {
    let Descriptors { output, errors, input, .. } = descriptors;
    let system = |error: io::Error| Failed::System(error.to_string());
    let (program, args) = job.argv.split_first().ok_or(Failed::NotFound)?;
    limit(&job.limits);
    let mut command = Command::new(find(program, &job.env).as_deref().unwrap_or(Path::new(program)));
    command.arg0(program).args(args).env_clear().envs(job.env.iter().map(|(name, value)| (name, value)));
    command.process_group(0);
    let mut pty = None;
    match job.pty {
        None => {
            let input = match (job.input, input) {
                (Input::Pipe, Some(input)) => input.into(),
                (Input::Output, _) => output.try_clone().map_err(system)?.into(),
                _ => Stdio::null(),
            };
            command.stdin(input).stdout(output).stderr(errors);
        }
        Some(size) => {
            let (opened, other) = pty::Pty::open(size, output).map_err(system)?;
            let clone = || other.try_clone().map_err(system);
            command.stdin(clone()?).stdout(clone()?).stderr(clone()?);
            pty = Some((opened, other));
        }
    }
    // What the system ends first when memory is short should be the command, not whoever runs it.
    let score = Path::new("/proc/self/oom_score_adj");
    let own = fs::read(score).and_then(|own| fs::write(score, "500").map(|()| own));
    let spawned = match &job.confinement {
        None => command.spawn().map_err(|error| failed(&error)),
        Some(confinement) => confine::spawn(&mut command, confinement, job.scratch.as_deref(), pty.is_some()),
    };
    if let Ok(own) = own {
        fs::write(score, own).unwrap_or_default();
    }
    let pid = i32::try_from(spawned?.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failed::System("the command has no process id".to_owned()))?;
    let pty = match pty {
        None => None,
        Some((pty, other)) => {
            pty::bring_to_front(&other, pid);
            Some(pty)
        }
    };
    Ok((pid, pty))
}

/// Returns the program that a name stands for on the command's own PATH. A program that is named by its path is started without a
/// copy of this process, which takes a fraction of the time.
fn find(program: &str, env: &[(String, String)]) -> Option<PathBuf> {
    if program.is_empty() || program.contains('/') {
        return None;
    }
    let (_, path) = env.iter().rfind(|(name, _)| name == "PATH")?;
    let mut directories = path.split(':').map(Path::new);
    if !directories.clone().all(Path::is_absolute) {
        return None;
    }
    let is_executable = |file: &PathBuf| access(file, Access::EXEC_OK).is_ok() && file.is_file();
    // A script that does not say what it is run by is left to the system's own search.
    let is_program = |file: &PathBuf| {
        let mut start = [0; 4];
        let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && (start == *b"\x7fELF" || start.starts_with(b"#!"))
    };
    directories.find_map(|directory| Some(directory.join(program)).filter(is_executable)).filter(is_program)
}

fn failed(error: &io::Error) -> Failed {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failed::NotFound,
        io::ErrorKind::PermissionDenied => Failed::Denied,
        _ => Failed::System(error.to_string()),
    }
}

/// Limits this process, and so all that it starts. A limit that is lower already stays.
fn limit(limits: &ResourceLimits) {
    let set = |resource, limit: Option<u64>| {
        let Some(limit) = limit else { return };
        let now = getrlimit(resource);
        let lower = |now: Option<u64>| Some(now.map_or(limit, |now| now.min(limit)));
        // A system that does not let it be lowered has a stricter rule already.
        setrlimit(resource, Rlimit { current: lower(now.current), maximum: lower(now.maximum) })
            .unwrap_or_default();
    };
    set(Resource::Core, Some(0));
    set(Resource::Nofile, limits.open_files);
    set(Resource::Data, limits.memory_each);
    set(Resource::Nproc, limits.user_processes);
}
