//! `bowline chat`: a conversation with an agent in a full-screen terminal.

mod app;
mod approval;
mod changes;
mod command;
mod completion;
mod conversation;
mod diff;
mod draw;
mod editor;
mod entry;
mod event;
mod form;
mod front_end;
mod going_on;
mod input;
mod live;
mod markdown;
mod output;
mod parts;
mod picker;
mod runner;
mod tty;
mod wrap;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bowline_state::schema::v1::AuthMethod;
use clap::Args;
use crossterm::event::{
    Event as Input, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind,
};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::client::login::{LoginAnswer, LoginRequired};
use crate::client::{ClientArguments, Launch};
use crate::ending::Ending;
use crate::places::Places;
use crate::records::showing::write_stderr;
use app::App;
use approval::EditableText;
use draw::Colours;
use event::{Action, Event};
use front_end::Inbox;
use input::MAX_INPUT;
use runner::Runner;
use tty::Tty;

/// The screen is drawn at most every so often, however much happens.
const FRAME: Duration = Duration::from_millis(33);

/// Of the time, drawing may take one part of so many.
const SHARE: u32 = 3;

/// Who types does not wait longer than this to see it, whatever drawing takes.
const LONGEST_PAUSE: Duration = Duration::from_millis(150);

/// So many lines each notch of the wheel scrolls.
const WHEEL_LINES: isize = 3;

/// How often time goes by where something moves.
const TICK: Duration = Duration::from_millis(100);

/// A text that was edited before it is written is at most so long, in bytes.
const MAX_FILE: usize = 64 << 20;

/// How a conversation is begun.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  bowline chat                          Bowline's own agent, in this directory
  bowline chat --agent 'gemini --acp'   any other agent that speaks ACP
  bowline chat --session last           go on where you were
  bowline chat --approve edits          do not ask before files are changed

Keys: Enter sends, Esc cancels, F1 shows all others, Ctrl-C twice quits.

Environment: NO_COLOR for no colours; TERM must name a terminal that can move its cursor.

Exit status: 0 if you left; 1 if the agent cannot be started; 2 for wrong usage, also without a terminal; 4 if there is no
such session; 130 if a signal ended it.")]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    client: ClientArguments,
}

/// Talks until the person has had enough.
pub(crate) async fn run(arguments: ChatArguments) -> Result<(), Ending> {
    if !Tty::is_there(std::env::var_os("TERM").as_deref()) {
        return Err(Ending::Usage(
            "chat needs a terminal that can move its cursor: start it in one, or use `bowline run`, also in scripts \
             and pipes"
                .to_owned(),
        ));
    }
    let places = Places::of_user()?;
    let mut asked = arguments.client;
    let session = match converse(&asked, &places).await {
        Err(Ending::LoginRequired(wanted)) => {
            // The screen is closed: the agent's own program may need the terminal, too.
            let Some(method) = choose_login(&wanted).await? else {
                return Err(Ending::LoginRequired(wanted));
            };
            match &method {
                AuthMethod::Terminal(method) => wanted.run_in_terminal(method).await?,
                other => asked.auth = Some(other.id().0.to_string()),
            }
            converse(&asked, &places).await?
        }
        ended => ended?,
    };
    if let Some(session) = session {
        // What cannot be said is not missed: the sessions can be listed.
        let command = going_on::command(&asked, &session);
        writeln!(std::io::stdout(), "To go on with this session: {command}").ok();
    }
    Ok(())
}

/// Opens the screen, talks to the end, and returns the session that was open last, if one can go on with it.
async fn converse(asked: &ClientArguments, places: &Places) -> Result<Option<String>, Ending> {
    let inbox = Inbox::default();
    let limit = asked.timeout;
    let launch = Launch::open(asked.clone(), places, Arc::new(inbox.clone())).await?;
    let mut app =
        App::new(launch.agent.name.clone(), launch.cwd().display().to_string(), short(launch.cwd()));
    app.limit = limit;
    let mut runner = Runner::new(launch, inbox.clone());
    let read_only = asked.read_only;
    app.allowed = runner.allowed(read_only);
    app.is_own = runner.is_own();
    runner.start();
    let tty = Tty::take().context("cannot use the terminal")?;
    let (begun, colours, wants_editor) = (Instant::now(), colours(), false);
    let talk = Talk { app, runner, inbox, tty, begun, colours, read_only, wants_editor };
    talk.talk().await
}

/// Asks how to log in to the agent, in the plain terminal; none if the person does not want to.
async fn choose_login(wanted: &LoginRequired) -> Result<Option<AuthMethod>, Ending> {
    if wanted.named().is_some() || !wanted.has_methods() {
        return Ok(wanted.named());
    }
    write_stderr(&wanted.question());
    loop {
        write_stderr("Log in how? [a number, or n for not at all] ");
        let (sender, line) = oneshot::channel();
        // A thread of its own, so that an interrupt need not wait for it.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = std::io::stdin().read_line(&mut line);
            sender.send(read.is_ok_and(|read| read > 0).then_some(line)).ok();
        });
        let line = tokio::select! {
            line = line => line.ok().flatten(),
            _ = tokio::signal::ctrl_c() => return Err(Ending::Interrupted),
        };
        let Some(line) = line else { return Ok(None) };
        match wanted.answer(&line) {
            Some(LoginAnswer::By(method)) => return Ok(Some(*method)),
            Some(LoginAnswer::Declined) => return Ok(None),
            None => {}
        }
    }
}

/// Returns how long nothing is drawn after a drawing that took so long, with what came in before it.
fn pause(spent: Duration) -> Duration {
    FRAME.max(spent * (SHARE - 1)).min(LONGEST_PAUSE)
}

/// Says whether a key is a letter with Ctrl.
fn is_control(key: KeyEvent, letter: char) -> bool {
    let is_pressed = key.kind == KeyEventKind::Press;
    is_pressed && key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char(letter)
}

/// Returns whether colours are wanted, as <https://no-color.org> has it.
fn colours() -> Colours {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if unwanted { Colours::Off } else { Colours::On }
}

/// Returns a directory with `~` in place of the home.
fn short(directory: &std::path::Path) -> String {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    match home.and_then(|home| directory.strip_prefix(home).ok().map(ToOwned::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => directory.display().to_string(),
    }
}

/// A conversation that goes on: the one owner of all that belongs to it.
struct Talk {
    app: App,
    runner: Runner,
    inbox: Inbox,
    tty: Tty,
    begun: Instant,
    colours: Colours,
    read_only: bool,
    // Whether the prompt is to be written in an editor next.
    wants_editor: bool,
}

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    Over,
    /// Over, because somebody else said so.
    Ended,
}

impl Talk {
    /// Talks to the end, and returns the session that was open last, if one can go on with it.
    async fn talk(mut self) -> Result<Option<String>, Ending> {
        let done = self.serve().await;
        let session = self.app.worth_going_on().map(|session| session.0.to_string());
        // The person has the terminal back while the agent ends.
        drop(self.tty);
        if let Some(ending) = self.runner.end().await {
            return Err(ending);
        }
        match done.context("the terminal is gone")? {
            Goes::Ended => Err(Ending::Interrupted),
            Goes::On | Goes::Over => Ok(session),
        }
    }

    async fn serve(&mut self) -> std::io::Result<Goes> {
        let mut keys = EventStream::new();
        let mut ended = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut stopped = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut next: Option<Instant> = None;
        let mut stale = true;
        loop {
            let due = next.filter(|due| *due > Instant::now());
            if stale && due.is_none() {
                // What came in meanwhile goes along. On a terminal so slow that there is always something to draw, nobody
                // would look for it otherwise.
                let begun = Instant::now();
                let goes = self.take_in();
                if goes != Goes::On {
                    return Ok(goes);
                }
                let (app, colours) = (&mut self.app, self.colours);
                self.tty.draw(|frame| draw::draw(app, frame, colours))?;
                (next, stale) = (Some(Instant::now() + pause(begun.elapsed())), false);
                tokio::task::yield_now().await;
                continue;
            }
            let frame = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            let goes = tokio::select! {
                // Keys first: whatever an agent sends, a person is heard.
                biased;
                key = keys.next() => match key {
                    Some(Ok(key)) => self.input(key)?,
                    Some(Err(error)) => return Err(error),
                    None => Goes::Over,
                },
                _ = ended.recv() => Goes::Ended,
                _ = hung_up.recv() => Goes::Ended,
                _ = interrupted.recv() => Goes::Ended,
                _ = quit.recv() => Goes::Ended,
                _ = stopped.recv() => {
                    self.tty.suspend()?;
                    Goes::On
                }
                () = frame, if due.is_some() => continue,
                _ = ticks.tick(), if self.app.is_moving() => self.handle(Event::Tick),
                // What comes in goes on the screen with the next frame, and is looked at once for each.
                () = self.inbox.came(), if due.is_none() => self.take_in(),
            };
            stale = true;
            if goes != Goes::On {
                return Ok(goes);
            }
            if std::mem::take(&mut self.wants_editor) {
                // Keys are the editor's until it ends.
                drop(keys);
                self.edit_text().await?;
                keys = EventStream::new();
                // What interrupts an editor interrupts nothing else.
                while interrupted.recv().now_or_never().is_some() {}
            }
        }
    }

    /// Lets the person write in an editor: what an agent is asking to write, or else the prompt.
    async fn edit_text(&mut self) -> std::io::Result<()> {
        if let Some((id, EditableText { text, suffix })) = self.app.editable() {
            let edited = self.tty.lend(editor::edit(&text, &suffix, MAX_FILE)).await?;
            match edited {
                Ok(edited) => self.app.edit(id, edited),
                Err(why) => self.app.flash(why),
            }
            return Ok(());
        }
        let text = self.app.input.text();
        let edited = self.tty.lend(editor::edit(&text, ".md", MAX_INPUT)).await?;
        match edited {
            Ok(edited) => self.app.input.set(edited.trim_end()),
            Err(why) => self.app.flash(why),
        }
        Ok(())
    }

    /// Takes in all that has happened.
    fn take_in(&mut self) -> Goes {
        let mut goes = Goes::On;
        for event in self.inbox.take() {
            if self.handle(event) != Goes::On {
                goes = Goes::Over;
            }
        }
        goes
    }

    fn input(&mut self, input: Input) -> std::io::Result<Goes> {
        Ok(match input {
            Input::Key(key) if is_control(key, 'z') && Tty::can_stop() => {
                self.tty.suspend()?;
                Goes::On
            }
            Input::Key(key) if key.code == KeyCode::F(8) && key.kind == KeyEventKind::Press => {
                let text = match self.tty.toggle_mouse()? {
                    true => "the wheel scrolls; F8 lets the mouse select text",
                    false => "the mouse selects text; F8 lets the wheel scroll",
                };
                self.app.flash(text);
                Goes::On
            }
            Input::Key(key) if is_control(key, 'l') => {
                self.tty.clear()?;
                Goes::On
            }
            Input::Key(key) => self.handle(Event::Key(key)),
            Input::Paste(text) => self.handle(Event::Paste(text)),
            Input::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollUp => self.handle(Event::Wheel(-WHEEL_LINES)),
                MouseEventKind::ScrollDown => self.handle(Event::Wheel(WHEEL_LINES)),
                _ => Goes::On,
            },
            // The next drawing takes the size that there is.
            Input::Resize(..) | Input::FocusGained | Input::FocusLost => Goes::On,
        })
    }

    fn handle(&mut self, event: Event) -> Goes {
        // Rules are made while people answer, and in files.
        if matches!(event, Event::Opened(_) | Event::TurnEnded(_) | Event::Options(_) | Event::Mode(_)) {
            self.app.allowed = self.runner.allowed(self.read_only);
        }
        let actions = self.app.handle(event, self.begun.elapsed());
        let mut goes = Goes::On;
        for action in actions {
            match action {
                Action::Prompt(text) => self.runner.prompt(text),
                Action::Cancel => self.runner.cancel(),
                Action::EndAgent => self.runner.end_agent(),
                Action::GiveUp => self.runner.give_up(),
                Action::Answer(id, reply) => self.inbox.answer(id, reply),
                Action::Elicitation(number, action) => self.inbox.fill(number, action),
                Action::ListChanges => self.runner.list_changes(),
                Action::Undo(selection) => self.runner.take_back(selection, false),
                Action::UndoTurns(undo) => self.runner.undo_turns(undo),
                Action::Redo(selection) => self.runner.take_back(selection, true),
                Action::ListSessions => self.runner.list_sessions(),
                Action::Open(session) => self.runner.open(session),
                Action::ListFiles => self.runner.list_files(),
                Action::SetOption(id, value) => self.runner.set_option(id, value),
                Action::SetMode(mode) => self.runner.set_mode(mode),
                Action::Restart(restart) => self.runner.restart(restart),
                Action::RunShell(line) => self.runner.run_shell(line),
                Action::EndShell => self.runner.end_shell(),
                Action::Edit => self.wants_editor = true,
                Action::Bell => self.tty.bell(),
                Action::Quit => goes = Goes::Over,
            }
        }
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_leaves_time_for_others() {
        let pause = |millis| pause(Duration::from_millis(millis)).as_millis();
        assert_eq!([0, 1, 16, 17, 50, 75, 1000].map(pause), [33, 33, 33, 34, 100, 150, 150]);
    }
}
