//! The program of an agent: a command line, a name from the user's configuration, or Bowline itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bowline_policy::mode::AgentMode;
use bowline_remote::endpoint::Endpoint;
use bowline_text::display::quote;
use bowline_workspace::terminals::{ProgramSpec, ResourceLimits};

use super::ClientArguments;
use super::arguments::RemoteArguments;
use super::config::{Config, ConfiguredAgent};
use crate::arguments::options;
use crate::error::CliError;

/// The name of Bowline's own agent.
pub const OWN_AGENT_NAME: &str = "bowline";

/// The grace period for an agent to exit after a shutdown request.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// An agent's limits: it is the user's own program, so Bowline sets none.
const UNLIMITED: ResourceLimits = ResourceLimits { processes: None, open_files: None };

/// The command that starts an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    /// Its display name: its name in the configuration, or its command line.
    pub name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: BTreeMap<String, String>,
    /// Whether it is Bowline's own.
    pub is_own: bool,
}

impl AgentCommand {
    /// Returns the agent that the arguments request. `search` is the program search path.
    pub fn from_arguments(
        arguments: &ClientArguments,
        config: &Config,
        search: Option<&OsString>,
    ) -> Result<Self, CliError> {
        if let Some(url) = &arguments.remote.connect {
            return Self::remote_agent(url, &arguments.remote);
        }
        let Some(text) = arguments.agent.as_deref().filter(|text| *text != OWN_AGENT_NAME) else {
            return Self::own_agent(arguments);
        };
        if arguments.base_url.is_some() || arguments.window.is_some() {
            return Err(CliError::Usage(
                "--base-url and --window are for Bowline's own agent: leave out --agent, or tell the other agent in its own way"
                    .to_owned(),
            ));
        }
        let words = split_command_line(text)?;
        if let [name] = words.as_slice() {
            if let Some(configured) = config.agents.get(name) {
                return Self::from_config(name, configured, config);
            }
            if !name.contains('/') && find_program(name, search).is_none() {
                let known: Vec<String> = config.agents.keys().map(|name| quote(name)).collect();
                return Err(CliError::Usage(format!(
                    "there is no agent {}: not found in PATH, and {}",
                    quote(name),
                    match known.as_slice() {
                        [] => format!("{} names none", config.display_path()),
                        _ => format!("{} names {}", config.display_path(), known.join(", ")),
                    }
                )));
            }
        }
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        // The agent starts in the workspace, but its path is relative to the current directory.
        let program = match std::path::absolute(&program) {
            Ok(absolute) if program.contains('/') => absolute,
            _ => PathBuf::from(program),
        };
        let args = words.map(OsString::from).collect();
        Ok(Self { name: text.to_owned(), program, args, env: BTreeMap::new(), is_own: false })
    }

    /// Returns the agent that a command line of these words starts; `words` must not be empty.
    pub fn from_words(words: &[OsString]) -> Self {
        let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let program = words.first().map(PathBuf::from).unwrap_or_default();
        let args = words.iter().skip(1).cloned().collect();
        Self { name: shown.join(" "), program, args, env: BTreeMap::new(), is_own: false }
    }

    /// Returns the agents that the user's configuration names, except one with the name of Bowline's own.
    ///
    /// # Errors
    /// Names an agent whose command is not a command line.
    pub fn configured(config: &Config) -> Result<Vec<Self>, CliError> {
        let named = config.agents.iter().filter(|(name, _)| *name != OWN_AGENT_NAME);
        named.map(|(name, configured)| Self::from_config(name, configured, config)).collect()
    }

    /// Returns the agents of the user's configuration that have these names.
    ///
    /// # Errors
    /// Names one that the configuration does not have.
    pub fn configured_with(config: &Config, names: &[String]) -> Result<Vec<Self>, CliError> {
        let find = |name: &String| match config.agents.get(name) {
            Some(configured) => Self::from_config(name, configured, config),
            None => Err(CliError::Usage(format!(
                "there is no agent {} in {}",
                quote(name),
                config.display_path()
            ))),
        };
        names.iter().map(find).collect()
    }

    /// Returns the command that starts this agent through another program: words that its own follow.
    #[must_use]
    pub fn through(&self, words: &[OsString]) -> Self {
        let program = words.first().map_or_else(|| self.program.clone(), PathBuf::from);
        let own = std::iter::once(self.program.clone().into_os_string()).chain(self.args.iter().cloned());
        let args = words.iter().skip(1).cloned().chain(own).collect();
        Self { program, args, ..self.clone() }
    }

    /// Returns Bowline's own agent, in a process of its own like any other.
    fn own_agent(arguments: &ClientArguments) -> Result<Self, CliError> {
        let program = std::env::current_exe().context("cannot find the bowline program")?;
        let mut args: Vec<OsString> = vec!["agent".into()];
        if let Some(model) = &arguments.model {
            args.extend(["--model".into(), model.into()]);
        }
        if let Some(url) = &arguments.base_url {
            args.extend(["--base-url".into(), url.into()]);
        }
        if let Some(window) = arguments.window {
            args.extend(["--window".into(), window.to_string().into()]);
        }
        let options::OwnAgentModes { initial: first, widest } = options::own_agent_modes(arguments)?;
        if let Some(mode) = first {
            args.extend(["--mode".into(), mode.id().into()]);
        }
        if widest != AgentMode::Full {
            args.extend(["--mode-at-most".into(), widest.id().into()]);
        }
        if let Some(policy) = &arguments.policy {
            // The agent starts in the workspace, but the path is relative to the current directory.
            let policy = std::path::absolute(policy).unwrap_or_else(|_| policy.clone());
            args.extend(["--policy".into(), policy.into_os_string()]);
        }
        if !arguments.no_terminal && !arguments.read_only {
            args.push("--shell".into());
        }
        Ok(Self { name: OWN_AGENT_NAME.to_owned(), program, args, env: BTreeMap::new(), is_own: true })
    }

    /// Returns the agent on a server, which a process of this program connects to.
    fn remote_agent(url: &str, arguments: &RemoteArguments) -> Result<Self, CliError> {
        let endpoint =
            Endpoint::parse(url).map_err(|error| CliError::Usage(format!("--connect: {error}")))?;
        let program = std::env::current_exe().context("cannot find the bowline program")?;
        let mut args: Vec<OsString> = vec!["connect".into(), url.into()];
        if let Some(file) = &arguments.token_file {
            // The process starts in the workspace, but the path is relative to the current directory.
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            args.extend(["--token-file".into(), file.into_os_string()]);
        }
        args.extend(arguments.insecure.then(|| "--insecure".into()));
        Ok(Self { name: endpoint.to_string(), program, args, env: BTreeMap::new(), is_own: false })
    }

    fn from_config(name: &str, configured: &ConfiguredAgent, config: &Config) -> Result<Self, CliError> {
        let ConfiguredAgent { command, args, env } = configured;
        let mut words = split_command_line(command)
            .map_err(|_| {
                CliError::Usage(format!(
                    "the command of the agent {} in {} is no command line: {}",
                    quote(name),
                    config.display_path(),
                    quote(command)
                ))
            })?
            .into_iter();
        let program = PathBuf::from(words.next().unwrap_or_default());
        let args = words.chain(args.iter().cloned()).map(OsString::from).collect();
        Ok(Self { name: name.to_owned(), program, args, env: env.clone(), is_own: false })
    }

    /// Returns the program that starts it in a directory, with the given environment. Variables that are not UTF-8 are
    /// left out.
    pub fn program(
        &self,
        directory: &Path,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<ProgramSpec, CliError> {
        let words =
            std::iter::once(self.program.as_os_str()).chain(self.args.iter().map(OsString::as_os_str));
        let argv = words.map(|word| {
            let text = word.to_str().map(str::to_owned);
            text.ok_or_else(|| CliError::Usage(format!("{} is not UTF-8", quote(&word.to_string_lossy()))))
        });
        let configured = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = environment.into_iter().chain(configured);
        Ok(agent_program(argv.collect::<Result<_, _>>()?, directory, environment))
    }

    /// Returns its program and arguments as one line.
    #[cfg(test)]
    pub fn command_line(&self) -> String {
        let words =
            std::iter::once(self.program.as_os_str()).chain(self.args.iter().map(OsString::as_os_str));
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
    }
}

/// Returns the program that starts an agent in a directory, with the given environment; if a variable is given twice,
/// the last value wins.
pub fn agent_program(
    argv: Vec<String>,
    directory: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> ProgramSpec {
    let into_strings =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let env: BTreeMap<String, String> = environment.into_iter().filter_map(into_strings).collect();
    let (directory, env) = (directory.to_owned(), env.into_iter().collect());
    ProgramSpec { argv, env, directory, resource_limits: UNLIMITED, grace_period: SHUTDOWN_GRACE }
}

/// An agent of the user's configuration, checked without starting it.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfiguredAgentStatus {
    /// Its name.
    pub name: String,
    /// Why it cannot be started, if so.
    pub problem: Option<String>,
}

/// Returns the agents of the user's configuration. `search` is the program search path.
pub fn check_configured_agents(config: &Config, search: Option<&OsString>) -> Vec<ConfiguredAgentStatus> {
    let status = |(name, configured): (&String, &ConfiguredAgent)| {
        let problem = match split_command_line(&configured.command) {
            Err(_) => Some(format!("its command is no command line: {}", quote(&configured.command))),
            Ok(words) => words.first().and_then(|program| {
                let exists = match program.contains('/') {
                    true => Path::new(program).is_file(),
                    false => find_program(program, search).is_some(),
                };
                (!exists).then(|| format!("there is no program {}", quote(program)))
            }),
        };
        ConfiguredAgentStatus { name: name.clone(), problem }
    };
    config.agents.iter().map(status).collect()
}

/// Splits a command line as a shell would; the result is not empty.
pub fn split_command_line(text: &str) -> Result<Vec<String>, CliError> {
    match shlex::split(text) {
        Some(words) if words.first().is_some_and(|word| !word.is_empty()) => Ok(words),
        Some(_) => Err(CliError::Usage("the command is empty: name a program".to_owned())),
        None => Err(CliError::Usage(format!("a quote is not closed in the command {}", quote(text)))),
    }
}

/// Returns the path of a program, as a shell would find it.
pub fn find_program(name: &str, search: Option<&OsString>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    std::env::split_paths(search?).map(|directory| directory.join(name)).find(|path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests;
