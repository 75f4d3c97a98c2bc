//! The user at the terminal: questions are asked there and answered by lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use bowline_host::{AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionReply};
use bowline_policy::question::TextChange;
use bowline_protocol::elicitation::{ElicitationUrl, FieldInput, Form, FormContent, FormField};
use bowline_protocol::schema::v1::{
    AuthMethod, CreateElicitationRequest, ElicitationAcceptAction, ElicitationAction,
    ElicitationContentValue as Value, ElicitationMode,
};
use bowline_text::display;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Mutex, MutexGuard, oneshot};

use super::ansi::paint_patch_line;
use super::output::RunOutput;
use bowline_client::ApprovedChanges;
use bowline_client::common::console::{OutputStyle, TextStyle};
use bowline_client::login::{LoginAnswer, LoginRequired};

/// The maximum number of pending line requests: the one of the current question, and recently abandoned ones.
const MAX_LINE_REQUESTS: usize = 64;

/// The maximum length of a line that a terminal delivers, in bytes.
const MAX_LINE: usize = 4096;
/// The interval for checking whether a line is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The number of invalid attempts after which a form is cancelled.
const MAX_TRIES: usize = 3;

/// A user at a terminal. One question is asked at a time.
#[derive(Debug)]
pub(super) struct TerminalUser {
    output: RunOutput,
    style: OutputStyle,
    // Held by the current question.
    question_lock: Mutex<()>,
    // The line requests. Stdin is not read until the first question is asked.
    line_requests: OnceLock<SyncSender<LineSender>>,
    approved_changes: std::sync::Mutex<ApprovedChanges>,
    // Whether the last output is a prompt that waits for an answer on its line.
    is_line_open: AtomicBool,
}

/// Receives the requested line; `None` at the end of input. A line answers only the question that requested it.
type LineSender = oneshot::Sender<Option<String>>;

/// The lines typed from now on.
struct TerminalLineReader<'a> {
    line_requests: &'a SyncSender<LineSender>,
    _question_lock: MutexGuard<'a, ()>,
}

impl TerminalUser {
    pub(super) fn new(output: RunOutput, style: OutputStyle) -> Self {
        let (question_lock, line_requests) = (Mutex::new(()), OnceLock::new());
        Self {
            output,
            style,
            question_lock,
            line_requests,
            approved_changes: Default::default(),
            is_line_open: AtomicBool::new(false),
        }
    }

    /// Asks whether a request is allowed. `roots` are the directories of the workspace.
    pub(super) async fn ask(&self, question: &Question, roots: &[String]) -> QuestionReply {
        let mut reader = self.begin_question().await;
        self.output.write_stderr(self.render_question(question, roots));
        loop {
            let numbers = match question.selectable_options().len() {
                0 => String::new(),
                several => format!("1-{several}/"),
            };
            let keys: String = answer_keys(question).iter().map(|(key, _)| format!("{key}/")).collect();
            self.print(&self.style.paint(TextStyle::Heading, &format!("Allow it? [{numbers}{keys}?] ")));
            let Some(line) = reader.next_line().await else {
                self.print("\n");
                return QuestionReply::NoUser;
            };
            self.is_line_open.store(false, Ordering::Relaxed);
            match parse_reply(&line, question) {
                Ok(reply) => {
                    self.lock_approved_changes().remember(question, &reply);
                    return reply;
                }
                Err(ReplyParseError::ReasonMissing) => {
                    self.print("Why not? ");
                    let reason = reader.next_line().await.unwrap_or_default();
                    self.is_line_open.store(false, Ordering::Relaxed);
                    return deny_reply(&reason);
                }
                Err(ReplyParseError::Unrecognized) => {
                    let line = line.trim();
                    if !line.is_empty() && line != "?" {
                        self.print(&format!("\"{}\" is no answer here.\n", display::escape_line(line, 40)));
                    }
                    self.print(ANSWER_HELP);
                }
            }
        }
    }

    /// Asks how to log in to the agent; returns `None` if the user declines.
    pub(super) async fn ask_login_method(&self, login: &LoginRequired) -> Option<AuthMethod> {
        let mut reader = self.begin_question().await;
        self.print(&login.question_text());
        loop {
            self.print(&self.style.paint(TextStyle::Heading, "Log in how? [a number, or n for not at all] "));
            let line = reader.next_line().await?;
            self.is_line_open.store(false, Ordering::Relaxed);
            match login.parse_answer(&line) {
                Some(LoginAnswer::Method(method)) => return Some(*method),
                Some(LoginAnswer::Declined) => return None,
                None => {}
            }
        }
    }

    /// Asks the user to fill in a form or to visit a page.
    pub(super) async fn elicit(&self, agent: &str, request: &CreateElicitationRequest) -> ElicitationAction {
        let mut reader = self.begin_question().await;
        let message = display::escape_block(&request.message, 40, 4 << 10);
        self.print(&format!(
            "\n{} asks: {}\n",
            self.style.paint(TextStyle::Heading, &display::escape_line(agent, 80)),
            message.text.trim_end()
        ));
        match &request.mode {
            ElicitationMode::Form(form) => match Form::from_schema(&form.requested_schema) {
                Ok(form) => self.fill_form(&form, &mut reader).await,
                // The host has already validated it.
                Err(_) => ElicitationAction::Cancel,
            },
            ElicitationMode::Url(page) => match ElicitationUrl::parse(&page.url) {
                Ok(page) => self.confirm_page(&page, &mut reader).await,
                Err(_) => ElicitationAction::Cancel,
            },
            // A mode of a later protocol version was not offered.
            _ => ElicitationAction::Cancel,
        }
    }

    async fn fill_form(&self, form: &Form, reader: &mut TerminalLineReader<'_>) -> ElicitationAction {
        for text in form.title.iter().chain(&form.description) {
            self.print(&format!("{}\n", display::escape_line(text, 1000)));
        }
        self.print("An empty line keeps what stands in brackets, or leaves a field out; ! declines.\n");
        for _ in 0..MAX_TRIES {
            let mut content: FormContent = form.defaults();
            for field in &form.fields {
                if let FieldInput::Unknown { .. } = field.input {
                    continue;
                }
                self.print(&describe_field(field, content.get(&field.name)));
                let Some(line) = reader.next_line().await else { return ElicitationAction::Cancel };
                match line.trim() {
                    "!" => return ElicitationAction::Decline,
                    "" => {}
                    text => {
                        content.insert(field.name.clone(), parse_value(&field.input, text));
                    }
                }
            }
            let faults = form.check(&content);
            if faults.is_empty() {
                return ElicitationAction::Accept(ElicitationAcceptAction::new().content(content));
            }
            for fault in faults {
                self.print(&self.style.paint(TextStyle::Warning, &format!("! {fault}\n")));
            }
        }
        self.print("That was wrong too often: nothing is sent.\n");
        ElicitationAction::Cancel
    }

    async fn confirm_page(
        &self,
        page: &ElicitationUrl,
        reader: &mut TerminalLineReader<'_>,
    ) -> ElicitationAction {
        for line in page.display_lines() {
            self.print(&format!("  {}\n", paint_patch_line(self.style, &line)));
        }
        loop {
            self.print("Will you open this page in your browser? [y/n] ");
            match reader.next_line().await.as_deref().map(str::trim) {
                Some("y" | "yes") => return ElicitationAction::Accept(ElicitationAcceptAction::new()),
                Some("n" | "no") => return ElicitationAction::Decline,
                Some(_) => {}
                None => return ElicitationAction::Cancel,
            }
        }
    }

    /// Takes the question lock. Text typed earlier does not answer this question: stdin is only read while a question
    /// waits for a line, so earlier text is still in the terminal's buffer, which is flushed here.
    async fn begin_question(&self) -> TerminalLineReader<'_> {
        let question_lock = self.question_lock.lock().await;
        // A terminal that cannot be flushed cannot be read either.
        rustix::termios::tcflush(rustix::stdio::stdin(), rustix::termios::QueueSelector::IFlush).ok();
        TerminalLineReader {
            line_requests: self.line_requests.get_or_init(spawn_line_reader),
            _question_lock: question_lock,
        }
    }

    fn lock_approved_changes(&self) -> std::sync::MutexGuard<'_, ApprovedChanges> {
        self.approved_changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print(&self, text: &str) {
        self.is_line_open.store(!text.ends_with('\n'), Ordering::Relaxed);
        self.output.write_stderr(text);
    }

    /// Ends the line of an abandoned question, because other output follows.
    pub(super) fn break_question_line(&self) {
        if self.is_line_open.swap(false, Ordering::Relaxed) {
            self.output.write_stderr("\n");
        }
    }

    /// Renders a question with everything needed to answer it, and the meaning of the answers.
    fn render_question(&self, question: &Question, roots: &[String]) -> String {
        let mut text = String::from("\n");
        for difference in self.lock_approved_changes().differences(question).into_iter().flatten() {
            text += &format!(
                "{}\n",
                self.style.paint(TextStyle::Warning, &format!("! {}:", difference.description))
            );
            let change = TextChange { before: Some(difference.approved), after: difference.current };
            for line in change.lines() {
                text += &format!("{}\n", paint_patch_line(self.style, &line));
            }
        }
        for (index, line) in question.to_text().lines().enumerate() {
            let line = if index == 0 {
                self.style.paint(TextStyle::Heading, line)
            } else {
                paint_patch_line(self.style, line)
            };
            text += &format!("{line}\n");
        }
        let scopes = describe_narrowest_scope(question, roots);
        let keys: Vec<String> =
            answer_keys(question).into_iter().map(|(key, label)| format!("{key} {label}")).collect();
        text += &format!("{}\n", keys.join("   "));
        if !scopes.is_empty() {
            text += &self
                .style
                .paint(TextStyle::Faint, &format!("s, p and N hold for {}\n", scopes.join(" and ")));
        }
        for (number, suggestion) in question.suggestions.iter().enumerate().take(9).skip(1) {
            let number = number + 1;
            let line = format!(
                "s{number}, p{number} and N{number} for {}\n",
                display::escape_line(&suggestion.description, 300)
            );
            text += &self.style.paint(TextStyle::Faint, &line);
        }
        text
    }
}

impl TerminalLineReader<'_> {
    /// Returns the next line; `None` at the end of input.
    async fn next_line(&mut self) -> Option<String> {
        let (sender, receiver) = oneshot::channel();
        self.line_requests.try_send(sender).ok()?;
        receiver.await.ok()?
    }
}

/// Starts a thread that reads lines on request; it ends with the program.
fn spawn_line_reader() -> SyncSender<LineSender> {
    // One line is requested at a time; abandoned requests are removed as soon as they are noticed.
    let (sender, requests): (_, Receiver<LineSender>) = sync_channel(MAX_LINE_REQUESTS);
    std::thread::spawn(move || {
        for request in requests {
            if let Some(line) = read_line(&request) {
                // A line that is no longer wanted is dropped, so that it cannot answer another question.
                request.send(line).ok();
            }
        }
    });
    sender
}

/// Reads a line from the terminal, which delivers one at a time; `None` if it is no longer wanted.
fn read_line(request: &LineSender) -> Option<Option<String>> {
    let stdin = rustix::stdio::stdin();
    let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    while !request.is_closed() {
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return Some(None),
        }
        if request.is_closed() {
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

/// Returns the keys that answer a question, and their meanings: the same as in `bowline chat`.
fn answer_keys(question: &Question) -> Vec<(&'static str, String)> {
    let with_number = |label: &str, choice| match question.default_option_number(choice) {
        Some(number) => format!("{label} ({number})"),
        None => label.to_owned(),
    };
    let can_persist = !question.suggestions.is_empty();
    let keys = [
        ("y", with_number("allow once", AnswerChoice::Allow), true),
        ("s", "this session".to_owned(), can_persist),
        ("p", "this project".to_owned(), can_persist),
        ("n", with_number("reject", AnswerChoice::Deny), true),
        ("N", "always reject".to_owned(), can_persist),
        ("r", "reject and say why".to_owned(), true),
    ];
    keys.into_iter().filter(|(_, _, is_offered)| *is_offered).map(|(key, label, _)| (key, label)).collect()
}

const ANSWER_HELP: &str = "\
y  allow this once                       n  reject this once
s  allow for this session                N  reject in this project from now on
p  allow in this project from now on     r  reject and say why: r, or r REASON
always     allow in every project from now on; written out, so that it is no slip
s2, p2 …   for more than the narrowest, where that is offered
1, 2, 3 …  what the agent offers, where there is more to choose than yes and no
";

/// Why a line is not a valid answer.
#[derive(Debug, PartialEq, Eq)]
enum ReplyParseError {
    /// The reason is missing.
    ReasonMissing,
    /// It is not an answer.
    Unrecognized,
}

/// Parses an answer.
fn parse_reply(line: &str, question: &Question) -> Result<QuestionReply, ReplyParseError> {
    let line = line.trim();
    if let Some(reason) = line.strip_prefix("r ").or_else(|| line.strip_prefix("R ")) {
        return Ok(deny_reply(reason));
    }
    // A capital N is an answer of its own.
    let never = line.strip_prefix('N').filter(|rest| rest.is_empty() || rest.parse::<usize>().is_ok());
    if let Some(number) = never {
        return lasting_reply(AnswerChoice::Deny, AnswerLifetime::Project, number, question);
    }
    let word = line.to_ascii_lowercase();
    match word.as_str() {
        "y" | "yes" | "once" => return Ok(QuestionReply::allow()),
        "n" | "no" => return Ok(QuestionReply::deny()),
        "r" => return Err(ReplyParseError::ReasonMissing),
        _ => {}
    }
    if let Ok(number) = word.parse::<usize>() {
        let offer = number.checked_sub(1).and_then(|index| question.selectable_options().get(index));
        return offer
            .map(|offer| QuestionReply::Answered(QuestionAnswer::from_agent_option(offer)))
            .ok_or(ReplyParseError::Unrecognized);
    }
    let (lifetime, number) = match word.as_str() {
        "session" => (AnswerLifetime::Session, ""),
        "project" => (AnswerLifetime::Project, ""),
        "always" => (AnswerLifetime::Always, ""),
        word => match (word.strip_prefix('s'), word.strip_prefix('p')) {
            (Some(number), _) => (AnswerLifetime::Session, number),
            (_, Some(number)) => (AnswerLifetime::Project, number),
            (None, None) => return Err(ReplyParseError::Unrecognized),
        },
    };
    lasting_reply(AnswerChoice::Allow, lifetime, number, question)
}

/// Returns a lasting answer: for the suggestion with the given number, or for the narrowest without one.
fn lasting_reply(
    choice: AnswerChoice,
    lifetime: AnswerLifetime,
    number: &str,
    question: &Question,
) -> Result<QuestionReply, ReplyParseError> {
    if question.suggestions.is_empty() {
        return Err(ReplyParseError::Unrecognized);
    }
    let scope = match number {
        "" => Vec::new(),
        number => {
            let number: usize = number.parse().map_err(|_| ReplyParseError::Unrecognized)?;
            let chosen = number.checked_sub(1).and_then(|index| question.suggestions.get(index));
            vec![chosen.ok_or(ReplyParseError::Unrecognized)?.clone()]
        }
    };
    Ok(QuestionReply::Answered(QuestionAnswer { scope, ..QuestionAnswer::new(choice, lifetime) }))
}

fn deny_reply(reason: &str) -> QuestionReply {
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    QuestionReply::deny_because(reason)
}

/// Describes the default scope of a lasting answer.
fn describe_narrowest_scope(question: &Question, roots: &[String]) -> Vec<String> {
    let QuestionReply::Answered(answer) = QuestionReply::answer(AnswerChoice::Allow, AnswerLifetime::Always)
    else {
        return Vec::new();
    };
    let rules = question.rules(&answer, roots).unwrap_or_default();
    let text = |rule: &bowline_policy::policy::Rule| {
        let matcher = &rule.spec().matcher;
        let suggestion = question.suggestions.iter().find(|suggestion| suggestion.matcher == *matcher);
        display::escape_line(
            &suggestion.map_or_else(|| rule.to_string(), |suggestion| suggestion.description.clone()),
            300,
        )
    };
    rules.iter().map(text).collect()
}

/// Describes a field and its current value.
fn describe_field(field: &FormField, default: Option<&Value>) -> String {
    let mut text = display::escape_line(field.title.as_deref().unwrap_or(&field.name), 200);
    if let Some(description) = &field.description {
        text += &format!(" ({})", display::escape_line(description, 500));
    }
    if let FieldInput::SingleSelect { options, .. } | FieldInput::MultiSelect { options, .. } = &field.input {
        for (number, option) in options.iter().enumerate() {
            text += &format!("\n  {} {}", number + 1, display::escape_line(&option.title, 200));
        }
        text += if matches!(field.input, FieldInput::SingleSelect { .. }) {
            "\nnumber"
        } else {
            "\nnumbers, with commas"
        };
    }
    let kind = match &field.input {
        FieldInput::Boolean { .. } => " y/n",
        FieldInput::Integer { .. } | FieldInput::Number { .. } => " number",
        _ => "",
    };
    let default = default.map(|value| format!(" [{}]", display::escape_line(&display_value(value), 200)));
    let optional = if field.required || default.is_some() { "" } else { " (may be left out)" };
    format!("{text}{kind}{optional}{}: ", default.unwrap_or_default())
}

fn display_value(value: &Value) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// Parses the text typed into a field. A value of the wrong type stays text, and the form's validation reports it.
fn parse_value(input: &FieldInput, text: &str) -> Value {
    let option = |options: &[bowline_protocol::elicitation::SelectOption], text: &str| {
        let by_number = text.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
        by_number.map_or_else(|| text.to_owned(), |option| option.value.clone())
    };
    let value: Option<Value> = match input {
        FieldInput::SingleSelect { options, .. } => Some(Value::from(option(options, text))),
        FieldInput::MultiSelect { options, .. } => {
            let chosen: Vec<String> = text.split(',').map(|text| option(options, text.trim())).collect();
            Some(Value::from(chosen))
        }
        FieldInput::Integer { .. } => text.parse::<i64>().ok().map(Value::from),
        FieldInput::Number { .. } => text.parse::<f64>().ok().map(Value::from),
        FieldInput::Boolean { .. } => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Some(Value::from(true)),
            "n" | "no" | "false" => Some(Value::from(false)),
            _ => None,
        },
        FieldInput::Text { .. } | FieldInput::Unknown { .. } => None,
    };
    value.unwrap_or_else(|| Value::from(text.to_owned()))
}

#[cfg(test)]
mod tests;
