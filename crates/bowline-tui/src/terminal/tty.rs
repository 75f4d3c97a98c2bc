//! The user's terminal: taken over, and always restored.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Stdout, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags,
    PushKeyboardEnhancementFlags,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags};
use tokio::sync::oneshot;

/// The terminal. Dropping it restores the previous state.
pub(crate) struct Tty {
    screen: Terminal<CrosstermBackend<Stdout>>,
    // Whether the terminal reports the wheel. If so, it selects text only while Shift is held.
    is_mouse_enabled: bool,
}

/// Resolves when the terminal on stdin is gone. The signal for that reaches only the program that the terminal started.
pub(crate) fn watch_for_hangup() -> oneshot::Receiver<()> {
    let (sender, gone) = oneshot::channel();
    // The thread ends with the process, or with the terminal.
    std::thread::spawn(move || {
        let stdin = io::stdin();
        // A hangup is reported although no event is requested.
        let mut terminal = [PollFd::new(&stdin, PollFlags::empty())];
        while rustix::event::poll(&mut terminal, None) == Err(rustix::io::Errno::INTR) {}
        sender.send(()).ok();
    });
    gone
}

/// Whether the terminal is taken over: a panic may come before or after that.
static TERMINAL_TAKEN: AtomicBool = AtomicBool::new(false);

impl Tty {
    /// Returns whether stdin and stdout are a terminal that can move its cursor.
    pub(crate) fn is_available(kind: Option<&OsStr>) -> bool {
        let is_able = kind.is_none_or(|kind| !kind.is_empty() && kind != "dumb");
        is_able && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Takes the terminal over.
    ///
    /// # Errors
    /// Returns why it cannot be used.
    pub(crate) fn acquire() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        // A panic message must be readable on the original screen.
        HOOK.call_once(|| {
            let previous_hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore_terminal();
                previous_hook(info);
            }));
        });
        Ok(Self { screen: enter_screen(true)?, is_mouse_enabled: true })
    }

    /// Returns whether a job-control shell started the program: otherwise nothing would continue it after a stop.
    pub(crate) fn can_suspend() -> bool {
        let session = rustix::process::getsid(None);
        session.is_ok_and(|session| session != rustix::process::getpgrp())
    }

    /// Restores the terminal and stops the program until it is continued.
    ///
    /// # Errors
    /// Returns why the terminal cannot be used again.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore_terminal();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        self.screen = enter_screen(self.is_mouse_enabled)?;
        Ok(())
    }

    /// Restores the terminal while `work` uses it.
    ///
    /// # Errors
    /// Returns why the terminal cannot be used again.
    pub(crate) async fn run_released<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        restore_terminal();
        let output = work.await;
        self.screen = enter_screen(self.is_mouse_enabled)?;
        Ok(output)
    }

    /// Toggles between reporting the wheel and leaving the mouse to the terminal, and returns whether it is reported.
    ///
    /// # Errors
    /// Returns why the terminal cannot be written to.
    pub(crate) fn toggle_mouse(&mut self) -> io::Result<bool> {
        self.is_mouse_enabled = !self.is_mouse_enabled;
        write_stdout(if self.is_mouse_enabled { ENABLE_MOUSE } else { DISABLE_MOUSE })?;
        Ok(self.is_mouse_enabled)
    }

    /// Clears the screen, so that the next frame redraws everything.
    ///
    /// # Errors
    /// Returns why the terminal cannot be written to.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        // The backend's own method queries the cursor position, which not every terminal answers.
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.screen = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Draws a whole screen, as one synchronised update where the terminal supports it.
    ///
    /// # Errors
    /// Returns why the terminal cannot be written to.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        self.screen.draw(draw)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Rings the bell.
    pub(crate) fn bell(&mut self) {
        // A bell that cannot be rung is not worth an error.
        io::stdout().write_all(b"\x07").and_then(|()| io::stdout().flush()).ok();
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Stops the wheel from being sent as arrow keys, which browse the prompt history. The terminal's setting is saved.
const DISABLE_WHEEL_KEYS: &[u8] = b"\x1b[?1007s\x1b[?1007l";

/// Restores the wheel: to the default of most terminals, or to the saved setting where that is supported.
const RESTORE_WHEEL_KEYS: &[u8] = b"\x1b[?1007h\x1b[?1007r";

/// Has the terminal report buttons, and so the wheel, but not every movement.
const ENABLE_MOUSE: &[u8] = b"\x1b[?1000h\x1b[?1006h";

const DISABLE_MOUSE: &[u8] = b"\x1b[?1006l\x1b[?1000l";

fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    io::stdout().write_all(bytes)?;
    io::stdout().flush()
}

fn enter_screen(mouse: bool) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    TERMINAL_TAKEN.store(true, Ordering::Relaxed);
    let screen = enable_raw_mode().and_then(|()| {
        // The second flag distinguishes a held key from repeated presses.
        let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES
            | KeyboardEnhancementFlags::REPORT_EVENT_TYPES;
        execute!(
            io::stdout(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            // Terminals that do not know this ignore it; the others report Shift+Enter.
            PushKeyboardEnhancementFlags(flags),
            cursor::Hide
        )?;
        write_stdout(DISABLE_WHEEL_KEYS)?;
        write_stdout(if mouse { ENABLE_MOUSE } else { b"" })?;
        Terminal::new(CrosstermBackend::new(io::stdout()))
    });
    if screen.is_err() {
        restore_terminal();
    }
    screen
}

/// Restores the terminal, once.
fn restore_terminal() {
    if TERMINAL_TAKEN.swap(false, Ordering::Relaxed) {
        // A failure can no longer be reported.
        write_stdout(DISABLE_MOUSE).ok();
        write_stdout(RESTORE_WHEEL_KEYS).ok();
        execute!(
            io::stdout(),
            EndSynchronizedUpdate,
            PopKeyboardEnhancementFlags,
            DisableBracketedPaste,
            LeaveAlternateScreen,
            cursor::Show
        )
        .ok();
        disable_raw_mode().ok();
    }
}
