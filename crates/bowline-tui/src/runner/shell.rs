//! Shell commands that the user runs with `!` beside the conversation. They are the user's own: no rule applies, and
//! their changes are not attributed to an agent.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::ActionRunner;
use crate::event::ChatEvent;

/// The maximum number of bytes shown of a command's output: its end.
const MAX_OUTPUT: usize = 16 << 10;

/// Kills a command and its process group on drop, unless it has ended.
struct ProcessGroupGuard(Option<Pid>);

impl Drop for ProcessGroupGuard {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group may already be gone.
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

impl ActionRunner {
    /// Runs a shell command of the user, replacing the running one.
    pub(crate) fn run_shell(&mut self, line: String) {
        self.end_shell();
        let directory = self.launcher.cwd().to_owned();
        let inbox = self.inbox.clone();
        let task = async move { inbox.push(ChatEvent::ShellEnded(run_shell_line(&line, &directory).await)) };
        self.shell_task = Some(self.tasks.spawn(task));
    }

    /// Ends the user's running shell command, if any.
    pub(crate) fn end_shell(&mut self) {
        if let Some(task) = self.shell_task.take() {
            task.abort();
        }
    }
}

/// Runs a shell command line in a directory, and returns its output and how it ended. Dropping the future kills the
/// command.
async fn run_shell_line(line: &str, directory: &Path) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).current_dir(directory).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("the command cannot be started: {error}"))?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut group = ProcessGroupGuard(id);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (output, errors, status) = tokio::join!(read_tail(stdout), read_tail(stderr), child.wait());
    group.0 = None;
    let status = status.map_err(|error| error.to_string())?;
    let mut text = output + &errors;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let status_line = match status.code() {
        Some(code) => format!("ended: {code}"),
        None => format!("ended: {status}"),
    };
    Ok(text + &status_line)
}

/// Reads to the end, and returns the tail as text.
async fn read_tail(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let (mut kept, mut bytes, mut dropped) = (Vec::new(), vec![0; 8 << 10], 0);
    // A read error counts as the end of the stream.
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        kept.extend_from_slice(&bytes[..count]);
        let surplus = kept.len().saturating_sub(MAX_OUTPUT);
        kept.drain(..surplus);
        dropped += surplus;
    }
    let text = String::from_utf8_lossy(&kept).into_owned();
    if dropped == 0 { text } else { format!("… {dropped} bytes before this are not shown …\n{text}") }
}
