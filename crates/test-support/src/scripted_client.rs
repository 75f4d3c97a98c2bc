//! Bowline's scripted client: it runs the steps of a plan, as `tests/peers/README.md` describes.

use std::collections::HashMap;
use std::io::Write;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    ClientCapabilities, CreateTerminalRequest, CreateTerminalResponse, Error, FileSystemCapabilities,
    InitializeRequest, KillTerminalRequest, KillTerminalResponse, NewSessionRequest, PermissionOptionKind,
    PromptRequest, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionNotification, SessionUpdate, TerminalExitStatus, TerminalId,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
    WriteTextFileRequest, WriteTextFileResponse,
};
use anyhow::{Context, Result, ensure};
use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::{self, LineWindow};
use bowline_wire::{AgentHandle, Client, ClientContext, ConnectionLimits, ShutdownGrace, spawn_agent};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::{Notify, watch};

use crate::contract::{BenchTexts, PeerClientArgs, PlanStep, StepLog};

/// Runs the steps in the arguments, and prints the result of each.
///
/// # Errors
/// Fails when the arguments are wrong, and when the agent violates the protocol.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<()> {
    let arguments = PeerClientArgs::parse(arguments)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_plan(arguments))
}

async fn run_plan(arguments: PeerClientArgs) -> Result<()> {
    let PeerClientArgs { approval_kind, plan, agent } = arguments;
    let (program, rest) = agent.split_first().context("the agent's command is missing")?;
    let client = Arc::new(ScriptedClient::new(approval_kind));
    let mut command = Command::new(program);
    command.args(rest);
    let (agent, process) = spawn_agent(command, Arc::clone(&client), ConnectionLimits::DEFAULT)?;
    let steps = run_steps(&client, &agent, plan).await;
    // The agent must exit by itself, and peers on slow machines take long.
    let grace = ShutdownGrace { after_close: Duration::from_secs(120), ..ShutdownGrace::default() };
    let exit = process.shutdown(grace).await;
    steps.with_context(|| exit.to_string())?;
    ensure!(exit.status.is_some_and(|status| status.success()), "{exit}");
    Ok(())
}

async fn run_steps(client: &ScriptedClient, agent: &AgentHandle, plan: Vec<PlanStep>) -> Result<()> {
    let capabilities = ClientCapabilities::new()
        .fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
        .terminal(true);
    let initialize = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities);
    let answer = agent.initialize(initialize).await?;
    let name = answer.agent_info.map(|info| info.name);
    print_line(&json!({"agent": name, "protocolVersion": answer.protocol_version}).to_string())?;
    let session = agent.new_session(NewSessionRequest::new(std::env::current_dir()?)).await?.session_id;
    for step in plan {
        *lock(&client.log) = StepLog::default();
        let prompt = PromptRequest::new(session.clone(), vec![step.prompt.to_string().into()]);
        let start = Instant::now();
        let turn = agent.prompt(prompt);
        let cancel = async {
            if step.cancel_on_first_chunk {
                client.first_chunk.notified().await;
                agent.cancel(session.clone()).await?;
            }
            Ok(())
        };
        let (answer, ()) = tokio::try_join!(turn, cancel)?;
        print_line(&lock(&client.log).to_json_line(answer.stop_reason, start.elapsed())?)?;
    }
    Ok(())
}

/// The client's side of the contract.
struct ScriptedClient {
    approval_kind: PermissionOptionKind,
    texts: Mutex<BenchTexts>,
    log: Mutex<StepLog>,
    first_chunk: Notify,
    terminals: Mutex<HashMap<TerminalId, ClientTerminal>>,
}

impl ScriptedClient {
    fn new(approval_kind: PermissionOptionKind) -> Self {
        ScriptedClient {
            approval_kind,
            texts: Mutex::default(),
            log: Mutex::default(),
            first_chunk: Notify::new(),
            terminals: Mutex::default(),
        }
    }

    fn find_terminal(&self, id: &TerminalId) -> Result<ClientTerminal, Error> {
        let terminals = lock(&self.terminals);
        terminals
            .get(id)
            .cloned()
            .ok_or_else(|| RpcError::ResourceNotFound { uri: Some(id.to_string()) }.into())
    }
}

impl Client for ScriptedClient {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let option = request.options.into_iter().find(|option| option.kind == self.approval_kind);
        Ok(RequestPermissionResponse::new(match option {
            Some(option) => {
                RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id))
            }
            None => RequestPermissionOutcome::Cancelled,
        }))
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        let mut log = lock(&self.log);
        let first = log.has_no_chunk() && matches!(notification.update, SessionUpdate::AgentMessageChunk(_));
        log.record(notification.update);
        if first {
            self.first_chunk.notify_one();
        }
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        _: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        if let Some(text) = lock(&self.texts).get(&request.path) {
            return Ok(ReadTextFileResponse::new(text));
        }
        let uri = request.path.display().to_string();
        let text = std::fs::read_to_string(&request.path)
            .map_err(|_| RpcError::ResourceNotFound { uri: Some(uri) })?;
        let window = LineWindow { line: request.line, limit: request.limit };
        let text =
            lines::slice_lines(&text, window).map_err(|past| RpcError::PastEnd { lines: past.lines })?;
        Ok(ReadTextFileResponse::new(text))
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        _: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        std::fs::write(&request.path, request.content).map_err(Error::into_internal_error)?;
        Ok(WriteTextFileResponse::new())
    }

    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        _: ClientContext,
    ) -> Result<CreateTerminalResponse, Error> {
        let terminal = ClientTerminal::start(request).map_err(Error::into_internal_error)?;
        let mut terminals = lock(&self.terminals);
        let id = TerminalId::new(format!("terminal_{}", terminals.len() + 1));
        terminals.insert(id.clone(), terminal);
        Ok(CreateTerminalResponse::new(id))
    }

    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        _: ClientContext,
    ) -> Result<TerminalOutputResponse, Error> {
        let terminal = self.find_terminal(&request.terminal_id)?;
        let output = String::from_utf8_lossy(&lock(&terminal.output)).into_owned();
        Ok(TerminalOutputResponse::new(output, false))
    }

    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        _: ClientContext,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        let mut exit = self.find_terminal(&request.terminal_id)?.exit;
        let exit = exit.wait_for(Option::is_some).await.map_err(Error::into_internal_error)?.clone();
        Ok(WaitForTerminalExitResponse::new(exit.unwrap_or_default()))
    }

    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        _: ClientContext,
    ) -> Result<KillTerminalResponse, Error> {
        self.find_terminal(&request.terminal_id)?.kill.notify_one();
        Ok(KillTerminalResponse::new())
    }

    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        _: ClientContext,
    ) -> Result<ReleaseTerminalResponse, Error> {
        self.find_terminal(&request.terminal_id)?.kill.notify_one();
        lock(&self.terminals).remove(&request.terminal_id);
        Ok(ReleaseTerminalResponse::new())
    }
}

/// A command, running or ended.
#[derive(Clone)]
struct ClientTerminal {
    output: Arc<Mutex<Vec<u8>>>,
    exit: watch::Receiver<Option<TerminalExitStatus>>,
    kill: Arc<Notify>,
}

impl ClientTerminal {
    fn start(request: CreateTerminalRequest) -> std::io::Result<Self> {
        let mut child = Command::new(&request.command)
            .args(&request.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (exited, exit) = watch::channel(None);
        let terminal = ClientTerminal { output: Arc::default(), exit, kill: Arc::default() };
        let (output, kill) = (Arc::clone(&terminal.output), Arc::clone(&terminal.kill));
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            let mut stdout = child.stdout.take();
            let ended = async {
                if let Some(stdout) = &mut stdout {
                    stdout.read_to_end(&mut bytes).await.unwrap_or_default();
                }
                child.wait().await.ok()
            };
            let status = tokio::select! {
                status = ended => status,
                () = kill.notified() => None,
            };
            let code = match status {
                Some(status) => status.code(),
                None => child.kill().await.ok().and(None),
            };
            *lock(&output) = bytes;
            exited.send_replace(Some(TerminalExitStatus::new().exit_code(code.map(i32::cast_unsigned))));
        });
        Ok(terminal)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print_line(line: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("cannot write to stdout")
}
