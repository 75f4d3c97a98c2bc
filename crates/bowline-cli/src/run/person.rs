//! The person at the terminal: questions are asked there and answered by lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use bowline_host::{Answer, Choice, Keep, Question, Reply};
use bowline_state::display;
use bowline_state::elicitation::{Content, Field, Form, Input, Page};
use bowline_state::question::Shown;
use bowline_state::schema::v1::{
    AuthMethod, CreateElicitationRequest, ElicitationAcceptAction, ElicitationAction,
    ElicitationContentValue as Value, ElicitationMode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Mutex, MutexGuard, oneshot};

use super::output::Output;
use super::paint::Paint;
use crate::client::ApprovedChanges;
use crate::client::login::{LoginAnswer, LoginRequired};

/// So many lines may be wanted at once: the one of the question that waits, and those that were given up a moment ago.
const MAX_WANTED: usize = 64;

/// No line that a terminal hands over is longer, in bytes.
const MAX_LINE: usize = 4096;
/// How often whoever waits for a line looks whether anybody still wants it.
const LOOK: Duration = Duration::from_millis(50);
/// A form that is filled in wrongly so often is given up.
const MAX_TRIES: usize = 3;

/// A person at a terminal. One question is asked at a time.
#[derive(Debug)]
pub(super) struct Person {
    output: Output,
    paint: Paint,
    // Who has the floor.
    floor: Mutex<()>,
    // Who wants a line. Nobody reads stdin until the first question is asked.
    wanted: OnceLock<SyncSender<Wanted>>,
    approved: std::sync::Mutex<ApprovedChanges>,
    // Whether what was said last waits for an answer on its line.
    is_waiting: AtomicBool,
}

/// A line that is waited for; none if there will be none. It is for whoever asked, and for no later question.
type Wanted = oneshot::Sender<Option<String>>;

/// The lines that are typed from now on.
struct Typing<'a> {
    wanted: &'a SyncSender<Wanted>,
    _floor: MutexGuard<'a, ()>,
}

impl Person {
    pub(super) fn new(output: Output, paint: Paint) -> Self {
        let (floor, wanted) = (Mutex::new(()), OnceLock::new());
        Self {
            output,
            paint,
            floor,
            wanted,
            approved: Default::default(),
            is_waiting: AtomicBool::new(false),
        }
    }

    /// Asks whether something may be done. `roots` are the directories of the workspace.
    pub(super) async fn ask(&self, question: &Question, roots: &[String]) -> Reply {
        let mut typing = self.listen().await;
        self.output.err(self.question(question, roots));
        loop {
            let numbers = match question.choices().len() {
                0 => String::new(),
                several => format!("1-{several}/"),
            };
            let keys: String = keys(question).iter().map(|(key, _)| format!("{key}/")).collect();
            self.say(&self.paint.bold(&format!("Allow it? [{numbers}{keys}?] ")));
            let Some(line) = typing.line().await else {
                self.say("\n");
                return Reply::Nobody;
            };
            self.is_waiting.store(false, Ordering::Relaxed);
            match reply(&line, question) {
                Ok(reply) => {
                    self.approved().remember(question, &reply);
                    return reply;
                }
                Err(Unclear::Reason) => {
                    self.say("Why not? ");
                    let reason = typing.line().await.unwrap_or_default();
                    self.is_waiting.store(false, Ordering::Relaxed);
                    return deny(&reason);
                }
                Err(Unclear::Help) => {
                    let line = line.trim();
                    if !line.is_empty() && line != "?" {
                        self.say(&format!("\"{}\" is no answer here.\n", display::line(line, 40)));
                    }
                    self.say(HELP);
                }
            }
        }
    }

    /// Asks how to log in to the agent; none if the person does not want to.
    pub(super) async fn log_in(&self, wanted: &LoginRequired) -> Option<AuthMethod> {
        let mut typing = self.listen().await;
        self.say(&wanted.question());
        loop {
            self.say(&self.paint.bold("Log in how? [a number, or n for not at all] "));
            let line = typing.line().await?;
            self.is_waiting.store(false, Ordering::Relaxed);
            match wanted.answer(&line) {
                Some(LoginAnswer::By(method)) => return Some(*method),
                Some(LoginAnswer::Declined) => return None,
                None => {}
            }
        }
    }

    /// Lets a form be filled in, or a page be visited.
    pub(super) async fn elicit(&self, agent: &str, request: &CreateElicitationRequest) -> ElicitationAction {
        let mut typing = self.listen().await;
        let message = display::block(&request.message, 40, 4 << 10);
        self.say(&format!(
            "\n{} asks: {}\n",
            self.paint.bold(&display::line(agent, 80)),
            message.text.trim_end()
        ));
        match &request.mode {
            ElicitationMode::Form(form) => match Form::read(&form.requested_schema) {
                Ok(form) => self.fill_in(&form, &mut typing).await,
                // The host has read it before.
                Err(_) => ElicitationAction::Cancel,
            },
            ElicitationMode::Url(page) => match Page::read(&page.url) {
                Ok(page) => self.visit(&page, &mut typing).await,
                Err(_) => ElicitationAction::Cancel,
            },
            // A way to ask of a later protocol was not offered.
            _ => ElicitationAction::Cancel,
        }
    }

    async fn fill_in(&self, form: &Form, typing: &mut Typing<'_>) -> ElicitationAction {
        for text in form.title.iter().chain(&form.description) {
            self.say(&format!("{}\n", display::line(text, 1000)));
        }
        self.say("An empty line keeps what stands in brackets, or leaves a field out; ! declines.\n");
        for _ in 0..MAX_TRIES {
            let mut content: Content = form.defaults();
            for field in &form.fields {
                if let Input::Unknown { .. } = field.input {
                    continue;
                }
                self.say(&described(field, content.get(&field.name)));
                let Some(line) = typing.line().await else { return ElicitationAction::Cancel };
                match line.trim() {
                    "!" => return ElicitationAction::Decline,
                    "" => {}
                    text => {
                        content.insert(field.name.clone(), value(&field.input, text));
                    }
                }
            }
            let faults = form.check(&content);
            if faults.is_empty() {
                return ElicitationAction::Accept(ElicitationAcceptAction::new().content(content));
            }
            for fault in faults {
                self.say(&self.paint.yellow(&format!("! {fault}\n")));
            }
        }
        self.say("That was wrong too often: nothing is sent.\n");
        ElicitationAction::Cancel
    }

    async fn visit(&self, page: &Page, typing: &mut Typing<'_>) -> ElicitationAction {
        for line in page.lines() {
            self.say(&format!("  {}\n", self.paint.patch_line(&line)));
        }
        loop {
            self.say("Will you open this page in your browser? [y/n] ");
            match typing.line().await.as_deref().map(str::trim) {
                Some("y" | "yes") => return ElicitationAction::Accept(ElicitationAcceptAction::new()),
                Some("n" | "no") => return ElicitationAction::Decline,
                Some(_) => {}
                None => return ElicitationAction::Cancel,
            }
        }
    }

    /// Takes the floor. What was typed before is no answer to what is asked now: stdin is only read while a question waits
    /// for a line, so that all of it is still with the terminal, which forgets it here.
    async fn listen(&self) -> Typing<'_> {
        let floor = self.floor.lock().await;
        // A terminal that cannot do this cannot be read from either.
        rustix::termios::tcflush(rustix::stdio::stdin(), rustix::termios::QueueSelector::IFlush).ok();
        Typing { wanted: self.wanted.get_or_init(read_lines), _floor: floor }
    }

    fn approved(&self) -> std::sync::MutexGuard<'_, ApprovedChanges> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, text: &str) {
        self.is_waiting.store(!text.ends_with('\n'), Ordering::Relaxed);
        self.output.err(text);
    }

    /// Ends the line of a question that nobody answers any more, because something else is to be said.
    pub(super) fn interrupted(&self) {
        if self.is_waiting.swap(false, Ordering::Relaxed) {
            self.output.err("\n");
        }
    }

    /// Returns a question with everything that an answer should rest on, and what the answers mean.
    fn question(&self, question: &Question, roots: &[String]) -> String {
        let mut text = String::from("\n");
        for difference in self.approved().differences(question).into_iter().flatten() {
            text += &format!("{}\n", self.paint.yellow(&format!("! {}:", difference.what)));
            let change = Shown { before: Some(difference.then), after: difference.now };
            for line in change.lines() {
                text += &format!("{}\n", self.paint.patch_line(&line));
            }
        }
        for (at, line) in question.text().lines().enumerate() {
            let line = if at == 0 { self.paint.bold(line) } else { self.paint.patch_line(line) };
            text += &format!("{line}\n");
        }
        let held = narrowest(question, roots);
        let keys: Vec<String> =
            keys(question).into_iter().map(|(key, what)| format!("{key} {what}")).collect();
        text += &format!("{}\n", keys.join("   "));
        if !held.is_empty() {
            text += &self.paint.dim(&format!("s, p and N hold for {}\n", held.join(" and ")));
        }
        for (number, suggestion) in question.suggestions.iter().enumerate().take(9).skip(1) {
            let number = number + 1;
            let line =
                format!("s{number}, p{number} and N{number} for {}\n", display::line(&suggestion.text, 300));
            text += &self.paint.dim(&line);
        }
        text
    }
}

impl Typing<'_> {
    /// Returns the next line; none if there will be none.
    async fn line(&mut self) -> Option<String> {
        let (wanted, line) = oneshot::channel();
        self.wanted.try_send(wanted).ok()?;
        line.await.ok()?
    }
}

/// Reads lines as they are wanted, on a thread of its own, which ends with the program.
fn read_lines() -> SyncSender<Wanted> {
    // One line is wanted at a time; others are given up, and taken out as soon as that is seen.
    let (sender, wanted): (_, Receiver<Wanted>) = sync_channel(MAX_WANTED);
    std::thread::spawn(move || {
        for wanted in wanted {
            if let Some(line) = read_line(&wanted) {
                // If nobody wants it by now, it is lost, which is better than that it answers something else.
                wanted.send(line).ok();
            }
        }
    });
    sender
}

/// Reads a line from the terminal, which hands over one at a time; none if it is not wanted any more.
fn read_line(wanted: &Wanted) -> Option<Option<String>> {
    let stdin = rustix::stdio::stdin();
    let patience = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    while !wanted.is_closed() {
        let mut looked = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut looked, Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return Some(None),
        }
        if wanted.is_closed() {
            break;
        }
        let mut bytes = [0; MAX_LINE];
        return Some(match rustix::io::read(stdin, &mut bytes) {
            Ok(read @ 1..) => Some(String::from_utf8_lossy(&bytes[..read]).trim_end_matches('\n').to_owned()),
            Ok(_) | Err(_) => None,
        });
    }
    None
}

/// Returns the keys that answer a question, with what they mean: those of `bowline chat`.
fn keys(question: &Question) -> Vec<(&'static str, String)> {
    let selects = |what: &str, choice| match question.default_number(choice) {
        Some(number) => format!("{what} ({number})"),
        None => what.to_owned(),
    };
    let lasts = !question.suggestions.is_empty();
    let keys = [
        ("y", selects("allow once", Choice::Allow), true),
        ("s", "this session".to_owned(), lasts),
        ("p", "this project".to_owned(), lasts),
        ("n", selects("reject", Choice::Deny), true),
        ("N", "always reject".to_owned(), lasts),
        ("r", "reject and say why".to_owned(), true),
    ];
    keys.into_iter().filter(|(_, _, is_there)| *is_there).map(|(key, what, _)| (key, what)).collect()
}

const HELP: &str = "\
y  allow this once                       n  reject this once
s  allow for this session                N  reject in this project from now on
p  allow in this project from now on     r  reject and say why: r, or r REASON
always     allow in every project from now on; written out, so that it is no slip
s2, p2 …   for more than the narrowest, where that is offered
1, 2, 3 …  what the agent offers, where there is more to choose than yes and no
";

/// Why a line is no answer yet.
#[derive(Debug, PartialEq, Eq)]
enum Unclear {
    /// A reason is wanted.
    Reason,
    /// It is none.
    Help,
}

/// Reads an answer.
fn reply(line: &str, question: &Question) -> Result<Reply, Unclear> {
    let line = line.trim();
    if let Some(reason) = line.strip_prefix("r ").or_else(|| line.strip_prefix("R ")) {
        return Ok(deny(reason));
    }
    // A capital N is an answer of its own.
    let never = line.strip_prefix('N').filter(|rest| rest.is_empty() || rest.parse::<usize>().is_ok());
    if let Some(number) = never {
        return lasting(Choice::Deny, Keep::Project, number, question);
    }
    let word = line.to_ascii_lowercase();
    match word.as_str() {
        "y" | "yes" | "once" => return Ok(Reply::allow()),
        "n" | "no" => return Ok(Reply::deny()),
        "r" => return Err(Unclear::Reason),
        _ => {}
    }
    if let Ok(number) = word.parse::<usize>() {
        let offer = number.checked_sub(1).and_then(|at| question.choices().get(at));
        return offer.map(|offer| Reply::Answered(Answer::chosen(offer))).ok_or(Unclear::Help);
    }
    let (keep, number) = match word.as_str() {
        "session" => (Keep::Session, ""),
        "project" => (Keep::Project, ""),
        "always" => (Keep::Always, ""),
        word => match (word.strip_prefix('s'), word.strip_prefix('p')) {
            (Some(number), _) => (Keep::Session, number),
            (_, Some(number)) => (Keep::Project, number),
            (None, None) => return Err(Unclear::Help),
        },
    };
    lasting(Choice::Allow, keep, number, question)
}

/// Returns an answer that lasts: for the suggestion with a number, or for the narrowest if there is none.
fn lasting(choice: Choice, keep: Keep, number: &str, question: &Question) -> Result<Reply, Unclear> {
    if question.suggestions.is_empty() {
        return Err(Unclear::Help);
    }
    let scope = match number {
        "" => Vec::new(),
        number => {
            let number: usize = number.parse().map_err(|_| Unclear::Help)?;
            let chosen = number.checked_sub(1).and_then(|at| question.suggestions.get(at));
            vec![chosen.ok_or(Unclear::Help)?.clone()]
        }
    };
    Ok(Reply::Answered(Answer { choice, keep, scope, reason: None, option: None, text: None }))
}

fn deny(reason: &str) -> Reply {
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    Reply::Answered(Answer {
        choice: Choice::Deny,
        keep: Keep::Once,
        scope: Vec::new(),
        reason,
        option: None,
        text: None,
    })
}

/// Says what an answer for longer holds for if nothing else is chosen.
fn narrowest(question: &Question, roots: &[String]) -> Vec<String> {
    let Reply::Answered(answer) = Reply::answer(Choice::Allow, Keep::Always) else { return Vec::new() };
    let rules = question.rules(&answer, roots).unwrap_or_default();
    let text = |rule: &bowline_state::policy::Rule| {
        let matcher = &rule.spec().matcher;
        let known = question.suggestions.iter().find(|known| known.matcher == *matcher);
        display::line(&known.map_or_else(|| rule.to_string(), |known| known.text.clone()), 300)
    };
    rules.iter().map(text).collect()
}

/// Describes a field, with what it is filled in with.
fn described(field: &Field, default: Option<&Value>) -> String {
    let mut text = display::line(field.title.as_deref().unwrap_or(&field.name), 200);
    if let Some(description) = &field.description {
        text += &format!(" ({})", display::line(description, 500));
    }
    if let Input::One { options, .. } | Input::Some { options, .. } = &field.input {
        for (number, option) in options.iter().enumerate() {
            text += &format!("\n  {} {}", number + 1, display::line(&option.title, 200));
        }
        text += if matches!(field.input, Input::One { .. }) { "\nnumber" } else { "\nnumbers, with commas" };
    }
    let kind = match &field.input {
        Input::Flag { .. } => " y/n",
        Input::Integer { .. } | Input::Number { .. } => " number",
        _ => "",
    };
    let default = default.map(|value| format!(" [{}]", display::line(&shown(value), 200)));
    let optional = if field.required || default.is_some() { "" } else { " (may be left out)" };
    format!("{text}{kind}{optional}{}: ", default.unwrap_or_default())
}

fn shown(value: &Value) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// Reads what was typed into a field. What does not fit stays text, and the form says what is wrong with it.
fn value(input: &Input, text: &str) -> Value {
    let option = |options: &[bowline_state::elicitation::Choice], text: &str| {
        let by_number = text.parse::<usize>().ok().and_then(|at| options.get(at.checked_sub(1)?));
        by_number.map_or_else(|| text.to_owned(), |option| option.value.clone())
    };
    let of: Option<Value> = match input {
        Input::One { options, .. } => Some(Value::from(option(options, text))),
        Input::Some { options, .. } => {
            let chosen: Vec<String> = text.split(',').map(|text| option(options, text.trim())).collect();
            Some(Value::from(chosen))
        }
        Input::Integer { .. } => text.parse::<i64>().ok().map(Value::from),
        Input::Number { .. } => text.parse::<f64>().ok().map(Value::from),
        Input::Flag { .. } => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Some(Value::from(true)),
            "n" | "no" | "false" => Some(Value::from(false)),
            _ => None,
        },
        Input::Text { .. } | Input::Unknown { .. } => None,
    };
    of.unwrap_or_else(|| Value::from(text.to_owned()))
}

#[cfg(test)]
mod tests;
