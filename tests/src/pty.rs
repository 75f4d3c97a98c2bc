//! A program in a pseudo-terminal, and the screen that a user would see.

use std::ffi::OsString;
use std::path::Path;

use avt::{Line, Terminal};
use pty_process::{Command, OwnedReadPty, OwnedWritePty, Size};
use test_support::TEST_TIMEOUT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

/// A program that runs in a terminal.
pub struct PtySession {
    child: Child,
    reader: OwnedReadPty,
    writer: OwnedWritePty,
    terminal: Terminal,
    /// The start of an incomplete UTF-8 character.
    partial: Vec<u8>,
    /// All output, to find sequences that leave no trace on the screen.
    pub raw_output: Vec<u8>,
    has_exited: bool,
}

impl PtySession {
    /// Starts the program in a terminal of 80 columns and 24 rows.
    pub fn start(command: Command) -> Self {
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let child = command.spawn(pts).unwrap();
        let (reader, writer) = pty.into_split();
        Self {
            child,
            reader,
            writer,
            terminal: Terminal::new(80, 24).unwrap(),
            partial: Vec::new(),
            raw_output: Vec::new(),
            has_exited: false,
        }
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.writer.resize(Size::new(rows, columns)).unwrap();
        self.terminal.resize(usize::from(columns), usize::from(rows));
    }

    /// Types text, or keys as a terminal sends them.
    pub async fn send(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).await.unwrap();
    }

    /// Pastes text as a terminal does: whole, however many lines it has.
    pub async fn paste(&mut self, text: &str) {
        self.send(&format!("\u{1b}[200~{text}\u{1b}[201~")).await;
    }

    /// Writes to the screen past the program, as other programs do.
    pub fn draw_over(&mut self, text: &str) {
        self.terminal.feed(text);
    }

    /// Returns the lines of the screen, with their styles.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.terminal.screen().visible_lines()
    }

    /// Returns the screen, without trailing spaces and empty lines at the end.
    pub fn text(&self) -> String {
        let lines = self.lines().map(|line| line.text().trim_end().to_owned() + "\n");
        lines.collect::<String>().trim_end().to_owned() + "\n"
    }

    /// Waits until the screen meets a condition, and returns it.
    pub async fn wait_until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let waited = tokio::time::timeout(TEST_TIMEOUT, async {
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
            Err(_) => panic!("there never was {what}:\n{}\n{}", self.text(), self.describe_threads()),
        }
    }

    /// Returns whether the program is drawing: it marks the beginning and the end of a frame.
    fn is_drawing(&self) -> bool {
        let last = |end: u8| {
            self.raw_output.windows(8).rposition(|bytes| bytes[..7] == *b"\x1b[?2026" && bytes[7] == end)
        };
        last(b'h') > last(b'l')
    }

    /// Waits until a text is on the screen, and returns the screen.
    pub async fn wait_for_text(&mut self, text: &str) -> String {
        self.wait_until(&format!("{text:?}"), |screen| screen.contains(text)).await
    }

    /// Waits until a text is no longer on the screen.
    pub async fn wait_until_gone(&mut self, text: &str) -> String {
        self.wait_until(&format!("a screen without {text:?}"), |screen| !screen.contains(text)).await
    }

    /// Waits until the program has ended, and returns its exit code.
    pub async fn wait_for_exit(&mut self) -> Option<i32> {
        let waited = tokio::time::timeout(TEST_TIMEOUT, async {
            while self.read().await {}
            self.child.wait().await.unwrap()
        });
        match waited.await {
            Ok(status) => status.code(),
            Err(_) => panic!("the program did not end:\n{}\n{}", self.text(), self.describe_threads()),
        }
    }

    /// Closes the terminal, as a connection that breaks does, and returns the program.
    pub fn hang_up(self) -> Child {
        self.child
    }

    /// Returns the program's process id.
    pub fn process_id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Describes what the program's threads wait for, to explain a hang.
    fn describe_threads(&self) -> String {
        let Some(process) = self.child.id() else { return "it has ended".to_owned() };
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return String::new() };
        let describe = |task: std::io::Result<std::fs::DirEntry>| {
            let directory = task.ok()?.path();
            let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
            Some(format!("{} {} {}", read("comm").trim(), read("wchan").trim(), read("syscall").trim()))
        };
        tasks.filter_map(describe).collect::<Vec<_>>().join("\n")
    }

    /// Reads the program's output, and returns whether there can be more.
    async fn read(&mut self) -> bool {
        if self.has_exited {
            return false;
        }
        let mut bytes = vec![0; 64 << 10];
        // Reading fails once all processes have closed the terminal.
        let count = self.reader.read(&mut bytes).await.unwrap_or(0);
        if count == 0 {
            self.has_exited = true;
            return false;
        }
        self.raw_output.extend_from_slice(&bytes[..count]);
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

/// Returns a command with only a home, a search path and a kind of terminal in its environment.
pub fn terminal_command(program: &Path, directory: &Path, home: &Path) -> Command {
    Command::new(program)
        .current_dir(directory)
        .env_clear()
        .env("HOME", home)
        .env("PATH", search_path())
        .env("TERM", "xterm-256color")
        .kill_on_drop(true)
}

/// The search path for programs: that of this process.
pub fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}
