//! Commands that run for an agent, with their whole process tree.
//!
//! Every command has a [`supervisor`], a process that owns everything the command starts, and runs one command at a
//! time. A terminal is a task that reads the command's output and communicates with the supervisor; it keeps the tail
//! of the output as text. When a terminal is released, the last handle is dropped, or this process dies, no process of
//! the command is left behind.
//!
//! A command ends when its own process does: its background processes keep running, and their output is still read,
//! until the terminal is released.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_policy::operation::{CommandSpec, NamedPath, PathResolution};
use bowline_policy::paths::AdmissionError;
use bowline_policy::policy::{FileTarget, file_targets};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::TerminalId;
pub use bowline_protocol::terminal::CommandRequest;
use bowline_protocol::terminal::Invocation;
use bowline_protocol::terminal::{self, CommandExit, TerminalLimits, TerminalOutput};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::BoxFuture;
use crate::roots::{AdmitError, Roots};
use crate::workspace::{WorkingDirectory, WorkspaceSession};

mod error;
mod output_subscription;
mod process_tree;
mod protocol;
mod registry;
mod spawn;
mod supervised_program;
pub mod supervisor;
mod terminal_task;

pub use error::TerminalError;
pub use output_subscription::{OutputEvent, OutputSubscription};
pub use protocol::{Confinement, ResourceLimits};
pub use registry::{MAX_RELEASED_BYTES, MAX_RELEASED_TERMINALS};
pub use spawn::SupervisorProgram;
pub use supervised_program::{ProgramSpec, ProgramStreams, SupervisedProgram};

use protocol::{CommandDescriptors, CommandInput, CommandJob};
use registry::{Registration, TerminalHandle, TerminalRegistry};
use terminal_task::{CommandProgress, TerminalTask, TerminalTaskRequest};

/// The environment variable with the id of a command's terminal. It identifies the processes left by a command whose
/// supervisor was killed.
pub const TERMINAL_ID_VARIABLE: &str = "BOWLINE_TERMINAL";

// The timeout for a supervisor to start the command.
const START_TIMEOUT: Duration = Duration::from_secs(20);

// How long ending a command may take beyond its grace period before the supervisor itself is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The options of a session's terminals.
#[derive(Debug, Clone)]
pub struct TerminalOptions {
    /// The program that owns a command's processes.
    pub supervisor: SupervisorProgram,
    /// How long an idle supervisor waits for the next command before it exits.
    pub supervisor_idle_timeout: Duration,
    /// The user's environment, part of which is passed to commands.
    pub inherited_env: BTreeMap<String, String>,
    /// The limits of the number of terminals and of their output.
    pub limits: TerminalLimits,
    /// The resource limits of a command.
    pub resource_limits: ResourceLimits,
    /// The shell that runs shell lines.
    pub shell: String,
    /// How long a command may take to exit after SIGTERM.
    pub grace_period: Duration,
    /// The directory for the scratch directories of confined commands.
    pub temp_directory: PathBuf,
    /// The confinement of commands, if any.
    pub confinement: Option<Confinement>,
}

impl TerminalOptions {
    /// Returns the options of a host with this user environment, of which commands get the harmless part.
    #[must_use]
    pub fn with_environment(
        supervisor: SupervisorProgram,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let inherited = environment.into_iter().filter_map(text).collect();
        Self { inherited_env: inherited, ..Self::new(supervisor) }
    }

    /// Returns the default options: `/bin/sh`, and no environment beyond what the request sets.
    #[must_use]
    pub fn new(supervisor: SupervisorProgram) -> Self {
        Self {
            supervisor,
            supervisor_idle_timeout: Duration::from_secs(30),
            inherited_env: BTreeMap::new(),
            limits: TerminalLimits::default(),
            resource_limits: ResourceLimits::default(),
            shell: "/bin/sh".to_owned(),
            grace_period: Duration::from_millis(1500),
            temp_directory: PathBuf::from("/tmp"),
            confinement: None,
        }
    }
}

/// A command ready to start, fully resolved.
#[derive(Debug)]
pub struct PreparedCommand {
    /// The command line.
    pub invocation: Invocation,
    /// The working directory.
    pub directory: WorkingDirectory,
    /// The variables that the request sets, which the policy evaluates.
    pub requested_env: Vec<(String, String)>,
    /// The files that its shell opens, resolved.
    pub reaches: Vec<NamedPath>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The maximum number of bytes of output to keep.
    pub output_limit: Option<u64>,
    /// The confinement, if any.
    pub confinement: Option<Confinement>,
}

impl PreparedCommand {
    /// Returns the command for policy evaluation.
    #[must_use]
    pub fn command(&self) -> CommandSpec {
        CommandSpec {
            invocation: self.invocation.clone(),
            cwd: self.directory.path.clone(),
            env: self.requested_env.clone(),
            named_paths: self.reaches.clone(),
        }
    }
}

/// Returns a command for policy evaluation: the files that its shell would open are resolved on disk. `cwd` is a
/// canonical path.
///
/// Links created later are not seen: an agent that may run commands that create links can redirect the files of others.
#[must_use]
pub fn resolve_command(
    roots: &Roots,
    invocation: Invocation,
    cwd: String,
    env: Vec<(String, String)>,
) -> CommandSpec {
    let mut command = CommandSpec { invocation, cwd, env, named_paths: Vec::new() };
    let look = |FileTarget { path, access }: FileTarget| {
        let leads = match roots.admit(&path, access) {
            Ok(admitted) => PathResolution::InsideRoot {
                resolved: admitted.canonical().to_owned(),
                protection: admitted.protection(),
            },
            Err(AdmitError::Refused(AdmissionError::ReadOnlyRoot(_))) => PathResolution::ReadOnlyRoot,
            Err(_) => PathResolution::OutsideRoots,
        };
        NamedPath { requested: path, access, resolution: leads }
    };
    command.named_paths = file_targets(&command).into_iter().map(look).collect();
    command
}

/// A snapshot of a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalSnapshot {
    /// The tail of the output.
    pub text: String,
    /// Whether earlier output was dropped.
    pub truncated: bool,
    /// The exit of the command, if it has exited.
    pub exit: Option<CommandExit>,
}

/// A backend for the terminals of one session.
pub trait TerminalBackend: Send + Sync {
    /// Starts a command, and returns as soon as it runs.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    fn create(&self, asked: CommandRequest) -> BoxFuture<'_, Result<TerminalId, RpcError>>;

    /// Returns the output so far.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    fn output<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<TerminalSnapshot, RpcError>>;

    /// Waits for the command to exit.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    fn wait<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<CommandExit, RpcError>>;

    /// Kills the command. Its output is kept.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    fn kill<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>>;

    /// Kills the command and releases the terminal.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    fn release<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>>;
}

/// The terminals of this machine. Clones share them; dropping the last one ends every command.
///
/// It has to be used within a tokio runtime that drives IO and time.
#[derive(Debug, Clone)]
pub struct LocalTerminals {
    registry: Arc<TerminalRegistry>,
}

impl LocalTerminals {
    /// Returns the terminals of a session, initially none.
    #[must_use]
    pub fn new(session: WorkspaceSession, settings: TerminalOptions) -> Self {
        Self { registry: Arc::new(TerminalRegistry::new(session, settings)) }
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &TerminalOptions {
        &self.registry.options
    }

    /// Resolves a request to the exact command, so that it can be approved before it starts.
    ///
    /// # Errors
    /// Returns an error if the request is invalid.
    pub fn prepare(&self, asked: CommandRequest) -> Result<PreparedCommand, TerminalError> {
        let TerminalRegistry { session, options: settings, .. } = &*self.registry;
        let invocation = terminal::parse_invocation(&asked.command, &asked.args)?;
        let env = terminal::command_environment(&settings.inherited_env, &asked.env)?;
        let cwd = asked.cwd.unwrap_or_else(|| session.roots().cwd().to_owned());
        let directory = session.working_directory(&cwd)?;
        let command = resolve_command(session.roots(), invocation, directory.path.clone(), asked.env);
        Ok(PreparedCommand {
            invocation: command.invocation,
            directory,
            requested_env: command.env,
            reaches: command.named_paths,
            env,
            output_limit: asked.output_limit,
            confinement: settings.confinement.clone(),
        })
    }

    /// Starts a command, and returns as soon as it runs. Dropping the future before that ends the command.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start(&self, prepared: PreparedCommand) -> Result<TerminalId, TerminalError> {
        let settings = &self.registry.options;
        spawn::check_directory(&prepared.directory)?;
        let (number, id) = self.registry.new_id()?;
        let scratch =
            prepared.confinement.as_ref().map(|_| settings.temp_directory.join(format!("bowline-{id}")));
        let mut env = prepared.env;
        if let Some(scratch) = &scratch {
            env.retain(|(name, _)| name != "TMPDIR");
            env.push(("TMPDIR".to_owned(), scratch.display().to_string()));
        }
        env.push((TERMINAL_ID_VARIABLE.to_owned(), id.to_string()));
        let argv = protocol::command_argv(&prepared.invocation, &settings.shell);
        let program = argv.first().cloned().unwrap_or_default();
        let job = CommandJob {
            argv,
            env,
            input: CommandInput::Null,
            limits: settings.resource_limits,
            confinement: prepared.confinement,
            scratch,
            grace: settings.grace_period,
        };
        let output = TerminalOutput::new(settings.limits.output_limit(prepared.output_limit));

        let (requests, received) = mpsc::channel(16);
        let (progress, observed) = watch::channel(CommandProgress::default());
        let handle = TerminalHandle { number, requests, progress: observed, released: false };
        let unstarted = loop {
            match self.registry.register(&id, handle.clone())? {
                Registration::Registered(unstarted) => break unstarted,
                Registration::MakingRoom(released) => self.wait_for_end(wait_gone(released)).await,
            }
        };
        drop(handle);
        let unusable = |why: io::Error| TerminalError::Supervisor(why.to_string());
        let streams = command_streams(prepared.directory).map_err(unusable)?;
        let pool = self.registry.pool.clone();
        let supervisor = if job.can_reuse_supervisor() { pool.take_or_start() } else { pool.start() };
        let supervisor = supervisor.map_err(unusable)?;
        let (started, answer) = oneshot::channel();
        let terminal = TerminalTask::new(
            id.clone(),
            job,
            output,
            streams,
            (supervisor, pool),
            progress.clone(),
            started,
        );
        let registry = Arc::downgrade(&self.registry);
        bowline_task::spawn(async move {
            let shown = terminal.run(received).await;
            if let (Some(registry), Some((id, shown))) = (registry.upgrade(), shown) {
                registry.store_released(id, shown);
            }
            // Dropped last, so that callers waiting for the end find the snapshot stored.
            drop(progress);
        });
        let late = || TerminalError::Supervisor("it did not answer".to_owned());
        let ended = || TerminalError::Supervisor("it ended early".to_owned());
        let answer = timeout(START_TIMEOUT, answer).await.map_err(|_| late())?;
        answer.map_err(|_| ended())?.map_err(|failed| TerminalError::from_start_error(&program, failed))?;
        unstarted.confirm_started()?;
        Ok(id)
    }

    /// Returns the output so far.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    pub async fn output(&self, id: &TerminalId) -> Result<TerminalSnapshot, TerminalError> {
        let (requests, _) = self.registry.find(id)?;
        send_request(id, &requests, TerminalTaskRequest::Output).await
    }

    /// Waits for the command to exit. Its output is read by then.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    pub async fn wait(&self, id: &TerminalId) -> Result<CommandExit, TerminalError> {
        self.wait_detached(id).await
    }

    /// Like [`wait`](Self::wait), without keeping a handle: dropping the handles ends the command even while this
    /// future waits for it.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    pub fn wait_detached(
        &self,
        id: &TerminalId,
    ) -> impl Future<Output = Result<CommandExit, TerminalError>> + Send + use<> {
        let (found, id) = (self.registry.find(id), id.clone());
        async move {
            let (_, mut progress) = found?;
            let ended = progress.wait_for(|progress| progress.exit.is_some()).await;
            let exit = ended.ok().and_then(|progress| progress.exit.clone());
            exit.ok_or(TerminalError::UnknownTerminal(id))
        }
    }

    /// Kills the command and everything it started, and returns when none of its processes is left. The terminal stays.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    pub async fn kill(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let (requests, progress) = self.registry.find(id)?;
        // A terminal whose task has ended has no processes left.
        requests.send(TerminalTaskRequest::Kill).await.unwrap_or_default();
        self.wait_for_end(wait_gone(progress)).await;
        Ok(())
    }

    /// Kills the command and everything it started, releases the terminal, and returns when none of its processes is
    /// left. The id is invalid from the start of the call, except for [`last_snapshot`](Self::last_snapshot), which
    /// knows it for a while.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    pub async fn release(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let (requests, progress) = self.registry.release(id)?;
        requests.send(TerminalTaskRequest::Release).await.unwrap_or_default();
        self.wait_for_end(wait_closed(progress)).await;
        Ok(())
    }

    /// Releases every terminal concurrently, and for good: none can be created after the call, and one that is being
    /// created ends.
    pub async fn release_all(&self) {
        let released = self.registry.close();
        for (requests, _) in &released {
            // A task that has ended meanwhile needs no request.
            requests.send(TerminalTaskRequest::Release).await.unwrap_or_default();
        }
        let idle = self.registry.pool.close();
        let all = async {
            for (_, progress) in released {
                wait_closed(progress).await;
            }
            for supervisor in idle {
                supervisor.shut_down().await;
            }
        };
        self.wait_for_end(all).await;
    }

    /// Returns a snapshot of a terminal, even after its release.
    pub async fn last_snapshot(&self, id: &TerminalId) -> Option<TerminalSnapshot> {
        if let Some(requests) = self.registry.request_sender(id)
            && let Ok(shown) = send_request(id, &requests, TerminalTaskRequest::Output).await
        {
            return Some(shown);
        }
        // Its snapshot is stored by now, if the terminal ever existed.
        self.registry.released_snapshot(id)
    }

    /// Returns a snapshot of a terminal, followed by every byte of its output as it arrives.
    ///
    /// # Errors
    /// Fails if the terminal does not exist.
    pub async fn subscribe(&self, id: &TerminalId) -> Result<OutputSubscription, TerminalError> {
        let (requests, _) = self.registry.find(id)?;
        send_request(id, &requests, TerminalTaskRequest::Subscribe).await
    }

    /// Waits for an end, with a timeout. Processes that cannot be killed are left to the supervisor, which keeps
    /// trying.
    async fn wait_for_end(&self, end: impl Future<Output = ()>) {
        timeout(self.registry.options.grace_period + 2 * KILL_TIMEOUT, end).await.unwrap_or_default();
    }
}

/// Returns the reading end of a command's output, and the command's descriptors.
fn command_streams(directory: WorkingDirectory) -> io::Result<(pipe::Receiver, CommandDescriptors)> {
    let (reader, writer) = io::pipe()?;
    let (output, errors) = (writer.try_clone()?.into(), writer.into());
    let descriptors = CommandDescriptors { directory: directory.handle, output, stderr: errors, input: None };
    Ok((pipe::Receiver::from_owned_fd(reader.into())?, descriptors))
}

/// Waits until no process of a terminal is left.
async fn wait_gone(mut progress: watch::Receiver<CommandProgress>) {
    progress.wait_for(|progress| progress.is_gone).await.map_or_else(drop, drop);
}

/// Waits until a terminal's task has ended.
async fn wait_closed(mut progress: watch::Receiver<CommandProgress>) {
    while progress.changed().await.is_ok() {}
}

async fn send_request<T>(
    id: &TerminalId,
    requests: &mpsc::Sender<TerminalTaskRequest>,
    request: impl FnOnce(oneshot::Sender<T>) -> TerminalTaskRequest,
) -> Result<T, TerminalError> {
    let (answer, answered) = oneshot::channel();
    let unknown = || TerminalError::UnknownTerminal(id.clone());
    requests.send(request(answer)).await.map_err(|_| unknown())?;
    answered.await.map_err(|_| unknown())
}

impl TerminalBackend for LocalTerminals {
    fn create(&self, asked: CommandRequest) -> BoxFuture<'_, Result<TerminalId, RpcError>> {
        Box::pin(async move {
            // Examining the directory is quick, and not worth a blocking thread.
            let prepared = self.prepare(asked)?;
            Ok(self.start(prepared).await?)
        })
    }

    fn output<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<TerminalSnapshot, RpcError>> {
        Box::pin(async move { Ok(Self::output(self, id).await?) })
    }

    fn wait<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<CommandExit, RpcError>> {
        Box::pin(async move { Ok(Self::wait(self, id).await?) })
    }

    fn kill<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(async move { Ok(Self::kill(self, id).await?) })
    }

    fn release<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(async move { Ok(Self::release(self, id).await?) })
    }
}
