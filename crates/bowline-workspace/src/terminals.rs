//! Commands that run for an agent, with their whole process tree.
//!
//! Every command has a [`supervisor`], a process that owns whatever the command starts, and runs one command at a time. A terminal is a task that reads
//! the command's output and talks to the supervisor; it keeps the tail of the output as text. When a terminal is
//! released, the last handle is dropped, or this process dies, nothing that the command started stays behind.
//!
//! A command ends when the command itself does: what it left in the background goes on, and its output is still read,
//! until the terminal is released.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::failure::Failure;
use bowline_state::operation::{Command, Invocation, Leads, Reached};
use bowline_state::paths::Refusal;
use bowline_state::policy::{Named, targets};
use bowline_state::schema::v1::TerminalId;
pub use bowline_state::terminal::Asked;
use bowline_state::terminal::{self, Exit, Limits, Output};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::roots::{Denied, Roots};
use crate::workspace::{Session, WorkingDirectory};

mod companion;
mod error;
mod job;
mod registry;
mod running;
mod spawn;
pub mod supervisor;
mod tree;
mod watcher;

pub use companion::{Companion, Program, Streams};
pub use error::TerminalError;
pub use job::{Confinement, ResourceLimits, Size};
pub use registry::{MAX_RELEASED, MAX_RELEASED_BYTES};
pub use spawn::Supervisor;
pub use watcher::{Live, Watcher};

use job::{Descriptors, Input, Job};
use registry::{Handle, Registry};
use running::{Progress, Request, Terminal};

/// The variable that tells a command which terminal it runs in. What is left of a command whose supervisor was killed
/// is known by it.
pub const VARIABLE: &str = "BOWLINE_TERMINAL";

// How long a supervisor may take to start the command.
const START: Duration = Duration::from_secs(20);

// How long the end of a command may take beyond its grace before the supervisor itself is killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// How terminals of a session work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program that owns a command's processes.
    pub supervisor: Supervisor,
    /// How long a supervisor that has nothing to do waits for the next command before it ends.
    pub supervisor_patience: Duration,
    /// The environment of the user, of which a command gets a part.
    pub inherited: BTreeMap<String, String>,
    /// What a command gets of it beside what every command does, by name or as `PREFIX_*`.
    pub allows: Vec<String>,
    /// How many terminals, and how much output.
    pub limits: Limits,
    /// How much a command may take.
    pub resources: ResourceLimits,
    /// The program that reads a shell line.
    pub shell: String,
    /// How long a command may take to end after it was asked to.
    pub grace: Duration,
    /// Where directories for temporary files of confined commands are made.
    pub temporary: PathBuf,
    /// What commands are confined to, if they are.
    pub confinement: Option<Confinement>,
    /// The size of the pseudo-terminal, if commands get one.
    pub pty: Option<Size>,
}

impl Settings {
    /// Returns the settings of a host whose user has this environment, of which a command gets what is harmless.
    #[must_use]
    pub fn inheriting(
        supervisor: Supervisor,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let inherited = environment.into_iter().filter_map(text).collect();
        Self { inherited, ..Self::new(supervisor) }
    }

    /// Returns the settings that hold if nothing is said: pipes, `/bin/sh`, an empty environment but for what the
    /// request asks for.
    #[must_use]
    pub fn new(supervisor: Supervisor) -> Self {
        Self {
            supervisor,
            supervisor_patience: Duration::from_secs(30),
            inherited: BTreeMap::new(),
            allows: Vec::new(),
            limits: Limits::default(),
            resources: ResourceLimits::default(),
            shell: "/bin/sh".to_owned(),
            grace: Duration::from_millis(1500),
            temporary: PathBuf::from("/tmp"),
            confinement: None,
            pty: None,
        }
    }
}

/// A command that is ready to be started: what it is has been decided.
#[derive(Debug)]
pub struct Prepared {
    /// What to run.
    pub invocation: Invocation,
    /// Where.
    pub directory: WorkingDirectory,
    /// What was asked to be set, for whoever judges the command.
    pub asked_env: Vec<(String, String)>,
    /// Where the files lead that its shell opens.
    pub reaches: Vec<Reached>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// How many bytes of output to keep.
    pub output_limit: Option<u64>,
    /// The size of the pseudo-terminal, if it gets one.
    pub pty: Option<Size>,
    /// What it is confined to, if it is.
    pub confinement: Option<Confinement>,
}

impl Prepared {
    /// Returns the command as rules judge it.
    #[must_use]
    pub fn command(&self) -> Command {
        Command {
            invocation: self.invocation.clone(),
            cwd: self.directory.path.clone(),
            env: self.asked_env.clone(),
            reaches: self.reaches.clone(),
        }
    }
}

/// Returns a command as rules judge it: what its shell would open is looked at on the disk. `cwd` is the directory's own name.
///
/// A link that is put in place later is not seen: whoever may run commands that make links can lead others astray.
#[must_use]
pub fn looked_at(
    session: &Session,
    invocation: Invocation,
    cwd: String,
    env: Vec<(String, String)>,
) -> Command {
    looked_at_within(session.roots(), invocation, cwd, env)
}

/// Does what [`looked_at`] does where there are roots and no session: for commands that run elsewhere than here.
#[must_use]
pub fn looked_at_within(
    roots: &Roots,
    invocation: Invocation,
    cwd: String,
    env: Vec<(String, String)>,
) -> Command {
    let mut command = Command { invocation, cwd, env, reaches: Vec::new() };
    let look = |Named { path, access }: Named| {
        let leads = match roots.admit(&path, access) {
            Ok(admitted) => {
                Leads::Inside { resolved: admitted.canonical().to_owned(), protection: admitted.protection() }
            }
            Err(Denied::Refused(Refusal::ReadOnly(_))) => Leads::ReadOnly,
            Err(_) => Leads::Elsewhere,
        };
        Reached { asked: path, access, leads }
    };
    command.reaches = targets(&command).into_iter().map(look).collect();
    command
}

/// What a terminal shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The last text of the output.
    pub text: String,
    /// Whether there was more.
    pub truncated: bool,
    /// How the command ended, if it did.
    pub exit: Option<Exit>,
}

/// Terminals of one session.
///
/// Tools are generic over who serves them; where that is decided at run time, an enum of those there are implements it.
pub trait Terminals: Send + Sync {
    /// Runs a command, and returns as soon as it runs.
    ///
    /// # Errors
    /// Says why it does not.
    fn create(&self, asked: Asked) -> impl Future<Output = Result<TerminalId, Failure>> + Send;

    /// Returns the output so far.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    fn output(&self, id: &TerminalId) -> impl Future<Output = Result<Shown, Failure>> + Send;

    /// Waits for the command to end, and says how it did.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    fn wait(&self, id: &TerminalId) -> impl Future<Output = Result<Exit, Failure>> + Send;

    /// Ends the command. Its output stays.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    fn kill(&self, id: &TerminalId) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends the command and forgets the terminal.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    fn release(&self, id: &TerminalId) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Terminals of this machine. Clones share them; with the last one, every command ends.
///
/// It has to be used within a tokio runtime that drives IO and time.
#[derive(Debug, Clone)]
pub struct LocalTerminals {
    registry: Arc<Registry>,
}

impl LocalTerminals {
    /// Returns the terminals of a session; there are none yet.
    #[must_use]
    pub fn new(session: Session, settings: Settings) -> Self {
        Self { registry: Arc::new(Registry::new(session, settings)) }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.registry.settings
    }

    /// Decides what it is that an agent asks for, so that it can be judged before it is started.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn prepare(&self, asked: Asked) -> Result<Prepared, TerminalError> {
        let Registry { session, settings, .. } = &*self.registry;
        let invocation = terminal::invocation(&asked.command, &asked.args)?;
        let env = terminal::environment(&settings.inherited, &settings.allows, &asked.env)?;
        let cwd = asked.cwd.unwrap_or_else(|| session.roots().cwd().to_owned());
        let directory = session.working_directory(&cwd)?;
        let command = looked_at(session, invocation, directory.path.clone(), asked.env);
        Ok(Prepared {
            invocation: command.invocation,
            directory,
            asked_env: command.env,
            reaches: command.reaches,
            env,
            output_limit: asked.output_limit,
            pty: settings.pty,
            confinement: settings.confinement.clone(),
        })
    }

    /// Runs a command, and returns as soon as it runs. If nobody waits for that any more, it is ended.
    ///
    /// # Errors
    /// Returns why it does not run.
    pub async fn start(&self, prepared: Prepared) -> Result<TerminalId, TerminalError> {
        let settings = &self.registry.settings;
        spawn::check_directory(&prepared.directory)?;
        let (number, id) = self.registry.new_id()?;
        let scratch = prepared.confinement.as_ref().map(|_| settings.temporary.join(format!("bowline-{id}")));
        let mut env = prepared.env;
        if let Some(scratch) = &scratch {
            env.retain(|(name, _)| name != "TMPDIR");
            env.push(("TMPDIR".to_owned(), scratch.display().to_string()));
        }
        if prepared.pty.is_some() && !env.iter().any(|(name, _)| name == "TERM") {
            env.push(("TERM".to_owned(), "xterm-256color".to_owned()));
        }
        env.push((VARIABLE.to_owned(), id.to_string()));
        let argv = job::argv(&prepared.invocation, &settings.shell);
        let program = argv.first().cloned().unwrap_or_default();
        let job = Job {
            argv,
            env,
            pty: prepared.pty,
            input: Input::Null,
            limits: settings.resources,
            confinement: prepared.confinement,
            scratch,
            grace: settings.grace,
        };
        let output = Output::new(settings.limits.output(prepared.output_limit));

        let (requests, received) = mpsc::channel(16);
        let (progress, observed) = watch::channel(Progress::default());
        let ending = self.registry.ending();
        let gone = async {
            for mut progress in ending {
                progress.wait_for(|progress| progress.gone).await.map_or_else(drop, drop);
            }
        };
        self.patiently(gone).await;
        let unstarted =
            self.registry.enter(&id, Handle { number, requests, progress: observed, released: false })?;
        let unusable = |why: io::Error| TerminalError::Supervisor(why.to_string());
        let streams = streams(prepared.directory).map_err(unusable)?;
        let pool = self.registry.pool.clone();
        let supervisor = if job.leaves_supervisor() { pool.take() } else { pool.start() };
        let supervisor = supervisor.map_err(unusable)?;
        let (started, answer) = oneshot::channel();
        let terminal =
            Terminal::new(id.clone(), job, output, streams, (supervisor, pool), progress.clone(), started);
        let registry = Arc::downgrade(&self.registry);
        tokio::spawn(async move {
            let shown = terminal.run(received).await;
            if let (Some(registry), Some((id, shown))) = (registry.upgrade(), shown) {
                registry.leave(id, shown);
            }
            // Whoever waits for the end of the terminal finds it put away.
            drop(progress);
        });
        let late = || TerminalError::Supervisor("it did not answer".to_owned());
        let ended = || TerminalError::Supervisor("it ended early".to_owned());
        let answer = timeout(START, answer).await.map_err(|_| late())?;
        answer.map_err(|_| ended())?.map_err(|failed| TerminalError::not_started(&program, failed))?;
        unstarted.has_started()?;
        Ok(id)
    }

    /// Returns the output so far.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    pub async fn output(&self, id: &TerminalId) -> Result<Shown, TerminalError> {
        let (requests, _) = self.registry.find(id)?;
        ask(id, &requests, Request::Output).await
    }

    /// Waits for the command to end, and says how it did. What it wrote is read by then.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    pub async fn wait(&self, id: &TerminalId) -> Result<Exit, TerminalError> {
        self.exit(id).await
    }

    /// Does what [`wait`](Self::wait) does without being one of the handles: dropping those ends the command, whoever
    /// waits for it.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    pub fn exit(&self, id: &TerminalId) -> impl Future<Output = Result<Exit, TerminalError>> + Send + use<> {
        let (found, id) = (self.registry.find(id), id.clone());
        async move {
            let (_, mut progress) = found?;
            let ended = progress.wait_for(|progress| progress.exit.is_some()).await;
            let exit = ended.ok().and_then(|progress| progress.exit.clone());
            exit.ok_or(TerminalError::Unknown(id))
        }
    }

    /// Ends the command and everything it started, and returns when nothing of it runs. The terminal stays.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    pub async fn kill(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let (requests, mut progress) = self.registry.find(id)?;
        // A terminal whose task has ended is gone already.
        requests.send(Request::Kill).await.unwrap_or_default();
        let gone = async { progress.wait_for(|progress| progress.gone).await.map_or_else(drop, drop) };
        self.patiently(gone).await;
        Ok(())
    }

    /// Ends the command and everything it started, forgets the terminal, and returns when nothing of it runs. From the
    /// moment of the call the id is no terminal's, but [`display`](Self::display) knows it for a while.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    pub async fn release(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let (requests, progress) = self.registry.release(id)?;
        requests.send(Request::Release).await.unwrap_or_default();
        self.patiently(closed(progress)).await;
        Ok(())
    }

    /// Releases every terminal, all at the same time, and for good: none can be created after the call, and one that is
    /// being created ends.
    pub async fn release_all(&self) {
        let released = self.registry.close();
        for (requests, _) in &released {
            // One that ended meanwhile needs no order.
            requests.send(Request::Release).await.unwrap_or_default();
        }
        let idle = self.registry.pool.close();
        let all = async {
            for (_, progress) in released {
                closed(progress).await;
            }
            for supervisor in idle {
                supervisor.end().await;
            }
        };
        self.patiently(all).await;
    }

    /// Returns what a terminal shows, also after it was released.
    pub async fn display(&self, id: &TerminalId) -> Option<Shown> {
        if let Some(requests) = self.registry.requests(id)
            && let Ok(shown) = ask(id, &requests, Request::Output).await
        {
            return Some(shown);
        }
        // It is put away by now, if it ever was there.
        self.registry.released(id)
    }

    /// Returns what a terminal shows, and from there on every byte of its output as it comes.
    ///
    /// # Errors
    /// Says that there is no such terminal.
    pub async fn watch(&self, id: &TerminalId) -> Result<Watcher, TerminalError> {
        let (requests, _) = self.registry.find(id)?;
        ask(id, &requests, Request::Watch).await
    }

    /// Waits for an end as long as it can reasonably take. What cannot be killed is not waited for; its supervisor goes
    /// on trying.
    async fn patiently(&self, end: impl Future<Output = ()>) {
        timeout(self.registry.settings.grace + 2 * PATIENCE, end).await.unwrap_or_default();
    }
}

/// Returns where the output of a command is read, and what the command gets.
fn streams(directory: WorkingDirectory) -> io::Result<(pipe::Receiver, Descriptors)> {
    let (reader, writer) = io::pipe()?;
    let (output, errors) = (writer.try_clone()?.into(), writer.into());
    let descriptors = Descriptors { directory: directory.handle, output, errors, input: None };
    Ok((pipe::Receiver::from_owned_fd(reader.into())?, descriptors))
}

/// Waits until a terminal's task has ended.
async fn closed(mut progress: watch::Receiver<Progress>) {
    while progress.changed().await.is_ok() {}
}

async fn ask<T>(
    id: &TerminalId,
    requests: &mpsc::Sender<Request>,
    request: impl FnOnce(oneshot::Sender<T>) -> Request,
) -> Result<T, TerminalError> {
    let (answer, answered) = oneshot::channel();
    let unknown = || TerminalError::Unknown(id.clone());
    requests.send(request(answer)).await.map_err(|_| unknown())?;
    answered.await.map_err(|_| unknown())
}

impl Terminals for LocalTerminals {
    async fn create(&self, asked: Asked) -> Result<TerminalId, Failure> {
        // Looking at the directory is short; it is not worth a thread.
        let prepared = self.prepare(asked)?;
        Ok(self.start(prepared).await?)
    }

    async fn output(&self, id: &TerminalId) -> Result<Shown, Failure> {
        Ok(Self::output(self, id).await?)
    }

    async fn wait(&self, id: &TerminalId) -> Result<Exit, Failure> {
        Ok(Self::wait(self, id).await?)
    }

    async fn kill(&self, id: &TerminalId) -> Result<(), Failure> {
        Ok(Self::kill(self, id).await?)
    }

    async fn release(&self, id: &TerminalId) -> Result<(), Failure> {
        Ok(Self::release(self, id).await?)
    }
}
