//! Which program an agent is: a command line, a name from the user's configuration, or Bowline itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bowline_state::failure::quote;
use bowline_state::mode::Mode;
use bowline_workspace::terminals::{Program, ResourceLimits};
use serde::Deserialize;

use super::{ClientArguments, options};
use crate::ending::Ending;

/// The name of Bowline's own agent, where agents are named.
const OWN: &str = "bowline";

/// The configuration is at most this long, in bytes.
const MAX_CONFIG: u64 = 1 << 20;

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

/// The user's configuration, as far as it concerns agents.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    agents: BTreeMap<String, Configured>,
}

/// An agent in the user's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with command, and args and env if it needs them")]
struct Configured {
    /// A command line.
    command: String,
    /// More arguments, each as it is.
    #[serde(default)]
    args: Vec<String>,
    /// Variables for its environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl AgentCommand {
    /// Returns the agent that the arguments ask for. `config` is the user's `config.toml`, which need not be there;
    /// `search` is where programs are looked for.
    pub(crate) fn of(
        arguments: &ClientArguments,
        config: &Path,
        search: Option<&OsString>,
    ) -> Result<Self, Ending> {
        let Some(text) = arguments.agent.as_deref().filter(|text| *text != OWN) else {
            return Self::own(arguments);
        };
        let words = words(text)?;
        if let [name] = words.as_slice() {
            let mut known = read(config)?.agents;
            if let Some(configured) = known.remove(name) {
                return Self::configured(name, configured, config);
            }
            if !name.contains('/') && find(name, search).is_none() {
                let known: Vec<String> = known.into_keys().map(|name| quote(&name)).collect();
                return Err(Ending::Usage(format!(
                    "there is no agent {}: it is no program in PATH, and {}",
                    quote(name),
                    match known.as_slice() {
                        [] => format!("{} names none", quote(&config.display().to_string())),
                        _ => format!("{} names {}", quote(&config.display().to_string()), known.join(", ")),
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

    fn configured(name: &str, configured: Configured, config: &Path) -> Result<Self, Ending> {
        let Configured { command, args, env } = configured;
        let mut words = words(&command)
            .map_err(|_| {
                Ending::Usage(format!(
                    "the command of the agent {} in {} is no command line: {}",
                    quote(name),
                    quote(&config.display().to_string()),
                    quote(&command)
                ))
            })?
            .into_iter();
        let program = PathBuf::from(words.next().unwrap_or_default());
        let args = words.chain(args).map(OsString::from).collect();
        Ok(Self { name: name.to_owned(), program, args, env, is_own: false })
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
///
/// # Errors
/// Says why `run` and `chat` refuse the configuration.
pub(crate) fn known(config: &Path, search: Option<&OsString>) -> Result<Vec<Known>, Ending> {
    let known = |(name, configured): (String, Configured)| {
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
        Known { name, trouble }
    };
    Ok(read(config)?.agents.into_iter().map(known).collect())
}

/// Splits a command line as a shell would; there is one word at least.
pub(super) fn words(text: &str) -> Result<Vec<String>, Ending> {
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

fn read(config: &Path) -> Result<Config, Ending> {
    let shown = quote(&config.display().to_string());
    let file = match std::fs::File::open(config) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(Ending::Failed(anyhow::anyhow!("cannot read {shown}: {error}"))),
    };
    let mut text = String::new();
    file.take(MAX_CONFIG + 1)
        .read_to_string(&mut text)
        .map_err(|error| Ending::Failed(anyhow::anyhow!("cannot read {shown}: {error}")))?;
    if text.len() as u64 > MAX_CONFIG {
        return Err(Ending::Failed(anyhow::anyhow!("{shown} has more than {MAX_CONFIG} bytes")));
    }
    toml_edit::de::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let at = if line > 0 { format!(":{line}") } else { String::new() };
        Ending::Usage(format!("{shown}{at}: {}", error.message().trim()))
    })
}

#[cfg(test)]
mod tests;
