//! `bowline run`: one prompt for an agent, with no more than a terminal, or nobody at all.

mod front;
mod hint;
mod output;
mod paint;
mod person;
mod signals;
mod story;
mod summary;

use std::io::{IsTerminal as _, Read as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_host::{HostError, Session, TurnEnd};
use bowline_state::failure::quote;
use bowline_state::schema::v1::StopReason;
use bowline_wire::{AgentExit, CallError, Grace, Tap};
use clap::{Args, ValueEnum};
use tokio::time::{Instant, timeout};

use crate::client::launch::{failed_to_prompt, has_ended, with_last_words};
use crate::client::prompt::{self, Part};
use crate::client::reopen::Reopen;
use crate::client::{Client, ClientArguments, Launch, level};
use crate::ending::Ending;
use crate::places::Places;

use front::Front;
use output::{Messages, Output, Unwritten, Writing};
use paint::Paint;
use signals::{Asked, Signals};
use story::Story;

/// A prompt has at most this many bytes.
const MAX_PROMPT: u64 = 8 << 20;
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
  1    it failed, or the agent refused
  2    wrong usage
  3    it took longer than --timeout
  4    there is no such session
  5    something that the agent wanted to do was denied, and nobody was asked
  130  interrupted

Environment:
  NO_COLOR                          no colours, if it is set and not empty
  XDG_STATE_HOME, XDG_CONFIG_HOME,
  XDG_DATA_HOME                     where journal and audit log, rules and agents, and anchors are kept; else below HOME
  ANTHROPIC_API_KEY and others      keys for Bowline's own agent (`bowline doctor` tells which are there)

Examples:
  bowline run 'read src/main.rs'
  bowline run --approve edits 'Fix the typo in @README.md'
  git diff | bowline run 'Review this change:' - --read-only
  bowline run --agent 'gemini --acp' --approve edits --timeout 600 --file task.md
  bowline run --session last 'Now do the same for the tests'
  answer=$(bowline run --format quiet 'Which tests cover @src/parse.rs?')";

/// How what happens is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people: what goes on as it happens, and what was changed
    Text,
    /// For programs: the messages of the protocol as they were sent, one a line, and nothing else
    Json,
    /// What the agent says, and nothing else
    Quiet,
}

/// Where the prompt came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Stdin,
    Elsewhere,
}

/// Runs one prompt.
pub(crate) async fn run(arguments: RunArguments) -> Result<(), Ending> {
    let places = Places::of(|name| std::env::var_os(name))?;
    let (said, from) = read_prompt(&arguments)?;
    let mut signals = Signals::new()?;
    let (output, writing) = Output::begin();
    let run = Run::new(arguments, output.clone(), from);
    let deadline = run.deadline;
    let ended = run.run(&places, &said, &mut signals).await;
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
        _ = signals.next() => return Err(Ending::Interrupted),
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

impl std::convert::From<Ending> for Ended {
    fn from(ending: Ending) -> Self {
        Self::Because(ending)
    }
}

/// Why a turn was ended before the agent did so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Interrupted,
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
    paint: Paint,
    deadline: Option<Instant>,
}

impl Run {
    fn new(arguments: RunArguments, output: Output, from: From) -> Self {
        let RunArguments { client, format, .. } = arguments;
        let [stdin, stdout, stderr] = [
            std::io::stdin().is_terminal(),
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
        ];
        let (paint, errors) = (Paint::of(stdout), Paint::of(stderr));
        let is_there = stdin && stderr && from == From::Elsewhere;
        let person = is_there.then(|| person::Person::new(output.clone(), errors));
        let cwd = client.cwd.clone().unwrap_or_default();
        let cwd = cwd.canonicalize().or_else(|_| std::env::current_dir()).unwrap_or_default();
        let story = Story::new(paint, &cwd);
        let front = Arc::new(Front::new(format, output.clone(), story, person, errors, stdout));
        // One that the clock cannot tell is none.
        let deadline =
            client.timeout.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
        Self { client, front, output, format, paint, deadline }
    }

    async fn run(self, places: &Places, said: &[Part], signals: &mut Signals) -> Ended {
        let seconds = self.client.timeout.unwrap_or_default();
        let timed_out = || Ending::TimedOut(format!("the turn took longer than {seconds} s and was ended"));
        let start = self.start(places);
        let started = tokio::select! {
            started = start => started,
            _ = signals.next() => return Ending::Interrupted.into(),
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
            _ = signals.next() => return Ending::Interrupted.into(),
        };
        let turn_number = match &turn {
            Some(Ok(turn)) => Some(turn.turn),
            _ => session.files().workspace().last_turn(session.name()).ok().flatten(),
        };
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
            (_, Some(Cut::Interrupted)) => Ending::Interrupted.into(),
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
            Format::Text | Format::Quiet => Vec::new(),
        };
        let mut launch = Launch::open_with(self.client.clone(), places, self.front.clone(), taps).await?;
        launch.reopen = Reopen::Resume;
        let roots = launch.host.workspace().roots().iter().map(|(root, _)| root.to_owned());
        self.front.knows(roots.collect());
        let client = launch.start().await?;
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
                    (Asked::Interrupt, Some(Cut::Interrupted)) => return Err(Ending::Interrupted),
                    (Asked::Interrupt, _) => {
                        self.front.notice("cancelling the turn; Ctrl-C again ends everything at once");
                        patience = Some(Instant::now() + CANCELLING);
                        Cut::Interrupted
                    }
                    (Asked::End, _) => {
                        patience = Some(Instant::now() + ENDING);
                        Cut::Interrupted
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
            cut = Some(cut.map_or(why, |_| Cut::Interrupted));
            session.cancel();
        }
    }

    /// Tells what was changed, and what it took.
    fn sum_up(&self, launch: &Launch, session: &Session, turn: u64) {
        if self.format != Format::Text {
            return;
        }
        let here = std::env::current_dir().and_then(|here| here.canonicalize());
        let elsewhere =
            (here.ok().as_deref() != Some(launch.cwd())).then(|| launch.cwd().display().to_string());
        let workspace = launch.host.workspace();
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

fn read_prompt(arguments: &RunArguments) -> Result<(Vec<Part>, From), Ending> {
    let stdin = || read_text(std::io::stdin(), "stdin").map(Part::Read);
    let (said, from) = match (&arguments.file, arguments.prompt.as_slice()) {
        (Some(file), _) if file == "-" => (vec![stdin()?], From::Stdin),
        (Some(file), _) => {
            let opened = std::fs::File::open(file).and_then(|opened| match opened.metadata()?.is_dir() {
                // Opening one works, and reading from it says the same later.
                true => Err(std::io::ErrorKind::IsADirectory.into()),
                false => Ok(opened),
            });
            let opened = opened
                .map_err(|error| Ending::Usage(format!("cannot read the prompt {}: {error}", quote(file))))?;
            (vec![Part::Read(read_text(opened, &quote(file))?)], From::Elsewhere)
        }
        (None, []) if std::io::stdin().is_terminal() => {
            let what = "what should the agent do? Give it a prompt, as in: bowline run 'read README.md'";
            return Err(Ending::Usage(what.to_owned()));
        }
        (None, []) => (vec![stdin()?], From::Stdin),
        (None, words) => match words.iter().filter(|word| *word == "-").count() {
            0 => (vec![Part::Typed(words.join(" "))], From::Elsewhere),
            1 => {
                let at = words.iter().position(|word| word == "-").unwrap_or_default();
                let [before, after] =
                    [&words[..at], &words[at + 1..]].map(|words| Part::Typed(words.join(" ")));
                (vec![before, stdin()?, after], From::Stdin)
            }
            _ => return Err(Ending::Usage("stdin can be read once: give one - only".to_owned())),
        },
    };
    if said.iter().all(|part| part.text().trim().is_empty()) {
        return Err(Ending::Usage("the prompt is empty: say what the agent should do".to_owned()));
    }
    Ok((said, from))
}

fn read_text(from: impl std::io::Read, name: &str) -> Result<String, Ending> {
    let mut bytes = Vec::new();
    from.take(MAX_PROMPT + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(Ending::Usage(format!(
            "{name} has more than {MAX_PROMPT} bytes: mention files as @FILE instead"
        )));
    }
    String::from_utf8(bytes).map_err(|_| Ending::Usage(format!("{name} is not UTF-8")))
}
