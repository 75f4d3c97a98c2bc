//! `bowline run`: one prompt for an agent, with no more than a terminal, or nobody at all.

mod front;
mod output;
mod paint;
mod person;
mod prompt_source;
mod result;
mod signals;
mod story;
mod summary;

use std::cell::RefCell;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_host::{HostError, Session, TurnEnd};
use bowline_state::display;
use bowline_state::failure::quote;
use bowline_state::schema::v1::StopReason;
use bowline_wire::{AgentExit, CallError, Grace, Tap};
use clap::{Args, ValueEnum};
use tokio::time::{Instant, timeout};

use crate::audit::missing;
use crate::client::launch::{failed_to_prompt, has_ended, with_last_words};
use crate::client::prompt::{self, Part};
use crate::client::reopen::Reopen;
use crate::client::{Client, ClientArguments, Launch, level};
use crate::ending::Ending;
use crate::places::Places;
use crate::records::here::Here;

use front::{CallOutcome, Front};
use output::{Messages, Output, Unwritten, Writing};
use paint::Paint;
use prompt_source::PromptSource;
use result::RunResult;
use signals::{Asked, Signals};
use story::Story;

/// How long an agent may take to end a turn that was cancelled.
const CANCELLING: Duration = Duration::from_secs(10);
/// The same where there is no time left: after a signal to end, or at the end of what was allowed.
const ENDING: Duration = Duration::from_secs(3);
/// How long an agent may take to end when its turn was cut.
const SHORT: Grace =
    Grace { after_close: Duration::from_millis(500), after_terminate: Duration::from_millis(500) };
/// How often there is a look at what takes long.
const TICK: Duration = Duration::from_millis(500);
/// How long a reader may take when there is no time left.
const READING: Duration = Duration::from_secs(1);
/// How long the last command may take to be looked at when it has ended.
const SETTLING: Duration = Duration::from_millis(500);

/// How one prompt is run.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub(crate) struct RunArguments {
    /// What the agent should do. `-` stands for what is on stdin; without any, and without --file, all of the prompt is
    /// read from there. `@FILE` or `@"FILE"` attaches a file; what is read from stdin or a file attaches nothing
    #[arg(value_name = "PROMPT")]
    prompt: Vec<String>,
    /// Reads the prompt from a file; `-` is stdin
    #[arg(long, short, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<String>,
    /// How what happens is shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Fails if the agent did nothing: no tool call succeeded; and if a tool call failed
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    client: ClientArguments,
}

const HELP: &str = "\
What the agent says and does is written to stdout, in the form that --format names. Questions, notices and errors go to
stderr.

What the agent may do is decided by your rules (bowline policy) and by --approve, which holds in place of your preset unless
that is read-only or deny. Whatever is left to ask about is asked if
stdin and stderr are a terminal; if nobody is there, it is denied, and at the end you are told what would have allowed it.
What was changed can be taken back with bowline undo.

Ctrl-C cancels the turn; a second Ctrl-C ends everything at once.

Exit status:
  0    done
  1    it failed, or the agent refused; with --strict also if it did nothing, or a tool failed
  2    wrong usage
  3    it took longer than --timeout
  4    there is no such session
  5    something that the agent wanted to do was denied, and nobody was asked
  130  interrupted
  143  terminated by SIGTERM

Environment:
  NO_COLOR                          no colours, if it is set and not empty
  XDG_STATE_HOME, XDG_CONFIG_HOME,
  XDG_DATA_HOME                     where journal and audit log, rules and agents, and anchors are kept; else below your home
  ANTHROPIC_API_KEY and others      keys for Bowline's own agent (`bowline doctor` tells which are there)

Examples:
  bowline run 'read src/main.rs'
  bowline run --approve edits 'Fix the typo in @README.md'
  git diff | bowline run 'Review this change:' - --read-only
  bowline run --agent 'gemini --acp' --approve edits --timeout 600 --file task.md
  bowline run --session last 'Now do the same for the tests'
  answer=$(bowline run --format quiet 'Which tests cover @src/parse.rs?')
  bowline run --strict --format result --approve edits --file task.md | jq .changes";

/// How what happens is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people: what goes on as it happens, and what was changed
    Text,
    /// For programs: the messages of the protocol as they were sent, one a line, and nothing else
    Json,
    /// What the agent says, and nothing else
    Quiet,
    /// For programs: one JSON object at the end, with session, stop reason, answer, changes, tool calls, denials and usage
    Result,
}

/// Runs one prompt.
pub(crate) async fn run(arguments: RunArguments) -> Result<(), Ending> {
    let places = Places::of_user()?;
    let (said, from) = prompt_source::read(&arguments)?;
    let mut signals = Signals::new()?;
    let (output, writing) = Output::begin();
    let run = Run::new(arguments, output.clone(), from);
    let deadline = run.deadline;
    let ended = run.run(&places, &said, &mut signals).await;
    let ended = run.conclude(ended);
    finish(ended, deadline, &output, writing, &mut signals).await
}

/// Waits until all is written, unless the person has had enough, or the time is over.
async fn finish(
    ended: Ended,
    deadline: Option<Instant>,
    output: &Output,
    writing: Writing,
    signals: &mut Signals,
) -> Result<(), Ending> {
    let soon = Instant::now() + READING;
    let until_then = match ended {
        Ended::Done => deadline.map(|deadline| deadline.max(soon)),
        // Whoever was told that it has ended does not wait for a reader.
        Ended::Because(_) => Some(soon),
    };
    let is_written = tokio::select! {
        () = writing.finish() => true,
        asked = signals.next() => return Err(asked.ending()),
        () = until(until_then) => false,
    };
    match (ended, output.unwritten()) {
        (Ended::Because(ending), _) => Err(ending),
        (Ended::Done, Some(Unwritten::Failed(why))) => Err(unwritten(&why)),
        (Ended::Done, Some(Unwritten::Behind)) => Err(behind()),
        (Ended::Done, _) if !is_written => {
            Err(Ending::TimedOut("the turn has ended, and what it said was not read in time".to_owned()))
        }
        (Ended::Done, _) => Ok(()),
    }
}

fn unwritten(why: &str) -> Ending {
    Ending::Failed(anyhow::anyhow!("cannot write what the agent says: {why}"))
}

fn behind() -> Ending {
    Ending::Failed(anyhow::anyhow!("what the agent says is read too slowly: the turn was cancelled"))
}

/// How a run ended.
enum Ended {
    /// As it should, or because nobody wanted to read any more.
    Done,
    Because(Ending),
}

impl From<Ending> for Ended {
    fn from(ending: Ending) -> Self {
        Self::Because(ending)
    }
}

/// Why a turn was ended before the agent did so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Signalled(Asked),
    TimedOut,
    /// What the agent says is read by nobody, or cannot be written.
    Unread,
}

/// One run.
struct Run {
    client: ClientArguments,
    front: Arc<Front>,
    output: Output,
    format: Format,
    strict: bool,
    paint: Paint,
    deadline: Option<Instant>,
    result: RefCell<RunResult>,
}

impl Run {
    fn new(arguments: RunArguments, output: Output, from: PromptSource) -> Self {
        let RunArguments { client, format, strict, .. } = arguments;
        let [stdin, stdout, stderr] = [
            std::io::stdin().is_terminal(),
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
        ];
        let (paint, errors) = (Paint::of(stdout), Paint::of(stderr));
        let is_there = stdin && stderr && from == PromptSource::Elsewhere;
        let person = is_there.then(|| person::Person::new(output.clone(), errors));
        let cwd = client.cwd.clone().unwrap_or_default();
        let cwd = cwd.canonicalize().or_else(|_| std::env::current_dir()).unwrap_or_default();
        let story = Story::new(paint, &cwd);
        let front = Arc::new(Front::new(format, output.clone(), story, person, errors, stdout));
        // One that the clock cannot tell is none.
        let deadline = client.timeout.and_then(|time| Instant::now().checked_add(time));
        let result = RefCell::default();
        Self { client, front, output, format, strict, paint, deadline, result }
    }

    async fn run(&self, places: &Places, said: &[Part], signals: &mut Signals) -> Ended {
        let seconds = self.client.timeout.unwrap_or_default().as_secs_f64();
        let timed_out = || Ending::TimedOut(format!("the turn took longer than {seconds} s and was ended"));
        let start = self.start(places);
        let started = tokio::select! {
            started = start => started,
            asked = signals.next() => return asked.ending().into(),
            () = until(self.deadline) => {
                return Ending::TimedOut(format!("the agent did not start within {seconds} s")).into();
            }
        };
        let (launch, client) = match started {
            Ok(started) => started,
            Err(ending) => return ending.into(),
        };
        let takes = &client.connection.initialized().agent_capabilities.prompt_capabilities;
        let prompt = prompt::prompt(said, client.session.files(), launch.host.approvals(), takes);
        for note in prompt.attached.iter().chain(&prompt.notes) {
            self.front.notice(note);
        }
        let (turn, cut) = match self.turn(&client.session, prompt.blocks, signals).await {
            Ok(turn) => turn,
            // A second signal: what runs is killed, not asked.
            Err(ending) => return ending.into(),
        };
        drop(timeout(SETTLING, self.front.idle()).await);
        let refusals = self.front.end();
        let session = client.session.clone();
        let initialized = client.connection.initialized().clone();
        let has_died = has_ended(&client.connection);
        let exit = tokio::select! {
            exit = client.end(if cut.is_some() { SHORT } else { Grace::default() }) => exit,
            asked = signals.next() => return asked.ending().into(),
        };
        let turn_number = match &turn {
            Some(Ok(turn)) => Some(turn.turn),
            _ => session.files().workspace().last_turn(session.name()).ok().flatten(),
        };
        let stop = turn.as_ref().and_then(|turn| turn.as_ref().ok()).map(|turn| turn.stop);
        self.result.borrow_mut().set_turn(&session, turn_number, stop);
        if let Some(number) = turn_number {
            self.sum_up(&launch, &session, number);
        }
        match (turn, cut) {
            // It was done all the same.
            (Some(Ok(TurnEnd { stop: StopReason::EndTurn, .. })), Some(Cut::Unread)) => Ended::Done,
            (_, Some(Cut::Unread)) => match self.output.unwritten() {
                Some(Unwritten::Failed(why)) => unwritten(&why).into(),
                Some(Unwritten::Behind) => behind().into(),
                Some(Unwritten::Unread) | None => Ending::Failed(anyhow::anyhow!(
                    "the turn was cancelled, as nobody reads what the agent says"
                ))
                .into(),
            },
            (_, Some(Cut::Signalled(asked))) => asked.ending().into(),
            (_, Some(Cut::TimedOut)) => timed_out().into(),
            // Only what was cut is not waited for.
            (None, None) => Ended::Done,
            (Some(Err(HostError::Ended | HostError::Call(CallError::Closed))), None) => died(exit.as_ref()),
            // A turn that cannot begin any more counts as cancelled.
            (Some(Ok(TurnEnd { stop: StopReason::Cancelled, .. })), None) if has_died => died(exit.as_ref()),
            (Some(Err(error)), None) => failed_to_prompt(&initialized, error).into(),
            (Some(Ok(turn)), None) => {
                let given = level(&self.client, launch.agent.is_own);
                let refused = || summary::refused(&launch.host, &session, turn.turn, &refusals, given);
                self.stopped(&turn, refused)
            }
        }
    }

    async fn start(&self, places: &Places) -> Result<(Launch, Client), Ending> {
        let taps: Vec<Arc<dyn Tap>> = match self.format {
            Format::Json => vec![Arc::new(Messages(self.output.clone()))],
            Format::Text | Format::Quiet | Format::Result => Vec::new(),
        };
        // A directory that cannot be used is told of when it is opened.
        if let Some(why) = Here::itself(self.client.cwd.as_deref()).ok().and_then(|here| missing(&here)) {
            self.front.notice(&why);
        }
        let mut launch = Launch::open_with(self.client.clone(), places, self.front.clone(), taps).await?;
        launch.reopen = Reopen::Resume;
        let roots = launch.host.workspace().roots().iter().map(|(root, _)| root.to_owned());
        self.front.knows(roots.collect());
        let client = match launch.start().await {
            Err(Ending::LoginRequired(wanted)) => {
                let Some(method) = self.front.log_in(&wanted).await else {
                    return Err(Ending::LoginRequired(wanted));
                };
                launch.log_in(&wanted, method).await?;
                launch.start().await?
            }
            started => started?,
        };
        launch.remember(&client.session);
        Ok((launch, client))
    }

    /// Takes the turn. What comes back is how it ended, if that was waited for, and why it was cut.
    async fn turn(
        &self,
        session: &Session,
        blocks: Vec<bowline_state::schema::v1::ContentBlock>,
        signals: &mut Signals,
    ) -> Result<(Option<Result<TurnEnd, HostError>>, Option<Cut>), Ending> {
        let mut turn = pin!(session.prompt(blocks));
        let mut tick = tokio::time::interval(TICK);
        let mut cut: Option<Cut> = None;
        let mut patience: Option<Instant> = None;
        loop {
            let why = tokio::select! {
                biased;
                ended = &mut turn => return Ok((Some(ended), cut)),
                asked = signals.next() => match (asked, cut) {
                    (Asked::Interrupt, Some(Cut::Signalled(_))) => return Err(Ending::Interrupted),
                    (Asked::Interrupt, _) => {
                        self.front.notice("cancelling the turn; Ctrl-C again ends everything at once");
                        patience = Some(Instant::now() + CANCELLING);
                        Cut::Signalled(asked)
                    }
                    (Asked::End(_), _) => {
                        patience = Some(Instant::now() + ENDING);
                        Cut::Signalled(asked)
                    }
                },
                () = until(self.deadline), if cut.is_none() => {
                    patience = Some(Instant::now() + ENDING);
                    Cut::TimedOut
                }
                () = self.output.closed(), if cut.is_none() => {
                    patience = Some(Instant::now() + ENDING);
                    Cut::Unread
                }
                () = until(patience) => return Ok((None, cut)),
                _ = tick.tick() => {
                    self.front.tick();
                    self.output.look();
                    continue;
                }
            };
            // Who sends a signal decides how it ends.
            cut = Some(why);
            session.cancel();
        }
    }

    /// Tells what was changed, and what it took.
    fn sum_up(&self, launch: &Launch, session: &Session, turn: u64) {
        if !matches!(self.format, Format::Text | Format::Result) {
            return;
        }
        let here = std::env::current_dir().and_then(|here| here.canonicalize());
        let elsewhere =
            (here.ok().as_deref() != Some(launch.cwd())).then(|| launch.cwd().display().to_string());
        let workspace = launch.host.workspace();
        if self.format == Format::Result {
            match summary::objects(workspace, session.name(), turn, elsewhere.as_deref()) {
                Ok((changes, undo)) => self.result.borrow_mut().set_changes(changes, undo),
                Err(error) => self.front.notice(&error.to_string()),
            }
            return;
        }
        match summary::changes(workspace, session.name(), turn, elsewhere.as_deref(), self.paint) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => self.output.out(format!("\n{text}")),
            Err(error) => self.front.notice(&error.to_string()),
        }
        if let Some(usage) = session.snapshot().usage() {
            let cost = usage.cost.as_ref().map(|cost| {
                let amount = format!("{:.4}", cost.amount);
                // An agent may say any number.
                let amount = if amount.len() > 20 { format!("{:e}", cost.amount) } else { amount };
                format!(", cost {amount} {}", quote(&cost.currency))
            });
            let text =
                format!("Context: {} of {} tokens{}", usage.used, usage.size, cost.unwrap_or_default());
            self.output.out(format!("{}\n", self.paint.dim(&text)));
        }
    }

    /// Judges what was done, if that is wanted, and tells all of it in the form for programs.
    fn conclude(&self, ended: Ended) -> Ended {
        let (calls, answer) = self.front.outcome();
        let ended = match ended {
            Ended::Done if self.strict => judge_strictly(&calls),
            ended => ended,
        };
        if self.format == Format::Result {
            self.output.out(self.result.borrow().line(&answer, &calls, &ended));
        }
        ended
    }

    /// Says how a turn ended that the agent ended itself.
    fn stopped(&self, turn: &TurnEnd, refused: impl FnOnce() -> Option<String>) -> Ended {
        match turn.stop {
            StopReason::Refusal => {
                return Ending::Failed(anyhow::anyhow!(
                    "the agent refused: nothing of this turn is remembered"
                ))
                .into();
            }
            StopReason::Cancelled => {
                return Ending::Failed(anyhow::anyhow!("the agent cancelled the turn by itself")).into();
            }
            StopReason::MaxTokens => {
                self.front.notice("the model reached its limit of tokens: the answer may be cut");
            }
            StopReason::MaxTurnRequests => {
                self.front.notice("the agent reached its limit of steps: go on with --session last");
            }
            // Also one of a later protocol: the turn has ended.
            _ => {}
        }
        match refused() {
            Some(text) => Ending::Denied(text).into(),
            None => Ended::Done,
        }
    }
}

/// Returns that a run failed in which something failed, or nothing was done.
fn judge_strictly(calls: &[CallOutcome]) -> Ended {
    let failed: Vec<String> =
        calls.iter().filter(|call| call.failed).map(|call| display::line(&call.title, 200)).collect();
    if !failed.is_empty() {
        return Ending::Failed(anyhow::anyhow!("--strict: failed: {}", failed.join(", "))).into();
    }
    if calls.is_empty() {
        return Ending::Failed(anyhow::anyhow!("--strict: the agent did nothing")).into();
    }
    Ended::Done
}

/// Says that the agent ended in its turn.
fn died(exit: Option<&AgentExit>) -> Ended {
    with_last_words(anyhow::anyhow!("the agent ended in the middle of its turn"), exit).into()
}

/// Waits until a moment; for ever if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
