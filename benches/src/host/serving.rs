//! The processes between the runner and an agent: a host, and the handlers it is measured against.

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
use bowline_host::{Connection, Event, FrontEnd, Host, Places, Session, SessionOptions, Settings};
use bowline_state::policy::Preset;
use bowline_state::question::{Question, Reply};
use bowline_wire::{AgentHandle, AgentProcess, Client, ClientContext, Grace, Limits, spawn_agent};
use bowline_workspace::approvals::{BoxFuture, Person};
use bowline_workspace::terminals::{self, Supervisor};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::agent::{Done, Step};
use super::options::Side;
use crate::files::memory::growth;
use crate::files::writes::plain_write;

/// Rules as a user may have them: none speaks of what is measured, and each is looked at.
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

/// What a process that serves an agent says of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Served {
    /// What the agent said.
    pub(super) done: Done,
    /// By how many KiB the peak of this process lies above what it had before the step.
    pub(super) grown_kib: u64,
}

/// Starts an agent, serves it for each step that a line of stdin tells, and says on stdout what came of it.
///
/// # Errors
/// Fails if a step does.
pub fn serve(side: &Side) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--agent");
    let mut client = runtime.block_on(Serving::start(side, command))?;
    for line in io::stdin().lock().lines() {
        let step: Step = serde_json::from_str(&line?)?;
        let mut done = Done::default();
        let grown_kib = growth(|| {
            done = runtime.block_on(client.take(&step))?;
            Ok(())
        })?;
        let mut stdout = io::stdout().lock();
        serde_json::to_writer(&mut stdout, &Served { done, grown_kib })?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
    }
    runtime.block_on(client.end());
    Ok(())
}

/// Whoever serves the agent.
enum Serving {
    Host { screen: Arc<Screen>, connection: Box<Connection>, session: Session },
    Handler { screen: Arc<Screen>, process: Box<AgentProcess>, agent: AgentHandle, session: SessionId },
}

impl Serving {
    async fn start(side: &Side, command: Command) -> Result<Self> {
        let screen = Arc::new(Screen::default());
        let memory = match side {
            Side::Host(place) => {
                let connection = open(place, screen.clone())?.spawn(command).await?;
                let session = connection.new_session(SessionOptions::default()).await?;
                return Ok(Self::Host { screen, connection: Box::new(connection), session });
            }
            Side::Bare => None,
            Side::Memory => Some("x".repeat(4 << 10)),
        };
        let handler = Arc::new(Handler { screen: screen.clone(), memory });
        let (agent, process) = spawn_agent(command, handler, Limits::DEFAULT)?;
        let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
        let capabilities = ClientCapabilities::new().fs(files);
        agent
            .initialize(InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities))
            .await?;
        let session = agent.new_session(NewSessionRequest::new(std::env::current_dir()?)).await?.session_id;
        Ok(Self::Handler { screen, process: Box::new(process), agent, session })
    }

    async fn take(&mut self, step: &Step) -> Result<Done> {
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
        let done = screen.done.lock().unwrap_or_else(PoisonError::into_inner).take();
        done.context("the agent said nothing")
    }

    async fn end(self) {
        match self {
            Self::Host { connection, .. } => drop(connection.shutdown(Grace::default()).await),
            Self::Handler { process, .. } => drop(process.shutdown(Grace::default()).await),
        }
    }
}

fn open(place: &Path, screen: Arc<Screen>) -> Result<Host> {
    let supervisor = Supervisor { program: std::env::current_exe()?, args: vec!["--supervise".into()] };
    let mut terminals = terminals::Settings::new(supervisor);
    terminals.inherited.insert("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    let mut settings = Settings::new(terminals);
    settings.preset = Some(Preset::Full);
    let rules = place.join("config");
    fs::create_dir_all(&rules)?;
    fs::set_permissions(&rules, PermissionsExt::from_mode(0o700))?;
    let policy = rules.join("policy.toml");
    fs::write(&policy, RULES)?;
    fs::set_permissions(&policy, PermissionsExt::from_mode(0o600))?;
    let places = Places { state: place.join("state"), policy, anchors: place.join("anchors") };
    Ok(Host::open(&place.join("project"), &places, screen, settings)?)
}

/// What the agent said last.
#[derive(Default)]
struct Screen {
    done: Mutex<Option<Done>>,
}

impl Screen {
    fn update(&self, update: &SessionUpdate) {
        if let SessionUpdate::AgentMessageChunk(chunk) = update
            && let ContentBlock::Text(text) = &chunk.content
        {
            *self.done.lock().unwrap_or_else(PoisonError::into_inner) = serde_json::from_str(&text.text).ok();
        }
    }
}

impl Person for Screen {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Reply> {
        Box::pin(std::future::ready(Reply::Nobody))
    }
}

impl FrontEnd for Screen {
    fn show(&self, event: Event<'_>) {
        if let Event::Update { notification, .. } = event {
            self.update(&notification.update);
        }
    }
}

/// What peers do: a handler that reads and writes with the standard library.
struct Handler {
    screen: Arc<Screen>,
    // Answers every read, if it is there.
    memory: Option<String>,
}

impl Client for Handler {
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
        plain_write(directory, &request.path, &request.content)
            .map_err(|error| Error::internal_error().data(error.to_string()))?;
        Ok(WriteTextFileResponse::new())
    }
}
