//! The client's terminals: child processes with both outputs in one pipe.

use std::collections::HashMap;
use std::io::{PipeReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, TerminalExitStatus, TerminalId, TerminalOutputResponse,
};
use agent_client_protocol::{Error, Result};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, oneshot, watch};

/// How long the end of the output may lag behind the end of the process.
const DRAIN: Duration = Duration::from_secs(1);

/// Every terminal that is not released.
#[derive(Default)]
pub(crate) struct Terminals {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    created: u64,
    terminals: HashMap<TerminalId, Arc<Terminal>>,
}

impl Terminals {
    /// Starts a command.
    pub(crate) fn create(&self, request: &CreateTerminalRequest) -> Result<TerminalId> {
        let terminal = Terminal::start(request).map_err(|error| {
            Error::internal_error().data(json!(format!("cannot start {}: {error}", request.command)))
        })?;
        let mut open = self.open();
        open.created += 1;
        let id = TerminalId::new(format!("terminal_{}", open.created));
        open.terminals.insert(id.clone(), Arc::new(terminal));
        Ok(id)
    }

    /// Returns an open terminal.
    pub(crate) fn get(&self, id: &TerminalId) -> Result<Arc<Terminal>> {
        self.open().terminals.get(id).cloned().ok_or_else(|| unknown(id))
    }

    /// Kills a terminal's command and removes the terminal.
    pub(crate) fn release(&self, id: &TerminalId) -> Result<()> {
        self.open().terminals.remove(id).ok_or_else(|| unknown(id))?.kill();
        Ok(())
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One command, running or ended.
pub(crate) struct Terminal {
    output: Output,
    kill: Arc<Notify>,
    exit: watch::Receiver<Option<TerminalExitStatus>>,
}

type Output = Arc<Mutex<Vec<u8>>>;

impl Terminal {
    fn start(request: &CreateTerminalRequest) -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = Command::new(&request.command);
        command.args(&request.args).envs(request.env.iter().map(|var| (&var.name, &var.value)));
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        if let Some(cwd) = &request.cwd {
            command.current_dir(cwd);
        }
        let child = command.kill_on_drop(true).spawn()?;
        // The command owns the pipe's write ends: while it exists, the reader sees no end.
        drop(command);

        let output = Output::default();
        let (drained, drain) = oneshot::channel();
        let written = Arc::clone(&output);
        std::thread::spawn(move || {
            collect(reader, &written);
            drained.send(()).ok();
        });
        let kill = Arc::new(Notify::new());
        let (ended, exit) = watch::channel(None);
        let killed = Arc::clone(&kill);
        tokio::spawn(async move {
            let status = wait(child, &killed).await;
            // Background processes of a command may hold the pipe open; they are not waited for.
            tokio::time::timeout(DRAIN, drain).await.ok();
            ended.send_replace(Some(status));
        });
        Ok(Self { output, kill, exit })
    }

    /// Signals the command to end.
    pub(crate) fn kill(&self) {
        self.kill.notify_one();
    }

    /// Returns the command's output so far, and its exit status once it has ended.
    pub(crate) fn output(&self) -> TerminalOutputResponse {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        TerminalOutputResponse::new(String::from_utf8_lossy(&output), false)
            .exit_status(self.exit.borrow().clone())
    }

    /// Waits for the command's end.
    pub(crate) async fn exited(&self) -> Result<TerminalExitStatus> {
        let mut exit = self.exit.clone();
        let status = exit.wait_for(Option::is_some).await.map_err(Error::into_internal_error)?;
        Ok(status.clone().unwrap_or_default())
    }
}

async fn wait(mut child: Child, kill: &Notify) -> TerminalExitStatus {
    let ended = tokio::select! {
        ended = child.wait() => ended,
        () = kill.notified() => match child.kill().await {
            Ok(()) => child.wait().await,
            Err(error) => Err(error),
        },
    };
    ended.map_or_else(|_| TerminalExitStatus::new(), exit_status)
}

fn exit_status(status: ExitStatus) -> TerminalExitStatus {
    TerminalExitStatus::new()
        .exit_code(status.code().and_then(|code| u32::try_from(code).ok()))
        .signal(status.signal().map(|signal| signal.to_string()))
}

/// Appends to `output` until every write end of the pipe is closed.
fn collect(mut reader: PipeReader, output: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        output.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
    }
}

fn unknown(id: &TerminalId) -> Error {
    Error::invalid_params().data(json!(format!("no terminal {id}")))
}
