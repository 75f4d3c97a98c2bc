//! Replay of one side of a recorded wire: to a client on stdin and stdout, or to an agent that is started for it.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use bowline_protocol::trace::{ReplayAction, ReplayPlayer};
use bowline_text::display::quote;

use super::{ReplayArguments, ReplayRole, file};
use bowline_client::common::console::print_note;
use bowline_client::error::CliError;

/// The maximum length of a line that is read, in bytes. A longer one is read in pieces, which are not messages.
const MAX_LINE: u64 = 256 << 20;
/// The maximum number of queued lines.
const MAX_QUEUED_LINES: usize = 64;
/// The grace period for an agent to exit after its input is closed.
const EXIT_GRACE: Duration = Duration::from_secs(5);

/// Replays the trace.
pub(super) fn run(arguments: &ReplayArguments) -> Result<ExitCode, CliError> {
    let is_client = arguments.role == ReplayRole::Client;
    let is_for_client = !arguments.command.is_empty() || arguments.cwd.is_some();
    if !is_client && is_for_client {
        return Err(CliError::Usage(
            "an agent is started by its client: --cwd and a command go with --as client".to_owned(),
        ));
    }
    let cwd = arguments.cwd.as_ref().map(|cwd| {
        cwd.canonicalize().map_err(|error| {
            CliError::Usage(format!(
                "cannot use the directory {}: {error}",
                quote(&cwd.display().to_string())
            ))
        })
    });
    let cwd = cwd.transpose()?.map(|cwd| cwd.to_string_lossy().into_owned());
    let mut entries = Vec::new();
    let summary = file::read_trace(&arguments.file, |record| {
        entries.extend(record);
        Ok(())
    })?;
    if summary.gap.messages > 0 {
        print_note(&format!("the trace is not whole: {} of its messages are missing", summary.gap.messages));
    }
    let mut player = ReplayPlayer::new(&entries, arguments.role.side(), cwd.as_deref());
    drop(entries);
    if player.message_count() == 0 {
        return Err(CliError::Failed(anyhow::anyhow!(
            "the trace has nothing that the {} said",
            arguments.role.side()
        )));
    }
    let timeout = is_client.then(|| Duration::from_secs(arguments.timeout));
    let failure = match arguments.command.as_slice() {
        [] => ReplayConnection::from_stdio().play(&mut player, is_client, timeout),
        [program, args @ ..] => {
            let mut child = Command::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| CliError::Usage(format!("cannot start {}: {error}", quote(program))))?;
            let connection = ReplayConnection::from_child(&mut child).context("the agent has no pipes")?;
            let failure = connection.play(&mut player, is_client, timeout);
            // It may have exited already; otherwise its grace period is over.
            child.kill().ok();
            child.wait().ok();
            failure
        }
    };
    let mut diverged = player.has_diverged();
    for message in failure.into_iter().chain(player.describe_remaining()) {
        print_note(&message);
        diverged = true;
    }
    Ok(if diverged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The two directions of a connection.
struct ReplayConnection {
    // Disconnected once the other side has closed it.
    incoming: Receiver<Vec<u8>>,
    out: Box<dyn Write>,
}

impl ReplayConnection {
    fn from_stdio() -> Self {
        Self { incoming: spawn_reader(io::stdin()), out: Box::new(io::stdout()) }
    }

    fn from_child(child: &mut Child) -> Option<Self> {
        let (stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
        Some(Self { incoming: spawn_reader(stdout), out: Box::new(stdin) })
    }

    /// Replays until the other side disconnects or nothing is left to do. Returns why it ended early.
    fn play(
        mut self,
        player: &mut ReplayPlayer,
        is_client: bool,
        timeout: Option<Duration>,
    ) -> Option<String> {
        let mut actions = player.start();
        loop {
            for action in actions {
                match action {
                    ReplayAction::Diverged(reason) => print_note(&format!("not as recorded: {reason}")),
                    ReplayAction::Send(mut line) => {
                        line.push(b'\n');
                        // A peer that is gone also closes the other direction, which is detected there.
                        self.out.write_all(&line).and_then(|()| self.out.flush()).unwrap_or_default();
                    }
                }
            }
            if is_client && player.is_finished() {
                break;
            }
            match receive(&self.incoming, timeout) {
                Ok(line) => actions = player.receive(&line),
                Err(RecvTimeoutError::Disconnected) => {
                    return (is_client).then(|| "the agent has ended".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = timeout.unwrap_or_default().as_secs();
                    return Some(format!("nothing came from the agent for {seconds} s"));
                }
            }
        }
        drop(self.out);
        // The recording ends here, so the remaining output is discarded.
        while receive(&self.incoming, Some(EXIT_GRACE)).is_ok() {}
        None
    }
}

fn receive(receiver: &Receiver<Vec<u8>>, timeout: Option<Duration>) -> Result<Vec<u8>, RecvTimeoutError> {
    match timeout {
        Some(timeout) => receiver.recv_timeout(timeout),
        None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Reads lines on a thread, which ends with the program at the latest.
fn spawn_reader(source: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(MAX_QUEUED_LINES);
    std::thread::spawn(move || read_lines(source, &sender));
    receiver
}

fn read_lines(reader: impl Read, sender: &SyncSender<Vec<u8>>) {
    let mut reader = BufReader::with_capacity(1 << 16, reader);
    loop {
        let mut line = Vec::new();
        // A read error counts as the end of the stream.
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).unwrap_or(0);
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if read == 0 || sender.send(line).is_err() {
            return;
        }
    }
}
