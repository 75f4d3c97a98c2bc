//! The real program in a real pseudo-terminal, and the screen that a person would see.

use std::collections::BTreeSet;

use avt::Terminal;
use pty_process::{Command, OwnedReadPty, OwnedWritePty, Size};
use test_support::PATIENCE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use crate::program::{Scene, bowline, search_path};

/// A program that runs in a terminal.
pub(crate) struct Screen {
    child: Child,
    reader: OwnedReadPty,
    writer: OwnedWritePty,
    terminal: Terminal,
    /// The start of a character whose rest has not come.
    partial: Vec<u8>,
    /// All that was written, to look for what leaves no trace on the screen.
    pub(crate) written: Vec<u8>,
    ended: bool,
}

impl Screen {
    /// Starts the program in a terminal of 80 columns and 24 rows.
    pub(crate) fn start(scene: &Scene, arguments: &[&str]) -> Self {
        Self::start_with(scene, arguments, &[])
    }

    /// Starts it with variables in its environment.
    pub(crate) fn start_with(scene: &Scene, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let command = Command::new(bowline())
            .args(arguments)
            .current_dir(scene.project())
            .env_clear()
            .env("HOME", scene.home())
            .env("PATH", search_path())
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            .kill_on_drop(true);
        let child = command.spawn(pts).unwrap();
        let (reader, writer) = pty.into_split();
        Self {
            child,
            reader,
            writer,
            terminal: Terminal::new(80, 24).unwrap(),
            partial: Vec::new(),
            written: Vec::new(),
            ended: false,
        }
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.writer.resize(Size::new(rows, columns)).unwrap();
        self.terminal.resize(usize::from(columns), usize::from(rows));
    }

    /// Types text, or keys as a terminal sends them.
    pub(crate) async fn send(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).await.unwrap();
    }

    /// Writes to the screen past the program, as others do.
    pub(crate) fn scribble(&mut self, text: &str) {
        self.terminal.feed(text);
    }

    /// Returns what is on the screen, without blanks at the ends of lines and empty lines at the end.
    pub(crate) fn text(&self) -> String {
        let lines =
            self.terminal.screen().visible_lines().map(|line| line.text().trim_end().to_owned() + "\n");
        lines.collect::<String>().trim_end().to_owned() + "\n"
    }

    /// Waits until the screen is as it should be, and returns it.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.is_drawing() || !is_so(&self.text()) {
                if !self.read().await {
                    return false;
                }
            }
            true
        });
        match waited.await {
            Ok(true) => self.text(),
            Ok(false) => panic!("the program ended before there was {what}:\n{}", self.text()),
            Err(_) => panic!("there never was {what}:\n{}", self.text()),
        }
    }

    /// Says whether the program is in the middle of drawing: it tells when it begins and when it is done.
    fn is_drawing(&self) -> bool {
        let last = |end: u8| {
            self.written.windows(8).rposition(|bytes| bytes[..7] == *b"\x1b[?2026" && bytes[7] == end)
        };
        last(b'h') > last(b'l')
    }

    /// Waits until a text is on the screen, and returns the screen.
    pub(crate) async fn shows(&mut self, text: &str) -> String {
        self.until(&format!("{text:?}"), |screen| screen.contains(text)).await
    }

    /// Waits until a text is not on the screen any more.
    pub(crate) async fn hides(&mut self, text: &str) -> String {
        self.until(&format!("a screen without {text:?}"), |screen| !screen.contains(text)).await
    }

    /// Waits until the program has ended, and returns the number that it ended with.
    pub(crate) async fn end(&mut self) -> Option<i32> {
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.read().await {}
            self.child.wait().await.unwrap()
        });
        match waited.await {
            Ok(status) => status.code(),
            Err(_) => panic!("the program did not end:\n{}", self.text()),
        }
    }

    /// Returns the id of the program's process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Reads what the program wrote, and says whether there can be more.
    async fn read(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let mut bytes = vec![0; 64 << 10];
        // When nobody has the terminal open any more, reading fails.
        let count = self.reader.read(&mut bytes).await.unwrap_or(0);
        if count == 0 {
            self.ended = true;
            return false;
        }
        self.written.extend_from_slice(&bytes[..count]);
        self.partial.extend_from_slice(&bytes[..count]);
        let valid = match std::str::from_utf8(&self.partial) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.partial.split_off(valid);
        let text = String::from_utf8(std::mem::replace(&mut self.partial, rest)).unwrap();
        self.terminal.feed(text.as_str());
        true
    }
}

/// Returns the processes below one, by their ids.
pub(crate) fn below(process: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![process];
    while let Some(parent) = open.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            open.extend(
                children.split_whitespace().filter_map(|id| id.parse().ok()).filter(|id| found.insert(*id)),
            );
        }
    }
    found
}

/// Returns Bowline's own agent below a process: its supervisors are there as well.
pub(crate) fn agent_below(process: u32) -> Option<u32> {
    below(process).into_iter().find(|id| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"agent")
    })
}

/// Says whether a process runs. One that has ended and nobody asked about does not.
pub(crate) fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

/// Waits until a process is stopped.
pub(crate) async fn until_stopped(process: u32) {
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('T'))
    };
    let stopped = async {
        while !is_stopped() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, stopped).await.expect("the process is never stopped");
}
