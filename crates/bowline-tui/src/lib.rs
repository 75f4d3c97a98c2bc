//! `bowline chat`: a conversation with an agent in a full-screen terminal.

mod app;
mod command;
mod event;
mod front_end;
mod input;
mod panes;
mod resume_command;
mod runner;
mod terminal;
mod view;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bowline_protocol::schema::v1::AuthMethod;
use clap::Args;
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::app::App;
use crate::event::{ChatAction, ChatEvent};
use crate::front_end::Inbox;
use crate::input::MAX_INPUT;
use crate::panes::approval::EditableText;
use crate::runner::ActionRunner;
use crate::terminal::key_stream::KeyStream;
use crate::terminal::tty::{Tty, watch_for_hangup};
use crate::view::draw::Colours;
use bowline_client::common::console::write_stderr;
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;
use bowline_client::login::{LoginAnswer, LoginRequired};
use bowline_client::{AgentLauncher, ClientArguments};

/// The minimum interval between two frames.
const MIN_FRAME_INTERVAL: Duration = Duration::from_millis(33);

/// Drawing may take at most one part in this many of the time.
const DRAW_SHARE_DIVISOR: u32 = 3;

/// The maximum delay before typed input is visible, however long drawing takes.
const MAX_FRAME_DELAY: Duration = Duration::from_millis(150);

/// The number of lines that one notch of the wheel scrolls.
const WHEEL_LINES: isize = 3;

/// The interval of ticks while something is animated.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum size of a text edited before it is written, in bytes.
const MAX_EDITED_BYTES: usize = 64 << 20;

/// How a conversation is begun.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  bowline chat                          use Bowline's own agent in this directory
  bowline chat --agent 'gemini --acp'   use another agent that speaks ACP
  bowline chat --session last           continue the last session
  bowline chat --approve edits          change files without asking

Keys: Enter sends, Esc cancels, F1 shows all other keys, Ctrl-C twice quits.

Environment: NO_COLOR turns colours off; TERM must name a terminal with a movable cursor.

Exit status: 0 you quit, 1 the agent could not start, 2 wrong usage or no terminal, \
4 no such session, 130 ended by a signal.")]
pub struct ChatArguments {
    #[command(flatten)]
    client: ClientArguments,
}

/// Runs a conversation until the user quits.
pub async fn run(arguments: ChatArguments) -> Result<(), CliError> {
    if !Tty::is_available(std::env::var_os("TERM").as_deref()) {
        return Err(CliError::Usage(
            "chat needs a terminal that can move its cursor: start it in one, or use `bowline run`, also in scripts \
             and pipes"
                .to_owned(),
        ));
    }
    let directories = UserDirs::from_env()?;
    let mut client = arguments.client;
    let session = match run_chat(&client, &directories).await {
        Err(CliError::LoginRequired(login)) => {
            // The full screen is closed here, because the agent's own login program may need the terminal.
            let Some(method) = ask_login_method(&login).await? else {
                return Err(CliError::LoginRequired(login));
            };
            match &method {
                AuthMethod::Terminal(method) => login.run_in_terminal(method).await?,
                method => client.auth = Some(method.id().0.to_string()),
            }
            run_chat(&client, &directories).await?
        }
        result => result?,
    };
    if let Some(session) = session {
        // If the command cannot be built, the sessions can still be listed.
        let command = resume_command::resume_command(&client, &session);
        writeln!(std::io::stdout(), "To go on with this session: {command}").ok();
    }
    Ok(())
}

/// Opens the screen, runs the conversation, and returns the last open session if it can be resumed.
async fn run_chat(arguments: &ClientArguments, directories: &UserDirs) -> Result<Option<String>, CliError> {
    let inbox = Inbox::default();
    let limit = arguments.timeout;
    let launcher =
        AgentLauncher::open(arguments.clone(), directories, Arc::new(inbox.clone()), Vec::new()).await?;
    let mut app = App::new(
        launcher.agent.name.clone(),
        launcher.cwd().display().to_string(),
        abbreviate_home(launcher.cwd()),
    );
    app.turn_timeout = limit;
    let mut runner = ActionRunner::new(launcher, inbox.clone());
    let read_only = arguments.read_only;
    app.permissions = runner.permission_summary(read_only);
    app.is_own_agent = runner.is_own_agent();
    runner.start_agent();
    let tty = Tty::acquire().context("cannot use the terminal")?;
    let (started_at, colours, wants_editor) = (Instant::now(), detect_colours(), false);
    let chat = Chat { app, runner, inbox, tty, started_at, colours, read_only, wants_editor };
    chat.run().await
}

/// Asks in the plain terminal how to log in to the agent; returns `None` if the user declines.
async fn ask_login_method(login: &LoginRequired) -> Result<Option<AuthMethod>, CliError> {
    if login.named_method().is_some() || !login.has_methods() {
        return Ok(login.named_method());
    }
    write_stderr(&login.question_text());
    loop {
        write_stderr("Log in how? [a number, or n for not at all] ");
        let (sender, line) = oneshot::channel();
        // On its own thread, so that an interrupt need not wait for it.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = std::io::stdin().read_line(&mut line);
            sender.send(read.is_ok_and(|count| count > 0).then_some(line)).ok();
        });
        let line = tokio::select! {
            line = line => line.ok().flatten(),
            _ = tokio::signal::ctrl_c() => return Err(CliError::Interrupted),
        };
        let Some(line) = line else { return Ok(None) };
        match login.parse_answer(&line) {
            Some(LoginAnswer::Method(method)) => return Ok(Some(*method)),
            Some(LoginAnswer::Declined) => return Ok(None),
            None => {}
        }
    }
}

/// Returns how long drawing pauses after a frame that took `spent`, including draining the inbox before it.
fn frame_delay(spent: Duration) -> Duration {
    MIN_FRAME_INTERVAL.max(spent * (DRAW_SHARE_DIVISOR - 1)).min(MAX_FRAME_DELAY)
}

/// Returns whether a key is this letter with Ctrl.
fn is_ctrl_key(key: KeyEvent, letter: char) -> bool {
    let is_pressed = key.kind == KeyEventKind::Press;
    is_pressed && key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char(letter)
}

/// Returns whether to use colours, following <https://no-color.org>.
fn detect_colours() -> Colours {
    let is_disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_disabled { Colours::Off } else { Colours::On }
}

/// Abbreviates the home directory in a path to `~`.
fn abbreviate_home(directory: &std::path::Path) -> String {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    match home.and_then(|home| directory.strip_prefix(home).ok().map(ToOwned::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => directory.display().to_string(),
    }
}

/// A running conversation: the single owner of all its parts.
struct Chat {
    app: App,
    runner: ActionRunner,
    inbox: Inbox,
    tty: Tty,
    started_at: Instant,
    colours: Colours,
    read_only: bool,
    // Whether the editor is to be opened next.
    wants_editor: bool,
}

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoopControl {
    Continue,
    Quit,
    /// It ends because of a signal.
    Interrupted,
}

impl Chat {
    /// Runs the conversation to its end, and returns the last open session if it can be resumed.
    async fn run(mut self) -> Result<Option<String>, CliError> {
        let mut keys = KeyStream::default();
        let result = self.run_event_loop(&mut keys).await;
        // What is typed from now on is meant for others: a login question, the shell.
        keys.stop().await;
        let session = self.app.resumable_session().map(|session| session.0.to_string());
        // Restores the user's terminal while the agent shuts down.
        drop(self.tty);
        if let Some(error) = self.runner.shut_down().await {
            return Err(error);
        }
        match result.context("the terminal is gone")? {
            LoopControl::Interrupted => Err(CliError::Interrupted),
            LoopControl::Continue | LoopControl::Quit => Ok(session),
        }
    }

    async fn run_event_loop(&mut self, keys: &mut KeyStream) -> std::io::Result<LoopControl> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminal_gone = watch_for_hangup();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut suspend = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?;
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut next_frame_at: Option<Instant> = None;
        let mut needs_redraw = true;
        loop {
            let due = next_frame_at.filter(|due| *due > Instant::now());
            if needs_redraw && due.is_none() {
                // Events that arrived meanwhile are drawn with this frame. On a terminal so slow that a frame is always
                // due, they would otherwise never be drained.
                let frame_start = Instant::now();
                let control = self.drain_inbox();
                if control != LoopControl::Continue {
                    return Ok(control);
                }
                let (app, colours) = (&mut self.app, self.colours);
                self.tty.draw(|frame| crate::view::draw::draw(app, frame, colours))?;
                (next_frame_at, needs_redraw) =
                    (Some(Instant::now() + frame_delay(frame_start.elapsed())), false);
                tokio::task::yield_now().await;
                continue;
            }
            let frame = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            let control = tokio::select! {
                // Keys come first, so that a busy agent cannot starve the user.
                biased;
                key = keys.next() => match key {
                    Some(Ok(key)) => self.handle_input(key)?,
                    Some(Err(error)) => return Err(error),
                    None => LoopControl::Quit,
                },
                _ = &mut terminal_gone => LoopControl::Interrupted,
                _ = terminate.recv() => LoopControl::Interrupted,
                _ = hangup.recv() => LoopControl::Interrupted,
                _ = interrupt.recv() => LoopControl::Interrupted,
                _ = quit.recv() => LoopControl::Interrupted,
                _ = suspend.recv() => {
                    self.tty.suspend()?;
                    LoopControl::Continue
                }
                () = frame, if due.is_some() => continue,
                _ = ticks.tick(), if self.app.is_animated() => self.handle_event(ChatEvent::Tick),
                // Events are drained once per frame.
                () = self.inbox.wait_for_event(), if due.is_none() => self.drain_inbox(),
            };
            needs_redraw = true;
            if control != LoopControl::Continue {
                return Ok(control);
            }
            if std::mem::take(&mut self.wants_editor) {
                // The editor reads the keys until it exits.
                keys.stop().await;
                self.edit_text().await?;
                // An interrupt meant for the editor interrupts nothing else.
                while interrupt.recv().now_or_never().is_some() {}
            }
        }
    }

    /// Opens the editor for the text that an agent asks to write, or else for the prompt.
    async fn edit_text(&mut self) -> std::io::Result<()> {
        if let Some((id, EditableText { text, suffix })) = self.app.editable_text() {
            let edited = self
                .tty
                .run_released(crate::input::editor::edit_text(&text, &suffix, MAX_EDITED_BYTES))
                .await?;
            match edited {
                Ok(edited) => self.app.apply_edit(id, edited),
                Err(error) => self.app.show_flash(error),
            }
            return Ok(());
        }
        let text = self.app.input.text();
        let edited = self.tty.run_released(crate::input::editor::edit_text(&text, ".md", MAX_INPUT)).await?;
        match edited {
            Ok(edited) => self.app.input.set_text(edited.trim_end()),
            Err(error) => self.app.show_flash(error),
        }
        Ok(())
    }

    /// Handles all events in the inbox.
    fn drain_inbox(&mut self) -> LoopControl {
        let mut control = LoopControl::Continue;
        for event in self.inbox.take_events() {
            if self.handle_event(event) != LoopControl::Continue {
                control = LoopControl::Quit;
            }
        }
        control
    }

    fn handle_input(&mut self, input: Input) -> std::io::Result<LoopControl> {
        Ok(match input {
            Input::Key(key) if is_ctrl_key(key, 'z') && Tty::can_suspend() => {
                self.tty.suspend()?;
                LoopControl::Continue
            }
            Input::Key(key) if key.code == KeyCode::F(8) && key.kind == KeyEventKind::Press => {
                let text = match self.tty.toggle_mouse()? {
                    true => "the wheel scrolls; F8 lets the mouse select text",
                    false => "the mouse selects text; F8 lets the wheel scroll",
                };
                self.app.show_flash(text);
                LoopControl::Continue
            }
            Input::Key(key) if is_ctrl_key(key, 'l') => {
                self.tty.clear()?;
                LoopControl::Continue
            }
            Input::Key(key) => self.handle_event(ChatEvent::Key(key)),
            Input::Paste(text) => self.handle_event(ChatEvent::Paste(text)),
            Input::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollUp => self.handle_event(ChatEvent::MouseWheel(-WHEEL_LINES)),
                MouseEventKind::ScrollDown => self.handle_event(ChatEvent::MouseWheel(WHEEL_LINES)),
                _ => LoopControl::Continue,
            },
            // The next frame reads the current size.
            Input::Resize(..) | Input::FocusGained | Input::FocusLost => LoopControl::Continue,
        })
    }

    fn handle_event(&mut self, event: ChatEvent) -> LoopControl {
        // Rules change when the user answers a question, and in files.
        if matches!(
            event,
            ChatEvent::SessionOpened(_)
                | ChatEvent::TurnEnded(_)
                | ChatEvent::ConfigOptionsChanged(_)
                | ChatEvent::ModeChanged(_)
        ) {
            self.app.permissions = self.runner.permission_summary(self.read_only);
        }
        let actions = self.app.handle_event(event, self.started_at.elapsed());
        let mut control = LoopControl::Continue;
        for action in actions {
            match action {
                ChatAction::SendPrompt(text) => self.runner.send_prompt(text),
                ChatAction::CancelTurn => self.runner.cancel_turn(),
                ChatAction::EndAgent => self.runner.end_agent(),
                ChatAction::AbandonOpening => self.runner.abandon_opening(),
                ChatAction::AnswerPermission(id, reply) => self.inbox.answer_permission(id, reply),
                ChatAction::AnswerElicitation(id, action) => self.inbox.answer_elicitation(id, action),
                ChatAction::ListChanges => self.runner.list_changes(),
                ChatAction::Undo(selection) => self.runner.undo_or_redo(selection, false),
                ChatAction::UndoTurns(target) => self.runner.undo_turns(target),
                ChatAction::Redo(selection) => self.runner.undo_or_redo(selection, true),
                ChatAction::ListSessions => self.runner.list_sessions(),
                ChatAction::OpenSession(session) => self.runner.open_session(session),
                ChatAction::ListFiles => self.runner.list_files(),
                ChatAction::SetOption(id, value) => self.runner.set_option(id, value),
                ChatAction::SetMode(mode) => self.runner.set_mode(mode),
                ChatAction::Restart(target) => self.runner.restart_agent(target),
                ChatAction::RunShell(line) => self.runner.run_shell(line),
                ChatAction::EndShell => self.runner.end_shell(),
                ChatAction::OpenEditor => self.wants_editor = true,
                ChatAction::RingBell => self.tty.bell(),
                ChatAction::Quit => control = LoopControl::Quit,
            }
        }
        control
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_leaves_time_for_others() {
        let pause = |millis| frame_delay(Duration::from_millis(millis)).as_millis();
        assert_eq!([0, 1, 16, 17, 50, 75, 1000].map(pause), [33, 33, 33, 34, 100, 150, 150]);
    }
}
