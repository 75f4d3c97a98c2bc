//! The terminal that the person looks at: taken over, and always given back.

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

/// The terminal. Dropping it gives it back as it was.
pub(crate) struct Tty {
    screen: Terminal<CrosstermBackend<Stdout>>,
    // Whether the terminal tells of the wheel. Then it selects text only while Shift is held.
    mouse: bool,
}

/// Whether the terminal is ours: a panic may come before or after that.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Tty {
    /// Says whether there is a terminal to write to and to read from, of a kind that can move its cursor.
    pub(crate) fn is_there(kind: Option<&OsStr>) -> bool {
        let is_able = kind.is_none_or(|kind| !kind.is_empty() && kind != "dumb");
        is_able && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Takes the terminal over.
    ///
    /// # Errors
    /// Returns why it cannot be used.
    pub(crate) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        // What a panic says is to be read on the screen that was there before.
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        Ok(Self { screen: take_over(true)?, mouse: true })
    }

    /// Says whether a shell with jobs started the program: nobody else would have it go on once it is stopped.
    pub(crate) fn can_stop() -> bool {
        let session = rustix::process::getsid(None);
        session.is_ok_and(|session| session != rustix::process::getpgrp())
    }

    /// Gives the terminal back and stops the program, until somebody has it go on.
    ///
    /// # Errors
    /// Returns why the terminal cannot be used again.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        self.screen = take_over(self.mouse)?;
        Ok(())
    }

    /// Gives the terminal back while something else is done on it.
    ///
    /// # Errors
    /// Returns why the terminal cannot be used again.
    pub(crate) async fn lend<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        give_back();
        let done = work.await;
        self.screen = take_over(self.mouse)?;
        Ok(done)
    }

    /// Has the terminal tell of the wheel, or leaves the mouse to it; and says which.
    ///
    /// # Errors
    /// Returns why the terminal cannot be written to.
    pub(crate) fn toggle_mouse(&mut self) -> io::Result<bool> {
        self.mouse = !self.mouse;
        write_out(if self.mouse { MOUSE } else { NO_MOUSE })?;
        Ok(self.mouse)
    }

    /// Has everything drawn anew with the next drawing, whatever is on the screen.
    ///
    /// # Errors
    /// Returns why the terminal cannot be written to.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        // Not by the screen's own means: they ask where the cursor is, and not every terminal says so.
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.screen = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Draws a whole screen. A terminal that can shows it at once, and never half of it.
    ///
    /// # Errors
    /// Returns why the terminal cannot be written to.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        self.screen.draw(draw)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Makes a sound.
    pub(crate) fn bell(&mut self) {
        // Nobody misses a sound that cannot be made.
        io::stdout().write_all(b"\x07").and_then(|()| io::stdout().flush()).ok();
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        give_back();
    }
}

/// Keeps the wheel from being sent as arrow keys, which mean what was sent before: what the terminal has is put aside.
const NO_WHEEL: &[u8] = b"\x1b[?1007s\x1b[?1007l";

/// Has the wheel do what it did: what most terminals have, or what was put aside where they can.
const WHEEL: &[u8] = b"\x1b[?1007h\x1b[?1007r";

/// Has the terminal tell of buttons, and so of the wheel, but not of every movement.
const MOUSE: &[u8] = b"\x1b[?1000h\x1b[?1006h";

const NO_MOUSE: &[u8] = b"\x1b[?1006l\x1b[?1000l";

fn write_out(bytes: &[u8]) -> io::Result<()> {
    io::stdout().write_all(bytes)?;
    io::stdout().flush()
}

fn take_over(mouse: bool) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    TAKEN.store(true, Ordering::Relaxed);
    let taken = enable_raw_mode().and_then(|()| {
        // With the second a terminal tells a key that is held from one that is pressed again and again.
        let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES
            | KeyboardEnhancementFlags::REPORT_EVENT_TYPES;
        execute!(
            io::stdout(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            // Terminals that do not know this ignore it; those that do can tell Shift+Enter.
            PushKeyboardEnhancementFlags(flags),
            cursor::Hide
        )?;
        write_out(NO_WHEEL)?;
        write_out(if mouse { MOUSE } else { b"" })?;
        Terminal::new(CrosstermBackend::new(io::stdout()))
    });
    if taken.is_err() {
        give_back();
    }
    taken
}

/// Gives the terminal back, once.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // There is nobody left to tell of a failure.
        write_out(NO_MOUSE).ok();
        write_out(WHEEL).ok();
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
