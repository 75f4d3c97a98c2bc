//! Logging in to an agent that wants it before it opens a session: by `authenticate`, or by its own program in the terminal.

use std::fmt;
use std::path::{Path, PathBuf};

use bowline_host::Connection;
use bowline_state::display;
use bowline_state::failure::quote;
use bowline_state::schema::v1::{AuthMethod, AuthMethodTerminal};

use super::agents::AgentCommand;
use crate::ending::Ending;
use crate::records::showing::write_stderr;

/// As much of a name or a description is shown, in bytes.
const MAX_TEXT: usize = 300;

/// An agent that opens no session before its user has logged in.
#[derive(Debug)]
pub(crate) struct LoginRequired {
    /// What the agent says, safe to show.
    said: String,
    methods: Vec<AuthMethod>,
    // The method that the command line names, if that is one for a terminal.
    named: Option<AuthMethodTerminal>,
    // The agent that was started, and where.
    agent: Option<(AgentCommand, PathBuf)>,
}

/// What a person says to the question how to log in.
#[derive(Debug)]
pub(crate) enum LoginAnswer {
    /// This way.
    By(Box<AuthMethod>),
    /// Not at all.
    Declined,
}

impl LoginRequired {
    pub(super) fn new(said: String, methods: &[AuthMethod]) -> Box<Self> {
        Box::new(Self { said, methods: methods.to_vec(), named: None, agent: None })
    }

    /// Logs in by the method of this id, if the agent can do that by itself.
    ///
    /// # Errors
    /// Returns itself if no method is named, or one for a terminal, which the caller may have. Else says why not.
    pub(super) async fn log_in(
        mut self: Box<Self>,
        connection: &Connection,
        named: Option<&str>,
        agent: (AgentCommand, PathBuf),
    ) -> Result<(), Ending> {
        self.agent = Some(agent);
        let Some(named) = named else { return Err(Ending::LoginRequired(self)) };
        match self.methods.iter().find(|method| &*method.id().0 == named) {
            Some(AuthMethod::Terminal(method)) => {
                self.named = Some(method.clone());
                Err(Ending::LoginRequired(self))
            }
            Some(method) => connection.authenticate(method.id()).await.map_err(|error| {
                let why = anyhow::anyhow!("{}", quote(&error.to_string()));
                Ending::Failed(why.context(format!("the agent did not log you in by {}", quote(named))))
            }),
            None if self.methods.is_empty() => Err(Ending::LoginRequired(self)),
            None => Err(Ending::Usage(format!(
                "the agent does not offer to log in by {}: --auth takes one of {}",
                quote(named),
                self.listed()
            ))),
        }
    }

    /// Returns that the agent wants a login although there was one.
    pub(super) fn again(&self) -> Ending {
        Ending::Failed(anyhow::anyhow!("you have logged in, and the agent still wants you to: {}", self.said))
    }

    /// Returns what a person at a terminal is asked: which way to take, each with its number.
    pub(crate) fn question(&self) -> String {
        let mut text = format!("\nThe agent wants you to log in first: {}\n", self.said);
        for (number, method) in self.methods.iter().enumerate() {
            text += &format!("  {} {}\n", number + 1, described(method));
        }
        text
    }

    /// Returns the method that there is no need to ask for.
    pub(crate) fn named(&self) -> Option<AuthMethod> {
        self.named.clone().map(AuthMethod::Terminal)
    }

    /// Says whether there is a method to choose.
    pub(crate) fn has_methods(&self) -> bool {
        !self.methods.is_empty()
    }

    /// Reads an answer to the question, if it is one.
    pub(crate) fn answer(&self, line: &str) -> Option<LoginAnswer> {
        let word = line.trim();
        if matches!(word, "n" | "N" | "no") {
            return Some(LoginAnswer::Declined);
        }
        let by_number =
            word.parse::<usize>().ok().and_then(|number| self.methods.get(number.checked_sub(1)?));
        let method = by_number.or_else(|| self.methods.iter().find(|method| &*method.id().0 == word));
        method.cloned().map(|method| LoginAnswer::By(Box::new(method)))
    }

    /// Runs the agent's own program in this terminal to log in.
    ///
    /// # Errors
    /// Says that it did not end well.
    pub(crate) async fn run_in_terminal(&self, method: &AuthMethodTerminal) -> Result<(), Ending> {
        let Some((agent, cwd)) = &self.agent else { return Ok(()) };
        let argv = argv(agent, cwd, method)?;
        let line = shown(&argv);
        write_stderr(&format!("bowline: to log in, this runs in your terminal: {line}\n"));
        let program = agent.program(cwd, std::env::vars_os())?;
        let mut command = tokio::process::Command::new(argv.first().map_or("", String::as_str));
        command.args(argv.iter().skip(1)).env_clear().envs(program.env).envs(&method.env).current_dir(cwd);
        let ended = command.kill_on_drop(true).status().await;
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(Ending::Failed(anyhow::anyhow!("you are not logged in: {line} ended with {status}")))
            }
            Err(error) => {
                Err(Ending::Failed(anyhow::anyhow!("you are not logged in: cannot start {line}: {error}")))
            }
        }
    }

    fn listed(&self) -> String {
        let of = |method: &AuthMethod| format!("{}: {}", quote(&method.id().0), described(method));
        self.methods.iter().map(of).collect::<Vec<_>>().join("; ")
    }
}

/// What a script is told, or a person who was not asked.
impl fmt::Display for LoginRequired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = &self.said;
        let line = self.named.as_ref().zip(self.agent.as_ref());
        let line = line.and_then(|(method, (agent, cwd))| Some(shown(&argv(agent, cwd, method).ok()?)));
        match line {
            Some(line) => write!(f, "the agent wants you to log in first ({said}): run {line} in a terminal"),
            None if self.methods.is_empty() => write!(
                f,
                "the agent wants you to log in first, and does not say how ({said}): start its own program for that"
            ),
            None => write!(
                f,
                "the agent wants you to log in first ({said}): name a way with --auth, or log in with its own program. \
                 It offers {}",
                self.listed()
            ),
        }
    }
}

/// Returns a method in words, safe on any terminal.
fn described(method: &AuthMethod) -> String {
    let place = if matches!(method, AuthMethod::Terminal(_)) { ", in this terminal" } else { "" };
    let description = method.description().map(|text| format!(" ({})", display::line(text, MAX_TEXT)));
    format!("{}{place}{}", display::line(method.name(), MAX_TEXT), description.unwrap_or_default())
}

/// Returns the program to log in with: the agent's own, with more arguments.
fn argv(agent: &AgentCommand, cwd: &Path, method: &AuthMethodTerminal) -> Result<Vec<String>, Ending> {
    let mut argv = agent.program(cwd, [])?.argv;
    argv.extend(method.args.iter().cloned());
    Ok(argv)
}

fn shown(argv: &[String]) -> String {
    let line = shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_else(|_| argv.join(" "));
    display::line(&line, 4096)
}
