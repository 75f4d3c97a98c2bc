//! Login to an agent that requires it before it opens a session: by `authenticate`, or by its own program in the
//! terminal.

use std::fmt;
use std::path::{Path, PathBuf};

use bowline_host::Connection;
use bowline_protocol::schema::v1::{AuthMethod, AuthMethodTerminal};
use bowline_text::display;
use bowline_text::display::quote;

use super::agents::AgentCommand;
use crate::common::console::write_stderr;
use crate::error::CliError;

/// The maximum length of a name or description that is shown, in bytes.
const MAX_TEXT: usize = 300;

/// The error of an agent that opens no session before its user has logged in.
#[derive(Debug)]
pub struct LoginRequired {
    /// The agent's message, escaped.
    message: String,
    methods: Vec<AuthMethod>,
    // The method that the command line names, if it is a terminal method.
    named_method: Option<AuthMethodTerminal>,
    // The agent that was started, and its directory.
    agent: Option<(AgentCommand, PathBuf)>,
}

/// The user's answer to the question how to log in.
#[derive(Debug)]
pub enum LoginAnswer {
    /// Log in with this method.
    Method(Box<AuthMethod>),
    /// Do not log in.
    Declined,
}

impl LoginRequired {
    pub(super) fn new(message: String, methods: &[AuthMethod]) -> Box<Self> {
        Box::new(Self { message, methods: methods.to_vec(), named_method: None, agent: None })
    }

    /// Logs in with the method of this id, if the agent can do so by itself.
    ///
    /// # Errors
    /// Returns `self` if no method is named, or a terminal method, which the caller may be able to run. Otherwise
    /// explains why the login failed.
    pub(super) async fn log_in(
        mut self: Box<Self>,
        connection: &Connection,
        named: Option<&str>,
        agent: (AgentCommand, PathBuf),
    ) -> Result<(), CliError> {
        self.agent = Some(agent);
        let Some(named) = named else { return Err(CliError::LoginRequired(self)) };
        match self.methods.iter().find(|method| &*method.id().0 == named) {
            Some(AuthMethod::Terminal(method)) => {
                self.named_method = Some(method.clone());
                Err(CliError::LoginRequired(self))
            }
            Some(method) => connection.authenticate(method.id()).await.map_err(|error| {
                let reason = anyhow::anyhow!("{}", quote(&error.to_string()));
                CliError::Failed(reason.context(format!("the agent did not log you in by {}", quote(named))))
            }),
            None if self.methods.is_empty() => Err(CliError::LoginRequired(self)),
            None => Err(CliError::Usage(format!(
                "the agent does not offer to log in by {}: --auth takes one of {}",
                quote(named),
                self.describe_methods()
            ))),
        }
    }

    /// Returns an error that the agent still requires a login after one.
    pub(super) fn still_required(&self) -> CliError {
        CliError::Failed(anyhow::anyhow!(
            "you have logged in, and the agent still wants you to: {}",
            self.message
        ))
    }

    /// Returns the question for a user at a terminal: the numbered methods.
    pub fn question_text(&self) -> String {
        let mut text = format!("\nThe agent wants you to log in first: {}\n", self.message);
        for (number, method) in self.methods.iter().enumerate() {
            text += &format!("  {} {}\n", number + 1, describe_method(method));
        }
        text
    }

    /// Returns the method that the command line names, which needs no question.
    pub fn named_method(&self) -> Option<AuthMethod> {
        self.named_method.clone().map(AuthMethod::Terminal)
    }

    /// Returns whether there is a method to choose.
    pub fn has_methods(&self) -> bool {
        !self.methods.is_empty()
    }

    /// Parses an answer to the question.
    pub fn parse_answer(&self, line: &str) -> Option<LoginAnswer> {
        let word = line.trim();
        if matches!(word, "n" | "N" | "no") {
            return Some(LoginAnswer::Declined);
        }
        let by_number =
            word.parse::<usize>().ok().and_then(|number| self.methods.get(number.checked_sub(1)?));
        let method = by_number.or_else(|| self.methods.iter().find(|method| &*method.id().0 == word));
        method.cloned().map(|method| LoginAnswer::Method(Box::new(method)))
    }

    /// Runs the agent's own login program in this terminal.
    ///
    /// # Errors
    /// Reports that the program failed.
    pub async fn run_in_terminal(&self, method: &AuthMethodTerminal) -> Result<(), CliError> {
        let Some((agent, cwd)) = &self.agent else { return Ok(()) };
        let argv = login_argv(agent, cwd, method)?;
        let line = display_command(&argv);
        write_stderr(&format!("bowline: to log in, this runs in your terminal: {line}\n"));
        let program = agent.program(cwd, std::env::vars_os())?;
        let mut command = tokio::process::Command::new(argv.first().map_or("", String::as_str));
        command.args(argv.iter().skip(1)).env_clear().envs(program.env).envs(&method.env).current_dir(cwd);
        let result = command.kill_on_drop(true).status().await;
        match result {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(CliError::Failed(anyhow::anyhow!("you are not logged in: {line} ended with {status}")))
            }
            Err(error) => {
                Err(CliError::Failed(anyhow::anyhow!("you are not logged in: cannot start {line}: {error}")))
            }
        }
    }

    fn describe_methods(&self) -> String {
        let describe =
            |method: &AuthMethod| format!("{}: {}", quote(&method.id().0), describe_method(method));
        self.methods.iter().map(describe).collect::<Vec<_>>().join("; ")
    }
}

/// The message for a script, or for a user who was not asked.
impl fmt::Display for LoginRequired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = &self.message;
        let line = self.named_method.as_ref().zip(self.agent.as_ref());
        let line = line
            .and_then(|(method, (agent, cwd))| Some(display_command(&login_argv(agent, cwd, method).ok()?)));
        match line {
            Some(line) => {
                write!(f, "the agent wants you to log in first ({message}): run {line} in a terminal")
            }
            None if self.methods.is_empty() => write!(
                f,
                "the agent wants you to log in first, and does not say how ({message}): start its own program for that"
            ),
            None => write!(
                f,
                "the agent wants you to log in first ({message}): name a way with --auth, or log in with its own program. \
                 It offers {}",
                self.describe_methods()
            ),
        }
    }
}

/// Describes a method, escaped for any terminal.
fn describe_method(method: &AuthMethod) -> String {
    let suffix = if matches!(method, AuthMethod::Terminal(_)) { ", in this terminal" } else { "" };
    let description = method.description().map(|text| format!(" ({})", display::escape_line(text, MAX_TEXT)));
    format!("{}{suffix}{}", display::escape_line(method.name(), MAX_TEXT), description.unwrap_or_default())
}

/// Returns the login program: the agent's own, with additional arguments.
fn login_argv(
    agent: &AgentCommand,
    cwd: &Path,
    method: &AuthMethodTerminal,
) -> Result<Vec<String>, CliError> {
    let mut argv = agent.program(cwd, [])?.argv;
    argv.extend(method.args.iter().cloned());
    Ok(argv)
}

fn display_command(argv: &[String]) -> String {
    let line = shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_else(|_| argv.join(" "));
    display::escape_line(&line, 4096)
}
