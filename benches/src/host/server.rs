//! The processes between the runner and an agent: a host, and the handlers that it is measured against.

use std::fs;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    ClientCapabilities, ContentBlock, Error, FileSystemCapabilities, InitializeRequest, NewSessionRequest,
    PromptRequest, ReadTextFileRequest, ReadTextFileResponse, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionId, SessionNotification, SessionUpdate,
    WriteTextFileRequest, WriteTextFileResponse,
};
use anyhow::{Context as _, Result};
use bowline_access::approvals::{Approver, BoxFuture};
use bowline_host::{
    Connection, FrontEnd, Host, HostEvent, HostOptions, HostPaths, HostSession, SessionOptions,
};
use bowline_policy::policy::Preset;
use bowline_policy::question::{Question, QuestionReply};
use bowline_wire::{
    AgentHandle, AgentProcess, Client, ClientContext, ConnectionLimits, ShutdownGrace, spawn_agent,
};
use bowline_workspace::terminals::{self, SupervisorProgram};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::agent::{AgentStep, StepResult};
use super::options::ServerKind;
use crate::files::memory::measure_peak_growth;
use crate::files::writes::replace_durably;

/// Rules like a user's: none applies to the measured operations, and each is evaluated.
const RULES: &str = r#"
[[rules]]
effect = "deny"
kinds = ["read", "write"]
path = "**/*.pem"
[[rules]]
effect = "ask"
kinds = ["write"]
path = "deploy/**"
[[rules]]
effect = "allow"
kinds = ["read", "write"]
path = "notes/**"
[[rules]]
effect = "deny"
command = "git push"
"#;

/// The report on a step from a process that serves an agent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct StepReport {
    /// The agent's result.
    pub(super) done: StepResult,
    /// The growth of this process's peak memory during the step, in KiB.
    pub(super) grown_kib: u64,
}

/// Starts an agent, runs one step for each line of stdin, and reports each on stdout.
///
/// # Errors
/// Fails if a step fails.
pub fn serve_steps(side: &ServerKind) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--agent");
    let mut client = runtime.block_on(AgentServer::start(side, command))?;
    for line in io::stdin().lock().lines() {
        let step: AgentStep = serde_json::from_str(&line?)?;
        let mut done = StepResult::default();
        let grown_kib = measure_peak_growth(|| {
            done = runtime.block_on(client.run_step(&step))?;
            Ok(())
        })?;
        let mut stdout = io::stdout().lock();
        serde_json::to_writer(&mut stdout, &StepReport { done, grown_kib })?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
    }
    runtime.block_on(client.end());
    Ok(())
}

/// The server of the agent.
enum AgentServer {
    Host { screen: Arc<StepScreen>, connection: Box<Connection>, session: HostSession },
    Handler { screen: Arc<StepScreen>, process: Box<AgentProcess>, agent: AgentHandle, session: SessionId },
}

impl AgentServer {
    async fn start(side: &ServerKind, command: Command) -> Result<Self> {
        let screen = Arc::new(StepScreen::default());
        let memory = match side {
            ServerKind::Host(place) => {
                let connection = open_host(place, screen.clone())?.spawn(command).await?;
                let session = connection.new_session(SessionOptions::default()).await?;
                return Ok(Self::Host { screen, connection: Box::new(connection), session });
            }
            ServerKind::Bare => None,
            ServerKind::Memory => Some("x".repeat(4 << 10)),
        };
        let handler = Arc::new(BareClient { screen: screen.clone(), memory });
        let (agent, process) = spawn_agent(command, handler, ConnectionLimits::DEFAULT)?;
        let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
        let capabilities = ClientCapabilities::new().fs(files);
        agent
            .initialize(InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities))
            .await?;
        let session = agent.new_session(NewSessionRequest::new(std::env::current_dir()?)).await?.session_id;
        Ok(Self::Handler { screen, process: Box::new(process), agent, session })
    }

    async fn run_step(&mut self, step: &AgentStep) -> Result<StepResult> {
        let prompt = serde_json::to_string(step)?;
        let screen = match self {
            Self::Host { screen, session, .. } => {
                session.prompt_text(prompt).await?;
                screen
            }
            Self::Handler { screen, agent, session, .. } => {
                agent.prompt(PromptRequest::new(session.clone(), vec![prompt.into()])).await?;
                screen
            }
        };
        let done = screen.last_result.lock().unwrap_or_else(PoisonError::into_inner).take();
        done.context("the agent said nothing")
    }

    async fn end(self) {
        match self {
            Self::Host { connection, .. } => drop(connection.shutdown(ShutdownGrace::default()).await),
            Self::Handler { process, .. } => drop(process.shutdown(ShutdownGrace::default()).await),
        }
    }
}

fn open_host(place: &Path, screen: Arc<StepScreen>) -> Result<Host> {
    let supervisor =
        SupervisorProgram { program: std::env::current_exe()?, args: vec!["--supervise".into()] };
    let mut terminals = terminals::TerminalOptions::new(supervisor);
    terminals.inherited_env.insert("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    let mut settings = HostOptions::new(terminals);
    settings.preset = Some(Preset::Full);
    let rules = place.join("config");
    fs::create_dir_all(&rules)?;
    fs::set_permissions(&rules, PermissionsExt::from_mode(0o700))?;
    let policy = rules.join("policy.toml");
    fs::write(&policy, RULES)?;
    fs::set_permissions(&policy, PermissionsExt::from_mode(0o600))?;
    let places = HostPaths { state: place.join("state"), policy, anchors: place.join("anchors") };
    Ok(Host::open(&place.join("project"), &places, screen, settings)?)
}

/// The agent's last result.
#[derive(Default)]
struct StepScreen {
    last_result: Mutex<Option<StepResult>>,
}

impl StepScreen {
    fn update(&self, update: &SessionUpdate) {
        if let SessionUpdate::AgentMessageChunk(chunk) = update
            && let ContentBlock::Text(text) = &chunk.content
        {
            *self.last_result.lock().unwrap_or_else(PoisonError::into_inner) =
                serde_json::from_str(&text.text).ok();
        }
    }
}

impl Approver for StepScreen {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, QuestionReply> {
        Box::pin(std::future::ready(QuestionReply::NoUser))
    }
}

impl FrontEnd for StepScreen {
    fn show(&self, event: HostEvent<'_>) {
        if let HostEvent::Update { notification, .. } = event {
            self.update(&notification.update);
        }
    }
}

/// A handler that reads and writes with the standard library, like other clients.
struct BareClient {
    screen: Arc<StepScreen>,
    // The answer to every read, if set.
    memory: Option<String>,
}

impl Client for BareClient {
    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        self.screen.update(&notification.update);
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        _: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        let text = match &self.memory {
            Some(text) => text.clone(),
            None => fs::read_to_string(&request.path).map_err(Error::into_internal_error)?,
        };
        Ok(ReadTextFileResponse::new(text))
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        _: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        let directory = request.path.parent().unwrap_or(Path::new("/"));
        replace_durably(directory, &request.path, &request.content)
            .map_err(|error| Error::internal_error().data(error.to_string()))?;
        Ok(WriteTextFileResponse::new())
    }
}
