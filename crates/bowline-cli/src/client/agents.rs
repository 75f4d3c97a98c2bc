//! Which program an agent is: a command line, a name from the user's configuration, or Bowline itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bowline_state::failure::quote;
use bowline_state::mode::Mode;
use bowline_workspace::terminals::{Program, ResourceLimits};

use super::config::{Config, ConfiguredAgent};
use super::{ClientArguments, options};
use crate::ending::Ending;

/// The name of Bowline's own agent, where agents are named.
const OWN: &str = "bowline";

/// How long an agent may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(1);

/// What an agent may take: it is the user's own program, and nothing of ours limits it.
const UNLIMITED: ResourceLimits = ResourceLimits {
    processes: None,
    memory: None,
    memory_each: None,
    open_files: None,
    user_processes: None,
};

/// How an agent is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentCommand {
    /// What people call it: its name in the configuration, or its command line.
    pub(crate) name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: BTreeMap<String, String>,
    /// Whether it is Bowline's own.
    pub(crate) is_own: bool,
}

impl AgentCommand {
    /// Returns the agent that the arguments ask for. `search` is where programs are looked for.
    pub(crate) fn of(
        arguments: &ClientArguments,
        config: &Config,
        search: Option<&OsString>,
    ) -> Result<Self, Ending> {
        let Some(text) = arguments.agent.as_deref().filter(|text| *text != OWN) else {
            return Self::own(arguments);
        };
        if arguments.base_url.is_some() || arguments.window.is_some() {
            return Err(Ending::Usage(
                "--base-url and --window are for Bowline's own agent: leave out --agent, or tell the other agent in its own way"
                    .to_owned(),
            ));
        }
        let words = words(text)?;
        if let [name] = words.as_slice() {
            if let Some(configured) = config.agents.get(name) {
                return Self::configured(name, configured, config);
            }
            if !name.contains('/') && find(name, search).is_none() {
                let known: Vec<String> = config.agents.keys().map(|name| quote(name)).collect();
                return Err(Ending::Usage(format!(
                    "there is no agent {}: it is no program in PATH, and {}",
                    quote(name),
                    match known.as_slice() {
                        [] => format!("{} names none", config.shown()),
                        _ => format!("{} names {}", config.shown(), known.join(", ")),
                    }
                )));
            }
        }
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        // It is started in the workspace, and named from here.
        let program = match std::path::absolute(&program) {
            Ok(here) if program.contains('/') => here,
            _ => PathBuf::from(program),
        };
        let args = words.map(OsString::from).collect();
        Ok(Self { name: text.to_owned(), program, args, env: BTreeMap::new(), is_own: false })
    }

    /// Returns the agent that a command line of these words starts; there is one at least.
    pub(crate) fn given(words: &[OsString]) -> Self {
        let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let program = words.first().map(PathBuf::from).unwrap_or_default();
        let args = words.iter().skip(1).cloned().collect();
        Self { name: shown.join(" "), program, args, env: BTreeMap::new(), is_own: false }
    }

    /// Returns Bowline's own agent, in a process of its own like any other.
    fn own(arguments: &ClientArguments) -> Result<Self, Ending> {
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
        let options::Modes { first, widest } = options::own_modes(arguments)?;
        if let Some(mode) = first {
            args.extend(["--mode".into(), mode.id().into()]);
        }
        if widest != Mode::Full {
            args.extend(["--mode-at-most".into(), widest.id().into()]);
        }
        if let Some(policy) = &arguments.policy {
            // It is started in the workspace, and named from here.
            let policy = std::path::absolute(policy).unwrap_or_else(|_| policy.clone());
            args.extend(["--policy".into(), policy.into_os_string()]);
        }
        if !arguments.no_terminal && !arguments.read_only {
            args.push("--shell".into());
        }
        Ok(Self { name: OWN.to_owned(), program, args, env: BTreeMap::new(), is_own: true })
    }

    fn configured(name: &str, configured: &ConfiguredAgent, config: &Config) -> Result<Self, Ending> {
        let ConfiguredAgent { command, args, env } = configured;
        let mut words = words(command)
            .map_err(|_| {
                Ending::Usage(format!(
                    "the command of the agent {} in {} is no command line: {}",
                    quote(name),
                    config.shown(),
                    quote(command)
                ))
            })?
            .into_iter();
        let program = PathBuf::from(words.next().unwrap_or_default());
        let args = words.chain(args.iter().cloned()).map(OsString::from).collect();
        Ok(Self { name: name.to_owned(), program, args, env: env.clone(), is_own: false })
    }

    /// Returns what is run to start it in a directory, with the environment that is given. Variables that are not UTF-8
    /// are left out of it.
    pub(crate) fn program(
        &self,
        directory: &Path,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Program, Ending> {
        let words =
            std::iter::once(self.program.as_os_str()).chain(self.args.iter().map(OsString::as_os_str));
        let argv = words.map(|word| {
            let text = word.to_str().map(str::to_owned);
            text.ok_or_else(|| Ending::Usage(format!("{} is not UTF-8", quote(&word.to_string_lossy()))))
        });
        let own = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = environment.into_iter().chain(own);
        Ok(program(argv.collect::<Result<_, _>>()?, directory, environment))
    }

    /// Returns its program and arguments as one line.
    #[cfg(test)]
    pub(crate) fn line(&self) -> String {
        let words =
            std::iter::once(self.program.as_os_str()).chain(self.args.iter().map(OsString::as_os_str));
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
    }
}

/// Returns what is run to start an agent in a directory, with the environment that is given; of variables that are named
/// twice the last one holds.
pub(crate) fn program(
    argv: Vec<String>,
    directory: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Program {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let env: BTreeMap<String, String> = environment.into_iter().filter_map(text).collect();
    let (directory, env) = (directory.to_owned(), env.into_iter().collect());
    Program { argv, env, directory, resources: UNLIMITED, grace: GRACE }
}

/// An agent of the user's configuration, as far as it can be told without starting it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// What it is called.
    pub(crate) name: String,
    /// Why it cannot be started, if that is so.
    pub(crate) trouble: Option<String>,
}

/// Returns the agents that the user's configuration names. `search` is where programs are looked for.
pub(crate) fn known(config: &Config, search: Option<&OsString>) -> Vec<Known> {
    let known = |(name, configured): (&String, &ConfiguredAgent)| {
        let trouble = match words(&configured.command) {
            Err(_) => Some(format!("its command is no command line: {}", quote(&configured.command))),
            Ok(words) => words.first().and_then(|program| {
                let is_there = match program.contains('/') {
                    true => Path::new(program).is_file(),
                    false => find(program, search).is_some(),
                };
                (!is_there).then(|| format!("there is no program {}", quote(program)))
            }),
        };
        Known { name: name.clone(), trouble }
    };
    config.agents.iter().map(known).collect()
}

/// Splits a command line as a shell would; there is one word at least.
pub(crate) fn words(text: &str) -> Result<Vec<String>, Ending> {
    match shlex::split(text) {
        Some(words) if words.first().is_some_and(|word| !word.is_empty()) => Ok(words),
        Some(_) => Err(Ending::Usage("the command is empty: name a program".to_owned())),
        None => Err(Ending::Usage(format!("a quote is not closed in the command {}", quote(text)))),
    }
}

/// Returns where a program is, as a shell would find it.
pub(crate) fn find(name: &str, search: Option<&OsString>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    std::env::split_paths(search?).map(|directory| directory.join(name)).find(|path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests;
