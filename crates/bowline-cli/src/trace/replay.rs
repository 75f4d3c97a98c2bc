//! Playing a side of a recorded wire: to a client on stdin and stdout, or to an agent that is started for it.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use bowline_state::failure::quote;
use bowline_state::trace::{Action, Player};

use super::{ReplayArguments, Role, file};
use crate::ending::Ending;
use crate::records::showing::note;

/// The longest line that is heard. A longer one is heard in pieces, which are no messages.
const MAX_LINE: u64 = 256 << 20;
/// So many lines wait to be heard.
const MAX_WAITING: usize = 64;
/// How long an agent may take to end once its input is closed.
const GRACE: Duration = Duration::from_secs(5);

/// Plays it.
pub(super) fn run(arguments: &ReplayArguments) -> Result<ExitCode, Ending> {
    let is_client = arguments.role == Role::Client;
    let is_for_client = !arguments.command.is_empty() || arguments.cwd.is_some();
    if !is_client && is_for_client {
        return Err(Ending::Usage(
            "an agent is started by its client: --cwd and a command go with --as client".to_owned(),
        ));
    }
    let cwd = arguments.cwd.as_ref().map(|cwd| {
        cwd.canonicalize().map_err(|error| {
            Ending::Usage(format!("cannot use the directory {}: {error}", quote(&cwd.display().to_string())))
        })
    });
    let cwd = cwd.transpose()?.map(|cwd| cwd.to_string_lossy().into_owned());
    let mut entries = Vec::new();
    let read = file::read(&arguments.file, |read| {
        entries.extend(read);
        Ok(())
    })?;
    if read.lost.messages > 0 {
        note(&format!("the trace is not whole: {} of its messages are missing", read.lost.messages));
    }
    let mut player = Player::new(&entries, arguments.role.side(), cwd.as_deref());
    drop(entries);
    if player.messages() == 0 {
        return Err(Ending::Failed(anyhow::anyhow!(
            "the trace has nothing that the {} said",
            arguments.role.side()
        )));
    }
    let patience = is_client.then(|| Duration::from_secs(arguments.timeout));
    let ended = match arguments.command.as_slice() {
        [] => Wire::of_this_program().play(&mut player, is_client, patience),
        [program, words @ ..] => {
            let mut child = Command::new(program)
                .args(words)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| Ending::Usage(format!("cannot start {}: {error}", quote(program))))?;
            let wire = Wire::of_child(&mut child).context("the agent has no pipes")?;
            let ended = wire.play(&mut player, is_client, patience);
            // It may have ended by itself; one that did not within its time is ended.
            child.kill().ok();
            child.wait().ok();
            ended
        }
    };
    let mut diverged = player.has_diverged();
    for why in ended.into_iter().chain(player.left()) {
        note(&why);
        diverged = true;
    }
    Ok(if diverged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The two directions of a connection.
struct Wire {
    // `None` once the other side has closed it.
    heard: Receiver<Option<Vec<u8>>>,
    out: Box<dyn Write>,
}

impl Wire {
    fn of_this_program() -> Self {
        Self { heard: listen(io::stdin()), out: Box::new(io::stdout()) }
    }

    fn of_child(child: &mut Child) -> Option<Self> {
        let (stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
        Some(Self { heard: listen(stdout), out: Box::new(stdin) })
    }

    /// Plays until the other side is gone, or there is nothing more to do. Returns why it ended before that.
    fn play(mut self, player: &mut Player, ends_itself: bool, patience: Option<Duration>) -> Option<String> {
        let mut actions = player.begin();
        loop {
            for action in actions {
                match action {
                    Action::Diverged(why) => note(&format!("not as recorded: {why}")),
                    Action::Send(mut line) => {
                        line.push(b'\n');
                        // Whoever is gone says so by closing the other direction, too.
                        self.out.write_all(&line).and_then(|()| self.out.flush()).unwrap_or_default();
                    }
                }
            }
            if ends_itself && player.is_over() {
                break;
            }
            match wait(&self.heard, patience) {
                Ok(Some(line)) => actions = player.hear(&line),
                Ok(None) | Err(RecvTimeoutError::Disconnected) => {
                    return (ends_itself).then(|| "the agent has ended".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = patience.unwrap_or_default().as_secs();
                    return Some(format!("nothing came from the agent for {seconds} s"));
                }
            }
        }
        drop(self.out);
        // What it still says was not waited for then either.
        while let Ok(Some(_)) = wait(&self.heard, Some(GRACE)) {}
        None
    }
}

fn wait(
    heard: &Receiver<Option<Vec<u8>>>,
    patience: Option<Duration>,
) -> Result<Option<Vec<u8>>, RecvTimeoutError> {
    match patience {
        Some(patience) => heard.recv_timeout(patience),
        None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Hears lines on a thread, which ends with the program at the latest.
fn listen(from: impl Read + Send + 'static) -> Receiver<Option<Vec<u8>>> {
    let (tell, heard) = sync_channel(MAX_WAITING);
    std::thread::spawn(move || hear(from, &tell));
    heard
}

fn hear(from: impl Read, tell: &SyncSender<Option<Vec<u8>>>) {
    let mut from = BufReader::with_capacity(1 << 16, from);
    loop {
        let mut line = Vec::new();
        // What cannot be read is at its end.
        let read = from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).unwrap_or(0);
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if tell.send((read > 0).then_some(line)).is_err() || read == 0 {
            return;
        }
    }
}
