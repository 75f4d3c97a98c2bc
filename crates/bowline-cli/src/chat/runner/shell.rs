//! Commands that the person runs beside the conversation, by `!`. They are the person's own: no rule is asked, and what they
//! change is no agent's.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::Runner;
use crate::chat::event::Event;

/// So much of what a command writes is shown, in bytes: its end.
const MAX_OUTPUT: usize = 16 << 10;

/// Ends a command with all that it started in its group, unless it has ended.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // What is gone already cannot be ended.
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

impl Runner {
    /// Runs a command of the person's own, in place of one that runs.
    pub(crate) fn run_shell(&mut self, line: String) {
        self.end_shell();
        let directory = self.launch.cwd().to_owned();
        let inbox = self.inbox.clone();
        let running = async move { inbox.push(Event::ShellEnded(run_shell(&line, &directory).await)) };
        self.shell = Some(self.tasks.spawn(running));
    }

    /// Ends the command of the person's own that runs, if one does.
    pub(crate) fn end_shell(&mut self) {
        if let Some(shell) = self.shell.take() {
            shell.abort();
        }
    }
}

/// Runs a line for a shell in a directory, and returns what it wrote and how it ended. It ends if this is dropped.
async fn run_shell(line: &str, directory: &Path) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).current_dir(directory).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("the command cannot be started: {error}"))?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut group = Group(id);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (output, errors, status) = tokio::join!(read_end(stdout), read_end(stderr), child.wait());
    group.0 = None;
    let status = status.map_err(|error| error.to_string())?;
    let mut text = output + &errors;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let end = match status.code() {
        Some(code) => format!("ended: {code}"),
        None => format!("ended: {status}"),
    };
    Ok(text + &end)
}

/// Reads to the end, and returns the last of it as text.
async fn read_end(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let (mut kept, mut bytes, mut dropped) = (Vec::new(), vec![0; 8 << 10], 0);
    // A stream that cannot be read any more has no more to say.
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        kept.extend_from_slice(&bytes[..count]);
        let surplus = kept.len().saturating_sub(MAX_OUTPUT);
        kept.drain(..surplus);
        dropped += surplus;
    }
    let text = String::from_utf8_lossy(&kept).into_owned();
    if dropped == 0 { text } else { format!("… {dropped} bytes before this are not shown …\n{text}") }
}
